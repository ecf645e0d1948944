//! Ids and names that a request may carry for its tool calls.
//!
//! Decision: a made-up id depends on the entry it stands in and on nothing before it, so it is the same in every prompt
//! of the session and after a restart. An id is only changed when it is empty or was used before.

use std::borrow::Cow;
use std::collections::HashSet;

/// Longest tool name that may be sent (contract §4.1.5).
const MAX_NAME: usize = 64;

/// Whether a trimmed name may be sent.
///
/// Letters, digits, `_` and `-` as in contract §4.1.5, and `.` and `:` too: some providers allow them, a call under
/// such a name was once accepted by one of them, and only the code that speaks to a strict provider can map it back.
pub(super) fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_name_byte)
}

/// The nearest name that may be sent; `unknown` for a blank one.
pub(super) fn clean_name(name: &str) -> String {
    let byte = |c: char| if c.is_ascii() && is_name_byte(c as u8) { c } else { '_' };
    let cleaned: String = name.trim().chars().map(byte).take(MAX_NAME).collect();
    if cleaned.is_empty() { "unknown".to_owned() } else { cleaned }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':')
}

/// Hands out ids that are unique within one history.
#[derive(Debug, Default)]
pub(super) struct CallIds<'a> {
    used: HashSet<Cow<'a, str>>,
}

impl<'a> CallIds<'a> {
    /// `id` itself when it is usable and new, otherwise one made from the entry and the block's position.
    pub(super) fn claim(&mut self, id: &'a str, entry: &str, block: usize) -> Cow<'a, str> {
        if !id.trim().is_empty() && self.used.insert(Cow::Borrowed(id)) {
            return Cow::Borrowed(id);
        }
        let mut salt = block;
        loop {
            let made = format!("call_{:016x}", fnv1a(entry, salt));
            if self.used.insert(Cow::Owned(made.clone())) {
                return Cow::Owned(made);
            }
            salt += 1 << 20;
        }
    }
}

/// FNV-1a, 64 bits: written out because the standard library's hash may differ between releases.
fn fnv1a(entry: &str, salt: usize) -> u64 {
    let bytes = entry.bytes().chain((salt as u64).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
