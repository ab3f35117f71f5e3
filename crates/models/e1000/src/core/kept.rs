//! What of the NIC is in memory that outlives its process ([`model::Kept`]): heads, tails, masks, and what is under way in the
//! rings. `docs/design/survival.md` says why it is enough.
//!
//! A batch is under way from one store of its ring's word to the next. Before the first, a *mark* is put where the batch will be
//! published: into the first of its descriptors, which the guest does not look at until then. Publishing overwrites the mark, and
//! is done with that descriptor last. So who finds a batch under way knows by the mark whether the guest has been given it.

use guest_mem::View;
use intel::rx::Publish;
use intel::saved::frames_taken;
use intel::tx::{Memory, Position, STATUS_AT};
use intel::{DD, Ring};
use model::Kept;

use crate::core::context::{Context, Contexts, PAYLEN};

/// The words.
const RX: usize = 0;
const TX: usize = 1;
pub(crate) const RDT: usize = 2;
pub(crate) const TDT: usize = 3;
pub(crate) const IMS: usize = 4;
pub(crate) const ITR: usize = 5;
/// Two places for what the transmitter carries from descriptor to descriptor.
const PLACES: [usize; 2] = [8, 16];

/// The second word of a receive descriptor that is the device's: no length, no status, and something else that no driver and no
/// frame leaves there.
pub(crate) const RX_MARK: u64 = 0xa5c3_0000_0000_0000;
/// In the status of a transmit descriptor: a bit that drivers do not look at, without DD.
pub(crate) const TX_MARK: u8 = 8;

const OPEN: u64 = 1 << 63;
/// Of the transmitter: nothing has been written back.
const DELIVERING: u64 = 1 << 62;
/// There is a descriptor with a mark.
const MARKED: u64 = 1 << 61;
/// Which place is true before, and which behind the batch.
const BEFORE_AT: u32 = 60;
const BEHIND_AT: u32 = 59;

/// Where a test lets the process die.
#[cfg(not(test))]
#[inline(always)]
fn step() {}
#[cfg(test)]
pub(crate) use crate::kept_tests::step;

/// Stores a word.
#[inline]
pub(crate) fn put(kept: &Kept, at: usize, value: u64) {
    step();
    kept.put(at, value);
    step();
}

/// How descriptors are written back while somebody keeps the words.
#[derive(Clone, Copy)]
pub(crate) struct Publisher<'a>(pub Option<&'a Kept>);

impl Publish for Publisher<'_> {
    #[inline]
    fn begins(&self, view: &View<'_>, (index, at): (u32, u64), n: usize) -> bool {
        let Some(kept) = self.0.filter(|_| n > 0) else {
            return false;
        };
        step();
        // If it is out of reach, so is what is published there.
        let _ = view.write_release(at.wrapping_add(8), &RX_MARK.to_le_bytes());
        put(kept, RX, OPEN | (n as u64) << 16 | u64::from(index));
        true
    }

    #[inline]
    fn ended(&self, next: u32) {
        if let Some(kept) = self.0 {
            put(kept, RX, next.into());
        }
    }
}

/// Receive descriptors: what was under way, if something was, or the head.
pub(crate) fn rx_found(kept: &Kept) -> Result<u32, (u32, u32)> {
    let word = kept.get(RX);
    let (first, n) = (word as u16, (word >> 16) as u16);
    match word & OPEN {
        0 => Ok(first.into()),
        _ => Err((first.into(), n.into())),
    }
}

/// The receiver stands there, and nothing is under way.
pub(crate) fn rx_stands(kept: &Kept, head: u32) {
    put(kept, RX, u64::from(head as u16));
}

