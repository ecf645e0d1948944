//! What the C library of this machine says about itself.
//!
//! Asked because `dlopen` answers a library that needs a newer one with a line nobody can act on. Only glibc has versions
//! a library can ask for; the arm for other systems was never run.

/// The version of the glibc this process runs on; `None` where there is none.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn glibc_version() -> Option<(u32, u32)> {
    use std::ffi::{CStr, c_char};
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const c_char;
    }
    // SAFETY: takes nothing, and returns a string with an end that lives as long as the C library.
    let version = unsafe { CStr::from_ptr(gnu_get_libc_version()) };
    let (major, minor) = version.to_str().ok()?.split_once('.')?;
    // A release in between is called `2.36.9000`.
    let minor = minor.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The version of the glibc this process runs on; `None` where there is none.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn glibc_version() -> Option<(u32, u32)> {
    None
}
