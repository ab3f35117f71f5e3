//! The physical function's registers as drivers meet them: what Linux's probe relies on, and the
//! register test of `ethtool -t` (driver `igb_ethtool.c`, `reg_test_82576`).

use std::sync::Arc;

use crate::common::*;
use eswitch::{Fabric, FunctionPolicy, Owner, StormWindows};
use hypernic_igb::regs::{ALIASES, REGISTERS};
use hypernic_igb::{Config, Enforcer, Hub, pf, pf_with_vfs};
use model::{PciState, ResetKind};
use regs::{Access, Status};

#[test]
fn the_page_in_docs_is_the_table() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/registers/igb.md"
    );
    let page = std::fs::read_to_string(path).expect("docs/registers/igb.md");
    assert!(
        page == hypernic_igb::regs::page(),
        "docs/registers/igb.md is stale: make docs"
    );
}

#[test]
fn a_look_finds_what_a_read_would_and_has_no_effect() {
    let mut m = Machine::default();
    for (at, value) in [
        (reg::RCTL, 2),
        (reg::EIMS, 7),
        (reg::EICS, 3),
        (reg::ICS, 4),
    ] {
        m.w(at, value);
    }
    let registers = a_look_is_a_read_without_effect(&mut m.nic, &m.env);
    assert!(registers > 500, "{registers}");
    let look = peeked(&m.nic, &m.env);
    let eicr = look.iter().find(|one| one.name == "EICR").expect("EICR");
    assert_eq!(eicr.value & 3, 3, "pending, and not acknowledged");
}

#[test]
fn what_is_only_stored_or_absent_says_why() {
    for register in REGISTERS {
        if let Status::Stored(why) | Status::Absent(why) = register.status {
            assert!(why.len() > 10, "{} lacks a reason", register.name);
        }
    }
    assert_eq!(ALIASES.len(), 23);
}

#[test]
fn the_nvm_has_the_address_and_the_right_sum() {
    let mut m = Machine::default();
    let sum = (0..64).fold(0u16, |sum, at| sum.wrapping_add(m.eerd(at)));
    assert_eq!(sum, 0xbaba);
    assert_eq!([0, 1, 2].map(|at| m.eerd(at)), [0x5452, 0x1200, 0x5634]);
    assert_eq!(m.eerd(0x0d), 0x10c9);
    assert_eq!(m.eerd(0x37), 0xffff, "no alternate address");
    // Present, read by itself, and small enough for EERD.
    let eecd = m.r(reg::EECD);
    assert_eq!(eecd & 0x300, 0x300);
    assert!((eecd >> 11 & 0xf) + 6 < 15);
}

#[test]
fn an_image_is_kept_and_its_address_counts() {
    let mut m = Machine::default();
    let mut image = m.nic.control.take_nvm().expect("a new one");
    assert_eq!(m.nic.control.take_nvm(), None);
    image[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    let mut m = Machine::new(&Config {
        nvm: Some(image.try_into().expect("its length")),
        ..Config::new(MAC)
    });
    assert_eq!(m.r(reg::RAL), 0x0000_0002);
    assert_eq!(m.r(reg::RAH), 0x8000_0900);
    assert_eq!(m.nic.control.take_nvm(), None);
}

#[test]
fn semaphores_are_taken_and_given_back() {
    let mut m = Machine::default();
    assert_eq!(m.r(reg::SWSM) & 1, 0);
    assert_eq!(m.r(reg::SWSM) & 1, 1, "taken by reading");
    m.w(reg::SWSM, 3);
    assert_eq!(m.r(reg::SWSM) & 2, 2, "SWESMBI latches");
    m.w(reg::SW_FW_SYNC, 1);
    assert_eq!(m.r(reg::SW_FW_SYNC), 1);
    m.w(reg::SWSM, 0);
    assert_eq!(m.r(reg::SWSM), 0);
    assert_eq!(m.r(reg::EEMNGCTL) >> 18 & 1, 1, "configured");
}

#[test]
fn the_phy_is_an_igp03_with_a_link() {
    let mut m = Machine::default();
    assert_eq!([2, 3].map(|at| m.phy(at)), [0x02a8, 0x0391]);
    assert_eq!(m.phy(1) & 0x24, 0x24);
    m.w(reg::CTRL, m_ctrl_slu());
    assert_eq!(m.r(reg::STATUS) & 0xc3, 0x83, "1000 Mb/s, full duplex, up");
    // The cable goes, and comes back.
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.r(reg::STATUS) & 2, 0);
    m.nic.control.set_link(&m.env, true);
    assert_eq!(m.r(reg::STATUS) & 2, 0, "it negotiates");
    m.sleep(10_000_000);
    assert_eq!(m.r(reg::STATUS) & 2, 2);
    assert_eq!(m.r(reg::ICR) & 4, 4);
}

