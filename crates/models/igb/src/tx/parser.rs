//! From the descriptors of a ring to frames (§7.2.2, §7.2.4).

use datapath::offload::{self, MAX_TSO, Places, Refused, Request};
use datapath::{FCS, Gather};
use frame::{Batch, Caps};
use guest_mem::{ReadSlice, View};
use intel::Ring;

use crate::core::function::{Function, count};
use crate::core::queue::TxMemory;
use crate::regs::settings::Settings;
use crate::tx::desc::{TxBody, TxDesc, cmd};
use crate::tx::store::{Before, Mark, Store, Tso};

/// Bytes copied of a packet that needs work: all that MACLEN, IPLEN and L4LEN reach, and a checksum
/// field behind them.
const HEADERS: usize = 127 + 511 + 256;
/// Descriptors one packet may have. Drivers use some dozens; a chain without an end stops here.
const MAX_DESCS: u32 = 1024;
/// Bytes gathered in one turn, about a quarter of a processor's own cache.
pub(crate) const MOST_BYTES: usize = 256 << 10;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the tail, or at a packet whose end is not there yet.
    Tail,
    /// The turn's limit is reached.
    Full,
    /// A descriptor could not be read.
    Fault,
}

/// The packet being gathered.
#[derive(Clone, Copy, Default)]
pub(crate) struct Packet {
    /// What it asks for; `None` before its first data descriptor.
    request: Option<Request>,
    len: usize,
    descs: u32,
    fault: bool,
    legacy: bool,
    /// The guest has written the FCS itself.
    fcs_included: bool,
    stamp: bool,
}
/// A walk along a ring, from its head on.
pub(crate) struct Parser<'a, 'v> {
    pub function: &'a Function,
    pub view: &'v View<'v>,
    pub settings: &'a Settings,
    pub ring: Ring,
    pub caps: Caps,
    pub at: u32,
    pub left: u32,
    pub memory: TxMemory,
    pub packet: Packet,
    /// Bytes of the packets so far.
    pub bytes: usize,
    /// A descriptor to be reported was passed.
    pub report: bool,
    /// Bytes that may still be gathered in this call.
    pub room: usize,
}

