//! What was measured, before it is compared.

use std::collections::BTreeMap;

use rig::paired::median;

use super::plan::Job;
use crate::stats::{Reading, Summary};

/// What a measurement gave.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A reading for each round, none where it was disturbed every time.
    pub readings: Vec<Option<Reading>>,
    /// Why a round failed.
    pub failures: Vec<String>,
}

/// All outcomes by their measurements.
pub type Outcomes = BTreeMap<Job, Outcome>;

impl Outcome {
    /// The readings there are.
    pub fn readings(&self) -> impl Iterator<Item = &Reading> {
        self.readings.iter().flatten()
    }

    /// The median of all rounds.
    pub fn value(&self) -> Option<f64> {
        self.field(&|r| Some(r.value))
    }

    /// The median of something in all rounds.
    pub fn field(&self, pick: &dyn Fn(&Reading) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.readings().filter_map(pick).collect();
        median(&values)
    }

    /// The middle and the spread of all rounds.
    pub fn summary(&self) -> Option<Summary> {
        let values: Vec<f64> = self.readings().map(|r| r.value).collect();
        Summary::of(&values)
    }
}
