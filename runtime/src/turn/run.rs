//! The order of a turn.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use context_engine_transcript::Message;
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use super::frame::Frame;
use super::recovery::{Recovered, Tried, recover};
use super::tools::{Owner, ToolCall, ToolOutput, ToolSet};
use super::{CallMade, TurnCancel, TurnEnd, TurnEvent, TurnReport};
use crate::RuntimeError;
use crate::model::{
    Follows, Model, ModelError, ModelErrorKind, ModelEvent, ModelReply, ModelRequest, Place, StopReason, Usage,
};
use crate::session::Prompt;

/// Where the events of a turn go.
pub(crate) type Events<'a> = &'a mut (dyn FnMut(TurnEvent) + Send);

/// A turn under way.
pub(crate) struct Turn<'a> {
    pub(crate) frame: Frame,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) tools: ToolSet,
    pub(crate) cancel: TurnCancel,
    pub(crate) events: Events<'a>,
    /// The instance of the engine that was told all of the session before the turn.
    pub(crate) told: Option<u64>,
    /// What was said in the turn, in order.
    pub(crate) said: Vec<Arc<Message>>,
    /// How much of it the engine was given, and which instance of it.
    pub(crate) given: usize,
    pub(crate) instance: u64,
    /// How much of it stood before the last reply.
    pub(crate) answered: usize,
    pub(crate) max_calls: usize,
    pub(crate) raw: bool,
    pub(crate) report: TurnReport,
}

/// Takes the turn back when it is dropped: its future was.
struct TakenBack(TurnCancel);

impl Drop for TakenBack {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Why a turn goes no further.
enum Stop {
    Aborted { partial: Vec<Value> },
    Failed { error: RuntimeError, partial: Vec<Value> },
}

impl Stop {
    fn reason(&self) -> String {
        match self {
            Stop::Aborted { .. } => "the turn was taken back".to_owned(),
            Stop::Failed { error, .. } => error.to_string(),
        }
    }
}

impl From<RuntimeError> for Stop {
    fn from(error: RuntimeError) -> Stop {
        Stop::Failed { error, partial: Vec::new() }
    }
}

impl Turn<'_> {
    /// Runs the turn to its end, whichever that is. What the person said is in the transcript already.
    pub(crate) async fn run(mut self, has_history: bool) -> TurnReport {
        // Whoever stops waiting for the turn takes it back: nothing of it goes on behind their back.
        let taken_back = TakenBack(self.cancel.clone());
        let ended = self.answer(has_history).await;
        std::mem::forget(taken_back);
        self.report.end = match ended {
            Ok(()) => TurnEnd::Answered,
            Err(Stop::Aborted { partial }) => {
                self.write_end("aborted", partial, None);
                TurnEnd::Aborted
            }
            Err(Stop::Failed { error, partial }) => {
                self.write_end("error", partial, Some(&error));
                TurnEnd::Failed(error)
            }
        };
        let session = Arc::clone(&self.frame.session);
        if let Ok(Err(error)) = spawn_blocking(move || session.sync()).await {
            tracing::warn!(%error, "the transcript could not be written through to the disk");
        }
        self.report
    }

    async fn answer(&mut self, has_history: bool) -> Result<(), Stop> {
        if self.raw {
            return self.answer_raw().await;
        }
        self.bootstrap(has_history).await?;
        let mut prompt = self.assemble(false).await?;
        let mut tried = Tried::default();
        loop {
            let (reply, sent) = self.respond(prompt, &mut tried).await?;
            let calls = self.take_reply(&reply)?;
            self.answered = self.said.len();
            if calls.is_empty() {
                break;
            }
            self.run_tools(&calls).await?;
            if self.report.calls.len() >= self.max_calls {
                return Err(RuntimeError::Calls { calls: self.max_calls }.into());
            }
            prompt = self.next_prompt(sent).await?;
        }
        self.finish().await;
        Ok(())
    }

    /// The person's words alone, and no engine.
    async fn answer_raw(&mut self) -> Result<(), Stop> {
        let request = ModelRequest { messages: self.said.clone(), ..ModelRequest::default() };
        let reply = self.ask(&request).await.map_err(|error| match error {
            Some(error) => Stop::Failed { partial: error.partial.clone(), error: RuntimeError::NotAnswered(error) },
            None => Stop::Aborted { partial: Vec::new() },
        })?;
        self.take_reply(&reply)?;
        Ok(())
    }

