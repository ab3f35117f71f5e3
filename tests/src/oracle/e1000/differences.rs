//! The list of known differences: who is right, by which section of the manual, and exactly when.

mod arrival;
mod done;
mod evidence;
mod frames;
mod values;

use crate::oracle::difference::Difference;

/// The list: first what only reads differently, then what is done differently.
pub(super) fn list() -> Vec<Difference> {
    let lists = [values::list(), frames::list(), done::list()];
    lists.into_iter().flatten().collect()
}
