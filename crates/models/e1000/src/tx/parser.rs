//! From descriptors to frames (manual §3.3).

use datapath::FCS;
use datapath::Gather;
use datapath::offload::{self, MAX_TSO, Places, Refused, Request};
use frame::{Batch, Caps};
use guest_mem::{ReadSlice, View};
use intel::Ring;

use crate::core::chip::Chip;
use crate::core::tx_queue::{Contexts, Mark, Tso, TxState};
use crate::regs as r;
use crate::regs::bits::{ctrl, tctl};
use crate::tx::desc::{TxBody, TxDesc, cmd};
use datapath::counters::{count, count_alone};

/// Bytes copied of a packet that needs work: all places a descriptor's 8-bit offsets reach.
const HEADERS: usize = 320;

/// Descriptors one packet may have. Drivers use some dozens; a chain without an end stops here.
const MAX_DESCS: u32 = 1024;

/// Bytes gathered for one batch, about a quarter of a processor's own cache: what is prefetched, and
/// what the receiver is about to read, shall still be there when it is copied.
const MOST_BYTES: usize = 256 << 10;
/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the tail, or at a packet whose end is not there yet.
    Tail,
    /// The batch or the budget is full.
    Full,
    /// A descriptor could not be read.
    Fault,
}

/// The packet being gathered.
#[derive(Clone, Copy, Default)]
struct Packet {
    /// What it asks for; `None` before its first data descriptor.
    request: Option<Request>,
    len: usize,
    descs: u32,
    fault: bool,
    legacy: bool,
    /// The guest has written the FCS itself.
    fcs_included: bool,
}

pub(crate) struct Parser<'a, 'v> {
    chip: &'a Chip,
    pub(crate) view: &'v View<'v>,
    pub(crate) ring: Ring,
    caps: Caps,
    pub(crate) at: u32,
    pub(crate) left: u32,
    memory: Contexts,
    packet: Packet,
    /// Bytes of the packets so far.
    pub(crate) bytes: usize,
    pub(crate) now: bool,
    pub(crate) delayed: bool,
    /// Bytes that may still be gathered in this turn.
    pub(crate) room: usize,
}

