//! Who a process is: its start, its name, the boot of the machine it runs on.
//!
//! Decision: a number alone names nobody, because numbers are used again; number, start and boot together do. Linux tells
//! them of every process in plain files. Elsewhere safe code cannot ask, so no owner is proven there and the operating
//! system's own lock has the only word.

/// When the process with this number started, in clock ticks since the machine did; `None` when it does not run or this
/// system does not say. A process that has ended counts as ended although nobody has waited for it.
pub(super) fn start(pid: u32) -> Option<u64> {
    let stat = proc_file(&format!("{pid}/stat"))?;
    // The name before it may hold spaces and brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ended = matches!(*fields.first()?, "Z" | "X");
    if ended { None } else { fields.get(19)?.parse().ok() }
}

/// What the process with this number is called; `None` as for [`start`].
pub(super) fn name(pid: u32) -> Option<String> {
    proc_file(&format!("{pid}/comm")).map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Names the time since the machine was started; `None` when this system does not say.
pub(super) fn boot() -> Option<String> {
    proc_file("sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

/// This program's name.
pub(super) fn own_name() -> String {
    let exe = std::env::current_exe().ok();
    let stem = exe.as_deref().and_then(std::path::Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    // What Linux says of a program that was replaced while it ran.
    let stem = stem.map(|stem| stem.trim_end_matches(" (deleted)").to_owned());
    stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| "context-engine".to_owned())
}

fn proc_file(path: &str) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    std::fs::read_to_string(format!("/proc/{path}")).ok()
}
