//! Interrupts, for display.

use std::sync::atomic::Ordering;

use super::{Interrupts, State};
use crate::codec::irq;

/// A vector, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorInfo {
    /// `intx`, `msi` or `msix`.
    pub kind: &'static str,
    /// Its number.
    pub vector: u32,
    /// The client has given an eventfd for it.
    pub armed: bool,
    /// The client or the guest has masked it.
    pub masked: bool,
    /// An interrupt waits; of the pin, the level.
    pub pending: bool,
    /// Interrupts signalled to the client.
    pub signalled: u64,
    /// Interrupts that had to wait.
    pub held: u64,
    /// Interrupts that had nothing to add to one that waits.
    pub merged: u64,
    /// Times that something began to wait for its time, because the guest or the operator wants fewer interrupts.
    pub delayed: u64,
}

impl Interrupts {
    /// The pin, and each message that there is.
    pub fn vectors(&self) -> Vec<VectorInfo> {
        let state: &State = &self.0;
        let mut all = Vec::new();
        if state.has_intx {
            let pin = state.intx.lock();
            all.push(VectorInfo {
                kind: "intx",
                vector: 0,
                armed: pin.fd.is_some(),
                masked: pin.masked || pin.disabled,
                pending: pin.asserted,
                signalled: pin.told.signalled,
                held: pin.told.held,
                merged: pin.told.merged,
                delayed: pin.told.delayed,
            });
        }
        let function_masked = state.msix_function_masked.load(Ordering::Acquire);
        for (kind, index) in [("msi", irq::MSI), ("msix", irq::MSIX)] {
            for vector in 0..state.count(index) {
                let Some(cell) = state.vector(index, vector) else {
                    continue;
                };
                let cell = cell.lock();
                let by_function = index == irq::MSIX && function_masked;
                all.push(VectorInfo {
                    kind,
                    vector,
                    armed: cell.fd.is_some(),
                    masked: cell.masked || cell.guest_masked || by_function,
                    pending: cell.pending,
                    signalled: cell.told.signalled,
                    held: cell.told.held,
                    merged: cell.told.merged,
                    delayed: cell.told.delayed,
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::EventFd;
    use peer::deferred_closer::{DeferredCloser, PeerFd};

    #[test]
    fn each_interrupt_is_told_once_where_it_went() {
        let irq = Interrupts::new(true, 0, 2);
        irq.msix(1);
        irq.msix(1);
        irq.set_line(true);
        let fd = EventFd::new().expect("eventfd");
        let arm = |index, vector| {
            let fd = fd.as_fd().try_clone_to_owned().expect("descriptor");
            let fd = PeerFd::new(fd, &DeferredCloser::default());
            irq.0.arm(index, vector, Some(fd));
        };
        arm(irq::MSIX, 1);
        irq.msix(1);
        arm(irq::INTX, 0);
        irq.pin_delayed();
        for vector in [1, 1, 2] {
            irq.msix_delayed(vector);
        }
        irq.msi_delayed(0);
        let all = irq.vectors();
        let counts = |info: &VectorInfo| (info.signalled, info.held, info.merged);
        let names: Vec<_> = all.iter().map(|info| (info.kind, info.vector)).collect();
        assert_eq!(names, [("intx", 0), ("msix", 0), ("msix", 1)]);
        // The pin rose before it had an eventfd, and waits for its unmask now.
        assert_eq!(counts(&all[0]), (1, 0, 1));
        assert!(all[0].armed && all[0].masked && all[0].pending);
        assert_eq!(counts(&all[1]), (0, 0, 0));
        // One waited and another had nothing to add to it; it went when it could, and the next at once.
        assert_eq!(counts(&all[2]), (2, 1, 1));
        assert!(all[2].armed && !all[2].masked && !all[2].pending);
        // What the device held back, of vectors that there are.
        let delayed: Vec<_> = all.iter().map(|info| info.delayed).collect();
        assert_eq!(delayed, [1, 0, 2]);
    }
}
