//! `hypernic pkt-gen` as its users run it: against a daemon, and against a cable that loses, doubles, exchanges and
//! changes frames, which it must notice.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use hypernic_tests::{Daemon, Launch, scratch};
use serde_json::Value;
use tempfile::TempDir;

/// A daemon with NICs `n0`, `n1`, … on a switch.
fn lan(dir: &TempDir, nics: usize) -> (Daemon, Vec<PathBuf>) {
    let sockets: Vec<_> = (0..nics)
        .map(|n| dir.path().join(format!("n{n}")))
        .collect();
    let mut launch = Launch::new().unwrap().args(["run", "--port", "switch:lan"]);
    for socket in &sockets {
        launch = launch.arg("--socket-path").arg(socket);
    }
    (launch.start().unwrap(), sockets)
}

fn generator(function: &str, words: &str) -> Launch {
    let launch = Launch::new().unwrap();
    let launch = launch.args(["pkt-gen", "--json", "-q", "-f", function]);
    launch.args(words.split_whitespace())
}

/// Runs it to its end: exit code, report, log.
fn end(mut process: Daemon) -> (i32, Value, String) {
    let status = process.wait_exit().unwrap();
    let log = process.log();
    let report = process.printed().lines().find_map(|line| {
        let value: Value = serde_json::from_str(line).ok()?;
        value.get("nics").is_some().then_some(value)
    });
    let code = status.code().expect("an exit code");
    (code, report.unwrap_or_default(), log)
}

/// From the first NIC to the second, in one process.
fn pass(sockets: &[PathBuf], words: &str) -> (i32, Value, String) {
    let launch = generator("tx", words)
        .arg("--socket-path")
        .arg(&sockets[0])
        .arg("--rx-socket-path")
        .arg(&sockets[1]);
    end(launch.spawn().unwrap())
}

