//! Several senders into one receiver: they copy side by side, and the guest sees one ring in order.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use frame::Batch;
use model::Nic;
use wire::Offload;

const RING: u32 = if cfg!(miri) { 32 } else { 256 };

/// A frame that says who sent it, and which of his it is.
fn numbered(sender: u8, nth: u32, len: usize) -> Vec<u8> {
    let mut frame = plain(MAC, len);
    frame[14] = sender;
    frame[16..20].copy_from_slice(&nth.to_be_bytes());
    let last = frame.len() - 1;
    frame[last] = nth as u8;
    frame
}

/// Lengths that need the fast path, several buffers, and (tagged) the general way.
fn len(nth: u32) -> usize {
    [60, 64, 1500, 61, 300, 3000, 128][nth as usize % 7]
}

/// Says that a thread is done even when it panics, so that the others end.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Takes frames out of the ring as a driver does, and gives the buffers back.
struct Guest {
    at: u64,
    part: Vec<u8>,
}

impl Guest {
    fn take(&mut self, env: &model::Env) -> Option<Vec<u8>> {
        let view = env.memory.view();
        loop {
            let desc = RX_RING + self.at * 16;
            let mut back = [0; 8];
            view.read_acquire(desc + 8, &mut back).expect("read");
            if back[4] & 1 == 0 {
                return None;
            }
            let n = usize::from(u16::from_le_bytes([back[0], back[1]]));
            let from = self.part.len();
            self.part.resize(from + n, 0);
            let buffer = RX_BUFFERS + self.at * 0x2000;
            view.read(buffer, &mut self.part[from..]).expect("read");
            view.write(desc + 8, &[0; 8]).expect("write");
            self.at = (self.at + 1) % u64::from(RING);
            if back[4] & 2 != 0 {
                return Some(std::mem::take(&mut self.part));
            }
        }
    }
}

fn write(control: &mut dyn model::Control, env: &model::Env, at: u64, value: u32) {
    control.write(env, 0, at, &value.to_le_bytes());
    control.take_work();
}

fn ring(m: &mut Machine, rctl: u32) {
    m.rx_on(RING, rctl);
    for i in 0..RING {
        m.rx_desc(i, RX_BUFFERS + u64::from(i) * 0x2000);
    }
}

