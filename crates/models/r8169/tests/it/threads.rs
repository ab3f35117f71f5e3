//! Several threads at once: a transmitter, other senders, a driver that takes and gives buffers, and register accesses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

use crate::common::*;
use frame::{Batch, Caps, Run, Sink, Wake};
use guest_mem::Memory;
use hypernic_r8169::{Config, new};
use model::{Env, Nic, PciState, Receive};
use model_testkit::{Pin, Time};
use wire::Offload;

const RING: u32 = 16;
const EACH: u32 = if cfg!(miri) { 40 } else { 3000 };
/// Senders beside the transmitter.
const OTHERS: u8 = 2;

fn env() -> Env {
    let time = Arc::new(Time::at(2_000_000_000));
    Env {
        memory: memory(RAM, RAM_LEN),
        irq: Arc::new(Pin::default()),
        clock: time.clone(),
        timer: time,
    }
}

fn poke(memory: &Memory, at: u64, bytes: &[u8]) {
    memory.view().write_release(at, bytes).expect("RAM");
}

fn word(memory: &Memory, at: u64) -> u32 {
    // Fewer bytes would be read one by one.
    let mut bytes = [0; 8];
    memory.view().read_acquire(at, &mut bytes).expect("RAM");
    u64::from_le_bytes(bytes) as u32
}

fn end(index: u32) -> u32 {
    if index + 1 == RING { EOR } else { 0 }
}

/// A NIC with empty rings and its receiver's buffers given.
fn started(env: &Env) -> Nic {
    let mut nic = new(Config::new(MAC));
    let on = PciState {
        bus_master: true,
        ..PciState::default()
    };
    nic.control.pci(env, on);
    for i in 0..RING {
        let at = u64::from(i);
        poke(&env.memory, TX_RING + at * 16, &end(i).to_le_bytes());
        poke(
            &env.memory,
            RX_RING + at * 16 + 8,
            &(RX_BUFFERS + at * RX_STEP).to_le_bytes(),
        );
        give(&env.memory, i);
    }
    let mut write = |at: u64, bytes: &[u8]| nic.control.write(env, 2, at, bytes);
    write(reg::TX_LOW, &TX_RING.to_le_bytes());
    write(reg::RX_LOW, &RX_RING.to_le_bytes());
    write(reg::RX_CONFIG, &0xe70fu32.to_le_bytes());
    write(reg::CHIP_CMD, &[0x0c]);
    nic
}

fn give(memory: &Memory, index: u32) {
    let word = OWN | end(index) | 1536;
    poke(memory, RX_RING + u64::from(index) * 16, &word.to_le_bytes());
}

/// The other NIC, as a sink.
struct Other<'a> {
    receive: &'a dyn Receive,
    env: &'a Env,
}

impl Sink for Other<'_> {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.receive.deliver(self.env, batch, picks)
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.receive.deliver_run(self.env, run)
    }

    fn caps(&self) -> Caps {
        self.receive.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.receive.want_room(waker);
    }
}

fn numbered(sender: u8, n: u32) -> Vec<u8> {
    let mut frame = plain(MAC, 60 + (n % 40) as usize);
    frame[20] = sender;
    frame[24..28].copy_from_slice(&n.to_le_bytes());
    frame
}

