//! What a switch has learned, when another process goes on.

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use serde_json::Value;

use crate::common::{BROADCAST, frame, mac, until};
use crate::lab::Lab;

/// Which address was seen where.
fn learned(lab: &Lab) -> Vec<(String, String)> {
    let told: Value = serde_json::from_str(&lab.ran("fdb --json")).expect("JSON");
    let all = told["addresses"].as_array().expect("a list");
    let word = |one: &Value, name: &str| one[name].as_str().expect("a word").to_owned();
    let pair = |one: &Value| (word(one, "mac"), word(one, "port"));
    all.iter().map(pair).collect()
}

#[test]
fn learned_addresses_outlive_upgrades_and_crashes() {
    let lab = Lab::with(|dir| {
        let nic = |name: &str| {
            format!(
                "[[nic]]\nname = \"{name}\"\nmodel = \"e1000\"\nsocket-path = {:?}\nport = \"switch:lan\"\n",
                dir.join(format!("{name}.sock"))
            )
        };
        format!(
            "keeper = true\n[[switch]]\nname = \"lan\"\n{}{}",
            nic("a"),
            nic("b")
        )
    });
    let bus = SocketBus::connect(lab.dir.path().join("b.sock")).expect("a bus");
    let mut b = Driver::new(bus, Config::linux()).expect("it comes up");
    for number in 1..4 {
        let sent = b.send(
            &[&frame(BROADCAST, mac(number), number)],
            &TxOpts::default(),
        );
        assert_eq!(sent.expect("sent"), 1);
    }
    let before = until("they are known", || {
        Some(learned(&lab)).filter(|all| all.len() == 3)
    });
    assert!(before.iter().all(|(_, port)| port == "b"), "{before:?}");
    lab.ran("upgrade");
    assert_eq!(learned(&lab), before);
    until("they are noted", || notes(&lab, &mac(3)).then_some(()));
    for _ in 0..3 {
        lab.kill_worker();
        assert_eq!(learned(&lab), before);
    }
}

/// Whether the daemon has a note for its next worker with this address.
fn notes(lab: &Lab, mac: &[u8]) -> bool {
    let open = std::fs::read_dir(format!("/proc/{}/fd", lab.daemon.id())).expect("descriptors");
    open.flatten().any(|entry| {
        let file = std::fs::read_link(entry.path()).unwrap_or_default();
        let is = file.to_string_lossy().starts_with("/memfd:learned");
        let bytes = is.then(|| std::fs::read(entry.path()).ok()).flatten();
        bytes.is_some_and(|bytes| bytes.windows(mac.len()).any(|part| part == mac))
    })
}
