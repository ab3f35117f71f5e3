//! The transmit side: from descriptors to frames, and their write-back (manual §3.3, §3.4).

use std::cell::Cell;
use std::sync::Arc;

use datapath::offload::{self, MAX_TSO, Places, Refused, Request};
use datapath::{FCS, Gather};
use frame::{Batch, Caps, MAX_BATCH, Sink};
use guest_mem::{ReadSlice, View};
use intel::{Fetcher, Ring, RingIds};
use model::{Env, Progress, TURN_BYTES, Transmit, Watch};

use crate::bits::{ctrl, tctl};
use crate::complete::{Mark, Tso, finish};
use crate::csb::TxCsb;
use crate::desc::{Context, TxBody, TxDesc, cmd};
use crate::flow;
use crate::regs as r;
use crate::shared::{Shared, count, count_alone};

pub(crate) const RING: RingIds = RingIds {
    base_low: r::TDBAL,
    base_high: r::TDBAH,
    len: r::TDLEN,
    head: r::TDH,
    tail: r::TDT,
};

/// Bytes copied of a packet that needs work: all places a descriptor's 8-bit offsets reach.
const HEADERS: usize = 320;

/// Descriptors one packet may have. Drivers use some dozens; a chain without an end stops here.
const MAX_DESCS: u32 = 1024;

/// Bytes gathered for one batch, about a quarter of a processor's own cache: what is prefetched, and
/// what the receiver is about to read, shall still be there when it is copied.
const MOST_BYTES: usize = 256 << 10;
/// Fewest frames gathered at once for a sink that was short of room.
const FEWEST: usize = 16;
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

/// What the transmitter remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct TxState {
    pub(crate) memory: Contexts,
    /// Frames of the packet at the head that the sink has already taken.
    pub(crate) taken: usize,
    /// The last run ended before its work did: somebody owes it another.
    pub(crate) unfinished: bool,
    pub(crate) stride: Stride,
    /// The guest's CSB.
    pub(crate) csb: TxCsb,
    /// Storage of a batch.
    pub(crate) fetcher: Fetcher,
    pub(crate) marks: Vec<Mark>,
    /// What marks remember, the first from before the batch.
    pub(crate) contexts: Vec<Contexts>,
    /// Descriptors to be written back.
    pub(crate) written: Vec<u32>,
}

/// What the walk along the ring carries from descriptor to descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contexts {
    /// The last context descriptor with TSE and the last without: the chip keeps both.
    pub(crate) segmenting: Context,
    pub(crate) plain: Context,
    /// In a packet that was given up; its remaining descriptors are passed over.
    pub(crate) skipping: bool,
}

/// How many frames are gathered at once: what a sink has no room for is gathered again later, so it is
/// offered at most about twice what it had room for last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride {
    frames: usize,
    /// Taken since the run began.
    taken: usize,
}

impl Default for Stride {
    fn default() -> Self {
        Stride {
            frames: MAX_BATCH,
            taken: 0,
        }
    }
}

impl Stride {
    /// So many of `offered` frames were taken.
    fn learn(&mut self, taken: usize, offered: usize) {
        self.taken += taken;
        if taken < offered {
            self.frames = (2 * self.taken).clamp(FEWEST, MAX_BATCH);
        } else if offered >= self.frames {
            self.frames = (2 * self.frames).min(MAX_BATCH);
        }
    }
}

