//! NICs, switches and ports come and go in a running daemon, by its control socket.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control::{
    AskError, Client, Failure, NicAdd, NicConfig, NicRemove, Nics, PortAdd, PortRemove, SwitchAdd,
    SwitchConfig, SwitchRemove,
};
use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

use crate::lab::Lab;

const LONG: Duration = Duration::from_secs(60);

fn nic(dir: &Path, name: &str, port: &str) -> NicAdd {
    let nic = NicConfig {
        name: name.into(),
        port: port.into(),
        socket_path: Some(dir.join(format!("{name}.sock")).to_string_lossy().into()),
        ..NicConfig::default()
    };
    NicAdd {
        nic,
        ..NicAdd::default()
    }
}

fn switch(name: &str, ports: &[&str]) -> SwitchAdd {
    let switch = SwitchConfig {
        name: name.into(),
        ports: Some(ports.iter().map(|port| (*port).to_owned()).collect()),
        ..SwitchConfig::default()
    };
    SwitchAdd {
        switch,
        ..SwitchAdd::default()
    }
}

fn remove(name: &str) -> NicRemove {
    NicRemove {
        name: name.into(),
        ..NicRemove::default()
    }
}

#[test]
fn a_host_may_start_empty_and_commands_fill_it() {
    let lab = Lab::with(|_| String::new());
    let at = |name: &str| lab.dir.path().join(name).display().to_string();
    assert_eq!(lab.ran("nic list"), "");
    assert_eq!(
        lab.ran("switch add lan --port null --check"),
        "lan: it can be done\n"
    );
    assert_eq!(lab.ran("switch list"), "", "only checked");
    assert_eq!(lab.ran("switch add lan --port null"), "lan: done\n");
    assert_eq!(
        lab.ran("switch add lan --port null"),
        "lan: nothing to do\n"
    );
    let add = format!(
        "nic add n0 --port switch:lan --socket-path {}",
        at("n0.sock")
    );
    assert_eq!(lab.ran(&format!("{add} --check")), "n0: it can be done\n");
    assert!(!Path::new(&at("n0.sock")).exists(), "only checked");
    assert_eq!(lab.ran(&add), "n0: done\n");
    assert_eq!(lab.ran(&add), "n0: nothing to do\n");
    assert!(Path::new(&at("n0.sock")).exists());
    assert!(lab.ran("nic list").contains("switch:lan         no client"));
    let stream = format!("stream:listen={}", at("stream"));
    assert_eq!(
        lab.ran(&format!("port add lan {stream}")),
        format!("lan {stream}: done\n")
    );
    assert_eq!(
        lab.ran(&format!("port add lan {stream}")),
        format!("lan {stream}: nothing to do\n")
    );
    assert!(lab.ran("port list lan").contains(&stream));
    let list = lab.ran("switch list");
    assert!(
        list.contains("lan: ports null, stream") && list.contains("NICs n0"),
        "{list}"
    );
    let driver = Driver::new(
        SocketBus::connect(at("n0.sock")).expect("connect"),
        Config::poll(),
    );
    let driver = driver.expect("a NIC that works");
    let json: Nics = serde_json::from_str(&lab.ran("nic list n0 --json")).expect("JSON");
    assert!(json.nics[0].connected && json.nics[0].link);
    drop(driver);
    assert_eq!(lab.ran("nic remove n0 --check"), "n0: it can be done\n");
    assert_eq!(lab.ran("nic remove n0"), "n0: done\n");
    assert!(!Path::new(&at("n0.sock")).exists());
    assert_eq!(lab.ran("nic remove n0 --missing-ok"), "n0: nothing to do\n");
    lab.ran(&format!("port remove lan {stream}"));
    assert_eq!(
        lab.ran("port list --json"),
        "{\"ports\":[{\"counters\":\"lan/null\",\"port\":\"null\",\"switch\":\"lan\"}]}\n"
    );
    lab.ran("switch remove lan");
    assert_eq!(lab.ran("switch list --json"), "{\"switches\":[]}\n");
    // Who asked for what is in the log.
    let log = lab.log();
    for told in [
        "io.hypernic.Nic.Add",
        "\"name\":\"n0\"",
        "uid=",
        "pid=",
        "role=\"owner\"",
    ] {
        assert!(log.contains(told), "{told}: {log}");
    }
}

