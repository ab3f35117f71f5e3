//! Differences in what is done: from there on, a part of the script cannot be compared.

use super::super::ALL_QUEUES;
use super::super::RING;
use super::super::context::{Context, reg};
use super::evidence::{Posted, RX, TX, frame, is_inside, posted, queues, writes};
use super::seldom::split_otherwise;
use crate::oracle::compare::{Parted, Step, What};
use crate::oracle::difference::Difference;
use crate::oracle::difference::Right::{Both, Hypernic};
use crate::oracle::layout::ARENA_LEN;
use crate::oracle::layout::{ARENA, RX_BUFFERS, TX_BUFFERS};
use crate::oracle::script::Op;

/// The interrupts part.
pub(super) const IRQ: Parted = Parted {
    rx: false,
    tx: false,
    link: false,
    irq: true,
};

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn list() -> Vec<Difference> {
    let parting = Difference::parting;
    vec![
        parting(
            "reset",
            Both,
            "8.2.1",
            "CTRL.RST takes QEMU's PHY and link down too",
            |step, _| wrote(step, reg::CTRL, 0x8400_0000).then_some(Parted::ALL),
        ),
        parting(
            "phy-control",
            Hypernic,
            "8.25",
            "QEMU's PHY does not implement reset, power-down, isolation, forced speed, and links without negotiation",
            |step, _| {
                let written = step.past.iter().chain(step.ops).any(|op| {
                    let value = writes(step, op, reg::MDIC);
                    value.is_some_and(|value| value >> 26 & 3 == 1 && value >> 16 & 0x3ff == 0x20)
                });
                written.then_some(Parted::ALL)
            },
        ),
        parting(
            "link-off",
            Hypernic,
            "8.2.1",
            "QEMU's link does not need CTRL.SLU",
            |step, _| (!step.after.has(reg::CTRL, 0x40)).then_some(Parted::ALL),
        ),
        parting(
            "loopback",
            Hypernic,
            "8.10.1",
            "QEMU's loopback does not cut the wire off, and needs both bits of RCTL.LBM",
            |step, _| {
                wrote(step, reg::RCTL, 0xc0).then_some(Parted {
                    rx: true,
                    tx: true,
                    ..Parted::default()
                })
            },
        ),
        parting(
            "rx-head-written",
            Both,
            "8.10.8",
            "RDH written while the queue is on: the manual says that this may confuse it",
            |step, _| {
                let mut queues = queues(step.after.chip).iter();
                let any = queues.any(|queue| wrote(step, reg::RDH + reg::QUEUE * queue, !0));
                any.then_some(Parted::RX)
            },
        ),
        parting(
            "tx-head-written",
            Both,
            "8.12.12",
            "TDH written while the queue is on: the manual calls the result indeterminate",
            |step, _| {
                let mut queues = queues(step.after.chip).iter();
                let any = queues.any(|queue| wrote(step, reg::TDH + reg::QUEUE * queue, !0));
                any.then_some(tx(step))
            },
        ),
        parting(
            "tx-legacy",
            Hypernic,
            "7.2.2.1",
            "QEMU takes legacy descriptors for advanced ones, with the settings of the packet before",
            |step, _| sent(step, |desc| desc.is_legacy()).then_some(tx(step)),
        ),
        parting(
            "tx-incomplete",
            Both,
            "7.2.2",
            "QEMU forgets the descriptors of a packet without its end; ours waits for the end",
            |step, _| {
                let (all, before) = posted(step);
                let open = queues(step.after.chip).iter().any(|queue| {
                    let mut own = all[before..].iter().filter(|d| d.queue == *queue);
                    own.rfind(|d| !d.is_context()).is_some_and(|d| !d.ends())
                });
                open.then_some(tx(step))
            },
        ),
        parting(
            "tx-again",
            Both,
            "7.2.2.4",
            "a written-back descriptor that is given to the NIC again has parts overwritten by its status",
            |step, _| sent(step, |desc| desc.again).then_some(tx(step)),
        ),
        parting(
            "udp-segmentation",
            Hypernic,
            "7.2.4",
            "QEMU cuts UDP into IP fragments",
            |step, _| segmented(step, |kind| kind != 1).then_some(tx(step)),
        ),
        parting(
            "tx-vlan-disabled",
            Hypernic,
            "8.2.1",
            "QEMU inserts tags without CTRL.VME",
            |step, _| {
                let tags = sent(step, |desc| desc.command() & 0x40 != 0);
                (tags && !step.after.has(reg::CTRL, 1 << 30)).then_some(tx(step))
            },
        ),
        parting(
            "software-xoff",
            Hypernic,
            "8.12.1",
            "QEMU sends no pause frame on request (TCTL.SWXOFF)",
            |step, _| wrote(step, reg::TCTL, 1 << 22).then_some(Parted::TX),
        ),
        parting(
            "rx-unicast-hash",
            Hypernic,
            "7.1.2",
            "QEMU looks unicast addresses up in the multicast table",
            |step, _| frame(step, |c, f| f[0] & 1 == 0 && hashed(c, f)).then_some(Parted::RX),
        ),
        parting(
            "rx-broadcast-mpe",
            Both,
            "8.10.1",
            "a broadcast is a multicast to our RCTL.MPE, not to QEMU's",
            |step, _| {
                frame(step, |c, f| f[..6] == [0xff; 6] && c.has(reg::RCTL, 0x10))
                    .then_some(Parted::RX)
            },
        ),
        parting(
            "rx-cfi",
            Hypernic,
            "8.10.1",
            "QEMU does not filter by CFI (RCTL.CFIEN)",
            |step, _| frame(step, |c, _| c.has(reg::RCTL, 0xc_0000)).then_some(Parted::RX),
        ),
        parting(
            "rx-sbp",
            Hypernic,
            "8.10.1",
            "with RCTL.SBP QEMU stores frames of any length, as good ones",
            |step, _| frame(step, |c, _| c.has(reg::RCTL, 4)).then_some(Parted::RX),
        ),
        parting(
            "header-types",
            Hypernic,
            "8.10.3",
            "QEMU splits the headers of all IP packets, not only of those that PSRTYPE names",
            |step, _| frame(step, split_otherwise).then_some(Parted::RX),
        ),
        parting(
            "default-queue",
            Hypernic,
            "8.10.21",
            "QEMU has no default queue (MRQC bits 5:3): frames that RSS does not spread go to queue 0",
            |step, _| {
                let other = |c: &Context, _: &[u8]| c.get(reg::MRQC) & 0x38 != 0;
                frame(step, other).then_some(Parted::RX)
            },
        ),
        parting(
            "rss-unreported",
            Hypernic,
            "8.10.14",
            "RXCSUM.PCSD chooses whether the hash is reported; without it QEMU does not spread either",
            |step, _| {
                let spread = |c: &Context, _: &[u8]| {
                    c.get(reg::MRQC) & 7 == 2 && !c.has(reg::RXCSUM, 0x2000)
                };
                frame(step, spread).then_some(Parted::RX)
            },
        ),
        parting(
            "rss-fields",
            Hypernic,
            "8.10.21",
            "for IPv6 QEMU knows only the fields TcpIPv6Ex, IPv6Ex, IPv6 and UdpIPv6 of MRQC",
            |step, _| {
                let six = |c: &Context, f: &[u8]| {
                    c.get(reg::MRQC) & 7 == 2 && f.windows(2).take(17).any(|w| w == [0x86, 0xdd])
                };
                frame(step, six).then_some(Parted::RX)
            },
        ),
        parting(
            "txdw-silent",
            Hypernic,
            "8.8.7",
            "QEMU raises TXDW only for queues that have a vector in IVAR",
            |step, _| {
                let told = wrote(step, reg::IMS, 1) && !posted(step).0.is_empty();
                told.then_some(IRQ)
            },
        ),
        parting(
            "threshold-reached",
            Hypernic,
            "8.10.2",
            "RXDMT0 as in `rxdmt0`, with its interrupt",
            |step, _| {
                let told = wrote(step, reg::IMS, 0x10) && frame(step, |_, _| true);
                told.then_some(IRQ)
            },
        ),
        parting(
            "no-descriptors",
            Hypernic,
            "7.1.9",
            "a frame that finds too few descriptors waits in the chip's packet buffer unless its queue drops (DROP_EN); QEMU drops it with RXO, or keeps it outside while no queue has one",
            |step, _| starved(step).then_some(Parted::RX),
        ),
        parting(
            "rx-again",
            Both,
            "7.1.5",
            "a written-back descriptor that is given to the NIC again has its report as the address",
            |step, _| RX.again(step).then_some(Parted::RX),
        ),
        parting(
            "rx-no-ring",
            Both,
            "8.10.9",
            "RDLEN and RDT describe no valid ring: ours receives nothing, QEMU uses what it can",
            |step, _| (RX.no_ring(step) && frame(step, |_, _| true)).then_some(Parted::RX),
        ),
        parting(
            "outside-memory",
            Both,
            "7.1.6",
            "rings outside memory: ours stops and counts, QEMU reads whatever the machine returns",
            |step, _| {
                let (rx, tx) = (RX.elsewhere(step), TX.elsewhere(step));
                (rx || tx).then_some(Parted {
                    rx,
                    tx,
                    ..Parted::default()
                })
            },
        ),
        parting(
            "rx-buffer-outside",
            Both,
            "7.1.5",
            "a header buffer outside memory: ours marks the frame as bad (RXE) and does not count it as good, QEMU does not notice",
            |step, diffs| {
                let noticed = diffs.iter().any(|diff| {
                    let (ours, theirs) = (diff.ours >> 31, diff.theirs >> 31);
                    matches!(diff.what, What::RxDesc { upper: true, .. }) && ours & !theirs & 1 == 1
                });
                (noticed && header_outside(step)).then_some(Parted::RX)
            },
        ),
        parting(
            "interrupts-unseen",
            Hypernic,
            "8.8.7",
            "writes to ICS, IMS, IMC or IAM at 1500h have no effect in QEMU",
            |step, _| {
                let written = step.past.iter().chain(step.ops).any(|op| {
                    matches!(
                        op,
                        Op::Write {
                            at: 0x14fd..=0x1513,
                            ..
                        }
                    )
                });
                written.then_some(IRQ)
            },
        ),
        parting(
            "device-reset-vector",
            Hypernic,
            "8.8.14",
            "QEMU routes cause 30 of ICR to the TCP timer's vector; it belongs to the other causes",
            |step, _| {
                let raised = wrote(step, reg::ICS, 1 << 30) && step.after.has(reg::GPIE, 0x10);
                raised.then_some(IRQ)
            },
        ),
        parting(
            "extended-line",
            Hypernic,
            "8.8.2",
            "without GPIE.Multiple_MSIX, causes in EICR that EIMS enables interrupt too; in QEMU only ICR's do",
            |step, _| {
                let enabled = wrote(step, reg::EIMS, !0) && !step.after.has(reg::GPIE, 0x10);
                enabled.then_some(IRQ)
            },
        ),
        parting(
            "auto-mask",
            Hypernic,
            "8.8.11",
            "IAM masks when ICR is read or written while an interrupt is pending (INTA); in QEMU with any cause, and never with GPIE.Multiple_MSIX",
            |step, _| wrote(step, reg::IAM, !0).then_some(IRQ),
        ),
        parting(
            "icr-unasserted",
            Hypernic,
            "8.8.7",
            "a read of ICR clears nothing if causes are enabled and none of them is pending (INTA = 0); in QEMU it clears all",
            |step, _| {
                let read = step.past.iter().chain(step.ops).any(|op| {
                    matches!(op, Op::Read { at, .. } if step.after.chip.home(*at & !3) == reg::ICR)
                });
                read.then_some(IRQ)
            },
        ),
    ]
}

