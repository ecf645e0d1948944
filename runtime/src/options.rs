//! What a runtime works with.

use std::sync::Arc;

use context_engine_loader::{Creation, HostProfile, LEGACY, Loader};

use crate::model::Model;
use crate::session::{Compactor, ExtractiveCompactor};
use crate::turn::{SettingsFacts, SystemPrompt, Tool};

/// The most calls of one turn, unless a host says otherwise: nobody is helped by a loop that costs money.
const MAX_CALLS: usize = 500;

/// Makes the creation of an engine, by its id.
pub type Creations = Arc<dyn Fn(&str) -> Creation + Send + Sync>;

/// What a runtime works with.
#[derive(Clone)]
pub struct RuntimeOptions {
    /// Finds and opens engines. Its host profile should be [`RuntimeOptions::profile`].
    pub loader: Loader,
    /// Id of the engine in the slot.
    pub engine: String,
    /// What an engine is created with.
    pub creations: Creations,
    /// Answers prompts.
    pub model: Arc<dyn Model>,
    /// What the model may call.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What every prompt begins with.
    pub system: SystemPrompt,
    /// Decides what stands for older messages, for engines that leave it to the host.
    pub compactor: Arc<dyn Compactor>,
    /// Caps the window of the model, in tokens.
    pub context_tokens: Option<u64>,
    /// What is kept free for a reply, in tokens; at most a quarter of the window.
    pub reserve_tokens: Option<u64>,
    /// Tokens of recent history a compaction keeps; 20,000 when absent.
    pub keep_recent: Option<u64>,
    /// The most calls of one turn.
    pub max_calls: usize,
    /// What the host calls itself towards engines.
    pub host: SettingsFacts,
}

impl RuntimeOptions {
    /// Options with nothing but a loader and a model: `legacy` serves.
    pub fn new(loader: Loader, model: Arc<dyn Model>) -> RuntimeOptions {
        RuntimeOptions {
            loader,
            engine: LEGACY.to_owned(),
            creations: Arc::new(|_| Creation::default()),
            model,
            tools: Vec::new(),
            system: SystemPrompt::default(),
            compactor: Arc::new(ExtractiveCompactor),
            context_tokens: None,
            reserve_tokens: None,
            keep_recent: None,
            max_calls: MAX_CALLS,
            host: SettingsFacts::default(),
        }
    }

    /// What a runtime offers engines: every member is called, and it has a model to complete with.
    pub fn profile(label: impl Into<String>) -> HostProfile {
        HostProfile::new(label).with_runtime_llm_complete()
    }
}
