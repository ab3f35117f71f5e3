//! Children of a process that has one thread.

use std::io;

use rustix::process::Pid;

/// A process of one thread.
pub struct Single(());

impl Single {
    /// This process, as long as nobody makes a thread: the owner of this does not.
    ///
    /// # Errors
    /// It has several.
    pub fn this() -> io::Result<Self> {
        match std::fs::read_dir("/proc/self/task")?.count() {
            1 => Ok(Self(())),
            _ => Err(io::Error::other("only a process of one thread can do that")),
        }
    }

    /// Makes a child that is a copy of this process. `None`: we are the child.
    ///
    /// # Errors
    /// There may be no more processes.
    pub fn fork(&self) -> io::Result<Option<Pid>> {
        // SAFETY: this is the only thread, so the child is a whole copy: no lock of another thread's stays taken in it.
        match unsafe { libc::fork() } {
            ..0 => Err(io::Error::last_os_error()),
            pid => Ok(Pid::from_raw(pid)),
        }
    }

    /// Ends this process, with nothing of what is usual at the end: a child has it from the process that it is a copy of, and
    /// a confined one may not.
    pub fn end(self, code: i32) -> ! {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(code) }
    }
}
