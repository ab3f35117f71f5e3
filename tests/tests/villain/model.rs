//! Every hostile guest against the bare model: the next good request is answered, what was refused
//! is counted, nothing has leaked and the NIC at the other end of the cable has not noticed.

use std::collections::BTreeMap;

use drivers::e1000::{Config, Driver, TxOpts};
use drivers::{Bus, ModelBus};
use villain::Moves;

/// Longest frame the chip sends (3.3.3), and a tag.
const LONGEST: usize = 16_288 + 4;

fn mac(last: u8) -> [u8; 6] {
    [0x52, 0x54, 0x00, 0x12, 0x34, last]
}

fn model(last: u8) -> model::Nic {
    e1000::new(e1000::Config {
        csb: true,
        ..e1000::Config::new(mac(last))
    })
}

/// All counters of the model and of its memory.
fn counters(bus: &ModelBus) -> BTreeMap<&'static str, u64> {
    let mut all: BTreeMap<_, _> = bus.counters().into_iter().collect();
    bus.memory().counters(&mut |name, value| {
        all.insert(name, value);
    });
    all
}

#[test]
fn every_villain_is_survived_and_counted() {
    let mut bad = Vec::new();
    for (villain, run) in villain::guests() {
        let (mut bus, recorder) = ModelBus::recorded(model(1));
        run(&mut bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        let counted = counters(&bus);
        for sent in recorder.take() {
            assert!(sent.notes.is_plain(), "{}", villain.id);
            let len = sent.bytes.len();
            assert!(len <= LONGEST, "{}: {len} bytes", villain.id);
        }
        let sent = villain::next_good_request(&mut bus)
            .unwrap_or_else(|e| panic!("after {}: {e}", villain.id));
        let last = recorder.take().pop().map(|frame| frame.bytes);
        assert_eq!(last, Some(sent), "after {}", villain.id);
        assert!(
            bus.memory().regions().is_empty(),
            "{} cleans up",
            villain.id
        );
        if let Moves::Counters(names) = villain.moves {
            // Counters of the socket and the switch are not here; the daemon's run looks at them.
            let known = |name: &&&str| bus.counter(name).is_some() || name.starts_with("dma_");
            for name in names.iter().filter(known) {
                if counted.get(name).copied().unwrap_or(0) == 0 {
                    bad.push(format!("{}: {name} is 0 in {counted:?}", villain.id));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn one_nic_survives_all_villains_in_a_row_twice() {
    let (mut bus, recorder) = ModelBus::recorded(model(1));
    let there: Vec<_> = villain::guests().collect();
    for (villain, run) in there.iter().chain(there.iter().rev()) {
        run(&mut bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        recorder.take();
    }
    let sent = villain::next_good_request(&mut bus).expect("answered");
    let got: Vec<_> = recorder.take().into_iter().map(|f| f.bytes).collect();
    assert_eq!(got, [sent]);
    assert!(bus.memory().regions().is_empty(), "villains clean up");
}

#[test]
fn the_neighbour_of_a_villain_keeps_its_frames() {
    for (villain, run) in villain::guests() {
        let (mut bad, good) = ModelBus::pair(model(1), model(2));
        let mut good = Driver::new(good, Config::linux()).expect("driver comes up");
        run(&mut bad).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        let mut frame = [0x5a; 60];
        frame[..6].copy_from_slice(&mac(1));
        frame[6..12].copy_from_slice(&mac(2));
        good.send(&[&frame], &TxOpts::default()).expect("send");
        // What its packet FIFO holds comes as soon as there are buffers.
        while !good.receive().expect("well formed").is_empty() {
            good.refill_rx().expect("refill");
        }
        villain::next_good_request(&mut bad).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        let got = good.receive().expect("receive");
        assert_eq!(
            got.last().map(|f| f[12..14].to_vec()),
            Some(vec![0x88, 0xb5]),
            "{}",
            villain.id
        );
    }
}
