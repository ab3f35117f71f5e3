//! What was found.

use super::rounds::Passed;

/// Who begins round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Host,
    Guest,
}

/// What was found of one NIC, one way.
pub struct Found {
    pub id: &'static str,
    pub title: &'static str,
    pub from: From,
    /// Round trips as the program that pings has them, in microseconds: with the scheduler watched, and without.
    pub watched: Vec<f64>,
    pub alone: Vec<f64>,
    pub rounds: Vec<Vec<Passed>>,
    /// The scheduler was watched each time.
    pub called: bool,
    pub lost: u64,
}
