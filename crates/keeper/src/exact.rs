//! A connection that a worker serves and the next one goes on serving: every byte is taken once and sent once, wherever the
//! worker before has died.
//!
//! After `recv` a worker that dies leaves nothing behind, not even whether it received anything; after `send` nobody knows
//! whether the answer left. So both are done by the calls for several messages (`recvmmsg`, `sendmmsg`, of one message each),
//! whose header lies in memory that keeper and worker share: the kernel notes there, within the call, how many bytes it took
//! or sent, and a signal that kills acts only when the call is over. Two headers alternate, so that the one that is being
//! filled is never the one that is believed: a worker counts its calls, and stores the number last.
//!
//! What has arrived is answered in three steps: [`Link::receive`]; [`Link::reply`], any number of times; [`Link::commit`], which
//! is one store. A worker that dies before it has done nothing, and the next one finds the same arrival; one that dies after it
//! has done all of it, and the next one sends what is left.
//!
//! What the server itself is goes with it: [`Held`], bytes and the numbers of descriptors, committed with an answer whenever it
//! has changed. A connection without is one that the next worker closes. Beside all that are [`WORDS`] that are true as soon as
//! they are stored, for what changes with every frame.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use rustix::io::Errno;

use crate::sys::{self, Shareable};

/// Bytes received at once, and of a message that is not whole yet.
pub const READ: usize = 32 << 10;
/// Bytes that may wait to be sent.
pub const OUT: usize = 64 << 10;
/// Words of the server's own that are committed with each answer.
pub const NOTES: usize = 3;
/// Words that are true as soon as they are stored.
pub const WORDS: usize = 2304;
/// Words for the heads of rings that the server's client has in memory of its own.
pub const HEADS: usize = 32;
/// Descriptors that a server may hold, and bytes of what it is.
pub const FILES: usize = 2560;
/// See [`FILES`].
pub const STATE: usize = 160 << 10;
/// Descriptors that one receive can bring (the kernel's `SCM_MAX_FD`).
const FDS: usize = 253;
/// Bytes of a header of control data, and of what the kernel writes behind it.
const CMSG: usize = 16;
const CONTROL: usize = (CMSG + 4 * FDS).div_ceil(8);

/// One call, as the kernel sees it.
#[repr(C)]
struct Call {
    /// Which call it is; the higher of two is believed.
    number: AtomicU64,
    /// Of a send: where in the stream it begins.
    start: AtomicU64,
    header: UnsafeCell<libc::mmsghdr>,
    pieces: UnsafeCell<[libc::iovec; 2]>,
    control: UnsafeCell<[u64; CONTROL]>,
}

/// What becomes true at once.
#[repr(C)]
struct Commit {
    /// The last receive that is done with.
    applied: AtomicU64,
    /// The end of what is to be sent.
    end: AtomicU64,
    /// Bytes of a message whose end has not come.
    rest: AtomicU64,
    notes: [AtomicU64; NOTES],
    /// What the server is: 0 for nothing, or one more than the number of the place where it is.
    held: AtomicU64,
}

/// What a server is, with the descriptors it holds.
#[repr(C)]
struct Place {
    files: AtomicU64,
    bytes: AtomicU64,
    numbers: UnsafeCell<[RawFd; FILES]>,
    state: UnsafeCell<[u8; STATE]>,
}

/// What becomes of what the server is, with a commit.
#[derive(Clone, Copy, Debug)]
pub enum Held<'a> {
    /// It is as it was.
    Same,
    /// It cannot go on in another worker.
    Nothing,
    /// It holds these descriptors, and is these bytes, one piece behind the other.
    New(&'a [RawFd], &'a [&'a [u8]]),
}

/// The memory of one connection.
#[repr(C)]
pub(crate) struct Memory {
    receives: [Call; 2],
    sends: [Call; 2],
    commits: [Commit; 2],
    /// Which of them is true.
    current: AtomicU32,
    arrived: [UnsafeCell<[u8; READ]>; 2],
    rests: [UnsafeCell<[u8; READ]>; 2],
    out: UnsafeCell<[u8; OUT]>,
    places: [Place; 2],
    words: [AtomicU64; WORDS],
    heads: [AtomicU64; HEADS],
}

// SAFETY: zeros are good for integers, null pointers and bytes. What is not atomic is in cells, which only the holder of the
// one `Link` touches, and the kernel while that holder is in a call.
unsafe impl Shareable for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// What a receive found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Bytes came.
    Data,
    /// Nothing there.
    Empty,
    /// The peer has closed.
    Closed,
}

