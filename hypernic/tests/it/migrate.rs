//! `hypernic migrate`: NICs that move between two daemons, each a process of its own, while guests' memory stays.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use control::{MigrateAbort, MigrateCommit, MigrateLoad, MigrateSave, ask};
use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use serde_json::Value;
use tempfile::TempDir;
use vfio_user::{Client, ClientOptions};

use crate::common::{mac, until};
use crate::lab::{HYPERNIC, Lab};

type Nic = Driver<SocketBus>;

/// Where a receive ring of an 82540EM is: what a reset forgets.
const RDBAL: u64 = 0x2800;

/// Two daemons, whose switches are one network. The first has the NIC that moves.
pub(crate) struct Pair {
    pub(crate) labs: [Lab; 2],
    _wire: TempDir,
}

impl Pair {
    pub(crate) fn new(head: &str, nic: &str) -> Self {
        Self::with(head, |host, dir| match host {
            0 => format!(
                "[[nic]]\nname = \"moves\"\nsocket-path = {:?}\n{nic}",
                dir.join("moves.sock")
            ),
            _ => String::new(),
        })
    }

    /// With what each file says besides.
    pub(crate) fn with(head: &str, more: impl Fn(usize, &Path) -> String) -> Self {
        let wire = tempfile::tempdir().expect("a folder");
        let labs = [0, 1].map(|host| {
            let port = ["stream:listen=", "stream:"][host];
            let wire = wire.path().join("wire");
            Lab::with(|dir| {
                let stays = dir.join("stays.sock");
                format!(
                    "control-persist = true\n{head}[[switch]]\nname = \"lan\"\nports = [\"{port}{}\"]\n\
                     [[nic]]\nname = \"stays\"\nsocket-path = {stays:?}\nmodel = \"e1000\"\n\
                     mac = \"52:54:00:76:00:1{host}\"\nport = \"switch:lan\"\n{}",
                    wire.display(),
                    more(host, dir),
                )
            })
        });
        Self { labs, _wire: wire }
    }

    pub(crate) fn of_e1000(head: &str) -> Self {
        Self::of_e1000_with(head, "")
    }

    /// With more words of the NIC that moves.
    pub(crate) fn of_e1000_with(head: &str, words: &str) -> Self {
        let nic = "model = \"e1000\"\nmac = \"52:54:00:76:00:01\"\nport = \"switch:lan\"\nguard = { tx-rate = \"5gbit\" }\n";
        Self::new(head, &format!("{nic}{words}"))
    }

    pub(crate) fn socket(&self, name: &str, host: usize) -> PathBuf {
        self.labs[host].dir.path().join(format!("{name}.sock"))
    }

    pub(crate) fn driver(&self, name: &str, host: usize) -> Nic {
        let bus = SocketBus::connect(self.socket(name, host)).expect("a bus");
        Driver::new(bus, Config::linux()).expect("it comes up")
    }

    /// `hypernic migrate …` between the two.
    pub(crate) fn run(&self, words: &str) -> Result<String, String> {
        let mut words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        let destination = self.labs[1].control().display().to_string();
        words.extend(["--to".to_owned(), destination]);
        if words[0] == "prepare" && words[2] == "moves" {
            let there = self.socket("moves", 1).display().to_string();
            words.extend(["--socket-path".to_owned(), there]);
        }
        let mut command = Command::new(HYPERNIC);
        command.arg("migrate").args(&words);
        command.arg("--control").arg(self.labs[0].control());
        let output = command.output().expect("hypernic");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stderr)),
        }
    }

    #[track_caller]
    pub(crate) fn ran(&self, words: &str) -> String {
        self.run(words)
            .unwrap_or_else(|why| panic!("{words}: {why}"))
    }

    /// Where the switch of a host has seen the NIC that moves.
    pub(crate) fn seen(&self, host: usize) -> Option<String> {
        let told = self.labs[host].ran("fdb --json");
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let all = told["addresses"].as_array().expect("a list").clone();
        let ours = all
            .into_iter()
            .find(|one| one["mac"] == "52:54:00:76:00:01");
        ours.map(|one| one["port"].as_str().expect("a name").to_owned())
    }

    /// Whether the NIC that moves serves a VMM there.
    pub(crate) fn lives(&self, host: usize) -> bool {
        let options = ClientOptions {
            timeout: Duration::from_millis(200),
            ..ClientOptions::default()
        };
        Client::connect_with(self.socket("moves", host), options).is_ok()
    }

    /// How far the move has come, at each end.
    pub(crate) fn steps(&self) -> [String; 2] {
        [0, 1].map(|host| {
            let told = self.labs[host].ran("migrate list --json");
            let told: Value = serde_json::from_str(&told).expect("JSON");
            let last = told["moves"].as_array().and_then(|all| all.last().cloned());
            let step = last.map(|one| one["step"].as_str().expect("a word").to_owned());
            step.unwrap_or_default()
        })
    }
}

