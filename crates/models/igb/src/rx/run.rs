//! The short way: runs of frames that need a buffer each: those whose headers no descriptor describes, and whole TCP or UDP
//! over IPv4, where flows do not decide about queues; and segments of large frames of that kind.
//!
//! What registers and filters say about such frames is worked out once per generation of the set-up
//! ([`intel::rx::RunPlan`]), by the code that the fast path asks: for a frame with this header and zeros behind it, which
//! is all that decides. All other frames leave the run to the fast path ([`crate::rx::fast_path`]).

use datapath::FCS;
use frame::{Batch, Cut, Run};
use guest_mem::View;
use intel::rx::{
    Filled, Judged, JudgedOne, Said, SaidOf, Words, fill_cut, fill_lengths, fill_one, fill_run,
};
use intel::verdict::rx_status;
use intel::{Ring, RingPlace, verdict_of_segment};
use model::Env;
use wire::{Csum, ETHERNET_HEADER, EtherType, Offload, SimpleV4};

use crate::core::function::{Function, FunctionKind, RunWay, count};
use crate::core::irq::{Causes, Moved};
use crate::core::kept::Publisher;
use crate::core::stats::{Group, Many};
use crate::filter::rss::{kind_of, ptype};
use crate::regs::bits::{icr, rxcsum};
use crate::rx::call::Call;
use crate::rx::classify::{Classified, Classifier};
use crate::rx::fast_path::{BARE, Look, look_at};
use crate::rx::report::{ERRORS_AT, PKT_LEN_AT, Report, desc_status, word};
use crate::rx::shape::{Shape, ShapeKind};

/// How frames of at most `len` bytes that begin so are received, if that is all that decides. With the note of a checksum they are
/// segments of large frames, and begin with all their headers.
#[cold]
fn way(
    function: &Function,
    env: &Env,
    (headers, len): (&[u8], usize),
    csum: Option<Csum>,
) -> Option<RunWay> {
    let settings = function.settings();
    let call = Call::new(function, env, settings);
    let for_us = settings.rx_on
        && !settings.several
        && !call.listens
        && settings.strip_crc
        && settings.replicas.is_none_or(|strips| strips.crc);
    if !for_us {
        return None;
    }
    let mut batch = Batch::new();
    batch.push_bytes(headers);
    batch.push_bytes(&vec![0; len.checked_sub(headers.len())?]);
    batch.end(Offload {
        csum,
        ..Offload::NONE
    });
    let frame = batch.get(0)?;
    let header: &[u8; ETHERNET_HEADER] = headers.first_chunk()?;
    let ip = look_at(&settings, &frame)? == Look::Ip;
    let mut report = BARE;
    if ip {
        // The identification is reported only without the hash.
        if EtherType(u16::from_be_bytes([header[12], header[13]])) != EtherType::IPV4
            || !settings.sums(rxcsum::PCSD)
        {
            return None;
        }
        report = Report {
            info: ptype::IPV4,
            ..Report::default()
        };
    }
    let classified = match function.kind {
        FunctionKind::Vf(_) => Classified::default(),
        FunctionKind::Pf => {
            let mut classifier = Classifier::new(&call);
            let classified = classifier.classify(&call, &frame);
            // Packets of a flow may have a queue of their own, by their hash or by a filter.
            let by_flow = ip && !classifier.is_the_same_for_ip(&call);
            classifier.end();
            let classified = classified.filter(|_| !by_flow)?;
            let info = report.info;
            report = call.classified(report, &classified);
            if ip {
                report.info = info;
            }
            classified
        }
    };
    let queue = classified.class.queue;
    // Switching it off counts a generation under the lock of the queue.
    if !function.rx_enabled(queue) {
        return None;
    }
    let srrctl = function.file.get_at(function.ids.srrctl, queue);
    let shape = Shape::of(srrctl, settings.buffer)?;
    if shape.kind != ShapeKind::Whole || len > shape.packet {
        return None;
    }
    let second = word(ShapeKind::Whole, 0, desc_status::EOP, &report);
    if csum.is_some() && !ip {
        return None;
    }
    let [dst @ .., _, _, _, _, _, _, _, _] = *header;
    Some(RunWay {
        queue,
        place: RingPlace::of(&function.file, &function.ids.rx_ring(), queue),
        words: [report.first_word(), second],
        judged: ip.then_some(settings.rxcsum),
        group: Group::of(dst),
        immediate: classified.class.immediate,
        threshold: shape.threshold,
    })
}

/// The words of a descriptor, of which `words` are what is the same for all: with the kind of this packet, and the status
/// and the errors that its checksums have.
#[inline]
fn described(words: [u64; 2], packet: &SimpleV4<'_>, (status, errors): (u8, u8)) -> [u64; 2] {
    let kind = kind_of(packet);
    let mut verdict = u32::from(status) | u32::from(errors) << ERRORS_AT;
    if kind == ptype::UDP && status & rx_status::TCPCS != 0 {
        verdict |= desc_status::UDPCS;
    }
    [words[0] | u64::from(kind), words[1] | u64::from(verdict)]
}

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub(crate) fn deliver(function: &Function, env: &Env, run: &Run<'_>) -> Option<usize> {
    if run.count() == 1
        && run.lens().is_none()
        && let Some(taken) = single(function, env, run)
    {
        return Some(taken);
    }
    deliver_all(function, env, run)
}

