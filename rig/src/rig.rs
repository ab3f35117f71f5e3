//! The rig itself: QEMU, a kernel and an initramfs, ready to start guests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::accel::Accel;
use crate::cache::Cache;
use crate::dpdk;
use crate::error::{CannotRun, Error, Result};
use crate::foreign::{self, Foreign};
use crate::image::{self, Image};
use crate::kernel::{self, Kernel};
use crate::nested;
use crate::qemu::Qemu;
use crate::root::Root;
use crate::scratch;
use crate::testpmd::Testpmd;
use crate::workshop;

/// All that is needed to start guests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Rig {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cache: Cache,
    root: Root,
    qemu: Qemu,
    images: Mutex<HashMap<Kernel, Image>>,
    accel: OnceLock<Accel>,
}

impl Rig {
    /// Makes everything ready, which takes seconds to minutes the first time on a machine (a download of about
    /// 160 MB) and nothing worth speaking of later. Within a process it is done once.
    ///
    /// # Errors
    /// [`CannotRun`], in one line.
    pub fn prepare() -> Result<Self, CannotRun> {
        static RIG: OnceLock<Result<Rig, CannotRun>> = OnceLock::new();
        RIG.get_or_init(|| Self::prepare_in(Cache::open()?)).clone()
    }

    /// Like [`Rig::prepare`] with an explicit cache folder.
    ///
    /// # Errors
    /// [`CannotRun`], in one line.
    pub fn prepare_in(cache: Cache) -> Result<Self, CannotRun> {
        Self::build(cache).map_err(|e| match e {
            Error::CannotRun(reason) => reason,
            other => CannotRun::new(other.to_string()),
        })
    }

    fn build(cache: Cache) -> Result<Self> {
        scratch::sweep();
        for program in ["setpriv", "unshare", "nsenter"] {
            if !crate::process::on_path(program) {
                return Err(CannotRun::new(format!("no `{program}`: install util-linux")).into());
            }
        }
        let host = match std::env::var("HYPERNIC_QEMU").as_deref() {
            Ok("private") => None,
            _ => Qemu::on_path(),
        };
        let root = Root::prepare(&cache, host.is_none())?;
        let qemu = match host {
            Some(qemu) => qemu,
            None => Qemu::in_root(&root)?,
        };
        let stable = image::prepare(Kernel::Stable, &cache, &root)?;
        Ok(Self {
            inner: Arc::new(Inner {
                cache,
                root,
                qemu,
                images: Mutex::new(HashMap::from([(Kernel::Stable, stable)])),
                accel: OnceLock::new(),
            }),
        })
    }

    /// A kernel and its initramfs. What is not in the cache is downloaded and built, which takes a minute or two.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn image(&self, kernel: Kernel) -> Result<Image> {
        let mut images = self
            .inner
            .images
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = images.get(&kernel) {
            return Ok(image.clone());
        }
        let image = image::prepare(kernel, &self.inner.cache, &self.inner.root)?;
        images.insert(kernel, image.clone());
        Ok(image)
    }

    /// DPDK's `dpdk-testpmd` with its driver for the e1000 family, to be added to a guest's files (20 MB). It wants a
    /// processor with SSE 4.2 (`max`), huge pages, and the NIC bound to `uio_pci_generic`.
    ///
    /// # Errors
    /// When the root lacks a part of it.
    pub fn testpmd(&self) -> Result<Vec<(String, u32, Vec<u8>)>> {
        dpdk::testpmd(&self.inner.root)
    }

    /// U-Boot for [`crate::Boot::Rom`], by its board and file in Debian's package (`qemu-x86/u-boot.rom`). On a PC it finds
    /// NICs outside root ports, and slot 1 is not theirs: give them an address.
    #[must_use]
    pub fn uboot(&self, file: &str) -> PathBuf {
        self.inner.root.uboot(file)
    }

    /// QEMU with its libraries and firmware, to be added to the files of a guest that runs guests (60 MB).
    ///
    /// # Errors
    /// When there is none in a root, and the archive has none.
    pub fn qemu_files(&self) -> Result<Vec<(String, u32, Vec<u8>)>> {
        if self.inner.root.find(nested::QEMU).is_some() {
            return nested::qemu(&self.inner.root);
        }
        nested::qemu(&self.packages("qemu", &["qemu-system-x86"])?)
    }

    /// Modules of a kernel with what they need, to be added to the files of a guest that runs it; it loads them by
    /// `mp NAME`.
    ///
    /// # Errors
    /// When the kernel's folder lacks one: only [`Kernel::Host`] has all.
    pub fn modules(&self, kernel: Kernel, names: &[&str]) -> Result<Vec<(String, u32, Vec<u8>)>> {
        let stock = kernel::prepare(kernel, &self.inner.cache, &self.inner.root)?;
        nested::modules(&stock, names)
    }

    /// The QEMU in use.
    #[must_use]
    pub fn qemu(&self) -> &Qemu {
        &self.inner.qemu
    }

    /// The private root, whose programs also run on the host.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.inner.root
    }

    /// A private root of other Debian packages with all they need, for programs of the host side. The first time on
    /// a machine it is downloaded; `name` names its folder in the cache.
    ///
    /// # Errors
    /// [`CannotRun`] when this machine's archive cannot provide them.
    pub fn packages(&self, name: &str, packages: &[&str]) -> Result<Root> {
        Root::of(&self.inner.cache, name, packages)
    }

    /// DPDK for the host, with the drivers of virtual devices; downloaded the first time ([`crate::Testpmd`]).
    ///
    /// # Errors
    /// [`CannotRun`] when this machine's archive cannot provide it.
    pub fn dpdk(&self) -> Result<Root> {
        Testpmd::root(&self.inner.cache)
    }

    /// QEMU for the machines of another architecture (`ppc`, `aarch64`), from `package`; downloaded the first time.
    ///
    /// # Errors
    /// [`CannotRun`] when this machine's archive cannot provide it, or it has no vfio-user client.
    pub fn qemu_for(&self, arch: &str, package: &str) -> Result<Qemu> {
        let root = self.packages(package, &[package])?;
        Qemu::program_in(&root, &format!("qemu-system-{arch}"))
    }

    /// The kernel of another architecture and an initial RAM disk for it, which has busybox, `mp`, `dhcp`, these modules
    /// and this `init`; downloaded the first time.
    ///
    /// # Errors
    /// [`CannotRun`] when this machine's archive cannot provide them.
    pub fn foreign(
        &self,
        which: Foreign,
        modules: &[&str],
        init: &str,
    ) -> Result<(PathBuf, Vec<u8>)> {
        foreign::image(&self.inner.cache, which, modules, init)
    }

    /// A driver's module for a kernel, made by `make` in a copy of the folder `recipe`: it is given the kernel's headers
    /// as `KDIR`, the stock driver's source as `SOURCE`, and leaves `NAME.ko` in `OUT`. The compiler and all else come
    /// from Debian packages of that kernel's own release (240 MB to download the first time, most of it the kernel's
    /// source); what is built is kept until anything in the recipe changes.
    ///
    /// # Errors
    /// [`CannotRun`] when the packages or a user namespace cannot be had; what the compiler says when it fails.
    pub fn module(&self, kernel: Kernel, recipe: &Path, name: &str) -> Result<Vec<u8>> {
        workshop::module(&self.inner.cache, &self.inner.root, kernel, recipe, name)
    }

    /// The accelerator in use, once it is decided.
    pub(crate) fn decided_accel(&self) -> &OnceLock<Accel> {
        &self.inner.accel
    }

    /// The cache folder.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }
}
