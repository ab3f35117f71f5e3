//! Guest to guest inside one process: the models, the switch and two guests' memories, driven by one
//! thread the way the daemon drives them, beside the raw loop of `hypernic-ceiling`.
//!
//! How to call it: [`measure`] gives nanoseconds of processor time per frame of ours and of the
//! ceiling for one [`Spec`], their samples taken in turn; [`Pair`] alone is ours, with
//! [`Pair::burst`] to call from a profiler or a counter. `hypernic-bench guest_to_guest --inside`
//! prints the table ([`print`]).

pub mod csb;
pub mod fleet;
mod frames;
pub mod paged;
pub mod realtek;
pub mod virtio;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ceiling::{Loop, thread_time};
use eswitch::{Pool, VlanSet};
use frame::{Batch, Caps, Cut, Hot, Lines, Run, Sink, Wake, turn};
use intel_offsets::e1000::long::{
    CTRL, RAL, RCTL, RDBAL, RDLEN, RDT, RXCSUM, RXDCTL, TCTL, TDBAL, TDLEN, TDT, TXDCTL,
};
use model::{Clock, Env, Nanos, Nic, PciState, Progress, Receive};
use model_testkit::{Silent, memory};
use vale::{Keeper, PortConfig, Switch, SwitchConfig, SwitchPort};
use wire::MacAddr;

pub use crate::spec::Spec;
use crate::spec::{HEADERS, PAGE};
use frames::{frame, mac, tcp_headers};

const RAM: u64 = 0x10_0000;
const TX_RING: u64 = RAM;
const RX_RING: u64 = RAM + 0x2_0000;
const BUFFERS: u64 = RAM + 0x10_0000;

/// Of a VF: how buffers are filled, and what switches a queue on.
const SRRCTL: u64 = 0x280c;
const ENABLE: u32 = 1 << 25;

const EOP: u64 = 1 << 24;
const IFCS: u64 = 1 << 25;
const TSE: u64 = 1 << 26;
const RS: u64 = 1 << 27;
const DEXT: u64 = 1 << 29;

/// Real time, or a part of it: what watches each access makes the program slow, and what was learned would be old before it is used.
#[derive(Clone, Copy)]
struct RealTime(Instant, u32);

impl Clock for RealTime {
    fn now(&self) -> Nanos {
        let passed = self.0.elapsed();
        let passed = if self.1 == 1 { passed } else { passed / self.1 };
        passed.as_nanos() as Nanos + 1_000_000_000
    }
}

impl RealTime {
    fn begin() -> RealTime {
        RealTime(Instant::now(), 1)
    }

    /// For a switch, as the daemon has it: in a turn, when that began.
    fn of_turns(self) -> Arc<dyn Fn() -> Nanos + Send + Sync> {
        Arc::new(move || turn::began().unwrap_or_else(|| self.now()))
    }

    /// What a worker does in a turn, with its one reading of the clock.
    #[inline]
    fn in_turn(self, work: impl FnOnce()) {
        turn::at(self.now(), work);
    }
}

/// A NIC's receive side, as the daemon puts it on a wire.
#[repr(C, align(64))]
struct NicSink {
    receive: Arc<dyn Receive>,
    env: Env,
}

impl Sink for NicSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.receive.deliver(&self.env, batch, picks)
    }
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.receive.deliver_run(&self.env, run)
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.receive.deliver_cut(&self.env, cut, from)
    }
    fn caps(&self) -> Caps {
        self.receive.caps()
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.receive.want_room(waker);
    }
    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.receive.give_up(&self.env, batch, picks);
    }
    fn hot(&self, hot: &mut Hot) {
        hot.add(Lines::of(self));
        self.receive.hot(hot);
        self.env.memory.hot(hot);
    }
}

/// A guest with its NIC on the switch.
struct Guest {
    nic: Nic,
    env: Env,
    port: Arc<SwitchPort>,
    tail: u32,
    room: u32,
    /// The receive ring as it is given to the device.
    given: Vec<u8>,
}

