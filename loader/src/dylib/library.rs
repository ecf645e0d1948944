//! Opening a library and taking its root module.
//!
//! Architecture Invariant: a library that was opened is never closed. Unmapping Rust code is not sound (thread-local
//! destructors, values that carry a vtable of the plugin), so the handle is forgotten and the library marked
//! `RTLD_NODELETE`. What is handed out is therefore `'static` for good.
//!
//! Two of abi_stable's own ways are not taken. `RootModule::load_from_*` keeps one module per type and answers the first
//! plugin for every later path. `init_root_module` asks that the library be newer than the host and so refuses every
//! plugin older than its host; here the layouts have to be compatible in either direction.

use std::mem::ManuallyDrop;
use std::path::Path;

use abi_stable::abi_stability::StableAbi;
use abi_stable::abi_stability::abi_checking::{
    AbiInstabilityErrors, CheckingGlobals, check_layout_compatibility_with_globals,
};
use abi_stable::library::{AbiHeaderRef, LibHeader, ROOT_MODULE_LOADER_NAME_WITH_NUL, RootModule};
use abi_stable::sabi_types::VersionNumber;
use abi_stable::type_layout::TLFieldOrFunction;
use context_engine_interface::abi::module::EngineModule;
use libloading::Library;

use crate::error::{LoaderError, Problem, Step};

/// Opens the library at `path` and takes its root module. Runs the library's constructors.
///
/// # Errors
/// [`Problem::Dlopen`] when the system refuses it, [`Problem::NoRecord`] without the exported header,
/// [`Problem::Layout`] when the two interfaces differ in more than additions.
pub(crate) fn open(path: &Path) -> Result<EngineModule, LoaderError> {
    let refuse = |problem| LoaderError::new(path, Step::Open, problem);
    let library = open_for_good(path).map_err(|error| refuse(Problem::Dlopen { reason: words(&error) }))?;
    // Before anything can fail: closing a library whose constructors have run is what must never happen.
    let library = ManuallyDrop::new(library);
    // SAFETY: a symbol of this name is abi_stable's header by its own convention; its magic is checked in `upgrade`.
    let header = unsafe { library.get::<AbiHeaderRef>(ROOT_MODULE_LOADER_NAME_WITH_NUL.as_bytes()) };
    let header: AbiHeaderRef = *header.map_err(|_| refuse(Problem::NoRecord))?;
    let header = header.upgrade().map_err(|error| refuse(layout(&error.to_string())))?;
    check_layout(header).map_err(refuse)?;
    // SAFETY: the layouts are compatible in one of the two directions, by the check above.
    let module = unsafe { header.init_root_module_with_unchecked_layout::<EngineModule>() };
    module.map_err(|error| refuse(layout(&error.to_string())))
}

/// What the system says. libloading's own text is only that it failed.
fn words(error: &libloading::Error) -> String {
    let system = std::error::Error::source(error);
    one_line(&system.map_or_else(|| error.to_string(), ToString::to_string))
}

#[cfg(unix)]
fn open_for_good(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    /// Not in libloading: the same number on Linux and macOS would be luck.
    const RTLD_NODELETE: std::ffi::c_int = if cfg!(target_vendor = "apple") { 0x80 } else { 0x1000 };
    // SAFETY: runs the library's constructors. The file is this host's private copy of one it inspected; the operator put
    // it into the plugins directory to be run.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) }.map(Into::into)
}

#[cfg(not(unix))]
fn open_for_good(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: as on Unix.
    unsafe { Library::new(path) }
}

fn check_layout(header: &LibHeader) -> Result<(), Problem> {
    let version = |text| VersionNumber::new(text).map_err(|error| layout(&error.to_string()));
    let (host, plugin) = (version(EngineModule::VERSION_STRINGS)?, version(header.version_strings())?);
    if host.major != plugin.major {
        return Err(layout(&format!("interface {plugin}, expected {}.x", host.major)));
    }
    let host = <EngineModule as StableAbi>::LAYOUT;
    let Some(plugin) = header.layout() else { return Err(layout("the library exports no layout to check")) };
    // Fresh globals for each check: the shared ones keep references into a refused plugin and mix up later checks.
    let newer_plugin = check_layout_compatibility_with_globals(host, plugin, &CheckingGlobals::new());
    let Err(report) = newer_plugin else { return Ok(()) };
    let older_plugin = check_layout_compatibility_with_globals(plugin, host, &CheckingGlobals::new());
    older_plugin.map_err(|_| layout(&difference(&report)))
}

fn layout(reason: &str) -> Problem {
    Problem::Layout { expected: EngineModule::VERSION_STRINGS.version.to_string(), reason: one_line(reason) }
}

/// Where the two interfaces differ, and how: the report itself spells out every type on the way there, page after page.
fn difference(report: &AbiInstabilityErrors) -> String {
    let wrong = report.errors.iter().filter(|error| !error.errs.is_empty());
    let Some(error) = wrong.max_by_key(|error| error.stack_trace.len()) else { return report.to_string() };
    let steps: Vec<String> = error.stack_trace.iter().map(|step| place_of(&step.found)).collect();
    let place = match &steps[..] {
        [.., owner, field] => format!("`{field}` of `{owner}`"),
        [field] => format!("`{field}`"),
        [] => "the module".to_owned(),
    };
    let text = error.to_string();
    let errors = text.split("\nError:").skip(1).map(|error| match error.split_once("\nExpected:") {
        Some((what, values)) => {
            let (expected, found) = values.split_once("\nFound:").unwrap_or((values, ""));
            format!("{what}, expected {}, found {}", brief(expected), brief(found))
        }
        None => error.to_owned(),
    });
    format!("in {place}: {}", errors.collect::<Vec<_>>().join("; "))
}

/// A step on the way to a difference. The methods of every trait stand in a type called `VTable`; the trait is named.
fn place_of(step: &TLFieldOrFunction) -> String {
    if let TLFieldOrFunction::Field(field) = step
        && field.layout().name() == "VTable"
        && let Some(path) = field.layout().mod_path().to_string().strip_suffix("_trait")
    {
        return format!("{}: methods of {}", field.name(), path.rsplit("::").next().unwrap_or(path));
    }
    brief(&step.to_string())
}

/// Name and type of a field that the report describes in many lines; anything else as it is.
fn brief(described: &str) -> String {
    let line = |key| described.lines().find_map(|line| line.trim().strip_prefix(key));
    match (line("field_name:"), line("type:")) {
        (Some(name), Some(kind)) => format!("{name}: {kind}"),
        _ => one_line(described),
    }
}

fn one_line(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ").chars().take(400).collect()
}