/// Takes back what was written back of `n` descriptors from the head of `ring` on, if the guest has not been given them. Returns
/// where the receiver stands.
pub(crate) fn rx_settle(view: &View<'_>, ring: &Ring, n: u32) -> (u32, bool) {
    let second = |index: u32| ring.address(index).wrapping_add(8);
    let mut word = [0; 8];
    let read = view.read(second(ring.head), &mut word);
    let published = read.is_ok() && u64::from_le_bytes(word) != RX_MARK;
    if published {
        return (ring.behind(n), true);
    }
    for i in 1..n {
        let at = second(ring.behind(i));
        step();
        // One that is out of reach was out of reach.
        let _ = view.write_release(at, &[0; 8]);
    }
    (ring.head, false)
}

/// What the transmitter remembers of what it has kept.
#[derive(Debug, Default)]
pub(crate) struct TxKept {
    /// Which place is true, and what is there.
    place: usize,
    memory: Memory<Contexts>,
    taken: usize,
}

impl TxKept {
    /// Keeps what is carried behind a batch, in the place that is not true, if it is something else. Returns the places before and
    /// behind.
    fn follow(&mut self, kept: &Kept, position: &Position<Contexts>) -> u64 {
        let before = self.place as u64;
        if position.memory != self.memory || position.taken != self.taken {
            (self.memory, self.taken) = (position.memory, position.taken);
            self.place = 1 - self.place;
            let at = PLACES[self.place];
            let Contexts { segmenting, plain } = self.memory.contexts;
            let words = [words_of(&segmenting), words_of(&plain)];
            for (n, word) in words.iter().flatten().enumerate() {
                put(kept, at + n, *word);
            }
            let rest = (self.taken as u64) << 1 | u64::from(self.memory.skipping);
            put(kept, at + 4, rest);
        }
        before << BEFORE_AT | (self.place as u64) << BEHIND_AT
    }

    /// What is said of the place while it stays the same.
    fn stays(&self) -> u64 {
        (self.place as u64) << BEFORE_AT | (self.place as u64) << BEHIND_AT
    }

