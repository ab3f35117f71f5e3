//! The model's interrupts, as the guest has routed them in configuration space.

use std::sync::Arc;

use model::{Interrupts, Pme};
use parking_lot::Mutex;
use pci::{ConfigSpace, Delivery, Message, Msix, MsixTable};

use crate::host::Host;

/// Capability id of MSI (PCI Local Bus 3.0 §6.8.1).
const MSI: u8 = 0x05;
/// Most capabilities a 256-byte space can chain.
const MOST_CAPABILITIES: usize = 48;

/// How interrupts leave the function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// INTx# may not be asserted (COMMAND bit 10, or MSI is enabled).
    pub silent: bool,
    /// Where messages go, when MSI is enabled.
    pub msi: Option<(u64, u32)>,
    /// What MSI-X lets through.
    pub msix: Delivery,
}

impl Route {
    /// As configuration space says now.
    pub(crate) fn of(config: &ConfigSpace) -> Self {
        let msi = config.msi_enabled().then(|| message(config)).flatten();
        let off = config.command() & pci::command::INTX_DISABLE != 0;
        Self {
            silent: off || config.msi_enabled() || config.msix_enabled(),
            msi,
            msix: config.msix_delivery(),
        }
    }
}

/// Address and data of the MSI capability.
fn message(config: &ConfigSpace) -> Option<(u64, u32)> {
    let byte = |at: u64| {
        let mut one = [0];
        config.read(at, &mut one);
        one[0]
    };
    let mut at = u64::from(byte(pci::offset::CAPABILITIES as u64));
    for _ in 0..MOST_CAPABILITIES {
        if at == 0 {
            return None;
        }
        if byte(at) == MSI {
            let wide = config.read_u16(at + 2) & 1 << 7 != 0;
            let low = u64::from(config.read_u32(at + 4));
            return Some(if wide {
                let high = u64::from(config.read_u32(at + 8));
                (high << 32 | low, config.read_u16(at + 12).into())
            } else {
                (low, config.read_u16(at + 8).into())
            });
        }
        at = byte(at + 1).into();
    }
    None
}

#[derive(Debug, Default)]
struct State {
    route: Route,
    /// The vector table, where the model has MSI-X.
    table: Option<MsixTable>,
    /// What the model drives.
    level: bool,
    /// What the host has been told.
    shown: bool,
    /// PME_En and PME_Status.
    pme: Pme,
}

/// The pins of one NIC.
pub(crate) struct Pins {
    host: Arc<dyn Host>,
    state: Mutex<State>,
}

impl Pins {
    pub(crate) fn new(host: Arc<dyn Host>, msix: Option<Msix>) -> Arc<Self> {
        let state = State {
            table: msix.map(MsixTable::new),
            ..State::default()
        };
        Arc::new(Self {
            host,
            state: Mutex::new(state),
        })
    }

    /// The guest has routed interrupts differently.
    pub(crate) fn route(&self, route: Route) {
        self.change(|state| state.route = route);
        self.with_table(|table, send| table.route(route.msix, send));
    }

    /// The vector table as after a reset.
    pub(crate) fn reset_table(&self) {
        self.with_table(|table, _| table.reset());
    }

    /// Answers a read of the vector table or its pending bits.
    pub(crate) fn read(&self, bar: u8, offset: u64, data: &mut [u8]) -> bool {
        let state = self.state.lock();
        let table = state.table.as_ref();
        table.is_some_and(|table| table.read(bar, offset, data))
    }

    /// Takes a write to the vector table or its pending bits.
    pub(crate) fn write(&self, bar: u8, offset: u64, data: &[u8]) -> bool {
        let taken = self.with_table(|table, send| table.write(bar, offset, data, send));
        taken.unwrap_or(false)
    }

    /// Vector table and pending bits, to be saved.
    pub(crate) fn save(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let state = self.state.lock();
        let (entries, pending) = state.table.as_ref()?.save();
        Some((entries.to_vec(), pending.to_vec()))
    }

    /// What was saved, checked, to be put in with [`Pins::replace`].
    pub(crate) fn loaded(&self, entries: &[u8], pending: &[u8]) -> Option<MsixTable> {
        let mut table = self.state.lock().table.clone()?;
        table.load(entries, pending).then_some(table)
    }

    /// Puts in another table and gives the one there was.
    pub(crate) fn replace(&self, table: Option<MsixTable>) -> Option<MsixTable> {
        std::mem::replace(&mut self.state.lock().table, table)
    }

    /// Does something with the table. Messages leave after it, without the lock.
    fn with_table<T>(
        &self,
        what: impl FnOnce(&mut MsixTable, &mut dyn FnMut(Message)) -> T,
    ) -> Option<T> {
        let mut messages = Vec::new();
        let mut state = self.state.lock();
        let done = what(state.table.as_mut()?, &mut |message| messages.push(message));
        drop(state);
        for Message { address, data } in messages {
            self.host.message(address, data);
        }
        Some(done)
    }

    /// Whether the function asserts INTx#, routed or not (STATUS bit 3).
    pub(crate) fn level(&self) -> bool {
        self.state.lock().level
    }

    /// PME_En and PME_Status, as the model has them.
    pub(crate) fn pme(&self) -> Pme {
        self.state.lock().pme
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        how(&mut state);
        let now = state.level && !state.route.silent;
        if now != state.shown {
            state.shown = now;
            self.host.interrupt(now);
        }
    }
}

impl Interrupts for Pins {
    fn set_line(&self, level: bool) {
        self.change(|state| state.level = level);
    }

    fn set_pme(&self, pme: Pme) {
        let mut state = self.state.lock();
        let asserted = |pme: Pme| pme.enabled && pme.status;
        let before = asserted(std::mem::replace(&mut state.pme, pme));
        let now = asserted(pme);
        if now != before {
            self.host.pme(now);
        }
    }

    fn msi(&self, vector: u16) {
        let route = self.state.lock().route;
        if let Some((address, data)) = route.msi {
            self.host.message(address, data | u32::from(vector));
        }
    }

    fn msix(&self, vector: u16) {
        let message = self
            .state
            .lock()
            .table
            .as_mut()
            .and_then(|t| t.raise(vector));
        if let Some(Message { address, data }) = message {
            self.host.message(address, data);
        }
    }
}
