//! Threads that are made to fault, as by a bug of theirs.

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// Has the thread of this name go on at an address where nothing is.
///
/// # Errors
/// There is no such thread, or it may not be traced.
pub fn fault(process: rustix::process::Pid, name: &str) -> Result<()> {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let tasks = std::fs::read_dir(tasks).into_iter().flatten();
    let is_it = |task: &std::fs::DirEntry| {
        let comm = std::fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    let task = tasks.flatten().find(is_it);
    let number = task.and_then(|task| task.file_name().to_string_lossy().parse().ok());
    let number = number.ok_or_else(|| Error::check(format!("no thread {name}")))?;
    divert(Pid::from_raw(number)).map_err(|why| Error::check(format!("{name}: {why}")))
}

fn divert(thread: Pid) -> nix::Result<()> {
    ptrace::seize(thread, ptrace::Options::empty())?;
    ptrace::interrupt(thread)?;
    waitpid(thread, Some(WaitPidFlag::__WALL))?;
    let mut registers = ptrace::getregs(thread)?;
    registers.rip = 0;
    // It is in no system call, which would be made again.
    registers.orig_rax = u64::MAX;
    ptrace::setregs(thread, registers)?;
    ptrace::detach(thread, None)
}
