//! Sessions on disk for the tests, and what is compared of them.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use context_engine_transcript::store::{NewEntry, OpenReport, SessionHeader, SessionStore, StoredContext};
use context_engine_transcript::{HistoryOptions, Imported, Message, RecordedSession, TranscriptError, load};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tracing::field::{Field, Visit};

pub(crate) const HEADER: &str = r#"{"type":"session","version":3,"id":"s1","cwd":"/w"}"#;

/// A folder with room for one session file.
pub(crate) struct Place {
    _folder: TempDir,
    pub(crate) file: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("2026-01-05T08-00-00-000Z_named.jsonl");
        Place { _folder: folder, file }
    }

    /// With a file of these bytes.
    pub(crate) fn holding(bytes: impl AsRef<[u8]>) -> Place {
        let place = Place::new();
        place.put(bytes);
        place
    }

    /// With a file of these lines.
    pub(crate) fn of_lines(lines: &[&str]) -> Place {
        Place::holding(lines.iter().map(|line| format!("{line}\n")).collect::<String>())
    }

    pub(crate) fn put(&self, bytes: impl AsRef<[u8]>) {
        fs::write(&self.file, bytes).expect("a file");
    }

    /// What another program would append.
    pub(crate) fn add(&self, bytes: impl AsRef<[u8]>) {
        use std::io::Write;
        let mut file = fs::OpenOptions::new().append(true).open(&self.file).expect("the file");
        file.write_all(bytes.as_ref()).expect("room");
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(&self.file).expect("the file")
    }

    pub(crate) fn create(&self) -> SessionStore {
        SessionStore::create(&self.file, SessionHeader::default()).expect("a session")
    }

    pub(crate) fn open(&self) -> SessionStore {
        self.open_report().0
    }

    pub(crate) fn open_report(&self) -> (SessionStore, OpenReport) {
        SessionStore::open(&self.file).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn error(&self) -> String {
        told(&self.file, &SessionStore::open(&self.file).expect_err("no session"))
    }
}

/// The error, without the path.
pub(crate) fn told(file: &Path, error: &TranscriptError) -> String {
    error.to_string().replace(&*file.to_string_lossy(), "FILE")
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("no object: {value}") };
    map
}

pub(crate) fn user(text: &str) -> NewEntry {
    NewEntry::Message(object(json!({ "role": "user", "content": text })))
}

pub(crate) fn assistant(text: &str) -> NewEntry {
    let content = json!([{ "type": "text", "text": text }]);
    NewEntry::Message(object(json!({ "role": "assistant", "content": content, "provider": "p", "model": "m" })))
}

pub(crate) fn compaction(summary: &str, first_kept: Option<&str>) -> NewEntry {
    NewEntry::Compaction {
        summary: summary.to_owned(),
        first_kept_entry_id: first_kept.map(str::to_owned),
        tokens_before: 100,
        tokens_after: Some(10),
        details: None,
    }
}

pub(crate) fn say(store: &mut SessionStore, text: &str) -> String {
    store.append(user(text)).unwrap_or_else(|error| panic!("{error}")).id
}

/// A line with a user's message of text `id`.
pub(crate) fn line(id: &str, parent: &str) -> String {
    let parent = if parent.is_empty() { "null".to_owned() } else { format!("{parent:?}") };
    format!(r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}"}}}}"#)
}

/// The texts of what a model is sent, a summary in brackets.
pub(crate) fn texts(context: &StoredContext) -> String {
    let summary =
        context.summary.iter().map(|m| format!("[{}]", m.to_map().expect("a map")["summary"].as_str().expect("text")));
    let messages = context.messages.iter().map(|m| m.text());
    summary.chain(messages).collect::<Vec<_>>().join(" ")
}

pub(crate) fn context(store: &SessionStore) -> String {
    texts(&store.context().unwrap_or_else(|error| panic!("{error}")))
}

pub(crate) fn branch(store: &SessionStore) -> String {
    store.branch_ids().join(" ")
}

pub(crate) fn import(file: &Path) -> Imported {
    load(file).unwrap_or_else(|error| panic!("{error}"))
}

/// The importer reads of the file what the store shows: ids, branch, context, every entry to the letter, and damage.
pub(crate) fn agrees_with_importer(store: &SessionStore, report: Option<&OpenReport>) {
    let imported = import(store.path());
    assert_eq!(imported.sessions.len(), 1);
    let session: &RecordedSession = &imported.sessions[0];
    assert_eq!(store.id(), session.id);
    assert_eq!(store.entries(), session.entries.len());
    let branch: Vec<&str> = session.active_branch().iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(store.branch_ids(), branch);
    assert_eq!(store.leaf(), branch.last().copied());
    let context = store.context().unwrap_or_else(|error| panic!("{error}"));
    let messages: Vec<&Message> = context.summary.iter().chain(&context.messages).map(AsRef::as_ref).collect();
    let history = session.history(HistoryOptions { honor_compactions: true }).messages;
    assert_eq!(messages, history.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    assert_eq!(context.model.map(|(_, id)| id), session.model);
    for entry in &session.entries {
        let stored = store.entry(&entry.id).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(stored.as_ref(), Some(entry));
    }
    if let Some(report) = report {
        assert_eq!(report.warnings, imported.warnings);
        assert_eq!(report.lost, imported.lost);
        assert_eq!(report.lost_parents, session.counts.mended.get("lost parent").copied().unwrap_or(0));
        assert_eq!(report.duplicate_ids, session.counts.mended.get("duplicate id").copied().unwrap_or(0));
    }
}

thread_local! {
    /// The warnings of this thread, while somebody wants to know.
    static WARNINGS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps warnings for the thread they are said on.
struct Heard;

impl Visit for Heard {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            WARNINGS
                .with_borrow_mut(|heard| heard.iter_mut().for_each(|heard| heard.push_str(&format!("{value:?}\n"))));
        }
    }
}

impl tracing::Subscriber for Heard {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Heard);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// What is said as warnings while `run` runs, on this thread. One subscriber for all threads: with one each, a thread that
/// has none may have a warning switched off for the others.
pub(crate) fn warnings_of(run: impl FnOnce()) -> String {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Heard).expect("the first"));
    WARNINGS.set(Some(String::new()));
    run();
    WARNINGS.take().unwrap_or_default()
}
