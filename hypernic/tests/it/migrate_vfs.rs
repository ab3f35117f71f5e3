//! `hypernic migrate` of VFs: one comes in place of another one, and one for nobody stays behind.

use std::time::Duration;

use control::{MigrateCommit, MigrateList, MigrateLoad, MigrateSave, MoveStep, ask};
use drivers::SocketBus;
use drivers::e1000::Driver;
use drivers::igbvf::Vf;
use serde_json::Value;
use vfio_user::{Client, ClientOptions};

use crate::common::{mac, until};
use crate::lab::Lab;
use crate::migrate::{Pair, step};
use crate::migrate_cells::{all_answer, kill, restart};

/// Where a VF's first receive ring is: what a reset forgets.
const RDBAL: u64 = 0x2800;

/// What is laid down for the VF that moves.
const POLICY: &str =
    "mac = \"52:54:00:76:00:01\"\nvlan = 7\nqos = 3\nmax-tx-rate = 5000\nmailbox-rate = 40\n";

/// VF 0 of the source moves to VF 1 of the destination.
fn of_vfs(head: &str, words: &str) -> Pair {
    Pair::with(head, |host, dir| {
        let sockets = dir.join("beside{}.sock");
        let moves = dir.join("moves.sock");
        let policy = [POLICY, ""][host];
        format!(
            "[[nic]]\nname = \"p{host}\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = {sockets:?}\nport = \"switch:lan\"\n{words}\
             [[nic.vf]]\nindex = {host}\nsocket-path = {moves:?}\n{policy}"
        )
    })
}

/// Both chips are in cells.
fn in_cells() -> Pair {
    let pair = of_vfs("keeper = true\n", "cell = \"x\"\n");
    for lab in &pair.labs {
        all_answer(lab, None);
    }
    pair
}

/// What is laid down for the VF at the moving socket.
fn policy(pair: &Pair, host: usize) -> Value {
    let told = pair.labs[host].ran(&format!("vf show {} --json", NAMES[host]));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    told["vfs"][0]["policy"].clone()
}

const NAMES: [&str; 2] = ["p0vf0", "p1vf1"];
const MOVES: (&str, &str) = (NAMES[0], NAMES[1]);

fn commit(id: &str) -> MigrateCommit {
    MigrateCommit {
        id: id.into(),
        ..MigrateCommit::default()
    }
}

fn has_address(pair: &Pair, host: usize) -> bool {
    policy(pair, host)["mac"] == "52:54:00:76:00:01"
}

/// What its ring register says there, if it is served.
fn ring(pair: &Pair, host: usize) -> Option<u32> {
    let options = ClientOptions {
        timeout: Duration::from_millis(200),
        ..ClientOptions::default()
    };
    let mut client = Client::connect_with(pair.socket("moves", host), options).ok()?;
    client.read_u32(0, RDBAL).ok()
}

/// A frame of VLAN 7, with its tag.
fn tagged(to: [u8; 6], from: [u8; 6], number: u8) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x81, 0, 0, 7, 0x88, 0xb5, number]].concat();
    frame.resize(100, 1);
    frame
}

/// A frame of the VF.
fn own_frame(to: &Driver<SocketBus>, number: u8) -> Vec<u8> {
    let frame = [&to.mac()[..], &mac(1), &[0x88, 0xb5, number]].concat();
    [frame, vec![1; 85]].concat()
}

/// Both ways, between the VF, whose chip has its VLAN's tag, and a NIC beside the chip.
fn talk(vf: &mut Vf<SocketBus>, stays: &mut Driver<SocketBus>, number: u8) {
    vf.send(&[&own_frame(stays, number)]).expect("sent");
    let came = until(&format!("frame {number} of the VF"), || {
        let frames = stays.receive().expect("received");
        frames.into_iter().find(|frame| frame[6..12] == mac(1))
    });
    assert_eq!(came[12..18], [0x81, 0, 0x60, 7, 0x88, 0xb5], "{came:x?}");
    assert_eq!(came[18], number);
    until("room", || {
        let frame = tagged(mac(1), stays.mac(), number);
        (stays
            .send(&[&frame], &drivers::e1000::TxOpts::default())
            .expect("sent")
            == 1)
            .then_some(())
    });
    until(&format!("frame {number} for the VF"), || {
        let frames = vf.receive().expect("received");
        frames.into_iter().find(|(frame, _)| frame[14] == number)
    });
}

