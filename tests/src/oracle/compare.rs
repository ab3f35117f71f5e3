//! Finds the differences between two traces and who on the list explains them.

use std::collections::BTreeMap;

use super::context::Context;
use super::difference::{Difference, DifferenceKind};
use crate::oracle::chip::{Chip, Line};
use crate::oracle::layout::{ARENA, RX_RING, TX_RING};
use crate::oracle::script::{Op, Script};
use crate::oracle::trace::{Look, Trace};

/// Missed packets count, which all chips have there.
const MPC: u32 = 0x4010;

/// What was seen to differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A read of the script (its place among the steps since the look before), or of the sweep at
    /// the end.
    Register { at: u32, op: Option<usize> },
    /// A register read at each look, by its offset.
    Watched(u32),
    /// Half a transmit descriptor: its index, whether it is the upper half.
    TxDesc { index: usize, upper: bool },
    /// Half a receive descriptor.
    RxDesc { index: usize, upper: bool },
    /// How many frames were sent.
    SentCount,
    /// What a frame that both sent looks like.
    Sent(usize),
    /// Guest memory when all was done: first address, bytes.
    Memory { at: u64, len: usize },
    /// The line is not where causes and mask put it; `true` for our line.
    LineRule { ours: bool },
    /// The level of the line, where no rule says what it should be.
    Line,
    /// Vectors that have sent a message since the look before.
    Messages,
}

/// One difference. Of frames and memory, the values are only their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Diff {
    pub what: What,
    pub ours: u64,
    pub theirs: u64,
}

impl Diff {
    /// The register it is about and its differing bits, if it is one.
    pub(super) fn register(&self) -> Option<u32> {
        match self.what {
            What::Register { at, .. } => Some(at & !3),
            What::Watched(at) => Some(at),
            _ => None,
        }
    }

    pub(super) fn bits(&self) -> u64 {
        self.ours ^ self.theirs
    }
}

impl Diff {
    /// In words.
    fn words(&self, chip: &Chip) -> String {
        let (ours, theirs) = (self.ours, self.theirs);
        let half = |upper| if upper { "upper" } else { "lower" };
        match self.what {
            What::Register { at, op } => {
                let when = if op.is_none() { " at the end" } else { "" };
                let name = chip.register_name(at);
                format!("{name}{when}: ours {ours:#x}, QEMU {theirs:#x}")
            }
            What::Watched(at) => {
                let name = chip.watched.iter().find(|(of, _)| *of == at);
                let name = name.map_or("", |(_, name)| name);
                format!("{name}: ours {ours:#x}, QEMU {theirs:#x}")
            }
            What::TxDesc { index, upper } => format!(
                "tx descriptor {index} {}: ours {ours:#018x}, QEMU {theirs:#018x}",
                half(upper)
            ),
            What::RxDesc { index, upper } => format!(
                "rx descriptor {index} {}: ours {ours:#018x}, QEMU {theirs:#018x}",
                half(upper)
            ),
            What::SentCount => format!("frames sent: ours {ours}, QEMU {theirs}"),
            What::Sent(i) => format!("sent frame {i}: ours {ours} bytes, QEMU {theirs} bytes"),
            What::Memory { at, len } => format!("{len} bytes of memory at {at:#x}"),
            What::LineRule { ours } => {
                let who = if ours { "our" } else { "QEMU's" };
                format!("{who} line is not where causes and mask put it")
            }
            What::Line => format!("line: ours {ours}, QEMU {theirs}"),
            What::Messages => format!("messages: ours {ours:#x}, QEMU {theirs:#x}"),
        }
    }
}

/// Halves of the NIC, which a difference in what was *done* makes incomparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parted {
    pub rx: bool,
    pub tx: bool,
    pub link: bool,
    /// Which causes are pending and which interrupts were sent, by itself.
    pub irq: bool,
}

impl Parted {
    pub(super) const RX: Parted = Parted {
        rx: true,
        tx: false,
        link: false,
        irq: false,
    };
    pub(super) const TX: Parted = Parted {
        rx: false,
        tx: true,
        link: false,
        irq: false,
    };
    pub(super) const ALL: Parted = Parted {
        rx: true,
        tx: true,
        link: true,
        irq: true,
    };

    fn and(self, other: Parted) -> Parted {
        Parted {
            rx: self.rx || other.rx,
            tx: self.tx || other.tx,
            link: self.link || other.link,
            irq: self.irq || other.irq,
        }
    }

    /// Bits of a register that belong to the parted halves.
    fn bits(self, chip: &Chip, at: u32) -> u64 {
        if self == Parted::ALL {
            return !0;
        }
        (chip.parted)(self, chip.home(at))
    }

    /// Bits of a difference that belong to the parted halves.
    fn covers(self, chip: &Chip, diff: &Diff) -> u64 {
        let all = |on: bool| if on { u64::MAX } else { 0 };
        match diff.what {
            What::TxDesc { .. } | What::SentCount | What::Sent(_) => all(self.tx),
            What::RxDesc { .. } => all(self.rx),
            What::Memory { at, .. } if (TX_RING..RX_RING).contains(&at) => all(self.tx),
            What::Memory { .. } => all(self.rx),
            What::LineRule { .. } => 0,
            What::Line | What::Messages => all(self != Parted::default()),
            What::Register { .. } | What::Watched(_) => {
                diff.register().map_or(0, |at| self.bits(chip, at))
            }
        }
    }
}

