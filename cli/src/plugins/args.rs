//! The command lines of what changes plugins. Doc comments here are what `--help` prints.
#![allow(rustdoc::invalid_html_tags, reason = "`<id>` in a help text is a placeholder, not a tag")]

use std::path::PathBuf;

use clap::Args;

/// Nobody means an empty text: it is what a variable of the shell gives that was never set.
fn id(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("expected an id, found an empty text; if it came from a variable, that is not set".to_owned()),
        false => Ok(text.to_owned()),
    }
}

const SELECT_HELP: &str = "\
Examples:
  context-engine plugins select sliding-window
  context-engine plugins select legacy                 # back to the built-in engine

Before it is selected, the engine is checked and tried out in a child process, as `doctor` does. One that would not
serve now is not selected, unless --force is given.

Exit codes: 0 selected; 1 selected with --force, and it would not serve now; 2 not selected.";

#[derive(Debug, Args)]
#[command(after_help = SELECT_HELP)]
pub(crate) struct SelectArgs {
    /// Id of the engine, or legacy
    #[arg(value_parser = id)]
    pub(crate) id: String,
    /// Select it although it would not serve now
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const SWITCH_HELP: &str = "\
Examples:
  context-engine plugins disable sliding-window        # legacy answers, if it was in the slot
  context-engine plugins enable sliding-window

What is written is plugins.entries.<id>.enabled in config.json5; comments there stay.

Exit codes: 0 done; 1 done, and another key still keeps the engine from being used; 2 not done.";

#[derive(Debug, Args)]
#[command(after_help = SWITCH_HELP)]
pub(crate) struct SwitchArgs {
    /// Id of the engine
    #[arg(value_parser = id)]
    pub(crate) id: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const INSTALL_HELP: &str = "\
Examples:
  context-engine plugins install target/release/libtopic_memory.so
  context-engine plugins install topic-memory-1.2.0.tar.gz --pin --select
  context-engine plugins install ./topic-memory/ --json            # a folder with a plugin.json
  context-engine plugins install -l target/release/libtopic_memory.so    # used in place: build again, and it is the new one
  context-engine plugins install --crate ../topic-memory           # built with cargo, then copied
  context-engine plugins install --crate topic-memory@1.2.0

It is inspected first, as by `plugins inspect`; nothing of it runs, and what is refused is not copied
(building a crate runs its build script). The copy is
complete before it gets its name, so a host that looks meanwhile sees the old build or the new one, also when the
command is broken off. Of two commands at once, one waits for the other.

Exit codes: 0 installed; 1 installed, and it would not be used as it is, or was not pinned or selected; 2 not installed.";

#[derive(Debug, Args)]
#[command(after_help = INSTALL_HELP)]
pub(crate) struct InstallArgs {
    /// The library, the folder with its plugin.json, or the archive made by `plugins pack`
    #[arg(required_unless_present = "package", conflicts_with = "package")]
    pub(crate) path: Option<PathBuf>,
    /// Build a crate with cargo and install that: its folder, or NAME or NAME@VERSION of the registry
    #[arg(long = "crate", value_name = "CRATE")]
    pub(crate) package: Option<String>,
    /// Use it where it lies, and follow it when it is built again: it is named in plugins.load.paths
    #[arg(short, long, conflicts_with = "pin")]
    pub(crate) link: bool,
    /// Use no other build than this one: its digest is written to plugins.entries.<id>.pin
    #[arg(long)]
    pub(crate) pin: bool,
    /// Put it into the slot as well
    #[arg(long)]
    pub(crate) select: bool,
    /// Install it although another directory's plugin has its id, or another file or plugin has its name, which is replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const UNINSTALL_HELP: &str = "\
Examples:
  context-engine plugins uninstall topic-memory --dry-run
  context-engine plugins uninstall topic-memory
  context-engine plugins uninstall topic-memory --purge    # and what the engine has stored

Removed are: its file or folder in $CONTEXT_ENGINE_HOME/plugins, its own path in plugins.load.paths,
plugins.entries.<id>, and its id in plugins.allow and plugins.deny. Slots that name it go back to their default. Comments
stay. Where a file with this id remains (--keep-files, another directory), its id in plugins.deny, its pin and its
`enabled: false` stay, too. Files anywhere else are not touched. All of it is done or nothing. What the engine has stored is not removed while a
host that watches uses the engine; hosts that do not watch are not known.

Exit codes: 0 done; 1 done, and another plugin with this id is still there; 2 not done.";

#[derive(Debug, Args)]
#[command(after_help = UNINSTALL_HELP)]
pub(crate) struct UninstallArgs {
    /// Id of the engine
    #[arg(value_parser = id)]
    pub(crate) id: String,
    /// Remove it from the configuration only
    #[arg(long)]
    pub(crate) keep_files: bool,
    /// Remove what the engine has stored, too
    #[arg(long)]
    pub(crate) purge: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const PACK_HELP: &str = "\
Examples:
  context-engine plugins pack target/release/libtopic_memory.so --out topic-memory-1.2.0.tar.gz
  context-engine plugins pack linux/libtopic_memory.so mac/libtopic_memory.dylib --out topic-memory-1.2.0.tar.gz
  context-engine plugins pack ./topic-memory/ --out topic-memory-1.2.0.tar.gz     # a folder with a plugin.json

The archive has plugin.json at its top and one library per platform. The same files give the same bytes.

Exit codes: 0 packed; 2 not packed.";

#[derive(Debug, Args)]
#[command(after_help = PACK_HELP)]
pub(crate) struct PackArgs {
    /// A folder with a plugin.json, or the libraries of one engine, one per platform
    #[arg(required = true, value_name = "DIR|LIBRARY")]
    pub(crate) paths: Vec<PathBuf>,
    /// The archive to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Replace the archive if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const TRUST_HELP: &str = "\
Examples:
  context-engine plugins trust .                       # what .context-engine/plugins here holds
  context-engine plugins trust topic-memory            # one of them, by id
  context-engine plugins trust --list
  context-engine plugins trust --remove .

A plugin that came with a workspace is not used unasked: it would run with your rights. What is written to
plugins.trusted is its path and the digest of its library, so another library has to be trusted again. Of a folder, only
the library that is loaded is covered: its plugin.json, and files it has or gets besides, may change.

Exit codes: 0 done; 1 done, and something is not trusted or not used; 2 not done.";

#[derive(Debug, Args)]
#[command(after_help = TRUST_HELP)]
pub(crate) struct TrustArgs {
    /// The id of a plugin of the current workspace; or a workspace, its plugins folder, a plugin in it (./NAME, if an id
    /// has that name)
    #[arg(value_name = "DIR|ID", value_parser = id, required_unless_present = "list", conflicts_with = "list")]
    pub(crate) what: Option<String>,
    /// List what is trusted, and whether its library still is that file
    #[arg(long)]
    pub(crate) list: bool,
    /// Do not trust it any more
    #[arg(long, conflicts_with = "list")]
    pub(crate) remove: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const RELOAD_HELP: &str = "\
Examples:
  context-engine plugins reload                        # what every host that runs did
  context-engine plugins reload sliding-window

Hosts that watch their plugins use a new build by themselves; others are not known, and heed it at their next start.
This looks at the files as a host does, asks the hosts to look, too, also at builds they refused before, and says what
each of them did. The built-in engine has no file: of legacy there is nothing to reload.

Exit codes: 0 everything there is in use or could be; 1 something was refused, or a host has not answered; 2 not done.";

#[derive(Debug, Args)]
#[command(after_help = RELOAD_HELP)]
pub(crate) struct ReloadArgs {
    /// Id of the engine to tell about [default: all]
    #[arg(value_parser = id)]
    pub(crate) id: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
