//! The daemon stamps its steps where the environment names a file, confined as ever, and nowhere else.

use std::time::Instant;

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use hypernic_tests::{LONG, Launch, scratch};

/// A frame to the loopback port and back, and what the daemon has stamped then.
fn stamps(named: bool) -> Option<String> {
    let dir = scratch().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let words = ["run", "--model", "e1000", "--port", "loopback"];
    let mut daemon = Launch::new().unwrap().args(words);
    daemon = daemon.args(["--socket-path", &path("n0.sock")]);
    if named {
        daemon = daemon.env("HYPERNIC_TIMELINE", &path("timeline"));
    }
    let daemon = daemon.start().unwrap();
    let bus = SocketBus::connect(dir.path().join("n0.sock")).unwrap();
    let mut driver = Driver::new(bus, Config::poll()).unwrap();
    // What its set-up has said is written, and is not told again.
    daemon.counters().unwrap();
    let before = std::fs::read_to_string(path("timeline")).unwrap_or_default();
    let mac = driver.mac();
    let frame = [&mac[..], &mac[..], &[0x88, 0xb5], &[7; 50]].concat();
    driver.send(&[&frame], &TxOpts::default()).unwrap();
    let start = Instant::now();
    while driver.poll_rx(1, |_| ()).unwrap() == 0 {
        assert!(start.elapsed() < LONG, "{}", daemon.counters().unwrap());
    }
    daemon.counters().unwrap();
    let text = std::fs::read_to_string(path("timeline")).ok()?;
    Some(text[before.len()..].to_owned())
}

#[test]
fn steps_of_single_frames_are_stamped_where_the_environment_says_so() {
    let text = stamps(true).expect("a file");
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(' ').collect()).collect();
    // TDT of BAR 0: what follows is of that frame. The turn may have begun with another message.
    let tail = 0x3818.to_string();
    let written = lines
        .iter()
        .position(|words| words[2..] == ["write", &tail]);
    let written = written.unwrap_or_else(|| panic!("no doorbell in\n{text}"));
    let turn = lines[..written]
        .iter()
        .rposition(|words| words[2] == "turn");
    let turn = turn.unwrap_or_else(|| panic!("no turn in\n{text}"));
    let find = |step: &str| {
        let mut of_frame = std::iter::once(&lines[turn]).chain(&lines[written..]);
        let found = of_frame.find(|words| words[2] == step);
        found.unwrap_or_else(|| panic!("no {step} in\n{text}"))
    };
    let at = |step: &str| find(step)[0].parse::<u64>().unwrap();
    assert!(find("write")[1].starts_with("worker-"), "{text}");
    assert!(find("port")[1].starts_with("port_"), "{text}");
    let order = ["turn", "write", "answered", "leaves", "arrives"];
    assert!(order.map(at).is_sorted(), "{text}");
    assert!(at("arrives") <= at("arrived") && at("leaves") <= at("left"));
    assert!(text.ends_with("0 - lost 0\n"), "{text}");
}

#[test]
fn nothing_is_stamped_where_it_does_not() {
    assert_eq!(stamps(false), None);
}
