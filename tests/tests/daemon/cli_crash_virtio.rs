//! Guests with a virtio-net over vfio-user whose daemon's worker is killed at any instruction.

use std::collections::HashMap;
use std::time::Instant;

use drivers::{Bus, Dma, SocketBus};
use hypernic_tests::{LONG, scratch};
use model_testkit::virtq::{How, VirtQueue};
use virtio_net::regs::{common, ctrl, feature, header, page, status};

use crate::cli_crash::Lives;
use crate::cli_crash_igb::{Nic, ends};

/// Entries of the rings, and of the control queue.
const RING: u16 = 64;
const COMMANDS: u16 = 16;
const BUFFER: u64 = 2048;

/// A device with a small driver, which looks by itself.
pub(crate) struct Virtio {
    pub(crate) bus: SocketBus,
    mac: [u8; 6],
    rx: VirtQueue,
    tx: VirtQueue,
    ctrl: VirtQueue,
    buffers: [Dma; 2],
    /// Which buffer was given by which id.
    given: HashMap<u16, u64>,
    sent: u64,
    command: Dma,
}

impl Virtio {
    pub(crate) fn new(mut bus: SocketBus, how: How) -> Self {
        // It masters the bus.
        bus.config_write(4, &[7, 0]).expect("it is there");
        let sizes = [RING, RING, COMMANDS];
        let [rx, tx, ctrl] = sizes.map(|size| {
            let at = bus.alloc(VirtQueue::bytes(size)).expect("memory").iova;
            VirtQueue::new(bus.memory(), at, size, how)
        });
        let len = u64::from(RING) * BUFFER;
        let buffers = [0; 2].map(|_| bus.alloc(len).expect("memory"));
        let command = bus.alloc(4096).expect("memory");
        let mut mac = [0; 6];
        bus.bar_read(0, page::DEVICE, &mut mac).expect("there");
        let mut new = Self {
            bus,
            mac,
            rx,
            tx,
            ctrl,
            buffers,
            given: HashMap::new(),
            sent: 0,
            command,
        };
        new.start(how, sizes);
        for at in 0..RING {
            new.give(buffers[0].iova + u64::from(at) * BUFFER);
        }
        new.notify(0);
        new
    }

    fn start(&mut self, how: How, sizes: [u16; 3]) {
        let flag = |on: bool, feature| if on { feature } else { 0 };
        let features = feature::VERSION_1
            | feature::MAC
            | feature::CTRL_VQ
            | feature::CTRL_MAC_ADDR
            | flag(how.packed, feature::PACKED)
            | flag(how.in_order, feature::IN_ORDER);
        let drives = status::ACKNOWLEDGE | status::DRIVER;
        self.put(common::STATUS, &[0]);
        self.put(common::STATUS, &[drives]);
        for half in 0..2_u32 {
            self.put(common::DRIVER_FEATURE_SELECT, &half.to_le_bytes());
            let word = (features >> (32 * half)) as u32;
            self.put(common::DRIVER_FEATURE, &word.to_le_bytes());
        }
        self.put(common::STATUS, &[drives | status::FEATURES_OK]);
        let areas = [self.rx.areas(), self.tx.areas(), self.ctrl.areas()];
        for (at, (size, areas)) in sizes.into_iter().zip(areas).enumerate() {
            self.put(common::QUEUE_SELECT, &(at as u16).to_le_bytes());
            self.put(common::QUEUE_SIZE, &size.to_le_bytes());
            let to = [
                common::QUEUE_DESC,
                common::QUEUE_DRIVER,
                common::QUEUE_DEVICE,
            ];
            for (to, area) in to.into_iter().zip(areas) {
                self.put(to, &(area as u32).to_le_bytes());
                self.put(to + 4, &((area >> 32) as u32).to_le_bytes());
            }
            self.put(common::QUEUE_ENABLE, &1_u16.to_le_bytes());
        }
        let ready = drives | status::FEATURES_OK | status::DRIVER_OK;
        self.put(common::STATUS, &[ready]);
        let mut now = [0];
        let at = page::COMMON + common::STATUS;
        self.bus.bar_read(0, at, &mut now).expect("it is there");
        assert_eq!(now, [ready]);
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = page::COMMON + at;
        self.bus.bar_write(0, at, bytes).expect("it is there");
    }