/// Bytes of a guest's memory.
fn memory_len(spec: &Spec) -> u64 {
    BUFFERS - RAM + 2 * u64::from(spec.ring) * spec.stride().max(PAGE) as u64
}

/// Has a NIC keep what it needs to go on after its process died, for as long as the program runs.
fn keep(nic: &mut model::Nic) {
    assert!(nic.control.keep(words()), "it can");
}

/// What a NIC keeps that in.
fn words() -> model::Kept {
    let words = Box::leak(Box::new([const { AtomicU64::new(0) }; model::KEPT]));
    model::Kept::new(words, Arc::new(()))
}

impl Guest {
    fn new(switch: &Switch, number: u16, spec: &Spec) -> Guest {
        let env = Env {
            memory: memory(RAM, memory_len(spec)),
            irq: Arc::new(Silent),
            clock: Arc::new(RealTime::begin()),
            timer: Arc::new(Silent),
        };
        let nic = if spec.vf {
            let channel = igb::VfChannel::new();
            channel.set_grant(igb::Grant {
                enabled: true,
                link: true,
                max_frame: 1518,
                ..igb::Grant::default()
            });
            let mut nic = igb::vf(&igb::Config::new(mac(number)), channel);
            nic.control.attend(&env);
            if spec.kept {
                keep(&mut nic);
            }
            nic
        } else {
            let mut config = e1000::Config::new(mac(number));
            config.negotiation = std::time::Duration::ZERO;
            config.csb = spec.csb;
            let mut nic = e1000::new(config);
            if spec.kept {
                keep(&mut nic);
            }
            nic
        };
        let sink = NicSink {
            receive: Arc::clone(&nic.receive),
            env: env.clone(),
        };
        let name = format!("n{number}");
        let port = switch
            .attach(&name, Arc::new(sink), PortConfig::default())
            .expect("a free port");
        let pool = Pool {
            enabled: true,
            receives: true,
            sends: true,
            macs: vec![MacAddr(mac(number))],
            filters_vlans: false,
            vlans: VlanSet::none(),
            ..Pool::default()
        };
        assert!(!spec.vf || switch.set_pool(&name, pool), "it has a pool");
        let mut guest = Guest {
            nic,
            env,
            port,
            tail: 0,
            room: spec.ring - 1,
            given: Vec::new(),
        };
        guest.set_up(number, spec);
        guest
    }

    fn set_up(&mut self, number: u16, spec: &Spec) {
        let on = PciState {
            bus_master: true,
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, on);
        let ring = u64::from(spec.ring);
        let to = BUFFERS + ring * spec.stride().max(PAGE) as u64;
        let given = (0..ring).map(|i| u128::from(to + i * spec.stride() as u64).to_le_bytes());
        self.given = given.flatten().collect();
        let view = self.env.memory.view();
        view.write(RX_RING, &self.given).expect("inside of RAM");
        drop(view);
        if spec.vf {
            for (at, value) in [
                (TDBAL, TX_RING as u32),
                (TDLEN, spec.ring * 16),
                (TXDCTL, ENABLE),
                (RDBAL, RX_RING as u32),
                (RDLEN, spec.ring * 16),
                (SRRCTL, 1 << 25 | 2),
                (RXDCTL, ENABLE),
                (RDT, self.room),
            ] {
                self.write(at, value);
            }
            self.nic.control.settled();
            return;
        }
        let address = mac(number);
        let low = u32::from_le_bytes([address[0], address[1], address[2], address[3]]);
        let high = u32::from_le_bytes([address[4], address[5], 0, 0x80]);
        // EN, BAM, SECRC; LPE and 16 KiB buffers where frames are long.
        let mut rctl = 1 << 1 | 1 << 15 | 1 << 26;
        if spec.stride() > 2048 {
            rctl |= 1 << 5 | 1 << 16 | 1 << 25;
        }
        let sums = if spec.mss.is_some() || spec.udp {
            3 << 8
        } else {
            0
        };
        for (at, value) in [
            (CTRL, 1 << 6),
            (RAL, low),
            (RAL + 4, high),
            (RXCSUM, sums),
            (TDBAL, TX_RING as u32),
            (TDLEN, spec.transmit_ring() * 16),
            (RDBAL, RX_RING as u32),
            (RDLEN, spec.ring * 16),
            (RDT, self.room),
            (TCTL, 1 << 1 | 1 << 3),
            (RCTL, rctl),
        ] {
            self.write(at, value);
        }
        // As after an answer.
        self.nic.control.settled();
    }

