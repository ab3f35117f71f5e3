//! NICs that stand still while an operator moves them.

use control::{MoveSide, MoveStep};

use super::Host;
use crate::config::{HostConfig, NicConfig};
use crate::error::Error;
use crate::moves::{Move, Moves};
use crate::nic::HoldRefusal;
use crate::ports;

impl Host {
    /// What is known of moves.
    pub(crate) fn moves(&self) -> &Moves {
        &self.moves
    }

    /// The same, to be changed.
    pub(crate) fn moves_mut(&mut self) -> &mut Moves {
        &mut self.moves
    }

    /// A NIC stands still and says what it is, and its switch forgets where it was.
    ///
    /// # Errors
    /// Why not; it works as before.
    pub(crate) fn hold_nic(&self, name: &str, paused: bool) -> Result<Vec<u8>, HoldRefusal> {
        let attached = self.nics.get(name).ok_or(HoldRefusal::Failed)?;
        let state = attached.nic.hold(paused)?;
        self.forget_address(name);
        Ok(state)
    }

    fn forget_address(&self, name: &str) {
        if let Some((chip, _)) = self.vf(name) {
            chip.forget_addresses();
            return;
        }
        let switch = self.nics.get(name).and_then(|nic| nic.switch.as_ref());
        if let Some(running) = switch.and_then(|switch| self.switches.get(switch)) {
            running.switch.forget(name);
        }
    }

    /// A NIC that stands still goes on, on its switch as well.
    pub(crate) fn release_nic(&mut self, name: &str) {
        let Some(attached) = self.nics.get_mut(name) else {
            return;
        };
        let was_still = attached.nic.is_moving();
        attached.nic.release();
        if !was_still {
            return;
        }
        let switch = attached.switch.as_ref();
        if let Some(running) = switch.and_then(|switch| self.switches.get(switch)) {
            let may = ports::of_nic(&attached.config);
            running.switch.set_port(name, &may);
        }
    }

    /// Makes a NIC that stands still, as what another was.
    ///
    /// # Errors
    /// It cannot be made, or refuses the state; there is none then.
    pub(crate) fn add_held(&mut self, config: &NicConfig, state: &[u8]) -> Result<(), Error> {
        if !self.head.is_own(config) {
            let name = &config.name;
            return Err(Error::Host(format!("another process serves {name}")));
        }
        self.make_nic(config, true, Some(state))?;
        self.load_held(&config.name, state).inspect_err(|_| {
            self.remove_nic(&config.name);
        })
    }

    /// A NIC that stands still becomes what another was.
    ///
    /// # Errors
    /// It refuses the state.
    pub(crate) fn load_held(&self, name: &str, state: &[u8]) -> Result<(), Error> {
        let attached = self.nics.get(name);
        let attached = attached.ok_or_else(|| Error::Host(format!("there is no NIC {name:?}")))?;
        let loaded = attached.nic.become_held(state);
        loaded
            .map_err(|why| Error::Host(format!("{name} cannot go on as what was saved: {why}")))?;
        self.forget_address(name);
        Ok(())
    }

