//! SR-IOV, AER and ARI as software sees them.

use std::sync::LazyLock;

use crate::sriov::{control, offset};
use crate::{
    Aer, Ari, Bar, BuildError, ConfigBuilder, ConfigEvent, ConfigSpace, Extended, Serial, Sriov,
    StateError,
};
use proptest::prelude::*;

const AT: u64 = 0x160;

/// As the 82576 has it.
const SRIOV: Sriov = Sriov {
    total: 8,
    first_offset: 0x180,
    ari_offset: 0x80,
    stride: 2,
    device: 0x10ca,
    page_sizes: 0x553,
    dependency: 0,
    bars: [
        Some(Bar::memory64(16 << 10).prefetchable()),
        None,
        None,
        Some(Bar::memory64(16 << 10).prefetchable()),
        None,
        None,
    ],
};

const SERIAL: Serial = Serial::of_mac([0x00, 0x1b, 0x21, 0x70, 0x85, 0x40]);

fn with(sriov: Sriov) -> ConfigBuilder {
    ConfigBuilder::new(0x8086, 0x10c9)
        .express()
        .extended_at(0x100, Aer)
        .extended_at(0x140, SERIAL)
        .extended_at(0x150, Ari { next: 1 })
        .extended_at(0x160, sriov)
}

fn pf() -> ConfigSpace {
    with(SRIOV).build().expect("possible")
}

fn reg(at: usize) -> u64 {
    AT + at as u64
}

fn get16(c: &ConfigSpace, at: usize) -> u16 {
    c.read_u16(reg(at))
}

fn set16(c: &mut ConfigSpace, at: usize, value: u16) -> Vec<ConfigEvent> {
    c.write(reg(at), &value.to_le_bytes()).to_vec()
}

fn set32(c: &mut ConfigSpace, at: usize, value: u32) -> Vec<ConfigEvent> {
    c.write(reg(at), &value.to_le_bytes()).to_vec()
}

fn vfs(count: u16, memory: bool) -> ConfigEvent {
    ConfigEvent::Vfs { count, memory }
}

#[test]
fn the_chain_leads_from_errors_over_number_and_ari_to_sriov() {
    let c = pf();
    assert_eq!(c.read_u32(0x100), 0x1401_0001);
    assert_eq!(c.read_u32(0x140), 0x1501_0003);
    // As programs show it: 00-1b-21-ff-ff-70-85-40.
    assert_eq!(
        [c.read_u32(0x148), c.read_u32(0x144)],
        [0x001b_21ff, 0xff70_8540]
    );
    assert_eq!(c.read_u32(0x150), 0x1601_000e);
    assert_eq!(c.read_u32(0x154), 1 << 8, "the next function");
    assert_eq!(c.read_u32(0x160), 0x0001_0010);
    let halves = [
        offset::INITIAL_VFS,
        offset::TOTAL_VFS,
        offset::NUM_VFS,
        offset::FIRST_OFFSET,
        offset::STRIDE,
        offset::DEVICE,
    ];
    assert_eq!(
        halves.map(|at| get16(&c, at)),
        [8, 8, 0, 0x180, 2, 0x10ca],
        "as described"
    );
    assert_eq!(c.read_u32(reg(offset::SUPPORTED_PAGES)), 0x553);
    assert_eq!(c.read_u32(reg(offset::PAGE)), 1, "4 KiB");
    let (at, cap) = c.sriov().expect("it is there");
    assert_eq!((at, cap), (0x160, SRIOV));
}

#[test]
fn errors_can_be_masked_and_graded_and_nothing_else() {
    let mut c = pf();
    assert_eq!(c.read_u32(0x10c), 0x0006_2010, "what is fatal");
    assert_eq!(c.read_u32(0x114), 0x2000, "advisory errors are masked");
    for at in (0x104..0x12c).step_by(4) {
        c.write(at, &[0xff; 4]);
    }
    let all: Vec<_> = (0x104..0x12c).step_by(4).map(|at| c.read_u32(at)).collect();
    let (fatal, small) = (0x001f_f010, 0x31c1);
    assert_eq!(all, [0, fatal, fatal, 0, small, 0, 0, 0, 0, 0]);
}

#[test]
fn virtual_functions_come_with_the_enable_bit_and_go_with_it() {
    let mut c = pf();
    assert!(set16(&mut c, offset::NUM_VFS, 7).is_empty());
    assert_eq!((c.vfs(), c.vf_memory()), (0, false));
    let told = set16(&mut c, offset::CONTROL, control::ENABLE | control::MEMORY);
    assert_eq!(told, [vfs(7, true)]);
    assert_eq!((c.vfs(), c.vf_memory()), (7, true));
    // Memory decoding may come and go by itself, and is nothing without VFs.
    let told = set16(&mut c, offset::CONTROL, control::ENABLE);
    assert_eq!(told, [vfs(7, false)]);
    assert_eq!(
        set16(&mut c, offset::CONTROL, control::MEMORY),
        [vfs(0, false)]
    );
    assert_eq!((c.vfs(), c.vf_memory()), (0, false));
    assert_eq!(get16(&c, offset::NUM_VFS), 7, "what was asked for stays");
    assert!(set16(&mut c, offset::CONTROL, 0).is_empty());
}

