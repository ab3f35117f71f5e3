//! The short way: packets of one buffer each, behind a header that asks for nothing, without a batch. What is alike becomes a
//! run, what is not a mix.

use datapath::counters::count_alone;
use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::{MAX_BATCH, Mix, Run, Sink, same_header};
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
    /// So many packets and bytes were sent, and whether more are to be sent.
    Some(usize, usize, Left),
}

/// What is left of the packets in a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// None, when they were looked for.
    None,
    /// Some behind the run.
    Behind,
    /// A part of the run, which the sink did not take.
    Refused,
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
    let Alike {
        ones,
        at,
        lens,
        heads,
        ..
    } = &queue.alike;
    let Packets { n, from, kin, more } = match gathered {
        Gathered::Some(packets) => packets,
        Gathered::Empty => return Ok(Sent::Empty),
        Gathered::None => return Ok(Sent::None),
    };
    let (at, lens, heads) = (&at[..n], &lens[..n], &heads[..n]);
    let offer = match kin {
        Kin::Alike => Run::new(from, at, heads).map(Offer::Run),
        Kin::Header => Run::of_lengths(from, (at, lens), heads).map(Offer::Run),
        Kin::None => Mix::new(from, (at, lens), heads).map(Offer::Mix),
    };
    ring.delivers();
    let (taken, bytes) = offer.map_or((0, 0), |offer| offer.to(to, n));
    if taken < n {
        ring.give_back((n - taken) as u16);
        ring.delivers();
    }
    if taken == 0 {
        return Ok(Sent::None);
    }
    ring.used_ones(view, &ones[..taken], 0)?;
    count_alone(&device.counters.tx_frames, taken as u64);
    count_alone(&device.counters.tx_bytes, bytes as u64);
    let stats = &mut queue.stats[pair];
    stats.packets += taken as u64;
    stats.bytes += bytes as u64;
    let left = match taken == n {
        true if more || ring.may_have_more() => Left::Behind,
        true => Left::None,
        false => Left::Refused,
    };
    Ok(Sent::Some(taken, bytes, left))
}

/// What a sink is offered.
enum Offer<'r> {
    Run(Run<'r>),
    Mix(Mix<'r>),
}

impl Offer<'_> {
    /// Offers its `n` frames. Returns how many were taken, and their bytes.
    #[inline(always)]
    fn to(&self, to: &dyn Sink, n: usize) -> (usize, usize) {
        let taken = match self {
            Offer::Run(run) => to.deliver_run(run),
            Offer::Mix(mix) => to.deliver_mix(mix),
        };
        let taken = taken.unwrap_or(0).min(n);
        let bytes = match self {
            Offer::Run(run) => run.bytes(taken),
            Offer::Mix(mix) => mix.bytes(taken),
        };
        (taken, bytes)
    }
}

enum Gathered<'v> {
    Some(Packets<'v>),
    Empty,
    None,
}

/// Packets whose frames are there.
struct Packets<'v> {
    n: usize,
    from: ReadPlaces<'v>,
    kin: Kin,
    /// There are others behind them.
    more: bool,
}

/// What packets have in common.
#[derive(Clone, Copy)]
enum Kin {
    /// Length and header.
    Alike,
    Header,
    None,
}

/// Takes packets from the ring as long as they are alike, or, if few are, whatever their lengths and headers are.
fn gather<'v>(
    view: &'v View<'_>,
    kept: &mut Alike,
    ring: &mut Ring,
    front: usize,
    limits: (usize, usize),
) -> Result<Gathered<'v>, Broken> {
    if !kept.mixed
        && let Some(gathered) = alike(view, kept, ring, front, limits)?
    {
        return Ok(gathered);
    }
    mixed(view, kept, ring, front, limits)
}

/// The region of so many bytes at `at`.
#[inline(always)]
fn region<'v>(view: &'v View<'_>, at: u64, len: usize) -> Option<ReadPlaces<'v>> {
    match view.read_places(at, len) {
        None => view
            .read_run(at, len as u64)
            .and_then(|_| view.read_places(at, len)),
        places => places,
    }
}

/// Gives back what was taken: none of it goes the short way.
fn give_up<'v>(ring: &mut Ring, taken: usize) -> Gathered<'v> {
    ring.give_back(taken as u16);
    Gathered::None
}

