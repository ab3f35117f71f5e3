//! The short way where what receives a frame, or what is said of it, depends on its flow: frames are sorted by pair, and each pair
//! takes its own as a run.

use frame::{HEAD, Head, Run};
use guest_mem::{View, WritePlaces, copy_lengths, copy_run};
use model::Env;

use crate::core::chain::One;
use crate::core::config::MAX_PAIRS;
use crate::core::device::Device;
use crate::core::queues::{ROOM, RxQueues};
use crate::core::ring::Broken;
use crate::core::steering::{Hashed, Steering};
use crate::regs::{feature, header};
use crate::rx::fill::{Filled, Taken, find_buffers, used_lengths};
use crate::rx::place::Front;

/// Pairs there can be.
const PAIRS: usize = MAX_PAIRS as usize;

/// Frames of a run, sorted by pair, and their buffers.
struct Sorted {
    at: [u64; ROOM],
    lens: [u16; ROOM],
    heads: [Head; ROOM],
    hashed: [Hashed; ROOM],
    ones: [One; ROOM],
    places: [u64; ROOM],
}

/// Whom frames are for, in their order.
struct Flows {
    pair: [u8; ROOM],
    hashed: [Hashed; ROOM],
    /// Frames of each pair.
    each: [u8; PAIRS],
}

/// The share of a pair.
#[derive(Clone, Copy, Default)]
struct Share<'v> {
    /// Where its frames begin among those that are sorted.
    start: usize,
    /// Frames that are its.
    frames: usize,
    /// Buffers that were taken, those of them that can be filled, and their region, in places of a header and a frame and in places of
    /// a frame.
    taken: usize,
    found: usize,
    region: Option<(WritePlaces<'v>, WritePlaces<'v>)>,
    /// Frames that it takes.
    takes: usize,
}

/// What all frames have in common.
struct Common {
    pairs: usize,
    report: bool,
    /// Bytes of the header in front of each.
    front: usize,
}