#[test]
fn what_is_refused_says_why_in_one_line_and_changes_nothing() {
    let lab = Lab::with(|dir| {
        format!(
            "[[switch]]\nname = \"lan\"\n[[nic]]\nname = \"n0\"\nsocket-path = {:?}\nport = \"switch:lan\"\n\
             [[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = {:?}\nport = \"switch:lan\"\n",
            dir.join("n0.sock"),
            dir.join("vf{}.sock")
        )
    });
    let everything = |lab: &Lab| {
        let verbs = ["nic list --json", "switch list --json", "port list --json"];
        verbs.map(|verb| lab.ran(verb))
    };
    let before = everything(&lab);
    let at = |name: &str| lab.dir.path().join(name).display().to_string();
    let add = |words: &str| format!("nic add {words} --socket-path {}", at("new.sock"));
    for (words, code, named) in [
        (add("n0 --port switch:lan"), 1, "differs in socket_path"),
        (add("n1 --port switch:wan"), 1, "no switch \"wan\""),
        (add("n1 --port tap:"), 1, "bad port"),
        (add("n1 --port null --model ne2000"), 1, "unknown model"),
        (
            add("n1 --port null --mac 01:00:00:00:00:01"),
            1,
            "group address",
        ),
        (
            add("n1 --port null --tx-rate 1gbit"),
            1,
            "only a switch enforces guards",
        ),
        (
            add("n1 --port null --queue-pairs 4"),
            4,
            "one queue each way",
        ),
        (add("n1 --port stream:fd=999"), 4, "was not inherited"),
        (
            format!("nic add n1 --port null --socket-path {}", at("n0.sock")),
            1,
            "already has this socket",
        ),
        (
            format!("nic add n1 --port null --socket-path {}", at("no/n1.sock")),
            4,
            "cannot listen",
        ),
        ("nic add n1 --port null".into(), 2, "--socket-path"),
        ("nic remove n9".into(), 1, "there is: n0"),
        ("nic remove p0vf0".into(), 1, "a function of the chip p0"),
        ("nic list n9".into(), 1, "no NIC \"n9\""),
        ("switch remove lan".into(), 1, "n0, p0; remove them first"),
        ("switch remove wan".into(), 1, "there is: lan"),
        (
            "switch add lan --ageing-seconds 60".into(),
            1,
            "differs in ageing_seconds",
        ),
        (
            "switch add wan --ageing-seconds 1".into(),
            1,
            "between 10 and",
        ),
        (
            "switch add wan --port stream:fd=999".into(),
            4,
            "was not inherited",
        ),
        ("port add wan null".into(), 1, "no switch \"wan\""),
        ("port add lan switch:lan".into(), 1, "cannot be a port"),
        ("port add lan stream:fd=999".into(), 4, "was not inherited"),
        ("port remove lan null".into(), 1, "there is: none"),
        ("port list wan".into(), 1, "no switch \"wan\""),
    ] {
        let output = lab.run(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(named), "{words}: {said}");
        if code != 2 {
            assert_eq!(said.lines().count(), 1, "{words}: {said}");
        }
        assert_eq!(everything(&lab), before, "{words}");
    }
    assert!(!Path::new(&at("new.sock")).exists());
}

