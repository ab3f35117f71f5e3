//! The state of the interrupt logic.

use datapath::{Adaptive, Moderation};
use model::Nanos;

/// How interrupts reach the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    #[default]
    Line,
    Msi,
    Msix,
}

/// Frames of one direction that wait for IntrMitigate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// How many.
    pub frames: u32,
    /// Until when.
    pub until: Option<Nanos>,
}

/// The state.
#[derive(Debug, Default)]
pub(crate) struct Irq {
    /// The chip is an 8169: times are those of a PCI bus.
    pub first: bool,
    pub isr: u16,
    /// Causes of it that were set since it was last read.
    pub fresh: u16,
    pub imr: u16,
    pub way: Way,
    /// The line is up, or the message is out.
    pub raised: bool,
    /// IntrMitigate, and its scale.
    pub mitigate: u16,
    pub scale: u8,
    /// Speed of the link, which the scale depends on.
    pub mbits: u16,
    pub rx: Held,
    pub tx: Held,
    /// When it was signalled last.
    pub last: Option<Nanos>,
    /// Moderation holds it back until then.
    pub throttled: Option<Nanos>,
    pub adaptive: Adaptive,
    /// When TCTR was 0, and when it reaches TimerInt next.
    pub timer_base: Nanos,
    pub timer: Option<Nanos>,
    /// When auto-negotiation ends.
    pub link: Option<Nanos>,
    /// With a CSB: which of `SENT` and `RECEIVED` the guest wanted to hear of when there was something to tell.
    pub gate: Option<u16>,
    /// When the transmitter looks into the guest's CSB again.
    pub second: Option<Nanos>,
    /// When the receive ring is looked at for frames that wait.
    pub look: Option<Nanos>,
    pub armed: Option<Nanos>,
    /// How often it was signalled.
    pub signals: u64,
    /// What moderation holds back has been told of.
    pub waits: bool,
}

impl Irq {
    pub fn new(first: bool, mode: Moderation) -> Self {
        let mut irq = Self {
            first,
            mbits: 1000,
            ..Self::default()
        };
        irq.adaptive.mode = mode;
        irq
    }
}
