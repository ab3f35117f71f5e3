//! Who takes up a packed ring after this device is told what it was about to write.

use std::sync::{Arc, Mutex};

use guest_mem::Memory;
use hypernic_virtio_net::regs::feature;
use hypernic_virtio_net::{Config, Device, Journal, Place, Position, RX, Receiver, Sender, TX};
use model::{Env, Receive, Transmit};
use model_testkit::{Pin, Time, Wire, memory};

use crate::driver::{MAC, WRITE, frame};

const SIZE: u16 = 8;
const WRAP: u16 = 1 << 15;
const BUFFERS: u64 = 0x8000;

fn place(queue: usize) -> Place {
    let at = 0x1000 * (queue as u64 + 1);
    Place {
        size: SIZE,
        desc: at,
        driver: at + 0x400,
        device: at + 0x800,
    }
}

#[derive(Debug, Default)]
struct Told {
    /// What is to be written next: slot, id, length, flags.
    noted: Vec<(u16, (u16, u32, u16))>,
    place: u16,
    batches: usize,
    most: usize,
}

/// Compares what it is told with the ring.
#[derive(Debug)]
struct Reader {
    ring: u64,
    memory: Memory,
    told: Mutex<Told>,
}

impl Reader {
    fn seen(&self, slot: u16) -> (u16, u32, u16) {
        let mut bytes = [0; 8];
        let at = self.ring + 16 * u64::from(slot) + 8;
        self.memory.view().read(at, &mut bytes).expect("mapped");
        let [a, b, c, d, e, f, g, h] = bytes;
        (
            u16::from_le_bytes([e, f]),
            u32::from_le_bytes([a, b, c, d]),
            u16::from_le_bytes([g, h]),
        )
    }
}

impl Journal for Reader {
    fn note(&self, slot: u16, desc: (u16, u32, u16), slots: u16) {
        assert!((1..=SIZE).contains(&slots));
        self.told.lock().expect("whole").noted.push((slot, desc));
    }

    fn commit(&self, from: u16, to: u16) {
        let mut told = self.told.lock().expect("whole");
        if from == to {
            // All of it is written.
            for (slot, desc) in std::mem::take(&mut told.noted) {
                assert_eq!(self.seen(slot), desc);
            }
            assert_eq!(told.place, to);
            return;
        }
        assert_eq!(told.place, from, "it goes on where it was");
        // Nothing of it is.
        for (slot, desc) in &told.noted {
            assert_ne!(self.seen(*slot).2, desc.2);
        }
        told.place = to;
        told.batches += 1;
        told.most = told.most.max(told.noted.len());
    }
}

#[test]
fn a_packed_ring_is_noted_before_it_is_written() {
    for in_order in [0, feature::IN_ORDER] {
        let time = Arc::new(Time::at(1_000_000_000));
        let env = Env {
            memory: memory(0, 0x1_0000),
            irq: Arc::new(Pin::default()),
            clock: time.clone(),
            timer: time,
        };
        let device = Arc::new(Device::new(Config::new(MAC)));
        assert!(device.agree(feature::VERSION_1 | feature::PACKED | feature::MRG_RXBUF | in_order));
        let readers = [RX, TX].map(|queue| {
            let reader = Arc::new(Reader {
                ring: place(queue).desc,
                memory: env.memory.clone(),
                told: Mutex::new(Told {
                    place: WRAP,
                    ..Told::default()
                }),
            });
            let start = Position {
                next: WRAP,
                used: WRAP,
                told: WRAP,
                resumed: false,
            };
            let journal = Arc::clone(&reader) as Arc<dyn Journal>;
            let enabled = device.enable_noted(queue, place(queue), start, Some(journal));
            enabled.expect("a ring");
            reader
        });
        device.start_without_bus();
        let wire = Wire::default();
        let mut sender = Sender {
            device: Arc::clone(&device),
        };
        let receiver = Receiver {
            device: Arc::clone(&device),
        };
        let mut given = [0u16; 2];
        let mut give = |queue: usize, len: u32, flags: u16| {
            let n = given[queue];
            given[queue] += 1;
            let lap = if (n / SIZE).is_multiple_of(2) {
                1u16 << 7
            } else {
                1 << 15
            };
            let at = BUFFERS + 0x800 * u64::from(n % SIZE) + 0x4000 * queue as u64;
            let desc = [
                &at.to_le_bytes()[..],
                &len.to_le_bytes(),
                &n.to_le_bytes(),
                &(flags | lap).to_le_bytes(),
            ];
            let slot = place(queue).desc + 16 * u64::from(n % SIZE);
            env.memory
                .view()
                .write(slot, &desc.concat())
                .expect("mapped");
        };
        for round in 0..10 {
            for _ in 0..1 + round % 3 {
                give(TX, 112, 0);
                give(RX, 0x400, WRITE);
            }
            device.notify(TX);
            let _ = sender.run(&env, &wire, 64);
            // In several buffers, where there are some.
            let sent = frame(MAC, [1500, 60, 900][round % 3]);
            let mut batch = frame::Batch::new();
            batch.push_bytes(&sent);
            batch.end(wire::Offload::NONE);
            receiver.deliver(&env, &batch, &[0]);
        }
        assert_eq!(wire.take().len(), 19);
        for (queue, reader) in [RX, TX].into_iter().zip(readers) {
            let told = reader.told.lock().expect("whole");
            let position = device.position(queue).expect("enabled");
            assert_eq!(told.place, position.used);
            assert!(told.batches > 4, "{told:?}");
            assert_eq!(
                told.most,
                if queue == TX && in_order != 0 {
                    1
                } else {
                    2 + queue
                }
            );
            assert!(told.noted.is_empty());
        }
    }
}
