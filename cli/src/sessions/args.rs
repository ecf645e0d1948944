//! The command line of `sessions`. Doc comments here are what `--help` prints.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

const SESSIONS_HELP: &str = "\
A session is named by its id, by a beginning of it that no other has, or by its file. Sessions are kept in
$CONTEXT_ENGINE_HOME/sessions (default ~/.context-engine/sessions), one file each.

Exit code 1: something is damaged; it was said what, and `context-engine sessions repair` mends it.";

#[derive(Debug, Subcommand)]
#[command(after_help = SESSIONS_HELP)]
pub(crate) enum SessionsCommand {
    /// List the sessions of a folder
    List(ListArgs),
    /// Show what is in a session, entry by entry
    Show(ShowArgs),
    /// Write a session in another form: for people, or for other programs
    Export(ExportArgs),
    /// Mend damaged session files; the originals are kept
    Repair(RepairArgs),
    /// Write recorded sessions as OpenClaw session files (version 3)
    Import(ImportArgs),
}

/// Where a session that is named by its id is looked for.
#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// Folder with the session files [default: sessions/ in $CONTEXT_ENGINE_HOME]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

const LIST_HELP: &str = "\
Examples:
  context-engine sessions list
  context-engine sessions list --dir ~/.openclaw/agents/main/sessions
  context-engine sessions list --json | jq -r '.sessions[] | select(.damaged) | .path'

Nothing is locked and nothing is written. Exit code 1: a session is damaged.";

/// List the sessions of a folder, the newest first.
///
/// For each its id, as far as it takes to name it, when its last entry was written, how many messages it has, the ends of
/// its tree (branches), its size and its name: the one it was given, else how its first message begins. What is no session
/// file is listed below, with what it is.
#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) folder: Folder,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const SHOW_HELP: &str = "\
Examples:
  context-engine sessions show 0198c2f1
  context-engine sessions show 0198c2f1 --context              # what a model would be sent now
  context-engine sessions show 0198c2f1 --all                  # branches that were left, too; * marks the active one
  context-engine sessions show 0198c2f1 --entry 7f3a           # one entry in full
  context-engine sessions show session.jsonl --json | jq '.entries[] | select(.tokens > 5000)'

Tokens are counted for the model that was recorded. A recorded file of another format can be shown by its path.";

/// Show what is in a session: facts, then the entries of the active branch, one line each.
///
/// A line has the entry's place on the branch, the beginning of its id, its role or kind, when it was written, its tokens
/// in a prompt, and how it begins.
#[derive(Debug, Args)]
#[command(after_help = SHOW_HELP)]
pub(crate) struct ShowArgs {
    /// Id, a beginning of it, or file
    pub(crate) session: String,
    /// The entries of all branches, as a tree
    #[arg(long, group = "what")]
    pub(crate) all: bool,
    /// One entry in full, by its id or a beginning of it
    #[arg(long, value_name = "ID", group = "what")]
    pub(crate) entry: Option<String>,
    /// What the conversation goes on from: the last summary, what it kept, and what came after
    #[arg(long, group = "what")]
    pub(crate) context: bool,
    #[command(flatten)]
    pub(crate) folder: Folder,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXPORT_HELP: &str = "\
Examples:
  context-engine sessions export 0198c2f1 --format markdown --out session.md
  context-engine sessions export 0198c2f1 --format openai | jq length
  context-engine sessions export 0198c2f1 --format openclaw --all-branches --out copy.jsonl

Formats:
  markdown  to be read: who said what, calls with their arguments, long results folded
  openai    messages of OpenAI's chat API, one JSON list; without thinking, and without what was kept out of the context
  openclaw  a session file of version 3

What is written is the active branch, as if nothing had been compacted. A recorded file of another format can be exported by
its path.";

/// Write a session in another form.
#[derive(Debug, Args)]
#[command(after_help = EXPORT_HELP)]
pub(crate) struct ExportArgs {
    /// Id, a beginning of it, or file
    pub(crate) session: String,
    /// What to write
    #[arg(long, value_enum)]
    pub(crate) format: ExportFormat,
    /// Where to write it [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Branches that were left, too (openclaw only)
    #[arg(long)]
    pub(crate) all_branches: bool,
    #[command(flatten)]
    pub(crate) folder: Folder,
    /// Print one JSON object: what was written and where; without --out, with the export in it
    #[arg(long)]
    pub(crate) json: bool,
}

/// The forms a session can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Markdown,
    Openai,
    Openclaw,
}

impl ExportFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ExportFormat::Markdown => "markdown",
            ExportFormat::Openai => "openai",
            ExportFormat::Openclaw => "openclaw",
        }
    }
}

const REPAIR_HELP: &str = "\
Examples:
  context-engine sessions repair 0198c2f1 --dry-run            # only say what would be done
  context-engine sessions repair 0198c2f1
  context-engine sessions repair --all --json | jq '.sessions[] | select(.backup)'

Every whole record stays, with its id and its place on the branch. The original is kept beside the session as
<name>.corrupt-<time>-<digits>.jsonl. A session that is in use is not repaired. Tool calls without a result are no damage:
each prompt has them made whole, and the file keeps what happened.

Exit code 0: nothing is damaged. 1: something was, and is repaired, unless with --dry-run or it was said why not.";

/// Mend damaged session files: lines that are no record, a lost header, lost parents, ids that come twice.
#[derive(Debug, Args)]
#[command(after_help = REPAIR_HELP)]
pub(crate) struct RepairArgs {
    /// Id, a beginning of it, or file
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) session: Option<String>,
    /// Every session of the folder
    #[arg(long)]
    pub(crate) all: bool,
    /// Change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) folder: Folder,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const IMPORT_HELP: &str = "\
Examples:
  context-engine sessions import ~/.claude/projects/*/*.jsonl --out sessions/
  context-engine sessions import run.traj dialogues.json --out sessions/ --json | jq .counts

Each session becomes DIR/<session id>.jsonl. The recorded files are never written. Exit code 1: something of a file could
not be read, and it was said what. A file that cannot be read at all, or a session file that exists already, ends the
command before anything is written.";

/// Write recorded sessions as OpenClaw session files.
///
/// The format of each file is recognised by its content. What was read, and what was left out and why, is printed for
/// each session; a session with several messages in one record counts it for each.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_HELP)]
pub(crate) struct ImportArgs {
    /// The recorded files
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Where the session files go; made when it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Write the conversations of sub-agents in a Claude Code file too, each as a session of its own
    #[arg(long)]
    pub(crate) sidechains: bool,
    /// Replace session files that exist
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object for each session, one per line
    #[arg(long)]
    pub(crate) json: bool,
}
