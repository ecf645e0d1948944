//! Uses all of the contract: every member, every line of `export_engine!`, every host service, and tools.
//!
//! Each member writes what it was given to the journal and answers with something the test can tell apart from a default.
#![forbid(unsafe_code)]

use context_engine_interface::std_types::ROption;
use context_engine_interface::{
    Acknowledged, AfterTurnParams, AfterTurnResult, AssembleParams, Assembly, BootstrapParams, BootstrapResult,
    CallContext, CommitStatus, CommitTurnParams, CommitTurnResult, CompactParams, CompactResult, ContextEngine,
    ContextProjection, DisposeParams, EngineContext, EngineError, EngineHost, EngineTools, IngestBatchParams,
    IngestBatchResult, IngestParams, IngestResult, LogLevel, MaintainParams, MaintainResult, Messages,
    PrepareSubagentSpawnParams, PromptAuthority, Role, RollbackSubagentSpawnParams, SpawnPreparation,
    SubagentEndedParams, ToolCallParams, ToolsListParams, export_engine, text_message,
};
use journal::{Journal, host_params};
use serde_json::{Value, json};

struct Everything {
    host: EngineHost,
    journal: Journal,
}

/// Each message as `id:tokens`, and its blocks' texts.
fn listed(messages: Messages<'_>) -> Value {
    let one = |message: &context_engine_interface::MessageView<'_>| {
        let texts: Vec<&str> = message.blocks.iter().map(|block| block.text.as_str()).collect();
        json!([message.id.as_str(), message.role.name(), texts, message.tokens > 0])
    };
    messages.iter().map(one).collect()
}

/// What a service answered, or its error.
fn answer<T: Into<Value>>(result: Result<T, EngineError>) -> Value {
    result.map_or_else(|error| format!("error {}: {error}", error.code.0).into(), Into::into)
}

fn text(option: ROption<context_engine_interface::std_types::RStr<'_>>) -> Option<String> {
    option.into_option().map(|text| text.to_string())
}

impl ContextEngine for Everything {
    fn create(ctx: EngineContext<'_>) -> Result<Self, EngineError> {
        let journal = Journal::of(ctx);
        let host = ctx.host().clone();
        host.log(LogLevel::INFO, "everything is created");
        let given = json!({
            "config": journal::config(ctx),
            "agentDir": text(ctx.agent_dir()),
            "workspaceDir": text(ctx.workspace_dir()),
            "tokens": host.count_tokens("four words are here"),
        });
        journal.note("create", given);
        Ok(Everything { host, journal })
    }

    fn bootstrap(&self, _: &CallContext<'_>, params: BootstrapParams<'_>) -> Result<BootstrapResult, EngineError> {
        let given = json!({
            "session": params.session_id().as_str(),
            "file": params.session_file().as_str(),
            "host": host_params(params.host_params().json()),
        });
        self.journal.note("bootstrap", given);
        Ok(BootstrapResult { bootstrapped: true, imported_messages: Some(3).into(), ..Default::default() })
    }

