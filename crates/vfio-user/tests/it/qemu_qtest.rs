//! Proved by QEMU: a machine without a guest (`-accel qtest`) whose processor is this test.

use std::sync::LazyLock;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::common::{DMA_DONE, DMA_READ, Rig, Seen, WAIT};
use hypernic_vfio_user::pci::{
    Aer, Ari, Bar, Capability, ConfigBuilder, Doorbells, Msi, Msix, Pcie, QueueDoorbell, Sriov,
};
use hypernic_vfio_user::{ClientEvent, DeviceDescription, DmaChange, ResetCause};
use rig::{Boot, Guest, GuestConfig, Nic, Qtest};
use serde_json::json;

const SLOT: u8 = 5;
const BAR0: u64 = 0xe000_0000;
const BAR2: u64 = 0xe001_0000;
const PORTS: u16 = 0xc000;
const ECAM: u64 = 0xb000_0000;

static QEMU: LazyLock<rig::Rig> =
    LazyLock::new(|| rig::Rig::prepare().unwrap_or_else(|why| panic!("{why}")));

fn config(device: &Rig) -> GuestConfig {
    GuestConfig::new("vfio-user")
        .boot(Boot::Qtest)
        .nic(Nic::vfio_user("n0", &device.path).addr(&SLOT.to_string()))
}

/// A machine with the device's BARs mapped and the device switched on.
fn machine(guest: &Guest) -> Qtest {
    let mut m = guest.qtest().unwrap();
    switch_on(&mut m);
    m
}

fn switch_on(m: &mut Qtest) {
    m.pci_write(0, SLOT, 0, 0x10, BAR0 as u32).unwrap();
    m.pci_write(0, SLOT, 0, 0x14, PORTS.into()).unwrap();
    m.pci_write(0, SLOT, 0, 0x18, BAR2 as u32).unwrap();
    m.pci_write(0, SLOT, 0, 4, 7).unwrap();
}

fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + WAIT;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn triggers(device: &Rig) -> u64 {
    let mut n = 0;
    device.irq.counters(&mut |name, value| {
        if name == "irq_triggers" {
            n = value;
        }
    });
    n
}

#[test]
fn qemu_finds_the_device_and_reaches_its_registers() {
    let device = Rig::new();
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = guest.qtest().unwrap();
    assert_eq!(m.pci_read(0, SLOT, 0, 0).unwrap(), 0x100e_8086);
    assert_eq!(m.pci_read(0, SLOT, 0, 8).unwrap(), 0x0200_0003);
    assert_eq!(m.pci_read(0, SLOT, 0, 0x2c).unwrap(), 0x001e_8086);
    assert_eq!(m.pci_read(0, SLOT, 0, 0x3c).unwrap() >> 8, 1);
    // BARs size themselves: 8 KiB of memory, 64 ports, 2 KiB of ROM.
    for (bar, size) in [
        (0x10, 0xffff_e000),
        (0x14, 0xffff_ffc1),
        (0x30, 0xffff_f801),
    ] {
        m.pci_write(0, SLOT, 0, bar, u32::MAX).unwrap();
        assert_eq!(
            m.pci_read(0, SLOT, 0, bar).unwrap(),
            size,
            "BAR at {bar:#x}"
        );
        m.pci_write(0, SLOT, 0, bar, 0).unwrap();
    }
    switch_on(&mut m);
    for (size, value) in [(1, 0x5a), (2, 0xbeef), (4, 0xdead_beef)] {
        m.store(BAR0 + 0x40, size, value).unwrap();
        assert_eq!(m.load(BAR0 + 0x40, size).unwrap(), value);
    }
    m.port_write(PORTS + 8, 4, 0x1234_5678).unwrap();
    assert_eq!(m.port_read(PORTS + 9, 1).unwrap(), 0x56);
    device.wait_seen(|s| *s == Seen::Write(1, 8, 0x1234_5678u32.to_le_bytes().to_vec()));
    // Memory writes were posted: QEMU waited for none of them.
    drop(guest);
    device.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    let count = device.stop();
    assert_eq!(count("posted_writes"), 3);
    assert_eq!(count("malformed_payload") + count("malformed_size"), 0);
    assert_eq!(count("refused_unknown_command"), 0);
}

