//! `hypernic top --batch`: what NICs, workers and switches do.

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use serde_json::Value;

use crate::metrics::lab;

#[test]
fn it_tells_what_happens_between_two_looks() {
    let lab = lab();
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    // To a group that no bridge forwards: dropped by the switch.
    let reserved = [1, 0x80, 0xc2, 0, 0, 3];
    let frame = [&reserved[..], &driver.mac(), &[0x88, 0xb5], &[0; 46]].concat();
    let done = std::sync::atomic::AtomicBool::new(false);
    let text = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                driver.send(&[&frame], &TxOpts::default()).expect("send");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let text = lab.ran("top -b -o json -n 2 -d 0.5");
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        sender.join().expect("sender");
        text
    });
    let looks: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(looks.len(), 2);
    let look = &looks[1];
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!((0.4..20.0).contains(&number(&look["seconds"])), "{look}");
    let nics = look["nics"].as_array().expect("NICs");
    let named = |name: &str| nics.iter().find(|nic| nic["nic"] == name).expect("a NIC");
    assert_eq!(
        (&named("a")["state"], &named("v")["state"]),
        (&"up".into(), &"no VMM".into())
    );
    let sent = number(&named("a")["sent_packets"]);
    assert!((1.0..=200.0).contains(&sent), "{sent}");
    let bytes = number(&named("a")["sent_bytes"]);
    assert!((bytes - 60.0 * sent).abs() < 1.0, "{bytes}");
    assert!(number(&named("a")["accesses"]) > 1.0);
    let work = number(&named("a")["work"]);
    assert!(work > 0.0 && work < 0.9, "{work}");
    let workers = look["workers"].as_array().expect("workers");
    let all: f64 = workers.iter().map(|worker| number(&worker["work"])).sum();
    assert!(all >= work * 0.5 && all < 1.0, "{all}");
    assert!(
        workers
            .iter()
            .any(|w| number(&w["replies"]) > 0.0 && w["replies_99_seconds"].is_number())
    );
    let drops = look["drops"].as_array().expect("drops");
    let lost = drops
        .iter()
        .find(|loss| loss["reason"] == "drop_reserved")
        .expect("a loss");
    assert_eq!(
        (&lost["name"], &lost["class"]),
        (&"lan/a".into(), &"drop".into())
    );
    assert!(number(&lost["per_second"]) >= 1.0);
    let text = lab.ran("top -b -n 1 -d 0.1");
    for words in [
        "NICs\n",
        "  a    e1000",
        "workers\n",
        "switches\n",
        "  lan/a",
        "drop_reserved",
    ] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
}

#[test]
fn without_a_terminal_or_with_nonsense_it_says_so() {
    let lab = lab();
    for (words, code, said) in [
        ("top -o json", 2, "--batch"),
        ("top -b -d 0", 2, "0.1 to 3600"),
        ("top -b -n 0", 2, "--iterations"),
        ("top", 1, "hypernic top --batch needs none"),
    ] {
        let output = lab.run(words);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {wrong}");
        assert!(wrong.contains(said), "{words}: {wrong}");
    }
}