/// Where a test lets a worker die: before each store that the next worker can see, and before and after each call.
#[cfg(not(test))]
#[inline(always)]
fn step() {}
#[cfg(test)]
use tests::step;

fn store(word: &AtomicU64, value: u64) {
    step();
    word.store(value, Ordering::Release);
}

/// A connection in memory that outlives its worker. One at a time: the holder is the only one that changes it.
pub struct Link {
    memory: &'static Memory,
    /// The number of the latest receive, and of the latest send.
    receives: u64,
    sends: u64,
    /// The end of what [`Link::reply`] was given.
    staged: u64,
    /// The receive whose descriptors were taken, and the last of the worker before.
    taken: u64,
    resumed: u64,
}

impl Link {
    /// Goes on where the last worker that had this memory stopped; anew in new memory.
    pub(crate) fn resume(memory: &'static Memory) -> Self {
        let latest = |calls: &[Call; 2]| calls.iter().map(Call::number).max().unwrap_or(0);
        let mut link = Self {
            memory,
            receives: latest(&memory.receives),
            sends: latest(&memory.sends),
            staged: 0,
            taken: 0,
            resumed: latest(&memory.receives),
        };
        link.staged = link.committed().end.load(Ordering::Acquire);
        link
    }

    /// New memory that is shared with the children made from now on.
    pub(crate) fn memory() -> std::io::Result<&'static Memory> {
        let memory: &'static Memory = sys::share()?;
        Self::pin(memory)?;
        Ok(memory)
    }

    /// The kernel writes its numbers even when the caller is about to be killed, but for a page that is not there.
    pub(crate) fn pin(memory: &'static Memory) -> std::io::Result<()> {
        sys::lock(memory, std::mem::offset_of!(Memory, arrived))
    }

    /// A connection in new memory that no keeper knows of, for who measures what such memory costs.
    ///
    /// # Errors
    /// No memory is left.
    pub fn alone() -> std::io::Result<Self> {
        let memory = sys::share()?;
        // Where little memory may be locked, the pages are as good as always there.
        let _ = Self::pin(memory);
        Ok(Self::resume(memory))
    }

    pub(crate) fn words_of(memory: &'static Memory) -> &'static [AtomicU64; WORDS] {
        &memory.words
    }

    /// The words that are true as soon as they are stored.
    pub fn words(&self) -> &'static [AtomicU64; WORDS] {
        &self.memory.words
    }

    /// Such words too, for heads.
    pub fn heads(&self) -> &'static [AtomicU64] {
        &self.memory.heads
    }

    /// What the server was at the last commit: its descriptors, by their numbers, and its bytes. `None`: nothing that could go on.
    pub fn held(&self) -> Option<(Vec<RawFd>, &[u8])> {
        let place = self.held_at()?;
        let place = &self.memory.places[place];
        let files = place.files.load(Ordering::Acquire) as usize;
        let bytes = place.bytes.load(Ordering::Acquire) as usize;
        // SAFETY: `commit`, which takes `&mut self`, changes the other of the two.
        let (numbers, state) = unsafe { (&*place.numbers.get(), &*place.state.get()) };
        Some((numbers.get(..files)?.to_vec(), state.get(..bytes)?))
    }

    fn held_at(&self) -> Option<usize> {
        let at = self.committed().held.load(Ordering::Acquire);
        let at = usize::try_from(at.checked_sub(1)?).ok()?;
        (at < 2).then_some(at)
    }

    /// All descriptors that the next worker would need, by their numbers.
    pub(crate) fn all_numbers(&self) -> Vec<RawFd> {
        let Some((mut all, _)) = self.held() else {
            return Vec::new();
        };
        all.extend(self.descriptors());
        all
    }

    /// Takes over what [`Self::held`] names, once: the worker before owned it and is dead. One that is not there stands for all
    /// behind it.
    pub fn take_held(&mut self, numbers: &[RawFd]) -> Vec<OwnedFd> {
        let taken = numbers.iter().map_while(|number| sys::take_over(*number));
        taken.collect()
    }

    /// Takes over the descriptors of the arrival; a second time there are none.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        if self.taken == self.receives {
            return Vec::new();
        }
        let numbers = self.descriptors().into_iter();
        self.taken = self.receives;
        // Those that came in this process are here. (A thread that receives may not be allowed to ask.)
        if self.receives > self.resumed {
            return numbers.map(sys::came).collect();
        }
        numbers.map_while(sys::take_over).collect()
    }

    /// Forgets everything: another connection begins.
    pub fn reset(&mut self) {
        let end = self.sent();
        let commit = self.next_commit();
        store(&commit.applied, self.receives);
        store(&commit.end, end);
        store(&commit.rest, 0);
        for note in &commit.notes {
            store(note, 0);
        }
        store(&commit.held, 0);
        self.flip();
        self.staged = end;
    }

    fn current(&self) -> usize {
        self.memory.current.load(Ordering::Acquire) as usize & 1
    }

    fn committed(&self) -> &'static Commit {
        &self.memory.commits[self.current()]
    }

    fn next_commit(&self) -> &'static Commit {
        &self.memory.commits[1 - self.current()]
    }

    /// All that was stored before becomes true.
    fn flip(&self) {
        step();
        let other = 1 - self.current() as u32;
        self.memory.current.store(other, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// The latest receive.
    fn last(&self) -> &'static Call {
        &self.memory.receives[(self.receives & 1) as usize]
    }

    /// Bytes that came, have not been committed, and are therefore to be answered.
    pub fn arrival(&self) -> &[u8] {
        let applied = self.committed().applied.load(Ordering::Acquire);
        if self.receives <= applied {
            return &[];
        }
        let len = self.last().done().min(READ);
        let bytes = self.memory.arrived[(self.receives & 1) as usize].get();
        // SAFETY: the cell is changed by `receive` alone, which takes `&mut self`.
        unsafe { &(&*bytes)[..len] }
    }

    /// The descriptors that came with the arrival: their numbers.
    ///
    /// None of them may be closed before the arrival is committed: the next worker would take another file of that number
    /// for it. After it they are their taker's.
    pub fn descriptors(&self) -> Vec<RawFd> {
        if self.arrival().is_empty() {
            return Vec::new();
        }
        self.last().descriptors()
    }

    /// Whether the kernel dropped descriptors that came with the arrival: this process may not have so many, or not these.
    pub fn lacks_descriptors(&self) -> bool {
        !self.arrival().is_empty() && self.last().flags() & libc::MSG_CTRUNC != 0
    }

    /// What was committed as the beginning of a message whose end had not come.
    pub fn rest(&self) -> &[u8] {
        let commit = self.committed();
        let len = commit.rest.load(Ordering::Acquire) as usize;
        let bytes = self.memory.rests[self.current()].get();
        // SAFETY: `commit`, which takes `&mut self`, changes the other of the two.
        unsafe { &(&*bytes)[..len.min(READ)] }
    }

    /// The server's own words, as they were committed.
    pub fn notes(&self) -> [u64; NOTES] {
        let commit = self.committed();
        std::array::from_fn(|at| commit.notes[at].load(Ordering::Acquire))
    }

    /// Receives once, without waiting. What has arrived before must have been committed.
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Arrival, Errno> {
        debug_assert!(self.arrival().is_empty(), "an arrival would be lost");
        let number = self.receives + 1;
        let at = (number & 1) as usize;
        let call = &self.memory.receives[at];
        let into = self.memory.arrived[at].get().cast::<u8>();
        call.fill([(into, READ), (std::ptr::null_mut(), 0)], CONTROL * 8);
        store(&call.number, number);
        self.receives = number;
        step();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header and all it points to are in memory that is never unmapped, long enough, and ours alone.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                call.header.get(),
                1,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        step();
        match result {
            1 if call.done() > 0 => Ok(Arrival::Data),
            1 => Ok(Arrival::Closed),
            _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::AGAIN | Errno::INTR) => Ok(Arrival::Empty),
                errno => Err(errno.unwrap_or(Errno::IO)),
            },
        }
    }

    /// Bytes that are to be sent, or may be once they are committed.
    pub fn backlog(&self) -> usize {
        (self.staged - self.sent()) as usize
    }

    /// Whether [`Self::reply`] has room for so many bytes.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.backlog() + bytes <= OUT
    }

    /// Appends to the answer. False, and nothing is appended: there is no room until more has been sent.
    #[must_use]
    pub fn reply(&mut self, bytes: &[u8]) -> bool {
        if !self.has_room(bytes.len()) {
            return false;
        }
        let at = self.staged as usize % OUT;
        let (first, second) = bytes.split_at(bytes.len().min(OUT - at));
        let out = self.memory.out.get().cast::<u8>();
        // SAFETY: both pieces are within the cell, which nobody else changes; the kernel reads only what was committed before.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), out.add(at), first.len());
            std::ptr::copy_nonoverlapping(second.as_ptr(), out, second.len());
        }
        self.staged += bytes.len() as u64;
        true
    }

    /// What is committed and not sent.
    pub fn unsent(&self) -> Vec<u8> {
        let (sent, end) = (self.sent(), self.committed().end.load(Ordering::Acquire));
        // SAFETY: nobody changes the cell while we are borrowed.
        let out = unsafe { &*self.memory.out.get() };
        (sent..end).map(|at| out[at as usize % OUT]).collect()
    }

    /// Forgets what is committed and not sent: somebody else sends it.
    pub fn forget_unsent(&mut self) {
        let (rest, notes) = (self.rest().to_vec(), self.notes());
        self.staged = self.sent();
        self.commit(&rest, notes, Held::Nothing);
    }

    /// The arrival is done with, but for `rest`, and the replies are to be sent: all of it, or nothing if the worker dies first.
    ///
    /// # Panics
    /// `rest` is longer than [`READ`], or what the server is than [`FILES`] and [`STATE`].
    pub fn commit(&mut self, rest: &[u8], notes: [u64; NOTES], held: Held<'_>) {
        let held = self.put_held(held);
        let other = 1 - self.current();
        let commit = self.next_commit();
        step();
        let place = self.memory.rests[other].get().cast::<u8>();
        assert!(rest.len() <= READ, "a message is longer than it may be");
        // SAFETY: of the two this is the one that nobody borrows: `rest()` lends the other one.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), place, rest.len()) };
        store(&commit.rest, rest.len() as u64);
        store(&commit.applied, self.receives);
        store(&commit.end, self.staged);
        for (place, note) in commit.notes.iter().zip(notes) {
            store(place, note);
        }
        store(&commit.held, held);
        self.flip();
    }

    /// Puts what the server is into the place that is not believed. Returns what a commit says of it.
    fn put_held(&self, held: Held<'_>) -> u64 {
        let before = self.committed().held.load(Ordering::Acquire);
        let (files, pieces) = match held {
            Held::Same => return before,
            Held::Nothing => return 0,
            Held::New(files, pieces) => (files, pieces),
        };
        let at = usize::from(self.held_at() == Some(0));
        let place = &self.memory.places[at];
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(
            files.len() <= FILES && len <= STATE,
            "more than there is room for"
        );
        step();
        let (numbers, mut to) = (
            place.numbers.get().cast::<RawFd>(),
            place.state.get().cast::<u8>(),
        );
        // SAFETY: of the two places this is the one that no commit names; nobody borrows it, and both lists fit.
        unsafe {
            std::ptr::copy_nonoverlapping(files.as_ptr(), numbers, files.len());
            for piece in pieces {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
                to = to.add(piece.len());
            }
        }
        store(&place.files, files.len() as u64);
        store(&place.bytes, len as u64);
        at as u64 + 1
    }

    /// How much of the stream has been sent.
    fn sent(&self) -> u64 {
        let call = &self.memory.sends[(self.sends & 1) as usize];
        call.start.load(Ordering::Acquire) + call.done() as u64
    }

    /// Sends what is committed, as much as the socket takes. True when nothing is left.
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        loop {
            let (sent, end) = (self.sent(), self.committed().end.load(Ordering::Acquire));
            let len = end.saturating_sub(sent) as usize;
            if len == 0 {
                return Ok(true);
            }
            let number = self.sends + 1;
            let call = &self.memory.sends[(number & 1) as usize];
            let out = self.memory.out.get().cast::<u8>();
            let at = sent as usize % OUT;
            let first = len.min(OUT - at);
            // SAFETY: `at` is inside of the cell.
            let from = unsafe { out.add(at) };
            call.fill([(from, first), (out, len - first)], 0);
            store(&call.start, sent);
            store(&call.number, number);
            self.sends = number;
            step();
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: as in `receive`; the kernel only reads the bytes.
            let result =
                unsafe { libc::sendmmsg(socket.as_raw_fd(), call.header.get(), 1, flags as _) };
            step();
            if result != 1 {
                match Errno::from_io_error(&std::io::Error::last_os_error()) {
                    Some(Errno::INTR) => {}
                    Some(Errno::AGAIN) => return Ok(false),
                    errno => return Err(errno.unwrap_or(Errno::IO)),
                }
            }
        }
    }
}

