//! DPDK's traffic generator with its driver for this family of NICs, as files of a guest.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::root::Root;

/// Where DPDK looks for its drivers, which it loads at run time.
const DRIVERS: &str = "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0";

/// The drivers taken along: e1000 with igb, and the memory pool that buffers come from. The PCI bus must not be among
/// them: the program is linked with it, and a copy under another name would be a second one.
const WANTED: [&str; 2] = ["librte_mempool_ring.so.25.0", "librte_net_e1000.so.25.0"];

/// `dpdk-testpmd` and all it needs.
pub(crate) fn testpmd(root: &Root) -> Result<Vec<(String, u32, Vec<u8>)>> {
    let drivers = WANTED.map(|name| Path::new(DRIVERS).join(name));
    let mut paths = vec![Path::new("usr/bin/dpdk-testpmd")];
    paths.extend(drivers.iter().map(PathBuf::as_path));
    root.files(&paths)
}
