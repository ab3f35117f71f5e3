//! What a driver does by chance, what it sees of that, and what may differ.

use std::io;

use virtio_net::regs::{common as c, ctrl, feature, page, status};

use super::driver::{CTRL, Driver, Part, RX, SIZE, TX};
use super::{Machine, RAM};
use crate::oracle::dice::Dice;
use crate::oracle::layout::MAC;

/// Features that both have, without which ones nothing else is.
const ALWAYS: u64 = feature::VERSION_1 | feature::MAC | feature::STATUS | feature::CTRL_VQ;
const SOME: [u64; 9] = [
    feature::RING_RESET,
    feature::MRG_RXBUF,
    feature::CTRL_RX,
    feature::CTRL_RX_EXTRA,
    feature::CTRL_VLAN,
    feature::CTRL_MAC_ADDR,
    feature::INDIRECT_DESC,
    feature::EVENT_IDX,
    feature::PACKED,
];
/// Where packets, buffers and commands are.
const PACKETS: u64 = RAM + 0x1_0000;
const BUFFERS: u64 = RAM + 0x4_0000;
const COMMANDS: u64 = RAM + 0xe_0000;

const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 7];
const OTHER: [u8; 6] = [0x52, 0x54, 0, 0, 0, 9];

/// What is seen at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Frames on the wire.
    Sent(Vec<Vec<u8>>),
    /// Buffers that came back: their bytes, and what is in them.
    Used(usize, Vec<(u32, Vec<u8>)>),
    /// The answer to a command: class, number, payload.
    Answer(u8, u8, Vec<u8>, u8),
    /// Used buffers of a packed ring have gone around it.
    Around(usize),
    /// A ring is broken, in this way.
    Broken(usize, u64),
    /// The driver was to be called, and was not.
    Lost,
    /// A register.
    Register(&'static str, u64),
}

struct Walk<'m> {
    d: Driver<'m>,
    dice: Dice,
    seen: Vec<Seen>,
    place: u64,
    /// Queues whose driver is to be called for what is used next.
    armed: [bool; 3],
    /// A call is due.
    due: bool,
}

/// A walk by this seed: the features, and what was seen.
///
/// # Errors
/// The machine has ended, or gives back what it was not given.
pub fn walk(m: &mut dyn Machine, seed: u64) -> io::Result<(u64, Vec<Seen>)> {
    let mut dice = Dice(seed);
    let chosen = SOME.iter().filter(|_| dice.chance(60));
    let features = chosen.fold(ALWAYS, |all, one| all | one);
    let features = if features & feature::CTRL_RX == 0 {
        features & !feature::CTRL_RX_EXTRA
    } else {
        features
    };
    let mut walk = Walk {
        d: Driver::start(m, features)?,
        dice,
        seen: Vec::new(),
        place: 0,
        armed: [true; 3],
        due: false,
    };
    walk.register("status", c::STATUS, 1)?;
    walk.registers()?;
    for queue in [RX, TX, CTRL] {
        walk.d.arm(queue, true)?;
    }
    for _ in 0..40 {
        walk.step()?;
        if walk.register("status", c::STATUS, 1)? & u64::from(status::NEEDS_RESET) != 0 {
            break;
        }
    }
    // What found no buffer is not left to the next walk.
    for _ in 0..16 {
        walk.buffers()?;
        walk.look(RX)?;
    }
    Ok((features, walk.seen))
}

