//! NICs, switches and guests' memory come and go while two guests send at full rate: no frame of
//! theirs is lost, doubled, changed or out of its order, and every frame of everybody is accounted
//! for.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drivers::e1000::{Config, Driver, TxOpts};
use drivers::{Bus, SocketBus};
use hypernic::config::HostConfig;
use hypernic::host::Host;

const LONG: Duration = Duration::from_secs(60);
const OURS: [u8; 2] = [0x88, 0xb5];
/// Frames on their way in one direction; a ring holds them all, so none may be lost.
const WINDOW: u64 = 512;
/// A page of guest memory that comes and goes.
const COMING: u64 = 1 << 40;

/// What the pair has done so far.
#[derive(Default)]
struct Seen {
    got: [AtomicU64; 2],
    maps: AtomicU64,
    stop: AtomicBool,
}

fn frame(to: [u8; 6], from: [u8; 6], number: u64) -> Vec<u8> {
    let mut frame = [&to[..], &from, &OURS, &number.to_be_bytes()].concat();
    let len = 60 + (number * 131 % 1455) as usize;
    frame.extend((frame.len()..len).map(|i| (i as u64 * 31 + number) as u8));
    frame
}

/// Two guests that send to each other as fast as they can, and change their memory maps meanwhile.
fn converse(sockets: [&Path; 2], seen: &Seen) {
    let mut pair = sockets.map(|socket| {
        let bus = SocketBus::connect(socket).expect("connect");
        let config = Config {
            tx_ring: 256,
            rx_ring: 4096,
            report_every: 8,
            ..Config::poll()
        };
        Driver::new(bus, config).expect("driver")
    });
    let macs = [pair[0].mac(), pair[1].mac()];
    let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
    let mut last = Instant::now();
    while !seen.stop.load(Ordering::Relaxed) || got[0] < sent[1] || got[1] < sent[0] {
        let ends = seen.stop.load(Ordering::Relaxed);
        for from in 0..2 {
            let to = 1 - from;
            for _ in 0..64 {
                if ends || sent[from] - got[to] >= WINDOW {
                    break;
                }
                let frame = frame(macs[to], macs[from], sent[from]);
                let queued = pair[from].queue(&[&frame], &TxOpts::default());
                match queued.expect("queue") {
                    0 => break,
                    _ => sent[from] += 1,
                }
            }
            pair[from].kick().expect("kick");
            // With frames on their way to and from this guest.
            let bus = pair[from].bus_mut();
            let page = bus.alloc_at(COMING, 4096).expect("map");
            bus.free(page).expect("unmap");
            seen.maps.fetch_add(2, Ordering::Relaxed);
        }
        for to in 0..2 {
            let before = got[to];
            pair[to]
                .poll_rx(1024, |one| {
                    let expected = frame(macs[to], macs[1 - to], got[to]);
                    assert!(
                        one.to_vec() == expected,
                        "guest {to} should get frame {}",
                        got[to]
                    );
                    got[to] += 1;
                })
                .expect("poll");
            pair[to].refill_rx().expect("refill");
            seen.got[to].store(got[to], Ordering::Relaxed);
            if got[to] > before {
                last = Instant::now();
            }
        }
        assert!(
            last.elapsed() < LONG,
            "nothing comes; sent {sent:?}, got {got:?}"
        );
    }
    assert_eq!((got[0], got[1]), (sent[1], sent[0]));
}

#[test]
fn control_stalls_no_data() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = |name: &str| dir.path().join(format!("{name}.sock"));
    let nic = |name: &str, mac: u8, port: &str| {
        format!(
            "[[nic]]\nname = \"{name}\"\nsocket-path = {:?}\n\
             mac = \"52:54:00:00:78:{mac:02x}\"\nport = \"{port}\"\n",
            socket(name)
        )
    };
    let parse = |text: &str| HostConfig::parse("host.toml".as_ref(), text).expect("configuration");
    let lan = "workers = 2\n[[switch]]\nname = \"lan\"\n";
    let pair = nic("a", 1, "switch:lan") + &nic("b", 2, "switch:lan");
    let mut host = Host::start(&parse(&format!("{lan}{pair}"))).expect("host");
    let third = parse(&format!("{lan}{}", nic("c", 3, "switch:lan")));
    let other = "[[switch]]\nname = \"other\"\nports = [\"null\", \"loopback\"]\n";
    let other = parse(&format!("{other}{}", nic("d", 4, "switch:other")));

    let seen = Seen::default();
    let (a, b) = (socket("a"), socket("b"));
    std::thread::scope(|scope| {
        let pair = scope.spawn(|| converse([&a, &b], &seen));
        let flows = |least: u64| {
            let until = Instant::now() + LONG;
            let before: Vec<_> = seen.got.iter().map(|g| g.load(Ordering::Relaxed)).collect();
            while (0..2).any(|i| seen.got[i].load(Ordering::Relaxed) < before[i] + least) {
                assert!(!pair.is_finished(), "the pair has failed");
                assert!(Instant::now() < until, "traffic stands still");
                std::thread::yield_now();
            }
        };
        flows(1000);
        for round in 0..100 {
            // A NIC of the same switch, with a guest that starts and leaves in every fourth round.
            host.add_nic(&third.nics[0]).expect("add");
            let guest = (round % 4 == 0).then(|| {
                let bus = SocketBus::connect(third_socket(&third)).expect("connect");
                Driver::new(bus, Config::poll()).expect("driver")
            });
            // A switch with ports and a NIC of its own.
            host.add_switch(&other.switches[0]).expect("add");
            host.add_nic(&other.nics[0]).expect("add");
            assert!(!host.remove_switch("other"), "a NIC hangs on it");
            flows(20);
            assert!(host.remove_nic("c") && host.remove_nic("d"));
            assert!(host.remove_switch("other") && !host.remove_switch("other"));
            drop(guest);
            flows(5);
        }
        let until = Instant::now() + LONG;
        while seen.maps.load(Ordering::Relaxed) < 1000 {
            assert!(!pair.is_finished() && Instant::now() < until);
            std::thread::yield_now();
        }
        seen.stop.store(true, Ordering::Relaxed);
        pair.join().expect("the pair");
    });
    // What was accepted is delivered, or it is counted why not.
    let sections = host.counters();
    let port = |name: &str| {
        let mut ports = sections.iter().filter(|s| s.kind == "switch-port");
        ports.find(|s| s.name == name).expect(name)
    };
    for (at, (from, to)) in [("lan/b", "lan/a"), ("lan/a", "lan/b")].iter().enumerate() {
        let (from, to) = (port(from), port(to));
        let got = seen.got[at].load(Ordering::Relaxed);
        assert_eq!(from.get("rx_frames"), got, "{from:?}");
        assert_eq!(to.get("tx_frames"), got, "{to:?}");
        let drops = |name: &str| name.starts_with("drop_") && !name.contains("flood");
        for (name, value) in from.values.iter().filter(|(name, _)| drops(name)) {
            assert_eq!(*value, 0, "{name}");
        }
    }
    assert!(sections.iter().all(|s| s.get("fallen") == 0));
    host.stop();
}

fn third_socket(config: &HostConfig) -> std::path::PathBuf {
    match &config.nics[0].socket {
        hypernic::config::SocketSpec::Path(path) => path.clone(),
        other => panic!("{other:?}"),
    }
}
