//! Our 82540EM and QEMU's `e1000`.

mod context;
mod differences;
mod generate;
mod registers;

use registry::MODELS;

use crate::oracle::chip::{Chip, Line};
use crate::oracle::compare::Parted;
use crate::oracle::layout::{BAR, MAC, TX_BUFFERS, TX_RING};
use crate::oracle::script::Op;
use context::reg;

/// What both machines' CTRL holds when a script begins: link up (SLU), full duplex.
const LINK_UP: u32 = 0x41;

/// Registers read at each look.
const WATCHED: [(u32, &str); 7] = [
    (reg::ICS, "ICS"),
    (reg::IMS, "IMS"),
    (reg::RDH, "RDH"),
    (reg::RDT, "RDT"),
    (reg::TDH, "TDH"),
    (reg::TDT, "TDT"),
    (reg::STATUS, "STATUS"),
];

/// Places among them.
mod watched {
    pub(super) const ICS: usize = 0;
    pub(super) const IMS: usize = 1;
    pub(super) const RDH: usize = 2;
    pub(super) const TDH: usize = 4;
}

/// The 82540EM.
pub static E1000: Chip = Chip {
    name: "82540EM",
    peer: "e1000",
    nic: || MODELS.usual("e1000", MAC).expect("an entry"),
    vfs: 0,
    id: 0x100e_8086,
    config: &[(0x10, BAR as u32), (0x14, 0xc000), (4, 7)],
    // What the EEPROM was told; selecting it does.
    forgotten: &[(reg::EECD, 2), (reg::EECD, 0)],
    table: e1000::regs::table,
    registers: e1000::regs::REGISTERS,
    elsewhere: &[],
    watched: &WATCHED,
    standing: &[(reg::CTRL, LINK_UP)],
    link_up: || vec![Op::write(reg::CTRL, LINK_UP)],
    prologue,
    harmless: |at, value| match at {
        reg::CTRL => value & 0x7bff_ffff | LINK_UP,
        reg::RCTL | reg::TCTL => value & !2,
        _ => value,
    },
    sweep: registers::sweep,
    line: Line::Rule(|look| look.watched[watched::ICS] & look.watched[watched::IMS] != 0),
    parted,
    list: differences::list,
    also: Vec::new,
    generate: generate::generate,
    page: "oracle.md",
    preface: PREFACE,
    folder: "oracle/e1000",
};

/// QEMU's bus reset leaves half a packet and the contexts of packets behind: a frame ends the
/// packet, and both contexts are set.
fn prologue() -> Vec<Op> {
    let mut ring = vec![0; 48];
    ring[..8].copy_from_slice(&TX_BUFFERS.to_le_bytes());
    ring[8..12].copy_from_slice(&[60, 0, 0, 3]);
    for (at, command) in [(16, 0x24), (32, 0x20)] {
        ring[at + 11] = command;
        ring[at + 13..at + 16].copy_from_slice(&[54, 0xb4, 0x05]);
    }
    let mut ops = vec![
        Op::Mem {
            at: TX_RING,
            bytes: ring,
        },
        Op::write(reg::TDBAL, TX_RING as u32),
        Op::write(reg::TDLEN, 128),
        Op::write(reg::TCTL, 2),
        Op::write(reg::TDT, 3),
        Op::write(reg::TCTL, 0),
    ];
    ops.extend([reg::TDBAL, reg::TDLEN, reg::TDT, reg::TDH].map(|at| Op::write(at, 0)));
    ops.push(Op::Mem {
        at: TX_RING,
        bytes: vec![0; 48],
    });
    // Statistics of sent frames, and the causes.
    let counts = [
        0x4080,
        0x4090,
        0x4094,
        0x40c8,
        0x40cc,
        0x40d4,
        0x40d8,
        reg::ICR,
    ];
    ops.extend(counts.map(|at| Op::Read { at, size: 4 }));
    ops
}

fn parted(halves: Parted, at: u32) -> u64 {
    let choose = |on: bool, bits: u64| if on { bits } else { 0 };
    match at {
        reg::ICR | reg::ICS => {
            choose(halves.rx, 0x1_00d0) | choose(halves.tx, 0x8003) | choose(halves.link, 0x0c)
        }
        reg::RDH => choose(halves.rx, !0),
        reg::TDH => choose(halves.tx, !0),
        reg::STATUS | reg::MDIC => choose(halves.link, !0),
        _ if registers::counts_received(at) => choose(halves.rx, !0),
        _ if registers::counts_sent(at) => choose(halves.tx, !0),
        _ => 0,
    }
}

const PREFACE: &str = "# The oracle

`HYPERNIC_WRITE_DOCS=1 cargo test -p hypernic-tests --test oracle the_page` writes this page from the list in
`tests/src/oracle/e1000/differences/`; a test fails when it is stale.

The same script runs on our 82540EM and on QEMU's `e1000` (QEMU 11, `-accel qtest`): register accesses, guest memory, frames from the
wire. After each step the oracle compares causes, mask, ring heads and tails, STATUS, the level of INTx, both rings and every sent
frame; at the end all registers and all memory. A seed determines a script: what a driver would do, with random settings, and now and
then what no driver does. `make test` runs 3000 scripts, `make test-long` 50 000; `HYPERNIC_ORACLE_SCRIPTS` and
`HYPERNIC_ORACLE_SEED` choose others. If a script shows a difference that is not on this list, the oracle shrinks and prints it. Once
the bug is fixed, the script becomes a file in `tests/tests/oracle/e1000/regressions/`.

An entry explains only the bits and the case it names. After an entry marked * the machines differ (for example, only one of them took
a frame), and the oracle no longer compares that half (receive, transmit or both) of that script. Where QEMU was right, our model was
fixed, so the third column names others only. Sections are those of Intel's manual, 317453 rev. 4.0.

| id | difference | right | section |
|---|---|---|---|
";
