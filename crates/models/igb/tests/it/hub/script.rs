//! Random scripts of a PF and its VFs.

use crate::common::*;
use crate::hub::chip::*;
use eswitch::{FunctionPolicy, Owner, Pool};
use intel_offsets::igb::long::{
    BSCTRH, CTRL_EXT, DTXSWC, MBVFICR, MBVFIMR, MRQC, MSCTRH, P2VMAILBOX, QDE, RAL2, RTTBCNRC,
    RTTDQSEL, SCCRL, VFLRE, VFRE, VFTE, VLVF, VMBMEM, VMOLR, VMRCTL, VMVIR, VT_CTL,
};
use intel_offsets::igbvf::long::V2PMAILBOX;
use proptest::prelude::*;

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
                // It has its addresses and nothing else.
                let there = ready && vf < there;
                prop_assert!(there || pool.macs.is_empty());
                let nobody = Pool {
                    enabled: !pool.macs.is_empty(),
                    macs: pool.macs.clone(),
                    filters_vlans: pool.filters_vlans,
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
            prop_assert_eq!(pool.filters_vlans, rctl >> 18 & 1 == 1);
            for id in tags(&pool.vlans) {
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
            prop_assert_eq!(pool.vlans.contains(0), vmolr >> 24 & 1 == 1);
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
