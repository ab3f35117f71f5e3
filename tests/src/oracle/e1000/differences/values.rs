//! Differences in what registers read, from which nothing follows.

use super::super::context::reg;
use super::evidence::{eeprom_reading, ever, since_clear, then, writes_bits, written};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::script::Op;

/// Registers of the manual that QEMU does not have: they read 0 there.
const ABSENT: [u32; 19] = [
    // CTRL_DUP, which only a read of 8 bytes at CTRL reaches.
    0x4, 0x18, 0x1c, 0x28, 0x2c, 0x30, 0x170, 0x178, 0x180, 0x410, 0x2160, 0x2168, 0x2828, 0x2c00,
    0x3000, 0x3820, 0x3830, 0x5000, 0x5900,
];

/// Registers that QEMU 11 answers with 0 although it still writes and counts into them: it lost them
/// with its `extra_mac_registers` property.
fn lost(at: u32) -> bool {
    matches!(at,
        0x0458 | 0x2410..=0x2430 | 0x3410..=0x3430 | 0x4014..=0x4020 | 0x4028..=0x4070
        | 0x4078..=0x407c | 0x4088..=0x4094 | 0x40a0..=0x40bc | 0x40d8..=0x40fc
        | 0x5800 | 0x5810 | 0x5838..=0x5858 | 0x5880..=0x588c | 0x5a00..=0x5a7c
        | 0x5f00..=0x5f18 | 0x9000..=0x9bff)
}

