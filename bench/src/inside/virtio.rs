//! Two guests with a virtio-net each, beside [`Pair`](super::Pair): one sends, the other receives. Their rings are as a poll-mode
//! driver has them, which asks for no calls; buffers are used in the order of the ring. What is not here is a transport: the
//! devices are told of notifications as a vhost-user back end tells them.

use std::sync::Arc;

use ceiling::thread_time;
use frame::Counted;
use guest_mem::View;
use model::{Env, Progress, Transmit};
use model_testkit::{Silent, memory};
use vale::{Keeper, PortConfig, Switch, SwitchConfig, SwitchPort};
use virtio_net::regs::feature;
use virtio_net::{Config, Device, Place, Position, RX, Receiver, Sender, TX};

use super::{BUFFERS, NicSink, RAM, RX_RING, RealTime, TX_RING, frame, mac, words};
use crate::spec::{HEADERS, Mix, Spec};

/// Where a ring's areas are behind its descriptors.
const DRIVER: u64 = 0x8000;
const DEVICE: u64 = 0xa000;
/// Bytes in front of a frame.
const HEADER: usize = 12;
const WRITE: u16 = 2;
/// Of a packed descriptor: equals the driver's lap, and the device's.
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// How rings are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// Split.
    Split,
    /// Split, used in order.
    SplitInOrder,
    /// Packed.
    Packed,
    /// Packed, used in order.
    PackedInOrder,
}

impl Rings {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::SplitInOrder => "split in order",
            Self::Packed => "packed",
            Self::PackedInOrder => "packed in order",
        }
    }

    fn packed(self) -> bool {
        matches!(self, Self::Packed | Self::PackedInOrder)
    }

    fn features(self) -> u64 {
        let packed = if self.packed() { feature::PACKED } else { 0 };
        match self {
            Self::SplitInOrder | Self::PackedInOrder => packed | feature::IN_ORDER,
            Self::Split | Self::Packed => packed,
        }
    }
}

/// What is sent, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioSpec {
    /// Bytes of a frame.
    pub size: usize,
    /// Descriptors of the transmit ring; a power of two.
    pub ring: u16,
    /// Frames for each notification.
    pub burst: u16,
    /// How rings are used.
    pub rings: Rings,
    /// Lengths.
    pub mix: Mix,
    /// Frames are TCP segments to be cut by whoever has to, and the receiver takes them whole, in buffers of so many bytes.
    pub whole: Option<usize>,
    /// Devices that would go on after their process died.
    pub kept: bool,
}

impl VirtioSpec {
    /// Frames of so many bytes.
    pub fn frames(size: usize, burst: u16, rings: Rings) -> Self {
        Self {
            size,
            ring: 256,
            burst,
            rings,
            mix: Mix::Alike,
            whole: None,
            kept: false,
        }
    }

    /// The same between devices that would go on after their process died.
    pub fn kept(self) -> Self {
        Self { kept: true, ..self }
    }

    /// Segments of as many whole MTUs as fit into 64 KiB, received in buffers of `buffer` bytes.
    pub fn segments(burst: u16, rings: Rings, buffer: usize) -> Self {
        Self {
            ring: 64,
            whole: Some(buffer),
            ..Self::frames(HEADERS + 44 * 1460, burst, rings)
        }
    }

    /// Frames of three lengths.
    pub fn imix(burst: u16, rings: Rings) -> Self {
        Self {
            mix: Mix::Imix,
            ..Self::frames(60, burst, rings)
        }
    }

    /// Bytes from one transmit buffer to the next.
    pub fn stride(&self) -> usize {
        (HEADER + self.size.max(1514)).next_multiple_of(2048)
    }

    fn buffer(&self) -> usize {
        self.whole.unwrap_or(2048)
    }

    /// Buffers that a frame fills.
    fn buffers(&self) -> u16 {
        (HEADER + self.size).div_ceil(self.buffer()) as u16
    }

    /// Descriptors of the receive ring.
    fn receive_ring(&self) -> u16 {
        (self.ring * self.buffers()).next_power_of_two().min(1024)
    }

    fn len_of(&self, index: u16) -> usize {
        self.mix.size(index.into(), self.size)
    }
}

/// The driver's side of a ring.
struct Ring {
    at: u64,
    size: u16,
    packed: bool,
    /// All descriptors as they are made available on an even lap and on an odd one.
    laps: [Vec<u8>; 2],
    given: u64,
}

