//! A software PF in a test.

use hypernic_pf::{Effect, Policy, SoftwarePf};
use wire::MacAddr;

pub const ACK: u32 = 0x8000_0000;
pub const SECOND: u64 = 1_000_000_000;

pub fn mac(n: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, n])
}

/// A PF of VFs 0 and 1, and what its effects come to.
pub struct Lab {
    pub pf: SoftwarePf,
    pub now: u64,
    pub effects: Vec<Effect>,
}

impl Lab {
    pub fn new(change: impl Fn(&mut Policy)) -> Lab {
        let mut pf = SoftwarePf::new(None);
        for vf in 0..2 {
            let mut policy = Policy::new(mac(vf as u8 + 1));
            change(&mut policy);
            pf.add(vf, policy, 0).expect("a VF");
        }
        pf.link(true);
        let mut lab = Lab {
            pf,
            now: 0,
            effects: Vec::new(),
        };
        lab.effects();
        lab
    }

    pub fn effects(&mut self) -> &[Effect] {
        self.effects = self.pf.drain().collect();
        &self.effects
    }

    /// The first word of the reply.
    pub fn ask(&mut self, vf: u32, words: &[u32]) -> Option<u32> {
        let mut all = [0; 16];
        all[..words.len()].copy_from_slice(words);
        self.pf.request(vf, &all, self.now);
        self.effects().iter().find_map(|effect| match effect {
            Effect::Reply { vf: whose, message } if *whose == vf => Some(message.words()[0]),
            _ => None,
        })
    }

    pub fn up(&mut self, vf: u32) {
        self.pf.reset(vf);
        self.effects();
        assert_eq!(self.ask(vf, &[1]), Some(1 | ACK));
    }

    pub fn told(&mut self, vf: u32) -> Option<u32> {
        self.effects().iter().find_map(|effect| match effect {
            Effect::Notify { vf: whose, message } if *whose == vf => Some(message.words()[0]),
            _ => None,
        })
    }
}
