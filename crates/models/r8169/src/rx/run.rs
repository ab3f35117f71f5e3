//! The short way: frames that are alike, and segments of large ones, each into one buffer. Whatever needs more ends it, and
//! takes the general way, which gives the same results.

use datapath::{FCS, MIN_FRAME};
use frame::{Cut, Run, work};
use guest_mem::{Head, ReadSlice, View, WritePlaces, WriteSlice, copy_lengths, copy_run};
use wire::{ETHERNET_HEADER, EtherType, SimpleV4, Sum};

use crate::core::chip::Chip;
use crate::core::kept::{self, Says};
use crate::core::queues::{Group, MOST, RunPlan, RunWay, RxState};
use crate::core::row::{Row, Walk, store_one};
use crate::filter;
use crate::regs::bits::{desc, rx};
use crate::rx::place::{DESCS_PER_COPY, Settings, ZEROS, group_bits};
use crate::rx::verdict::verdict_of;

/// Buffers found before the first of them is filled, of runs of any length and of those that are short.
const AHEAD: usize = 64;
const FEW: usize = 4;
/// Bytes of a frame that are looked at.
const LOOK: usize = 64;

/// How frames with this header are received, if nothing else decides.
#[cold]
fn find_way(chip: &Chip, header: [u8; ETHERNET_HEADER]) -> Option<RunWay> {
    let settings = Settings::of(chip);
    let [dst @ .., _, _, _, _, _, _, a, b] = header;
    // Tags are taken out, and what is behind them is judged, frame by frame.
    let tagged = EtherType(u16::from_be_bytes([a, b])).is_tag();
    let looked_through = tagged && (settings.strip || settings.judge);
    // Its descriptors say less of what was judged.
    let first = settings.judge && chip.variant.is_first();
    if looked_through || first || !filter::accepts(chip.variant, &chip.file, dst) {
        return None;
    }
    let group = Group::of(dst);
    let bits = group_bits(group, filter::is_station(&chip.file, dst));
    Some(RunWay {
        base: settings.base,
        group,
        word: u64::from(bits | desc::FS | desc::LS),
        most: settings.most,
        judge: settings.judge,
    })
}

/// The same for frames of at most `total` bytes with FCS, unless it is known.
#[inline(always)]
fn way(
    chip: &Chip,
    state: &mut RxState,
    header: [u8; ETHERNET_HEADER],
    total: usize,
) -> Option<RunWay> {
    let generation = chip.setup.get();
    if state.plan.generation != generation || state.plan.header != header {
        state.plan = RunPlan {
            generation,
            header,
            way: find_way(chip, header),
        };
    }
    state.plan.way.filter(|way| total <= way.most)
}

/// Bytes in the buffer of a frame of `len`.
#[inline(always)]
fn in_buffer(len: usize) -> usize {
    len.max(MIN_FRAME) + FCS
}

/// Takes frames of a run as long as there are buffers for them. `None` when they are not for this way.
pub(super) fn deliver(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    run: &Run<'_>,
) -> Option<usize> {
    let header = run.header();
    let kind = EtherType(u16::from_be_bytes([header[12], header[13]]));
    let total = in_buffer(run.frame_len());
    let way = way(chip, state, header, total)?;
    // Other headers are looked through frame by frame.
    if way.judge && kind == EtherType::IPV6 {
        return None;
    }
    let judged = way.judge && kind == EtherType::IPV4;
    if run.count() == 1
        && run.lens().is_none()
        && !judged
        && single((chip, view), state, &way, (run, total)).is_some()
    {
        return Some(1);
    }
    let frames = match (judged, run.lens()) {
        (true, _) => fill_judged(chip, view, state, &way, run),
        (false, Some(lens)) => fill_lengths(chip, view, state, &way, (run, lens)),
        (false, None) => {
            let (from, at, heads) = run.frames();
            let say = Say::Same(way.word | total as u64);
            let ask = (way.base, say, total, run.count());
            fill(chip, view, state, ask, |done, to, to_at, _| {
                copy_run((from, &at[done..]), &heads[done..], (to, to_at))
            })
        }
    };
    if frames == 0 {
        return None;
    }
    let tally = &mut state.tally;
    tally.frames += frames as u32;
    tally.buffers += frames as u32;
    tally.bytes += run.bytes(frames) as u64;
    tally.groups[way.group as usize] += frames as u64;
    Some(frames)
}