/// What happened between two looks.
pub(super) struct Step<'a> {
    /// Steps since the look before.
    pub ops: &'a [Op],
    /// What the script had written before them.
    pub before: &'a Context,
    /// What it has written after them.
    pub after: &'a Context,
    pub ours: &'a Look,
    pub theirs: &'a Look,
    /// Our look before, to see what moved.
    pub last_ours: &'a Look,
    pub last_theirs: &'a Look,
    /// What ran before, whole: history that some differences hang on.
    pub past: &'a [Op],
    /// What MPC counted, ours and QEMU's, when all was done.
    pub missed: (u32, u32),
    /// The traces, for what is compared at the end.
    pub traces: (&'a Trace, &'a Trace),
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Entries of the list that explained something, and how often.
    pub known: BTreeMap<&'static str, u64>,
    /// Differences that no entry explains, in words, with the look they were seen at.
    pub unknown: Vec<String>,
    /// Values compared.
    pub compared: u64,
}

/// Compares two traces of a script.
pub fn compare(chip: &'static Chip, script: &Script, ours: &Trace, theirs: &Trace) -> Verdict {
    let list = chip.explanations();
    let mut verdict = Verdict::default();
    let mut parted = Parted::default();
    let mut before = Context::new(chip);
    let mut start = 0;
    let nothing = Look {
        watched: vec![0; chip.watched.len()],
        ..Look::default()
    };
    let at = (chip.sweep)(script).iter().position(|at| *at == MPC);
    let missed = |trace: &Trace| at.map_or(0, |at| trace.end.registers[at]);
    let missed = (missed(ours), missed(theirs));
    for index in 0..ours.looks.len().min(theirs.looks.len()) {
        let rest = &script.ops[start..];
        let count = rest.iter().position(|op| *op == Op::Look);
        let ops = &rest[..count.unwrap_or(rest.len())];
        let mut after = before.clone();
        ops.iter().for_each(|op| after.follow(op));
        let step = Step {
            ops,
            before: &before,
            after: &after,
            ours: &ours.looks[index],
            theirs: &theirs.looks[index],
            last_ours: index.checked_sub(1).map_or(&nothing, |i| &ours.looks[i]),
            last_theirs: index.checked_sub(1).map_or(&nothing, |i| &theirs.looks[i]),
            past: &script.ops[..start],
            missed,
            traces: (ours, theirs),
        };
        let mut diffs = seen(&step, &mut verdict.compared);
        explain(
            &step,
            &list,
            &mut diffs,
            &mut parted,
            &mut verdict,
            &format!("look {index}"),
        );
        start = (start + ops.len() + 1).min(script.ops.len());
        if index + 1 == ours.looks.len() {
            let step = Step {
                ops: &[],
                past: &script.ops,
                before: &after,
                ..step
            };
            let mut diffs = left(script, &step, &mut verdict.compared);
            explain(&step, &list, &mut diffs, &mut parted, &mut verdict, "end");
        }
        before = after;
    }
    verdict
}

/// Takes away what entries explain; what remains is unknown.
fn explain(
    step: &Step<'_>,
    list: &[Difference],
    diffs: &mut Vec<Diff>,
    parted: &mut Parted,
    verdict: &mut Verdict,
    place: &str,
) {
    let chip = step.after.chip;
    let mut open: Vec<(Diff, u64)> = Vec::new();
    for diff in diffs.drain(..) {
        let mut bits = match diff.bits() {
            0 => u64::MAX,
            bits => bits,
        };
        bits &= !parted.covers(chip, &diff);
        for entry in list {
            let DifferenceKind::Value(explains) = entry.kind else {
                continue;
            };
            let explained = if bits == 0 {
                0
            } else {
                bits & explains(step, &diff)
            };
            if explained != 0 {
                bits &= !explained;
                *verdict.known.entry(entry.id).or_default() += 1;
            }
        }
        if bits != 0 {
            open.push((diff, bits));
        }
    }
    for entry in list {
        let DifferenceKind::Parting(parts) = entry.kind else {
            continue;
        };
        if open.is_empty() {
            break;
        }
        let remaining: Vec<Diff> = open.iter().map(|(diff, _)| *diff).collect();
        let Some(halves) = parts(step, &remaining) else {
            continue;
        };
        let before = open.len();
        for (diff, bits) in &mut open {
            *bits &= !halves.covers(chip, diff);
        }
        open.retain(|(_, bits)| *bits != 0);
        if open.len() < before {
            *parted = parted.and(halves);
            *verdict.known.entry(entry.id).or_default() += 1;
        }
    }
    let unknown = open.iter().map(|(diff, bits)| {
        let more = match diff.what {
            What::Sent(i) => first_difference(&step.ours.sent[i], &step.theirs.sent[i]),
            _ => format!("open bits {bits:#x}"),
        };
        format!("{place}: {} ({more})", diff.words(chip))
    });
    verdict.unknown.extend(unknown);
}