fn announced(stays: &mut Driver<SocketBus>) {
    let frame = until("an announcement", || {
        let frames = stays.receive().expect("received");
        frames.into_iter().find(|frame| frame[6..12] == mac(1))
    });
    // In its VLAN.
    assert_eq!(
        frame[..18],
        [&[0xff; 6][..], &mac(1), &[0x81, 0, 0x60, 7, 0x80, 0x35]].concat()
    );
}

fn moves_with_traffic(pair: &Pair, in_cell: bool) {
    let mut moves = Vf::new(SocketBus::connect(pair.socket("moves", 0)).expect("a bus"));
    let moves = moves.as_mut().expect("a VF");
    let mut stays = pair.driver("stays", 0);
    // The ring between two processes may be about to be made.
    until("the way", || {
        moves.send(&[&own_frame(&stays, 0)]).expect("sent");
        std::thread::sleep(Duration::from_millis(20));
        stays.receive().expect("received").into_iter().next()
    });
    std::thread::sleep(Duration::from_millis(100));
    while !stays.receive().expect("received").is_empty() {}
    talk(moves, &mut stays, 1);
    let was = policy(pair, 0);
    let before = policy(pair, 1);
    for (words, why) in [
        (
            "prepare m1 p0vf0 --paused",
            "there is no virtual function \"p0vf0\"",
        ),
        ("prepare m1 p0vf0 --name p1vf1", "a VMM has p0vf0"),
        (
            "prepare m1 p0vf0 --name p1vf1 --paused --port null",
            "leave out --port",
        ),
        ("prepare m1 moves", "there is no NIC \"moves\""),
    ] {
        let said = pair.run(words).expect_err(words);
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
    // Nothing comes in place of one that a VMM has.
    let other = Client::connect(pair.socket("moves", 1)).expect("a client");
    let said = pair.run("prepare m1 p0vf0 --name p1vf1 --paused");
    let said = said.expect_err("it is in use");
    assert!(said.contains("a VMM has p1vf1"), "{said}");
    drop(other);
    talk(moves, &mut stays, 2);
    until("it is gone", || {
        pair.run("prepare m1 p0vf0 --name p1vf1 --paused --check")
            .ok()
    });
    assert_eq!(policy(pair, 1), before, "it was only asked");
    pair.ran("prepare m1 p0vf0 --name p1vf1 --paused");
    assert_eq!(
        pair.ran("prepare m1 p0vf0 --name p1vf1 --paused"),
        "m1: nothing to do\n"
    );
    assert_eq!(policy(pair, 1), was, "it has come along");
    assert_eq!([0, 1].map(|host| ring(pair, host)), [None; 2]);
    for (host, words) in [
        (0, "vf set p0vf0 vlan 9"),
        (1, "vf set p1vf1 vlan 9"),
        (0, "chip remove p0"),
        (1, "chip set p1 --vfs 1"),
    ] {
        let said = pair.labs[host].run(words);
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("stands still for the move m1"), "{said}");
    }
    pair.ran("abort m1");
    assert_eq!(policy(pair, 1), before, "as it was");
    assert_eq!(ring(pair, 1), Some(0), "and new");
    talk(moves, &mut stays, 3);
    assert_eq!(pair.seen(0).as_deref(), Some("p0"), "its switch knows it");
    until("it is gone", || {
        pair.run("prepare m2 p0vf0 --name p1vf1 --paused").ok()
    });
    if !in_cell {
        assert_eq!(pair.seen(0), None, "its switch has forgotten it");
    }
    ask(&pair.labs[0].control(), &commit("m2")).expect("it goes");
    assert_eq!(pair.seen(0), None, "all switches have forgotten it");
    pair.ran("commit m2");
    announced(&mut stays);
    assert_eq!(policy(pair, 1), was);
    let far = Client::connect(pair.socket("moves", 1)).expect("it is served");
    moves.bus().come(far).expect("goes on");
    // Its driver is told nothing, and has what it had.
    assert_eq!(moves.heard().expect("looked"), None);
    talk(moves, &mut stays, 4);
    // What stays behind is for nobody.
    assert_eq!(ring(pair, 0), Some(0));
    let behind = policy(pair, 0);
    assert_eq!(
        (&behind["vlan"], &behind["state"]),
        (&0.into(), &"disable".into())
    );
    assert_ne!(behind["mac"], was["mac"]);
    assert_eq!(pair.ran("commit m2"), "m2: nothing to do\n");
    talk(moves, &mut stays, 5);
}

