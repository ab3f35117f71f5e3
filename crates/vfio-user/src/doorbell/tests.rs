//! What the server and other threads make of words in memory.

use std::os::fd::AsFd;

use super::*;
use crate::device::ResetCause;

const BASE: u32 = 0x1000;
const ENABLE: u32 = 0x1028;
const TAIL: u32 = 0x1018;
const ON: u32 = 1;
/// On no page.
const CONTROL: u32 = 0x100;

/// Keeps what is written.
struct Plain(Vec<u32>);

impl Device for Plain {
    fn bar_read(&mut self, _: u8, offset: u64, data: &mut [u8]) {
        data.copy_from_slice(&self.0[offset as usize / 4].to_le_bytes());
    }

    fn bar_write(&mut self, _: u8, offset: u64, data: &[u8]) {
        let word = data.try_into().map(u32::from_le_bytes);
        self.0[offset as usize / 4] = word.expect("four bytes");
    }

    fn reset(&mut self, _: ResetCause) {}
}

/// The tail that another thread gets.
fn taken(bell: &MappedDoorbells, queue: u32) -> Option<u32> {
    let mut got = None;
    let told = bell.take(queue, &mut |tail| got = Some(tail));
    assert_eq!(told, got.is_some());
    assert!(!told || bell.has_moved(queue));
    got
}

fn ring(at: u32, enable: u32) -> QueueDoorbell {
    QueueDoorbell {
        setup: vec![BASE + at],
        head: BASE + 0x10 + at,
        enable: (enable, ON),
        tail: TAIL + at,
    }
}

fn of_rings(queues: Vec<QueueDoorbell>) -> Registers {
    let layout = Doorbells {
        pages: vec![(0x1000, 0x1000)],
        queues,
        touched_by: std::iter::once(CONTROL..CONTROL + 4).collect(),
        ..Doorbells::default()
    };
    assert!(layout.valid());
    Registers::new(layout, 0x2000)
}

#[test]
fn a_tail_that_moved_is_told_while_its_queue_is_set_up_as_it_was() {
    let mut device = Plain(vec![0; 0x1000]);
    let mut registers = of_rings(vec![ring(0, ENABLE), ring(0x100, ENABLE + 0x100)]);
    registers.share(&mut device).expect("memory");
    let bell = registers.bell().expect("shared").clone();
    let store = |at: u32, value| bell.0.area.store_u32(at as usize, value, Ordering::Release);
    store(BASE, 0x5000);
    store(ENABLE, ON);
    store(TAIL, 7);
    assert_eq!(taken(&bell, 0), None, "it is not known to be on");
    registers.look(&mut device);
    assert_eq!(taken(&bell, 0), None, "it was acted upon");
    store(TAIL, 9);
    assert_eq!(taken(&bell, 0), Some(9));
    assert_eq!((taken(&bell, 1), taken(&bell, 2)), (None, None));
    // The tail is of another ring, or of one that is off.
    for (at, old, new) in [(BASE, 0x5000, 0x6000), (ENABLE, ON, 0)] {
        store(at, new);
        assert_eq!(taken(&bell, 0), None, "{at:#x}");
        store(at, old);
        assert_eq!(taken(&bell, 0), Some(9), "{at:#x}");
    }
    store(BASE, 0x6000);
    registers.look(&mut device);
    assert_eq!(taken(&bell, 0), None);
    store(TAIL, 10);
    assert_eq!(
        (taken(&bell, 0), device.0[BASE as usize / 4]),
        (Some(10), 0x6000)
    );
    registers.unshare();
    assert_eq!(taken(&bell, 0), None, "its client is gone");
}

#[test]
fn a_tail_that_has_come_round_to_where_the_server_saw_it_is_not_forgotten() {
    let mut device = Plain(vec![0; 0x1000]);
    let mut registers = of_rings(vec![ring(0, ENABLE)]);
    registers.share(&mut device).expect("memory");
    let bell = registers.bell().expect("shared").clone();
    let store = |at: u32, value| bell.0.area.store_u32(at as usize, value, Ordering::Release);
    let load = |at: u32| bell.0.area.load_u32(at as usize, Ordering::Acquire);
    store(ENABLE, ON);
    store(TAIL, 7);
    registers.look(&mut device);
    // A thread with frames gives the device a tail of its own accord, then the guest goes on, once round the ring.
    store(TAIL, 200);
    assert_eq!(taken(&bell, 0), Some(200));
    device.0[TAIL as usize / 4] = 200;
    store(TAIL, 7);
    // What the device has is not shown in its place.
    registers.refresh(&mut device);
    assert_eq!(load(TAIL), 7);
    assert_eq!(taken(&bell, 0), Some(7), "it has moved since");
    assert_eq!(registers.look(&mut device).tails, 1);
    assert_eq!(device.0[TAIL as usize / 4], 7);
    assert_eq!(taken(&bell, 0), None);
}

