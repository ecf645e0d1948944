//! A host whose model keeps the conversation as a thread on its backend: what it is sent, and when (contract §1.2
//! `contextProjection`).

mod support;

use std::sync::{Arc, Mutex};

use context_engine_interface::{Assembly, ContextProjection, IngestBatchResult};
use context_engine_runtime::model::{
    BoxFuture, ModelError, ModelErrorKind, ModelEvent, ModelInfo, ModelReply, ThreadBackend, ThreadModel, ThreadSend,
};
use context_engine_runtime::{RuntimeOptions, TurnReport};
use serde_json::json;

use support::{Echo, Host, Script, plans};

/// Notes what it is sent, as `thread: texts`; a new thread has the next number.
struct Backend {
    info: ModelInfo,
    sent: Mutex<Vec<String>>,
    begun: Mutex<usize>,
    fails_on: Option<usize>,
}

impl ThreadBackend for Backend {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn send<'a>(
        &'a self,
        sent: ThreadSend<'a>,
        _: &'a mut (dyn FnMut(ModelEvent<'_>) + Send),
    ) -> BoxFuture<'a, Result<(String, ModelReply), ModelError>> {
        Box::pin(async move {
            let thread = sent.thread.map(str::to_owned).unwrap_or_else(|| {
                let mut begun = self.begun.lock().expect("a number");
                *begun += 1;
                format!("t{begun}")
            });
            let texts: Vec<String> = sent.messages.iter().map(|message| message.text()).collect();
            let mut all = self.sent.lock().expect("a list");
            all.push(format!("{thread}: {}", texts.join(" | ")));
            if self.fails_on == Some(all.len()) {
                return Err(ModelError::new(ModelErrorKind::Unavailable, "down"));
            }
            let last = sent.messages.last().map(|message| message.text()).unwrap_or_default();
            let reply = if last == "look" {
                let call = json!({ "type": "toolCall", "id": "c1", "name": "read", "arguments": {} });
                ModelReply { content: vec![call], ..ModelReply::default() }
            } else {
                ModelReply::text(format!("re: {last}"))
            };
            Ok((thread, reply))
        })
    }
}

/// A host whose engine projects as `epoch` says: `None` per turn, else once per epoch.
fn host(epoch: Arc<Mutex<Option<&'static str>>>, fails_on: Option<usize>) -> (Host, Arc<ThreadModel<Backend>>) {
    let assemble = plans(move |params| {
        let mut plan = Assembly::new();
        plan.keep(0..params.messages().len());
        if let Some(epoch) = *epoch.lock().expect("an epoch") {
            let projection = ContextProjection {
                thread_bootstrap: true,
                epoch: Some(epoch.into()).into(),
                fingerprint: None.into(),
            };
            plan.context_projection = Some(projection).into();
        }
        Ok(plan)
    });
    let script =
        Script { assemble, ingest_batch: Some(Box::new(|_, _| Ok(IngestBatchResult::default()))), ..Script::default() };
    let info = ModelInfo { provider: "threads".into(), id: "m".into(), ..ModelInfo::default() };
    let backend = Backend { info, sent: Mutex::default(), begun: Mutex::default(), fails_on };
    let model = Arc::new(ThreadModel::new(backend));
    let used = Arc::clone(&model);
    let change = move |options: &mut RuntimeOptions| {
        options.model = used;
        options.tools = vec![Echo::tool("read", "the text")];
    };
    (Host::with(script, context_engine_runtime::model::ScriptedModel::new([""; 0]), change), model)
}

fn sent(model: &ThreadModel<Backend>) -> Vec<String> {
    std::mem::take(&mut *model.backend().sent.lock().expect("a list"))
}

#[test]
fn a_prompt_is_sent_whole_once_per_epoch_and_then_what_is_new() {
    let epoch = Arc::new(Mutex::new(Some("e1")));
    let (mut host, model) = host(Arc::clone(&epoch), None);
    for question in ["one", "look", "three"] {
        assert!(host.ask(question).is_answered());
    }
    assert_eq!(sent(&model), ["t1: one", "t1: look", "t1: the text", "t1: three"]);
    *epoch.lock().expect("an epoch") = Some("e2");
    host.ask("four");
    host.ask("five");
    assert_eq!(
        sent(&model),
        ["t2: one | re: one | look |  | the text | re: the text | three | re: three | four", "t2: five"]
    );
}

#[test]
fn an_engine_that_says_nothing_of_threads_has_every_turn_sent_whole() {
    let (mut host, model) = host(Arc::default(), None);
    host.ask("one");
    host.ask("look");
    assert_eq!(sent(&model), ["t1: one", "t2: one | re: one | look", "t2: the text"]);
}

#[test]
fn a_thread_that_did_not_answer_is_left() {
    let (mut host, model) = host(Arc::new(Mutex::new(Some("e1"))), Some(2));
    let answered: Vec<bool> =
        ["one", "two", "three"].map(|q| host.ask(q)).iter().map(TurnReport::is_answered).collect();
    assert_eq!(answered, [true, false, true]);
    assert_eq!(sent(&model)[2], "t2: one | re: one | two\nthree");
}

#[test]
fn when_legacy_answers_the_thread_of_the_engine_is_left() {
    let (mut host, model) = host(Arc::new(Mutex::new(Some("e1"))), None);
    host.ask("one");
    host.runtime.select_engine("legacy");
    host.ask("two");
    host.ask("three");
    host.runtime.select_engine("probe");
    host.ask("four");
    let threads: Vec<String> =
        sent(&model).into_iter().map(|line| line.split(':').next().unwrap_or("").to_owned()).collect();
    assert_eq!(threads, ["t1", "t2", "t3", "t4"]);
}
