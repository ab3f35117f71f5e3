//! The transmit side: from descriptors to frames (§7.2).
//!
//! Queues take turns. A turn is at most [`QUANTUM`] frames or [`MOST_BYTES`] bytes of one queue,
//! offered to the sink in one batch.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Batch, Caps, MAX_BATCH, Sink};
use guest_mem::{ReadSlice, View};
use model::{Env, Progress, TURN_BYTES, Transmit};
use parts::offload::{self, MAX_TSO, Places, Refused, Request};
use parts::{FCS, Fetcher, Gather, Ring};

use crate::complete::{Mark, Tso, finish};
use crate::desc::{Context, TxBody, TxDesc, cmd};
use crate::function::{Function, Kind, count};
use crate::irq::Causes;
use crate::rules::Rules;

/// Bytes copied of a packet that needs work: all that MACLEN, IPLEN and L4LEN reach, and a checksum
/// field behind them.
const HEADERS: usize = 127 + 511 + 256;
/// Descriptors one packet may have. Drivers use some dozens; a chain without an end stops here.
const MAX_DESCS: u32 = 1024;
/// Frames of one turn.
const QUANTUM: usize = 64;
/// Bytes gathered in one turn, about a quarter of a processor's own cache.
const MOST_BYTES: usize = 256 << 10;
/// The picks of a batch that is offered whole.
const EACH: [u16; MAX_BATCH] = {
    let mut each = [0; MAX_BATCH];
    let mut i = 0;
    while i < MAX_BATCH {
        each[i] = i as u16;
        i += 1;
    }
    each
};

/// What the transmit side of a queue remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct TxState {
    pub memory: Memory,
    /// Frames of the packet at the head that the sink has already taken.
    pub taken: usize,
}

/// What the walk along a ring carries from descriptor to descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The two contexts of the queue.
    pub contexts: [Context; 2],
    /// In a packet that was given up; its remaining descriptors are passed over.
    pub skipping: bool,
}

/// Storage of a turn, kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct Store {
    fetcher: Fetcher,
    pub marks: Vec<Mark>,
    /// What marks remember, the first from before the turn.
    pub memories: Vec<Memory>,
    /// Descriptors to be written back.
    pub written: Vec<u32>,
}

/// Storage for borrowed slices. They are bound to a thread, so the storage is too.
#[derive(Default)]
struct Scratch {
    batch: Batch<'static>,
    pieces: Vec<ReadSlice<'static>>,
}

thread_local! {
    /// In a box: taking it and giving it back moves a pointer.
    static SCRATCH: Cell<Option<Box<Scratch>>> = Cell::default();
}

/// Empties a list of slices for use with another lifetime, keeping its storage.
fn recycle<'n>(mut pieces: Vec<ReadSlice<'_>>) -> Vec<ReadSlice<'n>> {
    pieces.clear();
    // Collecting an emptied Vec in place keeps its allocation.
    pieces
        .into_iter()
        .map(|_| unreachable!("emptied above"))
        .collect()
}

/// The transmit part of a function.
pub(crate) struct Sender {
    function: Arc<Function>,
    store: Store,
    /// Queues that may have something, bit by bit.
    waiting: u32,
    /// Whose turn is next.
    next: u32,
}

impl Sender {
    pub(crate) fn new(function: Arc<Function>) -> Self {
        Self {
            function,
            store: Store::default(),
            waiting: 0,
            next: 0,
        }
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is nothing (more) to do before the driver says so.
    Idle,
    /// There may be more.
    Moved,
    /// It has had its ring's worth in this call.
    Enough,
    /// The sink had no room.
    Blocked,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At the tail, or at a packet whose end is not there yet.
    Tail,
    /// The turn's limit is reached.
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
    stamp: bool,
}

/// What all turns of a call have in common.
struct Call<'c, 'v> {
    function: &'c Function,
    env: &'c Env,
    view: &'v View<'v>,
    to: &'c dyn Sink,
    rules: Rules,
    /// Frames and bytes that may still be sent.
    budget: usize,
    room: usize,
    causes: Causes,
}

impl Transmit for Sender {
    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress {
        let function = Arc::clone(&self.function);
        let rules = function.rules();
        if !rules.tx_on || !function.moves() {
            // Once it may go on, any queue may have something.
            self.waiting = (1 << function.queues.len()) - 1;
            return Progress::Idle;
        }
        // What is rung from now on is for the next call, if this one does not see it.
        self.waiting |= function.tx_rung.swap(0, Ordering::AcqRel);
        if self.waiting == 0 {
            return Progress::Idle;
        }
        let view = env.memory.view();
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let mut batch = std::mem::take(&mut scratch.batch).recycle();
        let mut pieces = recycle(std::mem::take(&mut scratch.pieces));
        let mut call = Call {
            function: &function,
            env,
            view: &view,
            to,
            rules,
            budget: budget.max(1),
            room: TURN_BYTES,
            causes: Causes::default(),
        };
        let progress = self.turns(&mut call, &mut batch, &mut pieces);
        if !call.causes.is_empty() {
            function.irq.lock().raise(env, call.causes);
        }
        scratch.batch = batch.recycle();
        scratch.pieces = recycle(pieces);
        SCRATCH.set(Some(scratch));
        progress
    }
}

impl Sender {
    fn turns<'v>(
        &mut self,
        call: &mut Call<'_, 'v>,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
    ) -> Progress {
        let queues = call.function.queues.len() as u32;
        let mut walked = [0; 16];
        // Queues that have had enough in this call.
        let mut enough = 0;
        loop {
            let active = self.waiting & !enough;
            if active == 0 {
                break;
            }
            if call.budget == 0 || call.room == 0 {
                return Progress::More;
            }
            let ahead = active >> self.next;
            let queue = if ahead != 0 {
                self.next + ahead.trailing_zeros()
            } else {
                active.trailing_zeros()
            };
            self.next = (queue + 1) % queues;
            let bit = 1 << queue;
            let steps = &mut walked[queue as usize];
            match self.turn(call, queue, steps, batch, pieces) {
                Turn::Idle => self.waiting &= !bit,
                Turn::Moved => {}
                Turn::Enough => enough |= bit,
                Turn::Blocked => return Progress::Blocked,
            }
        }
        if self.waiting == 0 {
            Progress::Idle
        } else {
            Progress::More
        }
    }

