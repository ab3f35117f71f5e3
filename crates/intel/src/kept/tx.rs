//! The word of a transmit ring, and what is carried from packet to packet.

use std::marker::PhantomData;

use guest_mem::View;
use model::Kept;

use super::{OPEN, Step, put};
use crate::ring::{DD, Ring};
use crate::saved::frames_taken;
use crate::tx::{Memory, Position, STATUS_AT};

/// In the status of a transmit descriptor: a bit that drivers do not look at, without DD.
pub const TX_MARK: u8 = 8;

/// In the word of what is passed over: what is carried behind it.
const KNOWN: u64 = 1 << 62;
const SKIPPING_AT: u32 = 61;

/// Nothing has been written back.
const DELIVERING: u64 = 1 << 62;
/// There is a descriptor with a mark.
const MARKED: u64 = 1 << 61;
/// Which place is true before, and which behind the batch.
const BEFORE_AT: u32 = 60;
const BEHIND_AT: u32 = 59;

/// What context descriptors have set up, as words.
pub trait Carried: Copy {
    /// How many.
    const WORDS: usize;
    /// Bits beside the status of a descriptor that say something of the packet.
    const KEEPS: u8;
    /// One of them.
    fn word(&self, at: usize) -> u64;
    /// The same from words. `None`: they are none of its.
    fn of(word: impl Fn(usize) -> u64) -> Option<Self>;
}

/// A context that is one word.
pub trait OneWord: Copy {
    /// As [`Carried::KEEPS`].
    const KEEPS: u8;
    /// It.
    fn word(&self) -> u64;
    /// The same from its word. `None`: it is none.
    fn of(word: u64) -> Option<Self>;
}

impl<T: OneWord> Carried for [T; 2] {
    const WORDS: usize = 2;
    const KEEPS: u8 = T::KEEPS;

    fn word(&self, at: usize) -> u64 {
        self[at & 1].word()
    }

    fn of(word: impl Fn(usize) -> u64) -> Option<Self> {
        Some([T::of(word(0))?, T::of(word(1))?])
    }
}

/// Where the words of a ring are.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Its own.
    pub ring: usize,
    /// Up to where nothing is to be sent any more, while a process passes over that.
    pub pass: usize,
    /// A large packet at the head, of which the sink may have taken a part.
    pub large: usize,
    /// Two places for what is carried: [`Carried::WORDS`], and one more.
    pub places: [usize; 2],
}

/// The words of a ring. Whoever stores there has the ring's lock.
#[derive(Debug)]
pub struct TxKept<'a, S> {
    kept: &'a Kept,
    at: At,
    step: PhantomData<S>,
}

impl<S> Clone for TxKept<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for TxKept<'_, S> {}

/// Descriptors that are done without a frame being sent, for it was, perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassOver {
    /// The end of them.
    pub until: u32,
    /// What is carried behind them beside contexts, which they say themselves: frames taken of the packet there, and whether it is
    /// skipped. `None`: a packet begins there.
    rest: Option<(usize, bool)>,
}

impl PassOver {
    fn to(until: u32) -> PassOver {
        PassOver { until, rest: None }
    }

    /// The transmitter has come to their end.
    pub fn ends<C>(&self, position: &mut Position<C>) {
        if let Some((taken, skipping)) = self.rest {
            (position.taken, position.memory.skipping) = (taken, skipping);
        }
    }

    fn word(&self) -> u64 {
        let rest = self.rest.map_or(0, |(taken, skipping)| {
            KNOWN | (taken as u64) << 16 | u64::from(skipping) << SKIPPING_AT
        });
        OPEN | rest | u64::from(self.until as u16)
    }

    /// `None`: it is none of its words.
    fn of(word: u64) -> Option<PassOver> {
        let rest = match word & KNOWN {
            0 => None,
            _ => Some((taken(word >> 16 & 0xffff)?, word >> SKIPPING_AT & 1 != 0)),
        };
        let until = u32::from(word as u16);
        Some(PassOver { until, rest })
    }
}

fn taken(word: u64) -> Option<usize> {
    let taken = u32::try_from(word).ok()?;
    frames_taken("transmitter.taken", taken).ok()
}