/// The shortest way: one frame. `None`: nothing has happened that counts.
#[inline(always)]
fn single(function: &Function, env: &Env, run: &Run<'_>) -> Option<usize> {
    if !function.fast_path || function.wake.armed() || !function.moves() {
        return None;
    }
    let (generation, len) = (function.setup.get(), run.frame_len());
    let way = *function.run.lock().known(generation, (run.head(), len))?;
    let own = function.queues.get(way.queue as usize)?;
    let view = env.memory.view();
    let lock = own.rx.reach()?;
    let filled = fill_single(function, (&view, generation), &way, run);
    if filled.is_some() {
        function.stats.received(1, len + FCS, way.group);
        count(&own.counts.rx_packets, 1);
        count(&own.counts.rx_octets, len as u64);
        let multicast = way.group == Group::Multicast;
        count(&own.counts.rx_multicast, multicast.into());
    }
    drop(lock);
    function.let_go(way.queue);
    let given = filled?;
    let counters = &function.counters;
    count(&counters.rx_desc_fetched, 1);
    count(&counters.rx_frames, 1);
    count(&counters.rx_bytes, len as u64);
    raise(function, env, &way, (given, 1));
    Some(1)
}

/// Fills a buffer. Returns how many there were.
#[inline(always)]
fn fill_single(
    function: &Function,
    (view, generation): (&View<'_>, u32),
    way: &RunWay,
    run: &Run<'_>,
) -> Option<u32> {
    // Those who change the set-up wait for the lock, or are seen here.
    if generation != function.setup.get() {
        return None;
    }
    let len = run.frame_len();
    let ring = way.place.ring(&function.file)?;
    let given = ring.available();
    if given == 0 {
        return None;
    }
    // A buffer for a whole frame, and a descriptor for it.
    let by = by(function, way);
    match way.judged {
        None => fill_one(view, &ring, run, len, (of_length(way.words, len), &by))?,
        Some(rxcsum) => {
            let mut said = SaidOf::default();
            let judged = JudgedOne::new((rxcsum, 0), true, judged(way.words), &mut said);
            fill_one(view, &ring, run, len, (judged, &by))?
        }
    };
    way.place.set_head(&function.file, ring.next(ring.head));
    Some(given)
}

/// What descriptors say whose packets are judged, as [`described`].
#[inline(always)]
fn judged(words: [u64; 2]) -> impl Fn(&SimpleV4<'_>, usize, (u8, u8)) -> [u64; 2] {
    move |packet, len, verdict| {
        let [first, second] = words;
        described(
            [first, second | (len as u64) << PKT_LEN_AT],
            packet,
            verdict,
        )
    }
}

/// As [`deliver`]. Not inlined: a frame that comes alone is not slowed down by what it does not need.
#[inline(never)]
fn deliver_all(function: &Function, env: &Env, run: &Run<'_>) -> Option<usize> {
    let longest = run.frame_len();
    let plan = |generation| {
        let find = || way(function, env, (&run.header(), longest), None);
        let mut plan = function.run.lock();
        plan.way(generation, (run.head(), longest), find)
    };
    let fill = |view: &View<'_>, ours: (&Ring, u32), way: &RunWay| match (way.judged, run.lens()) {
        (None, None) => fill_plain(function, view, ours, run, way),
        (None, Some(_)) => {
            let words = (Words::Both(way.words), PKT_LEN_AT, 0);
            fill_lengths(view, ours, run, words, &by(function, way))
        }
        (Some(rxcsum), _) => fill_judged((function, way, rxcsum), view, ours, run),
    };
    let count = |way: &RunWay, frames: u64| {
        if let Some(lens) = run.lens() {
            return count_lengths(function, way, &lens[..frames as usize]);
        }
        function.stats.received(frames, longest + FCS, way.group);
        frames * longest as u64
    };
    take((function, env), plan, fill, count)
}

/// Fills buffers with frames that are alike. Not inlined, so that its loop has all registers.
#[inline(never)]
fn fill_plain(
    function: &Function,
    view: &View<'_>,
    ours: (&Ring, u32),
    run: &Run<'_>,
    way: &RunWay,
) -> Filled {
    let longest = run.frame_len();
    let words = of_length(way.words, longest);
    fill_run(view, ours, run, longest, (words, &by(function, way)))
}

/// The same with frames whose checksums are judged.
#[inline(never)]
fn fill_judged(
    (function, way, rxcsum): (&Function, &RunWay, u32),
    view: &View<'_>,
    ours: (&Ring, u32),
    run: &Run<'_>,
) -> Filled {
    let mut said = Said::default();
    let judged = Judged::new((rxcsum, 0), true, judged(way.words), &mut said);
    let by = by(function, way);
    fill_run(view, ours, run, run.frame_len(), (judged, &by))
}

