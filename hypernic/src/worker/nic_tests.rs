//! NICs on a switch, all of one worker, with guests that always have more to send. Frames are counted
//! and turns; the clock stands but for what a turn is said to cost.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frame::{Batch, Caps, Sink, Wake};
use model::{Clock, Env, Nic, PciState, Progress};
use model_testkit::{CountedWake, Silent, Time, memory};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use vale::{PortConfig, Switch, SwitchConfig, SwitchPort};
use vfio_user::EventSet;

use super::run::{FIRST_ID, Worker};
use super::tests::InSet;
use super::tests::jain;
use super::{Served, Task, Turn, WOKEN, WorkerHandle, task};

const SENDERS: usize = 64;
const RING: u32 = 256;
const BASE: u64 = 0x10_0000;
const BUFFER: u64 = BASE + 16 * RING as u64;
const TDH: u64 = 0x3810;
const TDT: u64 = 0x3818;

/// A receiver that counts by sender, as far as it has room.
struct Receiver {
    room: Mutex<usize>,
    got: [AtomicU64; SENDERS],
    waiting: Mutex<Vec<Arc<dyn Wake>>>,
}

impl Receiver {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            room: Mutex::new(room),
            got: [const { AtomicU64::new(0) }; SENDERS],
            waiting: Mutex::default(),
        })
    }

    fn make_room(&self, room: usize) {
        *self.room.lock() = room;
        let woken = std::mem::take(&mut *self.waiting.lock());
        woken.iter().for_each(|waker| waker.wake());
    }

    /// What each has got here since the last time.
    fn counts(&self) -> Vec<u64> {
        let counts = self.got.iter().map(|n| n.swap(0, Ordering::Relaxed));
        counts.collect()
    }
}

