//! What real clients need of a server, one test per fact. The numbers group them:
//! 6.1 own library, 6.2 asynchronous device, 6.3 interrupts, 6.4 regions, 6.5 robustness,
//! 6.6 life cycle.

use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::{DMA_DONE, DMA_READ, KICK, MSIX, Rig, Seen, WAIT, silent};
use hypernic_vfio_user::codec::{
    Command, DeviceInfo, DmaMap, DmaUnmap, Header, RegionAccess, RegionInfo, SetIrqs, flags, irq,
    irq_set, region, region_flags,
};
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::{
    Client, ClientError, ClientEvent, ClientOptions, Device, DeviceDescription, EventFd,
    GoneReason, Listener, ResetCause, Server, SharedMem, Work,
};

fn raw(command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        flags,
        ..Header::command(7, command, payload.len())
    };
    [&header.to_bytes()[..], payload].concat()
}

fn access(region: u32, offset: u64, count: u32) -> [u8; 16] {
    RegionAccess {
        offset,
        region,
        count,
    }
    .to_bytes()
}

// 6.2 ---------------------------------------------------------------------------------------------

#[test]
fn fact_6_2_a_register_is_answered_while_message_dma_waits_for_the_client() {
    let rig = Rig::new();
    // As QEMU does, this client serves no DMA while a vCPU waits for a register.
    let mut c = rig.client_with(ClientOptions {
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    ram.write(0x40, b"hello");
    c.dma_map_without_fd(0x10_0000, Some((&ram, 0)), 0x1000, Prot::RW)
        .unwrap();
    c.region_write(0, DMA_READ, &0x10_0040u64.to_le_bytes())
        .unwrap();
    assert_eq!(c.read_u32(0, DMA_DONE).unwrap(), 0);
    assert_eq!(c.serve_dma(WAIT).unwrap(), 1);
    let done = rig.wait_seen(|s| matches!(s, Seen::DmaDone(..)));
    let Seen::DmaDone(_, Ok(data)) = done else {
        panic!("{done:?}");
    };
    assert_eq!((&data[..5], data.len()), (&b"hello"[..], 64));
    assert_eq!(c.read_u32(0, DMA_DONE).unwrap(), 1);
}

#[test]
fn fact_6_2_the_twin_socket_is_used_when_offered() {
    let rig = Rig::new();
    let mut c = rig.client_with(ClientOptions {
        twin_socket: true,
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    ram.write(0, b"twin");
    c.dma_map_without_fd(0, Some((&ram, 0)), 0x1000, Prot::RW)
        .unwrap();
    c.region_write(0, DMA_READ, &0u64.to_le_bytes()).unwrap();
    // Nothing but replies may come on the main socket, so the whole answer can be read raw.
    let mut main = std::os::unix::net::UnixStream::from(c.as_fd().try_clone_to_owned().unwrap());
    main.set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    assert!(main.read(&mut [0; 1]).is_err());
    assert_eq!(c.serve_dma(WAIT).unwrap(), 1);
    let done = rig.wait_seen(|s| matches!(s, Seen::DmaDone(..)));
    assert!(matches!(done, Seen::DmaDone(_, Ok(data)) if data.starts_with(b"twin")));
}

/// Its work waits until the client has had the answer to its read.
struct Patient {
    kicked: bool,
    answered: std::sync::mpsc::Receiver<()>,
    in_time: bool,
}

impl Device for Patient {
    fn bar_read(&mut self, _: u8, _: u64, data: &mut [u8]) {
        self.kicked = true;
        data.fill(1);
    }
    fn bar_write(&mut self, _: u8, _: u64, _: &[u8]) {}
    fn reset(&mut self, _: ResetCause) {}
    fn work(&mut self) -> Work {
        if std::mem::take(&mut self.kicked) {
            self.in_time = self.answered.recv_timeout(WAIT).is_ok();
        }
        Work::Idle
    }
}

#[test]
fn fact_6_2_work_is_done_after_the_reply() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let description = crate::common::description(&crate::common::page(), false);
    let mut server = Server::new(description, Listener::from_connected(theirs.into())).unwrap();
    let (tell, answered) = std::sync::mpsc::channel();
    let mut device = Patient {
        kicked: false,
        answered,
        in_time: false,
    };
    let stop = EventFd::new().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut c = Client::open(ours.into(), ClientOptions::default()).unwrap();
            c.negotiate().unwrap();
            assert_eq!(c.read_u32(0, 0).unwrap(), 0x0101_0101);
            tell.send(()).unwrap();
        });
        server.run(&mut device, &stop).unwrap();
    });
    assert!(device.in_time);
}