#[test]
fn the_device_reaches_guest_memory_by_mapping() {
    let device = Rig::new();
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = machine(&guest);
    m.write(0x10_0000, b"from the guest").unwrap();
    let mut got = [0; 14];
    let memory = device.dma.memory();
    memory.view().read(0x10_0000, &mut got).unwrap();
    assert_eq!(&got, b"from the guest");
    memory.view().write(0x20_0000, b"from the device").unwrap();
    assert_eq!(m.read(0x20_0000, 15).unwrap(), b"from the device");
    // The BIOS ROM comes without a descriptor; all RAM comes with one.
    let regions = memory.regions();
    assert!(regions.iter().any(|r| !r.mapped && !r.prot.write));
    assert!(
        regions
            .iter()
            .any(|r| r.mapped && r.iova == 0x10_0000 || r.iova == 0)
    );
    // So the ROM is reached by message: it ends in the jump at the reset vector.
    let mut reset = [0; 16];
    device
        .dma
        .read_blocking(0xffff_fff0, &mut reset, WAIT)
        .unwrap();
    assert_eq!(reset[0], 0xea);
    assert_eq!(m.read(0xffff_fff0, 16).unwrap(), reset);
}

#[test]
fn intx_reaches_the_interrupt_controller_and_an_access_ends_it() {
    let device = Rig::new();
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = machine(&guest);
    // Route all PIRQs to IRQ 11, level-triggered (ICH9 §13.1.15, ELCR2).
    for reg in [0x60, 0x68] {
        m.pci_write(0, 0x1f, 0, reg, 0x0b0b_0b0b).unwrap();
    }
    m.port_write(0x4d1, 1, 1 << 3).unwrap();
    // OCW3: the next read of the second controller gives its request register.
    m.port_write(0xa0, 1, 0x0a).unwrap();
    let requested = |m: &mut Qtest| m.port_read(0xa0, 1).unwrap() & 1 << 3 != 0;
    assert!(!requested(&mut m));

    device.irq.set_line(true);
    until("INTx at the 8259", || requested(&mut m).then_some(()));
    assert_eq!(triggers(&device), 1);
    // Any access is taken for the end of the interrupt; the line is still high, so it comes again.
    m.load(BAR0, 4).unwrap();
    until("the second trigger", || {
        (triggers(&device) == 2).then_some(())
    });
    until("INTx again", || requested(&mut m).then_some(()));
    device.irq.set_line(false);
    m.load(BAR0, 4).unwrap();
    until("INTx gone", || (!requested(&mut m)).then_some(()));
    assert_eq!(triggers(&device), 2);
    // Status follows the line, and COMMAND silences it.
    m.pci_write(0, SLOT, 0, 4, 0x407).unwrap();
    device.irq.set_line(true);
    assert_eq!(m.pci_read(0, SLOT, 0, 4).unwrap() >> 16 & 8, 8);
    assert_eq!(triggers(&device), 2);
    m.pci_write(0, SLOT, 0, 4, 7).unwrap();
    until("INTx after COMMAND", || requested(&mut m).then_some(()));
}

