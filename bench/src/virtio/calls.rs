//! Interrupts for received frames, and how long frames wait for them, in a time that is only counted: the device is the real one,
//! its driver a stand-in that takes a fixed time for everything. So the figures are the same on any machine.
//!
//! The driver is as Linux's: when it is called it comes after a while, takes frames until there are no more, asks to be called for the
//! next one (`EVENT_IDX`), and looks once more.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use frame::Batch;
use guest_mem::ReadSlice;
use model::{Env, Nanos, Receive, Transmit};
use model_testkit::{Pin, Time, Wire, memory};
use serde_json::{Value, json};
use virtio_net::regs::{ctrl, feature};
use virtio_net::{CTRL, Config, Device, Moderation, Place, Position, RX, Receiver, Sender, TX};
use wire::Offload;

const RAM: u64 = 0;
const BUFFERS: u64 = 0x10_0000;
const MEMORY: u64 = 0x20_0000;
const SIZE: u16 = 256;
const US: Nanos = 1000;
/// From a call until the driver looks, for each frame, and for each look.
const TAKE: Nanos = 5 * US;
const EACH: Nanos = 300;
const LOOK: Nanos = 200;
/// Frames taken at a look.
const BUDGET: u16 = 64;
/// How long it goes on, and how long nothing counts, so that the device has measured its driver.
const LENGTH: Nanos = 100_000 * US;
const BEFORE: Nanos = 20_000 * US;

/// When the driver is called.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub id: &'static str,
    pub title: &'static str,
    moderation: Moderation,
    /// `ethtool -C`: packets, microseconds.
    asked: Option<(u32, u32)>,
}

/// All ways.
pub fn ways() -> [Way; 7] {
    let way = |id, title, moderation, asked| Way {
        id,
        title,
        moderation,
        asked,
    };
    let fixed = NonZeroU32::MIN.saturating_add(3999);
    [
        way(
            "guest",
            "`moderation = \"guest\"`: as its ring says",
            Moderation::Guest,
            None,
        ),
        way("adaptive", "`\"adaptive\"`", Moderation::Adaptive, None),
        way("fixed", "`\"fixed:4000\"`", Moderation::Fixed(fixed), None),
        way(
            "coalesced",
            "`ethtool -C` rx-frames 64, rx-usecs 50",
            Moderation::Adaptive,
            Some((64, 50)),
        ),
        way(
            "coalesced-late",
            "`ethtool -C` rx-frames 128, rx-usecs 100",
            Moderation::Adaptive,
            Some((128, 100)),
        ),
        way(
            "dim-first",
            "`ethtool -C` adaptive-rx on, frames are few: 256, 1 us",
            Moderation::Adaptive,
            Some((256, 1)),
        ),
        way(
            "dim-third",
            "the same, frames are many: 256, 64 us",
            Moderation::Adaptive,
            Some((256, 64)),
        ),
    ]
}

/// How frames come.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub id: &'static str,
    pub title: &'static str,
    /// From one burst to the next.
    every: Nanos,
    burst: usize,
}

/// All paces; the first is the full rate, the last is sparse.
pub const PACES: [Pace; 5] = [
    Pace {
        id: "full",
        title: "2 million a second, 32 at once",
        every: 16 * US,
        burst: 32,
    },
    Pace {
        id: "even",
        title: "2 million a second, one by one",
        every: 500,
        burst: 1,
    },
    Pace {
        id: "fast",
        title: "500 000 a second, 4 at once",
        every: 8 * US,
        burst: 4,
    },
    Pace {
        id: "medium",
        title: "50 000 a second",
        every: 20 * US,
        burst: 1,
    },
    Pace {
        id: "sparse",
        title: "1000 a second",
        every: 1000 * US,
        burst: 1,
    },
];

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub frames: u64,
    pub calls: u64,
    pub lost: u64,
    /// Microseconds from a frame's coming until the driver has it.
    pub waits: Vec<f64>,
}

impl Outcome {
    /// Interrupts for each frame.
    pub fn per_frame(&self) -> f64 {
        self.calls as f64 / self.frames.max(1) as f64
    }

    /// A percentile of the waits.
    pub fn wait(&self, percent: f64) -> f64 {
        rig::paired::percentile(&self.waits, percent).unwrap_or(f64::NAN)
    }

    /// As raw data.
    pub fn json(&self) -> Value {
        json!({
            "frames": self.frames, "calls": self.calls, "lost": self.lost,
            "wait_us": {"p50": self.wait(50.0), "p99": self.wait(99.0), "most": self.wait(100.0)},
        })
    }
}

