//! The configuration space as software sees it.

use std::sync::LazyLock;

use crate::{
    Bar, BarKind, BuildError, Capability, ConfigBuilder, ConfigEvent, ConfigSpace,
    ExtendedCapability, Msi, Msix, Pcie, PowerManagement, PowerState, Raw,
};
use proptest::prelude::*;

fn full() -> ConfigSpace {
    ConfigBuilder::new(0x8086, 0x10c9)
        .express()
        .class(0x02_00_00)
        .revision(1)
        .subsystem(0x1af4, 0x1100)
        .interrupt_pin(1)
        .bar(0, Bar::memory32(128 << 10))
        .bar(1, Bar::io(64))
        .bar(2, Bar::memory64(16 << 10).prefetchable())
        .rom(64 << 10)
        .capability_at(
            0x40,
            Capability::PowerManagement(PowerManagement {
                pme: 0x19,
                ..PowerManagement::default()
            }),
        )
        .capability_at(0x50, Capability::Msi(Msi::new(4).address64().masking()))
        .capability_at(
            0x70,
            Capability::Msix(Msix {
                vectors: 10,
                table_bar: 2,
                table_offset: 0,
                pba_bar: 2,
                pba_offset: 0x2000,
            }),
        )
        .capability_at(0xa0, Capability::Pcie(Pcie::endpoint()))
        .capability(Capability::Raw(Raw {
            id: 9,
            body: vec![6, 1, 2, 3],
            writable: vec![0, 0, 0xf0],
            w1c: vec![0, 0, 0, 0xff],
        }))
        .extended(ExtendedCapability {
            id: 1,
            version: 2,
            body: vec![0; 0x40],
            ..ExtendedCapability::default()
        })
        .extended(ExtendedCapability {
            id: 3,
            version: 1,
            body: vec![1; 8],
            ..ExtendedCapability::default()
        })
        .build()
        .unwrap()
}

#[test]
fn bars_size_themselves() {
    let mut c = full();
    for at in [0x10, 0x14, 0x18, 0x1c, 0x20, 0x30] {
        c.write(at, &[0xff; 4]);
    }
    assert_eq!(c.read_u32(0x10), 0xfffe_0000);
    assert_eq!(c.read_u32(0x14), 0xffff_ffc1);
    assert_eq!(c.read_u32(0x18), 0xffff_c00c);
    assert_eq!(c.read_u32(0x1c), 0xffff_ffff);
    assert_eq!(c.read_u32(0x20), 0);
    assert_eq!(c.read_u32(0x30), 0xffff_0001);
    let events = c.write(0x18, &0x1_2000_4000u64.to_le_bytes());
    assert_eq!(&events[..], [ConfigEvent::Bar(2)]);
    assert_eq!(c.bar_address(2), Some(0x1_2000_4000));
    assert_eq!(c.bar_address(3), None);
}

#[test]
fn capability_chain_is_linked_in_order() {
    let c = full();
    let mut ids = Vec::new();
    let mut at = c.bytes()[0x34];
    while at != 0 {
        ids.push((c.bytes()[usize::from(at)], at));
        at = c.bytes()[usize::from(at) + 1];
    }
    assert_eq!(
        ids,
        [(1, 0x40), (5, 0x50), (0x11, 0x70), (0x10, 0xa0), (9, 0x48)]
    );
    assert_eq!(c.read_u16(6) & 0x10, 0x10);
    assert_eq!(c.read_u32(0x100), 0x1442_0001);
    assert_eq!(c.read_u32(0x144), 0x0001_0003);
}

#[test]
fn events_name_what_changed() {
    let mut c = full();
    assert_eq!(
        &c.write(4, &[7, 4])[..],
        [ConfigEvent::Command {
            mem: true,
            io: true,
            master: true,
            intx_disable: true
        }]
    );
    assert!(c.write(4, &[7, 4]).is_empty());
    assert_eq!(&c.write(0x52, &[1])[..], [ConfigEvent::MsiEnable(true)]);
    assert_eq!(&c.write(0x60, &[0xff])[..], [ConfigEvent::MsiMask(0xf)]);
    assert_eq!(
        &c.write(0x72, &[0xff, 0xff])[..],
        [
            ConfigEvent::MsixEnable(true),
            ConfigEvent::MsixFunctionMask(true)
        ]
    );
    assert!(c.msix_masked());
    assert_eq!(c.read_u16(0x72), 0xc009);
    assert_eq!(&c.write(0x30, &[1])[..], [ConfigEvent::Rom]);
    assert_eq!(
        &c.write(0x44, &[3])[..],
        [ConfigEvent::PowerState(PowerState::D3Hot)]
    );
    assert!(c.write(0x44, &[1]).is_empty(), "D1 does not exist");
    assert_eq!(c.power_state(), PowerState::D3Hot);
    assert_eq!(&c.write(0xa9, &[0xa8])[..], [ConfigEvent::FunctionReset]);
    assert_eq!(c.bytes()[0xa9], 0x28);
    c.reset();
    assert_eq!(c.bytes(), full().bytes());
}

