//! What a frame is to the receiver, and whether it gets in (manual §3.2.1).

use datapath::{FCS, GLANCE, MIN_FRAME};
use frame::Frame;
use intel::flow::ControlFrame;

use crate::core::flow;
use crate::core::stats::Stat;
use crate::filter::address as filter;
use crate::filter::address::FILTERS;
use crate::regs::bits::rctl;
use crate::rx::call::Rx;
use datapath::counters::count;

const ETHERNET_HEADER: usize = 14;
const TAG_AT: usize = 12;
const TAG: usize = 4;
/// The shortest thing that has a destination to filter by.
const ADDRESS: usize = 6;

/// How a frame goes into the buffers.
pub(crate) struct Accepted {
    head: [u8; GLANCE + TAG],
    head_len: usize,
    /// Where the rest of the frame begins.
    pub from: usize,
    pub dst: [u8; 6],
    pub tag: Option<u16>,
    /// The tag is taken out and reported beside the frame (CTRL.VME).
    pub strip: bool,
    /// Zeros missing to the shortest frame.
    pub pad: usize,
    /// Length on the wire, with FCS.
    pub on_wire: usize,
    /// Of a length that is not legal.
    pub bad: bool,
    /// A MAC control frame, while CTRL.RFCE has us look for them.
    pub control: Option<ControlFrame>,
}

impl Accepted {
    /// What stands in front of the rest of the frame, with the tag put in or left out.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

impl Rx<'_, '_> {
    /// Looks at the first bytes of a frame, which are the batch's own copy.
    pub(crate) fn look(&self, frame: &Frame<'_>) -> Accepted {
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
            Some(tci) => (self.vet == 0x8100).then_some(tci),
            // What is missing of a short frame will be padding: zeros, as they are here.
            None => (n >= ETHERNET_HEADER && word(TAG_AT) == self.vet).then(|| word(TAG_AT + 2)),
        };
        let strip = self.vme && tag.is_some();
        let (head_len, from) = match beside {
            Some(tci) if !strip && n >= ETHERNET_HEADER => {
                let [t0, t1] = 0x8100u16.to_be_bytes();
                let [c0, c1] = tci.to_be_bytes();
                head.copy_within(TAG_AT..GLANCE, TAG_AT + TAG);
                head[TAG_AT..TAG_AT + TAG].copy_from_slice(&[t0, t1, c0, c1]);
                (n + TAG, n)
            }
            None if strip => (TAG_AT, TAG_AT + TAG),
            _ => (0, 0),
        };
        let control = (n == GLANCE && beside.is_none() && self.obeys)
            .then(|| flow::control_frame(&self.chip.file, &first))
            .flatten();
        let runt = frame.len() < ETHERNET_HEADER;
        let bytes = frame.len() + if beside.is_some() { TAG } else { 0 };
        // An emulated wire pads what its senders did not; what has no header is no frame.
        let least = if runt { 0 } else { MIN_FRAME };
        let on_wire = bytes.max(least) + FCS;
        let in_buffers = head_len + frame.len().saturating_sub(from);
        // The place of a tag that is taken out is not padded again.
        let taken_out = if strip { TAG } else { 0 };
        Accepted {
            head,
            head_len,
            from,
            dst,
            tag,
            strip,
            pad: least.saturating_sub(taken_out + in_buffers),
            on_wire,
            bad: runt || on_wire > filter::max_len(self.rctl),
            control,
        }
    }

    /// Passes a frame that has just come through the filters; counts it if it goes no further.
    pub(crate) fn accept(&mut self, frame: &Frame<'_>) -> Option<Accepted> {
        let counters = &self.chip.counters;
        let accepted = self.look(frame);
        let runt = frame.len() < ETHERNET_HEADER;
        count(&counters.rx_runt, runt.into());
        if frame.len() < ADDRESS {
            return None;
        }
        let file = &self.chip.file;
        let mut special = false;
        if let Some(control) = accepted.control {
            let count = match control.quanta {
                Some(0) => Stat::Xonrxc,
                Some(_) => Stat::Xoffrxc,
                None => Stat::Fcruc,
            };
            self.account.tally.add(count, 1);
            self.pause = control.quanta.or(self.pause);
            if control.is_discarded(self.rctl) {
                self.account.tally.total(accepted.on_wire);
                return None;
            }
            special = control.is_passed(self.rctl);
        }
        let passes = (special || FILTERS.address(file, self.rctl, accepted.dst))
            && accepted
                .tag
                .is_none_or(|tci| FILTERS.vlan(file, self.rctl, tci));
        if !passes {
            self.account.filtered += 1;
            return None;
        }
        if !accepted.bad {
            return Some(accepted);
        }
        count(&counters.rx_oversize, (!runt).into());
        self.account
            .tally
            .add(if runt { Stat::Ruc } else { Stat::Roc }, 1);
        self.account.tally.add(Stat::Rlec, 1);
        // "Bad packets that pass the filter function are stored", as far as the chip can hold them.
        if self.rctl & rctl::SBP != 0 && accepted.on_wire <= filter::MAX_LONG {
            return Some(accepted);
        }
        self.account.tally.total(accepted.on_wire);
        None
    }
}
