//! The last line of a process that made a system call that it may not make.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::Write as _;

use threads::Kind;

use crate::calls;

thread_local! {
    // Without a destructor and without lazy initialisation: a signal handler reads it.
    static KIND: Cell<Option<Kind>> = const { Cell::new(None) };
}

/// What this thread is.
pub(crate) fn set_kind(kind: Kind) {
    KIND.set(Some(kind));
}

/// Has the process say which call it was before it ends.
pub(crate) fn install() {
    // SAFETY: all zeros is an empty set of flags and signals.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *const libc::siginfo_t, *mut c_void) = told;
    action.sa_sigaction = handler as usize;
    // Once: what the handler may not do ends the process, too.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: the handler only formats into its own stack and makes system calls.
    unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) };
}

extern "C" fn told(_signal: c_int, info: *const libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel's siginfo for SIGSYS (sigaction(2)): three ints, padding to the pointer `si_call_addr` at 16,
    // then the int `si_syscall`.
    let number = unsafe { info.cast::<c_int>().add(6).read() };
    let mut line = [0u8; 256];
    let mut rest = &mut line[..];
    let kind = KIND.get().map_or("process", |kind| calls::of(kind).0);
    let name = calls::name(number.into()).unwrap_or("?");
    let _ = writeln!(
        rest,
        "hypernic: the sandbox ends the daemon: a {kind} thread made the system call {name} ({number}), which it may \
         not; report this; --sandbox log lets it pass"
    );
    let left = rest.len();
    let said = &line[..line.len() - left];
    // SAFETY: `said` is readable; 2 is standard error, or nothing.
    unsafe { libc::write(2, said.as_ptr().cast(), said.len()) };
    // By the default action now; and if this call is not allowed either, that ends it as well.
    // SAFETY: a system call without memory.
    unsafe { libc::raise(libc::SIGSYS) };
}
