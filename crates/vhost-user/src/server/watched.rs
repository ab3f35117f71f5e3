//! The server's descriptors in its owner's epoll set.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use peer::EventSet;
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::CWD;
use rustix::io::Errno;

use super::state::{MAX_QUEUES, Server};

/// One of the server's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Listener,
    /// Signalled by the thread that carries a device's state.
    Wake,
    Main,
    /// The eventfd by which the driver kicks a ring.
    Kick(u16),
}

/// All that a server has but for the front end's socket.
const MOST: usize = 2 + MAX_QUEUES as usize;

impl Server {
    /// Puts all its descriptors into `set`, and those that come later; takes them out of an earlier
    /// set. An event in `set` means that [`process`](Self::process) has something to do.
    ///
    /// # Errors
    /// The system has no memory left for it; nothing is watched then.
    pub fn watch(&mut self, set: &EventSet) -> io::Result<()> {
        self.unwatch();
        let mut result = Ok(());
        self.each(|_, fd, flags| {
            if result.is_ok() {
                result = set.add_for(fd, flags);
            }
        });
        self.session.set = Some(set.clone());
        if result.is_err() {
            self.unwatch();
        }
        result
    }

    /// Takes its descriptors out of the set they are in.
    pub fn unwatch(&mut self) {
        if let Some(set) = self.session.set.take() {
            self.each(|_, fd, _| set.delete(fd));
        }
    }

    /// A new descriptor of the server's.
    pub(super) fn begin(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.session.set.as_ref().map_or(Ok(()), |set| set.add(fd))
    }

    /// A descriptor that the server is about to let go.
    pub(super) fn end(&self, fd: BorrowedFd<'_>) {
        if let Some(set) = &self.session.set {
            set.delete(fd);
        }
    }

    /// What one of its descriptors is watched for has changed.
    pub(super) fn rewatch(&self, source: Source) -> Result<(), Errno> {
        let mut result = Ok(());
        if let Some(set) = &self.session.set {
            self.each(|which, fd, flags| {
                if which == source {
                    result = set.modify(fd, flags);
                }
            });
        }
        result
    }

    /// All descriptors, with what each is watched for.
    fn each<'a>(&'a self, mut visit: impl FnMut(Source, BorrowedFd<'a>, EventFlags)) {
        if let Some(fd) = self.listener.as_fd().filter(|_| !self.out_of_service) {
            // Without a spare descriptor a front end in the backlog cannot even be sent away. It must
            // not wake the owner without end; the next one, or any other event, has another try made.
            let edge = if self.spare.is_none() {
                EventFlags::ET
            } else {
                EventFlags::empty()
            };
            visit(Source::Listener, fd, EventFlags::IN | edge);
        }
        visit(Source::Wake, self.session.wake.as_fd(), EventFlags::IN);
        if let Some(connection) = &self.connection {
            // With replies that wait, or a question of its that does, its next messages wait too.
            let flags = if connection.watching_out {
                EventFlags::OUT
            } else if connection.watching_end {
                EventFlags::empty()
            } else {
                EventFlags::IN
            };
            visit(Source::Main, connection.socket.as_fd(), flags);
        }
        for (queue, ring) in (0..).zip(&self.session.rings) {
            if let Some(kick) = ring.kick() {
                visit(Source::Kick(queue), kick.as_fd(), EventFlags::IN);
            }
        }
    }

    /// Those, but for the front end's socket, that have something now.
    pub(super) fn readable(&self) -> io::Result<impl Iterator<Item = Source> + use<>> {
        // `poll` passes over what is no descriptor.
        let mut fds: [_; MOST] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(CWD, PollFlags::empty()));
        let mut found = [None; MOST];
        let mut used = 0;
        self.each(|source, fd, _| {
            if source != Source::Main && used < MOST {
                fds[used] = PollFd::from_borrowed_fd(fd, PollFlags::IN);
                found[used] = Some(source);
                used += 1;
            }
        });
        let ready = match rustix::event::poll(&mut fds[..used], Some(&Timespec::default())) {
            Err(Errno::INTR) => 0,
            result => result?,
        };
        for (source, fd) in found.iter_mut().zip(&fds) {
            if ready == 0 || fd.revents().is_empty() {
                *source = None;
            }
        }
        Ok(found.into_iter().flatten())
    }
}
