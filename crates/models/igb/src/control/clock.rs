//! The registers of the clock of IEEE 1588 (§8.16).

use model::Env;
use regs::Id;

use crate::control::Registers;
use crate::core::ptp::Ptp;
use crate::regs as r;

/// What a read gives, of a clock that it may change.
fn read(ptp: &mut Ptp, env: &Env, id: Id, stored: u32) -> u32 {
    match id {
        r::SYSTIML => ptp.read_low(env.clock.now()),
        r::SYSTIMH => ptp.read_high(),
        r::TSYNCTXCTL => stored | ptp.sent_valid(),
        r::TXSTMPL => ptp.sent_low(),
        r::TXSTMPH => ptp.take_sent_high(),
        r::TSYNCRXCTL => stored | ptp.received_valid(),
        r::RXSTMPL => ptp.received_low(),
        r::RXSTMPH => ptp.take_received_high(),
        r::RXSATRL => ptp.attributes().0,
        r::RXSATRH => ptp.attributes().1,
        _ => stored,
    }
}

impl Registers {
    pub(super) fn read_clock(&mut self, env: &Env, id: Id, stored: u32) -> u32 {
        read(&mut self.function.ptp.lock(), env, id, stored)
    }

    /// The same without what a read does.
    pub(super) fn peek_clock(&self, env: &Env, id: Id, stored: u32) -> u32 {
        let mut ptp = self.function.ptp.lock().clone();
        read(&mut ptp, env, id, stored)
    }

    pub(super) fn write_clock(&mut self, env: &Env, id: Id, value: u32, stored: u32) {
        let now = env.clock.now();
        let mut ptp = self.function.ptp.lock();
        match id {
            r::SYSTIML => ptp.write_low(now, value),
            r::SYSTIMH => ptp.write_high(now, value),
            r::TIMINCA => ptp.set_timinca(now, stored),
            r::TIMADJL => ptp.set_adjust_low(value),
            r::TIMADJH => ptp.adjust(now, value),
            _ => {}
        }
    }
}
