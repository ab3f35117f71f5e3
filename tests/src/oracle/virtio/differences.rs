//! Where our virtio-net and QEMU's differ, and why they may.

use std::fmt::Write as _;

use virtio_net::regs::{ctrl, feature, status};

use super::driver::RX;
use super::walk::Seen;
use crate::oracle::difference::Right;

/// What came before a difference.
pub(super) struct Context<'a> {
    features: u64,
    /// What was seen of ours in steps before this, and in this.
    earlier: &'a [Seen],
    now: &'a [Seen],
}

impl Context<'_> {
    fn agreed(&self, features: u64) -> bool {
        self.features & features == features
    }

    /// A queue has used its first buffers in this step.
    fn is_first_use(&self) -> bool {
        let uses = |seen: &[Seen], queue| {
            let mut seen = seen.iter();
            seen.any(|one| matches!(one, Seen::Used(of, all) if *of == queue && !all.is_empty()))
        };
        // A queue that was reset begins again.
        let begun = |seen: &Seen| *seen == Seen::Register("reset", 0);
        let from = self.earlier.iter().rposition(begun).unwrap_or(0);
        let mut queues = 0..3;
        queues.any(|queue| uses(self.now, queue) && !uses(&self.earlier[from..], queue))
    }
}

/// Where the two differ, and why they may.
pub struct Difference {
    /// Its name.
    pub id: &'static str,
    /// What differs.
    pub what: &'static str,
    /// Who is right.
    pub right: Right,
    /// By which section of virtio 1.4.
    pub section: &'static str,
    kind: Kind,
}

/// How an entry explains.
enum Kind {
    /// Something is seen otherwise and nothing follows from it.
    Seen(fn(&Context<'_>, &Seen, &Seen) -> bool),
    /// QEMU does not mind a ring that is broken in this way, by whether it is packed, its queue and how: the rest of the walk
    /// is not compared.
    Broken(fn(bool, usize, u64) -> bool),
}

impl Difference {
    fn explains(&self, context: &Context<'_>, ours: &Seen, theirs: &Seen) -> bool {
        matches!(self.kind, Kind::Seen(explains) if explains(context, ours, theirs))
    }

    fn allows(&self, packed: bool, queue: usize, how: u64) -> bool {
        matches!(self.kind, Kind::Broken(allows) if allows(packed, queue, how))
    }
}

fn isr(value: u64) -> Seen {
    Seen::Register("isr", value)
}

/// The list.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        id: "configuration-alone",
        what: "a change of the configuration sets its bit of the interrupt status; QEMU sets that of queues with it",
        right: Right::Hypernic,
        section: "4.1.4.5.1",
        kind: Kind::Seen(|_, ours, theirs| *ours == isr(2) && *theirs == isr(3)),
    },
    Difference {
        id: "first-call",
        what: "with events, QEMU calls for the first buffers that a queue has used, though the driver asked for no call",
        right: Right::Both,
        section: "2.7.7.2",
        kind: Kind::Seen(|context, ours, theirs| {
            let events = context.agreed(feature::EVENT_IDX);
            events && context.is_first_use() && *ours == isr(0) && *theirs == isr(1)
        }),
    },
    Difference {
        id: "calls-around-the-ring",
        what: "used buffers of a packed ring with events went around it: QEMU calls for an event that was passed before",
        right: Right::Both,
        section: "2.8.10",
        kind: Kind::Seen(|context, ours, theirs| {
            let around = |seen: &Seen| matches!(seen, Seen::Around(_));
            let events = context.agreed(feature::PACKED | feature::EVENT_IDX);
            events && context.now.iter().any(around) && *ours == isr(0) && *theirs == isr(1)
        }),
    },
    Difference {
        id: "number-of-buffers",
        what: "without MRG_RXBUF the header says that a frame lies in one buffer; QEMU says 0",
        right: Right::Hypernic,
        section: "5.1.6.4.1",
        kind: Kind::Seen(|context, ours, theirs| {
            let (Seen::Used(RX, ours), Seen::Used(RX, theirs)) = (ours, theirs) else {
                return false;
            };
            let mut said = theirs.clone();
            for (_, bytes) in &mut said {
                if let Some(low) = bytes.get_mut(10) {
                    *low = 1;
                }
            }
            !context.agreed(feature::MRG_RXBUF) && *ours == said
        }),
    },
    Difference {
        id: "absent-queue",
        what: "a queue that is not there has size 0, and says nothing else; QEMU says where it would be notified",
        right: Right::Both,
        section: "4.1.4.3.1",
        kind: Kind::Seen(|context, ours, theirs| {
            let at = |seen: &Seen| matches!(seen, Seen::Register("notified at", _));
            context.now.contains(&Seen::Register("size", 0)) && at(ours) && at(theirs)
        }),
    },
    Difference {
        id: "indirect-next",
        what: "a descriptor of a packed ring that has a table and another behind it breaks the ring; QEMU does not look for the other",
        right: Right::Hypernic,
        section: "2.8.19",
        kind: Kind::Broken(|packed, _, how| packed && how == 4),
    },
    Difference {
        id: "nested-table",
        what: "a table of descriptors in another breaks the ring; QEMU takes it for a buffer",
        right: Right::Hypernic,
        section: "2.7.5.3.1",
        kind: Kind::Broken(|packed, _, how| how == if packed { 3 } else { 5 }),
    },
    Difference {
        id: "index-jump",
        what: "more entries available than a split ring has break it; QEMU does not look without MRG_RXBUF, and uses buffers twice",
        right: Right::Hypernic,
        section: "2.7.6",
        kind: Kind::Broken(|packed, queue, how| !packed && queue == RX && how == 0),
    },
];

