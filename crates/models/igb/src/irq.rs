//! Interrupt causes, their routing, moderation and masks (§7.3, §8.8).
//!
//! There are two ways. With one message or a pin (GPIE.Multiple_MSIX = 0), the interrupt is up when
//! `ICR & IMS` or `EICR & EIMS` is not 0. With a message per vector, each queue sets the bit of its
//! vector in EICR, everything else the bit of one more vector when `ICR & IMS` grows, and vector v
//! sends its message when bit v of `EICR & EIMS` appears. Between that and the message stands EITR.
//! A VF knows the second way only.

pub(crate) mod throttle;

use throttle::Tidings;

use std::sync::atomic::Ordering;

use datapath::Moderation;
use model::{Env, Nanos, Through};

use crate::core::function::Function;
use crate::core::irq::{Causes, Irq, Way};
use crate::regs::VF_MESSAGES;
use crate::regs::bits::{eicr, gpie, icr, ivar};

/// Of the causes that are of no queue, the one that a VF has: its mailbox. A PF has another there, which its
/// queues raise by themselves.
pub(crate) const VF_MAILBOX: u32 = 1;

/// What came due beside interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Auto-negotiation has ended.
    pub link: bool,
    /// The transmitter was to look whether a pause is over.
    pub look: bool,
}

impl Irq {
    /// Whether each vector has a message of its own.
    fn multiple(&self) -> bool {
        self.virtual_function || self.gpie & gpie::MULTIPLE != 0
    }

    /// Bits of EICR there are.
    pub(crate) fn existing(&self) -> u32 {
        if self.virtual_function {
            (1 << VF_MESSAGES) - 1
        } else {
            eicr::ALL
        }
    }

    /// The bit of EICR that an entry of IVAR leads to.
    fn vector(&self, entry: u8) -> u32 {
        if entry & ivar::VALID == 0 {
            return 0;
        }
        (1 << (entry & ivar::VECTOR)) & eicr::VECTORS & self.existing()
    }

    /// Enters causes, and raises what is enabled.
    pub(crate) fn raise(&mut self, env: &Env, causes: Causes) {
        if self.knows(&causes) {
            return;
        }
        let mut bits = self.vectors(causes.rx, &self.rx);
        let sent = self.vectors(causes.tx, &self.tx);
        self.of_sent |= sent;
        self.hurry(causes.now);
        if self.virtual_function {
            // It has no ICR, and so none of the port's causes.
            if causes.other & VF_MAILBOX != 0 {
                bits |= self.vector(self.other);
            }
        } else {
            self.icr |= causes.other & icr::ALL;
            if causes.rx != 0 {
                self.icr |= icr::RXDW;
            }
            if causes.tx != 0 {
                self.icr |= icr::TXDW;
            }
        }
        self.of_more |= bits;
        self.assert(env, bits | sent);
    }

    /// Whether all of this is pending already, and nothing waits for its time: then nothing follows from it.
    #[inline]
    fn knows(&self, causes: &Causes) -> bool {
        if causes.now != 0 || self.throttled.is_some() || !self.virtual_function {
            return false;
        }
        let (received, sent) = (
            self.vectors(causes.rx, &self.rx),
            self.vectors(causes.tx, &self.tx),
        );
        let of_more = (received & !self.of_more) | (sent & !self.of_sent);
        causes.other == 0 && of_more == 0 && (received | sent) & !self.eicr == 0
    }

    /// The bits of EICR that these queues lead to.
    fn vectors(&self, mut queues: u16, entries: &[u8; 16]) -> u32 {
        let mut bits = 0;
        while queues != 0 {
            let queue = queues.trailing_zeros() as usize;
            queues &= queues - 1;
            bits |= self.vector(entries[queue]);
        }
        bits
    }

    /// Has the vectors of these receive queues speak at once.
    fn hurry(&mut self, mut queues: u16) {
        while queues != 0 {
            let queue = queues.trailing_zeros() as usize;
            queues &= queues - 1;
            let (vector, told) = match self.multiple() {
                true => {
                    let bit = self.vector(self.rx[queue]);
                    (bit.trailing_zeros(), self.sent & bit != 0)
                }
                false => (0, self.line),
            };
            // One that is out and unanswered tells of this, too.
            if let Some(throttle) = self.throttles.get_mut(vector as usize).filter(|_| !told) {
                throttle.hurry();
            }
        }
    }

