//! Chips with virtual functions in processes of their own.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::igbpf;
use drivers::igbvf::Vf;
use hypernic_tests::{Ends, binary};
use rustix::process::{Signal, kill_process, test_kill_process};

use crate::cli_cells::{at, cells, comes_again, counter, lab};
use crate::cli_config::Lab;
use crate::cli_crash::kill;
use crate::cli_crash_igb::{Nic, igb, talking};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 7, 1], [2, 0, 0, 0, 7, 2]];

/// A chip in a cell, whose VFs have addresses that they keep, and a NIC in the main process.
fn words(cell: &str, beside: &str) -> String {
    format!(
        "[[switch]]\nname = \"lan\"\n{beside}\
         [[nic]]\nname = \"p\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = \"@/vf{{}}\"\nport = \"switch:lan\"\n\
         cell = \"{cell}\"\n\
         [[nic.vf]]\nindex = 0\nmac = \"02:00:00:00:07:01\"\n\
         [[nic.vf]]\nindex = 1\nmac = \"02:00:00:00:07:02\"\n\
         [[nic]]\nname = \"m\"\nmodel = \"82576\"\nsocket-path = \"@/m\"\nport = \"switch:lan\"\n"
    )
}

fn vf(lab: &Lab, index: usize) -> Box<dyn Nic> {
    let bus = SocketBus::connect(lab.at(&format!("vf{index}"))).unwrap();
    let vf = Vf::new(bus).unwrap();
    assert_eq!(vf.mac(), MACS[index]);
    Box::new(vf)
}

fn log(lab: &Lab) -> String {
    lab.daemon.log()
}

/// Waits until two processes have met.
fn meet(lab: &Lab, one: &str, other: &str) {
    for (from, to) in [(one, other), (other, one)] {
        lab.until("the crossing", || {
            counter(lab, "port", &format!("lan/{from}>{to}"), "ring_connects") > 0
        });
    }
}

/// Two guests talk, and no frame is lost.
fn talk(lab: &mut Lab, (one, other): (&str, &str), nics: &mut [Box<dyn Nic>; 2]) {
    if one != other {
        meet(lab, one, other);
    }
    talking(nics, false, (lab, log), |_| {});
}

/// A NIC in a cell of its own.
const OTHER: &str = "[[nic]]\nname = \"o\"\nmodel = \"82576\"\nsocket-path = \"@/o\"\nport = \"switch:lan\"\ncell = \"y\"\n";

/// The control socket of a cell itself, which is asked.
fn ask_cell(lab: &Lab, cell: &str, words: &str) -> (bool, String) {
    let output = Command::new(binary().unwrap())
        .args(words.split(' '))
        .arg("--control")
        .arg(lab.at(&format!("control.sock.cell-{cell}")))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn a_chip_in_a_cell_goes_on_whichever_process_is_killed() {
    let mut lab = lab(&words("x", ""), 1);
    assert!(lab.ran("cell list").contains(" 2 "), "both VFs are there");
    let (m, v0) = (igb(&lab.at("m"), false), vf(&lab, 0));
    let mut across = [m, v0];
    talk(&mut lab, ("main", "x"), &mut across);
    talking(&mut across, true, (&mut lab, log), |lab| {
        for _ in 0..3 {
            let before = cells(lab)["x"];
            kill_process(before, Signal::KILL).unwrap();
            comes_again(lab, "x", before);
        }
        let before = cells(lab)["x"];
        kill(&mut lab.daemon);
        lab.until("all", || cells(lab).len() == 2);
        assert_eq!(cells(lab)["x"], before, "it has noticed nothing");
    });
    let [m, v0] = across;
    // What stays in the chip stays in its process.
    let crossed = |lab: &Lab| {
        let frames = |port, which| counter(lab, "port", port, which);
        frames("lan/x>main", "frames_out") + frames("lan/main>x", "frames_out")
    };
    let mut inside = [v0, vf(&lab, 1)];
    let before = crossed(&lab);
    talk(&mut lab, ("x", "x"), &mut inside);
    assert_eq!(crossed(&lab), before);
    talking(&mut inside, true, (&mut lab, log), |lab| {
        let before = cells(lab)["x"];
        kill_process(before, Signal::KILL).unwrap();
        comes_again(lab, "x", before);
    });
    let [v0, v1] = inside;
    // All processes are exchanged, and no frame is lost.
    let mut across = [m, v0];
    talking(&mut across, false, (&mut lab, log), |lab| {
        let before = cells(lab);
        lab.ran("upgrade");
        lab.until("others", || {
            let now = cells(lab);
            now.len() == 2 && now.iter().all(|(cell, pid)| before[cell] != *pid)
        });
    });
    let log = lab.daemon.log();
    assert!(!log.contains("VMM disconnected"), "{log}");
    drop((across, v1));
    assert!(lab.daemon.stop().unwrap().success());
}

#[test]
fn a_chip_in_a_cell_whose_pf_a_guest_has_goes_on() {
    let guests = words("x", "").replace(
        "cell = \"x\"\n[[nic.vf]]\nindex = 0\nmac = \"02:00:00:00:07:01\"\n[[nic.vf]]\nindex = 1\nmac = \"02:00:00:00:07:02\"\n",
        "cell = \"x\"\npf = \"guest\"\nsocket-path = \"@/pf\"\n",
    );
    let mut lab = lab(&guests, 1);
    assert!(
        lab.ran("cell list").contains(" 3 "),
        "all functions are there"
    );
    let bus = SocketBus::connect(lab.at("pf")).unwrap();
    let mut pf = igbpf::Pf::new(bus, [2, 0, 0, 0, 7, 0], &MACS).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                pf.serve().expect("it is there");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let ends = Ends(&stop);
        let mut across = [igb(&lab.at("m"), false), vf(&lab, 0)];
        talk(&mut lab, ("main", "x"), &mut across);
        talking(&mut across, true, (&mut lab, log), |lab| {
            let before = cells(lab)["x"];
            kill_process(before, Signal::KILL).unwrap();
            comes_again(lab, "x", before);
        });
        let said = lab.refused("vf set pvf0 trust on");
        assert!(said.contains("a guest controls it"), "{said}");
        lab.refused("vf revive pvf0");
        lab.refused("vf reset p");
        let log = lab.daemon.log();
        assert!(!log.contains("VMM disconnected"), "{log}");
        drop((across, ends));
        serves.join().expect("its guest is content");
    });
    assert!(lab.daemon.stop().unwrap().success());
}