    fn poke(&self, at: u64, word: u64) {
        let view = self.env.memory.view();
        view.write(at, &word.to_le_bytes()).expect("inside of RAM");
    }

    fn write(&mut self, at: u64, value: u32) {
        let data = value.to_le_bytes();
        self.nic.control.write(&self.env, 0, at, &data);
        let work = self.nic.control.take_work();
        if work.tx {
            let run = |nic: &mut Nic, env: &Env, port: &SwitchPort| {
                nic.transmit.run(env, port, frame::MAX_BATCH)
            };
            while run(&mut self.nic, &self.env, &self.port) == Progress::More {}
        }
        if work.rx {
            self.nic.receive.poll(&self.env);
        }
    }

    /// Puts frames for `to` into the whole transmit ring.
    fn load(&self, from: u16, to: u16, spec: &Spec) {
        let view = self.env.memory.view();
        if let Some(mss) = spec.mss {
            let mut bytes = frame(from, to, spec.size, spec);
            tcp_headers(&mut bytes);
            let each = spec.descriptors() as u64;
            for packet in 0..u64::from(spec.transmit_ring()) / each {
                self.load_packet(packet * each, &bytes, mss);
            }
            return;
        }
        for i in 0..u64::from(spec.ring) {
            let at = BUFFERS + i * spec.stride() as u64;
            let number = i as u32;
            let size = spec.mix.size(number, spec.size);
            let bytes = frame(from, to + spec.mix.receiver(number) as u16, size, spec);
            view.write(at, &bytes).expect("inside of RAM");
            self.poke(TX_RING + i * 16, at);
            // The same in either's words: EOP, IFCS, RS.
            let advanced = 3 << 20 | DEXT | (size as u64) << 46;
            let kind = if spec.vf { advanced } else { 0 };
            let rest = size as u64 | EOP | IFCS | RS | kind;
            self.poke(TX_RING + i * 16 + 8, rest);
        }
    }

    /// A context descriptor and the packet behind it.
    fn load_packet(&self, first: u64, bytes: &[u8], mss: usize) {
        let view = self.env.memory.view();
        let context = 14 | 24 << 8 | 33 << 16 | 34 << 32 | 50 << 40;
        let rest = (bytes.len() - HEADERS) as u64
            | 3 << 24
            | TSE
            | DEXT
            | (HEADERS as u64) << 40
            | (mss as u64) << 48;
        self.poke(TX_RING + first * 16, context);
        self.poke(TX_RING + first * 16 + 8, rest);
        let last = bytes.len().div_ceil(PAGE) - 1;
        for (i, part) in bytes.chunks(PAGE).enumerate() {
            let desc = first + 1 + i as u64;
            let at = BUFFERS + desc * PAGE as u64;
            view.write(at, part).expect("inside of RAM");
            self.poke(TX_RING + desc * 16, at);
            let end = if i == last { EOP | RS } else { 0 };
            let rest = part.len() as u64 | 1 << 20 | IFCS | TSE | DEXT | end | 3 << 40;
            self.poke(TX_RING + desc * 16 + 8, rest);
        }
    }