    /// Sets bits of EICR. One that is set while its message is out asks for another one if it is
    /// cleared by then, and for none otherwise.
    fn assert(&mut self, env: &Env, bits: u32) {
        self.eicr |= bits & self.existing();
        self.apply(env);
    }

    /// Reads ICR, which acknowledges what there is to acknowledge: everything, if an interrupt was
    /// raised, if none is enabled, or if GPIE.NSICR says so.
    pub(crate) fn read_icr(&mut self, env: &Env) -> u32 {
        let asserted = self.icr & self.ims != 0;
        let value = self.icr | if asserted { icr::INTA } else { 0 };
        let always = self.gpie & gpie::NSICR != 0;
        if always || asserted {
            self.ims &= !self.iam;
        }
        if always || asserted || self.ims == 0 {
            self.icr = 0;
            self.eicr &= !eicr::OTHER;
        }
        self.answered(env, self.general());
        self.apply(env);
        value
    }

    /// Writes ICR: ones clear, and mask as reading does.
    pub(crate) fn write_icr(&mut self, env: &Env, bits: u32) {
        if self.gpie & gpie::NSICR != 0 || self.icr & self.ims != 0 {
            self.ims &= !self.iam;
        }
        self.icr &= !bits;
        if self.icr & self.ims == 0 {
            self.eicr &= !eicr::OTHER;
        }
        self.answered(env, self.general());
        self.apply(env);
        self.again(env);
    }

    /// Acknowledged in part: a level would still stand, but a message has to be sent again.
    fn again(&mut self, env: &Env) {
        if self.line && !self.multiple() {
            match self.way {
                Way::Pin => {}
                Way::Msi => env.irq.msi(0),
                Way::Msix => env.irq.msix(0),
            }
        }
    }

    /// ICR without clearing it, for ICS.
    pub(crate) fn causes(&self) -> u32 {
        self.icr
    }

    /// IMS, as IMC shows it too.
    pub(crate) fn mask(&self) -> u32 {
        self.ims
    }

    pub(crate) fn set_ims(&mut self, env: &Env, bits: u32) {
        self.ims |= bits & icr::ALL;
        if !self.multiple() {
            self.throttles[0].adaptive.looked();
        }
        self.apply(env);
    }

    pub(crate) fn clear_ims(&mut self, env: &Env, bits: u32) {
        self.ims &= !bits;
        self.apply(env);
    }

    pub(crate) fn set_iam(&mut self, bits: u32) {
        self.iam = bits;
    }

    pub(crate) fn set_gpie(&mut self, env: &Env, value: u32) {
        self.settle_credits(env);
        self.gpie = value;
        self.apply(env);
    }

    /// EICR, with nothing cleared.
    pub(crate) fn extended_causes(&self) -> u32 {
        self.eicr
    }

    /// What [`Irq::take_asserted`] would give.
    pub(crate) fn asserted(&self) -> u64 {
        self.raised.wrapping_sub(self.asserted)
    }

    /// Reads EICR, which clears it.
    pub(crate) fn read_eicr(&mut self, env: &Env) -> u32 {
        let value = std::mem::take(&mut self.eicr);
        self.answered(env, value);
        self.apply(env);
        value
    }

    pub(crate) fn clear_eicr(&mut self, env: &Env, bits: u32) {
        self.eicr &= !bits;
        self.answered(env, bits);
        self.apply(env);
    }

    /// EICS: as if the causes had come.
    pub(crate) fn set_eicr(&mut self, env: &Env, bits: u32) {
        self.of_more |= bits;
        self.assert(env, bits);
    }

    /// EIMS, as EIMC shows it too.
    pub(crate) fn extended_mask(&self) -> u32 {
        self.eims
    }

    pub(crate) fn set_eims(&mut self, env: &Env, bits: u32) {
        self.eims |= bits & self.existing();
        self.answered(env, bits);
        self.apply(env);
    }

