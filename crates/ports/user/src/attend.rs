//! The launcher: a process that starts those of networks, and reads nothing that anybody says.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use crate::fork::Single;
use crate::message;
use crate::socket::{self, Given};

/// Networks at once.
const MOST: usize = 4096;

struct Child {
    pid: Pid,
    /// Readable when it has ended.
    ended: OwnedFd,
    /// Its socket, to say so there.
    socket: OwnedFd,
}

/// Starts a child for each socket that comes over `requests`, until its other end is closed. Children are copies of this
/// process, which has one thread; in each, `run` is called with its socket, and what that returns is the exit code. Before
/// the first, `confine` gives up what neither needs. In the end the process ends.
///
/// # Errors
/// The process has several threads, cannot be confined, or cannot wait.
pub fn attend(
    requests: OwnedFd,
    confine: impl FnOnce() -> io::Result<()>,
    run: &dyn Fn(OwnedFd) -> i32,
) -> io::Result<Infallible> {
    let single = Single::this()?;
    confine()?;
    let mut children: Vec<Child> = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(&requests, PollFlags::IN)];
        fds.extend(
            children
                .iter()
                .map(|child| PollFd::new(&child.ended, PollFlags::IN)),
        );
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        let asked = ready.next() == Some(true);
        children.retain(|child| ready.next() != Some(true) || !is_over(child));
        if !asked {
            continue;
        }
        match socket::take(&requests) {
            Ok(Given::One(given)) => match start(&single, given, children.len()) {
                Started::Here(given) => {
                    // Nothing of the launcher's, and nothing of its siblings'.
                    drop((requests, children));
                    single.end(run(given));
                }
                Started::There(child) => children.push(child),
                Started::Not => {}
            },
            Ok(Given::Nothing) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(Given::Closed) | Err(_) => single.end(0),
        }
    }
}

enum Started {
    /// We are the child, and this is its socket.
    Here(OwnedFd),
    There(Child),
    /// It was said why on its socket.
    Not,
}

fn start(single: &Single, socket: OwnedFd, others: usize) -> Started {
    let forked = match others {
        0..MOST => single.fork(),
        _ => Err(io::Error::other("there are as many as there may be")),
    };
    let made = match forked {
        Ok(None) => return Started::Here(socket),
        Ok(Some(pid)) => pidfd_open(pid, PidfdFlags::empty()).map(|ended| (pid, ended)),
        Err(error) => {
            let why = format!("no process can be started for it: {error}");
            let _ = socket::send(&socket, &message::refused(&why));
            return Started::Not;
        }
    };
    match made {
        Ok((pid, ended)) => Started::There(Child { pid, ended, socket }),
        // It goes on, and ends when its port does; nobody is told how.
        Err(_) => Started::Not,
    }
}

/// Whether it has ended; its port is told how.
fn is_over(child: &Child) -> bool {
    let how = match waitpid(Some(child.pid), WaitOptions::NOHANG) {
        Ok(None) | Err(Errno::INTR) => return false,
        Ok(Some((_, status))) => match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (_, code) => format!("ended by itself with code {}", code.unwrap_or(0)),
        },
        Err(_) => "has ended".into(),
    };
    // Behind all that it has said itself. If there is no room for that, its end shows alone.
    let _ = socket::send(child.socket.as_fd(), &message::ended(&how));
    true
}
