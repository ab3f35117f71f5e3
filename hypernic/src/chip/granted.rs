//! What a VF's driver was granted, sealed for the next process; and the mailboxes of a guest's PF.

use std::sync::{Arc, Weak};

use igb::vf_state::{Mailbox, mailbox_loaded, mailbox_saved};
use igb::{Hub, VfChannel};
use pf::Granted;
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State};

use super::pf_runner::PfRunner;

#[derive(Serialize, Deserialize)]
struct V1(Granted);

impl State for V1 {
    const KIND: Kind = Kind::new("granted");
    const VERSION: u32 = 1;
}

/// What a VF's driver is granted by a runner.
pub(super) struct OfVf {
    runner: Weak<PfRunner>,
    vf: u32,
}

impl OfVf {
    pub(super) fn new(runner: &Arc<PfRunner>, vf: u32) -> Self {
        OfVf {
            runner: Arc::downgrade(runner),
            vf,
        }
    }
}

impl crate::nic::Granted for OfVf {
    fn granted(&self) -> Option<Vec<u8>> {
        self.runner.upgrade()?.granted(self.vf).map(seal)
    }

    fn resume(&self, granted: &[u8]) {
        if let (Some(runner), Some(granted)) = (self.runner.upgrade(), open(granted)) {
            runner.resume(self.vf, granted);
        }
    }

    fn is_asked_for(&self) -> bool {
        true
    }

    fn station(&self) -> Option<([u8; 6], Option<u16>)> {
        let runner = self.runner.upgrade()?;
        Some((runner.granted(self.vf)?.mac, runner.tag(self.vf)))
    }
}

fn seal(granted: Granted) -> Vec<u8> {
    snapshot::seal(&V1(granted))
}

/// `None`: this program cannot read it, and the VF's driver is made to start anew.
fn open(sealed: &[u8]) -> Option<Granted> {
    let saved = snapshot::open(V1::KIND, sealed).ok()?;
    saved.decode::<V1>().ok().map(|V1(granted)| granted)
}

#[derive(Serialize, Deserialize)]
struct Boxes(Vec<(u64, Mailbox)>);

impl State for Boxes {
    const KIND: Kind = Kind::new("mailboxs");
    const VERSION: u32 = 1;
}

/// The mailboxes of a guest's PF, which writes there too.
pub(super) struct OfHub(pub Arc<Hub>);

impl crate::nic::Granted for OfHub {
    fn granted(&self) -> Option<Vec<u8>> {
        let all = self.0.mailboxes().into_iter();
        let saved = all.map(|(version, live)| (version, mailbox_saved(&live)));
        Some(snapshot::seal(&Boxes(saved.collect())))
    }

    fn resume(&self, granted: &[u8]) {
        let saved = snapshot::open(Boxes::KIND, granted).and_then(|saved| saved.decode::<Boxes>());
        let Ok(Boxes(saved)) = saved else {
            return;
        };
        // What is none its VF would refuse, too.
        let live = |(version, saved): (u64, Mailbox)| Some((version, mailbox_loaded(&saved).ok()?));
        if let Some(mailboxes) = saved.into_iter().map(live).collect() {
            self.0.resume(mailboxes);
        }
    }
}

/// How late the mailbox is that a VF of such a PF has saved.
pub(super) struct OfChannel(pub Arc<VfChannel>);

impl crate::nic::Granted for OfChannel {
    fn granted(&self) -> Option<Vec<u8>> {
        Some(self.0.version().to_le_bytes().to_vec())
    }

    fn resume(&self, granted: &[u8]) {
        if let Ok(version) = granted.try_into() {
            self.0.expect(u64::from_le_bytes(version));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_granted_is_written_as_ever() {
        let granted = Granted {
            clear_to_send: true,
            mac: [2, 0, 0, 0, 0, 1],
            further: vec![[2, 0, 0, 0, 0, 2]],
            hashes: vec![0x123, 0xfff],
            all_groups: true,
            vlans: vec![7, 4094],
            max_frame: 9018,
            waiting: Some(vec![3, 0x8000_0001]),
        };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden/granted-v1.bin");
        let bytes = model_testkit::golden(path, &seal(granted.clone()));
        assert_eq!(open(&bytes), Some(granted));
        for len in 0..bytes.len() {
            assert_eq!(open(&bytes[..len]), None, "{len} bytes");
        }
    }
}
