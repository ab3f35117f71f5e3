//! What QEMU 11.1.3 says to a device from its start to a booting firmware, replayed.

use std::os::fd::AsFd;

use crate::common::{Rig, Seen, silent};
use hypernic_vfio_user::codec::{
    Capabilities, Command, DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, RegionAccess, RegionInfo,
    Version, irq, irq_set, region,
};
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::{Client, EventFd, ResetCause, SharedMem};

const MIB: u64 = 1 << 20;

fn map(iova: u64, size: u64, offset: u64, prot: Prot) -> Vec<u8> {
    DmaMap {
        argsz: 32,
        flags: u32::from(prot.read) | u32::from(prot.write) << 1,
        offset,
        iova,
        size,
    }
    .to_bytes()
    .to_vec()
}

fn unmap(iova: u64, size: u64) -> Vec<u8> {
    DmaUnmap {
        argsz: 24,
        flags: 0,
        iova,
        size,
    }
    .to_bytes()
    .to_vec()
}

/// Sends without waiting, as QEMU does for the memory map.
fn pipelined(c: &mut Client, messages: &[(Command, Vec<u8>, Option<&SharedMem>)]) {
    let ids: Vec<u16> = messages
        .iter()
        .map(|(command, payload, memory)| {
            let fds: Vec<_> = memory.iter().map(|m| m.as_fd()).collect();
            c.start(*command, payload, &fds).unwrap()
        })
        .collect();
    c.flush().unwrap();
    for id in ids {
        c.finish(id).unwrap();
    }
}

/// Version 0.0 with QEMU's capabilities, the old migration object among them.
fn greet(c: &mut Client) {
    let mut version = vec![0; 4];
    version.extend_from_slice(
        b"{\"capabilities\": {\"migration\": {\"pgsize\": 4096, \"max_bitmap_size\": 268435456}, \
          \"write_multiple\": true, \"max_msg_fds\": 16, \"max_data_xfer_size\": 1048576, \
          \"max_dma_maps\": 65535, \"pgsizes\": 4096}}\0",
    );
    let reply = c.request(Command::Version, &version, &[]).unwrap();
    let reply = Version::parse(&reply.payload).unwrap();
    assert_eq!((reply.major, reply.minor), (0, 0));
    assert_eq!(
        reply.capabilities,
        Capabilities {
            max_msg_fds: Some(16),
            max_data_xfer_size: Some(1 << 20),
            max_dma_maps: Some(65535),
            pgsizes: Some(4096),
            twin_socket: None,
            migration: None,
            write_multiple: Some(true),
        }
    );
}

/// RAM goes and comes back in pieces, pipelined, as a firmware shadows the BIOS.
fn shadow(rig: &Rig, c: &mut Client, ram: &SharedMem, round: u64) {
    ram.write(MIB as usize, &round.to_le_bytes());
    pipelined(
        c,
        &[
            (Command::DmaUnmap, unmap(0, 256 * MIB), None),
            (Command::DmaMap, map(0, 0xc0000, 0, Prot::RW), Some(ram)),
            (Command::DmaMap, map(0xc0000, 0x40000, 0, Prot::RO), None),
            (
                Command::DmaMap,
                map(MIB, 255 * MIB, MIB, Prot::RW),
                Some(ram),
            ),
        ],
    );
    let mut word = [0; 8];
    let memory = rig.dma.memory();
    memory.view().read(MIB, &mut word).unwrap();
    assert_eq!(u64::from_le_bytes(word), round);
    let shape: Vec<(u64, bool)> = memory
        .regions()
        .iter()
        .map(|r| (r.iova, r.mapped))
        .collect();
    assert_eq!(
        shape,
        [
            (0, true),
            (0xc0000, false),
            (MIB, true),
            (0xfffc_0000, false)
        ]
    );
    pipelined(
        c,
        &[
            (Command::DmaUnmap, unmap(0, 0xc0000), None),
            (Command::DmaUnmap, unmap(0xc0000, 0x40000), None),
            (Command::DmaUnmap, unmap(MIB, 255 * MIB), None),
            (Command::DmaMap, map(0, 256 * MIB, 0, Prot::RW), Some(ram)),
        ],
    );
}

