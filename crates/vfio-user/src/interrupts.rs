//! Interrupts: INTx as an automasked level, MSI and MSI-X as latched messages.
//!
//! A device calls [`Interrupts`] from any thread. What the client armed, masked or took back
//! decides whether that becomes a write to an eventfd now, later, or never.

pub(crate) mod saved;
pub(crate) mod shown;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pci::{Pme, PmeWrite};

use crate::codec::irq;
use peer::deferred_closer::PeerFd;
use peer::poke;
use peer::signal::{Line, SLOW, Signaller, count};

use self::told::Told;

/// The pin.
#[derive(Default)]
struct Intx {
    fd: Option<Arc<Line>>,
    /// What the device drives.
    asserted: bool,
    /// Set by a trigger and by MASK, cleared by UNMASK.
    masked: bool,
    /// COMMAND bit 10.
    disabled: bool,
    told: Told,
}

/// One message.
#[derive(Default)]
struct Vector {
    fd: Option<Arc<Line>>,
    /// Masked by SET_IRQS.
    masked: bool,
    /// Masked in the vector table or the MSI mask bits.
    guest_masked: bool,
    pending: bool,
    told: Told,
}

pub(crate) struct State {
    has_intx: bool,
    intx: Mutex<Intx>,
    /// Copy of `intx.asserted`, for the status register.
    line: AtomicBool,
    msi: Box<[Mutex<Vector>]>,
    msix: Box<[Mutex<Vector>]>,
    err: Mutex<Vector>,
    req: Mutex<Vector>,
    msix_function_masked: AtomicBool,
    /// Pending bits of MSI-X, as the guest reads them.
    pba: Box<[AtomicU64]>,
    msi_pending: AtomicU32,
    /// PME_En, PME_Status.
    pme: [AtomicBool; 2],
    signaller: Signaller,
}

/// A device's interrupts. Clones are the same; any thread may use them.
///
/// One trigger is one write to an eventfd. Whether an interrupt is worth it (moderation, a driver
/// that has not looked at the last one yet) is the device's decision.
#[derive(Clone)]
pub struct Interrupts(pub(crate) Arc<State>);

impl std::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupts")
            .field("line", &self.line())
            .finish_non_exhaustive()
    }
}

impl Interrupts {
    pub(crate) fn new(has_intx: bool, msi: usize, msix: usize) -> Self {
        Self::with(Signaller::new(SLOW), has_intx, msi, msix)
    }

    fn with(signaller: Signaller, has_intx: bool, msi: usize, msix: usize) -> Self {
        poke::prepare();
        let vectors = |n| (0..n).map(|_| Mutex::default()).collect();
        Self(Arc::new(State {
            has_intx,
            intx: Mutex::default(),
            line: AtomicBool::new(false),
            msi: vectors(msi),
            msix: vectors(msix),
            err: Mutex::default(),
            req: Mutex::default(),
            msix_function_masked: AtomicBool::new(false),
            pba: (0..msix.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            msi_pending: AtomicU32::new(0),
            pme: Default::default(),
            signaller,
        }))
    }

    /// Drives the INTx pin. Idempotent.
    ///
    /// A rising level triggers once and then stays silent until the client unmasks (by message or
    /// through its resample eventfd); if the level is still high then, it triggers again.
    pub fn set_line(&self, asserted: bool) {
        let state = &*self.0;
        let mut intx = state.intx.lock();
        if intx.asserted == asserted {
            return;
        }
        intx.asserted = asserted;
        state.line.store(asserted, Ordering::Release);
        if asserted {
            state.evaluate(&mut intx);
        }
    }

    /// The level the device drives.
    pub fn line(&self) -> bool {
        self.0.line.load(Ordering::Acquire)
    }

    /// Sends MSI message `vector`; latched while masked or not armed yet. Vectors that do not exist
    /// are ignored.
    pub fn msi(&self, vector: u16) {
        let state = &*self.0;
        if let Some(cell) = state.msi.get(usize::from(vector)) {
            state.send(&mut cell.lock(), irq::MSI, vector.into());
        }
    }

    /// Sends MSI-X message `vector`; latched in the pending bit array while masked or not armed
    /// yet. Vectors that do not exist are ignored.
    pub fn msix(&self, vector: u16) {
        let state = &*self.0;
        if let Some(cell) = state.msix.get(usize::from(vector)) {
            state.send(&mut cell.lock(), irq::MSIX, vector.into());
        }
    }

    /// Counts that the device holds back what would raise the pin.
    pub fn pin_delayed(&self) {
        self.0.intx.lock().told.delayed += 1;
    }

    /// The same of an MSI message.
    pub fn msi_delayed(&self, vector: u16) {
        if let Some(cell) = self.0.msi.get(usize::from(vector)) {
            cell.lock().told.delayed += 1;
        }
    }

    /// The same of an MSI-X message.
    pub fn msix_delayed(&self, vector: u16) {
        if let Some(cell) = self.0.msix.get(usize::from(vector)) {
            cell.lock().told.delayed += 1;
        }
    }

    /// What PMCSR shows: PME_En and PME_Status. There is no message that would carry PME to the
    /// client: one that wants to wake its guest looks at PMCSR.
    pub fn set_pme(&self, pme: Pme) {
        self.0.pme[0].store(pme.enabled, Ordering::Release);
        self.0.pme[1].store(pme.status, Ordering::Release);
    }

    /// Reports an uncorrectable error to the client (QEMU stops the VM).
    pub fn error(&self) {
        self.0.send(&mut self.0.err.lock(), irq::ERR, 0);
    }

    /// Asks the client to give the device back (QEMU unplugs it). Returns whether it listens.
    pub fn request(&self) -> bool {
        let mut req = self.0.req.lock();
        let listens = req.fd.is_some();
        if listens {
            self.0.send(&mut req, irq::REQ, 0);
        }
        listens
    }

    /// Whether the device has MSI-X.
    pub fn has_msix(&self) -> bool {
        !self.0.msix.is_empty()
    }

    /// Counters by name.
    pub fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.0.signaller;
        let load = |a: &AtomicU64| a.load(Ordering::Relaxed);
        visit("irq_triggers", load(&c.triggers));
        visit("irq_suppressed", load(&c.suppressed));
        visit("irq_latched", load(&c.latched));
        visit("irq_failed", load(&c.failed));
        visit("irq_deferred", load(&c.deferred));
    }
}

