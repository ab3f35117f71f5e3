//! What hostile guests of NICs without functions are to leave behind, against the bare model: the next good request is
//! answered, what was refused is counted, nothing has leaked and the NIC at the other end of the cable has not noticed.

use std::collections::BTreeMap;

use drivers::e1000::{Config, Driver, TxOpts};
use drivers::{Bus, BusError, ModelBus};
use villain::{Moves, Villain};

/// Longest frame that a driver may send: 64 KiB, and a tag.
const LONGEST: usize = 0x1_0000 + 18;

/// What a hostile guest does.
type Deed = fn(&mut dyn Bus) -> Result<(), BusError>;

/// A NIC, and how it is asked whether it lives.
pub struct Subject {
    pub nic: fn([u8; 6]) -> model::Nic,
    pub next_good_request: fn(&mut dyn Bus) -> Result<Vec<u8>, BusError>,
}

fn mac(last: u8) -> [u8; 6] {
    [0x52, 0x54, 0x00, 0x12, 0x34, last]
}

fn counters(bus: &ModelBus) -> BTreeMap<&'static str, u64> {
    bus.counters().into_iter().collect()
}

fn wanted(villain: &Villain) -> bool {
    std::env::var("VILLAIN").map_or(true, |part| villain.id.contains(&part))
}

/// Each alone, on a NIC of its own.
pub fn each_is_survived_and_counted(
    subject: &Subject,
    villains: impl Iterator<Item = (&'static Villain, Deed)>,
) {
    let mut bad = Vec::new();
    for (villain, run) in villains.filter(|(v, _)| wanted(v)) {
        let id = villain.id;
        let (mut bus, recorder) = ModelBus::recorded((subject.nic)(mac(1)));
        run(&mut bus).unwrap_or_else(|e| panic!("{id}: {e}"));
        let counted = counters(&bus);
        for sent in recorder.take() {
            assert!(sent.notes.is_plain(), "{id}");
            let len = sent.bytes.len();
            assert!(len <= LONGEST, "{id}: {len} bytes");
        }
        let sent =
            (subject.next_good_request)(&mut bus).unwrap_or_else(|e| panic!("after {id}: {e}"));
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

/// All on one NIC.
pub fn one_survives_all_in_a_row_twice(
    subject: &Subject,
    villains: impl Iterator<Item = (&'static Villain, Deed)>,
) {
    let (mut bus, recorder) = ModelBus::recorded((subject.nic)(mac(1)));
    let there: Vec<_> = villains.collect();
    for (villain, run) in there.iter().chain(there.iter().rev()) {
        run(&mut bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        recorder.take();
    }
    let sent = (subject.next_good_request)(&mut bus).expect("answered");
    let got: Vec<_> = recorder.take().into_iter().map(|f| f.bytes).collect();
    assert_eq!(got, [sent]);
    assert!(bus.memory().regions().is_empty(), "villains clean up");
}

/// What is sent to a hostile one arrives once it behaves.
pub fn its_neighbour_keeps_its_frames(
    subject: &Subject,
    villains: impl Iterator<Item = (&'static Villain, Deed)>,
) {
    for (villain, run) in villains.filter(|(v, _)| wanted(v)) {
        let id = villain.id;
        let neighbour = e1000::new(e1000::Config::new(mac(2)));
        let (mut bad, good) = ModelBus::pair((subject.nic)(mac(1)), neighbour);
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
        (subject.next_good_request)(&mut bad).unwrap_or_else(|e| panic!("{id}: {e}"));
        let got = good.receive().expect("receive");
        let kind = got.last().map(|f| f[12..14].to_vec());
        assert_eq!(kind, Some(vec![0x88, 0xb5]), "{id}");
    }
}