impl Ring {
    /// A ring whose descriptors are those of `part`: where, and how many bytes.
    fn new(
        view: &View<'_>,
        (at, size, rings): (u64, u16, Rings),
        write: bool,
        part: impl Fn(u16) -> (u64, usize),
    ) -> Self {
        let packed = rings.packed();
        let write = if write { WRITE } else { 0 };
        let lap = |odd: bool| {
            let flags = write | if odd { USED } else { AVAIL };
            let desc = |i: u16| {
                let (address, len) = part(i);
                let low = u64::from(len as u32);
                let [rest_low, rest_high] = if packed { [i, flags] } else { [write, 0] };
                let rest = low | u64::from(rest_low) << 32 | u64::from(rest_high) << 48;
                [address.to_le_bytes(), rest.to_le_bytes()].concat()
            };
            (0..size).flat_map(desc).collect::<Vec<u8>>()
        };
        let put = |at: u64, bytes: &[u8]| view.write(at, bytes).expect("inside of RAM");
        let laps = [lap(false), lap(true)];
        // The driver wants no calls.
        if packed {
            put(at + DRIVER, &[0, 0, 1, 0]);
        } else {
            put(at, &laps[0]);
            let ids: Vec<u8> = (0..size).flat_map(u16::to_le_bytes).collect();
            put(at + DRIVER, &[1, 0, 0, 0]);
            put(at + DRIVER + 4, &ids);
        }
        Self {
            at,
            size,
            packed,
            laps,
            given: 0,
        }
    }

    fn place(&self) -> Place {
        Place {
            size: self.size,
            desc: self.at,
            driver: self.at + DRIVER,
            device: self.at + DEVICE,
        }
    }

    /// Makes the next `n` available.
    #[inline]
    fn give(&mut self, view: &View<'_>, n: u16) {
        if self.packed {
            let size = u64::from(self.size);
            let (first, lap) = (self.given % size, self.given / size);
            let straight = u64::from(n).min(size - first);
            for (from, n, lap) in [
                (first, straight, lap),
                (0, u64::from(n) - straight, lap + 1),
            ] {
                let bytes = from as usize * 16..(from + n) as usize * 16;
                let image = &self.laps[(lap % 2) as usize][bytes];
                view.write(self.at + from * 16, image)
                    .expect("inside of RAM");
            }
        }
        self.given += u64::from(n);
        if !self.packed {
            let index = self.given as u16;
            view.write(self.at + DRIVER + 2, &index.to_le_bytes())
                .expect("inside of RAM");
        }
    }
}

/// A guest with its device on the switch.
struct Guest {
    device: Arc<Device>,
    sender: Sender,
    env: Env,
    port: Arc<SwitchPort>,
    tx: Ring,
    rx: Ring,
}

/// A segment's headers, its checksum as a driver leaves it.
fn segment(bytes: &mut [u8]) {
    super::tcp_headers(bytes);
    let len = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&len.to_be_bytes());
    bytes[24..26].fill(0);
    let sum = wire::Sum::of(&bytes[14..34]).finish();
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut seed = wire::Sum::of(&bytes[26..34]);
    seed.add_word(6);
    seed.add_word(len - 20);
    bytes[50..52].copy_from_slice(&seed.value().to_be_bytes());
}

impl Guest {
    fn new(switch: &Switch, (number, to): (u16, u16), spec: &VirtioSpec) -> Self {
        let (ring, stride) = (spec.ring, spec.stride() as u64);
        let incoming = BUFFERS + u64::from(ring) * stride;
        let room = u64::from(spec.receive_ring()) * spec.buffer() as u64;
        let env = Env {
            memory: memory(RAM, incoming + room - RAM),
            irq: Arc::new(Silent),
            clock: Arc::new(RealTime::begin()),
            timer: Arc::new(Silent),
        };
        let whole = feature::CSUM | feature::HOST_TSO4 | feature::GUEST_CSUM | feature::GUEST_TSO4;
        let features = feature::VERSION_1
            | feature::MAC
            | feature::MRG_RXBUF
            | spec.rings.features()
            | if spec.whole.is_some() { whole } else { 0 };
        let device = Arc::new(Device::new(Config::new(mac(number))));
        assert!(device.agree(features), "{features:#x}");
        assert!(!spec.kept || device.keep(words()), "it can");
        let view = env.memory.view();
        let buffer = |i: u16| BUFFERS + u64::from(i) * stride;
        let out = |i: u16| (buffer(i), HEADER + spec.len_of(i));
        let back = |i: u16| {
            let each = spec.buffer();
            (incoming + u64::from(i) * each as u64, each)
        };
        let tx = Ring::new(&view, (TX_RING, ring, spec.rings), false, out);
        let rx = Ring::new(
            &view,
            (RX_RING, spec.receive_ring(), spec.rings),
            true,
            back,
        );
        for i in 0..ring {
            let plain = Spec::frames(60, 8, 1);
            let mut bytes = frame(number, to, spec.len_of(i), &plain);
            let mut head = [0; HEADER];
            if spec.whole.is_some() {
                segment(&mut bytes);
                // NEEDS_CSUM, TCPv4, headers, payload, where the sum begins and where it goes.
                head[..2].copy_from_slice(&[1, 1]);
                for (at, value) in [(2, HEADERS as u16), (4, 1460), (6, 34), (8, 16)] {
                    head[at..at + 2].copy_from_slice(&value.to_le_bytes());
                }
            }
            let all = [&head[..], &bytes].concat();
            view.write(buffer(i), &all).expect("inside of RAM");
        }
        drop(view);
        for (queue, ring) in [(RX, &rx), (TX, &tx)] {
            let start = Position::start(device.format());
            device.enable(queue, ring.place(), start).expect("a ring");
        }
        device.start_without_bus();
        device.settled();
        let receiver = Receiver {
            device: Arc::clone(&device),
        };
        let sink = NicSink {
            receive: Arc::new(receiver),
            env: env.clone(),
        };
        let port = switch
            .attach(&format!("n{number}"), Arc::new(sink), PortConfig::default())
            .expect("a free port");
        let sender = Sender {
            device: Arc::clone(&device),
        };
        let mut guest = Self {
            device,
            sender,
            env,
            port,
            tx,
            rx,
        };
        let all = guest.rx.size;
        guest.give(all);
        guest
    }

