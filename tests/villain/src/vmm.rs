//! A VMM that says what no guest can.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drivers::{BusError, SocketBus};
use vfio_user::codec::{Command, HEADER_LEN, Header, Version};
use vfio_user::{Client, ClientError, ClientOptions, EventFd};

/// How long a server may take to see that its last client has gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// The villain's end of a NIC's socket.
#[derive(Debug)]
pub struct Vmm {
    path: PathBuf,
}

/// What went wrong with the villain's own means.
pub(crate) fn own(error: impl std::fmt::Display) -> BusError {
    BusError::Gone(error.to_string())
}

/// Being refused, or sent away, is what a villain expects.
pub(crate) fn refused<T>(result: Result<T, ClientError>) -> Result<(), BusError> {
    match result {
        Ok(_)
        | Err(ClientError::Refused { .. } | ClientError::Closed | ClientError::Malformed(_)) => {
            Ok(())
        }
        Err(other) => Err(own(other)),
    }
}

impl Vmm {
    /// Will connect to the server at `path`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// A connection, nothing said yet.
    pub(crate) fn socket(&self) -> Result<OwnedFd, BusError> {
        Ok(UnixStream::connect(&self.path).map_err(own)?.into())
    }

    /// A client that has not said a word.
    pub(crate) fn silent(&self) -> Result<Client, BusError> {
        Client::open(self.socket()?, ClientOptions::default()).map_err(own)
    }

    /// As [`Vmm::silent`], with options.
    pub(crate) fn silent_with(&self, options: ClientOptions) -> Result<Client, BusError> {
        Client::open(self.socket()?, options).map_err(own)
    }

    /// A client that has negotiated; waits for its turn.
    pub(crate) fn client(&self) -> Result<Client, BusError> {
        self.client_with(ClientOptions::default())
    }

    /// As [`Vmm::client`], with options.
    pub(crate) fn client_with(&self, options: ClientOptions) -> Result<Client, BusError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Client::connect_with(&self.path, options) {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() > until => return Err(own(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// A guest's whole machine.
    pub(crate) fn machine(&self) -> Result<SocketBus, BusError> {
        SocketBus::with_client(self.client()?)
    }
}

/// A message as it goes over the wire, whatever it says of itself.
pub(crate) fn message(command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        command,
        flags,
        ..Header::command(7, Command::GetInfo, payload.len())
    };
    [&header.to_bytes()[..], payload].concat()
}

/// A header alone, that claims `size` bytes.
pub(crate) fn sized(command: u16, size: u32) -> Vec<u8> {
    let mut bytes = message(command, 0, &[]);
    bytes[4..8].copy_from_slice(&size.to_ne_bytes());
    debug_assert_eq!(bytes.len(), HEADER_LEN);
    bytes
}

/// A good first message.
pub(crate) fn hello() -> Vec<u8> {
    let version = Version {
        major: 0,
        minor: 1,
        ..Version::default()
    };
    message(Command::Version as u16, 0, &version.to_bytes())
}

/// An eventfd of the villain's.
pub(crate) fn event() -> Result<EventFd, BusError> {
    EventFd::new().map_err(own)
}

/// Memory that a peer may map, of this many bytes.
pub(crate) fn memfd(len: u64) -> Result<OwnedFd, BusError> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("villain", flags).map_err(own)?;
    rustix::fs::ftruncate(fd.as_fd(), len).map_err(own)?;
    Ok(fd)
}