#[test]
fn status_bits_clear_by_ones_and_interrupt_status_is_the_owners() {
    let mut c = full();
    c.raise_status(0xffff);
    c.set_interrupt_status(true);
    assert_eq!(c.read_u16(6), 0xf918);
    c.write(6, &0x8000u16.to_le_bytes());
    assert_eq!(c.read_u16(6), 0x7918);
    c.write(6, &[0xff, 0xff]);
    assert_eq!(c.read_u16(6), 0x0018);
    c.set_interrupt_status(false);
    assert_eq!(c.read_u16(6), 0x0010);
}

#[test]
fn decode_bits_exist_only_for_what_decodes() {
    let mut c = ConfigBuilder::new(1, 2).build().unwrap();
    c.write(4, &[0xff, 0xff]);
    assert_eq!(c.command(), 0x0154);
}

#[test]
fn impossible_descriptions_are_refused_by_name() {
    let base = || ConfigBuilder::new(1, 2);
    let build = |b: ConfigBuilder| b.build().unwrap_err();
    assert_eq!(
        build(base().bar(0, Bar::memory32(3000))),
        BuildError::Bar(0)
    );
    assert_eq!(
        build(base().bar(5, Bar::memory64(4096))),
        BuildError::Bar(5)
    );
    assert_eq!(build(base().rom(100)), BuildError::Rom(100));
    assert_eq!(
        build(base().capability(Capability::Msi(Msi::new(3)))),
        BuildError::Capability(5)
    );
    assert_eq!(
        build(base().capability_at(0x20, Capability::Msi(Msi::new(1)))),
        BuildError::Place { id: 5, at: 0x20 }
    );
    assert_eq!(
        build(base().extended(ExtendedCapability::default())),
        BuildError::NotExpress
    );
    let msi = Capability::Msi(Msi::new(1));
    assert_eq!(
        build(base().capability(msi.clone()).capability(msi)),
        BuildError::Twice(5)
    );
}

#[test]
fn the_whole_description_stands_in_the_header() {
    let builder = ConfigBuilder::new(0x8086, 0x100e)
        .status(0xffff)
        .multifunction()
        .timing(0xff, 0x0a)
        .interrupt_pin(2)
        .bar(2, Bar::io(64))
        .bar(9, Bar::io(64))
        .capability(Capability::Msi(Msi::new(2)));
    assert_eq!(builder.get_bar(2), Some(Bar::io(64)));
    assert_eq!(builder.get_bar(1), None);
    assert_eq!(builder.get_interrupt_pin(), 2);
    assert!(builder.capabilities().eq([&Capability::Msi(Msi::new(2))]));
    let c = builder.build().unwrap();
    // 66 MHz, fast back-to-back and DEVSEL timing, and the capability list.
    assert_eq!(c.read_u16(6), 0x06f0);
    assert_eq!(c.bytes()[0x0e], 0x80);
    assert_eq!(c.bytes()[0x3d..0x40], [2, 0xff, 0x0a]);
    let bar = c.bar(2).unwrap();
    assert_eq!((bar.size(), bar.kind()), (64, BarKind::Io));
    assert!(c.no_soft_reset(), "there is no reset by power state at all");
}

#[test]
fn msi_comes_in_four_layouts() {
    for (msi, data, mask) in [
        (Msi::new(4), 8, None),
        (Msi::new(4).address64(), 12, None),
        (Msi::new(4).masking(), 8, Some(12)),
        (Msi::new(4).address64().masking(), 12, Some(16)),
    ] {
        assert_eq!(msi.vectors(), 4);
        let mut c = ConfigBuilder::new(1, 2)
            .capability(Capability::Msi(msi))
            .build()
            .unwrap();
        assert!(!c.msi_enabled());
        c.write(0x42, &[0x21]);
        assert!(c.msi_enabled());
        c.write(0x40 + data, &[0x34, 0x12]);
        assert_eq!(c.read_u16(0x40 + data), 0x1234);
        let events = c.write(0x40 + mask.unwrap_or(24), &[0xff; 4]);
        c.set_msi_pending(5);
        match mask {
            Some(at) => {
                assert_eq!(*events, [ConfigEvent::MsiMask(0xf)]);
                assert_eq!(c.msi_mask(), 0xf, "four messages can be masked");
                assert_eq!(c.read_u32(0x44 + at), 5);
            }
            None => {
                assert!(events.is_empty());
                assert_eq!(c.msi_mask(), 0);
            }
        }
    }
}

