//! The receive side: from frames to buffers and descriptors (manual §3.2).

use std::cell::Cell;
use std::sync::Arc;

use frame::{Batch, Caps, Frame, Wake, expand, l4_intact};
use guest_mem::{View, WriteSlice};
use model::{Env, Receive};
use wire::{Fragment, L3Kind, L4Kind, Layers, Sum};

use crate::bits::{cause, ctrl, rctl, rxcsum};
use crate::desc::{DD, Fetcher, Ring, RingIds};
use crate::filter;
use crate::irq::Event;
use crate::regs as r;
use crate::shared::{Shared, count};
use crate::stats::{Stat, Tally};

pub(crate) const RING: RingIds = RingIds {
    base_low: r::RDBAL,
    base_high: r::RDBAH,
    len: r::RDLEN,
    head: r::RDH,
    tail: r::RDT,
};

const FCS: usize = 4;
const MIN_FRAME: usize = 60;
const ETHERNET_HEADER: usize = 14;
const TAG_AT: usize = 12;
/// Bytes copied of every frame: addresses, tag, type.
const GLANCE: usize = 18;
/// Bytes copied of a frame whose checksums are to be judged.
const HEADERS: usize = 256;
const CHUNK: usize = 2048;

/// Status and error bits of a receive descriptor (manual §3.2.3).
mod bit {
    pub const EOP: u8 = 1 << 1;
    pub const IXSM: u8 = 1 << 2;
    pub const VP: u8 = 1 << 3;
    pub const TCPCS: u8 = 1 << 5;
    pub const IPCS: u8 = 1 << 6;
    pub const PIF: u8 = 1 << 7;
    pub const TCPE: u8 = 1 << 5;
    pub const IPE: u8 = 1 << 6;
    pub const RXE: u8 = 1 << 7;
}

/// What the receiver remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct RxState {
    /// Frames found no descriptor and none has come since: counted once.
    pub(crate) starved: bool,
    /// Descriptors of the frame being received: index, bytes.
    pub(crate) used: Vec<(u32, u16)>,
    /// Room for the copy that a frame check sequence is computed from.
    pub(crate) copy: Vec<u8>,
}

impl RxState {
    pub(crate) fn reset(&mut self) {
        self.starved = false;
    }
}

thread_local! {
    /// Storage for expanded frames; batches are bound to a thread.
    static SPARE: Cell<Batch<'static>> = Cell::default();
}

/// The receive part.
pub(crate) struct Receiver {
    pub shared: Arc<Shared>,
}

impl Receive for Receiver {
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if self.shared.loopback() {
            // The wire is cut off.
            count(&self.shared.counters.rx_disabled, picks.len() as u64);
            return picks.len();
        }
        deliver(&self.shared, env, batch, picks)
    }

    fn caps(&self) -> Caps {
        // Without the guest's checksum offload there is no way to tell it that the sum in the
        // frame is not finished.
        let csum = self.shared.file.get(r::RXCSUM) & rxcsum::TUOFL != 0;
        Caps {
            csum,
            vlan: true,
            ..Caps::NONE
        }
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        let mut waiters = self.shared.waiters.lock();
        if !waiters.iter().any(|w| Arc::ptr_eq(w, waker)) {
            waiters.push(Arc::clone(waker));
        }
    }

    fn poll(&self, _env: &Env) {
        let shared = &self.shared;
        let free = Ring::read(&shared.file, &RING).map_or(1, |ring| ring.available());
        if free > 0 || !shared.rx_enabled() {
            shared.rx.lock().starved = false;
            shared.wake_waiters();
        }
    }
}

/// What became of a frame.
enum Outcome {
    Done,
    /// Dropped and counted.
    Lost,
    NoRoom,
}

/// Takes as many frames as there are descriptors for.
pub(crate) fn deliver(shared: &Shared, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
    let mut state = shared.rx.lock();
    let counters = &shared.counters;
    if !shared.rx_enabled() {
        count(&counters.rx_disabled, picks.len() as u64);
        return picks.len();
    }
    let Some(ring) = Ring::read(&shared.file, &RING) else {
        count(&counters.rx_bad_ring, picks.len() as u64);
        return picks.len();
    };
    let view = env.memory.view();
    let free = ring.available();
    let mut rx = Rx {
        shared,
        view: &view,
        ring,
        free,
        fetcher: Fetcher::new(),
        fetched: 0,
        rctl: shared.file.get(r::RCTL),
        vme: shared.file.get(r::CTRL) & ctrl::VME != 0,
        vet: shared.file.get(r::VET) as u16,
        rxcsum: shared.file.get(r::RXCSUM),
        tally: Tally::new(),
        frames: 0,
        bytes: 0,
        small: false,
    };
    let mut dealt = 0;
    for &pick in picks {
        // Drivers clear RCTL.EN and free the buffers some ms later: do not write on.
        if !shared.rx_enabled() {
            count(&counters.rx_disabled, 1);
            dealt += 1;
            continue;
        }
        let Some(frame) = batch.get(usize::from(pick)) else {
            dealt += 1;
            continue;
        };
        match rx.offer(&mut state, &frame) {
            Outcome::Done | Outcome::Lost => dealt += 1,
            Outcome::NoRoom => break,
        }
    }
    if dealt < picks.len() && !state.starved {
        state.starved = true;
        count(&counters.rx_no_buffer, 1);
        rx.tally.add(Stat::Rnbc, 1);
    }
    rx.finish(env, free);
    dealt
}

