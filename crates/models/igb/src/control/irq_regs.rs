//! The registers of the interrupt logic (§8.8).

use model::Env;
use regs::Id;

use crate::control::Registers;
use crate::core::irq::Causes;
use crate::core::kept;
use crate::regs as r;
use crate::regs::bits::{eitr, icr};

impl Registers {
    /// Writes a register of the interrupt logic. `false`: it is none.
    pub(super) fn write_irq(&self, env: &Env, id: Id, element: u32, value: u32) -> bool {
        let function = &self.function;
        let store = || function.file.write(id, element, value);
        match id {
            r::ICR => function.irq.lock().write_icr(env, value),
            r::ICS => {
                let causes = Causes {
                    other: value,
                    ..Causes::default()
                };
                function.irq.lock().raise(env, causes);
            }
            r::IMS => {
                function.irq.lock().set_ims(env, value);
                function.note_mask(kept::IMS, value & icr::ALL, 0);
            }
            r::IMC => {
                function.irq.lock().clear_ims(env, value);
                function.note_mask(kept::IMS, 0, value);
            }
            r::IAM => {
                let bits = store();
                function.irq.lock().set_iam(bits);
            }
            r::GPIE => {
                let bits = store();
                function.irq.lock().set_gpie(env, bits);
            }
            r::EICR | r::EICS | r::EIMS | r::EIMC | r::EIAC | r::EIAM => {
                let own = self.to_vfs(id, value);
                let mut irq = function.irq.lock();
                match id {
                    r::EICR => irq.clear_eicr(env, own),
                    r::EICS => irq.set_eicr(env, own),
                    r::EIMS => {
                        irq.set_eims(env, own);
                        function.note_mask(kept::EIMS, own & irq.existing(), 0);
                    }
                    r::EIMC => {
                        irq.clear_eims(env, own);
                        function.note_mask(kept::EIMS, 0, own);
                    }
                    r::EIAC => irq.set_eiac(function.file.write(id, 0, own)),
                    _ => irq.set_eiam(function.file.write(id, 0, own)),
                }
            }
            r::EITR => {
                let bits = store();
                function.note_word(kept::eitr(element), bits);
                let mut irq = function.irq.lock();
                irq.set_eitr(env, element, bits);
                if value & eitr::CNT_INGR == 0 {
                    irq.set_credits(env, element, value >> eitr::CREDITS_SHIFT);
                }
            }
            r::IVAR => {
                let entries = store();
                function.irq.lock().set_ivar(element, entries);
            }
            r::IVAR_MISC => {
                let entries = store();
                function.irq.lock().set_ivar_misc(entries);
            }
            _ => return false,
        }
        true
    }
}
