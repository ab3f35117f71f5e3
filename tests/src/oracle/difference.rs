//! A known difference: who is right, by which section of the manual, and exactly when.

use crate::oracle::compare::{Diff, Parted, Step};

/// Who does what the manual says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// We do, QEMU does not.
    Hypernic,
    /// The manual leaves it open.
    Both,
    /// QEMU does, and ours says that it does not.
    Qemu,
}

impl Right {
    /// As pages say it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Right::Hypernic => "hypernic",
            Right::Both => "both allowed",
            Right::Qemu => "QEMU",
        }
    }
}

/// How an entry explains.
#[derive(Clone, Copy)]
pub(super) enum DifferenceKind {
    /// A value reads differently and nothing follows from it: gives the bits it explains.
    Value(fn(&Step<'_>, &Diff) -> u64),
    /// The machines did different things, and from here on some halves of them cannot be compared
    /// in this script: gives those halves, if what happened in the step is this entry's case.
    Parting(fn(&Step<'_>, &[Diff]) -> Option<Parted>),
}

/// One known difference.
pub struct Difference {
    /// Its name.
    pub id: &'static str,
    /// What differs.
    pub what: &'static str,
    /// Who is right.
    pub right: Right,
    /// By which section of the chip's manual.
    pub section: &'static str,
    pub(super) kind: DifferenceKind,
}

impl Difference {
    /// Whether a part of the script cannot be compared after it.
    pub(super) fn parts(&self) -> bool {
        matches!(self.kind, DifferenceKind::Parting(_))
    }

    pub(super) const fn value(
        id: &'static str,
        right: Right,
        section: &'static str,
        what: &'static str,
        explains: fn(&Step<'_>, &Diff) -> u64,
    ) -> Self {
        let kind = DifferenceKind::Value(explains);
        Self {
            id,
            what,
            right,
            section,
            kind,
        }
    }

    pub(super) const fn parting(
        id: &'static str,
        right: Right,
        section: &'static str,
        what: &'static str,
        parts: fn(&Step<'_>, &[Diff]) -> Option<Parted>,
    ) -> Self {
        let kind = DifferenceKind::Parting(parts);
        Self {
            id,
            what,
            right,
            section,
            kind,
        }
    }
}
