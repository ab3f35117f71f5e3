//! The short way: packets of a descriptor each that asks for nothing, without a batch.
//!
//! Each descriptor is read once, in place. What is alike becomes a run, what is not a mix; both leave what they cannot take
//! to the general way, which gives the same results.

use datapath::counters::count_alone;
use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::{MAX_BATCH, Mix, Run, Sink, same_header};
use guest_mem::{ReadPlaces, View};

use crate::core::chip::Chip;
use crate::core::kept::{self, Says, Sending};
use crate::core::queues::{Alike, MOST, TxState};
use crate::core::row::{Row, Walk, store_one};
use crate::core::stats::Stat;
use crate::regs::bits::{desc, tx};

/// Fewest packets of a run that does not end with what there is. Shorter ones are mixed traffic, which costs less in a
/// batch.
const FEWEST: usize = 8;
/// Packets whose memory is asked for before the first of them is looked at.
const AHEAD: usize = 32;
/// What descriptors of a run may differ in.
const EOR: u64 = desc::EOR as u64;

/// What became of a try.
pub(super) enum Tried {
    /// There are no packets.
    Empty,
    /// No run begins at the head of the ring, or the sink took nothing of it.
    None,
    /// One was offered.
    Offered(Offered),
}

/// Packets that were offered.
pub(super) struct Offered {
    /// Packets that were sent, and those there were.
    pub sent: usize,
    pub offered: usize,
    /// Bytes that were sent.
    pub bytes: usize,
    /// Behind them there was none.
    pub last: bool,
    /// Descriptors of the ring, if that is known now.
    pub ring: Option<u32>,
}

/// Packets that go the short way.
struct Gathered {
    walk: Walk,
    count: usize,
    /// The next descriptor is not the chip's.
    last: bool,
    /// All begin with the same header.
    alike: bool,
    /// What all of their descriptors are to say, if that is the same but for EOR: then lengths and headers are, too.
    same: Option<u64>,
}

/// Sends the packets at the head of the ring that ask for nothing, at most `limit` of them and about `room` bytes. What the
/// sink does not take stays in the ring.
#[inline]
pub(super) fn send(
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    to: &dyn Sink,
    limits: (usize, usize),
) -> Tried {
    let Some(row) = Row::of(view, base) else {
        return Tried::None;
    };
    match row.words(state.next, 1).next() {
        Some([word, _]) if word as u32 & desc::OWN == 0 => Tried::Empty,
        Some(first) => match offer((chip, view), (base, &row), state, (to, limits), first) {
            Some(offered) => Tried::Offered(offered),
            None => Tried::None,
        },
        None => Tried::None,
    }
}

