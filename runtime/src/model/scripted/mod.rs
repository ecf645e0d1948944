//! A model that says what it was told to: for tests, demonstrations and hosts without a provider.
//!
//! Decision: it is a model like any other (it streams, takes time, fails in every way a provider does), and it can be as
//! strict about prompts as the strictest provider, so whoever tests a turn against it has the prompts tested for free.

mod step;
mod strict;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use context_engine_transcript::TokenCounter;
use context_engine_transcript::tokens::MESSAGE_OVERHEAD;

pub use self::step::Step;
use super::{BoxFuture, Model, ModelError, ModelErrorKind, ModelEvent, ModelInfo, ModelReply, ModelRequest};

/// Answers from a list, or from a function of the request; remembers what it was asked.
///
/// ```
/// use context_engine_runtime::model::{ScriptedModel, Step};
///
/// let model = ScriptedModel::new([
///     Step::call("c1", "read", serde_json::json!({ "path": "notes.md" })),
///     Step::text("There are three notes."),
/// ]);
/// assert_eq!(model.requests().len(), 0);
/// ```
pub struct ScriptedModel {
    info: ModelInfo,
    script: Mutex<Script>,
    requests: Mutex<Vec<ModelRequest>>,
    window: Option<u64>,
    strict_roles: bool,
    counter: TokenCounter,
}

enum Script {
    Steps { left: VecDeque<Step>, taken: usize },
    Function(Box<dyn FnMut(&ModelRequest) -> Step + Send>),
}

impl ScriptedModel {
    /// Answers with these steps, one for each request; a request after the last one is [`ModelErrorKind::Failed`].
    pub fn new(steps: impl IntoIterator<Item = impl Into<Step>>) -> ScriptedModel {
        let left = steps.into_iter().map(Into::into).collect();
        ScriptedModel::with(Script::Steps { left, taken: 0 })
    }

    /// Answers with what the function makes of each request.
    pub fn from_fn(answer: impl FnMut(&ModelRequest) -> Step + Send + 'static) -> ScriptedModel {
        ScriptedModel::with(Script::Function(Box::new(answer)))
    }

    fn with(script: Script) -> ScriptedModel {
        let info = ModelInfo { provider: "scripted".to_owned(), id: "scripted".to_owned(), ..ModelInfo::default() };
        ScriptedModel {
            info,
            script: Mutex::new(script),
            requests: Mutex::default(),
            window: None,
            strict_roles: false,
            counter: TokenCounter::for_model(None),
        }
    }

    /// Gives it another name; its context window is left to [`ScriptedModel::window`] when that was called.
    #[must_use]
    pub fn named(mut self, info: ModelInfo) -> ScriptedModel {
        self.counter = TokenCounter::for_model(Some(&info.id));
        let window = self.window.or(info.context_window);
        self.info = ModelInfo { context_window: window, ..info };
        self
    }

    /// Gives it a context window of so many tokens: a request that is over it ([`request_tokens`]) is answered by
    /// [`ModelErrorKind::Overflow`] and takes no step of the script.
    #[must_use]
    pub fn window(mut self, tokens: u64) -> ScriptedModel {
        self.window = Some(tokens);
        self.info.context_window = Some(tokens);
        self
    }

    /// Makes it refuse, with [`ModelErrorKind::Failed`] and what is wrong, the prompts that strict providers refuse: a call
    /// without its result directly behind it, a result without its call, an id twice in one message, two messages of
    /// one speaker in a row, a reply at the start or the end, another role than three, a message with nothing to read,
    /// no message at all. Such a request takes no step of the script.
    #[must_use]
    pub fn strict_roles(mut self) -> ScriptedModel {
        self.strict_roles = true;
        self
    }

    /// What it was asked by now, refused requests included.
    pub fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.requests).clone()
    }

    /// How many steps are left; `None` when a function answers.
    pub fn steps_left(&self) -> Option<usize> {
        match &*lock(&self.script) {
            Script::Steps { left, .. } => Some(left.len()),
            Script::Function(_) => None,
        }
    }

    /// The step that answers, or why the request is refused.
    fn next(&self, request: &ModelRequest) -> Result<Step, ModelError> {
        lock(&self.requests).push(request.clone());
        if let Some(complaint) = Some(request).filter(|_| self.strict_roles).and_then(strict::complaint) {
            return Err(ModelError::new(ModelErrorKind::Failed, complaint));
        }
        if let Some(window) = self.window {
            let tokens = request_tokens(request, &self.counter);
            if tokens > window {
                let text = format!("prompt is too long: {tokens} tokens > {window} maximum");
                return Err(ModelError::new(ModelErrorKind::Overflow { observed: Some(tokens) }, text));
            }
        }
        match &mut *lock(&self.script) {
            Script::Function(answer) => Ok(answer(request)),
            Script::Steps { left, taken } => {
                *taken += 1;
                let over = || format!("the script has {} steps; this is request {taken}", *taken - 1);
                left.pop_front().ok_or_else(|| ModelError::new(ModelErrorKind::Failed, over()))
            }
        }
    }
}

impl Model for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        events: &'a mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move { self.next(request)?.play(events).await })
    }
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left = self.steps_left();
        f.debug_struct("ScriptedModel").field("info", &self.info).field("steps_left", &left).finish_non_exhaustive()
    }
}

/// Tokens of all that is sent: system prompt, messages, tools.
pub fn request_tokens(request: &ModelRequest, counter: &TokenCounter) -> u64 {
    let system = request.system.as_deref().map_or(0, |system| counter.text(system));
    let messages: u64 = counter.count_all(&request.messages).into_iter().sum();
    let tool = |tool: &super::ToolSpec| {
        let texts = [tool.name.as_str(), &tool.description, &tool.parameters.to_string()];
        MESSAGE_OVERHEAD + texts.into_iter().map(|text| counter.text(text)).sum::<u64>()
    };
    system + messages + request.tools.iter().map(tool).sum::<u64>()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits: on Tokio's clock inside of a Tokio runtime, so that a test may stop it, and on a thread of its own elsewhere.
fn pause(time: Duration) -> BoxFuture<'static, ()> {
    if time.is_zero() {
        return Box::pin(std::future::ready(()));
    }
    if tokio::runtime::Handle::try_current().is_ok() {
        return Box::pin(tokio::time::sleep(time));
    }
    Box::pin(ThreadPause { time, state: None })
}

/// A pause without a runtime.
struct ThreadPause {
    time: Duration,
    state: Option<Arc<Mutex<(bool, Waker)>>>,
}

impl Future for ThreadPause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(state) = &self.state else {
            let state = Arc::new(Mutex::new((false, context.waker().clone())));
            let (time, over) = (self.time, Arc::clone(&state));
            self.state = Some(state);
            thread::spawn(move || {
                thread::sleep(time);
                let mut over = lock(&over);
                over.0 = true;
                over.1.wake_by_ref();
            });
            return Poll::Pending;
        };
        let mut state = lock(state);
        state.1.clone_from(context.waker());
        if state.0 { Poll::Ready(()) } else { Poll::Pending }
    }
}
