//! A daemon whose NICs are served by several processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use hypernic_tests::{Ends, LONG, Launch};
use pkt_gen::check::Depth;
use pkt_gen::pace::Rate;
use pkt_gen::{Function, Plan, Report, run};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use vfio_user::Client;

use crate::cli_config::Lab;
use crate::cli_crash::kill;
use crate::cli_descriptors::without_descriptors;

/// NICs on a switch, by name and cell.
fn lan(nics: &[(&str, &str)]) -> String {
    let nic = |(name, cell): &(&str, &str)| {
        format!(
            "[[nic]]\nname = \"{name}\"\nsocket-path = \"@/{name}\"\nport = \"switch:lan\"\ncell = \"{cell}\"\n"
        )
    };
    let nics: String = nics.iter().map(nic).collect();
    format!("[[switch]]\nname = \"lan\"\n{nics}")
}

/// Three NICs in cells of their own, and one in the main one.
const FOUR: &[(&str, &str)] = &[("a", "x"), ("b", "y"), ("c", "x"), ("m", "main")];

/// The processes of the cells that answer, by name.
pub(crate) fn cells(lab: &Lab) -> BTreeMap<String, Pid> {
    let told: Value = serde_json::from_str(&lab.ran("cell list --json")).expect("JSON");
    let cells = told["cells"].as_array().expect("a list").iter();
    let pid = |cell: &Value| {
        let pid = Pid::from_raw(i32::try_from(cell["pid"].as_i64()?).ok()?)?;
        Some((cell["name"].as_str()?.to_owned(), pid))
    };
    cells.filter_map(pid).collect()
}

/// The same words, with the folder of the test's files for `@`.
pub(crate) fn at(lab: &Lab, words: &str) -> String {
    words.replace('@', &lab.dir.path().display().to_string())
}

/// A daemon whose processes all serve: so many besides the main one.
pub(crate) fn lab(words: &str, others: usize) -> Lab {
    let lab = Lab::with(words, |launch| launch.env("HYPERNIC_TEST_LIFE_MS", "0"));
    all_answer(&lab, others);
    lab
}

fn all_answer(lab: &Lab, others: usize) {
    lab.until("all cells", || cells(lab).len() == 1 + others);
}

/// The parent of a process.
fn parent(pid: Pid) -> Pid {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("a process");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let parent = rest
        .split_whitespace()
        .nth(1)
        .expect("a parent")
        .parse()
        .expect("a number");
    Pid::from_raw(parent).expect("not 0")
}

fn plan(lab: &Lab, from: &str, to: &str) -> Plan {
    Plan {
        receivers: vec![lab.at(to)],
        check: Depth::Full,
        settle: Duration::from_millis(500),
        rate: Rate::Frames(20_000.0),
        burst: 8,
        ..Plan::new(Function::Tx, vec![lab.at(from)])
    }
}

/// Sends `count` frames from one NIC to another.
#[track_caller]
fn send(lab: &Lab, from: &str, to: &str, count: u64) {
    let plan = Plan {
        count,
        ..plan(lab, from, to)
    };
    let report = run(&plan, &AtomicBool::new(false), |_, _| {}).expect("sent");
    let verdict = report.verdict().expect("somebody received");
    assert!(
        verdict.in_order() && verdict.seen.lost == 0,
        "{from} to {to}: {verdict:?}\n{}",
        lab.daemon.log()
    );
    assert_eq!(report.total(|nic| nic.tx_frames), count);
}

/// Sends from one NIC to another while something is done.
fn meanwhile(lab: &mut Lab, from: &str, to: &str, work: impl FnOnce(&mut Lab)) -> Report {
    let plan = plan(lab, from, to);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| run(&plan, &stop, |_, _| {}));
        let ends = Ends(&stop);
        let until = Instant::now() + LONG;
        while lab.daemon.log().matches("VMM connected").count() < 2 {
            assert!(Instant::now() < until, "the generator does not come");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        work(lab);
        std::thread::sleep(Duration::from_millis(300));
        drop(ends);
        sent.join().expect("no panic").expect("sent")
    })
}

