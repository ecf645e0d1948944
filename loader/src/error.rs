//! The crate's one error type: every refusal of a plugin, with the step that refused it.

mod step;

use std::path::{Path, PathBuf};

use crate::probe::ProbeFailure;
use crate::schema::{self, ConfigFault};
use crate::text::{cut, for_shell, on_one_line, short, shown};
use crate::trust::Exposed;
pub use step::Step;

/// Why a plugin is not used. One line, for the person who has to act on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {step}: {problem}", on_one_line(&path.to_string_lossy()))]
pub struct LoaderError {
    /// The file or folder, as it was found.
    pub path: PathBuf,
    /// The step that refused it.
    pub step: Step,
    /// Id of the engine, as far as it is known: from the record, else from the manifest.
    pub engine: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

impl LoaderError {
    pub(crate) fn new(path: &Path, step: Step, problem: Problem) -> LoaderError {
        LoaderError { path: path.to_owned(), step, engine: None, problem }
    }

    /// The same error, said of the engine `id` unless another one is known already.
    pub(crate) fn about(self, id: &str) -> LoaderError {
        LoaderError { engine: self.engine.or_else(|| Some(short(id))), ..self }
    }
}

/// What can be wrong with a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Nothing in the plugins directories has this id.
    #[error("no plugin has the id \"{}\"; {}", short(id), suggestion(closest, known))]
    NotFound {
        /// The id asked for.
        id: String,
        /// The known id it is nearest to.
        closest: Option<String>,
        /// Every id there is, closest first.
        known: Vec<String>,
    },
    /// The operating system refused.
    #[error("{doing}: {reason}; check that the file exists and can be read")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        reason: String,
    },
    /// There is no room for the private copy.
    #[error("it cannot be copied into {}: {reason}; make room there, or set CONTEXT_ENGINE_HOME", directory.display())]
    Full {
        /// The directory of the copies.
        directory: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The host's own directory cannot be used.
    #[error(
        "it cannot be copied into {}: {reason}; make that directory yours alone and writable, or set CONTEXT_ENGINE_HOME",
        directory.display()
    )]
    State {
        /// The directory.
        directory: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A link that leads nowhere or in a circle.
    #[error("the symbolic link cannot be followed ({reason}); remove it or point it at the library")]
    BrokenLink {
        /// What the system says.
        reason: String,
    },
    /// A link that leads out of the plugins directory.
    #[error(
        "the link {} leads out of the plugins directory, to {}; copy the file into the directory, or add {} to \
         plugins.load.paths",
        shown(link), shown(target), shown(target.parent().unwrap_or(target))
    )]
    LeadsOut {
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A directory, pipe, socket or device where a library should be.
    #[error(
        "expected a library file, found a {found}; name the library itself, or a folder with its plugin.json, and move this \
         away if it lies in a plugins directory"
    )]
    NotAFile {
        /// What is there.
        found: &'static str,
    },
    /// The manifest of a plugin folder cannot be used.
    #[error("plugin.json: {}", short(reason))]
    Manifest {
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// The file changed while it was being copied.
    #[error("the file changed while it was copied ({before} bytes, then {after}); try again when the copy is done")]
    Unstable {
        /// Its length at first.
        before: u64,
        /// Its length later.
        after: u64,
    },
    /// No bytes.
    #[error("the file is empty; copy the library again")]
    Empty,
    /// Shorter than its own headers say.
    #[error("the file is cut off: it needs {expected} bytes and has {found}; copy the library again")]
    Truncated {
        /// Bytes the headers point at.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// Longer than any library that is meant.
    #[error("the file has {bytes} bytes, expected at most {limit}; check what it is")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The longest that is looked at.
        limit: u64,
    },
    /// Something that is no shared library.
    #[error("expected a shared library, found {found}; build the engine as a `cdylib`")]
    NotALibrary {
        /// What it looks like.
        found: String,
    },
    /// A library for another kind of machine.
    #[error("built for {found}, this host is {expected}; build the engine for this machine")]
    WrongMachine {
        /// This host.
        expected: String,
        /// The library's.
        found: String,
    },
    /// Headers that contradict themselves.
    #[error("the library's headers cannot be read ({reason}); build or copy it again")]
    Malformed {
        /// What the parser says.
        reason: String,
    },
    /// A library that is no engine.
    #[error("the library has no context-engine record; export the engine with `export_engine!`")]
    NoRecord,
    /// A record that cannot be read.
    #[error("{}; build the engine with a released interface crate", short(reason))]
    Record {
        /// What is wrong with it.
        reason: String,
    },
    /// An engine of another schema version.
    #[error("schema version {found}, this host speaks {expected}; {}", newer(*found, *expected))]
    Schema {
        /// The version this host speaks.
        expected: u32,
        /// The engine's.
        found: u32,
    },
    /// Built with `panic = "abort"`.
    #[error(
        "built with panic = \"{}\", expected \"unwind\": a panic would end the host; change the profile",
        short(found)
    )]
    PanicStrategy {
        /// The strategy in the record.
        found: String,
    },
    /// An id that no engine may have.
    #[error("the engine id {:?} is not allowed: {rule}; change it in {place}", cut(id))]
    Id {
        /// The id, as written.
        id: String,
        /// The rule it breaks.
        rule: &'static str,
        /// Where it is written.
        place: &'static str,
    },
    /// An engine built on a system with a newer C library.
    #[error("needs GLIBC_{needed}, this machine has {found}; build the engine on an older system, or upgrade this one")]
    Glibc {
        /// The newest version it needs.
        needed: String,
        /// This machine's.
        found: String,
    },
    /// A host that is linked statically: the system has no loader for it.
    #[error("this build of the host is static and cannot load plugins; use a build for {}", dynamic_target())]
    StaticHost,
    /// The configuration says no.
    #[error("blocked by the configuration: {reason}; change config.json5 to use it")]
    Forbidden {
        /// The key that says it.
        reason: String,
    },
    /// A plugin that came with a workspace.
    #[error(
        "it lies in the workspace and is not used unasked; if you trust it, run `context-engine plugins trust {}` there, or \
         name \"{}\" in plugins.allow (which then has to name every plugin)",
        short(id),
        short(id)
    )]
    Workspace {
        /// The plugin's id.
        id: String,
    },
    /// A workspace's plugin that was trusted and is another file now.
    #[error(
        "it lies in the workspace and changed since it was trusted; if you trust it as it is, run \
         `context-engine plugins trust {}`",
        for_shell(path)
    )]
    Untrusted {
        /// The library or folder.
        path: PathBuf,
    },
    /// Somebody else could have changed it.
    #[error("{}", faults.iter().map(Exposed::to_string).collect::<Vec<_>>().join("; "))]
    Permissions {
        /// Everything that is open, from the outside in.
        faults: Vec<Exposed>,
    },
    /// Another build than the one that was pinned.
    #[error(
        "plugins.entries.{}.pin asks for the digest {}, found sha256:{found}; put the pinned build back, or pin this one: \
         `context-engine plugins install PATH --pin`",
        short(id),
        short(expected)
    )]
    Pin {
        /// The plugin's id.
        id: String,
        /// The pin, as configured.
        expected: String,
        /// Digest of the library.
        found: String,
    },
    /// Two plugins of the same directory with one id.
    #[error("the id \"{id}\" is also that of {}; remove one of the two", shown(other))]
    DuplicateId {
        /// The id.
        id: String,
        /// The other plugin.
        other: PathBuf,
    },
    /// Another plugin has the id: one of an earlier directory, or the same file under another name.
    #[error("{}", shadowed(id, winner, *same_file))]
    Shadowed {
        /// The id.
        id: String,
        /// The plugin that is used.
        winner: PathBuf,
        /// Whether the two are byte for byte the same.
        same_file: bool,
    },
    /// Names that should be one are not.
    #[error("the {left_name} says {:?}, the {right_name} says {:?}; {}", cut(left), cut(right), same(left_name, right))]
    Identity {
        /// Where the first stands.
        left_name: &'static str,
        /// The first.
        left: String,
        /// Where the second stands.
        right_name: &'static str,
        /// The second.
        right: String,
    },
    /// The system's loader refused the library.
    #[error("the system cannot load it: {reason}; install what it needs, or build it for this system")]
    Dlopen {
        /// What the system says.
        reason: String,
    },
    /// The library and this host disagree about what crosses between them.
    #[error("built against another interface: {reason}; build the engine with interface {expected}")]
    Layout {
        /// The interface version of this host.
        expected: String,
        /// The first difference.
        reason: String,
    },
    /// The host lacks what the engine requires of it.
    #[error("{text}")]
    HostCapability {
        /// The contract's words.
        text: String,
    },
    /// The engine failed before and was set aside.
    #[error(
        "quarantined since it failed during {operation}: {reason}; `context-engine quarantine why {engine}` says more, \
         `clear` lifts it"
    )]
    Quarantined {
        /// The engine's id.
        engine: String,
        /// The member it failed in.
        operation: String,
        /// What happened.
        reason: String,
    },
    /// Too many calls of this build never came back.
    #[error("{lost} calls of it never returned and hold a thread each; restart the host to use it again")]
    Lost {
        /// How many.
        lost: usize,
    },
    /// Opening or creating it broke a rule no healthy engine breaks.
    #[error("{member}: {reason}; report it to the engine's author, or use another build")]
    Broken {
        /// What was tried.
        member: &'static str,
        /// What happened.
        reason: String,
    },
    /// The engine could not be asked: this host is short of something.
    #[error("{reason}; the next session tries again")]
    Busy {
        /// Of what.
        reason: String,
    },
    /// The built-in engine cannot be created.
    #[error("the built-in engine cannot be created: {reason}; report it")]
    Legacy {
        /// What happened.
        reason: String,
    },
    /// The configuration does not fit the plugin's schema.
    #[error("{}; change config.json5", schema::in_one_line(faults))]
    Config {
        /// Everything that does not fit, by place.
        faults: Vec<ConfigFault>,
    },
    /// The engine's constructor failed.
    #[error("the engine could not be created: {reason}; look at plugins.entries.<id>.config")]
    Create {
        /// What the engine says.
        reason: String,
    },
    /// A library it needs is not installed.
    #[error("it needs {library}, which this system does not have; install it")]
    MissingLibrary {
        /// Its file name, as the engine names it.
        library: String,
    },
    /// A symbol that no library has.
    #[error(
        "it needs the symbol `{symbol}`, which no library here has; \
         link the library that has it, or build the engine for this system"
    )]
    UndefinedSymbol {
        /// The symbol.
        symbol: String,
    },
    /// A library of this system is older than the one it was linked with.
    #[error(
        "it needs `{version}` of {library}, and the one here is older; \
         build the engine on an older system, or upgrade this one"
    )]
    SymbolVersion {
        /// The symbol version, such as `GLIBC_2.38`.
        version: String,
        /// The library's file name.
        library: String,
    },
    /// Thread-local memory that has to be there when the process starts.
    #[error(
        "its thread-local memory does not fit into a running process, as with jemalloc or mimalloc; \
         build it with their feature `disable_initial_exec_tls` or `local_dynamic_tls`"
    )]
    StaticTls,
    /// An answer to an extension that does not exist: a host that believed it would call through the wrong table.
    #[error("it answers an extension it cannot have ({asked}); export the engine with `export_engine!`")]
    Extension {
        /// What it was asked for.
        asked: &'static str,
    },
    /// No answer to an extension that its record declares.
    #[error("its record declares {declared}, which the library does not have; export the engine with `export_engine!`")]
    NoExtension {
        /// The extension.
        declared: &'static str,
    },
    /// The child process that tried it out.
    #[error(transparent)]
    Probe(#[from] ProbeFailure),
}