/// Two guests that send each other numbered frames as fast as they can; none is lost, doubled or out of its order.
pub fn converse(sockets: [&Path; 2], stop: &AtomicBool, passed: &AtomicU64) {
    let mut pair = sockets.map(|socket| {
        let config = Config {
            rx_ring: 4096,
            ..Config::poll()
        };
        let bus = SocketBus::connect(socket).expect("connect");
        Driver::new(bus, config).expect("driver")
    });
    let macs = [pair[0].mac(), pair[1].mac()];
    let frame = |to: usize, number: u64| {
        let mut frame = [
            &macs[to][..],
            &macs[1 - to],
            &[0x88, 0xb5],
            &number.to_be_bytes(),
        ]
        .concat();
        frame.resize(60 + (number * 131 % 1400) as usize, number as u8);
        frame
    };
    let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
    let mut last = Instant::now();
    loop {
        let ends = stop.load(Ordering::Relaxed);
        // Until the switch has learned both, frames flood, and a flooded copy waits for nobody.
        let window = if got[0].min(got[1]) < 2 { 1 } else { 256 };
        for from in 0..2 {
            for _ in 0..32 {
                if ends || sent[from] - got[1 - from] >= window {
                    break;
                }
                let frame = frame(1 - from, sent[from]);
                let queued = pair[from].queue(&[&frame], &TxOpts::default());
                match queued.expect("queue") {
                    0 => break,
                    _ => sent[from] += 1,
                }
            }
            pair[from].kick().expect("kick");
        }
        for to in 0..2 {
            let before = got[to];
            let take = |one: &drivers::e1000::RxFrame<'_>| {
                let right = one.to_vec() == frame(to, got[to]);
                let numbers = one.to_vec();
                let number = numbers.get(14..22).map(|n| n.to_vec());
                assert!(
                    right,
                    "guest {to} should get frame {}, not {number:02x?}",
                    got[to]
                );
                got[to] += 1;
            };
            pair[to].poll_rx(1024, take).expect("poll");
            pair[to].refill_rx().expect("refill");
            if got[to] > before {
                last = Instant::now();
            }
        }
        passed.store(got[0].min(got[1]), Ordering::Relaxed);
        if ends && got[0] == sent[1] && got[1] == sent[0] {
            return;
        }
        assert!(
            last.elapsed() < LONG,
            "nothing comes: sent {sent:?}, got {got:?}"
        );
    }
}

#[test]
fn nothing_of_others_traffic_is_lost_while_nics_switches_and_ports_come_and_go() {
    let lab = Lab::with(|dir| {
        let nic = |name: &str| {
            format!(
                "[[nic]]\nname = \"{name}\"\nsocket-path = {:?}\nport = \"switch:lan\"\n",
                dir.join(format!("{name}.sock"))
            )
        };
        format!(
            "workers = 2\n[[switch]]\nname = \"lan\"\n{}{}",
            nic("a"),
            nic("b")
        )
    });
    let dir = lab.dir.path();
    let (a, b) = (dir.join("a.sock"), dir.join("b.sock"));
    let (stop, passed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let pair = scope.spawn(|| converse([&a, &b], &stop, &passed));
        let flows = |least: u64| {
            let (from, until) = (passed.load(Ordering::Relaxed), Instant::now() + LONG);
            while passed.load(Ordering::Relaxed) < from + least {
                let failed = || format!("the pair has failed: {}", lab.ran("explain"));
                assert!(!pair.is_finished(), "{}", failed());
                assert!(Instant::now() < until, "traffic stands still");
                std::thread::yield_now();
            }
        };
        flows(500);
        let mut client = Client::connect(&lab.control()).expect("connect");
        let stream = format!("stream:listen={}", dir.join("stream").display());
        let port = |switch: &str| PortAdd {
            switch: switch.into(),
            port: stream.clone(),
            ..PortAdd::default()
        };
        for round in 0..40 {
            let changed = client.call(&nic(dir, "c", "switch:lan")).expect("add");
            assert!(changed.changed);
            client.call(&port("lan")).expect("port");
            let guest = (round % 4 == 0).then(|| {
                let bus = SocketBus::connect(dir.join("c.sock")).expect("connect");
                Driver::new(bus, Config::poll()).expect("driver")
            });
            client.call(&switch("other", &["null"])).expect("switch");
            client.call(&nic(dir, "d", "switch:other")).expect("add");
            let held = client.call(&SwitchRemove {
                name: "other".into(),
                ..SwitchRemove::default()
            });
            assert!(matches!(
                held,
                Err(AskError::Refused(Failure::InUse { .. }))
            ));
            flows(20);
            client.call(&remove("c")).expect("remove");
            client.call(&remove("d")).expect("remove");
            let gone = client.call(&PortRemove {
                switch: "lan".into(),
                port: stream.clone(),
                ..PortRemove::default()
            });
            assert!(gone.expect("port").changed);
            let gone = client.call(&SwitchRemove {
                name: "other".into(),
                ..SwitchRemove::default()
            });
            assert!(gone.expect("switch").changed);
            drop(guest);
            flows(5);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