    pub(crate) fn clear_eims(&mut self, env: &Env, bits: u32) {
        self.eims &= !bits;
        self.apply(env);
    }

    pub(crate) fn set_eiac(&mut self, bits: u32) {
        self.eiac = bits & self.existing();
    }

    pub(crate) fn set_eiam(&mut self, bits: u32) {
        self.eiam = bits & self.existing();
    }

    /// EITR of `vector` was written; `value` as its register keeps it.
    /// Drivers write it in the handler of the vector's interrupt, if at all.
    pub(crate) fn set_eitr(&mut self, env: &Env, vector: u32, value: u32) {
        if let Some(throttle) = self.throttles.get_mut(vector as usize) {
            throttle.set(value);
            if throttle.adaptive.raised.is_some() {
                throttle.adaptive.acknowledged(env.clock.now());
            }
            self.apply(env);
        }
    }

    /// IVAR\[`index`\] was written: the queues `index` and `index + 8` (§8.8.13). A VF has one,
    /// where both of its queues are side by side.
    pub(crate) fn set_ivar(&mut self, index: u32, value: u32) {
        let [rx, tx, rx_other, tx_other] = value.to_le_bytes();
        let (queue, second) = if self.virtual_function {
            (0, 1)
        } else {
            let queue = index as usize % 8;
            (queue, queue + 8)
        };
        (self.rx[queue], self.tx[queue]) = (rx, tx);
        (self.rx[second], self.tx[second]) = (rx_other, tx_other);
    }

    /// IVAR_MISC was written. Of a VF: its mailbox.
    pub(crate) fn set_ivar_misc(&mut self, value: u32) {
        let [first, second, ..] = value.to_le_bytes();
        if self.virtual_function {
            self.other = first;
        } else {
            (self.timer, self.other) = (first, second);
        }
    }

    /// PCI configuration has another way to tell the guest. What it has not answered yet it hears
    /// of again, the new way.
    pub(crate) fn set_way(&mut self, env: &Env, way: Way) {
        if self.way == way {
            return;
        }
        if self.line && self.way == Way::Pin {
            env.irq.set_line(false);
        }
        self.way = way;
        self.line = false;
        self.sent = 0;
        self.apply(env);
    }

    /// Sets or calls off the end of auto-negotiation.
    pub(crate) fn set_link_timer(&mut self, env: &Env, at: Option<Nanos>) {
        self.link = at;
        self.apply(env);
    }

    /// Sets when the transmitter is to look again.
    pub(crate) fn set_look(&mut self, env: &Env, at: Option<Nanos>) {
        self.look = at;
        self.apply(env);
    }

    /// Times an interrupt was raised since the last call (IAC).
    pub(crate) fn take_asserted(&mut self) -> u64 {
        let told = std::mem::replace(&mut self.asserted, self.raised);
        self.raised.wrapping_sub(told)
    }

    /// The timer has fired. Returns what came due beside interrupts.
    pub(crate) fn tick(&mut self, env: &Env) -> Due {
        self.armed = None;
        let now = env.clock.now();
        let link = self.link.take_if(|at| *at <= now).is_some();
        let look = self.look.take_if(|at| *at <= now).is_some();
        self.apply(env);
        Due { link, look }
    }

    /// Back to the state after CTRL.RST. EITR stays, and the PHY's own timer goes on.
    pub(crate) fn reset(&mut self, env: &Env) {
        let old = std::mem::replace(self, Self::new(self.virtual_function));
        self.throttles = old.throttles;
        for throttle in &mut self.throttles {
            throttle.reset();
        }
        self.least = old.least;
        self.way = old.way;
        self.line = old.line;
        self.link = old.link;
        self.armed = old.armed;
        self.raised = old.raised;
        self.asserted = old.asserted;
        self.apply(env);
    }

