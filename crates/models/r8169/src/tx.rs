//! The transmit side: from descriptors to frames.

mod complete;
mod csb;
pub(crate) mod packet;
mod run;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::counters::{count, count_alone};
use datapath::csb::CsbPage;
use datapath::{SHOWN, tell_unfinished, with_batch};
use frame::{Batch, Caps, EACH, Sink};
use guest_mem::{ReadSlice, View};
use model::{Env, Kept, Progress, TURN_BYTES, Transmit, Watch};

use crate::core::chip::Chip;
use crate::core::kept::{self, Sending};
use crate::core::queues::{Bad, Desc, Fate, MOST, TxState, fetch};
use crate::core::stats::Stat;
use crate::irq;
use crate::regs as r;
use crate::regs::bits::{cause, desc, dtccr};
use crate::tx::complete::give_back;
use crate::tx::run::Tried;

/// The transmit part. It writes statistics to memory too.
pub(crate) struct Sender {
    pub chip: Arc<Chip>,
    /// How the last run went, with a CSB.
    pub watch: Watch,
}

/// Why no more packets were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The next one is not complete.
    Empty,
    /// The batch is full, or the turn is over.
    Limit,
    /// The ring is not in memory.
    Fault,
}

/// What a turn may still do.
struct Limits {
    frames: usize,
    bytes: usize,
    /// Descriptors: one ring's worth. How many the ring has is known once EOR was seen.
    descs: u32,
    walked: u32,
}

impl Limits {
    fn spent(&self) -> bool {
        self.frames == 0 || self.bytes == 0 || self.walked >= self.descs
    }

    /// Packets of a frame and a descriptor each.
    fn most(&self) -> usize {
        let descs = self.descs.saturating_sub(self.walked) as usize;
        self.frames.min(descs)
    }

    /// As many descriptors are passed, and the ring has so many if that is known now.
    fn pass(&mut self, n: usize, ring: Option<u32>) {
        self.walked += n as u32;
        self.descs = ring.map_or(self.descs, |ring| self.descs.min(ring));
    }

    /// These descriptors are passed.
    fn walk(&mut self, descs: &[Desc]) {
        for desc in descs {
            self.walked += 1;
            if desc.is(desc::EOR) {
                self.descs = self.descs.min(desc.index + 1);
            }
        }
    }
}

impl Transmit for Sender {
    fn watch(&self) -> Watch {
        self.watch
    }

    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress {
        let chip = &*self.chip;
        if chip.command.swap(false, Ordering::AcqRel) {
            statistics(chip, env);
        }
        let mut state = chip.tx.lock();
        let view = env.memory.view();
        let page = csb::begin(chip, env, &view, &mut state);
        self.watch = Watch::Off;
        if !chip.tx_on() {
            return Progress::Idle;
        }
        state.given = 0;
        if page.is_none() && budget > 1 {
            let base = chip.address(r::TNPDS_LOW, r::TNPDS_HIGH);
            if run::single((chip, &view), base, &mut state, to).is_some() {
                let what = irq::Sent {
                    frames: 1,
                    drained: true,
                    ..irq::Sent::default()
                };
                csb::told((chip, env), None, &state, what);
                state.unfinished = false;
                return Progress::Idle;
            }
        }
        let world = (chip, env, page);
        let mut progress = turn(world, &view, &mut state, to, budget);
        if let Some(page) = page.filter(|_| progress == Progress::Idle) {
            let (more, watch) = csb::end(chip, env, &page, &mut state);
            self.watch = watch;
            if more {
                progress = Progress::More;
            }
        }
        state.unfinished = progress != Progress::Idle;
        progress
    }
}

