//! `ethtool -K`: every offload on and off, with traffic checked byte by byte at each setting.

use std::time::Instant;

use hypernic_tests::{Result, Wired};

/// The features that can be changed, by the names that `ethtool -K` takes, and whether each is on.
fn features(wired: &Wired) -> Result<Vec<(String, bool)>> {
    // Those with a history have a second name in the list.
    const OLD: [(&str, &str); 8] = [
        ("rx-checksumming", "rx"),
        ("tx-checksumming", "tx"),
        ("scatter-gather", "sg"),
        ("tcp-segmentation-offload", "tso"),
        ("generic-segmentation-offload", "gso"),
        ("generic-receive-offload", "gro"),
        ("rx-vlan-offload", "rxvlan"),
        ("tx-vlan-offload", "txvlan"),
    ];
    let text = wired.ethtool("-k", "")?;
    let lines = text.lines().filter(|line| !line.contains("[fixed]"));
    let pairs = lines.filter_map(|line| line.trim().split_once(": "));
    let changeable = pairs.filter(|(_, state)| !state.is_empty());
    Ok(changeable
        .map(|(name, state)| {
            let old = OLD.iter().find(|(long, _)| *long == name);
            let name = old.map_or(name, |(_, short)| short).to_owned();
            (name, state.starts_with("on"))
        })
        .collect())
}

fn set(wired: &Wired, name: &str, on: bool) -> Result<()> {
    let word = if on { "on" } else { "off" };
    // What cannot be had alone is told, not refused.
    wired.ethtool("-K", &format!("{name} {word}"))?;
    wired.settled()
}

fn is_on(wired: &Wired, name: &str) -> Result<bool> {
    let features = features(wired)?;
    let found = features.iter().find(|(feature, _)| feature == name);
    Ok(found.is_some_and(|(_, on)| *on))
}

#[test]
fn every_offload_on_and_off_moves_every_byte() {
    let wired = Wired::new("offloads").unwrap();
    let all = features(&wired).unwrap();
    println!("{all:?}");
    for needed in ["rx", "tx", "sg", "tso", "rxvlan", "rx-fcs", "rx-all"] {
        assert!(
            all.iter().any(|(name, _)| name == needed),
            "{needed} cannot be changed: {all:?}"
        );
    }
    let cut = |wired: &Wired| {
        let counters = wired.daemon.counters().unwrap();
        (
            counters.nic("n0", "tx_tso_frames"),
            wired.statistics().unwrap(),
        )
    };
    for (name, was) in &all {
        for on in [!was, *was] {
            let start = Instant::now();
            set(&wired, name, on).unwrap();
            assert_eq!(is_on(&wired, name).unwrap(), on, "{name}");
            let (segmented, before) = cut(&wired);
            wired
                .exchange(1500)
                .unwrap_or_else(|e| panic!("{name} {on}: {e}"));
            let (after, statistics) = cut(&wired);
            // The setting is not only stored.
            match name.as_str() {
                "tso" => assert_eq!(after > segmented, on, "{name} {on}"),
                "rx" => {
                    let good = statistics.grown(&before, "rx_csum_offload_good");
                    assert_eq!(good > 0, on, "{name} {on}");
                }
                "tx" | "sg" if !on => assert_eq!(after, segmented, "{name} {on}"),
                _ => {}
            }
            println!("{name} {on}: {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    wired
        .ethtool(
            "-K",
            "rx off tx off sg off tso off gso off gro off rxvlan off",
        )
        .unwrap();
    wired.settled().unwrap();
    wired.exchange(1500).unwrap();
    wired
        .ethtool("-K", "rx on tx on sg on tso on gso on gro on rxvlan on")
        .unwrap();
    wired.settled().unwrap();
    wired.exchange(1500).unwrap();
    let statistics = wired.statistics().unwrap();
    for error in ["rx_errors", "tx_errors", "rx_csum_offload_errors"] {
        assert_eq!(statistics.get(error), 0, "{error}");
    }
    assert_eq!(wired.peer.received().longest, 1514);
    wired.assert_quiet();
}
