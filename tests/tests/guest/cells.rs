//! Guests in cells of their own, whose processes are killed under TCP.

use std::process::Command;
use std::time::{Duration, Instant};

use hypernic_tests::guests;
use hypernic_tests::{Card, LONG, Lab, Launch, binary, mac};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The worker of a cell, if it answers.
fn worker(lab: &Lab, cell: &str) -> Option<Pid> {
    let output = Command::new(binary().unwrap())
        .args(["cell", "list", "--json", "--control"])
        .arg(lab.path("control"))
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).ok()?;
    let mut cells = told["cells"].as_array()?.iter();
    let pid = cells.find(|one| one["name"] == cell)?["pid"].as_i64()?;
    Pid::from_raw(i32::try_from(pid).ok()?)
}

#[test]
#[ignore = "long: two guests' TCP over many kills"]
fn long_tcp_between_guests_in_two_cells_goes_on_whichever_process_is_killed() {
    let given = std::env::var("HYPERNIC_TEST_KILLS").ok();
    let kills: u32 = given.map_or(30, |kills| kills.parse().expect("a number of kills"));
    let lab = Lab::open(2).unwrap_or_else(|why| panic!("{why}"));
    let file = lab
        .config(&[("n0", "switch:lan"), ("n1", "switch:lan")], &[])
        .unwrap();
    let mut text = format!("control = {:?}\n", lab.path("control"));
    text += &std::fs::read_to_string(&file).unwrap();
    for (nic, cell) in [("n0", "x"), ("n1", "y")] {
        let name = format!("name = \"{nic}\"\n");
        text = text.replace(&name, &format!("{name}cell = \"{cell}\"\n"));
    }
    std::fs::write(&file, text).unwrap();
    let launch = Launch::new().unwrap().env("HYPERNIC_TEST_LIFE_MS", "0");
    let mut daemon = launch.arg("serve").arg(file).start().unwrap();
    let until = Instant::now() + LONG;
    while ["x", "y"].iter().any(|cell| worker(&lab, cell).is_none()) {
        assert!(Instant::now() < until, "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let pair = ["n0", "n1"].map(|name| lab.guest(name).unwrap());
    for (n, guest) in pair.iter().enumerate() {
        let (name, address) = (format!("n{n}"), format!("10.9.0.{}/24", n + 1));
        guests::bring_up_static_with(guest, Card::E1000.driver(), &mac(&name), &address).unwrap();
    }
    let [one, other] = &pair;
    guests::ping_all(one, "10.9.0.2", 5).unwrap();
    let links = "cat /sys/class/net/*/carrier_changes; dmesg | grep 'Link is' || true";
    let before = pair.each_ref().map(|guest| guest.run(links).unwrap());
    let server = other.spawn("iperf3 --server --forceflush").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let stream = one
        .spawn("iperf3 -c 10.9.0.2 --bidir -t 86400 -i 1 --forceflush")
        .unwrap();
    let pings = guests::start_pings(one, "10.9.0.2").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    for n in 0..kills {
        let cell = ["x", "y", "main"][n as usize % 3];
        std::thread::sleep(Duration::from_millis(400));
        let lines = daemon.log_position();
        let pid = worker(&lab, cell).expect("it answers");
        kill_process(pid, Signal::KILL).unwrap();
        daemon.wait_log_after(lines, "\"serving\"").unwrap();
    }
    std::thread::sleep(Duration::from_secs(3));
    let ping = guests::finish_pings(one, &pings).unwrap();
    one.run("kill -INT $(pidof iperf3)").unwrap();
    let said = one.finish(&stream, LONG).unwrap().text;
    other.run("kill -INT $(pidof iperf3)").unwrap();
    let _ = other.finish(&server, LONG);
    println!("{said}\n{kills} kills, {ping:?}");
    let rates = ["Mbits/sec", "Gbits/sec"];
    let lines = said
        .lines()
        .filter(|line| rates.iter().any(|rate| line.contains(rate)));
    assert!(
        lines.filter(|line| !line.contains(" 0.00 ")).count() > 4,
        "{said}"
    );
    assert!(ping.received * 10 > ping.sent * 5, "{ping:?}");
    for (guest, before) in pair.iter().zip(&before) {
        assert_eq!(guest.run(links).unwrap(), *before, "the link has changed");
        assert_eq!(guests::complaints(guest).unwrap(), Vec::<String>::new());
    }
    drop(pair);
    assert!(daemon.stop().unwrap().success());
}
