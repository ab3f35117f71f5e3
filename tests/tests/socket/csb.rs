//! The Communication Status Block over a real socket: what it is for is counted, not timed.

use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::poll::{Poll, PollConfig, TxFrame};
use hypernic::config::HostConfig;
use hypernic::host::Host;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Lan {
    host: Host,
    dir: tempfile::TempDir,
}

impl Lan {
    /// Two NICs on a switch.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let mut text = String::from("[[switch]]\nname = \"lan\"\n");
        for n in 1..=2 {
            let socket = dir.path().join(format!("n{n}.sock"));
            text += &format!(
                "[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\n\
                 mac = \"52:54:00:00:79:{n:02x}\"\nport = \"switch:lan\"\ncsb = true\n\
                 busy-poll-us = 1000\n"
            );
        }
        let config = HostConfig::parse("lan.toml".as_ref(), &text).expect("configuration");
        let host = Host::start(&config).expect("host starts");
        Self { host, dir }
    }

    fn nic(&self, n: u8, config: &PollConfig) -> Poll<SocketBus> {
        let path = self.dir.path().join(format!("n{n}.sock"));
        let until = Instant::now() + PATIENCE;
        loop {
            match SocketBus::connect(&path) {
                Ok(bus) => return Poll::new(bus, config).expect("driver comes up"),
                Err(error) => assert!(Instant::now() < until, "NIC {n}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn counter(&self, nic: &str, name: &str) -> u64 {
        let sections = self.host.counters();
        let of = sections.iter().find(|s| s.kind == "nic" && s.name == nic);
        let values = &of.expect("a NIC of that name").values;
        let found = values.iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

fn config(csb: bool) -> PollConfig {
    PollConfig {
        csb,
        ..PollConfig::new()
    }
}

/// `count` numbered frames of 60 bytes, one call of the driver's for each as a network stack makes
/// them, from `a` to `b`. Each comes once and in order.
fn stream(a: &mut Poll<SocketBus>, b: &mut Poll<SocketBus>, count: u32) {
    let (from, to) = (a.mac(), b.mac());
    let (mut sent, mut got) = (0u32, 0u32);
    let until = Instant::now() + PATIENCE;
    while got < count {
        assert!(Instant::now() < until, "{got} of {sent} came");
        // No more under way than the receiver has room for: nothing is lost on a switch, but frames
        // for others would be.
        for _ in 0..8 {
            if sent == count || sent - got >= 128 {
                break;
            }
            let made = a.send(1, |_, buffer| {
                let mut frame = [0; 60];
                frame[..6].copy_from_slice(&to);
                frame[6..12].copy_from_slice(&from);
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                frame[14..18].copy_from_slice(&sent.to_be_bytes());
                buffer.write(0, &frame);
                TxFrame::plain(60)
            });
            sent += made.expect("send");
        }
        let new = b.receive(64, |frame| {
            assert_eq!(u32::from_be_bytes(frame.get(14)), got);
            got += 1;
        });
        if new.expect("receive") == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_stream_costs_next_to_no_register_access_and_no_call() {
    const COUNT: u32 = 100_000;
    let lan = Lan::new();
    let mut a = lan.nic(1, &config(true));
    let mut b = lan.nic(2, &config(true));
    // The switch learns, and the worker how long it pays to stay awake.
    stream(&mut b, &mut a, 1);
    stream(&mut a, &mut b, 10_000);
    let before = (a.costs(), b.costs());
    let kicks = lan.counter("n1", "csb_kicks") + lan.counter("n2", "csb_kicks");
    stream(&mut a, &mut b, COUNT);
    let each = f64::from(COUNT);
    for (name, costs, before) in [
        ("sent", a.costs(), before.0),
        ("received", b.costs(), before.1),
    ] {
        let costs = costs - before;
        let accesses = (costs.reads + costs.writes) as f64 / each;
        assert!(
            accesses <= 0.01,
            "{accesses} register accesses per frame {name}"
        );
        assert_eq!(costs.interrupts, 0);
    }
    let now = lan.counter("n1", "csb_kicks") + lan.counter("n2", "csb_kicks");
    let kicks = (now - kicks) as f64 / each;
    assert!(kicks <= 0.002, "{kicks} calls per frame");
    assert_eq!(lan.counter("n1", "csb_bad_tail"), 0);
    a.shutdown().expect("shutdown");
    b.shutdown().expect("shutdown");
}

#[test]
fn a_sleeping_receiver_is_woken_and_a_stream_wakes_it_seldom() {
    let lan = Lan::new();
    let mut a = lan.nic(1, &config(true));
    let mut b = lan.nic(2, &config(true));
    stream(&mut b, &mut a, 1);
    let to = b.mac();
    let from = a.mac();
    for number in 0..300u32 {
        let sent = a.send(1, |_, buffer| {
            buffer.write(0, &[0; 60]);
            buffer.write(0, &to);
            buffer.write(6, &from);
            buffer.write(14, &number.to_be_bytes());
            TxFrame::plain(60)
        });
        assert_eq!(sent.expect("send"), 1);
        let mut got = 0;
        while got == 0 {
            assert!(
                b.wait(PATIENCE).expect("wait"),
                "frame {number} woke nobody"
            );
            let look = |frame: &drivers::e1000::poll::RxFrame<'_>| {
                assert_eq!(u32::from_be_bytes(frame.get(14)), number);
            };
            got = b.receive(64, look).expect("receive");
        }
    }
}

#[test]
fn a_nic_serves_drivers_with_and_without_it_in_turn() {
    let lan = Lan::new();
    for round in 0..6 {
        let mut a = lan.nic(1, &config(round & 1 == 1));
        let mut b = lan.nic(2, &config(round & 2 == 2));
        stream(&mut b, &mut a, 1);
        stream(&mut a, &mut b, 1000);
        stream(&mut b, &mut a, 1000);
        // Some go with everything enabled.
        if round < 3 {
            a.shutdown().expect("shutdown");
        }
    }
}

#[test]
fn it_is_offered_only_where_the_operator_says_so() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("n.sock");
    let text = format!("[[nic]]\nname = \"n\"\nsocket-path = {socket:?}\nport = \"null\"\n");
    let host = HostConfig::parse("n.toml".as_ref(), &text).expect("configuration");
    assert!(!host.nics[0].csb);
    let _host = Host::start(&host).expect("host starts");
    let bus = SocketBus::connect(&socket).expect("connect");
    let Err(refused) = Poll::new(bus, &config(true)) else {
        panic!("there is no CSB");
    };
    assert!(refused.to_string().contains("csb = true"), "{refused}");
}