/// Does what DTCCR asks for.
fn statistics(chip: &Chip, env: &Env) {
    let command = chip.file.get(r::DTCCR_LOW);
    // Of a state that was saved before resets were done at once.
    if command & dtccr::RESET != 0 {
        chip.stats.reset();
    }
    if command & dtccr::DUMP != 0 {
        let at = chip.address(r::DTCCR_LOW, r::DTCCR_HIGH) & dtccr::ADDRESS;
        let view = env.memory.view();
        let awake = chip.awake.load(Ordering::Acquire);
        if awake && view.write_release(at, &chip.stats.dump()).is_ok() {
            chip.dumped.store(true, Ordering::Release);
            count(&chip.counters.stats_dumps, 1);
        } else {
            count(&chip.counters.stats_dma_fault, 1);
        }
    }
    chip.file.set(r::DTCCR_LOW, command & !dtccr::COMMANDS);
}

/// Not inlined: a packet that is sent alone is not slowed down by what it does not need.
#[inline(never)]
fn turn(
    (chip, env, page): (&Chip, &Env, Option<CsbPage<'_>>),
    view: &View<'_>,
    state: &mut TxState,
    to: &dyn Sink,
    budget: usize,
) -> Progress {
    let mut limits = Limits {
        frames: budget.max(1),
        bytes: TURN_BYTES,
        descs: MOST,
        walked: 0,
    };
    let base = chip.address(r::TNPDS_LOW, r::TNPDS_HIGH);
    let told = |state: &TxState, sent| csb::told((chip, env), page, state, sent);
    let mut tries = state.runs.tries();
    // Something was sent, and the driver has not heard yet whether that was all.
    let mut untold = false;
    loop {
        if tries {
            let most = (limits.most(), limits.bytes);
            let run = match run::send((chip, view), base, state, to, most) {
                Tried::Offered(run) => run,
                Tried::Empty => {
                    if untold {
                        let drained = true;
                        told(
                            state,
                            irq::Sent {
                                drained,
                                ..irq::Sent::default()
                            },
                        );
                    }
                    return Progress::Idle;
                }
                Tried::None => {
                    state.runs.failed();
                    tries = false;
                    continue;
                }
            };
            state.runs.worked();
            limits.frames = limits.frames.saturating_sub(run.sent);
            limits.bytes = limits.bytes.saturating_sub(run.bytes);
            limits.pass(run.sent, run.ring);
            state.learn_ring(limits.descs);
            // What the sink has left is for a batch, which can wait.
            tries = run.sent == run.offered;
            // A turn that has walked the ring does not say so, whether or not it has seen what stands behind.
            let drained = tries && run.last && !limits.spent();
            untold = !drained;
            let frames = run.sent as u32;
            told(
                state,
                irq::Sent {
                    frames,
                    drained,
                    ..irq::Sent::default()
                },
            );
            if drained {
                return Progress::Idle;
            }
            if limits.spent() {
                return Progress::More;
            }
            continue;
        }
        let (end, sent) = with_batch(|batch, pieces| {
            let end = fill((chip, view), base, state, (batch, pieces), &mut limits);
            (end, offer((chip, view), base, state, to, batch))
        });
        state.learn_ring(limits.descs);
        let drained = end == End::Empty && sent.all;
        untold |= sent.frames > 0;
        if sent.frames > 0 || sent.bad || end == End::Fault || untold && drained {
            let what = irq::Sent {
                frames: sent.frames,
                bad: sent.bad,
                drained,
                ..irq::Sent::default()
            };
            told(state, what);
            if end == End::Fault {
                // The descriptor itself cannot be read.
                tell_unsent(to, "tx_dma_fault", &[]);
                chip.irq.lock().raise(env, cause::SYSTEM_ERROR);
            }
        }
        if !sent.all {
            state.runs.was_full();
            return Progress::Blocked;
        }
        match end {
            // OWN of the next one was read after all that was noted: who sets it later writes TPPoll later.
            End::Empty | End::Fault => return Progress::Idle,
            End::Limit if limits.spent() => return Progress::More,
            End::Limit => {}
        }
    }
}

/// Takes packets until the batch is full, the ring is empty, or the turn is over. The ring's position does not move.
fn fill<'v>(
    (chip, view): (&Chip, &'v View<'_>),
    base: u64,
    state: &mut TxState,
    (batch, pieces): (&mut Batch<'v>, &mut Vec<ReadSlice<'v>>),
    limits: &mut Limits,
) -> End {
    state.taken.clear();
    state.descs.clear();
    state.narrow = false;
    let mut next = state.next;
    loop {
        if batch.is_full() || limits.spent() {
            return End::Limit;
        }
        let first = state.descs.len();
        match packet(view, base, &mut next, &mut state.descs) {
            Ok(Chain::Whole) => {}
            Ok(Chain::Open) => {
                state.descs.truncate(first);
                return End::Empty;
            }
            Ok(Chain::Endless) => {
                state.descs.truncate(first);
                count_alone(&chip.counters.tx_endless, 1);
                return End::Empty;
            }
            Err(_) => {
                state.descs.truncate(first);
                count_alone(&chip.counters.tx_dma_fault, 1);
                return End::Fault;
            }
        }
        let descs = &state.descs[first..];
        limits.walk(descs);
        let fate = packet::add((chip, view), descs, pieces, batch);
        if let Fate::Frame {
            len,
            segments,
            narrow,
        } = fate
        {
            let frames = if narrow { segments } else { 1 };
            limits.frames = limits.frames.saturating_sub(frames as usize);
            limits.bytes = limits.bytes.saturating_sub(len as usize);
            state.narrow |= narrow;
        }
        let descs = descs.len() as u32;
        state.taken.push((descs, fate));
    }
}

