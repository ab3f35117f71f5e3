//! The short way of the transmit side: runs of packets that are alike, and mixes of others.
//!
//! Descriptors that are the same but for the address of their buffer, whose frames begin with the same Ethernet header,
//! become a [`Run`]: it is the ring itself, read once, with a place and 16 bytes for each frame. Where lengths or headers
//! differ they become a [`Mix`], which has a length for each frame too. A descriptor that asks for anything else ends both,
//! and so does one in another region. What is neither, and what a sink does not take so, goes through the descriptor parser
//! ([`crate::tx::parser`]); both models' tests send random rings both ways.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use datapath::FCS;
use datapath::counters::count;
use frame::{MAX_BATCH, Mix, Run, Sink, header_of, same_header};
use guest_mem::{Head, ReadPlaces, ReadSlice, View};

use crate::ring::{DD, Ring, SIZE};
use crate::stats::{Group, Many};
use crate::tx::complete::STATUS_AT;
use crate::tx::desc::Format;
use crate::tx::fast_path::simple;
use crate::tx::parser::MOST_BYTES;

/// Packets whose memory is asked for before the first of them is looked at: about as many cache misses as a processor
/// keeps under way.
const AHEAD: usize = 32;
/// Packets of a run for which it is remembered whether they are to be reported, in words.
const WORDS: usize = MAX_BATCH / 64;
/// Fewest packets of a run, or of a mix, that does not end at the tail. Fewer cost less in a batch.
const FEWEST: usize = 8;
/// Bits of the second word of a descriptor that may differ within a run: the status, which the guest may have left
/// there, and (apart) the bits that ask for a report.
const STATUS: u64 = 0xf << 32;
/// Where command bits are in the second word.
const CMD_AT: u32 = 24;

/// Which packets of a run are to be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Whether the first is.
    first: bool,
    /// Those of which that is not true which is true of the first.
    others: [u64; WORDS],
    /// There are some.
    mixed: bool,
}

impl Reported {
    /// Nothing is known but whether the first is to be reported.
    #[inline]
    fn begin(&mut self, first: bool) {
        self.first = first;
        if self.mixed {
            *self = Reported {
                first,
                ..Reported::default()
            };
        }
    }

    #[inline]
    fn note_other(&mut self, at: usize) {
        self.others[at / 64] |= 1 << (at % 64);
        self.mixed = true;
    }

    /// The first `n` packets, bit by bit.
    fn bits(&self, n: usize) -> [u64; WORDS] {
        let mut bits = self.others;
        for (i, word) in bits.iter_mut().enumerate() {
            let of = match n.saturating_sub(64 * i) {
                64.. => u64::MAX,
                left => (1 << left) - 1,
            };
            *word = (*word ^ if self.first { u64::MAX } else { 0 }) & of;
        }
        bits
    }

    /// Whether one of the first `n` packets is to be reported.
    #[inline]
    pub fn asks(&self, n: usize) -> bool {
        match self.mixed {
            true => self.bits(n).iter().any(|word| *word != 0),
            false => self.first && n > 0,
        }
    }

    /// Sets "done" in the descriptors of the first `n` packets of a run that began at the head of `ring`, where that was
    /// asked for. Those out of reach are counted in `faults`. Returns whether it was asked for at all.
    #[inline]
    pub fn write_back(&self, view: &View<'_>, ring: &Ring, n: usize, faults: &AtomicU64) -> bool {
        if self.mixed {
            return self.write_back_some(view, ring, n, faults);
        }
        if self.first {
            report(view, ring, 0, n, faults);
        }
        self.first && n > 0
    }

    /// The first of the first `n` packets that is to be reported, by its number.
    #[inline]
    pub fn first(&self, n: usize) -> Option<u32> {
        if !self.mixed {
            return (self.first && n > 0).then_some(0);
        }
        let bits = self.bits(n);
        let at = bits.iter().position(|word| *word != 0)?;
        Some(64 * at as u32 + bits[at].trailing_zeros())
    }

    /// As [`Self::write_back`], the first of them last: a driver that goes through its ring in order sees all or nothing.
    pub fn write_back_first_last(
        &self,
        view: &View<'_>,
        ring: &Ring,
        n: usize,
        faults: &AtomicU64,
    ) -> bool {
        let Some(first) = self.first(n) else {
            return false;
        };
        if self.mixed {
            for (i, word) in self.bits(n).into_iter().enumerate() {
                self.write_back_row(view, ring, (i, word), first, faults);
            }
        } else {
            report(view, ring, 1, n - 1, faults);
        }
        report(view, ring, first, 1, faults);
        true
    }

