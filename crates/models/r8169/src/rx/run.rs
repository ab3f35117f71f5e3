//! The short way: frames that are alike, each into one buffer. Whatever needs more ends the run, and takes the general way,
//! which gives the same results.

use datapath::{FCS, MIN_FRAME};
use frame::{Run, work};
use guest_mem::{Head, ReadSlice, View, WriteSlice, copy_lengths, copy_run};
use wire::{EtherType, SimpleV4, Sum};

use crate::core::chip::Chip;
use crate::core::queues::{Desc, Group, RxState, fetch};
use crate::filter;
use crate::regs::bits::{desc, rx};
use crate::rx::place::{DESCS_PER_COPY, Settings, ZEROS, group_bits, publish};
use crate::rx::verdict::verdict_of;

/// Buffers found before the first of them is filled.
const AHEAD: usize = 64;
/// Bytes of a frame that are looked at.
const LOOK: usize = 64;

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
    let judged = settings.judge && kind == EtherType::IPV4;
    // Tags are taken out, and other headers looked through, frame by frame.
    let looks = settings.judge && kind == EtherType::IPV6;
    if kind.is_tag() && (settings.strip || settings.judge) || looks {
        return None;
    }
    let total = run.frame_len().max(MIN_FRAME) + FCS;
    if total > settings.most || !filter::accepts(&chip.file, dst) {
        return None;
    }
    let group = Group::of(dst);
    let bits = group_bits(group, filter::is_station(&chip.file, dst));
    let word = bits | desc::FS | desc::LS;
    let (from, mut at, mut heads) = run.frames();
    let mut lens = run.lens();
    // Bytes of a frame from the next on.
    let len_of = |lens: Option<&[u16]>, i: usize| {
        let len = lens.and_then(|lens| lens.get(i));
        len.map_or(run.frame_len(), |len| usize::from(*len))
    };
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
        let mut verdicts = [(0, 0); AHEAD];
        let copied = if judged {
            let mut copied = 0;
            let each = at.iter().zip(heads).zip(&places[..planned]);
            for (i, ((at, head), place)) in each.enumerate() {
                let len = len_of(lens, i);
                let (Some(read), Some(write)) = (from.get_of(*at, len), to.get(*place)) else {
                    break;
                };
                let write = write.sub(0, len.max(MIN_FRAME) + FCS);
                let Some(judged) = judge(read, *head, &write) else {
                    break;
                };
                verdicts[i] = judged;
                copied += 1;
            }
            copied
        } else {
            let to = (&to, &places[..planned]);
            match lens {
                None => copy_run((from, at), heads, to),
                Some(lens) => copy_lengths(((from, at), lens), heads, (to, FCS)),
            }
        };
        state.filled.clear();
        for (i, (desc, (first, second))) in descs[..copied].iter().zip(verdicts).enumerate() {
            let total = len_of(lens, i).max(MIN_FRAME) + FCS;
            let word = word | first | total as u32 | desc.opts1 & desc::EOR;
            state.filled.push((desc.index, word, second));
            state.next = desc.next();
        }
        publish(chip, view, settings.base, &mut state.filled);
        frames += copied;
        (at, heads) = (&at[copied..], &heads[copied..]);
        lens = lens.map(|lens| &lens[copied..]);
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
    tally.bytes += run.bytes(frames) as u64;
    tally.groups[group as usize] += frames as u64;
    Some(frames)
}

/// Copies a frame that is whole TCP or UDP over IPv4 without options, and judges it on the way: its first bytes by our copy,
/// which is what is delivered, the others as they are copied. `None` for any other frame, of which something may be there.
fn judge(read: ReadSlice<'_>, head: Head, write: &WriteSlice<'_>) -> Option<(u32, u32)> {
    let len = read.len();
    let mut bytes = [0; LOOK];
    let n = read.copy_to(0, &mut bytes);
    let [a, b] = head.map(u64::to_le_bytes);
    bytes[..8].copy_from_slice(&a);
    bytes[8..16].copy_from_slice(&b);
    let packet = SimpleV4::of(bytes.first_chunk()?, len)?;
    let span = packet.l4_span()?;
    let end = SimpleV4::L4 + span;
    // Padding is not covered: it is told from the rest in the first bytes only.
    if span < packet.l4_len || end > len || end > n && end < len {
        return None;
    }
    write.copy_from(0, &bytes[..n]);
    let (_, rest) = write.copy_summed(n, read.sub(n, usize::MAX));
    write.copy_from(len, &ZEROS[..write.len() - len]);
    // The pseudo-header (RFC 9293 §3.1); its addresses stand before the transport's header.
    let mut sum = Sum::ZERO;
    sum.add_word(packet.kind.number().into());
    sum.add_word(span as u16);
    sum.add_part(
        Sum::of(&bytes[SimpleV4::ADDRESSES..end.min(n)]).value(),
        end.min(n) - SimpleV4::ADDRESSES,
    );
    if end > n {
        sum.add_part(rest, end - n);
    }
    let intact = (!packet.is_unsummed()).then(|| sum.is_intact());
    Some(verdict_of(packet.ip(), packet.kind, intact))
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
