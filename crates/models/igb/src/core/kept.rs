//! What of a function is in memory that outlives its process ([`model::Kept`]): heads, tails, masks, gaps between interrupts, and
//! what is under way in the rings.

use datapath::offload::L4;
use intel::kept::{rx, tx};
use model::{KEPT, Kept};

use crate::core::context::Context;
use crate::regs::VECTORS;

/// The words of each queue: of its rings, and its tails. Those that different threads store are in lines of their own.
const RX: usize = 0;
const TX: usize = 16;
const RDT: usize = 32;
const TDT: usize = 48;
/// Of the transmitter: two places for its two contexts, and one word more.
const PLACES: usize = 64;
const PLACE: usize = 3;
/// What the mark in a receive descriptor has overwritten.
const MARKED: usize = 160;
/// Up to where a process passes over a transmit ring.
const PASS: usize = 176;
/// A large packet at the head of a transmit ring, of which the sink may have taken a part.
const LARGE: usize = 240;
/// Masks as the guest wrote them: what masks itself is taken as unmasked.
pub(crate) const IMS: usize = 192;
pub(crate) const EIMS: usize = 193;
/// EITR.
const EITR: usize = 200;
/// What receive descriptors say.
const SAID: usize = 256;

const _: () =
    assert!(EITR + VECTORS <= LARGE && LARGE + 16 <= SAID && SAID + 16 * rx::SAID <= KEPT);

/// Where a test lets the process die.
#[cfg(test)]
pub(crate) use crate::kept_tests::Steps;
#[cfg(not(test))]
pub(crate) type Steps = Alive;

/// Nothing dies here.
#[derive(Clone, Copy, Debug)]
#[cfg(not(test))]
pub(crate) struct Alive;

#[cfg(not(test))]
impl intel::kept::Step for Alive {
    #[inline(always)]
    fn step() {}
}

impl rx::Places for Steps {
    fn rx(queue: u32) -> rx::At {
        self::rx(queue)
    }
}

pub(crate) type TxKept<'a> = tx::TxKept<'a, Steps>;
pub(crate) type Publisher<'a> = rx::Finishes<'a, Steps>;

/// Stores a word.
#[inline]
pub(crate) fn put(kept: &Kept, at: usize, value: u64) {
    intel::kept::put::<Steps>(kept, at, value);
}

/// The word of a queue's tail.
pub(crate) fn tail(sends: bool, queue: u32) -> usize {
    queue as usize + if sends { TDT } else { RDT }
}

/// The word of a vector's EITR.
pub(crate) fn eitr(vector: u32) -> usize {
    EITR + vector as usize
}

/// The words of a queue's transmit ring.
#[inline]
pub(crate) fn tx(kept: &Kept, queue: u32) -> TxKept<'_> {
    let queue = queue as usize;
    let first = PLACES + 2 * PLACE * queue;
    let at = tx::At {
        ring: TX + queue,
        pass: PASS + queue,
        large: LARGE + queue,
        places: [first, first + PLACE],
    };
    TxKept::new(kept, at)
}

/// The words of a queue's receive ring.
#[inline]
pub(crate) fn rx(queue: u32) -> rx::At {
    let queue = queue as usize;
    rx::At {
        ring: RX + queue,
        marked: MARKED + queue,
        said: SAID + rx::SAID * queue,
    }
}

/// The receiver of a queue stands there, and nothing is under way.
pub(crate) fn rx_stands(kept: &Kept, queue: u32, head: u32) {
    intel::kept::rx::stands::<Steps>(kept, rx(queue).ring, head);
}

impl tx::OneWord for Context {
    /// Which context it means.
    const KEEPS: u8 = 0xf0;

    fn word(&self) -> u64 {
        let Context {
            maclen,
            iplen,
            l4len,
            mss,
            vlan,
            l4,
            ipv4,
        } = *self;
        let l4 = match l4 {
            L4::Udp => 0,
            L4::Tcp => 1,
            L4::Sctp => 2,
        };
        u64::from(vlan)
            | u64::from(mss) << 16
            | u64::from(l4len) << 32
            | u64::from(iplen) << 40
            | u64::from(maclen) << 49
            | l4 << 56
            | u64::from(ipv4) << 58
    }

    fn of(word: u64) -> Option<Self> {
        let l4 = match word >> 56 & 3 {
            0 => L4::Udp,
            1 => L4::Tcp,
            2 => L4::Sctp,
            _ => return None,
        };
        (word >> 59 == 0).then_some(Context {
            maclen: (word >> 49) as u8 & 0x7f,
            iplen: (word >> 40) as u16 & 0x1ff,
            l4len: (word >> 32) as u8,
            mss: (word >> 16) as u16,
            vlan: word as u16,
            l4,
            ipv4: word >> 58 & 1 != 0,
        })
    }
}
