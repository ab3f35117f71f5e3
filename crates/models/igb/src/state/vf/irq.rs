//! The interrupt logic of a VF as plain data. What its registers say it is told by them.

use model::Nanos;
use regs::Found;

use crate::core::irq::Irq;
use crate::irq::throttle::least;
use crate::regs::{VF_MESSAGES, vf as r};
use crate::state::vf::Interrupts;
use crate::state::{StateError, absolute, check, relative};

impl Irq {
    pub(crate) fn save_vf(&self, now: Nanos) -> Interrupts {
        let Irq {
            icr: _, // a PF's
            ims: _,
            iam: _,
            eicr,
            eims,
            eiac: _, // registers
            eiam: _,
            gpie: _, // a PF's
            rx: _,   // registers
            tx: _,
            timer: _,   // a PF's
            other: _,   // a register
            throttles,  // with what the guest is spared: measured anew, as by a new device
            least: _,   // its PF's
            of_sent: _, // only timing follows
            of_more: _,
            way: _,              // PCI's
            messages: _,         // the model's
            virtual_function: _, // a VF
            reported: _,         // a PF's
            sent: _,             // what stands is told again
            line: _,             // a PF's
            throttled: _,        // follows
            link: _,             // a PF's
            look: _,
            armed: _,  // follows
            raised: _, // the process's
            asserted: _,
            waits: _, // told to people
        } = self;
        let throttles = &throttles[..usize::from(VF_MESSAGES)];
        Interrupts {
            causes: *eicr,
            mask: *eims,
            last: throttles
                .iter()
                .map(|throttle| throttle.last.map(|at| relative(at, now)))
                .collect(),
        }
    }

    /// One of a VF whose registers will hold `words`, and whose vectors keep `gap` at least.
    pub(crate) fn load_vf(
        state: &Interrupts,
        words: &[(Found, u32)],
        gap: Nanos,
        now: Nanos,
    ) -> Result<Irq, StateError> {
        let Interrupts { causes, mask, last } = state;
        let mut irq = Irq::vf();
        for (name, bits) in [("interrupts.causes", causes), ("interrupts.mask", mask)] {
            check(*bits & !irq.existing() == 0, name, *bits, "no such vector")?;
        }
        check(
            last.len() == usize::from(VF_MESSAGES),
            "interrupts.last",
            last.len() as u64,
            "not as many as there are vectors",
        )?;
        (irq.eicr, irq.eims) = (*causes, *mask);
        irq.least = least(gap);
        for (throttle, last) in irq.throttles.iter_mut().zip(last) {
            throttle.last = last
                .map(|at| absolute("interrupts.last", at, 0, now))
                .transpose()?;
        }
        for (Found { id, element }, value) in words {
            match *id {
                r::VTEIAC => irq.set_eiac(*value),
                r::VTEIAM => irq.set_eiam(*value),
                r::VTEITR => {
                    if let Some(throttle) = irq.throttles.get_mut(*element as usize) {
                        throttle.set(*value);
                    }
                }
                r::VTIVAR => irq.set_ivar(0, *value),
                r::VTIVAR_MISC => irq.set_ivar_misc(*value),
                _ => {}
            }
        }
        Ok(irq)
    }
}