impl Call {
    fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Bytes that the kernel says it has moved: 0 if the call was never made.
    fn done(&self) -> usize {
        // SAFETY: the kernel writes it within a call, which is over; nobody else does but the holder of the link.
        unsafe { (*self.header.get()).msg_len as usize }
    }

    /// What the kernel says of a receive, beside its bytes.
    fn flags(&self) -> i32 {
        // SAFETY: as above.
        unsafe { (*self.header.get()).msg_hdr.msg_flags }
    }

    /// Makes the header of a call that is not believed yet.
    fn fill(&self, pieces: [(*mut u8, usize); 2], control: usize) {
        step();
        // Before anything else of it changes: half a header must not look like one that was used.
        // SAFETY: only the holder of the link changes headers, and none is lent.
        unsafe { (*self.header.get()).msg_len = 0 };
        compiler_fence(Ordering::SeqCst);
        step();
        let used = if pieces[1].1 > 0 { 2 } else { 1 };
        let pieces = pieces.map(|(base, len)| libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        });
        // SAFETY: as above; the pointers are to this very memory.
        unsafe {
            self.pieces.get().write(pieces);
            let header = &mut (*self.header.get()).msg_hdr;
            header.msg_name = std::ptr::null_mut();
            header.msg_namelen = 0;
            header.msg_iov = self.pieces.get().cast();
            header.msg_iovlen = used;
            header.msg_control = match control {
                0 => std::ptr::null_mut(),
                _ => self.control.get().cast(),
            };
            header.msg_controllen = control as _;
            header.msg_flags = 0;
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// What a receive got beside bytes.
    #[allow(
        clippy::unnecessary_cast,
        reason = "not every C library has the same type there"
    )]
    fn descriptors(&self) -> Vec<RawFd> {
        // SAFETY: the kernel has written both within a call that is over.
        let (control, len) = unsafe {
            let header = &(*self.header.get()).msg_hdr;
            (&*self.control.get(), header.msg_controllen as usize)
        };
        let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut left = &bytes[..len.min(bytes.len())];
        let mut found = Vec::new();
        // Each is its length (8 bytes, itself included), level, type, and data up to the next multiple of 8.
        while let Some((head, _)) = left.split_first_chunk::<CMSG>() {
            let word = |at: usize| {
                i32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let len = u64::from_ne_bytes(std::array::from_fn(|at| head[at])) as usize;
            if len < CMSG || len > left.len() {
                break;
            }
            if (word(8), word(12)) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let (numbers, _) = left[CMSG..len].as_chunks::<4>();
                found.extend(numbers.iter().map(|number| RawFd::from_ne_bytes(*number)));
            }
            left = left.get(len.next_multiple_of(8)..).unwrap_or(&[]);
        }
        found
    }
}

#[cfg(test)]
#[path = "exact_tests.rs"]
mod tests;
