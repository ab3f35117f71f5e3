//! `hypernic exporter`: what a scraper reads over HTTP, whatever other clients and the daemon do.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use rustix::process::{Signal, kill_process};

use crate::http::{LONG, Serving, ask};
use crate::lab::{HYPERNIC, Lab};
use crate::metrics::{lab, read};

/// An exporter, and its text.
struct Exporter(Serving);

impl Exporter {
    fn start(lab: &Lab, words: &[&str]) -> Exporter {
        let mut command = Command::new(HYPERNIC);
        command.arg("exporter").args(words);
        Exporter(Serving::run(command, lab))
    }

    fn connect(&self) -> TcpStream {
        self.0.connect()
    }

    /// Head and text.
    fn get(&self, accept: &str) -> (String, String) {
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        ask(self.connect(), &request)
    }
}

const OPEN: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
const TCP: &[&str] = &["--listen", "127.0.0.1:0"];

fn signal(lab: &Lab, signal: Signal) {
    kill_process(lab.server(), signal).expect("signal");
}

#[test]
fn both_texts_are_served_and_have_the_guests_frames_and_the_vmms_waits() {
    let lab = lab();
    let exporter = Exporter::start(&lab, TCP);
    let (head, text) = exporter.get(OPEN);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", text.len())),
        "{head}"
    );
    let before = read(&text);
    assert_eq!(before["hypernic_up"], 1.0);
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    let frame = [[0xff; 6].as_slice(), &driver.mac(), &[0x88, 0xb5], &[0; 46]].concat();
    driver.send(&[&frame], &TxOpts::default()).expect("send");
    let sent = "hypernic_nic_transmit_packets_total{nic=\"a\"}";
    let now = lab.until("the frame", || {
        let now = read(&exporter.get(OPEN).1);
        (now[sent] == 1.0).then_some(now)
    });
    // The driver's register accesses were answered, and their waits are in the histogram.
    let of = |what: &str| {
        let name = format!("hypernic_reply_seconds_{what}{{");
        let named = now.iter().filter(|(series, _)| series.starts_with(&name));
        named.map(|(_, value)| value).sum::<f64>()
    };
    assert!(of("count") > 10.0 && of("sum") > 0.0 && of("sum") < of("count"));
    let work = |now: &std::collections::BTreeMap<String, f64>| now["hypernic_nic_work_seconds_total{nic=\"a\"}"];
    assert!(work(&now) > work(&before));
    let (head, plain) = exporter.get("text/plain");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.contains("# TYPE hypernic_up gauge") && !plain.contains("# EOF"));
    let (head, text) = ask(exporter.connect(), "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && text.is_empty());
    let (head, _) = ask(
        exporter.connect(),
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 421"), "{head}");
    named_metrics_exist(&exporter.get(OPEN).1);
    promtool(&plain);
}

/// What rules and dashboard ask for is there.
fn named_metrics_exist(text: &str) {
    let sample = |line: &str| line.split(['{', ' ']).next().unwrap_or("").to_owned();
    let there: BTreeSet<_> = text.lines().map(sample).collect();
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist");
    for file in ["prometheus/rules.yml", "grafana/hypernic.json"] {
        let asks = std::fs::read_to_string(dist.join(file)).expect(file);
        if file.ends_with("json") {
            serde_json::from_str::<serde_json::Value>(&asks).expect("JSON");
        }
        let mut found = 0;
        for word in asks.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if word.starts_with("hypernic_") {
                assert!(there.contains(word), "{file} asks for {word}");
                found += 1;
            }
        }
        assert!(found > 5, "{file}");
    }
}

/// Prometheus' own opinion, where it is installed.
fn promtool(text: &str) {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let kept = home.join(".cache/hypernic/tools/bin/promtool");
    let tool = if kept.exists() {
        kept
    } else {
        "promtool".into()
    };
    let run = |words: &[&str], stdin: &str| {
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/prometheus");
        let mut child = Command::new(&tool)
            .args(words)
            .current_dir(dist)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut to = child.stdin.take().expect("its input");
        to.write_all(stdin.as_bytes()).expect("write");
        drop(to);
        let output = child.wait_with_output().expect("end");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "promtool {words:?}: {said}");
        Some(said)
    };
    let Some(said) = run(&["check", "metrics"], text) else {
        eprintln!(
            "promtool is not installed (Debian's package prometheus has it): only our own reader looked"
        );
        return;
    };
    assert_eq!(said, "", "promtool finds something to mend");
    run(&["check", "rules", "rules.yml"], "");
    run(&["test", "rules", "rules_test.yml"], "");
}