    /// Gives so many buffers back.
    fn give(&mut self, spec: &Spec, n: u32) {
        if spec.vf {
            // What is written back stands where the address was.
            let view = self.env.memory.view();
            let first = (self.room + 1) % spec.ring;
            let straight = n.min(spec.ring - first);
            for (from, n) in [(first, straight), (0, n - straight)] {
                let bytes = from as usize * 16..(from + n) as usize * 16;
                let at = RX_RING + bytes.start as u64;
                view.write(at, &self.given[bytes]).expect("inside of RAM");
            }
        }
        self.room = (self.room + n) % spec.ring;
        self.write(RDT, self.room);
    }

    /// Where its memory is.
    fn memory(&self, spec: &Spec) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let view = self.env.memory.view();
        let _ = view.read_slices(RAM, memory_len(spec), &mut |slice| {
            let (from, len) = slice.as_raw();
            found.push(from.addr() as u64..(from.addr() + len) as u64);
        });
        found
    }

    fn counter(&self, name: &str) -> u64 {
        let mut found = 0;
        self.nic.control.counters(&mut |n, v| {
            if n == name {
                found = v;
            }
        });
        found
    }
}

/// Guests on a switch; the first sends to the others, of which there is one where frames are alike.
pub struct Pair {
    spec: Spec,
    from: Guest,
    to: Vec<Guest>,
    clock: RealTime,
    burst: u32,
    /// Looks after the switch's patience, as in the daemon.
    _keeper: Keeper,
}

impl Pair {
    /// Sets everything up and has the switch learn both addresses.
    ///
    /// # Panics
    /// When the machine has no memory or thread left.
    pub fn new(spec: Spec) -> Pair {
        let clock = RealTime::begin();
        let switch = if spec.vf {
            Switch::on_chip(SwitchConfig::default(), clock.of_turns())
        } else {
            Switch::new(SwitchConfig::default(), clock.of_turns())
        };
        let keeper = Keeper::start(&switch).expect("a thread");
        let mut to = Vec::new();
        let from = Guest::new(&switch, 1, &spec);
        for number in (2..).take(spec.mix.receivers()) {
            let mut guest = Guest::new(&switch, number, &spec);
            guest.load(number, 1, &Spec::frames(60, 8, 1));
            guest.tail = 1;
            guest.write(TDT, 1);
            to.push(guest);
        }
        from.load(1, 2, &spec);
        let mut pair = Pair {
            spec,
            from,
            to,
            clock,
            burst: spec.burst(),
            _keeper: keeper,
        };
        for _ in 0..2 * spec.ring {
            pair.burst();
        }
        pair
    }

    /// One doorbell's worth: the sender hands over a burst, the receivers give as many buffers back. It is a turn, for which the
    /// clock is read once.
    #[inline(never)]
    pub fn burst(&mut self) {
        self.clock.in_turn(|| self.hand_over());
    }

    #[inline]
    fn hand_over(&mut self) {
        let (from, spec, burst) = (&mut self.from, &self.spec, self.burst);
        let first = from.tail;
        from.tail = (from.tail + burst * spec.descriptors()) % spec.transmit_ring();
        from.write(TDT, from.tail);
        if let [to] = &mut self.to[..] {
            to.give(spec, burst * spec.arriving());
            return;
        }
        let mut came = [0; 8];
        for number in first..first + burst {
            came[spec.mix.receiver(number % spec.ring)] += 1;
        }
        for (to, came) in self.to.iter_mut().zip(came) {
            if came > 0 {
                to.give(spec, came);
            }
        }
    }

    /// Where both guests' memories are in this process.
    pub fn memories(&self) -> Vec<Range<u64>> {
        let guests = std::iter::once(&self.from).chain(&self.to);
        guests.flat_map(|guest| guest.memory(&self.spec)).collect()
    }

    /// Frames that have arrived so far.
    pub fn arrived(&self) -> u64 {
        let came = self.to.iter().map(|guest| guest.counter("rx_frames"));
        came.sum()
    }

