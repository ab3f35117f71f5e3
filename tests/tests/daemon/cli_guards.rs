//! The guards of a switch as an operator sets them, with a guest's traffic through a real daemon.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hypernic_tests::{Daemon, Launch, scratch};
use serde_json::Value;
use tempfile::TempDir;

/// A daemon with two NICs on a switch; `guard` is what the first one's port may do.
fn lan(dir: &TempDir, guard: &str) -> (Daemon, [PathBuf; 2]) {
    let sockets = ["n0", "n1"].map(|name| dir.path().join(name));
    let nic = |n: usize, guard: &str| {
        format!(
            "[[nic]]\nname = \"n{n}\"\nsocket-path = \"{}\"\nport = \"switch:lan\"\n{guard}\n",
            sockets[n].display()
        )
    };
    let text = format!(
        "[[switch]]\nname = \"lan\"\n{}{}",
        nic(0, &format!("guard = {{ {guard} }}")),
        nic(1, "")
    );
    let file = dir.path().join("host.toml");
    std::fs::write(&file, text).unwrap();
    let daemon = Launch::new().unwrap().arg("serve").arg(&file);
    (daemon.start().unwrap(), sockets)
}

/// Sends from the first NIC to the second: the report.
fn pass(sockets: &[PathBuf; 2], words: &str) -> Value {
    let launch = Launch::new().unwrap();
    let launch = launch.args(["pkt-gen", "--json", "-q", "-f", "tx"]);
    let launch = launch.args(words.split_whitespace());
    let launch = launch.arg("--socket-path").arg(&sockets[0]);
    let mut process = launch
        .arg("--rx-socket-path")
        .arg(&sockets[1])
        .spawn()
        .unwrap();
    process.wait_exit().unwrap();
    let printed = process.printed();
    let lines = printed.lines().filter_map(|l| serde_json::from_str(l).ok());
    let report = lines.into_iter().find(|v: &Value| v.get("nics").is_some());
    report.unwrap_or_else(|| panic!("no report: {}", process.log()))
}

fn number(report: &Value, pointer: &str) -> u64 {
    let value = report.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no number {pointer} in {report:#}"))
}

#[test]
fn a_nic_over_its_rate_is_slowed_down_and_loses_nothing() {
    let dir = scratch().unwrap();
    let (daemon, sockets) = lan(&dir, "tx-rate = \"10kpps,burst=10ms\"");
    let start = Instant::now();
    let report = pass(&sockets, "-n 3k --check full");
    // 100 at once, 2900 at ten a millisecond: no machine is too slow to take that long.
    assert!(start.elapsed() > Duration::from_millis(290));
    assert_eq!(number(&report, "/rx_frames"), 3000, "{report:#}");
    assert_eq!(number(&report, "/verdict/lost"), 0);
    let counters = daemon.counters().unwrap();
    let of = |name| counters.find("switch-port", "lan/n0", name).unwrap_or(0);
    assert!(of("paced") > 0 && of("drop_rate_in") == 0);
}

#[test]
fn frames_of_other_vlans_and_of_private_neighbours_do_not_pass() {
    for (guard, words, reason) in [
        (
            "vlans = \"untagged,5\"",
            "-n 500 -l 64 --vlan 6",
            "drop_vlan",
        ),
        ("private = true", "-n 500", ""),
    ] {
        let dir = scratch().unwrap();
        let (daemon, sockets) = lan(&dir, guard);
        let report = pass(&sockets, words);
        assert_eq!(number(&report, "/tx_frames"), 500);
        assert_eq!(number(&report, "/rx_frames"), 0, "{guard}: {report:#}");
        let counters = daemon.counters().unwrap();
        let of = |name| counters.find("switch-port", "lan/n0", name).unwrap_or(0);
        // What would have gone to a neighbour goes to the uplinks, of which there are none here.
        assert!(reason.is_empty() || of(reason) >= 500, "{guard}");
    }
    let dir = scratch().unwrap();
    let (_daemon, sockets) = lan(&dir, "vlans = \"untagged,5\"");
    let report = pass(&sockets, "-n 500 -l 64 --vlan 5");
    assert_eq!(number(&report, "/rx_frames"), 500, "{report:#}");
}
