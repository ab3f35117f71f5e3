//! Hostile guests: after each, the next good request is answered and nothing has leaked.

use drivers::villain;
use drivers::{Bus, ModelBus};

use super::support::{bytes, model};

/// Longest frame the chip sends (3.3.3), and a tag.
const LONGEST: usize = 16_288 + 4;

#[test]
fn every_villain_is_survived() {
    for villain in villain::e1000() {
        let (mut bus, recorder) = ModelBus::recorded(model(1));
        (villain.run)(&mut bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        for sent in recorder.take() {
            assert!(sent.notes.is_plain(), "{}", villain.id);
            let len = sent.bytes.len();
            assert!(len <= LONGEST, "{}: {len} bytes", villain.id);
        }
        let sent = villain::next_good_request(&mut bus)
            .unwrap_or_else(|e| panic!("after {}: {e}", villain.id));
        assert_eq!(bytes(&recorder).last(), Some(&sent), "after {}", villain.id);
    }
}

#[test]
fn one_nic_survives_all_villains_in_a_row_twice() {
    let (mut bus, recorder) = ModelBus::recorded(model(1));
    for villain in villain::e1000().iter().chain(villain::e1000().iter().rev()) {
        (villain.run)(&mut bus).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        recorder.take();
    }
    let sent = villain::next_good_request(&mut bus).expect("answered");
    assert_eq!(bytes(&recorder), [sent]);
    assert!(bus.memory().regions().is_empty(), "villains clean up");
}

#[test]
fn the_neighbour_of_a_villain_keeps_its_frames() {
    use drivers::e1000::{Config, Driver, TxOpts};
    for villain in villain::e1000() {
        let (mut bad, good) = ModelBus::pair(model(1), model(2));
        let mut good = Driver::new(good, Config::linux()).expect("driver comes up");
        (villain.run)(&mut bad).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        let frame = super::support::frame(super::support::mac(1), good.mac(), 60, 0);
        good.send(&[&frame], &TxOpts::default()).expect("send");
        good.receive().expect("whatever came is well formed");
        good.refill_rx().expect("refill");
        villain::next_good_request(&mut bad).unwrap_or_else(|e| panic!("{}: {e}", villain.id));
        let got = good.receive().expect("receive");
        assert_eq!(
            got.last().map(|f| f[12..14].to_vec()),
            Some(vec![0x88, 0xb5])
        );
    }
}

#[test]
fn villains_have_distinct_ids() {
    let mut ids: Vec<_> = villain::e1000().iter().map(|v| v.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), villain::e1000().len());
}
