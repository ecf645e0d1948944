#!/usr/bin/env python3
"""Checks dumped prompts without using any code of the project.

A replay can write every prompt it sends to a folder, one file per model call. This script reads those files
as a model provider would and says what a provider would refuse, what exceeds the budget, and where the
replay's own report says something else than its dump.
"""

import argparse
import json
import re
import sys
from pathlib import Path

IMAGE_TOKENS = 2000
NAME = re.compile(r"^(\d+)-(\d+)\.json$")
ROLES = ("user", "assistant", "toolResult")
# Kana, CJK ideographs with extensions, Hangul, full-width forms: about one token per character.
CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)

HELP = """\
what is checked, per prompt:
  shape     parses; `messages` is not empty; roles are user, assistant or toolResult; every message has content
            (a user or assistant message needs a block that is not blank; a tool result may hold an empty text)
  pairs     the calls of an assistant message are followed directly by exactly their results, in any order;
            a result has its call directly before it; no call id twice in one prompt
  repeats   no result twice; no two equal messages in a row
  end       the last message is not the assistant's: there must be something to answer
  system    the same in all prompts of a session
  budget    system + messages <= --budget. Text, thinking, tool names and arguments are counted with tiktoken
            (o200k_base) when that package can be used, else estimated: a token per 4 characters, one per CJK
            character: mostly low (code, logs), now and then a few percent high (long words). An estimate over the
            budget is reported all the same; install tiktoken and its vocabulary to be sure. An image is 2,000 tokens.
  report    with --report: every dump has a call and every call a dump, `sent_messages` is the dump's number,
            `sent_tokens` is within the budget; with --engine, `served_by` is that engine

layout:
  DIR/<turn>-<call>.json              one session
  DIR/<session>/<turn>-<call>.json    several (replay --session all)
  each file: {"system": "...", "messages": [...]}, messages and blocks in OpenClaw's shape

output:
  one line per violation (messages are numbered from 0), then `N prompts, M violations`
  exit code 0: none, 1: some, 2: wrong usage, or nothing to check

examples:
  check_prompts.py dump --budget 32000
  check_prompts.py dump --budget 32000 --report replay.json --engine sliding-window
"""


class Usage(Exception):
    """The script was asked for something it cannot do."""


def make_counter():
    """(function text -> tokens, how it counts). tiktoken may be installed and still lack its vocabulary."""
    try:
        import tiktoken

        encoding = tiktoken.get_encoding("o200k_base")
    except Exception:
        return estimate, "estimated"

    def count(text):
        # In slices: encoding one long unbroken run takes quadratic time.
        slices = (text[at : at + 10_000] for at in range(0, len(text), 10_000))
        return sum(len(encoding.encode(part, disallowed_special=())) for part in slices)

    return count, "o200k_base"


def estimate(text):
    cjk = len(CJK.findall(text))
    return cjk + (len(text) - cjk + 3) // 4


