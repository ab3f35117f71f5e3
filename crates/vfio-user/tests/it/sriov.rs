//! A VMM that passes SR-IOV through, played by our own client: it finds the capability, sizes what
//! the virtual functions decode, places them and brings them to life.

use crate::common::{Rig, Seen};
use hypernic_vfio_user::codec::region::CONFIG;
use hypernic_vfio_user::pci::sriov::{control, offset};
use hypernic_vfio_user::pci::{
    Aer, Ari, Bar, Capability, ConfigBuilder, ConfigEvent, Pcie, PowerManagement, Sriov,
};
use hypernic_vfio_user::{Client, DeviceDescription, ResetCause};

const TOTAL: u16 = 8;

/// The 82576's physical function.
fn physical() -> Rig {
    let vf_bar = Some(Bar::memory64(16 << 10).prefetchable());
    let sriov = Sriov {
        total: TOTAL,
        first_offset: 0x180,
        ari_offset: 0x80,
        stride: 2,
        device: 0x10ca,
        page_sizes: 0x553,
        dependency: 0,
        bars: [vf_bar, None, None, vf_bar, None, None],
    };
    Rig::start(|_| {
        let config = ConfigBuilder::new(0x8086, 0x10c9)
            .express()
            .bar(0, Bar::memory32(0x2000))
            .capability_at(
                0x40,
                Capability::PowerManagement(PowerManagement::default()),
            )
            .capability_at(0xa0, Capability::Pcie(Pcie::endpoint()))
            .extended_at(0x100, Aer)
            .extended_at(0x150, Ari { next: 1 })
            .extended_at(0x160, sriov);
        DeviceDescription::from_config(config)
    })
}

/// Walks the chain of extended capabilities, as a bus scan does.
fn find(c: &mut Client, id: u16) -> u64 {
    let mut at = 0x100;
    for _ in 0..64 {
        let header = c.read_u32(CONFIG, at).unwrap();
        if header as u16 == id {
            return at;
        }
        at = u64::from(header >> 20);
        assert_ne!(at, 0, "no extended capability {id:#x}");
    }
    panic!("the chain has no end");
}

fn vfs(count: u16, memory: bool) -> Seen {
    Seen::Config(ConfigEvent::Vfs { count, memory })
}

#[test]
fn virtual_functions_are_sized_placed_enabled_and_counted() {
    let rig = physical();
    let mut c = rig.client();
    let cap = find(&mut c, 0x10);
    assert_eq!(cap, 0x160);
    let reg = |at: usize| cap + at as u64;
    let total = c.read_u16(CONFIG, reg(offset::TOTAL_VFS)).unwrap();
    let first = c.read_u16(CONFIG, reg(offset::FIRST_OFFSET)).unwrap();
    let stride = c.read_u16(CONFIG, reg(offset::STRIDE)).unwrap();
    assert_eq!((total, first, stride), (TOTAL, 0x180, 2));
    // As Linux does: the smallest supported page that is not smaller than its own.
    let pages = c.read_u32(CONFIG, reg(offset::SUPPORTED_PAGES)).unwrap();
    let page = pages & pages.wrapping_neg();
    c.write_u32(CONFIG, reg(offset::PAGE), page).unwrap();
    // BAR 0 of the VFs: sized, then placed.
    let bar = reg(offset::BAR0);
    c.write_u32(CONFIG, bar, u32::MAX).unwrap();
    c.write_u32(CONFIG, bar + 4, u32::MAX).unwrap();
    let low = c.read_u32(CONFIG, bar).unwrap();
    assert_eq!(low & 0xf, 0xc, "64-bit, prefetchable");
    assert_eq!(!(low & !0xf) + 1, 16 << 10);
    c.write_u32(CONFIG, bar, 0xfea0_0000).unwrap();
    c.write_u32(CONFIG, bar + 4, 1).unwrap();
    rig.wait_seen(|s| *s == Seen::Config(ConfigEvent::VfBar(0)));
    rig.take_seen();

    // More than there can be is refused, and no device hears of it.
    let number = reg(offset::NUM_VFS);
    c.region_write(CONFIG, number, &(TOTAL + 1).to_le_bytes())
        .unwrap();
    assert_eq!(c.read_u16(CONFIG, number).unwrap(), 0);
    c.region_write(CONFIG, number, &7u16.to_le_bytes()).unwrap();
    assert_eq!(rig.take_seen(), [], "not before they are enabled");
    let switch = |c: &mut Client, bits: u16| {
        c.region_write(CONFIG, reg(offset::CONTROL), &bits.to_le_bytes())
            .unwrap();
    };
    switch(&mut c, control::ENABLE | control::MEMORY);
    assert_eq!(rig.take_seen(), [vfs(7, true)]);
    // While they exist their number stands.
    c.region_write(CONFIG, number, &2u16.to_le_bytes()).unwrap();
    assert_eq!(c.read_u16(CONFIG, number).unwrap(), 7);
    switch(&mut c, control::ENABLE);
    switch(&mut c, 0);
    assert_eq!(rig.take_seen(), [vfs(7, false), vfs(0, false)]);
    // Again, and again with another number.
    for count in [1, TOTAL, 3] {
        let bytes = u16::to_le_bytes(count);
        c.region_write(CONFIG, number, &bytes).unwrap();
        switch(&mut c, control::ENABLE | control::MEMORY);
        switch(&mut c, control::MEMORY);
        assert_eq!(rig.take_seen(), [vfs(count, true), vfs(0, false)]);
    }
}

#[test]
fn a_reset_of_the_physical_function_ends_the_virtual_ones() {
    let rig = physical();
    let mut c = rig.client();
    let cap = find(&mut c, 0x10);
    let enable = |c: &mut Client| {
        let number = cap + offset::NUM_VFS as u64;
        c.region_write(CONFIG, number, &[4, 0]).unwrap();
        c.region_write(CONFIG, cap + offset::CONTROL as u64, &[9, 0])
            .unwrap();
        rig.wait_seen(|s| *s == vfs(4, true));
    };
    for way in 0..3 {
        enable(&mut c);
        rig.take_seen();
        let why = match way {
            0 => {
                c.region_write(CONFIG, 0xa9, &[0x80]).unwrap();
                ResetCause::FunctionLevel
            }
            1 => {
                c.region_write(CONFIG, 0x44, &[3]).unwrap();
                c.region_write(CONFIG, 0x44, &[0]).unwrap();
                ResetCause::PowerUp
            }
            _ => {
                c.reset().unwrap();
                ResetCause::Client
            }
        };
        rig.wait_seen(|s| *s == Seen::Reset(why));
        for at in [offset::CONTROL, offset::NUM_VFS] {
            assert_eq!(c.read_u16(CONFIG, cap + at as u64).unwrap(), 0);
        }
    }
    // A client that leaves takes nothing with it: the next one finds them.
    enable(&mut c);
    drop(c);
    let mut next = rig.client();
    let number = next.read_u16(CONFIG, cap + offset::NUM_VFS as u64);
    assert_eq!(number.unwrap(), 4);
}
