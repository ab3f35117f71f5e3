//! What Rust's standard library has no word for: a child that shares the table of descriptors, memory that both see, and
//! signals that are waited for.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Pid, Signal};

/// A type that several processes may have in one memory.
///
/// # Safety
/// It is good when all its bytes are zero. What others may change at the same time is atomic; what is not is in cells, and
/// changed by one process at a time.
pub(crate) unsafe trait Shareable {}

/// New zeroed memory, shared with the children that are made from now on. It stays until the process ends.
pub(crate) fn share<T: Shareable>() -> io::Result<&'static T> {
    let len = size_of::<T>();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours. Mappings are aligned to pages.
    let base = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            prot,
            MapFlags::SHARED | MapFlags::NORESERVE,
        )
    }?;
    // SAFETY: the mapping is long enough, zeroed and never unmapped; `Shareable` says that zeros are a value of `T` and that
    // what changes under a shared reference is atomic or in a cell.
    Ok(unsafe { &*base.cast::<T>() })
}

/// The memory that a file has, shared with everybody who has the file. It stays until the process ends, and is in no core dump.
///
/// The file is as long as `T` at least, and nobody cuts it off: it is in memory, and only workers have it.
pub(crate) fn share_file<T: Shareable>(file: BorrowedFd<'_>) -> io::Result<&'static T> {
    let len = size_of::<T>();
    if rustix::fs::fstat(file)?.st_size < i64::try_from(len).unwrap_or(i64::MAX) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours. Mappings are aligned to pages.
    let base =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0) }?;
    // SAFETY: the advice changes nothing in the mapping, which is ours.
    let _ = unsafe { rustix::mm::madvise(base, len, rustix::mm::Advice::LinuxDontDump) };
    // SAFETY: the mapping is long enough and never unmapped; `Shareable` says that what changes under a shared reference is atomic or
    // in a cell. What is in the file was written through the same type, or is zeros; all bytes are values of its integers.
    Ok(unsafe { &*base.cast::<T>() })
}

/// Makes a child with a copy of our memory and with our table of descriptors, not a copy of that. `None`: we are the child.
///
/// The caller is the only thread of its process.
pub(crate) fn fork_sharing_descriptors() -> io::Result<Option<Pid>> {
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: without CLONE_VM and with no stack given this is `fork`: the child goes on here with a copy of the only thread,
    // so no lock of another thread stays taken in its memory.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(pid) if pid >= 0 => Ok(Pid::from_raw(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes over an open descriptor by its number. `None` if there is none.
///
/// The caller has it from the worker before, which owned it and is dead: nobody else in this process does.
pub(crate) fn take_over(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_GETFD only asks whether the number is in use.
    let open = number > 2 && unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    // SAFETY: it is open, and its owner has left it to us (above).
    open.then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// Takes a descriptor that the kernel has given to this process just now, in a message.
///
/// Each is taken once: its caller notes of which message it has taken them.
pub(crate) fn came(number: RawFd) -> OwnedFd {
    // SAFETY: the kernel opened it for us, and nobody else knows its number yet.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Asks the kernel about a number, which may be that of no open file.
fn ask<T>(number: RawFd, call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>) -> Option<T> {
    if number < 0 {
        return None;
    }
    // SAFETY: borrowed for one call, which fails if it is not open.
    call(unsafe { BorrowedFd::borrow_raw(number) }).ok()
}

/// A descriptor of the same open file. `None`: no file has that number.
pub(crate) fn duplicate(number: RawFd) -> Option<OwnedFd> {
    ask(number, |file| rustix::io::fcntl_dupfd_cloexec(file, 3))
}

/// Says whether a descriptor is to be closed when the process becomes another program.
pub(crate) fn close_on_exec(number: RawFd, on: bool) {
    let flag = if on { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: changes a flag of a number in our table, or fails if no file has it.
    unsafe { libc::fcntl(number, libc::F_SETFD, flag) };
}

/// Device and inode of an open file. `None`: no file has that number.
pub(crate) fn identity(number: RawFd) -> Option<[u64; 2]> {
    let stat = ask(number, |file| rustix::fs::fstat(file))?;
    Some([stat.st_dev, stat.st_ino])
}

/// A set of signals as the kernel has it.
pub(crate) struct Signals(libc::sigset_t);

/// A signal that came.
pub(crate) struct Came {
    pub(crate) number: i32,
    /// A terminal sent it, to all processes of its group.
    pub(crate) from_terminal: bool,
}

impl Signals {
    /// Has this thread, and those it makes, not be interrupted by these signals; gives what was blocked before.
    pub(crate) fn block(which: &[Signal]) -> io::Result<(Self, Self)> {
        // SAFETY: a set of plain bits, which `sigemptyset` then makes empty.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: as above, the old set, which `sigprocmask` fills.
        let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: all pointers are to sets of our own.
        let result = unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in which {
                libc::sigaddset(&raw mut set, signal.as_raw());
            }
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before)
        };
        match result {
            0 => Ok((Self(set), Self(before))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes these out of the set.
    pub(crate) fn remove(&mut self, which: &[Signal]) {
        for signal in which {
            // SAFETY: the set is ours.
            unsafe { libc::sigdelset(&raw mut self.0, signal.as_raw()) };
        }
    }

    /// Blocks these and no others.
    pub(crate) fn become_blocked(&self) {
        // SAFETY: the set is ours, and no old one is asked for.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Waits for one of them; `None` after `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<Came> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: plain data that the call fills.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: all three are ours and live through the call.
        let number =
            unsafe { libc::sigtimedwait(&raw const self.0, &raw mut info, &raw const timeout) };
        (number > 0).then_some(Came {
            number,
            from_terminal: info.si_code == libc::SI_KERNEL,
        })
    }
}

/// Keeps the first `len` bytes of shared memory from ever being paged out.
pub(crate) fn lock<T: Shareable>(memory: &'static T, len: usize) -> io::Result<()> {
    let base = std::ptr::from_ref(memory).cast_mut().cast();
    // SAFETY: the memory is mapped for as long as the process lives, and locking changes nothing in it.
    unsafe { rustix::mm::mlock(base, len.min(size_of::<T>())) }?;
    Ok(())
}

/// The system's allocator, for the whole program. Where it has no memory, which ends a program of Rust, it notes that before: no NIC
/// is suspected then.
#[derive(Debug)]
pub struct Allocator;

static NO_MEMORY: OnceLock<fn()> = OnceLock::new();

/// Has this called where the allocator has no memory. It stores atomics, and nothing more.
pub(crate) fn on_no_memory(note: fn()) {
    let _ = NO_MEMORY.set(note);
}

/// Notes that there was no memory.
#[inline]
fn noted(memory: *mut u8) -> *mut u8 {
    if memory.is_null()
        && let Some(note) = NO_MEMORY.get()
    {
        note();
    }
    memory
}

// SAFETY: each call is the system's allocator's with the caller's promises, and what it returns is returned. Noting stores an atomic
// and takes no memory.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        noted(unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        noted(unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises.
        noted(unsafe { System.realloc(memory, layout, size) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(memory, layout) }
    }
}