    /// The packets of one word, but for the first.
    fn write_back_row(
        &self,
        view: &View<'_>,
        ring: &Ring,
        (i, mut word): (usize, u64),
        first: u32,
        faults: &AtomicU64,
    ) {
        if i as u32 == first / 64 {
            word &= !(1 << (first % 64));
        }
        while word != 0 {
            let at = word.trailing_zeros();
            report(view, ring, 64 * i as u32 + at, 1, faults);
            word &= word - 1;
        }
    }

    fn write_back_some(&self, view: &View<'_>, ring: &Ring, n: usize, faults: &AtomicU64) -> bool {
        let mut any = false;
        for (i, mut word) in self.bits(n).into_iter().enumerate() {
            any |= word != 0;
            while word != 0 {
                // Those that stand in a row are written at once.
                let at = word.trailing_zeros();
                let row = (word >> at).trailing_ones();
                report(view, ring, 64 * i as u32 + at, row as usize, faults);
                word &= u64::MAX.checked_shl(at + row).unwrap_or(0);
            }
        }
        any
    }
}

/// Sets "done" in `n` descriptors, the first `from` behind the head; none is around the ring's end.
#[inline]
fn report(view: &View<'_>, ring: &Ring, from: u32, n: usize, faults: &AtomicU64) {
    let first = ring.address(ring.head + from).wrapping_add(STATUS_AT);
    let window = view.write_window(first);
    if window.is_some_and(|w| w.store_bytes(first, SIZE as usize, n, DD)) {
        return;
    }
    for i in 0..n as u64 {
        let at = first.wrapping_add(i * SIZE);
        if view.write_release(at, &[DD]).is_err() {
            count(faults, 1);
        }
    }
}

/// One packet, which is what interactive traffic sends.
#[derive(Clone, Copy, Debug)]
pub struct Single<'v> {
    from: ReadPlaces<'v>,
    at: [u64; 1],
    heads: [Head; 1],
    reported: bool,
}

impl<'v> Single<'v> {
    /// The packet at the head of `ring`, if it can go the short way.
    #[inline(always)]
    pub fn of<F: Format>(view: &'v View<'_>, ring: &Ring) -> Option<Single<'v>> {
        let desc = view.read_run(ring.address(ring.head), SIZE)?;
        let [addr, second] = desc.pairs().next()?;
        let (len, reported) = simple::<F>(addr, second)?;
        let from = view.read_places(addr, len as usize)?;
        let at = from.find(addr)?;
        Some(Single {
            from,
            at: [at],
            heads: [from.head(at)?],
            reported,
        })
    }

    /// As a run.
    #[inline(always)]
    pub fn run(&self) -> Option<Run<'_>> {
        Run::new(self.from, &self.at, &self.heads)
    }

    /// Whether it is to be reported.
    #[inline]
    pub fn is_reported(&self) -> bool {
        self.reported
    }

    /// Bytes, without FCS.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.from.bytes()
    }

    /// Whom it is for.
    #[inline]
    pub fn group(&self) -> Group {
        group_of(self.heads[0])
    }

    /// As [`Reported::write_back`].
    #[inline]
    pub fn write_back(&self, view: &View<'_>, ring: &Ring, faults: &AtomicU64) {
        let at = ring.address(ring.head).wrapping_add(STATUS_AT);
        if self.reported && view.write_release(at, &[DD]).is_err() {
            count(faults, 1);
        }
    }
}

/// What is kept of the packets of a run.
struct Kept {
    at: [u64; MAX_BATCH],
    lens: [u16; MAX_BATCH],
    heads: [Head; MAX_BATCH],
    reported: Reported,
    /// The last packets were mixed, so the next are taken for it too.
    mixed: bool,
}

thread_local! {
    static KEPT: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
}

/// Room for a run, kept by the thread from call to call.
pub struct Gathering(Box<Kept>);

