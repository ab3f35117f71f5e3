//! The short way: runs of frames that need a buffer each and nothing else.
//!
//! What registers say about such frames is worked out once per generation of the set-up ([`intel::rx::RunPlan`]). What needs more
//! (a verdict on checksums, a tag, a true FCS, several buffers), and frames that wait in the FIFO or for a lease, leave
//! the run to the general way, which gives the same results for all.

use datapath::FCS;
use datapath::counters::count_alone;
use frame::Run;
use guest_mem::View;
use intel::rx::{ETHERNET_HEADER, Fcs, Judged, Legacy, Words, fill_run};
use intel::{Ring, verdict_of_type};
use model::Env;
use wire::{EtherType, SimpleV4};

use crate::core::chip::Chip;
use crate::core::rx_queue::{RING, RunWay, RxGuard};
use crate::regs as r;
use crate::regs::bits::{rx_status, rxcsum};
use crate::rx::call::Call;
use crate::rx::csb::RxPage;
use crate::rx::fast_path::Bounds;
use crate::rx::poll;
use crate::rx::write::Report;
use crate::rx::write_back::News;

/// How frames of `len` bytes with this header are received, if that is all that decides.
#[cold]
fn way(chip: &Chip, header: [u8; ETHERNET_HEADER], len: usize) -> Option<RunWay> {
    let off = !chip.fast_path || chip.wake.armed() || chip.loopback() || !chip.rx_enabled();
    let file = &chip.file;
    let ring = Ring::read(file, &RING).filter(|_| !off)?;
    let mut call = Call::new(chip, None);
    call.read();
    let [dst @ .., _, _, _, _, _, _, a, b] = header;
    let bounds = Bounds::of(&call);
    let judged = call.judge(dst);
    let kind = u16::from_be_bytes([a, b]);
    let bare = verdict_of_type(call.rxcsum, kind);
    let (status, errors) = bare.unwrap_or_default();
    let needs_more = !judged.passes
        || bare.is_none() && EtherType(kind) != EtherType::IPV4
        || call.rxcsum & rxcsum::PCSS != 0
        || call.fcs() == Fcs::True
        || bounds.exclude([a, b])
        || !bounds.fit(len);
    if needs_more {
        return None;
    }
    let in_buffer = bounds.in_buffer(len);
    let report = Report {
        status: status | judged.status,
        errors,
        ..Report::default()
    };
    Some(RunWay {
        word: report.word(in_buffer, rx_status::EOP),
        judged: bare.is_none().then_some(call.rxcsum),
        in_buffer,
        group: judged.group,
        small: in_buffer <= call.rsrpd,
        base: ring.base,
        ring: ring.len,
        rctl: call.rctl,
        delays: (file.get(r::RDTR), file.get(r::RADV)),
    })
}

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub(crate) fn deliver(chip: &Chip, env: &Env, run: &Run<'_>) -> Option<usize> {
    let view = env.memory.view();
    let page = chip.rx_page(env, &view);
    let state = chip.rx.reach()?;
    let taken = fill(chip, env, (&view, page), run, state);
    poll::let_go(chip, env);
    taken
}

#[inline(always)]
fn fill<'v>(
    chip: &Chip,
    env: &Env,
    (view, page): (&View<'v>, Option<RxPage<'_>>),
    run: &Run<'_>,
    mut state: RxGuard<'_>,
) -> Option<usize> {
    if state.crowded() || !state.fifo.is_empty() {
        return None;
    }
    let find = || way(chip, run.header(), run.frame_len());
    let way = state.run.way(chip.setup.get(), run, find)?;
    if let Some(page) = &page {
        page.take_tail(chip);
    }
    let ring = Ring {
        base: way.base,
        len: way.ring,
        head: chip.file.get(r::RDH),
        tail: chip.file.get(r::RDT),
    };
    if ring.head >= ring.len || ring.tail >= ring.len {
        return None;
    }
    let free = ring.available().min(chip.allowance());
    let (ours, len) = ((&ring, free), way.in_buffer);
    let filled = match way.judged {
        None => fill_run(view, ours, run, len, Words::Second(way.word)),
        Some(rxcsum) => {
            let word = |_: &SimpleV4<'_>, (status, errors)| {
                let verdict = Legacy {
                    status,
                    errors,
                    ..Legacy::default()
                };
                [0, way.word | verdict.word()]
            };
            fill_run(view, ours, run, len, Judged::new(rxcsum, false, word))
        }
    };
    let (n, frames) = (filled.frames, u64::from(filled.frames));
    if n == 0 {
        return Some(0);
    }
    let len = run.frame_len();
    chip.stats.received(frames, len + FCS, way.group);
    let counters = &chip.counters;
    count_alone(&counters.rx_desc_fetched, filled.fetched);
    count_alone(&counters.rx_frames, frames);
    count_alone(&counters.rx_bytes, frames * len as u64);
    let call = Call::new(chip, page);
    let mut news = News::with_delays(way.delays);
    call.publish((ring, n), way.rctl, way.small, &mut news);
    call.raise(env, news);
    if let Some(page) = &call.page
        && n as usize == run.count()
    {
        page.settle(chip, env, &mut state.csb, false);
    }
    Some(n as usize)
}