    /// Brings messages, pin and timer in line with causes and masks.
    pub(crate) fn apply(&mut self, env: &Env) {
        self.throttled = None;
        let open = self.icr & self.ims;
        if self.multiple() {
            if self.line {
                self.line = false;
                if self.way == Way::Pin {
                    env.irq.set_line(false);
                }
            }
            if open & !self.reported != 0 {
                self.eicr |= self.vector(self.other);
            }
            self.reported = open;
            self.messages(env);
        } else {
            self.reported = 0;
            self.sent = 0;
            self.single(env, open);
        }
        self.of_sent &= self.eicr;
        self.of_more &= self.eicr;
        let next = [self.throttled, self.link, self.look]
            .into_iter()
            .flatten()
            .min();
        if next != self.armed {
            self.armed = next;
            env.timer.arm(next);
        }
    }

    /// A message per vector.
    fn messages(&mut self, env: &Env) {
        self.sent &= self.eicr & self.eims;
        if self.way != Way::Msix {
            return;
        }
        let pace = self.pace();
        let mut pending = self.eicr & self.eims & !self.sent & eicr::VECTORS;
        self.waits &= pending;
        while pending != 0 {
            let vector = pending.trailing_zeros();
            pending &= pending - 1;
            let bit = 1 << vector;
            let tidings = Tidings {
                sent: self.of_sent & bit != 0,
                only_sent: self.of_sent & !self.of_more & bit != 0,
            };
            let throttle = &mut self.throttles[vector as usize];
            if let Some(until) = throttle.wait(env, tidings, pace) {
                self.throttled = Some(self.throttled.map_or(until, |t| t.min(until)));
                self.delays(env, vector);
                continue;
            }
            throttle.spoke(env, pace);
            self.waits &= !bit;
            self.sent |= bit;
            if self.virtual_function || self.gpie & gpie::EIAME != 0 {
                self.eims &= !(self.eiam & bit);
            }
            self.eicr &= !(self.eiac & bit);
            self.sent &= self.eicr & self.eims;
            if vector < u32::from(self.messages) {
                self.raised += 1;
                env.irq.msix(vector as u16);
            }
        }
    }

    /// Moderation holds a vector back. It is told once, until it speaks or has nothing more to say.
    fn delays(&mut self, env: &Env, vector: u32) {
        let bit = 1 << vector;
        if self.waits & bit == 0 && vector < u32::from(self.messages) {
            self.waits |= bit;
            env.irq.delayed(match self.way {
                Way::Pin => Through::Pin,
                Way::Msi => Through::Msi(0),
                Way::Msix => Through::Msix(vector as u16),
            });
        }
    }

    /// One message, or the pin, for everything.
    fn single(&mut self, env: &Env, open: u32) {
        if open != 0 {
            self.eicr |= eicr::OTHER;
        }
        let vectors = self.eicr & self.eims & !eicr::OTHER;
        let want = open != 0 || vectors != 0;
        if want == self.line {
            self.waits = 0;
            return;
        }
        if want {
            let tidings = Tidings {
                sent: open & icr::TXDW != 0 || vectors & self.of_sent != 0,
                only_sent: open & !icr::TXDW == 0 && vectors & (self.of_more | !self.of_sent) == 0,
            };
            let pace = self.pace();
            let throttle = &mut self.throttles[0];
            self.throttled = throttle.wait(env, tidings, pace);
            if self.throttled.is_some() {
                self.delays(env, 0);
                return;
            }
            throttle.spoke(env, pace);
            self.raised += 1;
        }
        self.waits = 0;
        self.line = want;
        match self.way {
            Way::Pin => env.irq.set_line(want),
            Way::Msi if want => env.irq.msi(0),
            Way::Msix if want => env.irq.msix(0),
            _ => {}
        }
    }
}

impl Function {
    /// Chooses when it interrupts. Before it is used.
    pub(crate) fn moderate(&mut self, how: Moderation) {
        let irq = self.irq.get_mut();
        irq.moderate(how);
        *self.adapts.get_mut() = irq.adapts();
    }

    /// The same while it is used. What the old way held back goes by the new one.
    pub(crate) fn moderate_live(&self, env: &Env, how: Moderation) {
        let mut irq = self.irq.lock();
        irq.moderate(how);
        self.adapts.store(irq.adapts(), Ordering::Relaxed);
        irq.apply(env);
    }

    /// Whether its queues tell its interrupts of what they have moved.
    #[inline]
    pub(crate) fn adapts(&self) -> bool {
        self.adapts.load(Ordering::Relaxed)
    }
}