/// Packets that go the short way.
#[derive(Clone, Copy, Debug)]
pub enum Gathered<'r> {
    /// All are alike.
    Run(Run<'r>),
    /// Their lengths or headers differ. If only headers do, and each is for a station, their length.
    Mix(Mix<'r>, Option<usize>),
}

impl Gathered<'_> {
    /// Offers them to a sink. Returns how many were taken.
    #[inline]
    pub fn offer(&self, to: &dyn Sink) -> Option<usize> {
        let taken = match self {
            Gathered::Run(run) => to.deliver_run(run),
            Gathered::Mix(mix, _) => to.deliver_mix(mix),
        };
        Some(taken?.min(self.count())).filter(|taken| *taken > 0)
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        match self {
            Gathered::Run(run) => run.count(),
            Gathered::Mix(mix, _) => mix.count(),
        }
    }

    /// Bytes of the first `n` together, without FCS.
    #[inline]
    pub fn bytes(&self, n: usize) -> usize {
        match self {
            Gathered::Run(run) => run.bytes(n),
            Gathered::Mix(mix, _) => mix.bytes(n),
        }
    }

    /// Length and destination, if these are the same for all.
    #[inline]
    pub fn kind(&self) -> Option<(usize, Group)> {
        match self {
            Gathered::Run(run) if run.lens().is_none() => {
                Some((run.frame_len(), group_of(run.head())))
            }
            Gathered::Mix(_, Some(len)) => Some((*len, Group::Station)),
            _ => None,
        }
    }

    /// The first `n` packets by their lengths and destinations.
    #[inline(never)]
    pub fn kinds(&self, n: usize) -> Many {
        let mut many = Many::default();
        match self {
            Gathered::Run(run) => {
                let group = group_of(run.head());
                match run.lens() {
                    Some(lens) => return Many::of(&lens[..n], group),
                    None => many.add_alike(run.frame_len() + FCS, group, n as u64),
                }
            }
            Gathered::Mix(mix, _) => {
                let (_, lens, heads) = mix.frames();
                for (len, head) in lens.iter().zip(heads).take(n) {
                    many.add(usize::from(*len) + FCS, group_of(*head));
                }
            }
        }
        many
    }
}

/// Whom a frame is for that begins so.
#[inline]
fn group_of(head: Head) -> Group {
    // The bit that says so is the first on the wire.
    if head[0] & 1 == 0 {
        return Group::Station;
    }
    let [dst @ .., _, _, _, _, _, _, _, _] = header_of(head);
    Group::of(dst)
}

/// What packets have in common.
#[derive(Clone, Copy)]
enum Kin {
    Header,
    /// Their length, and each is for a station.
    Length(usize),
    None,
}

/// The packets to look at.
struct Limits {
    most: usize,
    bytes: usize,
    /// The tail is behind the last of them.
    ends: bool,
}

impl Gathering {
    /// With the storage of the last that ended in this thread.
    #[inline]
    pub fn take() -> Gathering {
        let new = || {
            Box::new(Kept {
                at: [0; MAX_BATCH],
                lens: [0; MAX_BATCH],
                heads: [[0; 2]; MAX_BATCH],
                reported: Reported::default(),
                mixed: false,
            })
        };
        Gathering(KEPT.take().unwrap_or_else(new))
    }

    /// Gives the storage back.
    #[inline]
    pub fn end(self) {
        KEPT.set(Some(self.0));
    }

    /// The packets from the head of `ring` on that can go the short way, at most `limit` and about `room` bytes; `left`
    /// descriptors are ours. `None` when the first packet cannot, or few can. Between packets only.
    #[inline]
    pub fn gather<'r, F: Format>(
        &'r mut self,
        view: &'r View<'_>,
        ring: &Ring,
        left: u32,
        (limit, room): (usize, usize),
    ) -> Option<(Gathered<'r>, &'r Reported)> {
        let straight = left.min(ring.len - ring.head);
        let most = limit.min(straight as usize).min(MAX_BATCH);
        let descs = view.read_run(ring.address(ring.head), most as u64 * SIZE)?;
        let limits = Limits {
            most,
            bytes: room.min(MOST_BYTES),
            ends: most == left as usize,
        };
        let kept = &mut *self.0;
        if most == 1 && limits.ends {
            let single = Single::of::<F>(view, ring)?;
            kept.reported.begin(single.reported);
            (kept.at[0], kept.heads[0]) = (single.at[0], single.heads[0]);
            let run = Run::new(single.from, &kept.at[..1], &kept.heads[..1])?;
            return Some((Gathered::Run(run), &kept.reported));
        }
        if !kept.mixed {
            match kept.alike::<F>(view, &descs, &limits)? {
                (n, from) if n >= FEWEST || n == most && limits.ends => {
                    let run = Run::new(from, &kept.at[..n], &kept.heads[..n])?;
                    return Some((Gathered::Run(run), &kept.reported));
                }
                _ if most < FEWEST => return None,
                _ => {}
            }
        }
        let (n, from, kin) = kept.mixed::<F>(view, &descs, &limits)?;
        if n < FEWEST && !(n == most && limits.ends) {
            kept.mixed = false;
            return None;
        }
        let (at, lens, heads) = (&kept.at[..n], &kept.lens[..n], &kept.heads[..n]);
        let gathered = match kin {
            Kin::Header => Gathered::Run(Run::of_lengths(from, (at, lens), heads)?),
            Kin::Length(len) => Gathered::Mix(Mix::new(from, (at, lens), heads)?, Some(len)),
            Kin::None => Gathered::Mix(Mix::new(from, (at, lens), heads)?, None),
        };
        Some((gathered, &kept.reported))
    }
}

