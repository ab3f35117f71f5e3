//! Which system calls a thread may make, by its kind.

use threads::Kind;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name.
    pub name: &'static str,
    /// Its number on this machine.
    pub number: i64,
}

/// These calls, by the names that `libc` has for their numbers.
macro_rules! calls {
    ($($number:ident)*) => {
        &[$(Call { name: stringify!($number).split_at("SYS_".len()).1, number: libc::$number }),*]
    };
}

/// Calls of threads that serve NICs: messages, interrupts, memory, locks. Everything else is done for them by others
/// ([`threads::apart`]).
pub const DATA: &[Call] = calls! {
    // VMMs' sockets; with a keeper, by `recvmmsg` instead of `recvmsg`. All is sent by `sendmmsg`.
    SYS_recvmmsg SYS_recvmsg SYS_sendmmsg
    // Who is ready, and when.
    SYS_clock_gettime SYS_epoll_ctl SYS_epoll_pwait SYS_ppoll SYS_timerfd_settime
    // Interrupts, wakes, TAPs.
    SYS_io_submit SYS_preadv2 SYS_writev
    // The allocator, and the guard that puts pages under a file that was cut off.
    SYS_brk SYS_mmap SYS_mprotect SYS_munmap SYS_rt_sigreturn
    // Locks, descriptors of our own, the end.
    SYS_close SYS_exit SYS_futex SYS_sched_yield
};

/// Calls that libraries make and can do without: they fail.
pub const REFUSED: &[Call] = calls! {
    // The allocator tries the next way, or keeps what it has. (It would take the error of `brk` for a place.)
    SYS_madvise SYS_mremap
    // At the end of a thread.
    SYS_rt_sigprocmask SYS_sigaltstack
    // After a stop: who waits begins again.
    SYS_restart_syscall
};

/// The same where the standard library asks whether a descriptor that it closes is open.
#[cfg(debug_assertions)]
pub const CHECKED: &[Call] = calls! { SYS_fcntl };
/// No such questions.
#[cfg(not(debug_assertions))]
pub const CHECKED: &[Call] = &[];

/// Calls of threads that bring frames in from a TAP, a user network's process or another switch: they deliver to NICs as
/// workers do, and have no VMM's socket.
pub const PORT: &[Call] = calls! {
    // The network's process, and other ports of the switch.
    SYS_recvmsg SYS_sendmmsg
    // Who is ready, and when.
    SYS_clock_gettime SYS_ppoll
    // Interrupts, wakes, TAPs.
    SYS_io_submit SYS_preadv2 SYS_writev
    // As those of `DATA`.
    SYS_brk SYS_mmap SYS_mprotect SYS_munmap SYS_rt_sigreturn
    SYS_close SYS_exit SYS_futex SYS_sched_yield
};

/// Calls of threads that bring frames in from a stream or a vhost-user back end, besides those of [`PORT`]: they connect.
pub const NETWORK: &[Call] = calls! { SYS_accept4 SYS_connect SYS_recvmmsg SYS_socket };

/// Calls that others in the process may make, besides all of these.
pub const PROCESS: &[Call] = calls! {
    // Files: sockets, captures, EEPROMs, what the kernel says of processes.
    SYS_fchmod SYS_fchownat SYS_fcntl SYS_fstat SYS_fsync SYS_ftruncate SYS_getcwd SYS_ioctl SYS_lseek SYS_newfstatat SYS_openat
    SYS_readlinkat SYS_statx
    // Descriptors.
    SYS_bind SYS_epoll_create1 SYS_eventfd2 SYS_getsockname SYS_getsockopt SYS_io_setup SYS_listen SYS_memfd_create SYS_mlock
    SYS_pidfd_getfd SYS_pidfd_open SYS_recvfrom SYS_sendmsg SYS_sendto SYS_setsockopt SYS_shutdown
    SYS_socketpair SYS_timerfd_create
    // Threads and their confinement. The C library makes do with `clone` where a unit's RestrictNamespaces= takes `clone3` away.
    SYS_capset SYS_clone SYS_clone3 SYS_getrandom SYS_gettid SYS_prctl SYS_rseq SYS_sched_getaffinity SYS_seccomp
    SYS_set_robust_list
    // The process.
    SYS_clock_nanosleep SYS_exit_group SYS_geteuid SYS_getpid SYS_kill SYS_prlimit64 SYS_read SYS_rt_sigaction SYS_write
};