/// What is sent parts, and what functions and pools receive of each other.
fn tx(step: &Step<'_>) -> Parted {
    Parted {
        rx: is_inside(step.after),
        ..Parted::TX
    }
}

/// Whether some of these bits were written as ones to a register.
fn wrote(step: &Step<'_>, at: u32, bits: u32) -> bool {
    let mut all = step.past.iter().chain(step.ops);
    all.any(|op| writes(step, op, at).is_some_and(|value| value & bits != 0))
}

/// Whether a queue that splits headers off ever had a descriptor with a header buffer outside of
/// memory.
fn header_outside(step: &Step<'_>) -> bool {
    let mut context = Context::new(step.after.chip);
    step.past.iter().chain(step.ops).any(|op| {
        context.follow(op);
        queues(context.chip).iter().any(|queue| {
            let at = |base: u32| context.get(base + reg::QUEUE * queue);
            let splits = matches!(at(reg::SRRCTL) >> 25 & 7, 2 | 5);
            let ring = u64::from(at(reg::RDBAL) & !0x7f);
            let header = |index: u64| {
                let bytes = (8..16)
                    .rev()
                    .map(|i| context.ring_byte(ring + 16 * index + i));
                bytes.fold(0, |all, byte| all << 8 | u64::from(byte))
            };
            let memory = ARENA..ARENA + ARENA_LEN as u64;
            splits
                && (0..u64::from(at(reg::RDLEN) / 16).min(RING.into()))
                    .any(|index| header(index) != 0 && !memory.contains(&header(index)))
        })
    })
}

