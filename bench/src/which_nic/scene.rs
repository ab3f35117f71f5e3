//! What is measured, and what was found.

use super::bed::Bed;
use crate::error::Result;
use crate::stats::{Column, Reading};

/// What is measured, and how.
pub struct Scene {
    pub id: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    /// Whether less is better.
    pub less: bool,
    pub mtu: u32,
    pub seconds: f64,
    pub run: fn(&Bed, usize, bool) -> Result<Reading>,
}

/// One scene's figures, a column for each NIC.
pub struct Found {
    pub scene: &'static Scene,
    pub columns: Vec<Column>,
}
