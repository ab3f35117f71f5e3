//! What of the NIC is in memory that outlives its process ([`model::Kept`]): heads, tails, masks, and what is under way in the
//! rings ([`intel::kept`]).

use intel::kept::{rx, tx};
use model::Kept;

use crate::core::context::{Context, Contexts, PAYLEN};

/// The words.
pub(crate) const RX: usize = 0;
#[cfg_attr(not(test), allow(unused))]
pub(crate) const TX: usize = 1;
pub(crate) const RDT: usize = 2;
pub(crate) const TDT: usize = 3;
pub(crate) const IMS: usize = 4;
pub(crate) const ITR: usize = 5;
/// The transmitter's: of its ring, and two places for what it carries from descriptor to descriptor.
const SENT: tx::At = tx::At {
    ring: TX,
    pass: 6,
    large: 7,
    places: [8, 16],
};

/// Where a test lets the process die.
#[cfg(test)]
pub(crate) use crate::kept_tests::Steps;
#[cfg(not(test))]
pub(crate) type Steps = ();

pub(crate) type TxKept<'a> = tx::TxKept<'a, Steps>;
pub(crate) type Publisher<'a> = rx::TakesBack<'a, Steps>;

/// Stores a word.
#[inline]
pub(crate) fn put(kept: &Kept, at: usize, value: u64) {
    intel::kept::put::<Steps>(kept, at, value);
}

/// The words of the transmit ring.
#[inline]
pub(crate) fn sent(kept: &Kept) -> TxKept<'_> {
    TxKept::new(kept, SENT)
}

/// The receiver stands there, and nothing is under way.
pub(crate) fn rx_stands(kept: &Kept, head: u32) {
    rx::stands::<Steps>(kept, RX, head);
}

impl tx::Carried for Contexts {
    const WORDS: usize = 4;
    /// The rest of that byte is reserved.
    const KEEPS: u8 = 0;

    fn word(&self, at: usize) -> u64 {
        let context = if at < 2 {
            &self.segmenting
        } else {
            &self.plain
        };
        words_of(context)[at & 1]
    }

    fn of(word: impl Fn(usize) -> u64) -> Option<Self> {
        Some(Contexts {
            segmenting: context_of([word(0), word(1)])?,
            plain: context_of([word(2), word(3)])?,
        })
    }
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