    /// Nanoseconds of this thread's time per frame that arrived, over about `frames` of them.
    pub fn sample(&mut self, frames: usize) -> f64 {
        let bursts = frames / (self.spec.burst() * self.spec.arriving()) as usize + 1;
        let before = self.arrived();
        let begun = thread_time();
        for _ in 0..bursts {
            self.burst();
        }
        let took = thread_time() - begun;
        took as f64 / (self.arrived() - before).max(1) as f64
    }
}

/// What one spec gave: nanoseconds of processor time per frame that arrived, the least of all
/// samples.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Ours: transmit side, switch, receive side and the registers' part.
    pub ours: f64,
    /// The raw loop's.
    pub ceiling: f64,
}

impl Figures {
    /// Our share of what the machine can do.
    pub fn ratio(&self) -> f64 {
        self.ceiling / self.ours
    }
}

/// Measures one spec: `rounds` samples of about `frames` frames of each, in turn.
pub fn measure(spec: Spec, frames: usize, rounds: usize) -> Figures {
    let mut pair = Pair::new(spec);
    let mut raw = Loop::new(spec.shape());
    let burst = (spec.burst() * spec.arriving()) as usize;
    let mut figures = Figures {
        ours: f64::INFINITY,
        ceiling: f64::INFINITY,
    };
    for _ in 0..=rounds {
        figures.ceiling = figures.ceiling.min(raw.sample(burst, frames));
        figures.ours = figures.ours.min(pair.sample(frames));
    }
    figures
}

/// What is measured: 82540EMs, and 82576 VFs.
pub fn specs(quick: bool) -> Vec<Spec> {
    let mut specs = Vec::new();
    let rings: &[u32] = if quick { &[256] } else { &[256, 1024] };
    for &ring in rings {
        for size in [60, 256, 1514, 9014] {
            for burst in [1, 4, 32, 256] {
                specs.push(Spec::frames(size, ring, burst));
            }
        }
        for burst in [1, 4] {
            specs.push(Spec {
                mss: Some(1460),
                ..Spec::frames(65_000, ring, burst)
            });
        }
    }
    let vfs = [60, 256, 1514].map(|size| [1, 4, 32, 256].map(|n| Spec::frames(size, 256, n)));
    specs.extend(vfs.into_iter().flatten().map(Spec::between_vfs));
    specs
}

/// Measures and prints a table.
pub fn print(quick: bool) {
    let rounds = if quick { 20 } else { 60 };
    println!("| bytes | ring | burst | ns/frame | Mpps | Gbit/s | ceiling ns | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    for spec in specs(quick) {
        let shape = spec.shape();
        let frames = 20_000_000 / (400 + shape.size);
        let got = measure(spec, frames, rounds);
        println!(
            "| {}{} | {} | {} | {:.1} | {:.2} | {:.1} | {:.1} | {:.2} |",
            spec.size,
            match (spec.mss, spec.vf) {
                (Some(_), _) => " TSO",
                (None, true) => " VF",
                (None, false) => "",
            },
            spec.ring,
            spec.burst(),
            got.ours,
            1e3 / got.ours,
            shape.size as f64 * 8.0 / got.ours,
            got.ceiling,
            got.ratio(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Mix;

    #[test]
    fn all_that_is_sent_arrives() {
        let udp = [60, 1514].map(|size| Spec::frames(size, 256, 32).between_vfs().of_udp());
        let mixes = [Mix::Imix, Mix::Alternating, Mix::Flows];
        let mixed = mixes.map(|mix| Spec::frames(60, 256, 32).mixed(mix));
        let mixed = mixed.into_iter().chain(mixed.map(Spec::between_vfs));
        for mut spec in specs(true).into_iter().chain(udp).chain(mixed) {
            spec.burst = spec.burst.min(8);
            let mut pair = Pair::new(spec);
            let before = pair.arrived();
            for _ in 0..50 {
                pair.burst();
            }
            let want = 50 * u64::from(spec.burst() * spec.arriving());
            assert_eq!(pair.arrived() - before, want, "{spec:?}");
        }
    }
}