/// Sends the packet at the head of the ring, if it is the only one and the ring does not end with it: what interactive traffic sends.
/// `None`: nothing has happened, but that it was tried.
#[inline(always)]
pub(super) fn single(
    (chip, view): (&Chip, &View<'_>),
    base: u64,
    state: &mut TxState,
    to: &dyn Sink,
) -> Option<()> {
    if !state.runs.is_open() {
        return None;
    }
    let row = Row::of(view, base)?;
    let mut descs = row.words(state.next, 2);
    let ([word, addr], [behind, _]) = (descs.next()?, descs.next()?);
    if behind as u32 & desc::OWN != 0 || word & EOR != 0 {
        return None;
    }
    let len = plain(word)?;
    let from = view.read_places(addr, len)?;
    let at = [from.find(addr)?];
    let heads = [from.head(at[0])?];
    let run = Run::new(from, &at, &heads)?;
    let walk = Walk::new(state.next);
    let kept = chip.kept.get();
    if let Some(kept) = kept {
        kept::delivers(kept, (view, base), Sending::of(&walk, 1), 0);
    }
    if to.deliver_run(&run).is_none_or(|taken| taken == 0) {
        if let Some(kept) = kept {
            kept::refused(kept, (view, base), Sending::of(&walk, 1), 0);
        }
        state.runs.failed();
        return None;
    }
    state.runs.worked();
    let word = word & !u64::from(desc::OWN);
    let counters = &chip.counters;
    let faults = &counters.tx_dma_fault;
    match kept {
        None => store_one(view, (base, state.next), word, faults),
        Some(kept) => kept::sent(kept, (view, base), (walk, 1), Says::Same(1, word), faults),
    }
    state.next = Walk::new(state.next).behind(1);
    state.given += 1;
    count_alone(&counters.tx_frames, 1);
    count_alone(&counters.tx_bytes, len as u64);
    chip.stats.add(Stat::TxOk, 1);
    Some(())
}

/// Bytes of the frame of a descriptor that asks for nothing and is the chip's.
#[inline(always)]
fn plain(word: u64) -> Option<usize> {
    let len = word as u32 & tx::LENGTH;
    let asks = word & !EOR != u64::from(desc::OWN | desc::FS | desc::LS | len);
    let len = len as usize;
    (!asks && (MIN_FRAME..=MAX_FRAME).contains(&len)).then_some(len)
}

/// Offers those that begin with `first`: alike as a run, others as a mix.
#[inline(always)]
fn offer(
    (chip, view): (&Chip, &View<'_>),
    (base, row): (u64, &Row<'_>),
    state: &mut TxState,
    (to, (limit, room)): (&dyn Sink, (usize, usize)),
    first: [u64; 2],
) -> Option<Offered> {
    let most = limit.clamp(1, MAX_BATCH);
    let len = plain(first[0])?;
    let from = match view.read_places(first[1], len) {
        None => view
            .read_run(first[1], len as u64)
            .and_then(|_| view.read_places(first[1], len)),
        places => places,
    }?;
    let kept = &mut state.alike;
    kept.make_room();
    let begin = Walk::new(state.next);
    let few = |g: &Gathered| g.count < FEWEST.min(most) && !g.last;
    let mut gathered = kept.alike(row, from, begin, (most, room.div_ceil(len)), first)?;
    if few(&gathered) {
        gathered = kept.mixed(row, from, begin, (most, room))?;
        if few(&gathered) {
            return None;
        }
    }
    let Gathered { walk, count, .. } = gathered;
    let Alike {
        at,
        lens,
        heads,
        words,
    } = kept;
    let (at, lens, heads) = (&at[..count], &lens[..count], &heads[..count]);
    let kept = chip.kept.get();
    if let Some(kept) = kept {
        kept::delivers(kept, (view, base), Sending::of(&walk, count), 0);
    }
    let sent = match (gathered.same, gathered.alike) {
        (Some(_), _) => Run::new(from, at, heads).and_then(|run| to.deliver_run(&run)),
        (None, true) => {
            Run::of_lengths(from, (at, lens), heads).and_then(|run| to.deliver_run(&run))
        }
        (None, false) => Mix::new(from, (at, lens), heads).and_then(|mix| to.deliver_mix(&mix)),
    };
    let sent = sent.unwrap_or(0).min(count);
    if sent == 0 {
        if let Some(kept) = kept {
            kept::refused(kept, (view, base), Sending::of(&walk, count), 0);
        }
        return None;
    }
    let faults = &chip.counters.tx_dma_fault;
    let bytes = match gathered.same {
        Some(_) => sent * len,
        None => lens[..sent].iter().map(|len| usize::from(*len)).sum(),
    };
    match (kept, gathered.same) {
        (None, Some(word)) => walk.store_same(view, base, (sent, word), faults),
        (None, None) => walk.store(view, base, &mut words[..sent], faults),
        (Some(kept), same) => {
            let says = match same {
                Some(word) => Says::Same(sent, word),
                None => Says::Each(&mut words[..sent]),
            };
            kept::sent(kept, (view, base), (walk, count), says, faults);
        }
    }
    let counters = &chip.counters;
    state.next = walk.behind(sent);
    state.given += sent as u32;
    count_alone(&counters.tx_frames, sent as u64);
    count_alone(&counters.tx_bytes, bytes as u64);
    chip.stats.add(Stat::TxOk, sent as u64);
    Some(Offered {
        sent,
        offered: count,
        bytes,
        last: gathered.last,
        // What was not sent has been looked at, too.
        ring: walk.ring(count),
    })
}

impl Alike {
    /// Has room for as many as a run can have.
    #[inline(always)]
    fn make_room(&mut self) {
        if self.words.len() < MAX_BATCH {
            self.at.resize(MAX_BATCH, 0);
            self.lens.resize(MAX_BATCH, 0);
            self.heads.resize(MAX_BATCH, [0; 2]);
            self.words.resize(MAX_BATCH, 0);
        }
    }

    /// Takes packets as long as they are like the first, whose descriptor says `first`.
    #[inline(always)]
    fn alike(
        &mut self,
        row: &Row<'_>,
        from: ReadPlaces<'_>,
        mut walk: Walk,
        (most, by_bytes): (usize, usize),
        first: [u64; 2],
    ) -> Option<Gathered> {
        let most = most.min(by_bytes).max(1);
        let (at, heads) = (&mut self.at[..MAX_BATCH], &mut self.heads[..MAX_BATCH]);
        let head = from.head(from.find(first[1])?)?;
        let want = first[0] & !EOR;
        let mut descs = row.words(walk.begin(), MOST);
        let (mut n, mut goes_on, mut last) = (0, true, false);
        while goes_on && n < most {
            let end = most.min(n + AHEAD);
            let mut found = n;
            while goes_on && found < end {
                goes_on = false;
                let mut ends = false;
                for (place, [word, addr]) in at[found..end].iter_mut().zip(&mut descs) {
                    let differs = word ^ want;
                    if differs != 0 {
                        if differs != EOR || walk.has_ended() {
                            last = word as u32 & desc::OWN == 0;
                            break;
                        }
                        ends = true;
                    }
                    let Some(at) = from.find(addr) else {
                        ends = false;
                        break;
                    };
                    from.prefetch(at);
                    *place = at;
                    found += 1;
                    if ends {
                        break;
                    }
                }
                if ends {
                    walk.ended(found);
                    descs = row.words(0, walk.begin());
                    goes_on = true;
                }
            }
            // Those that were asked for are there.
            goes_on |= found == end;
            let mut alike = n;
            for (place, to) in at[n..found].iter().zip(&mut heads[n..found]) {
                let Some(this) = from.head(*place).filter(|this| same_header(*this, head)) else {
                    break;
                };
                *to = this;
                alike += 1;
            }
            n = alike;
            if n < found {
                last = false;
                break;
            }
        }
        Some(Gathered {
            walk,
            count: n,
            last,
            alike: true,
            same: Some(want & !u64::from(desc::OWN)),
        })
    }

    /// Takes packets whatever their lengths and headers are. Not inlined, so that a single packet is not slowed down by what
    /// it does not need.
    #[inline(never)]
    fn mixed(
        &mut self,
        row: &Row<'_>,
        from: ReadPlaces<'_>,
        mut walk: Walk,
        (most, room): (usize, usize),
    ) -> Option<Gathered> {
        let (mut alike, mut bytes, mut n, mut last) = (true, 0, 0, false);
        let mut head = None;
        let mut descs = row.words(walk.begin(), MOST);
        while n < most && bytes < room {
            let Some([word, addr]) = descs.next() else {
                break;
            };
            let ends = word & EOR != 0;
            let len = plain(word).filter(|_| !ends || !walk.has_ended());
            let found = len.and_then(|len| {
                let place = from.find_of(addr, len)?;
                Some((place, len, from.head_of(place, len)?))
            });
            let Some((place, len, this)) = found else {
                last = word as u32 & desc::OWN == 0;
                break;
            };
            from.prefetch(place);
            alike &= same_header(this, *head.get_or_insert(this));
            (self.at[n], self.lens[n], self.heads[n]) = (place, len as u16, this);
            // EOR comes with the walk.
            self.words[n] = word & !EOR & !u64::from(desc::OWN);
            (n, bytes) = (n + 1, bytes + len);
            if ends {
                walk.ended(n);
                descs = row.words(0, walk.begin());
            }
        }
        (n > 0).then_some(Gathered {
            walk,
            count: n,
            last,
            alike,
            same: None,
        })
    }
}
