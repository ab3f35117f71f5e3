//! The descriptor parser: from the descriptors of a ring to frames (8254x manual §3.3, 82576 datasheet §7.2.2,
//! §7.2.4).

use datapath::counters::{count, count_alone};
use datapath::offload::{MAX_TSO, Refused, Request};
use datapath::{FCS, Gather};
use frame::{Batch, Caps};
use guest_mem::{ReadSlice, View};
use wire::MAX_SEGMENTS;

use crate::counters::Counters;
use crate::ring::Ring;
use crate::tx::desc::{Body, Desc, Format, cmd, legacy_places, parse};
use crate::tx::mark::{Before, Mark, Memory, Refusal, Store, Tso};
use crate::tx::scratch::Scratch;

/// Descriptors one packet may have. Drivers use some dozens; a chain without an end stops here.
const MAX_DESCS: u32 = 1024;
/// Bytes gathered for one batch, about a quarter of a processor's own cache: what is prefetched, and
/// what the receiver is about to read, shall still be there when it is copied.
pub(crate) const MOST_BYTES: usize = 256 << 10;

/// What a segment costs at least, in bytes: about those of a full frame.
const SEGMENT: usize = 1400;

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the tail, or at a packet whose end is not there yet.
    Tail,
    /// The batch or the budget is full.
    Full,
    /// A descriptor could not be read.
    Fault,
}

/// What registers say about all packets of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// What the sink can do for us.
    pub caps: Caps,
    /// TCTL.PSP: short packets are padded.
    pub pad: bool,
    /// The type of tags (VET) that descriptors with VLE get; `None`: they get none.
    pub vlan: Option<u16>,
    /// The tag that every packet gets whatever its descriptors say: type and control information.
    pub tag: Option<(u16, u16)>,
    /// Whether plain packets go in runs. Off where a test compares.
    pub fast_path: bool,
}

/// The packet being gathered.
#[derive(Clone, Copy, Default)]
struct Packet {
    /// What it asks for; `None` before its first data descriptor.
    request: Option<Request>,
    len: usize,
    descs: u32,
    /// Bytes of FCS that the guest has written itself.
    fcs: usize,
    fault: bool,
    legacy: bool,
    stamp: bool,
    /// The run of memory under way: where it begins, and its bytes.
    run: (u64, u64),
}

impl Packet {
    /// What it takes of a turn, in bytes: those it has, or those of as many full frames as it becomes.
    fn cost(&self) -> usize {
        let Some(request) = self.request.filter(|request| request.segment) else {
            return self.len;
        };
        let places = &request.places;
        let payload = self.len.saturating_sub(places.hdrlen.into());
        let segments = match places.mss {
            0 => 0,
            mss => payload.div_ceil(mss.into()),
        };
        // A refused one makes none.
        let made = if segments > MAX_SEGMENTS { 0 } else { segments };
        self.len.max(made * SEGMENT)
    }
}

impl Packet {
    /// Finds the run of memory under way.
    fn gather<'v>(&mut self, view: &'v View<'v>, pieces: &mut Vec<ReadSlice<'v>>) {
        let (at, len) = std::mem::take(&mut self.run);
        if !self.fault && len > 0 {
            let found = view.read_slices(at, len, &mut |piece| pieces.push(piece));
            self.fault = found.is_err();
        }
    }
}

/// The way along a ring, from its head on.
pub struct Parser<'a, 'v, F: Format> {
    pub(crate) view: &'v View<'v>,
    pub(crate) ring: Ring,
    settings: Settings,
    counters: &'a Counters,
    pub(crate) at: u32,
    pub(crate) left: u32,
    memory: Memory<F::Contexts>,
    packet: Packet,
    /// Bytes of the packets so far.
    pub(crate) bytes: usize,
    /// A descriptor to be reported was passed; one whose interrupt may be delayed.
    pub(crate) now: bool,
    pub(crate) delayed: bool,
    /// Bytes that may still be gathered in this turn.
    pub(crate) room: usize,
}

impl<'a, 'v, F: Format> Parser<'a, 'v, F> {
    /// One that begins at the head of `ring`, with `left` descriptors and `room` bytes to go.
    #[inline]
    pub fn new(
        view: &'v View<'v>,
        (ring, left, room): (Ring, u32, usize),
        memory: Memory<F::Contexts>,
        settings: Settings,
        counters: &'a Counters,
    ) -> Self {
        Parser {
            view,
            ring,
            settings,
            counters,
            at: ring.head,
            left,
            memory,
            packet: Packet::default(),
            bytes: 0,
            now: false,
            delayed: false,
            room,
        }
    }

    /// Descriptors and bytes that are still to go.
    #[inline]
    pub fn left(&self) -> (u32, usize) {
        (self.left, self.room)
    }

