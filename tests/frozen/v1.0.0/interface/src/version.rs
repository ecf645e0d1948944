//! Version constants. Each line of history says what changed and why the number moved.

/// Version of the contract an engine implements. Stands in the record and is checked before the file is opened.
///
/// - 1: first release.
pub const SCHEMA_VERSION: u32 = 1;

/// Oldest version of the contract a host of this crate still speaks.
pub const OLDEST_SCHEMA_VERSION: u32 = 1;

/// Version of the `runtimeSettings` object (OpenClaw contract §1.4).
///
/// - 1: runtime, model, contextEngineSelection, executionHost, limits, diagnostics.
pub const RUNTIME_SETTINGS_SCHEMA_VERSION: u32 = 1;

/// Version of the byte layout around the record (see [`crate::record`]).
///
/// - 1: magic, format version, length, JSON.
pub const RECORD_FORMAT_VERSION: u32 = 1;
