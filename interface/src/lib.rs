//! What an engine links: the contract, the ABI and `export_engine!`.
#![deny(unsafe_code)]

pub mod abi;
mod version;

pub use abi::views::{BlockFlags, BlockKind, BlockView, MessageFlags, MessageView, Role};
pub use version::{RECORD_FORMAT_VERSION, RUNTIME_SETTINGS_SCHEMA_VERSION, SCHEMA_VERSION};
