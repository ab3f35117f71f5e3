//! The stock r8169 driver with the patches of `guest/linux/`, built for the guest's kernel and loaded there, as
//! [`crate::patched`] has it for the e1000's.

use std::path::Path;

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{LONG, Lab};
use rig::{GuestConfig, Kernel, Nic, Rig};

/// A guest with the patched driver in place of the stock one.
fn patched(name: &str, kernel: Kernel) -> GuestConfig {
    let rig = Rig::prepare().unwrap_or_else(|why| panic!("{why}"));
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/linux");
    let module = rig.module(kernel, &recipe, "r8169");
    let module = module.unwrap_or_else(|why| panic!("{why}"));
    GuestConfig::new(name)
        .kernel(kernel)
        .file("/mod/r8169.ko", 0o644, module)
}
