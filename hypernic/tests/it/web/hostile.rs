//! A daemon that lies: every name and word it tells is markup, a script, or worse.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

/// What it calls everything.
pub const WORDS: &str = "</text></title></script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\
    <svg onload=\"document.title='owned'\">${1}{{1}}&lt;b&gt;\u{202e}\u{1b}[2J'\"`\\";

/// Serves until the process ends.
pub fn serve(control: &Path) {
    let listener = UnixListener::bind(control).expect("listen");
    let turns = Arc::<AtomicU64>::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let turns = Arc::clone(&turns);
            std::thread::spawn(move || converse(stream, &turns));
        }
    });
}

fn converse(mut stream: UnixStream, turns: &AtomicU64) {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut part) {
        bytes.extend(&part[..n]);
        while let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            let message: Vec<u8> = bytes.drain(..=end).collect();
            let request: Value = serde_json::from_slice(&message[..end]).expect("JSON");
            let method = request["method"].as_str().expect("a method");
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            if method.ends_with("Subscribe") {
                return tell_for_ever(&mut stream);
            }
            if say(&mut stream, &json!({"parameters": told(method, turn)})).is_err() {
                return;
            }
        }
    }
}

fn say(stream: &mut UnixStream, reply: &Value) -> std::io::Result<()> {
    stream.write_all(format!("{reply}\0").as_bytes())
}

fn tell_for_ever(stream: &mut UnixStream) {
    let mut sequence = 0;
    loop {
        let what = ["nic_added", "port_added", "loss_begins", "nic_failed"][sequence % 4];
        let event = json!({"what": what, "name": WORDS, "detail": WORDS, "count": 3});
        let state = (sequence == 0).then(|| json!({"nics": [], "switches": []}));
        let events = if sequence == 0 {
            Vec::new()
        } else {
            vec![event]
        };
        let news = json!({"sequence": sequence, "state": state, "events": events});
        if say(stream, &json!({"continues": true, "parameters": news})).is_err() {
            return;
        }
        sequence += 1;
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn told(method: &str, turn: u64) -> Value {
    let config = json!({"name": WORDS, "port": format!("switch:{WORDS}"), "model": WORDS, "mac": WORDS, "tenant": WORDS,
        "transport": WORDS, "socket_path": WORDS, "guard": {"tx_rate": WORDS}});
    match method.rsplit('.').next().expect("a name") {
        "GetStatus" => {
            json!({"version": WORDS, "pid": 1, "role": WORDS, "nics": 1, "connected": 1, "switches": 1, "generation": 1})
        }
        "List" if method.contains("Nic") => {
            json!({"nics": [{"config": config, "connected": true, "link": true, "failed": false,
            "chip": WORDS, "vf": 1}]})
        }
        "List" if method.contains("Switch") => {
            json!({"switches": [{"config": {"name": WORDS, "ports": [WORDS]}, "nics": [WORDS],
            "chips": [WORDS]}]})
        }
        "List" => json!({"ports": [{"switch": WORDS, "port": WORDS, "counters": WORDS}]}),
        "Show" => {
            json!({"vfs": [{"nic": WORDS, "chip": WORDS, "index": 1, "policy": {"mac": WORDS}, "address": WORDS, "ready": true,
            "down": WORDS, "refused": [{"what": WORDS, "count": 3, "seconds_ago": 1, "shut_down": true}]}]})
        }
        "Inspect" => json!({"model": WORDS, "registers": [
            {"name": WORDS, "element": null, "offset": 8, "access": WORDS, "section": WORDS, "value": turn + 1},
            {"name": "TDLEN", "element": null, "offset": 0x3808, "access": "RW", "section": WORDS, "value": 4096},
            {"name": "TDT", "element": null, "offset": 0x3818, "access": "RW", "section": WORDS, "value": turn % 256}]}),
        "Interrupts" => {
            json!({"vectors": [{"nic": WORDS, "kind": WORDS, "vector": 0, "armed": true, "masked": true, "pending": true,
            "signalled": turn, "held": 1, "merged": 1}]})
        }
        "Addresses" => {
            json!({"addresses": [{"switch": WORDS, "mac": WORDS, "vlan": 1, "port": WORDS, "seconds": 1}]})
        }
        "Get" => json!({"sections": [
            {"kind": "nic", "name": WORDS, "values": {"rx_frames": 1000 * turn, "rx_bytes": 1_000_000 * turn, "rx_missed": 7 * turn,
                WORDS: 5}},
            {"kind": WORDS, "name": WORDS, "values": {WORDS: 5}},
            {"kind": "worker", "name": WORDS, "values": {"work_ns": turn}},
            {"kind": "switch-port", "name": WORDS, "values": {"rx_frames": turn, "drop_no_room": turn}}]}),
        other => panic!("{other} is not told"),
    }
}