#[test]
fn msix_is_enabled_masked_and_measured() {
    let msix = Msix {
        vectors: 65,
        table_bar: 0,
        table_offset: 0,
        pba_bar: 0,
        pba_offset: 0x800,
    };
    assert_eq!((msix.table_len(), msix.pba_len()), (1040, 16));
    let mut c = ConfigBuilder::new(1, 2)
        .bar(0, Bar::memory32(4096))
        .capability(Capability::Msix(msix))
        .build()
        .unwrap();
    assert_eq!(c.read_u16(0x42), 64, "one less than there are");
    c.write(0x42, &[0, 0x40]);
    assert!(!c.msix_enabled() && !c.msix_masked());
    c.write(0x42, &[0, 0xc0]);
    assert!(c.msix_enabled() && c.msix_masked());
    c.write(0x42, &[0, 0x80]);
    assert!(c.msix_enabled() && !c.msix_masked());
}

#[test]
fn power_states_are_those_that_exist() {
    let build = |d1, d2, no_soft_reset| {
        ConfigBuilder::new(1, 2)
            .capability(Capability::PowerManagement(PowerManagement {
                d1,
                d2,
                no_soft_reset,
                ..PowerManagement::default()
            }))
            .build()
            .unwrap()
    };
    let states = [PowerState::D1, PowerState::D2, PowerState::D3Hot];
    for (d1, d2) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut c = build(d1, d2, d1);
        assert_eq!(c.no_soft_reset(), d1);
        for (bits, (state, exists)) in (1u8..).zip(states.into_iter().zip([d1, d2, true])) {
            c.write(0x44, &[0]);
            let events = c.write(0x44, &[bits]);
            let want = if exists { state } else { PowerState::D0 };
            assert_eq!(c.power_state(), want, "{d1} {d2}");
            assert_eq!(events.contains(&ConfigEvent::PowerState(state)), exists);
        }
    }
}

#[test]
fn capabilities_that_cannot_be_are_refused_by_their_id() {
    let base = || ConfigBuilder::new(1, 2).express();
    let build = |b: ConfigBuilder| b.build().unwrap_err();
    assert_eq!(build(base().interrupt_pin(5)), BuildError::Pin(5));
    let none = Msix {
        vectors: 0,
        table_bar: 0,
        table_offset: 0,
        pba_bar: 0,
        pba_offset: 0,
    };
    assert_eq!(
        build(base().capability(Capability::Msix(none))),
        BuildError::Capability(0x11)
    );
    let longer = Raw {
        id: 9,
        body: vec![0],
        writable: vec![0; 9],
        w1c: Vec::new(),
    };
    assert_eq!(
        build(base().capability(Capability::Raw(longer))),
        BuildError::Capability(9)
    );
    let extended = |at, writable| {
        let capability = ExtendedCapability {
            id: 3,
            version: 1,
            body: vec![0; 8],
            writable,
            ..ExtendedCapability::default()
        };
        base().extended_at(at, capability)
    };
    assert!(extended(0x100, vec![0xff; 8]).build().is_ok());
    assert_eq!(
        build(extended(0x100, vec![0xff; 9])),
        BuildError::Capability(3)
    );
    assert_eq!(
        build(extended(0x200, Vec::new())),
        BuildError::Place { id: 3, at: 0x200 },
        "the chain begins at 0x100"
    );
}

/// Of each byte of the full space the bits that some write can change, found by writing all ones and
/// all zeros to it.
static CHANGEABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let c = full();
    let changes = |at: usize| {
        // Miri has no time for every byte behind the capabilities: of most, nothing is known.
        if cfg!(miri) && at >= 0x160 && !at.is_multiple_of(97) {
            return 0xff;
        }
        let mut ones = c.clone();
        let mut zeros = c.clone();
        ones.write(at as u64, &[0xff]);
        zeros.write(at as u64, &[0]);
        (ones.bytes()[at] ^ c.bytes()[at]) | (zeros.bytes()[at] ^ c.bytes()[at])
    };
    (0..c.len()).map(changes).collect()
});

