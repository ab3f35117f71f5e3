//! Several guests on one switch: two with an 82540EM, two with a VF, and others that only receive.

mod guest;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use frame::{Batch, Caps, Cut, MAX_BATCH, Run, Sink, Wake, work};
use model::{Env, Progress, Receive, TURN_BYTES};
use model_testkit::CountedWake;
use vale::{PortConfig, Switch, SwitchConfig, SwitchPort};
use wire::{MAX_SEGMENTS, MacAddr};

use crate::input::Input;
use crate::machine::some_frame;
use guest::Guest;

/// NICs, half of each model.
const NICS: usize = 4;
/// Frames of one turn.
const BUDGET: usize = 256;
/// Copies of what floods that a switch makes in one call.
const AT_ONCE: u64 = 1024;
/// Least bytes that a segment takes of a turn.
const SEGMENT: usize = 1400;
/// Turns after which a ring must have come to its end.
const TURNS: usize = 1 << 14;

/// A switch with several NICs, whose guests write registers, rings and frames as they like. The first
/// byte says how many receivers there are beside, the second what the switch does.
///
/// A turn of any NIC sends no more segments than its budget and its bytes allow, and has the others
/// make no more copies of them than the budget, what a switch makes at once and the last frame, for
/// each that receives it. A register access touches no guest's memory. Every ring comes to its end.
pub fn several_nics(data: &[u8]) {
    let mut input = Input::new(data);
    let mut lan = Lan::new(input.u8(), input.u8());
    let mut room = Vec::new();
    for _ in 0..96 {
        let Some(op) = input.op() else { break };
        lan.step(op, &mut input, &mut room);
    }
    lan.rest();
    for guest in &mut lan.guests {
        guest.keep_memory();
    }
}

/// The way from the switch to a NIC.
struct ToNic {
    receive: Arc<dyn Receive>,
    env: Env,
}

impl Sink for ToNic {
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
}

/// Takes everything.
struct Crowd(Caps);

impl Sink for Crowd {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        for pick in picks {
            let frame = batch.get((*pick).into()).expect("a pick is a frame");
            assert!(self.0.accepts(frame.notes()));
        }
        picks.len()
    }

    fn caps(&self) -> Caps {
        self.0
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// What a sender has offered to the switch in one turn.
#[derive(Clone, Copy, Default)]
struct Offered {
    /// Segments of all frames that were taken.
    segments: u64,
    /// Most copies that one call may have made.
    copies: u64,
}

/// The way from a NIC to the switch, where the work is bounded call by call.
struct ToSwitch {
    port: Arc<SwitchPort>,
    ports: u64,
    offered: Mutex<Offered>,
}

impl Sink for ToSwitch {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let taken = self.port.deliver(batch, picks);
        assert!(taken <= picks.len());
        let (mut all, mut single, mut dearest) = (0, 0, 0);
        for pick in &picks[..taken] {
            let frame = batch.get((*pick).into()).expect("a pick is a frame");
            let segments = frame.notes().segments(frame.len()) as u64;
            all += segments;
            if frame.head()[0] & 1 == 0 {
                single += segments;
            }
            dearest = dearest.max(segments * self.ports);
        }
        let mut offered = self.offered.lock().unwrap_or_else(|e| e.into_inner());
        offered.segments += all;
        offered.copies = offered.copies.max(AT_ONCE.max(dearest) + single);
        taken
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        let taken = self.port.deliver_run(run)?;
        assert!(taken <= run.count());
        let mut offered = self.offered.lock().unwrap_or_else(|e| e.into_inner());
        // To one station.
        offered.segments += taken as u64;
        offered.copies = offered.copies.max(taken as u64);
        Some(taken)
    }

    fn caps(&self) -> Caps {
        self.port.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.port.want_room(waker);
    }
}

struct Lan {
    switch: Switch,
    now: Arc<AtomicU64>,
    guests: Vec<Guest>,
    ways: Vec<ToSwitch>,
    /// Where frames come in from outside.
    uplink: Arc<SwitchPort>,
    waker: Arc<dyn Wake>,
}

