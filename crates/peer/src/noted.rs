//! Bytes of a stream socket that are moved once, whoever dies: calls whose outcome the kernel notes in shared memory.
//!
//! After `read` or `write` a process that is killed leaves nothing behind, not even whether anything was moved. The calls for
//! several messages (`recvmmsg`, `sendmmsg`, of one message each) have a header for each message, where the kernel notes within
//! the call how many bytes it moved, and a signal that kills acts only when the call is over. So the header lies in memory that
//! outlives the process, with one word that says where the stream stood before the call, and whether it may have been made.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::io::Errno;

use crate::shared_mem::SharedMem;

/// Twice the bytes that were moved before the last call, and one more while that may be under way.
const STATE: usize = 0;
const HEADER: usize = 8;
const PIECES: usize = HEADER + size_of::<libc::mmsghdr>();
const UNDER_WAY: u64 = 1;

/// A part of the memory: from where, and how many bytes.
pub type Piece = (usize, usize);

/// One direction of a stream. One at a time: its holder is the only one that uses its place.
#[derive(Debug)]
pub struct Noted {
    memory: SharedMem,
    at: usize,
}

const _: () = assert!(PIECES + size_of::<[libc::iovec; 2]>() <= Noted::BYTES);

/// Where a test lets the process die: before each store that the next one can see, and before and after each call.
#[cfg(not(test))]
#[inline(always)]
fn step() {}
#[cfg(test)]
use tests::step;

impl Noted {
    /// Bytes of its place.
    pub const BYTES: usize = 128;

    /// What stands at `at` of the memory, a multiple of 8: nothing in new memory, or what another process has left.
    pub fn resume(memory: SharedMem, at: usize) -> Self {
        let mut noted = Self { memory, at };
        noted.stand(noted.moved());
        noted
    }

    /// The stream begins.
    pub fn begin(&mut self) {
        self.stand(0);
    }

    /// Bytes moved since it began.
    pub fn moved(&self) -> u64 {
        let state = self.memory.load_u64(self.at + STATE, Ordering::Acquire);
        let now = if state & UNDER_WAY == 0 {
            0
        } else {
            self.noted()
        };
        (state >> 1).wrapping_add(now)
    }

    /// Bytes that the kernel says it has moved: 0 if the call was not made.
    fn noted(&self) -> u64 {
        let header = self.header();
        // SAFETY: `header` is in memory that lives as long as `self`; the kernel writes there within a call, which is over.
        unsafe { (&raw const (*header).msg_len).read_volatile() }.into()
    }

    fn header(&self) -> *mut libc::mmsghdr {
        let at = self.at + HEADER;
        self.memory.at(at, size_of::<libc::mmsghdr>()).cast()
    }

    /// No call is under way, and so many bytes were moved.
    fn stand(&mut self, moved: u64) {
        self.store(moved << 1);
    }

    fn store(&mut self, state: u64) {
        step();
        let at = self.at + STATE;
        self.memory.store_u64(at, state, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// Makes the header of a call, and says that it may be under way.
    fn prepare(&mut self, pieces: [Piece; 2]) -> *mut libc::mmsghdr {
        let used = if pieces[1].1 > 0 { 2 } else { 1 };
        let pieces = pieces.map(|(at, len)| libc::iovec {
            iov_base: self.memory.at(at, len).cast(),
            iov_len: len,
        });
        let space = size_of::<[libc::iovec; 2]>();
        let list = self.memory.at(self.at + PIECES, space);
        let list = list.cast::<[libc::iovec; 2]>();
        let header = self.header();
        let moved = self.moved();
        step();
        // SAFETY: both places are in memory that lives as long as `self`, aligned as `at` is, and apart from each other; nobody else
        // uses them, and all bytes are values of what is there.
        unsafe {
            list.write(pieces);
            (&raw mut (*header).msg_len).write_volatile(0);
            let header = &raw mut (*header).msg_hdr;
            (*header).msg_name = std::ptr::null_mut();
            (*header).msg_namelen = 0;
            (*header).msg_iov = list.cast();
            (*header).msg_iovlen = used;
            (*header).msg_control = std::ptr::null_mut();
            (*header).msg_controllen = 0;
            (*header).msg_flags = 0;
        }
        compiler_fence(Ordering::SeqCst);
        self.store(moved << 1 | UNDER_WAY);
        step();
        header
    }

    /// The call is over; says how many bytes it moved.
    fn done(&mut self, result: i32) -> Result<usize, Errno> {
        let errno = (result != 1).then(|| Errno::from_io_error(&std::io::Error::last_os_error()));
        step();
        let moved = self.moved();
        let now = self.noted();
        self.stand(moved);
        match errno {
            None => Ok(now as usize),
            Some(errno) => Err(errno.unwrap_or(Errno::IO)),
        }
    }

    /// Receives once into these parts of the memory, without waiting. `Ok(0)`: the peer has sent its last.
    ///
    /// # Errors
    /// `AGAIN`: nothing now. Any other: the socket is of no use any more.
    ///
    /// # Panics
    /// If a part is beyond the memory.
    pub fn receive(&mut self, socket: impl AsFd, into: [Piece; 2]) -> Result<usize, Errno> {
        let header = self.prepare(into);
        let fd = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the header, and all that it points to, is in memory that lives as long as `self`; `at` has checked each part.
        let result = unsafe { libc::recvmmsg(fd, header, 1, flags as _, std::ptr::null_mut()) };
        self.done(result)
    }

    /// Sends what the socket takes now of these parts of the memory.
    ///
    /// # Errors
    /// As those of [`Noted::receive`].
    ///
    /// # Panics
    /// As [`Noted::receive`].
    pub fn send(&mut self, socket: impl AsFd, from: [Piece; 2]) -> Result<usize, Errno> {
        let header = self.prepare(from);
        let fd = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: as in `receive`.
        let result = unsafe { libc::sendmmsg(fd, header, 1, flags as _) };
        self.done(result)
    }
}

#[cfg(test)]
#[path = "noted_tests.rs"]
mod tests;