// 6.3 ---------------------------------------------------------------------------------------------

#[test]
fn fact_6_3_intx_is_automasked_until_an_unmask_message() {
    let rig = Rig::new();
    let mut c = rig.client();
    let e = EventFd::new().unwrap();
    c.arm(irq::INTX, 0, &[&e]).unwrap();
    rig.irq.set_line(true);
    assert_eq!(e.wait(WAIT), Some(1));
    rig.irq.set_line(false);
    rig.irq.set_line(true);
    assert!(silent(&e), "masked by the first trigger");
    c.unmask(irq::INTX, 0).unwrap();
    assert_eq!(e.take(), 1, "the level is still high");
    rig.irq.set_line(false);
    c.unmask(irq::INTX, 0).unwrap();
    assert!(silent(&e), "the level is low");
    rig.irq.set_line(true);
    assert_eq!(e.take(), 1);
}

#[test]
fn fact_6_3_intx_is_unmasked_by_the_resample_eventfd() {
    let rig = Rig::new();
    let mut c = rig.client();
    let (e, resample) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    c.arm(irq::INTX, 0, &[&e]).unwrap();
    // KVM's sequence: mask, resample descriptor, unmask.
    c.mask(irq::INTX, 0).unwrap();
    rig.irq.set_line(true);
    assert!(silent(&e));
    c.resample(&resample).unwrap();
    c.unmask(irq::INTX, 0).unwrap();
    assert_eq!(e.wait(WAIT), Some(1));
    for _ in 0..5 {
        resample.signal();
        assert_eq!(e.wait(WAIT), Some(1), "still asserted");
    }
    rig.irq.set_line(false);
    resample.signal();
    assert!(silent(&e));
    c.disarm(irq::INTX).unwrap();
    c.arm(irq::INTX, 0, &[&e]).unwrap();
    rig.irq.set_line(true);
    assert_eq!(e.wait(WAIT), Some(1));
    resample.signal();
    assert!(silent(&e), "disabling the index forgets the resampler");
}

#[test]
fn fact_6_3_the_level_is_evaluated_again_when_an_input_changes() {
    let rig = Rig::new();
    let mut c = rig.client();
    let status = |c: &mut Client| c.read_u16(region::CONFIG, 6).unwrap() & 8 != 0;
    rig.irq.set_line(true);
    assert!(status(&mut c), "status follows the line, armed or not");
    let e = EventFd::new().unwrap();
    c.arm(irq::INTX, 0, &[&e]).unwrap();
    assert_eq!(e.take(), 1, "armed with the line already high");
    c.region_write(region::CONFIG, 4, &[0, 4]).unwrap();
    c.unmask(irq::INTX, 0).unwrap();
    assert!(silent(&e), "COMMAND disables INTx");
    assert!(status(&mut c), "but the status bit stays");
    c.region_write(region::CONFIG, 4, &[0, 0]).unwrap();
    assert_eq!(e.take(), 1, "enabled again with the line high");
    rig.irq.set_line(false);
    assert!(!status(&mut c));
}

