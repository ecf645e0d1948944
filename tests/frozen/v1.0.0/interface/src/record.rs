//! The record: the facts about an engine that stand in the file and are read before any of its code runs.
//!
//! `dlopen` runs constructors, so what a loader wants to know first must be in the bytes. Layout, in a section of its
//! own ([`SECTION`]):
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `CTXENGN\0` |
//! | 8 | 4 | format version, little endian ([`RECORD_FORMAT_VERSION`]) |
//! | 12 | 4 | length of the JSON, little endian, at most [`MAX_JSON_LEN`] |
//! | 16 | length | JSON, UTF-8: [`Record`] |
//!
//! Decision: JSON inside a binary frame. The frame can be checked without a parser; the JSON can gain members without
//! making an older loader refuse the file.

use serde::{Deserialize, Serialize};

use crate::{RECORD_FORMAT_VERSION, SCHEMA_VERSION};

/// Section the record stands in, as `object` names it on ELF and COFF. At most 8 bytes, the limit of a PE section name.
pub const SECTION: &str = ".ctxeng";

/// The first bytes of the record.
pub const MAGIC: [u8; 8] = *b"CTXENGN\0";

/// Length of magic, format version and length.
pub const HEADER_LEN: usize = 16;

/// The longest JSON a loader reads.
pub const MAX_JSON_LEN: usize = 64 * 1024;

/// What is known about an engine (contract §1.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineInfo {
    /// The id a slot names.
    pub id: String,
    /// For display.
    pub name: String,
    /// The engine's own version.
    pub version: String,
    /// Whether the engine compacts on its own, so that the runtime does not.
    #[serde(default)]
    pub owns_compaction: bool,
    /// The host params the engine takes; `None` = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_host_params: Option<Vec<String>>,
    /// `foreground` (also when absent) or `background`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_maintenance_mode: Option<String>,
    /// What the engine promises about transcripts.
    #[serde(default, skip_serializing_if = "TranscriptSemantics::is_empty")]
    pub transcript_semantics: TranscriptSemantics,
    /// What a host must offer, per operation (`agent-run`, `manual-compact`, `subagent-spawn`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_requirements: Vec<HostRequirement>,
}

/// What an engine promises about transcripts (contract §1.1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TranscriptSemantics {
    /// `before-current-turn-entry-v1`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_turn_fence: Option<String>,
    /// `atomic-idempotent-v1`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_advancement_idempotency: Option<String>,
}

impl TranscriptSemantics {
    fn is_empty(&self) -> bool {
        *self == TranscriptSemantics::default()
    }
}

/// What a host must offer for one operation (contract §1.7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRequirement {
    /// `agent-run`, `manual-compact` or `subagent-spawn`.
    pub operation: String,
    /// Names of host capabilities.
    pub required_capabilities: Vec<String>,
    /// What to tell the person when one is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported_message: Option<String>,
}

/// The record's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The contract's version ([`SCHEMA_VERSION`]).
    pub schema_version: u32,
    /// Version of the interface crate the engine was built with.
    pub interface_version: String,
    /// The engine.
    pub engine: EngineInfo,
    /// Extensions it answers, as `id/version`.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// `unwind` or `abort`.
    pub panic: String,
    /// Target triple it was built for.
    pub target: String,
    /// Compiler it was built with.
    pub compiler: String,
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// Shorter than its header, or than the length in it.
    Truncated {
        /// Bytes needed.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
    /// Other first bytes.
    Magic,
    /// A frame this version does not know.
    Format {
        /// The format version found.
        found: u32,
    },
    /// A length above [`MAX_JSON_LEN`].
    TooLong {
        /// The length found.
        found: usize,
    },
    /// JSON that is no [`Record`].
    Json {
        /// What the parser says.
        reason: String,
    },
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordError::Truncated { expected, found } => {
                write!(f, "record is cut off: expected {expected} bytes, found {found}")
            }
            RecordError::Magic => f.write_str("record does not start with its magic bytes"),
            RecordError::Format { found } => {
                write!(f, "record format {found}: this host reads format {RECORD_FORMAT_VERSION}")
            }
            RecordError::TooLong { found } => write!(f, "record of {found} bytes: at most {MAX_JSON_LEN} are read"),
            RecordError::Json { reason } => write!(f, "record is no valid JSON record: {reason}"),
        }
    }
}

