//! An 82576 whose tail registers are memory, over a real socket: it sends and receives without a
//! register access. What is promised is counted, not timed.

use std::time::{Duration, Instant};

use drivers::igb::Igb;
use hypernic::config::HostConfig;
use hypernic::host::Host;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host with one NIC whose frames come back.
fn host(dir: &tempfile::TempDir, model: &str, doorbell: &str) -> Result<Host, String> {
    let socket = dir.path().join("n.sock");
    let text = format!(
        "[[nic]]\nname = \"n\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\n\
         mac = \"52:54:00:00:76:01\"\nport = \"loopback\"\ndoorbell = \"{doorbell}\"\n"
    );
    let config = HostConfig::parse("n.toml".as_ref(), &text).map_err(|e| e.to_string())?;
    Host::start(&config).map_err(|e| e.to_string())
}

fn counter(host: &Host, name: &str) -> u64 {
    let sections = host.counters();
    let of = sections.iter().find(|s| s.kind == "nic");
    let values = &of.expect("a NIC").values;
    let found = values.iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// `count` frames there and back, a few at a time.
fn stream(igb: &mut Igb, count: u32) {
    let frame = [0xff; 60];
    let (mut sent, mut came) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while came < count {
        assert!(Instant::now() < until, "{came} of {sent} came");
        let some = (count - sent).min(8);
        if some > 0 && sent - came < 128 && igb.send(&frame, some).expect("it is there") {
            sent += some;
        }
        came += igb.receive(frame.len()).expect("it is there");
        std::thread::yield_now();
    }
    assert_eq!(came, count);
}

#[test]
fn frames_go_both_ways_without_a_register_access() {
    let dir = tempfile::tempdir().expect("directory");
    let host = host(&dir, "82576", "page").expect("host starts");
    let mut igb = Igb::connect(dir.path().join("n.sock"), true).expect("it comes up");
    let accesses = |host: &Host| counter(host, "region_writes") + counter(host, "region_reads");
    let before = (accesses(&host), counter(&host, "doorbells"));
    stream(&mut igb, 20_000);
    assert_eq!(accesses(&host), before.0);
    let rung = counter(&host, "doorbells") - before.1;
    assert!(
        rung > 0 && rung <= 20_000 / 8 + 20_000 / 16 + 1,
        "{rung} times rung"
    );
    assert_eq!(counter(&host, "tx_frames"), 20_000);
    // After a rest it is heard as well.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(40));
        stream(&mut igb, 1);
    }
    // The next one that comes finds the NIC as it is, and may do without memory.
    drop(igb);
    let mut next = None;
    let until = Instant::now() + PATIENCE;
    while next.is_none() {
        assert!(Instant::now() < until, "the first never left");
        next = Igb::connect(dir.path().join("n.sock"), false).ok();
    }
    let mut next = next.expect("it comes up");
    let rung = counter(&host, "doorbells");
    stream(&mut next, 1000);
    assert_eq!(counter(&host, "doorbells"), rung);
    host.stop();
}

/// More frames are under way than the ring has buffers, and those come back in memory.
#[test]
fn a_receiver_that_is_short_of_buffers_loses_no_frame_of_its_own_stream() {
    let dir = tempfile::tempdir().expect("directory");
    let host = host(&dir, "82576", "page").expect("host starts");
    let mut igb = Igb::connect(dir.path().join("n.sock"), true).expect("it comes up");
    let frame = [0xff; 60];
    let (mut sent, mut came) = (0, 0);
    let until = Instant::now() + PATIENCE;
    // Twice what the ring has.
    while came < 20_000 {
        assert!(Instant::now() < until, "{came} of {sent} came");
        if sent - came < 512 && sent < 20_000 && igb.send(&frame, 32).expect("it is there") {
            sent += 32;
        }
        came += igb.receive(frame.len()).expect("it is there");
    }
    assert_eq!(counter(&host, "rx_frames"), 20_000);
    host.stop();
}

#[test]
fn a_nic_without_doorbells_for_memory_says_so() {
    let dir = tempfile::tempdir().expect("directory");
    let refused = host(&dir, "e1000", "page").map(drop).expect_err("refused");
    assert!(refused.contains("doorbell = \"trap\""), "{refused}");
    let words = host(&dir, "e1000", "shout").map(drop).expect_err("refused");
    assert!(words.contains("trap or page"), "{words}");
    host(&dir, "e1000", "trap").expect("host starts").stop();
}
