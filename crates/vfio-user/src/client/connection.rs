//! A connection to a server: messages out, replies and the server's own commands in.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::error::ClientError;
use super::served::Served;
use crate::codec::{
    Capabilities, Command, HEADER_LEN, Header, Malformed, MigrationLimits, TwinSocket, Version,
    flags,
};
use crate::stream::{Filled, MAX_FDS, Receiver, Sender, message};
use peer::deferred_closer::DeferredCloser;

/// What to propose to the server, and how to behave.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Capability `max_msg_fds`.
    pub max_msg_fds: u32,
    /// Capability `max_data_xfer_size`.
    pub max_data_xfer_size: u32,
    /// Propose a twin socket for the server's commands.
    pub twin_socket: bool,
    /// Propose `REGION_WRITE_MULTI`.
    pub write_multiple: bool,
    /// Propose bounds for bitmaps of dirty pages, as clients of the first version of migration do.
    pub migration: Option<MigrationLimits>,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// Serve the server's DMA messages while waiting for a reply. Without it they wait for
    /// [`Client::serve_dma`], as they do in QEMU while a vCPU waits for a register.
    pub serve_while_waiting: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            max_msg_fds: MAX_FDS as u32,
            max_data_xfer_size: 1 << 20,
            twin_socket: false,
            write_multiple: true,
            migration: None,
            timeout: Duration::from_secs(5),
            serve_while_waiting: true,
        }
    }
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// Its file descriptors.
    pub fds: Vec<OwnedFd>,
}

/// One of the two sockets.
pub(super) struct Channel {
    socket: OwnedFd,
    rx: Receiver,
    pub(super) tx: Sender,
}

impl Channel {
    fn new(socket: OwnedFd, max_data: usize) -> Self {
        Self {
            socket,
            rx: Receiver::new(message(max_data), DeferredCloser::default()),
            tx: Sender::new(),
        }
    }

    /// Sends what was appended.
    fn flush(&mut self, timeout: Duration) -> Result<(), ClientError> {
        let socket = self.socket.as_fd();
        while !self.tx.flush(socket)? {
            peer::event::wait_for(socket, PollFlags::OUT, timeout)
                .then_some(())
                .ok_or(ClientError::TimedOut)?;
        }
        Ok(())
    }

    /// Appends bytes as they are, and descriptors to go with them.
    fn append(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let mut owned = Vec::new();
        for fd in fds {
            owned.push(rustix::io::fcntl_dupfd_cloexec(fd, 0)?);
        }
        let start = self.tx.mark();
        self.tx.push_raw(bytes);
        self.tx.note_fds(start, owned);
        Ok(())
    }
}

impl Drop for Channel {
    /// Over means over at once: a process that another thread just started holds copies of all our
    /// descriptors until it becomes its program, and the server would take us for alive so long.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

/// A command of the server's that waits to be served.
pub(super) struct Waiting {
    header: Header,
    payload: Vec<u8>,
    twin: bool,
}

/// A connection to a server.
///
/// Calls are synchronous; [`start`](Self::start), [`flush`](Self::flush) and
/// [`finish`](Self::finish) pipeline, [`post`](Self::post) does not wait at all.
pub struct Client {
    pub(super) main: Channel,
    pub(super) twin: Option<Channel>,
    pub(super) options: ClientOptions,
    pub(super) server: Version,
    pub(super) next_id: u16,
    /// Replies that came while another was waited for.
    pub(super) replies: VecDeque<Reply>,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) served: Served,
    pub(super) fds: Vec<OwnedFd>,
}

