//! `hypernic fdb`, `irq`, `mem` and `perf`: what switches, NICs and workers have inside.

use control::{Addresses, Regions, Vectors};
use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use serde_json::Value;

use crate::metrics::lab;

#[test]
fn tables_interrupts_memory_and_time_are_told() {
    let lab = lab();
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::linux()).expect("driver");
    let mac = driver.mac();
    let frame = [&[2, 0, 0, 0, 0, 9][..], &mac, &[0x88, 0xb5], &[0; 46]].concat();
    driver.send(&[&frame], &TxOpts::default()).expect("send");
    let seen = lab.until("its address", || {
        let told: Addresses = serde_json::from_str(&lab.ran("fdb lan --json")).expect("JSON");
        // The port sends it back to the switch, which may then have seen it there.
        (!told.addresses.is_empty()).then_some(told.addresses)
    });
    let address = mac.map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(
        (seen[0].mac.as_str(), seen[0].switch.as_str()),
        (address.as_str(), "lan")
    );
    assert!(
        seen[0].seconds < 60 && ["a", "loopback"].contains(&seen[0].port.as_str()),
        "{seen:?}"
    );
    let text = lab.ran("fdb");
    assert!(
        text.contains(&format!("lan          {address}    0")),
        "{text}"
    );

    let told: Vectors = serde_json::from_str(&lab.ran("irq a --json")).expect("JSON");
    let pin = told
        .vectors
        .iter()
        .find(|one| one.kind == "intx")
        .expect("a pin");
    assert!(pin.signalled + pin.merged > 0, "{told:?}");
    let all: Vectors = serde_json::from_str(&lab.ran("irq --json")).expect("JSON");
    assert!(
        all.vectors
            .iter()
            .any(|one| (one.nic.as_str(), one.kind.as_str()) == ("v", "msix"))
    );
    assert!(lab.ran("irq").contains("a            intx"));

    let told: Regions = serde_json::from_str(&lab.ran("mem a --json")).expect("JSON");
    assert!(
        told.regions
            .iter()
            .all(|one| one.nic == "a" && one.bytes > 0 && one.mapped)
    );
    assert!(!told.regions.is_empty() && told.resident > told.resident_shared);
    assert!(
        told.descriptors
            .is_none_or(|open| (10..1000).contains(&open)),
        "{told:?}"
    );
    let none: Regions = serde_json::from_str(&lab.ran("mem v --json")).expect("JSON");
    assert!(none.regions.is_empty(), "no VMM has it");
    assert!(lab.ran("mem").contains(" KiB resident, of which "));

    let perf: Value = serde_json::from_str(&lab.ran("perf -d 0.2 --json")).expect("JSON");
    let number = |value: &Value| value.as_u64().expect("a number");
    let nanos = perf["seconds"].as_f64().expect("a number") * 1e9;
    let workers = perf["workers"].as_array().expect("workers");
    assert!(!workers.is_empty());
    for worker in workers {
        let all = ["work_ns", "looking_ns", "asleep_ns"].map(|part| number(&worker[part]));
        let all = all.iter().sum::<u64>() as f64;
        assert!((all - nanos).abs() < 0.5 * nanos, "{worker} in {nanos}");
    }
    assert_eq!(perf["nics"].as_array().expect("NICs").len(), 2);
    assert!(lab.ran("perf -d 0.1").contains("% asleep"));
    for (words, said) in [
        ("fdb wan", "there is: lan"),
        ("irq x", "there is: a, v"),
        ("mem x", "there is: a, v"),
    ] {
        let output = lab.run(words);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && wrong.contains(said),
            "{words}: {wrong}"
        );
    }
}
