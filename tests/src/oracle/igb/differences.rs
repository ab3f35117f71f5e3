//! The list of known differences: who is right, by which section of the manual, and exactly when.

mod done;
mod evidence;
mod frames;
mod pools;
mod seldom;
mod values;
mod vf;

use crate::oracle::difference::Difference;

/// The list: first what only reads differently, then what is done differently.
pub(super) fn list() -> Vec<Difference> {
    let lists = [
        values::list(),
        seldom::values(),
        frames::list(),
        pools::values(),
        done::list(),
        seldom::partings(),
        pools::partings(),
    ];
    lists.into_iter().flatten().collect()
}

/// What there is besides where there are VFs.
pub(super) fn of_vfs() -> Vec<Difference> {
    let lists = [vf::list(), vf::partings()];
    lists.into_iter().flatten().collect()
}
