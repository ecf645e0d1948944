//! Step 6, open: the library is loaded, and has to be what its file said it is.
//!
//! Decision: the probe's child process and the host open a library through the same two functions, so that what one of
//! them refuses the other would have refused with the same words. `dylib` stays small beside them: it is the unsafe part.

use std::path::Path;

use context_engine_interface::abi::module::{EngineModule, Extension, ToolsV1};
use context_engine_interface::record::Record;

use crate::catalog::Plugin;
use crate::error::{LoaderError, Problem, Step};
use crate::{dlerror, dylib};

/// Ids no engine can know, as they are shown, with the version asked for. One that answers them answers anything, and
/// whoever believes it calls through the wrong table.
const NONSENSE: [(&str, u32); 3] =
    [("\"no-such-extension/0\"", u32::MAX), ("the empty id", 1), ("an id of a million bytes", 1)];

impl Plugin {
    /// Opens the private copy and takes its root module. Runs the library's constructors in this process.
    ///
    /// # Errors
    /// What the system says when it refuses the library; [`Problem::Layout`], [`Problem::Identity`] or
    /// [`Problem::Extension`] when the library is not what its file said.
    pub fn open(&self) -> Result<EngineModule, LoaderError> {
        let opened = library(&self.staged.path, &self.inspection.record);
        let opened = opened.and_then(|module| check_extension(module).map(|()| module));
        opened.map_err(|problem| LoaderError::new(&self.candidate.path, Step::Open, problem))
    }
}

/// Loads the library at `path`, whose file holds `record`.
pub(crate) fn library(path: &Path, record: &Record) -> Result<EngineModule, Problem> {
    let module = dylib::open(path).map_err(|error| match error.problem {
        Problem::Dlopen { reason } => dlerror::problem(path, &reason),
        problem => problem,
    })?;
    let running = module.record()();
    match serde_json::from_str::<Record>(running.as_str()) {
        Ok(running) if running == *record => Ok(module),
        _ => Err(Problem::Identity {
            left_name: "record in the file",
            left: record.engine.id.clone(),
            right_name: "running library",
            right: running.as_str().to_owned(),
        }),
    }
}

/// Tools, as a record names them.
const TOOLS: &str = "tools/1";

/// The library's `tools/1`, when its record declares it. What is not declared is not asked for.
///
/// # Errors
/// [`Problem::NoExtension`] when the record declares what the library does not have.
pub(crate) fn tools(module: EngineModule, record: &Record) -> Result<Option<ToolsV1>, Problem> {
    if !record.extensions.iter().any(|declared| declared == TOOLS) {
        return Ok(None);
    }
    let table = module.extension()("tools".into(), 1).into_option().map(|table| table.into_enum());
    match table {
        Some(Ok(Extension::Tools1(table))) => Ok(Some(table)),
        Some(Err(_)) | None => Err(Problem::NoExtension { declared: TOOLS }),
    }
}

/// Asks for extensions that do not exist.
pub(crate) fn check_extension(module: EngineModule) -> Result<(), Problem> {
    let long = "x".repeat(1 << 20);
    let ids = ["no-such-extension/0", "", &long];
    for (id, (asked, version)) in ids.into_iter().zip(NONSENSE) {
        if module.extension()(id.into(), version).is_some() {
            return Err(Problem::Extension { asked });
        }
    }
    Ok(())
}
