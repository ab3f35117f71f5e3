//! What is compared.

use super::contender::Contender;
use crate::error::Result;
use crate::stats::Column;

/// Frame sizes compared.
pub const SIZES: [usize; 2] = [60, 1514];

/// What is compared, with one contender for each size that it can do.
pub struct Party {
    pub id: &'static str,
    /// In plots.
    pub name: &'static str,
    pub ours: bool,
    pub title: &'static str,
    pub how: &'static str,
    pub ready: std::result::Result<Vec<Contender>, String>,
}

/// A size, with a column for each party.
pub type Result1 = (usize, Vec<Column>);

/// A contender for each size.
pub fn each(start: &dyn Fn(usize) -> Result<Contender>) -> Result<Vec<Contender>> {
    SIZES.into_iter().map(start).collect()
}