/// Takes packets as long as they are alike. `None`: others follow too soon, and none was taken.
#[inline(always)]
fn alike<'v>(
    view: &'v View<'_>,
    kept: &mut Alike,
    ring: &mut Ring,
    front: usize,
    (limit, room): (usize, usize),
) -> Result<Option<Gathered<'v>>, Broken> {
    let Alike {
        ones, at, heads, ..
    } = kept;
    let mut most = limit.clamp(1, MAX_BATCH);
    let (taken, more) = ring.take_ones(view, false, &mut ones[..most.min(AHEAD)])?;
    if taken == 0 {
        return Ok(Some(if more {
            Gathered::None
        } else {
            Gathered::Empty
        }));
    }
    let total = ones[0].len;
    let len = (total as usize).wrapping_sub(front);
    if !(MIN_FRAME..=MAX_FRAME).contains(&len) {
        return Ok(Some(give_up(ring, taken)));
    }
    // Header and frame of each, and of that the frame.
    let first = ones[0].at;
    let (Some(whole), Some(from)) = (
        region(view, first, total as usize),
        region(view, first.wrapping_add(front as u64), len),
    ) else {
        return Ok(Some(give_up(ring, taken)));
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
    if n < FEWEST && more {
        ring.give_back(taken as u16);
        return Ok((n == 0).then_some(Gathered::None));
    }
    ring.give_back((taken - n) as u16);
    Ok(Some(Gathered::Some(Packets {
        n,
        from,
        kin: Kin::Alike,
        more,
    })))
}

/// Takes packets whatever their lengths and headers are, as long as they lie in one region. Not inlined, so that those that are
/// alike are not slowed down by what they do not need.
#[inline(never)]
fn mixed<'v>(
    view: &'v View<'_>,
    kept: &mut Alike,
    ring: &mut Ring,
    front: usize,
    (limit, room): (usize, usize),
) -> Result<Gathered<'v>, Broken> {
    let Alike {
        ones,
        at,
        lens,
        heads,
        mixed,
    } = kept;
    let most = limit.clamp(1, MAX_BATCH);
    let (mut taken, mut more) = ring.take_ones(view, false, &mut ones[..most.min(AHEAD)])?;
    if taken == 0 && !more {
        return Ok(Gathered::Empty);
    }
    let near = ones[..taken].first();
    let near = near.and_then(|one| region(view, one.at, one.len as usize));
    let Some(from) = near else {
        *mixed = false;
        return Ok(give_up(ring, taken));
    };
    let (mut n, mut bytes) = (0, 0);
    loop {
        let mut found = n;
        let places = at[n..taken].iter_mut().zip(&mut lens[n..taken]);
        for (one, (place, to)) in ones[n..taken].iter().zip(places) {
            let len = (one.len as usize).wrapping_sub(front);
            let near = from.find_of(one.at, one.len as usize);
            let (Some(at), Run::SHORTEST..=MAX_FRAME) = (near, len) else {
                break;
            };
            if bytes >= room {
                break;
            }
            from.prefetch(at);
            (*place, *to) = (at, len as u16);
            bytes += len;
            found += 1;
        }
        let each = at[n..found].iter_mut().zip(&lens[n..found]);
        for ((place, len), head) in each.zip(&mut heads[n..found]) {
            let len = usize::from(*len);
            let asked = from.head_of(*place, front + len);
            *place += front as u64;
            let asked = asked.filter(|[word, _]| asks_nothing(*word));
            let Some(this) = asked.and_then(|_| from.head_of(*place, len)) else {
                break;
            };
            *head = this;
            n += 1;
        }
        if n < taken || n == most || bytes >= room || !more {
            break;
        }
        let (next, left) = ring.take_ones(view, false, &mut ones[n..most.min(n + AHEAD)])?;
        (taken, more) = (taken + next, left);
        if next == 0 {
            break;
        }
    }
    more |= n < taken;
    if n == 0 || n < FEWEST.min(most) && more {
        *mixed = false;
        return Ok(give_up(ring, taken));
    }
    ring.give_back((taken - n) as u16);
    let one_header = heads[1..n].iter().all(|head| same_header(*head, heads[0]));
    *mixed = !one_header || lens[1..n].iter().any(|len| *len != lens[0]);
    Ok(Gathered::Some(Packets {
        n,
        from,
        kin: if one_header { Kin::Header } else { Kin::None },
        more,
    }))
}

/// Whether a header that begins so leaves nothing to be done.
#[inline(always)]
fn asks_nothing(word: u64) -> bool {
    let [flags, gso, ..] = word.to_le_bytes();
    flags & header::NEEDS_CSUM == 0 && gso == 0
}
