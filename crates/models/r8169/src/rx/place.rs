//! A frame on its way into the driver's buffers: frame, padding, FCS, checksum.

use std::sync::atomic::AtomicU64;

use datapath::counters::count;
use datapath::{FCS, Finish, Layout, MIN_FRAME, with_places};
use frame::{Frame, work};
use guest_mem::{View, WriteSlice};
use wire::{ETHERNET_HEADER, EtherType, VLAN_TAG};

use crate::core::chip::Chip;
use crate::core::kept::{self, Says};
use crate::core::queues::{Group, MOST, RxState, fetch, place};
use crate::core::row::Walk;
use crate::regs as r;
use crate::regs::bits::{cpcr, desc, rx};
use crate::rx::verdict::verdict;

/// Bytes in front of a tag.
const TAG_AT: usize = 12;
/// Descriptors whose reading costs about as much as the copy of a frame.
pub(super) const DESCS_PER_COPY: u64 = 8;
/// Padding and FCS.
pub(super) const ZEROS: [u8; MIN_FRAME + FCS] = [0; MIN_FRAME + FCS];

/// What the registers say, read once in a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub base: u64,
    /// Most bytes of a frame, with FCS.
    pub most: usize,
    pub strip: bool,
    pub judge: bool,
}

impl Settings {
    pub fn of(chip: &Chip) -> Self {
        let file = &chip.file;
        let most = file.get(r::RMS) >> 16 & rx::LENGTH;
        let cpcr = file.get(r::CPCR_MITIGATE);
        Settings {
            base: chip.address(r::RDSAR_LOW, r::RDSAR_HIGH),
            most: if most == 0 { rx::LENGTH } else { most } as usize,
            strip: cpcr & cpcr::RX_VLAN != 0,
            judge: cpcr & cpcr::RX_CHECKSUM != 0,
        }
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placed<'c> {
    Yes,
    /// It is dropped, and this counts it.
    No(&'c AtomicU64),
    /// There are too few descriptors, and none was taken.
    NoRoom,
}

/// What placing a frame needs.
pub(super) struct Placing<'a, 'm> {
    pub chip: &'a Chip,
    pub view: &'a View<'m>,
    pub settings: Settings,
    pub state: &'a mut RxState,
    pub group: Group,
    pub station: bool,
}

/// How a frame lies in its buffers: what stands before it, from where it does, and what follows.
struct Shape {
    head: [u8; TAG_AT + VLAN_TAG],
    head_len: usize,
    from: usize,
    /// What the descriptor says beside.
    opts2: u32,
    body: usize,
    tail: usize,
}

/// A frame's tag, and where it stands if that is in the frame.
fn tag_of(frame: &Frame<'_>) -> Option<(u16, bool)> {
    if let Some(tci) = frame.notes().vlan {
        return Some((tci, false));
    }
    let &[t0, t1, c0, c1] = frame.head().get(TAG_AT..)?.first_chunk()?;
    let tagged = u16::from_be_bytes([t0, t1]) == EtherType::VLAN.0;
    (tagged && frame.len() >= ETHERNET_HEADER + VLAN_TAG)
        .then(|| (u16::from_be_bytes([c0, c1]), true))
}

/// Bytes on the wire, with FCS. `beside`: its tag is not in the frame.
fn length(frame: &Frame<'_>, beside: bool) -> usize {
    let tag = if beside { VLAN_TAG } else { 0 };
    (frame.len() + tag).max(MIN_FRAME) + FCS
}

/// The same of a frame as it comes.
pub(super) fn on_wire(frame: &Frame<'_>) -> usize {
    length(frame, frame.notes().vlan.is_some())
}

impl<'a> Placing<'a, '_> {
    /// How a frame will lie in its buffers. `None`: it is too long.
    fn shape(&self, frame: &Frame<'_>) -> Option<Shape> {
        let mut head = [0; TAG_AT + VLAN_TAG];
        let (mut head_len, mut from, mut opts2) = (0, 0, 0);
        // In the frame, or beside it; in the buffer, or beside that.
        let tag = tag_of(frame);
        let (inside, beside) = match tag {
            Some((tci, inside)) if self.settings.strip => {
                opts2 |= rx::TAG | u32::from(tci.swap_bytes());
                (inside, false)
            }
            Some((_, inside)) => (false, !inside),
            None => (false, false),
        };
        if let Some(addresses) = frame.head().first_chunk::<TAG_AT>()
            && (inside || beside)
        {
            head[..TAG_AT].copy_from_slice(addresses);
            (head_len, from) = (TAG_AT, TAG_AT);
            if inside {
                from += VLAN_TAG;
            } else {
                let [c0, c1] = tag.unwrap_or_default().0.to_be_bytes();
                head[TAG_AT..].copy_from_slice(&[0x81, 0, c0, c1]);
                head_len += VLAN_TAG;
            }
        }
        let on_wire = length(frame, tag.is_some_and(|(_, inside)| !inside));
        let body = head_len + frame.len() - from;
        (on_wire <= self.settings.most).then_some(Shape {
            head,
            head_len,
            from,
            opts2,
            body,
            tail: MIN_FRAME.saturating_sub(body) + FCS,
        })
    }

    /// Takes descriptors for a frame and leaves them as they are. `false`: there are too few, or it is not for them.
    pub fn reserve(&mut self, frame: &Frame<'_>) -> bool {
        let total = self.shape(frame).map(|shape| shape.body + shape.tail);
        let tally = self.state.tally;
        let taken = total.and_then(|total| self.collect(total).ok());
        // What is wrong is counted when the frame is placed.
        self.state.tally = tally;
        let Some((_, end)) = taken else {
            return false;
        };
        self.state.next = end;
        true
    }

    /// Places one frame, whose checksum can be written on the way if it is noted. The driver does not see it yet.
    pub fn one(&mut self, frame: &Frame<'_>) -> Placed<'a> {
        let Some(shape) = self.shape(frame) else {
            self.state.tally.errors += 1;
            return Placed::No(&self.chip.counters.rx_too_long);
        };
        let Shape {
            head,
            head_len,
            from,
            mut opts2,
            body,
            tail,
        } = shape;
        let total = body + tail;
        let (begin, end) = match self.collect(total) {
            Ok(range) => range,
            Err(why) => return why,
        };
        let layout = Layout {
            head: &head[..head_len],
            frame,
            from,
            tail: &ZEROS[..tail],
        };
        let written = with_places(|places| self.fill(&layout, total, places));
        let mut opts1 = group_bits(self.group, self.station) | total as u32;
        if self.settings.judge {
            let (first, second) = verdict(frame);
            opts1 |= first;
            // Version 1 does not say which IP it is.
            opts2 |= if self.chip.variant.is_first() {
                0
            } else {
                second
            };
        }
        let tally = &mut self.state.tally;
        tally.buffers += self.state.descs.len() as u32;
        if written {
            tally.frames += 1;
            tally.bytes += frame.len() as u64;
            tally.groups[self.group as usize] += 1;
        } else {
            // The descriptors are given back with an error, or the ring would stand still.
            tally.errors += 1;
            tally.fault = true;
            count(&self.chip.counters.rx_dma_fault, 1);
            opts1 |= rx::ERROR;
        }
        self.complete((opts1, opts2), total);
        debug_assert_eq!(begin, self.state.descs[0].index);
        self.state.next = end;
        Placed::Yes
    }

    /// Takes descriptors for `total` bytes. Returns the first one's index, and that of the one behind the last. Those looked at
    /// in vain are work, too: a ring of empty buffers is walked for every frame.
    fn collect(&mut self, total: usize) -> Result<(u32, u32), Placed<'a>> {
        let taken = self.walk(total);
        work::add(self.state.descs.len() as u64 / DESCS_PER_COPY);
        taken
    }

    fn walk(&mut self, total: usize) -> Result<(u32, u32), Placed<'a>> {
        let begin = self.state.next;
        let mut at = begin;
        let mut left = total;
        self.state.descs.clear();
        while left > 0 {
            if self.state.fence == Some(at) {
                return Err(Placed::NoRoom);
            }
            match fetch(self.view, self.settings.base, at) {
                Ok(Some(desc)) => {
                    let size = (desc.opts1 & rx::LENGTH) as usize;
                    self.state.tally.empty += u32::from(size == 0);
                    left -= left.min(size);
                    at = desc.next();
                    self.state.descs.push(desc);
                }
                Ok(None) => return Err(Placed::NoRoom),
                Err(_) => {
                    self.state.tally.fault = true;
                    return Err(Placed::No(&self.chip.counters.rx_dma_fault));
                }
            }
            let taken = self.state.descs.len() as u32;
            if left > 0 && (at == begin || taken == MOST) {
                self.state.tally.errors += 1;
                return Err(Placed::No(&self.chip.counters.rx_too_long));
            }
        }
        Ok((begin, at))
    }

