//! The short way: runs of frames, and segments of large ones, that need a buffer each and nothing else.
//!
//! What registers say about such frames is worked out once per generation of the set-up ([`intel::rx::RunPlan`]). What needs more
//! (a verdict on checksums, a tag, a true FCS, several buffers), and frames that wait in the FIFO or for a lease, leave
//! the run to the general way, which gives the same results for all.

use datapath::FCS;
use datapath::counters::count_alone;
use frame::{Cut, Run};
use guest_mem::View;
use intel::rx::{
    ETHERNET_HEADER, Fcs, Filled, Judged, JudgedOne, Legacy, Said, SaidOf, Words, fill_cut,
    fill_lengths, fill_one, fill_run,
};
use intel::{Ring, RingPlace, verdict_of_segment, verdict_of_type};
use model::Env;
use wire::{EtherType, SimpleV4};

use crate::core::chip::Chip;
use crate::core::rx_queue::{RING, RunWay, RxGuard, RxState};
use crate::core::stats::Many;
use crate::irq::Event;
use crate::regs as r;
use crate::regs::bits::{cause, rx_status, rxcsum};
use crate::rx::call::Call;
use crate::rx::csb::RxPage;
use crate::rx::fast_path::Bounds;
use crate::rx::poll;
use crate::rx::write::Report;
use crate::rx::write_back::{News, is_low, raise};

/// How frames of at most `len` bytes with this header are received, if that is all that decides: of segments whose checksums are
/// written on the way if `segments`.
#[cold]
fn way(chip: &Chip, header: [u8; ETHERNET_HEADER], len: usize, segments: bool) -> Option<RunWay> {
    let off = !chip.fast_path || chip.wake.armed() || chip.loopback() || !chip.rx_enabled();
    let file = &chip.file;
    let place = RingPlace::of(file, &RING, 0);
    place.ring(file).filter(|_| !off)?;
    let mut call = Call::new(chip, None);
    call.read();
    let [dst @ .., _, _, _, _, _, _, a, b] = header;
    let bounds = Bounds::of(&call);
    let judged = call.judge(dst);
    let kind = u16::from_be_bytes([a, b]);
    let v4 = EtherType(kind) == EtherType::IPV4;
    let known = match segments {
        true if v4 || EtherType(kind) == EtherType::IPV6 => {
            Some(verdict_of_segment(call.rxcsum, v4))
        }
        true => return None,
        false => verdict_of_type(call.rxcsum, kind),
    };
    let (status, errors) = known.unwrap_or_default();
    let needs_more = !judged.passes
        || known.is_none() && !v4
        || call.rxcsum & rxcsum::PCSS != 0
        || call.fcs() == Fcs::True
        || bounds.exclude([a, b])
        || !bounds.fit(len);
    if needs_more {
        return None;
    }
    let report = Report {
        status: status | judged.status,
        errors,
        ..Report::default()
    };
    Some(RunWay {
        word: report.word(0, rx_status::EOP),
        judged: known.is_none().then_some(call.rxcsum),
        fcs: bounds.fcs as u8,
        group: judged.group,
        // RSRPD has 12 bits.
        small: call.rsrpd as u16,
        place,
        rctl: call.rctl,
        delays: (file.get(r::RDTR), file.get(r::RADV)),
    })
}

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub(crate) fn deliver(chip: &Chip, env: &Env, run: &Run<'_>) -> Option<usize> {
    let view = env.memory.view();
    let page = chip.rx_page(env, &view);
    let mut state = chip.rx.reach()?;
    let taken = match single((chip, env), (&view, page), &mut state, run) {
        Some(taken) => {
            drop(state);
            Some(taken)
        }
        None => deliver_all((chip, env), (&view, page), state, run),
    };
    poll::let_go(chip, env);
    taken
}