/// Whether frames from a station come from one NIC to another.
fn comes_from(station: [u8; 6], from: &mut dyn Nic, to: &mut dyn Nic) -> bool {
    let mut frame = [&to.mac()[..], &station, &[0x88, 0xb7]].concat();
    frame.resize(60, station[5]);
    let frames = vec![frame; 8];
    to.receive();
    assert_eq!(from.send(&frames), frames.len());
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        if to.receive().iter().any(|frame| frames.contains(frame)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn a_chip_in_a_cell_is_ruled_and_looked_at_from_the_main_process() {
    let mut lab = lab(&words("x", OTHER), 2);
    let station = [2, 0, 0, 0, 8, 1];
    let may_spoof = |from: &mut dyn Nic, to: &mut dyn Nic| comes_from(station, from, to);
    let (mut m, mut o) = (igb(&lab.at("m"), false), igb(&lab.at("o"), false));
    let (mut v0, v1) = (vf(&lab, 0), vf(&lab, 1));
    let mut across = [v1, o];
    talk(&mut lab, ("y", "x"), &mut across);
    [_, o] = across;
    // Addresses that are locked there are so for all: other cells take no others from it.
    assert!(!may_spoof(&mut *v0, &mut *m));
    assert!(counter(&lab, "switch-port", "p/pvf0", "drop_spoofed") > 0);
    lab.ran("vf set pvf0 spoofchk off");
    assert!(may_spoof(&mut *v0, &mut *m) && may_spoof(&mut *v0, &mut *o));
    let dump = lab.everything();
    assert!(dump.contains("spoofchk = false"), "{dump}");
    let file = lab.write("dump.toml", &dump.replace("control = ", "#"));
    let plan = lab.ran(&format!("config apply --plan {file}"));
    assert!(plan.contains("nothing"), "{plan}");
    let set =
        r#"{"method":"io.hypernic.Vf.Set","parameters":{"nic":"pvf0","change":{"spoofchk":true}}}"#;
    for changed in ["true", "false"] {
        let told = crate::cli_control::call(&lab, set);
        assert!(told.contains(&format!("\"changed\":{changed}")), "{told}");
    }
    assert!(!may_spoof(&mut *v0, &mut *m) && !may_spoof(&mut *v0, &mut *o));
    // What its PF refuses has not been done anywhere.
    let said = lab.refused("vf set pvf0 mac 02:00:00:00:07:02");
    assert!(said.contains("VF 1 already has the address"), "{said}");
    lab.refused("vf set pvf0 --check min-tx-rate 5");
    assert!(lab.ran("vf show pvf0").contains("02:00:00:00:07:01"));
    let (well, said) = ask_cell(&lab, "x", "vf set pvf0 trust on");
    assert!(!well && said.contains("this is the cell x"), "{said}");
    let x = cells(&lab)["x"];
    kill_process(x, Signal::STOP).unwrap();
    assert!(lab.refused("vf set pvf0 trust on").contains("the cell x"));
    assert!(!lab.everything().contains("trust"));
    kill_process(x, Signal::CONT).unwrap();
    lab.until("what was before", || {
        let (well, told) = lab.run("vf show pvf0 --json");
        well && told.contains("\"trust\":false")
    });
    assert!(!may_spoof(&mut *v0, &mut *m));

    // It is shown as if it were here.
    let all = lab.ran("vf show");
    assert!(all.contains("pvf0") && all.contains("pvf1"), "{all}");
    assert!(lab.refused("vf show m").contains("pvf1"));
    assert!(lab.ran("chip list p").contains("in the cell x"));
    assert!(lab.ran("inspect pvf0 VTSTATUS").contains("STATUS"));
    for words in ["irq pvf0", "mem pvf1", "fdb lan", "metrics"] {
        lab.ran(words);
    }
    lab.ran("fdb p");
    assert!(lab.refused("fdb q").contains('q'));
    let said = lab.refused("capture pvf0 --write /dev/null");
    assert!(said.contains("control.sock.cell-x"), "{said}");
    // What is done to a VF is done there.
    let has_link = |lab: &Lab, nic: &str| {
        let told = lab.ran(&format!("nic list {nic} --json"));
        told.contains("\"link\":true")
    };
    lab.until("a link", || has_link(&lab, "pvf1"));
    for (down, up) in [
        ("vf leave pvf1", "vf revive pvf1"),
        ("nic link pvf1 down", "nic link pvf1 up"),
    ] {
        lab.ran(down);
        lab.until("no link", || !has_link(&lab, "pvf1"));
        lab.ran(up);
        lab.until("a link", || has_link(&lab, "pvf1"));
    }
    assert!(lab.refused("vf leave q").contains('q'));
    lab.ran("vf reset p");
    lab.ran("vf set pvf1 mac 02:00:00:00:07:09");
    assert!(lab.ran("vf show pvf1").contains("02:00:00:00:07:09"));
    assert!(lab.everything().contains("02:00:00:00:07:09"));
    assert!(lab.daemon.stop().unwrap().success());
}

#[test]
fn addresses_of_vfs_in_the_main_process_are_locked_in_cells_too() {
    let mut lab = lab(&words("main", OTHER), 1);
    let (mut m, mut o) = (igb(&lab.at("m"), false), igb(&lab.at("o"), false));
    meet(&lab, "main", "y");
    assert!(!comes_from(MACS[0], &mut *o, &mut *m));
    lab.ran("vf set pvf0 trust on");
    assert!(comes_from(MACS[0], &mut *o, &mut *m));
    lab.ran("vf set pvf0 trust off");
    assert!(!comes_from(MACS[0], &mut *o, &mut *m));
    // Its cell knows of that, and is told more.
    lab.ran(&at(
        &lab,
        "nic add n --port switch:lan --socket-path @/n --cell y",
    ));
    assert!(lab.daemon.stop().unwrap().success());
}

#[test]
fn chips_come_to_cells_and_go_and_cells_with_them() {
    let head = "keeper = true\n";
    let mut lab = lab(&format!("{head}{}", words("x", "")), 1);
    let x = cells(&lab)["x"];
    lab.ran("chip set p --vfs 3");
    assert!(lab.at("vf2").exists());
    assert!(lab.refused("nic remove pvf2").contains("chip p"));
    lab.ran("chip set p --vfs 2 --disconnect");
    assert!(!lab.at("vf2").exists());
    // From one process to another, whichever is told first.
    for cell in ["main", "x", "a", "z", "x"] {
        let file = lab.write("next.toml", &format!("{head}{}", words(cell, "")));
        lab.ran(&format!("config apply {file} --disconnect"));
        let others = usize::from(cell != "main");
        lab.until("its process", || cells(&lab).len() == 1 + others);
        let mut across = [igb(&lab.at("m"), false), vf(&lab, 0)];
        talk(&mut lab, ("main", cell), &mut across);
    }
    assert!(test_kill_process(x).is_err());
    lab.ran("chip remove p");
    lab.until("the end of its cell", || cells(&lab).len() == 1);
    assert!(!lab.at("vf0").exists());
    // A port of its own is opened there.
    lab.ran(&at(
        &lab,
        "chip add q --vfs 1 --vf-socket-path @/q{} --port stream:listen=@/wire --cell w",
    ));
    assert!(lab.at("q0").exists() && lab.at("wire").exists());
    let (well, told) = ask_cell(&lab, "w", "metrics");
    assert!(well && told.contains("q/stream"), "{told}");
    for cell in ["main", "w"] {
        let dump = lab.everything().replace("control = ", "#");
        let cell = format!("cell = \"{cell}\"");
        let other = dump
            .replace("cell = \"w\"", &cell)
            .replace("cell = \"main\"", &cell);
        let file = lab.write("next.toml", &other);
        lab.ran(&format!("config apply {file} --disconnect"));
        assert!(lab.at("q0").exists() && lab.at("wire").exists(), "{cell}");
    }
    // What the cell cannot do has not been done.
    let said = lab.refused(&at(
        &lab,
        "chip add r --vfs 1 --vf-socket-path @/none/r{} --port switch:lan --cell w",
    ));
    assert!(said.contains("none"), "{said}");
    assert!(!lab.ran("chip list").contains("r:"));
    assert!(lab.daemon.stop().unwrap().success());
}
