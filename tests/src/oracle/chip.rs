//! What the oracle has to know of a chip.

use std::fmt;
use std::sync::Arc;

use regs::{Register, Table};

use super::difference::Difference;
use crate::oracle::compare::Parted;
use crate::oracle::layout::{VF_WINDOW, VF_WINDOWS};
use crate::oracle::script::{Op, Script};
use crate::oracle::trace::Look;

/// What the interrupt line can be judged by.
#[derive(Clone, Copy)]
pub(super) enum Line {
    /// By the registers seen at the same look: whether the line should be up.
    Rule(fn(&Look) -> bool),
    /// By the other machine's.
    Other,
}

/// One of our NICs and its peer in QEMU.
pub struct Chip {
    /// Ours, by its name.
    pub name: &'static str,
    /// QEMU's device.
    pub peer: &'static str,
    /// Our own, new.
    pub(super) nic: fn() -> model::Nic,
    /// Virtual functions beside it.
    pub(super) vfs: u32,
    /// Vendor and device as the first register of configuration space has them.
    pub(super) id: u32,
    /// What is written to configuration space after a reset: offset, value.
    pub(super) config: &'static [(u32, u32)],
    /// Registers that QEMU's bus reset forgets, and what is written to them there.
    pub(super) forgotten: &'static [(u32, u32)],
    pub(super) table: fn() -> Arc<Table>,
    pub(super) registers: &'static [Register],
    /// Registers that QEMU has at another of their addresses than the first: theirs is the one that
    /// scripts use.
    pub(super) elsewhere: &'static [(u32, u32)],
    /// Registers read at each look, none of which a read changes.
    pub(super) watched: &'static [(u32, &'static str)],
    /// Registers that hold something when a script begins.
    pub(super) standing: &'static [(u32, u32)],
    /// What brings the link up after a reset.
    pub(super) link_up: fn() -> Vec<Op>,
    /// What both machines do with the link up before a script, unseen.
    pub(super) prologue: fn() -> Vec<Op>,
    /// A value for a register that leaves the rest of the chip at rest.
    pub(super) harmless: fn(u32, u32) -> u32,
    /// What is read when a script has ended, in this order.
    pub(super) sweep: fn(&Script) -> Vec<u32>,
    pub(super) line: Line,
    /// Bits of a register that belong to halves that have parted.
    pub(super) parted: fn(Parted, u32) -> u64,
    pub(super) list: fn() -> Vec<Difference>,
    /// What is on another's list and holds here too.
    pub(super) also: fn() -> Vec<Difference>,
    /// New scripts.
    pub generate: fn(u64) -> Script,
    /// Where the page of differences is, below `docs/`.
    pub page: &'static str,
    /// What stands on it above the table.
    pub(super) preface: &'static str,
    /// Where scripts of its own are, below `tests/tests/`.
    pub folder: &'static str,
}

impl fmt::Debug for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Chip {
    /// The name of what stands at an offset, such as `RAL[3]`.
    pub(super) fn register_name(&self, at: u32) -> String {
        let (of, table, offset) = match self.vf(at) {
            Some((vf, offset)) => (format!("VF{vf}."), igb::vf_table(), offset),
            None => (String::new(), (self.table)(), at),
        };
        let Some(found) = table.find(offset) else {
            return format!("{of}{offset:#x}");
        };
        let register = table.register(found.id);
        if register.count > 1 {
            format!("{of}{}[{}]", register.name, found.element)
        } else {
            format!("{of}{}", register.name)
        }
    }

    /// Whose register it is, and where in its window, if it is a virtual function's.
    pub(super) fn vf(&self, at: u32) -> Option<(u32, u32)> {
        let from = at.checked_sub(VF_WINDOWS)?;
        let vf = from / VF_WINDOW;
        (vf < self.vfs).then_some((vf, from % VF_WINDOW))
    }

    /// The bits of the register at `at` that keep what is written; `None` where no register stands.
    pub(super) fn writable(&self, at: u32) -> Option<u32> {
        if let Some((_, offset)) = self.vf(at) {
            let table = igb::vf_table();
            return Some(table.register(table.find(offset)?.id).mask);
        }
        let table = (self.table)();
        Some(table.register(table.find(at)?.id).mask)
    }

    /// The address by which scripts know the register that answers at `at`. Queues, statistics and gaps
    /// between interrupts of virtual functions are known by the chip's numbers (manual §7.10.2): queue q
    /// of VF n is n + 8 q, vector v is 22 - 3 n + v.
    pub(super) fn home(&self, at: u32) -> u32 {
        if let Some((vf, offset)) = self.vf(at) {
            let queue = |page: u32| {
                let number = vf + 8 * (offset >> 8 & 1);
                page + 0x40 * number + (offset & 0x3f)
            };
            return match offset {
                0x2800..0x2a00 if offset & 0xc0 == 0 => queue(0xc000),
                0x3800..0x3a00 if offset & 0xc0 == 0 => queue(0xe000),
                0xf0c => 0x5480 + 4 * vf,
                0x1680..0x168c => offset + 4 * (22 - 3 * vf),
                0xf10 | 0xf14 | 0xf18 | 0xf34 => 0x1_0000 + 0x100 * vf + (offset - 0xf00),
                _ => at,
            };
        }
        let table = (self.table)();
        let Some(found) = table.find(at) else {
            return at;
        };
        let register = table.register(found.id);
        let first = register.offset + register.stride * found.element;
        let moved = self.elsewhere.iter().find(|(from, _)| *from == first);
        moved.map_or(first, |(_, to)| *to)
    }

    /// The list of its differences.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        (self.list)()
    }

    /// The list, and what else explains.
    pub(super) fn explanations(&self) -> Vec<Difference> {
        (self.list)().into_iter().chain((self.also)()).collect()
    }

    /// A script as text, with the names of its registers.
    #[must_use]
    pub fn text(&self, script: &Script) -> String {
        let line = |op: &Op| match op {
            Op::Write { at, .. } | Op::Read { at, .. } => {
                format!("{op}  # {}\n", self.register_name(*at))
            }
            _ => format!("{op}\n"),
        };
        script.ops.iter().map(line).collect()
    }
}
