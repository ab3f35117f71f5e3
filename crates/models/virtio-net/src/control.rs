//! The PCI transport: configuration structures in one BAR, a page each (virtio 1.4 §4.1).

mod common;
mod identity;
mod load;
mod recover;
mod save;
mod writes;

use std::sync::Arc;

use datapath::KEY;
use datapath::counters::count;
use frame::Counted;
use model::{Control, Env, Kept, Moderation, Nanos, PciState, ResetKind, StateError, Work};

use crate::control::common::Common;
pub(crate) use crate::control::identity::identity;
use crate::core::device::Device;
use crate::core::steering::TABLE;
use crate::irq;
use crate::regs::{feature, hash, net_status, page};
use crate::tx::command;

/// Speed in Mb/s, as the configuration says it.
const SPEED: u32 = 10_000;

/// The register part.
pub(crate) struct Registers {
    pub device: Arc<Device>,
    pub common: Common,
    pub work: Work,
    /// Accesses have changed what the words that outlive the process do not tell.
    pub changed: bool,
}

impl Registers {
    pub fn new(device: Arc<Device>) -> Self {
        let common = Common::new(&device);
        Self {
            device,
            common,
            work: Work::default(),
            changed: false,
        }
    }

    fn reset_all(&mut self, env: &Env) {
        self.changed = true;
        self.device.reset();
        irq::disarm(&self.device, env);
        self.common = Common::new(&self.device);
        self.work = Work::default();
        irq::settle(&self.device, env, Some(0));
    }

    /// The device's configuration (§5.1.4), as far as it has fields that are offered.
    fn net_config(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..6].copy_from_slice(&self.device.rx.lock().station.mac);
        bytes[6..8].copy_from_slice(&self.device.net_status().to_le_bytes());
        bytes[8..10].copy_from_slice(&self.device.config.pairs.to_le_bytes());
        let mtu = self.device.config.mtu.unwrap_or(0);
        bytes[10..12].copy_from_slice(&mtu.to_le_bytes());
        bytes[12..16].copy_from_slice(&SPEED.to_le_bytes());
        // Full duplex, as drivers have it.
        bytes[16] = 1;
        if self.device.offered() & (feature::RSS | feature::HASH_REPORT) != 0 {
            // Linux takes no other length.
            bytes[17] = KEY as u8;
            bytes[18..20].copy_from_slice(&(TABLE as u16).to_le_bytes());
            bytes[20..24].copy_from_slice(&hash::TYPES.to_le_bytes());
        }
        bytes
    }

    fn notify(&mut self, queue: u64) {
        match usize::try_from(queue)
            .ok()
            .and_then(|q| self.device.notify(q))
        {
            Some(work) => self.note(work),
            None => count(&self.device.counters.bad_notify, 1),
        }
    }

    fn note(&mut self, Work { tx, rx }: Work) {
        self.work.tx |= tx;
        self.work.rx |= rx;
    }

    /// Notes everything that may be to do.
    fn note_all(&mut self) {
        for queue in 0..self.device.queues() {
            if let Some(work) = self.device.work(queue) {
                self.note(work);
            }
        }
    }

    fn refuse_access(&self) {
        count(&self.device.counters.bad_register_access, 1);
    }
}

impl Counted for Registers {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.device.counters(visit);
    }
}

impl Control for Registers {
    fn read(&mut self, env: &Env, bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if bar != identity::BAR {
            return;
        }
        let inside = offset % page::LEN;
        match offset - inside {
            page::COMMON if self.common.read(&self.device, inside, data) => {}
            page::COMMON => self.refuse_access(),
            page::ISR => {
                if let Some(first) = data.first_mut().filter(|_| inside == 0) {
                    *first = irq::take_isr(&self.device, env);
                }
            }
            page::DEVICE => {
                let config = self.net_config();
                let rest = config.get(inside as usize..).unwrap_or(&[]);
                let n = rest.len().min(data.len());
                data[..n].copy_from_slice(&rest[..n]);
            }
            _ => {}
        }
    }

    fn write(&mut self, env: &Env, bar: u8, offset: u64, data: &[u8]) {
        if bar != identity::BAR {
            return;
        }
        let inside = offset % page::LEN;
        match offset - inside {
            page::COMMON => {
                self.changed = true;
                self.write_common(env, inside, data);
            }
            page::NOTIFY => {
                // The address says which queue, the value too; with NOTIFICATION_DATA the rest of it is news that the
                // ring tells better.
                let step = u64::from(page::NOTIFY_STEP);
                if inside.is_multiple_of(step) && matches!(data.len(), 2 | 4) {
                    self.notify(inside / step);
                } else {
                    count(&self.device.counters.bad_notify, 1);
                }
            }
            _ => self.refuse_access(),
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    fn station(&self) -> Option<[u8; 6]> {
        Some(self.device.rx.lock().station.mac)
    }

    fn reset(&mut self, env: &Env, _: ResetKind) {
        self.reset_all(env);
    }

    fn pci(&mut self, env: &Env, state: PciState) {
        self.changed = true;
        self.device.set_master(state.bus_master && !state.d3);
        self.device.set_messages(state.msix);
        irq::settle(&self.device, env, None);
        self.note_all();
    }

    fn tick(&mut self, env: &Env) {
        // Both sides look what is due, and set the timer again.
        self.device.tick(env);
        self.work = Work { tx: true, rx: true };
    }

    fn set_link(&mut self, env: &Env, up: bool) {
        self.changed = true;
        if self.device.set_net_status(net_status::LINK_UP, up) && self.device.has(feature::STATUS) {
            irq::config(&self.device, env);
        }
    }

    fn moderate(&mut self, env: &Env, how: Moderation) {
        self.device.moderate(how);
        // What waited is looked at, and the timer set again.
        self.tick(env);
    }

    fn finish(&mut self, env: &Env) {
        self.device.unsaved.settle();
        command::answer(&self.device, env, &env.memory.view());
    }

    fn save(&self, _: &Env) -> Vec<u8> {
        snapshot::seal(&self.state())
    }

    fn load(&mut self, env: &Env, blob: &[u8]) -> Result<(), StateError> {
        let state = crate::state::read(blob)?;
        self.become_state(env, &state)?;
        self.changed = true;
        let up = self.device.has_link();
        if up && self.device.has(feature::GUEST_ANNOUNCE | feature::STATUS) {
            // It may be behind another port of its network now.
            self.device.set_net_status(net_status::ANNOUNCE, true);
            irq::config(&self.device, env);
        }
        Ok(())
    }

    fn keep(&mut self, words: Kept) -> bool {
        self.device.keep(words)
    }

    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed) | self.device.unsaved.take()
    }

    fn settled(&mut self) {
        if self.device.settled() {
            self.note_all();
        }
    }

    fn recover(
        &mut self,
        env: &Env,
        (blob, _): (&[u8], Nanos),
        words: Kept,
    ) -> Result<u64, StateError> {
        self.go_on(env, crate::state::read(blob)?, words)
    }
}
