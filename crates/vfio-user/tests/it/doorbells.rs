//! Doorbells in memory: what a guest stores there without telling reaches the device in the right
//! order, once, and whatever it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::WAIT;
use hypernic_vfio_user::codec::region_flags;
use hypernic_vfio_user::pci::{Bar, Doorbells, Msix, QueueDoorbell};
use hypernic_vfio_user::{
    Client, ClientError, DescriptionError, Device, DeviceDescription, EventFd, Interrupts,
    Listener, ResetCause, Server, ServerError, SharedMem, SparseArea, Work,
};
use parking_lot::Mutex;
use proptest::prelude::*;

const PAGE: u32 = 0x1000;
const QUEUES: u32 = 2;
const BASE: u32 = 0x00;
const HEAD: u32 = 0x10;
const TAIL: u32 = 0x18;
const ENABLE: u32 = 0x28;
const ON: u32 = 1 << 25;
/// A register of no queue.
const OTHER: u32 = 0x800;
/// The tail of queue 0, outside of the page.
const ALIAS: u32 = 0x800;
/// Writing resets all registers.
const RESET: u32 = 0x0;

fn layout() -> Doorbells {
    let queue = |at: u32| QueueDoorbell {
        setup: vec![at + BASE],
        head: at + HEAD,
        enable: (at + ENABLE, ON),
        tail: at + TAIL,
    };
    Doorbells {
        bar: 0,
        pages: vec![(PAGE, 0x1000)],
        queues: (0..QUEUES).map(|q| queue(PAGE + 0x40 * q)).collect(),
        others: vec![PAGE + OTHER],
        touched_by: vec![RESET..RESET + 4, ALIAS..ALIAS + 4],
    }
}

fn description() -> DeviceDescription {
    DeviceDescription::new(0x1234, 0x5678)
        .bar(0, Bar::memory32(0x4000))
        .bar(3, Bar::memory32(0x1000))
        .msix(Msix {
            vectors: 1,
            table_bar: 3,
            table_offset: 0,
            pba_bar: 3,
            pba_offset: 0x800,
        })
        .doorbells(layout())
}

/// A ring of 256 for each queue, whose head follows its tail. The writes it received, in order.
struct Rings {
    irq: Interrupts,
    words: Box<[u32]>,
    told: Arc<Mutex<Vec<(u32, u32)>>>,
    moved: Arc<AtomicU32>,
}

impl Rings {
    fn at(queue: u32, register: u32) -> usize {
        ((PAGE + 0x40 * queue + register) / 4) as usize
    }
}

impl Device for Rings {
    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        let word = match offset as u32 {
            ALIAS => self.words[Self::at(0, TAIL)],
            _ => self.words[offset as usize / 4],
        };
        let bytes = word.to_le_bytes();
        data.fill(0);
        let n = data.len().min(4);
        data[..n].copy_from_slice(&bytes[..n]);
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        let Ok(bytes) = data.try_into() else { return };
        let value = u32::from_le_bytes(bytes);
        self.told.lock().push((offset as u32, value));
        match offset as u32 {
            RESET => self.words.fill(0),
            ALIAS => self.words[Self::at(0, TAIL)] = value & 0xff,
            at if (PAGE..PAGE + 0x1000).contains(&at) && matches!(at & 0x3f, HEAD | TAIL) => {
                self.words[at as usize / 4] = value & 0xff;
            }
            at => self.words[at as usize / 4] = value,
        }
    }

    fn reset(&mut self, _why: ResetCause) {
        self.words.fill(0);
    }

    fn work(&mut self) -> Work {
        for queue in 0..QUEUES {
            let (head, tail) = (Self::at(queue, HEAD), Self::at(queue, TAIL));
            let on = self.words[Self::at(queue, ENABLE)] & ON != 0;
            let behind = self.words[tail].wrapping_sub(self.words[head]) & 0xff;
            if on && behind != 0 {
                self.words[head] = self.words[tail];
                self.moved.fetch_add(behind, Ordering::SeqCst);
                self.irq.msix(0);
            }
        }
        Work::Idle
    }
}