#[test]
fn no_more_virtual_functions_than_there_can_be() {
    let mut c = pf();
    for wrong in [9, 0x100, 0x8001, u16::MAX] {
        set16(&mut c, offset::NUM_VFS, 3);
        set16(&mut c, offset::NUM_VFS, wrong);
        assert_eq!(get16(&c, offset::NUM_VFS), 3, "{wrong} is refused");
    }
    // Byte by byte it is no other way in.
    c.write(reg(offset::NUM_VFS) + 1, &[1]);
    c.write(reg(offset::NUM_VFS), &[9]);
    assert_eq!(get16(&c, offset::NUM_VFS), 3);
    c.write(reg(offset::NUM_VFS), &[8]);
    assert_eq!(get16(&c, offset::NUM_VFS), 8);
    // Nor together with the bit that enables them.
    let mut both = [0; 10];
    both[0] = 1;
    both[8] = 9;
    c.write(reg(offset::CONTROL), &both);
    assert_eq!(c.vfs(), 8);
}

#[test]
fn what_exists_keeps_its_number_its_page_and_its_routing() {
    let mut c = pf();
    set16(&mut c, offset::NUM_VFS, 2);
    set16(&mut c, offset::CONTROL, control::ENABLE);
    assert!(set16(&mut c, offset::NUM_VFS, 5).is_empty());
    assert!(set32(&mut c, offset::PAGE, 2).is_empty());
    set16(&mut c, offset::CONTROL, control::ENABLE | control::ARI);
    assert_eq!(get16(&c, offset::CONTROL), control::ENABLE);
    assert_eq!((c.vfs(), c.read_u32(reg(offset::PAGE))), (2, 1));
    // One write that ends them and asks for more changes the number after the next one only.
    let mut both = [0; 10];
    both[8] = 5;
    assert_eq!(
        c.write(reg(offset::CONTROL), &both).to_vec(),
        [vfs(0, false)]
    );
    assert_eq!(get16(&c, offset::NUM_VFS), 2);
    set16(&mut c, offset::NUM_VFS, 5);
    set16(&mut c, offset::CONTROL, control::ENABLE | control::ARI);
    assert_eq!(c.vfs(), 5);
    assert_eq!(get16(&c, offset::CONTROL), control::ENABLE | control::ARI);
}

/// Without ARI the first VF is on the next bus, where eight functions of a device are not in its way.
#[test]
fn where_the_first_one_is_depends_on_the_hierarchy() {
    let mut c = pf();
    assert_eq!(get16(&c, offset::FIRST_OFFSET), 0x180);
    assert!(set16(&mut c, offset::CONTROL, control::ARI).is_empty());
    assert_eq!(get16(&c, offset::FIRST_OFFSET), 0x80);
    let mut other = pf();
    other.load(&c.save()).expect("its own");
    assert_eq!(get16(&other, offset::FIRST_OFFSET), 0x80);
    let mut lie = c.bytes().to_vec();
    lie[AT as usize + offset::FIRST_OFFSET + 1] = 1;
    let lie = snapshot::seal(&crate::state::V1 { bytes: lie });
    assert!(pf().load(&lie).is_err(), "a place it does not have");
    c.reset();
    assert_eq!(get16(&c, offset::FIRST_OFFSET), 0x180);
}

#[test]
fn a_serial_number_goes_with_the_state_and_an_older_state_has_no_capabilities() {
    let mut card = pf();
    set16(&mut card, offset::NUM_VFS, 3);
    let built = ConfigBuilder::new(0x8086, 0x10c9)
        .express()
        .extended_at(0x100, Aer)
        .extended_at(0x140, Serial(7))
        .extended_at(0x150, Ari { next: 1 })
        .extended_at(0x160, SRIOV);
    let mut other = built.build().expect("possible");
    other.load(&card.save()).expect("the same device");
    assert_eq!(other.bytes(), card.bytes());
    other.reset();
    assert_eq!(other.bytes(), pf().bytes(), "it is that card from now on");
    // Saved when the device had none of them.
    let mut plain = ConfigBuilder::new(0x8086, 0x10c9).express();
    let mut old = plain.build().expect("possible");
    old.write(0x3c, &[9]);
    let mut new = pf();
    set16(&mut new, offset::NUM_VFS, 3);
    new.load(&old.save()).expect("as after a reset, there");
    assert_eq!(new.bytes()[..0x100], old.bytes()[..0x100]);
    assert_eq!(new.bytes()[0x100..], pf().bytes()[0x100..]);
    // Others than its own are another device's.
    plain = plain.extended_at(0x100, Ari::default());
    let foreign = plain.build().expect("possible").save();
    let refused = pf().load(&foreign).expect_err("refused");
    assert!(matches!(refused, StateError::Field { value: 0x100, .. }));
    let twice = with(SRIOV).extended(SERIAL).build();
    assert!(matches!(twice, Err(BuildError::Twice(3))));
}

