//! One client: what it has said and not yet been answered, what it has been told and not yet read, and how long it may
//! take for both.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use control::{MAX_FDS, MAX_OWNERS_REQUEST, MAX_REPLY, MAX_REQUEST, Messages, Role, TooLong};

/// How long a client may take for a call that it has begun, and a new one for its first.
pub(super) const CALL: Duration = Duration::from_secs(1);
/// How long one may be silent between two calls.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// How long one may read nothing of what it was told.
pub(super) const READING: Duration = Duration::from_secs(5);
/// Bytes read at once.
const PART: usize = 16 << 10;

/// Who a client is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub uid: u32,
    pub pid: i32,
    pub role: Role,
}

/// Why a connection is over.
#[derive(Debug)]
pub(super) enum Over {
    /// The client closed it between two calls.
    Closed,
    /// It ended, or was silent for too long, before a call was whole.
    NoCall(String),
    /// The client did not read.
    NotTaken(String),
    /// All is said.
    Said,
}

pub(super) struct Connection {
    stream: UnixStream,
    pub caller: Caller,
    messages: Messages,
    /// Descriptors that came and no call has taken.
    fds: Vec<OwnedFd>,
    /// What it is told, and how much of that has gone.
    out: Vec<u8>,
    gone: usize,
    /// What goes to many, after that: it and how much of it has gone.
    shared: Option<(Arc<[u8]>, usize)>,
    /// Since when the client is to say something.
    since: Instant,
    /// Since when it is to read something.
    unread_since: Instant,
    /// Calls that were whole.
    calls: u64,
    /// The client sends no more.
    ended: bool,
    /// Nothing more is heard: it closes once all is read.
    closing: bool,
    /// What it is told of changes.
    pub subscription: Option<Subscription>,
}

/// A client that is told of changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Subscription {
    /// Losses that begin and end, too.
    pub losses: bool,
    /// Changes that it was not told, because it did not read.
    pub lost: u64,
    /// It was told what there is.
    pub begun: bool,
}

