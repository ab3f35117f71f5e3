//! A NIC that stands still while its guest is taken to another host, and goes on there or here.
//!
//! The bus takes mastering away from it, which every model obeys under its own locks: when that is done the last copy into guest memory is
//! over, and no other begins. What others tell it meanwhile is kept until it goes on.

use model::{PciState, StateError};
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State};

use super::Board;
use super::moves::Moves;
use crate::nic::rarp;

/// Most messages of a mailbox that are on their way to the PF, and one more.
const ANSWERS: usize = 4;

/// A VF on its way to another chip.
#[derive(Serialize, Deserialize)]
struct MovedVf {
    /// What its driver has asked its PF for and was granted.
    asked: Option<Vec<u8>>,
    /// The state of its model.
    model: Vec<u8>,
}

impl State for MovedVf {
    const KIND: Kind = Kind::new("moved-vf");
    const VERSION: u32 = 1;
}

/// The revision of its model that a NIC had which was saved for a move.
pub(crate) fn revision_saved(state: &[u8]) -> Option<u16> {
    let moved = snapshot::open(MovedVf::KIND, state).and_then(|saved| saved.decode::<MovedVf>());
    let model = moved.map(|moved| moved.model);
    snapshot::revision_of(model.as_deref().unwrap_or(state))
}

impl Board {
    /// A VMM has it or not. While it stands still nobody is there for what comes.
    pub(super) fn attach(&mut self, attached: bool) {
        self.moves.attached = attached;
        self.engine.attach(attached && !self.moves.halted);
    }

    pub(super) fn stop_for_a_move(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vf_on_its_way_is_written_as_ever() {
        let moved = MovedVf {
            asked: Some(vec![1, 2, 3]),
            model: vec![4; 100],
        };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden/moved-vf-v1.bin");
        let bytes = model_testkit::golden(path, &snapshot::seal(&moved));
        let read = |bytes: &[u8]| snapshot::open(MovedVf::KIND, bytes)?.decode::<MovedVf>();
        let again = read(&bytes).expect("it loads");
        assert_eq!((again.asked, again.model), (moved.asked, moved.model));
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Model;

    impl State for Model {
        const KIND: Kind = Kind::new("model");
        const VERSION: u32 = 1;
    }

    #[test]
    fn a_vf_on_its_way_is_of_the_revision_of_its_model() {
        let model = snapshot::stamp(snapshot::seal(&Model), 3);
        assert_eq!(revision_saved(&model), Some(3));
        let moved = snapshot::seal(&MovedVf { asked: None, model });
        assert_eq!(revision_saved(&moved), Some(3));
        assert_eq!(revision_saved(b"nothing"), None);
    }
}