#[test]
fn qemu_from_its_start_to_a_booting_firmware() {
    let rig = Rig::new();
    let mut c = rig.silent();
    // 1. Versions.
    greet(&mut c);
    // 2. RAM with a descriptor, the BIOS without, before anything else is known.
    let ram = SharedMem::new("ram", 256 << 20).unwrap();
    pipelined(
        &mut c,
        &[
            (Command::DmaMap, map(0, 256 * MIB, 0, Prot::RW), Some(&ram)),
            (
                Command::DmaMap,
                map(0xfffc_0000, 0x4_0000, 0, Prot::RO),
                None,
            ),
        ],
    );
    // 3. Information.
    let info = c.info().unwrap();
    assert!((8..=100).contains(&info.num_regions) && (3..=50).contains(&info.num_irqs));
    for index in [0, 1, 2, 3, 4, 5, 7] {
        c.region_info(index).unwrap();
    }
    assert_eq!(c.irq_info(irq::ERR).unwrap().count, 1);
    assert_eq!(c.irq_info(irq::MSIX).unwrap().count, 70);
    // 4. The whole configuration space in one message; then the ROM's size.
    let mut space = vec![0; 256];
    c.region_read(region::CONFIG, 0, &mut space).unwrap();
    assert_eq!(space[..4], [0x86, 0x80, 0x0e, 0x10]);
    c.write_u32(region::CONFIG, 0x30, 0xffff_f800).unwrap();
    assert_eq!(c.read_u32(region::CONFIG, 0x30).unwrap(), 0xffff_f800);
    c.write_u32(region::CONFIG, 0x30, 0).unwrap();
    for bar in 0..6 {
        c.read_u32(region::CONFIG, 0x10 + 4 * bar).unwrap();
    }
    assert_eq!(c.read_u8(region::CONFIG, 0x3d).unwrap(), 1);
    // 5. Interrupts.
    let (intx, err) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    c.arm(irq::INTX, 0, &[&intx]).unwrap();
    c.arm(irq::ERR, 0, &[&err]).unwrap();
    rig.irq.error();
    assert_eq!(err.take(), 1);
    // 6. Machine reset, with the line up.
    rig.irq.set_line(true);
    assert_eq!(intx.take(), 1);
    c.disarm(irq::INTX).unwrap();
    let command = c.read_u16(region::CONFIG, 4).unwrap();
    c.region_write(region::CONFIG, 4, &(command & !7).to_le_bytes())
        .unwrap();
    c.reset().unwrap();
    c.arm(irq::INTX, 0, &[&intx]).unwrap();
    for bar in 0..6 {
        c.write_u32(region::CONFIG, 0x10 + 4 * bar, 0).unwrap();
    }
    rig.wait_seen(|s| *s == Seen::Reset(ResetCause::Client));
    assert!(silent(&intx));
    // 7. The firmware shadows the BIOS: RAM goes and comes back in pieces, pipelined, again and again.
    for round in 0..20 {
        shadow(&rig, &mut c, &ram, round);
    }
    // 8. Enumeration: BARs are sized, placed and enabled.
    for (bar, size) in [(0u64, 0xffff_e000u32), (1, 0xffff_ffc1), (2, 0)] {
        let at = 0x10 + 4 * bar;
        c.write_u32(region::CONFIG, at, u32::MAX).unwrap();
        assert_eq!(c.read_u32(region::CONFIG, at).unwrap(), size);
    }
    c.write_u32(region::CONFIG, 0x10, 0xfebc_0000).unwrap();
    c.write_u32(region::CONFIG, 0x14, 0xc001).unwrap();
    c.region_write(region::CONFIG, 4, &0x103u16.to_le_bytes())
        .unwrap();
    assert_eq!(c.read_u16(region::CONFIG, 4).unwrap(), 0x103);
    c.post_u32(0, 0x20, 5).unwrap();
    assert_eq!(c.read_u32(0, 0x20).unwrap(), 5);
    let count = rig.stop();
    for counter in [
        "malformed_payload",
        "dma_maps_refused",
        "dma_unmaps_refused",
        "refused_bad_irq",
        "surplus_fds",
    ] {
        assert_eq!(count(counter), 0, "{counter}");
    }
}

#[test]
fn cloud_hypervisor_asks_every_region_and_unmasks_after_every_access() {
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    let ask = DeviceInfo {
        argsz: 32,
        ..DeviceInfo::default()
    };
    c.request(Command::GetInfo, &ask.to_bytes(), &[]).unwrap();
    for index in 0..9 {
        let ask = RegionInfo {
            argsz: 32 + 16 * 8,
            index,
            ..RegionInfo::default()
        };
        c.request(Command::GetRegionInfo, &ask.to_bytes(), &[])
            .unwrap();
    }
    for index in 0..5 {
        let ask = IrqInfo {
            argsz: 16,
            index,
            ..IrqInfo::default()
        };
        c.request(Command::GetIrqInfo, &ask.to_bytes(), &[])
            .unwrap();
    }
    let e = EventFd::new().unwrap();
    c.arm(irq::INTX, 0, &[&e]).unwrap();
    for i in 0..100 {
        let up = i % 3 != 0;
        rig.irq.set_line(up);
        c.read_u32(0, 0).unwrap();
        c.unmask(irq::INTX, 0).unwrap();
        assert_eq!(e.take() > 0, up, "round {i}");
    }
}

#[test]
fn kvm_takes_intx_over_with_a_resampler_and_gives_it_back() {
    let rig = Rig::new();
    let mut c = rig.client();
    let (e, resample) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    c.arm(irq::INTX, 0, &[&e]).unwrap();
    c.mask(irq::INTX, 0).unwrap();
    c.resample(&resample).unwrap();
    c.unmask(irq::INTX, 0).unwrap();
    rig.irq.set_line(true);
    assert_eq!(e.take(), 1);
    // The resampler is taken back: an EVENTFD|UNMASK without a descriptor.
    let flags = irq_set::DATA_EVENTFD | irq_set::ACTION_UNMASK;
    c.set_irqs(flags, irq::INTX, 0, 1, &[], &[]).unwrap();
    resample.signal();
    assert!(silent(&e));
    c.unmask(irq::INTX, 0).unwrap();
    assert_eq!(e.take(), 1);
}

#[test]
fn a_storm_of_posted_writes_costs_no_reply() {
    let rig = Rig::new();
    let mut c = rig.client();
    for i in 0..20_000u32 {
        let access = RegionAccess {
            offset: u64::from(i % 64) * 4,
            region: 0,
            count: 4,
        };
        let payload = [&access.to_bytes()[..], &i.to_le_bytes()].concat();
        let header = Header {
            flags: 1 << 4,
            ..Header::command(i as u16, Command::RegionWrite, payload.len())
        };
        let message = [&header.to_bytes()[..], &payload].concat();
        c.send_raw(&message, &[]).unwrap();
    }
    assert_eq!(c.read_u32(0, 63 * 4).unwrap(), 19_967);
    let count = rig.stop();
    assert_eq!(count("posted_writes"), 20_000);
    // One for the version, one for the read: posted writes cost no send.
    assert_eq!(count("send_calls"), 2);
}