    /// Copies the frame into the buffers of its descriptors, and writes its checksum. `false`: one is not in memory.
    fn fill(
        &self,
        layout: &Layout<'_, '_>,
        total: usize,
        places: &mut Vec<WriteSlice<'a>>,
    ) -> bool {
        let view = self.view;
        let mut left = total;
        for desc in &self.state.descs {
            let len = left.min((desc.opts1 & rx::LENGTH) as usize);
            left -= len;
            let found = view.write_slices(desc.addr, len as u64, &mut |run| places.push(run));
            if len > 0 && found.is_err() {
                return false;
            }
        }
        let mut at = 0;
        let Some(mut sum) = Finish::new(layout) else {
            for place in places {
                layout.copy(at, place);
                at += place.len();
            }
            return true;
        };
        for place in &*places {
            sum.copy(layout, at, place);
            at += place.len();
        }
        // The field may lie across two places.
        let mut skip = sum.field();
        let mut value = &sum.value()[..];
        for place in places {
            if value.is_empty() {
                break;
            }
            if skip < place.len() {
                value = &value[place.copy_from(skip, value)..];
                skip = 0;
            } else {
                skip -= place.len();
            }
        }
        true
    }

    /// Notes what goes into the descriptors of a frame of `total` bytes.
    fn complete(&mut self, (opts1, opts2): (u32, u32), total: usize) {
        let RxState { descs, filled, .. } = &mut *self.state;
        let last = descs.len().saturating_sub(1);
        let whole = self.chip.variant.last_says_all();
        let mut before = 0;
        for (i, desc) in descs.iter().enumerate() {
            let size = (desc.opts1 & rx::LENGTH) as usize;
            let here = size.min(total - before.min(total));
            before += size;
            let mut word = opts1 & !rx::LENGTH | desc.opts1 & desc::EOR;
            // Each says how much is in it, the last of older chips how much there is.
            word |= if i == last && whole { total } else { here } as u32 & rx::LENGTH;
            if i == 0 {
                word |= desc::FS;
            }
            if i == last {
                word |= desc::LS;
            }
            filled.push((desc.index, word, opts2));
        }
        debug_assert!(before >= total);
    }

