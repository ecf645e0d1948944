//! What a turn writes: replies, the results of tools, and the end of a turn that has no good one.
//!
//! Decision: each message is written as soon as it is there, on a thread that may wait for the disk, and written even when
//! the turn was taken back meanwhile: it was said.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use context_engine_interface::Role;
use context_engine_transcript::Message;
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use super::TurnEvent;
use super::run::{Stop, Turn};
use super::tools::{self, Owner, ToolCall, ToolOutput};
use crate::RuntimeError;
use crate::model::{ModelReply, StopReason, Usage};

impl Turn<'_> {
    /// Writes the reply; the tool calls in it.
    pub(super) async fn take_reply(&mut self, reply: &ModelReply) -> Result<Vec<Map<String, Value>>, Stop> {
        let calls: Vec<Map<String, Value>> = reply.tool_calls().cloned().collect();
        if let Some(usage) = reply.usage {
            self.report.usage = self.report.usage.plus(&usage);
            self.frame.last_usage = Some((usage, now_ms()));
            self.frame.session.memory().last_usage = self.frame.last_usage;
        }
        let stop = if calls.is_empty() { reply.stop } else { StopReason::ToolUse };
        let mut message = self.reply_map(reply.content.clone(), stop.name());
        message.insert("usage".into(), usage_json(&reply.usage.unwrap_or_default()));
        message.extend(reply.response_model.as_ref().map(|model| ("responseModel".to_owned(), model.as_str().into())));
        let written = self.write(message).await?;
        self.report.text = written.map(|message| message.text()).unwrap_or_default();
        self.answered = self.said();
        self.answered_at = self.frame.session.state().steps();
        Ok(calls)
    }

    /// Runs the tools the model called, in order, and writes what they gave as it comes.
    pub(super) async fn run_tools(&mut self, calls: &[Map<String, Value>]) -> Result<(), Stop> {
        for call in calls {
            let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (id, name) = (text("id"), text("name"));
            (self.events)(TurnEvent::ToolStarted { id: id.clone(), name: name.clone() });
            let output = match call.get("arguments") {
                Some(Value::Object(arguments)) => self.run_tool(&id, &name, arguments).await?,
                None => self.run_tool(&id, &name, &Map::new()).await?,
                Some(_) => ToolOutput::error(format!("the arguments of {name} are no JSON object")),
            };
            (self.events)(TurnEvent::ToolEnded { id: id.clone(), name: name.clone(), is_error: output.is_error });
            let mut message = Map::new();
            message.insert("role".into(), "toolResult".into());
            message.insert("toolCallId".into(), id.into());
            message.insert("toolName".into(), name.into());
            message.insert("content".into(), output.content.into());
            message.insert("isError".into(), output.is_error.into());
            message.extend(output.details.map(|details| ("details".to_owned(), details)));
            message.insert("timestamp".into(), now_ms().into());
            self.write(message).await?;
        }
        Ok(())
    }

    async fn run_tool(&mut self, id: &str, name: &str, arguments: &Map<String, Value>) -> Result<ToolOutput, Stop> {
        let cancel = self.cancel.clone();
        match self.tools.owner(name) {
            Owner::Host(tool) => tokio::select! {
                biased;
                () = cancel.cancelled() => Err(Stop::aborted()),
                output = tools::run(&*tool, ToolCall { id, name, arguments }) => Ok(output),
            },
            Owner::Engine => {
                let (id, name, arguments) =
                    (id.to_owned(), name.to_owned(), Value::Object(arguments.clone()).to_string());
                let output = self.on_thread(move |frame| frame.call_tool(&id, &name, &arguments)).await?;
                if cancel.is_cancelled() { Err(Stop::aborted()) } else { Ok(output) }
            }
            Owner::Nobody => {
                let known = self.tools.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
                let known = if known.is_empty() { "(none)".to_owned() } else { known };
                Ok(ToolOutput::error(format!("there is no tool \"{name}\"; there are: {known}")))
            }
        }
    }

    /// Writes what there is of a reply that has no good end. Nobody is asked about it.
    pub(super) async fn write_end(&mut self, stop: &str, partial: Vec<Value>, error: Option<&RuntimeError>) {
        // A call that was not made is not one whose result is missing.
        let partial = partial.into_iter().filter(|block| block["type"] != "toolCall").collect();
        let mut message = self.reply_map(partial, stop);
        message.extend(error.map(|error| ("errorMessage".to_owned(), error.to_string().into())));
        if let Err(Stop::Failed { error, .. }) = self.write(message).await {
            tracing::error!(%error, "the end of the turn could not be written into the transcript");
        }
    }

    /// The report names entries as they are now.
    pub(super) fn note_entries(&mut self) {
        let said = self.frame.session.state().said(0);
        let id = |message: &Arc<Message>| message.id.clone();
        self.report.user_entry = said.first().map(id);
        self.report.reply_entry = said.iter().rfind(|message| message.role == Role::ASSISTANT).map(id);
    }

    fn reply_map(&self, content: Vec<Value>, stop: &str) -> Map<String, Value> {
        let message = json!({
            "role": "assistant",
            "content": content,
            "provider": self.frame.model.provider,
            "model": self.frame.model.id,
            "stopReason": stop,
            "timestamp": now_ms(),
        });
        match message {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    async fn write(&mut self, message: Map<String, Value>) -> Result<Option<Arc<Message>>, Stop> {
        // The frame keeps the next turn waiting until it is written.
        let frame = self.frame.clone();
        let write = move || frame.session.state().append(vec![message], &frame.counter);
        let written = spawn_blocking(write).await.map_err(|error| RuntimeError::Task { reason: error.to_string() })?;
        Ok(written.map_err(RuntimeError::from)?.into_iter().next())
    }
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "totalTokens": usage.total(),
    })
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
