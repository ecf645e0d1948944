//! The system prompt of a turn: a text, and files with rules that are put behind it.
//!
//! Decision: rules are not history. The files are read anew for every prompt, so they can be changed in the middle of a
//! session and no compaction can lose them (report C12). Sizes and marks: design §5, contract §8.1.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Characters of one file.
const MAX_FILE: usize = 12_000;
/// Characters of all files.
const MAX_TOTAL: usize = 60_000;
/// What must be left for another file.
const MIN_LEFT: usize = 64;

/// What every prompt of a turn begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemPrompt {
    /// The text.
    pub text: Option<String>,
    /// Files with rules, in the order in which they stand behind it.
    pub files: Vec<PathBuf>,
}

impl SystemPrompt {
    /// The whole text, as the files are now; `None` when there is none.
    pub fn read(&self) -> Option<String> {
        let mut whole = self.text.clone().unwrap_or_default();
        let mut left = MAX_TOTAL;
        for path in &self.files {
            if left < MIN_LEFT {
                tracing::warn!(path = %path.display(), "rules are left out: the files before it fill the prompt");
                break;
            }
            let text = match fs::read(path) {
                Ok(bytes) => {
                    cut(String::from_utf8_lossy(&bytes).trim_end(), MAX_FILE.min(left), &path.to_string_lossy())
                }
                Err(_) => format!("[MISSING] Expected at: {}", path.display()),
            };
            left = left.saturating_sub(text.chars().count());
            let gap = if whole.is_empty() { "" } else { "\n\n" };
            // Writing into a string does not fail.
            let _ = write!(whole, "{gap}## {}\n\n{text}", path.display());
        }
        (!whole.is_empty()).then_some(whole)
    }
}

/// `text` cut to `max` characters, three quarters of them from the start.
fn cut(text: &str, max: usize, name: &str) -> String {
    let total = text.chars().count();
    if total <= max {
        return text.to_owned();
    }
    let mark = |kept: usize| {
        format!(
            "\n[...truncated, read {name} for full content...]\n…(truncated {name}: kept {kept} chars of {total})…\n"
        )
    };
    let Some(room) = max.checked_sub(mark(total).chars().count()).filter(|room| *room >= 16) else {
        return format!("[…truncated 0/{total}]").chars().take(max).collect();
    };
    let (head, tail) = (room - room / 4, room / 4);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(total - tail).collect();
    format!("{start}{}{end}", mark(head + tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_anew_and_a_missing_one_is_said() {
        let folder = std::env::temp_dir().join(format!("context-engine-rules-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let rules = folder.join("AGENTS.md");
        let prompt = SystemPrompt { text: Some("Be kind.".into()), files: vec![rules.clone(), folder.join("SOUL.md")] };
        fs::write(&rules, "never push\n").expect("written");
        let first = prompt.read().expect("a prompt");
        fs::write(&rules, "push on Fridays").expect("written");
        let second = prompt.read().expect("a prompt");
        fs::remove_dir_all(&folder).expect("removed");
        let show = |text: String| text.replace(&*folder.to_string_lossy(), "…");
        assert_eq!(
            show(first),
            "Be kind.\n\n## …/AGENTS.md\n\nnever push\n\n## …/SOUL.md\n\n[MISSING] Expected at: …/SOUL.md"
        );
        assert!(show(second).contains("push on Fridays"));
    }

    #[test]
    fn a_long_file_is_cut_within_its_limit() {
        let text = "é".repeat(20_000);
        let short = cut(&text, MAX_FILE, "AGENTS.md");
        assert!(short.chars().count() <= MAX_FILE && short.contains("chars of 20000"), "{}", short.chars().count());
        assert!(cut(&text, 20, "AGENTS.md").chars().count() <= 20);
    }
}
