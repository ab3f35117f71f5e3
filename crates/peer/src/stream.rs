//! Messages on a stream socket: framing, file descriptors, batched sends.
//!
//! A read of a Unix stream stops after the first segment that carries file descriptors, so the
//! descriptors a read returned belong to the *last* message it contained, complete or not. Taking
//! them for the first one misassigns guest memory when a client pipelines `DMA_MAP`s.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    MMsgHdr, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::deferred_closer::DeferredCloser;

/// Bytes read at once: some eight hundred posted writes. A connection keeps so much.
const READ_SIZE: usize = 32 << 10;

/// Descriptors taken from one read: all that one can bring (the kernel's `SCM_MAX_FD`). What is beyond
/// would be closed in the middle of the read, by the reader.
const FDS_PER_READ: usize = 253;

/// Descriptors one message may have in the end; more are closed.
pub const MAX_FDS: usize = 16;

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Bytes came.
    Data,
    /// Nothing there.
    Empty,
    /// The peer has closed.
    Closed,
}

/// A header whose size no message can have. The stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSize(pub usize);

/// The header of every message of a protocol: what the stream is cut by.
pub trait Framed: Copy {
    /// Bytes of a header.
    const LEN: usize;
    /// The same as an array.
    type Bytes: AsRef<[u8]>;
    /// The header at the start of `bytes`, if they are enough.
    fn read(bytes: &[u8]) -> Option<Self>;
    /// Bytes of the whole message, header included, as the header has it.
    fn message_len(&self) -> usize;
    /// The header as it is sent.
    fn bytes(&self) -> Self::Bytes;
}

/// A whole message.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a, H> {
    /// Its header.
    pub header: H,
    /// What is behind it.
    pub payload: &'a [u8],
    /// The kernel dropped descriptors of it (`MSG_CTRUNC`): this process may not have so many, or not these.
    pub truncated: bool,
}

/// The receiving half: a buffer, and where messages start in it.
pub struct Receiver<H> {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    max_message: usize,
    /// Descriptors, each with the start in `buf` of the message it belongs to. A message that came
    /// in pieces may still be waiting for its end when the next one's descriptors arrive.
    fds: Vec<(usize, OwnedFd)>,
    /// The starts of messages that lack descriptors, each once. Two at most: what is whole is taken before more is read.
    truncated: Vec<usize>,
    /// Calls to `recvmsg`.
    pub calls: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Descriptors closed because no message asks for them.
    pub surplus_fds: u64,
    deferred_closer: DeferredCloser,
    header: PhantomData<fn() -> H>,
}

impl<H: Framed> Receiver<H> {
    /// Messages of at most `max_message` bytes, their headers included. Descriptors that no message asks for are
    /// `deferred closer`'s.
    pub fn new(max_message: usize, deferred_closer: DeferredCloser) -> Self {
        Self {
            buf: vec![0; READ_SIZE],
            start: 0,
            end: 0,
            max_message,
            fds: Vec::new(),
            truncated: Vec::new(),
            calls: 0,
            bytes: 0,
            surplus_fds: 0,
            deferred_closer,
            header: PhantomData,
        }
    }

    /// Whether a whole message waits in the buffer (or one that cannot be).
    pub fn has_message(&self) -> bool {
        match H::read(&self.buf[self.start..self.end]) {
            Some(h) => {
                let size = h.message_len();
                !(H::LEN..=self.max_message).contains(&size) || self.end - self.start >= size
            }
            None => false,
        }
    }

    /// Reads once, without waiting. All complete messages must have been taken before.
    pub fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<Filled, Errno> {
        self.receive(socket, RecvFlags::DONTWAIT)
    }

    /// Reads once and waits for it, as long as the socket's own time-out says.
    pub fn fill_waiting(&mut self, socket: BorrowedFd<'_>) -> Result<Filled, Errno> {
        self.receive(socket, RecvFlags::empty())
    }

