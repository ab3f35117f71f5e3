//! What the interrupt logic remembers; what it does is in [`crate::irq`].

use datapath::{Adaptive, Moderation, RxThrottle};
use model::Nanos;

/// The state of the interrupt logic. Always behind its lock, which is the innermost of the model:
/// nothing is called under it but [`model::Interrupts`] and [`model::Timer`], so that the line and
/// the timer follow the causes in order.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Irq {
    pub(crate) icr: u32,
    pub(crate) ims: u32,
    pub(crate) itr: u32,
    /// Whether the guest has been told: the level of INTx, or a message sent and not answered yet.
    pub(crate) line: bool,
    /// Messages take the place of the pin.
    pub(crate) msi: bool,
    /// With a CSB: which of `SENT` and `RECEIVED` the guest wanted to hear of when there was
    /// something to tell.
    pub(crate) gate: Option<u32>,
    /// The next of all deadlines below, which the timer is set to: there is none without it.
    pub(crate) armed: Option<Nanos>,
    /// How much the guest is given at once.
    pub(crate) rx_throttle: RxThrottle,
    /// What it is spared.
    pub(crate) adaptive: Adaptive,
    /// When the line last went up.
    pub(crate) last: Option<Nanos>,
    /// When ITR lets it go up again, while something waits for that.
    pub(crate) throttled: Option<Nanos>,
    pub(crate) rx: Delay,
    pub(crate) tx: Delay,
    /// When auto-negotiation ends.
    pub(crate) link: Option<Nanos>,
    /// When the transmitter is to look again: a pause ends, or a pause frame is owed.
    pub(crate) look: Option<Nanos>,
    /// When both sides are to look into the guest's CSB again.
    pub(crate) second: Option<Nanos>,
    /// Times the line went up.
    pub(crate) raised: u64,
    /// What ITR, or what stands in its place, holds back has been told of.
    pub(crate) waits: bool,
}

/// A packet timer and the absolute timer that caps it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) packet: Option<Nanos>,
    pub(crate) absolute: Option<Nanos>,
}

impl Irq {
    /// Interrupt logic that follows the chip to the letter, or takes liberties with its timing.
    pub(crate) fn new(mode: Moderation, throttling: bool) -> Self {
        let mut irq = Self {
            rx_throttle: RxThrottle::new(throttling),
            ..Self::default()
        };
        irq.adaptive.mode = mode;
        irq
    }
}
