//! From plain data to the live device: first every field is checked, then all of it takes the place of what was there.

use std::sync::atomic::Ordering;

use model::{Env, StateError};

use crate::control::Registers;
use crate::control::common::{Common, QueueRegisters};
use crate::core::device::{Role, Saved};
use crate::core::ring::{Format, Place, Position, Ring};
use crate::core::station::TABLE;
use crate::core::stats::{RxStats, TxStats};
use crate::core::steering::Steering;
use crate::irq;
use crate::regs::{NO_VECTOR, feature, net_status, status};
use crate::state::V1;

pub(super) fn check(
    ok: bool,
    field: &'static str,
    value: u64,
    why: &'static str,
) -> Result<(), StateError> {
    ok.then_some(())
        .ok_or(StateError::Field { field, value, why })
}

impl Registers {
    pub(super) fn become_state(&mut self, env: &Env, state: &V1) -> Result<(), StateError> {
        self.check_numbers(state)?;
        let device = &*self.device;
        let queues = &state.queues;
        let (mut common, rings) = self.rings(state)?;
        (
            common.device_select,
            common.driver_select,
            common.queue_select,
        ) = state.selects;
        common.driver = state.driver;
        device.reset();
        irq::disarm(device, env);
        device.restore(Saved {
            features: state.features,
            offloads: state.offloads,
            status: state.status,
            generation: state.generation,
            master: state.bus_master,
            msix: state.msix,
            config: state.config_vector,
            pairs: state.pairs,
        });
        for (vector, saved) in device.lines.queues.iter().zip(queues) {
            vector.store(saved.vector, Ordering::Release);
        }
        let mut rx = device.rx.lock();
        rx.station = state.station.clone();
        rx.steering = Steering::new(state.rss.clone());
        for (to, (from, _)) in rx.stats.iter_mut().zip(&state.stats) {
            *to = *from;
        }
        rx.calls.asked = state.coalesce.0;
        drop(rx);
        let mut tx = device.tx.lock();
        tx.calls.asked = state.coalesce.1;
        for (to, (_, from)) in tx.stats.iter_mut().zip(&state.stats) {
            *to = *from;
        }
        drop(tx);
        device.ctrl.lock().commands = state.commands;
        for (tally, saved) in device.lines.tallies.iter().zip(queues) {
            tally.set(saved.tally);
        }
        for (at, position) in rings.into_iter().enumerate() {
            if let Some(position) = position {
                // Checked above.
                let _ = device.enable(at, common.queues[at].place, position);
            }
            let asked = queues[at].coalesce;
            match device.role(at) {
                Some(Role::Rx(pair)) => device.rx.lock().calls.pending[pair].ask(asked),
                Some(Role::Tx(pair)) => device.tx.lock().calls.pending[pair].ask(asked),
                _ => {}
            }
        }
        let up = state.net_status & net_status::LINK_UP != 0;
        device.set_net_status(net_status::LINK_UP, up);
        self.common = common;
        irq::settle(&self.device, env, Some(state.isr));
        self.note_all();
        // As all other queues: its driver is called once, whatever it was called for before.
        self.device.ctrl_kicked.store(true, Ordering::Release);
        Ok(())
    }

    /// The queues as the driver has set them up, and where those are that are followed.
    fn rings(&self, state: &V1) -> Result<(Common, Vec<Option<Position>>), StateError> {
        let device = &*self.device;
        let queues = &state.queues;
        let format = Format::of(state.features);
        let mut common = Common::new(device);
        let mut rings: Vec<Option<Position>> = vec![None; queues.len()];
        for (at, queue) in queues.iter().enumerate() {
            let place = Place {
                size: queue.size,
                desc: queue.desc,
                driver: queue.driver,
                device: queue.device,
            };
            // 0: the driver has not said it.
            let possible =
                queue.size.is_power_of_two() || format.packed || !queue.followed && queue.size == 0;
            let fits = possible && queue.size <= device.most_by(state.features, at);
            check(
                fits,
                "size",
                queue.size.into(),
                "no ring has so many entries",
            )?;
            let vector = queue.vector < device.vectors() || queue.vector == NO_VECTOR;
            check(
                vector,
                "vector",
                queue.vector.into(),
                "there is no such vector",
            )?;
            common.queues[at] = QueueRegisters {
                place,
                enabled: queue.enabled,
            };
            if !queue.followed {
                continue;
            }
            check(queue.enabled, "followed", 1, "the queue is not enabled")?;
            let position = Position {
                next: queue.next,
                used: queue.used,
                told: queue.told,
                resumed: true,
            };
            let made = Ring::new(place, format, position);
            check(made.is_ok(), "desc", queue.desc, "no ring can be there")?;
            rings[at] = Some(position);
        }
        Ok((common, rings))
    }

    fn check_numbers(&self, state: &V1) -> Result<(), StateError> {
        let device = &*self.device;
        let (features, station) = (state.features, &state.station);
        let foreign = features & !device.offered();
        check(
            foreign == 0,
            "features",
            foreign,
            "this device does not offer them",
        )?;
        let offloads = state.offloads & !(features & feature::GUEST_OFFLOADS);
        check(
            offloads == 0,
            "offloads",
            offloads,
            "they were not agreed upon",
        )?;
        let unknown = state.status & !(status::DRIVERS | status::NEEDS_RESET);
        check(
            unknown == 0,
            "status",
            unknown.into(),
            "there is no such bit",
        )?;
        let ok = state.status & status::DRIVER_OK == 0 || state.status & status::FEATURES_OK != 0;
        check(
            ok,
            "status",
            state.status.into(),
            "a driver without features",
        )?;
        let number = state.queues.len();
        let why = "this device has another number of queues";
        check(number == device.queues(), "queues", number as u64, why)?;
        let most = if features & feature::SEVERAL != 0 {
            device.config.pairs
        } else {
            1
        };
        let pairs = (1..=most).contains(&state.pairs);
        check(pairs, "pairs", state.pairs.into(), "there are not so many")?;
        let vector = state.config_vector < device.vectors() || state.config_vector == NO_VECTOR;
        let why = "there is no such vector";
        check(vector, "config_vector", state.config_vector.into(), why)?;
        check(
            state.isr < 4,
            "isr",
            state.isr.into(),
            "there is no such bit",
        )?;
        let vlans = station.vlans.len();
        check(vlans == 4096 / 64, "vlans", vlans as u64, "there are 4096")?;
        let most = device.config.pairs;
        let len = state.stats.len();
        check(
            len == usize::from(most),
            "stats",
            len as u64,
            "one for each pair",
        )?;
        let counts = |(rx, tx): &(RxStats, TxStats)| rx.is_possible() && tx.is_possible();
        let commands = state.commands.0.max(state.commands.1) >> 62 == 0;
        let possible = commands && state.stats.iter().all(counts);
        check(possible, "stats", 0, "no device has counted so far")?;
        let rss = &state.rss;
        let types = rss.types.into();
        let spread = rss.spread.is_none() || features & feature::RSS != 0;
        check(
            rss.is_possible(most) && spread,
            "rss",
            types,
            "no driver can ask for it",
        )?;
        for table in [&station.unicast, &station.multicast] {
            let len = table.list.len();
            check(len <= TABLE, "list", len as u64, "the table is shorter")?;
        }
        Ok(())
    }
}
