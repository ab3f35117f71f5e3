//! Listening sockets that the service manager keeps, too (`FDSTORE` of `sd_notify(3)`): they outlive the keeper, and so VMMs that come while
//! the daemon is started again wait. Connections end with it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Where the manager listens, by the environment.
const SOCKET: &str = "NOTIFY_SOCKET";

/// How many descriptors it keeps, if any (systemd 254 and later, with `FileDescriptorStoreMax=`).
const MOST: &str = "FDSTORE";

/// How the names begin.
pub(crate) const PREFIX: &str = "nic-";

static STORE: OnceLock<UnixDatagram> = OnceLock::new();

/// The daemon ends, and the manager decides what becomes of the sockets.
static ENDS: AtomicBool = AtomicBool::new(false);

/// The manager that the environment names, if there is one.
///
/// # Errors
/// It cannot be reached.
pub(crate) fn manager() -> io::Result<Option<UnixDatagram>> {
    let Some(name) = std::env::var_os(SOCKET).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // One that does not read holds up nobody.
    socket.set_nonblocking(true)?;
    Ok(Some(socket))
}

/// From now on listening sockets are kept by the manager, if it keeps any.
pub fn open() {
    let most = std::env::var(MOST).ok();
    if most.and_then(|most| most.parse::<u64>().ok()).unwrap_or(0) == 0 {
        return;
    }
    if let Ok(Some(socket)) = manager() {
        let _ = STORE.set(socket);
    }
}

/// Whether they are.
pub(crate) fn is_open() -> bool {
    STORE.get().is_some()
}

/// What a socket is called there whose path was then this device and inode.
pub(crate) fn name((dev, ino): (u64, u64)) -> String {
    format!("{PREFIX}{dev:x}-{ino:x}")
}

/// Keeps a listening socket.
pub(crate) fn keep(key: (u64, u64), socket: BorrowedFd<'_>) {
    // Nobody is hung up on by a socket that only listens.
    let what = format!("FDSTORE=1\nFDNAME={}\nFDPOLL=0\n", name(key));
    tell(&what, Some(socket));
}

/// Keeps what has this name no longer.
pub(crate) fn forget(name: &str) {
    if !ENDS.load(Ordering::Relaxed) {
        tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), None);
    }
}

/// The daemon ends: what is kept stays, and so do the paths of the sockets.
pub fn leave() {
    if is_open() {
        ENDS.store(true, Ordering::Relaxed);
        vfio_user::leave_paths();
    }
}

fn tell(what: &str, socket: Option<BorrowedFd<'_>>) {
    let Some(manager) = STORE.get() else {
        return;
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = socket.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let text = [IoSlice::new(what.as_bytes())];
    if let Err(error) = sendmsg(manager.as_fd(), &text, &mut control, SendFlags::NOSIGNAL) {
        let what = what.trim_end().replace('\n', " ");
        tracing::warn!("the service manager was not told {what}: {error}");
    }
}