    fn receive(&mut self, socket: BorrowedFd<'_>, wait: RecvFlags) -> Result<Filled, Errno> {
        self.make_room();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_READ))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        self.calls += 1;
        let received = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut self.buf[self.end..])],
            &mut control,
            wait | RecvFlags::CMSG_CLOEXEC,
        );
        let (n, flags) = match received {
            Ok(message) => (message.bytes, message.flags),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Filled::Empty),
            Err(errno) => return Err(errno),
        };
        if n == 0 {
            return Ok(Filled::Closed);
        }
        self.end += n;
        self.bytes += n as u64;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.note_fds(fds);
            }
        }
        self.note_truncated(flags.contains(ReturnFlags::CTRUNC));
        Ok(Filled::Data)
    }

    /// Takes what another has received, as if it had come from a socket now. `truncated`: there were more descriptors.
    pub fn accept(&mut self, bytes: &[u8], fds: impl Iterator<Item = OwnedFd>, truncated: bool) {
        self.calls += 1;
        self.make_room();
        if self.buf.len() - self.end < bytes.len() {
            self.buf.resize(self.end + bytes.len(), 0);
        }
        self.buf[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
        self.bytes += bytes.len() as u64;
        self.note_fds(fds);
        self.note_truncated(truncated);
    }

    /// Descriptors that came with the last bytes.
    fn note_fds(&mut self, fds: impl Iterator<Item = OwnedFd>) {
        let owner = self.last_message();
        let mut held = self.fds.iter().filter(|(o, _)| *o == owner).count();
        for fd in fds {
            if held < MAX_FDS {
                held += 1;
                self.fds.push((owner, fd));
            } else {
                self.surplus_fds += 1;
                self.deferred_closer.bury(fd);
            }
        }
    }

    /// Whether there were more with the last bytes. A message may come in many pieces, each of which brought some.
    fn note_truncated(&mut self, truncated: bool) {
        let owner = self.last_message();
        if truncated && self.truncated.last() != Some(&owner) {
            self.truncated.push(owner);
        }
    }

    /// Start of the last message of which the buffer holds a byte.
    fn last_message(&self) -> usize {
        let mut at = self.start;
        while let Some(header) = H::read(&self.buf[at..self.end]) {
            let size = header.message_len();
            if size < H::LEN || self.end - at <= size {
                break;
            }
            at += size;
        }
        at
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            // What one long message needed is not kept for ever.
            if self.buf.len() > READ_SIZE {
                self.buf = vec![0; READ_SIZE];
            }
            return;
        }
        let wanted = H::read(&self.buf[self.start..self.end])
            .map_or(H::LEN, |h| h.message_len())
            .min(self.max_message);
        // A message in pieces must fit whole, and moving a few bytes is cheaper than small reads.
        if self.buf.len() - self.start < wanted || self.buf.len() - self.end < READ_SIZE / 2 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            for (owner, _) in &mut self.fds {
                *owner -= self.start;
            }
            for start in &mut self.truncated {
                *start -= self.start;
            }
            self.start = 0;
        }
        if self.buf.len() < wanted {
            self.buf.resize(wanted, 0);
        }
    }

    /// Takes the next complete message, and its descriptors in `fds`. What is still in there no message asks
    /// for.
    pub fn next(&mut self, fds: &mut Vec<OwnedFd>) -> Result<Option<Received<'_, H>>, BadSize> {
        for fd in fds.drain(..) {
            self.surplus_fds += 1;
            self.deferred_closer.bury(fd);
        }
        let pending = &self.buf[self.start..self.end];
        let Some(header) = H::read(pending) else {
            return Ok(None);
        };
        let size = header.message_len();
        if !(H::LEN..=self.max_message).contains(&size) {
            return Err(BadSize(size));
        }
        if pending.len() < size {
            return Ok(None);
        }
        while self.fds.first().is_some_and(|(o, _)| *o == self.start) {
            fds.push(self.fds.remove(0).1);
        }
        let truncated = self.truncated.first() == Some(&self.start);
        if truncated {
            self.truncated.remove(0);
        }
        let payload = &self.buf[self.start + H::LEN..self.start + size];
        self.start += size;
        Ok(Some(Received {
            header,
            payload,
            truncated,
        }))
    }

    /// What was received and not taken, and the descriptors in it by the starts of their messages.
    pub fn unread(&self) -> (&[u8], impl Iterator<Item = (usize, BorrowedFd<'_>)>) {
        let fds = self.fds.iter();
        let fds = fds.map(|(start, fd)| (start - self.start, fd.as_fd()));
        (&self.buf[self.start..self.end], fds)
    }

    /// Whether a message that was not taken lacks descriptors. Nobody else would know.
    pub fn lacks_descriptors(&self) -> bool {
        !self.truncated.is_empty()
    }

    /// Puts what another has not taken into this one, which is new. False: it is more than one can have.
    pub fn put_back(&mut self, bytes: &[u8], fds: Vec<(usize, OwnedFd)>) -> bool {
        if bytes.len() > self.max_message + READ_SIZE {
            return false;
        }
        if self.buf.len() < bytes.len() {
            self.buf.resize(bytes.len(), 0);
        }
        self.buf[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len());
        self.fds = fds;
        true
    }

    /// Bytes that a message may have from now on.
    pub fn set_max_message(&mut self, max_message: usize) {
        self.max_message = max_message;
    }
}

