//! Differences in what is done: from there on, a part of the script cannot be compared.

use super::super::E1000;
use super::super::context::{Context, reg};
use super::super::watched::{ICS, RDH, TDH};
use super::arrival::{hashed, judged_late, tagged, turned_off};
use crate::oracle::compare::{Parted, Step, What};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::layout::{ARENA, ARENA_LEN, LOW_ZEROS, RX_RING, TX_RING};
use crate::oracle::script::Op;

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn list() -> Vec<Difference> {
    let parting = Difference::parting;
    vec![
        parting(
            "no-packet-fifo",
            Hypernic,
            "13.4.17",
            "QEMU has no packet FIFO: a frame is lost if it finds too few descriptors (RXO, MPC) or the receiver is turned off first; in the chip it waits",
            |step, _| {
                let frames = |_: &Context, op: &Op| matches!(op, Op::Frames(_));
                let missed = step.missed.1 > step.missed.0 && ever(step, frames);
                (missed || turned_off(step)).then_some(Parted::RX)
            },
        ),
        parting(
            "tx-head-written",
            Both,
            "13.4.39",
            "TDH written while the transmitter is on: the manual calls the result indeterminate",
            |step, _| {
                let written = |context: &Context, op: &Op| {
                    context.has(reg::TCTL, 2) && matches!(op, Op::Write { at: reg::TDH, .. })
                };
                ever(step, written).then_some(Parted::TX)
            },
        ),
        parting(
            "rx-head-written",
            Both,
            "13.4.28",
            "RDH written while the receiver is on: the manual says that this may confuse it",
            |step, _| {
                let written = |context: &Context, op: &Op| {
                    context.has(reg::RCTL, 2) && matches!(op, Op::Write { at: reg::RDH, .. })
                };
                ever(step, written).then_some(Parted::RX)
            },
        ),
        parting(
            "rx-while-off",
            Hypernic,
            "13.4.22",
            "QEMU keeps frames that arrive while the receiver is off, and receives them later",
            |step, _| {
                let off = |context: &Context, op: &Op| {
                    matches!(op, Op::Frames(_)) && !context.has(reg::RCTL, 2)
                };
                // What it kept took the descriptors of what came later.
                let lost = step.theirs.watched[ICS] & 0x40 != 0
                    || step.theirs.watched[RDH] == step.after.get(reg::RDT) & 0xffff;
                (ever(step, off) && (ahead(step) || lost)).then_some(Parted::RX)
            },
        ),
        parting(
            "late-filter",
            Hypernic,
            "3.2",
            "a frame that finds no descriptor waits outside of QEMU's NIC and is filtered when a descriptor comes; the chip filters it on arrival and keeps it in its packet FIFO",
            |step, _| judged_late(step).then_some(Parted::RX),
        ),
        parting(
            "rx-no-ring",
            Both,
            "3.2.6",
            "RDLEN, RDH and RDT describe no valid ring: ours receives nothing, QEMU uses what it can",
            |step, _| {
                let head = step.last_ours.watched[RDH];
                let none = |context: &Context, op: &Op| {
                    !(context.rx_ring_is_one(head)
                        && context.rx_ring_is_one(context.moved(reg::RDH, step.before, head)))
                        && matches!(op, Op::Frames(_) | Op::Write { at: reg::RDT, .. })
                };
                now(step, none).then_some(Parted::RX)
            },
        ),
        parting(
            "rx-null-buffers",
            Both,
            "3.2.3",
            "a ring with null buffers has fewer usable ones: ours skips null buffers up to the tail, QEMU beyond it",
            |step, _| {
                let null = null_buffers(step);
                (null && ever(step, |_, op| matches!(op, Op::Frames(_)))).then_some(Parted::RX)
            },
        ),
        parting(
            "tx-no-ring",
            Both,
            "3.4",
            "TDLEN, TDH and TDT describe no valid ring: ours sends nothing, QEMU uses what it can",
            |step, _| {
                let head = step.last_ours.watched[TDH];
                let none = |context: &Context, op: &Op| {
                    !(context.tx_ring_is_one(head)
                        && context.tx_ring_is_one(context.moved(reg::TDH, step.before, head)))
                        && starts(context, op)
                };
                now(step, none).then_some(Parted::TX)
            },
        ),
        parting(
            "rx-unicast-hash",
            Hypernic,
            "3.2.1",
            "QEMU looks unicast addresses up in the multicast table",
            |step, _| {
                let hit = frame(step, |context, frame| {
                    frame[0] & 1 == 0 && hashed(context, frame)
                });
                hit.then_some(Parted::RX)
            },
        ),
        parting(
            "rx-cfi",
            Hypernic,
            "13.4.22",
            "QEMU does not filter by CFI (RCTL.CFIEN)",
            |step, _| {
                let hit = frame(step, |context, frame| {
                    context.has(reg::RCTL, 0xc_0000) && tagged(context, frame)
                });
                (hit && ahead(step)).then_some(Parted::RX)
            },
        ),
        parting(
            "rx-broadcast-mpe",
            Both,
            "13.4.22",
            "a broadcast is a multicast to our RCTL.MPE, not to QEMU's",
            |step, _| {
                let hit = frame(step, |context, frame| {
                    frame[..6] == [0xff; 6]
                        && context.has(reg::RCTL, 0x10)
                        && !context.has(reg::RCTL, 0x8000)
                });
                // It may leave too few descriptors for one that needs several, and be such a one.
                let mut met = false;
                let blocks = frame(step, |context, frame| {
                    met |= frame[..6] == [0xff; 6];
                    met && frame.len() + 4 > context.buffer()
                });
                (hit && (blocks || !ahead(step))).then_some(Parted::RX)
            },
        ),
        parting(
            "rx-sbp",
            Hypernic,
            "13.4.22",
            "with RCTL.SBP QEMU stores frames that are too long",
            |step, _| {
                let hit = frame(step, |context, frame| {
                    context.has(reg::RCTL, 4) && frame.len() > 1518
                });
                (hit && ahead(step)).then_some(Parted::RX)
            },
        ),
        parting(
            "tx-incomplete",
            Both,
            "3.4",
            "QEMU takes the descriptors of a packet without its end; ours waits for the end",
            |step, _| {
                let mut head = 0;
                let open = |context: &Context, op: &Op| {
                    if matches!(op, Op::Write { at: reg::TDH, .. }) {
                        head = context.get(reg::TDH) & 0xffff;
                    }
                    if !starts(context, op) {
                        return false;
                    }
                    let given = between(context, head);
                    head = context.get(reg::TDT) & 0xffff;
                    incomplete(&given)
                };
                ever(step, open).then_some(Parted::TX)
            },
        ),
        parting(
            "tso-empty-segment",
            Hypernic,
            "3.5.6",
            "where the payload is a multiple of MSS, QEMU sends one more segment, with headers and no payload",
            |step, _| {
                let more = step.theirs.sent.len() > step.ours.sent.len();
                (more && segments_even(&posted(step))).then_some(Parted::TX)
            },
        ),
        parting(
            "rx-larger-than-ring",
            Both,
            "3.2.6",
            "a frame that needs more descriptors than the ring has: ours drops it at once, QEMU waits for them",
            |step, _| {
                let large = |context: &Context, op: &Op| match op {
                    Op::Frames(frames) => {
                        let len = (context.get(reg::RDLEN) & 0xf_ff80) as usize / 16;
                        frames
                            .iter()
                            .any(|frame| (frame.len() + 4).div_ceil(context.buffer()) >= len)
                    }
                    _ => false,
                };
                ever(step, large).then_some(Parted::RX)
            },
        ),
        parting(
            "software-xoff",
            Hypernic,
            "13.4.33",
            "QEMU sends no pause frame on request (TCTL.SWXOFF)",
            |step, _| {
                let told = |_: &Context, op: &Op| matches!(op, Op::Write { at: reg::TCTL, value, .. } if value & 1 << 22 != 0);
                ever(step, told).then_some(Parted::TX)
            },
        ),
        parting(
            "tx-mixed",
            Both,
            "3.3.1",
            "in a packet of legacy and data descriptors, the first one decides for ours, the first with data for QEMU",
            |step, _| mixed(&posted(step)).then_some(Parted::TX),
        ),
        parting(
            "outside-memory",
            Both,
            "3.4",
            "rings outside memory: ours stops and counts, QEMU reads whatever the machine returns",
            |step, _| {
                let outside = |low: u32, high: u32| {
                    let base =
                        u64::from(step.after.get(high)) << 32 | u64::from(step.after.get(low));
                    base + 0x1000 > (ARENA + ARENA_LEN as u64)
                };
                let (rx, tx) = (
                    outside(reg::RDBAL, reg::RDBAH),
                    outside(reg::TDBAL, reg::TDBAH),
                );
                (rx || tx).then_some(Parted {
                    rx,
                    tx,
                    link: false,
                    ..Parted::default()
                })
            },
        ),
        parting(
            "tx-runt",
            Hypernic,
            "3.3.3",
            "QEMU sends packets that are too short for an Ethernet header",
            |step, diffs| {
                let short = step.theirs.sent.iter().any(|frame| frame.len() < 14);
                let count = diffs
                    .iter()
                    .any(|diff| diff.what == What::SentCount && diff.theirs > diff.ours);
                (short && count).then_some(Parted::TX)
            },
        ),
        parting(
            "tx-legacy-checksum",
            Hypernic,
            "3.3.3",
            "QEMU ignores IC, CSS and CSO of legacy descriptors",
            |step, _| {
                let ic = posted(step).iter().any(|desc| desc[11] & 0x25 == 0x05);
                ic.then_some(Parted::TX)
            },
        ),
        parting(
            "reset",
            Hypernic,
            "13.4.1",
            "QEMU ignores CTRL.RST and CTRL.PHY_RST",
            |step, _| {
                let reset = |_: &Context, op: &Op| matches!(op, Op::Write { at: reg::CTRL, value, .. } if value & 0x8400_0000 != 0);
                ever(step, reset).then_some(Parted::ALL)
            },
        ),
        parting(
            "phy-control",
            Hypernic,
            "13.4.7.1",
            "QEMU's PHY does not implement reset, power-down, isolation, forced speed, and links without negotiation",
            |step, _| {
                let written = |_: &Context, op: &Op| {
                    matches!(op, Op::Write { at: reg::MDIC, value, .. }
                        if value >> 21 & 0x7f == 0x21 && value >> 16 & 31 == 0 && value & 0xffff != 0x1340)
                };
                ever(step, written).then_some(Parted::ALL)
            },
        ),
        parting(
            "link-off",
            Hypernic,
            "13.4.1",
            "QEMU's link does not need CTRL.SLU",
            |step, _| {
                let off = |context: &Context, _: &Op| !context.has(reg::CTRL, 0x40);
                ever(step, off).then_some(Parted::ALL)
            },
        ),
        parting(
            "loopback",
            Hypernic,
            "13.4.22",
            "QEMU ignores RCTL.LBM",
            |step, _| {
                let on = |context: &Context, _: &Op| context.get(reg::RCTL) & 0xc0 != 0;
                ever(step, on).then_some(Parted {
                    rx: true,
                    tx: true,
                    link: false,
                    ..Parted::default()
                })
            },
        ),
    ]
}

