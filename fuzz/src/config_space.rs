//! PCI configuration space: any description, then any accesses.

use pci::{
    Aer, Ari, Bar, Capability, ConfigBuilder, ConfigEvent, ConfigSpace, ExtendedCapability, Msi,
    Msix, Pcie, PowerManagement, Raw, Serial, Sriov, sriov,
};

use crate::input::Input;

/// Configuration spaces: of the NICs there are, and of any device that can be described.
pub fn config_space(data: &[u8]) {
    let mut input = Input::new(data);
    let builder = match input.u8() {
        kind if kind & 1 != 0 => any(&mut input),
        0x82 => physical(&mut input),
        _ => nic(),
    };
    let Ok(mut space) = builder.build() else {
        return;
    };
    let initial = space.bytes().to_vec();
    assert!(matches!(initial.len(), 256 | 4096));
    for _ in 0..256 {
        let Some(op) = input.op() else { break };
        step(&mut space, op, &mut input, &initial);
    }
    capabilities_end(&space);
    space.reset();
    assert_eq!(space.bytes(), initial, "a reset leaves nothing behind");
}

fn step(space: &mut ConfigSpace, op: u8, input: &mut Input<'_>, initial: &[u8]) {
    let offset = match op >> 6 {
        0 => u64::from(input.u8() & 0x3f),
        1 => u64::from(input.u8()),
        2 => u64::from(input.u16() & 0xfff),
        _ => input.u64(),
    };
    let len = [1, 2, 4, 8, 3, 16, 64, 0][usize::from(op >> 3 & 7)];
    match op & 7 {
        0..=3 => {
            let mut data = [0; 64];
            if op & 1 == 0 {
                let given = input.bytes(len);
                data[..given.len()].copy_from_slice(given);
            } else {
                data = [[0xff; 64], [0; 64]][usize::from(op >> 1 & 1)];
            }
            write(space, offset, &data[..len], initial);
        }
        4 => {
            let mut data = [0xa5; 64];
            space.read(offset, &mut data[..len]);
            for (i, &byte) in data[..len].iter().enumerate() {
                let at = offset.checked_add(i as u64);
                let there = at.and_then(|at| space.bytes().get(usize::try_from(at).ok()?));
                assert_eq!(byte, there.copied().unwrap_or(0xff), "{offset:#x}+{i}");
            }
        }
        5 => match op >> 3 & 3 {
            0 => space.set_interrupt_status(op & 0x20 != 0),
            1 => space.raise_status(input.u16()),
            _ => space.set_msi_pending(input.u32()),
        },
        6 => {
            let saved = space.bytes().to_vec();
            let mut hostile = saved.clone();
            let given = input.bytes(len);
            for (byte, new) in hostile.iter_mut().zip(given) {
                *byte = *new;
            }
            // What was really saved comes back whole, a made-up image changes no identity.
            space.restore(&hostile);
            assert_eq!(space.bytes()[..4], initial[..4], "another device");
            space.restore(&saved);
            assert_eq!(space.bytes(), saved, "saved and restored");
            // The same, as a state; a refusal leaves no trace.
            let state = space.save();
            let hostile = snapshot::seal(&pci::state::V1 { bytes: hostile });
            if space.load(&hostile).is_err() {
                assert_eq!(space.bytes(), saved, "a refusal leaves a trace");
            }
            space.load(&state).expect("its own state");
            assert_eq!(space.bytes(), saved, "saved and loaded");
        }
        _ => space.reset(),
    }
}

