//! Session files as they are kept: who may write them, what they hold, how they are mended.

mod lock;
mod process;

pub use lock::{LockOwner, SessionLock};