impl<'v> Parser<'_, 'v> {
    /// Makes frames of the descriptors until `limit` frames, the tail or a fault. `skip` frames of
    /// the first packet have been sent before.
    pub(crate) fn fill(
        &mut self,
        store: &mut Store,
        mut skip: usize,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
        limit: usize,
    ) -> End {
        let mut fetched = 0;
        store.fetcher.forget();
        store.marks.clear();
        store.written.clear();
        store.memories.clear();
        store.memories.push(self.memory);
        pieces.clear();
        let end = loop {
            if batch.len() >= limit || self.room == 0 || self.bytes >= MOST_BYTES {
                break End::Full;
            }
            if self.left == 0 {
                break self.out_of_descs(store, batch, pieces);
            }
            let between = self.packet.request.is_none() && !self.memory.skipping;
            let plain = self.function.fast_path && self.settings.tag.is_none();
            if plain && between && skip == 0 {
                let most = (limit - batch.len()).min(self.left as usize);
                if self.fast_path(store, batch, pieces, most, &mut fetched) {
                    continue;
                }
            }
            let got = store
                .fetcher
                .get(self.view, &self.ring, self.at, self.left, &mut fetched);
            let Some(raw) = got.ok().and_then(<[_]>::first) else {
                count(&self.function.counters.tx_dma_fault, 1);
                break End::Fault;
            };
            let desc = TxDesc::parse(raw);
            if desc.cmd & cmd::RS != 0 {
                store.written.push(self.at);
                self.report = true;
            }
            self.at = self.ring.next(self.at);
            self.left -= 1;
            if !self.take(&desc, pieces) {
                // Not (yet) the end of a packet. Between packets the ring is done up to here.
                if self.packet.request.is_none() {
                    self.mark(store, batch, None, false);
                }
                continue;
            }
            let len = self.packet.len;
            self.bytes = self.bytes.saturating_add(len);
            self.room = self.room.saturating_sub(len);
            if !self.emit(store, batch, pieces, skip) {
                break End::Full;
            }
            skip = 0;
        };
        count(&self.function.counters.tx_desc_fetched, fetched);
        end
    }

    /// Adds a descriptor to the packet. Returns whether the packet is complete.
    fn take(&mut self, desc: &TxDesc, pieces: &mut Vec<ReadSlice<'v>>) -> bool {
        let eop = desc.cmd & cmd::EOP != 0;
        let (addr, len) = match desc.body {
            TxBody::Context(slot, context) => {
                // A packet under way keeps the context it began with.
                self.memory.contexts[slot] = context;
                return false;
            }
            TxBody::Unknown => {
                count(&self.function.counters.tx_bad_desc, 1);
                return false;
            }
            // Transfers no data; all else about it holds.
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
            self.packet.fcs_included = desc.cmd & cmd::IFCS == 0;
            self.packet.stamp = matches!(desc.body, TxBody::Data { stamp: true, .. });
        }
        if eop && self.packet.legacy {
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
        count(&self.function.counters.tx_too_many_descs, 1);
        self.memory.skipping = true;
        self.packet = Packet::default();
        pieces.clear();
    }

    /// Of legacy descriptors tag, FCS and checksum are those of the last (§7.2.2.1).
    fn last(&mut self, desc: &TxDesc) {
        let last = self.request(desc);
        if let Some(request) = &mut self.packet.request {
            request.tag = last.tag;
            request.l4_sum = last.l4_sum && matches!(desc.body, TxBody::Legacy { .. });
            request.places = last.places;
        }
        self.packet.fcs_included = desc.cmd & cmd::IFCS == 0;
    }

    /// What a descriptor asks for.
    fn request(&self, desc: &TxDesc) -> Request {
        let settings = self.settings;
        let tagged = desc.cmd & cmd::VLE != 0 && settings.insert_vlan;
        let forced = settings.tag.map(|tci| (settings.vet, tci));
        let tag = |tci| forced.or(tagged.then_some((settings.vet, tci)));
        let common = Request {
            pad: settings.pad,
            cwr_once: true,
            ..Request::default()
        };
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
                ..common
            },
            TxBody::Data {
                slot,
                ip_sum,
                l4_sum,
                paylen,
                ..
            } => {
                let context = &self.memory.contexts[slot];
                Request {
                    segment: desc.cmd & cmd::TSE != 0,
                    ip_sum,
                    l4_sum,
                    places: context.places(paylen),
                    tag: tag(context.vlan),
                    ..common
                }
            }
            TxBody::Context(..) | TxBody::Unknown => Request::default(),
        }
    }

    /// Turns the complete packet into frames. Returns false when the batch was full before its
    /// last segment.
    fn emit(
        &mut self,
        store: &mut Store,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
        skip: usize,
    ) -> bool {
        let counters = &self.function.counters;
        let packet = std::mem::take(&mut self.packet);
        let request = packet.request.unwrap_or_default();
        // The chip appends the FCS to what it has tagged.
        let fcs = if packet.fcs_included && request.tag.is_none() {
            FCS
        } else {
            0
        };
        let mut len = packet.len.saturating_sub(fcs);
        let mut tso = request.segment.then_some(Tso::Failed);
        if request.segment {
            // As much is cut as is announced, if it is there (§7.2.4).
            let announced = request.places.paylen as usize + usize::from(request.places.hdrlen);
            if announced == len {
                tso = Some(Tso::Sent);
            }
            len = len.min(announced);
        }
        if packet.fault {
            count(&counters.tx_dma_fault, 1);
            tso = tso.map(|_| Tso::Failed);
        } else {
            let gather = Gather::new(pieces, len);
            match offload::make::<HEADERS>(&gather, &request, self.caps, skip, batch) {
                Ok(made) => {
                    count(&counters.tx_bad_checksum, made.bad_checksum.into());
                    if made.cut_short {
                        return false;
                    }
                }
                Err(why) => {
                    tso = tso.map(|_| Tso::Failed);
                    let counter = match why {
                        Refused::Runt => &counters.tx_runt,
                        Refused::TooLong => &counters.tx_too_long,
                        Refused::BadTso => &counters.tx_bad_tso,
                    };
                    count(counter, 1);
                }
            }
        }
        pieces.clear();
        self.mark(store, batch, tso, packet.stamp);
        true
    }

    /// The guest has handed over no more. A ring that is full of a packet without an end would
    /// stay so for ever.
    fn out_of_descs(
        &mut self,
        store: &mut Store,
        batch: &Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
    ) -> End {
        let whole_ring = self.packet.descs > 0
            && self.at == self.ring.tail
            && self.ring.available() + 1 >= self.ring.len;
        if whole_ring && store.marks.is_empty() {
            self.give_up(pieces);
            self.mark(store, batch, None, false);
        }
        End::Tail
    }

    fn mark(&mut self, store: &mut Store, batch: &Batch<'_>, tso: Option<Tso>, stamp: bool) {
        if store.memories.last() != Some(&self.memory) {
            store.memories.push(self.memory);
        }
        let mark = Mark {
            frames: batch.len() as u32,
            next: self.at,
            memory: store.memories.len() as u32 - 1,
            written: store.written.len() as u32,
            report: self.report,
            tso,
            stamp,
            run: 0,
            before: Before::default(),
        };
        // Of places with nothing between them the last one counts: a ring may be all contexts.
        match store.marks.last_mut() {
            Some(last)
                if last.frames == mark.frames
                    && last.tso.is_none()
                    && !last.stamp
                    && last.run == 0 =>
            {
                *last = mark;
            }
            _ => store.marks.push(mark),
        }
    }
}