    fn maintain(&self, ctx: &CallContext<'_>, params: MaintainParams<'_>) -> Result<MaintainResult, EngineError> {
        let given = json!({
            "session": params.session_id().as_str(),
            "file": params.session_file().as_str(),
            "rewritten": answer(ctx.rewrite_transcript(r#"{"replacements":[]}"#)),
            "read": answer(ctx.read_transcript(Some("e1"), 2)),
            "host": host_params(params.host_params().json()),
        });
        self.journal.note("maintain", given);
        Ok(MaintainResult { changed: true, bytes_freed: 11, rewritten_entries: 2, ..Default::default() })
    }

    fn ingest(&self, _: &CallContext<'_>, params: IngestParams<'_>) -> Result<IngestResult, EngineError> {
        let given = json!({ "id": params.message().id.as_str(), "heartbeat": params.is_heartbeat() });
        self.journal.note("ingest", given);
        Ok(IngestResult::ingested())
    }

    fn ingest_batch(
        &self,
        _: &CallContext<'_>,
        params: IngestBatchParams<'_>,
    ) -> Result<IngestBatchResult, EngineError> {
        self.journal.note("ingest_batch", json!({ "messages": listed(params.messages()) }));
        Ok(IngestBatchResult { ingested_count: params.messages().len() as u64, ..Default::default() })
    }

    fn assemble(&self, ctx: &CallContext<'_>, params: AssembleParams<'_>) -> Result<Assembly, EngineError> {
        let tools: Vec<&str> = params.available_tools().iter().map(|name| name.as_str()).collect();
        let given = json!({
            "session": params.session_id().as_str(),
            "messages": listed(params.messages()),
            "budget": params.token_budget().into_option(),
            "tools": tools,
            "model": text(params.model()),
            "cancelled": ctx.is_cancelled(),
            "seconds left": ctx.remaining().map(|left| left.as_secs()),
            "memory": answer(ctx.memory_prompt_section("{}")),
            "host": host_params(params.host_params().json()),
        });
        self.journal.note("assemble", given);
        let mut plan = Assembly::new();
        plan.insert(text_message(Role::USER, "everything answers"), vec!["e1".into()]);
        plan.keep(0..params.messages().len());
        plan.estimated_tokens = self.host.count_tokens("everything answers");
        plan.system_prompt_addition = ROption::RSome("an addition".into());
        plan.prompt_authority = PromptAuthority::PREASSEMBLY_MAY_OVERFLOW;
        plan.context_projection = ROption::RSome(ContextProjection {
            thread_bootstrap: true,
            epoch: ROption::RSome("epoch-1".into()),
            fingerprint: ROption::RNone,
        });
        plan.extra_json = r#"{"later":1}"#.into();
        Ok(plan)
    }

    fn compact(&self, ctx: &CallContext<'_>, params: CompactParams<'_>) -> Result<CompactResult, EngineError> {
        let given = json!({
            "session": params.session_id().as_str(),
            "budget": params.token_budget().into_option(),
            "force": params.force(),
            "tokens": params.current_token_count().into_option(),
            "agent": text(params.agent_id()),
            "target": params.compaction_target().0,
            "instructions": text(params.custom_instructions()),
            "completed": answer(ctx.complete(r#"{"prompt":"summarise"}"#)),
        });
        self.journal.note("compact", given);
        ctx.delegate_compaction(params)
    }

    fn after_turn(&self, _: &CallContext<'_>, params: AfterTurnParams<'_>) -> Result<AfterTurnResult, EngineError> {
        let given = json!({
            "messages": listed(params.messages()),
            "before": params.pre_prompt_message_count(),
            "summary": text(params.auto_compaction_summary()),
            "heartbeat": params.is_heartbeat(),
            "budget": params.token_budget().into_option(),
        });
        self.journal.note("after_turn", given);
        Ok(AfterTurnResult { extra_json: r#"{"stored":true}"#.into() })
    }

    fn commit_turn(&self, _: &CallContext<'_>, params: CommitTurnParams<'_>) -> Result<CommitTurnResult, EngineError> {
        let given = json!({
            "key": params.advancement_key().as_str(),
            "admission": params.admission_json().as_str(),
            "terminal": params.terminal_json().as_str(),
            "messages": listed(params.messages()),
        });
        self.journal.note("commit_turn", given);
        Ok(CommitTurnResult { status: CommitStatus::COMMITTED, ..Default::default() })
    }

    fn prepare_subagent_spawn(
        &self,
        _: &CallContext<'_>,
        params: PrepareSubagentSpawnParams<'_>,
    ) -> Result<SpawnPreparation, EngineError> {
        let given = json!({
            "parent": params.parent_session_key().as_str(),
            "child": params.child_session_key().as_str(),
            "mode": text(params.context_mode()),
            "ttl": params.ttl_ms().into_option(),
        });
        self.journal.note("prepare_subagent_spawn", given);
        Ok(SpawnPreparation { rollback_token: Some(41).into(), ..Default::default() })
    }

    fn rollback_subagent_spawn(
        &self,
        _: &CallContext<'_>,
        params: RollbackSubagentSpawnParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        self.journal.note("rollback_subagent_spawn", params.token().into());
        Ok(Acknowledged::default())
    }

    fn on_subagent_ended(
        &self,
        _: &CallContext<'_>,
        params: SubagentEndedParams<'_>,
    ) -> Result<Acknowledged, EngineError> {
        let given = json!({ "child": params.child_session_key().as_str(), "reason": params.reason().as_str() });
        self.journal.note("on_subagent_ended", given);
        Ok(Acknowledged::default())
    }

    fn dispose(&self, _: &CallContext<'_>, params: DisposeParams<'_>) -> Result<Acknowledged, EngineError> {
        self.journal.note("dispose", params.reason().as_str().into());
        Ok(Acknowledged::default())
    }
}

impl EngineTools for Everything {
    fn list_tools(&self, _: &CallContext<'_>, _: ToolsListParams<'_>) -> Result<String, EngineError> {
        Ok(json!([{ "name": "recall", "description": "Finds what left the window", "parameters": {} }]).to_string())
    }

    fn call_tool(&self, ctx: &CallContext<'_>, params: ToolCallParams<'_>) -> Result<String, EngineError> {
        let (name, arguments_json) = (params.name().as_str(), params.arguments_json().as_str());
        match name {
            "recall" => {
                let text = format!("recalled {arguments_json}, cancelled: {}", ctx.is_cancelled());
                Ok(json!([{ "type": "text", "text": text }]).to_string())
            }
            "panic" => panic!("boom in a tool"),
            other => Err(EngineError::failed(format!("no tool called {other:?}"))),
        }
    }
}

export_engine! {
    engine: Everything,
    id: "everything",
    name: "Everything \"quoted\"",
    version: env!("CARGO_PKG_VERSION"),
    owns_compaction: true,
    accepted_host_params: ["sessionKey", "prompt"],
    known_host_params: ["sessionKey", "prompt"],
    turn_maintenance_mode: "background",
    current_turn_fence: "before-current-turn-entry-v1",
    turn_advancement_idempotency: "atomic-idempotent-v1",
    host_requirements: [("agent-run", &["assemble-before-prompt"], Some("use another host"))],
    tools: true,
}