    /// A batch is about to be delivered that ends before `next`; of its descriptors `marked` is the first to be reported. Nothing
    /// is carried behind it that was not before, unless it is `parsed`.
    #[inline]
    pub(crate) fn begins(
        &self,
        (kept, view): (&Kept, &View<'_>),
        ring: &Ring,
        next: u32,
        marked: Option<u32>,
        parsed: bool,
    ) {
        if let Some(index) = marked {
            step();
            let at = ring.address(index).wrapping_add(STATUS_AT);
            let _ = view.write_release(at, &[TX_MARK]);
        }
        let delivering = if parsed { DELIVERING } else { 0 };
        put(
            kept,
            TX,
            OPEN | delivering | self.stays() | batch(ring.head, next, marked),
        );
    }

    /// It was delivered, and is done up to `next`: write-back begins.
    pub(crate) fn reports(
        &mut self,
        kept: &Kept,
        position: &Position<Contexts>,
        (head, next): (u32, u32),
        marked: Option<u32>,
    ) {
        let places = self.follow(kept, position);
        put(kept, TX, OPEN | places | batch(head, next, marked));
    }

    /// Of what was offered so much was taken, and nothing is carried that was not before.
    pub(crate) fn takes(&self, kept: &Kept, (head, next): (u32, u32), marked: Option<u32>) {
        put(kept, TX, OPEN | self.stays() | batch(head, next, marked));
    }

    /// The transmitter stands there, and nothing is under way.
    #[inline]
    pub(crate) fn stands(&self, kept: &Kept, head: u32) {
        put(kept, TX, self.stays() | u64::from(head as u16));
    }

    /// The same, and something else is carried, perhaps.
    pub(crate) fn moves(&mut self, kept: &Kept, position: &Position<Contexts>, head: u32) {
        self.follow(kept, position);
        self.stands(kept, head);
    }
}

fn batch(head: u32, next: u32, marked: Option<u32>) -> u64 {
    let mark = marked.map_or(0, |index| MARKED | u64::from(index as u16) << 32);
    mark | u64::from(next as u16) << 16 | u64::from(head as u16)
}

/// Descriptors up to where are passed over, and what is carried behind them, if that is known.
pub(crate) type PassOver = (u32, Option<Position<Contexts>>);

/// What was found of the transmitter.
#[derive(Debug)]
pub(crate) struct TxFound {
    pub head: u32,
    /// What is carried there.
    pub position: Position<Contexts>,
    /// Up to where descriptors are to be done without a frame being sent, for it was, perhaps; and what is carried behind them, if
    /// that is known.
    pub pass_over: Option<PassOver>,
    kept: TxKept,
}

impl TxFound {
    /// For the transmitter that goes on.
    pub(crate) fn into_parts(self) -> (u32, Position<Contexts>, TxKept, Option<PassOver>) {
        (self.head, self.position, self.kept, self.pass_over)
    }
}

/// Finds out where the transmitter stands, whose ring is this. `None`: the words are none that it can have left.
pub(crate) fn tx_found(kept: &Kept, view: &View<'_>, ring: &Ring) -> Option<TxFound> {
    let word = kept.get(TX);
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
    let (at, pass_over) = match open {
        false => (place(BEFORE_AT), None),
        true if delivering => (place(BEFORE_AT), Some((next, None))),
        true if is_marked => {
            let behind = carried(kept, place(BEHIND_AT))?;
            (place(BEFORE_AT), Some((next, Some(behind))))
        }
        true => (place(BEHIND_AT), None),
    };
    let position = carried(kept, at)?;
    let head = if open && pass_over.is_none() {
        next
    } else {
        head
    };
    let inside = |index: u32| ring.len == 0 || index < ring.len;
    if !inside(head) || !inside(next) {
        return None;
    }
    let kept = TxKept {
        place: at,
        memory: position.memory,
        taken: position.taken,
    };
    Some(TxFound {
        head,
        position,
        pass_over,
        kept,
    })
}

/// What is carried, as a place has it.
fn carried(kept: &Kept, place: usize) -> Option<Position<Contexts>> {
    let at = PLACES[place];
    let context = |n: usize| context_of([kept.get(at + n), kept.get(at + n + 1)]);
    let rest = kept.get(at + 4);
    let taken = u32::try_from(rest >> 1).ok();
    let taken = taken.and_then(|taken| frames_taken("transmitter.taken", taken).ok());
    Some(Position {
        memory: Memory {
            contexts: Contexts {
                segmenting: context(0)?,
                plain: context(2)?,
            },
            skipping: rest & 1 != 0,
        },
        taken: taken?,
    })
}

fn words_of(context: &Context) -> [u64; 2] {
    let Context {
        ipcss,
        ipcso,
        ipcse,
        tucss,
        tucso,
        tucse,
        hdrlen,
        mss,
        paylen,
        tcp,
        ipv4,
    } = *context;
    let [a, b] = ipcse.to_le_bytes();
    let [c, d] = tucse.to_le_bytes();
    let flags = u64::from(tcp) << 44 | u64::from(ipv4) << 45;
    [
        u64::from_le_bytes([ipcss, ipcso, a, b, tucss, tucso, c, d]),
        u64::from(paylen) | u64::from(mss) << 20 | u64::from(hdrlen) << 36 | flags,
    ]
}

fn context_of([places, sizes]: [u64; 2]) -> Option<Context> {
    let [ipcss, ipcso, a, b, tucss, tucso, c, d] = places.to_le_bytes();
    (sizes >> 46 == 0).then_some(Context {
        ipcss,
        ipcso,
        ipcse: u16::from_le_bytes([a, b]),
        tucss,
        tucso,
        tucse: u16::from_le_bytes([c, d]),
        hdrlen: (sizes >> 36) as u8,
        mss: (sizes >> 20) as u16,
        paylen: sizes as u32 & PAYLEN,
        tcp: sizes >> 44 & 1 != 0,
        ipv4: sizes >> 45 & 1 != 0,
    })
}
