//! A thread's word in the page that keeper and worker share: whose turn it is, to whom that gives frames, and how many turns
//! there were.

/// A NIC as the page knows it.
#[derive(Clone, Copy, Debug)]
pub struct NicId(pub(crate) u16);

/// Bits that say whose turn it is; 0 for nobody's.
const WHO: u64 = 0xffff;
/// Those that say which NIC gets frames just now, in that turn or in nobody's; 0 for none.
const TO: u64 = WHO << 16;
/// One turn more.
const TURN: u64 = 1 << 32;

/// The next turn begins, of this NIC or of one that the page does not know.
#[inline]
pub(crate) fn begun(word: u64, nic: Option<NicId>) -> u64 {
    let who = nic.map_or(WHO, |nic| u64::from(nic.0) + 1);
    ended(word).wrapping_add(TURN) | who
}

/// It is over.
#[inline]
pub(crate) fn ended(word: u64) -> u64 {
    word & !(WHO | TO)
}

/// This NIC gets frames.
#[inline]
pub(crate) fn giving(word: u64, nic: NicId) -> u64 {
    turn(word) | (u64::from(nic.0) + 1) << 16
}

/// Whose turn it is.
pub(crate) fn in_turn(word: u64) -> Option<usize> {
    ((word & WHO) as usize).checked_sub(1)
}

/// Who gets frames.
pub(crate) fn served(word: u64) -> Option<usize> {
    ((word & TO) as usize >> 16).checked_sub(1)
}

/// A word without what changes within a turn.
pub(crate) fn turn(word: u64) -> u64 {
    word & !TO
}