struct Rig {
    path: std::path::PathBuf,
    told: Arc<Mutex<Vec<(u32, u32)>>>,
    moved: Arc<AtomicU32>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<Server>>,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// A server whose owner looks at its bell every 100 us.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nic.sock");
        let mut server = Server::new(description(), Listener::bind(&path).unwrap()).unwrap();
        let (told, moved) = (Arc::default(), Arc::default());
        let mut device = Rings {
            irq: server.interrupts(),
            words: vec![0; 0x1000].into(),
            told: Arc::clone(&told),
            moved: Arc::clone(&moved),
        };
        let stop = Arc::new(EventFd::new().unwrap());
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while stop.take() == 0 {
                    let progress = server.process(&mut device, 64).unwrap();
                    if !progress.more && progress.messages == 0 {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                server
            })
        };
        Self {
            path,
            told,
            moved,
            stop,
            thread: Some(thread),
            _dir: dir,
        }
    }

    fn client(&self) -> Client {
        for _ in 0..500 {
            match Client::connect(&self.path) {
                Err(ClientError::Refused { .. }) => std::thread::sleep(Duration::from_millis(10)),
                result => return result.unwrap(),
            }
        }
        panic!("the server never became free");
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + WAIT;
        while !holds(self) {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn moved(&self) -> u32 {
        self.moved.load(Ordering::SeqCst)
    }

    fn stop(mut self) -> impl Fn(&str) -> u64 {
        self.stop.signal();
        let server = self.thread.take().unwrap().join().unwrap();
        let mut counters = Vec::new();
        server.counters(&mut |name, value| counters.push((name, value)));
        move |name| counters.iter().find(|(n, _)| *n == name).unwrap().1
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The page as the guest maps it.
fn map(c: &mut Client) -> SharedMem {
    let region = c.region_info(0).unwrap();
    let flags = region_flags::MMAP | region_flags::CAPS;
    assert_eq!(region.info.flags & flags, flags);
    let area = SparseArea {
        offset: PAGE.into(),
        size: 0x1000,
    };
    assert_eq!(region.areas, [area]);
    region.map(&area).unwrap()
}

fn store(page: &SharedMem, queue: u32, register: u32, value: u32) {
    page.store_u32((0x40 * queue + register) as usize, value, Ordering::Release);
}

fn load(page: &SharedMem, queue: u32, register: u32) -> u32 {
    page.load_u32((0x40 * queue + register) as usize, Ordering::Acquire)
}

#[test]
fn a_doorbell_is_heard_without_a_message() {
    let rig = Rig::new();
    let mut c = rig.client();
    let page = map(&mut c);
    let fired = EventFd::new().unwrap();
    c.arm(hypernic_vfio_user::codec::irq::MSIX, 0, &[&fired])
        .unwrap();
    let (sent, _) = c.syscalls();
    store(&page, 1, BASE, 0x1000_0000);
    store(&page, 1, ENABLE, ON);
    store(&page, 1, TAIL, 5);
    assert_eq!(fired.wait(WAIT), Some(1));
    assert_eq!(rig.moved(), 5);
    rig.until("the head is shown", |_| load(&page, 1, HEAD) == 5);
    for tail in 6..20 {
        store(&page, 1, TAIL, tail);
        rig.until("it follows", |_| load(&page, 1, HEAD) == tail);
    }
    assert_eq!(c.syscalls().0, sent, "nothing was sent");
    // What the device makes of a value is what reads back.
    store(&page, 1, TAIL, 0x1234_5617);
    rig.until("it is cut to its bits", |_| load(&page, 1, TAIL) == 0x17);
    let told = rig.told.lock().clone();
    let at = |register| PAGE + 0x40 + register;
    assert_eq!(
        told[..3],
        [(at(BASE), 0x1000_0000), (at(ENABLE), ON), (at(TAIL), 5)]
    );
    drop(c);
    let count = rig.stop();
    assert_eq!(count("doorbells"), 16);
    assert_eq!(count("doorbell_page_writes"), 2);
    assert_eq!(count("region_writes"), 0);
}

#[test]
fn what_was_stored_before_a_message_comes_before_it() {
    let rig = Rig::new();
    let mut c = rig.client();
    let page = map(&mut c);
    for round in 1..200u32 {
        store(&page, 0, BASE, round);
        store(&page, 0, ENABLE, ON);
        store(&page, 0, TAIL, round & 0xff);
        // Answered at once, or with others; a read sees all of it.
        if round % 3 == 0 {
            c.post_u32(0, 0x3000, round).unwrap();
        }
        assert_eq!(c.read_u32(0, (PAGE + BASE).into()).unwrap(), round);
        assert_eq!(c.read_u32(0, ALIAS.into()).unwrap(), round & 0xff);
    }
    let told = rig.told.lock().clone();
    for round in (3..200).step_by(3) {
        let place = |wanted| told.iter().position(|t| *t == wanted).unwrap();
        let posted = place((0x3000, round));
        assert!(place((PAGE + BASE, round)) < posted, "round {round}");
    }
}

#[test]
fn both_ways_lead_to_the_same_register() {
    let rig = Rig::new();
    let mut c = rig.client();
    let page = map(&mut c);
    // By message, in the page and by another name.
    c.write_u32(0, (PAGE + ENABLE).into(), ON).unwrap();
    assert_eq!(load(&page, 0, ENABLE), ON);
    c.write_u32(0, (PAGE + TAIL).into(), 3).unwrap();
    assert_eq!(load(&page, 0, TAIL), 3);
    c.write_u32(0, ALIAS.into(), 9).unwrap();
    assert_eq!(load(&page, 0, TAIL), 9);
    rig.until("all of it", |rig| rig.moved() == 9);
    // The same value again is no news, a smaller one goes round the ring.
    store(&page, 0, TAIL, 9);
    store(&page, 0, TAIL, 2);
    rig.until("round the ring", |rig| rig.moved() == 9 + 249);
    // A reset shows in the page, and so does one by register.
    c.reset().unwrap();
    assert_eq!([ENABLE, TAIL, HEAD].map(|r| load(&page, 0, r)), [0; 3]);
    store(&page, 1, BASE, 7);
    c.write_u32(0, RESET.into(), 0).unwrap();
    assert_eq!(load(&page, 1, BASE), 0, "it was told first");
    // A queue that is not enabled receives the write and does nothing.
    store(&page, 1, TAIL, 5);
    assert_eq!(c.read_u32(0, (PAGE + 0x40 + TAIL).into()).unwrap(), 5);
    assert_eq!(rig.moved(), 9 + 249);
}

#[test]
fn a_client_that_has_gone_rings_no_more() {
    let rig = Rig::new();
    let mut first = rig.client();
    let old = map(&mut first);
    store(&old, 0, ENABLE, ON);
    store(&old, 0, TAIL, 4);
    rig.until("it is heard", |rig| rig.moved() == 4);
    drop(first);
    let mut second = rig.client();
    // The device kept its state, and shows it to the next one.
    let new = map(&mut second);
    assert_eq!([ENABLE, TAIL, HEAD].map(|r| load(&new, 0, r)), [ON, 4, 4]);
    store(&old, 0, TAIL, 100);
    store(&old, 0, ENABLE, 0);
    store(&new, 0, TAIL, 6);
    rig.until("the new one is heard", |rig| rig.moved() == 6);
    assert_eq!(second.read_u32(0, (PAGE + TAIL).into()).unwrap(), 6);
    assert_eq!([ENABLE, TAIL].map(|r| load(&new, 0, r)), [ON, 6]);
}

#[test]
fn a_client_that_does_not_map_it_sends_messages() {
    let rig = Rig::new();
    let mut c = rig.client();
    c.write_u32(0, (PAGE + ENABLE).into(), ON).unwrap();
    c.post_u32(0, (PAGE + TAIL).into(), 8).unwrap();
    rig.until("it is heard", |rig| rig.moved() == 8);
    assert_eq!(c.read_u32(0, (PAGE + HEAD).into()).unwrap(), 8);
    drop(c);
    assert_eq!(rig.stop()("doorbells"), 0);
}

#[test]
fn impossible_descriptions_are_refused() {
    let refused = |description: DeviceDescription| {
        let dir = tempfile::tempdir().unwrap();
        let listener = Listener::bind(dir.path().join("s")).unwrap();
        let made = Server::new(description, listener).map(drop);
        matches!(
            made,
            Err(ServerError::Description(DescriptionError::Doorbells(_)))
        )
    };
    let with = |change: fn(&mut Doorbells)| {
        let mut doorbells = layout();
        change(&mut doorbells);
        description().doorbells(doorbells)
    };
    assert!(!refused(with(|_| ())));
    assert!(refused(with(|d| d.bar = 1)), "no such BAR");
    assert!(refused(with(|d| d.bar = 9)));
    assert!(refused(with(|d| d.pages = vec![(0x4000, 0x1000)])));
    assert!(refused(with(|d| d.queues[0].tail = 0x2000)));
    let memory = SharedMem::new("other", 0x4000).unwrap();
    let area = SparseArea {
        offset: 0x2000,
        size: 0x1000,
    };
    assert!(refused(description().mmap(0, memory, &[area])));
    let huge = description().bar(0, Bar::memory64(1 << 40));
    assert!(refused(huge));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A guest that stores anything anywhere keeps no thread busy, and can do no more than by messages.
    #[test]
    fn anything_may_be_stored(
        words in prop::collection::vec((0u32..0x400, any::<u32>()), 1..64),
        resets in any::<bool>(),
    ) {
        let rig = Rig::new();
        let mut c = rig.client();
        let page = map(&mut c);
        for (at, value) in &words {
            page.store_u32(*at as usize * 4, *value, Ordering::Release);
        }
        if resets {
            c.reset().unwrap();
        }
        // Once it is quiet, page and device agree on every register that is one.
        c.read_u32(0, 0).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        for queue in 0..QUEUES {
            for register in [BASE, TAIL, ENABLE] {
                let at = u64::from(PAGE + 0x40 * queue + register);
                prop_assert_eq!(c.read_u32(0, at).unwrap(), load(&page, queue, register));
            }
        }
        let told = rig.told.lock().len();
        prop_assert!(told <= words.len() + 5 * QUEUES as usize, "{} writes", told);
        for (at, _) in rig.told.lock().iter() {
            let known = layout().registers().any(|r| r == *at);
            prop_assert!(known, "{:#x} is no doorbell", at);
        }
    }
}