#[test]
fn fact_6_3_msix_vectors_without_a_descriptor_are_latched_and_fire_when_it_comes() {
    let rig = Rig::new();
    let mut c = rig.client();
    let pba = u64::from(MSIX.pba_offset);
    // QEMU enables MSI-X by vector 0 with a count of 1 and no descriptor.
    let arm = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    c.set_irqs(arm, irq::MSIX, 0, 1, &[], &[]).unwrap();
    rig.irq.msix(3);
    rig.irq.msix(3);
    rig.irq.msix(65);
    assert_eq!(c.read_u64(0, pba).unwrap(), 1 << 3);
    assert_eq!(c.read_u64(0, pba + 8).unwrap(), 1 << 1);
    assert_eq!(c.read_u32(0, pba + 8).unwrap(), 1 << 1);
    let e: Vec<EventFd> = (0..70).map(|_| EventFd::new().unwrap()).collect();
    let all: Vec<&EventFd> = e.iter().collect();
    c.arm(irq::MSIX, 0, &all).unwrap();
    let counts: Vec<u64> = e.iter().map(EventFd::take).collect();
    let mut expected = vec![0; 70];
    expected[3] = 1;
    expected[65] = 1;
    assert_eq!(counts, expected);
    assert_eq!(c.read_u64(0, pba).unwrap(), 0);
    let count = rig.stop();
    assert_eq!(count("irq_latched"), 2);
    assert_eq!(count("irq_suppressed"), 1);
    assert_eq!(count("irq_triggers"), 2);
}

#[test]
fn fact_6_3_msix_descriptors_can_be_swapped_and_ranges_cleared() {
    let rig = Rig::new();
    let mut c = rig.client();
    let (a, b) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    c.arm(irq::MSIX, 5, &[&a]).unwrap();
    rig.irq.msix(5);
    assert_eq!(a.take(), 1);
    c.arm(irq::MSIX, 5, &[&b]).unwrap();
    rig.irq.msix(5);
    assert_eq!((a.take(), b.take()), (0, 1));
    let arm = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    c.set_irqs(arm, irq::MSIX, 4, 3, &[], &[]).unwrap();
    rig.irq.msix(5);
    assert!(silent(&b));
    c.arm(irq::MSIX, 5, &[&b]).unwrap();
    assert_eq!(b.take(), 1);
}

#[test]
fn fact_6_3_msix_masks_hold_interrupts_back() {
    let rig = Rig::new();
    let mut c = rig.client();
    let e = EventFd::new().unwrap();
    c.arm(irq::MSIX, 1, &[&e]).unwrap();
    let mut cap = c.read_u8(region::CONFIG, 0x34).unwrap();
    while c.read_u8(region::CONFIG, cap.into()).unwrap() != 0x11 {
        cap = c.read_u8(region::CONFIG, u64::from(cap) + 1).unwrap();
    }
    let control = u64::from(cap) + 3;
    let vector_control = u64::from(MSIX.table_offset) + 16 + 12;
    // Function mask, then the table's mask, then SET_IRQS.
    c.region_write(region::CONFIG, control, &[0xc0]).unwrap();
    rig.irq.msix(1);
    assert!(silent(&e));
    assert_eq!(c.read_u64(0, MSIX.pba_offset.into()).unwrap(), 2);
    c.region_write(region::CONFIG, control, &[0x80]).unwrap();
    assert_eq!(e.take(), 1);
    c.write_u32(0, vector_control, 1).unwrap();
    rig.irq.msix(1);
    assert!(silent(&e));
    c.write_u32(0, vector_control, 0).unwrap();
    assert_eq!(e.take(), 1);
    c.mask(irq::MSIX, 1).unwrap();
    rig.irq.msix(1);
    assert!(silent(&e));
    c.unmask(irq::MSIX, 1).unwrap();
    assert_eq!(e.take(), 1);
    // Disabled by the guest with one pending: it is forgotten.
    c.region_write(region::CONFIG, control, &[0xc0]).unwrap();
    rig.irq.msix(1);
    c.region_write(region::CONFIG, control, &[0]).unwrap();
    c.region_write(region::CONFIG, control, &[0x80]).unwrap();
    assert!(silent(&e));
}