impl Kept {
    /// Takes packets as long as they are like the first. Not inlined: its loop needs all registers.
    #[inline(never)]
    fn alike<'v, F: Format>(
        &mut self,
        view: &'v View<'_>,
        descs: &ReadSlice<'v>,
        limits: &Limits,
    ) -> Option<(usize, ReadPlaces<'v>)> {
        let Kept {
            at,
            heads,
            reported,
            ..
        } = self;
        let mut pairs = descs.pairs();
        let [addr, second] = pairs.next()?;
        let (len, _) = simple::<F>(addr, second)?;
        let from = view.read_places(addr, len as usize)?;
        let most = limits.bytes.div_ceil(len as usize).min(limits.most).max(1);
        let begun = from.find(addr)?;
        let first = from.head(begun)?;
        let report = u64::from(F::REPORT) << CMD_AT;
        let asks = second & report != 0;
        reported.begin(asks);
        (at[0], heads[0]) = (begun, first);
        let mut n = 1;
        while n < most {
            let end = most.min(n + AHEAD);
            let mut found = n;
            for (place, [addr, word]) in at[n..end].iter_mut().zip(&mut pairs) {
                let Some(at) = from.find(addr).filter(|_| addr != 0) else {
                    break;
                };
                let differs = (word ^ second) & !STATUS;
                if differs != 0 {
                    if differs & !report != 0 {
                        break;
                    }
                    if (word & report != 0) != asks {
                        reported.note_other(found);
                    }
                }
                from.prefetch(at);
                *place = at;
                found += 1;
            }
            let mut alike = n;
            for (place, head) in at[n..found].iter().zip(&mut heads[n..found]) {
                let Some(this) = from.head(*place).filter(|this| same_header(*this, first)) else {
                    break;
                };
                *head = this;
                alike += 1;
            }
            n = alike;
            if n < end {
                break;
            }
        }
        Some((n, from))
    }

    /// Takes packets whatever their lengths and headers are, as long as they lie in one region. Returns how many, where, and
    /// what they have in common. Not inlined, so that a single packet is not slowed down by what it does not need.
    #[inline(never)]
    fn mixed<'v, F: Format>(
        &mut self,
        view: &'v View<'_>,
        descs: &ReadSlice<'v>,
        limits: &Limits,
    ) -> Option<(usize, ReadPlaces<'v>, Kin)> {
        let Kept {
            at,
            lens,
            heads,
            reported,
            mixed,
        } = self;
        let mut pairs = descs.pairs().peekable();
        let [addr, second] = *pairs.peek()?;
        let (len, asks) = simple::<F>(addr, second)?;
        let from = view.read_places(addr, len as usize)?;
        reported.begin(asks);
        let (mut n, mut bytes) = (0, 0);
        let (mut len_differs, mut header_differs, mut groups) = (0, false, 0);
        while n < limits.most && bytes < limits.bytes {
            let end = limits.most.min(n + AHEAD);
            let mut found = n;
            let places = at[n..end].iter_mut().zip(&mut lens[n..end]);
            for ((place, to), [addr, word]) in places.zip(&mut pairs) {
                let Some((this, reports)) = simple::<F>(addr, word) else {
                    break;
                };
                let size = this as usize;
                let found_at = from.find_of(addr, size).filter(|_| addr != 0);
                let (Some(at), Run::SHORTEST.., Ok(short)) = (found_at, size, u16::try_from(this))
                else {
                    break;
                };
                if bytes >= limits.bytes {
                    break;
                }
                if reports != asks {
                    reported.note_other(found);
                }
                from.prefetch(at);
                len_differs |= this ^ len;
                bytes += size;
                (*place, *to) = (at, short);
                found += 1;
            }
            for i in n..found {
                heads[i] = from.head_of(at[i], lens[i].into())?;
                header_differs |= !same_header(heads[i], heads[0]);
                groups |= heads[i][0] & 1;
            }
            n = found;
            if n < end {
                break;
            }
        }
        *mixed = len_differs != 0 || header_differs;
        let kin = match (header_differs, len_differs | groups as u32) {
            (false, _) => Kin::Header,
            (true, 0) => Kin::Length(len as usize),
            (true, _) => Kin::None,
        };
        (n > 0).then_some((n, from, kin))
    }
}