#[test]
fn a_page_is_one_of_those_supported() {
    let mut c = pf();
    for wrong in [0, 3, 4, 8, 0x20, 0x553, 0x8000_0000, u32::MAX] {
        set32(&mut c, offset::PAGE, wrong);
        assert_eq!(c.read_u32(reg(offset::PAGE)), 1, "{wrong:#x} is refused");
    }
    for right in [2, 0x10, 0x40, 0x100, 0x400, 1] {
        set32(&mut c, offset::PAGE, right);
        assert_eq!(c.read_u32(reg(offset::PAGE)), right);
    }
}

#[test]
fn a_virtual_functions_bar_sizes_itself_and_is_no_smaller_than_a_page() {
    let mut c = pf();
    let size = |c: &mut ConfigSpace| {
        set32(c, offset::BAR0, u32::MAX);
        set32(c, offset::BAR0 + 4, u32::MAX);
        (
            c.read_u32(reg(offset::BAR0)),
            c.read_u32(reg(offset::BAR0 + 4)),
        )
    };
    assert_eq!(size(&mut c), (0xffff_c00c, u32::MAX));
    assert_eq!(c.vf_bar(0).map(|(_, size)| size), Some(16 << 10));
    // Pages of 64 KiB: each VF takes one.
    let told = set32(&mut c, offset::PAGE, 0x10);
    assert_eq!(told, [ConfigEvent::VfBar(0)], "what lay below is gone");
    assert_eq!(size(&mut c), (0xffff_000c, u32::MAX));
    assert_eq!(c.vf_bar(0).map(|(_, size)| size), Some(64 << 10));
    set32(&mut c, offset::PAGE, 1);
    set32(&mut c, offset::BAR0, 0xfe00_4000);
    assert_eq!(
        set32(&mut c, offset::BAR0 + 4, 0x12),
        [ConfigEvent::VfBar(0)]
    );
    assert_eq!(c.vf_bar(0), Some((0x12_fe00_4000, 16 << 10)));
    // Where there is none, there is nothing.
    set32(&mut c, offset::BAR0 + 8, u32::MAX);
    assert_eq!(c.read_u32(reg(offset::BAR0 + 8)), 0);
    assert_eq!((c.vf_bar(2), c.vf_bar(6)), (None, None));
}

#[test]
fn impossible_functions_are_no_functions() {
    let refused = |change: fn(&mut Sriov)| {
        let mut sriov = SRIOV;
        change(&mut sriov);
        let built = with(sriov).build();
        matches!(built, Err(BuildError::Capability(0x10)))
    };
    assert!(refused(|s| s.total = 0));
    assert!(refused(|s| s.stride = 0));
    assert!(refused(|s| s.first_offset = 0));
    assert!(refused(|s| s.ari_offset = 0));
    assert!(refused(|s| s.ari_offset = 0xfff8), "routing ids");
    assert!(refused(|s| s.page_sizes = 2));
    assert!(
        refused(|s| (s.total, s.stride) = (0x8000, 2)),
        "routing ids"
    );
    assert!(refused(|s| s.bars[1] = Some(Bar::memory32(4096))), "taken");
    assert!(refused(|s| s.bars[5] = Some(Bar::memory64(4096))));
    assert!(refused(|s| s.bars[2] = Some(Bar::io(32))));
    assert!(refused(|s| s.bars[2] = Some(Bar::memory32(3000))));
    let twice = with(SRIOV).extended(SRIOV).build();
    assert!(matches!(twice, Err(BuildError::Twice(0x10))));
    let conventional = ConfigBuilder::new(1, 2).extended(Extended::Aer(Aer));
    assert!(matches!(conventional.build(), Err(BuildError::NotExpress)));
}

