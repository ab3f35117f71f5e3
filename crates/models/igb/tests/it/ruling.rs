//! A PF that rules VFs by registers, and what its VFs and the switch hear of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::*;
use eswitch::{
    AddressFilter, Fabric, FunctionPolicy, HashSet12, Mirror, Owner, Pool, StormWindow,
    StormWindows, VlanSet,
};
use hypernic_igb::{Config, Enforcer, Hub, pf_with_vfs, vf};
use intel_offsets::igb::long::{
    BSCTRH, CTRL_EXT, DTXSWC, MBVFICR, MBVFIMR, MRQC, MSCTRH, MTA, P2VMAILBOX, QDE, RAL2, RTTBCNRC,
    RTTDQSEL, SCCRL, UTA, VFLRE, VFRE, VFTA, VFTE, VLVF, VMBMEM, VMOLR, VMRCTL, VMRVLAN, VMRVM,
    VMVIR, VT_CTL, WVBR,
};
use intel_offsets::igbvf::long::V2PMAILBOX;
use model::{PciState, ResetKind};
use proptest::prelude::*;
use wire::MacAddr;

const RST: u32 = 1 << 26;
const PFRSTD: u32 = 1 << 14;
const VMMB: u32 = 1 << 8;
const DOUTSYNC: u32 = 1 << 28;
const REPLICATE: u32 = 1 << 30;
const BAM: u32 = 1 << 27;

