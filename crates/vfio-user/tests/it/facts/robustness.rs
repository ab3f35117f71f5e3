//! 6.5: robustness.

use std::io::Read;
use std::os::fd::AsFd;

use super::{access, raw};
use crate::common::{Rig, Seen};
use hypernic_vfio_user::codec::{
    Command, DeviceInfo, DmaMap, DmaUnmap, Header, RegionInfo, SetIrqs, flags, irq, irq_set,
    region, region_flags,
};
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::{
    ClientError, ClientEvent, ClientOptions, GoneReason, ResetCause, SharedMem,
};

#[test]
fn fact_6_5_region_access_never_gets_an_error_reply() {
    let rig = Rig::new();
    let mut c = rig.client();
    for region in 0..9 {
        for offset in [0, 1, 0xfff, 0x1fff, 0x2000, 1 << 32, u64::MAX - 3, u64::MAX] {
            for len in [0usize, 1, 3, 4, 8, 100] {
                let mut data = vec![0; len];
                c.region_read(region, offset, &mut data).unwrap();
                if offset >= 0x2000 {
                    assert!(data.iter().all(|b| *b == 0xff));
                }
                if offset >= 0x2000 || region == region::ROM {
                    c.region_write(region, offset, &data).unwrap();
                }
            }
        }
    }
    // Absent BARs and the VGA range have no bytes at all.
    assert_eq!(c.read_u32(3, 0).unwrap(), u32::MAX);
    assert_eq!(c.read_u32(region::VGA, 0).unwrap(), u32::MAX);
    // Half inside, half outside.
    let mut data = [0; 8];
    c.region_read(1, 60, &mut data).unwrap();
    assert_eq!(data, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
}

#[test]
fn fact_6_5_the_unmap_reply_has_its_full_size_always() {
    let rig = Rig::new();
    let mut c = rig.client();
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    c.dma_map(0x1000, &ram, 0, 0x1000, Prot::RW).unwrap();
    let unmap = |flags, iova, size| {
        let unmap = DmaUnmap {
            argsz: 24,
            flags,
            iova,
            size,
        };
        raw(Command::DmaUnmap, 0, &unmap.to_bytes())
    };
    let cases = [
        (unmap(0, 0x1000, 0x800), 22, 0x800),
        (unmap(0, 0x2000, 0x1000), 0, 0),
        (unmap(0, 0, 0), 22, 0),
        (unmap(1, 0x1000, 0x1000), 95, 0x1000),
        (unmap(0x80, 0x1000, 0x1000), 22, 0x1000),
        (unmap(2, 0x1000, 0x1000), 22, 0x1000),
        (unmap(0, 0, 0x10000), 0, 0x1000),
        (unmap(2, 0, 0), 0, 0),
    ];
    for (i, (message, errno, size)) in cases.iter().enumerate() {
        c.send_raw(message, &[]).unwrap();
        let reply = c.next_reply().unwrap();
        assert_eq!(reply.header.size, 40, "case {i}");
        assert_eq!(reply.header.error, *errno, "case {i}");
        assert_eq!(reply.header.is_error(), *errno != 0, "case {i}");
        assert_eq!(reply.payload[8..16], message[24..32], "the entry is echoed");
        // As the kernel's VFIO has it: what was unmapped, be it nothing.
        assert_eq!(reply.payload[16..24], u64::to_le_bytes(*size), "case {i}");
    }
}

#[test]
fn fact_6_5_reset_is_obeyed_whether_it_was_offered_or_not() {
    for offered in [false, true] {
        let rig = Rig::start(|page| crate::common::description(page, false).resettable(offered));
        let mut c = rig.client();
        assert_eq!(c.info().unwrap().flags & 1, u32::from(offered));
        c.reset().unwrap();
        rig.wait_seen(|s| *s == Seen::Reset(ResetCause::Client));
    }
}

#[test]
fn fact_6_5_get_info_takes_a_larger_argsz() {
    let rig = Rig::new();
    let mut c = rig.client();
    for argsz in [16u32, 32, 4096, u32::MAX] {
        let ask = DeviceInfo {
            argsz,
            ..DeviceInfo::default()
        };
        let reply = c.request(Command::GetInfo, &ask.to_bytes(), &[]).unwrap();
        assert_eq!(DeviceInfo::parse(&reply.payload).unwrap().num_regions, 9);
        assert_eq!(reply.payload.len(), 16);
    }
}

#[test]
fn fact_6_5_cap_offset_is_set_even_when_the_capabilities_do_not_fit() {
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    let mut ask = RegionInfo {
        argsz: 32,
        index: 2,
        ..RegionInfo::default()
    };
    let reply = c
        .request(Command::GetRegionInfo, &ask.to_bytes(), &[])
        .unwrap();
    let info = RegionInfo::parse(&reply.payload).unwrap();
    assert_eq!(info.flags & region_flags::CAPS, region_flags::CAPS);
    assert_eq!((info.cap_offset, info.argsz), (32, 80));
    assert_eq!((reply.payload.len(), reply.fds.len()), (32, 0));
    ask.argsz = 80;
    let reply = c
        .request(Command::GetRegionInfo, &ask.to_bytes(), &[])
        .unwrap();
    assert_eq!((reply.payload.len(), reply.fds.len()), (80, 1));
}

#[test]
fn fact_6_5_maps_without_a_descriptor_and_over_bars_are_accepted() {
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    // The BIOS ROM, then our own BAR coming back as a peer-to-peer target.
    c.dma_map_without_fd(0xfffc_0000, None, 0x4_0000, Prot::RO)
        .unwrap();
    c.write_u32(region::CONFIG, 0x18, 0xfeb0_0000).unwrap();
    c.dma_map_without_fd(0xfeb0_1000, None, 0x1000, Prot::RW)
        .unwrap();
    let regions = rig.dma.memory().regions();
    assert_eq!(regions.len(), 2);
    assert!(regions.iter().all(|r| !r.mapped));
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    let overlap = c.dma_map(0xfeb0_1800, &ram, 0, 0x1000, Prot::RW);
    assert!(matches!(
        overlap,
        Err(ClientError::Refused { errno: 17, .. })
    ));
    // A file that must not be mapped is reached by message like one that is not there.
    let disk = tempfile::tempfile().unwrap();
    disk.set_len(0x1000).unwrap();
    let map = DmaMap {
        argsz: 32,
        flags: 3,
        offset: 0,
        iova: 0,
        size: 0x1000,
    };
    let result = c.request(Command::DmaMap, &map.to_bytes(), &[disk.as_fd()]);
    assert!(result.is_ok());
}

#[test]
fn fact_6_5_ids_may_be_used_again() {
    let rig = Rig::new();
    let mut c = rig.client();
    let ask = raw(Command::RegionRead, 0, &access(region::CONFIG, 0, 4));
    c.send_raw(&ask.repeat(40), &[]).unwrap();
    for _ in 0..40 {
        let reply = c.next_reply().unwrap();
        assert_eq!(reply.header.id, 7);
        assert_eq!(reply.payload[16..], 0x100e_8086u32.to_le_bytes());
    }
}

#[test]
fn fact_6_5_unexpected_descriptors_are_closed() {
    let rig = Rig::new();
    let mut c = rig.client();
    let info = DeviceInfo {
        argsz: 16,
        ..DeviceInfo::default()
    }
    .to_bytes();
    let read = access(0, 0, 4);
    let set = SetIrqs {
        argsz: 20,
        flags: irq_set::DATA_NONE | irq_set::ACTION_TRIGGER,
        index: irq::MSIX,
        start: 0,
        count: 1,
    }
    .to_bytes();
    let map = DmaMap {
        argsz: 32,
        flags: 3,
        offset: 0,
        iova: 0,
        size: 0x1000,
    }
    .to_bytes();
    let cases: &[(Command, &[u8])] = &[
        (Command::GetInfo, &info),
        (Command::RegionRead, &read),
        (Command::SetIrqs, &set),
        (Command::DmaMap, &map),
        (Command::Reset, &[]),
        (Command::DmaRead, &[]),
    ];
    for (command, payload) in cases {
        let (mut reader, writer) = std::io::pipe().unwrap();
        c.send_raw(
            &raw(*command, 0, payload),
            &[writer.as_fd(), writer.as_fd()],
        )
        .unwrap();
        c.next_reply().unwrap();
        drop(writer);
        // End of file only when the server has closed its copies.
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "{command:?}");
    }
    assert_eq!(rig.stop()("surplus_fds"), 2 * cases.len() as u64);
}

