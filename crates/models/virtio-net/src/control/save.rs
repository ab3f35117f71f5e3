//! From the live device to plain data.

use std::sync::atomic::Ordering;

use crate::control::Registers;
use crate::core::coalesce::Coalesce;
use crate::core::device::Role;
use crate::core::ring::Ring;
use crate::state::V1;
use crate::state::v1::Queue;

impl Registers {
    pub(super) fn state(&self) -> V1 {
        let device = &*self.device;
        // All queues at once: the state lies between two batches.
        let (ctrl, tx, rx) = (device.ctrl.lock(), device.tx.lock(), device.rx.lock());
        let queue = |at: usize, ring: &Option<Ring>| {
            let registers = self.common.queues[at];
            let position = ring.as_ref().map(Ring::position).unwrap_or_default();
            Queue {
                size: registers.place.size,
                vector: device.lines.queues[at].load(Ordering::Acquire),
                enabled: registers.enabled,
                followed: ring.is_some(),
                desc: registers.place.desc,
                driver: registers.place.driver,
                device: registers.place.device,
                next: position.next,
                used: position.used,
                told: position.told,
                tally: device.lines.tallies[at].get(),
                coalesce: match device.role(at) {
                    Some(Role::Rx(pair)) => rx.calls.pending[pair].asked,
                    Some(Role::Tx(pair)) => tx.calls.pending[pair].asked,
                    _ => Coalesce::default(),
                },
            }
        };
        V1 {
            features: device.features(),
            offloads: device.offloads(),
            status: device.status(),
            generation: device.generation(),
            isr: *device.lines.isr.lock(),
            net_status: device.net_status(),
            bus_master: device.is_master(),
            msix: device.lines.msix.load(Ordering::Acquire),
            config_vector: device.lines.config.load(Ordering::Acquire),
            selects: (
                self.common.device_select,
                self.common.driver_select,
                self.common.queue_select,
            ),
            driver: self.common.driver,
            pairs: device.pairs() as u16,
            queues: (0..device.queues())
                .map(|at| match device.role(at) {
                    Some(Role::Rx(pair)) => queue(at, &rx.rings[pair]),
                    Some(Role::Tx(pair)) => queue(at, &tx.rings[pair]),
                    Some(Role::Ctrl) => queue(at, &ctrl.ring),
                    None => queue(at, &None),
                })
                .collect(),
            ctrl_kicked: device.ctrl_kicked.load(Ordering::Acquire),
            coalesce: (rx.calls.asked, tx.calls.asked),
            station: rx.station.clone(),
            rss: rx.steering.rss().clone(),
            stats: rx
                .stats
                .iter()
                .copied()
                .zip(tx.stats.iter().copied())
                .collect(),
            commands: ctrl.commands,
        }
    }
}
