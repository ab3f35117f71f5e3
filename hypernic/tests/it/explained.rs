//! Every counter that the daemon can report has a row in the table of reasons, and each row is a counter's.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use hypernic::config::HostConfig;
use hypernic::control::Server;
use hypernic::host::Host;
use hypernic::{explain, report, sandbox};
use parking_lot::RwLock;
use registry::MODELS;
use tempfile::TempDir;

/// A host that has one of everything that counts.
fn file(dir: &Path) -> String {
    let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let mut text = format!(
        "[[switch]]\nname = \"lan\"\nports = [\"user\", \"stream:listen={}\", \"vhost-user:listen={}\", \
         \"loopback\", \"null\"]\n",
        at("stream"),
        at("vhost")
    );
    for model in MODELS.0 {
        let eeprom = match model.nvm {
            0 => String::new(),
            _ => format!("eeprom = {:?}\n", at(&format!("{}.nvm", model.name))),
        };
        text += &format!(
            "[[nic]]\nname = {:?}\nmodel = {:?}\nsocket-path = {:?}\nport = \"switch:lan\"\ncapture = {:?}\n{eeprom}",
            model.name,
            model.name,
            at(&format!("{}.sock", model.name)),
            at(&format!("{}.pcapng", model.name)),
        );
        if model.virtio.is_some() {
            text += &format!(
                "[[nic]]\nname = \"vu-{0}\"\nmodel = \"{0}\"\ntransport = \"vhost-user\"\n\
                 socket-path = {1:?}\nport = \"switch:lan\"\n",
                model.name,
                at(&format!("vu-{}.sock", model.name)),
            );
        }
        if model.vfs.is_some() {
            text += &format!(
                "[[nic]]\nname = \"d\"\nmodel = \"{0}\"\nvfs = 1\nvf-socket-path = {1:?}\nport = \"null\"\n\
                 [[nic]]\nname = \"g\"\nmodel = \"{0}\"\nvfs = 1\npf = \"guest\"\nsocket-path = {2:?}\n\
                 vf-socket-path = {3:?}\nport = \"null\"\n",
                model.name,
                at("d{}.sock"),
                at("g.sock"),
                at("g{}.sock"),
            );
        }
    }
    text
}

#[test]
fn every_counter_has_a_row_and_every_row_a_counter() {
    let dir = TempDir::new().expect("directory");
    let text = file(dir.path());
    let config = HostConfig::parse("everything.toml".as_ref(), &text).expect("good");
    hypernic::user_networks::stay_here();
    let host = Arc::new(RwLock::new(Host::start(&config).expect("host")));
    let control = Server::start(&dir.path().join("control.sock"), Arc::clone(&host));
    let control = control.expect("control socket");
    let mut sections = host.read().counters();
    sections.extend([control.stop(), report::process(), sandbox::counters()]);
    let mut reported: BTreeSet<(&str, &str)> = BTreeSet::new();
    for section in &sections {
        assert!(!section.values.is_empty(), "{} counts", section.name);
        reported.extend(section.values.iter().map(|(name, _)| (section.kind, *name)));
    }
    // A TAP wants rights that a test may not have, and nothing is to panic or to be lost here.
    reported.extend(port_tap::COUNTERS.iter().map(|name| ("port", *name)));
    // Rings join processes, and here is one.
    reported.extend(port_ring::COUNTERS.iter().map(|name| ("port", *name)));
    // Here every port can be had, and there are no cells.
    reported.insert(("port", port_null::MISSING));
    reported.insert(("cell", "cell_losses_refused"));
    reported.insert(("nic", "failed"));
    reported.insert(("nic", "quarantined"));
    reported.insert(("nic", "rx_quarantined"));
    let explained: BTreeSet<_> = explain::all().map(|row| (row.kind, row.name)).collect();
    let missing: Vec<_> = reported.difference(&explained).collect();
    assert!(missing.is_empty(), "no row explains {missing:?}");
    let left_over: Vec<_> = explained.difference(&reported).collect();
    assert!(left_over.is_empty(), "nobody counts {left_over:?}");
}
