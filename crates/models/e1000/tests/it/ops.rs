//! What may be done to a NIC, and strategies that do it.

use hypernic_e1000::regs;
use model::Nanos;
use proptest::prelude::*;

use super::common::*;

/// Guest memory of a script: small, so that all of it can be compared at every step.
pub const BASE: u64 = 0x10_0000;
pub const SIZE: u64 = 0x2_0000;
pub const TX: u64 = BASE;
pub const RX: u64 = BASE + 0x1000;
pub const TX_DATA: u64 = BASE + 0x2000;
pub const RX_DATA: u64 = BASE + 0x1_0000;
pub const RING: u32 = 16;

/// What is done to the NIC.
#[derive(Clone, Debug)]
pub enum Op {
    /// A register access of the guest; with `work`, what it noted is done.
    Write {
        bar: u8,
        offset: u64,
        data: Vec<u8>,
        work: bool,
    },
    Read {
        bar: u8,
        offset: u64,
        len: usize,
    },
    /// Rings, enables and masks as a driver sets them up.
    Driver {
        rctl: u32,
        delays: [u16; 4],
        itr: u16,
    },
    /// Descriptors at the tail, which then moves behind them; the last may lack its end.
    Send {
        descs: Vec<(u64, u64)>,
        data: u8,
        work: bool,
    },
    /// A packet to be cut into segments, of which so many find room at first.
    Segments {
        len: u32,
        mss: u16,
        room: usize,
    },
    /// A ring full of a packet without an end.
    Endless,
    /// What a driver's handler does: asks why, and looks at both rings.
    Handle,
    /// Buffers handed over.
    Give {
        count: u32,
        work: bool,
    },
    /// Frames from the wire: destination, length, tag.
    Receive(Vec<(u8, usize, bool)>),
    /// A pause frame from the wire.
    Pause(u16),
    /// The wire has room for so many frames more.
    Room(usize),
    Sleep(Nanos),
    Cable(bool),
    Reset,
    Pci {
        bus_master: bool,
        msi: bool,
    },
    /// Levels of the EEPROM's wires, one after the other.
    Eeprom(Vec<u8>),
    Mdic {
        reg: u32,
        write: Option<u16>,
    },
}

fn word(offset: u64, value: u32, work: bool) -> Op {
    let data = value.to_le_bytes().to_vec();
    Op::Write {
        bar: 0,
        offset,
        data,
        work,
    }
}

/// Registers of which most is to be feared.
const FAVOURITES: [u64; 26] = [
    reg::CTRL,
    reg::EECD,
    reg::EERD,
    reg::MDIC,
    reg::ICR,
    reg::ITR,
    reg::ICS,
    reg::IMS,
    reg::IMC,
    reg::RCTL,
    reg::TCTL,
    reg::RDH,
    reg::RDT,
    reg::RDTR,
    reg::RADV,
    reg::TDH,
    reg::TDT,
    reg::TIDV,
    reg::TADV,
    reg::RXCSUM,
    0x3828, // TXDCTL
    0x2c00, // RSRPD
    0x1000, // PBA
    reg::VFTA,
    0x5800, // WUC
    0x5808, // WUFC
];

fn value() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0..64u32,
        (0..32u32).prop_map(|bit| 1 << bit),
        Just(u32::MAX),
    ]
}

fn any_register() -> impl Strategy<Value = u64> {
    (0..regs::REGISTERS.len(), any::<u32>()).prop_map(|(index, element)| {
        let register = &regs::REGISTERS[index];
        u64::from(register.offset + element % register.count * register.stride)
    })
}

