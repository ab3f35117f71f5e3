//! A device's state on its way from or to another back end.
//!
//! It goes through a descriptor of the front end's, which may make its reader or writer wait for
//! ever. So another thread reads and writes, the one that closes the front end's descriptors.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use peer::{DeferredCloser, EventFd};
use rustix::fs::OFlags;

/// Bytes that a state has at most.
pub(crate) const MAX_STATE: u64 = 1 << 20;

/// How far a transfer is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It goes on.
    Running,
    /// The state has left.
    Saved,
    /// The state has come.
    Loaded(Vec<u8>),
    /// The descriptor failed, or more came than a state can have.
    Failed,
}

/// A transfer that was begun.
pub(crate) struct Transfer {
    outcome: Arc<Mutex<Outcome>>,
}

/// Made when it is dropped, on another thread.
struct Job {
    file: Option<File>,
    state: Option<Vec<u8>>,
    outcome: Arc<Mutex<Outcome>>,
    done: Arc<EventFd>,
}

impl Job {
    fn run(&self, mut file: File) -> Outcome {
        // It may wait here, and nowhere else.
        if let Ok(flags) = rustix::fs::fcntl_getfl(&file) {
            let _ = rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK);
        }
        if let Some(state) = &self.state {
            return match file.write_all(state) {
                Ok(()) => Outcome::Saved,
                Err(_) => Outcome::Failed,
            };
        }
        let mut state = Vec::new();
        match file.take(MAX_STATE + 1).read_to_end(&mut state) {
            Ok(n) if n as u64 <= MAX_STATE => Outcome::Loaded(state),
            _ => Outcome::Failed,
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let outcome = self.run(file);
            *self.outcome.lock() = outcome;
            self.done.signal();
        }
    }
}

impl Transfer {
    /// Begins to write a state, or to read one. `done` is signalled at the end.
    pub fn begin(
        fd: OwnedFd,
        state: Option<Vec<u8>>,
        done: &Arc<EventFd>,
        closer: &DeferredCloser,
    ) -> Self {
        let outcome = Arc::new(Mutex::new(Outcome::Running));
        closer.bury(Job {
            file: Some(File::from(fd)),
            state,
            outcome: Arc::clone(&outcome),
            done: Arc::clone(done),
        });
        Self { outcome }
    }

    /// It has not ended.
    pub fn is_running(&self) -> bool {
        *self.outcome.lock() == Outcome::Running
    }

    /// How it ended; `Running` while it goes on.
    pub fn take(&self) -> Outcome {
        let mut outcome = self.outcome.lock();
        match &*outcome {
            Outcome::Running => Outcome::Running,
            _ => std::mem::replace(&mut *outcome, Outcome::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn end(transfer: &Transfer, done: &EventFd) -> Outcome {
        done.wait(Duration::from_secs(20)).expect("it ends");
        transfer.take()
    }

    #[test]
    fn a_state_goes_through_a_pipe_and_comes_out() {
        let (done, closer) = (
            Arc::new(EventFd::new().expect("an eventfd")),
            DeferredCloser::default(),
        );
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        // More than a pipe holds.
        let state: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        let save = Transfer::begin(write, Some(state.clone()), &done, &closer);
        let other = DeferredCloser::default();
        let load = Transfer::begin(read, None, &done, &other);
        let mut outcomes = [Outcome::Running, Outcome::Running];
        while outcomes.contains(&Outcome::Running) {
            done.wait(Duration::from_secs(20)).expect("it ends");
            for (outcome, transfer) in outcomes.iter_mut().zip([&save, &load]) {
                if *outcome == Outcome::Running {
                    *outcome = transfer.take();
                }
            }
        }
        assert_eq!(outcomes, [Outcome::Saved, Outcome::Loaded(state)]);
        assert_eq!(save.take(), Outcome::Failed, "an outcome is taken once");
    }

    #[test]
    fn too_much_and_broken_descriptors_fail() {
        let (done, closer) = (
            Arc::new(EventFd::new().expect("an eventfd")),
            DeferredCloser::default(),
        );
        let zero = File::open("/dev/zero").expect("open").into();
        let endless = Transfer::begin(zero, None, &done, &closer);
        assert_eq!(end(&endless, &done), Outcome::Failed);
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        drop(write);
        let backwards = Transfer::begin(read, Some(vec![1]), &done, &closer);
        assert_eq!(end(&backwards, &done), Outcome::Failed);
    }
}
