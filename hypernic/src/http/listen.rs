//! Where a server listens: an address, a Unix socket, or what systemd hands over.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::AddressFamily;
use vfio_user::Listener;

use crate::error::Error;
use crate::fds;

/// The first descriptor that systemd hands over.
const FIRST: i32 = 3;

pub(crate) enum Listening {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "it removes its path in the end")] Option<Listener>,
    ),
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown(""))
    }
}

impl Listening {
    /// Listens at what systemd has handed over, else at the Unix socket, else at the address.
    pub fn start(address: &str, unix: Option<&Path>) -> Result<Self, Error> {
        if let Some(fd) = handed_over()? {
            return Self::of(fd);
        }
        if let Some(path) = unix {
            let refused = |error: &dyn std::fmt::Display| {
                Error::Host(format!("cannot listen at {}: {error}", path.display()))
            };
            // It replaces a socket without a listener, and removes its own in the end.
            let listener = Listener::bind(path).map_err(|error| refused(&error))?;
            let fd = listener.as_fd().ok_or_else(|| refused(&"it is closed"))?;
            let fd = fd.try_clone_to_owned().map_err(|error| refused(&error))?;
            let socket = UnixListener::from(fd);
            socket
                .set_nonblocking(false)
                .map_err(|error| refused(&error))?;
            return Ok(Self::Unix(socket, Some(listener)));
        }
        let listener = TcpListener::bind(address).map_err(|error| {
            Error::Host(format!(
                "cannot listen at {address}: {error}; name another address with --listen"
            ))
        })?;
        Ok(Self::Tcp(listener))
    }

    fn of(fd: OwnedFd) -> Result<Self, Error> {
        let family = rustix::net::getsockname(&fd).map(|name| name.address_family());
        match family {
            Ok(AddressFamily::UNIX) => Ok(Self::Unix(UnixListener::from(fd), None)),
            Ok(AddressFamily::INET | AddressFamily::INET6) => Ok(Self::Tcp(TcpListener::from(fd))),
            _ => Err(Error::Host(
                "what was handed over is no stream socket that listens; use ListenStream= in the socket unit".into(),
            )),
        }
    }

    /// Only clients on this host reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(listener) => listener.local_addr().is_ok_and(|at| at.ip().is_loopback()),
            // Its clients have no other name for it.
            Self::Unix(..) => false,
        }
    }

    pub fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(..))
    }

    /// For people; `path` is what they ask for.
    pub fn shown(&self, path: &str) -> String {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(at) => format!("http://{at}{path}"),
                Err(error) => error.to_string(),
            },
            Self::Unix(listener, _) => match listener.local_addr() {
                Ok(at) => format!("{at:?}"),
                Err(error) => error.to_string(),
            },
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Ok(Stream::Tcp(listener.accept()?.0)),
            Self::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

/// What systemd has handed over to this process.
fn handed_over() -> Result<Option<OwnedFd>, Error> {
    let word = |name: &str| std::env::var(name).ok();
    let ours = word("LISTEN_PID").is_some_and(|pid| pid.parse() == Ok(std::process::id()));
    let count: Option<u32> = word("LISTEN_FDS").and_then(|count| count.parse().ok());
    match count.filter(|_| ours) {
        None | Some(0) => Ok(None),
        Some(1) => fds::inherited(FIRST).map(Some).map_err(Error::Host),
        Some(n) => Err(Error::Host(format!(
            "{n} sockets were handed over, and one is wanted"
        ))),
    }
}

/// A program that is to serve has no socket.
pub(crate) fn not_listening() -> Error {
    Error::Usage("it listens nowhere".into())
}

/// A connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! each {
    ($self:ident, $stream:ident => $what:expr) => {
        match $self {
            Stream::Tcp($stream) => $what,
            Stream::Unix($stream) => $what,
        }
    };
}

impl Stream {
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
        }
    }

    pub fn set_read_timeout(&self, left: Duration) -> io::Result<()> {
        each!(self, stream => stream.set_read_timeout(Some(left)))
    }

    pub fn set_write_timeout(&self, left: Duration) -> io::Result<()> {
        each!(self, stream => stream.set_write_timeout(Some(left)))
    }

    pub fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        each!(self, stream => stream.read(to))
    }

    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        each!(self, stream => stream.write(from))
    }

    pub fn shutdown(&self, how: Shutdown) {
        // It may be over already.
        let _ = each!(self, stream => stream.shutdown(how));
    }
}
