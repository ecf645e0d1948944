//! From a file in a plugins directory to an answered call: find → stage → inspect → open → call.
#![deny(unsafe_code)]

pub mod dylib;
mod error;
pub mod find;
pub mod inspect;
mod manifest;
pub mod platform;
pub mod stage;

pub use error::{LoaderError, Problem, Step};
pub use manifest::Manifest;