    /// Whether a NIC stands still.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        let nic = self.nics.get(name);
        nic.is_some_and(|attached| attached.nic.is_held())
    }

    /// Tells the network that a NIC which stands still is here from now on.
    pub(crate) fn announce(&self, name: &str) {
        let nic = self.nics.get(name);
        if !nic.is_some_and(|attached| attached.nic.announce()) {
            tracing::warn!(nic = %name, "its address could not be announced: its port took no frame");
        }
    }

    /// What NICs were is needed no more once a VMM has had them, or they are gone.
    pub(crate) fn forget_moved(&mut self) {
        self.forget_moved_if(|_| true);
    }

    fn forget_moved_if(&mut self, of: impl Fn(&Move) -> bool) {
        let Self {
            moves, nics, far, ..
        } = self;
        let kept = |one: &Move| match far.state(&one.nic) {
            // Its cell has a note of its own.
            Some(far) => !far.connected,
            None => {
                let nic = nics.get(&one.nic);
                nic.is_some_and(|attached| !attached.nic.was_used())
            }
        };
        if let Err(why) = moves.forget_states(|one| of(one) && !kept(one)) {
            tracing::error!("moves: {why}");
        }
    }

    /// Whether a NIC that was configured has gone to another host, and is not made. A cell knows that of its own ones.
    pub(super) fn has_gone(&self, nic: &NicConfig) -> Option<Error> {
        let name = &nic.name;
        let is_others = self.head.own_cell().is_some() && !self.head.is_own(nic);
        if is_others || nic.vf.is_some() {
            return None;
        }
        let gone = self.moves.away(name)?;
        Some(Error::Host(format!(
            "{name} has moved to another host by the move {}, and is not made here; take it out of the file, or say hypernic nic \
             add if it is to be another one",
            gone.id
        )))
    }

    /// A cell is told what there is: a NIC that has gone from it and is no longer its own has gone for the main process, too. If there is
    /// one of that name again, it is another one.
    pub(crate) fn forget_gone(&mut self, told: &HostConfig) {
        if self.head.own_cell().is_none() {
            return;
        }
        let is_own = |name: &str| {
            let mut nics = told.nics.iter();
            let same = |nic: &NicConfig| nic.name == name && self.head.is_own(nic);
            nics.any(|nic| same(nic) && !self.is_another_vf(nic))
        };
        let away = self.moves.all().iter().filter(|one| one.is_away());
        let others = away.filter(|one| !is_own(&one.nic));
        for nic in others.map(|one| one.nic.clone()).collect::<Vec<_>>() {
            if let Err(why) = self.moves.forget_away(&nic) {
                tracing::error!("moves: {why}");
            }
        }
    }

    /// How a NIC that is being made is to begin: it stands still, and what it was.
    pub(super) fn moved_in(&self, name: &str) -> Option<Move> {
        let last = self.moves.of_nic(name)?;
        last.state.is_some().then(|| last.clone())
    }

    /// NICs that have come from other hosts, and that no file names.
    pub(super) fn make_moved(&mut self) {
        let is_there = |nic: &str| self.nics.contains_key(nic) || self.far_nic(nic).is_some();
        let there = |one: &&Move| one.state.is_some() && !one.is_away() && !is_there(&one.nic);
        let all: Vec<Move> = self.moves.all().iter().filter(there).cloned().collect();
        for one in all {
            let is_last = |last: &Move| last.id == one.id;
            if !self.moves.of_nic(&one.nic).is_some_and(is_last) {
                continue;
            }
            let config = one.said().and_then(|said| match said.vf {
                Some(_) => Err("its chip has no such VF".into()),
                None => self.as_is().nic_beside(&said.nic),
            });
            let made = config.map_err(Error::Host);
            let made = made.and_then(|config| self.add_nic(&config));
            if let Err(error) = made {
                tracing::error!(nic = %one.nic, "of the move {}: it is not made: {error}", one.id);
            }
        }
    }

    /// A NIC that was made just now becomes what it was, if it goes on from a move and a VMM has not had it since.
    pub(super) fn settle_moved(&mut self, one: &Move, went_on: bool) {
        let Some(state) = &one.state else { return };
        if went_on {
            // One that has asked and given no memory may leave it unused: the next worker would have nothing else.
            self.forget_moved_if(|other| other.id == one.id);
            return;
        }
        match self.load_held(&one.nic, state) {
            Ok(()) => tracing::info!(nic = %one.nic, "is as the move {} has left it", one.id),
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Lets a NIC that was made work, unless it stands still for a move.
    pub(super) fn begin_nic(&mut self, name: &str) {
        if self.moves.holding(name).is_some() {
            return;
        }
        let last = self.moves.of_nic(name);
        let came = last.is_some_and(|one| {
            let ways = (one.side, one.step);
            one.state.is_some() && ways == (MoveSide::Destination, MoveStep::Committed)
        });
        if came && self.is_still(name) {
            self.announce(name);
        }
        self.release_nic(name);
    }

    /// Whether a NIC stands still as what was loaded into it.
    fn is_still(&self, name: &str) -> bool {
        let nic = self.nics.get(name);
        nic.is_some_and(|attached| attached.nic.is_moving())
    }

    /// Refuses to change a NIC that stands still for a move.
    pub(crate) fn may_change(&self, name: &str) -> Result<(), Error> {
        let Some(one) = self.moves.holding(name) else {
            return Ok(());
        };
        Err(Error::Host(format!(
            "{name} stands still for the move {}: commit or abort that first (hypernic migrate)",
            one.id
        )))
    }
}