    /// Makes frames of the descriptors until `limit` frames, the tail or a fault. `skip` frames of the first
    /// packet have been sent before.
    pub fn fill(
        &mut self,
        store: &mut Store<F::Contexts>,
        scratch: &mut Scratch<'v>,
        mut skip: usize,
        limit: usize,
    ) -> End {
        let mut fetched = 0;
        store.begin(self.memory);
        scratch.pieces.clear();
        let end = loop {
            let frames = scratch.batch.len();
            if frames >= limit || self.room == 0 || self.bytes >= MOST_BYTES {
                break End::Full;
            }
            if self.left == 0 {
                break self.out_of_descs(store, scratch);
            }
            let between = self.packet.request.is_none() && !self.memory.skipping;
            if self.settings.fast_path && between && skip == 0 {
                let most = (limit - frames).min(self.left as usize);
                if self.fast_path(store, scratch, most, &mut fetched) {
                    continue;
                }
            }
            let got = store
                .fetcher
                .get(self.view, &self.ring, self.at, self.left, &mut fetched);
            let Some(raw) = got.ok().and_then(<[_]>::first) else {
                count(&self.counters.tx_dma_fault, 1);
                break End::Fault;
            };
            let desc = parse::<F>(raw);
            if desc.cmd & F::REPORT != 0 {
                store.written.push(self.at);
                if desc.cmd & F::DELAY != 0 {
                    self.delayed = true;
                } else {
                    self.now = true;
                }
            }
            self.at = self.ring.next(self.at);
            self.left -= 1;
            if !self.take(&desc, store, &mut scratch.pieces) {
                // Not (yet) the end of a packet. Between packets the ring is done up to here.
                if self.packet.request.is_none() {
                    self.mark(store, frames, None, false);
                }
                continue;
            }
            let cost = self.packet.cost();
            self.bytes = self.bytes.saturating_add(cost);
            self.room = self.room.saturating_sub(cost);
            if !self.emit(store, scratch, skip) {
                break End::Full;
            }
            skip = 0;
        };
        count_alone(&self.counters.tx_desc_fetched, fetched);
        end
    }

    /// Adds a descriptor to the packet. Returns whether the packet is complete.
    fn take(
        &mut self,
        desc: &Desc<F::Context, F::Asks>,
        store: &mut Store<F::Contexts>,
        pieces: &mut Vec<ReadSlice<'v>>,
    ) -> bool {
        let eop = desc.cmd & cmd::EOP != 0;
        match desc.body {
            Body::Context(context) => {
                // A packet under way keeps the context it began with.
                F::keep(&mut self.memory.contexts, desc.cmd, context);
                return false;
            }
            Body::Unknown => {
                store.refuse(Refusal::BadDesc, (self.at, 1));
                return false;
            }
            Body::Legacy { .. } | Body::Data(_) => {}
        }
        if self.memory.skipping {
            self.memory.skipping = !eop;
            return false;
        }
        if self.packet.request.is_none() {
            self.packet.request = Some(self.request(desc));
            self.packet.legacy = desc.body.is_legacy();
            self.packet.stamp = matches!(&desc.body, Body::Data(asks) if F::stamped(asks));
            if !F::LAST_DECIDES {
                self.packet.fcs = own_fcs(desc.cmd);
            }
        }
        if eop {
            self.last(desc);
        }
        let packet = &mut self.packet;
        packet.descs += 1;
        packet.len = packet.len.saturating_add(desc.len as usize);
        // What will be refused for its size need not be gathered.
        if packet.len <= MAX_TSO {
            let (at, len) = packet.run;
            let more = u64::from(desc.len);
            if at.checked_add(len) == Some(desc.addr) {
                // Drivers cut what is in one piece into parts of a few KiB.
                packet.run.1 += more;
            } else {
                packet.gather(self.view, pieces);
                packet.run = (desc.addr, more);
            }
        }
        if eop {
            packet.gather(self.view, pieces);
        }
        if !eop && packet.descs >= MAX_DESCS {
            store.refuse(Refusal::TooManyDescs, (self.at, packet.descs));
            self.give_up(pieces);
            return false;
        }
        eop
    }

    /// Drops the packet under way and all descriptors up to its end.
    fn give_up(&mut self, pieces: &mut Vec<ReadSlice<'v>>) {
        self.memory.skipping = true;
        self.packet = Packet::default();
        pieces.clear();
    }

    /// What the last descriptor of a packet decides: of legacy descriptors tag, FCS and checksum (8254x manual
    /// §3.3.3, 82576 datasheet §7.2.2.1), of others what the format says.
    fn last(&mut self, desc: &Desc<F::Context, F::Asks>) {
        let Some(mut request) = self.packet.request else {
            return;
        };
        let decides = F::LAST_DECIDES && !request.segment;
        if !self.packet.legacy && !decides {
            return;
        }
        let last = self.request(desc);
        request.tag = last.tag;
        if self.packet.legacy {
            request.l4_sum = last.l4_sum && desc.body.is_legacy();
            request.places = last.places;
        }
        self.packet.request = Some(request);
        self.packet.fcs = own_fcs(desc.cmd);
    }