impl Sink for Receiver {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut room = self.room.lock();
        let taken = picks.len().min(*room);
        *room -= taken;
        for pick in &picks[..taken] {
            let frame = batch.get((*pick).into()).expect("a frame").to_vec();
            self.got[usize::from(frame[11])].fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
    fn caps(&self) -> Caps {
        Caps::ALL
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.waiting.lock().push(Arc::clone(waker));
    }
    fn give_up(&self, _: &Batch<'_>, _: &[u16]) {}
}

struct Guest {
    nic: Nic,
    env: Env,
    port: Arc<SwitchPort>,
    task: Arc<Task>,
    clock: Arc<Time>,
    /// Frames it sends in one go when it is called; `None` for as many as there is room for.
    little: Option<u32>,
    fd: OwnedFd,
    set: InSet,
}

impl Guest {
    fn read(&mut self, at: u64) -> u32 {
        let mut data = [0; 4];
        self.nic.control.read(&self.env, 0, at, &mut data);
        u32::from_le_bytes(data)
    }

    fn write(&mut self, at: u64, value: u32) {
        self.nic
            .control
            .write(&self.env, 0, at, &value.to_le_bytes());
    }

    fn start(&mut self, from: u8, to: u8) {
        let on = PciState {
            bus_master: true,
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, on);
        let mut bytes = vec![2, 0, 0, 0, 1, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
        bytes.resize(60, 0);
        let view = self.env.memory.view();
        view.write(BUFFER, &bytes).expect("poke");
        for n in 0..u64::from(RING) {
            // 60 bytes, EOP, IFCS and RS.
            let words = [BUFFER, 60 | 0xb << 24].map(u64::to_le_bytes);
            view.write(BASE + 16 * n, &words.concat()).expect("poke");
        }
        drop(view);
        for (at, value) in [
            (0, 1 << 6), // CTRL.SLU
            (0x3800, BASE as u32),
            (0x3804, 0),
            (0x3808, 16 * RING),
            (TDH, 0),
            (TDT, 0),
            (0x400, 2), // TCTL.EN
        ] {
            self.write(at, value);
        }
    }
}

impl Served for Guest {
    fn watch(&mut self, set: &EventSet) -> std::io::Result<()> {
        self.set.enter(set, &self.fd)
    }
    fn unwatch(&mut self) {
        self.set.leave(&self.fd);
    }
    fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }
    fn tick(&mut self) {}
    fn turn(&mut self, calls: u32) -> Turn {
        let head = self.read(TDH);
        let fill = match self.little {
            None => RING - 1,
            Some(n) if calls & WOKEN != 0 => n,
            Some(_) => 0,
        };
        self.write(TDT, (head + fill) % RING);
        self.nic.control.take_work();
        let run = |guest: &mut Self| guest.nic.transmit.run(&guest.env, &*guest.port, 256);
        let mut progress = run(self);
        if progress == Progress::Blocked {
            let waker = Arc::clone(&self.task) as Arc<dyn Wake>;
            self.port.want_room(&waker);
            progress = run(self);
        }
        let sent = (self.read(TDH) + RING - head) % RING;
        self.clock
            .now
            .fetch_add(500 + 30 * u64::from(sent), Ordering::Relaxed);
        Turn {
            served: sent > 0,
            more: self.little.is_none() && progress != Progress::Blocked,
            ill: false,
            answered: 0,
        }
    }
}

struct Fleet {
    worker: Worker,
    tasks: Vec<Arc<Task>>,
    receivers: Vec<Arc<Receiver>>,
    _switch: Switch,
}

impl Fleet {
    /// 64 senders, and as many receivers as are named in `to`, each with so much room.
    fn new(to: impl Fn(usize) -> u8, room: usize, little: Option<u32>) -> Self {
        let clock = Arc::new(Time::default());
        let seen = Arc::clone(&clock) as Arc<dyn Clock>;
        let handles: Arc<[WorkerHandle]> = vec![WorkerHandle::new(false)].into();
        let mut worker = Worker::new(Arc::clone(&handles), 0, Arc::clone(&seen)).expect("worker");
        let ids = AtomicU64::new(FIRST_ID);
        let ticking = Arc::clone(&clock);
        let switch = Switch::new(
            SwitchConfig::default(),
            Arc::new(move || ticking.now.load(Ordering::Relaxed)),
        );
        switch.set_timer(Arc::new(CountedWake::default()));
        let attach = |name: String, sink: Arc<dyn Sink>| {
            let config = PortConfig::default();
            switch.attach(&name, sink, config).expect("a port")
        };
        let count = (0..SENDERS).map(&to).max().map_or(0, usize::from) + 1;
        let receivers: Vec<_> = (0..count).map(|_| Receiver::new(room)).collect();
        for (n, receiver) in receivers.iter().enumerate() {
            let port = attach(format!("to{n}"), Arc::clone(receiver) as Arc<dyn Sink>);
            // The switch learns where it is.
            let mut batch = Batch::new();
            batch.push_bytes(&[2, 0, 0, 0, 0, 99, 2, 0, 0, 0, 1, n as u8, 0x88, 0xb5]);
            batch.push_bytes(&[0; 46]);
            batch.end(wire::Offload::NONE);
            port.deliver(&batch, &[0]);
        }
        let mut tasks = Vec::new();
        for n in 0..SENDERS {
            let mut config = e1000::Config::new([2, 0, 0, 0, 0, n as u8]);
            config.negotiation = Duration::ZERO;
            let memory = memory(BASE, 0x2000);
            let env = Env {
                memory,
                irq: Arc::new(Silent),
                clock: Arc::clone(&seen),
                timer: Arc::new(Silent),
            };
            let task = task(&handles, 0, &ids, "nic");
            let mut guest = Guest {
                nic: e1000::new(config),
                env,
                port: attach(format!("from{n}"), Receiver::new(0)),
                task: Arc::clone(&task),
                clock: Arc::clone(&clock),
                little: little.filter(|_| n == 0),
                fd: eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"),
                set: InSet::default(),
            };
            guest.start(n as u8, to(n));
            task.start(Box::new(guest));
            tasks.push(task);
        }
        // All are busy, and the switch has learned the senders too.
        for _ in 0..4 * SENDERS {
            worker.step();
        }
        receivers.iter().for_each(|r| drop(r.counts()));
        Self {
            worker,
            tasks,
            receivers,
            _switch: switch,
        }
    }

    /// Frames of each sender since the last time, wherever they came.
    fn counts(&self) -> Vec<u64> {
        let all: Vec<_> = self.receivers.iter().map(|r| r.counts()).collect();
        (0..SENDERS)
            .map(|n| all.iter().map(|counts| counts[n]).sum())
            .collect()
    }
}

#[test]
fn sixty_four_equal_senders_send_equally_much() {
    let mut fleet = Fleet::new(|n| n as u8, usize::MAX, None);
    for _ in 0..SENDERS * 40 + 13 {
        assert!(fleet.worker.step());
    }
    let shares = fleet.counts();
    assert!(shares.iter().sum::<u64>() > 64 * 40 * 200, "{shares:?}");
    assert!(jain(&shares) > 0.99, "{shares:?}");
}

#[test]
fn so_do_those_who_all_wait_for_one_receiver() {
    let mut fleet = Fleet::new(|_| 0, 0, None);
    for _ in 0..SENDERS * 10 {
        while fleet.worker.step() {}
        // A ring of the receiver's, which one sender alone could fill.
        fleet.receivers[0].make_room(RING as usize);
    }
    while fleet.worker.step() {}
    let shares = fleet.counts();
    assert!(shares.iter().sum::<u64>() >= 64 * 9 * 256, "{shares:?}");
    assert!(jain(&shares) >= 0.95, "{shares:?}");
}

#[test]
fn a_frame_beside_sixty_three_floods_goes_with_the_next_turn() {
    let mut fleet = Fleet::new(|n| n as u8, usize::MAX, Some(1));
    fleet.counts();
    for round in 0..100 {
        fleet.tasks[0].call(WOKEN);
        let mut turns = 0;
        let foreign = loop {
            fleet.worker.step();
            turns += 1;
            let counts = fleet.counts();
            if counts[0] > 0 {
                break counts[1..].iter().sum::<u64>();
            }
            assert!(turns < 3, "round {round}: it waits in a row");
        };
        assert!(
            foreign <= 256,
            "round {round}: {foreign} frames of others before its own"
        );
        for _ in 0..SENDERS {
            fleet.worker.step();
        }
        fleet.counts();
    }
}
