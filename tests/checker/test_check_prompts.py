"""Hand-made dumps, good and bad. Run: python3 -m unittest discover tests/checker"""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import check_prompts  # noqa: E402


def user(text, **more):
    return {"role": "user", "content": [{"type": "text", "text": text}], **more}


def assistant(text, *ids):
    calls = [{"type": "toolCall", "id": i, "name": "read", "arguments": {"path": "a.txt"}} for i in ids]
    return {"role": "assistant", "content": [{"type": "text", "text": text}, *calls]}


def result(call, text="ok"):
    return {"role": "toolResult", "toolCallId": call, "toolName": "read", "content": [{"type": "text", "text": text}]}


GOOD = [user("look"), assistant("both", "c1", "c2"), result("c2"), result("c1", ""), assistant("done"), user("more")]


class Dump(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name) / "dump"
        self.dir.mkdir()
        estimated = mock.patch.object(check_prompts, "make_counter", lambda: (check_prompts.estimate, "estimated"))
        estimated.start()
        self.addCleanup(estimated.stop)

    def put(self, name, messages, system="You help."):
        path = self.dir / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"system": system, "messages": messages}), encoding="utf-8")

    def report(self, *rows, **more):
        path = self.dir.parent / "replay.json"
        calls = [{"turn": t, "call": c, "sent_messages": n, "sent_tokens": k, "served_by": e} for t, c, n, k, e in rows]
        path.write_text(json.dumps({"session": "s", "calls": calls, **more}), encoding="utf-8")
        return "--report", str(path)

    def check(self, *more, budget=1000):
        """(exit code, violations without the folder, last line)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = check_prompts.main([str(self.dir), "--budget", str(budget), *more])
            except SystemExit as stop:
                code = stop.code
        lines = out.getvalue().replace(f"{self.dir}/", "").replace(f"{self.dir.parent}/", "").splitlines() or [""]
        return code, lines[:-1], lines[-1]

    def expect(self, messages, *violations):
        self.put("1-1", messages)
        code, lines, last = self.check()
        self.assertEqual([f"1-1.json: {text}" for text in violations], lines)
        self.assertEqual((1 if violations else 0, f"1 prompts, {len(violations)} violations"), (code, last))

    def test_good_prompt(self):
        self.expect(GOOD)

    def test_ends_after_results(self):
        self.expect(GOOD[:4])

    def test_string_content(self):
        self.expect([{"role": "user", "content": "hello"}])

    def test_no_messages(self):
        self.expect([], "no messages")

    def test_unknown_role(self):
        self.expect([user("a"), {**user("b"), "role": "tool"}, user("c")], "message 1: unknown role 'tool'")

    def test_empty_content(self):
        self.expect(
            [user("  "), {"role": "assistant", "content": []}, user("a")],
            "message 0: user message without content",
            "message 1: assistant message without content",
        )

    def test_content_of_another_type(self):
        self.expect(
            [{"role": "user", "content": None}], "message 0: content is neither text nor a list of blocks: NoneType"
        )

    def test_missing_result(self):
        self.expect(
            [user("a"), assistant("b", "c1", "c2"), result("c1"), user("d")],
            "message 1: calls without a result directly after: 'c2'",
        )

    def test_missing_result_at_the_end(self):
        self.expect(
            [user("a"), assistant("b", "c1")],
            "message 1: calls without a result directly after: 'c1'",
            "ends in an assistant message",
        )

    def test_orphan_result(self):
        self.expect([result("c9"), user("a")], "message 0: result for call 'c9', which is not before it")

    def test_result_after_another_message(self):
        self.expect(
            [user("a"), assistant("b", "c1"), user("d"), result("c1"), user("e")],
            "message 1: calls without a result directly after: 'c1'",
            "message 3: result for call 'c1' does not follow it directly",
        )

    def test_second_result(self):
        self.expect(
            [user("a"), assistant("b", "c1"), result("c1"), result("c1", "other")],
            "message 3: second result for call 'c1'",
        )

    def test_call_id_twice(self):
        self.expect(
            [user("a"), assistant("b", "c1"), result("c1"), assistant("d", "c1"), result("c1", "other")],
            "message 3: call id 'c1' a second time",
            "message 4: second result for call 'c1'",
        )

    def test_same_message_twice(self):
        self.expect([user("a"), user("a")], "message 1: same as the message before")

    def test_same_words_at_another_time(self):
        self.expect([user("go on", timestamp=1), user("go on", timestamp=2)])

    def test_call_without_parts(self):
        self.expect(
            [user("a"), {"role": "assistant", "content": [{"type": "toolCall", "id": "c1"}]}, result("c1")],
            "message 1: tool call 'c1' without a name",
            "message 1: tool call 'c1' without an arguments object",
        )

    def test_budget_counts_system_text_arguments_and_images(self):
        self.put(
            "1-1", [user("x" * 400), {"role": "user", "content": [{"type": "image", "data": "", "mimeType": "i"}]}]
        )
        self.assertEqual((0, []), self.check(budget=2103)[:2])
        self.assertEqual(["1-1.json: 2103 tokens (estimated), budget 2102"], self.check(budget=2102)[1])

    def test_cjk_counts_one_each(self):
        self.assertEqual(7, check_prompts.estimate("時刻帯の誤り") + check_prompts.estimate("ab"))

    def test_does_not_parse(self):
        (self.dir / "1-1.json").write_text('{"system": "', encoding="utf-8")
        code, lines, _ = self.check()
        self.assertEqual((1, 1), (code, len(lines)))
        self.assertIn("does not parse", lines[0])

    def test_order_is_by_number_and_system_stays(self):
        self.put("2-1", GOOD, system="A")
        self.put("10-1", GOOD, system="B")
        self.put("10-2", GOOD, system="B")
        self.assertEqual(["10-1.json: system differs from the prompt before"], self.check()[1])

    def test_sessions_are_apart(self):
        self.put("one/1-1", GOOD, system="A")
        self.put("two/1-1", [user("a"), user("a")], system="B")
        code, lines, last = self.check()
        self.assertEqual(
            (["two/1-1.json: message 1: same as the message before"], "2 prompts, 1 violations"), (lines, last)
        )

    def test_report_agrees(self):
        self.put("1-1", GOOD)
        self.assertEqual(0, self.check(*self.report((1, 1, 6, 40, "x")), "--engine", "x")[0])

    def test_report_differs(self):
        self.put("1-1", GOOD)
        self.put("1-2", GOOD)
        report = self.report((1, 1, 5, 4000, "legacy"), (3, 1, 6, 40, "x"))
        self.assertEqual(
            [
                "1-2.json: dumped, but not in the report",
                "1-1.json: holds 6 messages, the report says 5",
                "1-1.json: the report says 4000 tokens, budget 1000",
                "1-1.json: served by 'legacy', expected 'x'",
                "replay.json: call 3-1 is reported, but not dumped",
            ],
            self.check(*report, "--engine", "x")[1],
        )

    def test_reports_of_several_sessions(self):
        self.put("one/1-1", GOOD)
        self.put("two/1-1", GOOD)
        row = {"turn": 1, "call": 1, "sent_messages": 6, "sent_tokens": 40, "served_by": "x"}
        path = self.dir.parent / "replay.json"
        path.write_text(
            json.dumps([{"session": f"/somewhere/{n}.jsonl", "calls": [row]} for n in ("one", "two", "six")])
        )
        self.assertEqual(
            ["replay.json: session '/somewhere/six.jsonl' is reported, but not dumped"],
            self.check("--report", str(path))[1],
        )

    def test_wrong_usage(self):
        self.assertEqual(2, self.check()[0])  # nothing dumped
        self.put("1-1", GOOD)
        self.assertEqual(2, self.check(budget=0)[0])
        self.assertEqual(2, self.check("--engine", "x")[0])
        self.assertEqual(2, self.check("--report", str(self.dir / "none.json"))[0])


if __name__ == "__main__":
    unittest.main()
