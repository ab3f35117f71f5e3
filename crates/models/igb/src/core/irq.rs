//! What is kept of a function's interrupts. [`crate::irq`] says what becomes of it.

use datapath::Adaptive;
use model::Nanos;

use crate::regs::{PF_MESSAGES, VECTORS, VF_MESSAGES};

/// What has happened, gathered over a batch for one decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    /// Receive queues with something written back, bit by bit.
    pub rx: u16,
    /// Those of them whose interrupt does not wait for moderation, bit by bit.
    pub now: u16,
    /// Transmit queues with something written back that was to be reported, bit by bit.
    pub tx: u16,
    /// Causes that belong to no queue, as in ICR (§8.8.7). Of a VF, any: they are its mailbox's.
    pub other: u32,
}

impl Causes {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Causes::default()
    }
}

/// How the guest is told, as PCI configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// INTA#.
    #[default]
    Pin,
    Msi,
    Msix,
}

/// The interrupts of one function. Always behind its lock, which is the innermost of the model:
/// nothing is called under it but [`model::Interrupts`] and [`model::Timer`], so that messages and
/// the timer follow the causes in order.
///
/// In this order: what each run of frames looks at is first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Irq {
    pub(crate) eicr: u32,
    pub(crate) eims: u32,
    /// Bits of EICR that were set because something was sent, and those set by anything else.
    pub(crate) of_sent: u32,
    pub(crate) of_more: u32,
    /// When moderation ends for what waits for it.
    pub(crate) throttled: Option<Nanos>,
    /// Entries of IVAR, one per queue, and of IVAR_MISC.
    pub(crate) rx: [u8; 16],
    pub(crate) tx: [u8; 16],
    pub(crate) timer: u8,
    pub(crate) other: u8,
    pub(crate) way: Way,
    /// Of a VF: GPIE is its PF's, and its extended causes are all there is.
    pub(crate) virtual_function: bool,
    /// Messages there are; a vector beyond sends none.
    pub(crate) messages: u16,
    /// One message or pin: it is up, and the guest has been told.
    pub(crate) line: bool,
    /// What of `ICR & IMS` has set its vector's bit already.
    pub(crate) reported: u32,
    /// Vectors of `EICR & EIMS` whose message has been sent.
    pub(crate) sent: u32,
    pub(crate) icr: u32,
    pub(crate) ims: u32,
    pub(crate) iam: u32,
    pub(crate) eiac: u32,
    pub(crate) eiam: u32,
    pub(crate) gpie: u32,
    /// The shortest gap that a VF's PF leaves it.
    pub(crate) least: Nanos,
    pub(crate) throttles: Throttles,
    /// When auto-negotiation ends.
    pub(crate) link: Option<Nanos>,
    /// When the transmitter is to look again: a pause ends.
    pub(crate) look: Option<Nanos>,
    pub(crate) armed: Option<Nanos>,
    /// Messages sent, and times the pin went up.
    pub(crate) raised: u64,
    /// As `raised`, for the guest: IAC.
    pub(crate) asserted: u64,
    /// Vectors of which it was told that moderation holds them back.
    pub(crate) waits: u32,
}

impl Default for Irq {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Irq {
    pub(crate) fn new(virtual_function: bool) -> Self {
        Self {
            icr: 0,
            ims: 0,
            iam: 0,
            eicr: 0,
            eims: 0,
            eiac: 0,
            eiam: 0,
            gpie: 0,
            rx: [0; 16],
            tx: [0; 16],
            timer: 0,
            other: 0,
            throttles: [Throttle::default(); VECTORS],
            least: 0,
            of_sent: 0,
            of_more: 0,
            way: Way::default(),
            messages: if virtual_function {
                VF_MESSAGES
            } else {
                PF_MESSAGES
            },
            virtual_function,
            reported: 0,
            sent: 0,
            line: false,
            throttled: None,
            link: None,
            look: None,
            armed: None,
            raised: 0,
            asserted: 0,
            waits: 0,
        }
    }

    /// Those of a VF.
    pub(crate) fn vf() -> Self {
        Self::new(true)
    }
}

/// What queues have moved in one call, by their number.
pub(crate) type Moved = [Move; 16];

/// What a queue has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Move {
    /// Descriptors done.
    pub done: u32,
    /// Of a receive queue: those that are left. Of a transmit queue: those that the ring has.
    pub of: u32,
}

/// When a vector may speak.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttle {
    /// EITR's interval in nanoseconds; 0 for none.
    pub(crate) gap: Nanos,
    /// When it last spoke.
    pub(crate) last: Option<Nanos>,
    /// Something is pending that no gap holds back.
    pub(crate) hurried: bool,
    /// Credits for that, as EITR.eitr::LLI_EN wants them, and since when the next one is on its way.
    pub(crate) moderated: bool,
    pub(crate) credits: u32,
    pub(crate) since: Nanos,
    /// What the guest is spared.
    pub(crate) adaptive: Adaptive,
}

/// Those of all vectors.
pub(crate) type Throttles = [Throttle; VECTORS];