impl State {
    /// Vectors of an index, as GET_IRQ_INFO reports them.
    pub fn count(&self, index: u32) -> u32 {
        match index {
            irq::INTX => u32::from(self.has_intx),
            irq::MSI => self.msi.len() as u32,
            irq::MSIX => self.msix.len() as u32,
            irq::ERR | irq::REQ => 1,
            _ => 0,
        }
    }

    fn evaluate(&self, intx: &mut Intx) {
        if !intx.asserted {
            return;
        }
        match &intx.fd {
            Some(fd) if !intx.masked && !intx.disabled => {
                self.signaller.signal(fd);
                intx.masked = true;
                intx.told.signalled += 1;
            }
            _ => {
                intx.told.merged += 1;
                count(&self.signaller.suppressed);
            }
        }
    }

    fn vector(&self, index: u32, vector: u32) -> Option<&Mutex<Vector>> {
        match index {
            irq::MSI => self.msi.get(vector as usize),
            irq::MSIX => self.msix.get(vector as usize),
            irq::ERR if vector == 0 => Some(&self.err),
            irq::REQ if vector == 0 => Some(&self.req),
            _ => None,
        }
    }

    fn held(&self, cell: &Vector, index: u32) -> bool {
        cell.masked
            || cell.guest_masked
            || index == irq::MSIX && self.msix_function_masked.load(Ordering::Acquire)
    }

    fn send(&self, cell: &mut Vector, index: u32, vector: u32) {
        match &cell.fd {
            Some(fd) if !self.held(cell, index) => {
                self.signaller.signal(fd);
                cell.told.signalled += 1;
            }
            _ if cell.pending => {
                cell.told.merged += 1;
                count(&self.signaller.suppressed);
            }
            _ => {
                cell.told.held += 1;
                count(&self.signaller.latched);
                self.set_pending(cell, index, vector, true);
            }
        }
    }

    fn set_pending(&self, cell: &mut Vector, index: u32, vector: u32, pending: bool) {
        cell.pending = pending;
        let bit = 1u64 << (vector % 64);
        match index {
            irq::MSIX => {
                let Some(word) = self.pba.get(vector as usize / 64) else {
                    return;
                };
                if pending {
                    word.fetch_or(bit, Ordering::Release);
                } else {
                    word.fetch_and(!bit, Ordering::Release);
                }
            }
            irq::MSI if pending => {
                self.msi_pending.fetch_or(bit as u32, Ordering::Release);
            }
            irq::MSI => {
                self.msi_pending.fetch_and(!bit as u32, Ordering::Release);
            }
            _ => {}
        }
    }

    /// Fires a latched message if nothing holds it any more.
    fn release(&self, cell: &mut Vector, index: u32, vector: u32) {
        if cell.pending && !self.held(cell, index) {
            if let Some(fd) = &cell.fd {
                self.signaller.signal(fd);
                cell.told.signalled += 1;
            } else {
                return;
            }
            self.set_pending(cell, index, vector, false);
        }
    }

