//! What is said of a session as a whole: the same words and numbers in a list, in front of its entries, and by a doctor.

use std::path::Path;

use context_engine_transcript::store::{Findings, SessionSummary, list};
use serde_json::{Value, json};

use crate::output::{count, path_json, utc};

/// Fewest characters of an id that are shown.
const SHORTEST: usize = 8;

/// A session as the members of a JSON object.
pub(super) fn summary_json(summary: &SessionSummary) -> Value {
    let time = |ms: Option<i64>| ms.and_then(|ms| u64::try_from(ms).ok()).map(utc);
    json!({
        "id": summary.id,
        "path": path_json(&summary.path),
        "bytes": summary.bytes,
        "version": summary.version,
        "name": summary.name,
        "entries": summary.entries,
        "messages": summary.messages,
        "branches": summary.branches,
        "compactions": summary.compactions,
        "first": time(summary.first_ms),
        "last": time(summary.last_ms),
        "model": summary.model,
        "cwd": summary.cwd,
        "owner": summary.owner.as_ref().map(|owner| {
            json!({ "pid": owner.pid, "name": owner.name, "since": owner.since })
        }),
        "damaged": summary.findings.is_damaged(),
        "findings": findings_json(&summary.findings),
    })
}

/// What is wrong with a session file.
pub(super) fn findings_json(findings: &Findings) -> Value {
    json!({
        "told": findings.told(),
        "damagedLines": findings.damaged_lines,
        "recovered": findings.recovered,
        "lost": findings.lost,
        "replacedLines": findings.replaced_lines,
        "lostParents": findings.lost_parents,
        "duplicateIds": findings.duplicate_ids,
        "missingIds": findings.missing_ids,
        "unansweredCalls": findings.unanswered_calls,
    })
}

/// Calls without a result, in words; `None` when there are none.
pub(super) fn open_calls(calls: u64) -> Option<String> {
    let made = if calls == 1 { "it is" } else { "each is" };
    (calls > 0).then(|| {
        format!("{} without a result: {made} made whole whenever a prompt is built", count(calls, "tool call"))
    })
}

/// How many characters of the ids, counted from the beginning, tell them apart.
pub(super) fn telling<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    // The neighbours in order are the ones most alike.
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let most = ids.windows(2).filter(|pair| pair[0] != pair[1]).map(|pair| common(pair[0], pair[1])).max();
    most.map_or(SHORTEST, |most| SHORTEST.max(most + 1))
}

/// The beginning of an id.
pub(super) fn short(id: &str, length: usize) -> String {
    id.chars().take(length).collect()
}

/// The sessions of a host, for its doctor.
pub(crate) struct Overview {
    /// What is said of them, one thing each.
    pub(crate) lines: Vec<String>,
    pub(crate) json: Value,
    pub(crate) damaged: bool,
}

/// Looks at every session in `folder`.
pub(crate) fn overview(folder: &Path) -> Overview {
    let listed = if folder.exists() { list(folder) } else { Ok(Vec::new()) };
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) => {
            let (json, lines) = (json!({ "error": error.to_string() }), vec![error.to_string()]);
            return Overview { lines, json, damaged: true };
        }
    };
    let (sessions, others): (Vec<_>, Vec<_>) = listed.iter().partition(|summary| summary.not_a_session.is_none());
    let damaged: Vec<&&SessionSummary> = sessions.iter().filter(|session| session.findings.is_damaged()).collect();
    let calls: u64 = sessions.iter().map(|session| session.findings.unanswered_calls).sum();
    let mut lines = vec![format!(
        "{}  {}, {} damaged{}",
        folder.display(),
        count(sessions.len() as u64, "session"),
        damaged.len(),
        if others.is_empty() { String::new() } else { format!(", {}", count(others.len() as u64, "other file")) }
    )];
    let length = telling(sessions.iter().map(|session| session.id.as_str()));
    for session in &damaged {
        let id = short(&session.id, length);
        let told = session.findings.told().join("; ");
        lines.push(format!("{id}: {told}; `context-engine sessions repair {id}` mends it"));
    }
    lines.extend(open_calls(calls));
    let json = json!({
        "folder": path_json(folder),
        "sessions": sessions.len(),
        "otherFiles": others.len(),
        "damaged": damaged.iter().map(|session| summary_json(session)).collect::<Vec<_>>(),
        "unansweredCalls": calls,
    });
    Overview { lines, json, damaged: !damaged.is_empty() }
}

#[cfg(test)]
mod tests {
    use context_engine_legacy::pipeline::pair_repair;
    use context_engine_transcript::load;
    use context_engine_transcript::store::unanswered_calls;

    use super::*;

    #[test]
    fn ids_are_cut_as_far_as_they_can_be_told_apart() {
        for (ids, length) in [
            (&[][..], 8),
            (&["0193"], 8),
            (&["0193aaaa-1", "0193aaaa-2", "x"], 10),
            (&["same", "same"], 8),
            (&["ééééééééé1", "ééééééééé2"], 10),
            (&["12345678", "123456789"], 9),
        ] {
            assert_eq!(telling(ids.iter().copied()), length, "{ids:?}");
        }
    }

    /// What a doctor counts is what a prompt has made up, whatever part of a history there is.
    #[test]
    fn a_call_is_open_when_a_prompt_gets_a_made_up_result_for_it() {
        let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/session.jsonl");
        let messages = load(&demo).expect("the demo").sessions.remove(0).history(Default::default()).messages;
        let mut open = 0;
        for length in (1..messages.len()).step_by(29) {
            for without in [usize::MAX, 3, 7] {
                let part = messages[..length].iter().enumerate().filter(|(at, _)| (at + 1) % without != 0);
                let part: Vec<_> = part.map(|(_, message)| message.clone()).collect();
                let (_, report) = pair_repair(part.clone());
                let made = (report.synthetic + report.unnamed_calls) as u64;
                assert_eq!(unanswered_calls(&part), made, "{length} messages without each {without}th");
                open += made;
            }
        }
        assert!(open > 10, "{open}");
    }
}
