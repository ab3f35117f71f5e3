//! What every door of a NIC has: the model's transmit side, and the wires around it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use frame::{Sink, Wake};
use model::{Env, Moderation, Peeked, Progress, Transmit, Work};
use program::log::{Held, Limit};
use vfio_user::EventSet;

use super::refusal::HoldRefusal;
use super::sink::NicSink;
use super::unsent::Unsent;
use crate::left::{Arrived, Left};

/// Frames sent in one turn before the socket is looked at again.
const TX_BUDGET: usize = frame::MAX_BATCH;

/// Messages answered in one turn.
pub(super) const MESSAGE_BUDGET: usize = 1024;

/// Turns in a row of a NIC that has more to do, before the worker looks for messages again.
pub(super) const SPARED: u32 = 3;

/// How a turn of a door went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DoorTurn {
    /// The guest had something to do.
    pub served: bool,
    /// Messages that were answered.
    pub answered: usize,
    /// There is more to do now.
    pub more: bool,
    /// The one connection that the NIC was given is over.
    pub finished: bool,
}

/// The protocol by which a VMM has a NIC, and the NIC behind it.
pub(super) trait Door: Send {
    /// As [`Served::watch`](crate::worker::Served::watch).
    fn watch(&mut self, set: &EventSet) -> io::Result<()>;
    /// As [`Served::unwatch`](crate::worker::Served::unwatch).
    fn unwatch(&mut self);
    /// As [`Served::bell`](crate::worker::Served::bell).
    fn bell(&self) -> Option<&vfio_user::MappedDoorbells> {
        None
    }
    /// A deadline has come.
    fn tick(&mut self);
    /// A function that shares something with the NIC has changed it.
    fn attend(&mut self) {}
    /// The cable is in or out.
    fn set_link(&mut self, up: bool);
    /// The operator has chosen when the guest is interrupted.
    fn moderate(&mut self, how: Moderation);
    /// Answers messages and does what they and others have asked for. `calls` is what its task was called for.
    fn turn(&mut self, calls: u32) -> io::Result<DoorTurn>;
    /// Whether its client could be left to another worker as things are; a turn may bring that about.
    fn is_settled(&self) -> bool {
        true
    }
    /// What it would leave to another program now: its client and itself. `None`: nothing that could go on.
    fn states(&self) -> Option<[Vec<u8>; 2]> {
        None
    }
    /// Leaves its client to the next worker, and does nothing more. `None`: it has none that could go on.
    fn leave(&mut self) -> Option<Left> {
        None
    }
    /// Goes on with the client of the worker before.
    ///
    /// # Errors
    /// The reason; the client has lost the NIC then.
    fn go_on(&mut self, arrived: Arrived) -> Result<(), String> {
        let _ = arrived;
        Err("there is another kind of NIC in its place".into())
    }
    /// Goes on with the client of a worker that has died, and tells how many frames were under way then. `None`: there is none.
    fn revive(&mut self) -> Option<Result<u64, String>> {
        None
    }
    /// Stands still, and says what it is for another NIC that is to go on in its place.
    ///
    /// # Errors
    /// Why not; it goes on.
    fn hold(&mut self, paused: bool) -> Result<Vec<u8>, HoldRefusal> {
        let _ = paused;
        Err(HoldRefusal::VhostUser)
    }
    /// Becomes what another NIC has said of itself, and stands still.
    ///
    /// # Errors
    /// Why not; it is as after power-on.
    fn become_held(&mut self, state: &[u8]) -> Result<(), String> {
        let _ = state;
        Err(HoldRefusal::VhostUser.to_string())
    }
    /// Goes on from where it stands still.
    fn release(&mut self) {}
    /// Tells its wire where it is now. Whether somebody took it.
    fn announce(&mut self) -> bool {
        false
    }
    /// Closes what a worker that died has left of its client.
    fn forsake(&mut self) {}
    /// Whether its cable is in, as its model has it.
    fn cable(&self) -> bool {
        true
    }
    /// What it counts.
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64));
    /// Its registers, looked at without effect; a door that has none shows none.
    fn peek(&self, _visit: &mut dyn FnMut(Peeked)) {}
    /// What it has as every door.
    fn engine(&mut self) -> &mut Engine;
}

/// What is the same behind every door.
pub(super) struct Engine {
    pub name: String,
    pub transmit: Box<dyn Transmit>,
    pub env: Env,
    pub sink: Arc<NicSink>,
    pub out: Arc<dyn Sink>,
    /// In place of that while somebody looks at what is lost.
    pub seen: Box<Unsent>,
    pub waker: Arc<dyn Wake>,
    /// Transmit may have something to do.
    pub tx_ready: bool,
    pub limit: Limit,
}

impl Engine {
    /// How many lines were held back, when one that a peer can cause may be written now.
    pub fn may_log(&self) -> Option<Held> {
        self.limit.pass(Instant::now())
    }

    /// A VMM has the NIC, or has left it.
    pub fn attach(&self, attached: bool) {
        self.sink.attached.store(attached, Ordering::Release);
    }

    /// Does what was noted, within bounds. `true`: there is more.
    pub fn work(&mut self, noted: Work) -> bool {
        if noted.rx {
            self.sink.receive.poll(&self.env);
        }
        if !(noted.tx || self.tx_ready) {
            return false;
        }
        let out: &dyn Sink = match self.sink.witnesses.any() {
            false => &*self.out,
            true => &*self.seen,
        };
        let mut progress = self.transmit.run(&self.env, out, TX_BUDGET);
        if progress == Progress::Blocked {
            // Room may have come between the attempt and the registration.
            out.want_room(&self.waker);
            progress = self.transmit.run(&self.env, out, TX_BUDGET);
        }
        self.tx_ready = progress == Progress::More;
        self.tx_ready
    }
}