    /// What a descriptor asks for.
    fn request(&self, desc: &Desc<F::Context, F::Asks>) -> Request {
        let (asked, tci) = match &desc.body {
            &Body::Legacy { cso, css, special } => {
                let request = Request {
                    l4_sum: desc.cmd & cmd::IC != 0,
                    places: legacy_places(cso, css),
                    ..Request::default()
                };
                (request, special)
            }
            Body::Data(asks) => F::request(&self.memory.contexts, desc.cmd, asks),
            Body::Context(_) | Body::Unknown => return Request::default(),
        };
        let settings = &self.settings;
        let vlan = settings.vlan.filter(|_| desc.cmd & cmd::VLE != 0);
        Request {
            tag: settings.tag.or(vlan.map(|vet| (vet, tci))),
            pad: settings.pad,
            ..asked
        }
    }

    /// Turns the complete packet into frames. Returns false when the batch was full before its
    /// last segment.
    fn emit(
        &mut self,
        store: &mut Store<F::Contexts>,
        scratch: &mut Scratch<'v>,
        skip: usize,
    ) -> bool {
        let packet = std::mem::take(&mut self.packet);
        let request = packet.request.unwrap_or_default();
        // The chip appends the FCS to what it has tagged.
        let fcs = if request.tag.is_none() { packet.fcs } else { 0 };
        let mut len = packet.len.saturating_sub(fcs);
        let announced = request.places.paylen as usize + usize::from(request.places.hdrlen);
        let whole = announced == len;
        if request.segment && F::PAYLEN_CUTS {
            len = len.min(announced);
        }
        let descs = (self.at, packet.descs);
        let made = if packet.fault {
            store.refuse(Refusal::Fault, descs);
            false
        } else {
            let gather = Gather::new(&scratch.pieces, len);
            match F::MAKE(
                &gather,
                &request,
                self.settings.caps,
                skip,
                &mut scratch.batch,
            ) {
                Ok(made) => {
                    if made.cut_short {
                        return false;
                    }
                    if made.bad_checksum {
                        store.refuse(Refusal::BadChecksum, descs);
                    }
                    true
                }
                Err(why) => {
                    let why = match why {
                        Refused::Runt => Refusal::Runt,
                        Refused::TooLong => Refusal::TooLong,
                        Refused::BadTso => Refusal::BadTso,
                    };
                    store.refuse(why, descs);
                    false
                }
            }
        };
        let end = if made && whole {
            Tso::Sent
        } else {
            Tso::Failed
        };
        scratch.pieces.clear();
        let tso = request.segment.then_some(end);
        self.mark(store, scratch.batch.len(), tso, packet.stamp);
        true
    }

    /// The guest has handed over no more. A ring that is full of a packet without an end would
    /// stay so for ever.
    fn out_of_descs(
        &mut self,
        store: &mut Store<F::Contexts>,
        Scratch { batch, pieces, .. }: &mut Scratch<'v>,
    ) -> End {
        let whole_ring = self.packet.descs > 0
            && self.at == self.ring.tail
            && self.ring.available() + 1 >= self.ring.len;
        if whole_ring && store.marks.is_empty() {
            store.refuse(Refusal::TooManyDescs, (self.at, self.packet.descs));
            self.give_up(pieces);
            self.mark(store, Batch::len(batch), None, false);
        }
        End::Tail
    }

    fn mark(
        &mut self,
        store: &mut Store<F::Contexts>,
        frames: usize,
        tso: Option<Tso>,
        stamp: bool,
    ) {
        if store.memories.last() != Some(&self.memory) {
            store.memories.push(self.memory);
        }
        let mark = Mark {
            frames: frames as u32,
            next: self.at,
            memory: store.memories.len() as u32 - 1,
            written: store.written.len() as u32,
            now: self.now,
            delayed: self.delayed,
            tso,
            stamp,
            run: 0,
            before: Before::default(),
        };
        // Of places with nothing between them the last one counts: a ring may be all contexts.
        let replaced = |last: &Mark| {
            last.frames == mark.frames && last.tso.is_none() && !last.stamp && last.run == 0
        };
        match store.marks.last_mut() {
            Some(last) if replaced(last) => *last = mark,
            _ => store.marks.push(mark),
        }
        store.settle_refused();
    }
}

/// Bytes of FCS that a descriptor with this command byte brings itself.
fn own_fcs(cmd: u8) -> usize {
    if cmd & cmd::IFCS == 0 { FCS } else { 0 }
}
