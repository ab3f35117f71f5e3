//! A chip with its VFs, and what its switch was told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::*;
use eswitch::{Fabric, FunctionPolicy, Owner, Pool, StormWindows, VlanSet};
use hypernic_igb::{Config, Enforcer, Hub, pf_with_vfs, vf};
use intel_offsets::igb::long::{
    CTRL_EXT, MRQC, RTTBCNRC, RTTDQSEL, VFLRE, VFRE, VFTE, VMOLR, VT_CTL,
};
use intel_offsets::igbvf::long::V2PMAILBOX;
use model::PciState;
use wire::MacAddr;

pub const RST: u32 = 1 << 26;
pub const PFRSTD: u32 = 1 << 14;
pub const VMMB: u32 = 1 << 8;
pub const DOUTSYNC: u32 = 1 << 28;
pub const REPLICATE: u32 = 1 << 30;
pub const BAM: u32 = 1 << 27;

/// What the switch was told last.
#[derive(Default)]
pub struct Book(
    pub Mutex<BTreeMap<Owner, FunctionPolicy>>,
    pub AtomicU64,
    pub Mutex<(Fabric<Owner>, StormWindows)>,
);

impl Enforcer for Book {
    fn enforce(&self, owner: Owner, policy: &FunctionPolicy) {
        self.1.fetch_add(1, SeqCst);
        self.0.lock().expect("book").insert(owner, policy.clone());
    }

    fn enforce_all(&self, fabric: &Fabric<Owner>, storm: &StormWindows) {
        self.1.fetch_add(1, SeqCst);
        *self.2.lock().expect("book") = (fabric.clone(), *storm);
    }
}

pub struct Chip {
    pub hub: Arc<Hub>,
    pub book: Arc<Book>,
    pub pf: Machine,
    pub vfs: Vec<Machine>,
}

impl Chip {
    pub fn new(vfs: u32) -> Chip {
        Chip::with(vfs, &Config::new(MAC))
    }

    pub fn with(vfs: u32, config: &Config) -> Chip {
        let book = Arc::new(Book::default());
        let hub = Hub::new(vfs, Arc::clone(&book) as Arc<dyn Enforcer>);
        let mut pf = Machine {
            nic: pf_with_vfs(config, Arc::clone(&hub)),
            ..Machine::default()
        };
        pf.pci(false, false);
        let vf = |n| {
            let channel = hub.channel(n).expect("a VF");
            let mut machine = Machine {
                nic: vf(&Config::new(MAC), Arc::clone(channel)),
                ..Machine::default()
            };
            machine.pci(false, true);
            machine
        };
        let vfs = (0..vfs).map(vf).collect();
        Chip { hub, book, pf, vfs }
    }

    /// With a PF whose driver has pools, and VFs that have completed their reset.
    pub fn up(vfs: u32) -> Chip {
        Chip::new(vfs).set_up()
    }

    pub fn set_up(self) -> Chip {
        let mut chip = self;
        let vfs = chip.vfs.len() as u32;
        let pf = &mut chip.pf;
        pf.note(reg::CTRL, 1 << 6);
        pf.note(MRQC, 3);
        pf.note(VT_CTL, REPLICATE | vfs << 7);
        pf.note(reg::RCTL, 1 << 1 | 1 << 18);
        pf.note(reg::TCTL, 1 << 1);
        for n in 0..8 {
            pf.note(VMOLR + 4 * n, BAM | 1 << 24);
        }
        pf.note(CTRL_EXT, PFRSTD);
        for n in 0..vfs as usize {
            chip.vfs[n].note(reg::CTRL, RST);
            chip.vfs[n].r(V2PMAILBOX);
            chip.give(n as u32);
        }
        chip.listen();
        chip.pf.note(VFLRE, 0xff);
        chip.pf.r(reg::ICR);
        chip
    }

    /// What Linux's igb does when a VF asks for its address.
    pub fn give(&mut self, vf: u32) {
        let at = u64::from(15 - vf) * 8;
        self.pf.note(reg::RAL + at, 0x7600_5452);
        let high = 0x8000_0000 | 1 << (18 + vf) | (vf << 8);
        self.pf.note(reg::RAH + at, high);
        for which in [VFRE, VFTE] {
            let bits = self.pf.r(which);
            self.pf.note(which, bits | 1 << vf);
        }
        self.settle();
    }

    /// What is done behind accesses.
    pub fn settle(&mut self) {
        self.pf.nic.control.take_work();
        self.listen();
    }

    pub fn listen(&mut self) {
        for machine in self.vfs.iter_mut().chain([&mut self.pf]) {
            machine.nic.control.attend(&machine.env);
        }
    }

    pub fn policy(&self, owner: Owner) -> FunctionPolicy {
        let book = self.book.0.lock().expect("book");
        book.get(&owner).cloned().unwrap_or_default()
    }

    pub fn pool(&self, owner: Owner) -> Pool {
        self.policy(owner).pool
    }

    /// What holds for all: the fabric, and the storm windows of the wire.
    pub fn for_all(&mut self) -> (Fabric<Owner>, StormWindows) {
        self.settle();
        self.book.2.lock().expect("book").clone()
    }

    /// As driver `igb_set_vf_rate_limit` does: of a queue, so many Mbit/s at a link of so many.
    pub fn limit(&mut self, queue: u32, link: u32, mbps: u32) {
        let (whole, rest) = (link / mbps, link % mbps);
        let factor = (whole << 14) | (((rest << 14) / mbps) & 0x3fff);
        self.pf.note(RTTDQSEL, queue);
        self.pf.note(RTTBCNRC, 1 << 31 | factor);
    }

    pub fn rate(&mut self, vf: u32) -> Option<u64> {
        self.settle();
        self.policy(Owner::Vf(vf)).rate.and_then(|rate| rate.bits)
    }

    pub fn silent(&self, vf: u32) -> bool {
        let pool = self.pool(Owner::Vf(vf));
        let channel = self.hub.channel(vf).expect("a VF");
        assert_eq!(channel.grant().enabled, pool.sends || pool.receives);
        !pool.sends && !pool.receives
    }
}

pub fn mac(vf: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0x76, 0, vf])
}

/// The tags in a set, 0 to 4095.
pub fn tags(set: &VlanSet) -> impl Iterator<Item = u16> {
    (0..4096).filter(|id| set.contains(id | 0x1000))
}

/// Has SR-IOV's registers enable so many VFs.
pub fn enable(chip: &mut Chip, vfs: u16) {
    let Machine { nic, env, .. } = &mut chip.pf;
    let state = PciState {
        bus_master: true,
        vfs,
        ..PciState::default()
    };
    nic.control.pci(env, state);
}
