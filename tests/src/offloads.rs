//! `ethtool -K`: what the guest's driver leaves to the chip.

use std::time::Instant;

use crate::error::Result;
use crate::wired::Wired;

/// The features that can be changed, by the names that `ethtool -K` takes, and whether each is on.
///
/// # Errors
/// When the guest does not answer.
pub fn features(wired: &Wired) -> Result<Vec<(String, bool)>> {
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

/// Changes a feature, and waits until there is a link again.
///
/// # Errors
/// When there is none.
pub fn set(wired: &Wired, name: &str, on: bool) -> Result<()> {
    let word = if on { "on" } else { "off" };
    // What cannot be had alone is told, not refused.
    wired.ethtool("-K", &format!("{name} {word}"))?;
    wired.settled()
}

/// Whether a feature is on.
///
/// # Errors
/// When the guest does not answer.
pub fn is_on(wired: &Wired, name: &str) -> Result<bool> {
    let features = features(wired)?;
    let found = features.iter().find(|(feature, _)| feature == name);
    Ok(found.is_some_and(|(_, on)| *on))
}

/// Turns every feature that can be changed over and back again, then all of the usual ones off and on. At each setting
/// `exchange` is called, with the feature's name and whether it is on, to move bytes and compare them.
///
/// # Panics
/// When a byte is lost or changed, a feature is only stored, or one of those `needed` cannot be changed.
pub fn each_on_and_off(
    wired: &Wired,
    needed: &[&str],
    mut exchange: impl FnMut(&str, bool) -> Result<()>,
) {
    let all = features(wired).expect("features");
    println!("{all:?}");
    for needed in needed {
        assert!(
            all.iter().any(|(name, _)| name == needed),
            "{needed} cannot be changed: {all:?}"
        );
    }
    let nic = wired.nic();
    let segmented = || {
        let counters = wired.daemon.counters().expect("counters");
        counters.nic(&nic, "tx_tso_frames")
    };
    for (name, was) in &all {
        for on in [!was, *was] {
            let start = Instant::now();
            if let Err(why) = set(wired, name, on) {
                // Some go with another only, such as igb's tags that are put in with those that are taken out.
                let alone = why
                    .to_string()
                    .contains("Could not change any device features");
                assert!(
                    alone && !needed.contains(&name.as_str()),
                    "{name} {on}: {why}"
                );
                println!("{name} is not changed alone");
                break;
            }
            assert_eq!(is_on(wired, name).expect("features"), on, "{name}");
            let before = segmented();
            exchange(name, on).unwrap_or_else(|e| panic!("{name} {on}: {e}"));
            let after = segmented();
            // The setting is not only stored.
            match name.as_str() {
                "tso" => assert_eq!(after > before, on, "{name} {on}"),
                "tx" | "sg" if !on => assert_eq!(after, before, "{name} {on}"),
                _ => {}
            }
            println!("{name} {on}: {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    // All that can be changed of the usual ones, at once.
    let usual = ["rx", "tx", "sg", "tso", "gso", "gro", "rxvlan"];
    let usual = usual
        .iter()
        .filter(|usual| all.iter().any(|(name, _)| name == *usual));
    let usual: Vec<_> = usual.collect();
    for (on, word) in [(false, "off"), (true, "on")] {
        let words = usual.iter().map(|name| format!("{name} {word}"));
        let words = words.collect::<Vec<_>>().join(" ");
        let set = wired.ethtool("-K", &words).and_then(|_| wired.settled());
        let works = set.and_then(|()| exchange("all", on));
        works.unwrap_or_else(|e| panic!("{words}: {e}"));
    }
}