/// How the descriptors of a packet end.
enum Chain {
    /// With LS.
    Whole,
    /// One of them is not the chip's yet.
    Open,
    /// Not at all: all of the ring is one packet.
    Endless,
}

/// Collects the descriptors of the packet at `next`, behind those that are there, and moves that behind it. What was collected
/// before has OWN until it is given back, and is not taken again.
fn packet(
    view: &View<'_>,
    base: u64,
    next: &mut u32,
    descs: &mut Vec<Desc>,
) -> Result<Chain, guest_mem::Fault> {
    let begin = *next;
    let taken = descs.first().map(|first| first.index);
    let mut at = begin;
    for _ in 0..MOST {
        if taken == Some(at) {
            return Ok(Chain::Open);
        }
        let Some(desc) = fetch(view, base, at)? else {
            return Ok(Chain::Open);
        };
        descs.push(desc);
        at = desc.next();
        if desc.is(desc::LS) {
            *next = at;
            return Ok(Chain::Whole);
        }
        // All of the ring, and nothing before it.
        if at == begin {
            break;
        }
    }
    Ok(Chain::Endless)
}

/// What was sent.
struct Sent {
    frames: u32,
    /// A packet was dropped.
    bad: bool,
    /// The sink took all that was offered.
    all: bool,
}

