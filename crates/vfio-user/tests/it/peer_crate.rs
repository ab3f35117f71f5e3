//! Proved by an independent client: the `vfio_user` crate that cloud-hypervisor uses.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use crate::common::{Rig, Seen, WAIT, silent};
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
fn the_crate_gets_messages_of_many_vectors_masked_and_held() {
    let rig = Rig::new();
    let mut peer = Client::new(&rig.path).unwrap();
    // cloud-hypervisor keeps the capability and the table to itself and writes both through.
    let mut config = [0; 256];
    peer.region_read(7, 0, &mut config).unwrap();
    let mut cap = usize::from(config[0x34]);
    while config[cap] != 0x11 {
        cap = usize::from(config[cap + 1]);
        assert_ne!(cap, 0, "no MSI-X capability");
    }
    let control = (cap + 2) as u64;
    let enable = |peer: &mut Client, bits: u16| {
        peer.region_write(7, control, &bits.to_le_bytes()).unwrap();
    };
    const ON: u16 = 1 << 15;
    const MASK: u16 = 1 << 14;
    enable(&mut peer, ON);
    let trigger = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    let events: Vec<_> = (0..3).map(|_| EventFd::new().unwrap()).collect();
    let fds = events
        .iter()
        .map(|e| std::os::fd::AsFd::as_fd(e).as_raw_fd());
    let fds: Vec<_> = fds.collect();
    for (vector, fd) in (0..).zip(&fds) {
        peer.set_irqs(irq::MSIX, trigger, vector, 1, &[*fd])
            .unwrap();
    }
    for (vector, event) in (0..).zip(&events) {
        rig.irq.msix(vector);
        assert_eq!(event.wait(WAIT), Some(1), "vector {vector}");
    }
    let entry = |vector: u64| u64::from(crate::common::MSIX.table_offset) + 16 * vector + 12;
    let pending = |peer: &mut Client| {
        let mut word = [0; 8];
        peer.region_read(0, crate::common::MSIX.pba_offset.into(), &mut word)
            .unwrap();
        u64::from_le_bytes(word)
    };
    // One is masked in the table: it waits, the others fire.
    peer.region_write(0, entry(1), &[1, 0, 0, 0]).unwrap();
    for vector in 0..3 {
        rig.irq.msix(vector);
    }
    assert_eq!(
        (events[0].wait(WAIT), events[2].wait(WAIT)),
        (Some(1), Some(1))
    );
    assert!(silent(&events[1]));
    assert_eq!(pending(&mut peer), 0b010);
    peer.region_write(0, entry(1), &[0, 0, 0, 0]).unwrap();
    assert_eq!((events[1].wait(WAIT), pending(&mut peer)), (Some(1), 0));
    // All are masked at once.
    enable(&mut peer, ON | MASK);
    for vector in [0, 0, 2] {
        rig.irq.msix(vector);
    }
    assert!(events.iter().all(silent));
    assert_eq!(pending(&mut peer), 0b101);
    enable(&mut peer, ON);
    assert_eq!(
        (events[0].wait(WAIT), events[2].wait(WAIT)),
        (Some(1), Some(1))
    );
    assert!(silent(&events[1]), "it was not raised");
    // A vector without a descriptor waits for one.
    rig.irq.msix(5);
    assert_eq!(pending(&mut peer), 1 << 5);
    peer.set_irqs(irq::MSIX, trigger, 5, 1, &[fds[0]]).unwrap();
    assert_eq!((events[0].wait(WAIT), pending(&mut peer)), (Some(1), 0));
}

#[test]
fn the_crate_resets_and_leaves() {
    // `resettable()` of the crate is inverted: it sends RESET only when it was not offered.
    let rig = Rig::start(|page| crate::common::description(page, false).resettable(false));
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
