//! What the kernel says of processes: how a child ended, and which descriptors are open.

use std::io;
use std::os::fd::RawFd;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, WaitId, WaitIdOptions, getrlimit, waitid};

use crate::deaths::End;
use crate::sys;

/// The highest number that a descriptor may have, and the one up to which is looked at least: the limit may have been higher.
const NUMBERS: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 20;

/// The numbers of all open descriptors.
pub(crate) fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let mut open = Vec::new();
    let listing = match std::fs::read_dir("/proc/self/fd") {
        // The table has no room for the listing.
        Err(error) if is_full(&error) => return Ok(tried_one_by_one()),
        listing => listing?,
    };
    for entry in listing {
        let name = entry?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    // The last is that of the listing itself, which is closed by now.
    open.retain(|fd| rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()).is_ok());
    Ok(open)
}

fn is_full(error: &io::Error) -> bool {
    let full = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|errno| full.contains(&errno))
}

/// The same without a descriptor of its own.
fn tried_one_by_one() -> Vec<RawFd> {
    let limit = getrlimit(Resource::Nofile).maximum;
    let end = limit
        .unwrap_or(*NUMBERS.end())
        .clamp(*NUMBERS.start(), *NUMBERS.end());
    let numbers = 0..RawFd::try_from(end).unwrap_or(RawFd::MAX);
    numbers.filter(|fd| sys::identity(*fd).is_some()).collect()
}

/// How a child ended, if it has. It stays a zombie.
pub(crate) fn end_of(worker: Pid) -> Option<End> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(worker), options).ok().flatten()?;
    let exit = status.exit_status().map(End::Exit);
    exit.or_else(|| status.terminating_signal().map(End::Signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_listed_too() {
        let ours = std::fs::File::open("/dev/null").expect("a file");
        let ours = std::os::fd::AsRawFd::as_raw_fd(&ours);
        // Other tests open and close some meanwhile, but none of these.
        let has = |all: &[RawFd]| [0, 1, 2, ours].iter().all(|fd| all.contains(fd));
        assert!(has(&tried_one_by_one()));
        assert!(has(&open_descriptors().expect("a listing")));
        assert!(is_full(&Errno::MFILE.into()) && !is_full(&Errno::ACCESS.into()));
    }
}
