//! As much of the loader's error type as its code for opening a library uses. The real one derives its texts, and what
//! that links would have abi_stable built once more for these hosts.

use std::path::Path;

pub enum Step {
    Open,
}

#[derive(Debug)]
pub enum Problem {
    Dlopen { reason: String },
    NoRecord,
    Layout { expected: String, reason: String },
}

pub struct LoaderError {
    pub problem: Problem,
}

impl LoaderError {
    pub fn new(_: &Path, _: Step, problem: Problem) -> LoaderError {
        LoaderError { problem }
    }
}
