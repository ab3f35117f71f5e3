//! A NIC over vhost-user: a virtio-net whose VMM has its registers, and we its rings.

mod alarm;
mod backend;
mod migration;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use frame::Counted;
use model::{Interrupts, Moderation, Nanos};
use vfio_user::EventSet;
use vhost_user::{Calls, Look, Server};
use virtio_net::Device;
use virtio_net::regs::net_status;

use self::alarm::Due;
use self::backend::Board;
use super::engine::{Door, DoorTurn, Engine, MESSAGE_BUDGET, SPARED};

pub(super) use self::alarm::Alarm;
pub(super) use self::backend::queues;

/// How soon rings whose driver does not kick are looked at again: after something came, and when nothing has come for a
/// while.
const FIRST_NAP: Nanos = 50_000;
const LONGEST_NAP: Nanos = 2_000_000;

/// Calls to drivers, as a model makes them: the message of a queue has its number.
pub(super) struct CallWires(pub Calls);

impl Interrupts for CallWires {
    fn set_line(&self, _: bool) {}
    fn msi(&self, _: u16) {}
    fn msix(&self, vector: u16) {
        self.0.call(vector);
    }
}

/// The server and the device behind it.
pub(super) struct VhostDoor {
    server: Server,
    board: Board,
    alarm: Arc<Alarm>,
    /// Turns in a row that did not look.
    spared: u32,
    /// The last turn left work.
    busy: bool,
    /// Between two looks at rings whose driver does not kick.
    nap: Option<Nanos>,
}

impl VhostDoor {
    pub fn new(server: Server, device: Arc<Device>, alarm: Arc<Alarm>, engine: Engine) -> Self {
        let board = Board::new(device, server.calls(), engine);
        Self {
            server,
            board,
            alarm,
            spared: 0,
            busy: false,
            nap: None,
        }
    }

    /// Each look is some system calls, which cost as much as a burst of small frames.
    fn look(&mut self, calls: u32) -> Look {
        let spared = self.busy && calls == 0 && self.spared < SPARED;
        self.spared = if spared { self.spared + 1 } else { 0 };
        if spared { Look::Nowhere } else { Look::All }
    }

    /// Sets the time of the next look at rings whose driver does not kick.
    fn set_nap(&mut self, found: bool) {
        if !self.server.polls() {
            if self.nap.take().is_some() {
                self.alarm.set(Due::Poll, None);
            }
            return;
        }
        let nap = match self.nap {
            Some(nap) if !found => (2 * nap).min(LONGEST_NAP),
            _ => FIRST_NAP,
        };
        self.nap = Some(nap);
        self.alarm.set_after(Due::Poll, Duration::from_nanos(nap));
    }
}

impl Door for VhostDoor {
    fn watch(&mut self, set: &EventSet) -> io::Result<()> {
        self.server.watch(set)
    }

    fn unwatch(&mut self) {
        self.server.unwatch();
    }

    fn tick(&mut self) {
        for due in self.alarm.take() {
            match due {
                Due::Model => self.board.tick(),
                Due::Poll => {}
            }
        }
    }

    fn set_link(&mut self, up: bool) {
        // vhost-user has no word for it: the guest's link stays up, and nothing crosses it.
        self.board.device().set_net_status(net_status::LINK_UP, up);
    }

    fn moderate(&mut self, how: Moderation) {
        self.board.moderate(how);
    }

    fn turn(&mut self, calls: u32) -> io::Result<DoorTurn> {
        let look = self.look(calls);
        let polled = self.nap.is_some();
        let before = polled.then(|| self.board.sent());
        if polled {
            self.board.note_all();
        }
        let progress = self
            .server
            .process_after(look, &mut self.board, MESSAGE_BUDGET)?;
        self.busy = progress.more;
        let found = before.is_some_and(|before| before != self.board.sent());
        self.set_nap(found || progress.more);
        Ok(DoorTurn {
            answered: progress.messages,
            served: progress.messages > 0 || progress.kicks > 0 || progress.more || found,
            more: progress.more,
            finished: progress.finished,
        })
    }

    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.board.device().counters(visit);
        self.board.counters(visit);
        self.server.counters(visit);
    }

    fn engine(&mut self) -> &mut Engine {
        &mut self.board.engine
    }
}