fn m_ctrl_slu() -> u32 {
    0x0010_0241
}

#[test]
fn a_reset_loads_the_address_and_leaves_the_link() {
    let mut m = Machine::default();
    m.pci(false, false);
    m.w(reg::RAL, 0x1234_5678);
    m.w(reg::EITR, 0x4);
    m.w(reg::TCTL, 0);
    for queue in 0..16 {
        m.w(reg::RXDCTL + 0x40 * queue, 1 << 25);
    }
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | 1 << 26);
    assert_eq!(m.r(reg::CTRL) >> 26 & 1, 0, "RST clears itself");
    assert_eq!(m.r(reg::RAL), 0x1200_5452);
    assert_eq!(m.r(reg::RAH), 0x8000_5634);
    assert_eq!(m.r(reg::EITR), 0x4, "moderation stays");
    assert_eq!(m.r(reg::RXDCTL) >> 25 & 1, 1, "queue 0 is on");
    assert_eq!(m.r(reg::TXDCTL) >> 25 & 1, 1);
    assert_eq!(m.r(reg::RXDCTL + 0x40) >> 25 & 1, 0);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | 1 << 6);
    assert_eq!(m.r(reg::STATUS) & 2, 2, "the PHY was not reset");
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!(m.r(reg::EITR), 0);
}

#[test]
fn no_master_requests_when_asked() {
    let mut m = Machine::default();
    m.pci(false, false);
    assert_eq!(m.r(reg::STATUS) >> 19 & 1, 1);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | 4);
    assert_eq!(m.r(reg::STATUS) >> 19 & 1, 0);
    m.w(reg::CTRL, ctrl);
    assert_eq!(m.r(reg::STATUS) >> 19 & 1, 1);
    m.nic.control.pci(&m.env, PciState::default());
}

#[test]
fn status_cannot_be_written() {
    let mut m = Machine::default();
    let toggle = 0x7fff_f3ff;
    let before = m.r(reg::STATUS) & toggle;
    assert_eq!(m.r(reg::STATUS) >> 10 & 1, 1, "the PHY was reset");
    m.w(reg::STATUS, toggle);
    assert_eq!(m.r(reg::STATUS) & toggle, before);
    assert_eq!(m.r(reg::STATUS) >> 10 & 1, 0, "and that was seen");
}

/// CTRL_EXT.SPD_BYPS (§8.2.3).
#[test]
fn speed_is_what_ctrl_says_where_detection_is_bypassed() {
    let mut m = Machine::default();
    let ctrl = m.r(reg::CTRL) & !0x300;
    m.w(reg::CTRL, ctrl | 0x100);
    assert_eq!(m.r(reg::STATUS) >> 6 & 3, 2);
    m.w(0x18, 1 << 15);
    assert_eq!(m.r(reg::STATUS) >> 6 & 3, 1);
}

/// The mailbox register of a VF that is not there: all bits but PFU are signals, and read 0 (§8.14).
#[test]
fn a_mailbox_without_a_vf_keeps_nothing_but_who_has_it() {
    let mut m = Machine::default();
    for (value, kept) in [(0x1f, 8), (0x17, 0)] {
        m.w(0xc00, value);
        assert_eq!(m.r(0xc00), kept);
    }
}