    /// Arms a vector with an eventfd, or takes it back.
    pub fn arm(&self, index: u32, vector: u32, fd: Option<PeerFd>) {
        let fd = fd.map(Line::new);
        if index == irq::INTX {
            let mut intx = self.intx.lock();
            if intx.fd.is_none() || fd.is_none() {
                // A new owner of the pin has seen no trigger that it would unmask.
                intx.masked = false;
            }
            replace(&mut intx.fd, fd);
            if intx.fd.is_some() {
                self.evaluate(&mut intx);
            }
        } else if let Some(cell) = self.vector(index, vector) {
            let mut cell = cell.lock();
            replace(&mut cell.fd, fd);
            self.release(&mut cell, index, vector);
        }
    }

    /// Masks or unmasks a vector.
    pub fn mask(&self, index: u32, vector: u32, masked: bool) {
        if index == irq::INTX {
            let mut intx = self.intx.lock();
            intx.masked = masked;
            if !masked {
                self.evaluate(&mut intx);
            }
        } else if let Some(cell) = self.vector(index, vector) {
            let mut cell = cell.lock();
            cell.masked = masked;
            self.release(&mut cell, index, vector);
        }
    }

    /// The client's own trigger, to test the path: just the eventfd.
    pub fn loopback(&self, index: u32, vector: u32) {
        if index == irq::INTX {
            if let Some(fd) = &self.intx.lock().fd {
                self.signaller.signal(fd);
            }
        } else if let Some(cell) = self.vector(index, vector)
            && let Some(fd) = &cell.lock().fd
        {
            self.signaller.signal(fd);
        }
    }

    /// Takes all eventfds of an index back. Latched messages stay latched: QEMU disables and
    /// enables an index just to change the number of its vectors.
    pub fn disable(&self, index: u32) {
        for vector in 0..self.count(index) {
            self.arm(index, vector, None);
            if index != irq::INTX {
                self.mask(index, vector, false);
            }
        }
    }

    /// The client is gone.
    pub fn disarm_all(&self) {
        for index in 0..irq::COUNT {
            self.disable(index);
        }
    }

    /// The device was reset: no level, nothing pending, nothing masked by the guest.
    pub fn reset(&self) {
        {
            let mut intx = self.intx.lock();
            intx.asserted = false;
            intx.disabled = false;
            self.line.store(false, Ordering::Release);
        }
        self.msix_function_masked.store(false, Ordering::Release);
        for index in [irq::MSI, irq::MSIX] {
            self.forget_pending(index);
            for vector in 0..self.count(index) {
                self.guest_mask(index, vector, false);
            }
        }
    }

    /// Drops latched messages of an index: the guest has disabled it.
    pub fn forget_pending(&self, index: u32) {
        for vector in 0..self.count(index) {
            if let Some(cell) = self.vector(index, vector) {
                self.set_pending(&mut cell.lock(), index, vector, false);
            }
        }
    }

    /// COMMAND bit 10.
    pub fn set_intx_disabled(&self, disabled: bool) {
        let mut intx = self.intx.lock();
        if intx.disabled != disabled {
            intx.disabled = disabled;
            if !disabled {
                self.evaluate(&mut intx);
            }
        }
    }

    /// The function mask of MSI-X.
    pub fn set_msix_function_masked(&self, masked: bool) {
        self.msix_function_masked.store(masked, Ordering::Release);
        if !masked {
            for (vector, cell) in self.msix.iter().enumerate() {
                self.release(&mut cell.lock(), irq::MSIX, vector as u32);
            }
        }
    }

    /// The guest's own mask of one vector.
    pub fn guest_mask(&self, index: u32, vector: u32, masked: bool) {
        if let Some(cell) = self.vector(index, vector) {
            let mut cell = cell.lock();
            cell.guest_masked = masked;
            self.release(&mut cell, index, vector);
        }
    }

    /// 64 pending bits of MSI-X.
    pub fn pba(&self, word: usize) -> u64 {
        self.pba.get(word).map_or(0, |w| w.load(Ordering::Acquire))
    }

    /// PME_En and PME_Status.
    pub fn pme(&self) -> Pme {
        let [enabled, status] = &self.pme;
        Pme {
            enabled: enabled.load(Ordering::Acquire),
            status: status.load(Ordering::Acquire),
        }
    }

    /// Software wrote PMCSR.
    pub fn pme_written(&self, write: PmeWrite) {
        self.pme[0].store(write.enable, Ordering::Release);
        if write.clear {
            self.pme[1].store(false, Ordering::Release);
        }
    }

