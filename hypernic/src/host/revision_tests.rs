//! A NIC that is made for a guest that goes on shows it what it started with.

use std::path::Path;

use model::Nic;
use registry::{Function, MODELS, Model, Models, Settings};

use super::Host;
use crate::config::HostConfig;

/// Tells its revisions apart by a subsystem id.
fn made(settings: &Settings, function: &Function) -> Nic {
    let mut nic = (MODELS.0[0].make)(settings, function);
    nic.identity.subsystem = settings.revision.expect("one is chosen");
    nic
}

/// As an older program has it.
static OLDER: Model = Model {
    revisions: 2,
    make: made,
    ..*MODELS.0[0]
};

/// As this one has it.
static NEWER: Model = Model {
    revisions: 3,
    ..OLDER
};

fn host(of: &'static Model, socket: &Path) -> (Host, HostConfig) {
    let table = Models(Box::leak(Box::new([of])));
    let text = format!("[[nic]]\nname = \"n0\"\nsocket-path = {socket:?}\nport = \"null\"\n");
    let config = HostConfig::parse_with(table, "host.toml".as_ref(), &text).expect("good");
    let host = Host::start(&HostConfig::default()).expect("a host");
    (host, config)
}

fn revision(host: &Host) -> Option<u16> {
    host.nic_state("n0").expect("the NIC").revision
}

#[test]
fn a_nic_that_comes_from_an_older_program_stays_what_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = |name: &str| dir.path().join(name);
    let (mut near, config) = host(&OLDER, &socket("near"));
    near.add_nic(&config.nics[0]).expect("made");
    assert_eq!(revision(&near), Some(2), "its newest");
    let state = near.hold_nic("n0", false).expect("it has no VMM");

    let (mut far, config) = host(&NEWER, &socket("far"));
    far.add_held(&config.nics[0], &state)
        .expect("it knows both");
    assert_eq!(revision(&far), Some(2));
    far.release_nic("n0");
    assert_eq!(revision(&far), Some(2));
    far.remove_nic("n0");
    // One that starts there is another.
    far.add_nic(&config.nics[0]).expect("made");
    assert_eq!(revision(&far), Some(3));
    let state = far.hold_nic("n0", false).expect("it has no VMM");

    let (mut near, config) = host(&OLDER, &socket("again"));
    let refused = near.add_held(&config.nics[0], &state);
    let why = refused.expect_err("it is newer").to_string();
    let said = "the e1000 of this program has model revisions 1 to 2, not 3";
    assert!(why.contains(said), "{why}");
    assert!(near.nic_state("n0").is_none(), "there is none then");
}