#[test]
fn a_state_with_more_functions_than_there_can_be_is_refused() {
    let mut saved = pf();
    set16(&mut saved, offset::NUM_VFS, 7);
    set32(&mut saved, offset::PAGE, 2);
    set16(
        &mut saved,
        offset::CONTROL,
        control::ENABLE | control::MEMORY,
    );
    let mut fresh = pf();
    let told = fresh.load(&saved.save()).expect("its own");
    assert_eq!(*told, [vfs(7, true)]);
    assert_eq!(fresh.bytes(), saved.bytes());
    for (at, value) in [
        (offset::NUM_VFS, 9),
        (offset::PAGE, 3),
        (offset::PAGE, 4),
        (offset::BAR0, 0x1c),
    ] {
        let mut bytes = saved.bytes().to_vec();
        bytes[AT as usize + at] = value;
        let hostile = snapshot::seal(&crate::state::V1 { bytes });
        let mut fresh = pf();
        assert!(fresh.load(&hostile).is_err(), "{value} at {at:#x}");
        assert_eq!(fresh.bytes(), pf().bytes());
        // The older way in keeps what may be.
        let mut bytes = saved.bytes().to_vec();
        bytes[AT as usize + at] = value;
        fresh.restore(&bytes);
        sound(&fresh);
    }
}

/// Bits of the extended space that some write changes, found by trying.
static CHANGEABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut mask = vec![0; 4096];
    let fresh = pf();
    for (at, changed) in mask.iter_mut().enumerate() {
        for bit in 0..8 {
            let mut c = pf();
            c.write(at as u64, &[fresh.bytes()[at] ^ 1 << bit]);
            *changed |= (c.bytes()[at] ^ fresh.bytes()[at]) & 1 << bit;
        }
    }
    mask[0x160 + offset::NUM_VFS] = 0x0f;
    // It follows another register.
    mask[0x160 + offset::FIRST_OFFSET + 1] = 0x01;
    // A page is written whole.
    mask[0x160 + offset::PAGE..][..2].copy_from_slice(&[0x53, 0x05]);
    mask
});

/// What holds whatever was written.
fn sound(c: &ConfigSpace) {
    assert!(get16(c, offset::NUM_VFS) <= SRIOV.total);
    assert!(c.vfs() <= SRIOV.total);
    let ari = get16(c, offset::CONTROL) & control::ARI != 0;
    let first = if ari { 0x80 } else { 0x180 };
    assert_eq!(get16(c, offset::FIRST_OFFSET), first);
    assert!(!c.vf_memory() || get16(c, offset::CONTROL) & control::ENABLE != 0);
    let page = c.read_u32(reg(offset::PAGE));
    assert!(page.is_power_of_two() && page & SRIOV.page_sizes != 0);
    for index in 0..6 {
        let Some((address, size)) = c.vf_bar(index) else {
            continue;
        };
        assert!(size.is_power_of_two() && size >= u64::from(page) << 12);
        assert_eq!(address & (size - 1), 0, "aligned to its size");
    }
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let some = prop::sample::select(vec![0u32, 1, 2, 7, 8, 9, 0x10, 0x11, 0x400, u32::MAX]);
    prop_oneof![
        some.prop_map(|v| v.to_le_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..24),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_writes_changes_a_read_only_bit_or_makes_an_impossible_function(
        writes in prop::collection::vec((0x0f0u64..0x1b0, value(), 1usize..24), 1..40)
    ) {
        let fresh = pf();
        let mask = &*CHANGEABLE;
        let mut c = pf();
        for (at, data, len) in &writes {
            let before = c.clone();
            let told = c.write(*at, &data[..data.len().min(*len)]);
            sound(&c);
            let changed = (before.vfs(), before.vf_memory()) != (c.vfs(), c.vf_memory());
            let event = vfs(c.vfs(), c.vf_memory());
            prop_assert_eq!(changed, told.contains(&event));
            if before.vfs() > 0 && c.vfs() > 0 {
                prop_assert_eq!(before.vfs(), c.vfs(), "they come and go together");
            }
        }
        for (at, bits) in mask.iter().enumerate() {
            prop_assert_eq!(c.bytes()[at] & !bits, fresh.bytes()[at] & !bits, "byte {:#x}", at);
        }
        // Disabling clears them, whatever came before.
        let at = reg(offset::CONTROL);
        let control = c.read_u16(at) & !control::ENABLE;
        c.write(at, &control.to_le_bytes());
        prop_assert_eq!((c.vfs(), c.vf_memory()), (0, false));
        c.reset();
        prop_assert_eq!(c.bytes(), fresh.bytes());
    }

    #[test]
    fn any_saved_bytes_make_a_possible_function(saved in prop::collection::vec(any::<u8>(), 0x1a0)) {
        let mut c = pf();
        let mut bytes = c.bytes().to_vec();
        bytes[0x164..0x1a0].copy_from_slice(&saved[0x164..]);
        c.restore(&bytes);
        sound(&c);
        // What is then saved is one's own.
        let mut other = pf();
        prop_assert!(other.load(&c.save()).is_ok());
        prop_assert_eq!(other.bytes(), c.bytes());
    }
}
