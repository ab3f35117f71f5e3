//! Getting a connected socket, without ever waiting for it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with, sockopt,
};

use crate::config::{Endpoint, StreamError};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// For the port's name.
pub fn describe(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Connect(path) => format!("stream:{}", path.display()),
        Endpoint::Listen(path) => format!("stream:listen:{}", path.display()),
        Endpoint::ConnectTcp(at) => format!("stream:tcp:{at}"),
        Endpoint::ListenTcp(at) => format!("stream:listen:tcp:{at}"),
        Endpoint::Fd(_) => "stream:fd".into(),
    }
}

/// Where connections come from.
pub enum Source {
    Unix(SocketAddrUnix),
    Tcp(SocketAddr),
    Listener {
        fd: OwnedFd,
        /// Removed in the end.
        path: Option<PathBuf>,
    },
    /// The one connection there will be, until taken.
    Single(Option<OwnedFd>),
}

/// What an attempt to get a connection came to.
pub enum Attempt {
    Connected(OwnedFd),
    /// Wait until it is writable, then ask [`finish`].
    UnderWay(OwnedFd),
    /// Wait until the listener is readable.
    NobodyYet,
    /// Try again later.
    Failed,
    /// There was one connection, and it is gone.
    Spent,
}

impl Source {
    /// `left` is where the process before listened at this endpoint.
    pub fn new(endpoint: Endpoint, left: Option<OwnedFd>) -> Result<Self, StreamError> {
        let left = left.filter(|fd| sockopt::socket_acceptconn(fd) == Ok(true));
        match endpoint {
            Endpoint::Connect(path) => Ok(Self::Unix(unix(&path)?)),
            Endpoint::ConnectTcp(at) => Ok(Self::Tcp(at)),
            Endpoint::Listen(path) => match left {
                Some(fd) => Ok(Self::Listener {
                    fd,
                    path: Some(path),
                }),
                None => listen_unix(path),
            },
            Endpoint::ListenTcp(at) => {
                let fd = listen_tcp(at).map_err(|e| StreamError::Listen {
                    at: at.to_string(),
                    source: e.into(),
                })?;
                Ok(Self::Listener { fd, path: None })
            }
            Endpoint::Fd(fd) => {
                if sockopt::socket_type(&fd) != Ok(SocketType::STREAM) {
                    return Err(StreamError::NotAStream);
                }
                let flags = rustix::fs::fcntl_getfl(&fd).map_err(io::Error::from)?;
                rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
                if sockopt::socket_domain(&fd) != Ok(AddressFamily::UNIX) {
                    // Who is accepted inherits it.
                    let _ = sockopt::set_tcp_nodelay(&fd, true);
                }
                if sockopt::socket_acceptconn(&fd) == Ok(true) {
                    return Ok(Self::Listener { fd, path: None });
                }
                Ok(Self::Single(Some(fd)))
            }
        }
    }

    /// What becomes readable when somebody calls.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Listener { fd, .. } => Some(fd.as_fd()),
            _ => None,
        }
    }

    /// Whether there will be one connection only.
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Single(_))
    }

    /// The one connection there will be was taken by the process before. If it does not go on, nobody knows where a frame begins: it ends,
    /// whoever else has it open.
    pub fn spend(&mut self, goes_on: bool) {
        if let Self::Single(fd) = self
            && let Some(fd) = fd.take()
            && !goes_on
        {
            end(fd.as_fd());
        }
    }

    /// Tries to get a connection.
    pub fn attempt(&mut self) -> Attempt {
        match self {
            Self::Unix(address) => dial(
                socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None),
                |fd| connect(fd, address),
            ),
            Self::Tcp(address) => {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                // The thread that brings frames in sets no options.
                let new = threads::apart(move || {
                    let fd = socket_with(family, SocketType::STREAM, FLAGS, None)?;
                    sockopt::set_tcp_nodelay(&fd, true)?;
                    Ok(fd)
                });
                dial(new, |fd| connect(fd, address))
            }
            Self::Listener { fd, .. } => match accept_with(&*fd, FLAGS) {
                Ok(peer) => Attempt::Connected(peer),
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Attempt::NobodyYet,
                // Out of descriptors or memory: the caller stays in the backlog.
                Err(_) => Attempt::Failed,
            },
            Self::Single(fd) => fd.take().map_or(Attempt::Spent, Attempt::Connected),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Self::Listener {
            path: Some(path), ..
        } = self
        {
            let path = std::mem::take(path);
            // The thread that brings frames in changes no folders.
            let _ = threads::apart(move || std::fs::remove_file(path));
        }
    }
}

/// Whether a connection under way, now writable, has succeeded.
pub fn finish(fd: &OwnedFd) -> bool {
    let error = peer::asked(fd.as_fd(), |fd| sockopt::socket_error(fd));
    matches!(error, Ok(Ok(())))
}

/// Ends a connection that others may have open, too.
pub fn end(fd: BorrowedFd<'_>) {
    let _ = peer::asked(fd, |fd| shutdown(fd, Shutdown::Both));
}

fn dial(new: Result<OwnedFd, Errno>, connect: impl Fn(&OwnedFd) -> Result<(), Errno>) -> Attempt {
    let Ok(fd) = new else {
        return Attempt::Failed;
    };
    match connect(&fd) {
        Ok(()) => Attempt::Connected(fd),
        Err(Errno::INPROGRESS) => Attempt::UnderWay(fd),
        Err(_) => Attempt::Failed,
    }
}

fn unix(path: &Path) -> Result<SocketAddrUnix, StreamError> {
    SocketAddrUnix::new(path).map_err(|_| StreamError::BadPath { path: path.into() })
}

fn listen_unix(path: PathBuf) -> Result<Source, StreamError> {
    let address = unix(&path)?;
    let failed = |e: Errno| StreamError::Listen {
        at: path.display().to_string(),
        source: e.into(),
    };
    let new = || socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
    let fd = new().map_err(failed)?;
    match bind(&fd, &address) {
        Err(Errno::ADDRINUSE) => {
            let stat = rustix::fs::lstat(&path).map_err(failed)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
                return Err(StreamError::NotASocket { path });
            }
            // A socket file that refuses callers is left over from a process that died.
            match connect(&new().map_err(failed)?, &address) {
                Err(Errno::CONNREFUSED) => {}
                Err(e @ (Errno::PROTOTYPE | Errno::ACCESS)) => return Err(failed(e)),
                _ => return Err(StreamError::InUse { path }),
            }
            // By the call that a confined process may make.
            std::fs::remove_file(&path).map_err(|source| StreamError::Listen {
                at: path.display().to_string(),
                source,
            })?;
            bind(&fd, &address).map_err(failed)?;
        }
        other => other.map_err(failed)?,
    }
    listen(&fd, 4).map_err(failed)?;
    Ok(Source::Listener {
        fd,
        path: Some(path),
    })
}

fn listen_tcp(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    // Who is accepted inherits it.
    sockopt::set_tcp_nodelay(&fd, true)?;
    bind(&fd, &at)?;
    listen(&fd, 4)?;
    Ok(fd)
}
