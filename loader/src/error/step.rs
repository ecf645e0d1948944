//! The steps by their names: every refusal says which one it is from.

use std::fmt;

/// The steps from a file to an answered call, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Looking through the plugins directories.
    Find,
    /// Copying the file into the private directory.
    Stage,
    /// Reading the file without running it.
    Inspect,
    /// Asking whether it may be used: the configuration, and who could have changed it.
    Trust,
    /// Checking the engine's configuration against the plugin's schema.
    Config,
    /// Trying the library out in a child process.
    Probe,
    /// Opening the library and creating the engine.
    Open,
    /// Calling the engine.
    Call,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Find => "find",
            Step::Stage => "stage",
            Step::Inspect => "inspect",
            Step::Trust => "trust",
            Step::Config => "config",
            Step::Probe => "probe",
            Step::Open => "open",
            Step::Call => "call",
        })
    }
}