/// One call's worth of receiving.
struct Rx<'a, 'v> {
    shared: &'a Shared,
    view: &'v View<'v>,
    ring: Ring,
    /// Descriptors left.
    free: u32,
    fetcher: Fetcher,
    fetched: u64,
    rctl: u32,
    vme: bool,
    vet: u16,
    rxcsum: u32,
    tally: Tally,
    frames: u64,
    bytes: u64,
    /// A frame not longer than RSRPD came.
    small: bool,
}

/// A frame as it goes into the buffers: some bytes of ours, a part of the frame, padding and FCS.
struct Layout<'s, 'b> {
    head: &'s [u8],
    frame: &'s Frame<'b>,
    /// Where the part of the frame begins.
    from: usize,
    tail: &'s [u8],
}

impl Layout<'_, '_> {
    fn body(&self) -> usize {
        self.frame.len().saturating_sub(self.from)
    }

    fn len(&self) -> usize {
        self.head.len() + self.body() + self.tail.len()
    }

    /// Copies from byte `at` on until `to` is full.
    fn copy(&self, mut at: usize, to: &WriteSlice<'_>) {
        let mut done = 0;
        if at < self.head.len() {
            done += to.copy_from(done, &self.head[at..]);
            at = 0;
        } else {
            at -= self.head.len();
        }
        let body = self.body();
        if at < body {
            let mut skip = self.from + at;
            for slice in self.frame.slices() {
                if done == to.len() {
                    return;
                }
                let part = slice.sub(skip, usize::MAX);
                skip -= skip.min(slice.len());
                done += to.copy_from_slice(done, part);
            }
            at = 0;
        } else {
            at -= body;
        }
        if let Some(rest) = self.tail.get(at..) {
            to.copy_from(done, rest);
        }
    }
}

impl Rx<'_, '_> {
    /// Filters a frame and puts it into the ring.
    fn offer(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        let notes = frame.notes();
        let takes = Caps {
            csum: self.rxcsum & rxcsum::TUOFL != 0,
            vlan: true,
            ..Caps::NONE
        };
        if takes.accepts(notes) {
            return self.plain(state, frame);
        }
        let mut out = SPARE.take().recycle();
        let outcome = match expand(frame, takes, &mut out) {
            Ok(_) => self.all(state, &out),
            Err(_) => {
                count(&self.shared.counters.rx_bad_offload, 1);
                Outcome::Lost
            }
        };
        SPARE.set(out.recycle());
        outcome
    }

    /// All segments of a frame, or none, so that the sender can offer it again.
    fn all(&mut self, state: &mut RxState, segments: &Batch<'_>) -> Outcome {
        let size = filter::buffer_size(self.rctl);
        let each = |frame: Frame<'_>| (frame.len().max(MIN_FRAME) + 8).div_ceil(size);
        let need: usize = segments.iter().map(each).sum();
        let possible = need < self.ring.len as usize;
        if need > self.free as usize && possible {
            return Outcome::NoRoom;
        }
        for segment in segments.iter() {
            if let Outcome::NoRoom = self.plain(state, &segment) {
                // More than the ring can ever hold, or null buffers: the rest is lost.
                count(&self.shared.counters.rx_too_large, 1);
                self.tally.add(Stat::Mpc, 1);
            }
        }
        Outcome::Done
    }