#[test]
fn a_queue_that_an_access_enables_can_ring_from_then_on() {
    let mut device = Plain(vec![0; 0x1000]);
    let mut registers = of_rings(vec![ring(0, CONTROL)]);
    registers.share(&mut device).expect("memory");
    let bell = registers.bell().expect("shared").clone();
    let store = |at: u32, value| bell.0.area.store_u32(at as usize, value, Ordering::Release);
    store(TAIL, 7);
    // What a client stores there is on no page, and nothing.
    store(CONTROL, ON);
    registers.look(&mut device);
    assert!(!bell.is_live() && device.0[CONTROL as usize / 4] == 0);
    store(CONTROL, 0x5555_5555);
    device.bar_write(0, CONTROL.into(), &ON.to_le_bytes());
    registers.written(&mut device, 0, CONTROL.into(), 4);
    assert!(bell.is_live());
    store(TAIL, 9);
    assert_eq!(taken(&bell, 0), Some(9));
    device.bar_write(0, CONTROL.into(), &[0; 4]);
    registers.written(&mut device, 0, CONTROL.into(), 4);
    assert!(!bell.is_live() && taken(&bell, 0).is_none());
    // A window in another BAR leads to it as well.
    device.bar_write(0, CONTROL.into(), &ON.to_le_bytes());
    registers.written(&mut device, 2, 4, 4);
    assert!(bell.is_live());
    let (memory, seen) = registers.hand_over().expect("shared");
    let file = memory.as_fd().try_clone_to_owned().expect("a descriptor");
    let mut next = of_rings(vec![ring(0, CONTROL)]);
    next.take_over(file, &seen, false).expect("the same");
    assert!(next.bell().is_some_and(MappedDoorbells::is_live));
}

/// A device whose guest goes on while it is told of a tail.
struct Underway {
    plain: Plain,
    bell: Option<MappedDoorbells>,
}

impl Device for Underway {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.plain.bar_read(bar, offset, data);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if let Some(bell) = &self.bell
            && offset == u64::from(TAIL)
        {
            bell.0.area.store_u32(TAIL as usize, 9, Ordering::Release);
            assert!(bell.has_moved(0));
            assert_eq!(taken(bell, 0), None, "the device would go back to 7");
        }
        self.plain.bar_write(bar, offset, data);
    }

    fn reset(&mut self, _: ResetCause) {}
}

#[test]
fn a_later_tail_is_never_followed_by_an_earlier_one() {
    let mut device = Underway {
        plain: Plain(vec![0; 0x1000]),
        bell: None,
    };
    let mut registers = of_rings(vec![ring(0, ENABLE)]);
    registers.share(&mut device).expect("memory");
    let bell = registers.bell().expect("shared").clone();
    let store = |at: u32, value| bell.0.area.store_u32(at as usize, value, Ordering::Release);
    store(ENABLE, ON);
    registers.look(&mut device);
    device.bell = Some(bell.clone());
    store(TAIL, 7);
    registers.look(&mut device);
    assert_eq!(device.plain.0[TAIL as usize / 4], 7);
    // The other way round: who looks at all registers waits for the other thread, and then takes what is there.
    device.bell = None;
    let told = bell.take(0, &mut |tail| {
        assert_eq!(tail, 9);
        std::thread::scope(|scope| {
            let look = scope.spawn(|| bell.0.tails[0].taking.try_lock().is_none());
            assert!(look.join().expect("it ends"), "it does not wait");
        });
    });
    assert!(told);
    registers.look(&mut device);
    assert_eq!(device.plain.0[TAIL as usize / 4], 9);
}

#[test]
fn after_a_death_a_head_is_the_guests_only_if_the_guest_has_stored_it() {
    const HEAD: u32 = BASE + 0x10;
    let ours = [(pair(5, 5), 5), (pair(5, 9), 5), (pair(5, 9), 9)];
    let theirs = [(pair(5, 5), 0), (pair(5, 9), 0)];
    for (kept, stored) in ours.into_iter().chain(theirs) {
        let mut device = Plain(vec![0; 0x1000]);
        let heads: &'static [AtomicU64] = Box::leak(Box::new([AtomicU64::new(1)]));
        let mut dead = of_rings(vec![ring(0, ENABLE)]);
        assert!(!dead.keep(&[]) && dead.keep(heads));
        dead.share(&mut device).expect("memory");
        assert_eq!(heads[0].load(Ordering::Acquire), pair(0, 0));
        device.0[HEAD as usize / 4] = 3;
        dead.publish(&mut device);
        assert_eq!(heads[0].load(Ordering::Acquire), pair(3, 3));
        // What was committed says 3. It died somewhat later, and the ring stands at 12.
        let (memory, seen) = dead.hand_over().expect("shared");
        let file = memory.as_fd().try_clone_to_owned().expect("a descriptor");
        let area = memory.area(0, 0x2000);
        area.store_u32(HEAD as usize, stored, Ordering::Release);
        heads[0].store(kept, Ordering::Release);
        device.0[HEAD as usize / 4] = 12;
        let mut next = of_rings(vec![ring(0, ENABLE)]);
        assert!(next.keep(heads));
        next.take_over(file, &seen, true).expect("the same");
        next.look(&mut device);
        next.publish(&mut device);
        let stands = if stored == 0 { 0 } else { 12 };
        let shown = area.load_u32(HEAD as usize, Ordering::Acquire);
        assert_eq!((device.0[HEAD as usize / 4], shown), (stands, stands));
        assert_eq!(heads[0].load(Ordering::Acquire), pair(stands, stands));
    }
}