#[test]
fn a_vf_moves_in_place_of_another_one_with_its_policy_and_its_traffic() {
    let pair = of_vfs("", "");
    moves_with_traffic(&pair, false);
    for (host, no) in [(0, "panicked"), (1, "panicked")] {
        let log = pair.labs[host].log();
        assert!(!log.contains("ERROR") && !log.contains(no), "{log}");
    }
}

#[test]
fn a_vf_of_a_chip_in_a_cell_moves_too() {
    moves_with_traffic(&in_cells(), true);
}

#[test]
fn what_a_vf_leaves_behind_is_for_another_guest_and_no_file_brings_it_back() {
    let mut pair = of_vfs("", "");
    pair.ran("prepare m1 p0vf0 --name p1vf1");
    pair.ran("commit m1");
    assert_eq!([0, 1].map(|host| has_address(&pair, host)), [false, true]);
    pair.labs[0].restart();
    pair.labs[1].restart();
    assert_eq!([0, 1].map(|host| has_address(&pair, host)), [false, true]);
    let file = pair.labs[0].dir.path().join("host.toml");
    let apply = format!("config apply {}", file.display());
    let said = pair.labs[0].run(&apply);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("p0vf0 has moved to another host"), "{said}");
    assert!(!has_address(&pair, 0));
    // It comes back, to the place that it has left.
    let back = |words: &str| {
        let mut command = std::process::Command::new(crate::lab::HYPERNIC);
        command.arg("migrate").args(words.split(' '));
        command.arg("--to").arg(pair.labs[0].control());
        command.arg("--control").arg(pair.labs[1].control());
        let output = command.output().expect("hypernic");
        let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}: {wrong}");
    };
    back("prepare m2 p1vf1 --name p0vf0");
    back("abort m2");
    assert_eq!([0, 1].map(|host| has_address(&pair, host)), [false, true]);
    let said = pair.labs[0].run(&apply);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("p0vf0 has moved to another host"), "{said}");
    assert!(!has_address(&pair, 0), "it is away still");
    back("prepare m3 p1vf1 --name p0vf0");
    back("commit m3");
    assert_eq!([0, 1].map(|host| has_address(&pair, host)), [true, false]);
    assert_eq!(policy(&pair, 0)["vlan"], 7);
    // What it has left there is given to another guest.
    pair.labs[1].ran("vf set p1vf1 mac 52:54:00:76:00:01 state auto");
    assert!(has_address(&pair, 1));
    pair.labs[1].restart();
    let at_first = policy(&pair, 1);
    assert_eq!(
        (&at_first["state"], &at_first["vlan"]),
        (&"auto".into(), &0.into())
    );
}

#[test]
fn files_say_where_a_vf_is_if_that_is_wanted() {
    let pair = of_vfs("", "");
    let file = |host: usize| {
        let path = pair.labs[host].dir.path().join("host.toml");
        std::fs::read_to_string(path).expect("file")
    };
    let before = file(0);
    pair.ran("prepare m1 p0vf0 --name p1vf1");
    pair.ran("commit m1");
    assert_eq!(file(0), before);
    pair.ran("commit m1 --persist");
    let behind = file(0);
    for word in ["mac = \"52:54:00:76:00:01\"", "vlan", "max-tx-rate"] {
        assert!(
            !behind.contains(word) && file(1).contains(word),
            "{word}: {behind}"
        );
    }
    assert!(behind.contains("state = \"disable\"") && behind.contains("moves.sock"));
    for host in [0, 1] {
        let path = pair.labs[host].dir.path().join("host.toml");
        pair.labs[host].ran(&format!("config apply {} --check", path.display()));
    }
    assert!(file(1).contains("mailbox-rate = 40"));
}