impl Lan {
    fn new(crowd: u8, shape: u8) -> Lan {
        let now = Arc::new(AtomicU64::new(2_000_000_000));
        let clock = Arc::clone(&now);
        let config = SwitchConfig {
            backpressure: shape & 1 == 0,
            link_local: shape & 2 != 0,
            ..SwitchConfig::default()
        };
        let switch = Switch::new(config, Arc::new(move || clock.load(Ordering::Relaxed)));
        let waker: Arc<dyn Wake> = Arc::new(CountedWake::default());
        if shape & 4 != 0 {
            switch.set_timer(Arc::clone(&waker));
        }
        let crowd = usize::from(crowd & 0x7f);
        let ports = (NICS + crowd + 1) as u64;
        let (mut guests, mut ways) = (Vec::new(), Vec::new());
        for at in 0..NICS {
            let guest = Guest::new(at as u8, at >= NICS / 2);
            let to = ToNic {
                receive: Arc::clone(&guest.nic.receive),
                env: guest.env.clone(),
            };
            let only = if shape & 8 != 0 {
                vec![MacAddr(guest::mac(at as u8))]
            } else {
                Vec::new()
            };
            let config = PortConfig {
                private: shape & 16 != 0 && at == 0,
                only,
                ..PortConfig::default()
            };
            let name = format!("nic{at}");
            let port = switch.attach(&name, Arc::new(to), config);
            ways.push(ToSwitch {
                port: port.expect("room for a port"),
                ports,
                offered: Mutex::default(),
            });
            guests.push(guest);
        }
        for at in 0..crowd {
            let caps = if at % 2 == 0 { Caps::NONE } else { Caps::ALL };
            let to = Arc::new(Crowd(caps));
            let port = switch.attach(&format!("p{at}"), to, PortConfig::default());
            // The switch keeps it as long as its owner does.
            drop(port.expect("room for a port"));
        }
        let config = PortConfig {
            uplink: true,
            waits: false,
            ..PortConfig::default()
        };
        let uplink = switch.attach("up", Arc::new(Crowd(Caps::ALL)), config);
        Lan {
            switch,
            now,
            guests,
            ways,
            uplink: uplink.expect("room for a port"),
            waker,
        }
    }

    /// The memory of all guests, as it was touched.
    fn touched(&self) -> Vec<guest_mem::Totals> {
        let totals = self.guests.iter().map(|g| g.env.memory.meter().totals());
        totals.collect()
    }

    /// Does to a NIC what touches no memory.
    fn access(&mut self, at: usize, f: impl FnOnce(&mut Guest)) {
        let before = self.touched();
        f(&mut self.guests[at]);
        assert!(before == self.touched(), "an access touched guest memory");
    }

    fn step(&mut self, op: u8, input: &mut Input<'_>, room: &mut Vec<u8>) {
        let at = usize::from(op >> 4) % NICS;
        let more = op >> 6;
        match op & 15 {
            0..=3 => {
                self.guests[at].packets(input);
                self.access(at, Guest::ring);
            }
            4 => {
                let (offset, value) = (self.guests[at].register(input), input.value());
                self.access(at, |g| g.write(offset, value));
            }
            5 => {
                let (offset, bit) = (self.guests[at].register(input), input.u8() & 31);
                self.access(at, |g| {
                    let old = g.read(offset);
                    g.write(offset, old ^ 1 << bit);
                });
            }
            6 => self.guests[at].scribble(input),
            7 => self.access(at, |g| g.give_buffers(u32::from(more) * 11 + 3)),
            8..=10 => {
                let notes = some_frame(input, room);
                if let Some(last) = room.get_mut(5) {
                    *last = last.wrapping_sub(0x54) ^ more;
                }
                let mut batch = Batch::new();
                for _ in 0..=usize::from(more) * 20 {
                    batch.push_bytes(room);
                    batch.end(notes);
                }
                let mut picks = Vec::new();
                let picks = batch.all_picks(&mut picks);
                let taken = self.uplink.deliver(&batch, picks);
                assert!(taken <= picks.len());
                work::take_turn();
            }
            11 => {
                let passed = u64::from(input.u16()) * 10_000;
                let now = self.now.fetch_add(passed, Ordering::Relaxed) + passed;
                self.switch.tick();
                self.access(at, |g| g.pass(now));
            }
            12 => self.access(at, |g| g.surroundings(more, input)),
            13 => {
                self.guests[at].start();
            }
            _ => self.turn(at),
        }
        self.work(at);
    }

    /// What the NIC has noted, in turns.
    fn work(&mut self, at: usize) {
        let noted = self.guests[at].nic.control.take_work();
        if noted.rx {
            let guest = &mut self.guests[at];
            guest.nic.receive.poll(&guest.env);
        }
        if noted.tx {
            self.turn(at);
        }
    }

    /// Turns of a NIC's transmitter until it rests, each within its bounds.
    fn turn(&mut self, at: usize) {
        let (guest, way) = (&mut self.guests[at], &self.ways[at]);
        for turn in 0.. {
            assert!(turn < TURNS, "transmit never ends");
            work::take_turn();
            *way.offered.lock().unwrap_or_else(|e| e.into_inner()) = Offered::default();
            let progress = guest.nic.transmit.run(&guest.env, way, BUDGET);
            let copies = work::take_turn();
            let offered = *way.offered.lock().unwrap_or_else(|e| e.into_inner());
            // Full frames of a turn, and the last packet whole.
            let most = BUDGET.max(TURN_BYTES / SEGMENT) + MAX_BATCH + MAX_SEGMENTS;
            let segments = offered.segments;
            assert!(segments <= most as u64, "{segments} segments in a turn");
            let most = BUDGET as u64 + offered.copies;
            assert!(copies <= most, "{copies} copies in a turn, {most} at most");
            match progress {
                Progress::More => {}
                Progress::Blocked => return way.want_room(&self.waker),
                Progress::Idle => return,
            }
        }
    }

    /// All turns once more, without new input.
    fn rest(&mut self) {
        for at in 0..NICS {
            self.turn(at);
            self.work(at);
        }
        let most = SwitchConfig::default().max_macs;
        assert!(self.switch.macs().len() <= most, "too many addresses");
    }
}