/// Whether the script so far had a step with which this held, given what was written up to it.
fn ever(step: &Step<'_>, mut is: impl FnMut(&Context, &Op) -> bool) -> bool {
    let mut context = Context::new(&E1000);
    step.past.iter().chain(step.ops).any(|op| {
        context.follow(op);
        is(&context, op)
    })
}

/// The same of the steps since the look before.
fn now(step: &Step<'_>, is: impl Fn(&Context, &Op) -> bool) -> bool {
    let mut context = step.before.clone();
    step.ops.iter().any(|op| {
        context.follow(op);
        is(&context, op)
    })
}

/// Whether this step makes a transmitter look at its ring.
fn starts(context: &Context, op: &Op) -> bool {
    context.has(reg::TCTL, 2)
        && matches!(
            op,
            Op::Write {
                at: reg::TDT | reg::TCTL,
                ..
            }
        )
}

/// Whether a frame came so far for which this held. It may have waited since.
fn frame(step: &Step<'_>, mut is: impl FnMut(&Context, &[u8]) -> bool) -> bool {
    ever(step, |context, op| match op {
        Op::Frames(frames) => frames
            .iter()
            .any(|frame| frame.len() >= 14 && is(context, frame)),
        _ => false,
    })
}

/// Whether QEMU has received more than we. What the guest itself wrote into a descriptor is no sign.
fn ahead(step: &Step<'_>) -> bool {
    let done = |ring: &[u8]| {
        let received = |(i, desc): &(usize, &[u8])| {
            let at = RX_RING + 16 * *i as u64;
            let written = (8..16).all(|k| desc[k] == step.after.ring_byte(at + k as u64));
            desc[12] & 1 == 1 && !written
        };
        ring.chunks(16).enumerate().filter(received).count()
    };
    done(&step.theirs.rx_ring) > done(&step.ours.rx_ring)
}

