//! `hypernic migrate` of NICs that cells serve.

use std::collections::BTreeMap;
use std::time::Duration;

use control::{MigrateAbort, MigrateCommit, MigrateList, MigrateLoad, MigrateSave, MoveStep, ask};
use drivers::SocketBus;
use drivers::e1000::{Config, Driver};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vfio_user::Client;

use crate::common::{mac, until};
use crate::lab::{Lab, has_gone};
use crate::migrate::{Pair, broken_off, receive, send, talk};

/// The processes of a daemon by their cells; those that do not answer have none.
fn processes(lab: &Lab) -> BTreeMap<String, Option<Pid>> {
    let told: Value = serde_json::from_str(&lab.ran("cell list --json")).expect("JSON");
    let cells = told["cells"].as_array().expect("a list").iter();
    let process = |cell: &Value| {
        let pid = cell["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let name = cell["name"].as_str().expect("a name");
        (name.to_owned(), pid.and_then(Pid::from_raw))
    };
    cells.map(process).collect()
}

/// All processes answer, and this one, if it was killed, is another.
pub(crate) fn all_answer(lab: &Lab, killed: Option<(&str, Pid)>) {
    lab.until("all processes", || {
        if !lab.run("cell list").status.success() {
            return None;
        }
        let all = processes(lab);
        let is_new = killed.is_none_or(|(name, old)| all.get(name) != Some(&Some(old)));
        (is_new && all.values().all(Option::is_some)).then_some(())
    });
}

fn parent(pid: Pid) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let stat = stat.expect("a process");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let parent = rest.split_whitespace().nth(1).expect("a parent");
    Pid::from_raw(parent.parse().expect("a number")).expect("not 0")
}

/// Kills the worker of a process, or what keeps it.
pub(crate) fn kill(lab: &Lab, name: &str, keeper: bool) {
    // A cell has gone with its last NIC.
    let Some(Some(worker)) = processes(lab).get(name).copied() else {
        return;
    };
    let victim = if keeper { parent(worker) } else { worker };
    kill_process(victim, Signal::KILL).expect("killed");
    all_answer(lab, Some((name, worker)));
}

/// The host of a daemon goes off and on again.
pub(crate) fn restart(lab: &mut Lab) {
    let workers = processes(lab).into_values().flatten();
    let all: Vec<_> = workers
        .flat_map(|worker| [parent(worker), worker])
        .collect();
    // First those that would start others.
    lab.daemon.kill().expect("killed");
    for process in &all {
        let _ = kill_process(*process, Signal::KILL);
    }
    lab.until("the end of all", || {
        all.iter().all(|pid| has_gone(*pid)).then_some(())
    });
    lab.restart();
    all_answer(lab, None);
}

/// Two daemons; the NIC that moves is in a cell of the first.
fn in_a_cell() -> Pair {
    let pair = Pair::of_e1000_with("keeper = true\n", "cell = \"x\"\n");
    all_answer(&pair.labs[0], None);
    pair
}

fn cell_of(lab: &Lab) -> Value {
    let told: Value = serde_json::from_str(&lab.ran("nic list moves --json")).expect("JSON");
    told["nics"][0]["config"]["cell"].clone()
}