/// What was found of a transmitter.
#[derive(Debug)]
pub struct Found<C> {
    /// Where it stands.
    pub head: u32,
    /// What is carried there.
    pub position: Position<C>,
    /// What is to be done without being sent.
    pub pass_over: Option<PassOver>,
    /// Descriptors before the head of which nobody knows whether they were sent.
    pub unsure: u32,
    place: usize,
}

impl<'a, S: Step> TxKept<'a, S> {
    /// Those at a place.
    #[inline]
    pub fn new(kept: &'a Kept, at: At) -> Self {
        TxKept {
            kept,
            at,
            step: PhantomData,
        }
    }

    #[inline]
    fn put(&self, at: usize, value: u64) {
        put::<S>(self.kept, at, value);
    }

    /// The place that is true behind all there is.
    #[inline]
    fn place(&self) -> u64 {
        self.kept.get(self.at.ring) >> BEHIND_AT & 1
    }

    /// Keeps what is carried behind a batch, in the place that is not true, if it is something else. Returns the places before and
    /// behind.
    fn follow<C: Carried>(&self, position: &Position<C>) -> u64 {
        let before = self.place();
        let rest = (position.taken as u64) << 1 | u64::from(position.memory.skipping);
        let contexts = &position.memory.contexts;
        let word = |n: usize| match n == C::WORDS {
            true => rest,
            false => contexts.word(n),
        };
        let at = self.at.places[before as usize];
        if (0..=C::WORDS).all(|n| self.kept.get(at + n) == word(n)) {
            return both(before);
        }
        let behind = 1 - before;
        let at = self.at.places[behind as usize];
        (0..=C::WORDS).for_each(|n| self.put(at + n, word(n)));
        before << BEFORE_AT | behind << BEHIND_AT
    }

    /// A batch is about to be delivered that ends before `next`; of its descriptors `marked` is the first to be reported. Nothing
    /// is carried behind it that was not before, unless it is `parsed`.
    ///
    /// Not inlined: who keeps nothing is not to pay for it in the loops around.
    #[inline(never)]
    pub fn begins<C: Carried>(
        &self,
        view: &View<'_>,
        ring: &Ring,
        (next, marked): (u32, Option<u32>),
        parsed: bool,
    ) {
        if let Some(index) = marked {
            S::step();
            let at = ring.address(index).wrapping_add(STATUS_AT);
            let mut status = [0];
            // What is not taken is parsed again.
            if parsed && C::KEEPS != 0 {
                let _ = view.read(at, &mut status);
            }
            let _ = view.write_release(at, &[status[0] & C::KEEPS | TX_MARK]);
        }
        let delivering = if parsed { DELIVERING } else { 0 };
        let places = both(self.place());
        self.put(
            self.at.ring,
            OPEN | delivering | places | batch(ring.head, next, marked),
        );
        // It is the first of these.
        self.forget_large();
    }

    /// The packet between these is the next, and the sink may have taken some of its segments: should the process die, it is not
    /// sent again. To be said before the batch in front of it is [reported](Self::reports).
    #[cold]
    pub fn may_have_begun(&self, (head, until): (u32, u32)) {
        self.put(
            self.at.large,
            OPEN | u64::from(until as u16) << 16 | u64::from(head as u16),
        );
    }

    /// No large packet waits at the head: it is in the batch under way, or the ring was reset, or its head was set.
    #[inline]
    pub fn forget_large(&self) {
        if self.kept.get(self.at.large) != 0 {
            self.put(self.at.large, 0);
        }
    }

    /// It was delivered, and is done up to `next`: write-back begins.
    pub fn reports<C: Carried>(
        &self,
        position: &Position<C>,
        (head, next): (u32, u32),
        marked: Option<u32>,
    ) {
        let places = self.follow(position);
        self.put(self.at.ring, OPEN | places | batch(head, next, marked));
    }

    /// Of what was offered so much was taken, and nothing is carried that was not before.
    pub fn takes(&self, (head, next): (u32, u32), marked: Option<u32>) {
        let places = both(self.place());
        self.put(self.at.ring, OPEN | places | batch(head, next, marked));
    }

    /// The transmitter stands there, and nothing is under way.
    #[inline(never)]
    pub fn stands(&self, head: u32) {
        self.stands_with(self.place(), head);
    }

