//! Who reaches the control socket.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::config::HostConfig;

/// Lets those reach a control socket who may have a role. Others than its owner reach it only where there are roles
/// for them; then these decide.
///
/// # Errors
/// The socket is not there any more.
pub(super) fn open_to(path: &Path, head: &HostConfig) -> io::Result<()> {
    let mode = match head.access.is_shared() {
        true => 0o666,
        false => 0o600,
    };
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
}
