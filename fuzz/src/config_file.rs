//! What users write: the TOML file, the words for ports and addresses, the command line.

use std::collections::HashSet;
use std::path::Path;

use clap::Parser;
use hypernic::cli::{Cli, Command};
use hypernic::config::{HostConfig, MAX_BUSY_POLL, NicConfig};
use hypernic::spec::{Moderation, NicMac, PortSpec};
use registry::MODELS;

/// Text as a file, as words or as a command line; the first byte chooses.
pub fn config_file(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match kind {
        b'w' => words(text),
        b'c' => command_line(text),
        _ => file(text),
    }
}

/// A good file makes a host without contradictions; a bad one a single line that says where.
fn file(text: &str) {
    let host = match HostConfig::parse(Path::new("h.toml"), text) {
        Ok(host) => host,
        Err(error) => {
            let error = error.to_string();
            assert!(
                !error.contains(char::is_control),
                "more than a line: {error:?}"
            );
            let place = error.strip_prefix("h.toml:").expect("its place");
            let (line, rest) = place.split_once(':').expect("a line");
            let (column, _) = rest.split_once(':').expect("a column");
            let line: usize = line.parse().expect("a number");
            let column: usize = column.parse().expect("a number");
            assert!((1..=text.matches('\n').count() + 1).contains(&line));
            assert!((1..=text.len() + 1).contains(&column));
            return;
        }
    };
    assert!(!host.nics.is_empty(), "a host without NICs");
    let mut names = HashSet::new();
    let mut macs = HashSet::new();
    for nic in &host.nics {
        assert!(names.insert(&nic.name), "two of one name");
        assert!(macs.insert(nic.mac), "two of one address");
        good_nic(nic);
        if let PortSpec::Switch(name) = &nic.port {
            assert!(host.switches.iter().any(|s| s.name == *name));
        }
    }
    for switch in &host.switches {
        for port in &switch.ports {
            comes_back(port);
            assert!(!matches!(port, PortSpec::Switch(_)));
        }
    }
}

fn good_nic(nic: &NicConfig) {
    let [first, ..] = nic.mac.0;
    assert!(first & 1 == 0 && nic.mac.0 != [0; 6], "{}", nic.mac);
    assert!(nic.busy_poll <= MAX_BUSY_POLL);
    comes_back(&nic.port);
}

/// What is printed is what was understood.
fn comes_back(port: &PortSpec) {
    assert_eq!(port.to_string().parse().as_ref(), Ok(port));
}

fn words(text: &str) {
    if let Ok(port) = text.parse::<PortSpec>() {
        comes_back(&port);
    }
    if let Ok(mac) = text.parse::<NicMac>() {
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!(mac.0[0] & 1, 0, "a group address");
    }
    if let Ok(moderation) = text.parse::<Moderation>() {
        assert_eq!(moderation.to_string(), text);
    }
    if let Ok(model) = MODELS.parse(text) {
        assert!(model.name == text || model.aliases.contains(&text));
    }
}

fn command_line(text: &str) {
    let words = ["hypernic"].into_iter().chain(text.split('\n').take(24));
    let Ok(cli) = Cli::try_parse_from(words) else {
        return;
    };
    if let Command::Run(run) = cli.command
        && let Ok(host) = run.into_config()
    {
        assert!(!host.nics.is_empty(), "a host without NICs");
        host.nics.iter().for_each(good_nic);
    }
}
