//! Step 4, trust: whether a plugin that could be opened may be.
//!
//! Decision: asked after the file was read, because the answer is by id and digest, and before anything of it runs. Each
//! plugin gets one answer: what the operator said comes first, then where the plugin came from, then who else could have
//! changed it, then the pin. A refused plugin is refused with its reason; it never becomes "not found".

#[cfg(unix)]
mod accounts;
mod permissions;
mod policy;

pub use permissions::Exposed;
pub use policy::{TrustPolicy, names_digest};

use crate::error::Problem;
use crate::find::{Candidate, Origin};
use crate::stage::Digest;

/// Asks `policy` and the file system about a plugin whose record says `id`.
///
/// # Errors
/// [`Problem::Forbidden`], [`Problem::Workspace`], [`Problem::Untrusted`], [`Problem::Permissions`] or [`Problem::Pin`].
pub fn check(policy: &TrustPolicy, candidate: &Candidate, id: &str, digest: Digest) -> Result<(), Problem> {
    if let Some(reason) = policy.forbids(id) {
        return Err(Problem::Forbidden { reason });
    }
    if candidate.origin == Origin::Workspace {
        policy.check_workspace(id, &candidate.path, &digest.to_string())?;
    }
    check_permissions(candidate)?;
    policy.check_pin(id, digest)
}

/// Whether only root and the user this process runs as could have changed the plugin.
///
/// # Errors
/// [`Problem::Permissions`] with every file and folder that is open to others.
pub fn check_permissions(candidate: &Candidate) -> Result<(), Problem> {
    permissions::check(candidate)
}
