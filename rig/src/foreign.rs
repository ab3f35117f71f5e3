//! Linux of other architectures: a kernel of Debian's, and a user space of busybox alone.

use std::fs;
use std::path::PathBuf;

use crate::apt::{self, Source};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::initramfs;
use crate::nested;
use crate::root::Root;
use crate::stock;

/// Which kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// 6.1 for 32-bit PCs, with more than 4 GiB (Debian 12; later ones have none).
    I386,
    /// 6.12 for arm64, with pages of 16 KiB.
    Arm64Pages16K,
}

impl Foreign {
    fn source(self) -> Source {
        match self {
            Self::I386 => Source {
                arch: "i386",
                ..apt::OLD
            },
            Self::Arm64Pages16K => Source {
                arch: "arm64",
                ..apt::GUEST
            },
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::I386 => "linux-image-686-pae",
            Self::Arm64Pages16K => "linux-image-arm64-16k",
        }
    }
}

/// The kernel, and an initial RAM disk with these modules and this `init`.
pub(crate) fn image(
    cache: &Cache,
    which: Foreign,
    modules: &[&str],
    init: &str,
) -> Result<(PathBuf, Vec<u8>)> {
    let package = which.package();
    let wanted = ["busybox-static", package];
    let root = Root::from(cache, package, which.source(), &wanted)?;
    let kernel = stock::find(root.dir())?;
    let busybox = ["usr/bin/busybox", "bin/busybox"].map(|path| root.dir().join(path));
    let busybox = &busybox[usize::from(!busybox[0].exists())];
    let bytes = fs::read(busybox).map_err(Error::io(format!("read {}", busybox.display())))?;
    let modules = nested::modules(&kernel, modules)?;
    Ok((kernel.image, initramfs::foreign(&bytes, &modules, init)))
}