/// Counts frames of these lengths. Returns their bytes.
#[inline(never)]
fn count_lengths(function: &Function, way: &RunWay, lens: &[u16]) -> u64 {
    function.stats.received_many(&Many::of(lens, way.group));
    lens.iter().map(|len| u64::from(*len)).sum()
}

/// How descriptors are published: of buffers for whole frames, one for each.
#[inline(always)]
fn by<'f>(function: &'f Function, way: &RunWay) -> Publisher<'f> {
    function.publisher(way.queue, false, 0)
}

/// What descriptors of frames of `len` bytes say.
#[inline(always)]
fn of_length([first, second]: [u64; 2], len: usize) -> Words {
    Words::Both([first, second | (len as u64) << PKT_LEN_AT])
}

/// Takes segments of a large frame from number `from` on, as [`deliver`] takes frames.
pub(crate) fn deliver_cut(
    (function, env): (&Function, &Env),
    cut: &Cut<'_>,
    from: usize,
) -> Option<usize> {
    if !cut.is_simple_v4() || from >= cut.count() {
        return None;
    }
    let frame = cut.frame();
    let packet = SimpleV4::of(frame.head().first_chunk()?, frame.len())?;
    let len = cut.segment_len(0);
    let plan = |generation| {
        let csum = frame.notes().csum;
        let find = || way(function, env, (&cut.headers(), len), csum);
        function.cut.lock().way(generation, (cut.head(), len), find)
    };
    let fill = |view: &View<'_>, ours: (&Ring, u32), way: &RunWay| {
        // Of segments the verdict is known.
        let known = verdict_of_segment(way.judged.unwrap_or_default(), true);
        let words = described(way.words, &packet, known);
        let by = &by(function, way);
        fill_cut(view, ours, (cut, from), 0, |len| of_length(words, len), by)
    };
    let count = |way: &RunWay, frames: u64| {
        // The last may be shorter.
        let last = cut.segment_len(from + frames as usize - 1);
        function.stats.received(frames - 1, len + FCS, way.group);
        function.stats.received(1, last + FCS, way.group);
        (frames - 1) * len as u64 + last as u64
    };
    take((function, env), plan, fill, count)
}

/// Takes frames as `plan` says for a generation of the set-up, with buffers as `fill` says; `count` counts so many by their
/// lengths, and tells their bytes.
#[inline(always)]
fn take(
    (function, env): (&Function, &Env),
    plan: impl FnOnce(u32) -> Option<RunWay>,
    fill: impl FnOnce(&View<'_>, (&Ring, u32), &RunWay) -> Filled,
    count_all: impl FnOnce(&RunWay, u64) -> u64,
) -> Option<usize> {
    if !function.fast_path || function.wake.armed() || !function.moves() {
        return None;
    }
    let generation = function.setup.get();
    let way = plan(generation)?;
    let own = function.queues.get(way.queue as usize)?;
    let view = env.memory.view();
    let lock = own.rx.reach()?;
    // Those who change the set-up wait for this lock, or are seen here.
    let ring = match generation == function.setup.get() {
        true => way.place.ring(&function.file),
        false => None,
    };
    let filled = ring.map(|ring| {
        let given = ring.available();
        let filled = fill(&view, (&ring, given), &way);
        let frames = u64::from(filled.frames);
        if frames == 0 {
            return (given, filled, 0);
        }
        way.place
            .set_head(&function.file, ring.behind(filled.frames));
        let bytes = count_all(&way, frames);
        count(&own.counts.rx_packets, frames);
        count(&own.counts.rx_octets, bytes);
        count(
            &own.counts.rx_multicast,
            frames * u64::from(way.group == Group::Multicast),
        );
        (given, filled, bytes)
    });
    drop(lock);
    function.let_go(way.queue);
    let (given, filled, bytes) = filled?;
    let n = filled.frames;
    if n == 0 {
        return Some(0);
    }
    let frames = u64::from(n);
    let counters = &function.counters;
    count(&counters.rx_desc_fetched, filled.fetched);
    count(&counters.rx_frames, frames);
    count(&counters.rx_bytes, bytes);
    raise(function, env, &way, (given, n));
    Some(n as usize)
}

/// Raises the interrupt of `n` frames, for which `given` descriptors were there.
fn raise(function: &Function, env: &Env, way: &RunWay, (given, n): (u32, u32)) {
    let left = given - n;
    let low = way.threshold > 0 && left <= way.threshold && given > way.threshold;
    let bit = 1 << way.queue;
    let causes = Causes {
        rx: bit,
        now: if way.immediate { bit } else { 0 },
        other: if low { icr::RXDMT0 } else { 0 },
        ..Causes::default()
    };
    let mut irq = function.irq.lock();
    if function.adapts() {
        let mut moved = Moved::default();
        if let Some(moved) = moved.get_mut(way.queue as usize) {
            moved.done = n;
            moved.of = left;
        }
        irq.received(&moved);
    }
    irq.raise(env, causes);
}