#[test]
fn the_owner_sees_what_software_has_set() {
    let mut c = full();
    assert!(!c.msi_enabled() && !c.msix_enabled() && !c.msix_masked());
    c.write(0x52, &[1, 0]);
    c.write(0x60, &[0b101]);
    c.set_msi_pending(0b100);
    assert!(c.msi_enabled());
    assert_eq!((c.msi_mask(), c.read_u32(0x64)), (0b101, 0b100));
    c.write(0x72, &0x8000u16.to_le_bytes());
    assert!(c.msix_enabled() && !c.msix_masked());
    c.write(0x72, &0xc000u16.to_le_bytes());
    assert!(c.msix_masked());
    assert!(!c.no_soft_reset());
}

#[test]
fn what_describes_a_function_is_found_in_its_header() {
    let builder = ConfigBuilder::new(1, 2)
        .express()
        .status(0xffff)
        .multifunction()
        .timing(7, 9)
        .interrupt_pin(4)
        .bar(3, Bar::memory32(4096).prefetchable())
        .capability(Capability::Msi(Msi::new(8)))
        .extended_at(
            0x100,
            ExtendedCapability {
                id: 3,
                version: 1,
                body: vec![1; 8],
                ..ExtendedCapability::default()
            },
        );
    assert_eq!(builder.get_interrupt_pin(), 4);
    let bar = builder.get_bar(3).expect("described");
    assert_eq!((bar.size(), bar.kind()), (4096, BarKind::Memory32));
    assert_eq!(builder.get_bar(9), None);
    let msi = builder.capabilities().find_map(|c| match c {
        Capability::Msi(msi) => Some(msi.vectors()),
        _ => None,
    });
    assert_eq!(msi, Some(8));
    let c = builder.build().expect("possible");
    assert_eq!(c.read_u16(6), 0x06f0, "timing bits and the capability list");
    assert_eq!(c.read_u32(0x0c) >> 16 & 0x80, 0x80);
    assert_eq!(c.read_u32(0x3c), 0x0907_0400);
    assert_eq!(c.read_u32(0x100), 0x0001_0003);
}

#[test]
fn identity_is_read_only() {
    let mask = &*CHANGEABLE;
    for at in (0..4)
        .chain(8..12)
        .chain([0x0e, 0x34, 0x3d])
        .chain(0x2c..0x30)
    {
        assert_eq!(mask[at], 0, "byte {at:#x}");
    }
}

proptest! {
    #[test]
    fn no_sequence_of_writes_changes_a_read_only_bit(
        writes in prop::collection::vec((0u64..5000, prop::collection::vec(any::<u8>(), 0..300)), 1..20)
    ) {
        let fresh = full();
        let mask = &*CHANGEABLE;
        let mut c = full();
        for (at, data) in &writes {
            c.write(*at, data);
        }
        for (at, bits) in mask.iter().enumerate() {
            prop_assert_eq!(c.bytes()[at] & !bits, fresh.bytes()[at] & !bits, "byte {:#x}", at);
        }
    }

    #[test]
    fn any_access_is_safe_and_ones_past_the_end(at in any::<u64>(), near in 0u64..8192, len in 0usize..600) {
        let mut c = full();
        for at in [at, near] {
            let mut data = vec![0; len];
            c.read(at, &mut data);
            for (i, byte) in data.iter().enumerate() {
                let expected = at
                    .checked_add(i as u64)
                    .and_then(|a| c.bytes().get(usize::try_from(a).ok()?).copied())
                    .unwrap_or(0xff);
                prop_assert_eq!(*byte, expected);
            }
            c.write(at, &data);
        }
    }

    #[test]
    fn split_writes_equal_one_write(at in 0u64..0x60, data in prop::collection::vec(any::<u8>(), 1..16)) {
        let mut whole = full();
        let mut split = full();
        whole.write(at, &data);
        for (i, byte) in data.iter().enumerate() {
            split.write(at + i as u64, &[*byte]);
        }
        prop_assert_eq!(whole.bytes(), split.bytes());
    }

    #[test]
    fn restoring_hostile_bytes_keeps_the_identity(saved in prop::collection::vec(any::<u8>(), 0..5000)) {
        let fresh = full();
        let mask = &*CHANGEABLE;
        let mut c = full();
        c.restore(&saved);
        for at in (0..4).chain(0x2c..0x30) {
            prop_assert_eq!(c.bytes()[at], fresh.bytes()[at]);
            prop_assert_eq!(mask[at], 0);
        }
        c.write(0, &[0xff; 4096]);
    }
}
