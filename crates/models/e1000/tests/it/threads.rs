//! The three parts in three threads, while the guest resets and the VMM takes memory away.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::*;
use frame::{Batch, MAX_BATCH};
use model::{Nic, PciState};
use wire::Offload;

const ROUNDS: u32 = if cfg!(miri) { 10 } else { 3000 };

/// Says that a thread is done even when it panics, so that the others end.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn parts_work_side_by_side_through_resets_and_unmaps() {
    let mut m = Machine::default();
    m.tx_on(256);
    m.rx_on(256, 0x8000);
    m.poke(TX_BUFFERS, &plain(PEER, 600));
    for i in 0..256 {
        m.tx_desc(i, TX_BUFFERS, legacy(600, EOP | IFCS | RS | IDE));
    }
    let Machine { nic, env, wire, .. } = m;
    let Nic {
        mut control,
        mut transmit,
        receive,
        ..
    } = nic;
    let done = AtomicBool::new(false);
    let frame = plain(MAC, 600);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                transmit.run(&env, &wire, MAX_BATCH);
                for sent in wire.take() {
                    assert_eq!(sent.len(), 600);
                }
            }
        });
        scope.spawn(|| {
            let mut batch = Batch::new();
            for _ in 0..32 {
                batch.push_bytes(&frame);
                batch.end(Offload::NONE);
            }
            let mut room = Vec::new();
            let picks = batch.all_picks(&mut room).to_vec();
            while !done.load(Ordering::SeqCst) {
                assert!(receive.deliver(&env, &batch, &picks) <= 32);
                receive.poll(&env);
            }
        });
        let _done = Done(&done);
        let mut write = |at: u64, value: u32| control.write(&env, 0, at, &value.to_le_bytes());
        for round in 0..ROUNDS {
            write(reg::TDT, (round * 7) % 256);
            write(reg::RDT, (round * 5) % 256);
            write(reg::IMS, 0x9f);
            match round % 50 {
                10 => write(reg::CTRL, 1 << 26),
                12 => {
                    write(reg::CTRL, 0x241);
                    write(reg::TDBAL, TX_RING as u32);
                    write(reg::TDLEN, 4096);
                    write(reg::RDBAL, RX_RING as u32);
                    write(reg::RDLEN, 4096);
                    write(reg::RCTL, 0x8002);
                    write(reg::TCTL, 2);
                }
                30 => {
                    env.memory.unmap(RAM, RAM_LEN).expect("unmap");
                    env.memory.map_anon(RAM, RAM_LEN).expect("map");
                }
                _ => write(reg::ICR, 0xffff_ffff),
            }
        }
        // After a reset nothing that was in flight shows in the new state.
        write(reg::CTRL, 1 << 26);
        let mut head = [0; 4];
        control.read(&env, 0, reg::RDH, &mut head);
        assert_eq!(head, [0; 4]);
        control.read(&env, 0, reg::TDH, &mut head);
        assert_eq!(head, [0; 4]);
        control.pci(&env, PciState::default());
    });
}

/// A sender, and a guest that gives buffers one at a time: every frame that was taken from the sender
/// comes out, in order, though most went through the packet FIFO.
#[test]
fn no_frame_stays_in_the_fifo_while_there_are_buffers() {
    all_come_in_order(8, 13, 1);
}

/// The same in batches of several runs: that others are about is then noticed within a batch.
#[test]
fn a_batch_that_begins_alone_and_ends_in_a_crowd_arrives_whole() {
    all_come_in_order(256, 200, 128);
}