    /// Offers the engine the session when there is something it was not told: once for each instance of it, and after a
    /// turn that it was not given. So a turn that `legacy` answered, or that failed, leaves no gap.
    async fn bootstrap(&mut self, has_history: bool) -> Result<(), Stop> {
        let instance = self.frame.engine.instance();
        if self.told == Some(instance) {
            return Ok(());
        }
        if has_history {
            self.on_thread(|frame| frame.bootstrap()).await?;
        }
        Ok(())
    }

    async fn assemble(&mut self, in_loop: bool) -> Result<Prompt, Stop> {
        let prompt = self.on_thread(move |frame| frame.make_prompt(in_loop)).await?;
        self.note_prompt(&prompt);
        Ok(prompt)
    }

    /// The prompt behind tool results: of an engine that owns compaction a new one, of any other the last one and what
    /// was said since, as long as that fits (contract §2.3, report C14).
    async fn next_prompt(&mut self, last: Prompt) -> Result<Prompt, Stop> {
        if self.frame.engine.info().owns_compaction {
            self.checkpoint().await?;
            return self.assemble(true).await;
        }
        // Who made the last prompt may have failed since; then it is not followed.
        let follows = last.assembled.served_by == self.frame.engine.info().id;
        if follows && let Some(prompt) = self.frame.follow_up(&last, &self.said[self.sent_of(&last)..]) {
            return Ok(prompt);
        }
        self.assemble(true).await
    }

    /// How many of the turn's messages are in the prompt already.
    fn sent_of(&self, prompt: &Prompt) -> usize {
        prompt.said.min(self.said.len())
    }

    /// In the middle of a turn, an engine that owns compaction is given what was said so far.
    async fn checkpoint(&mut self) -> Result<(), Stop> {
        if self.instance != self.frame.engine.instance() {
            self.given = 0;
        }
        let said = self.said[self.given..].to_vec();
        if said.is_empty() {
            return Ok(());
        }
        let taken = self.on_thread(move |frame| frame.hand_over(&said, false)).await?;
        if taken.taken {
            self.given = self.said.len();
            self.instance = self.frame.engine.instance();
        }
        Ok(())
    }

    /// Gives the engine the turn, and has it care for the transcript. The reply is there and is kept, whatever becomes of
    /// it in the engine.
    async fn finish(&mut self) {
        // An engine that failed in the turn is another instance now, which was given nothing of it.
        let instance = self.frame.engine.instance();
        let from = if instance == self.instance { self.given } else { 0 };
        let said = self.said[from..].to_vec();
        self.frame.fence = None;
        let refused = match self.on_thread(move |frame| frame.hand_over(&said, true)).await {
            Ok(taken) if taken.taken => {
                if taken.served_by == self.frame.engine.info().id {
                    self.frame.session.memory().told = Some(instance);
                }
                let maintained = self.on_thread(|frame| frame.maintain_after_turn()).await;
                maintained.err().map(|stop| stop.reason())
            }
            Ok(taken) => Some(taken.why.unwrap_or_default()),
            Err(stop) => Some(stop.reason()),
        };
        if let Some(why) = refused {
            tracing::warn!("the turn was not taken in by the context engine: {why}");
        }
    }

    /// Has the model answer `prompt`, or a smaller one when it refuses. Also the prompt that was answered.
    async fn respond(&mut self, mut prompt: Prompt, tried: &mut Tried) -> Result<(ModelReply, Prompt), Stop> {
        let mut follows = if self.answered == 0 { Follows::Turn } else { Follows::Reply };
        loop {
            prompt.said = self.said.len();
            self.report.served_by.clone_from(&prompt.assembled.served_by);
            self.note_fallback(&prompt);
            let request = ModelRequest {
                system: prompt.system.clone(),
                messages: prompt.assembled.messages.clone(),
                tools: Arc::clone(&self.tools.specs),
                max_output_tokens: Some(self.frame.window.reserve),
                place: Some(self.place(&prompt, follows)),
                ..ModelRequest::default()
            };
            let answer = self.ask(&request).await;
            self.report.calls.push(CallMade::of(&prompt));
            let error = match answer {
                Ok(reply) if !self.ran_over(&reply) => {
                    *tried = Tried::default();
                    return Ok((reply, prompt));
                }
                Ok(reply) => overflowed(&reply),
                Err(Some(error)) => error,
                Err(None) => return Err(Stop::Aborted { partial: Vec::new() }),
            };
            prompt = self.recover(prompt, error, tried).await?;
            follows = Follows::Refusal;
        }
    }

