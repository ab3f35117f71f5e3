//! What reads find, without what they do.

use model::Env;
use regs::{Found, Id};

use crate::control::Registers;
use crate::regs as r;
use crate::regs::bits::{eitr, frtimer, status};

impl Registers {
    /// A register as a read would find it now.
    pub(super) fn peek_word(&self, env: &Env, Found { id, element }: Found) -> u32 {
        let function = &self.function;
        let of_vf = self.peek_of_vf(id, element);
        if let Some(value) = of_vf.or_else(|| self.peek_dropped_of_vf(id, element)) {
            return value;
        }
        if let Some(value) = self.reading.peek(function, id, element) {
            return value;
        }
        if let Some(value) = self.peek_vf_control(id, element) {
            return value;
        }
        let stored = function.file.get_at(id, element);
        match id {
            r::EICR => {
                let own = function.irq.lock().extended_causes();
                let (of_vfs, whose) = self.peek_of_vfs(id);
                own & !whose | of_vfs
            }
            r::IAC => u32::try_from(function.irq.lock().asserted()).unwrap_or(u32::MAX),
            id if r::CLOCK.contains(&id) => self.peek_clock(env, id, stored),
            _ => self.look(env, (id, element), stored),
        }
    }

    /// The part of reads that does nothing.
    pub(super) fn look(&self, env: &Env, (id, element): (Id, u32), stored: u32) -> u32 {
        let function = &self.function;
        match id {
            r::STATUS if function.is_silent(env) => stored | self.status() | status::TXOFF,
            r::STATUS => stored | self.status(),
            r::EECD => self.nvm.eecd(stored),
            r::EITR => stored | function.irq.lock().credits(env, element) << eitr::CREDITS_SHIFT,
            r::ICR | r::ICS => function.irq.lock().causes(),
            r::IMS | r::IMC => function.irq.lock().mask(),
            r::EICS => 0,
            r::EIMS | r::EIMC | r::EIAC | r::EIAM => {
                let own = match id {
                    r::EIMS | r::EIMC => function.irq.lock().extended_mask(),
                    _ => stored,
                };
                let (of_vfs, whose) = self.peek_of_vfs(id);
                own & !whose | of_vfs
            }
            r::FRTIMER => {
                let micros = env.clock.now() / 1_000;
                let (millis, seconds) = (micros / 1_000, micros / 1_000_000);
                let seconds = seconds & frtimer::SECONDS;
                ((micros % 1_000)
                    | (millis % 1_000) << frtimer::MILLIS_SHIFT
                    | seconds << frtimer::SECONDS_SHIFT) as u32
            }
            _ => stored,
        }
    }
}
