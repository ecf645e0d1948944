//! `complete`: an engine asks the session's model (contract §1.6).
//!
//! Decision: the model is the session's, always; an engine that names another is refused, unless
//! `plugins.entries.<id>.llm` lets it. The engine's thread waits, the request runs on the host's threads, and it ends when
//! the call does: a model that is paid for a call nobody waits for is money thrown away.

use std::sync::Arc;
use std::time::Duration;

use context_engine_interface::{EngineError, ErrorCode};
use context_engine_loader::Permit;
use context_engine_transcript::Message;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::live::LiveSession;
use super::services::agent_of;
use crate::model::{Model, ModelError, ModelErrorKind, ModelReply, ModelRequest};

/// How often it is looked whether the call still waits.
const LOOK: Duration = Duration::from_millis(20);

/// The model of a session, for its engine.
#[derive(Clone)]
pub(crate) struct Completer {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) host: Handle,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    messages: Vec<Said>,
    system_prompt: Option<String>,
    model: Option<String>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    purpose: Option<String>,
    agent_id: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    content: String,
}

impl Completer {
    /// Answers an engine's request; request and answer as JSON.
    pub(crate) fn complete(
        &self,
        permit: Permit<'_>,
        request_json: &str,
        live: &LiveSession,
    ) -> Result<String, EngineError> {
        let refuse = |code: &str, text: String| EngineError::failed(format!("{code}: {text}"));
        let request: Request = serde_json::from_str(request_json)
            .map_err(|error| refuse("LLM_ISOLATED_INPUT_REJECTED", format!("complete: {error}; expected messages")))?;
        let info = self.model.info();
        let own = [info.id.clone(), format!("{}/{}", info.provider, info.id)];
        if let Some(model) = request.model.as_ref().filter(|model| !own.contains(model)) {
            let text = format!("the session's model is \"{}\", and \"{model}\" is another one", own[1]);
            return Err(refuse("LLM_COMPLETION_NOT_AUTHORIZED", text));
        }
        let own_agent = agent_of(&live.key);
        if let Some(agent) = request.agent_id.as_deref().filter(|agent| Some(*agent) != own_agent) {
            let text = format!("the session is of agent \"{}\", not \"{agent}\"", own_agent.unwrap_or_default());
            return Err(refuse("LLM_COMPLETION_NOT_AUTHORIZED", text));
        }
        let purpose = request.purpose.clone().unwrap_or_else(|| "context-engine.maintenance".to_owned());
        let asked = request.into_model().map_err(|text| refuse("LLM_ISOLATED_INPUT_REJECTED", text))?;
        let reply = self.host.block_on(async {
            let mut ignored = |_: crate::model::ModelEvent<'_>| ();
            let mut reply = self.model.respond(&asked, &mut ignored);
            loop {
                match tokio::time::timeout(LOOK, &mut reply).await {
                    Ok(reply) => return Some(reply),
                    Err(_) if permit.is_over() => return None,
                    Err(_) => {}
                }
            }
        });
        match reply {
            None => Err(EngineError::new(ErrorCode::CANCELLED, "LLM_COMPLETION_ABORTED: the call has ended")),
            Some(Err(error)) => Err(refuse(code(&error), error.to_string())),
            Some(Ok(reply)) => Ok(self.answer(&reply, &purpose, live).to_string()),
        }
    }

    fn answer(&self, reply: &ModelReply, purpose: &str, live: &LiveSession) -> Value {
        let info = self.model.info();
        let texts =
            reply.content.iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
        let usage = reply.usage.map(|usage| {
            json!({
                "inputTokens": usage.input,
                "outputTokens": usage.output,
                "cacheReadTokens": usage.cache_read,
                "cacheWriteTokens": usage.cache_write,
                "totalTokens": usage.total(),
            })
        });
        json!({
            "text": texts.collect::<Vec<_>>().concat(),
            "provider": info.provider,
            "model": info.id,
            "responseModel": reply.response_model,
            "stopReason": reply.stop.name(),
            "agentId": agent_of(&live.key),
            "usage": usage.unwrap_or_else(|| json!({})),
            "audit": { "caller": { "kind": "context-engine", "id": purpose }, "purpose": purpose, "sessionKey": &*live.key },
        })
    }
}

impl Request {
    fn into_model(self) -> Result<ModelRequest, String> {
        let mut system: Vec<String> = self.system_prompt.into_iter().collect();
        let mut messages = Vec::new();
        for (at, said) in self.messages.into_iter().enumerate() {
            match said.role.as_str() {
                "system" => system.push(said.content),
                "user" | "assistant" => {
                    let content = json!([{ "type": "text", "text": said.content }]);
                    let Value::Object(map) = json!({ "role": said.role, "content": content }) else { continue };
                    let message =
                        Message::from_map(format!("complete-{at}"), map).map_err(|error| error.to_string())?;
                    messages.push(Arc::new(message));
                }
                role => return Err(format!("message {at} has role \"{role}\"; expected system, user or assistant")),
            }
        }
        if messages.is_empty() {
            return Err("there is no message to answer".to_owned());
        }
        Ok(ModelRequest {
            system: (!system.is_empty()).then(|| system.join("\n\n")),
            messages,
            max_output_tokens: self.max_tokens,
            temperature: self.temperature,
            ..ModelRequest::default()
        })
    }
}

/// The contract's word for what happened.
fn code(error: &ModelError) -> &'static str {
    match error.kind {
        ModelErrorKind::Timeout => "LLM_COMPLETION_TIMEOUT",
        ModelErrorKind::Unavailable | ModelErrorKind::RateLimited { .. } => "LLM_RUNTIME_UNAVAILABLE",
        ModelErrorKind::Unauthorized => "LLM_COMPLETION_NOT_AUTHORIZED",
        ModelErrorKind::Refused => "LLM_COMPLETION_OUTPUT_REJECTED",
        _ => "LLM_COMPLETION_FAILED",
    }
}
