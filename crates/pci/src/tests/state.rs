//! Saved and loaded configuration space.

use crate::state::{KIND, V1, VERSION};
use crate::{
    Bar, Capability, ConfigBuilder, ConfigEvent, ConfigSpace, Msi, PowerManagement, PowerState,
    StateError,
};
use proptest::prelude::*;

fn nic(device: u16) -> ConfigSpace {
    ConfigBuilder::new(0x8086, device)
        .class(0x02_00_00)
        .interrupt_pin(1)
        .bar(0, Bar::memory32(128 << 10))
        .bar(2, Bar::memory64(16 << 10))
        .capability(Capability::PowerManagement(PowerManagement {
            d1: true,
            pme: 0x19,
            ..PowerManagement::default()
        }))
        .capability(Capability::Msi(Msi::new(4).address64().masking()))
        .build()
        .expect("valid")
}

/// As a guest leaves it: BARs placed, mastering, MSI on with a mask, D3hot.
fn used() -> ConfigSpace {
    let mut c = nic(0x100e);
    c.write(0x10, &0xfebc_0000u32.to_le_bytes());
    c.write(0x18, &0x12_3456_4000u64.to_le_bytes());
    c.write(0x04, &[0x06, 0x04]);
    c.write(0x3c, &[11]);
    let pm = c.bytes()[0x34] as u64;
    let msi = u64::from(c.bytes()[pm as usize + 1]);
    c.write(msi + 2, &[0x21]);
    c.write(msi + 4, &0xfee0_1000u64.to_le_bytes());
    c.write(msi + 16, &[5]);
    c.write(pm + 4, &[3]);
    c.set_interrupt_status(true);
    c.set_msi_pending(4);
    c.raise_status(0x2000);
    c
}

fn sealed(bytes: Vec<u8>) -> Vec<u8> {
    snapshot::seal(&V1 { bytes })
}

#[test]
fn all_that_software_wrote_is_there_again_and_the_changes_are_told() {
    let saved = used();
    let mut fresh = nic(0x100e);
    let events = fresh.load(&saved.save()).expect("the same device");
    assert_eq!(fresh.bytes(), saved.bytes());
    assert_eq!(fresh.save(), saved.save());
    assert_eq!(fresh.bar_address(0), Some(0xfebc_0000));
    assert_eq!(fresh.bar_address(2), Some(0x12_3456_4000));
    assert_eq!(
        *events,
        [
            ConfigEvent::Command {
                mem: true,
                io: false,
                master: true,
                intx_disable: true
            },
            ConfigEvent::Bar(0),
            ConfigEvent::Bar(2),
            ConfigEvent::MsiEnable(true),
            ConfigEvent::MsiMask(5),
            ConfigEvent::PowerState(PowerState::D3Hot),
        ]
    );
    // Loading the same again changes nothing, and a reset is one.
    assert!(fresh.load(&saved.save()).expect("the same").is_empty());
    fresh.reset();
    assert_eq!(fresh.bytes(), nic(0x100e).bytes());
}

/// What a program of version 1 saved, once and for all. If you change the type so that this no
/// longer loads, add a new version, and a conversion from the old one.
#[test]
fn a_state_of_version_1_is_loaded_by_every_later_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/golden/state-v1.bin");
    let blob = std::fs::read(path).expect("the golden state");
    assert!(used().save() == blob, "the release before does not load it");
    let mut c = nic(0x100e);
    c.load(&blob)
        .expect("a new version needs a conversion from this one");
    assert_eq!(c.bytes(), used().bytes());
}

#[track_caller]
fn refusal(blob: &[u8]) -> StateError {
    let mut c = used();
    let why = c.load(blob).expect_err("refused");
    assert_eq!(c.bytes(), used().bytes());
    why
}

#[test]
fn another_device_is_refused_by_name() {
    assert_eq!(
        refusal(&nic(0x100f).save()).to_string(),
        "it was saved by a 8086:100f (revision 0, subsystem 0000:0000), \
         this is a 8086:100e (revision 0, subsystem 0000:0000)"
    );
}

#[test]
fn what_no_software_can_have_written_is_refused() {
    let field = |bytes| match refusal(&sealed(bytes)) {
        StateError::Field { field, value, .. } => (field, value),
        other => panic!("{other}"),
    };
    let good = used().bytes().to_vec();
    assert_eq!(field(vec![0; 4096]), ("config", 4096));
    assert_eq!(field(Vec::new()), ("config", 0));
    // BAR type bits, a size bit, the capability pointer, the interrupt pin, class.
    for (at, bit) in [(0x10, 1), (0x12, 1), (0x34, 4), (0x3d, 1), (0x0b, 1)] {
        let mut bytes = good.clone();
        bytes[at] ^= bit;
        assert_eq!(field(bytes), ("config", at as u64));
    }
    let mut bytes = good.clone();
    let pm = usize::from(bytes[0x34]);
    bytes[pm + 4] = 2;
    assert_eq!(field(bytes.clone()), ("config", 2), "there is no D2");
    bytes[pm + 4] = 1;
    assert!(used().load(&sealed(bytes)).is_ok(), "there is a D1");
}

#[test]
fn the_container_is_checked_too() {
    let blob = used().save();
    for len in 0..blob.len() {
        refusal(&blob[..len]);
    }
    for at in 0..blob.len() {
        let mut bad = blob.clone();
        bad[at] ^= 1;
        refusal(&bad);
    }
    let payload = &blob[24..blob.len() - 4];
    let newer = snapshot::wrap(KIND, VERSION + 1, payload);
    assert!(matches!(refusal(&newer), StateError::Version { .. }));
}

#[test]
fn a_raw_image_cannot_bring_a_power_state_that_is_none() {
    let mut c = nic(0x100e);
    let pm = usize::from(c.bytes()[0x34]);
    let mut image = c.bytes().to_vec();
    image[pm + 4] = 2;
    c.restore(&image);
    assert_eq!(c.power_state(), PowerState::D0);
}

proptest! {
    #[test]
    fn any_writes_are_saved_and_loaded(
        writes in prop::collection::vec((0..256u64, prop::collection::vec(any::<u8>(), 1..9)), 0..30),
    ) {
        let mut c = nic(0x100e);
        for (at, data) in &writes {
            c.write(*at, data);
        }
        let mut fresh = nic(0x100e);
        fresh.load(&c.save()).expect("what was saved loads");
        prop_assert_eq!(fresh.bytes(), c.bytes());
        // And what is written from here on has the same effect.
        for (at, data) in &writes {
            let (a, b) = (c.write(*at, data), fresh.write(*at, data));
            prop_assert_eq!(&*a, &*b);
        }
    }

    #[test]
    fn hostile_images_are_refused_or_harmless(
        changes in prop::collection::vec((0..256usize, any::<u8>()), 1..4),
    ) {
        let mut bytes = used().bytes().to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        let mut c = nic(0x100e);
        let fresh = c.clone();
        match c.load(&sealed(bytes.clone())) {
            Ok(_) => prop_assert_eq!(c.bytes(), bytes),
            Err(_) => prop_assert_eq!(c.bytes(), fresh.bytes()),
        }
        c.write(0, &[0xff; 256]);
        prop_assert_eq!(&c.bytes()[..4], &fresh.bytes()[..4]);
    }
}
