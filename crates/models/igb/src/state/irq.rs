//! The interrupt logic as plain data. What its registers hold is restored from them.

use model::{Env, Nanos};
use regs::Found;

use crate::core::irq::{Irq, Throttle, Way};
use crate::irq::throttle::MOST_CREDITS;
use crate::regs as r;
use crate::regs::VECTORS;
use crate::regs::bits::{eicr, icr};
use crate::state::{Interrupts, StateError, absolute, check, relative};

impl Irq {
    pub(crate) fn save(&self, now: Nanos) -> Interrupts {
        let Irq {
            icr,
            ims,
            iam: _, // a register
            eicr,
            eims,
            eiac: _, // registers
            eiam: _,
            gpie: _,
            rx: _,
            tx: _,
            timer: _,
            other: _,
            throttles,  // with what the guest is spared: measured anew, as by a new device
            least: _,   // a VF's
            of_sent: _, // only timing follows
            of_more: _,
            way: _,              // PCI's
            messages: _,         // the model's
            virtual_function: _, // a PF
            reported,
            sent,
            line: _,      // follows; a message is sent again
            throttled: _, // follows
            link,
            look: _,  // the silence's end
            armed: _, // the first of the deadlines
            raised,
            asserted,
            waits: _, // told to people
        } = self;
        let credit = self.pace().credit;
        let last = |throttle: &Throttle| throttle.last.map(|at| relative(at, now));
        Interrupts {
            causes: *icr,
            mask: *ims,
            extended: *eicr,
            extended_mask: *eims,
            reported: *reported,
            sent: *sent,
            last: throttles.iter().map(last).collect(),
            credits: throttles.iter().map(|t| t.credits(now, credit)).collect(),
            negotiation: link.map(|at| relative(at, now)),
            // One that was loaded begins before its first.
            asserted: raised.wrapping_sub(*asserted),
        }
    }

    /// One of a PF whose registers will hold `words`.
    pub(crate) fn load(
        state: &Interrupts,
        words: &[(Found, u32)],
        now: Nanos,
        most: i64,
    ) -> Result<Irq, StateError> {
        let Interrupts {
            causes,
            mask,
            extended: bits,
            extended_mask,
            reported,
            sent,
            last,
            credits,
            negotiation,
            asserted,
        } = state;
        for (name, bits) in [
            ("interrupts.causes", causes),
            ("interrupts.mask", mask),
            ("interrupts.reported", reported),
        ] {
            check(*bits & !icr::ALL == 0, name, *bits, "no such cause")?;
        }
        for (name, bits) in [
            ("interrupts.extended", bits),
            ("interrupts.extended_mask", extended_mask),
            ("interrupts.sent", sent),
        ] {
            check(*bits & !eicr::ALL == 0, name, *bits, "no such vector")?;
        }
        check(
            last.len() == VECTORS,
            "interrupts.last",
            last.len() as u64,
            "not as many as there are vectors",
        )?;
        check(
            credits.len() == VECTORS,
            "interrupts.credits",
            credits.len() as u64,
            "not as many as there are vectors",
        )?;
        let highest = credits.iter().copied().max().unwrap_or(0);
        let possible = highest <= MOST_CREDITS;
        let why = "more than there can be";
        check(possible, "interrupts.credits", highest, why)?;
        let mut irq = Irq::new(false);
        (irq.icr, irq.ims) = (*causes, *mask);
        (irq.eicr, irq.eims) = (*bits, *extended_mask);
        (irq.reported, irq.sent) = (*reported, *sent);
        // So many are shown before those that come.
        irq.raised = *asserted;
        for (throttle, last) in irq.throttles.iter_mut().zip(last) {
            throttle.last = last
                .map(|at| absolute("interrupts.last", at, 0, now))
                .transpose()?;
        }
        for (throttle, credits) in irq.throttles.iter_mut().zip(credits) {
            throttle.load_credits(now, *credits);
        }
        irq.link = negotiation
            .map(|at| absolute("interrupts.negotiation", at, most, now))
            .transpose()?;
        for (Found { id, element }, value) in words {
            match *id {
                r::IAM => irq.set_iam(*value),
                r::GPIE => irq.gpie = *value,
                r::EIAC => irq.set_eiac(*value),
                r::EIAM => irq.set_eiam(*value),
                r::EITR => {
                    if let Some(throttle) = irq.throttles.get_mut(*element as usize) {
                        throttle.set(*value);
                    }
                }
                r::IVAR => irq.set_ivar(*element, *value),
                r::IVAR_MISC => irq.set_ivar_misc(*value),
                _ => {}
            }
        }
        Ok(irq)
    }

    /// Takes the place of another, and notifies the guest of pending causes.
    pub(crate) fn replace(self, live: &mut Irq, env: &Env) {
        if live.line && live.way == Way::Pin {
            env.irq.set_line(false);
        }
        let (way, moderation) = (live.way, live.throttles[0].adaptive.mode);
        let raised = live.raised;
        let told = self.raised;
        *live = Irq {
            way,
            raised,
            ..self
        };
        live.moderate(moderation);
        // A message may have been lost on the way: a guest that has not acknowledged is notified again.
        live.sent = 0;
        let times = live.throttles;
        live.apply(env);
        // What is sent again was counted before, and has used its gap and its credit.
        for (throttle, before) in live.throttles.iter_mut().zip(times) {
            throttle.keep_times(&before);
        }
        live.asserted = live.raised.wrapping_sub(told);
        if live.armed.is_none() {
            env.timer.arm(None);
        }
    }
}