#[test]
fn fact_6_5_sizes_are_capped() {
    let rig = Rig::new();
    let mut c = rig.client_with(ClientOptions {
        max_data_xfer_size: 8192,
        ..ClientOptions::default()
    });
    assert_eq!(
        c.server_version().capabilities.max_data_xfer_size,
        Some(8192)
    );
    let mut data = vec![0; 8192];
    c.region_read(0, 0, &mut data).unwrap();
    for count in [8193, u32::MAX] {
        c.send_raw(&raw(Command::RegionRead, 0, &access(0, 0, count)), &[])
            .unwrap();
        assert_eq!(c.next_reply().unwrap().header.error, 22);
    }
    // A message that says it is larger than any can be ends the connection.
    let mut header = Header::command(1, Command::RegionWrite, 0);
    header.size = u32::MAX;
    c.send_raw(&header.to_bytes(), &[]).unwrap();
    assert!(matches!(c.next_reply(), Err(ClientError::Closed)));
    rig.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(GoneReason::Protocol(_)))));
    assert_eq!(rig.client().info().unwrap().num_regions, 9);
}

#[test]
fn fact_6_5_a_client_that_reads_no_replies_costs_bounded_memory_and_goes_on_later() {
    let rig = Rig::new();
    let mut c = rig.client();
    let ask = raw(Command::RegionRead, 0, &access(0, 0, 1 << 20));
    // A gigabyte of replies, asked for in 32 KiB.
    let asked = 1024;
    c.send_raw(&ask.repeat(asked), &[]).unwrap();
    for _ in 0..asked {
        let reply = c.next_reply().unwrap();
        assert_eq!(reply.payload.len(), 16 + (1 << 20));
    }
    assert_eq!(c.read_u32(region::CONFIG, 0).unwrap(), 0x100e_8086);
}

#[test]
fn fact_6_5_posted_writes_get_no_reply_of_any_kind() {
    let rig = Rig::new();
    let mut c = rig.client();
    let post = |payload: &[u8]| raw(Command::RegionWrite, flags::NO_REPLY, payload);
    let good = [&access(0, 0, 4)[..], &[1, 2, 3, 4]].concat();
    let short = [&access(0, 0, 8)[..], &[1, 2, 3, 4]].concat();
    let nowhere = [&access(99, 0, 4)[..], &[1, 2, 3, 4]].concat();
    for payload in [&good[..], &short, &nowhere, &[]] {
        c.send_raw(&post(payload), &[]).unwrap();
    }
    c.send_raw(
        &raw(Command::RegionRead, flags::NO_REPLY, &access(0, 0, 4)),
        &[],
    )
    .unwrap();
    // The next reply on the socket answers this.
    c.send_raw(&raw(Command::RegionRead, 0, &access(0, 0, 4)), &[])
        .unwrap();
    let reply = c.next_reply().unwrap();
    assert_eq!(
        (reply.header.id, &reply.payload[16..]),
        (7, &[1u8, 2, 3, 4][..])
    );
}
