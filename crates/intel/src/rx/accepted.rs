//! What a frame is to a receiver, and how it goes into buffers (8254x manual §3.2.1, 82576 datasheet §7.1.1).

use datapath::{FCS, GLANCE, MIN_FRAME};
use frame::Frame;

use crate::flow::ControlFrame;
use crate::stats::{Stat, Tally};

/// Bytes of addresses and type.
pub const ETHERNET_HEADER: usize = 14;
const TAG_AT: usize = 12;
const TAG: usize = 4;
/// The type of a tag that a frame carries beside its bytes.
const TAG_TYPE: u16 = 0x8100;
/// The shortest thing that has a destination to filter by.
const ADDRESS: usize = 6;

/// What registers say of tags and lengths, read once per call.
#[derive(Clone, Copy, Debug)]
pub struct FrameSettings {
    /// The type that makes a tag (VET).
    pub vet: u16,
    /// Tags are taken out and reported beside the frame.
    pub strip_vlan: bool,
    /// Longest frame let in, FCS included.
    pub max_len: usize,
    /// The same of a frame with a tag.
    pub max_tagged: usize,
}

/// How a frame goes into the buffers.
#[derive(Clone, Debug)]
pub struct Accepted {
    head: [u8; GLANCE + TAG],
    head_len: usize,
    /// Where the rest of the frame begins.
    pub from: usize,
    /// Its destination.
    pub dst: [u8; 6],
    /// Its tag.
    pub tag: Option<u16>,
    /// The tag is taken out and reported beside the frame.
    pub strip: bool,
    /// Zeros missing to the shortest frame.
    pub pad: usize,
    /// Length on the wire, with FCS.
    pub on_wire: usize,
    /// Shorter than an Ethernet header.
    pub runt: bool,
    /// Of a length that is not legal.
    pub bad: bool,
    /// A MAC control frame, while CTRL.RFCE has the receiver look for them.
    pub control: Option<ControlFrame>,
    /// Only the multicast table let it in. For a chip's own filter to set.
    pub inexact: bool,
}

impl Accepted {
    /// Looks at the first bytes of a frame, which are the batch's own copy. `control` recognises MAC control
    /// frames by them, if the receiver looks for such.
    #[inline]
    pub fn of(
        frame: &Frame<'_>,
        settings: &FrameSettings,
        control: impl FnOnce(&[u8; GLANCE]) -> Option<ControlFrame>,
    ) -> Accepted {
        let mut head = [0u8; GLANCE + TAG];
        let n = frame.head().len().min(GLANCE);
        head[..n].copy_from_slice(&frame.head()[..n]);
        let mut first = [0u8; GLANCE];
        first.copy_from_slice(&head[..GLANCE]);
        let mut dst = [0; 6];
        dst.copy_from_slice(&head[..6]);
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let beside = frame.notes().vlan;
        let tag = match beside {
            Some(tci) => (settings.vet == TAG_TYPE).then_some(tci),
            // What is missing of a short frame will be padding: zeros, as they are here.
            None => {
                (n >= ETHERNET_HEADER && word(TAG_AT) == settings.vet).then(|| word(TAG_AT + 2))
            }
        };
        let strip = settings.strip_vlan && tag.is_some();
        let (head_len, from) = match beside {
            Some(tci) if !strip && n >= ETHERNET_HEADER => {
                let [t0, t1] = TAG_TYPE.to_be_bytes();
                let [c0, c1] = tci.to_be_bytes();
                head.copy_within(TAG_AT..GLANCE, TAG_AT + TAG);
                head[TAG_AT..TAG_AT + TAG].copy_from_slice(&[t0, t1, c0, c1]);
                (n + TAG, n)
            }
            None if strip => (TAG_AT, TAG_AT + TAG),
            _ => (0, 0),
        };
        let control = match n == GLANCE && beside.is_none() {
            true => control(&first),
            false => None,
        };
        let runt = frame.len() < ETHERNET_HEADER;
        let bytes = frame.len() + if beside.is_some() { TAG } else { 0 };
        // An emulated wire pads what its senders did not; what has no header is no frame.
        let least = if runt { 0 } else { MIN_FRAME };
        let on_wire = bytes.max(least) + FCS;
        let in_buffers = head_len + frame.len().saturating_sub(from);
        // The place of a tag that is taken out is not padded again.
        let taken_out = if strip { TAG } else { 0 };
        let longest = match tag {
            Some(_) => settings.max_tagged,
            None => settings.max_len,
        };
        Accepted {
            head,
            head_len,
            from,
            dst,
            tag,
            strip,
            pad: least.saturating_sub(taken_out + in_buffers),
            on_wire,
            runt,
            bad: runt || on_wire > longest,
            control,
            inexact: false,
        }
    }

    /// Whether a frame has a destination to filter by.
    pub fn has_address(frame: &Frame<'_>) -> bool {
        frame.len() >= ADDRESS
    }

    /// What stands in front of the rest of the frame, with the tag put in or left out.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Bytes of a frame in its buffers.
    pub fn in_buffers(&self, strip_crc: bool) -> usize {
        let tag = if self.strip { TAG } else { 0 };
        let fcs = if strip_crc { FCS } else { 0 };
        self.on_wire.saturating_sub(tag + fcs)
    }

    /// Whether the filters let it in: `address` that of its destination, `vlan` that of its tag.
    #[inline]
    pub fn passes(
        &self,
        rctl: u32,
        address: impl FnOnce([u8; 6]) -> bool,
        vlan: impl FnOnce(u16) -> bool,
    ) -> bool {
        (self.control.is_some_and(|control| control.is_passed(rctl)) || address(self.dst))
            && self.tag.is_none_or(vlan)
    }

    /// Counts a MAC control frame, and notes in `pause` the silence it asks for. `false`: RCTL keeps it from
    /// the guest, and all of it is counted.
    pub fn obey(&self, rctl: u32, tally: &mut Tally, pause: &mut Option<u16>) -> bool {
        let Some(control) = self.control else {
            return true;
        };
        let kind = match control.quanta {
            Some(0) => Stat::Xonrxc,
            Some(_) => Stat::Xoffrxc,
            None => Stat::Fcruc,
        };
        tally.add(kind, 1);
        *pause = control.quanta.or(*pause);
        let discarded = control.is_discarded(rctl);
        if discarded {
            tally.total(self.on_wire);
        }
        !discarded
    }

    /// Counts a frame of a bad length.
    pub fn count_bad(&self, tally: &mut Tally) {
        tally.add(if self.runt { Stat::Ruc } else { Stat::Roc }, 1);
        tally.add(Stat::Rlec, 1);
    }

    /// Counts a frame that was received.
    pub fn count_received(&self, tally: &mut Tally) {
        if self.bad || self.control.is_some() {
            tally.total(self.on_wire);
        } else {
            tally.received(1, self.on_wire, self.dst);
        }
    }
}
