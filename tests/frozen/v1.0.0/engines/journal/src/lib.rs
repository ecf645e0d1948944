//! How the engines here tell the tests what reached them: one JSON line per call, in the engine's own folder.
//!
//! A file, because it outlives the instance (what happens in `dispose` and `Drop` is written too) and works the same
//! from a test's process and from the command's.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use context_engine_interface::EngineContext;
use serde_json::{Value, json};

/// The journal of one instance; clones write the same one.
#[derive(Clone)]
pub struct Journal {
    path: PathBuf,
    writing: Arc<Mutex<()>>,
}

impl Journal {
    /// The journal in the folder the host gives the engine.
    pub fn of(ctx: EngineContext<'_>) -> Journal {
        let folder = ctx.state_dir();
        Journal { path: PathBuf::from(folder.as_str()).join("journal.jsonl"), writing: Arc::default() }
    }

    /// Writes that `member` was called with `params`.
    pub fn note(&self, member: &str, params: Value) {
        let _one_at_a_time = self.writing.lock();
        let line = format!("{}\n", json!({ "member": member, "params": params }));
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the journal can be written");
    }
}

/// The engine's configuration; an empty object without one.
pub fn config(ctx: EngineContext<'_>) -> Value {
    serde_json::from_str(ctx.config_json().as_str()).unwrap_or_else(|_| json!({}))
}

/// Host params as a value.
pub fn host_params(json: &str) -> Value {
    if json.is_empty() { Value::Null } else { serde_json::from_str(json).expect("host params are JSON") }
}
