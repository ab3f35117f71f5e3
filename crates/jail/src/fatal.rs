//! What a process says that made a system call that it may not make, and what becomes of it: in a strict sandbox it ends,
//! else the call fails.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::calls;

thread_local! {
    // Without a destructor and without lazy initialisation: a signal handler reads it.
    static KIND: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// It writes the line about another call.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether such a call ends the process.
static ENDS: AtomicBool = AtomicBool::new(true);
/// How many have failed.
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Lines about calls that failed: who makes one makes it again and again.
const LINES: u64 = 16;

/// System calls that have failed because they may not be made.
pub(crate) fn failed() -> u64 {
    FAILED.load(Ordering::Relaxed)
}

/// What this thread is.
pub(crate) fn set_kind(kind: &'static str) {
    KIND.set(Some(kind));
}

/// Has the allocator know what it would open files for later, on any thread: how many arenas there may be, as many as it would
/// allow anyway (else it counts processors when it first has more than eight), and how the kernel overcommits memory (it asks
/// when a thread's arena first gives some back).
pub(crate) fn settle_allocator() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let arenas = c_int::try_from(8 * processors).unwrap_or(c_int::MAX);
        // SAFETY: changes a number of the allocator's, which takes its own lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
        // Each too small for a mapping of its own, and all together more than an arena keeps.
        let give_back = || {
            let blocks: Vec<Vec<u8>> = (0..32).map(|_| Vec::with_capacity(64 << 10)).collect();
            drop(std::hint::black_box(blocks));
        };
        if let Ok(thread) = threads::spawn("allocator", give_back) {
            let _ = thread.join();
        }
    }
}

/// Leaves the process's signals to other threads: their handlers make calls that this thread may not. What the thread
/// causes itself still reaches it. (A process without other threads hears none, but SIGKILL.)
pub fn leave_signals() {
    // SAFETY: sets of signals on our stack; only this thread's mask changes.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for own in [
            libc::SIGBUS,
            libc::SIGSEGV,
            libc::SIGSYS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGABRT,
        ] {
            libc::sigdelset(&mut set, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// What is called on a thread that faults.
static NOTE: OnceLock<fn()> = OnceLock::new();

/// Has what a thread must not do (it uses memory that is not there, or an instruction that is none) end the process at once. Before
/// that `note` is called on that thread, by a handler of signals: it may store atomics, and nothing more.
///
/// The standard library has a handler that asks the kernel for the end by a call that threads which serve NICs may not make:
/// the fault would come again for ever.
pub fn end_on_faults(note: fn()) {
    let _ = NOTE.set(note);
    for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE] {
        // SAFETY: all zeros is an empty set of flags and signals.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(c_int, *const libc::siginfo_t, *mut c_void) = faulted;
        action.sa_sigaction = handler as usize;
        // The stack may be what is at its end. The same fault comes again when the handler returns, and is not handled then.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: the handler reads what the kernel gave it and calls a function that only stores atomics.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

extern "C" fn faulted(_signal: c_int, info: *const libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel's siginfo (sigaction(2)).
    let by_itself = unsafe { (*info).si_code } > 0;
    if by_itself && let Some(note) = NOTE.get() {
        note();
    }
}

/// Has the process say which call it was. Then it ends, or the call fails.
pub(crate) fn install(ends: bool) {
    ENDS.store(ends || !CAN_FAIL, Ordering::Relaxed);
    // SAFETY: all zeros is an empty set of flags and signals.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *const libc::siginfo_t, *mut c_void) = told;
    action.sa_sigaction = handler as usize;
    // On the thread's own stack: at its end it has no other.
    action.sa_flags = libc::SA_SIGINFO;
    if !ENDS.load(Ordering::Relaxed) {
        // The handler's own line may be such a call, too. Where calls end the process, one within the handler does so at
        // once: the signal is blocked there.
        action.sa_flags |= libc::SA_NODEFER;
    }
    // SAFETY: the handler only formats into its own stack and makes system calls.
    unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) };
}

/// Whether a call can be made to fail on this machine: it is known where its result is.
const CAN_FAIL: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Puts the result of a call that was not made where the thread looks for it.
fn fail(context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's context of the interrupted thread, on our stack (sigaction(2)).
    unsafe {
        (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::EPERM);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        (*context).uc_mcontext.regs[0] = (-i64::from(libc::EPERM)) as u64;
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = context;
}

/// Closes all descriptors from this one on. For a program that has just begun: it owns none of them yet, and has no use for
/// what the program before it has left open.
///
/// # Errors
/// The kernel cannot.
pub fn close_from(first: u32) -> std::io::Result<()> {
    // SAFETY: numbers only; the caller owns no descriptor among them.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

extern "C" fn told(_signal: c_int, info: *const libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's siginfo for SIGSYS (sigaction(2)): three ints, padding to the pointer `si_call_addr` at 16,
    // then the int `si_syscall`.
    let number = unsafe { info.cast::<c_int>().add(6).read() };
    if ENDS.load(Ordering::Relaxed) {
        tell(number, "ends its process");
        // Another thread may be here, too, and has its own line to write. If this call is not allowed, it ends the process.
        // SAFETY: system calls without memory of ours; the default action needs no handler.
        unsafe {
            libc::signal(libc::SIGSYS, libc::SIG_DFL);
            libc::raise(libc::SIGSYS);
        }
        return;
    }
    // If it was this line's own call, nothing more can be said.
    let within = TELLING.replace(true);
    if FAILED.fetch_add(1, Ordering::Relaxed) < LINES && !within {
        tell(number, "let a system call fail");
    }
    TELLING.set(within);
    fail(context);
}

fn tell(number: c_int, what: &str) {
    let mut line = [0u8; 256];
    let mut rest = &mut line[..];
    let kind = KIND.get().unwrap_or("process");
    let name = calls::name(number.into()).unwrap_or("?");
    let _ = writeln!(
        rest,
        "hypernic: the sandbox {what}: a {kind} thread made the system call {name} ({number}), which it may not; \
         report this; --sandbox log lets it pass"
    );
    let left = rest.len();
    let said = &line[..line.len() - left];
    let piece = libc::iovec {
        iov_base: said.as_ptr().cast_mut().cast(),
        iov_len: said.len(),
    };
    // The one call that writes which every kind of thread may make.
    // SAFETY: one piece, which is readable; 2 is standard error, or nothing.
    unsafe { libc::writev(2, &raw const piece, 1) };
}