impl Walk<'_> {
    fn has(&self, feature: u64) -> bool {
        self.d.features & feature != 0
    }

    fn register(&mut self, name: &'static str, at: u64, len: usize) -> io::Result<u64> {
        let value = self.d.m.read(at, len)?;
        self.seen.push(Seen::Register(name, value));
        Ok(value)
    }

    fn step(&mut self) -> io::Result<()> {
        match self.dice.below(100) {
            0..25 => self.send()?,
            25..50 => self.buffers()?,
            50..70 => self.frames()?,
            70..85 => self.command()?,
            85..93 => {
                let (queue, on) = (self.dice.pick(&[RX, TX]), self.dice.chance(70));
                self.look(queue)?;
                self.d.arm(queue, on)?;
                self.armed[queue] = on;
            }
            93..97 => self.registers()?,
            97 | 98 => self.renew()?,
            _ => self.break_ring()?,
        }
        self.look(RX)?;
        self.look(TX)?;
        let sent = self.d.m.sent()?;
        self.seen.push(Seen::Sent(sent));
        let isr = self.register("isr", page::ISR, 1)?;
        if std::mem::take(&mut self.due) && isr & 1 == 0 {
            self.seen.push(Seen::Lost);
        }
        Ok(())
    }

    /// Registers that say what the driver has set up, and the configuration.
    fn registers(&mut self) -> io::Result<()> {
        self.register("mac", page::DEVICE, 4)?;
        self.register("link", page::DEVICE + 6, 2)?;
        self.register("queues", c::NUM_QUEUES, 2)?;
        self.register("vector", c::CONFIG_VECTOR, 2)?;
        for half in 0..3u32 {
            self.d
                .m
                .write(c::DRIVER_FEATURE_SELECT, &half.to_le_bytes())?;
            self.register("features", c::DRIVER_FEATURE, 4)?;
        }
        // One that there is not is among them.
        let queue = self.dice.below(4) as u16;
        self.d.m.write(c::QUEUE_SELECT, &queue.to_le_bytes())?;
        for (name, at) in [
            ("selected", c::QUEUE_SELECT),
            ("size", c::QUEUE_SIZE),
            ("queue vector", c::QUEUE_VECTOR),
            ("enabled", c::QUEUE_ENABLE),
            ("notified at", c::QUEUE_NOTIFY_OFF),
        ] {
            self.register(name, at, 2)?;
        }
        for (name, at) in [
            ("descriptors", c::QUEUE_DESC),
            ("driver", c::QUEUE_DRIVER),
            ("device", c::QUEUE_DEVICE),
        ] {
            self.register(name, at, 4)?;
            self.register(name, at + 4, 4)?;
        }
        Ok(())
    }

    /// Resets a queue by itself and begins it anew.
    fn renew(&mut self) -> io::Result<()> {
        if !self.has(feature::RING_RESET) {
            return Ok(());
        }
        let queue = self.dice.pick(&[RX, TX]);
        self.look(queue)?;
        self.d
            .m
            .write(c::QUEUE_SELECT, &(queue as u16).to_le_bytes())?;
        self.d.m.write(c::QUEUE_RESET, &1u16.to_le_bytes())?;
        self.register("reset", c::QUEUE_RESET, 2)?;
        self.register("enabled", c::QUEUE_ENABLE, 2)?;
        self.d.begin(queue)?;
        self.d.arm(queue, true)?;
        self.armed[queue] = true;
        self.register("enabled", c::QUEUE_ENABLE, 2)?;
        Ok(())
    }

    /// Breaks a ring and has the device look at it. What a driver writes and takes back before that is not compared: when
    /// a device looks is its own business.
    fn break_ring(&mut self) -> io::Result<()> {
        let how = self.dice.below(6);
        // QEMU does not come to an end where the index of a transmit ring jumps.
        let queue = if how == 0 {
            RX
        } else {
            self.dice.pick(&[RX, TX])
        };
        if queue == RX {
            // Until it has no buffer left: then it looks for more.
            for _ in 0..SIZE {
                if self.d.room(RX) == usize::from(SIZE) {
                    break;
                }
                self.d.m.frame(&frame(MAC, 60, 1))?;
                self.look(RX)?;
            }
        }
        self.look(queue)?;
        self.seen.push(Seen::Broken(queue, how));
        self.d.break_ring(queue, how)?;
        self.d.kick(queue)?;
        if queue == RX {
            self.d.m.frame(&frame(MAC, 60, 1))?;
        }
        Ok(())
    }

    fn look(&mut self, queue: usize) -> io::Result<()> {
        let mut all = Vec::new();
        for (len, parts) in self.d.used(queue)? {
            all.push((len, self.d.bytes(&parts, len)?));
        }
        self.used(queue, all);
        Ok(())
    }

    fn used(&mut self, queue: usize, all: Vec<(u32, Vec<u8>)>) {
        if self.d.has_gone_around(queue) {
            self.seen.push(Seen::Around(queue));
        }
        if !all.is_empty() && self.armed[queue] {
            self.due = true;
            // An event is passed once.
            self.armed[queue] = !self.has(feature::EVENT_IDX);
        }
        self.seen.push(Seen::Used(queue, all));
    }

    /// Cuts so many bytes at `at` into parts.
    fn cut(&mut self, at: u64, len: u32, write: bool, most: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let (mut from, mut left) = (at, len);
        for _ in 0..self.dice.below(most) {
            let n = 1 + self.dice.below(u64::from(left.max(2)) / 2) as u32;
            if n >= left {
                break;
            }
            parts.push((from, n, write));
            (from, left) = (from + u64::from(n), left - n);
        }
        parts.push((from, left, write));
        parts
    }

    fn send(&mut self) -> io::Result<()> {
        for _ in 0..=self.dice.below(4) {
            if self.d.room(TX) < 5 {
                break;
            }
            let len = self.dice.pick(&[60usize, 61, 64, 200, 1514]);
            let at = PACKETS + 0x800 * (self.place % 64);
            self.place += 1;
            let packet = [&[0; 12][..], &frame(OTHER, len, self.place as u8)].concat();
            self.d.m.poke(at, &packet)?;
            let parts = self.cut(at, packet.len() as u32, false, 4);
            let indirect = self.has(feature::INDIRECT_DESC) && self.dice.chance(40);
            self.d.give(TX, &parts, indirect)?;
        }
        self.d.kick(TX)
    }

    fn buffers(&mut self) -> io::Result<()> {
        for _ in 0..=self.dice.below(8) {
            if self.d.room(RX) < 4 {
                break;
            }
            let at = BUFFERS + 0x800 * (self.place % 256);
            self.place += 1;
            let merges = self.has(feature::MRG_RXBUF);
            let len = if merges {
                self.dice.pick(&[200, 700, 2048])
            } else {
                2048
            };
            let parts = self.cut(at, len, true, 3);
            let indirect = self.has(feature::INDIRECT_DESC) && self.dice.chance(30);
            self.d.give(RX, &parts, indirect)?;
        }
        self.d.kick(RX)
    }

    fn frames(&mut self) -> io::Result<()> {
        for _ in 0..=self.dice.below(3) {
            let dst = self
                .dice
                .pick(&[MAC, MAC, OTHER, GROUP, [0xff; 6], [1, 0, 0x5e, 0, 0, 1]]);
            let len = self.dice.pick(&[60usize, 61, 200, 1514]);
            self.place += 1;
            let mut frame = frame(dst, len, self.place as u8);
            if self.dice.chance(20) {
                let vlan = self.dice.pick(&[0u8, 5, 7]);
                frame[12..16].copy_from_slice(&[0x81, 0, 0x20, vlan]);
            }
            // What finds no buffer waits, in a place that is not the same in both.
            if self.d.room(RX) < 16 {
                self.d.m.frame(&frame)?;
                self.look(RX)?;
            }
        }
        Ok(())
    }

    fn command(&mut self) -> io::Result<()> {
        let dice = &mut self.dice;
        let table = |macs: &[[u8; 6]]| {
            let mut bytes = (macs.len() as u32).to_le_bytes().to_vec();
            bytes.extend(macs.as_flattened());
            bytes
        };
        let (class, number, mut payload) = match dice.below(10) {
            0..4 => {
                let on = dice.chance(50).into();
                (ctrl::RX, dice.below(7) as u8, vec![on])
            }
            4 | 5 => {
                let unicast = if dice.chance(50) { vec![OTHER] } else { vec![] };
                let groups = if dice.chance(50) { vec![GROUP] } else { vec![] };
                let both = [table(&unicast), table(&groups)].concat();
                (ctrl::MAC, ctrl::MAC_TABLE_SET, both)
            }
            6 => (
                ctrl::MAC,
                ctrl::MAC_ADDR_SET,
                dice.pick(&[MAC, OTHER]).to_vec(),
            ),
            7 | 8 => {
                let vlan = dice.pick(&[0u8, 5, 7]);
                (ctrl::VLAN, dice.below(2) as u8, vec![vlan, 0])
            }
            _ => (dice.pick(&[0x20, 0xff]), dice.below(3) as u8, vec![0; 4]),
        };
        // QEMU does what was not agreed upon too, which no driver may ask for.
        let needs = match (class, number) {
            (ctrl::RX, 0 | 1) | (ctrl::MAC, ctrl::MAC_TABLE_SET) => feature::CTRL_RX,
            (ctrl::RX, _) => feature::CTRL_RX_EXTRA,
            (ctrl::MAC, _) => feature::CTRL_MAC_ADDR,
            (ctrl::VLAN, _) => feature::CTRL_VLAN,
            _ => 0,
        };
        if needs & !self.d.features != 0 {
            return Ok(());
        }
        if dice.chance(10) {
            payload.pop();
        }
        let at = COMMANDS;
        self.d.m.poke(at, &[class, number])?;
        self.d.m.poke(at + 2, &payload)?;
        self.d.m.poke(at + 0x800, &[0xee])?;
        let mut parts = vec![(at, 2, false)];
        if !payload.is_empty() {
            parts.push((at + 2, payload.len() as u32, false));
        }
        parts.push((at + 0x800, 1, true));
        self.d.give(CTRL, &parts, false)?;
        self.d.kick(CTRL)?;
        let used: Vec<_> = self
            .d
            .used(CTRL)?
            .into_iter()
            .map(|(len, _)| (len, Vec::new()))
            .collect();
        self.used(CTRL, used);
        let answer = self.d.m.peek(at + 0x800, 1)?[0];
        self.seen.push(Seen::Answer(class, number, payload, answer));
        Ok(())
    }
}

fn frame(dst: [u8; 6], len: usize, mark: u8) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7) ^ mark).collect();
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}