    /// One turn of one queue, of which `walked` descriptors were walked in this call.
    fn turn<'v>(
        &mut self,
        call: &mut Call<'_, 'v>,
        queue: u32,
        walked: &mut u32,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
    ) -> Turn {
        let function = call.function;
        let Some(own) = function.queues.get(queue as usize) else {
            return Turn::Idle;
        };
        let mut state = own.tx.lock();
        if !function.tx_enabled(queue) {
            return Turn::Idle;
        }
        let ids = function.ids;
        let Some(ring) = Ring::read_at(&function.file, &ids.tx_ring(), queue) else {
            let at = |id| function.file.get_at(id, queue);
            if at(ids.tdt) != at(ids.tdh) {
                count(&function.counters.tx_bad_ring, 1);
            }
            return Turn::Idle;
        };
        let left = ring.available().min(ring.len.saturating_sub(*walked));
        if left == 0 {
            return if ring.available() == 0 {
                Turn::Idle
            } else {
                Turn::Enough
            };
        }
        let loopback = function.loopback.load(Ordering::Acquire);
        let limit = call.budget.min(QUANTUM);
        batch.clear();
        let mut walk = Walk {
            function,
            view: call.view,
            rules: &call.rules,
            ring,
            caps: if loopback { Caps::NONE } else { call.to.caps() },
            at: ring.head,
            left,
            memory: state.memory,
            packet: Packet::default(),
            bytes: 0,
            report: false,
            room: call.room,
        };
        let end = walk.fill(&mut self.store, state.taken, batch, pieces, limit);
        call.room = walk.room;
        let offered = batch.len();
        let picks = &EACH[..offered];
        let taken = if offered == 0 {
            0
        } else if loopback {
            // What our own receiver has no room for is missed, as on a wire.
            let kept = crate::rx::deliver(function, call.env, batch, picks);
            if kept < offered {
                crate::rx::give_up(function, call.env, &picks[kept..]);
            }
            offered
        } else {
            call.to.deliver(batch, picks).min(offered)
        };
        let done = finish(
            function,
            call.view,
            queue,
            (&mut *state, &self.store),
            &ring,
            (batch, taken),
        );
        if done.stamp && matches!(function.kind, Kind::Pf) {
            let now = call.env.clock.now();
            function.ptp.lock().sent(&function.file, now);
        }
        if done.report {
            call.causes.tx |= 1 << queue;
        }
        *walked = walked.saturating_add(done.moved);
        call.budget = call.budget.saturating_sub(taken);
        if taken < offered {
            return Turn::Blocked;
        }
        let tail = function.file.get_at(ids.tdt, queue);
        match end {
            End::Full => Turn::Moved,
            End::Fault => Turn::Idle,
            // Nothing complete was left: what is there waits for its end.
            End::Tail if done.moved == 0 && ring.available() > left => Turn::Enough,
            End::Tail if done.moved == 0 && tail == ring.tail => Turn::Idle,
            // All of it is done, and nothing has come since.
            End::Tail if done.moved == ring.available() && tail == ring.tail => Turn::Idle,
            // Walked in full in vain, or some is left: once more.
            End::Tail if done.moved == 0 => Turn::Enough,
            End::Tail => Turn::Moved,
        }
    }
}

/// A walk along a ring, from its head on.
struct Walk<'a, 'v> {
    function: &'a Function,
    view: &'v View<'v>,
    rules: &'a Rules,
    ring: Ring,
    caps: Caps,
    at: u32,
    left: u32,
    memory: Memory,
    packet: Packet,
    /// Bytes of the packets so far.
    bytes: usize,
    /// A descriptor to be reported was passed.
    report: bool,
    /// Bytes that may still be gathered in this call.
    room: usize,
}

impl<'v> Walk<'_, 'v> {
    /// Makes frames of the descriptors until `limit` frames, the tail or a fault. `skip` frames of
    /// the first packet have been sent before.
    fn fill(
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
        let rules = self.rules;
        let tagged = desc.cmd & cmd::VLE != 0 && rules.insert_vlan;
        let forced = rules.tag.map(|tci| (0x8100, tci));
        let tag = |tci| forced.or(tagged.then_some((rules.vet, tci)));
        let common = Request {
            pad: rules.pad,
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
        };
        // Of places with nothing between them the last one counts: a ring may be all contexts.
        match store.marks.last_mut() {
            Some(last) if last.frames == mark.frames && last.tso.is_none() && !last.stamp => {
                *last = mark;
            }
            _ => store.marks.push(mark),
        }
    }
}