#[test]
fn a_nic_of_a_cell_moves_with_traffic_before_and_after() {
    let pair = in_a_cell();
    let mut moves = pair.driver("moves", 0);
    let mut stays = pair.driver("stays", 0);
    // The ring between the two processes may be about to be made.
    until("a frame", || {
        send(&mut stays, mac(1), 999..1000);
        std::thread::sleep(Duration::from_millis(20));
        moves.receive().expect("received").into_iter().next()
    });
    std::thread::sleep(Duration::from_millis(100));
    while !moves.receive().expect("received").is_empty() {}
    talk(&mut moves, &mut stays, 0..300);
    let why = pair.run("prepare m1 moves").expect_err("a VMM has it");
    assert!(why.contains("a VMM has moves"), "{why}");
    // Whoever asks the cell itself moves nothing.
    let cell = pair.labs[0].dir.path().join("control.sock.cell-x");
    let call = MigrateSave {
        id: "m1".into(),
        nic: "moves".into(),
        paused: Some(true),
        ..MigrateSave::default()
    };
    let why = ask(&cell, &call).expect_err("a cell").to_string();
    assert!(why.contains("as the main process says"), "{why}");
    assert_eq!(
        pair.ran("prepare m1 moves --paused --check"),
        "m1: it can be done\n"
    );
    talk(&mut moves, &mut stays, 300..310);
    pair.ran("prepare m1 moves --paused");
    assert_eq!([0, 1].map(|host| pair.lives(host)), [false; 2]);
    // While it stands still it stays as it is, and frames for it are lost.
    for words in ["nic remove moves", "nic link moves down"] {
        let said = pair.labs[0].run(words);
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("stands still for the move m1"), "{said}");
    }
    send(&mut stays, mac(1), 900..910);
    assert_eq!(pair.ran("commit m1"), "m1: committed\n");
    let frame = until("an announcement", || {
        stays.receive().expect("received").into_iter().next()
    });
    assert_eq!(
        frame[..14],
        [&[0xff; 6][..], &mac(1), &[0x80, 0x35]].concat()
    );
    // The switch of the source knows the way, and its cell has ended with its NIC.
    let way = pair.seen(0).expect("it is known");
    // No ring to a cell (`main>x`): the uplink, whose path has letters by chance.
    assert!(!way.contains('>') && way != "moves", "{way}");
    assert_eq!(processes(&pair.labs[0]).len(), 1);
    assert_eq!(cell_of(&pair.labs[1]), "x");
    let far = Client::connect(pair.socket("moves", 1)).expect("it is served");
    moves.bus_mut().come(far).expect("goes on");
    talk(&mut moves, &mut stays, 310..600);
    assert_eq!(pair.ran("commit m1"), "m1: nothing to do\n");
    talk(&mut moves, &mut stays, 600..610);
    let log = pair.labs[0].log();
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn the_switches_of_all_processes_forget_where_a_nic_was() {
    let pair = in_a_cell();
    // The cell stays for another one.
    let beside = pair.socket("beside", 0).display().to_string();
    pair.labs[0].ran(&format!(
        "nic add beside --port switch:lan --cell x --socket-path {beside}"
    ));
    let mut moves = pair.driver("moves", 0);
    let mut stays = pair.driver("stays", 0);
    let bus = SocketBus::connect(pair.socket("stays", 1)).expect("a bus");
    let all = Config {
        promiscuous: true,
        ..Config::linux()
    };
    let mut watches = Driver::new(bus, all).expect("it comes up");
    // So what comes for it is not flooded, by which the other host would know the one that moves.
    send(&mut stays, [0xff; 6], 0..1);
    until("the way to it", || {
        send(&mut moves, stays.mac(), 0..1);
        std::thread::sleep(Duration::from_millis(20));
        stays.receive().expect("received").into_iter().next()
    });
    pair.ran("prepare m1 moves --paused");
    std::thread::sleep(Duration::from_millis(100));
    while !watches.receive().expect("received").is_empty() {}
    let mut sees = |number: u64| {
        send(&mut stays, mac(1), number..number + 1);
        std::thread::sleep(Duration::from_millis(200));
        watches.receive().expect("received").len()
    };
    assert_eq!(sees(1), 0, "it is known to be in the cell");
    let commit = MigrateCommit {
        id: "m1".into(),
        ..MigrateCommit::default()
    };
    ask(&pair.labs[0].control(), &commit).expect("it goes");
    assert_eq!(sees(2), 1, "it may be anywhere");
    pair.ran("commit m1");
}

#[test]
fn a_nic_moves_into_a_cell_that_is_started_for_it() {
    let pair = Pair::of_e1000("keeper = true\n");
    let mut moves = pair.driver("moves", 0);
    let mut stays = pair.driver("stays", 0);
    talk(&mut moves, &mut stays, 0..50);
    // Some have come that the guest has not looked at.
    send(&mut stays, mac(1), 100..120);
    pair.ran("prepare m1 moves --paused --cell y");
    assert_eq!(pair.ran("abort m1"), "m1: aborted\n");
    let is_alone = |pair: &Pair| processes(&pair.labs[1]).len() == 1;
    assert!(is_alone(&pair), "the cell was for it");
    // What is no state is refused there, and nothing is left of it.
    let load = MigrateLoad {
        id: "m3".into(),
        nic: control::NicConfig {
            name: "other".into(),
            port: "null".into(),
            cell: Some("z".into()),
            socket_path: Some(pair.socket("other", 1).display().to_string()),
            ..control::NicConfig::default()
        },
        state: Some("00".into()),
        ..MigrateLoad::default()
    };
    let said = ask(&pair.labs[1].control(), &load).expect_err("no state");
    let said = said.to_string();
    assert!(said.contains("cannot go on as what was saved"), "{said}");
    assert!(!pair.socket("other", 1).exists());
    let cell = pair.labs[1].dir.path().join("control.sock.cell-z");
    pair.labs[1].until("its end", || {
        ask(&cell, &MigrateList::default()).is_err().then_some(())
    });
    pair.ran("prepare m2 moves --paused --cell y");
    pair.ran("commit m2");
    assert_eq!(cell_of(&pair.labs[1]), "y");
    let far = Client::connect(pair.socket("moves", 1)).expect("it is served");
    moves.bus_mut().come(far).expect("goes on");
    let came = receive(&mut moves, 20);
    assert!(came.into_iter().eq(100..120));
    until("an announcement", || {
        stays.receive().expect("received").into_iter().next()
    });
    talk(&mut moves, &mut stays, 200..300);
    // A worker that dies has the next one go on, as with any NIC of a cell.
    kill(&pair.labs[1], "y", false);
    talk(&mut moves, &mut stays, 300..310);
}