    fn give(&mut self, n: u16) {
        let view = self.env.memory.view();
        self.rx.give(&view, n);
    }

    /// Fills `n` descriptors, without a notification.
    fn fill(&mut self, n: u16) {
        let view = self.env.memory.view();
        self.tx.give(&view, n);
    }

    /// Has the device send what is there.
    #[inline]
    fn notify(&mut self) {
        let work = self.device.notify(TX);
        assert!(work.is_some_and(|work| work.tx), "it has the queue");
        while self.sender.run(&self.env, &*self.port, frame::MAX_BATCH) == Progress::More {}
    }

    fn counter(&self, name: &str) -> u64 {
        let mut found = 0;
        self.device.counters(&mut |n, value| {
            if n == name {
                found = value;
            }
        });
        found
    }
}

/// Two guests on a switch.
pub struct VirtioPair {
    spec: VirtioSpec,
    from: Guest,
    to: Guest,
    clock: RealTime,
    _keeper: Keeper,
}

impl VirtioPair {
    /// Sets everything up and has the switch learn both addresses.
    ///
    /// # Panics
    /// When the machine has no memory or thread left.
    pub fn new(spec: VirtioSpec) -> Self {
        let clock = RealTime::begin();
        let switch = Switch::new(SwitchConfig::default(), clock.of_turns());
        let keeper = Keeper::start(&switch).expect("a thread");
        let from = Guest::new(&switch, (1, 2), &spec);
        let mut to = Guest::new(&switch, (2, 1), &spec);
        to.fill(1);
        to.notify();
        let mut pair = Self {
            spec,
            from,
            to,
            clock,
            _keeper: keeper,
        };
        for _ in 0..2 * spec.ring {
            pair.burst();
        }
        pair
    }

    /// One notification's worth: the sender hands over a burst, the receiver gives as many buffers back. It is not asked
    /// to tell of these.
    #[inline(never)]
    pub fn burst(&mut self) {
        let (burst, back) = (self.spec.burst, self.spec.burst * self.spec.buffers());
        self.clock.in_turn(|| {
            self.from.fill(burst);
            self.from.notify();
            self.to.give(back);
        });
    }

    /// What the drivers do of a burst, without a notification. Returns how many frames that is.
    #[inline(never)]
    pub fn drive(&mut self) -> u64 {
        self.from.fill(self.spec.burst);
        self.to.give(self.spec.burst * self.spec.buffers());
        self.spec.burst.into()
    }

    /// Frames that have arrived so far.
    pub fn arrived(&self) -> u64 {
        self.to.counter("rx_frames")
    }

    /// Nanoseconds of this thread's time per frame that arrived, over about `frames` of them.
    pub fn sample(&mut self, frames: usize) -> f64 {
        let bursts = frames / usize::from(self.spec.burst) + 1;
        let before = self.arrived();
        let begun = thread_time();
        for _ in 0..bursts {
            self.burst();
        }
        let took = thread_time() - begun;
        took as f64 / (self.arrived() - before).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Rings; 4] = [
        Rings::Split,
        Rings::SplitInOrder,
        Rings::Packed,
        Rings::PackedInOrder,
    ];

    #[test]
    fn all_that_is_sent_arrives() {
        for rings in ALL {
            let plain = [(60, 1), (60, 32), (1514, 32), (60, 128), (60, 256)];
            let plain = plain.map(|(size, burst)| VirtioSpec::frames(size, burst, rings));
            let kept = plain.map(VirtioSpec::kept);
            let all = plain.into_iter().chain(kept);
            for spec in all.chain([VirtioSpec::imix(32, rings)]) {
                let mut pair = VirtioPair::new(spec);
                let before = pair.arrived();
                (0..50).for_each(|_| pair.burst());
                assert_eq!(
                    pair.arrived() - before,
                    50 * u64::from(spec.burst),
                    "{spec:?}"
                );
            }
        }
    }

    #[test]
    fn segments_cross_whole_into_buffers_of_either_size() {
        for rings in ALL {
            for buffer in [4096, 1 << 16] {
                let spec = VirtioSpec::segments(4, rings, buffer);
                let mut pair = VirtioPair::new(spec);
                let whole = |pair: &VirtioPair| {
                    ["rx_frames", "rx_gso_frames"].map(|name| pair.to.counter(name))
                };
                let before = whole(&pair);
                (0..50).for_each(|_| pair.burst());
                assert_eq!(whole(&pair), before.map(|n| n + 200), "{spec:?}");
            }
        }
    }
}
