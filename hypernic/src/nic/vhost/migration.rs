//! What lets a guest move: pages that the device has written are marked, and what the door has is a state.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State};
use vhost_user::{DirtyLog, InflightPacked};
use virtio_net::{Journal, WriteLog};

/// Where writes to a ring are marked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// The part that the device writes, where the front end wants it to be logged.
    pub device: Option<u64>,
    /// Bytes of it.
    pub device_len: u64,
    /// The descriptors of a packed ring, which the device writes, too.
    pub descriptors: Option<(u64, u64)>,
}

/// Marks of all rings. The device's threads read them while they log.
pub(super) type AllMarks = Arc<Mutex<Vec<Marks>>>;

/// Marks in a front end's log what a device writes.
#[derive(Debug)]
pub(super) struct PageLog {
    pub log: DirtyLog,
    pub marks: AllMarks,
}

impl WriteLog for PageLog {
    fn wrote(&self, at: u64, len: u64) {
        self.log.mark(at, len);
    }

    fn used(&self, queue: usize) {
        let marks = self.marks.lock().get(queue).copied().unwrap_or_default();
        let Some(device) = marks.device else { return };
        self.log.mark(device, marks.device_len);
        if let Some((at, len)) = marks.descriptors {
            self.log.mark(at, len);
        }
    }
}

/// Notes in a front end's buffer what a device is about to write to a packed ring.
#[derive(Debug)]
pub(super) struct RingNote(pub InflightPacked);

impl Journal for RingNote {
    fn note(&self, slot: u16, desc: (u16, u32, u16), slots: u16) {
        self.0.note(slot, desc, slots);
    }

    fn commit(&self, from: u16, to: u16) {
        self.0.commit(from, to);
    }
}

/// What a door has that its front end does not tell the next one. Where rings are, it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DoorState {
    /// The MTU that the driver was told.
    pub mtu: Option<u16>,
}

impl State for DoorState {
    const KIND: Kind = Kind::new("vhostnet");
    const VERSION: u32 = 1;
}
