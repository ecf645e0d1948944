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
