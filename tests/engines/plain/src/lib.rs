//! No engine at all: a library as any other, and a static archive of it.

/// Something to export.
#[unsafe(no_mangle)]
pub extern "C" fn plain() -> u32 {
    7
}