/// Where two frames begin to differ.
fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let at = ours.iter().zip(theirs).position(|(o, t)| o != t);
    let at = at.unwrap_or(ours.len().min(theirs.len()));
    let part = |frame: &[u8]| -> String {
        let bytes = &frame[at..(at + 8).min(frame.len())];
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    };
    format!(
        "from byte {at} on: ours {}, QEMU {}",
        part(ours),
        part(theirs)
    )
}

/// Differences between two looks.
fn seen(step: &Step<'_>, compared: &mut u64) -> Vec<Diff> {
    let (ours, theirs) = (step.ours, step.theirs);
    let mut diffs = Vec::new();
    let mut push = |what, ours: u64, theirs: u64| {
        if ours != theirs {
            diffs.push(Diff { what, ours, theirs });
        }
    };
    let reads = step.ops.iter().enumerate().filter_map(|(i, op)| match op {
        Op::Read { at, size } => Some((i, *at, *size)),
        _ => None,
    });
    for ((i, at, size), (o, t)) in reads.zip(ours.reads.iter().zip(&theirs.reads)) {
        push(
            What::Register { at, op: Some(i) },
            o & 0xffff_ffff,
            t & 0xffff_ffff,
        );
        if size == 8 {
            push(
                What::Register {
                    at: at + 4,
                    op: Some(i),
                },
                o >> 32,
                t >> 32,
            );
        }
    }
    let chip = step.after.chip;
    let both = ours.watched.iter().zip(&theirs.watched);
    for ((at, _), (o, t)) in chip.watched.iter().zip(both) {
        push(What::Watched(*at), (*o).into(), (*t).into());
    }
    push(What::Messages, ours.messages.into(), theirs.messages.into());
    for (i, (o, t)) in ours
        .tx_ring
        .chunks(8)
        .zip(theirs.tx_ring.chunks(8))
        .enumerate()
    {
        let what = What::TxDesc {
            index: i / 2,
            upper: i % 2 == 1,
        };
        push(what, word(o), word(t));
    }
    for (i, (o, t)) in ours
        .rx_ring
        .chunks(8)
        .zip(theirs.rx_ring.chunks(8))
        .enumerate()
    {
        let what = What::RxDesc {
            index: i / 2,
            upper: i % 2 == 1,
        };
        push(what, word(o), word(t));
    }
    push(
        What::SentCount,
        ours.sent.len() as u64,
        theirs.sent.len() as u64,
    );
    if ours.sent.len() == theirs.sent.len() {
        for (i, (o, t)) in ours.sent.iter().zip(&theirs.sent).enumerate() {
            if o != t {
                let what = What::Sent(i);
                diffs.push(Diff {
                    what,
                    ours: o.len() as u64,
                    theirs: t.len() as u64,
                });
            }
        }
    }
    match chip.line {
        Line::Rule(rule) => {
            for (mine, look) in [(true, ours), (false, theirs)] {
                if rule(look) != look.line {
                    let what = What::LineRule { ours: mine };
                    diffs.push(Diff {
                        what,
                        ours: ours.line.into(),
                        theirs: theirs.line.into(),
                    });
                }
            }
        }
        Line::Other if ours.line != theirs.line => diffs.push(Diff {
            what: What::Line,
            ours: ours.line.into(),
            theirs: theirs.line.into(),
        }),
        Line::Other => {}
    }
    *compared += (ours.reads.len() + ours.watched.len() + ours.sent.len() + 2) as u64;
    *compared += (ours.tx_ring.len() + ours.rx_ring.len()) as u64 / 8;
    diffs
}

/// Differences in what was left.
fn left(script: &Script, step: &Step<'_>, compared: &mut u64) -> Vec<Diff> {
    let (ours, theirs) = (&step.traces.0.end, &step.traces.1.end);
    let mut diffs = Vec::new();
    let values = ours.registers.iter().zip(&theirs.registers);
    let sweep = (step.after.chip.sweep)(script);
    for (at, (o, t)) in sweep.into_iter().zip(values) {
        *compared += 1;
        if o != t {
            let what = What::Register { at, op: None };
            diffs.push(Diff {
                what,
                ours: (*o).into(),
                theirs: (*t).into(),
            });
        }
    }
    *compared += ours.arena.len() as u64 / 8;
    let mut at = 0;
    while at < ours.arena.len() {
        if ours.arena[at] == theirs.arena[at] {
            at += 1;
            continue;
        }
        let same = ours.arena[at..]
            .iter()
            .zip(&theirs.arena[at..])
            .position(|(o, t)| o == t);
        let len = same.unwrap_or(ours.arena.len() - at);
        let place = ARENA + at as u64;
        // The rings were compared at the looks.
        let ring = |from: u64| (from..from + super::RING_LEN as u64).contains(&place);
        if !ring(TX_RING) && !ring(RX_RING) {
            let what = What::Memory { at: place, len };
            diffs.push(Diff {
                what,
                ours: len as u64,
                theirs: len as u64,
            });
        }
        at += len;
    }
    diffs
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