def blocks_of(content):
    """The content as a list of blocks, or None when it is neither text nor a list of objects."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list) and all(isinstance(block, dict) for block in content):
        return content
    return None


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def block_tokens(block, count):
    kind = block.get("type")
    if kind == "image":
        return IMAGE_TOKENS
    if kind == "toolCall":
        return count(str(block.get("name", ""))) + count(compact(block.get("arguments", {})))
    if kind in ("text", "thinking"):
        return count(str(block.get(kind, "")))
    return count(compact(block))


def prompt_tokens(prompt, count):
    total = sum(block_tokens(block, count) for block in blocks_of(prompt.get("system") or "") or [])
    for message in prompt["messages"]:
        if isinstance(message, dict):
            total += sum(block_tokens(block, count) for block in blocks_of(message.get("content")) or [])
    return total


def is_blank(block):
    kind = block.get("type")
    return kind in ("text", "thinking") and not str(block.get(kind, "")).strip()


def check_message(message):
    """What is wrong with one message on its own."""
    if not isinstance(message, dict):
        yield "not an object"
        return
    role = message.get("role")
    if role not in ROLES:
        yield f"unknown role {role!r}"
    blocks = blocks_of(message.get("content"))
    if blocks is None:
        yield f"content is neither text nor a list of blocks: {type(message.get('content')).__name__}"
    elif not blocks or (role != "toolResult" and all(is_blank(block) for block in blocks)):
        yield f"{role} message without content"
    for block in blocks or []:
        if block.get("type") == "toolCall":
            if role != "assistant":
                yield f"{role} message holds a tool call"
            if not isinstance(block.get("id"), str) or not block["id"]:
                yield "tool call without an id"
            if not isinstance(block.get("name"), str) or not block["name"]:
                yield f"tool call {block.get('id')!r} without a name"
            if not isinstance(block.get("arguments"), dict):
                yield f"tool call {block.get('id')!r} without an arguments object"
    if role == "toolResult" and not isinstance(message.get("toolCallId"), str):
        yield "tool result without a toolCallId"


def call_ids(message):
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return []
    return [block.get("id") for block in blocks_of(message.get("content")) or [] if block.get("type") == "toolCall"]


def check_sequence(messages):
    """Pairs, repeats and the end of a prompt."""
    called, answered = set(), set()
    waiting, asked_at = [], None  # calls of the assistant message before, not answered yet
    for at, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if at and message == messages[at - 1]:
            yield f"message {at}: same as the message before"
        if role == "toolResult":
            call = message.get("toolCallId")
            expected = call in waiting
            if expected:
                waiting.remove(call)
            if call in answered:
                yield f"message {at}: second result for call {call!r}"
            elif not expected and call in called:
                yield f"message {at}: result for call {call!r} does not follow it directly"
            elif not expected:
                yield f"message {at}: result for call {call!r}, which is not before it"
            answered.add(call)
            continue
        if waiting:
            yield f"message {asked_at}: calls without a result directly after: {', '.join(map(repr, waiting))}"
        waiting, asked_at = call_ids(message), at
        for call in waiting:
            if call in called:
                yield f"message {at}: call id {call!r} a second time"
            called.add(call)
        waiting = list(dict.fromkeys(waiting))
    if waiting:
        yield f"message {asked_at}: calls without a result directly after: {', '.join(map(repr, waiting))}"
    if messages and isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        yield "ends in an assistant message"


def check_prompt(prompt, budget, count, how):
    """Everything about one prompt that needs no other file."""
    if not isinstance(prompt, dict) or not isinstance(prompt.get("messages"), list):
        yield "not an object with a `messages` list"
        return
    if not prompt["messages"]:
        yield "no messages"
    if prompt.get("system") is not None and blocks_of(prompt["system"]) is None:
        yield "`system` is neither text nor a list of blocks"
    for at, message in enumerate(prompt["messages"]):
        for text in check_message(message):
            yield f"message {at}: {text}"
    yield from check_sequence(prompt["messages"])
    tokens = prompt_tokens(prompt, count)
    if tokens > budget:
        yield f"{tokens} tokens ({how}), budget {budget}"


def sessions_in(folder):
    """{session name or None: {(turn, call): path}}, calls in order. None is the folder itself."""
    if not folder.is_dir():
        raise Usage(f"{folder}: not a directory")
    found = {}
    for path in sorted(folder.rglob("*.json")):
        name = NAME.match(path.name)
        if not name:
            continue
        parent = path.parent.relative_to(folder).as_posix()
        session = None if parent == "." else parent
        found.setdefault(session, {})[int(name[1]), int(name[2])] = path
    if not found:
        raise Usage(f"{folder}: no files named <turn>-<call>.json")
    return {session: dict(sorted(calls.items())) for session, calls in found.items()}


def load_reports(path):
    """The report's sessions: the file holds one, a list of them, or an object with `sessions`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Usage(f"{path}: {error}") from None
    reports = data.get("sessions", [data]) if isinstance(data, dict) else data
    if not isinstance(reports, list):
        raise Usage(f"{path}: not the output of replay --json")
    for report in reports:
        if not isinstance(report, dict) or not isinstance(report.get("calls"), list):
            raise Usage(f"{path}: not the output of replay --json: a session without `calls`")
    return reports