/// A write changes nothing outside of itself and of what may be written, and says what it changed.
fn write(space: &mut ConfigSpace, offset: u64, data: &[u8], initial: &[u8]) {
    let before = space.clone();
    let events = space.write(offset, data);
    let (old, new) = (before.bytes(), space.bytes());
    let (vf_bars, first_vf) = (vf_bars(space), first_vf(&before, space));
    for (at, (a, b)) in old.iter().zip(new).enumerate() {
        let inside = (at as u64).checked_sub(offset);
        let inside = inside.is_some_and(|i| i < data.len() as u64);
        // A larger page takes the low bits of the VF BARs with it, and ARI moves the first VF.
        let inside = inside || vf_bars.contains(&at) && b & !a == 0 || first_vf.contains(&at);
        assert!(
            inside || a == b,
            "{at:#x} changed by a write at {offset:#x}"
        );
    }
    // Vendor, device, revision, class and header type make the device.
    for range in [0x00..0x04, 0x08..0x0c, 0x0e..0x0f, 0x34..0x35] {
        assert_eq!(new[range.clone()], initial[range], "identity");
    }
    let bits = 0x0407;
    let changed = (before.command() ^ space.command()) & bits != 0;
    let told = events
        .iter()
        .any(|e| matches!(e, ConfigEvent::Command { .. }));
    assert_eq!(changed, told, "the command register and its event");
    for index in 0..6 {
        let moved = before.bar_address(index) != space.bar_address(index);
        let told = events.contains(&ConfigEvent::Bar(index));
        assert!(!moved || told, "BAR {index} moved unnoticed");
    }
    if before.msi_enabled() != space.msi_enabled() {
        assert!(events.contains(&ConfigEvent::MsiEnable(space.msi_enabled())));
    }
    if before.msix_enabled() != space.msix_enabled() {
        assert!(events.contains(&ConfigEvent::MsixEnable(space.msix_enabled())));
    }
    if before.msi_mask() != space.msi_mask() {
        assert!(events.contains(&ConfigEvent::MsiMask(space.msi_mask())));
    }
    virtual_functions(&before, space, &events);
    if before.power_state() != space.power_state() {
        assert!(events.contains(&ConfigEvent::PowerState(space.power_state())));
    }
}

fn vf_bars(space: &ConfigSpace) -> std::ops::Range<usize> {
    let at = space.sriov().map_or(0, |(at, _)| at + sriov::offset::BAR0);
    at..at + if at > 0 { 24 } else { 0 }
}

/// Where the offset of the first VF is, if ARI was switched on or off.
fn first_vf(before: &ConfigSpace, space: &ConfigSpace) -> std::ops::Range<usize> {
    let Some((at, _)) = space.sriov() else {
        return 0..0;
    };
    let control = |space: &ConfigSpace| space.read_u16((at + sriov::offset::CONTROL) as u64);
    let moved = (control(before) ^ control(space)) & sriov::control::ARI != 0;
    let at = at + sriov::offset::FIRST_OFFSET;
    at..at + if moved { 2 } else { 0 }
}

/// There are never more virtual functions than there can be, and what is enabled stays as it is.
fn virtual_functions(before: &ConfigSpace, space: &ConfigSpace, events: &[ConfigEvent]) {
    let Some((at, cap)) = space.sriov() else {
        assert_eq!((space.vfs(), space.vf_memory()), (0, false));
        return;
    };
    let asked = space.read_u16((at + sriov::offset::NUM_VFS) as u64);
    assert!(asked <= cap.total && space.vfs() <= asked, "{asked}");
    let page = space.read_u32((at + sriov::offset::PAGE) as u64);
    assert!(page.is_power_of_two() && page & cap.page_sizes != 0);
    if before.vfs() > 0 && space.vfs() > 0 {
        assert_eq!(before.vfs(), space.vfs(), "changed while they exist");
    }
    let (count, memory) = (space.vfs(), space.vf_memory());
    let changed = (before.vfs(), before.vf_memory()) != (count, memory);
    assert_eq!(
        changed,
        events.contains(&ConfigEvent::Vfs { count, memory })
    );
    for index in 0..6 {
        let Some((address, size)) = space.vf_bar(index) else {
            continue;
        };
        assert!(size.is_power_of_two() && size >= u64::from(page) << 12);
        assert_eq!(address & (size - 1), 0, "aligned to its size");
        let told = events.contains(&ConfigEvent::VfBar(index));
        let moved = before.vf_bar(index).is_none_or(|(was, _)| was != address);
        assert!(!moved || told, "VF BAR {index} moved unnoticed");
    }
}

/// A guest that follows the chain of capabilities comes to its end.
fn capabilities_end(space: &ConfigSpace) {
    if space.read_u16(6) & 0x10 == 0 {
        return;
    }
    let mut at = u64::from(space.read_u16(0x34) & 0xff);
    let mut left = 48;
    while at != 0 {
        assert!(
            at >= 0x40 && at.is_multiple_of(4),
            "a capability at {at:#x}"
        );
        left -= 1;
        assert!(left > 0, "the capabilities form a ring");
        at = u64::from(space.read_u16(at) >> 8);
    }
}

/// The space of an 82540EM with all it may have.
fn nic() -> ConfigBuilder {
    ConfigBuilder::new(0x8086, 0x100e)
        .class(0x02_00_00)
        .revision(3)
        .subsystem(0x8086, 0x001e)
        .bar(0, Bar::memory32(128 << 10))
        .bar(1, Bar::io(64))
        .interrupt_pin(1)
        .capability(Capability::PowerManagement(PowerManagement::default()))
        .capability(Capability::Msi(Msi::new(1).address64()))
}