/// The shortest way: one frame. `None`: nothing has happened that counts.
#[inline(always)]
fn single(
    (chip, env): (&Chip, &Env),
    (view, page): (&View<'_>, Option<RxPage<'_>>),
    state: &mut RxGuard<'_>,
    run: &Run<'_>,
) -> Option<usize> {
    let alone = run.count() == 1 && run.lens().is_none();
    if !alone || page.is_some() || is_busy(state) {
        return None;
    }
    let len = run.frame_len();
    let way = state.run.known(chip.setup.get(), (run.head(), len))?;
    let ring = way.place.ring(&chip.file)?;
    if ring.available().min(chip.allowance()) == 0 {
        return None;
    }
    let in_buffer = way.in_buffer(len);
    match way.judged {
        None => {
            let words = Words::Second(way.word | in_buffer as u64);
            fill_one(view, &ring, run, in_buffer, (words, &chip.publisher()))?;
        }
        Some(rxcsum) => {
            let mut said = SaidOf::default();
            let judged = JudgedOne::new((rxcsum, way.fcs()), false, described(way), &mut said);
            fill_one(view, &ring, run, in_buffer, (judged, &chip.publisher()))?;
        }
    }
    chip.stats.received(1, len + FCS, way.group);
    let counters = &chip.counters;
    count_alone(&counters.rx_desc_fetched, 1);
    count_alone(&counters.rx_frames, 1);
    count_alone(&counters.rx_bytes, len as u64);
    way.place.set_head(&chip.file, ring.next(ring.head));
    received((chip, env), way, &ring, way.is_small(in_buffer));
    Some(1)
}

/// One interrupt decision about one frame, as [`raise`] has it where there is no status block.
#[inline(always)]
fn received((chip, env): (&Chip, &Env), way: &RunWay, ring: &Ring, small: bool) {
    let before = ring.available();
    let left = before - 1;
    let mut now = 0;
    if is_low(ring, way.rctl, (before, left)) {
        now |= cause::RXDMT0;
    }
    let (packet, absolute) = way.delays;
    let delayed = packet != 0;
    if !delayed {
        now |= cause::RXT0;
    }
    if small {
        now |= cause::SRPD | cause::RXT0;
    }
    let event = Event {
        now,
        delayed,
        packet,
        absolute,
        filled: 1,
        left,
        ..Event::default()
    };
    let mut irq = chip.irq.lock();
    irq.received(env, &event);
    chip.allow(&irq);
}

/// Whether frames have to wait for others.
#[inline(always)]
fn is_busy(state: &RxGuard<'_>) -> bool {
    state.crowded() || !state.fifo.is_empty()
}

/// As [`deliver`], with the lock, which it gives back. Not inlined: a frame that comes alone is not slowed down by what it does not
/// need.
#[inline(never)]
fn deliver_all(
    (chip, env): (&Chip, &Env),
    memory: (&View<'_>, Option<RxPage<'_>>),
    state: RxGuard<'_>,
    run: &Run<'_>,
) -> Option<usize> {
    let longest = run.frame_len();
    let find = || way(chip, run.header(), longest, false);
    let plan = |state: &mut RxState| state.run.way(chip.setup.get(), (run.head(), longest), find);
    let fill = |view: &View<'_>, ours: (&Ring, u32), way: &RunWay| {
        let in_buffer = way.in_buffer(longest);
        match (way.judged, run.lens()) {
            (None, None) => {
                let words = Words::Second(way.word | in_buffer as u64);
                fill_run(view, ours, run, in_buffer, (words, &chip.publisher()))
            }
            (None, Some(_)) => {
                let words = (Words::Second(way.word), 0, way.fcs());
                fill_lengths(view, ours, run, words, &chip.publisher())
            }
            (Some(rxcsum), _) => {
                let mut said = Said::default();
                let judged = Judged::new((rxcsum, way.fcs()), false, described(way), &mut said);
                fill_run(view, ours, run, in_buffer, (judged, &chip.publisher()))
            }
        }
    };
    let count = |way: &RunWay, frames: u64| {
        if let Some(lens) = run.lens() {
            return count_lengths(chip, way, &lens[..frames as usize]);
        }
        chip.stats.received(frames, longest + FCS, way.group);
        (
            frames * longest as u64,
            way.is_small(way.in_buffer(longest)),
        )
    };
    take((chip, env), memory, state, run.count(), (plan, fill, count))
}