/// The register test of the stock driver.
#[test]
fn the_drivers_register_test_passes() {
    const PATTERNS: [u32; 4] = [0x5a5a_5a5a, 0xa5a5_a5a5, 0, 0xffff_ffff];
    let all = 0xffff_ffff;
    // Offset, distance, how many, bits read, bits written.
    let table: [(u64, u64, u64, u32, u32); 31] = [
        (0x28, 0, 1, all, all),
        (0x2c, 0, 1, 0xffff, all),
        (0x30, 0, 1, 0xffff, all),
        (0x38, 0, 1, all, all),
        (0x2800, 0x100, 4, 0xffff_ff80, all),
        (0x2804, 0x100, 4, all, all),
        (0x2808, 0x100, 4, 0x000f_fff0, 0x000f_ffff),
        (0xc100, 0x40, 12, 0xffff_ff80, all),
        (0xc104, 0x40, 12, all, all),
        (0xc108, 0x40, 12, 0x000f_fff0, 0x000f_ffff),
        (0x2818, 0x100, 4, 0xffff, 0xffff),
        (0xc118, 0x40, 12, 0xffff, 0xffff),
        (0x2168, 0, 1, 0xfff0, 0xfff0),
        (0x170, 0, 1, 0xffff, 0xffff),
        (0x410, 0, 1, 0x3fff_ffff, 0x3fff_ffff),
        (0x3800, 0x100, 4, 0xffff_ff80, all),
        (0x3804, 0x100, 4, all, all),
        (0x3808, 0x100, 4, 0x000f_fff0, 0x000f_ffff),
        (0xe100, 0x40, 12, 0xffff_ff80, all),
        (0xe104, 0x40, 12, all, all),
        (0xe108, 0x40, 12, 0x000f_fff0, 0x000f_ffff),
        (0x5400, 8, 16, all, all),
        (0x5404, 8, 16, 0x83ff_ffff, all),
        (0x54e0, 8, 8, all, all),
        (0x54e4, 8, 8, 0x83ff_ffff, all),
        (0x5200, 4, 128, all, all),
        (0x5600, 4, 128, all, all),
        (0xa000, 4, 128, all, all),
        (0x5c00, 4, 32, all, all),
        (0x5c80, 4, 10, all, all),
        (0x1680, 4, 25, 0x7ffc, all),
    ];
    let mut m = Machine::default();
    m.pci(false, false);
    for queue in 0..16 {
        m.w(reg::RXDCTL + 0x40 * queue, 1 << 25);
    }
    for (offset, distance, count, read, write) in table {
        for at in (0..count).map(|i| offset + i * distance) {
            let before = m.r(at);
            for pattern in PATTERNS {
                m.w(at, pattern & write);
                assert_eq!(m.r(at) & read, pattern & write & read, "{at:#x}");
            }
            m.w(at, before);
        }
    }
    for (write, mask) in [(0, all), (0x003f_fffb, 0x04cf_b0fe), (all, 0x04cf_b0fe)] {
        m.w(reg::RCTL, write & mask);
        assert_eq!(m.r(reg::RCTL) & mask, write & mask);
    }
    m.w(reg::TCTL, 0);
    assert_eq!(m.r(reg::TCTL), 0);
}

/// Writes of 1, 2, 4 and 8 bytes at every alignment, everywhere, end and leave what is read-only.
#[test]
fn every_width_and_alignment_is_taken_everywhere() {
    let mut m = Machine::default();
    m.pci(false, true);
    for at in (0..0x2_0010u64).step_by(3) {
        for width in [1usize, 2, 4, 8, 13] {
            let data = vec![0x5a ^ at as u8; width];
            m.nic.control.write(&m.env, 0, at, &data);
            let mut back = vec![0; width];
            m.nic.control.read(&m.env, 0, at, &mut back);
        }
    }
    for register in REGISTERS.iter().filter(|r| r.access == Access::ReadOnly) {
        let at = u64::from(register.offset);
        if [reg::STATUS, 0x1048].contains(&at) {
            continue;
        }
        let before = m.r(at);
        m.w(at, !before);
        assert_eq!(m.r(at), before, "{}", register.name);
    }
    m.nic.control.write(&m.env, 5, 0, &[0; 4]);
}

#[test]
fn the_clock_of_1588_runs_with_ours() {
    let mut m = Machine::default();
    m.w(reg::TIMINCA, 1 << 24 | 16 << 19);
    let time = |m: &mut Machine| {
        let low = m.r(reg::SYSTIML);
        (u64::from(m.r(reg::SYSTIMH)) << 32 | u64::from(low)) >> 19
    };
    let start = time(&mut m);
    m.sleep(1_000_000_000);
    assert_eq!(time(&mut m) - start, 1_000_000_000);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | 1 << 26);
    m.sleep(1_000_000_000);
    assert_eq!(time(&mut m), 0, "it stands after a reset");
}

