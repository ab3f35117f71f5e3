//! KVM on any machine: QEMU translates a processor with AMD's SVM and nested paging, so a guest loads KVM and runs guests
//! itself. That is slow, and no measure of speed: what is counted in it is as on hardware.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::accel::Accel;
use crate::config::GuestConfig;
use crate::error::{Error, Result};
use crate::guest::Guest;
use crate::guest::inside::Job;
use crate::kernel::Kernel;
use crate::nested::File;
use crate::rig::Rig;

/// Asks KVM for a machine.
const TRIAL: &str =
    "echo quit | qemu-system-x86_64 -accel kvm -M none -nodefaults -display none -monitor stdio";
const MOMENT: Duration = Duration::from_secs(120);

/// A guest whose kernel has KVM, with QEMU in it, and where an inner guest's kernel and user space lie.
#[derive(Debug)]
pub struct KvmHost {
    /// The guest.
    pub guest: Guest,
}

/// What [`KvmHost::start`] puts into the guest.
#[derive(Debug, Default)]
pub struct KvmInside {
    /// `/init` of the inner guest.
    pub init: String,
    /// Modules of the inner guest.
    pub modules: Vec<&'static str>,
    /// Modules of the host beside KVM.
    pub host_modules: Vec<&'static str>,
    /// Further files of the host.
    pub files: Vec<File>,
    /// Memory of the host, in MiB.
    pub mem_mib: u32,
}

fn file(path: &str, mode: u32, from: &Path) -> Result<File> {
    let content = std::fs::read(from).map_err(Error::io(format!("read {}", from.display())))?;
    Ok((path.to_owned(), mode, content))
}

/// A program with this machine's own libraries and loader, and the words that start it: those of a guest may be older.
///
/// # Errors
/// When the program or a library cannot be read.
pub fn with_libraries(path: &Path) -> Result<(Vec<File>, String)> {
    let listed = Command::new("ldd")
        .arg(path)
        .output()
        .map_err(Error::io("run ldd"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = listed.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        let path = path.split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        format!("ours/{}", name.to_string_lossy())
    };
    let own = name(path);
    let mut files = vec![file(&own, 0o755, path)?];
    for path in paths {
        files.push(file(&name(&path), 0o755, &path)?);
    }
    let loader = files.iter().find(|(path, ..)| path.contains("/ld-linux"));
    let Some((loader, ..)) = loader else {
        return Err(Error::Command {
            command: format!("ldd {}", path.display()),
            output: format!("names no loader: {listed}"),
        });
    };
    let words = format!("/{loader} --library-path /ours /{own}");
    Ok((files, words))
}

impl KvmHost {
    /// Boots it and loads KVM.
    ///
    /// # Errors
    /// When this machine cannot run guests, or the guest has no KVM in the end.
    pub fn start(rig: &Rig, inside: KvmInside) -> Result<Self> {
        let image = rig.image(Kernel::Host)?;
        let mut own = rig.modules(Kernel::Host, &inside.modules)?;
        own.push(("init".into(), 0o755, inside.init.into()));
        let own = image.small_initramfs_with(&own)?;
        let mut modules = inside.host_modules;
        modules.push("kvm_amd");

        let mut config =
            GuestConfig::new("kvm-host")
                .kernel(Kernel::Host)
                .file("inner/initramfs", 0o644, own);
        config.files.extend(inside.files);
        config.files.extend(rig.qemu_files()?);
        config.files.extend(rig.modules(Kernel::Host, &modules)?);
        config
            .files
            .push(file("inner/vmlinux", 0o644, &image.kernel())?);
        config.accel = Some(Accel::Tcg);
        // Without nested paging an inner guest takes many minutes to boot.
        config.cpu = Some("qemu64,+svm,+npt,+nrip-save".into());
        config.smp = 2;
        config.mem_mib = inside.mem_mib.max(1280);
        config.hotplug_ports = 0;
        let host = Self {
            guest: rig.start(config)?,
        };
        host.load()?;
        Ok(host)
    }

    /// KVM is there when its module is, and not before.
    fn load(&self) -> Result<()> {
        let refused = self.guest.sh(TRIAL)?;
        let said = refused.text.contains("failed to initialize kvm");
        self.holds(
            !refused.ok() && said,
            "no KVM before its module is there",
            &refused.text,
        )?;
        self.guest.run("mp kvm_amd")?;
        self.guest.wait_for("[ -e /dev/kvm ]", MOMENT)?;
        let paging = self.guest.run("cat /sys/module/kvm_amd/parameters/npt")?;
        self.holds(paging.trim() == "Y", "KVM has nested paging", &paging)?;
        self.guest.run(TRIAL)?;
        self.guest.run("mount -t debugfs d /sys/kernel/debug")?;
        Ok(())
    }

    fn holds(&self, holds: bool, what: &str, seen: &str) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Error::Guest {
            guest: self.guest.name().to_owned(),
            what: format!("not so: {what}"),
            log: self.guest.log().to_owned(),
            tail: seen.to_owned(),
        })
    }

    /// Starts a program that writes its process id into `/run/NAME.pid`.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn spawn(&self, name: &str, command: &str) -> Result<Job> {
        let command = format!("echo $$ >/run/{name}.pid; exec {command}");
        self.guest.spawn(&command)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn signal(&self, name: &str, signal: &str) -> Result<()> {
        let command = format!("kill -{signal} $(cat /run/{name}.pid)");
        self.guest.run(&command)?;
        Ok(())
    }
}