/// Whether such a descriptor was handed over so far.
fn sent(step: &Step<'_>, is: impl Fn(&Posted) -> bool) -> bool {
    posted(step).0.iter().any(is)
}

/// Whether a packet was segmented whose transport (L4T of its context) is such a one.
fn segmented(step: &Step<'_>, is: impl Fn(u8) -> bool) -> bool {
    let mut kinds = [[0; 2]; ALL_QUEUES];
    posted(step).0.iter().any(|desc| {
        let slot = usize::from(desc.raw[12] >> 4 & 1);
        let kinds = &mut kinds[desc.queue as usize];
        if desc.is_context() {
            kinds[slot] = desc.raw[9] >> 3 & 3;
        }
        desc.is_data() && desc.command() & 0x80 != 0 && is(kinds[slot])
    })
}

/// Whether an address is in the multicast table.
pub(super) fn hashed(context: &Context, frame: &[u8]) -> bool {
    let shift = [4, 3, 2, 0][(context.get(reg::RCTL) >> 12 & 3) as usize];
    let index = (u32::from(frame[5]) << 8 | u32::from(frame[4])) >> shift & 0xfff;
    context.get(reg::MTA + index / 32 * 4) >> (index % 32) & 1 == 1
}

/// Whether frames came for which one of our queues may have had no room: by its head at the look
/// before, and by its tail then.
fn starved(step: &Step<'_>) -> bool {
    let looks = &step.traces.0.looks;
    let sends = step.after.chip.vfs > 0;
    let segmented = sends && posted(step).0.iter().any(|desc| desc.command() & 0x80 != 0);
    let mut context = Context::new(step.after.chip);
    let (mut index, mut lengths): (usize, Vec<usize>) = (0, Vec::new());
    step.past.iter().chain(step.ops).any(|op| {
        context.follow(op);
        match op {
            Op::Look => {
                index += 1;
                lengths.clear();
                return false;
            }
            Op::Frames(frames) => lengths.extend(frames.iter().map(|f| f.len().max(60) + 4)),
            // What one function sends another gets, in segments of 100 bytes at least.
            Op::Mem { at, bytes } if sends && (TX_BUFFERS..RX_BUFFERS).contains(at) => {
                let segment = if segmented { 100 } else { bytes.len().max(1) };
                lengths.extend(bytes.chunks(segment).map(|part| part.len().max(60) + 4));
            }
            _ => return false,
        }
        queues(context.chip).iter().any(|queue| {
            let at = |base: u32| context.get(base + reg::QUEUE * queue);
            let len = (at(reg::RDLEN) & 0xf_fff0) / 16;
            let look = index.checked_sub(1).and_then(|before| looks.get(before));
            let watched = context.chip.watched.iter();
            let rdh = reg::RDH + reg::QUEUE * queue;
            let place = watched.map(|(at, _)| context.chip.home(*at));
            let place = { place }.position(|at| at == rdh);
            let head = look.zip(place).map_or(0, |(look, at)| look.watched[at]);
            let tail = at(reg::RDT) & 0xffff;
            let left = if tail >= head {
                tail - head
            } else {
                (len + tail).saturating_sub(head)
            };
            let size = match at(reg::SRRCTL) & 0x7f {
                0 => 256,
                size => size as usize * 1024,
            };
            let needed: usize = lengths.iter().map(|len| len.div_ceil(size)).sum();
            len > 0 && needed > left as usize
        })
    })
}
