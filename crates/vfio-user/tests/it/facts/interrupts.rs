//! 6.3: interrupts.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{MSIX, Rig, WAIT, silent};
use hypernic_vfio_user::codec::{Command, SetIrqs, irq, irq_set, region};
use hypernic_vfio_user::{Client, ClientError, EventFd, SharedMem};

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