/// What a descriptor says about a packet with this length, status and errors.
#[inline(always)]
fn described(way: &RunWay) -> impl Fn(&SimpleV4<'_>, usize, (u8, u8)) -> [u64; 2] + use<'_> {
    |_, len, (status, errors)| {
        let verdict = Legacy {
            status,
            errors,
            ..Legacy::default()
        };
        [0, way.word | way.in_buffer(len) as u64 | verdict.word()]
    }
}

/// Counts frames of these lengths. Returns their bytes, and whether one is small.
#[inline(never)]
fn count_lengths(chip: &Chip, way: &RunWay, lens: &[u16]) -> (u64, bool) {
    let many = Many::of(lens, way.group);
    chip.stats.counts.received_many_alone(&many);
    let bytes = lens.iter().map(|len| u64::from(*len)).sum();
    let shortest = lens.iter().min().map_or(0, |len| usize::from(*len));
    (bytes, way.is_small(way.in_buffer(shortest)))
}

/// Takes segments of a large frame from number `from` on, as [`deliver`] takes frames.
pub(crate) fn deliver_cut((chip, env): (&Chip, &Env), cut: &Cut<'_>, from: usize) -> Option<usize> {
    let len = cut.segment_len(0);
    let find = || way(chip, cut.header(), len, true);
    let plan = |state: &mut RxState| state.cut.way(chip.setup.get(), (cut.head(), len), find);
    let fill = |view: &View<'_>, ours: (&Ring, u32), way: &RunWay| {
        let words = |in_buffer: usize| Words::Second(way.word | in_buffer as u64);
        fill_cut(view, ours, (cut, from), way.fcs(), words, &chip.publisher())
    };
    let count = |way: &RunWay, frames: u64| {
        // The last may be shorter.
        let last = cut.segment_len(from + frames as usize - 1);
        chip.stats.received(frames - 1, len + FCS, way.group);
        chip.stats.received(1, last + FCS, way.group);
        let bytes = (frames - 1) * len as u64 + last as u64;
        (bytes, way.is_small(way.in_buffer(last)))
    };
    let all = cut.count().checked_sub(from)?;
    let view = env.memory.view();
    let page = chip.rx_page(env, &view);
    let state = chip.rx.reach()?;
    let taken = take((chip, env), (&view, page), state, all, (plan, fill, count));
    poll::let_go(chip, env);
    taken
}

/// Takes frames as `plan` says, with buffers as `fill` says, of at most `all`; `count` counts so many by their lengths, and
/// tells their bytes and whether one is small. It gives the lock back.
#[inline(always)]
fn take(
    (chip, env): (&Chip, &Env),
    (view, page): (&View<'_>, Option<RxPage<'_>>),
    mut state: RxGuard<'_>,
    all: usize,
    (plan, fill, count): (
        impl FnOnce(&mut RxState) -> Option<RunWay>,
        impl FnOnce(&View<'_>, (&Ring, u32), &RunWay) -> Filled,
        impl FnOnce(&RunWay, u64) -> (u64, bool),
    ),
) -> Option<usize> {
    if is_busy(&state) {
        return None;
    }
    let way = plan(&mut state)?;
    if let Some(page) = &page {
        page.take_tail(chip);
    }
    let ring = way.place.ring(&chip.file)?;
    let free = ring.available().min(chip.allowance());
    let filled = fill(view, (&ring, free), &way);
    let (n, frames) = (filled.frames, u64::from(filled.frames));
    if n == 0 {
        return Some(0);
    }
    let (bytes, small) = count(&way, frames);
    let counters = &chip.counters;
    count_alone(&counters.rx_desc_fetched, filled.fetched);
    count_alone(&counters.rx_frames, frames);
    count_alone(&counters.rx_bytes, bytes);
    way.place.set_head(&chip.file, ring.behind(n));
    let mut news = News::with_delays(way.delays);
    news.publish((ring, n), way.rctl, small);
    raise((chip, env), page.as_ref(), news);
    if let Some(page) = &page
        && n as usize == all
    {
        page.settle(chip, env, &mut state.csb, false);
    }
    Some(n as usize)
}
