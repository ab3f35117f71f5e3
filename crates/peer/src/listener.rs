//! Where clients come from.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

/// Bytes that the path of a Unix socket may have at most (`sun_path` of `unix(7)`, without its final zero).
pub const MAX_SOCKET_PATH: usize = 107;

/// Why a socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A server answers on the path.
    #[error(
        "{0}: the socket is in use by another process; stop that process or choose another path"
    )]
    InUse(PathBuf),
    /// The path is something else than a socket.
    #[error("{0}: the path exists and is not a socket; remove it or choose another path")]
    NotASocket(PathBuf),
    /// The path is longer than a socket address can be.
    #[error("{path}: a socket path has at most {MAX_SOCKET_PATH} bytes; choose a shorter one", path = .0.display())]
    TooLong(PathBuf),
    /// Anything else about the path.
    #[error("{path}: cannot listen: {error}")]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The inherited descriptor is not a stream socket.
    #[error("the inherited file descriptor is not a Unix stream socket: {0}")]
    Inherited(io::Error),
}

/// A listening socket, or one connection that was inherited and is the only one ever.
#[derive(Debug)]
pub struct Listener {
    listening: Option<Arc<UnixListener>>,
    connected: Option<OwnedFd>,
    /// The path we made, with its device and inode, so that only our own is removed.
    made: Option<(PathBuf, (u64, u64))>,
}

impl Listener {
    /// Listens on `path`. A socket file without a listener is replaced.
    ///
    /// # Errors
    /// Another process listens there, the path is no socket, or the system refuses.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, ListenError> {
        let path = path.as_ref();
        let fail = |error| ListenError::Path {
            path: path.to_owned(),
            error,
        };
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(ListenError::TooLong(path.to_owned()));
        }
        let listening = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path).map_err(fail)?
            }
            result => result.map_err(fail)?,
        };
        listening.set_nonblocking(true).map_err(fail)?;
        let meta = std::fs::symlink_metadata(path).map_err(fail)?;
        Ok(Self {
            listening: Some(Arc::new(listening)),
            connected: None,
            made: Some((path.to_owned(), (meta.dev(), meta.ino()))),
        })
    }

    /// What tells the path that was made from one of the same name: device and inode.
    pub fn key(&self) -> Option<(u64, u64)> {
        self.made.as_ref().map(|(_, key)| *key)
    }

    /// Goes on listening on a socket that was bound to `path`, which was then `key`.
    ///
    /// # Errors
    /// It is no listening socket.
    pub fn resume(
        fd: OwnedFd,
        path: impl AsRef<Path>,
        key: (u64, u64),
    ) -> Result<Self, ListenError> {
        let mut listener = Self::from_fd(fd)?;
        if listener.listening.is_none() {
            let error = io::ErrorKind::InvalidInput.into();
            return Err(ListenError::Inherited(error));
        }
        listener.made = Some((path.as_ref().to_owned(), key));
        Ok(listener)
    }

    /// Takes an inherited descriptor: a listening socket, or a connected one.
    ///
    /// # Errors
    /// It is neither.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, ListenError> {
        let listening = rustix::net::sockopt::socket_acceptconn(&fd)
            .map_err(|e| ListenError::Inherited(e.into()))?;
        if listening {
            let flags = rustix::fs::fcntl_getfl(&fd)
                .and_then(|flags| rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK));
            flags.map_err(|e| ListenError::Inherited(e.into()))?;
            Ok(Self {
                listening: Some(Arc::new(UnixListener::from(fd))),
                connected: None,
                made: None,
            })
        } else {
            Ok(Self::from_connected(fd))
        }
    }

    /// Serves this connection and no other.
    pub fn from_connected(fd: OwnedFd) -> Self {
        Self {
            listening: None,
            connected: Some(fd),
            made: None,
        }
    }

    /// As [`Self::from_fd`], where a connection goes on that was accepted there, or is this one: it is not served anew.
    ///
    /// # Errors
    /// As [`Self::from_fd`].
    pub fn goes_on(fd: OwnedFd) -> Result<Self, ListenError> {
        let mut listener = Self::from_fd(fd)?;
        listener.connected = None;
        Ok(listener)
    }

    /// The connection that was inherited, once.
    pub fn take_connected(&mut self) -> Option<OwnedFd> {
        self.connected.take()
    }

    /// A connection, if one waits.
    ///
    /// # Errors
    /// The socket is of no use any more, or there are no descriptors left.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let Some(listening) = &self.listening else {
            return Ok(None);
        };
        // Clients come seldom; a worker does not take them in itself.
        let listening = Arc::clone(listening);
        match threads::apart(move || listening.accept()) {
            Ok((stream, _)) => Ok(Some(stream.into())),
            Err(e) if is_transient(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A descriptor to give up when the process has no other left.
    ///
    /// # Errors
    /// It has none left now.
    pub fn spare(&self) -> io::Result<OwnedFd> {
        let listening = self.listening.as_ref().ok_or(rustix::io::Errno::BADF)?;
        let double = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        Ok(crate::apart::asked(listening.as_fd(), double)?)
    }

    /// What is readable when a connection waits; `None` without a listening socket.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listening.as_deref().map(AsFd::as_fd)
    }
}

/// Nothing to accept, or a client that left before it was accepted.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let fail = |error| ListenError::Path {
        path: path.to_owned(),
        error,
    };
    let meta = std::fs::symlink_metadata(path).map_err(fail)?;
    if !meta.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(fail)
        }
        // Gone in the meantime.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // Connected, or its backlog is full: a server is there.
        Ok(_) => Err(ListenError::InUse(path.to_owned())),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(ListenError::InUse(path.to_owned())),
        Err(e) => Err(fail(e)),
    }
}

/// Whether paths of sockets stay.
static STAY: AtomicBool = AtomicBool::new(false);

/// From now on no listener of this process removes the path that it has made: somebody else holds the socket, too.
pub fn leave_paths() {
    STAY.store(true, Ordering::Relaxed);
}

impl Drop for Listener {
    fn drop(&mut self) {
        if STAY.load(Ordering::Relaxed) {
            return;
        }
        if let Some((path, key)) = &self.made
            && let Ok(meta) = std::fs::symlink_metadata(path)
            && (meta.dev(), meta.ino()) == *key
        {
            let _ = std::fs::remove_file(path);
        }
    }
}
