//! What stands in the place of a NIC in whose turns the worker process has died twice: a function that answers as an empty
//! slot does, without a line of the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frame::{Batch, Caps, Counted, Sink, Wake};
use model::{
    Control, Env, Kept, Nanos, Nic, PciState, Progress, Receive, ResetKind, StateError, Transmit,
    Work,
};

/// Whether the NIC of that name is in quarantine.
pub(crate) fn holds(name: &str) -> bool {
    keeper::current().is_some_and(|page| {
        let nic = page.nics().place(name);
        nic.is_some_and(|nic| page.nics().is_quarantined(nic))
    })
}

/// The NIC was removed: the next of its name begins anew.
pub(crate) fn end(name: &str) {
    if let Some(page) = keeper::current()
        && let Some(nic) = page.nics().place(name)
    {
        page.nics().pardon(nic);
    }
}

/// The same function on the bus, with nothing behind it.
pub(crate) fn instead_of(nic: Nic) -> Nic {
    let absent = Arc::new(Absent::default());
    Nic {
        identity: nic.identity,
        control: Box::new(Slot(Arc::clone(&absent))),
        transmit: Box::new(Slot(Arc::clone(&absent))),
        receive: absent,
        revision: nic.revision,
    }
}

#[derive(Default)]
struct Absent {
    /// Frames that came for it.
    lost: AtomicU64,
}

/// Its place on the bus.
struct Slot(Arc<Absent>);

impl Counted for Slot {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("quarantined", 1);
        visit("rx_quarantined", self.0.lost.load(Ordering::Relaxed));
    }
}

impl Control for Slot {
    fn read(&mut self, _env: &Env, _bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(0xff);
    }
    fn write(&mut self, _env: &Env, _bar: u8, _offset: u64, _data: &[u8]) {}
    fn take_work(&mut self) -> Work {
        Work::default()
    }
    fn reset(&mut self, _env: &Env, _kind: ResetKind) {}
    fn pci(&mut self, _env: &Env, _state: PciState) {}
    fn tick(&mut self, _env: &Env) {}
    fn set_link(&mut self, _env: &Env, _up: bool) {}
    fn save(&self, _env: &Env) -> Vec<u8> {
        Vec::new()
    }
    fn load(&mut self, _env: &Env, _blob: &[u8]) -> Result<(), StateError> {
        Err(StateError::NoState)
    }
    fn keep(&mut self, _words: Kept) -> bool {
        true
    }
    fn take_changed(&mut self) -> bool {
        false
    }
    /// Its VMM keeps the connection, and reads ones.
    fn recover(
        &mut self,
        _env: &Env,
        _saved: (&[u8], Nanos),
        _words: Kept,
    ) -> Result<u64, StateError> {
        Ok(0)
    }
}

impl Transmit for Slot {
    fn run(&mut self, _env: &Env, _to: &dyn Sink, _budget: usize) -> Progress {
        Progress::Idle
    }
}

impl Receive for Absent {
    fn deliver(&self, _env: &Env, _batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.lost.fetch_add(picks.len() as u64, Ordering::Relaxed);
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _waker: &Arc<dyn Wake>) {}
    fn poll(&self, _env: &Env) {}
}

#[cfg(test)]
mod tests {
    use model_testkit::{Silent, Time, memory};
    use wire::Offload;

    use super::*;

    #[test]
    fn frames_for_it_are_counted() {
        let mut nic = instead_of(e1000::new(e1000::Config::new([2, 0, 0, 0, 0, 1])));
        let mut batch = Batch::new();
        for _ in 0..3 {
            batch.push_bytes(&[0xff; 60]);
            batch.end(Offload::NONE);
        }
        let env = Env {
            memory: memory(0x1000, 0x1000),
            irq: Arc::new(Silent),
            clock: Arc::new(Time::default()),
            timer: Arc::new(Silent),
        };
        assert_eq!(nic.receive.deliver(&env, &batch, &[0, 2]), 2);
        let mut lost = None;
        nic.control.counters(&mut |name, value| {
            if name == "rx_quarantined" {
                lost = Some(value);
            }
        });
        assert_eq!(lost, Some(2));
        let mut data = [0; 4];
        nic.control.read(&env, 0, 8, &mut data);
        assert_eq!(data, [0xff; 4]);
    }
}
