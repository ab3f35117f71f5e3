//! The device without PCI: told of its features and queues, run, and told of notifications, by a transport of another kind.

use std::sync::{Arc, Mutex};

use hypernic_virtio_net::regs::feature;
use hypernic_virtio_net::{Config, Device, Place, Position, RX, Receiver, Sender, TX, WriteLog};
use model::{Env, Progress, Receive, Transmit};
use model_testkit::{CountedWake, Pin, Silent, Time, Wire, memory};

use crate::driver::{MAC, OTHER, frame};

const BUFFER: u64 = 0x8000;

fn place(queue: u64) -> Place {
    let at = 0x1000 * (queue + 1);
    Place {
        size: 8,
        desc: at,
        driver: at + 0x400,
        device: at + 0x800,
    }
}

#[test]
fn a_transport_without_pci_drives_the_device() {
    let pin = Arc::new(Pin::default());
    let time = Arc::new(Time::at(1_000_000_000));
    let env = Env {
        memory: memory(0, 0x1_0000),
        irq: pin.clone(),
        clock: time.clone(),
        timer: time,
    };
    let device = Arc::new(Device::new(Config::new(MAC)));
    assert!(!device.agree(feature::VERSION_1 | 1 << 27));
    assert!(device.agree(feature::VERSION_1));
    // It goes on where another left off.
    let base = Position {
        next: 3,
        used: 3,
        told: 3,
        resumed: true,
    };
    for (queue, position) in [(RX, base), (TX, base)] {
        let place = place(queue as u64);
        device.enable(queue, place, position).expect("a ring");
        assert_eq!(device.position(queue), Some(position));
    }
    device.start_without_bus();
    let wire = Wire::default();
    let mut sender = Sender {
        device: Arc::clone(&device),
    };
    let receiver = Receiver {
        device: Arc::clone(&device),
    };
    let poke = |at: u64, bytes: &[u8]| env.memory.view().write(at, bytes).expect("mapped");
    let give = |queue: usize, len: u32, flags: u16| {
        let place = place(queue as u64);
        let desc = [
            &BUFFER.to_le_bytes()[..],
            &len.to_le_bytes(),
            &flags.to_le_bytes(),
        ];
        poke(place.desc, &desc.concat());
        poke(place.driver + 4 + 2 * 3, &[0, 0]);
        poke(place.driver + 2, &4u16.to_le_bytes());
    };
    give(TX, 112, 0);
    give(RX, 2048, 2);
    assert_eq!(sender.run(&env, &wire, 64), Progress::Idle);
    assert_eq!(wire.take(), [vec![0; 100]]);
    // After a start each driver is called once.
    assert_eq!(pin.take_vectors(), [TX as u16]);
    receiver.poll(&env);
    assert_eq!(pin.take_vectors(), [RX as u16]);
    let sent = frame(OTHER, 77);
    let mut batch = frame::Batch::new();
    batch.push_bytes(&sent);
    batch.end(wire::Offload::NONE);
    assert_eq!(receiver.deliver(&env, &batch, &[0]), 1);
    assert_eq!(pin.take_vectors(), [RX as u16]);
    let mut got = vec![0; 77];
    env.memory
        .view()
        .read(BUFFER + 12, &mut got)
        .expect("mapped");
    assert_eq!(got, sent);
    // Stopped, it says where it was, and touches nothing.
    let end = Position {
        next: 4,
        used: 4,
        told: 4,
        resumed: true,
    };
    assert_eq!([RX, TX].map(|queue| device.disable(queue)), [Some(end); 2]);
    assert_eq!(receiver.deliver(&env, &batch, &[0]), 1);
    assert_eq!(sender.run(&env, &wire, 64), Progress::Idle);
    assert_eq!(pin.take_vectors(), []);
}

/// Another sender and the guest, who come while the receive queues are held.
struct Intruder {
    receiver: Receiver,
    env: Env,
    wake: Arc<CountedWake>,
    dealt: Mutex<Vec<usize>>,
}

impl std::fmt::Debug for Intruder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Intruder").field(&self.dealt).finish()
    }
}

impl WriteLog for Intruder {
    fn wrote(&self, _: u64, _: u64) {}
    fn used(&self, _: usize) {
        let mut batch = frame::Batch::new();
        batch.push_bytes(&frame(OTHER, 77));
        batch.end(wire::Offload::NONE);
        let offer = || self.receiver.deliver(&self.env, &batch, &[0]);
        let first = offer();
        let wake: Arc<dyn frame::Wake> = self.wake.clone();
        self.receiver.want_room(&wake);
        self.dealt.lock().expect("whole").extend([first, offer()]);
        self.receiver.poll(&self.env);
    }
}

#[test]
fn queues_that_another_sender_holds_for_long_are_not_waited_for() {
    let time = Arc::new(Time::at(1_000_000_000));
    let env = Env {
        memory: memory(0, 0x1_0000),
        irq: Arc::new(Silent),
        clock: time.clone(),
        timer: time.clone(),
    };
    let device = Arc::new(Device::new(Config::new(MAC)));
    assert!(device.agree(feature::VERSION_1));
    let start = Position::default();
    device.enable(RX, place(0), start).expect("a ring");
    device.start_without_bus();
    let desc = [
        &BUFFER.to_le_bytes()[..],
        &2048u32.to_le_bytes(),
        &2u16.to_le_bytes(),
    ];
    let view = env.memory.view();
    view.write(place(0).desc, &desc.concat()).expect("mapped");
    let given = [0u16, 1, 0].map(u16::to_le_bytes).concat();
    view.write(place(0).driver, &given).expect("mapped");
    drop(view);
    let receiver = || Receiver {
        device: Arc::clone(&device),
    };
    let intruder = Arc::new(Intruder {
        receiver: receiver(),
        env: env.clone(),
        wake: Arc::default(),
        dealt: Mutex::default(),
    });
    device.set_write_log(Some(intruder.clone()));
    let mut batch = frame::Batch::new();
    batch.push_bytes(&frame(OTHER, 77));
    batch.end(wire::Offload::NONE);
    assert_eq!(receiver().deliver(&env, &batch, &[0]), 1);
    assert_eq!(*intruder.dealt.lock().expect("whole"), [0, 0]);
    // The sender is woken when they are free, and the timer has the guest's part looked at.
    assert_eq!(intruder.wake.rung(), 1);
    assert_eq!(time.deadline(), Some(1_000_000_000 + 2_000_000));
    let mut held_up = 0;
    frame::Counted::counters(&*device, &mut |name, value| {
        held_up += if name == "rx_held_up" { value } else { 0 };
    });
    assert_eq!(held_up, 2);
}