#[test]
fn fact_6_3_msi_mask_bits_hold_interrupts_back_and_show_them_pending() {
    let rig = Rig::new();
    let mut c = rig.client();
    let (a, b) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    c.arm(irq::MSI, 0, &[&a, &b]).unwrap();
    // The first capability, 64-bit with masking: mask bits at 0x10, pending bits at 0x14.
    let cap = u64::from(c.read_u8(region::CONFIG, 0x34).unwrap());
    assert_eq!(c.read_u8(region::CONFIG, cap).unwrap(), 5);
    c.region_write(region::CONFIG, cap + 2, &[1]).unwrap();
    c.write_u32(region::CONFIG, cap + 0x10, 2).unwrap();
    rig.irq.msi(0);
    rig.irq.msi(1);
    assert_eq!((a.take(), b.take()), (1, 0));
    assert_eq!(c.read_u32(region::CONFIG, cap + 0x14).unwrap(), 2);
    c.write_u32(region::CONFIG, cap + 0x10, 0).unwrap();
    assert_eq!(b.take(), 1);
    assert_eq!(c.read_u32(region::CONFIG, cap + 0x14).unwrap(), 0);
}

#[test]
fn fact_6_3_bool_and_none_trigger_mask_and_unmask() {
    let rig = Rig::new();
    let mut c = rig.client();
    let e: Vec<EventFd> = (0..4).map(|_| EventFd::new().unwrap()).collect();
    c.arm(irq::MSIX, 0, &[&e[0], &e[1], &e[2], &e[3]]).unwrap();
    let taken = || -> Vec<u64> { e.iter().map(EventFd::take).collect() };
    let none = irq_set::DATA_NONE;
    let bools = irq_set::DATA_BOOL;
    let trigger = irq_set::ACTION_TRIGGER;
    c.set_irqs(none | trigger, irq::MSIX, 1, 2, &[], &[])
        .unwrap();
    assert_eq!(taken(), [0, 1, 1, 0]);
    c.set_irqs(bools | trigger, irq::MSIX, 0, 4, &[1, 0, 0, 1], &[])
        .unwrap();
    assert_eq!(taken(), [1, 0, 0, 1]);
    let mask = irq_set::ACTION_MASK;
    c.set_irqs(bools | mask, irq::MSIX, 0, 2, &[1, 0], &[])
        .unwrap();
    rig.irq.msix(0);
    rig.irq.msix(1);
    assert_eq!(taken(), [0, 1, 0, 0]);
    let unmask = irq_set::ACTION_UNMASK;
    c.set_irqs(bools | unmask, irq::MSIX, 0, 1, &[1], &[])
        .unwrap();
    assert_eq!(taken(), [1, 0, 0, 0]);
    // Eventfds can mask and unmask a message vector too.
    let (m, u) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    let by_fd = irq_set::DATA_EVENTFD;
    c.set_irqs(by_fd | mask, irq::MSIX, 0, 1, &[], &[m.as_fd()])
        .unwrap();
    c.set_irqs(by_fd | unmask, irq::MSIX, 0, 1, &[], &[u.as_fd()])
        .unwrap();
    m.signal();
    let mut fired = 1;
    for _ in 0..500 {
        rig.irq.msix(0);
        fired = e[0].take();
        if fired == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fired, 0, "masked by its eventfd, at last");
    u.signal();
    assert_eq!(e[0].wait(WAIT), Some(1), "and what was held back comes");
}

