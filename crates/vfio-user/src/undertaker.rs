//! Ends what a peer gave us, where nobody waits for it.
//!
//! To close a descriptor is to run its last owner's code in the kernel, and what a peer sends may
//! be anything: a TCP socket that lingers over unsent data for hours, a file of a FUSE server that
//! does not answer, a Unix socket with more such descriptors in its queue. To unmap a peer's memory
//! may be to free all of it. The thread that serves a peer serves others too, so another one does
//! this, for each server its own: what does not end holds up nothing but its like.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;

/// Things of one peer that have not ended; a device with more is out of order until they have.
pub(crate) const MOST: usize = 2048;

type Thing = Box<dyn Send>;

#[derive(Default)]
struct State {
    waiting: Vec<Thing>,
    /// There is a thread, and it will look again.
    at_work: bool,
    /// All that has not ended, the one being ended included.
    left: usize,
}

/// Ends the things of one server's peers. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Undertaker(Arc<Mutex<State>>);

impl Undertaker {
    /// Ends a thing soon, on another thread.
    pub fn bury(&self, thing: impl Send + 'static) {
        {
            let mut state = self.0.lock();
            state.waiting.push(Box::new(thing));
            state.left += 1;
            if std::mem::replace(&mut state.at_work, true) {
                return;
            }
        }
        let this = self.clone();
        let thread = std::thread::Builder::new().name("undertaker".into());
        if thread.spawn(move || this.work()).is_err() {
            // Better late than never.
            self.work();
        }
    }

    fn work(&self) {
        loop {
            let things = {
                let mut state = self.0.lock();
                if state.waiting.is_empty() {
                    state.at_work = false;
                    return;
                }
                std::mem::take(&mut state.waiting)
            };
            for thing in things {
                drop(thing);
                self.0.lock().left -= 1;
            }
        }
    }

    /// Things that have not ended.
    pub fn left(&self) -> usize {
        self.0.lock().left
    }
}

/// A descriptor that came from a peer.
pub(crate) struct PeerFd {
    fd: Option<OwnedFd>,
    undertaker: Undertaker,
}

impl PeerFd {
    pub fn new(fd: OwnedFd, undertaker: &Undertaker) -> Self {
        Self {
            fd: Some(fd),
            undertaker: undertaker.clone(),
        }
    }
}

impl AsFd for PeerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref().expect("taken by drop only");
        fd.as_fd()
    }
}

impl Drop for PeerFd {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.undertaker.bury(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Ends when it is told to.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_does_not_end_holds_up_nobody_and_the_rest_ends_after_it() {
        let undertaker = Undertaker::default();
        let (go, wait) = mpsc::channel();
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        undertaker.bury(Slow(wait));
        drop(PeerFd::new(write, &undertaker));
        assert_eq!(undertaker.left(), 2);
        go.send(()).expect("it waits");
        // The end of the last writer.
        assert_eq!(rustix::io::read(&read, &mut [0u8; 1]), Ok(0));
        while undertaker.left() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