/// Capabilities and values as a card shows them.
#[test]
fn a_bus_scan_finds_what_the_chip_has() {
    struct Nobody;
    impl Enforcer for Nobody {
        fn enforce(&self, _: Owner, _: &FunctionPolicy) {}
        fn enforce_all(&self, _: &Fabric<Owner>, _: &StormWindows) {}
    }
    let chain = |nic: &model::Nic| {
        let space = nic.identity.config().build().expect("possible");
        let mut list = Vec::new();
        let mut at = 0x100;
        while at != 0 {
            let header = space.read_u32(at);
            list.push((at, header as u16));
            at = u64::from(header >> 20);
        }
        (space, list)
    };
    let (space, list) = chain(&pf(&Config::new(MAC)));
    assert_eq!(list, [(0x100, 1), (0x140, 3)], "no VFs, no IOV");
    assert_eq!(
        [space.read_u32(0x148), space.read_u32(0x144)],
        [0x5254_00ff, 0xff12_3456]
    );
    let hub = Hub::new(7, Arc::new(Nobody));
    let (space, list) = chain(&pf_with_vfs(&Config::new(MAC), hub));
    let all = [(0x100, 1), (0x140, 3), (0x150, 0xe), (0x160, 0x10)];
    assert_eq!(list, all);
    let (_, sriov) = space.sriov().expect("SR-IOV");
    assert_eq!((sriov.total, sriov.device, sriov.stride), (7, 0x10ca, 2));
    assert_eq!((sriov.first_offset, sriov.ari_offset), (0x180, 0x80));
    assert_eq!(sriov.page_sizes, 0x553);
    // 64 bits, not prefetchable.
    assert_eq!([0x184, 0x190].map(|at| space.read_u32(at)), [4, 4]);
    let mut vfs = [0, 3].map(|bar| space.vf_bar(bar).expect("a BAR").1);
    assert_eq!(vfs, [16 << 10; 2]);
    vfs = [0x100, 0x16c].map(|at| u64::from(space.read_u32(at)));
    assert_eq!(vfs, [0x1401_0001, 7 << 16 | 7]);
    // An address in an NVM of its own counts.
    let mut image = Machine::default().nic.control.take_nvm().expect("new");
    image[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    let config = Config {
        nvm: Some(image.try_into().expect("its length")),
        ..Config::new(MAC)
    };
    let (space, _) = chain(&pf(&config));
    assert_eq!(space.read_u32(0x144), 0xff00_0009);
}

/// IOADDR and IODATA: the same registers, with the same effects, and nothing behind the window.
#[test]
fn registers_are_reached_through_the_io_bar_too() {
    fn word(m: &mut Machine, at: u64) -> u32 {
        let mut bytes = [0; 4];
        m.nic.control.read(&m.env, 2, at, &mut bytes);
        u32::from_le_bytes(bytes)
    }
    fn put(m: &mut Machine, at: u64, bytes: &[u8]) {
        m.nic.control.write(&m.env, 2, at, bytes);
    }
    let mut m = Machine::default();
    let bar = m.nic.identity.bars.iter().find(|bar| bar.index == 2);
    assert_eq!(
        bar.map(|bar| (bar.space, bar.size)),
        Some((model::Space::Io, 32))
    );
    put(&mut m, 0, &(reg::IMS as u32).to_le_bytes());
    put(&mut m, 4, &0x94u32.to_le_bytes());
    assert_eq!((m.r(reg::IMS), word(&mut m, 4)), (0x94, 0x94));
    put(&mut m, 0, &(reg::IMC as u32).to_le_bytes());
    put(&mut m, 4, &[0x10]);
    assert_eq!(m.r(reg::IMS), 0x84, "a byte of it");
    // CTRL.RST, as a driver that wants no posted write.
    put(&mut m, 0, &[0; 4]);
    put(&mut m, 4, &(1u32 << 26).to_le_bytes());
    assert_eq!(m.r(reg::IMS), 0);
    assert_eq!(word(&mut m, 0), 0, "IOADDR");
    // Between the registers and where the flash would be is nothing.
    for beyond in [0x2_0000u32, 0x7_fffc, 0x8_0000, 0xf_fffc] {
        put(&mut m, 0, &beyond.to_le_bytes());
        put(&mut m, 4, &[0xff; 4]);
        assert_eq!((word(&mut m, 0), word(&mut m, 4)), (beyond, 0));
    }
    m.nic.control.reset(&m.env, model::ResetKind::Bus);
    assert_eq!(word(&mut m, 0), 0);
}
