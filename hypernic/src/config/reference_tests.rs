use std::path::Path;

use super::reference::{PARTS, Part, Word, page};
use super::{HostConfig, raw};

/// A file with `line` in a part, and what it needs besides.
fn file(part: &str, word: &str, line: &str) -> String {
    let switch = "[[switch]]\nname = \"lan\"\n";
    let nic = |model: &str, words: &str| {
        format!(
            "{switch}[[nic]]\nname = \"n\"\nport = \"switch:lan\"\nmodel = \"{model}\"\n{words}"
        )
    };
    let socket = "socket-path = \"/run/n.sock\"\n";
    let vfs = |rest: &str| {
        nic(
            "82576",
            &format!("vfs = 7\nvf-socket-path = \"/run/{{}}.sock\"\n{rest}"),
        )
    };
    match (part, word) {
        ("At the head", "control-persist" | "control-group" | "control-mode") => {
            format!("control = \"/run/c\"\n{line}\n")
        }
        (
            "At the head",
            "control" | "workers" | "keeper" | "profile" | "sandbox" | "sandbox-paths"
            | "sandbox-network",
        ) => {
            format!("{line}\n{}", nic("e1000", socket))
        }
        ("At the head", _) => format!("control = \"/run/c\"\n{line}\n{}", nic("e1000", socket)),
        ("In a `[[switch]]`", "name") => format!(
            "[[switch]]\n{line}\n{}",
            &nic("e1000", socket)[switch.len()..]
        ),
        ("In a `[[switch]]`", _) => {
            nic("e1000", socket).replace("\"lan\"\n", &format!("\"lan\"\n{line}\n"))
        }
        ("In a `guard`", _) => nic("e1000", &format!("{socket}[nic.guard]\n{line}\n")),
        ("In a `[[nic.vf]]`", "index") => vfs(&format!("[[nic.vf]]\n{line}\n")),
        ("In a `[[nic.vf]]`", "qos") => vfs(&format!("[[nic.vf]]\nindex = 0\nvlan = 5\n{line}\n")),
        ("In a `[[nic.vf]]`", "min-tx-rate") => vfs(&format!(
            "port-rate = 1000\n[[nic.vf]]\nindex = 0\n{line}\n"
        )),
        ("In a `[[nic.vf]]`", _) => vfs(&format!("[[nic.vf]]\nindex = 0\n{line}\n")),
        (_, "name" | "port" | "model") => {
            let (name, all) = (format!("\n{word} = "), nic("82576", socket));
            let (at, nic) = (all.find("[[nic]]").unwrap(), all.clone());
            let (before, of_nic) = nic.split_at(at);
            let start = of_nic.find(&name).unwrap() + 1;
            let end = start + of_nic[start..].find('\n').unwrap();
            format!("{before}{}{line}{}", &of_nic[..start], &of_nic[end..])
        }
        (_, "cell") => format!(
            "control = \"/run/c\"\n{}",
            nic("e1000", &format!("{socket}{line}\n"))
        ),
        (_, "socket-path" | "fd") => nic("e1000", &format!("{line}\n")),
        (_, "transport" | "queue-pairs" | "split-rings" | "mtu" | "standby" | "hash-report") => {
            nic("virtio-net", &format!("{socket}{line}\n"))
        }
        (_, "doorbell") => nic("82576", &format!("{socket}{line}\n")),
        (_, "vfs") if line.is_empty() => nic("82576", socket),
        (_, "vfs") => nic(
            "82576",
            &format!("vf-socket-path = \"/run/{{}}.sock\"\n{line}\n"),
        ),
        (_, "vf-socket-path") => nic("82576", &format!("vfs = 7\n{line}\n")),
        (_, "port-rate") => vfs(&format!("{line}\n")),
        (_, "pf") if line.contains("guest") => vfs(&format!("{socket}{line}\n")),
        (_, "pf") => vfs(&format!("{line}\n")),
        (_, "pf-places-vf-rings") => vfs(&format!("pf = \"guest\"\n{socket}{line}\n")),
        (_, "capture-mib") => nic(
            "e1000",
            &format!("{socket}capture = \"/run/n.pcapng\"\n{line}\n"),
        ),
        _ => nic("e1000", &format!("{socket}{line}\n")),
    }
}

fn every() -> impl Iterator<Item = (&'static Part, &'static Word)> {
    PARTS
        .iter()
        .flat_map(|part| part.words.iter().map(move |word| (part, word)))
}

fn parsed(text: &str) -> HostConfig {
    // Users and groups that every host has.
    let text = &text
        .replace("prometheus", "nobody")
        .replace("alice\"]", "daemon\"]")
        .replace("@hypernic", "@daemon");
    HostConfig::parse(Path::new("host.toml"), text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_page_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/words.md");
    let kept = std::fs::read_to_string(path).expect("docs/words.md");
    assert!(kept == page(), "docs/words.md is stale: make docs");
}

#[test]
fn every_word_of_the_file_has_a_row_and_no_row_has_another() {
    let parts = [
        raw::names::<raw::RawHost>(),
        raw::names::<raw::RawSwitch>(),
        raw::names::<raw::RawNic>(),
        raw::names::<crate::guard::RawGuard>(),
        raw::names::<raw::RawVf>(),
    ];
    for (part, names) in PARTS.iter().zip(parts) {
        // Those with a table of their own, one that the next release no longer accepts, and one that is a VF's chip's.
        let is_of_chip = |name: &str| part.title == "In a `[[nic.vf]]`" && name == "cell";
        let known = names.iter().filter(|name| {
            !["switch", "nic", "vf", "portions"].contains(&name.as_str()) && !is_of_chip(name)
        });
        let mut known: Vec<_> = known.map(String::as_str).collect();
        let mut rows: Vec<_> = part.words.iter().map(|word| word.name).collect();
        known.sort_unstable();
        rows.sort_unstable();
        assert_eq!(rows, known, "{}", part.title);
    }
}

#[test]
fn every_example_is_accepted_and_says_something() {
    for (part, word) in every() {
        let line = format!("{} = {}", word.name, word.example);
        let with = parsed(&file(part.title, word.name, &line));
        if !word.default.contains("required") {
            let without = parsed(&file(part.title, word.name, ""));
            assert_ne!(
                format!("{with:?}"),
                format!("{without:?}"),
                "{line} in {}",
                part.title
            );
        }
    }
}

#[test]
fn every_default_that_can_be_written_is_the_default() {
    let mut compared = 0;
    for (part, word) in every() {
        let Some(value) = word
            .default
            .strip_prefix('`')
            .and_then(|rest| rest.split('`').next())
        else {
            continue;
        };
        if value.contains("vf-") {
            continue;
        }
        let line = format!("{} = {value}", word.name);
        let said = parsed(&file(part.title, word.name, &line));
        let unsaid = parsed(&file(part.title, word.name, ""));
        assert_eq!(
            format!("{said:?}"),
            format!("{unsaid:?}"),
            "{line} in {}",
            part.title
        );
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}