def report_for(reports, session):
    """The report of a dumped session; its name there may be a path or carry the file's ending."""
    if len(reports) == 1:
        return reports[0]
    for report in reports:
        name = str(report.get("session", "")).replace("\\", "/")
        if session in (name, name.rsplit("/", 1)[-1], name.rsplit("/", 1)[-1].removesuffix(".jsonl")):
            return report
    return None


def number(row, key):
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def check_report(report, sent, paths, args):
    """(where, what) for each difference between a session's report and its dump. `sent`: {(turn, call): messages}."""
    rows = {}
    for row in report["calls"]:
        key = (number(row, "turn"), number(row, "call")) if isinstance(row, dict) else (None, None)
        if None in key:
            yield args.report, f"a call without turn and call numbers: {compact(row)[:80]}"
        elif key in rows:
            yield args.report, f"call {key[0]}-{key[1]} twice"
        else:
            rows[key] = row
    for key, path in paths.items():
        if key not in rows:
            yield path, "dumped, but not in the report"
    for key, row in rows.items():
        if key not in paths:
            yield args.report, f"call {key[0]}-{key[1]} is reported, but not dumped"
            continue
        if key in sent and number(row, "sent_messages") != sent[key]:
            yield paths[key], f"holds {sent[key]} messages, the report says {row.get('sent_messages')}"
        if (number(row, "sent_tokens") or 0) > args.budget:
            yield paths[key], f"the report says {row['sent_tokens']} tokens, budget {args.budget}"
        if args.engine is not None and row.get("served_by") != args.engine:
            why = f" ({row['fallback']})" if row.get("fallback") else ""
            yield paths[key], f"served by {row.get('served_by')!r}{why}, expected {args.engine!r}"


def run(args):
    """(number of prompts, [(where, what)])."""
    count, how = make_counter()
    reports = load_reports(args.report) if args.report else []
    sessions = sessions_in(args.dir)
    if len(reports) == 1 and len(sessions) > 1:
        raise Usage(f"{args.report}: one session, but {args.dir} holds {len(sessions)}")
    prompts, found, used = 0, [], []
    for session, paths in sessions.items():
        sent, system, first = {}, None, True
        for key, path in paths.items():
            prompts += 1
            try:
                prompt = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                found.append((path, f"does not parse: {error}"))
                continue
            found += [(path, text) for text in check_prompt(prompt, args.budget, count, how)]
            if not isinstance(prompt, dict):
                continue
            if isinstance(prompt.get("messages"), list):
                sent[key] = len(prompt["messages"])
            if not first and prompt.get("system") != system:
                found.append((path, "system differs from the prompt before"))
            system, first = prompt.get("system"), False
        if reports:
            report = report_for(reports, session)
            if report is None:
                found.append((args.report, f"no report for session {session or args.dir.name!r}"))
            else:
                used.append(id(report))
                found += check_report(report, sent, paths, args)
    for report in reports:
        if id(report) not in used:
            found.append((args.report, f"session {report.get('session')!r} is reported, but not dumped"))
    return prompts, found


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder with the dumped prompts")
    parser.add_argument("--budget", type=int, required=True, metavar="N", help="tokens a prompt may cost")
    parser.add_argument("--report", type=Path, metavar="FILE", help="what `replay --json` printed for this dump")
    parser.add_argument("--engine", metavar="ID", help="engine that must have served every call; needs --report")
    args = parser.parse_args(argv)
    if args.budget <= 0:
        parser.error("--budget must be a positive number of tokens")
    if args.engine is not None and args.report is None:
        parser.error("--engine needs --report: only the report says who served a call")
    try:
        prompts, found = run(args)
    except Usage as error:
        print(f"check_prompts.py: {error}", file=sys.stderr)
        return 2
    for where, what in found:
        print(f"{where}: {what}")
    print(f"{prompts} prompts, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
