//! What a guest boots: a kernel that boots quickly, and an initramfs that fits it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cache::{Cache, content_key, say};
use crate::error::{CannotRun, Error, Result};
use crate::initramfs;
use crate::kernel::{self, Kernel};
use crate::root::Root;
use crate::stock;

/// A kernel and its initramfs.
#[derive(Debug, Clone)]
pub struct Image {
    dir: PathBuf,
    bzimage: PathBuf,
    key: String,
}

impl Image {
    /// The kernel, as an ELF image that boots by PVH.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinux")
    }

    /// The same kernel as its package has it, for boot loaders.
    #[must_use]
    pub fn bzimage(&self) -> &Path {
        &self.bzimage
    }

    /// The initramfs.
    #[must_use]
    pub fn initramfs(&self) -> PathBuf {
        self.dir.join("initramfs.cpio")
    }

    /// A small initramfs for the same kernel (3 MB: busybox and the e1000 driver), for boot loaders that get it over a
    /// network. It has a shell on the console and takes no commands of the rig.
    #[must_use]
    pub fn small_initramfs(&self) -> PathBuf {
        self.dir.join("small.cpio")
    }

    /// The small initramfs with more files: path, permissions, content. One of them may be another `init`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn small_initramfs_with(&self, files: &[(String, u32, Vec<u8>)]) -> Result<Vec<u8>> {
        let path = self.small_initramfs();
        let mut archive = fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
        archive.extend_from_slice(&initramfs::overlay(files));
        Ok(archive)
    }

    /// A name for the content of all.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }
}

/// Builds the image the first time.
pub(crate) fn prepare(kernel: Kernel, cache: &Cache, root: &Root) -> Result<Image> {
    let stock = kernel::prepare(kernel, cache, root)?;
    let user_space = root.kernel()?.manifest;
    let mut parts = vec![user_space.as_bytes()];
    if kernel != Kernel::Stable {
        parts.push(stock.manifest.as_bytes());
    }
    let recipe = initramfs::recipe();
    parts.push(recipe.as_bytes());
    let key = content_key(parts);
    let dir = cache.once(&format!("image-{key}"), |scratch| {
        let start = Instant::now();
        let io = |p: &Path| Error::io(format!("write {}", p.display()));
        fs::create_dir_all(scratch).map_err(io(scratch))?;
        let image = &stock.image;
        let bytes = fs::read(image).map_err(Error::io(format!("read {}", image.display())))?;
        let elf = stock::extract_vmlinux(&bytes)
            .map_err(|e| CannotRun::new(format!("{}: {e}", image.display())))?;
        let archive = initramfs::build(root, &stock.modules)?;
        let small = initramfs::build_small(root, &stock.modules)?;
        for (name, bytes) in [
            ("vmlinux", &elf),
            ("initramfs.cpio", &archive),
            ("small.cpio", &small),
        ] {
            let path = scratch.join(name);
            fs::write(&path, bytes).map_err(io(&path))?;
        }
        say(&format!(
            "kernel {} MB and initramfs {} MB built in {:.1} s",
            elf.len() / 1_000_000,
            archive.len() / 1_000_000,
            start.elapsed().as_secs_f64()
        ));
        Ok(())
    })?;
    Ok(Image {
        dir,
        bzimage: stock.image,
        key,
    })
}