/// The shortest way: one frame, into a buffer that is not the ring's last. `None`: nothing has happened that counts.
#[inline(always)]
fn single(
    (chip, view): (&Chip, &View<'_>),
    state: &mut RxState,
    way: &RunWay,
    (run, total): (&Run<'_>, usize),
) -> Option<()> {
    let [word, addr] = Row::of(view, way.base)?.words(state.next, 1).next()?;
    let word = word as u32;
    if word & (desc::OWN | desc::EOR) != desc::OWN || ((word & rx::LENGTH) as usize) < total {
        return None;
    }
    let to = view.write_places_anew(addr, total)?;
    let place = [to.find(addr)?];
    let (from, at, heads) = run.frames();
    if copy_run((from, &at[..1]), &heads[..1], (&to, &place)) != 1 {
        return None;
    }
    let word = way.word | total as u64;
    let faults = &chip.counters.rx_dma_fault;
    match chip.kept.get() {
        None => store_one(view, (way.base, state.next), word, faults),
        Some(kept) => {
            let walk = Walk::new(state.next);
            kept::publish(kept, (view, way.base), walk, Says::Same(1, word), faults);
        }
    }
    state.next = Walk::new(state.next).behind(1);
    let tally = &mut state.tally;
    tally.frames += 1;
    tally.buffers += 1;
    tally.bytes += run.frame_len() as u64;
    tally.groups[way.group as usize] += 1;
    Some(())
}

/// Frames that have lengths of their own.
#[inline(never)]
fn fill_lengths(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    way: &RunWay,
    (run, lens): (&Run<'_>, &[u16]),
) -> usize {
    let (from, at, heads) = run.frames();
    let (say, longest) = (Say::Each(way.word), in_buffer(run.frame_len()));
    let ask = (way.base, say, longest, run.count());
    fill(chip, view, state, ask, |done, to, to_at, words| {
        let lens = &lens[done..];
        let places = ((from, &at[done..]), lens);
        let copied = copy_lengths(places, &heads[done..], ((to, to_at), FCS));
        for (word, len) in words.iter_mut().zip(&lens[..copied]) {
            *word |= in_buffer((*len).into()) as u64;
        }
        copied
    })
}

/// Frames whose checksums are judged.
#[inline(never)]
fn fill_judged(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    way: &RunWay,
    run: &Run<'_>,
) -> usize {
    let (from, at, heads) = run.frames();
    let len_of = |i: usize| {
        let len = run.lens().and_then(|lens| lens.get(i));
        len.map_or(run.frame_len(), |len| usize::from(*len))
    };
    let (say, longest) = (Say::Each(way.word), in_buffer(run.frame_len()));
    let ask = (way.base, say, longest, run.count());
    fill(chip, view, state, ask, |done, to, to_at, words| {
        let mut copied = 0;
        let each = at[done..].iter().zip(&heads[done..]).zip(to_at).zip(words);
        for (i, (((at, head), place), word)) in each.enumerate() {
            let len = len_of(done + i);
            let (Some(read), Some(write)) = (from.get_of(*at, len), to.get(*place)) else {
                break;
            };
            let write = write.sub(0, in_buffer(len));
            let Some((first, second)) = judge(read, *head, &write) else {
                break;
            };
            *word |= u64::from(second) << 32 | u64::from(first) | in_buffer(len) as u64;
            copied += 1;
        }
        copied
    })
}

/// Takes segments of a large frame from number `from` on, as [`deliver`] takes frames.
pub(super) fn deliver_cut(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    (cut, from): (&Cut<'_>, usize),
) -> Option<usize> {
    let header = cut.header();
    let total = in_buffer(cut.segment_len(0));
    let mut way = way(chip, state, header, total)?;
    if way.judge {
        // Their checksums are written here.
        let v6 = EtherType(u16::from_be_bytes([header[12], header[13]])) == EtherType::IPV6;
        let second = if v6 { rx::V6 } else { rx::V4 };
        way.word |= u64::from(second) << 32 | u64::from(rx::TCP);
    }
    let count = cut.count().checked_sub(from)?;
    let mut segments = cut.segments(from);
    let ask = (way.base, Say::Each(way.word), total, count);
    let frames = fill(chip, view, state, ask, |done, to, to_at, words| {
        let mut copied = 0;
        for (place, word) in to_at.iter().zip(words) {
            // The last may be shorter.
            let len = in_buffer(cut.segment_len(from + done + copied));
            let Some(place) = to.get(*place) else {
                break;
            };
            segments.write(&place.sub(0, len));
            *word |= len as u64;
            copied += 1;
        }
        copied
    });
    let last = (from + frames).checked_sub(1).filter(|_| frames > 0)?;
    let bytes = (frames - 1) * cut.segment_len(0) + cut.segment_len(last);
    let tally = &mut state.tally;
    tally.frames += frames as u32;
    tally.buffers += frames as u32;
    tally.bytes += bytes as u64;
    tally.groups[way.group as usize] += frames as u64;
    Some(frames)
}

/// What the first words of descriptors say.
#[derive(Clone, Copy)]
enum Say {
    /// This.
    Same(u64),
    /// This, and for each what is added.
    Each(u64),
}

/// Fills buffers of at least `total` bytes with frames, at most `count`: `copy` copies those from a number on to places, adds to
/// the words of their descriptors where they differ, and returns how many it has copied. Gives them to the driver.
#[inline(always)]
fn fill(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    ask: (u64, Say, usize, usize),
    copy: impl FnMut(usize, &WritePlaces<'_>, &[u64], &mut [u64]) -> usize,
) -> usize {
    let (.., count) = ask;
    match count <= FEW {
        true => fill_by::<FEW>(chip, view, state, ask, copy),
        false => fill_by::<AHEAD>(chip, view, state, ask, copy),
    }
}

#[inline(always)]
fn fill_by<const N: usize>(
    chip: &Chip,
    view: &View<'_>,
    state: &mut RxState,
    (base, say, total, count): (u64, Say, usize, usize),
    mut copy: impl FnMut(usize, &WritePlaces<'_>, &[u64], &mut [u64]) -> usize,
) -> usize {
    let Some(row) = Row::of(view, base) else {
        return 0;
    };
    let (mut places, mut words) = ([0; N], [0; N]);
    let faults = &chip.counters.rx_dma_fault;
    let mut done = 0;
    while done < count {
        let most = N.min(count - done);
        let mut walk = Walk::new(state.next);
        let Some((to, found)) = find(view, &row, &mut walk, total, &mut places[..most]) else {
            break;
        };
        work::add(found as u64 / DESCS_PER_COPY);
        if let Say::Each(word) = say {
            words[..found].fill(word);
        }
        let copied = copy(done, &to, &places[..found], &mut words[..found]);
        match (chip.kept.get(), say) {
            (None, Say::Same(word)) => walk.store_same(view, base, (copied, word), faults),
            (None, Say::Each(_)) => walk.store(view, base, &mut words[..copied], faults),
            (Some(kept), Say::Same(word)) => {
                kept::publish(kept, (view, base), walk, Says::Same(copied, word), faults);
            }
            (Some(kept), Say::Each(_)) => {
                walk.mark_end(&mut words[..copied]);
                let says = Says::Each(&mut words[..copied]);
                kept::publish(kept, (view, base), walk, says, faults);
            }
        }
        state.next = walk.behind(copied);
        done += copied;
        if copied < most {
            break;
        }
    }
    done
}

/// Finds the buffers of the next descriptors. It ends where one is the driver's, too short, or not in the region of the one
/// before. `None`: that is the first.
#[inline(always)]
fn find<'v>(
    view: &'v View<'_>,
    row: &Row<'_>,
    walk: &mut Walk,
    total: usize,
    places: &mut [u64],
) -> Option<(WritePlaces<'v>, usize)> {
    let holds = |word: u64| {
        let size = word as u32 & rx::LENGTH;
        word as u32 & desc::OWN != 0 && size as usize >= total
    };
    let all = || row.words(walk.begin(), MOST);
    // The first is read again with the others, and only what is read then counts.
    let [word, addr] = all().next()?;
    if !holds(word) {
        return None;
    }
    let to = view.write_places_anew(addr, total)?;
    let mut descs = all();
    // Most say what the one before says; none says this.
    let mut right = 0;
    let mut found = 0;
    loop {
        let mut ends = false;
        for (place, [word, addr]) in places[found..].iter_mut().zip(&mut descs) {
            if word != right {
                if !holds(word) {
                    break;
                }
                if word as u32 & desc::EOR != 0 {
                    // The ring's last: what comes behind it is its first.
                    if !walk.has_ended()
                        && let Some(at) = to.find(addr)
                    {
                        *place = at;
                        found += 1;
                        ends = true;
                    }
                    break;
                }
                right = word;
            }
            let Some(at) = to.find(addr) else {
                break;
            };
            to.prefetch(at);
            *place = at;
            found += 1;
        }
        if !ends {
            break;
        }
        walk.ended(found);
        right = 0;
        descs = row.words(0, walk.begin());
    }
    Some((to, found))
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