#[test]
fn fact_6_3_impossible_interrupt_requests_are_refused() {
    let rig = Rig::new();
    let mut c = rig.client();
    let e = EventFd::new().unwrap();
    let pipe = std::io::pipe().unwrap();
    let (none, bools, by_fd) = (
        irq_set::DATA_NONE,
        irq_set::DATA_BOOL,
        irq_set::DATA_EVENTFD,
    );
    let (mask, trigger) = (irq_set::ACTION_MASK, irq_set::ACTION_TRIGGER);
    let one = [e.as_fd()];
    let two = [e.as_fd(), e.as_fd()];
    let wrong = [pipe.1.as_fd()];
    type Request<'a> = (
        u32,
        u32,
        u32,
        u32,
        &'a [u8],
        &'a [std::os::fd::BorrowedFd<'a>],
    );
    let cases: &[Request] = &[
        (none | trigger, 5, 0, 1, &[], &[]),
        (none | trigger, u32::MAX, 0, 1, &[], &[]),
        (none | trigger, irq::MSIX, 70, 1, &[], &[]),
        (none | trigger, irq::MSIX, 69, 2, &[], &[]),
        (none | trigger, irq::MSIX, u32::MAX, 2, &[], &[]),
        (none | trigger, irq::MSIX, 1, u32::MAX, &[], &[]),
        (none | trigger, irq::MSIX, 1, 0, &[], &[]),
        (none | mask, irq::MSIX, 0, 0, &[], &[]),
        (none, irq::MSIX, 0, 1, &[], &[]),
        (trigger, irq::MSIX, 0, 1, &[], &[]),
        (none | bools | trigger, irq::MSIX, 0, 1, &[], &[]),
        (none | mask | trigger, irq::MSIX, 0, 1, &[], &[]),
        (none | trigger | 1 << 9, irq::MSIX, 0, 1, &[], &[]),
        (bools | trigger, irq::MSIX, 0, 3, &[1, 1], &[]),
        (by_fd | trigger, irq::MSIX, 0, 2, &[], &one),
        (by_fd | trigger, irq::MSIX, 0, 1, &[], &two),
        (by_fd | trigger, irq::MSIX, 0, 1, &[], &wrong),
    ];
    for (i, (flags, index, start, count, data, fds)) in cases.iter().enumerate() {
        let result = c.set_irqs(*flags, *index, *start, *count, data, fds);
        assert!(
            matches!(result, Err(ClientError::Refused { errno: 22, .. })),
            "case {i}: {result:?}"
        );
    }
    let count = rig.stop();
    assert_eq!(count("refused_bad_irq"), cases.len() as u64);
    assert_eq!(count("refused_bad_eventfd"), 1);
}

#[test]
fn fact_6_3_a_reset_lowers_the_line_and_forgets_what_is_pending() {
    let rig = Rig::new();
    let mut c = rig.client();
    rig.irq.set_line(true);
    rig.irq.msix(2);
    c.reset().unwrap();
    assert_eq!(c.read_u64(0, MSIX.pba_offset.into()).unwrap(), 0);
    assert_eq!(c.read_u16(region::CONFIG, 6).unwrap() & 8, 0);
    let (a, b) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    c.arm(irq::INTX, 0, &[&a]).unwrap();
    c.arm(irq::MSIX, 2, &[&b]).unwrap();
    assert!(silent(&a) && silent(&b));
}

#[test]
fn fact_6_3_requests_of_one_batch_take_effect_in_order() {
    let rig = Rig::new();
    let mut c = rig.client();
    let (e, resample) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    let set = |flags, count| {
        SetIrqs {
            argsz: 20,
            flags,
            index: irq::INTX,
            start: 0,
            count,
        }
        .to_bytes()
    };
    let arm = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    let by_fd = irq_set::DATA_EVENTFD | irq_set::ACTION_UNMASK;
    let disable = irq_set::DATA_NONE | irq_set::ACTION_TRIGGER;
    let mut ids = Vec::new();
    for (flags, count, fd) in [
        (by_fd, 1, Some(&resample)),
        (by_fd, 1, Some(&resample)),
        (disable, 0, None),
        (arm, 1, Some(&e)),
    ] {
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        ids.push(c.start(Command::SetIrqs, &set(flags, count), &fds).unwrap());
    }
    c.flush().unwrap();
    for id in ids {
        c.finish(id).unwrap();
    }
    rig.irq.set_line(true);
    assert_eq!(e.take(), 1);
    resample.signal();
    assert!(silent(&e), "the resamplers went with the index");
}