/// Values before anything is written that come from the board's EEPROM or are undefined.
const BOARD: [u32; 2] = [reg::CTRL, 0x0e00];

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn list() -> Vec<Difference> {
    let value = Difference::value;
    vec![
        value(
            "reserved-bits",
            Hypernic,
            "13.4",
            "QEMU keeps bits that the manual reserves; ours read 0",
            |step, diff| {
                let Some(at) = diff.register() else { return 0 };
                let (Some(mask), Some(written)) =
                    (step.before.chip.writable(at), written(step, at))
                else {
                    return 0;
                };
                u64::from(!mask & (written | !(diff.theirs as u32)))
            },
        ),
        value(
            "absent-registers",
            Hypernic,
            "13.4",
            "QEMU lacks 19 registers, the second CTRL among them; they read 0 there",
            |_, diff| match diff.register() {
                Some(at) if ABSENT.contains(&at) && diff.theirs == 0 => !0,
                _ => 0,
            },
        ),
        value(
            "lost-registers",
            Hypernic,
            "13.4",
            "QEMU 11 answers reads of diagnostic and wake-up registers and of half the statistics with 0",
            |_, diff| match diff.register() {
                Some(at) if lost(at) && diff.theirs == 0 => !0,
                _ => 0,
            },
        ),
        value(
            "eeprom-words",
            Both,
            "5.6",
            "the board maker chooses the words of the EEPROM, except the address and the checksum",
            |step, diff| match diff.register() {
                Some(reg::EERD) if (then(step, diff).get(reg::EERD) >> 8 & 0xff) >= 3 => {
                    0xffff_0000
                }
                _ => 0,
            },
        ),
        value(
            "mdic-nobody",
            Hypernic,
            "13.4.7",
            "for a PHY that does not exist, QEMU's MDIC shows the previous command",
            |step, diff| match diff.register() {
                Some(reg::MDIC) if then(step, diff).get(reg::MDIC) >> 21 & 0x1f != 1 => {
                    !0x5000_0000
                }
                Some(reg::ICR | reg::ICS)
                    if since_clear(
                        step,
                        diff,
                        |op| matches!(op, Op::Write { at: reg::MDIC, value, .. } if value >> 21 & 0x1f != 1),
                    ) =>
                {
                    // The command before may have asked for an interrupt.
                    let asked = |op: &Op| writes_bits(op, reg::MDIC, 1 << 29);
                    let again = if ever(step, asked) { diff.theirs } else { 0 };
                    (diff.ours ^ again) & 0x200
                }
                _ => 0,
            },
        ),
        value(
            "phy-values",
            Both,
            "13.4.7.1",
            "the makers choose what the PHY and its partner offer, and BMSR's negotiation complete bit before negotiation was started",
            |step, diff| {
                let command = then(step, diff).get(reg::MDIC);
                match diff.register() {
                    Some(reg::MDIC) if command >> 26 & 3 == 2 && command >> 21 & 31 == 1 => {
                        match command >> 16 & 31 {
                            1 => 0x24,
                            4 | 5 | 6 | 9 | 10 => 0xffff,
                            _ => 0,
                        }
                    }
                    _ => 0,
                }
            },
        ),
        value(
            "status-forced",
            Hypernic,
            "13.4.2",
            "QEMU's STATUS does not show a forced speed or duplex",
            |step, diff| {
                let (ctrl, forced) = (
                    then(step, diff).get(reg::CTRL),
                    diff.register() == Some(reg::STATUS),
                );
                let speed = if ctrl & 0x800 != 0 { 0x3c0 } else { 0 };
                let duplex = if ctrl & 0x1000 != 0 { 1 } else { 0 };
                if forced { speed | duplex } else { 0 }
            },
        ),
        value(
            "mdic-error",
            Hypernic,
            "13.4.7",
            "QEMU reports an error for PHY registers that it lacks and for writes to read-only ones; E means a PHY that does not answer",
            |step, diff| {
                let command = then(step, diff).get(reg::MDIC);
                let failed = diff.theirs & 0x4000_0000 != 0 && diff.ours & 0x4000_0000 == 0;
                match diff.register() {
                    Some(reg::MDIC) if command >> 21 & 31 == 1 && failed => 0x4000_ffff,
                    _ => 0,
                }
            },
        ),
        value(
            "phy-interrupt",
            Hypernic,
            "13.4.17",
            "QEMU's PHY raises no interrupts (PHYINT): it has no register 18 to enable them by",
            |step, diff| {
                let enabled = |op: &Op| {
                    matches!(op, Op::Write { at: reg::MDIC, value, .. }
                        if value >> 26 & 3 == 1 && value >> 16 & 0x3ff == 0x32 && value & 0xffff != 0)
                };
                match diff.register() {
                    Some(reg::ICR | reg::ICS) if ever(step, enabled) => {
                        diff.ours & !diff.theirs & 0x1000
                    }
                    _ => 0,
                }
            },
        ),
        value(
            "mdic-opcode",
            Both,
            "13.4.7",
            "the opcodes 00b and 11b are reserved: ours answers with an error, QEMU does nothing or reads",
            |step, diff| match diff.register() {
                Some(reg::MDIC) if matches!(then(step, diff).get(reg::MDIC) >> 26 & 3, 0 | 3) => !0,
                _ => 0,
            },
        ),
        value(
            "board-values",
            Both,
            "5.6",
            "the board's EEPROM sets CTRL, LEDCTL and MANC before the driver writes them",
            |step, diff| match diff.register() {
                Some(at) if BOARD.contains(&at) && step.after.written(at).is_none() => !0,
                _ => 0,
            },
        ),
        value(
            "manc",
            Hypernic,
            "13.4",
            "QEMU's MANC cannot be written",
            |_, diff| match diff.register() {
                Some(0x5820) => !0,
                _ => 0,
            },
        ),
        value(
            "status-reserved",
            Hypernic,
            "13.4.2",
            "QEMU's STATUS has bits 31 and 19, which the 82540EM reserves",
            |_, diff| match diff.register() {
                Some(reg::STATUS) => diff.theirs & 0x8008_0000,
                _ => 0,
            },
        ),
        value(
            "status-asdv",
            Both,
            "13.4.2",
            "ASDV 10b and 11b both mean 1000 Mb/s",
            |_, diff| match diff.register() {
                Some(reg::STATUS) if diff.ours & diff.theirs & 0x200 != 0 => 0x100,
                _ => 0,
            },
        ),
        value(
            "eecd-idle",
            Hypernic,
            "13.4.3",
            "QEMU grants the EEPROM without a request, drives DO while nothing is read, and starts with SK, CS and DI high",
            |step, diff| {
                if diff.register() != Some(reg::EECD) {
                    return 0;
                }
                let wires = then(step, diff).written(reg::EECD);
                let fresh = if wires.is_none() { 7 } else { 0 };
                let grant = if wires.unwrap_or(0) & 0x40 == 0 {
                    0x80
                } else {
                    0
                };
                let out = if eeprom_reading(step) { 0 } else { 8 };
                diff.theirs & (fresh | grant | out)
            },
        ),
        value(
            "swsm",
            Both,
            "none",
            "the 82540EM has no SWSM: ours takes the semaphore when read, as later chips do",
            |_, diff| match diff.register() {
                Some(0x5b50) => 1,
                _ => 0,
            },
        ),
    ]
}