/// Takes frames of a run, from the front on, as long as their pairs have buffers.
#[inline(never)]
pub fn deliver(
    device: &Device,
    env: &Env,
    (view, queues): (&View<'_>, &mut RxQueues),
    run: &Run<'_>,
) -> Option<Taken> {
    let report = device.has(feature::HASH_REPORT);
    let common = Common {
        pairs: device.pairs(),
        report,
        front: if report { header::LONG } else { header::LEN },
    };
    let mut filled = [Filled::default(); PAIRS];
    let (mut frames, mut broken) = (0, None);
    while frames < run.count() && broken.is_none() {
        let part = run.part(frames, ROOM);
        let takes = take_part(view, queues, &part, &common, (&mut filled, &mut broken));
        frames += takes;
        if takes < part.count() {
            break;
        }
    }
    let mut taken = Taken::default();
    for (pair, filled) in filled.into_iter().enumerate() {
        if filled.frames > 0 {
            taken.settle((device, env), (view, queues), (pair, filled), Ok(()));
        }
    }
    if let Some((pair, why)) = broken {
        queues.rings[pair] = None;
        taken.broken = Some(why);
    }
    taken.frames = frames;
    Some(taken)
}

/// Takes frames of at most [`ROOM`]. Returns how many; `broken` says which ring is broken.
fn take_part(
    view: &View<'_>,
    queues: &mut RxQueues,
    run: &Run<'_>,
    common: &Common,
    (filled, broken): (&mut [Filled; PAIRS], &mut Option<(usize, Broken)>),
) -> usize {
    let (flows, known) = Flows::of(&queues.steering, run, common);
    let mut shares = [Share::default(); PAIRS];
    let mut sorted = Sorted::of(run, &flows, known, &mut shares);
    let total = common.front + run.frame_len();
    for (pair, (ring, share)) in queues.rings.iter_mut().zip(&mut shares).enumerate() {
        let Some(ring) = ring.as_mut().filter(|_| share.frames > 0) else {
            continue;
        };
        let of = share.start..share.start + share.frames;
        let room = (&mut sorted.ones[of.clone()], &mut sorted.places[of]);
        match find_buffers(view, ring, total, room) {
            Ok(None) => {}
            Ok(Some(buffers)) => {
                share.taken = buffers.taken;
                let first = sorted.ones[share.start].at;
                let body = first.wrapping_add(common.front as u64);
                let body = view.write_places_anew(body, run.frame_len());
                share.region = body.map(|body| (buffers.whole, body));
                share.found = share.region.map_or(0, |_| buffers.found);
            }
            Err(why) => *broken = Some((pair, why)),
        }
    }
    // From the front on: behind a frame without a buffer none is taken.
    let mut takes = 0;
    for pair in &flows.pair[..known] {
        let share = &mut shares[usize::from(*pair) % PAIRS];
        if share.takes == share.found {
            break;
        }
        share.takes += 1;
        takes += 1;
    }
    for (pair, (ring, share)) in queues.rings.iter_mut().zip(&shares).enumerate() {
        let Some(ring) = ring else { continue };
        ring.give_back((share.taken - share.takes) as u16);
        if share.takes == 0 {
            continue;
        }
        sorted.fill(run, share, common);
        let of = share.start..share.start + share.takes;
        let (filled, ones) = (&mut filled[pair], &sorted.ones[of.clone()]);
        let bytes = match run.lens() {
            None => ring
                .used_ones(view, ones, total as u32)
                .map(|()| (ones.len() * run.frame_len()) as u64),
            Some(_) => used_lengths(view, ring, (ones, &sorted.lens[of]), common.front),
        };
        match bytes {
            Ok(bytes) => {
                filled.bytes += bytes;
                filled.frames += share.takes as u64;
            }
            Err(why) => *broken = Some((pair, why)),
        }
    }
    takes
}

impl Flows {
    /// Whom the frames of `run` are for, and how many of them are there.
    fn of(steering: &Steering, run: &Run<'_>, common: &Common) -> (Flows, usize) {
        let mut flows = Flows {
            pair: [0; ROOM],
            hashed: [Hashed::default(); ROOM],
            each: [0; PAIRS],
        };
        let (from, at, heads) = run.frames();
        let mut known = 0;
        for (i, (at, head)) in at.iter().zip(heads).enumerate().take(ROOM) {
            let len = run.lens().map_or(run.frame_len(), |lens| lens[i].into());
            // What is judged begins with what arrives.
            let begin = |to: &mut [u8]| {
                let frame = from.get_of(*at, len.min(to.len()));
                let copied = frame.map_or(0, |frame| frame.copy_to(0, to));
                for (to, word) in to.as_chunks_mut().0.iter_mut().zip(head) {
                    *to = word.to_le_bytes();
                }
                copied
            };
            let mut bytes = [0; HEAD];
            let copied = begin(&mut bytes);
            if copied == 0 {
                break;
            }
            let head = (&bytes[..copied], len);
            let (pair, hashed) = steering.place_by(head, begin, common.pairs, common.report);
            flows.pair[i] = pair as u8;
            flows.hashed[i] = hashed;
            flows.each[pair % PAIRS] += 1;
            known += 1;
        }
        (flows, known)
    }
}

impl Sorted {
    /// The first `known` frames of `run`, and where those of each pair are.
    fn of(run: &Run<'_>, flows: &Flows, known: usize, shares: &mut [Share<'_>; PAIRS]) -> Sorted {
        let mut sorted = Sorted {
            at: [0; ROOM],
            lens: [0; ROOM],
            heads: [[0; 2]; ROOM],
            hashed: [Hashed::default(); ROOM],
            ones: [One::default(); ROOM],
            places: [0; ROOM],
        };
        let mut next = [0; PAIRS];
        let mut start = 0;
        for ((share, next), frames) in shares.iter_mut().zip(&mut next).zip(&flows.each) {
            (share.start, share.frames, *next) = (start, usize::from(*frames), start);
            start += usize::from(*frames);
        }
        let (_, at, heads) = run.frames();
        for (i, pair) in flows.pair[..known].iter().enumerate() {
            let next = &mut next[usize::from(*pair) % PAIRS];
            let to = *next % ROOM;
            *next += 1;
            sorted.at[to] = at[i];
            sorted.heads[to] = heads[i];
            sorted.hashed[to] = flows.hashed[i];
            if let Some(lens) = run.lens() {
                sorted.lens[to] = lens[i];
            }
        }
        sorted
    }

    /// Fills buffers with the frames that a pair takes.
    fn fill(&mut self, run: &Run<'_>, share: &Share<'_>, common: &Common) {
        let Some((whole, body)) = &share.region else {
            return;
        };
        let of = share.start..share.start + share.takes;
        let places = &mut self.places[of.clone()];
        let front = common.front as u64;
        places.iter_mut().for_each(|to| *to += front);
        let (from, ..) = run.frames();
        let (at, heads) = (&self.at[of.clone()], &self.heads[of.clone()]);
        let copied = match run.lens() {
            None => copy_run((from, at), heads, (body, places)),
            Some(_) => {
                let lens = &self.lens[of.clone()];
                copy_lengths(((from, at), lens), heads, ((body, places), 0))
            }
        };
        debug_assert_eq!(copied, share.takes, "all places were found");
        let plain = Front::plain(None);
        for (place, hashed) in places.iter().zip(&self.hashed[of]) {
            let told;
            let head = if common.report {
                told = Front::plain(Some(*hashed));
                told.bytes()
            } else {
                plain.bytes()
            };
            if let Some(to) = whole.get(*place - front) {
                to.copy_from(0, head);
            }
        }
    }
}
