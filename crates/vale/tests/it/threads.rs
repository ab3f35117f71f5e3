//! Many senders at once, with ports that come and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::*;
use frame::{Batch, Sink};
use hypernic_vale::{Switch, SwitchConfig};

const SENDERS: u8 = 4;
const BATCHES: u64 = 300;
const BURST: u64 = 16;

/// A number that names its sender.
fn tagged(sender: u8, number: u64) -> u64 {
    u64::from(sender) << 32 | number
}

/// Everybody sends to everybody, mixed with broadcasts.
fn run(switch: &Switch, sender: u8, port: &dyn Sink) {
    let mut number = 0;
    for _ in 0..BATCHES {
        let mut batch = Batch::new();
        for i in 0..BURST {
            let to = match i % 5 {
                4 => BROADCAST,
                n => mac(n as u8 + 1),
            };
            push(&mut batch, to, mac(sender), tagged(sender, number));
            number += 1;
        }
        let mut room = Vec::new();
        let picks = batch.all_picks(&mut room);
        assert_eq!(port.deliver(&batch, picks), picks.len());
    }
    assert!(switch.ports().len() >= usize::from(SENDERS));
}

/// Everything in it is in the order of its sender, and once.
fn in_order(numbers: &[u64]) {
    let mut last = HashMap::new();
    for number in numbers {
        let (sender, n) = (number >> 32, number & 0xffff_ffff);
        let before = last.insert(sender, n);
        assert!(before.is_none_or(|b| b < n), "{before:?} before {n}");
    }
}

#[test]
fn senders_in_parallel_keep_order_and_lose_nothing_uncounted() {
    let (switch, _) = switch(SwitchConfig::default());
    switch.set_timer(Arc::new(CountedWake::default()));
    let ports: Vec<_> = (1..=SENDERS)
        .map(|n| attach(&switch, &n.to_string(), usize::MAX))
        .collect();
    for (n, (port, _)) in (1..).zip(&ports) {
        send(port, 0, &[(mac(n), mac(n))]);
    }
    let (_guest, to_guest) = attach(&switch, "guest", usize::MAX);
    thread::scope(|scope| {
        for (n, (port, _)) in (1..).zip(&ports) {
            let switch = &switch;
            scope.spawn(move || run(switch, n, &**port));
        }
    });
    in_order(&to_guest.numbers());
    // Broadcasts: 3 of each burst of 16. Single frames: 4 destinations, 13 a burst.
    let bursts = BATCHES * u64::from(SENDERS);
    assert_eq!(to_guest.numbers().len() as u64, bursts * 3);
    let mut got = 0;
    for (_, to) in &ports {
        in_order(&to.numbers());
        got += to.numbers().len() as u64;
    }
    let hairpins: u64 = (1..=SENDERS)
        .map(|n| count(&switch, &n.to_string(), "drop_hairpin") - 1)
        .sum();
    assert_eq!(got + hairpins, bursts * (13 + 3 * 3));
}

#[test]
fn ports_come_and_go_under_load() {
    let (switch, _) = switch(SwitchConfig::default());
    let ports: Vec<_> = (1..=SENDERS)
        .map(|n| attach(&switch, &n.to_string(), usize::MAX))
        .collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut first = 0;
            while !over.load(Ordering::SeqCst) {
                let (port, sink) = attach(&switch, "guest", 100);
                // It claims everybody's address, which moves back at their next frame.
                let frames: Vec<_> = (1..=SENDERS).map(|n| (BROADCAST, mac(n))).collect();
                send(&port, tagged(99, first), &frames);
                first += u64::from(SENDERS);
                thread::yield_now();
                assert!(switch.detach("guest"));
                in_order(&sink.numbers());
            }
        });
        let senders: Vec<_> = (1..)
            .zip(&ports)
            .map(|(n, (port, _))| {
                let switch = &switch;
                scope.spawn(move || run(switch, n, &**port))
            })
            .collect();
        for sender in senders {
            sender.join().expect("no panic");
        }
        over.store(true, Ordering::SeqCst);
    });
    for (_, to) in &ports {
        in_order(&to.numbers());
    }
    let gone = switch.macs().into_iter().filter(|m| m.port == "guest");
    assert_eq!(gone.count(), 0);
}
