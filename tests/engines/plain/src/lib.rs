//! No engine at all: a library as any other, a static archive of it, and an executable beside them.

/// Something to export.
#[unsafe(no_mangle)]
pub extern "C" fn plain() -> u32 {
    7
}
