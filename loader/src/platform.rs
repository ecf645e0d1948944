//! What differs between operating systems, in one place.
//!
//! Only Linux was run. The macOS and Windows arms are written from their documentation.

/// Ending of a shared library's file name, without the dot.
pub const LIBRARY_EXTENSION: &str = std::env::consts::DLL_EXTENSION;

/// The machine and format this host loads, as people call it.
pub const MACHINE: &str = std::env::consts::ARCH;

/// Target triple this host was built for: the key in a manifest's `libraries`.
pub const TARGET: &str = env!("CONTEXT_ENGINE_TARGET");

/// The format of shared libraries here.
pub const FORMAT: object::BinaryFormat = if cfg!(target_vendor = "apple") {
    object::BinaryFormat::MachO
} else if cfg!(windows) {
    object::BinaryFormat::Pe
} else {
    object::BinaryFormat::Elf
};

/// Whether this build can load libraries at all: a program linked statically against musl has no loader.
pub const CAN_LOAD: bool = !cfg!(all(target_env = "musl", target_feature = "crt-static"));

/// Makes a directory only its owner can enter, with its parents.
///
/// # Errors
/// What the system says.
pub fn create_private_dir(path: &std::path::Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// When the process with this number started, in a unit of the system's own; `None` when it does not run.
///
/// Number and start together name a process: the number alone is used again. On Linux the start is in clock ticks since
/// the machine started, and a process that has ended counts as ended although nobody has waited for it. Elsewhere safe
/// code cannot ask: this process has a random number, others have `None`.
pub fn process_start(pid: u32) -> Option<u64> {
    if cfg!(target_os = "linux")
        && let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat"))
    {
        // The name before it may hold spaces and brackets.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ended = matches!(*fields.first()?, "Z" | "X");
        return if ended { None } else { fields.get(19)?.parse().ok() };
    }
    if pid != std::process::id() {
        return None;
    }
    static OWN: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), pid);
    Some(*OWN.get_or_init(random))
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// What the system says.
pub fn write_at(file: &std::fs::File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, offset);
    #[cfg(windows)]
    {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        if written == bytes.len() { Ok(()) } else { Err(std::io::ErrorKind::WriteZero.into()) }
    }
}

/// Reads some bytes at `offset`; none at the end.
///
/// # Errors
/// What the system says.
pub fn read_at(file: &std::fs::File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, bytes, offset);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, bytes, offset);
}

/// Opens a file in a folder of the host's own, as `options` say, and only if it is a regular file.
///
/// Opening a named pipe waits for somebody at its other end, for ever: whoever can write into the folder could stop the
/// host with one. A symbolic link in the place of a file is no file of ours.
///
/// # Errors
/// What the system says; [`InvalidData`](std::io::ErrorKind::InvalidData) when something else has the name.
pub fn open_regular(path: &std::path::Path, options: &mut std::fs::OpenOptions) -> std::io::Result<std::fs::File> {
    let other = || std::io::Error::new(std::io::ErrorKind::InvalidData, "expected a regular file");
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK | libc::O_NOFOLLOW);
    let file = match options.open(path) {
        Ok(file) => file,
        // Its own words for a link, a socket, a pipe without a reader, a directory.
        Err(_) if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) => return Err(other()),
        Err(error) => return Err(error),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

/// Bytes of address space in which this process has the file `path` mapped, found by its name; `None` where the system
/// does not tell (elsewhere than on Linux).
pub fn mapped_bytes(path: &std::path::Path) -> Option<u64> {
    let name = format!("/{}", path.file_name()?.to_str()?);
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let bytes = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(start, 16).ok()?)
    };
    Some(maps.lines().filter(|line| line.ends_with(&name)).filter_map(bytes).sum()).filter(|bytes| *bytes > 0)
}

/// Whether a directory belongs to this process's user and nobody else can write it.
///
/// # Errors
/// Who can, and what the system says. On Windows nothing is asked: a home directory's access list is inherited.
pub fn is_private(path: &std::path::Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::metadata(path)?;
        let (me, mode) = (rustix::process::geteuid().as_raw(), meta.mode() & 0o7777);
        if meta.uid() != me || mode & 0o022 != 0 {
            let found = format!("it belongs to uid {} and has mode {mode:04o}, expected uid {me} and 0700", meta.uid());
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, found));
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}
