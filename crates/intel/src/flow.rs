//! Pause frames (IEEE 802.3 annex 31B): how they are recognised, how they are made, and the
//! silence that one asks for.

use std::sync::atomic::{AtomicU64, Ordering};

use datapath::{FCS, MIN_FRAME};
use frame::{Batch, Sink};
use regs::{File, Id};
use wire::Offload;

use crate::stats::{Stat, Tally};

/// The one opcode there is.
const PAUSE: u16 = 1;
/// Bits that a quantum of pause time lasts.
const QUANTUM_BITS: u64 = 512;
/// Bytes by which a control frame is recognised.
pub const HEAD: usize = 18;

/// CTRL.RFCE: pause frames are recognised and obeyed.
pub const RFCE: u32 = 1 << 27;
/// CTRL.TFCE: pause frames are sent as the packet buffer fills and empties.
pub const TFCE: u32 = 1 << 28;

/// Bits of RCTL.
pub mod rctl {
    /// Pause frames to the station are not stored.
    pub const DPF: u32 = 1 << 22;
    /// Control frames of other opcodes are stored, whatever the address filters say.
    pub const PMCF: u32 = 1 << 23;
}

/// The registers of flow control in a table.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Ids {
    pub fcal: Id,
    pub fcah: Id,
    pub fct: Id,
    pub ral: Id,
    pub rah: Id,
}

/// A MAC control frame (type FCT, to FCAL/FCAH or the station).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFrame {
    /// Quanta of silence; `None` for another opcode than PAUSE.
    pub quanta: Option<u16>,
    /// It is for the station's own address.
    pub to_station: bool,
}

impl ControlFrame {
    /// Whether RCTL keeps it from the guest, whatever the filters say.
    pub fn is_discarded(&self, rctl: u32) -> bool {
        self.quanta.is_some() && self.to_station && rctl & rctl::DPF != 0
    }

    /// Whether RCTL lets it past the address filters.
    pub fn is_passed(&self, rctl: u32) -> bool {
        self.quanta.is_none() && rctl & rctl::PMCF != 0
    }
}

/// Recognises such frames by their first bytes.
pub fn control_frame(file: &File, ids: &Ids, head: &[u8; HEAD]) -> Option<ControlFrame> {
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    if u32::from(half(12)) != file.get(ids.fct) {
        return None;
    }
    let low = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let high = u32::from_le_bytes([head[4], head[5], 0, 0]);
    let to_station = low == file.get_at(ids.ral, 0) && high == file.get_at(ids.rah, 0) & 0xffff;
    let to_group = low == file.get(ids.fcal) && high == file.get(ids.fcah);
    (to_station || to_group).then(|| ControlFrame {
        quanta: (half(14) == PAUSE).then(|| half(16)),
        to_station,
    })
}

/// The frame that asks for so many quanta of silence: XOFF, or XON for none.
fn pause_frame(file: &File, ids: &Ids, quanta: u16) -> [u8; MIN_FRAME] {
    let mut frame = [0; MIN_FRAME];
    frame[..4].copy_from_slice(&file.get(ids.fcal).to_le_bytes());
    frame[4..6].copy_from_slice(&(file.get(ids.fcah) as u16).to_le_bytes());
    frame[6..10].copy_from_slice(&file.get_at(ids.ral, 0).to_le_bytes());
    frame[10..12].copy_from_slice(&(file.get_at(ids.rah, 0) as u16).to_le_bytes());
    frame[12..14].copy_from_slice(&(file.get(ids.fct) as u16).to_be_bytes());
    frame[14..16].copy_from_slice(&PAUSE.to_be_bytes());
    frame[16..HEAD].copy_from_slice(&quanta.to_be_bytes());
    frame
}

/// Sends the frame that asks for so many quanta of silence. Returns what it adds to the statistics, or `None`
/// when the sink had no room.
pub fn send_pause(to: &dyn Sink, file: &File, ids: &Ids, quanta: u16) -> Option<Tally> {
    let mut batch = Batch::new();
    batch.push_bytes(&pause_frame(file, ids, quanta));
    batch.end(Offload::NONE);
    if to.deliver(&batch, &[0]) == 0 {
        return None;
    }
    let kind = if quanta == 0 {
        Stat::Xontxc
    } else {
        Stat::Xofftxc
    };
    let mut tally = Tally::default();
    tally.add(kind, 1);
    tally.add(Stat::Tpt, 1);
    tally.add(Stat::Tot, (MIN_FRAME + FCS) as u64);
    Some(tally)
}

/// The silence that the partner has asked for. Times are nanoseconds of the NIC's clock.
#[derive(Debug, Default)]
pub struct Silence {
    /// When it ends; 0 for none.
    until: AtomicU64,
}

impl Silence {
    /// Until when, if one was asked for and is not forgotten. It may be over.
    pub fn until(&self) -> Option<u64> {
        Some(self.until.load(Ordering::Acquire)).filter(|until| *until != 0)
    }

    /// Begins one, or ends or shortens the one that lasts: the last word counts. `ten_bits` is how
    /// long ten bits take on the wire. Returns when it ends.
    pub fn ask(&self, now: u64, quanta: u16, ten_bits: u64) -> u64 {
        let until = now + u64::from(quanta) * QUANTUM_BITS * ten_bits / 10;
        self.set(Some(until));
        until
    }

    /// One that ends at this time, or none.
    pub fn set(&self, until: Option<u64>) {
        self.until.store(until.unwrap_or(0), Ordering::Release);
    }
}

/// The registers of flow control as all chips name them, in the module `$r`.
#[macro_export]
macro_rules! flow_ids {
    ($r:ident) => {
        $crate::flow::Ids {
            fcal: $r::FCAL,
            fcah: $r::FCAH,
            fct: $r::FCT,
            ral: $r::RAL,
            rah: $r::RAH,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_the_longest_is_what_the_slowest_wire_makes_of_it() {
        let silence = Silence::default();
        assert_eq!(silence.until(), None);
        assert_eq!(silence.ask(1_000, 100, 10), 1_000 + 51_200);
        assert_eq!(silence.ask(2_000, 0, 10), 2_000);
        assert_eq!(silence.until(), Some(2_000));
        assert_eq!(silence.ask(1, u16::MAX, 1_000), 3_355_392_001);
        silence.set(None);
        assert_eq!(silence.until(), None);
    }

    #[test]
    fn rctl_keeps_pauses_of_the_stations_own_and_lets_other_opcodes_in() {
        let of = |quanta, to_station| ControlFrame { quanta, to_station };
        let (dpf, pmcf) = (rctl::DPF, rctl::PMCF);
        assert!(of(Some(0), true).is_discarded(dpf));
        assert!(!of(Some(0), true).is_discarded(pmcf));
        assert!(!of(Some(9), false).is_discarded(dpf));
        assert!(!of(None, true).is_discarded(dpf));
        assert!(of(None, false).is_passed(pmcf) && !of(None, false).is_passed(dpf));
        assert!(!of(Some(9), false).is_passed(pmcf));
    }
}