#[test]
fn frames_of_several_senders_come_whole_once_and_each_ones_in_order() {
    const FRAMES: u32 = if cfg!(miri) { 40 } else { 30_000 };
    const SENDERS: u8 = 3;
    let mut m = Machine::default();
    // Long frames, no FCS.
    ring(&mut m, 0x8000 | 1 << 26 | 1 << 5);
    let Machine { nic, env, .. } = m;
    let Nic {
        mut control,
        receive,
        ..
    } = nic;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (receive, env, done) = (&receive, &env, &done);
            scope.spawn(move || {
                let mut next = 0;
                while next < FRAMES && !done.load(Ordering::SeqCst) {
                    let mut batch = Batch::new();
                    for nth in next..(next + 5 + u32::from(sender) * 40).min(FRAMES) {
                        batch.push_bytes(&numbered(sender, nth, len(nth)));
                        batch.end(Offload::NONE);
                    }
                    let mut room = Vec::new();
                    let taken = receive.deliver(env, &batch, batch.all_picks(&mut room));
                    next += taken as u32;
                    if taken == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let _done = Done(&done);
        let mut guest = Guest {
            at: 0,
            part: Vec::new(),
        };
        let mut next = [0; SENDERS as usize];
        let mut idle = 0;
        while next.iter().any(|n| *n < FRAMES) {
            let Some(frame) = guest.take(&env) else {
                idle += 1;
                assert!(idle < 50_000_000, "frames {next:?} never came");
                std::thread::yield_now();
                continue;
            };
            idle = 0;
            let sender = frame[14];
            let nth = u32::from_be_bytes([frame[16], frame[17], frame[18], frame[19]]);
            assert_eq!(nth, next[usize::from(sender)], "of sender {sender}");
            assert_eq!(frame, numbered(sender, nth, len(nth)));
            next[usize::from(sender)] += 1;
            // All but one, as drivers do.
            let tail = (guest.at as u32 + RING - 1) % RING;
            control.write(&env, 0, reg::RDT, &tail.to_le_bytes());
            control.take_work();
            receive.poll(&env);
        }
        let count = |control: &mut Box<dyn model::Control>, at: u64| {
            let mut value = [0; 4];
            control.read(&env, 0, at, &mut value);
            u32::from_le_bytes(value)
        };
        assert_eq!(count(&mut control, 0x4074), FRAMES * u32::from(SENDERS));
    });
}

/// Stops the receiver, as a driver that goes down does, while senders copy: what it takes away is
/// not written to any more, whatever was on its way.
#[test]
fn a_receiver_that_was_stopped_leaves_its_buffers_alone() {
    const ROUNDS: u32 = if cfg!(miri) { 4 } else { 2000 };
    const FRAMES: u32 = if cfg!(miri) { 10 } else { 100 };
    let mut m = Machine::default();
    ring(&mut m, 0x8000 | 1 << 26 | 1 << 5);
    let Machine { nic, env, .. } = m;
    let Nic {
        mut control,
        receive,
        ..
    } = nic;
    let done = AtomicBool::new(false);
    let taken = AtomicU64::new(0);
    let ready = Barrier::new(3);
    std::thread::scope(|scope| {
        for sender in 0..2 {
            let (receive, env, done, taken) = (&receive, &env, &done, &taken);
            let ready = &ready;
            scope.spawn(move || {
                let mut batch = Batch::new();
                for nth in 0..FRAMES {
                    batch.push_bytes(&numbered(sender, nth, len(nth)));
                    batch.end(Offload::NONE);
                }
                ready.wait();
                let mut room = Vec::new();
                let picks = batch.all_picks(&mut room);
                while !done.load(Ordering::SeqCst) {
                    let n = receive.deliver(env, &batch, picks);
                    taken.fetch_add(n as u64, Ordering::Relaxed);
                }
            });
        }
        let _done = Done(&done);
        let all = (RX_RING, RX_BUFFERS);
        let snapshot = |buffer: &mut Vec<u8>| {
            buffer.resize(RING as usize * 16 + 0x8000, 0);
            let (ring, data) = buffer.split_at_mut(RING as usize * 16);
            let view = env.memory.view();
            view.read(all.0, ring).expect("read");
            view.read(all.1, data).expect("read");
        };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        ready.wait();
        for round in 0..ROUNDS {
            write(&mut *control, &env, reg::RDT, (round * 37) % RING);
            std::thread::yield_now();
            match round % 3 {
                0 => write(&mut *control, &env, reg::RCTL, 0),
                1 => write(&mut *control, &env, reg::CTRL, 1 << 26),
                _ => control.pci(&env, model::PciState::default()),
            }
            snapshot(&mut before);
            std::thread::yield_now();
            snapshot(&mut after);
            assert!(before == after, "round {round}");
            let on = model::PciState {
                bus_master: true,
                ..model::PciState::default()
            };
            control.pci(&env, on);
            write(&mut *control, &env, reg::CTRL, 0x241);
            write(&mut *control, &env, reg::RDBAL, RX_RING as u32);
            write(&mut *control, &env, reg::RDLEN, RING * 16);
            write(&mut *control, &env, reg::RDH, 0);
            write(&mut *control, &env, reg::RDT, RING - 1);
            write(&mut *control, &env, reg::RCTL, 0x8002 | 1 << 26 | 1 << 5);
        }
        // It is on, with buffers: a scheduler that let no sender run until now lets one run now.
        for _ in 0..1_000_000 {
            if taken.load(Ordering::Relaxed) > 0 {
                break;
            }
            std::thread::yield_now();
        }
    });
    assert!(taken.load(Ordering::Relaxed) > 0);
}
