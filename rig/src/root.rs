//! The private root: unpacked Debian packages that hold the guest's kernel, its tools and, when the host has
//! none that will do, QEMU. Programs in it run on the host through its own dynamic loader, without chroot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::apt::{self, Apt};
use crate::cache::{self, Cache, content_key, say};
use crate::error::{CannotRun, Error, Result};
use crate::process;

/// What every guest is made of.
const GUEST_PACKAGES: [&str; 9] = [
    "busybox-static",
    "dash",
    "ethtool",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "linux-image-amd64",
    "pciutils",
    "tcpdump",
];

/// What is added when the host has no QEMU that will do.
const QEMU_PACKAGES: [&str; 1] = ["qemu-system-x86"];

/// The parts of the kernel package that are unpacked: the rest is drivers no guest here has hardware for.
const KERNEL_PATHS: [&str; 12] = [
    "./boot/vmlinuz*",
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
        let key = content_key([LAYOUT.as_bytes(), apt::SUITE.as_bytes(), text.as_bytes()]);
        let dir = cache.once(&format!("root-{}", &key[..8]), |scratch| {
            build(scratch, &cache.dir().join("apt"), &packages)
        })?;
        Ok(Self { dir })
    }

    /// Where the root is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The packages the root was made from, one archive name a line.
    pub(crate) fn manifest(&self) -> Result<String> {
        let path = self.dir.join("manifest");
        fs::read_to_string(&path).map_err(Error::io(format!("read {}", path.display())))
    }

    /// The path of a program in the root, if it is there.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
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
        Ok(vec![
            self.dir.join(LOADER),
            "--library-path".into(),
            self.dir.join(LIBRARIES),
            path,
        ])
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

    /// Decompresses an .xz file of the root, with the root's own (static) busybox.
    pub(crate) fn unxz(&self, file: &Path) -> Result<Vec<u8>> {
        let busybox = self.find("busybox").ok_or_else(|| Error::Command {
            command: "busybox".into(),
            output: format!("not in {}", self.dir.display()),
        })?;
        process::output(Command::new(busybox).arg("xzcat").arg(file))
    }

    /// The kernel image and the folder of its modules.
    pub(crate) fn kernel(&self) -> Result<(PathBuf, PathBuf)> {
        let first = |dir: PathBuf, prefix: &str| {
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            let mut names: Vec<_> = entries.map(|e| e.file_name()).collect();
            names.sort();
            let name = names
                .into_iter()
                .find(|n| n.to_string_lossy().starts_with(prefix));
            name.map(|n| dir.join(n)).ok_or_else(|| Error::Command {
                command: format!("find a kernel in {}", dir.display()),
                output: "there is none; remove the folder and try again".into(),
            })
        };
        Ok((
            first(self.dir.join("boot"), "vmlinuz-")?,
            first(self.dir.join("usr/lib/modules"), "")?,
        ))
    }
}

fn build(scratch: &Path, apt_dir: &Path, packages: &[&str]) -> Result<()> {
    let apt = Apt::open(apt_dir)?;
    let archives = apt.download(packages)?;
    let start = Instant::now();
    fs::create_dir_all(scratch).map_err(Error::io(format!("create {}", scratch.display())))?;
    let mut manifest = String::new();
    for archive in &archives {
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        unpack(archive, scratch, name.starts_with("linux-image-"))?;
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
fn unpack(archive: &Path, into: &Path, kernel: bool) -> Result<()> {
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
        // checked by whoever uses it.
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
