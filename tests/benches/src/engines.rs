//! Both sides of the boundary: the probe as a linked trait object, and the same probe loaded from its library.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boundary_probe::Probe;
use context_engine_interface::{
    ContextEngine, EngineContext, EngineContextFields, EngineError, EngineHost, HostServices, LogLevel, RemoteEngine,
};
use context_engine_loader::{Creation, EngineHandle, Loader, LoaderOptions};

/// Where the engine's code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Linked into this program, behind `&dyn ContextEngine`.
    Dyn,
    /// In its library, opened as the loader opens it.
    Loaded,
}

/// One of the two, as the host holds it.
pub type Engine = Box<dyn ContextEngine>;

impl Side {
    /// The probe on this side, doing `work` (`nothing`, `walk`, `window`).
    ///
    /// # Errors
    /// When the library is not there or cannot be opened, or the probe does not know `work`.
    pub fn engine(self, work: &str) -> Result<Engine, String> {
        match self {
            Side::Dyn => {
                let probe = create(work, Probe::create).map_err(|error| error.to_string())?;
                Ok(Box::new(probe))
            }
            Side::Loaded => {
                let state = tempfile::tempdir().map_err(|error| format!("a folder for the copy: {error}"))?;
                let loader =
                    Loader::new(LoaderOptions { state_dir: state.path().to_owned(), ..LoaderOptions::default() });
                let plugin = loader.inspect(&probe_library()?).map_err(|error| error.to_string())?;
                let module = plugin.open().map_err(|error| error.to_string())?;
                let object = create(work, |ctx| module.create()(ctx).into_result());
                Ok(Box::new(RemoteEngine::new(object.map_err(|error| error.to_string())?)))
            }
        }
    }
}

fn create<E>(work: &str, create: impl FnOnce(EngineContext<'_>) -> Result<E, EngineError>) -> Result<E, EngineError> {
    let host = EngineHost::new(Arc::new(NoServices));
    let config = format!("{work:?}");
    let fields = EngineContextFields {
        config_json: config.as_str().into(),
        state_dir: "".into(),
        agent_dir: None.into(),
        workspace_dir: None.into(),
        host: &host,
    };
    fields.lend(create)
}

/// The probe's library: cargo writes it beside what it was linked into.
///
/// # Errors
/// Where it was looked for.
pub fn probe_library() -> Result<PathBuf, String> {
    let name = format!("{DLL_PREFIX}boundary_probe{DLL_SUFFIX}");
    let exe = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let folder = exe.parent().ok_or("this program has no folder")?;
    let places = [folder.join("deps").join(&name), folder.join(&name)];
    let shown = places.each_ref().map(|place| place.display().to_string()).join(" or ");
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| format!("no {shown}; build this package again"))
}

/// The probe behind the handle a host uses, planning a window: dropped into a plugins directory of `home`, found, staged,
/// inspected and opened.
///
/// # Errors
/// What kept the probe from answering.
pub fn handle(home: &Path) -> Result<EngineHandle, String> {
    let library = probe_library()?;
    let plugins = home.join("plugins");
    let dropped = plugins.join(library.file_name().unwrap_or_default());
    std::fs::create_dir_all(&plugins)
        .and_then(|()| std::fs::copy(&library, &dropped))
        .map_err(|error| format!("{}: {error}", dropped.display()))?;
    let loader = Loader::new(LoaderOptions {
        directories: vec![plugins.into()],
        state_dir: home.join("state"),
        ..LoaderOptions::default()
    });
    let creation = Creation { config: Some("window".into()), ..Creation::default() };
    let handle = loader.engine("boundary-probe", &creation).map_err(|error| error.to_string())?;
    match handle.why() {
        None => Ok(handle),
        Some(why) => Err(format!("legacy would answer: {why}")),
    }
}

struct NoServices;

impl HostServices for NoServices {
    fn log(&self, _: LogLevel, _: &str) {}
    fn count_tokens(&self, text: &str) -> u64 {
        text.len() as u64 / 4
    }
}
