//! Adds one to a peer's eventfd without ever waiting for that peer.
//!
//! `write` to an eventfd waits while its count is at its most, unless the open file is
//! non-blocking. But the open file is the peer's too: it may fill the count and clear that flag at
//! any moment, however often we look. The thread that raises an interrupt may be another guest's
//! that delivers a frame, and must not wait. The kernel's own signals never wait (they saturate),
//! and asynchronous I/O asks for one: an operation may name an eventfd that is signalled at its
//! end (`IOCB_FLAG_RESFD`, `io_submit(2)`). So we read nothing, from an empty file of our own.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

#[cfg(not(target_env = "musl"))]
use libc::iocb as Operation;

/// `struct iocb` of `linux/aio_abi.h`, which musl does not have.
#[cfg(all(target_env = "musl", target_endian = "little"))]
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads them")]
struct Operation {
    aio_data: u64,
    aio_key: u32,
    aio_rw_flags: u32,
    aio_lio_opcode: u16,
    aio_reqprio: i16,
    aio_fildes: u32,
    aio_buf: u64,
    aio_nbytes: u64,
    aio_offset: i64,
    aio_reserved2: u64,
    aio_flags: u32,
    aio_resfd: u32,
}

/// `IOCB_CMD_PREAD` and `IOCB_FLAG_RESFD` of `linux/aio_abi.h`.
const PREAD: u16 = 0;
const RESFD: u32 = 1;

/// Contexts, so that threads seldom meet.
const CONTEXTS: usize = 8;

/// Operations a context holds before their results are thrown away.
const ROOM: u32 = 64;

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event([u64; 4]);

/// An `aio_context_t`. There for as long as the process.
struct Context {
    id: libc::c_ulong,
    used: u32,
}

struct Pool {
    contexts: Vec<Mutex<Context>>,
    /// For those who may be slow, so that no other waits for them.
    slow: Mutex<Context>,
    /// An empty file.
    nothing: OwnedFd,
}

fn pool() -> Option<&'static Pool> {
    static POOL: OnceLock<Option<Pool>> = OnceLock::new();
    POOL.get_or_init(|| {
        let nothing = rustix::fs::memfd_create("nothing", MemfdFlags::CLOEXEC).ok()?;
        let slow = Mutex::new(Context::new().ok()?);
        let contexts: Vec<_> = std::iter::repeat_with(Context::new)
            .take(CONTEXTS)
            .map_while(|context| context.ok().map(Mutex::new))
            .collect();
        (!contexts.is_empty()).then_some(Pool {
            contexts,
            slow,
            nothing,
        })
    })
    .as_ref()
}

/// Makes everything ready, so that the first interrupt is like any other.
pub fn prepare() {
    pool();
}

/// Adds one to the eventfd; at its most it stays there.
///
/// # Errors
/// It is no eventfd. Where the kernel has no asynchronous I/O (or `fs.aio-max-nr` is used up) it is
/// an ordinary write, and `AGAIN` says that the count is at its most.
pub fn poke(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let Some(pool) = pool() else {
        return crate::event::signal(fd);
    };
    pool.take().submit(pool.nothing.as_fd(), fd)
}

/// The same, where waking the eventfd's readers may take long.
pub fn poke_slowly(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let Some(pool) = pool() else {
        return crate::event::signal(fd);
    };
    pool.slow.lock().submit(pool.nothing.as_fd(), fd)
}

impl Pool {
    /// A context that is not in use, if there is one.
    fn take(&self) -> MutexGuard<'_, Context> {
        let free = self.contexts.iter().find_map(Mutex::try_lock);
        free.unwrap_or_else(|| self.contexts[0].lock())
    }
}

fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(result)
}

impl Context {
    fn new() -> Result<Self, Errno> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the call writes one word, to `id`.
        check(unsafe { libc::syscall(libc::SYS_io_setup, ROOM, &raw mut id) })?;
        Ok(Self { id, used: 0 })
    }

    fn submit(&mut self, nothing: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.used >= ROOM / 2 {
            self.forget();
        }
        // SAFETY: a plain structure of integers, for which zeros are good.
        let mut operation: Operation = unsafe { std::mem::zeroed() };
        operation.aio_lio_opcode = PREAD;
        operation.aio_fildes = nothing.as_raw_fd() as u32;
        operation.aio_flags = RESFD;
        operation.aio_resfd = fd.as_raw_fd() as u32;
        let mut list = [&raw mut operation];
        // SAFETY: one operation, which lives until the call is over; the kernel copies it, and it
        // names no memory of ours: its length is 0.
        check(unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, list.as_mut_ptr()) })?;
        self.used += 1;
        Ok(())
    }

    /// Throws away the results so far. A read of nothing is over before its `io_submit` is.
    fn forget(&mut self) {
        let mut events = [Event([0; 4]); ROOM as usize];
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: at most `ROOM` results are written to an array of so many.
        let got = check(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                0,
                libc::c_long::from(ROOM),
                events.as_mut_ptr(),
                &raw mut now,
            )
        });
        let got = got.map_or(0, |n| u32::try_from(n).unwrap_or(0));
        self.used = self.used.saturating_sub(got);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;

    #[test]
    fn every_poke_counts_one() {
        let event = event::EventFd::new().expect("an eventfd");
        for n in 1..1000u64 {
            for _ in 0..n % 90 {
                poke(event.as_fd()).expect("poke");
            }
            assert_eq!(event.take(), n % 90);
        }
    }

    #[test]
    fn a_full_count_on_a_blocking_eventfd_holds_up_nobody() {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        let full = rustix::event::eventfd(0, flags).expect("an eventfd");
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).expect("fill");
        assert!(pool().is_some(), "no asynchronous I/O here");
        for _ in 0..100 {
            poke(full.as_fd()).expect("poke");
        }
        assert_eq!(event::try_take(full.as_fd()), Ok(u64::MAX));
        // Nor does looking at it, now that it is empty.
        assert_eq!(event::try_take(full.as_fd()), Err(Errno::AGAIN));
    }

    #[test]
    fn threads_poke_side_by_side() {
        let event = event::EventFd::new().expect("an eventfd");
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        poke(event.as_fd()).expect("poke");
                    }
                });
            }
        });
        assert_eq!(event.take(), 6000);
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        for fd in [&read, &write] {
            assert_eq!(poke(fd.as_fd()), Err(Errno::INVAL));
        }
    }
}
