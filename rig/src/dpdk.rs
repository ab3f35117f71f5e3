//! DPDK's traffic generator with its driver for this family of NICs, as files of a guest.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::root::Root;

/// Where DPDK looks for its drivers, which it loads at run time.
const DRIVERS: &str = "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0";

/// The drivers taken along: e1000 with igb, and the memory pool that buffers come from. The PCI bus must not be among
/// them: the program is linked with it, and a copy under another name would be a second one.
const WANTED: [&str; 2] = ["librte_mempool_ring.so.25.0", "librte_net_e1000.so.25.0"];

/// One file of a guest: path, permissions, content.
type File = (String, u32, Vec<u8>);

/// `dpdk-testpmd` and all it needs.
pub(crate) fn testpmd(root: &Root) -> Result<Vec<File>> {
    let program = PathBuf::from("usr/bin/dpdk-testpmd");
    let mut paths = BTreeSet::from([program]);
    paths.extend(WANTED.map(|name| Path::new(DRIVERS).join(name)));
    for path in paths.clone() {
        paths.extend(root.libraries(&root.dir().join(path))?);
    }
    let mut files = Vec::new();
    for path in paths {
        let from = root.dir().join(&path);
        let content = fs::read(&from).map_err(Error::io(format!("read {}", from.display())))?;
        files.push((path.to_string_lossy().into_owned(), 0o755, content));
    }
    Ok(files)
}
