//! The short way: packets that are alike, each in one buffer behind a header that asks for nothing, without a batch.

use datapath::counters::count_alone;
use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::{MAX_BATCH, Run, Sink, same_header};
use guest_mem::{Head, ReadPlaces, View};

use crate::core::device::Device;
use crate::core::queues::{Alike, TxQueues};
use crate::core::ring::{Broken, Ring};
use crate::regs::{feature, header};

/// Packets whose memory is asked for before the first of them is looked at.
const AHEAD: usize = 32;
/// Fewest packets of a run that does not end with what is available. Shorter ones are mixed traffic, which costs less in a
/// batch.
const FEWEST: usize = 8;

/// What became of a run.
pub enum Sent {
    /// None begins here.
    None,
    /// There are no packets.
    Empty,
    /// So many packets and bytes were sent; whether that was all of the run.
    Some(usize, usize, bool),
}

/// Sends the run that begins at the head of `ring`, of at most `limit` packets and about `room` bytes. What the sink does not
/// take stays in the ring. Nothing is shown to the driver yet.
///
/// # Errors
/// The ring is broken.
pub fn send(
    device: &Device,
    view: &View<'_>,
    (pair, queue, ring): (usize, &mut TxQueues, &mut Ring),
    to: &dyn Sink,
    limits: (usize, usize),
) -> Result<Sent, Broken> {
    let report = device.features() & feature::HASH_REPORT != 0;
    let front = if report { header::LONG } else { header::LEN };
    let gathered = gather(view, &mut queue.alike, ring, front, limits)?;
    let (n, from) = match gathered {
        Gathered::Run(n, from) => (n, from),
        Gathered::Empty => return Ok(Sent::Empty),
        Gathered::None => return Ok(Sent::None),
    };
    let alike = &queue.alike;
    let run = Run::new(from, &alike.at[..n], &alike.heads[..n]);
    let len = from.bytes();
    ring.delivers();
    let taken = run.and_then(|run| to.deliver_run(&run));
    let taken = taken.unwrap_or(0).min(n);
    if taken < n {
        ring.give_back((n - taken) as u16);
        ring.delivers();
    }
    if taken == 0 {
        return Ok(Sent::None);
    }
    ring.used_ones(view, &alike.ones[..taken], 0)?;
    let bytes = taken * len;
    count_alone(&device.counters.tx_frames, taken as u64);
    count_alone(&device.counters.tx_bytes, bytes as u64);
    let stats = &mut queue.stats[pair];
    stats.packets += taken as u64;
    stats.bytes += bytes as u64;
    Ok(Sent::Some(taken, bytes, taken == n))
}

enum Gathered<'v> {
    /// So many packets, whose frames are there.
    Run(usize, ReadPlaces<'v>),
    Empty,
    None,
}

/// Takes packets from the ring as long as they are alike.
fn gather<'v>(
    view: &'v View<'_>,
    alike: &mut Alike,
    ring: &mut Ring,
    front: usize,
    (limit, room): (usize, usize),
) -> Result<Gathered<'v>, Broken> {
    let Alike { ones, at, heads } = alike;
    let mut most = limit.clamp(1, MAX_BATCH);
    let (taken, more) = ring.take_ones(view, false, &mut ones[..most.min(AHEAD)])?;
    if taken == 0 {
        return Ok(if more {
            Gathered::None
        } else {
            Gathered::Empty
        });
    }
    let give_up = |ring: &mut Ring, taken: usize| {
        ring.give_back(taken as u16);
        Ok(Gathered::None)
    };
    let total = ones[0].len;
    let len = (total as usize).wrapping_sub(front);
    if !(MIN_FRAME..=MAX_FRAME).contains(&len) {
        return give_up(ring, taken);
    }
    // Header and frame of each, and of that the frame.
    let places = |at: u64, len| match view.read_places(at, len) {
        None => view
            .read_run(at, len as u64)
            .and_then(|_| view.read_places(at, len)),
        places => places,
    };
    let first = ones[0].at;
    let (Some(whole), Some(from)) = (
        places(first, total as usize),
        places(first.wrapping_add(front as u64), len),
    ) else {
        return give_up(ring, taken);
    };
    most = most.min(room.div_ceil(len)).max(1);
    let (mut n, mut taken, mut more) = (0, taken, more);
    loop {
        let end = taken.min(most);
        let mut found = n;
        for (one, place) in ones[n..end].iter().zip(&mut at[n..end]) {
            let Some(at) = whole.find(one.at).filter(|_| one.len == total) else {
                break;
            };
            whole.prefetch(at);
            *place = at;
            found += 1;
        }
        let before = n;
        for (place, head) in at[before..found].iter_mut().zip(&mut heads[before..found]) {
            let asked = whole.head(*place).filter(|[word, _]| asks_nothing(*word));
            *place += front as u64;
            let Some(this) = asked.and_then(|_| from.head(*place)) else {
                break;
            };
            *head = this;
            n += 1;
        }
        let header = heads[0];
        let same = |head: &&Head| same_header(**head, header);
        n = before + heads[before..n].iter().take_while(same).count();
        if n < end || n == most || !more {
            break;
        }
        let (next, left) = ring.take_ones(view, false, &mut ones[n..most.min(n + AHEAD)])?;
        (taken, more) = (taken + next, left);
        if next == 0 {
            break;
        }
    }
    more |= n < taken;
    if n == 0 || n < FEWEST && more {
        return give_up(ring, taken);
    }
    ring.give_back((taken - n) as u16);
    Ok(Gathered::Run(n, from))
}

/// Whether a header that begins so leaves nothing to be done.
#[inline(always)]
fn asks_nothing(word: u64) -> bool {
    let [flags, gso, ..] = word.to_le_bytes();
    flags & header::NEEDS_CSUM == 0 && gso == 0
}
