//! What the page may do: run the one script it came with, and ask the network for nothing.
//!
//! Decision: a content security policy by hash. Should a text of a session ever get past the escaping, the browser runs
//! nothing of it and loads nothing for it. Scripts that only hold data are not run, and need no hash.

use sha2::{Digest, Sha256};

/// The policy for a page with this script and this style sheet.
pub(super) fn policy(script: &str, style: &str) -> String {
    format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        source(script),
        source(style)
    )
}

/// How a policy names an inline text: by its hash.
pub(super) fn source(inline: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(inline.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, i| bits << 8 | u32::from(chunk.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_written_as_browsers_read_them() {
        assert_eq!(source(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
        for (bytes, digits) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(bytes.as_bytes()), digits);
        }
    }
}
