//! The commands, by our own client.

use std::sync::atomic::Ordering;

use crate::common::{KICK, MSIX, Rig, Seen, WORKED};
use hypernic_vfio_user::client::Write;
use hypernic_vfio_user::codec::{irq, region, region_flags};
use hypernic_vfio_user::pci::ConfigEvent;
use hypernic_vfio_user::{ClientError, ClientEvent, ResetCause};

#[test]
fn describes_itself() {
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    let info = c.info().unwrap();
    assert_eq!((info.flags, info.num_regions, info.num_irqs), (3, 9, 5));
    let sizes: Vec<u64> = (0..9)
        .map(|i| c.region_info(i).unwrap().info.size)
        .collect();
    assert_eq!(sizes, [0x2000, 64, 0x4000, 0, 0, 0, 2048, 256, 0]);
    let irqs: Vec<u32> = (0..5).map(|i| c.irq_info(i).unwrap().count).collect();
    assert_eq!(irqs, [1, 2, 70, 1, 1]);
    assert_eq!(c.irq_info(irq::INTX).unwrap().flags, 7);
    let mapped = c.region_info(2).unwrap();
    assert_eq!(mapped.info.flags, 0xf);
    assert_eq!(mapped.info.cap_offset, 32);
    assert_eq!(mapped.areas.len(), 2);
    assert_eq!(
        c.region_info(6).unwrap().info.flags,
        region_flags::READ,
        "the ROM is read-only"
    );
    assert_eq!(c.region_io_fds(0).unwrap(), 0);
    assert!(matches!(
        c.region_info(9),
        Err(ClientError::Refused { errno: 22, .. })
    ));
    assert!(matches!(
        c.irq_info(5),
        Err(ClientError::Refused { errno: 22, .. })
    ));
}

#[test]
fn reads_and_writes_regions() {
    let rig = Rig::new();
    let mut c = rig.client();
    c.write_u32(0, 0x10, 0xdead_beef).unwrap();
    assert_eq!(c.read_u32(0, 0x10).unwrap(), 0xdead_beef);
    assert_eq!(c.read_u8(0, 0x11).unwrap(), 0xbe);
    c.post_u32(1, 0x4, 7).unwrap();
    assert_eq!(c.read_u64(1, 0).unwrap(), 7 << 32);
    assert_eq!(c.read_u32(region::CONFIG, 0).unwrap(), 0x100e_8086);
    assert_eq!(c.read_u16(region::ROM, 0).unwrap(), 0xaa55);
    assert_eq!(c.read_u32(region::ROM, 4).unwrap(), 0xffff_ff03);
}