fn shadowed(id: &str, winner: &Path, same_file: bool) -> String {
    match same_file {
        true => format!("it is a copy of {}, which is used as \"{id}\"; remove one of the two", shown(winner)),
        false => format!("the id \"{id}\" is taken by {}, whose directory comes first", shown(winner)),
    }
}

/// Where a manifest's version stands, as [`Problem::Identity`] calls it.
pub(crate) const VERSION_IN_MANIFEST: &str = "version in plugin.json";

fn same(left_name: &str, right: &str) -> String {
    match left_name {
        "plugin.json" => format!("write \"id\": \"{}\" in plugin.json", short(right)),
        VERSION_IN_MANIFEST => format!("write \"version\": \"{}\" in plugin.json", short(right)),
        _ => "make them the same".to_owned(),
    }
}

fn dynamic_target() -> String {
    crate::platform::TARGET.replace("musl", "gnu")
}

fn suggestion(closest: &Option<String>, known: &[String]) -> String {
    match closest {
        Some(closest) => format!("did you mean \"{closest}\"? Known: {}", known.join(", ")),
        None => format!("known: {}", known.join(", ")),
    }
}

fn newer(found: u32, expected: u32) -> &'static str {
    if found > expected { "upgrade the host" } else { "build the engine with a newer interface" }
}
