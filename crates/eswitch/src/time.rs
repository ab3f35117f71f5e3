//! Time, as all rates here measure it.

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;