/// Offers the batch to the sink, and gives back the descriptors of what it stands for, as far as it was taken.
fn offer(
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    to: &dyn Sink,
    batch: &Batch<'_>,
) -> Sent {
    let counters = &chip.counters;
    let offered = batch.len();
    let kept = chip.kept.get();
    let what = begins(&state.descs);
    if let (Some(kept), Some((what, opts2))) = (kept, what) {
        kept::delivers(kept, (view, base), what, opts2);
    }
    let mut dealt = 0;
    if offered > 0 {
        let mut unfinished = 0;
        let limit = Caps {
            tso4: !state.narrow,
            tso6: !state.narrow,
            ..Caps::ALL
        };
        let refused = |pick, _| {
            unfinished += 1;
            tell_unfinished(to, batch, pick);
        };
        let picks = &EACH[..offered];
        dealt = (state.finisher).deliver_within(limit, to, batch, picks, refused);
        count(&counters.tx_unfinished, unfinished);
    }
    let mut sent = Sent {
        frames: 0,
        bad: false,
        all: dealt == offered,
    };
    let mut left = dealt;
    let mut done = 0;
    for &(descs, fate) in &state.taken {
        match fate {
            Fate::Frame { len, segments, .. } => {
                if left == 0 {
                    break;
                }
                left -= 1;
                sent.frames += 1;
                count_alone(&counters.tx_frames, 1);
                count_alone(&counters.tx_bytes, len.into());
                count_alone(&counters.tx_tso_frames, (segments > 1).into());
                chip.stats.add(Stat::TxOk, segments.into());
            }
            Fate::Dropped(why) => {
                sent.bad = true;
                let counter = count_bad(chip, why);
                tell_unsent(to, counter, &state.descs[done..done + descs as usize]);
                chip.stats.add(Stat::TxError, 1);
            }
        }
        if kept.is_none() {
            let range = done..done + descs as usize;
            state.next = give_back((chip, view), base, &state.descs[range]);
        }
        state.given += descs;
        done += descs as usize;
    }
    if let (Some(kept), Some(what)) = (kept, what) {
        end_kept(kept, (chip, view), base, state, (done, what));
    }
    sent
}

/// Gives the first `done` descriptors of what was offered back, where words are kept. Of a large packet behind them the sink may have
/// taken a part, which nobody will know: should the process die, it is not sent again.
fn end_kept(
    kept: &Kept,
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    (done, (what, opts2)): (usize, (Sending, u32)),
) {
    let memory = (view, base);
    let all = state.descs.len();
    let (given, left) = state.descs.split_at(done);
    let large = state.taken.iter().scan(0, |at, (descs, fate)| {
        let begin = std::mem::replace(at, *at + *descs as usize);
        Some((begin, *at, fate))
    });
    let large = large
        .filter(|(.., fate)| matches!(fate, Fate::Frame { segments, .. } if *segments > 1))
        .find_map(|(begin, end, _)| (begin == done).then(|| begins(&left[..end - begin])))
        .flatten();
    if let Some((packet, _)) = large {
        kept::may_have_begun(kept, packet);
    }
    match given.last() {
        None => kept::refused(kept, memory, what, opts2),
        Some(last) => {
            state.next = last.next();
            kept::give_back(kept, memory, (given, all), &chip.counters.tx_dma_fault);
        }
    }
}

/// What is about to be delivered of these descriptors, and the second word of the first.
fn begins(descs: &[Desc]) -> Option<(Sending, u32)> {
    let (first, last) = (descs.first()?, descs.last()?);
    let what = Sending {
        first: first.index,
        n: descs.len() as u32,
        next: last.next(),
    };
    Some((what, first.opts2))
}

/// Tells the sink the descriptors of a packet that is not sent, if it wants to know: its last ones.
#[cold]
fn tell_unsent(to: &dyn Sink, counter: &'static str, descs: &[Desc]) {
    if to.hears_of_unsent() {
        let last = descs.len().saturating_sub(SHOWN / 16);
        let mut bytes = Vec::with_capacity(SHOWN);
        for desc in &descs[last..] {
            bytes.extend(desc.opts1.to_le_bytes());
            bytes.extend(desc.opts2.to_le_bytes());
            bytes.extend(desc.addr.to_le_bytes());
        }
        to.unsent(counter, &bytes);
    }
}

/// Counts a packet that is not sent; returns the counter's name.
fn count_bad(chip: &Chip, why: Bad) -> &'static str {
    let counters = &chip.counters;
    let (counter, name) = match why {
        Bad::Runt => (&counters.tx_runt, "tx_runt"),
        Bad::TooLong => (&counters.tx_too_long, "tx_too_long"),
        Bad::Chain => (&counters.tx_bad_chain, "tx_bad_chain"),
        Bad::Gso => (&counters.tx_bad_gso, "tx_bad_gso"),
        Bad::Fault => (&counters.tx_dma_fault, "tx_dma_fault"),
    };
    count_alone(counter, 1);
    name
}