fn place(queue: usize, size: u16) -> Place {
    let at = RAM + 0x2_0000 * (queue as u64 + 1);
    Place {
        size,
        desc: at,
        driver: at + 0x8000,
        device: at + 0xa000,
    }
}

fn desc(at: u64, len: u32, flags: u16, next: u16) -> [u8; 16] {
    let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&at.to_le_bytes());
    bytes[8..].copy_from_slice(&rest.to_le_bytes());
    bytes
}

struct Bed {
    device: Arc<Device>,
    receiver: Receiver,
    env: Env,
    pin: Arc<Pin>,
    time: Arc<Time>,
    /// Buffers given, and used ones seen.
    given: u16,
    seen: u16,
    /// When the frames came that the driver has not yet.
    came: VecDeque<Nanos>,
    /// When the driver looks next; `None`: it waits to be called.
    looks: Option<Nanos>,
    counts: bool,
    found: Outcome,
}

impl Bed {
    fn new(way: &Way) -> Self {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::at(1_000_000_000)));
        let env = Env {
            memory: memory(RAM, MEMORY),
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        let config = Config {
            moderation: way.moderation,
            ..Config::new([2, 0, 0, 0, 0, 1])
        };
        let device = Arc::new(Device::new(config));
        let features = feature::VERSION_1
            | feature::MAC
            | feature::EVENT_IDX
            | feature::CTRL_VQ
            | feature::NOTF_COAL;
        assert!(device.agree(features), "it has them");
        for (queue, size) in [(RX, SIZE), (TX, SIZE), (CTRL, 8)] {
            let at = place(queue, size);
            let done = device.enable(queue, at, Position::start(device.format()));
            done.expect("a ring");
        }
        device.start_without_bus();
        let mut bed = Self {
            receiver: Receiver {
                device: Arc::clone(&device),
            },
            device,
            env,
            pin,
            time,
            given: 0,
            seen: 0,
            came: VecDeque::new(),
            looks: None,
            counts: false,
            found: Outcome::default(),
        };
        for i in 0..SIZE {
            let at = BUFFERS + 2048 * u64::from(i);
            let ring = place(RX, SIZE);
            bed.poke(ring.desc + 16 * u64::from(i), &desc(at, 2048, 2, 0));
            bed.poke(ring.driver + 4 + 2 * u64::from(i), &i.to_le_bytes());
        }
        bed.give(SIZE);
        if let Some(asked) = way.asked {
            bed.ask(asked);
        }
        bed.receiver.poll(&bed.env);
        bed.pin.take_vectors();
        bed
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        let view = self.env.memory.view();
        view.write(at, bytes).expect("inside of RAM");
    }

    fn peek16(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        let view = self.env.memory.view();
        view.read(at, &mut bytes).expect("inside of RAM");
        u16::from_le_bytes(bytes)
    }

    fn give(&mut self, n: u16) {
        self.given = self.given.wrapping_add(n);
        self.poke(place(RX, SIZE).driver + 2, &self.given.to_le_bytes());
    }

    /// What `ethtool -C` has the driver send: packets, then microseconds.
    fn ask(&mut self, (packets, usecs): (u32, u32)) {
        let at = BUFFERS - 0x1000;
        let ring = place(CTRL, 8);
        self.poke(at, &[ctrl::NOTF_COAL, ctrl::COAL_RX_SET]);
        self.poke(at + 16, &packets.to_le_bytes());
        self.poke(at + 20, &usecs.to_le_bytes());
        for (i, (at, len, flags)) in [(at, 2, 1), (at + 16, 8, 1), (at + 64, 1, 2)]
            .into_iter()
            .enumerate()
        {
            let bytes = desc(at, len, flags, i as u16 + 1);
            self.poke(ring.desc + 16 * i as u64, &bytes);
        }
        self.poke(ring.driver + 2, &1u16.to_le_bytes());
        self.poke(at + 64, &[0xee]);
        assert!(self.device.notify(CTRL).is_some(), "it has the queue");
        let mut sender = Sender {
            device: Arc::clone(&self.device),
        };
        sender.run(&self.env, &Wire::default(), frame::MAX_BATCH);
        assert_eq!(self.peek16(at + 64) & 0xff, 0, "it is obeyed");
    }

    /// Frames come.
    fn offer(&mut self, frames: &[Vec<u8>], now: Nanos) {
        let mut batch = Batch::new();
        for frame in frames {
            batch.push_slice(ReadSlice::from_bytes(frame));
            batch.end(Offload::NONE);
        }
        let picks = &frame::EACH[..frames.len()];
        let taken = self.receiver.deliver(&self.env, &batch, picks);
        self.came.extend(std::iter::repeat_n(now, taken));
        if self.counts {
            self.found.lost += (frames.len() - taken) as u64;
        }
        self.hear(now);
    }

    /// Whether the driver is called.
    fn hear(&mut self, now: Nanos) {
        let calls = self.pin.take_vectors().len() as u64;
        if self.counts {
            self.found.calls += calls;
        }
        if calls > 0 && self.looks.is_none() {
            self.looks = Some(now + TAKE);
        }
    }

    /// The driver looks.
    fn look(&mut self, now: Nanos) {
        let ring = place(RX, SIZE);
        let fresh = self.peek16(ring.device + 2).wrapping_sub(self.seen);
        let taken = fresh.min(BUDGET);
        self.seen = self.seen.wrapping_add(taken);
        for i in 0..taken {
            let done = now + EACH * Nanos::from(i + 1);
            let came = self.came.pop_front();
            if let (true, Some(came)) = (self.counts, came) {
                self.found.waits.push((done - came) as f64 / 1e3);
                self.found.frames += 1;
            }
        }
        if taken > 0 {
            self.give(taken);
            self.looks = Some(now + LOOK + EACH * Nanos::from(taken));
            return;
        }
        // It asks for the next; nothing has come in between, for no time has passed.
        self.poke(
            ring.driver + 4 + 2 * u64::from(SIZE),
            &self.seen.to_le_bytes(),
        );
        self.looks = None;
    }

    /// The timer has come.
    fn tick(&mut self, now: Nanos) {
        self.time.take_due(now);
        self.device.tick(&self.env);
        self.receiver.poll(&self.env);
        self.hear(now);
    }
}

