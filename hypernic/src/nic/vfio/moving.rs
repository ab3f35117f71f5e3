//! A NIC that stands still while its guest is taken to another host, and goes on there or here.
//!
//! The bus takes mastering away from it, which every model obeys under its own locks: when that is done the last copy into guest memory is
//! over, and no other begins. What others tell it meanwhile is kept until it goes on.

use model::{PciState, StateError};
use snapshot::State;

use super::Board;
use super::moves::Moves;
use crate::nic::moved_vf::MovedVf;
use crate::nic::rarp;

/// Most messages of a mailbox that are on their way to the PF, and one more.
const ANSWERS: usize = 4;

impl Board {
    /// A VMM has it or not. While it stands still nobody is there for what comes.
    pub(super) fn attach(&mut self, attached: bool) {
        self.moves.attached = attached;
        self.engine.attach(attached && !self.moves.halted);
    }

    pub(super) fn stop_for_a_move(&mut self) {
        self.finish();
        self.moves.halted = true;
        let sink = &self.engine.sink;
        sink.halted
            .store(true, std::sync::atomic::Ordering::Release);
        self.engine.attach(false);
        // Who looked before that finds the model so, or is waited for.
        let still = PciState {
            bus_master: false,
            ..self.pci
        };
        self.control.pci(&self.engine.env, still);
    }

    /// Its state, and of a VF what its driver has asked for.
    pub(super) fn saved_for_a_move(&self) -> Vec<u8> {
        if self.granted.is_none() {
            return self.saved();
        }
        let mut asked = self.granted();
        let mut model = self.saved();
        // Its PF may answer just now what the driver asked before it stopped. That is soon over, since no more is asked.
        for _ in 0..ANSWERS {
            let now = self.granted();
            if now == asked {
                break;
            }
            asked = now;
            model = self.saved();
        }
        snapshot::seal(&MovedVf { asked, model })
    }

    /// Becomes that. What a VF's driver had asked for is asked of this chip, which grants what its policy allows.
    fn become_moved(&mut self, state: &[u8]) -> Result<(), StateError> {
        if self.granted.is_none() {
            return self.become_saved(state);
        }
        let MovedVf { asked, model } = snapshot::open(MovedVf::KIND, state)?.decode()?;
        self.regrant(asked.as_deref());
        self.become_saved(&model)
    }

    pub(super) fn load_for_a_move(&mut self, state: &[u8]) -> Result<(), String> {
        let loaded = self.become_moved(state);
        loaded.map_err(|error| error.to_string())?;
        let env = &self.engine.env;
        // It may have been saved as one that masters the bus.
        let still = PciState {
            bus_master: false,
            ..self.pci
        };
        self.control.pci(env, still);
        self.moves.loaded = true;
        Ok(())
    }

    pub(super) fn go_on_after_a_move(&mut self) {
        let owed = std::mem::take(&mut self.moves);
        self.moves = Moves {
            attached: owed.attached,
            mac: owed.mac,
            announced: owed.announced,
            lost: owed.lost,
            ..Moves::default()
        };
        let env = &self.engine.env;
        self.control.pci(env, self.pci);
        self.pci.pme = None;
        if owed.loaded || owed.link {
            self.control.set_link(env, self.link);
        }
        if owed.look {
            self.control.attend(env);
        }
        if owed.tick {
            self.control.tick(env);
        }
        let sink = &self.engine.sink;
        sink.halted
            .store(false, std::sync::atomic::Ordering::Release);
        self.engine.attach(owed.attached);
        // What waited in its rings.
        self.engine.tx_ready |= owed.attached;
        if owed.loaded && owed.attached {
            self.announce();
        }
    }

    /// Tells the wire where its guest is now. Whether somebody took it.
    pub(super) fn announce(&mut self) -> bool {
        let of_vf = self.granted.as_ref().and_then(|chip| chip.station());
        let (of_vf, tag) = of_vf.unzip();
        let mac = self.control.station().or(of_vf);
        let mac = mac.unwrap_or(self.moves.mac);
        let taken = rarp::announce(&*self.engine.out, mac, tag.flatten());
        match taken {
            true => self.moves.announced += 1,
            false => self.moves.lost += 1,
        }
        taken
    }
}