impl TxState {
    pub(crate) fn reset(&mut self) {
        self.memory = Contexts::default();
        self.taken = 0;
        self.unfinished = false;
        self.csb.reset();
    }
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

/// The transmit part.
pub(crate) struct Sender {
    pub shared: Arc<Shared>,
    pub watch: Watch,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
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
    shared: &'a Shared,
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

impl Transmit for Sender {
    fn watch(&self) -> Watch {
        self.watch
    }

    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress {
        let shared = &*self.shared;
        let mut state = shared.tx.lock();
        let view = env.memory.view();
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let mut batch = std::mem::take(&mut scratch.batch).recycle();
        let mut pieces = recycle(std::mem::take(&mut scratch.pieces));
        let mut budget = budget.max(1);
        let mut room = TURN_BYTES;
        state.stride.taken = 0;
        // A guest that keeps the tail moving is served one ring's worth, then others are.
        let mut steps = None;
        let page = state.csb.begin(shared, env, &view);
        // Without more to do, and not because something is off that will be noted when it goes on.
        let mut done = true;
        let mut progress = loop {
            if !shared.tx_enabled() {
                done = false;
                break Progress::Idle;
            }
            let loopback = shared.loopback();
            if !loopback {
                let Some(settled) = flow::settle(shared, to, budget) else {
                    break Progress::Blocked;
                };
                budget -= settled;
                if budget == 0 {
                    break Progress::More;
                }
                // The timer brings us back when the pause is over.
                if shared.flow.paused(&shared.file, env) {
                    done = false;
                    break Progress::Idle;
                }
            }
            if let Some(page) = &page {
                state.csb.take_tail(shared, page);
            }
            let Some(ring) = Ring::read(&shared.file, &RING) else {
                if shared.file.get(r::TDT) != shared.file.get(r::TDH) {
                    count(&shared.counters.tx_bad_ring, 1);
                }
                break Progress::Idle;
            };
            let steps = steps.get_or_insert(ring.len);
            let left = ring.available().min(*steps);
            if left == 0 {
                break if ring.available() == 0 {
                    Progress::Idle
                } else {
                    Progress::More
                };
            }
            let mut parser = Parser {
                shared,
                view: &view,
                ring,
                caps: if loopback { Caps::NONE } else { to.caps() },
                at: ring.head,
                left,
                memory: state.memory,
                packet: Packet::default(),
                bytes: 0,
                now: false,
                delayed: false,
                room,
            };
            let limit = budget.min(state.stride.frames);
            let end = parser.fill(&mut state, &mut batch, &mut pieces, limit);
            room = parser.room;
            let offered = batch.len();
            let picks = &EACH[..offered];
            let taken = if offered == 0 {
                0
            } else if loopback {
                // What our own receiver has no room for is missed, as on a wire.
                let kept = crate::rx::deliver(shared, env, &batch, picks);
                if kept < offered {
                    crate::rx::give_up(shared, env, &batch, &picks[kept..]);
                }
                offered
            } else {
                to.deliver(&batch, picks).min(offered)
            };
            let moved = finish(shared, env, (&view, page), &mut state, &ring, &batch, taken);
            *steps = steps.saturating_sub(moved);
            budget = budget.saturating_sub(taken);
            state.stride.learn(taken, offered);
            batch.clear();
            if taken < offered {
                break Progress::Blocked;
            }
            match end {
                End::Full if budget == 0 || room == 0 => break Progress::More,
                End::Full => {}
                End::Fault => break Progress::Idle,
                // Nothing complete was left: what is there waits for its end.
                End::Tail if moved == 0 && ring.available() > left => break Progress::More,
                End::Tail if moved == 0 => break Progress::Idle,
                // All of it is done, and nothing has come since.
                End::Tail if moved == ring.available() && budget > 0 => {
                    if shared.file.get(r::TDT) == ring.tail {
                        break Progress::Idle;
                    }
                }
                End::Tail => {}
            }
        };
        if let Some(page) = page.filter(|_| done && progress == Progress::Idle)
            && state.csb.end(shared, env, &page)
        {
            progress = Progress::More;
        }
        self.watch = state.csb.watch;
        state.unfinished = progress != Progress::Idle;
        scratch.batch = batch.recycle();
        scratch.pieces = recycle(pieces);
        SCRATCH.set(Some(scratch));
        progress
    }
}

impl<'v> Parser<'_, 'v> {
    /// Makes frames of the descriptors until `limit` frames, the tail or a fault.
    fn fill(
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
            if self.shared.fast_path && between && skip == 0 {
                let room = (limit - batch.len()).min(self.left as usize);
                if self.fast_path(state, batch, pieces, room, &mut fetched) {
                    continue;
                }
            }
            let got = state
                .fetcher
                .get(self.view, &self.ring, self.at, self.left, &mut fetched);
            let Some(raw) = got.ok().and_then(<[_]>::first) else {
                count(&self.shared.counters.tx_dma_fault, 1);
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
        count_alone(&self.shared.counters.tx_desc_fetched, fetched);
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
                count(&self.shared.counters.tx_bad_desc, 1);
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
        count(&self.shared.counters.tx_too_many_descs, 1);
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
        let file = &self.shared.file;
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
        let counters = &self.shared.counters;
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