#[test]
fn a_daemon_that_hangs_or_goes_costs_bounded_time_and_is_found_again() {
    let mut lab = lab();
    let exporter = Exporter::start(&lab, &[TCP, &["--timeout", "1"]].concat());
    let up = || read(&exporter.get(OPEN).1)["hypernic_up"];
    assert_eq!(up(), 1.0);
    signal(&lab, Signal::STOP);
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(up(), 0.0);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    signal(&lab, Signal::CONT);
    lab.until("an answer", || (up() == 1.0).then_some(()));
    lab.kill();
    assert_eq!(up(), 0.0);
    let at = |name: &str| lab.dir.path().join(name);
    let again = Command::new(HYPERNIC)
        .arg("serve")
        .arg(at("host.toml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    lab.daemon = again.expect("daemon");
    lab.until("the next daemon", || (up() == 1.0).then_some(()));
    let text = exporter.get(OPEN).1;
    let failed = read(&text)["hypernic_exporter_failed_total"];
    assert!(failed >= 4.0, "{failed}");
}

#[test]
fn clients_that_say_nothing_or_read_nothing_hold_up_nobody() {
    let lab = lab();
    let exporter = Exporter::start(&lab, TCP);
    let silent: Vec<_> = (0..40).map(|_| exporter.connect()).collect();
    let mut half = exporter.connect();
    half.write_all(b"GET /metrics HTTP/1.1\r\nHost: loc")
        .expect("write");
    let begun = Instant::now();
    assert_eq!(read(&exporter.get(OPEN).1)["hypernic_up"], 1.0);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    // All are let go, also the one that goes on and on with a byte now and then.
    let mut slow = exporter.connect();
    let begun = Instant::now();
    while slow.write_all(b"G").is_ok() {
        assert!(begun.elapsed() < LONG, "it is listened to for ever");
        std::thread::sleep(Duration::from_millis(100));
    }
    for mut stream in silent.into_iter().chain([half]) {
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() && end.is_ok_and(|n| n == 0) || rest.is_empty());
    }
    let now = read(&exporter.get(OPEN).1);
    assert!(now["hypernic_exporter_cut_total"] >= 41.0, "{now:?}");
    // Long nonsense is answered by an error at once.
    let (head, _) = ask(
        exporter.connect(),
        &format!("GET /{} HTTP/1.1\r\n", "x".repeat(8192 - 16)),
    );
    assert!(head.starts_with("HTTP/1.1 431"), "{head}");
    assert_eq!(
        read(&exporter.get(OPEN).1)["hypernic_exporter_refused_total"],
        1.0
    );
}

#[test]
fn samples_have_a_limit_and_what_is_left_out_is_counted() {
    let lab = lab();
    let exporter = Exporter::start(&lab, &[TCP, &["--limit", "20"]].concat());
    let now = read(&exporter.get(OPEN).1);
    assert_eq!(now["hypernic_up"], 1.0);
    assert!(now.len() <= 20 + 7, "{}", now.len());
    let left = now["hypernic_exporter_left_out_total"];
    assert!(left > 50.0, "{left}");
    assert!(read(&exporter.get(OPEN).1)["hypernic_exporter_left_out_total"] > left);
}

#[test]
fn it_listens_at_a_unix_socket_or_at_what_systemd_hands_over() {
    let lab = lab();
    let socket = lab.dir.path().join("metrics.sock");
    let words = ["--unix", socket.to_str().expect("text")];
    let _exporter = Exporter::start(&lab, &words);
    let request = "GET /metrics HTTP/1.1\r\nHost: any\r\n\r\n";
    let (_, text) = ask(UnixStream::connect(&socket).expect("connect"), request);
    assert!(text.contains("\nhypernic_up 1\n"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let at = listener.local_addr().expect("address").to_string();
    let mut command = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" exporter \"$@\" 3<&0 0</dev/null";
    command
        .args(["-c", script, HYPERNIC])
        .stdin(OwnedFd::from(listener));
    let exporter = Exporter(Serving::run(command, &lab));
    assert_eq!(exporter.0.at, at);
    assert_eq!(read(&exporter.get(OPEN).1)["hypernic_up"], 1.0);
}
