//! What is counted.

use crate::fabric::{Bell, Traffic};
use crate::peers::dpdk::Rings;

/// Which NICs, and how their drivers tell them of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Two 82540EMs on a switch.
    E1000(Bell),
    /// Two VFs of an 82576.
    Vfs(Bell),
    /// Two virtio-nets over vhost-user on a switch, with DPDK's virtio-user as guests.
    Virtio(Rings),
}

impl Door {
    fn words(self) -> &'static str {
        match self {
            Self::E1000(Bell::Trap) => "82540EM, messages",
            Self::E1000(Bell::Csb) => "82540EM, CSB",
            Self::E1000(Bell::Page) => "82540EM, doorbell pages",
            Self::Vfs(Bell::Trap | Bell::Csb) => "82576 VFs, messages",
            Self::Vfs(Bell::Page) => "82576 VFs, doorbell pages",
            Self::Virtio(Rings::Packed) => "virtio-net, vhost-user, packed rings",
            Self::Virtio(Rings::Split) => "virtio-net, vhost-user, split rings",
        }
    }
}

/// One thing that is counted.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Its row.
    pub title: String,
    /// Its NICs.
    pub door: Door,
    /// Its frames.
    pub kind: Traffic,
    /// Frames queued before the guest rings.
    pub burst: u32,
    /// The receiver sleeps until it is interrupted.
    pub interrupts: bool,
}

impl Scene {
    /// Whether this machine, or this daemon, may do without it.
    pub fn optional(&self) -> bool {
        matches!(self.door, Door::Virtio(_) | Door::E1000(Bell::Page))
    }
}

/// Ways that are compared.
const DOORS: [Door; 6] = [
    Door::E1000(Bell::Trap),
    Door::E1000(Bell::Csb),
    Door::E1000(Bell::Page),
    Door::Vfs(Bell::Trap),
    Door::Vfs(Bell::Page),
    Door::Virtio(Rings::Packed),
];

/// Frames queued before the guest rings.
const BURSTS: [u32; 3] = [1, 32, 128];

/// How a burst reads.
fn in_words(burst: u32) -> String {
    match burst {
        1 => "one by one".to_owned(),
        n => format!("bursts of {n}"),
    }
}

/// All of them.
pub fn scenes() -> Vec<Scene> {
    let of = |door: Door, what: &str, kind: Traffic, burst: u32, interrupts: bool| Scene {
        title: format!("{}, {what}", door.words()),
        door,
        kind,
        burst,
        interrupts,
    };
    let small = DOORS.into_iter().flat_map(|door| {
        BURSTS.map(|burst| {
            let what = format!("60 bytes, {}", in_words(burst));
            of(door, &what, Traffic::Plain(60), burst, false)
        })
    });
    let mut all: Vec<Scene> = small.collect();
    let trapped = Door::E1000(Bell::Trap);
    for (what, kind, burst, interrupts) in [
        (
            "60 bytes, bursts of 32, received by interrupt",
            Traffic::Plain(60),
            32,
            true,
        ),
        ("1514 bytes, bursts of 32", Traffic::Plain(1514), 32, false),
        ("9014 bytes, bursts of 32", Traffic::Plain(9014), 32, false),
        (
            "64 KiB of TCP for the NIC to cut (a frame is a segment)",
            Traffic::Tso,
            4,
            false,
        ),
    ] {
        all.push(of(trapped, what, kind, burst, interrupts));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_way_is_counted_at_every_burst_and_rows_differ() {
        let all = scenes();
        let titles: BTreeSet<_> = all.iter().map(|s| s.title.clone()).collect();
        assert_eq!((titles.len(), all.len()), (22, 22));
        for door in DOORS {
            let bursts = all.iter().filter(|s| s.door == door).map(|s| s.burst);
            let bursts: BTreeSet<_> = bursts.collect();
            assert!(BURSTS.iter().all(|b| bursts.contains(b)), "{door:?}");
        }
        // A build without virtio-net's guests still has the rest.
        assert_eq!(all.iter().filter(|s| s.optional()).count(), 6);
    }
}