    /// One frame that needs no expansion.
    fn plain(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        let counters = &self.shared.counters;
        let mut glance = [0u8; GLANCE + 4];
        let n = frame.copy_to(0, &mut glance[..GLANCE]);
        if n < ETHERNET_HEADER {
            count(&counters.rx_runt, 1);
            self.tally.add(Stat::Ruc, 1);
            return Outcome::Lost;
        }
        let mut dst = [0; 6];
        dst.copy_from_slice(&glance[..6]);
        let word = |at: usize| u16::from_be_bytes([glance[at], glance[at + 1]]);
        let beside = frame.notes().vlan;
        let inline = n == GLANCE && word(TAG_AT) == self.vet;
        let tag = match beside {
            Some(tci) => (self.vet == 0x8100).then_some(tci),
            None => inline.then(|| word(TAG_AT + 2)),
        };
        let file = &self.shared.file;
        let passes = filter::address(file, self.rctl, dst)
            && tag.is_none_or(|tci| filter::vlan(file, self.rctl, tci));
        if !passes {
            count(&counters.rx_filtered, 1);
            return Outcome::Lost;
        }
        // The bytes that go in front of the rest of the frame, with the tag put in or left out.
        let strip = self.vme && tag.is_some();
        let (head, from) = match beside {
            Some(_) if strip => (0, 0),
            Some(tci) => {
                let [t0, t1] = 0x8100u16.to_be_bytes();
                let [c0, c1] = tci.to_be_bytes();
                glance.copy_within(TAG_AT..GLANCE, TAG_AT + 4);
                glance[TAG_AT..TAG_AT + 4].copy_from_slice(&[t0, t1, c0, c1]);
                (n + 4, n)
            }
            None if strip => (TAG_AT, TAG_AT + 4),
            None => (0, 0),
        };
        let mut layout = Layout {
            head: &glance[..head],
            frame,
            from,
            tail: &[],
        };
        let on_wire = frame.len() + if beside.is_some() { 4 } else { 0 };
        let on_wire = on_wire.max(MIN_FRAME) + FCS;
        if on_wire > filter::max_len(self.rctl) {
            count(&counters.rx_oversize, 1);
            self.tally.add(Stat::Roc, 1);
            return Outcome::Lost;
        }
        let mut tail = [0u8; MIN_FRAME + FCS];
        let pad = MIN_FRAME.saturating_sub(layout.len());
        let crc = self.rctl & rctl::SECRC == 0;
        if crc {
            let fcs = if self.shared.true_fcs {
                state.copy.resize(CHUNK, 0);
                crc32(&layout, pad, &mut state.copy)
            } else {
                0
            };
            tail[pad..pad + FCS].copy_from_slice(&fcs.to_le_bytes());
        }
        layout.tail = &tail[..pad + if crc { FCS } else { 0 }];
        let special = if strip { tag.unwrap_or(0) } else { 0 };
        let (mut status, errors) = self.verdict(frame);
        if strip {
            status |= bit::VP;
        }
        if dst[0] & 1 == 1 && dst != [0xff; 6] {
            status |= bit::PIF;
        }
        let placed = self.place(state, &layout, status, errors, special);
        if let Outcome::Done = placed {
            self.tally.received(on_wire as u64, &dst);
            self.frames += 1;
            self.bytes += frame.len() as u64;
            let small = file.get(r::RSRPD);
            self.small |= small != 0 && on_wire <= small as usize;
        }
        placed
    }

