//! libslirp's sockets behind one descriptor.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{Timespec, epoll};

use crate::sys::{self, Change, Stack, events};

/// An epoll set that follows what libslirp waits for, so that the inlet's thread sees one
/// descriptor instead of hundreds that come and go.
pub struct Poller {
    epoll: OwnedFd,
    /// What is in the set, sorted by descriptor.
    known: Vec<(RawFd, c_int)>,
    want: Vec<(RawFd, c_int)>,
    ready: Vec<(RawFd, c_int)>,
    /// System calls since last asked.
    pub syscalls: u64,
}

/// Sockets looked at per turn; the rest are still ready in the next one.
const MAX_READY: usize = 64;

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            known: Vec::new(),
            want: Vec::new(),
            ready: Vec::new(),
            syscalls: 0,
        })
    }

    /// Numbers that were closed left the set by themselves; the same number now is another socket.
    pub fn forget(&mut self, fd: RawFd) {
        if let Ok(at) = self.known.binary_search_by_key(&fd, |k| k.0) {
            self.known.remove(at);
        }
    }

    /// Brings the set up to date; `changed` gets what libslirp opened and closed. Returns how long it wants to wait
    /// at most, in milliseconds.
    pub fn follow(&mut self, stack: &mut Stack, changed: &mut dyn FnMut(Change)) -> u32 {
        let ms = stack.fill(&mut self.want);
        stack.take_changes(&mut |change| {
            self.forget(change.fd());
            changed(change);
        });
        self.want.sort_unstable();
        self.want.dedup_by_key(|w| w.0);
        let stack = &*stack;
        let mut olds = self.known.iter().peekable();
        for &(fd, mask) in &self.want {
            while let Some(&(old, _)) = olds.next_if(|o| o.0 < fd) {
                self.syscalls += 1;
                // Unwanted now. It would report errors for ever even without a mask.
                let _ = epoll::delete(&self.epoll, sys::lend(stack, old));
            }
            let before = olds.next_if(|o| o.0 == fd).map(|o| o.1);
            if before == Some(mask) {
                continue;
            }
            self.syscalls += 1;
            let (flags, data) = (to_epoll(mask), epoll::EventData::new_u64(fd as u64));
            let lent = sys::lend(stack, fd);
            if before.is_some() && epoll::modify(&self.epoll, lent, data, flags).is_ok() {
                continue;
            }
            let _ = epoll::add(&self.epoll, lent, data, flags);
        }
        for &(old, _) in olds {
            self.syscalls += 1;
            let _ = epoll::delete(&self.epoll, sys::lend(stack, old));
        }
        std::mem::swap(&mut self.known, &mut self.want);
        ms
    }

    /// What is ready now, sorted by descriptor.
    pub fn ready(&mut self) -> &Vec<(RawFd, c_int)> {
        self.syscalls += 1;
        self.ready.clear();
        let mut room = [MaybeUninit::uninit(); MAX_READY];
        // Interrupted is the same as nothing ready.
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, Some(&Timespec::default())) {
            for event in events {
                // The struct is packed, so copy before use.
                let (data, flags) = (event.data, event.flags);
                self.ready.push((data.u64() as RawFd, from_epoll(flags)));
            }
        }
        self.ready.sort_unstable();
        &self.ready
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

const PAIRS: [(c_int, epoll::EventFlags); 5] = [
    (events::IN, epoll::EventFlags::IN),
    (events::OUT, epoll::EventFlags::OUT),
    (events::PRI, epoll::EventFlags::PRI),
    (events::ERR, epoll::EventFlags::ERR),
    (events::HUP, epoll::EventFlags::HUP),
];

fn to_epoll(mask: c_int) -> epoll::EventFlags {
    let chosen = PAIRS.iter().filter(|p| mask & p.0 != 0);
    chosen.fold(epoll::EventFlags::empty(), |all, p| all | p.1)
}

fn from_epoll(flags: epoll::EventFlags) -> c_int {
    let chosen = PAIRS.iter().filter(|p| flags.contains(p.1));
    chosen.fold(0, |all, p| all | p.0)
}