impl Connection {
    pub fn new(fd: OwnedFd, caller: Caller, now: Instant) -> io::Result<Self> {
        let stream = UnixStream::from(fd);
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            caller,
            messages: Messages::new(match caller.role {
                Role::Owner => MAX_OWNERS_REQUEST,
                _ => MAX_REQUEST,
            }),
            fds: Vec::new(),
            out: Vec::new(),
            gone: 0,
            shared: None,
            since: now,
            unread_since: now,
            calls: 0,
            ended: false,
            closing: false,
            subscription: None,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether it waits for the client to say something. Who does not read is not heard.
    pub fn wants_to_read(&self) -> bool {
        !self.wants_to_write() && !self.closing && !self.ended
    }

    pub fn wants_to_write(&self) -> bool {
        !self.out.is_empty() || self.shared.is_some()
    }

    /// The connection, for another protocol.
    pub fn hand_over(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Until when the client may take, whatever it does.
    pub fn deadline(&self) -> Option<Instant> {
        if self.subscription.is_some() {
            return None;
        }
        if self.wants_to_write() {
            return Some(self.unread_since + READING);
        }
        let begun = self.calls == 0 || !self.messages.is_empty();
        Some(self.since + if begun { CALL } else { IDLE })
    }

    /// Since when it has had nothing to do: the longer, the sooner it makes room for others.
    pub fn quiet_since(&self) -> Instant {
        self.since
    }

    /// Its time is over.
    pub fn late(&self) -> Over {
        if self.wants_to_write() {
            return Over::NotTaken("it reads nothing".into());
        }
        if self.calls > 0 && self.messages.is_empty() {
            return Over::Closed;
        }
        Over::NoCall("its time is over".into())
    }

    /// Reads once.
    pub fn read(&mut self, now: Instant) -> Result<(), Over> {
        let mut part = [0; PART];
        match self.receive(&mut part) {
            Ok(_) if self.fds.len() > MAX_FDS => {
                return Err(Over::NoCall(format!(
                    "more than {MAX_FDS} descriptors came with a call"
                )));
            }
            Ok(0) => self.ended = true,
            Ok(n) => {
                if self.subscription.is_some() {
                    return Err(Over::NoCall(
                        "it said something while it was told of changes".into(),
                    ));
                }
                if self.messages.is_empty() {
                    self.since = now;
                }
                self.messages.push(&part[..n]);
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(Over::NoCall(error.to_string())),
        }
        Ok(())
    }

    /// Reads bytes, and descriptors of those who may hand them over.
    fn receive(&mut self, part: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(part)];
        let received = recvmsg(
            &self.stream,
            &mut bytes,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message
                && self.caller.role == Role::Owner
            {
                self.fds.extend(fds.take(MAX_FDS + 1));
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC)
            && self.caller.role == Role::Owner
            && self.fds.len() <= MAX_FDS
        {
            return Err(io::Error::other(
                "the descriptors of a call found no room in the daemon: raise LimitNOFILE (ulimit -n)",
            ));
        }
        Ok(received.bytes)
    }

    /// The descriptors that came with a call.
    pub fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }

    /// The next whole message, if there is one and the last reply was read.
    pub fn next(&mut self, now: Instant) -> Result<Option<Vec<u8>>, Over> {
        if self.wants_to_write() || self.closing {
            return Ok(None);
        }
        let next = self.messages.pop();
        let next = next.map_err(|error: TooLong| Over::NoCall(error.to_string()))?;
        if next.is_some() {
            self.calls += 1;
            self.since = now;
        } else if self.ended {
            let whole = self.calls > 0 && self.messages.is_empty();
            let cut = || Over::NoCall("it ended before a call did".into());
            return Err(if whole { Over::Closed } else { cut() });
        }
        Ok(next)
    }

    /// Tells the client something; it goes out at once as far as it can.
    pub fn tell(&mut self, message: Vec<u8>, now: Instant) -> Result<(), Over> {
        if self.out.is_empty() {
            self.unread_since = now;
        }
        self.out.drain(..std::mem::take(&mut self.gone));
        if self.out.len() + message.len() > MAX_REPLY {
            return Err(Over::NotTaken("it reads too slowly".into()));
        }
        match self.out.is_empty() {
            // It may be long.
            true => self.out = message,
            false => self.out.extend(message),
        }
        self.write(now)
    }

    /// Tells the client, who has read all, what others are told too: it is kept once for all of them.
    pub fn tell_all(&mut self, message: Arc<[u8]>, now: Instant) -> Result<(), Over> {
        if message.len() > MAX_REPLY {
            return Err(Over::NotTaken("there is more than a reply may have".into()));
        }
        self.unread_since = now;
        self.shared = Some((message, 0));
        self.write(now)
    }

    /// Hears no more, and closes once all is read.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Writes what there is, as far as the client reads.
    pub fn write(&mut self, now: Instant) -> Result<(), Over> {
        let mut written = self.write_from(&self.out[self.gone..])?;
        self.gone += written;
        if self.gone == self.out.len() {
            (self.out, self.gone) = (Vec::new(), 0);
        }
        if self.out.is_empty()
            && let Some((message, gone)) = self.shared.take()
        {
            let more = self.write_from(&message[gone..])?;
            let gone = gone + more;
            self.shared = (gone < message.len()).then_some((message, gone));
            written += more;
        }
        if written > 0 {
            self.unread_since = now;
        }
        if !self.wants_to_write() {
            self.since = now;
            if self.closing {
                return Err(Over::Said);
            }
        }
        Ok(())
    }

    /// As much as goes.
    fn write_from(&self, bytes: &[u8]) -> Result<usize, Over> {
        let mut written = 0;
        while written < bytes.len() {
            match (&self.stream).write(&bytes[written..]) {
                Ok(0) => return Err(Over::NotTaken("it takes nothing".into())),
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_nothing(&error) => break,
                Err(error) => return Err(Over::NotTaken(error.to_string())),
            }
        }
        Ok(written)
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