fn numbered(to: [u8; 6], from: [u8; 6], number: u64) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.resize(200 + (number as usize * 7) % 1200, number as u8 | 1);
    frame
}

pub(crate) fn send(nic: &mut Nic, to: [u8; 6], numbers: std::ops::Range<u64>) {
    for number in numbers {
        let frame = numbered(to, nic.mac(), number);
        until("room", || {
            nic.reclaim().expect("reclaimed");
            (nic.send(&[&frame], &TxOpts::default()).expect("sent") == 1).then_some(())
        });
    }
    until("all are sent", || {
        nic.reclaim().expect("reclaimed");
        (nic.tx_pending() == 0).then_some(())
    });
}

/// The frames that come next: numbers, and nothing else.
#[track_caller]
pub(crate) fn receive(nic: &mut Nic, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    until("frames", || {
        for frame in nic.receive().expect("received") {
            assert_eq!(frame[12..14], [0x88, 0xb5], "{frame:x?}");
            numbers.push(u64::from_be_bytes(
                *frame[14..].first_chunk().expect("a number"),
            ));
        }
        (numbers.len() >= count).then_some(())
    });
    numbers
}

/// Traffic both ways between the NIC that moves and one of the source.
pub(crate) fn talk(moves: &mut Nic, stays: &mut Nic, numbers: std::ops::Range<u64>) {
    for chunk in numbers.clone().step_by(32) {
        let some = chunk..numbers.end.min(chunk + 32);
        send(moves, stays.mac(), some.clone());
        let came = receive(stays, some.clone().count());
        assert!(came.into_iter().eq(some.clone()));
        send(stays, mac(1), some.clone());
        let came = receive(moves, some.clone().count());
        assert!(came.into_iter().eq(some));
    }
}

