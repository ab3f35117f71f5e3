//! What is read at the end of a script, and which registers count what.

use std::collections::BTreeSet;

use e1000::regs::{self, WINDOW};

use crate::oracle::script::{Op, Script};

/// What is read at the end of a script: every register, and of arrays the first element and those
/// that the script touched. ICR comes last, since reading it moves the line.
pub(super) fn sweep(script: &Script) -> Vec<u32> {
    let mut offsets = BTreeSet::new();
    for register in regs::REGISTERS {
        if register.offset != ICR && register.name != "PBM" {
            offsets.insert(register.offset);
        }
    }
    for op in &script.ops {
        if let Op::Write { at, size, .. } = op {
            let last = at.saturating_add(u32::from(*size).saturating_sub(1));
            for at in [at & !3, last & !3] {
                if at < PBM.min(WINDOW) && at != ICR {
                    offsets.insert(at);
                }
            }
        }
    }
    offsets.into_iter().chain([ICR]).collect()
}

/// Interrupt cause read, which a read clears.
pub(super) const ICR: u32 = 0xc0;
/// Packet buffer memory: what stands there is the past of each device.
const PBM: u32 = 0x1_0000;

/// Whether a statistics register counts what is received.
pub(super) fn counts_received(at: u32) -> bool {
    matches!(at,
        0x4000..=0x4010 | 0x4040 | 0x4048 | 0x4050 | 0x4058..=0x407c | 0x4088..=0x408c
        | 0x40a0..=0x40b4 | 0x40c0..=0x40c4 | 0x40d0)
}

/// Whether a statistics register counts what is sent.
pub(super) fn counts_sent(at: u32) -> bool {
    matches!(at, 0x4080 | 0x4090..=0x4094 | 0x40c8..=0x40cc | 0x40d4..=0x40fc)
}
