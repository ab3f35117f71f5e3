//! What a guest needs to run guests itself: QEMU with its firmware, and modules of its kernel, as files of the guest.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::initramfs;
use crate::root::Root;
use crate::stock::{self, Stock};

/// A file of a guest: path, permissions, content.
pub(crate) type File = (String, u32, Vec<u8>);

/// The QEMU of a root.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// What QEMU loads into a PC that boots a kernel by PVH.
const FIRMWARE: [&str; 4] = [
    "usr/share/qemu/kvmvapic.bin",
    "usr/share/qemu/linuxboot_dma.bin",
    "usr/share/qemu/pvh.bin",
    "usr/share/seabios/bios-256k.bin",
];

/// QEMU, its libraries and the firmware of a PC.
pub(crate) fn qemu(root: &Root) -> Result<Vec<File>> {
    let mut files = root.files(&[&Path::new("usr/bin").join(QEMU)])?;
    for path in FIRMWARE {
        let from = root.dir().join(path);
        let content = fs::read(&from).map_err(Error::io(format!("read {}", from.display())))?;
        files.push((path.to_owned(), 0o644, content));
    }
    Ok(files)
}

/// Modules with all they need, where the guest's `mp` looks for them.
pub(crate) fn modules(kernel: &Stock, names: &[&str]) -> Result<Vec<File>> {
    let modules = stock::collect(&kernel.modules, names, &[])?;
    Ok(modules
        .into_iter()
        .flat_map(|(name, (object, needs))| initramfs::module(&name, object, &needs))
        .collect())
}
