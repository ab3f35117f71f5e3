//! What the switch receives of pools, rates, mirrors and storm limits.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::*;
use crate::hub::chip::*;
use eswitch::{
    AddressFilter, Fabric, HashSet12, Mirror, Owner, StormWindow, StormWindows, VlanSet,
};
use intel_offsets::igb::long::{
    BSCTRH, CTRL_EXT, DTXSWC, MRQC, MSCTRH, MTA, P2VMAILBOX, RAL2, RTTBCNRC, RTTDQSEL, SCCRL, UTA,
    VFRE, VFTA, VFTE, VLVF, VMOLR, VMRCTL, VMRVLAN, VMRVM, VMVIR, VT_CTL, WVBR,
};
use wire::MacAddr;

/// A VF that may neither send nor receive keeps its addresses: they do not become the default pool's.
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
    assert_eq!(first.vlans, VlanSet::none().with_bare());
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
    assert_eq!(a.vlans, VlanSet::none().with(200).with(100));
    assert_eq!(b.vlans, VlanSet::none().with(200));
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
    assert!(a.sends && !a.receives && !a.filters_vlans);
    chip.pf.note(reg::TCTL, 0);
    chip.settle();
    assert!(chip.silent(0));
    chip.pf.note(reg::RCTL, 2);
    chip.pf.note(reg::TCTL, 2);
    chip.pf.note(MRQC, 2);
    chip.settle();
    assert!(chip.silent(0) && chip.silent(1));
    let own = of(&mut chip, Owner::Pf);
    assert!(own.outward && own.groups == AddressFilter::All && !own.filters_vlans);
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
