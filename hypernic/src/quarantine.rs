//! What stands in the place of a NIC in whose turns the worker process has died twice: a function that answers as an empty
//! slot does, without a line of the model.

use std::sync::Arc;

use frame::{Batch, Caps, Counted, Sink, Wake};
use model::{
    Control, Env, Nic, PciState, Progress, Receive, ResetKind, StateError, Transmit, Work,
};

/// Whether the NIC of that name is in quarantine.
pub(crate) fn holds(name: &str) -> bool {
    keeper::current().is_some_and(|page| page.nic(name).is_some_and(|nic| page.is_quarantined(nic)))
}

/// The NIC was removed: the next of its name begins anew.
pub(crate) fn end(name: &str) {
    if let Some(page) = keeper::current()
        && let Some(nic) = page.nic(name)
    {
        page.pardon(nic);
    }
}

/// The same function on the bus, with nothing behind it.
pub(crate) fn instead_of(nic: Nic) -> Nic {
    Nic {
        identity: nic.identity,
        control: Box::new(Absent),
        transmit: Box::new(Absent),
        receive: Arc::new(Absent),
    }
}

struct Absent;

impl Counted for Absent {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("quarantined", 1);
    }
}

impl Control for Absent {
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
}

impl Transmit for Absent {
    fn run(&mut self, _env: &Env, _to: &dyn Sink, _budget: usize) -> Progress {
        Progress::Idle
    }
}

impl Receive for Absent {
    fn deliver(&self, _env: &Env, _batch: &Batch<'_>, picks: &[u16]) -> usize {
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _waker: &Arc<dyn Wake>) {}
    fn poll(&self, _env: &Env) {}
}
