//! Our 82576 (its physical function) and QEMU's `igb`.

mod context;
mod differences;
mod generate;
mod registers;
mod vf;

pub use vf::IGB_VF;

use registry::MODELS;

use crate::oracle::chip::{Chip, Line};
use crate::oracle::compare::Parted;
use crate::oracle::layout::{BAR, MAC, MSIX_TABLE};
use crate::oracle::script::Op;
use context::reg;

/// What both machines' CTRL holds when a script begins: link up (SLU), full duplex.
const LINK_UP: u32 = 0x41;
/// Queues that scripts use, in each direction.
const QUEUES: u32 = 4;
/// The chip's queues, in each direction.
const ALL_QUEUES: usize = 16;
/// Descriptors that the rings of scripts have at most: all rings are seen at each look.
const RING: u32 = (super::RING_LEN / 16) as u32 / QUEUES;

/// Registers read at each look.
const WATCHED: [(u32, &str); 19] = [
    (reg::IMS, "IMS"),
    (reg::EIMS, "EIMS"),
    (reg::STATUS, "STATUS"),
    (reg::RDH, "RDH[0]"),
    (reg::RDH + 0x40, "RDH[1]"),
    (reg::RDH + 0x80, "RDH[2]"),
    (reg::RDH + 0xc0, "RDH[3]"),
    (reg::RDT, "RDT[0]"),
    (reg::RDT + 0x40, "RDT[1]"),
    (reg::RDT + 0x80, "RDT[2]"),
    (reg::RDT + 0xc0, "RDT[3]"),
    (reg::TDH, "TDH[0]"),
    (reg::TDH + 0x40, "TDH[1]"),
    (reg::TDH + 0x80, "TDH[2]"),
    (reg::TDH + 0xc0, "TDH[3]"),
    (reg::TDT, "TDT[0]"),
    (reg::TDT + 0x40, "TDT[1]"),
    (reg::TDT + 0x80, "TDT[2]"),
    (reg::TDT + 0xc0, "TDT[3]"),
];

/// What is read of EITR.
const FORGOTTEN: [(u32, u32); 25] = {
    let mut all = [(0, 0); 25];
    let mut at = 0;
    while at < 25 {
        all[at] = (reg::EITR + 4 * at as u32, 0);
        at += 1;
    }
    all
};

/// The 82576.
pub static IGB: Chip = Chip {
    name: "82576",
    peer: "igb",
    nic: || MODELS.usual("82576", MAC).expect("an entry"),
    vfs: 0,
    id: 0x10c9_8086,
    config: &[
        (0x10, BAR as u32),
        (0x14, BAR as u32 + 0x2_0000),
        (0x18, 0xc000),
        (0x1c, MSIX_TABLE as u32),
        (4, 7),
    ],
    forgotten: &FORGOTTEN,
    table: igb::regs::table,
    registers: igb::regs::REGISTERS,
    elsewhere: &[
        (0x1500, reg::ICR),
        (0x1504, reg::ICS),
        (0x1508, reg::IMS),
        (0x150c, reg::IMC),
        (0x1510, reg::IAM),
    ],
    watched: &WATCHED,
    standing: &[(reg::CTRL, LINK_UP), (reg::VET, 0x8100_8100)],
    link_up,
    prologue: Vec::new,
    harmless: registers::harmless,
    sweep: registers::sweep,
    line: Line::Other,
    parted: registers::parted,
    list: differences::list,
    also: Vec::new,
    generate: generate::generate,
    page: "oracle-igb.md",
    preface: PREFACE,
    folder: "oracle/igb",
};

/// QEMU's link comes up with a negotiation and with nothing else.
fn link_up() -> Vec<Op> {
    vec![
        Op::write(reg::CTRL, LINK_UP),
        Op::write(reg::MDIC, 1 << 26 | 1 << 21 | 0x1340),
        Op::read(reg::STATUS),
        Op::read(reg::ICR),
    ]
}

const PREFACE: &str = "# The oracle of the 82576

`HYPERNIC_WRITE_DOCS=1 cargo test -p hypernic-tests --test oracle the_page` writes this page from the list in
`tests/src/oracle/igb/differences/`; a test fails when it is stale. [oracle.md](oracle.md) says how an oracle works.

This one compares the physical function of our 82576 with QEMU's `igb`. After each step: IMS, EIMS, STATUS, heads and tails of four
queues, INTx, the vectors that sent a message, the rings and every sent frame; ICR and EICR, which a read clears, where the script
reads them. At the end: all registers and all memory. `make test` checks every register and runs 800 new scripts, `make test-long`
20 000. Sections are those of Intel's \"82576EB Gigabit Ethernet Controller Datasheet\", 320961.

| id | difference | right | section |
|---|---|---|---|
";
