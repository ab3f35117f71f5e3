//! The launcher: a process that starts those of networks, and reads nothing that anybody says; and its keeper, which starts
//! the launcher and does nothing else.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, writev};
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus, pidfd_open, waitpid};

use crate::fork::Single;
use crate::lives::{Lives, Next};
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

/// Keeps a launcher, which starts a process for each socket that comes over `requests`: another one when that dies, until the
/// other end of `requests` is closed. They are children of this process, which has one thread, and copies of it: in the
/// launcher `begin` is called and says who it is, in each network `run` with its socket and its launcher, and what that returns
/// is the exit code. Before the first, `confine` gives up what none of them needs. In the end the process ends.
///
/// # Errors
/// The process has several threads, cannot be confined, or has no child.
pub fn attend(
    requests: OwnedFd,
    confine: impl FnOnce() -> io::Result<()>,
    begin: &dyn Fn() -> Result<Pid, String>,
    run: &dyn Fn(OwnedFd, Pid) -> i32,
) -> io::Result<Infallible> {
    let single = Single::this()?;
    confine()?;
    let mut lives = Lives::new(Instant::now());
    loop {
        lives.begin(Instant::now());
        let Some(launcher) = single.fork()? else {
            let us = begin().map_err(io::Error::other)?;
            return launch(single, requests, &|socket| run(socket, us));
        };
        let how = loop {
            match waitpid(Some(launcher), WaitOptions::empty()) {
                Err(Errno::INTR) | Ok(None) => {}
                Err(errno) => return Err(errno.into()),
                Ok(Some((_, status))) if status.exit_status() == Some(0) => single.end(0),
                Ok(Some((_, status))) => break told(status),
            }
        };
        match lives.next(Instant::now()) {
            Next::GiveUp(lives) => {
                let why =
                    format!("what starts them {how}, {lives} times in a row; there is no other");
                return Err(io::Error::other(why));
            }
            Next::In(pause) => {
                say(&format!("what starts them {how}; another one is started"));
                let pause = Timespec::try_from(pause).unwrap_or_default();
                // Whoever asks meanwhile waits in the socket.
                let _ = poll(&mut [], Some(&pause));
            }
        }
    }
}

/// A line for people. One call, which a confined process may make.
fn say(words: &str) {
    let line = format!("hypernic: user networks: {words}\n");
    let _ = writev(std::io::stderr(), &[IoSlice::new(line.as_bytes())]);
}

/// Is the launcher.
fn launch(
    single: Single,
    requests: OwnedFd,
    run: &dyn Fn(OwnedFd) -> i32,
) -> io::Result<Infallible> {
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
        Ok(Some((_, status))) => told(status),
        Err(_) => "has ended".into(),
    };
    // Behind all that it has said itself. If there is no room for that, its end shows alone.
    let _ = socket::send(child.socket.as_fd(), &message::ended(&how));
    true
}

/// How a process ended.
fn told(status: WaitStatus) -> String {
    match (status.terminating_signal(), status.exit_status()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (_, code) => format!("ended by itself with code {}", code.unwrap_or(0)),
    }
}
