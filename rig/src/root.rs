//! The private root: unpacked Debian packages that hold the guest's kernel, its tools and, when the host has
//! none that will do, QEMU. Programs in it run on the host through its own dynamic loader, without chroot.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::Source;
use crate::cache::{Cache, content_key};
use crate::error::{CannotRun, Error, Result};
use crate::packages::{self, KERNEL_PATHS};
use crate::stock::{self, Stock};
use crate::{apt, process};

/// What every guest is made of, and the firmware and programs that drive NICs in their own ways.
const GUEST_PACKAGES: [&str; 13] = [
    "busybox-static",
    "dash",
    "dpdk-dev",
    "ethtool",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "librte-mempool-ring25",
    "librte-net-e1000-25",
    "linux-image-amd64",
    "pciutils",
    "tcpdump",
    "u-boot-qemu",
];

/// What is added when the host has no QEMU that will do.
const QEMU_PACKAGES: [&str; 1] = ["qemu-system-x86"];

/// Changes when the way the root is made changes, so that an old one is not taken for a new one.
const LAYOUT: &str = "1";

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";

/// A complete private root on disk.
#[derive(Debug, Clone)]
pub struct Root {
    dir: PathBuf,
}

impl Root {
    /// Returns the root, which is downloaded and unpacked the first time.
    pub(crate) fn prepare(cache: &Cache, with_qemu: bool) -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(CannotRun::new("the rig's guests and QEMU are amd64 programs").into());
        }
        let mut packages: Vec<&str> = GUEST_PACKAGES.to_vec();
        if with_qemu {
            packages.extend(QEMU_PACKAGES);
        }
        let text = [packages.join(" "), KERNEL_PATHS.join(" ")].join("\n");
        let suite = apt::GUEST.suites[0];
        let key = content_key([LAYOUT.as_bytes(), suite.as_bytes(), text.as_bytes()]);
        let dir = cache.once(&format!("root-{}", &key[..8]), |scratch| {
            packages::unpack(scratch, &cache.dir().join("apt"), apt::GUEST, &packages)
        })?;
        Ok(Self { dir })
    }

    /// A root of other packages, for programs of the host side that guests have no use for; downloaded and unpacked the
    /// first time.
    pub(crate) fn of(cache: &Cache, name: &str, wanted: &[&str]) -> Result<Self> {
        Self::from(cache, name, apt::GUEST, wanted)
    }

    /// The same from other suites, or of another architecture.
    pub(crate) fn from(cache: &Cache, name: &str, source: Source, wanted: &[&str]) -> Result<Self> {
        let text = wanted.join(" ");
        let mut parts = vec![LAYOUT, source.suites[0], &text];
        if source.arch != apt::GUEST.arch {
            parts.push(source.arch);
        }
        let key = content_key(parts.iter().map(|part| part.as_bytes()));
        let dir = cache.once(&format!("{name}-{}", &key[..8]), |scratch| {
            let apt = cache.dir().join(format!("apt-{name}"));
            packages::unpack(scratch, &apt, source, wanted)
        })?;
        Ok(Self { dir })
    }

    /// A root of Debian packages for programs of the host side, where no guest is wanted. The first time on a machine it is
    /// downloaded; `name` names its folder in the cache.
    ///
    /// # Errors
    /// [`CannotRun`] when this machine's archive cannot provide them.
    pub fn of_programs(name: &str, packages: &[&str]) -> Result<Self> {
        Self::of(&Cache::open()?, name, packages)
    }

    /// Where the root is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a program in the root, if it is there.
    #[must_use]
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        ["usr/bin", "usr/sbin"]
            .iter()
            .map(|dir| self.dir.join(dir).join(program))
            .find(|path| path.is_file())
    }

    /// The words that start a program of the root on the host: its loader, its libraries, the program.
    ///
    /// # Errors
    /// When the root has no such program.
    pub fn program(&self, program: &str) -> Result<Vec<PathBuf>> {
        let path = self.find(program).ok_or_else(|| Error::Command {
            command: program.to_owned(),
            output: format!("not in {}", self.dir.display()),
        })?;
        Ok(self.program_at(&path))
    }

    /// The same for a program that stands elsewhere in the root.
    #[must_use]
    pub fn program_at(&self, path: &Path) -> Vec<PathBuf> {
        vec![
            self.dir.join(LOADER),
            "--library-path".into(),
            self.dir.join(LIBRARIES),
            self.dir.join(path),
        ]
    }

    /// A command that runs a program of the root on the host.
    ///
    /// # Errors
    /// When the root has no such program.
    pub fn command(&self, program: &str) -> Result<Command> {
        let words = self.program(program)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }

    /// The libraries a program of the root needs, the loader included, as paths inside the root.
    pub(crate) fn libraries(&self, program: &Path) -> Result<Vec<PathBuf>> {
        let mut command = Command::new(self.dir.join(LOADER));
        command
            .arg("--library-path")
            .arg(self.dir.join(LIBRARIES))
            .arg("--list")
            .arg(program);
        let out = process::output(&mut command)?;
        let mut paths = vec![PathBuf::from(LOADER)];
        for line in String::from_utf8_lossy(&out).lines() {
            // "libc.so.6 => /root/usr/lib/.../libc.so.6 (0x...)"; the loader and the vDSO have no arrow.
            let found = line
                .split_once("=>")
                .and_then(|(_, p)| p.split_whitespace().next());
            let inside = found.and_then(|p| Path::new(p).strip_prefix(&self.dir).ok());
            paths.extend(inside.map(Path::to_path_buf));
        }
        Ok(paths)
    }

    /// Programs and drivers of the root with the libraries they need, to be added to a guest's files: path, permissions,
    /// content.
    ///
    /// # Errors
    /// When the root lacks one of them.
    pub fn files(&self, paths: &[&Path]) -> Result<Vec<(String, u32, Vec<u8>)>> {
        let mut all: BTreeSet<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
        for path in paths {
            all.extend(self.libraries(&self.dir.join(path))?);
        }
        let mut files = Vec::new();
        for path in all {
            let from = self.dir.join(&path);
            let content = fs::read(&from).map_err(Error::io(format!("read {}", from.display())))?;
            files.push((path.to_string_lossy().into_owned(), 0o755, content));
        }
        Ok(files)
    }

    /// U-Boot as firmware, by its board and file.
    pub(crate) fn uboot(&self, file: &str) -> PathBuf {
        self.dir.join("usr/lib/u-boot").join(file)
    }

    /// The kernel guests run unless they ask for another.
    pub(crate) fn kernel(&self) -> Result<Stock> {
        stock::find(&self.dir)
    }
}
