//! How a turn is taken back.

use std::sync::Arc;

use context_engine_loader::CancelToken;
use tokio::sync::Notify;

/// Takes a turn back: the model's request, the tool and the engine's call that are under way end. Cheap to clone; all
/// clones are one.
#[derive(Debug, Clone, Default)]
pub struct TurnCancel {
    token: CancelToken,
    cancelled: Arc<Notify>,
}

impl TurnCancel {
    /// Takes the turn back, for good.
    pub fn cancel(&self) {
        self.token.cancel();
        self.cancelled.notify_waiters();
    }

    /// Whether it was taken back.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Ends when the turn is taken back.
    pub(crate) async fn cancelled(&self) {
        loop {
            let cancelled = self.cancelled.notified();
            tokio::pin!(cancelled);
            // From here on a notice is not missed.
            cancelled.as_mut().enable();
            if self.is_cancelled() {
                return;
            }
            cancelled.await;
        }
    }

    /// For the calls of an engine.
    pub(crate) fn token(&self) -> CancelToken {
        self.token.clone()
    }
}
