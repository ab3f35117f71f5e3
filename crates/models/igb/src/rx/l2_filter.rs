//! Which frames get in, and how they go into buffers (§7.1.1, §7.1.2).

use datapath::{FCS, GLANCE, MIN_FRAME};
use frame::Frame;
use intel::flow::ControlFrame;

use crate::core::function::{FunctionKind, count};
use crate::core::stats::Stat;
use crate::filter::address::FILTERS;
use crate::regs as r;
use crate::regs::settings::Rules;
use crate::rx::call::Call;
use crate::rx::counts::Counts;

const ETHERNET_HEADER: usize = 14;
const TAG_AT: usize = 12;
const TAG: usize = 4;
/// The shortest thing that has a destination to filter by.
const ADDRESS: usize = 6;

/// Whether a frame has a destination to filter by.
pub(crate) fn has_address(frame: &Frame<'_>) -> bool {
    frame.len() >= ADDRESS
}

/// Whether a frame has what every frame has.
pub(crate) fn has_header(frame: &Frame<'_>) -> bool {
    frame.len() >= ETHERNET_HEADER
}

/// How a frame goes into the buffers.
pub(crate) struct Accepted {
    head: [u8; GLANCE + TAG],
    head_len: usize,
    /// Where the rest of the frame begins.
    pub from: usize,
    pub dst: [u8; 6],
    pub tag: Option<u16>,
    /// The tag is taken out and reported beside the frame.
    pub strip: bool,
    /// Zeros missing to the shortest frame.
    pub pad: usize,
    /// Length on the wire, with FCS.
    pub on_wire: usize,
    /// Of a length that is not legal.
    pub bad: bool,
    /// A MAC control frame, while CTRL.RFCE has us look for them.
    pub control: Option<ControlFrame>,
    /// Only the multicast table let it in.
    pub inexact: bool,
    /// Whether its time of arrival was taken, where it is for several queues.
    pub timed: Option<bool>,
}

impl Accepted {
    /// What stands in front of the rest of the frame, with the tag put in or left out.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Bytes of a frame in its buffers.
    pub(crate) fn in_buffers(&self, strip_crc: bool) -> usize {
        let tag = if self.strip { TAG } else { 0 };
        let fcs = if strip_crc { FCS } else { 0 };
        self.on_wire.saturating_sub(tag + fcs)
    }
}

impl Call<'_> {
    /// Looks at the first bytes of a frame, which are the batch's own copy.
    pub(crate) fn look(&self, frame: &Frame<'_>) -> Accepted {
        let rules = &self.rules;
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
            Some(tci) => (rules.vet == 0x8100).then_some(tci),
            // What is missing of a short frame will be padding: zeros, as they are here.
            None => (n >= ETHERNET_HEADER && word(TAG_AT) == rules.vet).then(|| word(TAG_AT + 2)),
        };
        let strip = rules.strip_vlan && tag.is_some();
        let (head_len, from) = match beside {
            Some(tci) if !strip && n >= ETHERNET_HEADER => {
                let [c0, c1] = tci.to_be_bytes();
                head.copy_within(TAG_AT..GLANCE, TAG_AT + TAG);
                head[TAG_AT..TAG_AT + TAG].copy_from_slice(&[0x81, 0, c0, c1]);
                (n + TAG, n)
            }
            None if strip => (TAG_AT, TAG_AT + TAG),
            _ => (0, 0),
        };
        let control = (n == GLANCE && beside.is_none() && self.obeys)
            .then(|| self.function.control_frame(&first))
            .flatten();
        let runt = frame.len() < ETHERNET_HEADER;
        let bytes = frame.len() + if beside.is_some() { TAG } else { 0 };
        // An emulated wire pads what its senders did not; what has no header is no frame.
        let least = if runt { 0 } else { MIN_FRAME };
        let on_wire = bytes.max(least) + FCS;
        let in_buffers = head_len + frame.len().saturating_sub(from);
        // The place of a tag that is taken out is not padded again.
        let taken_out = if strip { TAG } else { 0 };
        let longest = match tag {
            Some(_) => rules.max_tagged,
            None => rules.max_len,
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
            bad: runt || on_wire > longest,
            inexact: false,
            control,
            timed: None,
        }
    }
}

impl Counts {
    /// Passes a frame through the filters; counts it if it goes no further.
    pub(crate) fn accept(&mut self, call: &Call<'_>, frame: &Frame<'_>) -> Option<Accepted> {
        let counters = &call.function.counters;
        let mut accepted = call.look(frame);
        let runt = !has_header(frame);
        count(&counters.rx_runt, runt.into());
        if !has_address(frame) {
            return None;
        }
        if let (FunctionKind::Pf, None) = (&call.function.kind, call.rules.pools) {
            let file = &call.function.file;
            let rctl = file.get(r::RCTL);
            let tag = accepted.tag;
            if !self.heed(&accepted, rctl) {
                return None;
            }
            let special = accepted.control.is_some_and(|c| c.is_passed(rctl));
            let passes = (special || FILTERS.address(file, rctl, accepted.dst))
                && tag.is_none_or(|tci| FILTERS.vlan(file, rctl, tci));
            if !passes {
                count(&counters.rx_filtered, 1);
                return None;
            }
            accepted.inexact = FILTERS.inexact(file, rctl, accepted.dst);
        }
        if !accepted.bad {
            return Some(accepted);
        }
        count(&counters.rx_oversize, (!runt).into());
        let kind = if runt { Stat::Ruc } else { Stat::Roc };
        self.tally.add(kind, 1);
        self.tally.add(Stat::Rlec, 1);
        // "Bad packets that pass the filter function are stored", as far as the chip can hold them.
        if call.rules.store_bad && accepted.on_wire <= Rules::LONGEST {
            return Some(accepted);
        }
        self.tally.total(accepted.on_wire);
        None
    }

    /// Counts a MAC control frame and notes what it asks for. `false`: it goes no further, and is
    /// counted.
    pub(crate) fn heed(&mut self, accepted: &Accepted, rctl: u32) -> bool {
        let Some(control) = accepted.control else {
            return true;
        };
        let kind = match control.quanta {
            Some(0) => Stat::Xonrxc,
            Some(_) => Stat::Xoffrxc,
            None => Stat::Fcruc,
        };
        self.tally.add(kind, 1);
        self.pause = control.quanta.or(self.pause);
        let discarded = control.is_discarded(rctl);
        if discarded {
            self.tally.total(accepted.on_wire);
        }
        !discarded
    }

    /// Counts a frame that the wire brought and that was received.
    pub(crate) fn took(&mut self, accepted: &Accepted) {
        if accepted.bad || accepted.control.is_some() {
            self.tally.total(accepted.on_wire);
        } else {
            self.tally.received(1, accepted.on_wire, accepted.dst);
        }
    }
}
