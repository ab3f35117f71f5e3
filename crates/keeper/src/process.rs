//! What the kernel says of processes: how a child ended, and which descriptors are open.

use std::io;
use std::os::fd::RawFd;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::deaths::End;

/// The numbers of all open descriptors.
pub(crate) fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    // The last is that of the listing itself, which is closed by now.
    open.retain(|fd| rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()).is_ok());
    Ok(open)
}

/// How a child ended, if it has. It stays a zombie.
pub(crate) fn end_of(worker: Pid) -> Option<End> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(worker), options).ok().flatten()?;
    let exit = status.exit_status().map(End::Exit);
    exit.or_else(|| status.terminating_signal().map(End::Signal))
}