#[test]
fn msix_messages_land_in_guest_memory() {
    let device = Rig::new();
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = machine(&guest);
    let mut cap = m.pci_read(0, SLOT, 0, 0x34).unwrap() as u8;
    let control = loop {
        let word = m.pci_read(0, SLOT, 0, cap).unwrap();
        if word & 0xff == 0x11 {
            break word;
        }
        cap = (word >> 8) as u8;
        assert_ne!(cap, 0, "no MSI-X capability");
    };
    assert_eq!(control >> 16, 69, "70 vectors");
    // Vectors 0 and 65: address and data, unmasked; 3 stays masked.
    let entry = |vector: u64| BAR0 + 0x1000 + vector * 16;
    for (vector, masked) in [(0u64, 0), (65, 0), (3, 1)] {
        m.store(entry(vector), 4, 0x30_0000 + vector * 4).unwrap();
        m.store(entry(vector) + 4, 4, 0).unwrap();
        m.store(entry(vector) + 8, 4, 0xabc0 + vector).unwrap();
        m.store(entry(vector) + 12, 4, masked).unwrap();
    }
    m.pci_write(0, SLOT, 0, cap, control | 0x8000_0000).unwrap();
    for vector in [0u64, 65] {
        device.irq.msix(vector as u16);
        let at = 0x30_0000 + vector * 4;
        until("the message", || {
            (m.load(at, 4).unwrap() == 0xabc0 + vector).then_some(())
        });
    }
    // The masked one waits in the pending bits, which QEMU reads from us, and comes when unmasked.
    device.irq.msix(3);
    until("the pending bit", || {
        (m.load(BAR0 + 0x1800, 4).unwrap() == 1 << 3).then_some(())
    });
    assert_eq!(m.load(0x30_000c, 4).unwrap(), 0);
    m.store(entry(3) + 12, 4, 0).unwrap();
    until("the held message", || {
        (m.load(0x30_000c, 4).unwrap() == 0xabc3).then_some(())
    });
}

/// The 82576's shape: PCI Express, ten vectors in a BAR of their own, SR-IOV at the end.
#[test]
fn an_express_nic_fires_masks_and_holds_its_vectors_and_hides_its_virtual_functions() {
    let device = Rig::start(|_| {
        let vf_bar = Some(Bar::memory64(16 << 10).prefetchable());
        let sriov = Sriov {
            total: 8,
            first_offset: 0x180,
            ari_offset: 0x80,
            stride: 2,
            device: 0x10ca,
            page_sizes: 0x553,
            dependency: 0,
            bars: [vf_bar, None, None, vf_bar, None, None],
        };
        let config = ConfigBuilder::new(0x8086, 0x10c9)
            .express()
            .class(0x02_00_00)
            .bar(0, Bar::memory32(0x2000))
            .bar(3, Bar::memory32(16 << 10))
            .interrupt_pin(1)
            .capability_at(0x50, Capability::Msi(Msi::new(1).address64().masking()))
            .capability_at(
                0x70,
                Capability::Msix(Msix {
                    vectors: 10,
                    table_bar: 3,
                    table_offset: 0,
                    pba_bar: 3,
                    pba_offset: 0x2000,
                }),
            )
            .capability_at(0xa0, Capability::Pcie(Pcie::endpoint()))
            .extended_at(0x100, Aer)
            .extended_at(0x150, Ari { next: 1 })
            .extended_at(0x160, sriov);
        DeviceDescription::from_config(config)
    });
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = guest.qtest().unwrap();
    const TABLE: u64 = BAR2;
    const PBA: u64 = BAR2 + 0x2000;
    m.pci_write(0, SLOT, 0, 0x10, BAR0 as u32).unwrap();
    m.pci_write(0, SLOT, 0, 0x1c, TABLE as u32).unwrap();
    m.pci_write(0, SLOT, 0, 4, 6).unwrap();
    assert_eq!(m.pci_read(0, SLOT, 0, 0x70).unwrap() >> 16, 9, "10 vectors");
    // The extended space by PCIEXBAR: QEMU cuts the chain before ARI and SR-IOV, so that no guest
    // can bring virtual functions to life.
    m.pci_write(0, 0, 0, 0x60, ECAM as u32 | 1).unwrap();
    let extended = ECAM + (u64::from(SLOT) << 15);
    assert_eq!(m.load(extended, 4).unwrap(), 0x10c9_8086);
    assert_eq!(
        m.load(extended + 0x100, 4).unwrap(),
        0x0001_0001,
        "AER, the last"
    );
    let land = |vector: u64| 0x30_0000 + vector * 4;
    let entry = |vector: u64| TABLE + vector * 16;
    for vector in 0..10 {
        m.store(entry(vector), 4, land(vector)).unwrap();
        m.store(entry(vector) + 4, 4, 0).unwrap();
        m.store(entry(vector) + 8, 4, 0x7000 + vector).unwrap();
        m.store(entry(vector) + 12, 4, u64::from(vector == 4))
            .unwrap();
    }
    let control = |m: &mut Qtest, bits: u32| m.pci_write(0, SLOT, 0, 0x70, bits << 16).unwrap();
    control(&mut m, 0x8000);
    let lands = |m: &mut Qtest, vector: u64| {
        until("the message", || {
            (m.load(land(vector), 4).unwrap() == 0x7000 + vector).then_some(())
        });
        m.store(land(vector), 4, 0).unwrap();
    };
    for vector in (0..10).filter(|v| *v != 4) {
        device.irq.msix(vector as u16);
        lands(&mut m, vector);
    }
    // Masked by its own bit, it waits in the pending bits.
    device.irq.msix(4);
    until("the pending bit", || {
        (m.load(PBA, 4).unwrap() == 1 << 4).then_some(())
    });
    m.store(entry(4) + 12, 4, 0).unwrap();
    lands(&mut m, 4);
    assert_eq!(m.load(PBA, 4).unwrap(), 0);
    // All at once by the function's.
    control(&mut m, 0xc000);
    for vector in [2, 9] {
        device.irq.msix(vector);
    }
    until("both pending bits", || {
        (m.load(PBA, 4).unwrap() == 0x204).then_some(())
    });
    assert_eq!(
        (m.load(land(2), 4).unwrap(), m.load(land(9), 4).unwrap()),
        (0, 0)
    );
    control(&mut m, 0x8000);
    lands(&mut m, 2);
    lands(&mut m, 9);
    // Turned off and on again, nothing of before comes.
    control(&mut m, 0);
    control(&mut m, 0x8000);
    assert_eq!(m.load(PBA, 4).unwrap(), 0);
    device.irq.msix(0);
    lands(&mut m, 0);
}

