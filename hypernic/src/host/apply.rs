//! From what runs to what a file says: all of it, or nothing.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Host;
use super::trial::Trial;
use crate::config::{HostConfig, Plan, Step};
use crate::error::Error;

impl Host {
    /// What leads from this host to another one.
    pub fn plan(&self, wanted: &HostConfig, disconnect: bool) -> Plan {
        let held = |nic: &str| self.nic_state(nic).is_some_and(|nic| nic.connected);
        Plan::of(&self.configuration(), wanted, &held, disconnect)
    }

    /// Carries a plan out.
    ///
    /// # Errors
    /// A step cannot be done; what was done before it is undone.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        let before = self.configuration();
        self.with_all_descriptors(|host| {
            let mut far_goes = false;
            for step in &plan.steps {
                if let Err(error) = host.next_step(step, &mut far_goes) {
                    host.restore(&before);
                    return Err(error);
                }
            }
            host.settle().inspect_err(|_| host.restore(&before))
        })
    }

    /// The same, to be confirmed in time.
    ///
    /// # Errors
    /// As [`Host::apply`].
    pub fn try_out(
        &mut self,
        plan: &Plan,
        time: Duration,
        persist: Option<(PathBuf, String)>,
    ) -> Result<(), Error> {
        self.trial = Some(Trial {
            before: Box::new(self.configuration()),
            until: Instant::now() + time,
            persist,
        });
        self.apply(plan).inspect_err(|_| self.trial = None)
    }

    /// What is tried out.
    pub fn trial(&self) -> Option<&Trial> {
        self.trial.as_ref()
    }

    /// What is tried out stays. `false`: there is nothing of the kind.
    pub fn confirm(&mut self) -> bool {
        let was = self.trial.take().is_some();
        self.release();
        was
    }

    /// Takes back what is tried out. `false`: there is nothing of the kind.
    pub fn roll_back(&mut self) -> bool {
        let Some(trial) = self.trial.take() else {
            return false;
        };
        self.with_all_descriptors(|host| host.restore(&trial.before));
        true
    }

    /// Does something that may be undone: what was handed over stays open meanwhile.
    fn with_all_descriptors<T>(&mut self, does: impl FnOnce(&mut Self) -> T) -> T {
        let handed = std::mem::take(&mut self.handed);
        let result = does(self);
        self.handed = handed;
        self.release();
        result
    }

    /// Has a host be again what it was. What cannot be had again is told in the log.
    fn restore(&mut self, before: &HostConfig) {
        let plan = Plan::of(&self.configuration(), before, &|_| false, true);
        let mut far_goes = false;
        for step in &plan.steps {
            if let Err(error) = self.next_step(step, &mut far_goes) {
                tracing::error!("cannot go back to what was before: {error}");
            }
        }
        if let Err(error) = self.settle_with(true) {
            tracing::error!("cannot go back to what was before: {error}");
        }
    }

    /// After a change that was no plan: all processes follow, or all is again as `before`.
    ///
    /// # Errors
    /// A cell cannot.
    pub(crate) fn settle_or_go_back(&mut self, before: &HostConfig) -> Result<(), Error> {
        self.settle().inspect_err(|_| self.restore(before))
    }

    /// One step after others. What another process gives up, this one or a third may get: so that one is told before. `far_goes`:
    /// there is such a thing.
    fn next_step(&mut self, step: &Step, far_goes: &mut bool) -> Result<(), Error> {
        *far_goes |= match step {
            Step::RemoveNic(name) => self.far_nic(name).is_some(),
            Step::RemoveChip(name) => self.far_chip(name).is_some(),
            _ => false,
        };
        let comes = matches!(step, Step::AddNic(_) | Step::AddChip(_));
        if comes && std::mem::take(far_goes) {
            self.settle()?;
        }
        self.step(step)
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::RemoveNic(name) => self.may_change(name)?,
            Step::SetNic(nic) => self.may_change(&nic.name)?,
            Step::SetVf(nic, changes) => self.may_set_vf(nic, changes)?,
            Step::AddNic(nic) => self.may_come(nic)?,
            _ => {}
        }
        match step {
            Step::RemoveNic(name) => {
                self.remove_nic(name);
            }
            Step::RemoveChip(name) => {
                self.remove_chip(name);
            }
            Step::RemovePort(switch, port) => {
                self.remove_port(switch, port);
            }
            Step::RemoveSwitch(name) => {
                self.remove_switch(name);
            }
            Step::SetProfile(profile) => self.head.profile = *profile,
            Step::SetSwitch(switch) => self.set_switch(switch)?,
            Step::AddSwitch(switch) => self.add_switch(switch)?,
            Step::AddPort(switch, port) => self.add_port(switch, port)?,
            Step::AddChip(chip) => self.add_chip(chip)?,
            Step::AddNic(nic) => self.add_nic(nic)?,
            Step::SetNic(nic) => self.set_nic(nic)?,
            Step::SetChip(chip) => self.set_chip(chip)?,
            Step::SetVf(nic, changes) => self.set_any_vf(nic, changes)?,
            Step::SetAccess(access) => self.head.access = access.clone(),
        }
        self.changed();
        Ok(())
    }

    /// It is not what it was.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}