/// Whether the receive ring has descriptors with null buffers. A script may have put it anywhere.
fn null_buffers(step: &Step<'_>) -> bool {
    let base =
        u64::from(step.after.get(reg::RDBAH)) << 32 | u64::from(step.after.get(reg::RDBAL) & !15);
    let len = (step.after.get(reg::RDLEN) & 0xf_ff80) as usize;
    if len > 0 && base + len as u64 <= LOW_ZEROS {
        return true;
    }
    let arena = &step.traces.0.end.arena;
    let places = [
        (RX_RING, &step.ours.rx_ring),
        (TX_RING, &step.ours.tx_ring),
        // What stands elsewhere is seen at the end only.
        (ARENA, arena),
    ];
    places.iter().find_map(|(start, bytes)| {
        let from = usize::try_from(base.checked_sub(*start)?).ok()?;
        let rest = bytes.get(from..).filter(|rest| !rest.is_empty())?;
        let ring = &rest[..rest.len().min(len)];
        Some(ring.chunks(16).any(|desc| desc.starts_with(&[0; 8])))
    }) == Some(true)
}

/// Transmit descriptors that the guest handed over in this step, as they stood when it did.
fn posted(step: &Step<'_>) -> Vec<[u8; 16]> {
    let (mut context, mut head) = (step.before.clone(), step.last_ours.watched[TDH]);
    let mut descs = Vec::new();
    for op in step.ops {
        context.follow(op);
        if matches!(op, Op::Write { at: reg::TDH, .. }) {
            head = context.get(reg::TDH) & 0xffff;
        }
        if starts(&context, op) {
            descs.extend(between(&context, head));
            head = context.get(reg::TDT) & 0xffff;
        }
    }
    descs
}