    /// Copies a frame into the buffers of the next descriptors and writes these back.
    fn place(
        &mut self,
        state: &mut RxState,
        layout: &Layout<'_, '_>,
        status: u8,
        errors: u8,
        special: u16,
    ) -> Outcome {
        let counters = &self.shared.counters;
        let size = filter::buffer_size(self.rctl);
        let len = layout.len();
        state.used.clear();
        let (mut index, mut free, mut at) = (self.ring.head, self.free, 0);
        let mut lost = false;
        while at < len && !lost {
            if free == 0 {
                let fits = len.div_ceil(size) < self.ring.len as usize;
                if fits && self.free + 1 < self.ring.len {
                    return Outcome::NoRoom;
                }
                // It would not fit a ring full of buffers (or these are null), and must not block
                // those behind it.
                count(&counters.rx_too_large, 1);
                self.tally.add(Stat::Mpc, 1);
                lost = true;
                break;
            }
            let got = self
                .fetcher
                .get(self.view, &self.ring, index, free, &mut self.fetched);
            let Ok(raw) = got else {
                // The ring itself is out of reach: nothing can be written back.
                count(&counters.rx_dma_fault, 1);
                return Outcome::Lost;
            };
            let addr = u64::from_le_bytes([
                raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7],
            ]);
            // A null buffer is written back and passed over (manual §3.2.3).
            let n = if addr == 0 { 0 } else { size.min(len - at) };
            let mut done = at;
            let written = self.view.write_slices(addr, n as u64, &mut |to| {
                layout.copy(done, &to);
                done += to.len();
            });
            if written.is_err() {
                count(&counters.rx_dma_fault, 1);
                lost = true;
            }
            state.used.push((index, n as u16));
            at += n;
            index = self.ring.next(index);
            free -= 1;
        }
        let (status, errors) = if lost {
            (bit::IXSM, bit::RXE)
        } else {
            (status, errors)
        };
        let last = state.used.len().wrapping_sub(1);
        for (i, &(index, n)) in state.used.iter().enumerate() {
            let end = i == last;
            let [l0, l1] = n.to_le_bytes();
            let [s0, s1] = if end { special } else { 0 }.to_le_bytes();
            let flags = DD | if end { bit::EOP | status } else { 0 };
            let errors = if end { errors } else { 0 };
            // One aligned word, so that the guest sees all of it or nothing.
            let back = [l0, l1, 0, 0, flags, errors, s0, s1];
            let at = self.ring.address(index).wrapping_add(8);
            if self.view.write_release(at, &back).is_err() {
                count(&counters.rx_dma_fault, 1);
            }
        }
        self.ring.head = index;
        self.free = free;
        if lost { Outcome::Lost } else { Outcome::Done }
    }

    /// Status and error bits of the checksum offload (manual §3.2.9).
    fn verdict(&self, frame: &Frame<'_>) -> (u8, u8) {
        let on = |bit| self.rxcsum & bit != 0;
        if !on(rxcsum::IPOFL) && !on(rxcsum::TUOFL) {
            return (bit::IXSM, 0);
        }
        let mut copy = [0u8; HEADERS];
        let n = frame.copy_to(0, &mut copy);
        let head = &copy[..n];
        let Some((layers, l3)) = Layers::parse(head).and_then(|l| Some((l, l.l3?))) else {
            return (bit::IXSM, 0);
        };
        let (mut status, mut errors) = (0, 0);
        if on(rxcsum::IPOFL) && l3.kind == L3Kind::V4 {
            status |= bit::IPCS;
            let header = head.get(l3.offset..l3.offset + l3.len).unwrap_or(&[]);
            if !Sum::of(header).is_intact() {
                errors |= bit::IPE;
            }
        }
        let known = layers
            .l4
            .is_some_and(|l4| matches!(l4.kind, L4Kind::Tcp | L4Kind::Udp));
        if on(rxcsum::TUOFL) && known && l3.fragment == Fragment::Whole {
            let notes = frame.notes();
            let intact = if notes.csum.is_some() || notes.csum_valid {
                Some(true)
            } else {
                l4_intact(frame, head, &layers)
            };
            match intact {
                Some(true) => status |= bit::TCPCS,
                Some(false) => {
                    status |= bit::TCPCS;
                    errors |= bit::TCPE;
                }
                None => {}
            }
        }
        if status == 0 {
            status = bit::IXSM;
        }
        (status, errors)
    }

    /// Head, statistics and one interrupt decision.
    fn finish(self, env: &Env, free_before: u32) {
        let Rx { shared, ring, .. } = self;
        shared.stats.add(&self.tally);
        count(&shared.counters.rx_desc_fetched, self.fetched);
        count(&shared.counters.rx_frames, self.frames);
        count(&shared.counters.rx_bytes, self.bytes);
        if self.free == free_before {
            return;
        }
        shared.file.set(r::RDH, ring.head);
        let mut event = Event {
            packet: shared.file.get(r::RDTR),
            absolute: shared.file.get(r::RADV),
            ..Event::default()
        };
        if event.packet == 0 {
            event.now |= cause::RXT0;
        } else {
            event.delayed = true;
        }
        // 1/2, 1/4 or 1/8 of the ring (manual §13.4.22); 11b is reserved.
        let threshold = ring.len >> ((self.rctl >> rctl::RDMTS_SHIFT & 3) + 1);
        if self.free <= threshold && free_before > threshold {
            event.now |= cause::RXDMT0;
        }
        if self.small {
            event.now |= cause::SRPD;
        }
        shared.irq.lock().received(env, event);
    }
}

/// The frame check sequence of a frame with `pad` zeros behind it. `copy` is scratch space.
fn crc32(layout: &Layout<'_, '_>, pad: usize, copy: &mut [u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(layout.head);
    let mut skip = layout.from;
    for slice in layout.frame.slices() {
        let part = slice.sub(skip, usize::MAX);
        skip -= skip.min(slice.len());
        let mut start = 0;
        while start < part.len() {
            let n = part.copy_to(start, copy);
            hasher.update(&copy[..n]);
            start += n;
        }
    }
    hasher.update(&[0; MIN_FRAME][..pad]);
    hasher.finalize()
}
