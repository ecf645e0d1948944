//! `maintain` behind a turn, for engines that want it in the background (contract §5.4).
//!
//! Decision: one run per session at a time. What is asked for while it runs becomes one more run, with the newest
//! parameters: an engine that is slower than the conversation is never more than one run behind.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use context_engine_loader::CancelToken;
use tokio::sync::Notify;

/// One run: what is called, on a thread that may wait.
pub(crate) type Run = Box<dyn FnOnce(CancelToken) + Send>;

/// The background maintenance of one session.
#[derive(Default)]
pub(crate) struct Maintenance {
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Default)]
struct State {
    running: bool,
    next: Option<Run>,
    cancel: CancelToken,
    closed: bool,
}

impl Maintenance {
    /// Runs `run` behind the turn, or behind the run that is under way.
    pub(crate) fn ask(self: &Arc<Self>, run: Run) {
        let mut state = self.state();
        if state.closed {
            tracing::debug!("deferred maintenance is refused: the session is closing");
            return;
        }
        state.next = Some(run);
        if std::mem::replace(&mut state.running, true) {
            return;
        }
        drop(state);
        let maintenance = Arc::clone(self);
        tokio::spawn(async move {
            while let Some((run, cancel)) = maintenance.take() {
                let done = tokio::task::spawn_blocking(move || run(cancel)).await;
                if let Err(error) = done {
                    tracing::warn!(%error, "deferred context engine maintenance failed");
                }
            }
            maintenance.idle.notify_waiters();
        });
    }

    fn take(&self) -> Option<(Run, CancelToken)> {
        let mut state = self.state();
        match state.next.take() {
            Some(run) => Some((run, state.cancel.clone())),
            None => {
                state.running = false;
                None
            }
        }
    }

    /// Waits until nothing runs.
    pub(crate) async fn settled(&self) {
        loop {
            let idle = self.idle.notified();
            if !self.state().running {
                return;
            }
            idle.await;
        }
    }

    /// Takes no more runs, and takes the one that is under way back.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.next = None;
        state.cancel.cancel();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Contract, Part 12 #42.
    #[test]
    fn what_is_asked_during_a_run_becomes_one_run_with_the_newest_parameters() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        tokio.block_on(async {
            let maintenance = Arc::new(Maintenance::default());
            let (go, wait) = mpsc::channel::<()>();
            let (tell, told) = mpsc::channel();
            let first = tell.clone();
            maintenance.ask(Box::new(move |_| {
                wait.recv().expect("the test goes on");
                first.send(0).expect("the test listens");
            }));
            tokio::task::yield_now().await;
            for n in 1..=3 {
                let tell = tell.clone();
                maintenance.ask(Box::new(move |_| tell.send(n).expect("the test listens")));
            }
            go.send(()).expect("the run waits");
            maintenance.settled().await;
            assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 3]);
        });
    }

    #[test]
    fn closing_takes_the_run_back_and_takes_no_more() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let runs = Arc::new(AtomicUsize::new(0));
        tokio.block_on(async {
            let maintenance = Arc::new(Maintenance::default());
            let (begun, begins) = tokio::sync::oneshot::channel();
            maintenance.ask(Box::new({
                let runs = Arc::clone(&runs);
                move |cancel| {
                    begun.send(()).expect("the test waits");
                    while !cancel.is_cancelled() {
                        std::thread::yield_now();
                    }
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            }));
            begins.await.expect("it begins");
            maintenance.close();
            maintenance.ask(Box::new(|_| unreachable!("a closed session is not maintained")));
            maintenance.settled().await;
        });
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}
