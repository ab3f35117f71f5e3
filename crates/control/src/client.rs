//! Asking a daemon.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::api::Method;
use crate::failure::Failure;
use crate::message::{MAX_FDS, MAX_REPLY, Messages, Request};

/// How long the daemon may take to answer: longer than it waits for busy workers, and for a port to open.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No daemon listens.
    #[error(
        "no daemon answers at {path}: {source}; name its control socket with --control, and give the \
         daemon one with control = \"PATH\"",
        path = .path.display()
    )]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection failed on the way.
    #[error("the daemon at {path} does not answer: {source}", path = .path.display())]
    Lost {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An answer that cannot be read: another version, or another program.
    #[error(
        "the daemon at {path} sent a reply that this program cannot read ({why}); use the \
         daemon's version of hypernic",
        path = .path.display()
    )]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The daemon will not do it.
    #[error("{0}")]
    Refused(#[from] Failure),
}

/// A reply. Its parameters may be long, and borrow from the message.
#[derive(Deserialize)]
struct Envelope<T> {
    error: Option<Value>,
    parameters: Option<T>,
    #[serde(default)]
    continues: bool,
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: UnixStream,
    messages: Messages,
}

/// A reply that came.
pub struct Reply<'m> {
    client: &'m Client,
    message: &'m [u8],
}

impl<'m> Reply<'m> {
    /// What it says.
    ///
    /// # Errors
    /// None that can be read, or the daemon refuses.
    pub fn parameters<T: Deserialize<'m>>(self) -> Result<T, AskError> {
        Ok(self.client.understood(self.message)?.0)
    }
}

/// Asks the daemon that listens at `path`.
///
/// # Errors
/// There is no answer, none that can be read, or the daemon refuses.
pub fn ask<M: Method>(path: &Path, call: &M) -> Result<M::Reply, AskError> {
    Client::connect(path)?.call(call)
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// There is none.
    pub fn connect(path: &Path) -> Result<Self, AskError> {
        let stream = UnixStream::connect(path).map_err(|source| AskError::Nobody {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            stream,
            messages: Messages::new(MAX_REPLY),
        })
    }

    /// Calls a method and waits for its reply.
    ///
    /// # Errors
    /// There is no answer, none that can be read, or the daemon refuses.
    pub fn call<M: Method>(&mut self, call: &M) -> Result<M::Reply, AskError> {
        self.ask(call, PATIENCE)
    }

    /// As [`Client::call`], and the reply may take so long.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn ask<M: Method>(&mut self, call: &M, patience: Duration) -> Result<M::Reply, AskError> {
        self.send(call, false)?;
        let (reply, _) = self.next::<M>(patience)?;
        Ok(reply)
    }

    /// Calls a method after whose reply the connection speaks another protocol. Returns what was read of that already,
    /// and the connection.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn upgrade<M: Method>(mut self, call: &M) -> Result<(Vec<u8>, UnixStream), AskError> {
        let request = Request {
            upgrade: true,
            ..Request::of(call)
        };
        let sent = write_all(&mut self.stream, &request.to_message(), PATIENCE);
        sent.map_err(|source| self.lost(source))?;
        self.next::<M>(PATIENCE)?;
        let cleared = self.stream.set_read_timeout(None);
        cleared.map_err(|source| self.lost(source))?;
        Ok((self.messages.into_rest(), self.stream))
    }

    /// Calls a method; with `more` it may reply several times.
    ///
    /// # Errors
    /// The daemon does not read.
    pub fn send<M: Method>(&mut self, call: &M, more: bool) -> Result<(), AskError> {
        let request = Request {
            more,
            ..Request::of(call)
        };
        match write_all(&mut self.stream, &request.to_message(), PATIENCE) {
            // A daemon that has closed the connection has said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(|source| self.lost(source)),
        }
    }

    /// As [`Client::call`], with descriptors that the call names by their places: `fd=0` is the first.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_with<M: Method>(
        &mut self,
        call: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<M::Reply, AskError> {
        let message = Request::of(call).to_message();
        let sent = send_with(&self.stream, &message, fds);
        let sent = sent.and_then(|n| write_all(&mut self.stream, &message[n..], PATIENCE));
        sent.map_err(|source| self.lost(source))?;
        let (reply, _) = self.next::<M>(PATIENCE)?;
        Ok(reply)
    }

    /// The next reply, and whether more follow.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn next<M: Method>(&mut self, patience: Duration) -> Result<(M::Reply, bool), AskError> {
        let message = self.read(patience).map_err(|source| self.lost(source))?;
        self.understood(&message)
    }

    /// As [`Client::ask`], of a reply that is read in place: it may be long, and need not be built.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn ask_in_place<M: Method, T>(
        &mut self,
        call: &M,
        patience: Duration,
        read: impl for<'m> FnOnce(Reply<'m>) -> Result<T, AskError>,
    ) -> Result<T, AskError> {
        self.send(call, false)?;
        let message = self.read(patience).map_err(|source| self.lost(source))?;
        read(Reply {
            client: self,
            message: &message,
        })
    }

    fn understood<'m, T: Deserialize<'m>>(&self, message: &'m [u8]) -> Result<(T, bool), AskError> {
        let foreign = |why: String| AskError::Foreign {
            path: self.path.clone(),
            why,
        };
        // Most are no errors, and so read once. Those that are have other parameters.
        let reply = serde_json::from_slice::<Envelope<T>>(message);
        let reply = match reply {
            Ok(reply) if reply.error.is_none() => reply,
            other => {
                let fails = serde_json::from_slice::<Envelope<IgnoredAny>>(message);
                let fails = fails.map_err(|error| foreign(error.to_string()))?;
                if let Some(name) = fails.error {
                    let failure: Result<Failure, _> = serde_json::from_slice(message);
                    let failure = failure.map_err(|_| foreign(format!("the error {name}")))?;
                    return Err(AskError::Refused(failure));
                }
                other.map_err(|error| foreign(error.to_string()))?
            }
        };
        let parameters = match reply.parameters {
            Some(parameters) => parameters,
            None => serde_json::from_str("{}").map_err(|error| foreign(error.to_string()))?,
        };
        Ok((parameters, reply.continues))
    }

    fn lost(&self, source: io::Error) -> AskError {
        AskError::Lost {
            path: self.path.clone(),
            source,
        }
    }

    fn read(&mut self, patience: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + patience;
        let mut part = [0; 1 << 16];
        loop {
            let next = self.messages.pop();
            let next = next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if let Some(message) = next {
                return Ok(message);
            }
            self.stream.set_read_timeout(Some(left(until)?))?;
            match self.stream.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.messages.push(&part[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_time(error)),
            }
        }
    }
}

/// Sends the beginning of a message, and descriptors with it.
fn send_with(stream: &UnixStream, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if fds.len() > MAX_FDS || !control.push(SendAncillaryMessage::ScmRights(fds)) {
        let why = format!("a call brings at most {MAX_FDS} descriptors");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let bytes = [IoSlice::new(message)];
    Ok(sendmsg(stream, &bytes, &mut control, SendFlags::NOSIGNAL)?)
}

fn write_all(stream: &mut UnixStream, mut rest: &[u8], patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(in_time(error)),
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// A socket's time-out has the name of another thing.
fn in_time(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
