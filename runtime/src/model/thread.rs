//! Models that keep the conversation themselves, as a thread on their backend.
//!
//! Decision: which part of a prompt such a model is sent is decided here and not by its backend. An engine says when its
//! prompt has to be sent whole ([`Projection`]): once per epoch, or at every turn. In between only what is new is sent. A
//! thread that may not hold what it should (an error, a prompt that was made anew) is left, and another one begun:
//! sending too much costs tokens, sending too little an answer. Source: contract §1.2 `contextProjection`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use context_engine_loader::supervise::{Projection, ProjectionMode};
use context_engine_transcript::Message;

use super::{BoxFuture, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ToolSpec};

/// Where a prompt stands in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The session.
    pub session: Arc<str>,
    /// Index of the first message that was said since the last reply; `None` where the engine has put something else in its
    /// place.
    pub new_from: Option<usize>,
    /// How many steps the session had taken when the last reply was written: messages, and changes of older ones.
    pub answered_at: u64,
    /// How many it has taken now.
    pub step: u64,
    /// What it follows.
    pub follows: Follows,
    /// What the engine says of threads.
    pub projection: Option<Projection>,
}

/// What a prompt follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// The last turn.
    Turn,
    /// The last reply of the same turn, whose tools have run.
    Reply,
    /// A prompt of the same turn that was not answered: this one was made in its place.
    Refusal,
}

/// A backend with threads.
pub trait ThreadBackend: Send + Sync + 'static {
    /// What the model is called and what it can take.
    fn info(&self) -> &ModelInfo;

    /// Sends messages into a thread, or begins one with them; the thread they are in, and the reply.
    ///
    /// # Errors
    /// [`ModelError`]; the thread is not used again.
    fn send<'a>(
        &'a self,
        sent: ThreadSend<'a>,
        events: &'a mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> BoxFuture<'a, Result<(String, ModelReply), ModelError>>;
}

/// What is sent into a thread.
#[derive(Debug, Clone, Copy)]
pub struct ThreadSend<'a> {
    /// The thread; `None` to begin one.
    pub thread: Option<&'a str>,
    /// The system prompt.
    pub system: Option<&'a str>,
    /// The whole prompt of a thread that begins, else what is new.
    pub messages: &'a [Arc<Message>],
    /// Tools the model may call.
    pub tools: &'a [ToolSpec],
}

/// A [`Model`] on a backend with threads. Its host offers engines `thread-bootstrap-projection`.
#[derive(Debug)]
pub struct ThreadModel<B> {
    backend: B,
    /// By session.
    threads: Mutex<HashMap<Arc<str>, Thread>>,
}

#[derive(Debug, Clone)]
struct Thread {
    id: String,
    epoch: Option<String>,
    fingerprint: Option<String>,
    /// The step of the session up to which it holds everything, its own last reply included.
    holds: u64,
}

impl<B: ThreadBackend> ThreadModel<B> {
    /// A model on this backend.
    pub fn new(backend: B) -> ThreadModel<B> {
        ThreadModel { backend, threads: Mutex::default() }
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Forgets the thread of a session that is over.
    pub fn forget(&self, session: &str) {
        self.threads().remove(session);
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<Arc<str>, Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Thread {
    /// Whether what is new is enough for a prompt at this place.
    fn serves(&self, place: &Place) -> bool {
        let projection = place.projection.as_ref();
        let once = projection.filter(|projection| projection.mode == ProjectionMode::ThreadBootstrap);
        let same = once.is_some_and(|once| once.epoch == self.epoch && once.fingerprint == self.fingerprint);
        // A turn of another model, one that had no good end, or one that was rewritten is not in the thread.
        if self.holds != place.answered_at || place.new_from.is_none() {
            return false;
        }
        match place.follows {
            Follows::Refusal => false,
            Follows::Reply => once.is_none() || same,
            Follows::Turn => same,
        }
    }
}

impl<B: ThreadBackend> Model for ThreadModel<B> {
    fn info(&self) -> &ModelInfo {
        self.backend.info()
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            // Taken out: a thread whose answer does not come is not used again.
            let thread = request.place.as_ref().and_then(|place| {
                let thread = self.threads().remove(&place.session)?;
                thread.serves(place).then_some(thread)
            });
            let new_from = request.place.as_ref().and_then(|place| place.new_from).unwrap_or(0);
            let new_from = new_from.min(request.messages.len());
            let sent = ThreadSend {
                thread: thread.as_ref().map(|thread| thread.id.as_str()),
                system: request.system.as_deref(),
                messages: if thread.is_some() { &request.messages[new_from..] } else { &request.messages },
                tools: &request.tools,
            };
            let (id, reply) = self.backend.send(sent, events).await?;
            if let Some(place) = &request.place {
                let said = place.projection.clone();
                let (epoch, fingerprint) = said.map_or((None, None), |said| (said.epoch, said.fingerprint));
                // The reply is the next step.
                let thread = Thread { id, epoch, fingerprint, holds: place.step + 1 };
                self.threads().insert(Arc::clone(&place.session), thread);
            }
            Ok(reply)
        })
    }
}
