//! Differences in virtual functions and in how the PF rules them.

use super::Difference;

pub(super) fn list() -> Vec<Difference> {
    Vec::new()
}
