//! Every hostile guest of an RTL8168C against the bare model: the next good request is answered, what was refused is counted,
//! nothing has leaked and the NIC at the other end of the cable has not noticed.

use std::collections::BTreeMap;

use drivers::e1000::{Config, Driver, TxOpts};
use drivers::{Bus, ModelBus};
use villain::rtl::next_good_request;
use villain::{Moves, Villain};

/// Longest frame that a driver may send: 64 KiB, and a tag.
const LONGEST: usize = 0x1_0000 + 18;

fn mac(last: u8) -> [u8; 6] {
    [0x52, 0x54, 0x00, 0x12, 0x34, last]
}

fn rtl() -> model::Nic {
    r8169::new(r8169::Config {
        csb: true,
        ..r8169::Config::new(mac(1))
    })
}

fn counters(bus: &ModelBus) -> BTreeMap<&'static str, u64> {
    bus.counters().into_iter().collect()
}

fn wanted(villain: &Villain) -> bool {
    std::env::var("VILLAIN").map_or(true, |part| villain.id.contains(&part))
}

#[test]
fn every_villain_of_an_r8168_is_survived_and_counted() {
    let mut bad = Vec::new();
    for (villain, run) in villain::rtls().filter(|(v, _)| wanted(v)) {
        let id = villain.id;
        let (mut bus, recorder) = ModelBus::recorded(rtl());
        run(&mut bus).unwrap_or_else(|e| panic!("{id}: {e}"));
        let counted = counters(&bus);
        for sent in recorder.take() {
            assert!(sent.notes.is_plain(), "{id}");
            let len = sent.bytes.len();
            assert!(len <= LONGEST, "{id}: {len} bytes");
        }
        let sent = next_good_request(&mut bus).unwrap_or_else(|e| panic!("after {id}: {e}"));
        let last = recorder.take().pop().map(|frame| frame.bytes);
        assert_eq!(last, Some(sent), "after {id}");
        assert!(bus.memory().regions().is_empty(), "{id} cleans up");
        if let Moves::Counters(names) = villain.moves {
            for name in names {
                if counted.get(name).copied().unwrap_or(0) == 0 {
                    bad.push(format!("{id}: {name} is 0 in {counted:?}"));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn one_r8168_survives_all_villains_in_a_row_twice() {
    let (mut bus, recorder) = ModelBus::recorded(rtl());
    let there: Vec<_> = villain::rtls().collect();
    for (villain, run) in there.iter().chain(there.iter().rev()) {
        run(&mut bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        recorder.take();
    }
    let sent = next_good_request(&mut bus).expect("answered");
    let got: Vec<_> = recorder.take().into_iter().map(|f| f.bytes).collect();
    assert_eq!(got, [sent]);
    assert!(bus.memory().regions().is_empty(), "villains clean up");
}

#[test]
fn the_neighbour_of_a_hostile_r8168_keeps_its_frames() {
    for (villain, run) in villain::rtls().filter(|(v, _)| wanted(v)) {
        let id = villain.id;
        let neighbour = e1000::new(e1000::Config::new(mac(2)));
        let (mut bad, good) = ModelBus::pair(rtl(), neighbour);
        let mut good = Driver::new(good, Config::linux()).expect("driver comes up");
        run(&mut bad).unwrap_or_else(|e| panic!("{id}: {e}"));
        let mut frame = [0x5a; 60];
        frame[..6].copy_from_slice(&mac(1));
        frame[6..12].copy_from_slice(&mac(2));
        good.send(&[&frame], &TxOpts::default()).expect("send");
        // What its packet FIFO holds comes as soon as there are buffers.
        while !good.receive().expect("well formed").is_empty() {
            good.refill_rx().expect("refill");
        }
        next_good_request(&mut bad).unwrap_or_else(|e| panic!("{id}: {e}"));
        let got = good.receive().expect("receive");
        let kind = got.last().map(|f| f[12..14].to_vec());
        assert_eq!(kind, Some(vec![0x88, 0xb5]), "{id}");
    }
}