/// Plays one way and pace.
pub fn play(way: &Way, pace: &Pace) -> Outcome {
    let mut bed = Bed::new(way);
    let mut frame = vec![0x5a; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let frames = vec![frame; pace.burst];
    let begin = 1_000_000_000;
    let mut next = begin + pace.every;
    loop {
        let deadline = bed.time.deadline().unwrap_or(Nanos::MAX);
        let looks = bed.looks.unwrap_or(Nanos::MAX);
        let now = next.min(deadline).min(looks);
        if now > begin + BEFORE + LENGTH {
            return bed.found;
        }
        let now = now.max(model::Clock::now(&*bed.time));
        bed.time.now.store(now, std::sync::atomic::Ordering::SeqCst);
        bed.counts = now > begin + BEFORE;
        if looks <= now {
            bed.look(now);
        } else if deadline <= now {
            bed.tick(now);
        } else {
            bed.offer(&frames, now);
            next += pace.every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(way: &str, pace: &str) -> Outcome {
        let way = ways().into_iter().find(|w| w.id == way).unwrap();
        let pace = PACES.into_iter().find(|p| p.id == pace).unwrap();
        play(&way, &pace)
    }

    #[test]
    fn one_call_for_64_frames_at_full_rate_and_sparse_frames_wait_no_longer() {
        let guest = outcome("guest", "sparse");
        assert_eq!(guest.frames, guest.calls);
        for way in ["adaptive", "dim-first"] {
            assert_eq!(outcome(way, "sparse"), guest, "not a nanosecond longer");
        }
        for way in ["coalesced", "dim-third"] {
            let full = outcome(way, "full");
            assert!(full.frames > 190_000 && full.lost == 0, "{}", full.json());
            assert!(full.per_frame() <= 1.0 / 64.0, "{}", full.json());
        }
    }

    #[test]
    fn what_the_driver_asks_for_is_kept() {
        let sparse = outcome("coalesced", "sparse");
        let late = sparse.wait(50.0) - outcome("guest", "sparse").wait(50.0);
        assert_eq!(late.round(), 50.0, "the time that was asked for");
    }

    #[test]
    fn no_frame_is_left_behind() {
        for way in ways() {
            for pace in PACES {
                let found = play(&way, &pace);
                let most = LENGTH / pace.every * pace.burst as Nanos;
                let near = most - 8 * pace.burst as Nanos..=most + 300;
                assert!(
                    near.contains(&(found.frames + found.lost)),
                    "{} {}",
                    way.id,
                    pace.id
                );
            }
        }
    }
}
