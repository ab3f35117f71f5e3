//! `hypernic metrics`: what a scraper reads is well-formed and true.

use std::collections::{BTreeMap, BTreeSet};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

use crate::lab::Lab;

pub fn lab() -> Lab {
    Lab::with(|dir| {
        let nic = |name: &str, more: &str| {
            let socket = dir.join(format!("{name}.sock"));
            format!("[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\n{more}\n")
        };
        String::from("[[switch]]\nname = \"lan\"\nports = [\"loopback\"]\n")
            + &nic("a", "port = \"switch:lan\"")
            + &nic("v", "port = \"switch:lan\"\nmodel = \"virtio-net\"")
    })
}

/// Series and their values, if the text is as OpenMetrics 1.0 has it.
pub fn read(text: &str) -> BTreeMap<String, f64> {
    let mut series = BTreeMap::new();
    let (mut family, mut kind, mut families) = (String::new(), String::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.peek().is_none(), "text behind its end");
            return series;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("help");
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            assert!(!help.is_empty());
            family = name.to_owned();
            let next = lines
                .next()
                .expect("a type")
                .strip_prefix("# TYPE ")
                .expect("a type");
            let (of, what) = next.split_once(' ').expect("a type");
            assert_eq!(of, family);
            kind = what.to_owned();
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        let base = name.split('{').next().expect("a name");
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{family} is a {kind}"),
        };
        let of_it = |suffix: &&str| base == format!("{family}{suffix}");
        assert!(suffixes.iter().any(of_it), "{base} in {family}");
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(
            base.starts_with("hypernic_") && base.chars().all(fine),
            "{base}"
        );
        let value: f64 = value.parse().expect("a number");
        assert!(
            series.insert(name.to_owned(), value).is_none(),
            "{name} comes twice"
        );
    }
    panic!("no end");
}

#[test]
fn what_a_scraper_reads_is_well_formed_true_and_never_falls() {
    let lab = lab();
    let before = read(&lab.ran("metrics"));
    let zero = |name: &str| assert_eq!(before.get(name), Some(&0.0), "{name}");
    zero("hypernic_nic_transmit_packets_total{nic=\"a\"}");
    zero("hypernic_nic_client_connected{nic=\"a\"}");
    zero("hypernic_drops_total{kind=\"nic\",name=\"a\",reason=\"rx_missed\"}");
    zero("hypernic_drops_total{kind=\"switch-port\",name=\"lan/a\",reason=\"drop_spoofed\"}");
    assert!(before.keys().any(|name| {
        name.starts_with("hypernic_nic_info{nic=\"v\",port=\"switch:lan\",model=\"virtio-net\"")
    }));
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    let mac = driver.mac();
    // To a group that no bridge forwards, which is dropped, and to nobody, which floods.
    let frame = |to: [u8; 6]| {
        let mut frame = [&to[..], &mac, &[0x88, 0xb5]].concat();
        frame.resize(60, 0);
        frame
    };
    for to in [[1, 0x80, 0xc2, 0, 0, 3], [2, 0, 0, 0, 0, 9]] {
        driver
            .send(&[&frame(to)], &TxOpts::default())
            .expect("send");
    }
    let name = "hypernic_nic_transmit_packets_total{nic=\"a\"}";
    let after = lab.until("two frames", || {
        let now = read(&lab.ran("metrics"));
        (now.get(name) == Some(&2.0)).then_some(now)
    });
    assert_eq!(after["hypernic_nic_client_connected{nic=\"a\"}"], 1.0);
    assert_eq!(after["hypernic_nic_transmit_bytes_total{nic=\"a\"}"], 120.0);
    let lost = "hypernic_drops_total{kind=\"switch-port\",name=\"lan/a\",reason=\"drop_reserved\"}";
    assert_eq!((before.get(lost), after.get(lost)), (None, Some(&1.0)));
    for (name, value) in &before {
        let now = after.get(name).unwrap_or_else(|| panic!("{name} is gone"));
        assert!(
            !name.contains("_total") || now >= value,
            "{name} fell from {value} to {now}"
        );
    }
    // The same reason, explained, with who counted it.
    let text = lab.ran("explain drop_reserved");
    assert!(
        text.contains("IEEE 802.1Q table 8-1") && text.contains("lan/a: 1, last "),
        "{text}"
    );
    let text = lab.ran("explain");
    assert!(
        text.contains("drop_reserved") && !text.contains("drop_spoofed"),
        "{text}"
    );
    // All counters of all NICs only on request.
    assert!(!after.keys().any(|name| name.contains("tx_desc_fetched")));
    assert!(
        read(&lab.ran("metrics --all"))
            .keys()
            .any(|name| name.contains("tx_desc_fetched"))
    );
    let text = lab.ran("metrics --format prometheus");
    assert!(
        text.contains("# TYPE hypernic_drops_total counter") && !text.contains("# EOF"),
        "{text}"
    );
}