#[test]
fn every_frame_of_every_sender_arrives_once_and_in_order() {
    let (a, b) = (env(), env());
    let (mut from, to) = (started(&a), started(&b));
    let (mut control, receive) = (to.control, to.receive);
    let (queued, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut next = [0; 1 + OTHERS as usize];
    thread::scope(|scope| {
        // The driver of the sending guest.
        scope.spawn(|| {
            for n in 0..EACH {
                let index = n % RING;
                let at = TX_RING + u64::from(index) * 16;
                while word(&a.memory, at) & OWN != 0 {
                    if stop.load(SeqCst) {
                        return;
                    }
                    thread::yield_now();
                }
                let buffer = TX_BUFFERS + u64::from(index) * 0x1000;
                let frame = numbered(0, n);
                poke(&a.memory, buffer, &frame);
                poke(&a.memory, at + 8, &buffer.to_le_bytes());
                let bits = OWN | end(index) | BOTH | frame.len() as u32;
                poke(&a.memory, at, &bits.to_le_bytes());
                queued.store(n + 1, SeqCst);
            }
        });
        scope.spawn(|| {
            let sink = Other {
                receive: &*receive,
                env: &b,
            };
            while !stop.load(SeqCst) {
                from.transmit.run(&a, &sink, 8);
            }
        });
        for sender in 1..=OTHERS {
            let (receive, b, stop) = (&receive, &b, &stop);
            scope.spawn(move || {
                // One by one, and more than there may be descriptors for.
                let most = [1, 2 * RING][usize::from(sender) % 2];
                let mut sent = 0;
                while sent < EACH && !stop.load(SeqCst) {
                    let mut batch = Batch::new();
                    for n in sent..EACH.min(sent + most) {
                        batch.push_bytes(&numbered(sender, n));
                        batch.end(Offload::NONE);
                    }
                    let mut room = Vec::new();
                    let picks = batch.all_picks(&mut room);
                    let dealt = receive.deliver(b, &batch, picks);
                    sent += dealt as u32;
                    if dealt == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        // The VMM's thread, with what a driver writes in an interrupt.
        scope.spawn(|| {
            let mut data = [0; 4];
            while !stop.load(SeqCst) {
                control.read(&b, 2, reg::IMR, &mut data);
                control.write(&b, 2, reg::IMR, &[0, 0, 0xff, 0xff]);
                control.write(&b, 2, reg::IMR, &[0x2f, 0]);
                if control.take_work().rx {
                    receive.poll(&b);
                }
                control.tick(&b);
                thread::yield_now();
            }
        });
        // The driver of the receiving guest.
        let mut at = 0;
        while next.iter().any(|n| *n < EACH) {
            let bits = word(&b.memory, RX_RING + u64::from(at) * 16);
            if bits & OWN != 0 {
                thread::yield_now();
                continue;
            }
            let mut frame = vec![0; (bits & 0x3fff) as usize - 4];
            let view = b.memory.view();
            let buffer = RX_BUFFERS + u64::from(at) * RX_STEP;
            view.read(buffer, &mut frame).expect("RAM");
            drop(view);
            let sender = frame[20];
            let n = &mut next[usize::from(sender)];
            if frame != numbered(sender, *n) {
                // The others would wait for ever.
                stop.store(true, SeqCst);
                panic!("sender {sender}, frame {n}: {frame:?}");
            }
            *n += 1;
            give(&b.memory, at);
            at = (at + 1) % RING;
        }
        stop.store(true, SeqCst);
    });
    assert_eq!(next, [EACH; 1 + OTHERS as usize]);
    assert_eq!(queued.load(SeqCst), EACH);
}

/// What no driver does: everything changes under way. Nothing hangs, and the NIC works afterwards.
#[test]
fn resets_and_new_rings_under_way_hang_nothing() {
    let env = env();
    let Nic {
        mut control,
        mut transmit,
        receive,
        ..
    } = started(&env);
    let stop = AtomicBool::new(false);
    let wire = Wire::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                transmit.run(&env, &wire, 8);
                wire.take();
            }
        });
        scope.spawn(|| {
            let mut batch = Batch::new();
            batch.push_bytes(&numbered(0, 0));
            batch.end(Offload::NONE);
            while !stop.load(SeqCst) {
                receive.deliver(&env, &batch, &[0]);
            }
        });
        for round in 0..EACH {
            let index = round % RING;
            give(&env.memory, index);
            let bits = OWN | end(index) | BOTH | 60;
            let at = TX_RING + u64::from(index) * 16;
            poke(&env.memory, at + 8, &TX_BUFFERS.to_le_bytes());
            poke(&env.memory, at, &bits.to_le_bytes());
            match round % 7 {
                0 => control.write(&env, 2, reg::CHIP_CMD, &[0x10]),
                1 => control.write(&env, 2, reg::RX_LOW, &RX_RING.to_le_bytes()),
                2 => control.write(&env, 2, reg::TX_LOW, &TX_RING.to_le_bytes()),
                3 => control.set_link(&env, round & 1 != 0),
                4 => {
                    let blob = control.save(&env);
                    control.load(&env, &blob).expect("its own");
                }
                5 => control.write(&env, 2, reg::CHIP_CMD, &[0x8c]),
                _ => control.write(&env, 2, reg::CHIP_CMD, &[0x0c]),
            }
            if control.take_work().rx {
                receive.poll(&env);
            }
        }
        stop.store(true, SeqCst);
    });
}