/// Transmit descriptors from one index to the tail.
fn between(context: &Context, mut at: u32) -> Vec<[u8; 16]> {
    let len = (context.get(reg::TDLEN) & 0xf_ff80) / 16;
    let base = u64::from(context.get(reg::TDBAL) & !15);
    let mut descs = Vec::new();
    while at != context.get(reg::TDT) & 0xffff && descs.len() < len as usize {
        let mut desc = [0; 16];
        for (i, byte) in desc.iter_mut().enumerate() {
            *byte = context.ring_byte(base + u64::from(at) * 16 + i as u64);
        }
        descs.push(desc);
        at = if at + 1 >= len { 0 } else { at + 1 };
    }
    descs
}

/// Whether the last packet has no end yet.
fn incomplete(descs: &[[u8; 16]]) -> bool {
    let context = |desc: &[u8; 16]| desc[11] & 0x20 != 0 && desc[10] >> 4 == 0;
    let last = descs.iter().rev().find(|desc| !context(desc));
    last.is_some_and(|desc| desc[11] & 1 == 0)
}

/// Whether one of the packets is cut into segments that are all full.
fn segments_even(descs: &[[u8; 16]]) -> bool {
    let (mut header, mut mss, mut len) = (0, 0, 0);
    for desc in descs {
        let short = |at: usize| usize::from(desc[at]) | usize::from(desc[at + 1]) << 8;
        match (desc[11] & 0x24, desc[10] >> 4) {
            (0x24, 0) => (header, mss, len) = (usize::from(desc[13]), short(14), 0),
            (0x24, 1) => len += short(8),
            _ => continue,
        }
        if desc[11] & 1 != 0 && desc[10] >> 4 == 1 {
            if mss > 0 && len > header && (len - header) % mss == 0 {
                return true;
            }
            len = 0;
        }
    }
    false
}

/// Whether a packet has descriptors of both kinds.
fn mixed(descs: &[[u8; 16]]) -> bool {
    let mut kinds = [false; 2];
    descs.iter().any(|desc| {
        let context = desc[11] & 0x20 != 0 && desc[10] >> 4 == 0;
        if !context {
            kinds[usize::from(desc[11] & 0x20 != 0)] = true;
        }
        let both = kinds == [true; 2];
        if desc[11] & 1 != 0 && !context {
            kinds = [false; 2];
        }
        both
    })
}