impl std::error::Error for RecordError {}

/// Length the record in `section` says it has, header included.
///
/// # Errors
/// As [`parse`], for the header alone.
pub fn framed_len(section: &[u8]) -> Result<usize, RecordError> {
    let header = section
        .first_chunk::<HEADER_LEN>()
        .ok_or(RecordError::Truncated { expected: HEADER_LEN, found: section.len() })?;
    if header[..8] != MAGIC {
        return Err(RecordError::Magic);
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if number(8) != RECORD_FORMAT_VERSION {
        return Err(RecordError::Format { found: number(8) });
    }
    match number(12) as usize {
        len if len > MAX_JSON_LEN => Err(RecordError::TooLong { found: len }),
        len => Ok(HEADER_LEN + len),
    }
}

/// Reads the record at the start of its section.
///
/// # Errors
/// [`RecordError`], one variant per way the bytes can be wrong.
pub fn parse(section: &[u8]) -> Result<Record, RecordError> {
    let expected = framed_len(section)?;
    let json = section.get(HEADER_LEN..expected).ok_or(RecordError::Truncated { expected, found: section.len() })?;
    serde_json::from_slice(json).map_err(|error| RecordError::Json { reason: error.to_string() })
}

/// The record as `export_engine!` knows it at compile time.
#[derive(Debug, Clone, Copy)]
pub struct RecordFields {
    /// [`EngineInfo::id`]
    pub id: &'static str,
    /// [`EngineInfo::name`]
    pub name: &'static str,
    /// [`EngineInfo::version`]
    pub version: &'static str,
    /// [`EngineInfo::owns_compaction`]
    pub owns_compaction: bool,
    /// [`EngineInfo::accepted_host_params`]
    pub accepted_host_params: Option<&'static [&'static str]>,
    /// [`EngineInfo::turn_maintenance_mode`]
    pub turn_maintenance_mode: Option<&'static str>,
    /// [`TranscriptSemantics::current_turn_fence`]
    pub current_turn_fence: Option<&'static str>,
    /// [`TranscriptSemantics::turn_advancement_idempotency`]
    pub turn_advancement_idempotency: Option<&'static str>,
    /// [`EngineInfo::host_requirements`]: operation, capabilities, message.
    pub host_requirements: &'static [(&'static str, &'static [&'static str], Option<&'static str>)],
    /// [`Record::extensions`]
    pub extensions: &'static [&'static str],
    /// [`Record::panic`]
    pub panic: &'static str,
}

/// Length of the framed record of `fields`.
pub const fn encoded_len(fields: &RecordFields) -> usize {
    Writer::<0>::new().record(fields).len
}

/// The framed record of `fields`; `N` is [`encoded_len`].
pub const fn encode<const N: usize>(fields: &RecordFields) -> [u8; N] {
    let writer = Writer::<N>::new().record(fields);
    let mut out = writer.buffer;
    let json_len = (N - HEADER_LEN) as u32;
    assert!(N - HEADER_LEN <= MAX_JSON_LEN, "the engine's record is longer than 64 KiB");
    let (version, length) = (RECORD_FORMAT_VERSION.to_le_bytes(), json_len.to_le_bytes());
    let mut i = 0;
    while i < 8 {
        out[i] = MAGIC[i];
        i += 1;
    }
    i = 0;
    while i < 4 {
        out[8 + i] = version[i];
        out[12 + i] = length[i];
        i += 1;
    }
    out
}

