//! The short way: frames that are alike, each into one buffer. Whatever needs more ends the run, and takes the general way,
//! which gives the same results.

use frame::{Run, work};
use guest_mem::{View, copy_run};
use wire::EtherType;

use datapath::{FCS, MIN_FRAME};

use crate::core::chip::Chip;
use crate::core::queues::{Desc, Group, RxState, fetch};
use crate::filter;
use crate::regs::bits::{desc, rx};
use crate::rx::place::{DESCS_PER_COPY, Settings, group_bits, publish};

/// Buffers found before the first of them is filled.
const AHEAD: usize = 64;

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub(super) fn deliver(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    run: &Run<'_>,
) -> Option<usize> {
    let settings = Settings::of(chip);
    let [dst @ .., _, _, _, _, _, _, a, b] = run.header();
    let kind = EtherType(u16::from_be_bytes([a, b]));
    // Checksums are judged, and tags taken out, frame by frame.
    let ip = kind == EtherType::IPV4 || kind == EtherType::IPV6;
    if kind.is_tag() && (settings.strip || settings.judge) || ip && settings.judge {
        return None;
    }
    let total = run.frame_len().max(MIN_FRAME) + FCS;
    if total > settings.most || !filter::accepts(&chip.file, dst) {
        return None;
    }
    let group = Group::of(dst);
    let bits = group_bits(group, filter::is_station(&chip.file, dst));
    let word = bits | desc::FS | desc::LS | total as u32;
    let (from, mut at, mut heads) = run.frames();
    let mut descs = [Desc::default(); AHEAD];
    let mut places = [0; AHEAD];
    let mut frames = 0;
    while !at.is_empty() {
        let most = AHEAD.min(at.len());
        let found = find(view, (&settings, state.next), total, &mut descs[..most]);
        work::add(found as u64 / DESCS_PER_COPY);
        let first = descs[..found].first();
        let Some(to) = first.and_then(|desc| view.write_places_anew(desc.addr, total)) else {
            break;
        };
        let mut planned = 0;
        for (desc, place) in descs[..found].iter().zip(&mut places) {
            let Some(found) = to.find(desc.addr) else {
                break;
            };
            to.prefetch(found);
            *place = found;
            planned += 1;
        }
        let copied = copy_run((from, at), heads, (&to, &places[..planned]));
        state.filled.clear();
        for desc in &descs[..copied] {
            let word = word | desc.opts1 & desc::EOR;
            state.filled.push((desc.index, word, 0));
            state.next = desc.next();
        }
        publish(chip, view, settings.base, &mut state.filled);
        frames += copied;
        (at, heads) = (&at[copied..], &heads[copied..]);
        if copied < most {
            break;
        }
    }
    if frames == 0 {
        return None;
    }
    let tally = &mut state.tally;
    tally.frames += frames as u32;
    tally.buffers += frames as u32;
    tally.bytes += (frames * run.frame_len()) as u64;
    tally.groups[group as usize] += frames as u64;
    Some(frames)
}

/// Descriptors from `next` on whose buffer holds `total` bytes. Returns how many there are.
fn find(
    view: &View<'_>,
    (settings, mut next): (&Settings, u32),
    total: usize,
    descs: &mut [Desc],
) -> usize {
    let begin = next;
    let mut found = 0;
    for slot in descs {
        let Ok(Some(desc)) = fetch(view, settings.base, next) else {
            break;
        };
        if ((desc.opts1 & rx::LENGTH) as usize) < total {
            break;
        }
        *slot = desc;
        found += 1;
        next = desc.next();
        // None is given twice.
        if next == begin {
            break;
        }
    }
    found
}
