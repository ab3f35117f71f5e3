//! A driver on a thread of its own, which notifies and sleeps as event indices allow: nothing is lost between looking and
//! sleeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::mpsc::{Sender as Queue, channel};
use std::time::Duration;

use guest_mem::Memory;
use hypernic_virtio_net::regs::feature;
use hypernic_virtio_net::{Config, Device, Format, Place, Position, Sender, TX};
use model::{Clock, Env, Interrupts, Nanos, Progress, Timer, Transmit};
use model_testkit::{Hole, memory};

use crate::driver::MAC;

const SIZE: u16 = 4;
const PLACE: Place = Place {
    size: SIZE,
    desc: 0x1000,
    driver: 0x2000,
    device: 0x3000,
};
const PACKETS: u32 = if cfg!(miri) { 50 } else { 100_000 };
/// Longer than any machine takes for one packet.
const LOST: Duration = Duration::from_secs(60);

struct Still;

impl Clock for Still {
    fn now(&self) -> Nanos {
        1_000_000_000
    }
}

impl Timer for Still {
    fn arm(&self, _: Option<Nanos>) {}
}

/// Tells the driver's thread.
struct Calls(Queue<()>, AtomicU32);

impl Interrupts for Calls {
    fn set_line(&self, _: bool) {}
    fn msi(&self, _: u16) {}
    fn msix(&self, _: u16) {
        self.1.fetch_add(1, Ordering::Relaxed);
        let _ = self.0.send(());
    }
}

/// Words of the ring, as a driver's processor sees them.
struct Words(Memory);

impl Words {
    fn load(&self, at: u64) -> u16 {
        let mut bytes = [0; 8];
        let view = self.0.view();
        view.read_acquire(at & !7, &mut bytes).expect("mapped");
        let inside = (at & 6) as usize;
        u16::from_le_bytes([bytes[inside], bytes[inside + 1]])
    }

    fn store(&self, at: u64, value: u16) {
        let view = self.0.view();
        view.write_release(at, &value.to_le_bytes())
            .expect("mapped");
    }

    /// Gives packet `n`; returns whether the device wants to be told.
    fn give(&self, packed: bool, n: u32) -> bool {
        let slot = u64::from(n % u32::from(SIZE));
        let lap = (n / u32::from(SIZE)).is_multiple_of(2);
        if packed {
            let (avail, event) = (if lap { 1 << 7 } else { 1 << 15 }, lap);
            // The device has written its own length there.
            self.store(PLACE.desc + 16 * slot + 8, 112);
            self.store(PLACE.desc + 16 * slot + 12, slot as u16);
            self.store(PLACE.desc + 16 * slot + 14, avail);
            fence(Ordering::SeqCst);
            let want = slot as u16 | u16::from(event) << 15;
            return match self.load(PLACE.device + 2) {
                0 => true,
                1 => false,
                _ => self.load(PLACE.device) == want,
            };
        }
        self.store(PLACE.driver + 4 + 2 * slot, slot as u16);
        self.store(PLACE.driver + 2, (n + 1) as u16);
        fence(Ordering::SeqCst);
        self.load(PLACE.device + 4 + 8 * u64::from(SIZE)) == n as u16
    }

    /// Whether packet `n` is used.
    fn is_used(&self, packed: bool, n: u32) -> bool {
        if packed {
            let slot = u64::from(n % u32::from(SIZE));
            let lap = (n / u32::from(SIZE)).is_multiple_of(2);
            let flags = self.load(PLACE.desc + 16 * slot + 14);
            return [7, 15].iter().all(|bit| (flags >> bit & 1 == 1) == lap);
        }
        let used = self.load(PLACE.device + 2);
        used.wrapping_sub((n as u16).wrapping_add(1)) < 0x8000
    }

    /// Asks to be called when packet `n` is used.
    fn want(&self, packed: bool, n: u32) {
        if packed {
            let slot = (n % u32::from(SIZE)) as u16;
            let lap = u16::from((n / u32::from(SIZE)).is_multiple_of(2));
            self.store(PLACE.driver, slot | lap << 15);
            self.store(PLACE.driver + 2, 2);
        } else {
            self.store(PLACE.driver + 4 + 2 * u64::from(SIZE), n as u16);
        }
        fence(Ordering::SeqCst);
    }
}

fn nothing_is_lost(features: u64) {
    let packed = features & feature::PACKED != 0;
    let memory = memory(0, 0x1_0000);
    let (calls, called) = channel();
    let (kick, kicked) = channel();
    let env = Env {
        memory: memory.clone(),
        irq: Arc::new(Calls(calls, AtomicU32::new(0))),
        clock: Arc::new(Still),
        timer: Arc::new(Still),
    };
    for slot in 0..u64::from(SIZE) {
        let desc = [&0x8000u64.to_le_bytes()[..], &112u32.to_le_bytes()].concat();
        let view = memory.view();
        view.write(PLACE.desc + 16 * slot, &desc).expect("mapped");
    }
    let device = Arc::new(Device::new(Config::new(MAC)));
    assert!(device.agree(features));
    let start = Position::start(Format::of(features));
    device.enable(TX, PLACE, start).expect("a ring");
    device.start_without_bus();
    let driver = std::thread::spawn(move || {
        let words = Words(memory);
        let mut done = 0;
        for n in 0..PACKETS {
            if words.give(packed, n) {
                kick.send(()).expect("the device lives");
            }
            // A full ring: sleep until the oldest is used.
            while n + 1 - done == SIZE.into() {
                // Looking for a moment keeps both sides at work at once, which is when something is lost.
                let used = (0..n % 512).any(|_| words.is_used(packed, done));
                if used {
                    done += 1;
                    continue;
                }
                words.want(packed, done);
                if !words.is_used(packed, done) {
                    called.recv_timeout(LOST).map_err(|_| ("a call", n))?;
                }
                while done <= n && words.is_used(packed, done) {
                    done += 1;
                }
            }
        }
        Ok(())
    });
    let mut sender = Sender { device };
    let hole = Hole::default();
    while kicked.recv().is_ok() {
        while sender.run(&env, &hole, 256) == Progress::More {}
    }
    assert_eq!(driver.join().expect("no panic"), Ok::<_, (&str, u32)>(()));
    assert!(hole.frames() > u64::from(PACKETS) - u64::from(SIZE) - 1);
}

#[test]
fn no_notification_and_no_call_of_a_split_ring_is_lost() {
    nothing_is_lost(feature::VERSION_1 | feature::EVENT_IDX);
}

#[test]
fn no_notification_and_no_call_of_a_packed_ring_is_lost() {
    nothing_is_lost(feature::VERSION_1 | feature::EVENT_IDX | feature::PACKED);
}