#[test]
fn a_nic_that_has_gone_from_a_cell_stays_away_until_there_is_another_one() {
    let mut pair = in_a_cell();
    pair.ran("prepare m1 moves --cell main");
    pair.ran("commit m1");
    assert_eq!(cell_of(&pair.labs[1]), "main");
    assert!(pair.lives(1));
    restart(&mut pair.labs[0]);
    assert!(!pair.lives(0));
    let file = pair.labs[0].dir.path().join("host.toml");
    let applied = pair.labs[0].run(&format!("config apply {}", file.display()));
    let said = String::from_utf8_lossy(&applied.stderr);
    assert!(
        said.contains("has moved to another host by the move m1"),
        "{said}"
    );
    assert!(!pair.lives(0));
    let socket = pair.socket("moves", 0);
    pair.labs[0].ran(&format!(
        "nic add moves --port switch:lan --cell x --socket-path {}",
        socket.display()
    ));
    assert!(pair.lives(0));
    kill(&pair.labs[0], "x", true);
    assert!(pair.lives(0));
}

#[test]
fn a_move_of_a_cells_nic_that_is_broken_off_leaves_one_living_nic_and_never_two() {
    broken_off(&[&[0], &[1], &[0, 1]], in_a_cell, restart);
}

#[test]
fn so_does_one_whose_cells_or_main_processes_die() {
    for (name, keeper) in [("x", false), ("x", true), ("main", false)] {
        broken_off(&[&[0, 1]], in_a_cell, |lab| kill(lab, name, keeper));
    }
}

/// The main process dies behind what a cell has done, and before it has noted that.
#[test]
fn the_main_process_follows_what_a_cell_has_done() {
    let mut pair = in_a_cell();
    let cell = |host: usize| pair.labs[host].dir.path().join("control.sock.cell-x");
    let cells = [cell(0), cell(1)];
    let save = |id: &str| MigrateSave {
        id: id.into(),
        nic: "moves".into(),
        partly: Some(true),
        ..MigrateSave::default()
    };
    let commit = |id: &str| MigrateCommit {
        id: id.into(),
        source_said: Some(true),
        partly: Some(true),
        ..MigrateCommit::default()
    };
    let follows = |pair: &Pair, host: usize, steps: [&str; 2]| {
        kill(&pair.labs[host], "main", false);
        let what = format!("{steps:?}");
        pair.labs[host].until(&what, || (pair.steps() == steps).then_some(()));
    };
    ask(&cells[0], &save("m1")).expect("it stands still");
    follows(&pair, 0, ["prepared", ""]);
    assert!(!pair.lives(0));
    pair.ran("abort m1");
    assert!(pair.lives(0));

    pair.ran("prepare m2 moves");
    let abort = MigrateAbort {
        id: "m2".into(),
        source_said: Some(true),
        partly: Some(true),
        ..MigrateAbort::default()
    };
    ask(&cells[0], &abort).expect("it stays");
    assert!(pair.lives(0));
    let why = pair.run("commit m2").expect_err("the cell has decided");
    assert!(why.contains("aborted it already"), "{why}");
    follows(&pair, 0, ["aborted", "prepared"]);
    pair.ran("abort m2");
    assert!(pair.lives(0));

    // A cell of the destination has a NIC that nobody was told of.
    let saved = pair.labs[0].ran("nic list moves --json");
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    let other = pair.socket("other", 1).display().to_string();
    pair.labs[1].ran(&format!(
        "nic add other --port null --cell x --socket-path {other}"
    ));
    let held = ask(&cells[0], &save("m3")).expect("saved");
    let mut nic = held.nic.clone();
    assert_eq!(
        saved["nics"][0]["config"]["mac"],
        nic.mac.clone().expect("one")
    );
    nic.socket_path = Some(pair.socket("moves", 1).display().to_string());
    let load = MigrateLoad {
        id: "m3".into(),
        nic,
        state: held.state,
        partly: Some(true),
        ..MigrateLoad::default()
    };
    ask(&cells[1], &load).expect("it comes");
    follows(&pair, 0, ["prepared", "aborted"]);
    kill(&pair.labs[1], "main", false);
    pair.labs[1].until("it is taken back", || {
        let told = ask(&cells[1], &MigrateList::default()).expect("told");
        (told.moves.last()?.step == MoveStep::Aborted).then_some(())
    });
    // By the same name it comes again.
    pair.ran("prepare m3 moves");
    ask(&cells[0], &commit("m3")).expect("it goes");
    for keeper in [false, true] {
        kill(&pair.labs[0], "x", keeper);
        assert!(
            !pair.lives(0),
            "{keeper}: the cell knows by itself that it has gone: {}",
            pair.labs[0].log()
        );
    }
    let why = pair.run("abort m3").expect_err("the cell has decided");
    assert!(why.contains("committed it already"), "{why}");
    follows(&pair, 0, ["committed", "prepared"]);
    assert!(!pair.labs[0].ran("nic list").contains("moves"));
    assert_eq!([0, 1].map(|host| pair.lives(host)), [false; 2]);
    ask(&cells[1], &commit("m3")).expect("it has come");
    follows(&pair, 1, ["committed", "committed"]);
    assert_eq!([0, 1].map(|host| pair.lives(host)), [false, true]);
    restart(&mut pair.labs[1]);
    assert_eq!([0, 1].map(|host| pair.lives(host)), [false, true]);
    assert_eq!(pair.ran("commit m3"), "m3: nothing to do\n");
}
