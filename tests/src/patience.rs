//! How long tests wait.

use std::time::Duration;

/// How long anything may take before it counts as stuck: generous, since two translated guests may
/// share two busy processors. Nothing is asserted about how long it really takes.
pub const LONG: Duration = Duration::from_secs(60);