/// Whether the device says, at the next look at its status, that it needs a reset.
fn needs_reset(seen: &[Seen]) -> bool {
    let mut all = seen.iter();
    let status = all.find_map(|one| match one {
        Seen::Register("status", value) => Some(*value),
        _ => None,
    });
    status.is_some_and(|value| value & u64::from(status::NEEDS_RESET) != 0)
}

/// Compares what was seen in a walk with these features. What is on the list is added to `met`.
///
/// # Errors
/// The first difference that is not on the list.
pub fn compare(
    features: u64,
    ours: &[Seen],
    theirs: &[Seen],
    met: &mut Vec<&'static str>,
) -> Result<(), String> {
    // Each step ends with the interrupt status.
    let mut begun = 0;
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        if *a == Seen::Lost || *b == Seen::Lost {
            return Err(format!(
                "step {i}, {features:#x}: a call is lost\nours   {a:?}\ntheirs {b:?}"
            ));
        }
        let context = Context {
            features,
            earlier: &ours[..begun],
            now: &ours[begun..i],
        };
        if matches!(a, Seen::Register("isr", _)) {
            begun = i + 1;
        }
        if let Seen::Broken(queue, how) = *a {
            if !needs_reset(&ours[i..]) {
                // A frame that is filtered has ours look at no ring.
                let filters =
                    |seen: &Seen| matches!(seen, Seen::Answer(ctrl::RX | ctrl::MAC, .., ctrl::OK));
                if queue == RX && ours[..i].iter().any(filters) {
                    return Ok(());
                }
                return Err(format!("step {i}, {features:#x}: ours does not mind {a:?}"));
            }
            if !needs_reset(&theirs[i..]) {
                let packed = features & feature::PACKED != 0;
                let mut known = DIFFERENCES.iter();
                let known = known.find(|known| known.allows(packed, queue, how));
                let Some(known) = known else {
                    return Err(format!("step {i}, {features:#x}: QEMU does not mind {a:?}"));
                };
                met.push(known.id);
                return Ok(());
            }
        }
        if a == b {
            continue;
        }
        let mut known = DIFFERENCES.iter();
        let known = known.find(|known| known.explains(&context, a, b));
        match known {
            Some(known) => met.push(known.id),
            None => {
                let all = ours.iter().zip(theirs);
                let around = all.take(i + 4).skip(i.saturating_sub(12));
                let mut text = format!("step {i}, {features:#x}:\n");
                for (a, b) in around {
                    let _ = writeln!(text, "ours   {}\ntheirs {}", brief(a), brief(b));
                }
                return Err(text);
            }
        }
    }
    if ours.len() == theirs.len() {
        Ok(())
    } else {
        Err(format!("{} steps, and {}", ours.len(), theirs.len()))
    }
}

fn brief(seen: &Seen) -> String {
    let mut text = format!("{seen:?}");
    text.truncate(200);
    text
}

const HEAD: &str = "# The oracle of virtio-net

`HYPERNIC_WRITE_DOCS=1 cargo test -p hypernic-tests --test oracle the_page` writes this page from the list in
`tests/src/oracle/virtio/differences.rs`; a test fails when it is stale. [oracle.md](oracle.md) says how an oracle works.

This one compares our virtio-net behind PCI with QEMU's `virtio-net-pci` (QEMU 11, `-accel qtest`). Both get the same *walk*, which a
seed determines: features (split and packed rings, indirect tables, events, merged buffers, filters, queue reset), packets, buffers and
their shapes, frames from the wire, commands, queues that are reset, and now and then a broken ring. Devices may write events, flags and
what they leave of descriptors when they like, so it is not memory that is compared but what a driver makes of it: after each step the
buffers that were used, in their order and with their bytes, answers to commands, frames on the wire, the interrupt status and the device
status; now and then the registers of the common configuration. A call that the driver had asked for and did not get fails the walk,
whoever lost it.

`make test` runs 300 walks, `make test-long` 20 000; `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose others. Where QEMU was
right, our model was fixed, so the third column names others only. Sections are those of virtio 1.4.

QEMU's netdev has no offloads here, so checksums and segmentation are not compared, nor are several pairs, RSS and coalescing, which QEMU
has otherwise or not at all. A driver that breaks a ring and mends it before the device looks is not compared either: QEMU looks at the
index of a receive ring at other moments than ours, and may see what ours does not. (Two walks of an earlier driver differed so.) The
index of a transmit ring does not jump here, because QEMU does not come to an end then.

| id | difference | right | section |
|---|---|---|---|
";

/// The page of these differences.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    for entry in DIFFERENCES {
        let right = entry.right.name();
        let (id, what, section) = (entry.id, entry.what, entry.section);
        let _ = writeln!(text, "| `{id}` | {what} | {right} | {section} |");
    }
    text
}
