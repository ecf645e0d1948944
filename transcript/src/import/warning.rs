//! What a person should know about a load.

use std::fmt;

/// Something about a load that a person should know. Each kind comes at most once per load.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportWarning {
    /// Lines that are no plain record. Whole records on them were used.
    DamagedLines {
        /// Line numbers from 1, ascending.
        lines: Vec<u64>,
        /// Whole records found on them.
        recovered: u64,
        /// Fragments no record could be made of.
        lost: u64,
    },
    /// Lines with bytes that are no UTF-8, read with U+FFFD in place.
    NotUtf8 {
        /// Line numbers from 1, ascending.
        lines: Vec<u64>,
    },
    /// Lines with half a surrogate pair, read with U+FFFD in place.
    HalfSurrogates {
        /// Line numbers from 1, ascending.
        lines: Vec<u64>,
    },
    /// A JSON document that ends before it is complete; whole messages before the cut were used.
    CutDocument {
        /// One-based line of the cut.
        line: usize,
    },
    /// Lines with `NaN` or `Infinity`, read with `null` in place.
    NoNumbers {
        /// Line numbers from 1, ascending.
        lines: Vec<u64>,
    },
    /// The session file has no header; the id was taken from the file's name.
    NoHeader,
    /// System messages later in a dialogue that differ from the first; kept as entries, not sent.
    LaterSystemMessages {
        /// How many, in all sessions.
        count: u64,
    },
    /// Parts of a document that are no records of its format.
    LostRecords {
        /// How many.
        count: u64,
    },
    /// Records of sub-agents' conversations, which were left out.
    Sidechains {
        /// How many, in all sessions.
        count: u64,
    },
}

impl fmt::Display for ImportWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportWarning::DamagedLines { lines, recovered, lost } => {
                write!(f, "{}: {recovered} whole records recovered, {lost} lost", Lines("damaged", lines))
            }
            ImportWarning::NotUtf8 { lines } => {
                write!(f, "{}: read with U+FFFD in place", Lines("with bytes that are no UTF-8", lines))
            }
            ImportWarning::HalfSurrogates { lines } => {
                write!(f, "{}: read with U+FFFD in place", Lines("with half a surrogate pair", lines))
            }
            ImportWarning::CutDocument { line } => {
                write!(f, "the JSON document is cut off in line {line}: whole messages before it were used, 1 lost")
            }
            ImportWarning::NoNumbers { lines } => {
                write!(f, "{}: read with null in place", Lines("with NaN or Infinity", lines))
            }
            ImportWarning::NoHeader => f.write_str("no session header: the id was taken from the file's name"),
            ImportWarning::LaterSystemMessages { count } => {
                write!(f, "{count} later system messages differ from the first: kept, not sent")
            }
            ImportWarning::LostRecords { count } => {
                write!(f, "{count} parts of the document are no records of its format: left out")
            }
            ImportWarning::Sidechains { count } => {
                write!(f, "{count} records of sub-agents' conversations (sidechains) left out")
            }
        }
    }
}

/// `3 damaged lines (7, 50, 51)`, shortened for very many.
struct Lines<'a>(&'a str, &'a [u64]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Line numbers listed before the rest is only counted.
        const LISTED: usize = 20;
        let (Lines(what, lines), plural) = (self, if self.1.len() == 1 { "" } else { "s" });
        let listed: Vec<String> = lines.iter().take(LISTED).map(u64::to_string).collect();
        let more = if lines.len() > LISTED { ", …" } else { "" };
        if what.starts_with("with") {
            return write!(f, "{} line{plural} {what} ({}{more})", lines.len(), listed.join(", "));
        }
        write!(f, "{} {what} line{plural} ({}{more})", lines.len(), listed.join(", "))
    }
}