    /// Where a prompt stands: what was said since the last reply is new in it.
    fn place(&self, prompt: &Prompt, follows: Follows) -> Place {
        let new = &self.said[self.answered.min(self.said.len())..];
        let messages = &prompt.assembled.messages;
        let is_new = |message: &Arc<Message>| new.iter().any(|new| new.id == message.id);
        // One that was merged into the message before it has lost its id.
        let new_from = messages.iter().position(is_new).unwrap_or(messages.len().saturating_sub(1));
        let projection = prompt.assembled.projection.clone();
        Place { session: Arc::clone(&self.frame.session.id), new_from, follows, projection }
    }

    async fn recover(&mut self, refused: Prompt, error: ModelError, tried: &mut Tried) -> Result<Prompt, Stop> {
        let ran_tools = self.said.iter().any(|message| !message.tool_call_id.is_empty());
        let (partial, text) = (error.partial.clone(), error.to_string());
        let mut frame = self.frame.clone();
        let mut so_far = std::mem::take(tried);
        let (recovered, so_far, budget) = self
            .thread(move || {
                let recovered = recover(&mut frame, &mut so_far, &refused, &error, ran_tools);
                (recovered, so_far, frame.budget)
            })
            .await?;
        *tried = so_far;
        match recovered {
            Ok(Recovered::Prompt { prompt, compacted, truncated, overcount }) => {
                self.frame.budget = budget;
                if overcount > 1.0 {
                    self.frame.session.memory().overcount = Some((self.frame.model.id.clone(), overcount));
                }
                self.report.compactions += usize::from(compacted);
                self.report.truncated += truncated;
                self.note_prompt(&prompt);
                (self.events)(TurnEvent::Restarted { reason: text });
                Ok(*prompt)
            }
            Ok(Recovered::GivenUp(error)) => Err(Stop::Failed { error, partial }),
            Err(error) => Err(Stop::Failed { error, partial }),
        }
    }

    /// Whether the reply was cut because prompt and reply together are over the window.
    fn ran_over(&self, reply: &ModelReply) -> bool {
        reply.stop == StopReason::Length && reply.usage.is_some_and(|usage| usage.total() > self.frame.window.tokens)
    }