    fn notify(&mut self, queue: u16) {
        let at = page::NOTIFY + u64::from(queue) * u64::from(page::NOTIFY_STEP);
        let said = self.bus.bar_write(0, at, &queue.to_le_bytes());
        said.expect("it is there");
    }

    fn give(&mut self, at: u64) {
        let id = self.rx.give(&[(at, BUFFER as u32, true)]).expect("room");
        self.given.insert(id, at);
    }
}

impl Nic for Virtio {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        self.tx.take();
        let mut sent = 0;
        for frame in frames {
            let at = self.buffers[1].iova + self.sent % u64::from(RING) * BUFFER;
            // All that came before in this place is taken back if there is room.
            if self.tx.room() == 0 {
                break;
            }
            let bytes = [&[0; header::LEN][..], frame].concat();
            self.bus.dma_write(at, &bytes).expect("mapped");
            let part = (at, bytes.len() as u32, false);
            self.tx.give(&[part]).expect("room");
            (self.sent, sent) = (self.sent + 1, sent + 1);
        }
        if sent > 0 {
            self.notify(1);
        }
        sent
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut came = Vec::new();
        for (id, len) in self.rx.take() {
            let at = self.given.remove(&id).expect("it was given");
            let mut bytes = vec![0; len as usize];
            self.bus.dma_read(at, &mut bytes).expect("mapped");
            came.push(bytes.split_off(header::LEN));
            self.give(at);
        }
        if !came.is_empty() {
            self.notify(0);
        }
        came
    }

    fn all_sent(&mut self) -> bool {
        self.tx.take();
        self.tx.under_way() == 0
    }

    fn ask(&mut self) {
        // Its own address again: answered once.
        let at = self.command.iova;
        let command = [&[ctrl::MAC, ctrl::MAC_ADDR_SET][..], &self.mac].concat();
        self.bus.dma_write(at, &command).expect("mapped");
        self.bus.dma_write(at + 64, &[0xee]).expect("mapped");
        let parts = [(at, 2, false), (at + 2, 6, false), (at + 64, 1, true)];
        self.ctrl.give(&parts).expect("room");
        self.notify(2);
        let until = Instant::now() + LONG;
        loop {
            let used = self.ctrl.take();
            if !used.is_empty() {
                assert_eq!(used.len(), 1);
                break;
            }
            assert!(Instant::now() < until, "a command is never answered");
            std::thread::yield_now();
        }
        let mut answer = [0];
        self.bus.dma_read(at + 64, &mut answer).expect("mapped");
        assert_eq!(answer, [ctrl::OK]);
    }
}

fn virtios(how: How, lives: &Lives) {
    let dir = scratch().unwrap();
    let names = ["n0", "n1"];
    let args = [
        "run",
        "--keeper",
        "--port",
        "switch:lan",
        "--model",
        "virtio-net",
    ];
    let mut launch = lives.launch().args(args);
    for name in names {
        launch = launch.arg("--socket-path").arg(dir.path().join(name));
    }
    let mut daemon = launch.start().unwrap();
    let nic = |name: &str| -> Box<dyn Nic> {
        let bus = SocketBus::connect(dir.path().join(name)).unwrap();
        Box::new(Virtio::new(bus, how))
    };
    ends(&mut daemon, names.map(nic), 2, lives);
    assert!(daemon.stop().unwrap().success());
}

/// Split, packed, and packed where one used descriptor stands for many.
pub(crate) fn of_each_kind(lives: &Lives) {
    for (packed, in_order) in [(false, false), (true, false), (true, true)] {
        let how = How {
            packed,
            in_order,
            indirect: false,
        };
        println!("{how:?}");
        virtios(how, lives);
    }
}

#[test]
fn guests_with_a_virtio_net_go_on_whenever_the_worker_is_killed() {
    of_each_kind(&Lives::killed(6));
}

#[test]
#[ignore = "long: hundreds of kills"]
fn long_guests_with_a_virtio_net_go_on_whenever_the_worker_is_killed() {
    of_each_kind(&Lives::killed(250));
}