/// The guest gives buffers back after `every` frames.
fn all_come_in_order(ring: u32, burst: u32, every: u32) {
    const FRAMES: u32 = if cfg!(miri) { 60 } else { 40_000 };
    let mut m = Machine::default();
    m.rx_on(ring, 0x8000 | 1 << 26);
    for i in 0..u64::from(ring) {
        m.poke(RX_RING + i * 16, &(RX_BUFFERS + i * 2048).to_le_bytes());
    }
    m.w(0x1000, 8); // PBA
    let Machine { nic, env, .. } = m;
    let Nic {
        mut control,
        receive,
        ..
    } = nic;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0u32;
            while next < FRAMES && !done.load(Ordering::SeqCst) {
                let mut batch = Batch::new();
                for i in next..(next + burst).min(FRAMES) {
                    let mut frame = plain(MAC, 60);
                    frame[20..24].copy_from_slice(&i.to_be_bytes());
                    batch.push_bytes(&frame);
                    batch.end(Offload::NONE);
                }
                let mut room = Vec::new();
                let taken = receive.deliver(&env, &batch, batch.all_picks(&mut room));
                next += taken as u32;
                if taken == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let _done = Done(&done);
        let (mut at, mut seen, mut idle) = (0u64, 0u32, 0u32);
        while seen < FRAMES {
            let mut status = [0; 1];
            let desc = RX_RING + at * 16;
            let view = env.memory.view();
            view.read_acquire(desc + 12, &mut status).expect("read");
            if status[0] & 1 == 0 {
                drop(view);
                idle += 1;
                assert!(idle < 50_000_000, "frame {seen} never came");
                std::thread::yield_now();
                continue;
            }
            idle = 0;
            let mut number = [0; 4];
            view.read(RX_BUFFERS + at * 2048 + 20, &mut number)
                .expect("read");
            assert_eq!(u32::from_be_bytes(number), seen);
            view.write(desc + 12, &[0]).expect("write");
            drop(view);
            seen += 1;
            if seen.is_multiple_of(every) {
                control.write(&env, 0, reg::RDT, &(at as u32).to_le_bytes());
                control.take_work();
            }
            // More often than needed, so that it contends with the sender.
            receive.poll(&env);
            at = (at + 1) % u64::from(ring);
        }
    });
}

/// A state that is saved while frames go both ways lies between two batches: it loads, and what is
/// counted in two ways adds up.
#[test]
fn a_state_saved_under_way_is_whole() {
    let mut m = Machine::default();
    m.tx_on(256);
    m.rx_on(256, 0x8000);
    m.poke(TX_BUFFERS, &plain(PEER, 600));
    for i in 0..256 {
        m.tx_desc(i, TX_BUFFERS, legacy(600, EOP | IFCS | RS));
    }
    let Machine { nic, env, wire, .. } = m;
    let Nic {
        mut control,
        mut transmit,
        receive,
        ..
    } = nic;
    let done = AtomicBool::new(false);
    let frame = plain(MAC, 600);
    let mut moved = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                transmit.run(&env, &wire, MAX_BATCH);
                wire.take();
            }
        });
        scope.spawn(|| {
            let mut batch = Batch::new();
            for _ in 0..32 {
                batch.push_bytes(&frame);
                batch.end(Offload::NONE);
            }
            let mut room = Vec::new();
            let picks = batch.all_picks(&mut room).to_vec();
            while !done.load(Ordering::SeqCst) {
                receive.deliver(&env, &batch, &picks);
                receive.poll(&env);
            }
        });
        let _done = Done(&done);
        for round in 0..ROUNDS / 12 {
            for (at, value) in [(reg::TDT, round * 7 % 256), (reg::RDT, round * 5 % 256)] {
                control.write(&env, 0, at, &value.to_le_bytes());
            }
            let blob = control.save(&env);
            let state = hypernic_e1000::state::read(&blob).expect("just saved");
            let count = |offset: u32| {
                let found = state.statistics.iter().find(|c| c.offset == offset);
                found.map_or(0, |c| c.value)
            };
            let bins = |first: u32| (0..6).map(|i| count(first + i * 4)).sum::<u64>();
            assert_eq!(count(0x4074), bins(0x405c), "received");
            assert_eq!(count(0x4080), bins(0x40d8), "sent");
            assert_eq!(count(0x40c8), count(0x4080) * 604, "bytes sent");
            moved = (count(0x4074), count(0x4080));
            let mut other = Machine::default();
            other.nic.control.load(&other.env, &blob).expect("loads");
            assert_eq!(other.r(0x4080), moved.1 as u32);
        }
    });
    if !cfg!(miri) {
        assert!(moved.0 > 0 && moved.1 > 0, "nothing moved meanwhile");
    }
}
