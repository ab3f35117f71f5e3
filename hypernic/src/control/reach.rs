//! Who reaches the control socket.

use std::io;
use std::path::Path;

use crate::config::{HostConfig, SocketAccess};
use crate::fds;

/// The name of the control socket among those that a service manager hands over.
pub(super) const SOCKET: &str = "control";

/// Lets those reach a control socket who may have a role. Others than its owner reach it only where there are roles
/// for them; then these decide.
///
/// # Errors
/// The socket is not there any more.
pub(super) fn open_to(path: &Path, head: &HostConfig) -> io::Result<()> {
    let by_roles = match head.access.is_shared() {
        true => 0o666,
        false => 0o600,
    };
    let to = SocketAccess {
        mode: head.control_socket.mode.or(Some(by_roles)),
        ..head.control_socket
    };
    // What a service manager has made has the mode that its unit says.
    match fds::is_handed_over(SOCKET) {
        true => Ok(()),
        false => fds::open_to(path, to),
    }
}