/// A counter of a switch's port.
pub(crate) fn counter(lab: &Lab, kind: &str, name: &str, counter: &str) -> u64 {
    let call = format!(
        r#"{{"method":"io.hypernic.Metrics.Get","parameters":{{"kind":"{kind}","things":["{name}"],"names":["{counter}"]}}}}"#
    );
    let told: Value = serde_json::from_str(&crate::cli_control::call(lab, &call)).expect("JSON");
    told["parameters"]["sections"][0]["values"][counter]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn a_keeper_tells_its_cells_and_its_successor_what_they_may_do() {
    let mut lab = lab(&lan(FOUR), 2);
    let told = |pid: u32| {
        let all = std::fs::read(format!("/proc/{pid}/environ")).expect("a process");
        let mut words = all.split(|byte| *byte == 0);
        let limits = words.find_map(|word| word.strip_prefix(b"HYPERNIC_LIMITS="));
        limits.map(|text| serde_json::from_slice::<Value>(text).expect("JSON"))
    };
    let may = serde_json::json!({
        "mode": "default",
        "network": true,
        "taps": true,
        "written": [lab.dir.path().canonicalize().expect("a folder")],
        "served": [],
    });
    assert_eq!(told(lab.daemon.id()), None, "it was told by nobody");
    let all = cells(&lab);
    for cell in ["x", "y"] {
        let pid = all[cell].as_raw_nonzero().get().unsigned_abs();
        assert_eq!(told(pid), Some(may.clone()), "{cell}");
    }
    lab.ran("upgrade");
    let mut now = told(lab.daemon.id()).expect("it was told");
    // What the file says may be done, too.
    let folders = now["written"].as_array_mut().expect("folders");
    folders.dedup();
    assert_eq!(now, may);
    all_answer(&lab, 2);
    send(&lab, "a", "b", 1000);
    lab.daemon.stop().expect("it ends");
}

#[test]
fn nics_in_cells_are_served_by_processes_of_their_own_and_meet_on_their_switch() {
    let mut lab = lab(&lan(FOUR), 2);
    let processes = cells(&lab);
    let names: Vec<_> = processes.keys().map(String::as_str).collect();
    assert_eq!(names, ["main", "x", "y"]);
    let keeper = Pid::from_raw(lab.daemon.id() as i32).expect("a process");
    assert_eq!(parent(processes["main"]), keeper);
    for cell in ["x", "y"] {
        // Each has a keeper of its own, which the first keeper has started.
        assert_eq!(parent(parent(processes[cell])), keeper, "{cell}");
    }
    for (from, to) in [("a", "b"), ("b", "a"), ("a", "m"), ("m", "b"), ("a", "c")] {
        send(&lab, from, to, 3000);
    }
    // What stays in a cell does not cross, and what crosses goes one way.
    assert!(counter(&lab, "port", "lan/x>y", "frames_out") >= 3000);
    assert!(counter(&lab, "port", "lan/y>x", "frames_in") >= 3000);
    let crossed =
        ["x>y", "x>main"].map(|port| counter(&lab, "port", &format!("lan/{port}"), "frames_out"));
    assert!(
        crossed.iter().sum::<u64>() < 3000 + 3000 + 1000,
        "{crossed:?}"
    );
    assert_eq!(
        counter(&lab, "port", "lan/main>x", "frames_out") / 1000,
        0,
        "a's frames to m need no answer"
    );
    // The main process speaks for all of them.
    assert!(counter(&lab, "nic", "a", "tx_frames") > 0 || lab.ran("metrics").contains("nic=\"a\""));
    assert!(lab.ran("inspect a STATUS").contains("STATUS"));
    assert!(lab.ran("inspect m STATUS").contains("STATUS"));
    let fdb = lab.ran("fdb");
    for nic in ["a", "b", "m"] {
        assert!(
            fdb.lines().any(|line| line.ends_with(&format!("  {nic}"))),
            "{fdb}"
        );
    }
    assert!(
        !fdb.contains('>'),
        "each station is told by the process that has it: {fdb}"
    );
    let (well, said) = lab.run("capture a --write /dev/null");
    assert!(!well && said.contains("control.sock.cell-x"), "{said}");
    for (words, nic) in [("irq", "a"), ("mem", "b")] {
        lab.ran(&format!("{words} {nic}"));
        lab.ran(words);
    }
    // What is laid down is the main one's.
    let asked = std::process::Command::new(hypernic_tests::binary().unwrap())
        .args(["nic", "remove", "a", "--control"])
        .arg(lab.at("control.sock.cell-x"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    let listed = std::process::Command::new(hypernic_tests::binary().unwrap())
        .args(["nic", "list", "--control"])
        .arg(lab.at("control.sock.cell-x"))
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.lines().count(), 2, "a cell lists its own: {listed}");
    assert!(
        !asked.status.success() && said.contains("this is the cell x"),
        "{said}"
    );
    assert!(lab.daemon.stop().unwrap().success());
    for pid in processes.values() {
        assert!(test_kill_process(*pid).is_err(), "{pid:?} has ended too");
    }
    let left: Vec<_> = std::fs::read_dir(lab.dir.path())
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(left, ["host.toml"], "it cleans up");
}

/// Until a cell's process is another one, and answers.
pub(crate) fn comes_again(lab: &Lab, cell: &str, before: Pid) {
    lab.until("another process", || {
        cells(lab).get(cell).is_some_and(|pid| *pid != before)
    });
}

#[test]
fn a_cell_that_dies_or_stands_still_costs_its_own_nics_only() {
    let words = lan(&[("a", "x"), ("b", "y"), ("c", "z"), ("m", "main")]);
    let mut lab = lab(&words, 3);
    let report = meanwhile(&mut lab, "a", "b", |lab| {
        for _ in 0..3 {
            let before = cells(lab)["z"];
            kill_process(before, Signal::KILL).unwrap();
            comes_again(lab, "z", before);
        }
        let before = cells(lab)["z"];
        // With its keeper, too: the first keeper starts both again.
        kill_process(parent(before), Signal::KILL).unwrap();
        comes_again(lab, "z", before);
        // One that stands still holds up neither frames of others nor who asks.
        let z = cells(lab)["z"];
        kill_process(z, Signal::STOP).unwrap();
        let asked = Instant::now();
        assert!(!cells(lab).contains_key("z"));
        lab.ran(&at(lab, "nic add n --port switch:lan --socket-path @/n"));
        lab.ran("nic remove n");
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(4), "{took:?}");
        let (well, said) = lab.run(&at(
            lab,
            "nic add n --port switch:lan --socket-path @/n --cell z",
        ));
        assert!(!well && said.contains("cell z"), "{said}");
        assert!(!lab.ran("nic list").contains("\nn "), "nothing has changed");
        kill_process(z, Signal::CONT).unwrap();
        lab.until("an answer", || cells(lab).contains_key("z"));
        // One that has no descriptor left takes none from others.
        let z = cells(lab)["z"];
        without_descriptors(z, || {
            lab.ran(&at(
                lab,
                "nic add d --port switch:lan --socket-path @/d --cell y",
            ));
            let mut client = Client::connect(lab.at("d")).expect("the cell y has descriptors");
            client.info().expect("and serves");
        });
        lab.ran("nic remove d");
    });
    let verdict = report.verdict().expect("somebody received");
    assert!(
        verdict.in_order() && verdict.seen.lost == 0,
        "{verdict:?}\n{}",
        lab.daemon.log()
    );
    lab.until("the crossing", || {
        counter(&lab, "port", "lan/x>z", "ring_connects") >= 2
    });
    send(&lab, "a", "c", 3000);
    send(&lab, "c", "m", 3000);
    assert!(lab.daemon.stop().unwrap().success());
}

/// What is lost in a cell is told by the main process.
#[test]
fn a_loss_in_a_cell_is_told_to_who_monitors_the_daemon() {
    let lab = lab(&lan(FOUR), 2);
    let monitor = Launch::new()
        .unwrap()
        .args(["monitor", "--losses", "--control"])
        .arg(lab.at("control.sock"))
        .spawn()
        .unwrap();
    monitor.wait_printed("sequence").unwrap();
    let bus = SocketBus::connect(lab.at("a")).unwrap();
    let mut driver = Driver::new(bus, Config::poll()).unwrap();
    let mut frame = [&[1, 0x80, 0xc2, 0, 0, 3][..], &driver.mac(), &[0x88, 0xb5]].concat();
    frame.resize(60, 0);
    let mut lose = || {
        driver.send(&[&frame], &TxOpts::default()).expect("sent");
    };
    // What was lost when the cell was asked first is no news, so more is lost until it is.
    let told = || {
        let printed = monitor.printed();
        printed.contains("lan/a") && printed.contains("drop_reserved")
    };
    lab.until("the loss", || {
        lose();
        std::thread::sleep(Duration::from_millis(300));
        told()
    });
    let dropped = counter(&lab, "switch-port", "lan/a", "drop_reserved");
    assert!(dropped >= 2, "{dropped}");
}

#[test]
fn the_main_process_may_die_and_cells_go_on() {
    let mut lab = lab(&lan(FOUR), 2);
    let before = cells(&lab);
    let report = meanwhile(&mut lab, "a", "b", |lab| {
        for _ in 0..3 {
            kill(&mut lab.daemon);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let verdict = report.verdict().expect("somebody received");
    assert!(
        verdict.in_order() && verdict.seen.lost == 0,
        "{verdict:?}\n{}",
        lab.daemon.log()
    );
    all_answer(&lab, 2);
    let after = cells(&lab);
    assert_eq!((after["x"], after["y"]), (before["x"], before["y"]));
    assert_ne!(after["main"], before["main"]);
    assert_eq!(
        counter(&lab, "port", "lan/x>main", "ring_disconnects"),
        0,
        "it goes on"
    );
    send(&lab, "a", "m", 3000);
    // It still rules them.
    lab.ran("nic remove c");
    assert!(!Path::new(&lab.at("c")).exists());
    assert!(lab.daemon.stop().unwrap().success());
}

#[test]
fn nics_come_to_cells_and_go_and_cells_with_them() {
    let mut lab = Lab::new(&format!("keeper = true\n{}", lan(&[("m", "main")])));
    lab.ran(&at(
        &lab,
        "nic add a --port switch:lan --socket-path @/a --cell x",
    ));
    assert!(
        lab.at("a").exists(),
        "the first cell serves when it is said to"
    );
    lab.ran(&at(
        &lab,
        "nic add b --port switch:lan --socket-path @/b --cell y",
    ));
    lab.until("the crossing", || {
        counter(&lab, "port", "lan/x>y", "ring_connects") > 0
    });
    send(&lab, "a", "b", 2000);
    send(&lab, "m", "a", 2000);
    let y = cells(&lab)["y"];
    let generation = |lab: &Lab| {
        lab.ran("config dump")
            .lines()
            .filter(|line| line.starts_with("cell"))
            .count()
    };
    assert_eq!(generation(&lab), 3, "what runs says where");
    // What the cell cannot do has not been done.
    let (well, said) = lab.run(&at(
        &lab,
        "nic add c --port switch:lan --socket-path @/none/c --cell y",
    ));
    assert!(!well && said.contains("none"), "{said}");
    assert!(!lab.ran("nic list").contains("\nc "));
    // Words that change while it runs are changed there.
    lab.ran("nic link b down");
    lab.until("the cable", || {
        lab.ran("nic list b --json").contains("\"link\":false")
    });
    lab.ran("nic link b up");
    send(&lab, "a", "b", 2000);
    lab.ran("nic remove b");
    lab.until("its end", || test_kill_process(y).is_err());
    assert_eq!(
        cells(&lab).keys().map(String::as_str).collect::<Vec<_>>(),
        ["main", "x"]
    );
    // A file says where all of them are to be.
    let file = lab.write(
        "next.toml",
        &format!("keeper = true\n{}", lan(&[("a", "x"), ("m", "z")])),
    );
    lab.ran(&format!("config apply {file}"));
    lab.until("the crossing", || {
        counter(&lab, "port", "lan/z>x", "ring_connects") > 0
    });
    send(&lab, "m", "a", 2000);
    // From one cell to another, whichever is told first.
    for (from, to) in [("x", "z"), ("z", "x")] {
        let words = format!("keeper = true\n{}", lan(&[("a", to), ("m", from)]));
        let file = lab.write("next.toml", &words);
        lab.ran(&format!("config apply {file} --disconnect"));
        send(&lab, "m", "a", 500);
    }
    assert!(lab.daemon.stop().unwrap().success());
}

#[test]
fn all_processes_of_a_daemon_are_exchanged_in_an_upgrade() {
    let mut lab = lab(&lan(FOUR), 2);
    let before = cells(&lab);
    let report = meanwhile(&mut lab, "a", "b", |lab| {
        lab.ran("upgrade");
        lab.until("others", || {
            let now = cells(lab);
            now.len() == 3 && now.iter().all(|(cell, pid)| before[cell] != *pid)
        });
    });
    let verdict = report.verdict().expect("somebody received");
    assert!(
        verdict.in_order() && verdict.seen.lost == 0,
        "{verdict:?}\n{}",
        lab.daemon.log()
    );
    send(&lab, "b", "a", 2000);
    send(&lab, "m", "c", 2000);
    assert!(lab.daemon.stop().unwrap().success());
}