    /// One request. `None` for an error: the turn was taken back.
    async fn ask(&mut self, request: &ModelRequest) -> Result<ModelReply, Option<ModelError>> {
        let model = Arc::clone(&self.model);
        let events = &mut *self.events;
        let mut forward = |event: ModelEvent<'_>| match event {
            ModelEvent::Text(text) => events(TurnEvent::Text(text.to_owned())),
            ModelEvent::Thinking(text) => events(TurnEvent::Thinking(text.to_owned())),
            ModelEvent::Retry { after, reason, .. } => events(TurnEvent::Retry { after, reason: reason.to_owned() }),
            _ => {}
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(None),
            reply = model.respond(request, &mut forward) => reply.map_err(Some),
        }
    }

    /// Writes the reply; the tool calls in it.
    fn take_reply(&mut self, reply: &ModelReply) -> Result<Vec<Map<String, Value>>, Stop> {
        let calls: Vec<Map<String, Value>> = reply.tool_calls().cloned().collect();
        let usage = reply.usage.unwrap_or_default();
        self.report.usage.input += usage.input;
        self.report.usage.output += usage.output;
        self.report.usage.cache_read += usage.cache_read;
        self.report.usage.cache_write += usage.cache_write;
        if let Some(usage) = reply.usage {
            self.frame.last_usage = Some((usage, now_ms()));
            self.frame.session.memory().last_usage = self.frame.last_usage;
        }
        let stop = if calls.is_empty() { reply.stop } else { StopReason::ToolUse };
        let mut message = self.reply_map(reply.content.clone(), stop.name());
        message.insert("usage".into(), usage_json(&usage));
        message.extend(reply.response_model.as_ref().map(|model| ("responseModel".to_owned(), model.as_str().into())));
        let written = self.write(message)?;
        self.report.reply_entry = written.as_ref().map(|message| message.id.clone());
        self.report.text = written.map(|message| message.text()).unwrap_or_default();
        Ok(calls)
    }

    /// Runs the tools the model called, in order, and writes what they gave as it comes.
    async fn run_tools(&mut self, calls: &[Map<String, Value>]) -> Result<(), Stop> {
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
            self.write(message)?;
        }
        Ok(())
    }

    async fn run_tool(&mut self, id: &str, name: &str, arguments: &Map<String, Value>) -> Result<ToolOutput, Stop> {
        let cancel = self.cancel.clone();
        let aborted = || Stop::Aborted { partial: Vec::new() };
        match self.tools.owner(name) {
            Owner::Host(tool) => tokio::select! {
                biased;
                () = cancel.cancelled() => Err(aborted()),
                output = tool.call(ToolCall { id, name, arguments }) => Ok(output),
            },
            Owner::Engine => {
                let (id, name, arguments) =
                    (id.to_owned(), name.to_owned(), Value::Object(arguments.clone()).to_string());
                let output = self.on_thread(move |frame| frame.call_tool(&id, &name, &arguments)).await?;
                if cancel.is_cancelled() { Err(aborted()) } else { Ok(output) }
            }
            Owner::Nobody => {
                let known = self.tools.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
                let known = if known.is_empty() { "(none)".to_owned() } else { known };
                Ok(ToolOutput::error(format!("there is no tool \"{name}\"; there are: {known}")))
            }
        }
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

    /// Writes what there is of a reply that has no good end. Nobody is asked about it.
    fn write_end(&mut self, stop: &str, partial: Vec<Value>, error: Option<&RuntimeError>) {
        // A call that was not made is not one whose result is missing.
        let partial = partial.into_iter().filter(|block| block["type"] != "toolCall").collect();
        let mut message = self.reply_map(partial, stop);
        message.extend(error.map(|error| ("errorMessage".to_owned(), error.to_string().into())));
        if let Err(Stop::Failed { error, .. }) = self.write(message) {
            tracing::error!(%error, "the end of the turn could not be written into the transcript");
        }
    }

    fn write(&mut self, message: Map<String, Value>) -> Result<Option<Arc<Message>>, Stop> {
        let counter = self.frame.counter;
        let state = self.frame.session.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let written = { state }.append(vec![message], &counter).map_err(RuntimeError::from)?;
        let message = written.into_iter().next();
        self.said.extend(message.clone());
        Ok(message)
    }

    fn note_prompt(&mut self, prompt: &Prompt) {
        self.report.compactions += usize::from(prompt.compacted);
        self.report.truncated += prompt.truncated;
        if prompt.compacted {
            self.frame.compacted = self.summary();
            (self.events)(TurnEvent::Compacted);
        }
    }

    /// The session's newest summary.
    fn summary(&self) -> Option<Arc<str>> {
        let state = self.frame.session.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let summary = state.conversation.summary()?.to_map()?;
        summary.get("summary")?.as_str().map(Arc::from)
    }

    fn note_fallback(&mut self, prompt: &Prompt) {
        if prompt.assembled.why.is_some() && self.report.why != prompt.assembled.why {
            self.report.why.clone_from(&prompt.assembled.why);
            if let Some(why) = prompt.assembled.why.clone() {
                (self.events)(TurnEvent::Fallback { why });
            }
        }
    }

    /// Calls the engine on a thread that may wait.
    async fn on_thread<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Frame) -> Result<R, RuntimeError> + Send + 'static,
    ) -> Result<R, Stop> {
        let frame = self.frame.clone();
        let done = self.thread(move || work(&frame)).await?;
        match done {
            Err(RuntimeError::Prompt(context_engine_loader::AssembleError::Cancelled)) => {
                Err(Stop::Aborted { partial: Vec::new() })
            }
            done => done.map_err(Stop::from),
        }
    }

    async fn thread<R: Send + 'static>(&mut self, work: impl FnOnce() -> R + Send + 'static) -> Result<R, Stop> {
        if self.cancel.is_cancelled() {
            return Err(Stop::Aborted { partial: Vec::new() });
        }
        spawn_blocking(work).await.map_err(|error| RuntimeError::Task { reason: error.to_string() }.into())
    }
}

impl CallMade {
    fn of(prompt: &Prompt) -> CallMade {
        CallMade {
            sent_messages: prompt.assembled.messages.len(),
            sent_tokens: prompt.tokens,
            served_by: prompt.assembled.served_by.clone(),
            why: prompt.assembled.why.clone(),
            assembled: !prompt.follows,
            fitted: prompt.assembled.fitted,
        }
    }
}

fn overflowed(reply: &ModelReply) -> ModelError {
    let observed = reply.usage.map(|usage| usage.total());
    let text = "the reply was cut: prompt and reply together are over the window";
    ModelError { partial: reply.content.clone(), ..ModelError::new(ModelErrorKind::Overflow { observed }, text) }
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
