//! Flow control: pause frames in both directions (manual §8.7, IEEE 802.3 annex 31B).
//!
//! The receive side meets them on whatever thread brings frames; the transmitter looks here before
//! it sends, and is woken through the NIC's timer.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use intel::flow::{self, ControlFrame, HEAD, Ids, RFCE, Silence, TFCE};
use model::{Env, Nanos};
use regs::File;

use crate::core::fifo::Fifo;
use crate::regs as r;
use crate::regs::bits::fcrtl;

pub(crate) static IDS: Ids = intel::flow_ids!(r);

/// Pause frames that the transmitter owes the wire.
pub(crate) mod owed {
    /// The FIFO has filled up to FCRTH.
    pub const XOFF: u8 = 1;
    /// It has emptied down to FCRTL.
    pub const XON: u8 = 2;
    /// TCTL.SWXOFF.
    pub const SOFTWARE: u8 = 4;
    pub const ALL: u8 = XOFF | XON | SOFTWARE;
}

/// What receive and transmit side share about it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Flow {
    /// What the partner asked for.
    pub silence: Silence,
    pub owed: AtomicU8,
    /// The FIFO was at FCRTH and has not been at FCRTL since.
    pub high: AtomicBool,
    /// Nanoseconds per ten bits at the resolved speed.
    pub ten_bits: AtomicU32,
}

/// Tells MAC control frames from others, by their first bytes.
pub(crate) fn control_frame(file: &File, head: &[u8; HEAD]) -> Option<ControlFrame> {
    flow::control_frame(file, &IDS, head)
}

impl Flow {
    /// The speed of the wire, as STATUS encodes it: 10, 100 or 1000 Mb/s.
    pub(crate) fn set_speed(&self, speed: u32) {
        let ten_bits = [1000, 100, 10][speed.min(2) as usize];
        self.ten_bits.store(ten_bits, Ordering::Release);
    }

    /// Forgets everything but the speed (CTRL.RST).
    pub(crate) fn reset(&self) {
        self.silence.set(None);
        self.owed.store(0, Ordering::Release);
        self.high.store(false, Ordering::Release);
    }

    /// Whether no pause frame is owed or was received, so that there is nothing to look at.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.owed.load(Ordering::Acquire) == 0 && self.silence.until().is_none()
    }

    /// Whether the transmitter is silent at the partner's wish (STATUS.TXOFF).
    pub(crate) fn paused(&self, file: &File, env: &Env) -> bool {
        let until = self.silence.until();
        until.is_some_and(|until| file.get(r::CTRL) & RFCE != 0 && env.clock.now() < until)
    }

    /// Obeys a pause frame. Returns when the transmitter is to look again.
    pub(crate) fn obey(&self, env: &Env, quanta: u16) -> Nanos {
        let ten_bits = Nanos::from(self.ten_bits.load(Ordering::Acquire));
        self.silence.ask(env.clock.now(), quanta, ten_bits)
    }

    /// The FIFO has taken frames in or let them go, and may have lost some. Returns whether the
    /// transmitter owes the wire something new.
    pub(crate) fn watch(&self, file: &File, fifo: &Fifo, lost: bool) -> bool {
        let fill = fifo.fill();
        let high = self.high.load(Ordering::Acquire);
        let owes = if high && fill <= bytes(file.get(r::FCRTL)) {
            self.high.store(false, Ordering::Release);
            let xon = file.get(r::FCRTL) & fcrtl::XONE != 0;
            if xon { owed::XON } else { 0 }
        } else if high && lost {
            // Once more, should the first not have got through (manual §8.7.5).
            owed::XOFF
        } else if !high && fill >= bytes(file.get(r::FCRTH)) && bytes(file.get(r::FCRTH)) > 0 {
            self.high.store(true, Ordering::Release);
            owed::XOFF
        } else {
            0
        };
        if owes == 0 || file.get(r::CTRL) & TFCE == 0 {
            return false;
        }
        self.owe(owes);
        true
    }

    /// Notes a frame for the transmitter. XON and XOFF take the place of each other.
    pub(crate) fn owe(&self, what: u8) {
        let keep = match what {
            owed::XOFF => !owed::XON,
            owed::XON => !owed::XOFF,
            _ => owed::ALL,
        };
        let both = |old: u8| Some(old & keep | what);
        // The closure never refuses.
        let _ = self
            .owed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, both);
    }
}

/// A threshold in bytes.
fn bytes(register: u32) -> usize {
    (register & fcrtl::THRESHOLD) as usize
}
