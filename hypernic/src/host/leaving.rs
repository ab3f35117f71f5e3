//! NICs that leave their guests, or go from one worker to the next with them.

use std::time::{Duration, Instant};

use vale::MacInfo;
use wire::MacAddr;

use super::Host;
use crate::config::NicConfig;
use crate::leaves;
use crate::left::{AllLeft, Arrived};
use crate::nic::RunningNic;

/// How long what a NIC has under way may take: a file that is being mapped, DMA by message that the VMM answers.
const SETTLES: Duration = Duration::from_secs(1);

impl Host {
    /// Switches know where the worker before has seen whom.
    pub(super) fn remember_seen(&mut self) {
        for seen in self.left.take_seen() {
            let Some(running) = self.switches.get(&seen.switch) else {
                continue;
            };
            let known = seen.macs.into_iter().map(|(mac, vlan, port, age)| MacInfo {
                mac: MacAddr(mac),
                vlan,
                port,
                age: Duration::from_nanos(age),
            });
            running.switch.remember(known);
        }
    }

    /// Has a NIC that was made just now go on as the one that the worker before had. Whether it does.
    pub(super) fn go_on(config: &NicConfig, nic: &mut RunningNic, arrived: Arrived) -> bool {
        let name = &config.name;
        let model = config.model.name;
        if arrived.left.model != model {
            tracing::error!(
                nic = %name,
                "its VMM loses it: it was a {}, and the configuration says {model}",
                arrived.left.model
            );
            return false;
        }
        let went = nic.go_on(arrived);
        match &went {
            Ok(()) => tracing::info!(nic = %name, "goes on where the worker before has left it"),
            Err(why) => tracing::error!(nic = %name, "its VMM loses it: {why}"),
        }
        went.is_ok()
    }

    /// Has a NIC that was made just now go on where a worker that died has left it. Whether it does.
    pub(super) fn revive(nic: &mut RunningNic) -> bool {
        let went = nic.revive();
        match &went {
            Some(Ok(unsure)) => {
                tracing::info!(nic = %nic.name(), unsure, "goes on where the worker that died has left it");
            }
            Some(Err(why)) => tracing::error!(nic = %nic.name(), "its VMM loses it: {why}"),
            None => {}
        }
        matches!(went, Some(Ok(_)))
    }

    /// The first NIC whose guest is on the way to another host: its VMM has asked for what no other process could go on with.
    pub fn on_the_move(&self) -> Option<&str> {
        let mut nics = self.nics.values().map(|attached| &attached.nic);
        nics.find(|nic| nic.is_moving()).map(RunningNic::name)
    }

    /// Pulls the cables of all NICs that VMMs have, so that guests stop sending, and asks the VMMs to unplug them.
    /// Returns how many NICs that are.
    pub fn let_go(&self) -> usize {
        let attached = self.nics.values().map(|attached| &attached.nic);
        let attached = attached.filter(|nic| nic.will_be_missed());
        attached.inspect(|nic| nic.let_go()).count()
    }

    /// How often guests had something to do for the NICs that VMMs still have. `None` when they have none.
    pub fn activity(&self) -> Option<u64> {
        let nics = self.nics.values().map(|attached| &attached.nic);
        let attached = nics.filter(|nic| nic.will_be_missed());
        attached.map(RunningNic::served).reduce(u64::wrapping_add)
    }

    /// What switches have learned.
    pub(crate) fn learned(&self) -> AllLeft {
        let mut all = AllLeft::default();
        for (name, running) in &self.switches {
            all.add_seen(name, &running.switch.macs());
        }
        all
    }

    /// Stops everything between two messages and two frames, and leaves it to the next worker: after this nothing here may be
    /// dropped or used, and the process ends.
    pub fn leave(mut self) -> AllLeft {
        // What comes from now on waits in the kernel, or in rings, for the next worker.
        leaves::begin();
        for switch in self.switches.values_mut() {
            switch.shut();
        }
        for (chip, _) in self.chips.values_mut() {
            chip.shut();
        }
        for attached in self.nics.values_mut() {
            drop(attached.inlet.take());
        }
        // All of them stop before any is looked at: what one sends another receives.
        let mut bodies = Vec::new();
        for (name, attached) in &self.nics {
            bodies.extend(attached.nic.leave().map(|body| (name.clone(), body)));
        }
        let until = Instant::now() + SETTLES;
        while Instant::now() < until {
            let mut settled = true;
            for (_, body) in &mut bodies {
                if !body.is_settled() {
                    settled = false;
                    body.turn(0);
                }
            }
            if settled {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut all = self.learned();
        all.be(self.configuration().to_text());
        for (name, body) in &mut bodies {
            let Some(mut left) = body.leave() else {
                continue;
            };
            let Some(attached) = self.nics.get(name) else {
                continue;
            };
            attached.config.model.name.clone_into(&mut left.model);
            all.add(left);
        }
        // Files end whole.
        for attached in self.nics.values_mut() {
            attached.capture.close();
        }
        // Closing anything would be heard outside.
        Box::leak(Box::new((self, bodies)));
        all
    }
}
