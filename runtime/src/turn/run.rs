//! The order of a turn.

use std::sync::Arc;

use context_engine_loader::AssembleError;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::frame::Frame;
use super::recovery::Tried;
use super::tools::ToolSet;
use super::{TurnCancel, TurnEnd, TurnEvent, TurnReport};
use crate::RuntimeError;
use crate::model::{Model, ModelRequest};
use crate::session::Prompt;

/// Where the events of a turn go.
pub(crate) type Events<'a> = &'a mut (dyn FnMut(TurnEvent) + Send);

/// A turn under way. What was said in it is the session's ([`crate::session::state`]): its entries may get other ids
/// meanwhile, so a turn counts them and does not keep them.
pub(crate) struct Turn<'a> {
    pub(crate) frame: Frame,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) tools: ToolSet,
    pub(crate) cancel: TurnCancel,
    pub(crate) events: Events<'a>,
    /// The instance of the engine that was told all of the session before the turn.
    pub(crate) told: Option<u64>,
    /// How much of what was said the engine was given, and which instance of it.
    pub(crate) given: usize,
    pub(crate) instance: u64,
    /// How much of it stood before the last reply, and how many steps the session had taken then.
    pub(crate) answered: usize,
    pub(crate) answered_at: u64,
    pub(crate) max_calls: usize,
    pub(crate) raw: bool,
    pub(crate) report: TurnReport,
}

/// Takes the turn back when it is dropped: its future was.
pub(crate) struct TakenBack(pub(crate) TurnCancel);

impl Drop for TakenBack {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Why a turn goes no further, and what had come in of a reply.
pub(super) enum Stop {
    Aborted { partial: Vec<Value> },
    Failed { error: RuntimeError, partial: Vec<Value> },
}

impl Stop {
    pub(super) fn aborted() -> Stop {
        Stop::Aborted { partial: Vec::new() }
    }

    /// The same, after this had come in.
    pub(super) fn with(self, partial: &[Value]) -> Stop {
        let partial = partial.to_vec();
        match self {
            Stop::Aborted { .. } => Stop::Aborted { partial },
            Stop::Failed { error, .. } => Stop::Failed { error, partial },
        }
    }

    fn reason(&self) -> String {
        match self {
            Stop::Aborted { .. } => "the turn was taken back".to_owned(),
            Stop::Failed { error, .. } => error.to_string(),
        }
    }
}

impl From<RuntimeError> for Stop {
    fn from(error: RuntimeError) -> Stop {
        match error {
            RuntimeError::Prompt(AssembleError::Cancelled) => Stop::aborted(),
            error => Stop::Failed { error, partial: Vec::new() },
        }
    }
}

impl Turn<'_> {
    /// Runs the turn to its end, whichever that is. What the person said is in the transcript already.
    pub(crate) async fn run(mut self, has_history: bool) -> TurnReport {
        self.report.end = match self.answer(has_history).await {
            Ok(()) => TurnEnd::Answered,
            Err(Stop::Aborted { partial }) => {
                self.write_end("aborted", partial, None).await;
                TurnEnd::Aborted
            }
            Err(Stop::Failed { error, partial }) => {
                self.write_end("error", partial, Some(&error)).await;
                TurnEnd::Failed(error)
            }
        };
        self.note_entries();
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
            let calls = self.take_reply(&reply).await?;
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
        let messages = self.frame.session.state().said(0);
        let request = ModelRequest { messages, ..ModelRequest::default() };
        let reply = self.ask(&request).await.map_err(|unanswered| match unanswered.error {
            Some(error) => Stop::Failed { error: RuntimeError::NotAnswered(error), partial: unanswered.partial },
            None => Stop::Aborted { partial: unanswered.partial },
        })?;
        self.take_reply(&reply).await?;
        Ok(())
    }

    /// Offers the engine the session when there is something it was not told: once for each instance of it, and after a
    /// turn that it was not given. So a turn that `legacy` answered, or that failed, leaves no gap.
    async fn bootstrap(&mut self, has_history: bool) -> Result<(), Stop> {
        if has_history && self.told != Some(self.frame.engine.instance()) {
            self.on_thread(|frame| frame.bootstrap()).await?;
        }
        Ok(())
    }

    async fn assemble(&mut self, in_loop: bool) -> Result<Prompt, Stop> {
        let prompt = self.on_thread(move |frame| frame.make_prompt(in_loop)).await?;
        self.note_change(prompt.compacted, prompt.truncated);
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
        if last.assembled.served_by == self.frame.engine.info().id
            && let Some(prompt) = self.on_thread(move |frame| Ok(frame.follow_up(&last))).await?
        {
            return Ok(prompt);
        }
        self.assemble(true).await
    }

    /// In the middle of a turn, an engine that owns compaction is given what was said so far.
    async fn checkpoint(&mut self) -> Result<(), Stop> {
        if self.instance != self.frame.engine.instance() {
            self.given = 0;
        }
        let (from, said) = (self.given, self.said());
        if from >= said {
            return Ok(());
        }
        let taken = self.on_thread(move |frame| frame.hand_over(from, false)).await?;
        if taken.taken {
            self.given = said;
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
        self.frame.fenced = false;
        let refused = match self.on_thread(move |frame| frame.hand_over(from, true)).await {
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

    /// How much was said in the turn by now.
    pub(super) fn said(&self) -> usize {
        self.frame.session.state().said(0).len()
    }

    /// A session that got shorter: counted, told, and handed to the engine with the turn.
    pub(super) fn note_change(&mut self, compacted: bool, truncated: usize) {
        self.report.compactions += usize::from(compacted);
        self.report.truncated += truncated;
        if !compacted {
            return;
        }
        let summary = {
            let state = self.frame.session.state();
            // Of an engine's own store there is no summary here, or an older one.
            let new = state.conversation.compactions() > self.frame.compactions;
            self.frame.compactions = state.conversation.compactions();
            let summary = state.conversation.summary().filter(|_| new).and_then(|message| message.to_map());
            summary.and_then(|map| map.get("summary")?.as_str().map(Arc::from))
        };
        self.frame.compacted = summary.or(self.frame.compacted.take());
        (self.events)(TurnEvent::Compacted);
    }

    /// Calls the engine on a thread that may wait, unless the turn was taken back.
    pub(super) async fn on_thread<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Frame) -> Result<R, RuntimeError> + Send + 'static,
    ) -> Result<R, Stop> {
        let frame = self.frame.clone();
        self.thread(move || work(&frame)).await?.map_err(Stop::from)
    }

    pub(super) async fn thread<R: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Stop> {
        if self.cancel.is_cancelled() {
            return Err(Stop::aborted());
        }
        spawn_blocking(work).await.map_err(|error| RuntimeError::Task { reason: error.to_string() }.into())
    }
}
