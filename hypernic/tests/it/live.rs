//! What changes while VMMs have NICs: guards, words of switches, captures, cables.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control::{Client, Event, Happening, Nics, Registers, Subscribe};
use drivers::e1000::{Config, Driver, TxOpts};
use drivers::{Bus as _, SocketBus};
use rustix::process::{Pid, Signal, kill_process};

use crate::changing::converse;
use crate::lab::Lab;

const LONG: Duration = Duration::from_secs(60);

fn nic(dir: &Path, name: &str, words: &str) -> String {
    let socket = dir.join(format!("{name}.sock"));
    format!("[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n{words}")
}

const SWITCH: &str = "[[switch]]\nname = \"lan\"\nports = [\"null\"]\n";

#[test]
fn guards_and_words_of_switches_change_under_traffic_and_nothing_is_lost() {
    let lab = Lab::with(|dir| {
        format!(
            "workers = 2\n{SWITCH}{}{}",
            nic(dir, "a", ""),
            nic(dir, "b", "")
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
                assert!(
                    !pair.is_finished(),
                    "the pair has failed: {}",
                    lab.ran("explain")
                );
                assert!(Instant::now() < until, "traffic stands still");
                std::thread::yield_now();
            }
        };
        flows(300);
        let capture = dir.join("a.pcapng");
        for round in 0..3 {
            for words in [
                "nic set a --mac-lock true",
                "nic set b --mac-lock true --tx-rate 2gbit,burst=1ms",
                "nic set a --rx-rate 3gbit --storm broadcast=100 --max-macs 4",
                "nic set a --vlans untagged,7 --busy-poll-us 0",
                "nic set a --moderation fixed:9000",
                "nic set b --moderation guest",
                "switch set lan --ageing-seconds 10 --link-local pass",
                "switch set lan --tx-rate 1gbit --vlans untagged",
                &format!("nic set a --capture {}", capture.display()),
            ] {
                assert!(lab.ran(words).ends_with(": done\n"), "{words}");
                assert!(lab.ran(words).ends_with(": nothing to do\n"), "{words}");
                flows(30);
            }
            if round == 0 {
                let dump = lab.ran("config dump");
                for word in [
                    "rx-rate = \"3000000000bit,burst=10ms\"",
                    "link-local = \"pass\"",
                    "capture = ",
                ] {
                    assert!(dump.contains(word), "{word}: {dump}");
                }
                // The file says nothing of it: it takes all back, and disconnects nobody.
                assert!(!lab.ran("config diff").contains("made anew"));
                lab.ran("config apply");
            } else if round == 1 {
                kill_process(Pid::from_child(&lab.daemon), Signal::HUP).expect("signal");
                lab.until("the reload", || {
                    (lab.ran("config diff") == "nothing to do\n").then_some(())
                });
            } else {
                for words in [
                    "nic set a --mac-lock false --rx-rate none --storm none --max-macs 0",
                    "nic set a --vlans none --busy-poll-us 100 --capture none",
                    "nic set b --mac-lock false --tx-rate none",
                    "nic set a --moderation adaptive",
                    "nic set b --moderation adaptive",
                    "switch set lan --ageing-seconds 300 --link-local drop --tx-rate none --vlans none",
                ] {
                    assert!(lab.ran(words).ends_with(": done\n"), "{words}");
                    flows(30);
                }
            }
            assert_eq!(lab.ran("config diff"), "nothing to do\n");
            assert!(std::fs::metadata(&capture).expect("a capture").len() > 1000);
            flows(100);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let connections = lab.log().matches("VMM connected").count();
    assert_eq!(connections, 2, "each VMM had one connection");
}

/// A guest that only hears interrupts gets each frame, whatever is chosen meanwhile, by a call, by a file and by SIGHUP.
#[test]
fn moderation_changes_under_traffic_and_no_interrupt_is_lost() {
    let lab = Lab::with(|dir| format!("{SWITCH}{}{}", nic(dir, "a", ""), nic(dir, "b", "")));
    let dir = lab.dir.path();
    let mut sender = driver(&dir.join("a.sock"));
    let bus = SocketBus::connect(dir.join("b.sock")).expect("connect");
    let mut hears = Driver::new(bus, Config::linux()).expect("driver");
    let head = [&hears.mac()[..], &sender.mac(), &[0x88, 0xb5]].concat();
    let (stop, passed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let pair = scope.spawn(|| {
            // Three at once: some of them wait for company, or for the gap.
            while !stop.load(Ordering::Relaxed) {
                let from = passed.load(Ordering::Relaxed);
                let frames =
                    [0, 1, 2].map(|n| [&head[..], &(from + n).to_be_bytes(), &[0; 42]].concat());
                let mut sent = 0;
                while sent < frames.len() {
                    let rest: Vec<&[u8]> = frames[sent..].iter().map(Vec::as_slice).collect();
                    sent += sender.send(&rest, &TxOpts::default()).expect("send");
                    sender.reclaim().expect("reclaim");
                }
                let mut next = from;
                while next < from + 3 {
                    let came = hears.service(LONG, |frame| {
                        let bytes = frame.to_vec();
                        assert_eq!(bytes[14..22], next.to_be_bytes(), "each once, in order");
                        next += 1;
                    });
                    assert!(came.expect("the device").is_some(), "an interrupt is lost");
                }
                passed.store(next, Ordering::Relaxed);
            }
        });
        let flows = || {
            let (from, until) = (passed.load(Ordering::Relaxed), Instant::now() + 2 * LONG);
            while passed.load(Ordering::Relaxed) < from + 12 {
                assert!(!pair.is_finished(), "the pair has failed");
                assert!(Instant::now() < until, "traffic stands still");
                std::thread::yield_now();
            }
        };
        flows();
        for _ in 0..4 {
            for mode in ["fixed:200", "guest", "fixed:100", "adaptive", "fixed:5000"] {
                let said = lab.ran(&format!("nic set b --moderation {mode}"));
                assert_eq!(said, "b: done\n");
                flows();
            }
        }
        let dump = lab.ran("config dump");
        assert!(dump.contains("moderation = \"fixed:5000\""), "{dump}");
        // The file says nothing of it, and so it goes.
        let plan = lab.ran("config diff");
        assert_eq!(plan, "~ NIC b: moderation\n");
        lab.ran("config apply");
        flows();
        let file = dir.join("host.toml");
        let text = std::fs::read_to_string(&file).expect("file");
        let text = text.replace("name = \"b\"", "name = \"b\"\nmoderation = \"fixed:150\"");
        std::fs::write(&file, text).expect("file");
        kill_process(Pid::from_child(&lab.daemon), Signal::HUP).expect("signal");
        lab.until("the reload", || {
            lab.ran("config dump").contains("fixed:150").then_some(())
        });
        flows();
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        lab.log().matches("VMM connected").count(),
        2,
        "each VMM had one connection"
    );
    let refused = lab.run("nic set b --moderation fixed:1");
    assert!(!refused.status.success());
}

#[test]
fn what_a_guest_has_started_with_is_named_and_the_rest_is_done() {
    let lab = Lab::with(|dir| format!("{SWITCH}{}", nic(dir, "a", "")));
    let dir = lab.dir.path();
    let driver = driver(&dir.join("a.sock"));
    let file = dir.join("other.toml");
    let head = format!("control = {:?}\n", lab.control());
    let words = "mac = \"02:00:00:00:00:09\"\nback-pressure = false\n";
    std::fs::write(&file, format!("{head}{SWITCH}{}", nic(dir, "a", words))).expect("file");
    let file = file.display();
    let plan = lab.ran(&format!("config apply {file} --plan"));
    assert!(plan.contains("~ NIC a: back-pressure\n"), "{plan}");
    let cannot = "! NIC a: mac is to change, which a guest has started with, and a VMM has it";
    assert!(plan.contains(cannot), "{plan}");
    assert!(!lab.run(&format!("config apply {file}")).status.success());
    assert!(
        !lab.ran("config dump").contains("back-pressure"),
        "nothing was changed"
    );
    lab.ran(&format!("config apply {file} --partly"));
    assert!(lab.ran("config dump").contains("back-pressure = false"));
    assert!(lab.ran("nic list a").contains("connected"));
    let plan = lab.ran(&format!("config apply {file} --plan --disconnect"));
    assert_eq!(plan, "~ NIC a: mac (made anew)\n");
    drop(driver);
    // Calls that cannot be have a named error and change nothing.
    let before = lab.ran("config dump");
    for (words, named) in [
        ("nic set a", "name a change"),
        ("nic set z --mac-lock true", "no NIC \"z\""),
        ("nic set a --tx-rate 1g", "no unit"),
        ("nic set a --vlans 5000", "vlan"),
        (
            "nic set a --mac-lock false --if-generation 999",
            "look again",
        ),
        ("nic link z down", "no NIC \"z\""),
        ("switch set lan", "name a change"),
        ("switch set wan --ageing-seconds 20", "no switch \"wan\""),
        ("switch set lan --ageing-seconds 2", "between 10 and"),
        ("switch set lan --private true", "for NICs only"),
    ] {
        let output = lab.run(words);
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains(&named.to_lowercase()), "{words}: {said}");
    }
    assert_eq!(
        lab.ran("nic set a --mac-lock true --check"),
        "a: it can be done\n"
    );
    assert_eq!(lab.ran("config dump"), before);
}

fn driver(socket: &Path) -> Driver<SocketBus> {
    let bus = SocketBus::connect(socket).expect("connect");
    Driver::new(bus, Config::poll()).expect("driver")
}

/// STATUS.LU, and its like.
const UP: u32 = 1 << 1;

fn has_link(lab: &Lab, nic: &str) -> bool {
    let text = lab.ran(&format!("nic list {nic} --json"));
    let told: Nics = serde_json::from_str(&text).expect("JSON");
    told.nics[0].link
}

/// The link's bit in an RTL8168C's PHY status, which operators have no look at.
fn realtek(bus: &mut SocketBus) -> u32 {
    let mut status = [0];
    bus.bar_read(2, 0x6c, &mut status).expect("read");
    status[0].into()
}

/// The register of a NIC.
fn register(lab: &Lab, nic: &str, name: &str) -> u32 {
    let text = lab.ran(&format!("inspect {nic} {name} --json"));
    let told: Registers = serde_json::from_str(&text).expect("JSON");
    told.registers[0].value
}

#[test]
fn a_cable_is_pulled_and_put_in_by_a_call() {
    let models = [
        ("e", "e1000", "STATUS"),
        ("i", "82576", "STATUS"),
        ("r", "r8168", "PHY_STATUS"),
    ];
    let lab = Lab::with(|dir| {
        let nics = models.map(|(name, model, _)| nic(dir, name, &format!("model = \"{model}\"\n")));
        let others = nic(dir, "v", "model = \"virtio-net\"\n");
        let chip = format!(
            "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = {:?}\nport = \"null\"\n",
            dir.join("vf{}.sock")
        );
        format!(
            "control-persist = true\n{SWITCH}{}{others}{chip}",
            nics.concat()
        )
    });
    let mut client = Client::connect(&lab.control()).expect("connect");
    client
        .send(&Subscribe { losses: None }, true)
        .expect("send");
    client.next::<Subscribe>(LONG).expect("what there is");
    let mut happens = |what: Happening, nic: &str| {
        loop {
            let (news, _) = client.next::<Subscribe>(LONG).expect("news");
            let is_it = |event: &Event| (event.what, event.name.as_str()) == (what, nic);
            if news.events.iter().any(is_it) {
                return;
            }
        }
    };
    let has_link = |nic: &str| has_link(&lab, nic);
    const SET_LINK_UP: u32 = 1 << 6;
    const LINK_CHANGED: u32 = 1 << 2;
    let _buses = ["e", "i"].map(|nic| {
        let socket = lab.dir.path().join(format!("{nic}.sock"));
        let mut bus = SocketBus::connect(socket).expect("connect");
        let control = bus.read32(0).expect("read");
        bus.write32(0, control | SET_LINK_UP).expect("write");
        bus
    });
    let mut bus = SocketBus::connect(lab.dir.path().join("r.sock")).expect("connect");
    for (nic, _, status) in models {
        let mut status = || match nic {
            "r" => realtek(&mut bus),
            _ => register(&lab, nic, status),
        };
        lab.until("a link", || (status() & UP != 0).then_some(()));
        assert_eq!(
            lab.ran(&format!("nic link {nic} down --check")),
            format!("{nic}: it can be done\n")
        );
        assert!(has_link(nic), "only checked");
        assert_eq!(
            lab.ran(&format!("nic link {nic} down")),
            format!("{nic}: done\n")
        );
        assert_eq!(
            lab.ran(&format!("nic link {nic} down")),
            format!("{nic}: nothing to do\n")
        );
        happens(Happening::LinkDown, nic);
        assert!(!has_link(nic));
        lab.until("no link", || (status() & UP == 0).then_some(()));
        if nic != "r" {
            let causes = register(&lab, nic, "ICR");
            assert_eq!(causes & LINK_CHANGED, LINK_CHANGED, "{nic}: {causes:x}");
        }
        lab.ran(&format!("nic link {nic} up"));
        happens(Happening::LinkUp, nic);
        lab.until("a link again", || (status() & UP != 0).then_some(()));
    }
    for nic in ["v", "p0vf0"] {
        assert!(has_link(nic), "{nic}");
        lab.ran(&format!("nic link {nic} down"));
        happens(Happening::LinkDown, nic);
        assert!(!has_link(nic), "{nic}");
        assert!(lab.ran(&format!("nic list {nic}")).contains("no client"));
        lab.ran(&format!("nic link {nic} up"));
        happens(Happening::LinkUp, nic);
    }
    assert_eq!(register(&lab, "p0vf0", "VTSTATUS") & UP, UP);
    lab.ran("nic link p0vf0 down");
    assert!(lab.said("show p0vf0").contains("state disable"));
    lab.until("no link", || {
        (register(&lab, "p0vf0", "VTSTATUS") & UP == 0).then_some(())
    });
}

#[test]
fn a_file_may_begin_with_a_pulled_cable_and_persists_so() {
    let lab = Lab::with(|dir| {
        let nics = nic(dir, "e", "") + &nic(dir, "down", "link = \"down\"\n");
        format!("control-persist = true\n{SWITCH}{nics}")
    });
    assert!(!has_link(&lab, "down"));
    let mut guest = driver(&lab.dir.path().join("e.sock"));
    lab.ran("nic link e down --persist");
    let file = || std::fs::read_to_string(lab.dir.path().join("host.toml")).expect("file");
    assert_eq!(file().matches("link = \"down\"").count(), 2, "{}", file());
    assert!(lab.ran("nic list e").contains("connected, no link"));
    lab.ran("nic link down up --persist");
    lab.ran("nic link e up --persist");
    assert!(!file().contains("link ="), "{}", file());
    lab.until("a link", || {
        (register(&lab, "e", "STATUS") & UP != 0).then_some(())
    });
    let mut frame = [&[0xff; 6][..], &guest.mac(), &[0x88, 0xb5]].concat();
    frame.resize(60, 0);
    guest
        .send(&[&frame], &TxOpts::default())
        .expect("it sends again");
}
