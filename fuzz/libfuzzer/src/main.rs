//! libFuzzer around one target, which the environment names: `HYPERNIC_FUZZ=rings`.
#![no_main]

use std::sync::OnceLock;

use hypernic_fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<Target> = OnceLock::new();

fn target() -> Target {
    let names = || TARGETS.iter().map(|t| t.0).collect::<Vec<_>>().join(", ");
    let name = std::env::var("HYPERNIC_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|t| t.0 == name);
    found
        .unwrap_or_else(|| panic!("HYPERNIC_FUZZ=\"{name}\" is none of: {}", names()))
        .1
}

fuzz_target!(|data: &[u8]| TARGET.get_or_init(target)(data));
