//! The Communication Status Block (CSB): a page of the guest's memory. Driver and NIC exchange
//! through it what registers and interrupts would carry, at the price of a store.
//!
//! The layout is the one published with netmap (`net/paravirt.h`, 2014; FreeBSD `dev/e1000/if_lem.c`
//! speaks it), the reasons are in Maffione's thesis on it, §4.4. The page consists of little-endian words of 32
//! bits ([`at`]); the guest writes the first 64 bytes, the host the ones behind.
//!
//! Both directions follow NAPI's rule. A consumer at work disables notifications. A consumer that
//! finds nothing to do enables them, issues a full barrier, and looks once more ([`sleep`]). A
//! producer makes its work available, issues a full barrier, and looks whether the consumer wants
//! a notification ([`wanted`]). One of the two sees the other; without either barrier neither may.
//! `make loom` tries every order of these steps, and shows that the rule fails without the barriers.
#![forbid(unsafe_code)]

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{Ordering, fence};

/// Subsystem id by which a NIC offers a CSB, below Intel's vendor id (`E1000_PARA_SUBDEV`).
pub const SUBSYSTEM: u16 = 0x1101;
/// Bytes of the page.
pub const PAGE: u64 = 4096;
/// "Never", in a word that names a place in a ring (`NET_PARAVIRT_NONE`).
pub const NONE: u32 = u32::MAX;
/// Offset of the register with the low half of the page's address. Writing it maps the page, so the
/// other half is written first; 0 takes it away.
pub const CSBAL: u32 = 0x2830;
/// Offset of the register with the high half of the page's address.
pub const CSBAH: u32 = 0x2834;

/// Offsets of the words.
pub mod at {
    /// Guest: as TDT.
    pub const GUEST_TDT: u32 = 0x00;
    /// Guest: wants to hear when frames were sent.
    pub const GUEST_NEED_TXKICK: u32 = 0x04;
    /// Guest: wants to hear when frames were received.
    pub const GUEST_NEED_RXKICK: u32 = 0x08;
    /// Guest: the block counts. May change at any time.
    pub const GUEST_CSB_ON: u32 = 0x0c;
    /// Guest: as RDT.
    pub const GUEST_RDT: u32 = 0x10;
    /// Guest: for a form of the protocol with thresholds for transmission that no driver used.
    pub const GUEST_TXKICK_AT: u32 = 0x14;
    /// Guest: interrupts of a BAR with MSI-X, which this NIC does not have.
    pub const GUEST_USE_MSIX: u32 = 0x18;
    /// Host: as TDH.
    pub const HOST_TDH: u32 = 0x40;
    /// Host: wants TDT written when something is to be sent.
    pub const HOST_NEED_TXKICK: u32 = 0x44;
    /// Guest, though it lies here: rounds without a frame before the host sleeps.
    pub const HOST_TXCYCLES_LIM: u32 = 0x48;
    /// Host: such rounds so far; for people.
    pub const HOST_TXCYCLES: u32 = 0x4c;
    /// Host: as RDH.
    pub const HOST_RDH: u32 = 0x50;
    /// Host: for a form of the protocol without thresholds; see [`HOST_RXKICK_AT`].
    pub const HOST_NEED_RXKICK: u32 = 0x54;
    /// Host: as ICR, when the host last had something to say.
    pub const HOST_ISR: u32 = 0x58;
    /// Host: wants RDT written when the guest gives back the buffer at this index;
    /// [`NONE`](crate::NONE) for never.
    pub const HOST_RXKICK_AT: u32 = 0x5c;
}

/// A word that both sides see.
pub trait Word {
    /// Reads it; what follows sees what the other side did before it wrote that value.
    fn load(&self) -> u32;
    /// Writes it; the side that reads the value sees what this side did before.
    fn store(&self, value: u32);
}

/// The barrier between a store and a load of different words.
fn full() {
    fence(Ordering::SeqCst);
}

/// About to sleep: writes `ask` to `flag`, which enables notifications, and `news` looks once more
/// whether work has come. Returns whether the caller may sleep; if not, `awake` has replaced `ask`.
pub fn sleep(flag: &impl Word, ask: u32, awake: u32, news: impl FnOnce() -> bool) -> bool {
    sleep_behind(full, flag, ask, awake, news)
}

/// [`sleep`] with a barrier of the caller's choice, to show what it is for.
#[doc(hidden)]
pub fn sleep_behind(
    barrier: impl FnOnce(),
    flag: &impl Word,
    ask: u32,
    awake: u32,
    news: impl FnOnce() -> bool,
) -> bool {
    flag.store(ask);
    barrier();
    let may = !news();
    if !may {
        flag.store(awake);
    }
    may
}

/// What was just made available must be seen before `flag` is read: the value by which the other side
/// enables notifications, or does not.
pub fn wanted(flag: &impl Word) -> u32 {
    wanted_behind(full, flag)
}

/// [`wanted`] with a barrier of the caller's choice, to show what it is for.
#[doc(hidden)]
pub fn wanted_behind(barrier: impl FnOnce(), flag: &impl Word) -> u32 {
    barrier();
    flag.load()
}

/// Where in a receive ring of `len` the host wants a notification of new buffers, when the guest has given
/// those before `tail`, `available` of which are left: three quarters of the others further on.
pub fn rx_kick_at(tail: u32, available: u32, len: u32) -> u32 {
    let rest = len.saturating_sub(available).saturating_sub(1);
    (tail + 1 + rest - rest.div_ceil(4)) % len.max(1)
}

/// Whether a guest that moves its receive tail from `old` to `new` gives back the buffer at `place`.
pub fn passes(old: u32, new: u32, place: u32, len: u32) -> bool {
    if place >= len {
        return false;
    }
    let behind = |index: u32| (index + len - old) % len;
    (1..=behind(new)).contains(&behind(place))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Plain(Cell<u32>);

    impl Word for Plain {
        fn load(&self) -> u32 {
            self.0.get()
        }
        fn store(&self, value: u32) {
            self.0.set(value);
        }
    }

    #[test]
    fn who_finds_news_does_not_sleep_and_asks_for_nothing() {
        let flag = Plain(Cell::new(0));
        assert!(!sleep(&flag, 1, 0, || true));
        assert_eq!(wanted(&flag), 0);
        assert!(sleep(&flag, 1, 0, || false));
        assert_eq!(wanted(&flag), 1);
    }

    #[test]
    fn the_place_asked_for_is_always_one_that_is_still_to_come() {
        for len in [8, 16, 256, 4096] {
            for tail in [0, 1, len / 2, len - 1] {
                for available in 0..len - 1 {
                    let rest = len - available - 1;
                    let place = rx_kick_at(tail, available, len);
                    let ahead = (place + len - tail) % len;
                    assert_eq!(ahead, 1 + rest * 3 / 4, "{tail} {available} {len}");
                    assert!((1..=rest).contains(&ahead));
                    // Not passed one buffer before it, passed with it and with all that are left.
                    let to = |n: u32| (tail + n) % len;
                    assert!(!passes(tail, to(ahead - 1), place, len));
                    assert!(passes(tail, to(ahead), place, len));
                    assert!(passes(tail, to(rest), place, len));
                }
            }
        }
        assert!(!passes(0, 7, NONE, 8), "never is never passed");
    }
}