/// A physical function as the 82576's, of any number of virtual ones.
fn physical(input: &mut Input<'_>) -> ConfigBuilder {
    let vf_bar = Some(Bar::memory64(16 << 10).prefetchable());
    let sriov = Sriov {
        total: input.u16(),
        ..sriov_of(input, [vf_bar, None, None, vf_bar, None, None])
    };
    ConfigBuilder::new(0x8086, 0x10c9)
        .express()
        .bar(0, Bar::memory32(128 << 10))
        .capability_at(0xa0, Capability::Pcie(Pcie::endpoint()))
        .extended_at(0x100, Aer)
        .extended_at(0x140, Serial(0x0052_54ff_ff00_0001))
        .extended_at(0x150, Ari::default())
        .extended_at(0x160, sriov)
}

fn sriov_of(input: &mut Input<'_>, bars: [Option<Bar>; 6]) -> Sriov {
    Sriov {
        total: input.u8().into(),
        first_offset: u16::from(input.u8()) + 1,
        ari_offset: u16::from(input.u8()) + 1,
        stride: input.u8().into(),
        device: 0x10ca,
        page_sizes: input.u32() | 1,
        dependency: 0,
        bars,
    }
}

/// Any description, possible or not.
fn any(input: &mut Input<'_>) -> ConfigBuilder {
    let mut builder = ConfigBuilder::new(input.u16(), input.u16())
        .class(input.u32())
        .status(input.u16())
        .interrupt_pin(input.u8());
    for _ in 0..16 {
        let op = input.u8();
        let more = op >> 4;
        builder = match op & 15 {
            0 => break,
            1 => builder.express(),
            2 | 3 => {
                let size = if op & 0x10 == 0 {
                    1u64 << (input.u8() & 63)
                } else {
                    input.u64()
                };
                let bar = match input.u8() & 3 {
                    0 => Bar::io(size),
                    1 => Bar::memory32(size),
                    2 => Bar::memory64(size),
                    _ => Bar::memory32(4096),
                };
                builder.bar(more & 7, bar)
            }
            4 => builder.rom(input.value()),
            5 => builder.capability(capability(input)),
            6 => builder.capability_at(input.u8(), capability(input)),
            7 | 8 => {
                let body = input.u8() as usize;
                let extended = ExtendedCapability {
                    id: input.u16(),
                    version: more,
                    body: input.bytes(body).to_vec(),
                    writable: input.bytes(body).to_vec(),
                    w1c: input.bytes(body).to_vec(),
                };
                if op & 15 == 7 {
                    builder.extended(extended)
                } else {
                    builder.extended_at(input.u16(), extended)
                }
            }
            11 => match more & 3 {
                0 => builder.extended(Aer),
                1 => builder.extended(Ari { next: input.u8() }),
                _ => {
                    let mut bar = || match input.u8() {
                        kind @ 0..64 => Some(Bar::memory32(1 << (kind & 31))),
                        kind @ 64..128 => Some(Bar::memory64(1 << (kind & 63))),
                        _ => None,
                    };
                    let bars = std::array::from_fn(|_| bar());
                    builder.extended(sriov_of(input, bars))
                }
            },
            9 => builder.multifunction(),
            10 => builder.timing(input.u8(), input.u8()),
            _ => builder.revision(more),
        };
    }
    builder
}

fn capability(input: &mut Input<'_>) -> Capability {
    let kind = input.u8();
    match kind & 7 {
        0 => Capability::PowerManagement(PowerManagement {
            no_soft_reset: kind & 0x10 != 0,
            d1: kind & 0x20 != 0,
            d2: kind & 0x40 != 0,
            ..PowerManagement::default()
        }),
        1 => {
            let mut msi = Msi::new(input.u8());
            if kind & 0x10 != 0 {
                msi = msi.address64();
            }
            if kind & 0x20 != 0 {
                msi = msi.masking();
            }
            Capability::Msi(msi)
        }
        2 | 3 => Capability::Msix(Msix {
            vectors: input.u16(),
            table_bar: input.u8(),
            table_offset: input.u32(),
            pba_bar: input.u8(),
            pba_offset: input.u32(),
        }),
        4 => Capability::Pcie(Pcie {
            flr: kind & 0x10 != 0,
            max_payload: input.u8() & 7,
            ..Pcie::endpoint()
        }),
        _ => {
            let len = usize::from(input.u8());
            Capability::Raw(Raw {
                id: kind,
                body: input.bytes(len).to_vec(),
                writable: input.bytes(len).to_vec(),
                w1c: input.bytes(len).to_vec(),
            })
        }
    }
}
