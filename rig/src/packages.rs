//! Folders of unpacked Debian packages.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::apt::{Apt, Installed, Source};
use crate::cache::{self, say};
use crate::error::{Error, Result};

/// The parts of kernel packages that are unpacked: the rest is drivers no guest here has hardware for.
pub(crate) const KERNEL_PATHS: [&str; 13] = [
    "*/vmlinuz*",
    "*/kernel/drivers/char/virtio_console*",
    "*/kernel/drivers/net/*.ko*",
    "*/kernel/drivers/dca/*",
    "*/kernel/drivers/i2c/algos/*",
    "*/kernel/drivers/uio/*",
    "*/kernel/drivers/vfio/*",
    "*/kernel/drivers/virtio/*",
    "*/kernel/drivers/iommu/*",
    "*/kernel/net/*",
    "*/kernel/lib/*",
    "*/kernel/virt/*",
    "*/kernel/arch/x86/crypto/*",
];

/// Downloads packages with all they need, through an apt of its own in `apt_dir`, and unpacks them into `scratch`; of
/// kernels only the parts that guests use. Beside them stands a `manifest` of their archives' names.
pub(crate) fn unpack(
    scratch: &Path,
    apt_dir: &Path,
    source: Source,
    packages: &[&str],
) -> Result<()> {
    let all = |name: &str| !name.starts_with("linux-");
    unpack_beside(scratch, apt_dir, source, packages, &[], all)
}

/// The same beside packages that are `installed` elsewhere. Of archives whose names are not `whole`, only the parts
/// that guests use.
pub(crate) fn unpack_beside(
    scratch: &Path,
    apt_dir: &Path,
    source: Source,
    packages: &[&str],
    installed: &[Installed],
    whole: impl Fn(&str) -> bool,
) -> Result<()> {
    let apt = Apt::open(apt_dir, source, installed)?;
    let archives = apt.download(packages)?;
    let start = Instant::now();
    fs::create_dir_all(scratch).map_err(Error::io(format!("create {}", scratch.display())))?;
    let mut manifest = String::new();
    for archive in &archives {
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        unpack_one(archive, scratch, !whole(&name))?;
        manifest.push_str(&name);
        manifest.push('\n');
    }
    for unneeded in [
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
        "usr/share/bug",
    ] {
        cache::remove(&scratch.join(unneeded));
    }
    let path = scratch.join("manifest");
    fs::write(&path, manifest).map_err(Error::io(format!("write {}", path.display())))?;
    cache::remove(apt_dir);
    say(&format!(
        "unpacked in {:.0} s into {}",
        start.elapsed().as_secs_f64(),
        scratch.parent().unwrap_or(scratch).display()
    ));
    Ok(())
}

/// Unpacks one archive through tar, which lets a part be chosen and does not ask for root's ownerships.
fn unpack_one(archive: &Path, into: &Path, kernel: bool) -> Result<()> {
    let what = format!("unpack {}", archive.display());
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--fsys-tarfile")
        .arg(archive)
        .stdout(Stdio::piped());
    let mut dpkg = dpkg.spawn().map_err(Error::io(what.clone()))?;
    let mut tar = Command::new("tar");
    tar.args([
        "-x",
        "--no-same-owner",
        "--no-same-permissions",
        "-f",
        "-",
        "-C",
    ])
    .arg(into);
    if kernel {
        tar.arg("--wildcards").args(KERNEL_PATHS);
        // A pattern that matches nothing in this kernel's package makes tar exit with 2; what must be there is
        // checked by its users.
        tar.stderr(Stdio::null());
    }
    let stdout = dpkg.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let tar = tar
        .stdin(stdout)
        .status()
        .map_err(Error::io(what.clone()))?;
    let dpkg = dpkg.wait().map_err(Error::io(what.clone()))?;
    if !dpkg.success() || (!tar.success() && !kernel) {
        return Err(Error::Command {
            command: what,
            output: format!("dpkg-deb {dpkg}, tar {tar}; is the disk full?"),
        });
    }
    Ok(())
}
