//! Proved by an independent client: the `vfio_user` crate that cloud-hypervisor uses.

mod common;

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use common::{Rig, Seen, WAIT, silent};
use hypernic_vfio_user::codec::{irq, irq_set};
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::{ClientEvent, DmaChange, EventFd, ResetCause, SharedMem};
use peer_vfio_user::Client;

#[test]
fn the_crate_finds_the_device() {
    let rig = Rig::with_mmap();
    let peer = Client::new(&rig.path).unwrap();
    assert!(peer.region(0).is_some_and(|r| r.size == 0x2000));
    assert!(peer.region(7).is_some_and(|r| r.size == 256));
    let mapped = peer.region(2).unwrap();
    assert_eq!(mapped.sparse_areas.len(), 2);
    let file = mapped.file_offset.as_ref().unwrap();
    assert_eq!(file.start(), 0);
    assert!(file.file().metadata().unwrap().len() >= 0x4000);
}

#[test]
fn the_crate_reads_and_writes_registers() {
    let rig = Rig::new();
    let mut peer = Client::new(&rig.path).unwrap();
    let mut id = [0; 4];
    peer.region_read(7, 0, &mut id).unwrap();
    assert_eq!(id, [0x86, 0x80, 0x0e, 0x10]);
    peer.region_write(0, 0x20, &[1, 2, 3, 4]).unwrap();
    let mut back = [0; 4];
    peer.region_read(0, 0x20, &mut back).unwrap();
    assert_eq!(back, [1, 2, 3, 4]);
    // Outside: an error reply would leave this client waiting for ever.
    peer.region_read(0, 1 << 40, &mut back).unwrap();
    assert_eq!(back, [0xff; 4]);
}

#[test]
fn the_crate_maps_and_unmaps_memory() {
    let rig = Rig::new();
    let mut peer = Client::new(&rig.path).unwrap();
    let ram = SharedMem::new("ram", 0x2000).unwrap();
    let fd = std::os::fd::AsFd::as_fd(&ram).as_raw_fd();
    peer.dma_map(0x1000, 0x8000, 0x1000, fd).unwrap();
    rig.wait_seen(|s| {
        matches!(
            s,
            Seen::Dma(DmaChange::Mapped {
                iova: 0x8000,
                len: 0x1000,
                prot: Prot::RW,
                shared: true
            })
        )
    });
    rig.dma.memory().view().write(0x8004, b"from us").unwrap();
    let mut back = [0; 7];
    ram.read(0x1004, &mut back);
    assert_eq!(&back, b"from us");
    peer.dma_unmap(0x8000, 0x1000).unwrap();
    assert!(rig.dma.memory().regions().is_empty());
    // Not there any more, and the client is not left waiting for a full reply.
    peer.dma_unmap(0x8000, 0x1000).unwrap();
    assert!(rig.dma.memory().view().read(0x8004, &mut back).is_err());
}

#[test]
fn the_crate_gets_interrupts() {
    let rig = Rig::new();
    let mut peer = Client::new(&rig.path).unwrap();
    assert_eq!(peer.get_irq_info(irq::INTX).unwrap().count, 1);
    assert_eq!(peer.get_irq_info(irq::MSIX).unwrap().count, 70);
    let trigger = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    let e = EventFd::new().unwrap();
    let fd = std::os::fd::AsFd::as_fd(&e).as_raw_fd();
    peer.set_irqs(irq::INTX, trigger, 0, 1, &[fd]).unwrap();
    rig.irq.set_line(true);
    assert_eq!(e.wait(WAIT), Some(1));
    assert!(silent(&e));
    // cloud-hypervisor unmasks after every trapped access.
    let unmask = irq_set::DATA_NONE | irq_set::ACTION_UNMASK;
    peer.set_irqs(irq::INTX, unmask, 0, 1, &[]).unwrap();
    assert_eq!(e.wait(WAIT), Some(1));
    rig.irq.set_line(false);
    let disable = irq_set::DATA_NONE | irq_set::ACTION_TRIGGER;
    peer.set_irqs(irq::INTX, disable, 0, 0, &[]).unwrap();
    peer.set_irqs(irq::MSIX, trigger, 9, 1, &[fd]).unwrap();
    rig.irq.msix(9);
    assert_eq!(e.wait(WAIT), Some(1));
}

#[test]
fn the_crate_resets_and_leaves() {
    // `resettable()` of the crate is inverted: it sends RESET only when it was not offered.
    let rig = Rig::start(|page| common::description(page, false).resettable(false));
    let mut peer = Client::new(&rig.path).unwrap();
    peer.region_write(0, 0, &[9]).unwrap();
    peer.reset().unwrap();
    rig.wait_seen(|s| *s == Seen::Reset(ResetCause::Client));
    let mut back = [1];
    peer.region_read(0, 0, &mut back).unwrap();
    assert_eq!(back, [0]);
    peer.shutdown().unwrap();
    rig.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    let mut next = Client::new(&rig.path).unwrap();
    next.region_read(0, 0, &mut back).unwrap();
}

#[test]
fn the_crate_shares_a_page() {
    let rig = Rig::with_mmap();
    let mut peer = Client::new(&rig.path).unwrap();
    peer.region_write(2, 0x1010, &7u32.to_le_bytes()).unwrap();
    let file = peer.region(2).unwrap().file_offset.clone().unwrap();
    let fd = file.file().try_clone().unwrap().into();
    let page = SharedMem::from_fd(fd, 0x1000, 0x1000).unwrap();
    assert_eq!(page.load_u32(0x10, Ordering::SeqCst), 7);
}