    /// Gives the filled descriptors to the driver.
    pub fn publish(&mut self) {
        publish(self.chip, self.view, self.settings.base, self.state);
    }
}

/// What a descriptor says of the destination.
pub(super) fn group_bits(group: Group, station: bool) -> u32 {
    match group {
        Group::Multicast => rx::MULTICAST,
        Group::Broadcast => rx::BROADCAST,
        Group::Station if station => rx::STATION,
        Group::Station => 0,
    }
}

/// Gives filled descriptors to the driver.
pub(super) fn publish(chip: &Chip, view: &View<'_>, base: u64, state: &mut RxState) {
    let says = |(_, opts1, opts2): (u32, u32, u32)| u64::from(opts2) << 32 | u64::from(opts1);
    let RxState { filled, words, .. } = state;
    if let Some(kept) = chip.kept.get() {
        let Some((first, ..)) = filled.first() else {
            return;
        };
        let walk = Walk::along(*first, filled.iter().map(|(_, opts1, _)| *opts1));
        words.clear();
        words.extend(filled.drain(..).map(says));
        let faults = &chip.counters.rx_dma_fault;
        return kept::publish(kept, (view, base), walk, Says::Each(words), faults);
    }
    for what in filled.drain(..) {
        if view
            .write_release(place(base, what.0), &says(what).to_le_bytes())
            .is_err()
        {
            count(&chip.counters.rx_dma_fault, 1);
        }
    }
}