fn number(report: &Value, pointer: &str) -> u64 {
    let value = report.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no number {pointer} in {report:#}"))
}

/// Nothing doubled, exchanged or changed; what is missing was dropped and counted.
fn in_order(report: &Value) {
    for fault in ["duplicates", "reordered", "stale", "corrupt", "bad_sums"] {
        assert_eq!(
            number(report, &format!("/verdict/{fault}")),
            0,
            "{report:#}"
        );
    }
}

#[test]
fn what_is_sent_arrives_in_order_or_is_counted() {
    let dir = scratch().unwrap();
    let (daemon, sockets) = lan(&dir, 2);
    let (code, report, log) = pass(&sockets, "-n 100k --check full");
    assert_eq!(code, 0, "{log}\n{report:#}");
    in_order(&report);
    assert_eq!(number(&report, "/tx_frames"), 100_000);
    let (got, lost) = (
        number(&report, "/rx_frames"),
        number(&report, "/verdict/lost"),
    );
    assert_eq!(got + lost, 100_000);
    let dropped: u64 = daemon
        .counters()
        .unwrap()
        .find("switch-port", "lan/n1", "drop_no_room")
        .unwrap_or(0);
    assert_eq!(lost, dropped, "what is lost has a counter");
}

#[test]
fn every_kind_of_frame_and_offload_arrives_whole() {
    let dir = scratch().unwrap();
    let (_daemon, sockets) = lan(&dir, 2);
    for words in [
        "-n 20k -l imix --flows 7 --src-port 1000-1006",
        "-n 20k -l 60-1514 --random-flows --flows 50 --src-ip 10.0.0.1-10.0.0.50 --checksum",
        "-n 5k -l 100-1500 --ipv6",
        "-n 5k -l 64-1500 --vlan 5-9 --flows 5",
        "-n 5k -l 64-1500 --vlan 5-9 --flows 5 --vlan-offload --checksum",
        "-n 2k -l 9014",
        "-n 2k -l 60,9014,16110 --rx-size 2048 --tx-ring 80 --rx-ring 4096",
        "-n 300 -l 64000 --tso 1448",
        "-n 300 -l 2000-65000 --tso 8960 --flows 3 --vlan 3 --vlan-offload",
        "-n 300 -l 2000-65000 --tso 700 --ipv6",
        "-n 3k -b 1 --interrupts -p 2",
        "-n 3k -b 7 --reclaim-by-head --tx-ring 80 --rx-ring 80",
        "-n 20k -b 1000 --remap",
        "-n 5k -R 100k -b 10 -S 52:54:00:aa:00:00/4 --flows 4",
    ] {
        let (code, report, log) = pass(&sockets, &format!("{words} --check full"));
        assert_eq!(code, 0, "{words}: {log}\n{report:#}");
        in_order(&report);
        assert!(number(&report, "/rx_frames") > 0, "{words}: {report:#}");
        assert_eq!(
            number(&report, "/verdict/foreign"),
            0,
            "{words}: {report:#}"
        );
    }
}

#[test]
fn every_nic_to_the_next() {
    let dir = scratch().unwrap();
    let (_daemon, sockets) = lan(&dir, 3);
    let mut launch = generator("txrx", "-n 20k --check full -p 2 --flows 3");
    for socket in &sockets {
        launch = launch.arg("--socket-path").arg(socket);
    }
    let (code, report, log) = end(launch.spawn().unwrap());
    assert_eq!(code, 0, "{log}");
    in_order(&report);
    assert_eq!(number(&report, "/tx_frames"), 60_000);
    assert_eq!(number(&report, "/verdict/flows"), 9);
    let got = number(&report, "/rx_frames");
    assert_eq!(got + number(&report, "/verdict/lost"), 60_000);
}

#[test]
fn two_processes() {
    let dir = scratch().unwrap();
    let (_daemon, sockets) = lan(&dir, 2);
    let at = |launch: Launch, n: usize| launch.arg("--socket-path").arg(&sockets[n]);
    let receiver = at(generator("rx", "-n 1000 -T 60 --check full"), 1);
    let receiver = receiver.spawn().unwrap();
    // Until the other is there nothing is its loss: a flow's first number is 0.
    let (code, _, log) = end(at(generator("tx", "-n 20k -R 20k -b 8 --check full"), 0)
        .spawn()
        .unwrap());
    assert_eq!(code, 0, "{log}");
    let (code, report, log) = end(receiver);
    assert_eq!(code, 0, "{log}");
    in_order(&report);
    assert!(number(&report, "/rx_frames") >= 1000);
}

#[test]
fn times_there_and_back() {
    let dir = scratch().unwrap();
    let sockets = [dir.path().join("a"), dir.path().join("b")];
    let launch = Launch::new().unwrap().args(["run", "--port", "switch:lan"]);
    let launch = launch.arg("--socket-path").arg(&sockets[0]);
    let launch = launch.arg("--socket-path").arg(&sockets[1]);
    let launch = launch.args(["--mac", "52:54:00:00:00:0a", "--mac", "52:54:00:00:00:0b"]);
    let _daemon = launch.start().unwrap();
    let at = |launch: Launch, n: usize| launch.arg("--socket-path").arg(&sockets[n]);
    let pong = at(generator("pong", "-n 200"), 1).spawn().unwrap();
    let ping = generator(
        "ping",
        "-n 200 --check full -l 60-1500 --dst-mac 52:54:00:00:00:0b",
    );
    let (code, report, log) = end(at(ping, 0).spawn().unwrap());
    assert_eq!(code, 0, "{log}");
    in_order(&report);
    // It may have asked before the other was there.
    let answered = number(&report, "/latency/count");
    assert_eq!(answered + number(&report, "/nics/0/unanswered"), 200);
    assert!(answered >= 190, "{report:#}");
    assert!(number(&report, "/latency/p50_ns") > 0);
    drop(pong);
}

/// What a bad cable does to a frame: what comes out of it.
type Fault = fn(usize, Vec<u8>, &mut Vec<u8>) -> Vec<Vec<u8>>;

fn read_frame(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

/// Two NICs on a cable with a fault in it; what the generator says of it.
fn over_a_bad_cable(fault: Fault, words: &str) -> (i32, Value, String) {
    let dir = scratch().unwrap();
    let end_of = |name: &str| dir.path().join(name);
    let start = |nic: &str, cable: &Path| {
        Launch::new()
            .unwrap()
            .args(["run", "--socket-path"])
            .arg(end_of(nic))
            .args(["--port", &format!("stream:{}", cable.display())])
            .start()
            .unwrap()
    };
    let (left, right) = (end_of("left"), end_of("right"));
    let listeners = [&left, &right].map(|path| UnixListener::bind(path).unwrap());
    let _daemons = [start("a", &left), start("b", &right)];
    let [mut left, mut right] = listeners.map(|listener| listener.accept().unwrap().0);
    let closing = [&left, &right].map(|s| s.try_clone().unwrap());
    let cable = std::thread::spawn(move || {
        let mut number = 0;
        let mut held = Vec::new();
        while let Some(frame) = read_frame(&mut left) {
            // The first is the NIC's announcement.
            let outs = if number == 0 {
                vec![frame]
            } else {
                fault(number - 1, frame, &mut held)
            };
            number += 1;
            for frame in outs {
                let mut message = (frame.len() as u32).to_be_bytes().to_vec();
                message.extend(frame);
                if right.write_all(&message).is_err() {
                    return;
                }
            }
        }
    });
    let result = pass(&[end_of("a"), end_of("b")], words);
    for stream in closing {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    cable.join().unwrap();
    result
}

#[test]
fn a_good_cable_is_called_good() {
    let (code, report, log) = over_a_bad_cable(
        |_, frame, _| vec![frame],
        "-n 2000 -R 20k -b 8 --check full --no-loss -l 60-1514",
    );
    assert_eq!(code, 0, "{log}\n{report:#}");
    in_order(&report);
}

#[test]
fn loss_is_noticed_and_a_failure_only_when_asked_for() {
    let every_tenth: Fault = |n, frame, _| if n % 10 == 3 { vec![] } else { vec![frame] };
    let (code, report, log) = over_a_bad_cable(every_tenth, "-n 2000 -R 20k -b 8");
    assert_eq!(code, 0, "{log}");
    assert_eq!(number(&report, "/verdict/lost"), 200);
    in_order(&report);
    let (code, _, log) = over_a_bad_cable(every_tenth, "-n 200 -R 20k -b 8 --no-loss");
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("20 frames were lost"), "{log}");
}

#[test]
fn the_last_frames_missing_are_noticed_too() {
    let (_, report, _) = over_a_bad_cable(
        |n, frame, _| if n >= 990 { vec![] } else { vec![frame] },
        "-n 1000 -R 20k -b 8",
    );
    assert_eq!(number(&report, "/verdict/lost"), 10);
}

#[test]
fn doubles_are_noticed() {
    let (code, report, log) = over_a_bad_cable(
        |n, frame, _| {
            if n % 100 == 50 {
                vec![frame.clone(), frame]
            } else {
                vec![frame]
            }
        },
        "-n 1000 -R 20k -b 8",
    );
    assert_eq!(code, 1, "{log}");
    assert_eq!(number(&report, "/verdict/duplicates"), 10, "{report:#}");
    assert_eq!(number(&report, "/verdict/lost"), 0);
}

#[test]
fn wrong_order_is_noticed() {
    let (code, report, log) = over_a_bad_cable(
        |n, frame, held| match n % 100 {
            40 => {
                *held = frame;
                vec![]
            }
            43 => vec![frame, std::mem::take(held)],
            _ => vec![frame],
        },
        "-n 1000 -R 20k -b 8",
    );
    assert_eq!(code, 1, "{log}");
    assert_eq!(number(&report, "/verdict/reordered"), 10, "{report:#}");
    assert_eq!(number(&report, "/verdict/lost"), 0);
}

#[test]
fn changed_bytes_are_noticed_in_the_payload_only_when_all_is_looked_at() {
    let fault: Fault = |n, mut frame, _| {
        if n % 100 == 7 {
            frame[200] ^= 4;
        }
        vec![frame]
    };
    let (code, report, log) = over_a_bad_cable(fault, "-n 1000 -l 300 -R 20k -b 8 --check full");
    assert_eq!(code, 1, "{log}");
    assert_eq!(number(&report, "/verdict/corrupt"), 10, "{report:#}");
    let (code, report, log) = over_a_bad_cable(fault, "-n 1000 -l 300 -R 20k -b 8 --check head");
    assert_eq!(code, 0, "{log}");
    assert_eq!(number(&report, "/verdict/corrupt"), 0);
    // The chip sees it where it has a checksum to see it by.
    let words = "-n 1000 -l 300 -R 20k -b 8 --check head --checksum";
    let (code, report, log) = over_a_bad_cable(fault, words);
    assert_eq!(code, 1, "{log}");
    assert_eq!(number(&report, "/verdict/bad_sums"), 10, "{report:#}");
}

#[test]
fn a_stream_of_segments_with_a_hole_is_noticed() {
    let (_, report, _) = over_a_bad_cable(
        |n, frame, _| if n == 20 { vec![] } else { vec![frame] },
        "-n 5 -l 14534 --tso 1448 -R 100 -b 1 --check full",
    );
    assert_eq!(number(&report, "/verdict/lost"), 1448, "{report:#}");
    assert_eq!(number(&report, "/verdict/corrupt"), 0);
}

/// Runs it, which must fail with this code and words.
fn refuses(words: &str, code: i32, why: &[&str]) {
    let (got, _, log) = end(generator("tx", words).spawn().unwrap());
    assert_eq!(got, code, "{words}: {log}");
    for word in why {
        assert!(log.contains(word), "{words}: `{word}` is not in: {log}");
    }
}

#[test]
fn every_mistake_names_its_cure() {
    refuses(
        "-i /nowhere/n0",
        4,
        &["/nowhere/n0", "no NIC listens there", "hypernic run"],
    );
    refuses("", 2, &["--socket-path"]);
    refuses("-i x -l 59", 2, &["60 to"]);
    refuses("-i x -l 20000", 2, &["--tso 1448"]);
    refuses("-i x -l 60 --ipv6", 2, &["--size 80"]);
    refuses("-i x --tx-ring 100", 2, &["80 to 4096"]);
    refuses("-i x --rx-socket-path x", 2, &["twice"]);
    refuses("-i x -R fast", 2, &["100k", "10Mbit"]);
    refuses("-i x --rx-socket-path y --interrupts", 2, &["--threads 2"]);
    let dir = scratch().unwrap();
    let path = dir.path().join("other");
    let listener = UnixListener::bind(&path).unwrap();
    let hung_up = std::thread::spawn(move || drop(listener.accept()));
    let words = format!("-i {}", path.display());
    refuses(&words, 4, &["vfio-user socket of a hypernic NIC?"]);
    hung_up.join().unwrap();
}