impl<'a, 'v> Parser<'a, 'v> {
    /// One that begins at the head of `ring`, with `left` descriptors and `room` bytes to go.
    pub(crate) fn new(
        chip: &'a Chip,
        view: &'v View<'v>,
        (ring, left): (Ring, u32),
        caps: Caps,
        memory: Contexts,
        room: usize,
    ) -> Self {
        Parser {
            chip,
            view,
            ring,
            caps,
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

    /// Makes frames of the descriptors until `limit` frames, the tail or a fault.
    pub(crate) fn fill(
        &mut self,
        state: &mut TxState,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
        limit: usize,
    ) -> End {
        let mut fetched = 0;
        state.fetcher.forget();
        state.marks.clear();
        state.written.clear();
        state.contexts.clear();
        state.contexts.push(self.memory);
        pieces.clear();
        // The packet at the head may have been sent in part.
        let mut skip = state.taken;
        let end = loop {
            if batch.len() >= limit || self.is_full() {
                break End::Full;
            }
            if self.left == 0 {
                break self.out_of_descs(state, batch, pieces);
            }
            let between = self.packet.request.is_none() && !self.memory.skipping;
            if self.chip.fast_path && between && skip == 0 {
                let room = (limit - batch.len()).min(self.left as usize);
                if self.fast_path(state, batch, pieces, room, &mut fetched) {
                    continue;
                }
            }
            let got = state
                .fetcher
                .get(self.view, &self.ring, self.at, self.left, &mut fetched);
            let Some(raw) = got.ok().and_then(<[_]>::first) else {
                count(&self.chip.counters.tx_dma_fault, 1);
                break End::Fault;
            };
            let desc = TxDesc::parse(raw);
            if desc.cmd & (cmd::RS | cmd::RPS) != 0 {
                state.written.push(self.at);
                if desc.cmd & cmd::IDE != 0 {
                    self.delayed = true;
                } else {
                    self.now = true;
                }
            }
            self.at = self.ring.next(self.at);
            self.left -= 1;
            if !self.take(&desc, pieces) {
                // Not (yet) the end of a packet. Between packets the ring is done up to here.
                if self.packet.request.is_none() {
                    self.mark(state, batch, None);
                }
                continue;
            }
            self.gathered(self.packet.len);
            if !self.emit(state, batch, pieces, skip) {
                break End::Full;
            }
            skip = 0;
        };
        count_alone(&self.chip.counters.tx_desc_fetched, fetched);
        end
    }

    /// Whether no more bytes are gathered, in this batch or in this turn.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.room == 0 || self.bytes >= MOST_BYTES
    }

    #[inline]
    pub(crate) fn gathered(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_add(len);
        self.room = self.room.saturating_sub(len);
    }

    /// Adds a descriptor to the packet. Returns whether the packet is complete.
    fn take(&mut self, desc: &TxDesc, pieces: &mut Vec<ReadSlice<'v>>) -> bool {
        let eop = desc.cmd & cmd::EOP != 0;
        let (addr, len) = match desc.body {
            TxBody::Context(context) => {
                // A packet under way keeps the context it began with.
                if desc.cmd & cmd::TSE != 0 {
                    self.memory.segmenting = context;
                } else {
                    self.memory.plain = context;
                }
                return false;
            }
            TxBody::Unknown => {
                count(&self.chip.counters.tx_bad_desc, 1);
                return false;
            }
            // Transfers no data; all else about it holds (manual §3.3.3, "Buffer Address").
            TxBody::Legacy { addr: 0, .. } => (0, 0),
            TxBody::Legacy { addr, len, .. } | TxBody::Data { addr, len, .. } => (addr, len),
        };
        if self.memory.skipping {
            self.memory.skipping = !eop;
            return false;
        }
        if self.packet.request.is_none() {
            self.packet.request = Some(self.request(desc));
            self.packet.legacy = matches!(desc.body, TxBody::Legacy { .. });
        }
        if eop {
            self.last(desc);
        }
        let packet = &mut self.packet;
        packet.descs += 1;
        packet.len = packet.len.saturating_add(len as usize);
        // What will be refused for its size need not be gathered.
        if !packet.fault && packet.len <= MAX_TSO {
            let found = self
                .view
                .read_slices(addr, u64::from(len), &mut |s| pieces.push(s));
            packet.fault = found.is_err();
        }
        if !eop && packet.descs >= MAX_DESCS {
            self.give_up(pieces);
            return false;
        }
        eop
    }

    /// Drops the packet under way and all descriptors up to its end.
    fn give_up(&mut self, pieces: &mut Vec<ReadSlice<'v>>) {
        count(&self.chip.counters.tx_too_many_descs, 1);
        self.memory.skipping = true;
        self.packet = Packet::default();
        pieces.clear();
    }

    /// Without segmentation, tag, FCS and a legacy checksum are those of the last descriptor
    /// (manual §3.3.3, §3.3.7.1).
    fn last(&mut self, desc: &TxDesc) {
        let last = self.request(desc);
        let Some(request) = &mut self.packet.request else {
            return;
        };
        if request.segment {
            return;
        }
        request.tag = last.tag;
        // The chip appends the FCS to what it has tagged.
        self.packet.fcs_included = desc.cmd & cmd::IFCS == 0 && last.tag.is_none();
        if self.packet.legacy {
            request.l4_sum = last.l4_sum && matches!(desc.body, TxBody::Legacy { .. });
            request.places = last.places;
        }
    }

    /// What a descriptor asks for.
    fn request(&self, desc: &TxDesc) -> Request {
        let file = &self.chip.file;
        let pad = file.get(r::TCTL) & tctl::PSP != 0;
        let tagged = desc.cmd & cmd::VLE != 0 && file.get(r::CTRL) & ctrl::VME != 0;
        let tag = |special| tagged.then(|| (file.get(r::VET) as u16, special));
        match desc.body {
            TxBody::Legacy {
                cso, css, special, ..
            } => Request {
                l4_sum: desc.cmd & cmd::IC != 0,
                places: Places {
                    tucss: css.into(),
                    tucso: cso.into(),
                    ..Places::default()
                },
                tag: tag(special),
                pad,
                ..Request::default()
            },
            TxBody::Data { popts, special, .. } => {
                let segment = desc.cmd & cmd::TSE != 0;
                Request {
                    segment,
                    ip_sum: popts & 1 != 0,
                    l4_sum: popts & 2 != 0,
                    places: if segment {
                        self.memory.segmenting.places()
                    } else {
                        self.memory.plain.places()
                    },
                    tag: tag(special),
                    pad,
                    ..Request::default()
                }
            }
            TxBody::Context(_) | TxBody::Unknown => Request::default(),
        }
    }

    /// Turns the complete packet into frames. Returns false when the batch was full before its
    /// last segment.
    fn emit(
        &mut self,
        state: &mut TxState,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
        skip: usize,
    ) -> bool {
        let counters = &self.chip.counters;
        let packet = std::mem::take(&mut self.packet);
        let request = packet.request.unwrap_or_default();
        let fcs = if packet.fcs_included { FCS } else { 0 };
        let gather = Gather::new(pieces, packet.len.saturating_sub(fcs));
        let announced = request.places.paylen as usize + usize::from(request.places.hdrlen);
        let mut tso = request.segment.then_some(Tso::Failed);
        if packet.fault {
            count(&counters.tx_dma_fault, 1);
        } else {
            match offload::make::<HEADERS>(&gather, &request, self.caps, skip, batch) {
                Ok(made) => {
                    count(&counters.tx_bad_checksum, made.bad_checksum.into());
                    if made.cut_short {
                        return false;
                    }
                    if announced == packet.len {
                        tso = tso.map(|_| Tso::Sent);
                    }
                }
                Err(Refused::Runt) => count(&counters.tx_runt, 1),
                Err(Refused::TooLong) => count(&counters.tx_too_long, 1),
                Err(Refused::BadTso) => count(&counters.tx_bad_tso, 1),
            }
        }
        pieces.clear();
        self.mark(state, batch, tso);
        true
    }

    /// The guest has handed over no more. A ring that is full of a packet without an end would
    /// stay so for ever.
    fn out_of_descs(
        &mut self,
        state: &mut TxState,
        batch: &Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
    ) -> End {
        let whole_ring = self.packet.descs > 0
            && self.at == self.ring.tail
            && self.ring.available() + 1 >= self.ring.len;
        let from_head = state.marks.is_empty();
        if whole_ring && from_head {
            self.give_up(pieces);
            self.mark(state, batch, None);
        }
        End::Tail
    }

    fn mark(&mut self, state: &mut TxState, batch: &Batch<'_>, tso: Option<Tso>) {
        if state.contexts.last() != Some(&self.memory) {
            state.contexts.push(self.memory);
        }
        let mark = Mark {
            frames: batch.len() as u32,
            run: 0,
            reported: false,
            next: self.at,
            memory: state.contexts.len() as u32 - 1,
            written: state.written.len() as u32,
            now: self.now,
            delayed: self.delayed,
            tso,
        };
        // Of places with nothing between them the last one counts: a ring may be all contexts.
        match state.marks.last_mut() {
            Some(last) if last.frames == mark.frames && last.tso.is_none() && last.run == 0 => {
                *last = mark;
            }
            _ => state.marks.push(mark),
        }
    }
}