#[test]
fn a_nic_moves_by_two_commands_with_traffic_before_and_after() {
    let pair = Pair::of_e1000("");
    let mut moves = pair.driver("moves", 0);
    let mut stays = pair.driver("stays", 0);
    talk(&mut moves, &mut stays, 0..300);
    let limit = |host: usize| {
        let told = pair.labs[host].ran("nic list moves --json");
        let told: Value = serde_json::from_str(&told).expect("JSON");
        told["nics"][0]["config"]["guard"]["tx_rate"].clone()
    };
    let may = limit(0);
    assert!(may.is_string(), "{may}");
    assert_eq!(pair.seen(0).as_deref(), Some("moves"));
    // While a VMM works with it, it does not move, and has noticed nothing.
    let why = pair.run("prepare m1 moves").expect_err("a VMM has it");
    assert!(why.contains("a VMM has moves"), "{why}");
    talk(&mut moves, &mut stays, 300..310);
    moves.bus_mut().leave().expect("gone");
    let prepared = until("it is gone", || pair.run("prepare m1 moves --json").ok());
    assert_eq!(
        prepared,
        "{\"destination\":true,\"id\":\"m1\",\"source\":true}\n"
    );
    assert_eq!(pair.seen(0), None, "its switch has forgotten it");
    // Frames for it are lost meanwhile, and tell no switch anything.
    send(&mut stays, mac(1), 900..910);
    for (step, answer) in [("prepare m1 moves", "prepared"), ("commit m1", "committed")] {
        let again = pair.ran(step);
        let expected = match step {
            "commit m1" => format!("m1: {answer}\n"),
            _ => "m1: nothing to do\n".to_owned(),
        };
        assert_eq!(again, expected);
    }
    // The announcement has come over the wire between the daemons.
    let frame = until("an announcement", || {
        stays.receive().expect("received").into_iter().next()
    });
    assert_eq!(
        frame[..14],
        [&[0xff; 6][..], &mac(1), &[0x80, 0x35]].concat()
    );
    let uplink = pair.seen(0).expect("it is known");
    assert_ne!(uplink, "moves", "behind the uplink");
    assert_eq!(pair.seen(1).as_deref(), Some("moves"));
    assert!(!pair.socket("moves", 0).exists(), "it is gone there");
    let far = Client::connect(pair.socket("moves", 1)).expect("it is served");
    moves.bus_mut().come(far).expect("goes on");
    talk(&mut moves, &mut stays, 310..600);
    // What it may do has come with it.
    assert_eq!(limit(1), may);
    assert_eq!(pair.ran("commit m1"), "m1: nothing to do\n");
    talk(&mut moves, &mut stays, 600..610);
    let log = pair.labs.iter().map(Lab::log).collect::<String>();
    for said in [
        "stands still and is saved",
        "has gone for good",
        "has come for good",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn a_guest_that_is_paused_moves_or_stays_with_all_its_frames() {
    let pair = Pair::of_e1000("");
    let mut moves = pair.driver("moves", 0);
    let mut stays = pair.driver("stays", 0);
    talk(&mut moves, &mut stays, 0..100);
    // Some have come that the guest has not looked at.
    send(&mut stays, mac(1), 100..120);
    pair.ran("prepare m1 moves --paused");
    assert_eq!(pair.ran("abort m1"), "m1: aborted\n");
    assert_eq!(pair.ran("abort m1"), "m1: nothing to do\n");
    let came = receive(&mut moves, 20);
    assert!(came.into_iter().eq(100..120));
    talk(&mut moves, &mut stays, 120..200);
    send(&mut stays, mac(1), 200..210);
    let why = pair
        .run("prepare m1 moves --paused")
        .expect_err("it is over");
    assert!(why.contains("aborted it already"), "{why}");
    pair.ran("prepare m2 moves --paused");
    pair.ran("commit m2");
    let far = Client::connect(pair.socket("moves", 1)).expect("it is served");
    moves.bus_mut().come(far).expect("goes on");
    let came = receive(&mut moves, 10);
    assert!(came.into_iter().eq(200..210));
    while stays.receive().expect("received").is_empty() {}
    talk(&mut moves, &mut stays, 210..300);
}

#[test]
fn what_cannot_move_and_what_is_decided_have_named_errors() {
    let pair = Pair::of_e1000("");
    let dir = pair.labs[0].dir.path().to_owned();
    let at = |name: &str| dir.join(name).display().to_string();
    pair.labs[0].ran(&format!(
        "chip add p0 --port switch:lan --vfs 1 --pf guest --socket-path {} --vf-socket-path {}",
        at("pf"),
        at("vf{}")
    ));
    pair.labs[0].ran(&format!(
        "nic add v0 --port switch:lan --model virtio-net --transport vhost-user --socket-path {}",
        at("v0.sock")
    ));
    for (words, why) in [
        ("prepare m1 p0vf0", "whose physical function a guest drives"),
        ("prepare m1 p0", "whose physical function a guest drives"),
        ("prepare m1 v0", "takes its state along by itself"),
        ("prepare m1 none", "there is no NIC \"none\""),
        ("prepare m/1 moves", "names no move"),
        ("prepare m1 moves --port switch:wan", "at the destination: "),
        ("prepare m1 moves --name stays", "at the destination: "),
        ("commit m1", "there is no move \"m1\""),
        ("abort m1", "there is no move \"m1\""),
    ] {
        let said = pair.run(words).expect_err(words);
        assert!(
            said.contains(why) && said.lines().count() == 1,
            "{words}: {said}"
        );
        assert_eq!(pair.steps(), ["", ""], "{words}");
        assert!(pair.lives(0), "{words}");
    }
    pair.ran("prepare m1 moves");
    for (words, why) in [
        ("prepare m2 moves", "stands still for the move m1"),
        ("prepare m1 stays", "another move m1"),
    ] {
        let said = pair.run(words).expect_err(words);
        assert!(said.contains(why), "{words}: {said}");
    }
    for words in [
        "nic remove moves",
        "nic set moves --mac-lock true",
        "nic link moves down",
    ] {
        let output = pair.labs[0].run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("stands still for the move m1"),
            "{words}: {said}"
        );
    }
    // The destination is not to be asked alone.
    let commit = MigrateCommit {
        id: "m1".into(),
        ..MigrateCommit::default()
    };
    let destination = pair.labs[1].control();
    let said = ask(&destination, &commit).expect_err("alone").to_string();
    assert!(said.contains("at the source first"), "{said}");
    let abort = MigrateAbort {
        id: "m1".into(),
        ..MigrateAbort::default()
    };
    let said = ask(&destination, &abort).expect_err("alone").to_string();
    assert!(said.contains("at the source first"), "{said}");
    ask(&pair.labs[0].control(), &commit).expect("the source lets go");
    let said = pair.run("abort m1").expect_err("decided");
    assert!(said.contains("committed it already"), "{said}");
    assert_eq!([0, 1].map(|host| pair.lives(host)), [false; 2]);
    pair.ran("commit m1 --persist");
    assert_eq!([0, 1].map(|host| pair.lives(host)), [false, true]);
    // A file that still names it does not bring it back; one that is written does not.
    let names = |host: usize| {
        let file = pair.labs[host].dir.path().join("host.toml");
        let text = std::fs::read_to_string(file).expect("file");
        text.contains("\"moves\"")
    };
    assert_eq!([0, 1].map(names), [false, true]);
    // A state that is none is refused, and nothing is left of it.
    let load = MigrateLoad {
        id: "m3".into(),
        nic: control::NicConfig {
            name: "other".into(),
            port: "switch:lan".into(),
            socket_path: Some(at("other.sock")),
            ..control::NicConfig::default()
        },
        state: Some("00".into()),
        ..MigrateLoad::default()
    };
    let source = pair.labs[0].control();
    let said = ask(&source, &load).expect_err("no state").to_string();
    assert!(said.contains("cannot go on as what was saved"), "{said}");
    assert!(!pair.labs[0].ran("nic list").contains("other"));
}

#[test]
fn a_file_that_still_names_a_nic_that_has_gone_does_not_bring_it_back() {
    let mut pair = Pair::of_e1000("");
    pair.ran("prepare m1 moves");
    pair.ran("commit m1");
    pair.labs[0].restart();
    assert!(!pair.lives(0));
    let file = pair.labs[0].dir.path().join("host.toml");
    let applied = pair.labs[0].run(&format!("config apply {}", file.display()));
    let said = String::from_utf8_lossy(&applied.stderr);
    assert!(
        said.contains("has moved to another host by the move m1"),
        "{said}"
    );
    assert!(!pair.lives(0));
    // Said expressly, there is another one.
    let socket = pair.socket("moves", 0);
    pair.labs[0].ran(&format!(
        "nic add moves --port switch:lan --socket-path {}",
        socket.display()
    ));
    assert!(pair.lives(0));
}

/// One of four calls of which a move is made.
pub(crate) fn step(
    pair: &Pair,
    (nic, there): (&str, &str),
    number: usize,
    saved: &mut Option<control::MoveSaved>,
) {
    let [source, destination] = [0, 1].map(|host| pair.labs[host].control());
    let id = || "m1".to_owned();
    match number {
        0 => {
            let call = MigrateSave {
                id: id(),
                nic: nic.into(),
                ..MigrateSave::default()
            };
            *saved = Some(ask(&source, &call).expect("saved"));
        }
        1 => {
            let saved = saved.as_ref().expect("saved before");
            let nic = control::NicConfig {
                name: there.into(),
                socket_path: Some(pair.socket("moves", 1).display().to_string()),
                ..saved.nic.clone()
            };
            let call = MigrateLoad {
                id: id(),
                nic,
                vf: saved.vf.clone(),
                state: saved.state.clone(),
                ..MigrateLoad::default()
            };
            ask(&destination, &call).expect("loaded");
        }
        _ => {
            let call = MigrateCommit {
                id: id(),
                source_said: (number == 3).then_some(true),
                ..MigrateCommit::default()
            };
            let at = if number == 2 { &source } else { &destination };
            ask(at, &call).expect("committed");
        }
    }
}

const EITHER_OR_BOTH: &[&[usize]] = &[&[0], &[1], &[0, 1]];

/// Breaks a move off behind each call, kills one of the daemons or both, and ends it either way.
pub(crate) fn broken_off(hosts: &[&[usize]], make: impl Fn() -> Pair, kill: impl Fn(&mut Lab)) {
    for killed in hosts {
        for (calls, ends) in [
            (1, "commit"),
            (1, "abort"),
            (2, "commit"),
            (2, "abort"),
            (3, "commit"),
            (4, "commit"),
        ] {
            let what = format!("{calls} calls, {killed:?} killed, {ends}");
            let mut pair = make();
            let mut client = Client::connect(pair.socket("moves", 0)).expect("a client");
            client.write_u32(0, RDBAL, 0x1234_5000).expect("a register");
            drop(client);
            until("it is gone", || pair.run("prepare m0 moves --check").ok());
            let mut saved = None;
            for number in 0..calls {
                step(&pair, ("moves", "moves"), number, &mut saved);
                let lives = [0, 1].map(|host| pair.lives(host));
                assert_eq!(lives, [false, number == 3], "{what}, after call {number}");
            }
            // Connected at that moment, without ever giving memory: not yet a VMM that has had it.
            let looks = (calls == 4).then(|| Client::connect(pair.socket("moves", 1)));
            for host in *killed {
                kill(&mut pair.labs[*host]);
            }
            drop(looks);
            let lives = [0, 1].map(|host| pair.lives(host));
            assert_eq!(lives, [false, calls == 4], "{what}, then");
            if ends == "commit" && calls < 3 {
                pair.ran("prepare m1 moves");
            }
            if calls == 3 {
                let why = pair.run("abort m1").expect_err("decided");
                assert!(why.contains("committed it already"), "{why}");
            }
            pair.ran(&format!("{ends} m1"));
            assert_eq!(
                pair.ran(&format!("{ends} m1")),
                "m1: nothing to do\n",
                "{what}"
            );
            let there = usize::from(ends == "commit");
            let lives = [0, 1].map(|host| pair.lives(host));
            assert_eq!(lives, [there == 0, there == 1], "{what}, at last");
            // Once more before a VMM has come.
            for host in *killed {
                kill(&mut pair.labs[*host]);
            }
            let lives = [0, 1].map(|host| pair.lives(host));
            assert_eq!(lives, [there == 0, there == 1], "{what}, at last");
            let mut client = Client::connect(pair.socket("moves", there)).expect("served");
            let ring = client.read_u32(0, RDBAL).expect("a register");
            assert_eq!(ring, 0x1234_5000, "{what}: it is what it was");
        }
    }
}

#[test]
fn a_move_that_is_broken_off_anywhere_leaves_one_living_nic_and_never_two() {
    broken_off(EITHER_OR_BOTH, || Pair::of_e1000(""), Lab::restart);
}

#[test]
fn so_does_one_whose_workers_die() {
    let make = || Pair::of_e1000("keeper = true\n");
    broken_off(EITHER_OR_BOTH, make, |lab| lab.kill_worker());
}
