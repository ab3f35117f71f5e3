//! What a vector counts.

/// What became of a vector's interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// The eventfd was written.
    pub signalled: u64,
    /// It waits, because the vector is masked or has no eventfd.
    pub held: u64,
    /// There was one already that waits, or whose mask the driver has not lifted yet.
    pub merged: u64,
    /// Something began to wait for its time, within the device.
    pub delayed: u64,
}