#[test]
fn memory_without_a_descriptor_is_reached_by_message() {
    let device = Rig::new();
    // Plain RAM, as a user gets it who forgets `share=on`.
    let plain = [
        "-object",
        "memory-backend-ram,id=plain,size=256M",
        "-machine",
        "memory-backend=plain",
    ];
    let guest = QEMU.start(config(&device).args(plain)).unwrap();
    let mut m = machine(&guest);
    assert!(device.dma.memory().regions().iter().all(|r| !r.mapped));
    device.wait_seen(
        |s| matches!(s, Seen::Dma(DmaChange::Mapped { len, shared: false, .. }) if *len > 64 << 20),
    );
    m.write(0x10_0040, b"plain memory").unwrap();
    // A register starts the DMA and another is read while it is under way.
    m.store(BAR0 + DMA_READ, 8, 0x10_0040).unwrap();
    until("the message DMA", || {
        (m.load(BAR0 + DMA_DONE, 4).unwrap() == 1).then_some(())
    });
    let done = device.wait_seen(|s| matches!(s, Seen::DmaDone(..)));
    assert!(
        matches!(&done, Seen::DmaDone(_, Ok(data)) if data.starts_with(b"plain memory")),
        "{done:?}"
    );
    // From another thread, longer than QEMU could answer in one message, there and back.
    let big: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 7) as u8).collect();
    device
        .dma
        .write_blocking(0x100_0000, &big, 4 * WAIT)
        .unwrap();
    assert_eq!(m.read(0x100_0000, 4096).unwrap(), big[..4096]);
    let mut back = vec![0; big.len()];
    device
        .dma
        .read_blocking(0x100_0000, &mut back, 4 * WAIT)
        .unwrap();
    assert!(back == big);
}

