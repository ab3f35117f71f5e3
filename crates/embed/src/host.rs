//! What a NIC needs of the program around it.

/// What a NIC needs of the program around it.
///
/// All of it may be called from within any call to [`Nic`](crate::Nic), by the thread that makes the call. An
/// implementation must not call back into the same NIC; it notes what there is to do, and does it
/// once the call has returned.
pub trait Host: Send + Sync {
    /// Takes a frame the guest sent, finished: checksums are in it, segments are cut, no FCS.
    /// `false` when there is no room: the frame stays in the guest's ring, [`Nic::run`](crate::Nic::run) ends
    /// [`Progress::Blocked`](crate::Progress::Blocked), and continues there when it is called again.
    fn send(&self, frame: &[u8]) -> bool;

    /// Reads guest memory at the bus address. `false`: nothing there (master abort).
    fn dma_read(&self, address: u64, out: &mut [u8]) -> bool;

    /// Writes guest memory at the bus address. `false`: nothing there.
    fn dma_write(&self, address: u64, bytes: &[u8]) -> bool;

    /// The level of the INTA# pin has changed to `level`.
    fn interrupt(&self, level: bool);

    /// A message signalled interrupt: a write of `data` to `address`.
    fn message(&self, address: u64, data: u32) {
        let _ = (address, data);
    }

    /// PME# is asserted or no more: the NIC asks for its sleeping machine to be woken.
    fn pme(&self, asserted: bool) {
        let _ = asserted;
    }

    /// Calls [`Nic::tick`](crate::Nic::tick) at or soon after `deadline`, on the clock of [`Host::now`]; `None` calls
    /// it off. Replaces the timer set before. A host without a timer must not let its guest delay
    /// interrupts (ITR, RDTR, TIDV), for they would never come.
    fn set_timer(&self, deadline: Option<u64>);

    /// Nanoseconds of a clock that never goes backwards.
    fn now(&self) -> u64;

    /// [`Nic::receive`](crate::Nic::receive) took less than it was given, and may take more now.
    fn room(&self) {}
}
