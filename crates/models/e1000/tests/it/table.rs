//! A walk over the register table: how many there are, accesses of every width and alignment,
//! second addresses, 64-bit statistics, the packet buffer.

use crate::common::*;
use hypernic_e1000::regs::{ALIASES, REGISTERS};
use regs::{Access, Register, Status};

/// Registers that read other than written, for reasons of their own; tested one by one.
const LIVE: [&str; 8] = [
    "EECD", "PBA", "SWSM", "WUS", "CTRL_EXT", "WUC", "CSBAL", "CSBAH",
];

fn plain(register: &Register) -> bool {
    let memory = matches!(register.access, Access::ReadWrite | Access::Memory);
    memory && !LIVE.contains(&register.name)
}

#[test]
fn all_registers_of_the_summary_are_there() {
    let beyond = ["MANC", "SWSM", "CSBAL", "CSBAH"];
    let summary = REGISTERS.iter().filter(|r| !beyond.contains(&r.name));
    assert_eq!(summary.count(), 131);
    for register in REGISTERS {
        assert!(
            !matches!(register.status, Status::Absent(_)),
            "{}",
            register.name
        );
        if let Status::Stored(why) = register.status {
            assert!(why.len() > 10, "{} lacks a reason", register.name);
        }
    }
    assert_eq!(ALIASES.len(), 23);
}

/// Writes of 1, 2, 4 and 8 bytes at every alignment reach the bytes they cover and no others;
/// reads of all widths agree.
#[test]
fn every_width_and_alignment_reaches_its_bytes() {
    let mut m = Machine::default();
    for register in REGISTERS.iter().filter(|r| plain(r)) {
        for element in [0, register.count - 1] {
            let at = u64::from(register.offset + element * register.stride);
            for width in [1usize, 2, 4, 8] {
                for shift in 0..4u64 {
                    // Behind CTRL stands its duplicate.
                    if register.name == "CTRL" && shift as usize + width > 4 {
                        continue;
                    }
                    m.w(at, 0);
                    let fixed = m.r(at) & !register.mask;
                    // Never CTRL.RST nor PHY_RST.
                    let data: Vec<u8> = (0..width as u8).map(|i| 0x5b ^ i << 3 & 0x7b).collect();
                    m.nic.control.write(&m.env, 0, at + shift, &data);
                    let mut want = 0u32;
                    for (i, byte) in data.iter().enumerate() {
                        let place = shift as usize + i;
                        if place < 4 {
                            want |= u32::from(*byte) << (8 * place);
                        }
                    }
                    let want = (want & register.mask | fixed).to_le_bytes();
                    let name = format!("{}[{element}] {width} bytes at +{shift}", register.name);
                    assert_eq!(m.r(at).to_le_bytes(), want, "{name}");
                    let mut back = vec![0; width];
                    m.nic.control.read(&m.env, 0, at + shift, &mut back);
                    for (i, byte) in back.iter().enumerate().take(4 - shift as usize) {
                        assert_eq!(*byte, want[shift as usize + i], "{name}, read back");
                    }
                }
            }
            m.w(at, 0);
        }
    }
}

#[test]
fn second_addresses_are_the_registers_themselves() {
    let mut m = Machine::default();
    for alias in ALIASES {
        let register = &REGISTERS[alias.of.index()];
        for element in 0..register.count {
            let step = element * register.stride;
            let (here, there) = (
                u64::from(alias.offset + step),
                u64::from(register.offset + step),
            );
            m.w(here, 0x5a5a_5a5a & !(1 << 26 | 1 << 31));
            let value = m.r(there);
            assert_eq!(value & register.mask, 0x5a5a_5a5a & register.mask);
            assert_eq!(m.r(here), value, "{}", alias.name);
            m.w(there, 0);
            assert_eq!(m.r(here), m.r(there), "{}", alias.name);
        }
    }
}

#[test]
fn second_addresses_act_as_the_registers_do() {
    // A 82542 driver's transmit ring, from its base to its doorbell.
    let mut m = Machine::default();
    let ctrl = m.r(4);
    m.w(4, ctrl | 1 << 6);
    m.w(0x420, TX_RING as u32);
    m.w(0x428, 8 * 16);
    m.w(reg::TCTL, 2);
    m.poke(TX_BUFFERS, &crate::common::plain(PEER, 60));
    m.tx_desc(0, TX_BUFFERS, legacy(60, EOP | RS));
    m.w(0x438, 1);
    assert_eq!(m.wire.take().len(), 1);
    assert_eq!(m.r(0x430), 1);
    // The duplicate of CTRL resets (driver e1000_hw.c, 82545 revision 3 and 82546).
    m.w(reg::VET, 0x1234);
    m.w(4, 1 << 26);
    assert_eq!(m.r(reg::VET), 0x8100);
}

/// Manual §13.7: a pair is cleared when its high half is read.
#[test]
fn wide_statistics_clear_with_their_high_half() {
    for (low, loop_back) in [
        (0x4088, true),
        (0x4090, false),
        (0x40c0, true),
        (0x40c8, false),
    ] {
        let mut m = Machine::default();
        m.rx_on(8, 0x8000);
        m.tx_on(8);
        if loop_back {
            m.offer(&[&crate::common::plain(MAC, 100)]);
        } else {
            m.poke(TX_BUFFERS, &crate::common::plain(PEER, 100));
            m.tx_desc(0, TX_BUFFERS, legacy(100, EOP | RS | IFCS));
            m.w(reg::TDT, 1);
        }
        assert_eq!(m.r(low), 104, "{low:#x}");
        assert_eq!(m.r(low), 104, "{low:#x}: the low half clears nothing");
        assert_eq!(m.r(low + 4), 0);
        assert_eq!(m.r(low), 0, "{low:#x}: cleared by the high half");
    }
}

#[test]
fn the_semaphore_is_taken_by_reading_it() {
    let mut m = Machine::default();
    let swsm = 0x5b50;
    assert_eq!(m.r(swsm) & 1, 0, "free, and now ours");
    assert_eq!(m.r(swsm) & 1, 1);
    // The second lock, as e1000_get_hw_eeprom_semaphore takes it.
    m.w(swsm, 3);
    assert_eq!(m.r(swsm) & 2, 2);
    m.w(swsm, 0);
    assert_eq!(m.r(swsm), 0);
    m.w(reg::CTRL, 1 << 26);
    assert_eq!(m.r(swsm), 0, "a reset frees it");
}

#[test]
fn the_packet_buffer_is_plain_memory() {
    let mut m = Machine::default();
    for at in (0x1_0000..0x2_0000).step_by(4) {
        m.w(at, at as u32 ^ 0x1234_5678);
    }
    for at in (0x1_0000..0x2_0000).step_by(4) {
        assert_eq!(m.r(at), at as u32 ^ 0x1234_5678);
    }
    m.nic.control.write(&m.env, 0, 0x1_fffd, &[1, 2, 3, 4, 5]);
    assert_eq!(m.r(0x1_fffc), 0x0302_0184);
}
