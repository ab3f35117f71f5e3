//! What is compared, and what was found.

use super::calls;
use super::load::{Lengths, Load};
use super::party;
use crate::inside::virtio::{Rings, VirtioSpec};
use crate::spec::Mix;
use crate::stats::Column;

/// With two pairs of queues.
pub const BURST: u32 = 64;

/// Rings compared inside one process.
pub const RINGS: [Rings; 3] = [Rings::Split, Rings::Packed, Rings::PackedInOrder];

/// What one part found.
#[derive(Default)]
pub struct Found {
    /// By pairs of queues and load, a column for each party.
    pub switched: Vec<(u32, Load, Vec<Column>)>,
    /// Why a party is not among them.
    pub absent: Vec<(u32, usize, String)>,
    pub within: Vec<(Case, Column)>,
    pub calls: Vec<(calls::Way, calls::Pace, calls::Outcome)>,
}

impl Found {
    /// A party's column.
    pub fn column(&self, queues: u32, load: Load, id: &str) -> Option<&Column> {
        let at = party::index(id)?;
        let found = self.switched.iter();
        let mut found = found.filter(|(q, l, _)| (*q, *l) == (queues, load));
        found.next().map(|(_, _, columns)| &columns[at])
    }

    /// A case's column.
    pub fn case(&self, case: Case) -> Option<&Column> {
        let found = self.within.iter().find(|(c, _)| *c == case);
        found.map(|(_, column)| column)
    }

    pub fn outcome(&self, way: &str, pace: &str) -> Option<&calls::Outcome> {
        let found = self.calls.iter();
        let mut found = found.filter(|(w, p, _)| (w.id, p.id) == (way, pace));
        found.next().map(|(_, _, outcome)| outcome)
    }
}

/// What is compared inside one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// The raw loop between two rings, which copies: of frames of so many bytes, so many at once.
    Raw(usize, usize),
    /// Two virtio-nets.
    Ours(VirtioSpec),
}

impl Case {
    pub fn id(self) -> String {
        match self {
            Self::Raw(size, burst) => format!("raw {size} x{burst}"),
            Self::Ours(spec) => {
                let what = match (spec.whole, spec.mix) {
                    (Some(buffer), _) => format!("whole into {buffer}"),
                    (None, Mix::Imix) => "imix".to_owned(),
                    (None, _) => spec.size.to_string(),
                };
                format!("{} {what} x{}", spec.rings.words(), spec.burst)
            }
        }
    }
}

/// Segments handed over at once.
pub const SEGMENTS: u16 = 4;
/// The receiver's buffers for them.
pub const BUFFERS: [usize; 2] = [1 << 16, 4096];

/// All cases, each raw one before those it is compared with.
pub fn within() -> Vec<Case> {
    let mut all = Vec::new();
    let large = VirtioSpec::segments(SEGMENTS, Rings::Split, BUFFERS[0]);
    all.push(Case::Raw(large.size, SEGMENTS.into()));
    for buffer in BUFFERS {
        let one = |rings| Case::Ours(VirtioSpec::segments(SEGMENTS, rings, buffer));
        all.extend(RINGS.map(one));
    }
    for size in [60, 1514] {
        for burst in [1, 32, 256] {
            all.push(Case::Raw(size, burst.into()));
            let one = |rings| Case::Ours(VirtioSpec::frames(size, burst, rings));
            all.extend(RINGS.map(one));
        }
    }
    all.extend(RINGS.map(|rings| Case::Ours(VirtioSpec::imix(32, rings))));
    all
}

/// Frames of 60 or 1514 bytes in the bursts that targets are for.
pub fn usual(size: u32) -> Load {
    Load {
        lengths: Lengths::Alike(size),
        burst: BURST,
    }
}
