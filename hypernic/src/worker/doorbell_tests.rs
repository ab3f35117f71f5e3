//! Doorbells in memory: a worker that sleeps hears them, and looks at none that cannot ring.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::Clock;
use model_testkit::Time;
use pci::{Bar, Doorbells, QueueDoorbell};
use vfio_user::{
    Client, Device, DeviceDescription, EventSet, Listener, MappedDoorbells, ResetCause, Server,
    SharedMem, SparseArea,
};

use super::run::{FIRST_ID, Worker};
use super::{Served, Task, Turn, WorkerHandle, Workers, task};
use crate::time::MonotonicClock;

const PAGE: u64 = 0x1000;
const ENABLE: usize = 0x28;
const ON: u32 = 1 << 25;
const TAIL: usize = 0x18;
const LONG: Duration = Duration::from_secs(30);

/// Registers that keep what is written, and what the tail was last.
struct Words {
    words: [u32; 16],
    tail: Arc<AtomicU32>,
}

impl Words {
    fn index(offset: u64) -> Option<usize> {
        let at = offset.checked_sub(PAGE)? as usize / 4;
        (at < 16).then_some(at)
    }
}

impl Device for Words {
    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        let word = Self::index(offset).map_or(0, |at| self.words[at]);
        data.fill(0);
        let n = data.len().min(4);
        data[..n].copy_from_slice(&word.to_le_bytes()[..n]);
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        if let (Some(at), Ok(bytes)) = (Self::index(offset), data.try_into()) {
            self.words[at] = u32::from_le_bytes(bytes);
            self.tail.store(self.words[TAIL / 4], Ordering::SeqCst);
        }
    }

    fn reset(&mut self, _why: ResetCause) {}
}

struct Body {
    server: Server,
    device: Words,
}

impl Served for Body {
    fn watch(&mut self, set: &EventSet) -> std::io::Result<()> {
        self.server.watch(set)
    }
    fn unwatch(&mut self) {
        self.server.unwatch();
    }
    fn busy_poll(&self) -> Duration {
        Duration::from_micros(50)
    }
    fn bell(&self) -> Option<&MappedDoorbells> {
        self.server.bell()
    }
    fn tick(&mut self) {}
    fn turn(&mut self, _calls: u32) -> Turn {
        let progress = self.server.process(&mut self.device, 64).expect("serve");
        Turn {
            served: progress.messages > 0 || progress.doorbells > 0,
            more: progress.more,
            ill: false,
            answered: 0,
        }
    }
}

struct Bench {
    workers: Workers,
    task: Arc<Task>,
    tail: Arc<AtomicU32>,
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

/// A NIC at this socket, and its tail.
fn nic(path: &Path) -> (Body, Arc<AtomicU32>) {
    let doorbells = Doorbells {
        pages: vec![(PAGE as u32, 0x1000)],
        queues: vec![QueueDoorbell {
            setup: vec![],
            head: PAGE as u32,
            enable: (PAGE as u32 + ENABLE as u32, ON),
            tail: PAGE as u32 + TAIL as u32,
        }],
        ..Doorbells::default()
    };
    let description = DeviceDescription::new(1, 2)
        .bar(0, Bar::memory32(0x2000))
        .doorbells(doorbells);
    let listener = Listener::bind(path).expect("listen");
    let server = Server::new(description, listener).expect("a server");
    let tail = Arc::<AtomicU32>::default();
    let device = Words {
        words: [0; 16],
        tail: Arc::clone(&tail),
    };
    (Body { server, device }, tail)
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("nic.sock");
        let (body, tail) = nic(&path);
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
        let workers = Workers::start(1, &clock).expect("workers");
        let task = workers.task("bells");
        task.start(Box::new(body));
        Self {
            workers,
            task,
            tail,
            path,
            _dir: dir,
        }
    }

    fn looks(&self) -> u64 {
        let sections = self.workers.counters();
        sections.iter().map(|s| s.get("doorbell_looks")).sum()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn map(client: &mut Client) -> SharedMem {
    let area = SparseArea {
        offset: PAGE,
        size: 0x1000,
    };
    let region = client.region_info(0).expect("a region");
    region.map(&area).expect("a page")
}

#[test]
fn a_sleeping_worker_hears_what_nobody_tells() {
    let bench = Bench::new();
    let mut client = Client::connect(&bench.path).expect("connect");
    let page = map(&mut client);
    // Nothing is on: there is nothing to look at.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(bench.looks(), 0);
    // The queue goes on without a message; the next message makes it known.
    page.store_u32(ENABLE, ON, Ordering::Release);
    client.read_u32(0, PAGE).expect("an answer");
    for round in 1..40u32 {
        // After pauses of any length, however long ago it was busy.
        std::thread::sleep(Duration::from_micros(u64::from(round * round) * 40));
        page.store_u32(TAIL, round, Ordering::Release);
        until("it is heard", || bench.tail.load(Ordering::SeqCst) == round);
    }
    assert!(bench.looks() > 0);
    // Off again: the worker looks no more, nor when the client has gone.
    page.store_u32(ENABLE, 0, Ordering::Release);
    client.read_u32(0, PAGE).expect("an answer");
    until("it is left alone", || {
        let before = bench.looks();
        std::thread::sleep(Duration::from_millis(60));
        bench.looks() == before
    });
    page.store_u32(ENABLE, ON, Ordering::Release);
    client.read_u32(0, PAGE).expect("an answer");
    let before = bench.looks();
    until("it is looked at again", || bench.looks() > before);
    drop(client);
    until("it is left alone", || {
        let before = bench.looks();
        std::thread::sleep(Duration::from_millis(60));
        bench.looks() == before
    });
    assert!(bench.task.stop().is_some());
}

#[test]
fn a_worker_that_is_awake_hears_all_of_those_served_last() {
    let dir = tempfile::tempdir().expect("a folder");
    let handles: Arc<[WorkerHandle]> = vec![WorkerHandle::new(false)].into();
    let clock = Arc::new(Time::default());
    let seen = Arc::clone(&clock) as Arc<dyn Clock>;
    let mut worker = Worker::new(Arc::clone(&handles), 0, seen).expect("worker");
    let ids = AtomicU64::new(FIRST_ID);
    let nics = ["a", "b", "c"].map(|name| {
        let path = dir.path().join(name);
        let (body, tail) = nic(&path);
        let task = task(&handles, 0, &ids, name);
        task.start(Box::new(body));
        (path, tail, task)
    });
    while worker.step() {}
    let guests = nics.map(|(path, tail, task)| {
        let guest = std::thread::spawn(move || {
            let mut client = Client::connect(&path).expect("connect");
            let page = map(&mut client);
            page.store_u32(ENABLE, ON, Ordering::Release);
            client.read_u32(0, PAGE).expect("an answer");
            (client, page)
        });
        while !guest.is_finished() {
            clock.now.fetch_add(1_000_000, Ordering::Relaxed);
            if !worker.step() {
                worker.stay_awake(Duration::from_millis(1));
            }
        }
        (guest.join().expect("a guest"), tail, task)
    });
    while worker.step() {}
    // No more time passes: looks that are made every now and then are none.
    for round in 1..100u32 {
        // In an order in which each was served last, and long before.
        let ((_, page), tail, _) = &guests[(round * round % 7 % 3) as usize];
        page.store_u32(TAIL, round, Ordering::Release);
        assert!(worker.stay_awake(LONG), "round {round}");
        while worker.step() {}
        assert_eq!(tail.load(Ordering::SeqCst), round);
    }
}