impl<H> Drop for Receiver<H> {
    fn drop(&mut self) {
        for (_, fd) in self.fds.drain(..) {
            self.deferred_closer.bury(fd);
        }
    }
}

/// A message with descriptors inside the send buffer.
struct WithFds {
    start: usize,
    end: usize,
    fds: Vec<OwnedFd>,
}

/// Sends once, by the call that a worker sends all by.
fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    control: &mut SendAncillaryBuffer<'_, '_, '_>,
    flags: SendFlags,
) -> Result<usize, Errno> {
    let bytes = [IoSlice::new(bytes)];
    let mut one = [MMsgHdr::new(&bytes, control)];
    rustix::net::sendmmsg(socket, &mut one, flags)?;
    Ok(one[0].bytes_sent())
}

/// The sending half: messages are appended, and leave in as few sends as possible.
pub struct Sender {
    buf: Vec<u8>,
    sent: usize,
    with_fds: VecDeque<WithFds>,
    /// Calls to `sendmmsg`.
    pub calls: u64,
    /// Bytes sent.
    pub bytes: u64,
}

impl Default for Sender {
    fn default() -> Self {
        Self::new()
    }
}

impl Sender {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            buf: Vec::with_capacity(16 << 10),
            sent: 0,
            with_fds: VecDeque::new(),
            calls: 0,
            bytes: 0,
        }
    }

    /// Bytes not sent yet.
    pub fn backlog(&self) -> usize {
        self.buf.len() - self.sent
    }

    /// Forgets what was appended: another sends it.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.sent = 0;
    }

    /// What is not sent yet. `None`: descriptors are to leave with it.
    pub fn unsent(&self) -> Option<&[u8]> {
        self.with_fds.is_empty().then_some(&self.buf[self.sent..])
    }

    /// Appends a message.
    pub fn push<H: Framed>(&mut self, header: &H, payload: &[u8]) {
        debug_assert_eq!(header.message_len(), H::LEN + payload.len());
        self.buf.extend_from_slice(header.bytes().as_ref());
        self.buf.extend_from_slice(payload);
    }

    /// Appends bytes as they are.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Appends a message with descriptors. It leaves in a send of its own, because the receiver
    /// takes descriptors for the last message of what it reads.
    pub fn push_with_fds<H: Framed>(&mut self, header: &H, payload: &[u8], fds: Vec<OwnedFd>) {
        let start = self.buf.len();
        self.push(header, payload);
        self.note_fds(start, fds);
    }

    /// Sends descriptors with the bytes from `start` on, which were appended last.
    pub fn note_fds(&mut self, start: usize, fds: Vec<OwnedFd>) {
        if !fds.is_empty() {
            let end = self.buf.len();
            self.with_fds.push_back(WithFds { start, end, fds });
        }
    }

    /// Appends a reply with `fixed` and `len` bytes of data that the caller fills in place.
    pub fn push_data<H: Framed>(&mut self, header: &H, fixed: &[u8], len: usize) -> &mut [u8] {
        self.push_raw(header.bytes().as_ref());
        self.push_raw(fixed);
        let at = self.buf.len();
        self.buf.resize(at + len, 0);
        &mut self.buf[at..]
    }

    /// Length of the buffer, for [`truncate`](Self::truncate).
    pub fn mark(&self) -> usize {
        self.buf.len()
    }

    /// Takes back what was appended since `mark`.
    pub fn truncate(&mut self, mark: usize) {
        self.buf.truncate(mark);
        while self.with_fds.back().is_some_and(|w| w.end > mark) {
            self.with_fds.pop_back();
        }
    }

    /// Sends as much as the socket takes. True when nothing is left.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        while self.sent < self.buf.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            self.calls += 1;
            let result = match self.with_fds.front() {
                Some(next) if next.start == self.sent => {
                    let raw: Vec<BorrowedFd<'_>> = next.fds.iter().map(AsFd::as_fd).collect();
                    let mut space =
                        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
                    let mut control = SendAncillaryBuffer::new(&mut space);
                    if !control.push(SendAncillaryMessage::ScmRights(&raw)) {
                        return Err(Errno::TOOBIG);
                    }
                    let bytes = &self.buf[self.sent..next.end];
                    send(socket, bytes, &mut control, flags)
                }
                next => {
                    let end = next.map_or(self.buf.len(), |next| next.start.max(self.sent));
                    // Past the start of a message with descriptors they are with the peer already.
                    let end = if end == self.sent {
                        self.buf.len()
                    } else {
                        end
                    };
                    let bytes = &self.buf[self.sent..end];
                    send(socket, bytes, &mut SendAncillaryBuffer::default(), flags)
                }
            };
            match result {
                Ok(n) => {
                    let carried = self.with_fds.front().is_some_and(|w| w.start == self.sent);
                    if carried && n > 0 {
                        self.with_fds.pop_front();
                    }
                    self.sent += n;
                    self.bytes += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.compact();
                    return Ok(false);
                }
                Err(errno) => return Err(errno),
            }
        }
        self.buf.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Forgets what was sent, once it is worth the move.
    fn compact(&mut self) {
        if self.sent >= 64 << 10 {
            self.buf.drain(..self.sent);
            for with in &mut self.with_fds {
                with.start -= self.sent;
                with.end -= self.sent;
            }
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of a message, its own four bytes included.
    #[derive(Clone, Copy)]
    struct Length(u32);

    impl Framed for Length {
        const LEN: usize = 4;
        type Bytes = [u8; 4];
        fn read(bytes: &[u8]) -> Option<Self> {
            Some(Length(u32::from_ne_bytes(*bytes.first_chunk()?)))
        }
        fn message_len(&self) -> usize {
            self.0 as usize
        }
        fn bytes(&self) -> [u8; 4] {
            self.0.to_ne_bytes()
        }
    }

    #[test]
    fn a_message_in_pieces_lacks_descriptors_once() {
        let mut rx = Receiver::<Length>::new(64, DeferredCloser::default());
        let mut fds = Vec::new();
        let message = [&32_u32.to_ne_bytes()[..], &[0; 28]].concat();
        for round in 0..2000 {
            let lacks = round % 2 == 0;
            for piece in message.chunks(3) {
                assert!(rx.next(&mut fds).is_ok_and(|next| next.is_none()));
                rx.accept(piece, std::iter::empty(), lacks);
            }
            assert_eq!(rx.lacks_descriptors(), lacks);
            let next = rx.next(&mut fds).expect("a size").expect("whole");
            assert_eq!((next.truncated, next.payload.len()), (lacks, 28));
            assert!(!rx.lacks_descriptors());
        }
    }
}
