//! A port: the way out, and the way in.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use frame::{Counted, Sink};
pub use threads::Kind;

use crate::answer::Prompt;

/// A port, opened.
pub struct Port {
    /// What it is, as the user wrote it ("tap:vm0").
    pub name: String,
    /// The way out.
    pub sink: Arc<dyn Sink>,
    /// The way in, for ports that have one.
    pub inlet: Option<Box<dyn Inlet>>,
    /// What it counts.
    pub counters: Arc<dyn Counted>,
}

/// A descriptor an inlet waits for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Wake when readable.
    pub read: bool,
    /// Wake when writable.
    pub write: bool,
}

/// How a call to [`Inlet::run`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InletStatus {
    /// Nothing more now: wait for the descriptors.
    Idle,
    /// The budget ran out; call again after others had their turn.
    More,
    /// The sink had no room: wait for the sink's wake, not for descriptors to become readable
    /// (those it wants to write to, [`Inlet::peer`] and [`Inlet::timeout`] still count).
    Blocked,
    /// The outside is gone for good, for this reason: the link goes down, the rest lives on.
    Closed(String),
}

/// The way in. Driven by one thread at a time: its own, or one that has written to the port ([`Inlet::prompt`]).
pub trait Inlet: Send {
    /// The descriptors to wait for now; may change after each [`Inlet::run`].
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>));
    /// The descriptor of a peer that may leave, to be woken by that even while the sink has no room.
    /// No longer given once the inlet has seen it.
    fn peer(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Longest time to wait, if the port has timers of its own.
    fn timeout(&self) -> Option<Duration> {
        None
    }
    /// Whether the outside is there now. Looked at after each [`Inlet::run`]; a port whose peer
    /// can come and go says so here, and the NIC's link follows.
    fn link_up(&self) -> bool {
        true
    }
    /// Something for the log, once; no more than a few in a minute. Asked for after each [`Inlet::run`].
    fn note(&mut self) -> Option<String> {
        None
    }
    /// The port, if it answers while it is written to; asked once, before the first [`Inlet::run`]. Then it has no peer
    /// and no timer, its link is up, and only the descriptor given here is waited for.
    fn prompt(&self) -> Option<Arc<dyn Prompt>> {
        None
    }
    /// Frames passed on so far, of a port that is prompt.
    fn passed(&self) -> u64 {
        0
    }
    /// The port's other queues, each to be run by a thread of its own. Asked for once, before the
    /// first [`Inlet::run`]. A flow of frames comes through one queue, so its order holds. What
    /// becomes of the outside shows in this inlet: the others' link and end are not looked at.
    fn split(&mut self) -> Vec<Box<dyn Inlet>> {
        Vec::new()
    }
    /// What its thread does, from which follows what it may ask the kernel for.
    fn kind(&self) -> Kind {
        Kind::Port
    }
    /// Passes at most about `budget` frames to `to`. Never blocks.
    fn run(&mut self, to: &dyn Sink, budget: usize) -> InletStatus;
}