/// The JSON in a framed record made by [`encode`].
pub const fn json_of(framed: &[u8]) -> &str {
    let (_, json) = framed.split_at(HEADER_LEN);
    match std::str::from_utf8(json) {
        Ok(json) => json,
        Err(_) => "",
    }
}

/// Writes JSON at compile time. Counts past the end of its buffer, so a first pass with `N = 0` gives the length.
struct Writer<const N: usize> {
    buffer: [u8; N],
    len: usize,
    last: u8,
}

impl<const N: usize> Writer<N> {
    const fn new() -> Self {
        Writer { buffer: [0; N], len: HEADER_LEN, last: 0 }
    }

    const fn byte(mut self, byte: u8) -> Self {
        if self.len < N {
            self.buffer[self.len] = byte;
        }
        self.len += 1;
        self.last = byte;
        self
    }

    const fn plain(mut self, text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            self = self.byte(bytes[i]);
            i += 1;
        }
        self
    }

    const fn string(mut self, text: &str) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let bytes = text.as_bytes();
        self = self.byte(b'"');
        let mut i = 0;
        while i < bytes.len() {
            self = match bytes[i] {
                b'"' => self.plain("\\\""),
                b'\\' => self.plain("\\\\"),
                control @ 0..0x20 => {
                    self.plain("\\u00").byte(HEX[(control >> 4) as usize]).byte(HEX[(control & 15) as usize])
                }
                byte => self.byte(byte),
            };
            i += 1;
        }
        self.byte(b'"')
    }

    const fn key(mut self, key: &str) -> Self {
        if self.last != b'{' {
            self = self.byte(b',');
        }
        self.string(key).byte(b':')
    }

    const fn member(self, key: &str, value: &str) -> Self {
        self.key(key).string(value)
    }

    const fn optional(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.member(key, value),
            None => self,
        }
    }

    const fn strings(mut self, values: &[&str]) -> Self {
        self = self.byte(b'[');
        let mut i = 0;
        while i < values.len() {
            if i > 0 {
                self = self.byte(b',');
            }
            self = self.string(values[i]);
            i += 1;
        }
        self.byte(b']')
    }

    const fn record(self, fields: &RecordFields) -> Self {
        const { assert!(SCHEMA_VERSION == 1, "the digits below are the schema version's") };
        let mut out = self.byte(b'{').key("schemaVersion").byte(b'1');
        out = out.member("interfaceVersion", env!("CARGO_PKG_VERSION"));
        out = out.key("engine").byte(b'{').member("id", fields.id).member("name", fields.name);
        out = out.member("version", fields.version);
        out = out.key("ownsCompaction").plain(if fields.owns_compaction { "true" } else { "false" });
        if let Some(accepted) = fields.accepted_host_params {
            out = out.key("acceptedHostParams").strings(accepted);
        }
        out = out.optional("turnMaintenanceMode", fields.turn_maintenance_mode);
        out = out.key("transcriptSemantics").byte(b'{');
        out = out.optional("currentTurnFence", fields.current_turn_fence);
        out = out.optional("turnAdvancementIdempotency", fields.turn_advancement_idempotency).byte(b'}');
        out = out.key("hostRequirements").byte(b'[');
        let mut i = 0;
        while i < fields.host_requirements.len() {
            let (operation, capabilities, message) = fields.host_requirements[i];
            if i > 0 {
                out = out.byte(b',');
            }
            out = out.byte(b'{').member("operation", operation);
            out = out.key("requiredCapabilities").strings(capabilities);
            out = out.optional("unsupportedMessage", message).byte(b'}');
            i += 1;
        }
        out = out.plain("]}").key("extensions").strings(fields.extensions).member("panic", fields.panic);
        out = out.member("target", env!("CONTEXT_ENGINE_TARGET")).member("compiler", env!("CONTEXT_ENGINE_COMPILER"));
        out.byte(b'}')
    }
}

#[cfg(test)]
mod tests;
