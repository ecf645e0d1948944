//! One prompt and its answer: asking the model, and asking it again with a smaller prompt.

use std::sync::Arc;

use serde_json::{Value, json};

use super::recovery::{Recovered, Tried, recover};
use super::run::{Stop, Turn};
use super::{CallMade, TurnEvent};
use crate::model::{Follows, ModelError, ModelErrorKind, ModelEvent, ModelReply, ModelRequest, Place, StopReason};
use crate::session::Prompt;
use context_engine_interface::Role;

/// A request without a reply: the error, or none for a turn that was taken back, and what had come in.
pub(super) struct Unanswered {
    pub(super) error: Option<ModelError>,
    pub(super) partial: Vec<Value>,
}

impl Turn<'_> {
    /// Has the model answer `prompt`, or a smaller one when it refuses. Also the prompt that was answered.
    pub(super) async fn respond(
        &mut self,
        mut prompt: Prompt,
        tried: &mut Tried,
    ) -> Result<(ModelReply, Prompt), Stop> {
        let mut follows = if self.answered == 0 { Follows::Turn } else { Follows::Reply };
        loop {
            prompt.said = self.said();
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
                Ok(reply) => ran_over(&reply),
                Err(Unanswered { error: Some(error), partial }) => ModelError { partial, ..error },
                Err(Unanswered { error: None, partial }) => return Err(Stop::Aborted { partial }),
            };
            prompt = self.recover(prompt, error, tried).await?;
            follows = Follows::Refusal;
        }
    }

    /// Where a prompt stands: what was said since the last reply is new in it.
    fn place(&self, prompt: &Prompt, follows: Follows) -> Place {
        let state = self.frame.session.state();
        let new = state.said(self.answered);
        let messages = &prompt.assembled.messages;
        let found = new.first().and_then(|first| messages.iter().position(|message| message.id == first.id));
        // A question that went into the one before it has lost its id, and stands at the end.
        let merged =
            || new.first().zip(messages.last()).is_some_and(|(a, b)| a.role == Role::USER && b.role == Role::USER);
        let new_from = found.or_else(|| merged().then(|| messages.len() - 1));
        Place {
            session: Arc::clone(&self.frame.session.id),
            new_from,
            answered_at: self.answered_at,
            step: state.steps(),
            follows,
            projection: prompt.assembled.projection.clone(),
        }
    }

    async fn recover(&mut self, refused: Prompt, error: ModelError, tried: &mut Tried) -> Result<Prompt, Stop> {
        let ran_tools = self.frame.session.state().said(0).iter().any(|message| !message.tool_call_id.is_empty());
        let (partial, text) = (error.partial.clone(), error.to_string());
        let mut frame = self.frame.clone();
        let mut so_far = std::mem::take(tried);
        let recovery = self.thread(move || {
            let recovered = recover(&mut frame, &mut so_far, &refused, &error, ran_tools);
            (recovered, so_far, frame.budget)
        });
        let (recovered, so_far, budget) = recovery.await.map_err(|stop| stop.with(&partial))?;
        *tried = so_far;
        match recovered {
            Ok(Recovered::Prompt { prompt, compacted, truncated, overcount }) => {
                self.frame.budget = budget;
                if overcount > 1.0 {
                    self.frame.session.memory().overcount = Some((self.frame.model_name(), overcount));
                }
                self.note_change(compacted || prompt.compacted, truncated + prompt.truncated);
                (self.events)(TurnEvent::Restarted { reason: text });
                Ok(*prompt)
            }
            Ok(Recovered::GivenUp { error, compacted, truncated }) => {
                self.note_change(compacted, truncated);
                Err(Stop::Failed { error, partial })
            }
            Err(error) => Err(Stop::from(error).with(&partial)),
        }
    }

    /// Whether the reply was cut because prompt and reply together are over the window.
    fn ran_over(&self, reply: &ModelReply) -> bool {
        reply.stop == StopReason::Length && reply.usage.is_some_and(|usage| usage.total() > self.frame.window.tokens)
    }

    /// One request.
    pub(super) async fn ask(&mut self, request: &ModelRequest) -> Result<ModelReply, Unanswered> {
        let model = Arc::clone(&self.model);
        let events = &mut *self.events;
        let (mut text, mut thinking) = (String::new(), String::new());
        let mut forward = |event: ModelEvent<'_>| match event {
            ModelEvent::Text(more) => {
                text.push_str(more);
                events(TurnEvent::Text(more.to_owned()));
            }
            ModelEvent::Thinking(more) => {
                thinking.push_str(more);
                events(TurnEvent::Thinking(more.to_owned()));
            }
            ModelEvent::Retry { after, reason, .. } => events(TurnEvent::Retry { after, reason: reason.to_owned() }),
            _ => {}
        };
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            reply = model.respond(request, &mut forward) => Some(reply),
        };
        match answer {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(error)) => {
                let partial = error.partial.clone();
                Err(Unanswered { error: Some(error), partial })
            }
            None => {
                let mut partial = Vec::new();
                if !thinking.is_empty() {
                    partial.push(json!({ "type": "thinking", "thinking": thinking }));
                }
                if !text.is_empty() {
                    partial.push(json!({ "type": "text", "text": text }));
                }
                Err(Unanswered { error: None, partial })
            }
        }
    }

    fn note_fallback(&mut self, prompt: &Prompt) {
        if prompt.assembled.why.is_some() && self.report.why != prompt.assembled.why {
            self.report.why.clone_from(&prompt.assembled.why);
            if let Some(why) = prompt.assembled.why.clone() {
                (self.events)(TurnEvent::Fallback { why });
            }
        }
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

fn ran_over(reply: &ModelReply) -> ModelError {
    let observed = reply.usage.map(|usage| usage.prompt());
    let text = "the reply was cut: prompt and reply together are over the window";
    ModelError { partial: reply.content.clone(), ..ModelError::new(ModelErrorKind::Overflow { observed }, text) }
}
