//! libFuzzer around one target, which the environment names: `HYPERNIC_FUZZ=rings`.
//!
//! With `HYPERNIC_FUZZ_ONLY=rings` while compiling, the program has that target alone, and the
//! linker leaves out what it does not reach: libFuzzer looks at every counter after every run.
#![no_main]

use std::sync::OnceLock;

use hypernic_fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

const ONLY: Option<Target> = match option_env!("HYPERNIC_FUZZ_ONLY") {
    Some(name) => Some(named(name)),
    None => None,
};

static TARGET: OnceLock<Target> = OnceLock::new();

const fn named(name: &str) -> Target {
    let mut at = 0;
    while at < TARGETS.len() {
        if same(TARGETS[at].0.as_bytes(), name.as_bytes()) {
            return TARGETS[at].1;
        }
        at += 1;
    }
    panic!("HYPERNIC_FUZZ_ONLY names no target")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

fn target() -> Target {
    let names = || TARGETS.iter().map(|t| t.0).collect::<Vec<_>>().join(", ");
    let name = std::env::var("HYPERNIC_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|t| t.0 == name);
    found
        .unwrap_or_else(|| panic!("HYPERNIC_FUZZ=\"{name}\" is none of: {}", names()))
        .1
}

fuzz_target!(|data: &[u8]| match ONLY {
    Some(target) => target(data),
    None => TARGET.get_or_init(target)(data),
});
