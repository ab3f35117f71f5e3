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
use std::sync::atomic::{AtomicU32, Ordering};

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

/// `struct aio_ring` of `fs/aio.c`, which the kernel maps where an `aio_context_t` points: results are between `head`, which
/// the process moves, and `tail`, which the kernel moves.
#[repr(C)]
struct Ring {
    id: u32,
    size: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_length: u32,
}

/// `AIO_RING_MAGIC`.
const MAGIC: u32 = 0xa10a_10a1;

/// An `aio_context_t`. There for as long as the process.
struct Context {
    id: libc::c_ulong,
    ring: &'static Ring,
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
        let ring = std::ptr::with_exposed_provenance::<Ring>(id as usize);
        // SAFETY: the kernel maps a page or more there, which begins with the ring and stays until `io_destroy`, which nobody
        // calls. Of its fields only the atomic ones change.
        let ring = unsafe { ring.as_ref() }.ok_or(Errno::NOSYS)?;
        // Another kernel's results may lie elsewhere. They would have to be fetched by a call that a worker may not make.
        if ring.magic != MAGIC || ring.incompatible != 0 {
            return Err(Errno::NOSYS);
        }
        Ok(Self { id, ring, used: 0 })
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

    /// Throws away the results so far. A read of nothing is over before its `io_submit` is, so all are there. (It is what
    /// `io_getevents` does, without a system call.)
    fn forget(&mut self) {
        let tail = self.ring.tail.load(Ordering::Acquire);
        self.ring.head.store(tail, Ordering::Release);
        self.used = 0;
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
    fn results_are_thrown_away_without_a_system_call() {
        let event = event::EventFd::new().expect("an eventfd");
        let nothing = rustix::fs::memfd_create("nothing", MemfdFlags::CLOEXEC).expect("a file");
        let mut context = Context::new().expect("no asynchronous I/O here");
        // More than there is room for, by far.
        for _ in 0..100 {
            for n in 1..=ROOM / 2 {
                context
                    .submit(nothing.as_fd(), event.as_fd())
                    .expect("poke");
                assert_eq!(context.used, n);
            }
            let Ring { head, tail, .. } = context.ring;
            let (head, tail) = (head.load(Ordering::Relaxed), tail.load(Ordering::Relaxed));
            let held = (tail + context.ring.size - head) % context.ring.size;
            assert_eq!(held, context.used, "the kernel keeps them in another place");
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
