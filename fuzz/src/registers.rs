//! Register scripts: any access at any width, in any order, with time, frames and resets between.

use model::PciState;
use wire::Offload;

use crate::input::{Input, seldom};
use crate::machine::{
    BUFFERS, Life, MAC, Machine, OFFSETS, RAM, RAM_LEN, TX_RING, reg, some_frame,
};

/// The register side of an e1000 in front of a small guest memory.
///
/// The first byte chooses: bit 0 runs the script on a second NIC that has had another life before,
/// and both must look the same from outside.
pub fn registers(data: &[u8]) {
    let mut input = Input::new(data);
    let twice = input.u8() & 1 != 0 && seldom(data);
    let rest = input.rest();
    let mut first = script(rest, Life::default());
    if twice {
        let used = Life {
            used: true,
            ..Life::default()
        };
        let mut second = script(rest, used);
        assert_eq!(
            first.seen(),
            second.seen(),
            "what an earlier driver left is visible"
        );
    }
}

pub(crate) fn script(data: &[u8], life: Life) -> Machine {
    let mut m = life.begin();
    go_on(&mut m, data, life);
    m
}

pub(crate) fn go_on(m: &mut Machine, data: &[u8], life: Life) {
    let input = &mut Input::new(data);
    let offsets = &OFFSETS;
    let mut room = Vec::new();
    // Longer programs find nothing that these do not.
    for operation in 0..256 {
        let Some(op) = input.op() else { break };
        match op % 16 {
            0 | 1 => {
                m.read(offsets[usize::from(input.u8()) % offsets.len()]);
            }
            2..=4 => {
                let at = offsets[usize::from(input.u8()) % offsets.len()];
                m.write(at, input.value());
            }
            5 => {
                let (bar, at, len) = place(input);
                m.read_bytes(bar, at, &mut [0; 16][..len]);
            }
            6 => {
                let (bar, at, len) = place(input);
                let mut data = [0; 16];
                let given = input.bytes(len);
                data[..given.len()].copy_from_slice(given);
                m.write_bytes(bar, at, &data[..len]);
            }
            7 => match input.u8() {
                0 => m.tick(),
                n => m.sleep(u64::from(n) << (op >> 4)),
            },
            8 => {
                let notes = some_frame(input, &mut room);
                m.receive(&[(&room, notes)]);
            }
            9 => match op >> 4 {
                0..4 => m.set_link(op & 0x10 != 0),
                4..8 => m.reset(),
                _ => {
                    let power = input.u8();
                    let pme = model::PmeWrite {
                        enable: power & 4 != 0,
                        clear: power & 8 != 0,
                    };
                    m.set_pci(PciState {
                        bus_master: op & 0x10 != 0,
                        msi: op & 0x20 != 0,
                        msix: op & 0x40 != 0,
                        d3: power & 1 != 0,
                        vfs: u16::from(power >> 4),
                        pme: (power & 2 != 0).then_some(pme),
                    });
                }
            },
            10 => {
                m.tx_on(8 << (op >> 4 & 3));
                let cmd = u64::from(input.u8());
                let len = u64::from(input.u16());
                m.tx_desc(0, BUFFERS, len | cmd << 24 | u64::from(input.u32()) << 32);
            }
            11 => m.rx_on(8 << (op >> 4 & 3), input.value()),
            12 => {
                let at = RAM + u64::from(input.u16()) % RAM_LEN;
                let len = usize::from(input.u8() % 64);
                m.poke(at, input.bytes(len));
            }
            13 => {
                // The PHY's registers, through MDIC.
                let (phy, value) = (u32::from(input.u8()), u32::from(input.u16()));
                let command = if op & 0x10 != 0 { 1 } else { 2 };
                m.write(0x20, command << 26 | 1 << 21 | (phy & 31) << 16 | value);
                m.read(0x20);
            }
            14 => {
                // The EEPROM's wires: select, clock, data in.
                for bit in 0..u32::from(op >> 4) + 1 {
                    let wires = u32::from(input.u8() & 0x0f);
                    m.write(0x10, wires | bit & 1 | 0x40);
                }
                m.read(0x10);
            }
            _ => match op >> 4 {
                0..8 => {
                    let tail = m.read(reg::TDT);
                    m.write(reg::TDT, tail.wrapping_add(u32::from(op >> 4) + 1));
                }
                _ => {
                    let mut plain = [0x11; 60];
                    plain[..6].copy_from_slice(&MAC);
                    m.poke(TX_RING, &[0; 16]);
                    m.receive(&[(&plain, Offload::NONE)]);
                }
            },
        }
        life.after(operation, m);
    }
}

/// BAR, offset and length of an access that no sane driver would make.
fn place(input: &mut Input<'_>) -> (u8, u64, usize) {
    let shape = input.u8();
    let at = match shape >> 6 {
        0 => u64::from(input.u8()),
        1 => u64::from(input.u16()),
        2 => u64::from(input.u32()) & 0x1_ffff,
        _ => input.u64(),
    };
    let bar = [0, 1, 0, 2][usize::from(shape >> 4 & 3)];
    (bar, at, usize::from(shape & 15) + 1)
}
