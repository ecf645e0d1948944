//! A text nobody gets to see: keys and whatever else opens an account.
//!
//! Decision: a type of its own and no crate for it. What is wanted is that no `Debug` of a configuration and no log line
//! shows a key, and that two configurations can be compared; wiping memory is not promised, because the HTTP client
//! copies the key anyway.

use std::fmt;

use serde::Deserialize;

/// A text that is shown as `***`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