fn desc() -> impl Strategy<Value = (u64, u64)> {
    let addr = prop_oneof![
        9 => (0..0x4000u64).prop_map(|at| TX_DATA + at),
        1 => any::<u64>(),
    ];
    let cmd = prop_oneof![Just(EOP | IFCS | RS), Just(0), Just(RS), any::<u8>()];
    let context = (0..60u32, 0..8u8, 0..80u8, 1..200u16).prop_map(|(paylen, cmd, hdrlen, mss)| {
        Ctx {
            ip: (14, 24, 33),
            tu: (34, 50, 0),
            paylen: paylen * 40,
            cmd,
            hdrlen,
            mss,
        }
        .words()
    });
    prop_oneof![
        4 => (addr.clone(), 0..600u16, cmd.clone()).prop_map(|(a, len, cmd)| (a, legacy(len, cmd & !0x20))),
        3 => (addr, 0..2000u32, cmd, 0..4u8, any::<u16>())
            .prop_map(|(a, len, cmd, popts, tag)| (a, data(len, cmd, popts, tag))),
        2 => context,
        1 => any::<(u64, u64)>(),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let work = prop::bool::weighted(0.9);
    let favourite = prop::sample::select(FAVOURITES.to_vec());
    let delay = prop_oneof![Just(0u16), 1..200u16];
    prop_oneof![
        6 => (favourite.clone(), value(), work).prop_map(|(o, v, work)| word(o, v, work)),
        2 => (any_register(), value(), work).prop_map(|(o, v, work)| word(o, v, work)),
        1 => (0..2u8, 0..0x2_0000u64, prop::collection::vec(any::<u8>(), 1..9), work)
            .prop_map(|(bar, offset, data, work)| Op::Write { bar, offset, data, work }),
        1 => (0..8u64, value()).prop_map(|(offset, value)| Op::Write {
            bar: 1, offset: offset & 4, data: value.to_le_bytes().to_vec(), work: true,
        }),
        3 => favourite.prop_map(|offset| Op::Read { bar: 0, offset, len: 4 }),
        2 => any_register().prop_map(|offset| Op::Read { bar: 0, offset, len: 4 }),
        1 => (0..2u8, 0..0x2_0000u64, 1..9usize)
            .prop_map(|(bar, offset, len)| Op::Read { bar, offset, len }),
        3 => (any::<u32>(), [delay.clone(), delay.clone(), delay.clone(), delay], 0..3000u16)
            .prop_map(|(rctl, delays, itr)| Op::Driver { rctl, delays, itr }),
        8 => (prop::collection::vec(desc(), 1..6), any::<u8>(), work)
            .prop_map(|(descs, data, work)| Op::Send { descs, data, work }),
        3 => (100..3000u32, 60..400u16, 0..12usize)
            .prop_map(|(len, mss, room)| Op::Segments { len, mss, room }),
        1 => Just(Op::Endless),
        4 => Just(Op::Handle),
        3 => (1..8u32, work).prop_map(|(count, work)| Op::Give { count, work }),
        6 => prop::collection::vec((0..4u8, 14..1700usize, any::<bool>()), 1..6)
            .prop_map(Op::Receive),
        3 => (0..40usize).prop_map(Op::Room),
        2 => pause(),
        6 => prop_oneof![0..2_000_000u64, 0..40_000u64, Just(12_000_000)].prop_map(Op::Sleep),
        1 => any::<bool>().prop_map(Op::Cable),
        1 => Just(Op::Reset),
        1 => (prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(bus_master, msi)| Op::Pci { bus_master, msi }),
        3 => prop::collection::vec(0..8u8, 1..40).prop_map(Op::Eeprom),
        2 => (prop_oneof![Just(0), 0..32u32], prop::option::of(any::<u16>()))
            .prop_map(|(reg, write)| Op::Mdic { reg, write }),
    ]
}

fn pause() -> impl Strategy<Value = Op> {
    prop_oneof![0..10u16, 0..1000u16, Just(u16::MAX)].prop_map(Op::Pause)
}

/// A microwire command, or the beginning of one: the next goes on where it ends.
fn eeprom_command() -> impl Strategy<Value = Op> {
    let address = 0..64u32;
    let (ewen, eral) = ((0b1_0011_0000, 9), (0b1_0010_0000, 9));
    let command = prop_oneof![
        3 => Just(ewen),
        1 => Just(eral),
        3 => address.clone().prop_map(|at| ((0b110 << 6 | at) << 16, 25)),
        3 => (address, any::<u16>())
            .prop_map(|(at, value)| ((0b101 << 6 | at) << 16 | u32::from(value), 25)),
        1 => any::<u16>().prop_map(|value| (0b1_0001_0000 << 16 | u32::from(value), 25)),
    ];
    (command, prop::option::weighted(0.3, 0..80usize), 0..3u8).prop_map(
        |((bits, count), cut, begin): ((u32, u32), _, _)| {
            let mut levels = if begin == 0 { vec![0, 2] } else { Vec::new() };
            for bit in (0..count).rev() {
                let data = 2 | if bits >> bit & 1 == 1 { 4 } else { 0 };
                levels.extend([data, data | 1, data]);
            }
            if begin == 1 {
                // The clock rises at once.
                levels.remove(0);
            }
            match cut {
                Some(cut) => levels.truncate(cut),
                None => levels.push(0),
            }
            Op::Eeprom(levels)
        },
    )
}

/// What goes on beside the rings: the serial buses, the I/O window, the link.
pub fn serial_op() -> impl Strategy<Value = Op> {
    let reg = prop_oneof![Just(0), 0..32u32];
    let bmcr = prop::sample::select(vec![0x1140, 0x1340, 0x4140, 0x1940, 0x9140, 0x0140]);
    prop_oneof![
        8 => eeprom_command(),
        2 => prop::collection::vec(0..8u8, 1..20).prop_map(Op::Eeprom),
        4 => (reg, prop::option::of(any::<u16>()))
            .prop_map(|(reg, write)| Op::Mdic { reg, write }),
        3 => bmcr.prop_map(|value| Op::Mdic { reg: 0, write: Some(value) }),
        2 => Just(Op::Mdic { reg: 1, write: None }),
        2 => (0..0x6000u32).prop_map(|at| Op::Write {
            bar: 1, offset: 0, data: at.to_le_bytes().to_vec(), work: true,
        }),
        2 => value().prop_map(|value| Op::Write {
            bar: 1, offset: 4, data: value.to_le_bytes().to_vec(), work: true,
        }),
        2 => Just(Op::Read { bar: 1, offset: 4, len: 4 }),
        2 => (0..16384u64, value()).prop_map(|(at, v)| word(0x1_0000 + at * 4, v, true)),
        2 => any::<bool>().prop_map(Op::Cable),
        2 => (0..12_000_000u64).prop_map(Op::Sleep),
        2 => pause(),
        1 => Just(Op::Reset),
        2 => Just(word(reg::CTRL, 0x40, true)),
        2 => Just(Op::Read { bar: 0, offset: reg::STATUS, len: 4 }),
        2 => Just(Op::Segments { len: 400, mss: 100, room: 100 }),
        1 => any::<u32>().prop_map(|rctl| Op::Driver { rctl, delays: [0; 4], itr: 0 }),
    ]
}

/// Interrupts and all that delays them, close together.
pub fn interrupt_op() -> impl Strategy<Value = Op> {
    let cause = prop::sample::select(vec![1u32, 2, 4, 0x10, 0x80, 0x81, 0x8000, 0x1_ffff]);
    let delays = [reg::RDTR, reg::RADV, reg::TIDV, reg::TADV];
    let delay = (prop::sample::select(delays.to_vec()), 0..150u32);
    let desc = (TX_DATA, legacy(60, EOP | IFCS | RS));
    let late = (TX_DATA, legacy(60, EOP | IFCS | RS | IDE));
    prop_oneof![
        4 => (0..400_000u64).prop_map(Op::Sleep),
        2 => (0..4_000_000u64).prop_map(Op::Sleep),
        6 => Just(Op::Handle),
        3 => Just(Op::Receive(vec![(0, 100, false)])),
        3 => prop::collection::vec(prop_oneof![Just(desc), Just(late)], 1..14)
            .prop_map(|descs| Op::Send { descs, data: 1, work: true }),
        2 => cause.clone().prop_map(|bits| word(reg::ICS, bits, true)),
        2 => cause.clone().prop_map(|bits| word(reg::IMS, bits, true)),
        1 => cause.clone().prop_map(|bits| word(reg::IMC, bits, true)),
        1 => cause.prop_map(|bits| word(reg::ICR, bits, true)),
        1 => prop_oneof![Just(0), 100..3000u32].prop_map(|v| word(reg::ITR, v, true)),
        2 => delay.prop_map(|(at, v)| word(at, v, true)),
        1 => Just(word(reg::RDTR, 1 << 31, true)),
        2 => prop::sample::select(vec![0x40c0, 0x40c4, 0x40c8, 0x40cc])
            .prop_map(|offset| Op::Read { bar: 0, offset, len: 4 }),
        2 => (1..8u32).prop_map(|count| Op::Give { count, work: true }),
        1 => any::<bool>().prop_map(|msi| Op::Pci { bus_master: true, msi }),
        1 => any::<bool>().prop_map(Op::Cable),
        1 => Just(Op::Room(100)),
        2 => pause(),
        2 => Just(Op::Receive(vec![(0, 1500, false); 6])),
    ]
}