/// Breaks a move off behind each call, kills one of the daemons or both, and ends it either way.
fn broken_off(hosts: &[&[usize]], make: impl Fn() -> Pair, kill: impl Fn(&mut Lab)) {
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
            let prepare = "prepare m1 p0vf0 --name p1vf1";
            until("it is gone", || {
                pair.run(&format!("{prepare} --check")).ok()
            });
            let mut saved = None;
            for number in 0..calls {
                step(&pair, MOVES, number, &mut saved);
            }
            let has = |pair: &Pair| [0, 1].map(|host| has_address(pair, host));
            let expected = match calls {
                1 => [true, false],
                // It stands still at both.
                2 => [true, true],
                _ => [false, true],
            };
            assert_eq!(has(&pair), expected, "{what}");
            for host in *killed {
                kill(&mut pair.labs[*host]);
            }
            assert_eq!(has(&pair), expected, "{what}, then");
            let served = [0, 1].map(|host| ring(&pair, host) == Some(0x1234_5000));
            assert_eq!(served, [false, calls == 4], "{what}, then");
            if ends == "commit" && calls < 3 {
                pair.ran(prepare);
            }
            pair.ran(&format!("{ends} m1"));
            let again = pair.ran(&format!("{ends} m1"));
            assert_eq!(again, "m1: nothing to do\n", "{what}");
            let there = usize::from(ends == "commit");
            for _ in 0..2 {
                assert_eq!(has(&pair), [there == 0, there == 1], "{what}, at last");
                // Once more before a VMM has come.
                for host in *killed {
                    kill(&mut pair.labs[*host]);
                }
            }
            let rings = [0, 1].map(|host| ring(&pair, host));
            let mut expected = [Some(0); 2];
            expected[there] = Some(0x1234_5000);
            assert_eq!(rings, expected, "{what}: it is what it was");
        }
    }
}

#[test]
fn a_move_of_a_vf_that_is_broken_off_leaves_one_living_and_never_two() {
    let hosts: &[&[usize]] = &[&[0], &[1], &[0, 1]];
    broken_off(hosts, || of_vfs("", ""), Lab::restart);
}

#[test]
fn so_does_one_whose_workers_die() {
    let make = || of_vfs("keeper = true\n", "");
    broken_off(&[&[0, 1]], make, |lab| lab.kill_worker());
}

#[test]
fn so_does_one_whose_cells_die() {
    broken_off(&[&[0, 1]], in_cells, |lab| kill(lab, "x", true));
}

#[test]
fn so_does_one_whose_cells_main_processes_die() {
    broken_off(&[&[0, 1]], in_cells, |lab| kill(lab, "main", false));
}

#[test]
fn so_does_one_in_cells_whose_hosts_go_off_and_on() {
    broken_off(&[&[0, 1]], in_cells, restart);
}

/// The main process dies behind what a cell has done, and before it has noted that.
#[test]
fn the_main_process_follows_what_a_cell_has_done_with_a_vf() {
    let pair = in_cells();
    let cells = [0, 1].map(|host| pair.labs[host].dir.path().join("control.sock.cell-x"));
    let before = policy(&pair, 1);
    let save = MigrateSave {
        id: "m1".into(),
        nic: NAMES[0].into(),
        partly: Some(true),
        ..MigrateSave::default()
    };
    let held = ask(&cells[0], &save).expect("it stands still");
    let load = MigrateLoad {
        id: "m1".into(),
        nic: control::NicConfig {
            name: NAMES[1].into(),
            ..held.nic
        },
        vf: held.vf,
        state: held.state,
        partly: Some(true),
        ..MigrateLoad::default()
    };
    ask(&cells[1], &load).expect("it comes");
    for lab in &pair.labs {
        kill(lab, "main", false);
    }
    // One that nobody was told of is taken back.
    pair.labs[0].until("it follows", || {
        (pair.steps() == ["prepared", ""]).then_some(())
    });
    pair.labs[1].until("it is taken back", || {
        let told = ask(&cells[1], &MigrateList::default()).expect("told");
        (told.moves.last()?.step == MoveStep::Aborted).then_some(())
    });
    assert_eq!(policy(&pair, 1), before);
    pair.ran("abort m1");
    assert_eq!([0, 1].map(|host| has_address(&pair, host)), [true, false]);
    // What has gone has gone.
    pair.ran("prepare m2 p0vf0 --name p1vf1");
    let partly = MigrateCommit {
        partly: Some(true),
        ..commit("m2")
    };
    ask(&cells[0], &partly).expect("it goes");
    kill(&pair.labs[0], "main", false);
    pair.labs[0].until("it follows", || {
        (pair.steps() == ["committed", "prepared"]).then_some(())
    });
    assert!(!has_address(&pair, 0));
    pair.ran("commit m2");
    for (host, name) in [(0, "p0vf1"), (1, "p1vf0")] {
        pair.labs[host].ran(&format!("vf set {name} vlan 9"));
        kill(&pair.labs[host], "x", false);
    }
    assert_eq!([0, 1].map(|host| has_address(&pair, host)), [false, true]);
    // Its cell takes another one there, of the same address too.
    pair.labs[0].ran("vf set p0vf0 mac 52:54:00:76:00:01 state auto");
    kill(&pair.labs[0], "x", true);
    assert!(has_address(&pair, 0));
}
