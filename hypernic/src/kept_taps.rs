//! TAPs that stay attached while one worker goes and the next comes: their other end sees no loss of carrier, and what the
//! kernel sends meanwhile waits in their queues.

use std::os::fd::{AsFd, OwnedFd};

use port::Port;
use port_tap::{Source, TapError};

/// The name of a queue in the page that workers share.
fn key(name: &str, queue: usize) -> Vec<u8> {
    format!("tap {name} {queue}").into_bytes()
}

/// Goes on with the TAP of the worker before, or attaches to it.
pub(crate) fn open(name: &str, queues: Option<usize>) -> Result<Port, TapError> {
    let fds = match left(name, queues.unwrap_or(1)) {
        Some(fds) => fds,
        None => port_tap::attach_queues(name, queues)?,
    };
    if let Some(page) = keeper::current() {
        for (queue, fd) in fds.iter().enumerate() {
            page.keep(&key(name, queue), fd.as_fd(), [0, 0]);
        }
    }
    port_tap::open(Source::Attached(fds)).inspect_err(|_| forget(name, queues.unwrap_or(1)))
}

/// All queues that the worker before has had, if they are whole and still of that interface.
fn left(name: &str, queues: usize) -> Option<Vec<OwnedFd>> {
    let page = keeper::current()?;
    let fds: Option<Vec<_>> = (0..queues)
        .map(|queue| page.go_on(&key(name, queue)).map(|(fd, _)| fd))
        .collect();
    let same = |fd: &OwnedFd| port_tap::interface(fd).is_some_and(|now| now == name);
    let fds = fds.filter(|fds| fds.iter().all(same));
    if fds.is_none() {
        forget(name, queues);
    }
    fds
}

/// It is closed for good.
pub(crate) fn forget(name: &str, queues: usize) {
    if let Some(page) = keeper::current() {
        for queue in 0..queues {
            page.forget(&key(name, queue));
        }
    }
}