/// Calls of a process that is a user network: messages of its port, and what its library makes.
pub const LIBRARY: &[Call] = calls! {
    // The port's socket, and who is ready.
    SYS_clock_gettime SYS_epoll_ctl SYS_epoll_pwait SYS_ppoll SYS_recvmsg SYS_sendmmsg
    // Sockets of its own.
    SYS_accept SYS_connect SYS_fcntl SYS_getpeername SYS_getsockopt SYS_ioctl SYS_recvfrom SYS_sendto SYS_setsockopt SYS_shutdown
    SYS_socket
    // Files: those of TFTP, and the name servers'.
    SYS_fstat SYS_lseek SYS_newfstatat SYS_openat SYS_read
    // The allocator.
    SYS_brk SYS_mmap SYS_mremap SYS_munmap
    // The line about a call that is not here.
    SYS_rt_sigreturn SYS_writev
    // Descriptors of its own, the end.
    SYS_close SYS_exit_group SYS_futex
};

/// Calls of the process that starts those, besides what they make: until they are there, they are copies of it.
pub const LAUNCHER: &[Call] = calls! {
    SYS_clone SYS_pidfd_open SYS_wait4
    // Around a fork, by the C library of Debian 13.
    SYS_rt_sigprocmask
    // The beginning of a network: its ports of the host, the folder that it serves.
    SYS_bind SYS_clock_nanosleep SYS_epoll_create1 SYS_faccessat SYS_getpid SYS_getppid SYS_getrandom SYS_getsockname SYS_listen
    SYS_set_robust_list SYS_statx
    // Its confinement.
    SYS_capget SYS_capset SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_prctl SYS_rt_sigaction
    SYS_seccomp
};

/// The forms of some calls that this machine's C library uses.
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
pub const FORMS: &[Call] = calls! {
    SYS_access SYS_chmod SYS_lstat SYS_open SYS_readlink SYS_rename SYS_stat SYS_unlink
};
/// The forms of some calls that this machine's C library uses.
#[cfg(all(target_arch = "x86_64", not(target_env = "musl")))]
pub const FORMS: &[Call] = calls! { SYS_chmod SYS_readlink SYS_rename SYS_unlink };
/// The forms of some calls that this machine's C library uses.
#[cfg(not(target_arch = "x86_64"))]
pub const FORMS: &[Call] = calls! { SYS_fchmodat SYS_renameat SYS_unlinkat };

/// A kind's word, and its calls.
pub fn of(kind: Kind) -> (&'static str, &'static [&'static [Call]]) {
    match kind {
        Kind::Data => ("data", &[DATA]),
        Kind::Port => ("port", &[PORT]),
        Kind::Network => ("network", &[PORT, NETWORK]),
    }
}

/// The name of a call that somebody may make.
pub fn name(number: i64) -> Option<&'static str> {
    let all = [
        DATA, PORT, NETWORK, PROCESS, FORMS, REFUSED, LIBRARY, LAUNCHER, OTHERS,
    ];
    let found = all.iter().flat_map(|list| list.iter());
    found
        .filter(|call| call.number == number)
        .map(|call| call.name)
        .next()
}

/// Calls that nobody may make, so that their names can be told.
const OTHERS: &[Call] = calls! {
    SYS_bpf SYS_execve SYS_execveat SYS_init_module SYS_io_uring_setup SYS_kexec_load SYS_keyctl SYS_mkdirat
    SYS_io_getevents SYS_mount SYS_perf_event_open SYS_process_vm_readv SYS_process_vm_writev SYS_ptrace SYS_sendfile
    SYS_setns SYS_setuid SYS_splice SYS_unshare SYS_userfaultfd
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of a thread that touches frames.
    const MOST: usize = 20;

    #[test]
    fn threads_that_touch_frames_may_make_twenty_calls_at_most() {
        for kind in [Kind::Data, Kind::Port, Kind::Network] {
            let (name, lists) = of(kind);
            let mut all: Vec<_> = lists.iter().flat_map(|list| list.iter()).collect();
            let count = all.len();
            all.sort_by_key(|call| call.number);
            all.dedup();
            assert_eq!(all.len(), count, "a {name} thread has one twice");
            assert!(count <= MOST, "a {name} thread may make {count}");
            for refused in [REFUSED, CHECKED] {
                assert!(refused.iter().all(|call| !all.contains(&call)), "{name}");
            }
        }
    }
}
