//! Real recorded sessions as session files; see `tests/recorded_sessions.rs` for where they are.

use std::path::Path;

use context_engine_transcript::load;

use crate::support::*;

#[test]
fn recorded_sessions_are_what_the_importer_reads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/transcripts");
    if !folder.is_dir() {
        assert!(
            std::env::var_os("CI").is_none(),
            "{}: expected the recorded sessions, found nothing",
            folder.display()
        );
        eprintln!("skipped: no folder {}", folder.display());
        return;
    }
    for (name, entries) in
        [("openclaw-v3-shape.jsonl", 63), ("pi-before-compaction.jsonl", 1002), ("entire-cc-3compactions.jsonl", 543)]
    {
        let imported = load(&folder.join(name)).unwrap_or_else(|error| panic!("{error}"));
        let place = Place::holding(imported.sessions[0].to_openclaw());
        let (mut store, report) = place.open_report();
        assert!(report.warnings.is_empty() && report.damaged_lines.is_empty(), "{name}: {report:?}");
        assert_eq!(store.entries(), entries, "{name}");
        agrees_with_importer(&store, Some(&report));
        let first = store.branch_ids()[0].to_owned();
        say(&mut store, "and now?");
        store.branch(Some(&first)).expect("an entry");
        say(&mut store, "or so");
        assert_eq!(store.branch_ids().len(), 2, "{name}");
        agrees_with_importer(&store, None);
    }
}