#[test]
fn wide_and_misaligned_accesses_reach_the_device_in_aligned_pieces() {
    let rig = Rig::new();
    let mut c = rig.client();
    rig.take_seen();
    c.region_write(0, 0x3, &[1; 14]).unwrap();
    let pieces: Vec<(u64, usize)> = rig
        .take_seen()
        .into_iter()
        .map(|s| match s {
            Seen::Write(0, at, data) => (at, data.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pieces, [(3, 1), (4, 4), (8, 8), (16, 1)]);
    let mut back = [0; 16];
    c.region_read(0, 2, &mut back).unwrap();
    assert_eq!(back, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn many_writes_fit_one_message() {
    let rig = Rig::new();
    let mut c = rig.client();
    let writes: Vec<Write> = (0..200)
        .map(|i| Write {
            region: 0,
            offset: i * 4,
            len: 4,
            value: i,
        })
        .collect();
    c.write_multi(&writes).unwrap();
    assert_eq!(c.read_u32(0, 199 * 4).unwrap(), 199);
    let count = rig.stop();
    assert_eq!(count("region_writes"), 200);
    assert_eq!(count("write_multi_messages"), 1);
}

#[test]
fn configuration_writes_reach_the_device_as_events() {
    let rig = Rig::new();
    let mut c = rig.client();
    rig.take_seen();
    c.region_write(region::CONFIG, 4, &[6, 0]).unwrap();
    c.write_u32(region::CONFIG, 0x10, 0xfeb0_0000).unwrap();
    assert_eq!(
        rig.take_seen(),
        [
            Seen::Config(ConfigEvent::Command {
                mem: true,
                io: false,
                master: true,
                intx_disable: false
            }),
            Seen::Config(ConfigEvent::Bar(0)),
        ]
    );
}

#[test]
fn reset_reaches_the_device_and_the_configuration() {
    let rig = Rig::new();
    let mut c = rig.client();
    c.region_write(region::CONFIG, 4, &[6, 0]).unwrap();
    c.write_u32(0, 0, 5).unwrap();
    c.reset().unwrap();
    assert_eq!(c.read_u16(region::CONFIG, 4).unwrap(), 0);
    assert_eq!(c.read_u32(0, 0).unwrap(), 0);
    rig.wait_seen(|s| *s == Seen::Reset(ResetCause::Client));
}

#[test]
fn work_runs_once_for_a_batch_of_posted_writes() {
    let rig = Rig::new();
    let mut c = rig.client();
    for i in 0..50u32 {
        c.queue_write(0, KICK, &i.to_le_bytes(), true);
    }
    c.flush().unwrap();
    // Worked by the time a later message is answered, and not once per write.
    for _ in 0..100 {
        if c.read_u32(0, WORKED).unwrap() > 0 {
            break;
        }
    }
    let worked = rig.worked.load(Ordering::SeqCst);
    assert!((1..10).contains(&worked), "{worked}");
    let count = rig.stop();
    assert_eq!(count("posted_writes"), 50);
    assert!(count("recv_calls") < 150);
}

#[test]
fn the_msix_table_is_storage_and_the_pending_bits_are_read_only() {
    let rig = Rig::new();
    let mut c = rig.client();
    let table = u64::from(MSIX.table_offset);
    rig.take_seen();
    assert_eq!(c.read_u32(0, table + 12).unwrap(), 1, "masked after reset");
    c.write_u32(0, table + 16, 0xfee0_0003).unwrap();
    c.write_u32(0, table + 16 + 8, 0x4021).unwrap();
    c.write_u32(0, table + 16 + 12, 0xffff_fffe).unwrap();
    assert_eq!(c.read_u64(0, table + 16).unwrap(), 0xfee0_0000);
    assert_eq!(c.read_u64(0, table + 24).unwrap(), 0x4021);
    let pba = u64::from(MSIX.pba_offset);
    c.write_u32(0, pba, u32::MAX).unwrap();
    assert_eq!(c.read_u64(0, pba).unwrap(), 0);
    assert_eq!(rig.take_seen(), [], "the device hears none of it");
}

#[test]
fn a_client_is_announced() {
    let rig = Rig::new();
    let c = rig.client();
    rig.wait_seen(|s| *s == Seen::Client(ClientEvent::Connected));
    drop(c);
    rig.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
}

#[test]
fn an_express_device_has_its_extended_space_and_both_kinds_of_reset() {
    use hypernic_vfio_user::DeviceDescription;
    use hypernic_vfio_user::pci::{
        Bar, Capability, ConfigBuilder, ExtendedCapability, Pcie, PowerManagement,
    };
    let rig = Rig::start(|_| {
        let config = ConfigBuilder::new(0x8086, 0x10c9)
            .express()
            .bar(0, Bar::memory64(0x2000).prefetchable())
            .capability_at(
                0x40,
                Capability::PowerManagement(PowerManagement::default()),
            )
            .capability_at(0xa0, Capability::Pcie(Pcie::endpoint()))
            .extended(ExtendedCapability {
                id: 3,
                version: 1,
                body: vec![7; 8],
                ..ExtendedCapability::default()
            });
        DeviceDescription::from_config(config)
    });
    let mut c = rig.client();
    assert_eq!(c.region_info(region::CONFIG).unwrap().info.size, 4096);
    assert_eq!(c.irq_info(irq::INTX).unwrap().count, 0);
    assert_eq!(c.read_u32(region::CONFIG, 0x100).unwrap(), 0x0001_0003);
    assert_eq!(c.read_u32(region::CONFIG, 0x104).unwrap(), 0x0707_0707);
    for (why, at, value) in [
        (ResetCause::FunctionLevel, 0xa9, 0x80),
        (ResetCause::PowerUp, 0x44, 0),
    ] {
        c.region_write(region::CONFIG, 4, &[6, 0]).unwrap();
        if why == ResetCause::PowerUp {
            c.region_write(region::CONFIG, at, &[3]).unwrap();
        }
        c.region_write(region::CONFIG, at, &[value]).unwrap();
        rig.wait_seen(|s| *s == Seen::Reset(why));
        assert_eq!(c.read_u16(region::CONFIG, 4).unwrap(), 0);
    }
}

#[test]
fn impossible_memory_regions_are_refused() {
    use hypernic_vfio_user::SharedMem;
    use hypernic_vfio_user::codec::{Command, DmaMap};
    use std::os::fd::AsFd;
    let rig = Rig::new();
    let mut c = rig.client();
    let ram = SharedMem::new("ram", 0x4000).unwrap();
    let path = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&ram.as_fd())
    );
    let read_only = std::fs::File::open(path).unwrap();
    let map = |iova, size, offset, flags| DmaMap {
        argsz: 32,
        flags,
        offset,
        iova,
        size,
    };
    let cases = [
        (map(0, 0, 0, 3), ram.as_fd(), 22),
        (map(0, u64::MAX, 0, 3), ram.as_fd(), 22),
        (map(u64::MAX - 1, 0x1000, 0, 3), ram.as_fd(), 22),
        (map(0, 0x1000, u64::MAX, 3), ram.as_fd(), 22),
        (map(0, 0x4001, 0, 3), ram.as_fd(), 22),
        (map(0, 0x1000, 0x3001, 3), ram.as_fd(), 22),
        (map(0, 0x1000, 0, 3), read_only.as_fd(), 22),
        (map(0, 0x1000, 0, 0x80), ram.as_fd(), 22),
        (map(0x8000, 0x1000, 0, 3), ram.as_fd(), 0),
        (map(0x8fff, 1, 0, 1), ram.as_fd(), 17),
        (map(0x7000, 0x1001, 0, 1), ram.as_fd(), 17),
        (map(0x9000, 0x1000, 0, 1), read_only.as_fd(), 0),
    ];
    for (i, (map, fd, errno)) in cases.iter().enumerate() {
        let result = c.request(Command::DmaMap, &map.to_bytes(), &[*fd]);
        let got = match result {
            Ok(_) => 0,
            Err(ClientError::Refused { errno, .. }) => errno,
            Err(other) => panic!("case {i}: {other}"),
        };
        assert_eq!(got, *errno, "case {i}");
    }
    assert_eq!(rig.dma.memory().regions().len(), 2);
    c.dma_unmap_all().unwrap();
    assert_eq!(rig.dma.memory().regions().len(), 0);
}