    #[inline]
    fn stands_with(&self, place: u64, head: u32) {
        self.put(self.at.ring, both(place) | u64::from(head as u16));
    }

    /// The same, and something else is carried, perhaps.
    pub fn moves<C: Carried>(&self, position: &Position<C>, head: u32) {
        let behind = self.follow(position) >> BEHIND_AT & 1;
        self.stands_with(behind, head);
    }

    /// Nothing that was found is under way any more; what was, perhaps, is not sent again, however often the process dies.
    pub fn settle<C>(&self, found: &Found<C>) {
        let word = found.pass_over.map_or(0, |pass| pass.word());
        self.put(self.at.pass, word);
        self.forget_large();
        self.stands_with(found.place as u64, found.head);
    }

    /// All of it was passed over.
    pub fn passed<C: Carried>(&self, position: &Position<C>, head: u32) {
        self.moves(position, head);
        self.put(self.at.pass, 0);
    }

    /// Finds out where the transmitter stands, whose ring is this. `None`: the words are none that it can have left.
    pub fn found<C: Carried>(&self, view: &View<'_>, ring: &Ring) -> Option<Found<C>> {
        let word = self.kept.get(self.at.ring);
        let index = |at: u32| u32::from((word >> at) as u16);
        let place = |at: u32| (word >> at & 1) as usize;
        let (head, next, marked) = (index(0), index(16), index(32));
        let open = word & OPEN != 0;
        let is_marked = word & MARKED != 0 && {
            let mut status = [0];
            let at = ring.address(marked).wrapping_add(STATUS_AT);
            view.read(at, &mut status).is_ok() && status[0] & (TX_MARK | DD) == TX_MARK
        };
        let delivering = word & DELIVERING != 0;
        // Nothing is written back of it that would tell.
        let unsure = match open && !delivering && word & MARKED == 0 {
            true => ring.distance(head, next),
            false => 0,
        };
        let (head, place, mut pass_over) = match open {
            false => (head, place(BEFORE_AT), None),
            true if delivering => (head, place(BEFORE_AT), Some(PassOver::to(next))),
            true if is_marked => {
                let behind: Position<C> = self.carried(place(BEHIND_AT))?;
                let rest = Some((behind.taken, behind.memory.skipping));
                let pass = PassOver { until: next, rest };
                (head, place(BEFORE_AT), Some(pass))
            }
            true => (next, place(BEHIND_AT), None),
        };
        let end = pass_over.map_or(head, |pass| pass.until);
        if let Some(until) = self.begun(end) {
            pass_over = Some(PassOver::to(until));
        }
        let pass = self.kept.get(self.at.pass);
        if pass & OPEN != 0 {
            let pass = PassOver::of(pass)?;
            // Also at its end: what is carried there may not have been said yet.
            pass_over = (pass.until != head || pass.rest.is_some()).then_some(pass);
        }
        let inside = |index: u32| ring.len == 0 || index < ring.len;
        let end = pass_over.map_or(head, |pass| pass.until);
        if !inside(head) || !inside(end) {
            return None;
        }
        Some(Found {
            head,
            position: self.carried(place)?,
            pass_over,
            unsure,
            place,
        })
    }

    /// The end of the large packet that begins here, if it may have begun.
    fn begun(&self, head: u32) -> Option<u32> {
        let word = self.kept.get(self.at.large);
        let begins = word & OPEN != 0 && u32::from(word as u16) == head;
        begins.then_some(u32::from((word >> 16) as u16))
    }

    /// What is carried, as a place has it.
    fn carried<C: Carried>(&self, place: usize) -> Option<Position<C>> {
        let at = self.at.places[place];
        let rest = self.kept.get(at + C::WORDS);
        Some(Position {
            memory: Memory {
                contexts: C::of(|n| self.kept.get(at + n))?,
                skipping: rest & 1 != 0,
            },
            taken: taken(rest >> 1)?,
        })
    }
}

/// One place is true before and behind.
#[inline]
fn both(place: u64) -> u64 {
    place << BEFORE_AT | place << BEHIND_AT
}

#[inline]
fn batch(head: u32, next: u32, marked: Option<u32>) -> u64 {
    let mark = marked.map_or(0, |index| MARKED | u64::from(index as u16) << 32);
    mark | u64::from(next as u16) << 16 | u64::from(head as u16)
}
