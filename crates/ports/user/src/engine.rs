//! A network at work: libslirp, its sockets, and whose they are.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use port::Backlog;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::config::{MTU, UserConfig, UserError};
use crate::count::Told;
use crate::flows::Flows;
use crate::poller::Poller;
use crate::sys::Stack;

/// Frames libslirp may produce in one turn.
const OUT_FRAMES: usize = 4096;
/// libslirp names this when it has no timer running.
const NO_TIMER: u32 = 1000;
/// Look in now and then all the same.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// How long a network waits for ports of the host that the one before it has had: its process ends, and that takes a while.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it asks meanwhile.
const PAUSE: Duration = Duration::from_millis(20);

pub struct Engine {
    stack: Stack,
    poller: Poller,
    flows: Flows,
    /// What libslirp said last.
    timeout_ms: u32,
    told: Told,
}

impl Engine {
    /// A network as configured. `patient`: another process may still have its ports of the host.
    pub fn new(config: &UserConfig, patient: bool) -> Result<Self, UserError> {
        if let Some(path) = &config.tftp {
            can_be_served(path).map_err(|source| UserError::Tftp {
                path: path.clone(),
                source,
            })?;
        }
        let addresses = config.addresses()?;
        let frame = MTU + 64;
        let out = Backlog::new(OUT_FRAMES * frame.next_multiple_of(64), 64 * 1024);
        let mut stack = Stack::new(config, out.with_frames(OUT_FRAMES))?;
        let mut waits = if patient {
            PATIENCE.as_millis() / PAUSE.as_millis()
        } else {
            0
        };
        for forward in &config.forwards {
            let guest = forward.guest.unwrap_or(addresses.dhcp_start);
            while let Err(source) = stack.forward(forward, guest) {
                if waits == 0 || source.kind() != io::ErrorKind::AddrInUse {
                    return Err(UserError::Forward {
                        protocol: forward.protocol,
                        host: forward.host,
                        source,
                    });
                }
                waits -= 1;
                std::thread::sleep(PAUSE);
            }
        }
        let mut engine = Self {
            stack,
            poller: Poller::new()?,
            flows: Flows::new(config, addresses.host),
            timeout_ms: 0,
            told: Told::default(),
        };
        engine.follow();
        Ok(engine)
    }

    /// Works on what is ready, and on timers.
    pub fn turn(&mut self) {
        self.stack.run_timers();
        self.stack.poll(self.poller.ready());
    }

    /// Gives libslirp a frame of a guest's.
    pub fn input(&mut self, frame: &[u8]) {
        let by = match self.flows.admit(frame) {
            Ok(by) => by,
            Err(refused) => {
                self.told.add(refused as usize, 1);
                return;
            }
        };
        self.stack.input(frame);
        let (poller, flows) = (&mut self.poller, &mut self.flows);
        self.stack.take_changes(&mut |change| {
            poller.forget(change.fd());
            flows.changed(change, Some(by));
        });
    }

    /// Follows what libslirp opened and closed by itself, and what it waits for. The end of a turn.
    pub fn follow(&mut self) {
        let flows = &mut self.flows;
        let changed = &mut |change| flows.changed(change, None);
        self.timeout_ms = self.poller.follow(&mut self.stack, changed);
        let (dropped, errors) = self.stack.take_counts();
        self.told.add(crate::count::OUT_FULL, dropped);
        self.told.add(crate::count::GUEST_ERRORS, errors);
        let calls = std::mem::take(&mut self.poller.syscalls);
        self.told.add(crate::count::SYSCALLS, calls);
    }

    /// What is for the guests.
    pub fn out(&mut self) -> &mut Backlog {
        self.stack.out()
    }

    /// What it has counted.
    pub fn told(&mut self) -> &mut Told {
        &mut self.told
    }

    /// Until when a turn may wait.
    pub fn timeout(&self) -> Duration {
        let socket_timers = match self.timeout_ms {
            NO_TIMER.. => IDLE,
            ms => Duration::from_millis(ms.into()),
        };
        let timer = self.stack.next_timer().map(Duration::from_millis);
        timer.map_or(socket_timers, |t| t.min(socket_timers))
    }
}

/// Its files can be opened; nobody lists it.
fn can_be_served(folder: &Path) -> io::Result<()> {
    if !std::fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let wanted = Access::READ_OK | Access::EXEC_OK;
    Ok(accessat(CWD, folder, wanted, AtFlags::empty())?)
}

impl AsFd for Engine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