/// What the switch was told last.
#[derive(Default)]
struct Book(
    Mutex<BTreeMap<Owner, FunctionPolicy>>,
    AtomicU64,
    Mutex<(Fabric<Owner>, StormWindows)>,
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

struct Chip {
    hub: Arc<Hub>,
    book: Arc<Book>,
    pf: Machine,
    vfs: Vec<Machine>,
}

impl Chip {
    fn new(vfs: u32) -> Chip {
        Chip::with(vfs, &Config::new(MAC))
    }

    fn with(vfs: u32, config: &Config) -> Chip {
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
    fn up(vfs: u32) -> Chip {
        Chip::new(vfs).set_up()
    }

    fn set_up(self) -> Chip {
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
    fn give(&mut self, vf: u32) {
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
    fn settle(&mut self) {
        self.pf.nic.control.take_work();
        self.listen();
    }

    fn listen(&mut self) {
        for machine in self.vfs.iter_mut().chain([&mut self.pf]) {
            machine.nic.control.attend(&machine.env);
        }
    }

    fn policy(&self, owner: Owner) -> FunctionPolicy {
        let book = self.book.0.lock().expect("book");
        book.get(&owner).cloned().unwrap_or_default()
    }

    fn pool(&self, owner: Owner) -> Pool {
        self.policy(owner).pool
    }

    /// What holds for all: the fabric, and the storm windows of the wire.
    fn for_all(&mut self) -> (Fabric<Owner>, StormWindows) {
        self.settle();
        self.book.2.lock().expect("book").clone()
    }

    /// As driver `igb_set_vf_rate_limit` does: of a queue, so many Mbit/s at a link of so many.
    fn limit(&mut self, queue: u32, link: u32, mbps: u32) {
        let (whole, rest) = (link / mbps, link % mbps);
        let factor = (whole << 14) | (((rest << 14) / mbps) & 0x3fff);
        self.pf.note(RTTDQSEL, queue);
        self.pf.note(RTTBCNRC, 1 << 31 | factor);
    }

    fn rate(&mut self, vf: u32) -> Option<u64> {
        self.settle();
        self.policy(Owner::Vf(vf)).rate.and_then(|rate| rate.bits)
    }

    fn silent(&self, vf: u32) -> bool {
        let pool = self.pool(Owner::Vf(vf));
        let channel = self.hub.channel(vf).expect("a VF");
        assert_eq!(channel.grant().enabled, pool.sends || pool.receives);
        !pool.sends && !pool.receives
    }
}

fn mac(vf: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0x76, 0, vf])
}

/// The tags in a set, 0 to 4095.
fn tags(set: &VlanSet) -> impl Iterator<Item = u16> {
    (0..4096).filter(|id| set.contains(id | 0x1000))
}

/// A queue's registers are the same ones, whoever has the queue (§8.26: as of the PF).
#[test]
fn a_vf_and_its_pf_keep_the_same_bits_of_a_queue() {
    let mut chip = Chip::new(1);
    for (offset, mask) in [
        (0x00, 0xffff_ff80),
        (0x08, 0x000f_fff0),
        (0x0c, 0x8ff0_3f7f),
        (0x14, 0xff00_ffff),
    ] {
        for (of_pf, of_vf) in [(0xc000, 0x2800), (0xe000, 0x3800)] {
            if (of_pf, offset) == (0xe000, 0x0c) {
                continue;
            }
            chip.pf.note(of_pf + offset, u32::MAX);
            chip.vfs[0].note(of_vf + offset, u32::MAX);
            assert_eq!(chip.pf.r(of_pf + offset), mask, "{offset:#x}");
            assert_eq!(chip.vfs[0].r(of_vf + offset), mask, "{offset:#x}");
        }
    }
    chip.vfs[0].note(0x3838, u32::MAX);
    assert_eq!(chip.vfs[0].r(0x3838), u32::MAX);
    chip.vfs[0].note(0x1680, u32::MAX);
    assert_eq!(chip.vfs[0].r(0x1680), 0xfffc);
}

/// Whoever may neither send nor receive has his stations: they do not become the default pool's.
#[test]
fn the_stations_of_a_vf_that_is_shut_stay_its_own() {
    let mut chip = Chip::up(2);
    let before = chip.pool(Owner::Vf(1)).macs;
    assert_eq!(before, [mac(1)]);
    chip.pf.note(VFRE, 0xfd);
    chip.pf.note(VFTE, 0xfd);
    chip.settle();
    assert!(chip.silent(1));
    assert_eq!(chip.pool(Owner::Vf(1)).macs, before);
}

/// What the PF says of the port's receiver holds for its VFs (§8.10): the longest frame, checksums.
#[test]
fn the_port_bounds_what_a_vf_receives() {
    let mut chip = Chip::up(1);
    let grant = |chip: &Chip| chip.hub.channel(0).expect("a VF").grant();
    chip.pf.note(VMOLR, BAM | 1 << 24 | 1 << 16 | 0x2600);
    chip.settle();
    assert_eq!(grant(&chip).max_frame, 1518, "RCTL.LPE is off");
    let rctl = chip.pf.r(reg::RCTL);
    chip.pf.note(reg::RCTL, rctl | 1 << 5);
    chip.pf.note(0x5004, 2000);
    chip.settle();
    assert_eq!(grant(&chip).max_frame, 2000);
    chip.pf.note(0x5004, 0x3fff);
    chip.settle();
    assert_eq!(grant(&chip).max_frame, 0x2600);
}

/// VTSTATUS has the speed of the port (§8.26.2).
#[test]
fn a_vf_sees_how_fast_the_link_is() {
    let mut chip = Chip::up(1);
    assert_eq!(chip.vfs[0].r(0x8), 0x83);
    for (speed, shown) in [(0, 0x03), (1, 0x43), (2, 0x83)] {
        // CTRL.FRCSPD, SLU.
        chip.pf.note(reg::CTRL, 1 << 11 | speed << 8 | 1 << 6 | 1);
        chip.settle();
        assert_eq!(chip.vfs[0].r(0x8), shown, "{speed}");
    }
}

/// Who has no VF of that number has only the bit that is the PF's own.
#[test]
fn the_mailbox_of_a_vf_that_is_not_there_is_silent() {
    let mut chip = Chip::new(2);
    chip.pf.note(P2VMAILBOX + 4 * 7, 0x1f);
    assert_eq!(chip.pf.r(P2VMAILBOX + 4 * 7), 8);
    chip.pf.note(P2VMAILBOX + 4 * 7, 0);
    assert_eq!(chip.pf.r(P2VMAILBOX + 4 * 7), 0);
}

#[test]
fn messages_go_both_ways_by_registers_and_interrupt_who_is_to_read_them() {
    let mut chip = Chip::up(3);
    chip.pf.note(reg::IMS, VMMB);
    assert!(!chip.pf.line());
    // VF 1 asks.
    let vf = &mut chip.vfs[1];
    vf.note(0x1740, 0x82);
    vf.note(0x1524, 7);
    vf.note(V2PMAILBOX, 4);
    assert_eq!(vf.r(V2PMAILBOX), 4, "its buffer");
    assert_eq!(chip.pf.r(P2VMAILBOX + 4), 4, "the PF sees whose it is");
    for n in 0..16 {
        chip.vfs[1].note(VMBMEM + 4 * n, 0x100 + n as u32);
    }
    chip.vfs[1].note(V2PMAILBOX, 1);
    chip.listen();
    assert!(chip.pf.line(), "VMMB");
    assert_eq!(chip.pf.r(reg::ICR) & VMMB, VMMB);
    assert_eq!(chip.pf.r(MBVFICR), 2);
    assert_eq!(chip.pf.r(VFLRE), 0);
    chip.pf.note(MBVFICR, 2);
    assert_eq!(chip.pf.r(MBVFICR), 0);
    // The PF reads, and says so.
    chip.pf.note(P2VMAILBOX + 4, 8);
    assert_eq!(chip.pf.r(P2VMAILBOX + 4), 8);
    for n in 0..16 {
        assert_eq!(chip.pf.r(VMBMEM + 64 + 4 * n), 0x100 + n as u32);
        assert_eq!(chip.pf.r(VMBMEM + 4 * n), 0, "another's");
    }
    chip.pf.note(P2VMAILBOX + 4, 2);
    chip.listen();
    assert_eq!(chip.vfs[1].vectors(), [2]);
    assert_eq!(chip.vfs[1].r(V2PMAILBOX), 0x20, "PFACK");
    // And answers, byte by byte.
    chip.pf.note(P2VMAILBOX + 4, 8);
    for (at, byte) in (0..).zip([0x11, 0x22, 0x33, 0x44]) {
        let env = &chip.pf.env;
        let at = VMBMEM + 64 + at;
        chip.pf.nic.control.write(env, 0, at, &[byte]);
    }
    chip.pf.note(P2VMAILBOX + 4, 1);
    chip.listen();
    assert_eq!(chip.vfs[1].r(V2PMAILBOX), 0x10, "PFSTS");
    assert_eq!(chip.vfs[1].r(VMBMEM), 0x4433_2211);
    chip.vfs[1].note(V2PMAILBOX, 2);
    chip.listen();
    assert_eq!(chip.pf.r(MBVFICR), 1 << 17, "it has read");
    assert_eq!(chip.pf.r(reg::ICR) & VMMB, VMMB);
    chip.pf.note(MBVFICR, 1 << 17);
    // Those whose messages are masked say nothing, and can be asked.
    chip.pf.note(MBVFIMR, 0xfd);
    chip.vfs[1].note(V2PMAILBOX, 1);
    chip.listen();
    assert_eq!((chip.pf.r(MBVFICR), chip.pf.r(reg::ICR) & VMMB), (2, 0));
    chip.vfs[2].note(V2PMAILBOX, 1);
    chip.listen();
    assert_eq!((chip.pf.r(MBVFICR), chip.pf.r(reg::ICR) & VMMB), (6, VMMB));
    // What belongs to VFs that are not there is kept, and leads nowhere.
    chip.pf.note(VMBMEM + 64 * 5, 7);
    chip.pf.note(P2VMAILBOX + 20, 9);
    assert_eq!(chip.pf.r(VMBMEM + 64 * 5), 7);
}

#[test]
fn a_reset_of_either_side_reaches_the_other_and_takes_what_was_allowed() {
    let mut chip = Chip::up(2);
    assert!(!chip.silent(0) && !chip.silent(1));
    assert_eq!(chip.pool(Owner::Vf(1)).macs, [mac(1)]);
    // VTCTRL.RST.
    chip.vfs[1].note(reg::CTRL, RST);
    assert!(chip.silent(1) && !chip.silent(0), "before anybody looks");
    assert_eq!((chip.pf.r(VFRE), chip.pf.r(VFTE)), (0xfd, 0xfd));
    chip.pf.note(reg::IMS, VMMB);
    chip.listen();
    assert!(chip.pf.line());
    assert_eq!((chip.pf.r(VFLRE), chip.pf.r(VFLRE)), (2, 2));
    chip.pf.note(VFLRE, 1);
    assert_eq!(chip.pf.r(VFLRE), 2);
    chip.pf.note(VFLRE, 2);
    assert_eq!(chip.pf.r(VFLRE), 0);
    assert_eq!(chip.vfs[1].r(V2PMAILBOX), 0x80, "RSTD");
    chip.give(1);
    assert!(!chip.silent(1));
    // The bus resets a VF as its driver does.
    let Machine { nic, env, .. } = &mut chip.vfs[0];
    nic.control.reset(env, ResetKind::Bus);
    assert!(chip.silent(0));
    assert_eq!(chip.pf.r(VFLRE), 1);
    chip.give(0);
    // The PF is reset: nobody moves, what was said is forgotten, and all are told.
    chip.vfs[0].note(V2PMAILBOX, 1);
    chip.pf.note(reg::CTRL, RST);
    assert!(chip.silent(0) && chip.silent(1));
    assert_eq!([MBVFICR, VFLRE].map(|at| chip.pf.r(at)), [0, 0]);
    for vf in &mut chip.vfs {
        assert_eq!([vf.r(V2PMAILBOX), vf.r(V2PMAILBOX)], [0x40; 2], "RSTI");
    }
    // Pools alone do not make it ready.
    let on = [
        (MRQC, 3),
        (VT_CTL, REPLICATE),
        (reg::RCTL, 2),
        (reg::TCTL, 2),
    ];
    for (at, value) in on {
        chip.pf.note(at, value);
    }
    chip.settle();
    assert!(chip.silent(0));
    chip.pf.note(CTRL_EXT, PFRSTD);
    for vf in &mut chip.vfs {
        assert_eq!([vf.r(V2PMAILBOX), vf.r(V2PMAILBOX)], [0x80, 0], "RSTD");
    }
    // A PF that is taken away is in reset for good.
    chip.give(0);
    assert!(!chip.silent(0));
    chip.hub.vacate();
    assert!(chip.silent(0) && chip.silent(1));
    assert_eq!(chip.vfs[0].r(V2PMAILBOX), 0x40);
}

#[test]
fn what_each_pool_gets_and_sends_is_what_the_registers_say() {
    let mut chip = Chip::up(2);
    let of = |chip: &mut Chip, owner| {
        chip.settle();
        chip.pool(owner)
    };
    let first = of(&mut chip, Owner::Vf(0));
    assert_eq!(first.macs, [mac(0)]);
    assert!(first.broadcast && first.in_vlan(0) && first.outward && !first.default);
    assert!(!first.check_mac && !first.check_vlan && first.only_vlan.is_none());
    assert_eq!(
        (first.groups, first.stations),
        (AddressFilter::None, AddressFilter::None)
    );
    assert_eq!(first.vlans, Some(VlanSet::none().with_bare()));
    let own = of(&mut chip, Owner::Pf);
    assert!(own.default && own.receives && own.sends);
    // An address of two pools, in the second array; one that compares the source; one that is off.
    let entries = [0x8000_0002 | 3 << 18, 0x8001_0003 | 1 << 18, 4 | 1 << 18];
    for (at, high) in (0..).zip(entries) {
        chip.pf.note(RAL2 + 8 * at, 1);
        chip.pf.note(RAL2 + 8 * at + 4, high);
    }
    let shared = MacAddr([1, 0, 0, 0, 2, 0]);
    for vf in 0..2u8 {
        let pool = of(&mut chip, Owner::Vf(vf.into()));
        assert_eq!(pool.macs, [mac(vf), shared]);
    }
    chip.pf.note(DTXSWC, 1 << 31 | 1 << 8 | 2);
    chip.pf.note(VMVIR, 1 << 30 | 3 << 13 | 100);
    chip.pf.note(VMVIR + 4, 2 << 30);
    chip.pf.note(VLVF + 4 * 31, 1 << 31 | 1 << 12 | 100);
    chip.pf.note(VLVF + 4 * 7, 1 << 31 | 7 << 12 | 200);
    chip.pf.note(VLVF, 1 << 12 | 300);
    chip.pf.note(MTA + 4 * 9, 5);
    chip.pf.note(UTA, 9);
    chip.pf.note(VMOLR, 1 << 25 | 1 << 26 | 1 << 16 | 9000);
    chip.pf.note(VMOLR + 4, 1 << 28 | 1 << 30);
    chip.pf.note(reg::RCTL, 1 << 1 | 1 << 5 | 1 << 18 | 2 << 12);
    let (a, b) = (of(&mut chip, Owner::Vf(0)), of(&mut chip, Owner::Vf(1)));
    assert!(!a.outward && !a.check_mac && a.check_vlan && b.check_mac && !b.check_vlan);
    assert_eq!((a.only_vlan, b.only_vlan), (Some(100), None));
    assert_eq!(a.vlans, Some(VlanSet::none().with(200).with(100)));
    assert_eq!(b.vlans, Some(VlanSet::none().with(200)));
    assert!(!a.broadcast && !a.in_vlan(0));
    assert_eq!(b.groups, AddressFilter::All);
    let table = |at: usize, word| {
        let mut table = [0; 128];
        table[at] = word;
        AddressFilter::Hashes(HashSet12::of_table(&table, 2))
    };
    assert_eq!(a.groups, table(9, 5));
    assert_eq!(a.stations, table(0, 9));
    let grant = |chip: &Chip, vf| chip.hub.channel(vf).expect("a VF").grant();
    assert_eq!(grant(&chip, 0).max_frame, 9000);
    assert_eq!(grant(&chip, 0).tag, Some(3 << 13 | 100));
    assert_eq!(
        (grant(&chip, 1).max_frame, grant(&chip, 1).tag),
        (1518, None)
    );
    // Who only sends, only receives.
    chip.pf.note(VFRE, 0xfe);
    chip.pf.note(VFTE, 0xfd);
    let (a, b) = (of(&mut chip, Owner::Vf(0)), of(&mut chip, Owner::Vf(1)));
    assert_eq!(
        (a.receives, a.sends, b.receives, b.sends),
        (false, true, true, false)
    );
    // Without replication what is for many is the default pool's, what is for two the first one's.
    chip.pf.note(VT_CTL, 1 << 7);
    chip.pf.note(VMOLR, 1 << 28);
    let (a, b) = (of(&mut chip, Owner::Vf(0)), of(&mut chip, Owner::Vf(1)));
    assert_eq!((a.macs.len(), b.macs.len()), (2, 1));
    assert_eq!(
        (a.groups, b.groups, a.default, b.default),
        (AddressFilter::None, AddressFilter::All, false, true)
    );
    chip.pf.note(VT_CTL, REPLICATE | 1 << 29 | 1 << 28);
    let a = of(&mut chip, Owner::Vf(0));
    assert!(
        a.broadcast && a.stations == AddressFilter::All && !a.default,
        "addresses ignored"
    );
    // The receiver as a whole, the transmitter, and no pools at all.
    chip.pf.note(VFRE, 0xff);
    chip.pf.note(VFTE, 0xff);
    chip.pf.note(reg::RCTL, 0);
    let a = of(&mut chip, Owner::Vf(0));
    assert!(a.sends && !a.receives && a.vlans.is_none());
    chip.pf.note(reg::TCTL, 0);
    chip.settle();
    assert!(chip.silent(0));
    chip.pf.note(reg::RCTL, 2);
    chip.pf.note(reg::TCTL, 2);
    chip.pf.note(MRQC, 2);
    chip.settle();
    assert!(chip.silent(0) && chip.silent(1));
    let own = of(&mut chip, Owner::Pf);
    assert!(own.outward && own.groups == AddressFilter::All && own.vlans.is_none());
}

#[test]
fn changes_without_end_are_carried_out_a_few_times_a_turn() {
    let mut chip = Chip::up(7);
    let told = |chip: &Chip| chip.book.1.load(SeqCst);
    let before = told(&chip);
    // One that reads after each of its writes finds each in force, if the bus takes turns.
    for n in 0..5 {
        chip.pf.note(DTXSWC, n % 2);
        chip.pf.r(reg::STATUS);
        assert_eq!(chip.pool(Owner::Vf(0)).check_mac, n % 2 == 1);
        chip.settle();
    }
    assert_eq!(
        told(&chip),
        before + 4,
        "nothing has changed the first time"
    );
    let before = told(&chip);
    for n in 0..1000 {
        chip.pf.note(DTXSWC, if n % 2 == 0 { 0 } else { 0x7f });
        chip.pf.r(reg::STATUS);
        chip.pf.note(P2VMAILBOX, 1);
        chip.pf.note(CTRL_EXT, PFRSTD);
    }
    assert!(told(&chip) - before <= 2 * 8, "{}", told(&chip) - before);
    chip.settle();
    assert!(chip.pool(Owner::Vf(6)).check_mac, "the last one counts");
    // Nor do resets of a VF that has nothing to lose cost the switch anything.
    chip.vfs[0].note(reg::CTRL, RST);
    let before = told(&chip);
    for _ in 0..100 {
        chip.vfs[0].note(reg::CTRL, RST);
    }
    assert_eq!(told(&chip), before);
}

#[test]
fn frames_that_were_not_theirs_are_told_by_wvbr() {
    let mut chip = Chip::up(2);
    chip.pf.note(reg::IMS, DOUTSYNC);
    chip.hub.spoofed(1, 3);
    chip.hub.spoofed(0, 0);
    chip.hub.spoofed(6, 1);
    chip.listen();
    assert!(chip.pf.line());
    assert_eq!(chip.pf.r(reg::ICR) & DOUTSYNC, DOUTSYNC);
    assert_eq!(
        [chip.pf.r(WVBR), chip.pf.r(WVBR)],
        [2, 0],
        "cleared by reading"
    );
    let mut fouls = None;
    chip.pf.nic.control.counters(&mut |name, n| {
        if name == "vf_spoofed" {
            fouls = Some(n);
        }
    });
    assert_eq!(fouls, Some(3));
}

#[test]
fn what_rules_is_saved_and_holds_where_it_is_loaded() {
    let mut chip = Chip::up(3);
    for (at, value) in [
        (MBVFIMR, 0x03),
        (QDE, 0x1234),
        (DTXSWC, 1 << 31 | 7),
        (VMVIR + 8, 1 << 30 | 9),
        (VMOLR + 8, 1 << 27 | 1 << 25 | 3),
        (VLVF + 8, 1 << 31 | 5 << 12 | 77),
        (UTA + 4 * 127, 0x8000_0000),
        (MTA, 3),
    ] {
        chip.pf.note(at, value);
    }
    chip.hub.spoofed(2, 1);
    chip.settle();
    let places = [
        MBVFIMR,
        VFRE,
        VFTE,
        QDE,
        DTXSWC,
        VT_CTL,
        MRQC,
        VMVIR + 8,
        VMOLR + 8,
        VLVF + 8,
        UTA + 4 * 127,
        MTA,
        reg::RAH + 8 * 13,
        CTRL_EXT,
    ];
    let blob = chip.pf.nic.control.save(&chip.pf.env);
    let mut other = Chip::new(3);
    assert!(other.silent(2));
    let Machine { nic, env, .. } = &mut other.pf;
    nic.control.load(env, &blob).expect("its own state");
    other.settle();
    for at in places {
        assert_eq!(other.pf.r(at), chip.pf.r(at), "{at:#x}");
    }
    assert_eq!(other.pf.r(WVBR), 4);
    for owner in [Owner::Pf, Owner::Vf(0), Owner::Vf(1), Owner::Vf(2)] {
        assert_eq!(other.pool(owner), chip.pool(owner), "{owner:?}");
    }
    assert!(!other.silent(2));
    assert_eq!(other.vfs[2].r(V2PMAILBOX), 0x80, "its PF is there");
    // A VF brings its mailbox along: what it had said is heard here.
    chip.vfs[2].note(VMBMEM, 0x55);
    chip.vfs[2].note(V2PMAILBOX, 1);
    let blob = chip.vfs[2].nic.control.save(&chip.vfs[2].env);
    let Machine { nic, env, .. } = &mut other.vfs[2];
    nic.control.load(env, &blob).expect("its own state");
    other.listen();
    assert_eq!(other.pf.r(reg::ICR) & VMMB, 0, "masked");
    assert_eq!((other.pf.r(MBVFICR), other.pf.r(VMBMEM + 128)), (4, 0x55));
}

#[test]
fn rates_are_parts_of_the_links_and_each_queue_has_one() {
    let mut chip = Chip::up(2);
    assert_eq!(chip.rate(0), None);
    chip.limit(1, 1000, 100);
    assert_eq!((chip.rate(0), chip.rate(1)), (None, Some(100_000_000)));
    chip.limit(0, 1000, 300);
    let rate = chip.rate(0).expect("limited");
    assert!((299_900_000..=300_100_000).contains(&rate), "{rate}");
    // Each has a register of its own behind the one address.
    assert_eq!(chip.pf.r(RTTBCNRC) >> 14, 1 << 17 | 3);
    chip.pf.note(RTTDQSEL, 1);
    assert_eq!(chip.pf.r(RTTBCNRC), 1 << 31 | 10 << 14);
    chip.pf.note(RTTDQSEL, 7);
    assert_eq!(chip.pf.r(RTTBCNRC), 0);
    // Both of a VF's queues.
    chip.limit(9, 1000, 50);
    assert_eq!(chip.rate(1), Some(150_000_000));
    // A part of nothing, and none.
    chip.pf.note(RTTBCNRC, 1 << 31);
    assert_eq!(chip.rate(1), Some(100_000_000));
    // At a tenth of the speed (CTRL.FRCSPD) the same part is a tenth.
    chip.pf.note(reg::CTRL, 1 << 6 | 1 << 11 | 1 << 8);
    assert_eq!(chip.rate(1), Some(10_000_000));
    // Whatever decides the speed (CTRL_EXT.SPD_BYPS), and with nothing else written.
    chip.pf.note(reg::CTRL, 1 << 6 | 1 << 8);
    assert_eq!(chip.rate(1), Some(100_000_000));
    chip.pf.note(CTRL_EXT, PFRSTD | 1 << 15);
    assert_eq!(chip.rate(1), Some(10_000_000));
    // Saved with the rest, and gone with a reset.
    let blob = chip.pf.nic.control.save(&chip.pf.env);
    let mut other = Chip::new(2);
    let Machine { nic, env, .. } = &mut other.pf;
    nic.control.load(env, &blob).expect("its own state");
    assert_eq!(other.rate(1), Some(10_000_000));
    chip.pf.note(reg::CTRL, RST);
    assert_eq!((chip.rate(1), chip.pf.r(RTTBCNRC)), (None, 0));
}

#[test]
fn copies_local_vlans_loops_and_storms_are_what_the_registers_say() {
    let mut chip = Chip::up(3);
    let unfiltered = (Fabric::default(), StormWindows::default());
    let of_nobody = Fabric {
        known: Some(VlanSet::none()),
        ..Fabric::default()
    };
    let of_nobody = (of_nobody, StormWindows::default());
    assert_eq!(chip.for_all(), of_nobody, "RCTL.VFE, and a table of zeros");
    chip.pf.note(VFTA + 4 * 3, 1 << 4);
    let known = VlanSet::none().with(3 * 32 + 4);
    assert_eq!(chip.for_all().0.known, Some(known));
    chip.pf.note(reg::RCTL, 1 << 1);
    assert_eq!(chip.for_all(), unfiltered);
    chip.pf.note(VLVF, 1 << 31 | 1 << 20 | 7 << 12 | 100);
    chip.pf.note(VLVF + 4 * 9, 1 << 31 | 7 << 12 | 200);
    chip.pf.note(VLVF + 4 * 10, 1 << 20 | 7 << 12 | 300);
    // VFs 0 and 1, and the PF by two of its pools, to VF 2.
    chip.pf.note(VMRCTL, 1 | 2 << 8);
    chip.pf.note(VMRVM, 0xf3);
    // The wire both ways, to the PF.
    chip.pf.note(VMRCTL + 4, 6 | 5 << 8);
    // VLANs of entries that are on.
    chip.pf.note(VMRCTL + 12, 8);
    chip.pf.note(VMRVLAN + 12, 1 << 9 | 1 << 10);
    chip.pf.note(SCCRL, 2 << 8 | 1 << 3 | 1);
    chip.pf.note(BSCTRH, 1000);
    chip.pf.note(MSCTRH, 0xffff_ffff);
    let rule = Mirror::to;
    let window = |blocks, current| {
        Some(StormWindow {
            blocks,
            current,
            previous: !current,
        })
    };
    let (fabric, of_wire) = chip.for_all();
    assert_eq!(fabric.local, VlanSet::none().with(100));
    let pools = Mirror {
        of: vec![Owner::Vf(0), Owner::Vf(1), Owner::Pf],
        ..rule(Owner::Vf(2))
    };
    let wire = Mirror {
        incoming: true,
        outgoing: true,
        ..rule(Owner::Pf)
    };
    let vlans = Mirror {
        vlans: VlanSet::none().with(200),
        ..rule(Owner::Vf(0))
    };
    assert_eq!(fabric.mirrors, [pools, wire, vlans]);
    let storm = StormWindows {
        interval: 200_000,
        broadcast: window(1000, true),
        multicast: window(0x7_ffff, false),
    };
    assert_eq!(of_wire, storm);
    // Loops within a pool, pool by pool.
    chip.pf.note(DTXSWC, 1 << 31 | 1 << 17);
    chip.settle();
    let own = |n| chip.pool(n).own;
    let owns = [Owner::Vf(0), Owner::Vf(1), Owner::Pf].map(own);
    assert_eq!(owns, [false, true, false]);
    // Without pools nothing is copied, and what comes in is bounded all the same.
    chip.pf.note(MRQC, 2);
    let (fabric, of_wire) = chip.for_all();
    assert_eq!((of_wire, fabric.mirrors.len()), (storm, 0));
    chip.pf.note(reg::CTRL, RST);
    assert_eq!(chip.for_all(), unfiltered);
}

/// Behind the PF's addresses are the queues and vectors of its VFs, where there are VFs (§7.10.2).
#[test]
fn a_pf_finds_its_vfs_queues_and_vectors_behind_its_own_addresses() {
    let [rdbal, tdlen, psrtype]: [u64; 3] = [0xc000, 0xe008, 0x5480];
    let queue = |base: u64, n: u64| base + 0x40 * n;
    let to_the_letter = Config {
        pf_places_vf_rings: true,
        ..Config::new(MAC)
    };
    let mut chip = Chip::with(2, &to_the_letter).set_up();
    // Queue 1 of VF 1 is the chip's ninth.
    chip.vfs[1].note(0x2900, 0x1_2380);
    assert_eq!(chip.pf.r(queue(rdbal, 9)), 0x1_2380);
    chip.pf.note(queue(tdlen, 8), 0x80);
    chip.pf.note(queue(tdlen, 2), 0x100);
    chip.pf.note(psrtype + 4, 6);
    assert_eq!(chip.vfs[0].r(0x3908), 0x80);
    assert_eq!(chip.vfs[1].r(0x0f0c), 6);
    assert_eq!(chip.pf.r(queue(tdlen, 2)), 0x100, "its own");
    assert_eq!([chip.vfs[0].r(0x3808), chip.vfs[1].r(0x3808)], [0; 2]);
    // What a queue has dropped is read of all and written of none.
    for n in 0..16 {
        chip.pf.note(queue(rdbal, n) + 0x30, !0);
        assert_eq!(chip.pf.r(queue(rdbal, n) + 0x30), 0);
    }
    assert_eq!([chip.vfs[0].r(0x0f0c), chip.vfs[1].r(0x0f0c)], [0, 6]);
    // VF 0 has the vectors 22 to 24, VF 1 those before.
    chip.vfs[0].note(reg::EIMS, 5);
    chip.pf.note(reg::EIMS, 1 << 19 | 1);
    assert_eq!(chip.pf.r(reg::EIMS), 5 << 22 | 1 << 19 | 1);
    assert_eq!(chip.vfs[1].r(reg::EIMS), 1);
    chip.pf.note(reg::EIMC, 1 << 22);
    assert_eq!(chip.vfs[0].r(reg::EIMS), 4);
    chip.pf.note(reg::EICS, 1 << 24 | 1 << 22);
    assert_eq!(chip.vfs[0].vectors(), [2]);
    assert!(chip.pf.vectors().is_empty() && chip.vfs[1].vectors().is_empty());
    assert_eq!(chip.pf.r(reg::EICR), 5 << 22);
    assert_eq!(chip.vfs[0].r(reg::EICR), 0, "reading clears");
    chip.pf.note(reg::EIAM, !0);
    chip.pf.note(reg::EIAC, 1 << 23 | 2);
    assert_eq!([chip.vfs[0].r(reg::EIAM), chip.vfs[0].r(reg::EIAC)], [7, 2]);
    assert_eq!(chip.pf.r(reg::EIAC), 1 << 23 | 2);
    // Who writes a part leaves the rest, and zeros are zeros.
    let part = |chip: &mut Chip, at, byte: u8| {
        let Machine { nic, env, .. } = &mut chip.pf;
        nic.control.write(env, 0, at, &[byte]);
    };
    part(&mut chip, reg::EIAC, 1);
    assert_eq!(chip.pf.r(reg::EIAC), 1 << 23 | 1);
    part(&mut chip, queue(tdlen, 8) + 1, 1);
    assert_eq!(chip.vfs[0].r(0x3908), 0x180);
    chip.pf.note(reg::EIAC, 0);
    chip.pf.note(reg::EIAM, 0);
    assert_eq!([chip.vfs[0].r(reg::EIAM), chip.vfs[0].r(reg::EIAC)], [0; 2]);
    chip.vfs[1].note(0x1684, 0x40);
    assert_eq!(chip.pf.r(reg::EITR + 4 * 20), 0x40);
    chip.pf.note(reg::EITR + 4 * 22, 0x80);
    assert_eq!(chip.vfs[0].r(0x1680), 0x80);
    // A VF's queues have no vectors but its own.
    chip.vfs[0].note(0x1700, 0x8180_0082);
    assert_eq!(chip.pf.r(reg::IVAR), 0x9796_0098);
    chip.pf.note(reg::IVAR + 4, 0x9394_8095);
    assert_eq!(chip.vfs[1].r(0x1700), 0x8081_0082);
    // Who takes the pools away has all of it for itself, and so has who takes a VF away.
    chip.pf.note(MRQC, 0);
    assert_eq!([chip.pf.r(queue(rdbal, 9)), chip.pf.r(reg::EIMS)], [0, 1]);
    chip.pf.note(MRQC, 3);
    chip.pf.note(queue(tdlen, 0), 0x80);
    assert_eq!(chip.vfs[0].r(0x3808), 0x80);
    drop(chip.vfs.remove(0));
    assert_eq!(chip.pf.r(queue(tdlen, 0)), 0);
    chip.pf.note(queue(tdlen, 0), 0x100);
    assert_eq!(chip.pf.r(queue(tdlen, 0)), 0x100);
}

/// A PF reads where its VFs' rings are, and may stop a queue. It neither moves a ring nor starts a queue.
#[test]
fn a_pf_does_not_place_its_vfs_rings() {
    let queue = |base: u64, n: u64| base + 0x40 * n;
    let mut chip = Chip::up(2);
    // Base, length, SRRCTL, head, tail and head write-back of queue 0 of VF 0, as it has them and as the PF has.
    let (rx, tx) = (queue(0xc000, 0), queue(0xe000, 0));
    let places = [(0x00, 0x80), (0x04, 1), (0x08, 0x80), (0x10, 2), (0x18, 3)];
    let own = [(0x0c, 4), (0x28, 1 << 25)];
    let written = [(0x38, 0x100), (0x3c, 1), (0x28, 1 << 25)];
    for (at, value) in places.into_iter().chain(own) {
        chip.vfs[0].note(0x2800 + at, value);
    }
    for (at, value) in places.into_iter().chain(written) {
        chip.vfs[0].note(0x3800 + at, value);
    }
    let all = |chip: &mut Chip| {
        let places = places.map(|(at, _)| [chip.pf.r(rx + at), chip.pf.r(tx + at)]);
        let rest = [
            chip.pf.r(rx + 0xc),
            chip.pf.r(tx + 0x38),
            chip.pf.r(tx + 0x3c),
        ];
        (places, rest)
    };
    let before = all(&mut chip);
    assert_eq!(before.0[0], [0x80; 2]);
    let refused = |chip: &Chip| chip.pf.counter("vf_ring_refused");
    for (at, _) in places {
        chip.pf.note(rx + at, 0x1000);
        chip.pf.note(tx + at, 0x1000);
    }
    for at in [rx + 0xc, tx + 0x38, tx + 0x3c] {
        chip.pf.note(at, 0x1001);
    }
    assert_eq!(all(&mut chip), before);
    assert_eq!(refused(&chip), 13);
    for at in [rx + 0x28, tx + 0x28] {
        assert_ne!(chip.pf.r(at) & 1 << 25, 0);
        chip.pf.note(at, 0);
        assert_eq!(chip.pf.r(at) & 1 << 25, 0, "it may stop a queue");
        chip.pf.note(at, 1 << 25);
        assert_eq!(chip.pf.r(at) & 1 << 25, 0, "and not start it");
    }
    assert_eq!(refused(&chip), 15);
    // The PF's own queues are its own.
    chip.pf.note(queue(0xe008, 2), 0x100);
    assert_eq!(chip.pf.r(queue(0xe008, 2)), 0x100);
    assert_eq!(refused(&chip), 15);
}

/// Has SR-IOV's registers enable so many VFs.
fn enable(chip: &mut Chip, vfs: u16) {
    let Machine { nic, env, .. } = &mut chip.pf;
    let state = PciState {
        bus_master: true,
        vfs,
        ..PciState::default()
    };
    nic.control.pci(env, state);
}

#[test]
fn vfs_are_those_that_sriov_has_enabled_or_all_where_nobody_has_seen_it() {
    let mut chip = Chip::up(3);
    let iov = |chip: &mut Chip| chip.pf.r(reg::STATUS) >> 14 & 0x1f;
    assert_eq!(iov(&mut chip), 0);
    chip.vfs[2].note(V2PMAILBOX, 1);
    assert_eq!(chip.pf.r(MBVFICR), 4);
    enable(&mut chip, 2);
    chip.settle();
    assert_eq!(iov(&mut chip), 1 << 4 | 2);
    assert!(!chip.silent(0) && !chip.silent(1), "they go on");
    assert!(chip.silent(2), "there is none");
    assert_eq!(chip.vfs[2].r(V2PMAILBOX) & 0x40, 0x40, "RSTI");
    // Its pool is the PF's, and nothing that it does concerns it any more.
    assert_eq!(chip.pool(Owner::Pf).macs, [mac(2)]);
    chip.pf.r(reg::ICR);
    chip.vfs[2].note(V2PMAILBOX, 1);
    chip.vfs[2].note(reg::CTRL, RST);
    chip.settle();
    assert_eq!([MBVFICR, VFLRE].map(|at| chip.pf.r(at)), [0, 0]);
    assert_eq!(chip.pf.r(VFRE), 0xff);
    assert_eq!(chip.pf.r(reg::ICR) & VMMB, 0);
    chip.pf.note(CTRL_EXT, PFRSTD);
    assert_eq!(chip.vfs[2].r(V2PMAILBOX) & 0x40, 0x40, "for good");
    // Ended: what was allowed is not any more, until they have started anew.
    enable(&mut chip, 0);
    chip.settle();
    assert_eq!(
        (iov(&mut chip), chip.pf.r(VFRE), chip.pf.r(VFTE)),
        (0, 0xf8, 0xf8)
    );
    for vf in 0..3 {
        assert!(chip.silent(vf));
        assert_eq!(chip.vfs[vf as usize].r(V2PMAILBOX) & 0x40, 0x40);
    }
    assert!(chip.pool(Owner::Pf).macs.is_empty());
    chip.pf.note(CTRL_EXT, PFRSTD);
    chip.vfs[2].note(reg::CTRL, RST);
    assert_eq!(chip.vfs[2].r(V2PMAILBOX), 0x80, "RSTD");
    assert_eq!(chip.pf.r(VFLRE), 4);
    chip.give(2);
    assert!(!chip.silent(2));
    // The bus takes them away as well, and more than there are is all of them.
    enable(&mut chip, 9);
    assert_eq!(iov(&mut chip), 1 << 4 | 3);
    let Machine { nic, env, .. } = &mut chip.pf;
    nic.control.reset(env, ResetKind::Bus);
    assert_eq!(iov(&mut chip), 0);
    chip.settle();
    assert!(chip.silent(2));
    // Going to and fro without end costs the switch no more than other changes.
    let before = chip.book.1.load(SeqCst);
    for n in 0..1000 {
        enable(&mut chip, n % 4);
    }
    assert!(chip.book.1.load(SeqCst) - before <= 2 * 4);
}

/// One step of a script, of the PF or of a VF.
#[derive(Clone, Debug)]
enum Step {
    Pf(u64, u32),
    Vf(usize, u64, u32),
    Reset(usize),
    PfReset,
    Enable(u16),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let places = prop_oneof![
        4 => prop::sample::select(vec![
            CTRL_EXT, MRQC, VT_CTL, VFRE, VFTE, DTXSWC, QDE, reg::RCTL, reg::TCTL, MBVFICR, VFLRE,
            MBVFIMR, RTTDQSEL, RTTBCNRC, SCCRL, BSCTRH, MSCTRH,
        ]),
        1 => (0..12u64).prop_map(|n| VMRCTL + 4 * n),
        2 => (0..8u64).prop_map(|n| VMOLR + 4 * n),
        1 => (0..8u64).prop_map(|n| VMVIR + 4 * n),
        2 => (0..32u64).prop_map(|n| VLVF + 4 * n),
        2 => (0..16u64).prop_map(|n| reg::RAL + 4 * n),
        2 => (0..8u64).prop_map(|n| P2VMAILBOX + 4 * n),
        1 => (0..128u64).prop_map(|n| VMBMEM + 4 * n),
        1 => (0..0x8000u64).prop_map(|n| 4 * n),
    ];
    let values = prop_oneof![
        any::<u32>(),
        any::<u32>().prop_map(|n| n | 0x8000_4003),
        prop::sample::select(vec![0, 3, 5, 2, 0xff, 0xffff_ffff]),
    ];
    prop_oneof![
        8 => (places, values).prop_map(|(at, value)| Step::Pf(at, value)),
        2 => (0..2usize, prop::sample::select(vec![V2PMAILBOX, VMBMEM, reg::CTRL]), any::<u32>())
            .prop_map(|(n, at, value)| Step::Vf(n, at, value)),
        1 => (0..2usize).prop_map(Step::Reset),
        1 => Just(Step::PfReset),
        1 => (0..4u16).prop_map(Step::Enable),
        2 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever is written: a VF moves frames only where every register that has a say allows it, it
    /// has the addresses and VLANs that stand beside its pool, and it is checked where they say so.
    #[test]
    fn no_script_gives_a_vf_what_its_registers_do_not(
        steps in proptest::collection::vec(step(), 0..80)
    ) {
        let mut chip = Chip::up(2);
        let mut there = 2;
        for step in steps {
            match step {
                // The reset of the PF's own driver has a step of its own.
                Step::Pf(reg::CTRL, value) => chip.pf.note(reg::CTRL, value & !RST),
                Step::Pf(at, value) => chip.pf.note(at, value),
                Step::Vf(n, at, value) => chip.vfs[n].note(at, value),
                Step::Reset(n) => {
                    chip.vfs[n].note(reg::CTRL, RST);
                    prop_assert!(chip.silent(n as u32));
                }
                Step::PfReset => {
                    chip.pf.note(reg::CTRL, RST);
                    prop_assert!(chip.silent(0) && chip.silent(1));
                }
                Step::Enable(vfs) => {
                    enable(&mut chip, vfs);
                    there = if vfs == 0 { 2 } else { vfs.min(2).into() };
                }
                Step::Settle => chip.settle(),
            }
        }
        // What was written before the turn ended holds.
        chip.settle();
        let pf = &mut chip.pf;
        let ready = pf.r(CTRL_EXT) & PFRSTD != 0 && matches!(pf.r(MRQC) & 7, 3 | 5);
        let (rctl, tctl) = (pf.r(reg::RCTL), pf.r(reg::TCTL));
        let [vfre, vfte, checks] = [VFRE, VFTE, DTXSWC].map(|at| pf.r(at));
        let vlvf: Vec<u32> = (0..32).map(|n| pf.r(VLVF + 4 * n)).collect();
        let rar = |n: u64| if n < 16 { reg::RAL + 8 * n } else { RAL2 + 8 * (n - 16) };
        let addresses: Vec<(u32, u32)> =
            (0..24).map(|n| (pf.r(rar(n)), pf.r(rar(n) + 4))).collect();
        let vmolr = [0, 1].map(|n| pf.r(VMOLR + 4 * n));
        let vmvir = [0, 1].map(|n| pf.r(VMVIR + 4 * n));
        for vf in 0..2u32 {
            let FunctionPolicy { pool, rate, storm } = chip.policy(Owner::Vf(vf));
            prop_assert_eq!(storm, eswitch::Storm::default());
            prop_assert!(pool.enabled || !pool.sends && !pool.receives);
            let on = |bits: u32| bits >> vf & 1 != 0;
            prop_assert_eq!(pool.receives, ready && vf < there && on(vfre) && rctl & 2 != 0);
            prop_assert_eq!(pool.sends, ready && vf < there && on(vfte) && tctl & 2 != 0);
            chip.silent(vf);
            if !pool.sends && !pool.receives {
                // But for its stations it is nobody.
                let there = ready && vf < there;
                prop_assert!(there || pool.macs.is_empty());
                let nobody = Pool {
                    enabled: !pool.macs.is_empty(),
                    macs: pool.macs.clone(),
                    vlans: pool.vlans.clone(),
                    ..Pool::default()
                };
                prop_assert_eq!((pool, rate), (nobody, None));
                continue;
            }
            for mac in &pool.macs {
                let stands = |(low, high): &(u32, u32)| {
                    low.to_le_bytes() == mac.0[..4]
                        && high.to_le_bytes()[..2] == mac.0[4..]
                        && high >> 31 == 1
                        && on(high >> 18)
                };
                prop_assert!(addresses.iter().any(stands), "{mac}");
            }
            prop_assert_eq!(pool.vlans.is_some(), rctl >> 18 & 1 == 1);
            for id in pool.vlans.iter().flat_map(tags) {
                let stands = |entry: &u32| {
                    entry >> 31 == 1 && on(entry >> 12) && entry & 0xfff == u32::from(id)
                };
                prop_assert!(vlvf.iter().any(stands), "{id}");
            }
            prop_assert_eq!(pool.check_mac, on(checks));
            prop_assert_eq!(pool.check_vlan, on(checks >> 8));
            prop_assert_eq!(pool.outward, checks >> 31 == 0);
            prop_assert_eq!(pool.own, on(checks >> 16));
            let limited = [vf, vf + 8].map(|queue| {
                chip.pf.note(RTTDQSEL, queue);
                let value = chip.pf.r(RTTBCNRC);
                value >> 31 == 1 && value & 0x0fff_ffff != 0
            });
            prop_assert_eq!(rate.is_some(), pool.sends && limited != [false; 2]);
            let vmolr = vmolr[vf as usize];
            if let Some(vlans) = &pool.vlans {
                prop_assert_eq!(vlans.contains(0), vmolr >> 24 & 1 == 1);
            }
            let vmvir = vmvir[vf as usize];
            let tag = (vmvir >> 30 == 1).then_some(vmvir as u16 & 0xfff);
            prop_assert_eq!(pool.only_vlan, tag);
            let channel = chip.hub.channel(vf).expect("a VF");
            prop_assert_eq!(channel.grant().tag.map(|tci| tci & 0xfff), tag);
        }
        for mirror in chip.for_all().0.mirrors {
            let pf = &mut chip.pf;
            prop_assert!((0..4).any(|n| pf.r(VMRCTL + 4 * n) & 0xf != 0), "{mirror:?}");
        }
        // And the chip still works.
        let mut fresh = chip;
        fresh.pf.note(reg::CTRL, RST);
        fresh.pf.note(CTRL_EXT, PFRSTD);
        fresh.vfs[0].r(V2PMAILBOX);
        fresh.vfs[0].note(V2PMAILBOX, 4);
        fresh.vfs[0].note(V2PMAILBOX, 1);
        prop_assert_eq!(fresh.pf.r(MBVFICR) & 1, 1);
    }
}
