//! Whoever takes up a packed ring when this device has died is told what it was about to write.

/// Told of used descriptors before they are written: such a ring does not show where its used end was.
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// A buffer of so many slots is to be used by this descriptor (id, length, flags) in this slot.
    fn note(&self, slot: u16, desc: (u16, u32, u16), slots: u16);
    /// All that was noted, from one place to another (with their wrap counters in bit 15), is about to be written. From a
    /// place to itself: it is written.
    fn commit(&self, from: u16, to: u16);
}