    /// Pending bits of MSI.
    pub fn msi_pending(&self) -> u32 {
        self.msi_pending.load(Ordering::Acquire)
    }
}

fn replace(line: &mut Option<Arc<Line>>, by: Option<Arc<Line>>) {
    if let Some(old) = std::mem::replace(line, by) {
        old.take_back();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::EventFd;
    use peer::deferred_closer::DeferredCloser;

    #[derive(Clone, Debug)]
    enum Op {
        Line(bool),
        Arm(bool),
        Mask(bool),
        Command(bool),
        Msix(u16),
        ArmVector(u32, bool),
        MaskVector(u32, bool),
        GuestMask(u32, bool),
        FunctionMask(bool),
        Disable(u32),
        Forget,
        Reset,
    }

    fn op() -> impl Strategy<Value = Op> {
        let vector = 0..3u32;
        prop_oneof![
            any::<bool>().prop_map(Op::Line),
            any::<bool>().prop_map(Op::Arm),
            any::<bool>().prop_map(Op::Mask),
            any::<bool>().prop_map(Op::Command),
            (0..4u16).prop_map(Op::Msix),
            (vector.clone(), any::<bool>()).prop_map(|(v, on)| Op::ArmVector(v, on)),
            (vector.clone(), any::<bool>()).prop_map(|(v, on)| Op::MaskVector(v, on)),
            (vector, any::<bool>()).prop_map(|(v, on)| Op::GuestMask(v, on)),
            any::<bool>().prop_map(Op::FunctionMask),
            (0..5u32).prop_map(Op::Disable),
            Just(Op::Forget),
            Just(Op::Reset),
        ]
    }

    fn apply(irq: &Interrupts, op: &Op, fd: &EventFd) {
        let state = &*irq.0;
        let dup = |on: bool| {
            let fd = || fd.as_fd().try_clone_to_owned().unwrap();
            on.then(|| PeerFd::new(fd(), &DeferredCloser::default()))
        };
        match *op {
            Op::Line(on) => irq.set_line(on),
            Op::Arm(on) => state.arm(irq::INTX, 0, dup(on)),
            Op::Mask(on) => state.mask(irq::INTX, 0, on),
            Op::Command(on) => state.set_intx_disabled(on),
            Op::Msix(vector) => irq.msix(vector),
            Op::ArmVector(v, on) => state.arm(irq::MSIX, v, dup(on)),
            Op::MaskVector(v, on) => state.mask(irq::MSIX, v, on),
            Op::GuestMask(v, on) => state.guest_mask(irq::MSIX, v, on),
            Op::FunctionMask(on) => state.set_msix_function_masked(on),
            Op::Disable(index) => state.disable(index),
            Op::Forget => state.forget_pending(irq::MSIX),
            Op::Reset => state.reset(),
        }
    }

    proptest! {
        #[test]
        fn no_interrupt_is_lost_or_invented(ops in prop::collection::vec(op(), 1..60)) {
            let irq = Interrupts::with(Signaller::new(Duration::MAX), true, 0, 3);
            let fd = EventFd::new().unwrap();
            let mut sent = 0u64;
            let mut due = 0u64;
            for op in &ops {
                let before = irq.0.signaller.triggers.load(Ordering::Relaxed);
                apply(&irq, op, &fd);
                let triggers = irq.0.signaller.triggers.load(Ordering::Relaxed) - before;
                sent += triggers;
                due += fd.take();
                let intx = irq.0.intx.lock();
                // A level that may be heard has been: it waits for its unmask.
                if intx.asserted && intx.fd.is_some() && !intx.disabled {
                    prop_assert!(intx.masked, "after {op:?}");
                }
                prop_assert_eq!(intx.asserted, irq.line());
                for (v, cell) in irq.0.msix.iter().enumerate() {
                    let cell = cell.lock();
                    prop_assert_eq!(irq.0.pba(0) >> v & 1 != 0, cell.pending);
                    // What waits has a reason to.
                    prop_assert!(
                        !cell.pending || cell.fd.is_none() || irq.0.held(&cell, irq::MSIX),
                        "after {op:?}"
                    );
                }
                // Only an input that lets something out may send.
                if matches!(op, Op::Line(false) | Op::Arm(false) | Op::Mask(true) | Op::Command(true)
                    | Op::FunctionMask(true) | Op::Forget | Op::Reset) {
                    prop_assert_eq!(triggers, 0, "after {:?}", op);
                }
            }
            prop_assert_eq!(sent, due);
        }
    }
}