#[test]
fn fact_6_3_what_is_no_eventfd_is_refused_before_it_is_used() {
    use rustix::event::{EventfdFlags, epoll};
    let rig = Rig::new();
    let mut c = rig.client();
    // All of them are anonymous, as an eventfd is, and to read or to poll some of them is to take a lock that their
    // owner may hold.
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let timer = rustix::time::timerfd_create(
        rustix::time::TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::CLOEXEC,
    )
    .unwrap();
    let process = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    )
    .unwrap();
    let named = SharedMem::new("anon_inode:[eventfd]", 4096).unwrap();
    let none = [set.as_fd(), timer.as_fd(), process.as_fd(), named.as_fd()];
    let actions = [
        irq_set::ACTION_TRIGGER,
        irq_set::ACTION_MASK,
        irq_set::ACTION_UNMASK,
    ];
    for (fd, action) in none.iter().flat_map(|fd| actions.map(|a| (*fd, a))) {
        let result = c.set_irqs(irq_set::DATA_EVENTFD | action, irq::INTX, 0, 1, &[], &[fd]);
        assert!(
            matches!(result, Err(ClientError::Refused { errno: 22, .. })),
            "{result:?}"
        );
    }
    // A semaphore is an eventfd, and a counter of the peer's is too.
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
    let semaphore = rustix::event::eventfd(0, flags).unwrap();
    let flags = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    c.set_irqs(flags, irq::INTX, 0, 1, &[], &[semaphore.as_fd()])
        .unwrap();
    assert_eq!(rig.stop()("refused_bad_eventfd"), 12);
}

#[test]
fn fact_6_3_no_interrupt_is_lost_between_a_device_thread_and_an_unmask() {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    const EVENTS: u32 = 20_000;
    let rig = Rig::new();
    let mut c = rig.client();
    let (line, message) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    c.arm(irq::INTX, 0, &[&line]).unwrap();
    c.arm(irq::MSIX, 0, &[&message]).unwrap();
    let (causes, messages) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..EVENTS {
                causes.fetch_add(1, SeqCst);
                rig.irq.set_line(true);
                messages.fetch_add(1, SeqCst);
                rig.irq.msix(0);
            }
        });
        // A driver with a level: lower the line, take the causes, raise it again if more came.
        let mut seen = 0;
        while seen < EVENTS {
            assert!(line.wait(WAIT).is_some(), "lost after {seen}");
            rig.irq.set_line(false);
            seen += causes.swap(0, SeqCst);
            if causes.load(SeqCst) > 0 {
                rig.irq.set_line(true);
            }
            c.unmask(irq::INTX, 0).unwrap();
        }
        // And one with messages, which masks while it works.
        let mut seen = 0;
        while seen < EVENTS {
            assert!(message.wait(WAIT).is_some(), "lost after {seen}");
            c.mask(irq::MSIX, 0).unwrap();
            seen += messages.swap(0, SeqCst);
            c.unmask(irq::MSIX, 0).unwrap();
        }
    });
}

// 6.4 ---------------------------------------------------------------------------------------------

#[test]
fn fact_6_4_a_register_works_through_its_page_and_by_message_at_once() {
    use std::sync::atomic::Ordering::SeqCst;
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    let bar = c.region_info(2).unwrap();
    let areas: Vec<(u64, u64)> = bar.areas.iter().map(|a| (a.offset, a.size)).collect();
    assert_eq!(areas, [(0x1000, 0x1000), (0x3000, 0x1000)]);
    for (i, area) in bar.areas.iter().enumerate() {
        let page = bar.map(area).unwrap();
        page.store_u32(0x18, 0x1111 + i as u32, SeqCst);
        let at = area.offset + 0x18;
        assert_eq!(c.read_u32(2, at).unwrap(), 0x1111 + i as u32);
        assert_eq!(rig.page.load_u32(at as usize, SeqCst), 0x1111 + i as u32);
        c.write_u32(2, at, 0x2222).unwrap();
        assert_eq!(page.load_u32(0x18, SeqCst), 0x2222);
    }
    // A trapped page of the same BAR.
    c.write_u32(2, 0x2000, 3).unwrap();
    assert_eq!(c.read_u32(2, 0x2000).unwrap(), 3);
}