impl Client {
    /// Connects and negotiates.
    ///
    /// # Errors
    /// No server listens, or it refuses.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        Self::connect_with(path, ClientOptions::default())
    }

    /// As [`connect`](Self::connect), with options.
    ///
    /// # Errors
    /// No server listens, or it refuses.
    pub fn connect_with(
        path: impl AsRef<Path>,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let mut client = Self::open(UnixStream::connect(path)?.into(), options)?;
        client.negotiate()?;
        Ok(client)
    }

    /// Takes a connected socket, without a word said yet: for [`negotiate`](Self::negotiate) or for
    /// tests that want to say something else.
    ///
    /// # Errors
    /// The socket refuses the time-out.
    pub fn open(socket: OwnedFd, options: ClientOptions) -> Result<Self, ClientError> {
        set_socket_timeout(&socket, Timeout::Recv, Some(options.timeout))?;
        Ok(Self {
            main: Channel::new(socket, options.max_data_xfer_size as usize),
            twin: None,
            options,
            server: Version::default(),
            next_id: 0,
            replies: VecDeque::new(),
            waiting: VecDeque::new(),
            served: Served::default(),
            fds: Vec::new(),
        })
    }

    /// Negotiates version and capabilities.
    ///
    /// # Errors
    /// The server refuses, or its answer makes no sense.
    pub fn negotiate(&mut self) -> Result<Version, ClientError> {
        let offer = Version {
            major: 0,
            minor: 1,
            capabilities: Capabilities {
                max_msg_fds: Some(self.options.max_msg_fds),
                max_data_xfer_size: Some(self.options.max_data_xfer_size),
                max_dma_maps: Some(65535),
                pgsizes: Some(4096),
                twin_socket: self.options.twin_socket.then_some(TwinSocket {
                    supported: true,
                    fd_index: None,
                }),
                migration: self.options.migration,
                write_multiple: self.options.write_multiple.then_some(true),
            },
        };
        let mut reply = self.request(Command::Version, &offer.to_bytes(), &[])?;
        let server = Version::parse(&reply.payload)?;
        if let Some(twin) = server.capabilities.twin_socket.filter(|t| t.supported) {
            let at = twin.fd_index.unwrap_or(u32::MAX) as usize;
            if at >= reply.fds.len() {
                return Err(Malformed("Version: the twin socket is missing").into());
            }
            let socket = reply.fds.swap_remove(at);
            self.twin = Some(Channel::new(
                socket,
                self.options.max_data_xfer_size as usize,
            ));
        }
        self.server = server;
        Ok(server)
    }

    /// What the server answered to the negotiation.
    pub fn server_version(&self) -> &Version {
        &self.server
    }

    /// Puts a command in the send buffer and returns its id.
    ///
    /// # Errors
    /// A descriptor cannot be duplicated.
    pub fn start(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<u16, ClientError> {
        self.queue(command, payload, fds, 0)
    }

    /// Puts a command that wants no reply in the send buffer.
    ///
    /// # Errors
    /// A descriptor cannot be duplicated.
    pub fn post(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        self.queue(command, payload, fds, flags::NO_REPLY).map(drop)
    }

    fn queue(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
        flags: u32,
    ) -> Result<u16, ClientError> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let header = Header {
            flags,
            ..Header::command(id, command, payload.len())
        };
        let mut owned = Vec::new();
        for fd in fds {
            owned.push(rustix::io::fcntl_dupfd_cloexec(fd, 0)?);
        }
        self.main.tx.push_with_fds(&header, payload, owned);
        Ok(id)
    }

    /// Sends everything started, posted or queued.
    ///
    /// # Errors
    /// The socket failed, or the server takes nothing for as long as the time-out.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        while !self.main.tx.flush(self.main.socket.as_fd())? {
            // The server may be waiting for us to read replies.
            self.poll(PollFlags::IN | PollFlags::OUT)?;
            self.drain()?;
        }
        Ok(())
    }

    /// Waits for the reply to a started command. The send buffer must have been flushed.
    ///
    /// # Errors
    /// No reply, or an error reply.
    pub fn finish(&mut self, id: u16) -> Result<Reply, ClientError> {
        self.sort()?;
        loop {
            if let Some(at) = self.replies.iter().position(|r| r.header.id == id)
                && let Some(reply) = self.replies.remove(at)
            {
                return check(reply);
            }
            self.receive()?;
            self.sort()?;
        }
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// No reply, or an error reply.
    pub fn request(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Reply, ClientError> {
        let id = self.start(command, payload, fds)?;
        self.flush()?;
        self.finish(id)
    }

    /// Sends a command and hands the payload of its reply to `take`, without copying it. For the
    /// register accesses, which are all a data path has.
    pub(super) fn call<T>(
        &mut self,
        id: u16,
        take: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, ClientError> {
        self.flush()?;
        if !self.replies.is_empty() || self.twin.is_some() {
            let reply = self.finish(id)?;
            return Ok(take(&reply.payload)?);
        }
        loop {
            self.receive()?;
            while let Some((header, payload)) = next(&mut self.main, &mut self.fds)? {
                if header.is_reply() && header.id == id {
                    if header.is_error() {
                        return Err(refused(&header));
                    }
                    return Ok(take(payload)?);
                }
                keep(
                    &header,
                    payload,
                    &mut self.fds,
                    false,
                    &mut self.replies,
                    &mut self.waiting,
                );
            }
            self.serve_waiting()?;
        }
    }

    /// Waits for bytes from the server.
    fn receive(&mut self) -> Result<(), ClientError> {
        if self.twin.is_some() {
            self.poll(PollFlags::IN)?;
            return self.drain();
        }
        match self.main.rx.fill_waiting(self.main.socket.as_fd())? {
            Filled::Data => Ok(()),
            Filled::Empty => Err(ClientError::TimedOut),
            Filled::Closed => Err(ClientError::Closed),
        }
    }

    /// Waits until a socket is ready.
    fn poll(&mut self, flags: PollFlags) -> Result<(), ClientError> {
        let timeout = Timespec::try_from(self.options.timeout).unwrap_or_default();
        let main = PollFd::new(&self.main.socket, flags);
        let n = match &self.twin {
            Some(twin) => {
                let twin = PollFd::new(&twin.socket, PollFlags::IN);
                rustix::event::poll(&mut [main, twin], Some(&timeout))
            }
            None => rustix::event::poll(&mut [main], Some(&timeout)),
        };
        match n {
            Ok(0) => Err(ClientError::TimedOut),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads what is there and sorts it into replies and commands.
    fn drain(&mut self) -> Result<(), ClientError> {
        self.sort()?;
        if self.main.rx.fill(self.main.socket.as_fd())? == Filled::Closed {
            return Err(ClientError::Closed);
        }
        if let Some(twin) = &mut self.twin
            && twin.rx.fill(twin.socket.as_fd())? == Filled::Closed
        {
            self.twin = None;
        }
        self.sort()
    }

    fn sort(&mut self) -> Result<(), ClientError> {
        let channels = [(Some(&mut self.main), false), (self.twin.as_mut(), true)];
        for (channel, is_twin) in channels {
            let Some(channel) = channel else { continue };
            while let Some((header, payload)) = next(channel, &mut self.fds)? {
                keep(
                    &header,
                    payload,
                    &mut self.fds,
                    is_twin,
                    &mut self.replies,
                    &mut self.waiting,
                );
            }
        }
        self.serve_waiting()
    }

    fn serve_waiting(&mut self) -> Result<(), ClientError> {
        if self.options.serve_while_waiting {
            self.serve_all()?;
        }
        Ok(())
    }

    /// Serves all DMA commands that have come. Returns how many.
    fn serve_all(&mut self) -> Result<usize, ClientError> {
        let mut n = 0;
        while let Some(Waiting {
            header,
            payload,
            twin,
        }) = self.waiting.pop_front()
        {
            let channel = match (twin, &mut self.twin) {
                (true, Some(twin)) => twin,
                (true, None) => continue,
                (false, _) => &mut self.main,
            };
            self.served.answer(&header, &payload, &mut channel.tx);
            n += 1;
            channel.flush(self.options.timeout)?;
        }
        Ok(n)
    }

    /// Serves the server's DMA messages: those that wait, or else the next ones that come within
    /// `timeout`. Returns how many were served.
    ///
    /// # Errors
    /// The socket failed.
    pub fn serve_dma(&mut self, timeout: Duration) -> Result<usize, ClientError> {
        let until = std::time::Instant::now() + timeout;
        loop {
            self.sort()?;
            let n = self.serve_all()?;
            if n > 0 {
                return Ok(n);
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            let usual = std::mem::replace(&mut self.options.timeout, left);
            let ready = self.poll(PollFlags::IN);
            self.options.timeout = usual;
            match ready {
                Ok(()) => self.drain()?,
                Err(ClientError::TimedOut) => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends bytes as they are, in one send: whatever a test wants to say.
    ///
    /// # Errors
    /// The socket failed.
    pub fn send_raw(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        self.flush()?;
        self.main.append(bytes, fds)?;
        self.flush()
    }

    /// As [`Client::send_raw`], on the twin socket.
    ///
    /// # Errors
    /// There is none, or it failed.
    pub fn send_raw_on_twin(
        &mut self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let twin = self.twin.as_mut();
        let twin = twin.ok_or(ClientError::NotOffered("a twin socket"))?;
        twin.append(bytes, fds)?;
        twin.flush(self.options.timeout)
    }

    /// The next reply, whatever it answers; error replies too.
    ///
    /// # Errors
    /// None came in time.
    pub fn next_reply(&mut self) -> Result<Reply, ClientError> {
        self.sort()?;
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Ok(reply);
            }
            self.receive()?;
            self.sort()?;
        }
    }

    /// System calls made so far to receive and to send.
    pub fn syscalls(&self) -> (u64, u64) {
        (self.main.rx.calls, self.main.tx.calls)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.main.socket.as_fd()
    }
}

fn next<'c>(
    channel: &'c mut Channel,
    fds: &mut Vec<OwnedFd>,
) -> Result<Option<(Header, &'c [u8])>, ClientError> {
    let next = channel.rx.next(fds);
    next.map(|one| one.map(|one| (one.header, one.payload)))
        .map_err(|_| Malformed("a message of the server has an impossible size").into())
}

fn keep(
    header: &Header,
    payload: &[u8],
    fds: &mut Vec<OwnedFd>,
    twin: bool,
    replies: &mut VecDeque<Reply>,
    waiting: &mut VecDeque<Waiting>,
) {
    debug_assert_eq!(header.size as usize, HEADER_LEN + payload.len());
    if header.is_reply() {
        replies.push_back(Reply {
            header: *header,
            payload: payload.to_vec(),
            fds: std::mem::take(fds),
        });
    } else {
        waiting.push_back(Waiting {
            header: *header,
            payload: payload.to_vec(),
            twin,
        });
    }
}

fn refused(header: &Header) -> ClientError {
    match Command::from_u16(header.command) {
        Some(command) => ClientError::Refused {
            command,
            errno: header.error,
        },
        None => Malformed("an error reply to no known command").into(),
    }
}

fn check(reply: Reply) -> Result<Reply, ClientError> {
    if reply.header.is_error() {
        return Err(refused(&reply.header));
    }
    Ok(reply)
}
