//! The short way: runs of frames that need a buffer each, and whose headers no descriptor describes.
//!
//! What registers and filters say about such frames is worked out once per generation of the set-up
//! ([`intel::rx::RunPlan`]), by the code that the fast path asks: for a frame with this header and zeros behind it, which
//! is all that decides. All other frames leave the run to the fast path ([`crate::rx::fast_path`]).

use datapath::FCS;
use frame::{Batch, Run};
use intel::Ring;
use intel::rx::{Words, fill_run};
use model::Env;
use wire::Offload;

use crate::core::function::{Function, FunctionKind, RunWay, count};
use crate::core::irq::{Causes, Moved};
use crate::core::stats::Group;
use crate::regs::bits::icr;
use crate::rx::call::Call;
use crate::rx::classify::{Classified, Classifier};
use crate::rx::fast_path::{BARE, Look, look_at};
use crate::rx::report::{desc_status, word};
use crate::rx::shape::{Shape, ShapeKind};

/// How frames of a run are received, if its header and length are all that decides.
#[cold]
fn way(function: &Function, env: &Env, run: &Run<'_>) -> Option<RunWay> {
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
    let header = run.header();
    batch.push_bytes(&header);
    batch.push_bytes(&vec![0; run.frame_len() - header.len()]);
    batch.end(Offload::NONE);
    let frame = batch.get(0)?;
    if look_at(&settings, &frame)? != Look::Bare {
        return None;
    }
    let mut report = BARE;
    let classified = match function.kind {
        FunctionKind::Vf(_) => Classified::default(),
        FunctionKind::Pf => {
            let mut classifier = Classifier::new(&call);
            let classified = classifier.classify(&call, &frame);
            classifier.end();
            let classified = classified?;
            report = call.classified(report, &classified);
            classified
        }
    };
    let queue = classified.class.queue;
    let srrctl = function.file.get_at(function.ids.srrctl, queue);
    let shape = Shape::of(srrctl, settings.buffer)?;
    if shape.kind != ShapeKind::Whole || run.frame_len() > shape.packet {
        return None;
    }
    let second = word(ShapeKind::Whole, run.frame_len(), desc_status::EOP, &report);
    let [dst @ .., _, _, _, _, _, _, _, _] = header;
    Some(RunWay {
        queue,
        words: [report.first_word(), second],
        group: Group::of(dst),
        immediate: classified.class.immediate,
        threshold: shape.threshold,
    })
}

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub(crate) fn deliver(function: &Function, env: &Env, run: &Run<'_>) -> Option<usize> {
    if !function.fast_path || function.wake.armed() || !function.moves() {
        return None;
    }
    let generation = function.setup.get();
    let find = || way(function, env, run);
    let way = function.run.lock().way(generation, run, find)?;
    let own = function.queues.get(way.queue as usize)?;
    let view = env.memory.view();
    let lock = own.rx.lock();
    // Those who change the set-up wait for this lock, or are seen here.
    if generation != function.setup.get() || !function.rx_enabled(way.queue) {
        return None;
    }
    let ids = function.ids;
    let ring = Ring::read_at(&function.file, &ids.rx_ring(), way.queue)?;
    let given = ring.available();
    let len = run.frame_len();
    let filled = fill_run(&view, (&ring, given), run, len, Words::Both(way.words));
    let n = filled.frames;
    if n == 0 {
        return Some(0);
    }
    function.file.set_at(ids.rdh, way.queue, ring.behind(n));
    let (frames, bytes) = (u64::from(n), u64::from(n) * len as u64);
    count(&own.counts.rx_packets, frames);
    count(&own.counts.rx_octets, bytes);
    count(
        &own.counts.rx_multicast,
        frames * u64::from(way.group == Group::Multicast),
    );
    drop(lock);
    let counters = &function.counters;
    count(&counters.rx_desc_fetched, filled.fetched);
    count(&counters.rx_frames, frames);
    count(&counters.rx_bytes, bytes);
    function.stats.received(frames, len + FCS, way.group);
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
    if function.adapts {
        let mut moved = Moved::default();
        if let Some(moved) = moved.get_mut(way.queue as usize) {
            moved.done = n;
            moved.of = left;
        }
        irq.received(&moved);
    }
    irq.raise(env, causes);
}