#[test]
fn fact_6_4_impossible_mappable_areas_are_refused_when_the_device_is_described() {
    use hypernic_vfio_user::SparseArea;
    use hypernic_vfio_user::pci::Bar;
    let (_, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    let area = |offset, size| SparseArea { offset, size };
    let cases: &[(Bar, usize, &[SparseArea])] = &[
        (Bar::memory32(0x4000), 0x4000, &[]),
        (Bar::memory32(0x4000), 0x4000, &[area(0x10, 0x1000)]),
        (Bar::memory32(0x4000), 0x4000, &[area(0x4000, 0x1000)]),
        (
            Bar::memory32(0x4000),
            0x4000,
            &[area(0x1000, 0x1000), area(0x1000, 0x1000)],
        ),
        (Bar::memory32(0x4000), 0x4000, &[area(0x1000, !0xfff)]),
        (Bar::memory32(0x4000), 0x1000, &[area(0, 0x1000)]),
        (Bar::io(256), 0x1000, &[area(0, 0x1000)]),
    ];
    for (i, (bar, len, areas)) in cases.iter().enumerate() {
        let memory = SharedMem::new("bar", *len).unwrap();
        let description = DeviceDescription::new(1, 2)
            .bar(0, *bar)
            .mmap(0, memory, areas);
        let socket = Listener::from_connected(socket.try_clone().unwrap().into());
        assert!(Server::new(description, socket).is_err(), "case {i}");
    }
}

// 6.5 ---------------------------------------------------------------------------------------------

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

// 6.6 ---------------------------------------------------------------------------------------------

#[test]
fn fact_6_6_device_state_outlives_the_client_and_its_memory_does_not() {
    let rig = Rig::new();
    let mut c = rig.client();
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    let e = EventFd::new().unwrap();
    c.dma_map(0, &ram, 0, 0x1000, Prot::RW).unwrap();
    c.arm(irq::MSIX, 0, &[&e]).unwrap();
    c.write_u32(0, 0x40, 0xabcd).unwrap();
    c.region_write(region::CONFIG, 4, &[6, 0]).unwrap();
    assert!(rig.dma.memory().view().read(0, &mut [0; 4]).is_ok());
    drop(c);
    rig.wait_seen(|s| *s == Seen::Client(ClientEvent::Gone(let_go())));
    assert!(rig.dma.memory().regions().is_empty());
    rig.irq.msix(0);
    assert!(silent(&e), "the old client's eventfd is gone");

    let mut c = rig.client();
    assert_eq!(c.read_u32(0, 0x40).unwrap(), 0xabcd);
    assert_eq!(c.read_u16(region::CONFIG, 4).unwrap(), 6);
    c.dma_map(0, &ram, 0, 0x1000, Prot::RW).unwrap();
    c.arm(irq::MSIX, 0, &[&e]).unwrap();
    assert_eq!(e.take(), 1, "what happened in between was latched");
}

#[test]
fn fact_6_6_clients_come_and_go() {
    let rig = Rig::new();
    for i in 0..50 {
        let mut c = rig.client();
        assert_eq!(c.read_u32(0, 0x10).unwrap(), i);
        c.write_u32(0, 0x10, i + 1).unwrap();
    }
    let count = rig.stop();
    assert_eq!(count("clients"), 50);
}

/// Often, because what it looks for is a race: the last client's end lies behind writes that are
/// still to be served when the next one comes.
#[test]
fn fact_6_6_a_client_may_come_as_soon_as_the_last_has_closed() {
    let rig = Rig::new();
    for _ in 0..300 {
        let mut c = rig.client();
        for value in 0..8 {
            c.post_u32(0, 0x10, value).unwrap();
        }
    }
    let count = rig.stop();
    assert_eq!(count("clients"), 300);
    assert_eq!(count("refused_busy"), 0);
}

#[test]
fn fact_6_6_a_second_client_is_refused_at_once_and_the_first_does_not_notice() {
    let rig = Rig::new();
    let mut first = rig.client();
    let start = Instant::now();
    for _ in 0..3 {
        let second = Client::connect(&rig.path);
        // EBUSY, long before any client's time-out of 5 s.
        assert!(matches!(
            second,
            Err(ClientError::Refused {
                command: Command::Version,
                errno: 16
            })
        ));
        assert_eq!(first.read_u32(region::CONFIG, 0).unwrap(), 0x100e_8086);
    }
    assert!(start.elapsed() < Duration::from_secs(4));
    // Some that say nothing must not stand in the way of one that speaks.
    let mute: Vec<Client> = (0..6).map(|_| rig.silent()).collect();
    assert!(matches!(
        Client::connect(&rig.path),
        Err(ClientError::Refused { errno: 16, .. })
    ));
    assert_eq!(first.read_u32(region::CONFIG, 0).unwrap(), 0x100e_8086);
    drop(mute);
    rig.wait_seen(|s| {
        *s == Seen::Client(ClientEvent::Refused(
            "the device is in use by another client",
        ))
    });
    assert_eq!(rig.stop()("refused_busy"), 10);
}

#[test]
fn fact_6_6_a_client_that_leaves_in_the_middle_of_a_message_is_replaced() {
    let rig = Rig::new();
    let message = raw(Command::RegionRead, 0, &access(0, 0, 4));
    for cut in 1..message.len() {
        let mut c = rig.client();
        c.send_raw(&message[..cut], &[]).unwrap();
    }
    assert_eq!(rig.client().info().unwrap().num_regions, 9);
}

#[test]
fn fact_6_6_a_client_that_says_nothing_does_not_hold_the_device_for_ever() {
    let rig = Rig::new();
    let _mute = rig.silent();
    // Retries while it is told "busy"; after a second the mute one has to go.
    assert_eq!(rig.client().info().unwrap().num_regions, 9);
    rig.wait_seen(|s| *s == Seen::Client(ClientEvent::Refused("it said nothing")));
}

/// The client is this very process, which runs on.
fn let_go() -> GoneReason {
    GoneReason::LetGo {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
    }
}

#[test]
fn fact_6_6_a_look_at_the_socket_is_no_client() {
    let rig = Rig::new();
    for _ in 0..3 {
        drop(rig.silent());
    }
    rig.client().info().unwrap();
    rig.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    let clients: Vec<Seen> = rig
        .take_seen()
        .into_iter()
        .filter(|s| matches!(s, Seen::Client(_)))
        .filter(|s| !matches!(s, Seen::Client(ClientEvent::Refused(why)) if why.contains("in use")))
        .collect();
    assert_eq!(
        clients,
        [
            Seen::Client(ClientEvent::Connected),
            Seen::Client(ClientEvent::Gone(let_go()))
        ]
    );
}

#[test]
fn fact_6_6_the_socket_path_is_taken_over_from_the_dead_and_not_from_the_living() {
    use hypernic_vfio_user::ListenError;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // A process that was killed leaves its socket file behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let alive = Listener::bind(&path).unwrap();
    assert!(matches!(Listener::bind(&path), Err(ListenError::InUse(_))));
    drop(alive);
    assert!(!path.exists(), "a clean end leaves nothing behind");
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(
        Listener::bind(&path),
        Err(ListenError::NotASocket(_))
    ));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let long = dir.path().join("x".repeat(120));
    assert!(matches!(Listener::bind(long), Err(ListenError::TooLong(_))));
    let nowhere = dir.path().join("no/such/dir");
    assert!(matches!(
        Listener::bind(nowhere),
        Err(ListenError::Path { .. })
    ));
}

#[test]
fn fact_6_6_an_inherited_listening_socket_serves_one_client_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let inherited = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let listener = Listener::from_fd(inherited.into()).unwrap();
    let mut server = Server::new(
        crate::common::description(&crate::common::page(), false),
        listener,
    )
    .unwrap();
    let stop = EventFd::new().unwrap();
    let (_, answered) = std::sync::mpsc::channel();
    let mut device = Patient {
        kicked: false,
        answered,
        in_time: false,
    };
    std::thread::scope(|s| {
        s.spawn(|| server.run(&mut device, &stop).unwrap());
        for _ in 0..3 {
            let mut c = loop {
                match Client::connect(&path) {
                    Err(ClientError::Refused { .. }) => std::thread::yield_now(),
                    result => break result.unwrap(),
                }
            };
            c.post_u32(0, KICK, 1).unwrap();
            assert_eq!(c.info().unwrap().num_irqs, 5);
        }
        stop.signal();
    });
    assert!(path.exists(), "an inherited socket is not ours to remove");
}