#[test]
fn a_mapped_page_is_shared_with_the_machine() {
    let device = Rig::with_mmap();
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = machine(&guest);
    device.take_seen();
    m.store(BAR2 + 0x1018, 4, 0x77).unwrap();
    assert_eq!(device.page.load_u32(0x1018, SeqCst), 0x77);
    device.page.store_u32(0x3000, 0x88, SeqCst);
    assert_eq!(m.load(BAR2 + 0x3000, 4).unwrap(), 0x88);
    assert_eq!(device.take_seen(), [], "no message for a mapped page");
    m.store(BAR2 + 0x2000, 4, 0x99).unwrap();
    device.wait_seen(|s| matches!(s, Seen::Write(2, 0x2000, _)));
}

#[test]
fn a_doorbell_in_memory_is_heard_without_a_message() {
    let queue = QueueDoorbell {
        setup: vec![0x1000],
        head: 0x1010,
        enable: (0x1028, 1),
        tail: 0x1018,
    };
    let device = Rig::start(|_| {
        DeviceDescription::new(0x8086, 0x10c9)
            .class(0x02_00_00)
            .bar(0, Bar::memory32(0x2000))
            .doorbells(Doorbells {
                pages: vec![(0x1000, 0x1000)],
                queues: vec![queue],
                ..Doorbells::default()
            })
    });
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = guest.qtest().unwrap();
    m.pci_write(0, SLOT, 0, 0x10, BAR0 as u32).unwrap();
    m.pci_write(0, SLOT, 0, 4, 6).unwrap();
    m.store(BAR0 + 0x1000, 4, 0xabcd_0000).unwrap();
    m.store(BAR0 + 0x1028, 4, 1).unwrap();
    // A trapped access: the queue is known to be on from here.
    m.load(BAR0 + 0x40, 4).unwrap();
    device.take_seen();
    for tail in [1u32, 2, 77] {
        m.store(BAR0 + 0x1018, 4, tail.into()).unwrap();
        device.wait_seen(|s| *s == Seen::Write(0, 0x1018, tail.to_le_bytes().to_vec()));
    }
    drop(guest);
    device.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    let count = device.stop();
    assert_eq!(count("doorbells"), 3);
}

#[test]
fn a_machine_reset_resets_the_device_and_the_next_qemu_is_served() {
    let device = Rig::new();
    {
        let mut config = config(&device);
        config.allow_reboot = true;
        let guest = QEMU.start(config).unwrap();
        let mut m = machine(&guest);
        m.store(BAR0 + 0x40, 4, 7).unwrap();
        assert_eq!(m.load(BAR0 + 0x40, 4).unwrap(), 7);
        device.take_seen();
        guest.qmp("system_reset", json!({})).unwrap();
        device.wait_seen(|s| *s == Seen::Reset(ResetCause::Client));
        switch_on(&mut m);
        assert_eq!(m.load(BAR0 + 0x40, 4).unwrap(), 0);
        m.store(BAR0 + 0x40, 4, 8).unwrap();
        guest.kill();
    }
    device.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    let guest = QEMU.start(config(&device)).unwrap();
    let mut m = machine(&guest);
    m.write(0x1000, b"second").unwrap();
    let mut got = [0; 6];
    device.dma.memory().view().read(0x1000, &mut got).unwrap();
    assert_eq!(&got, b"second");
}

#[test]
fn a_second_qemu_is_refused_at_once_with_a_reason() {
    let device = Rig::new();
    let first = QEMU.start(config(&device)).unwrap();
    let mut m = machine(&first);
    let start = Instant::now();
    let second = QEMU.start(config(&device)).unwrap_err().to_string();
    assert!(second.contains("busy"), "{second}");
    // Without an answer QEMU gives up after 5 s ("timed out").
    assert!(start.elapsed() < Duration::from_secs(5), "{second}");
    m.store(BAR0 + 0x40, 4, 1).unwrap();
    assert_eq!(m.load(BAR0 + 0x40, 4).unwrap(), 1);
}
