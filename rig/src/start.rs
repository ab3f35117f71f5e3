//! Starts guests, and decides how: with KVM if a stock kernel really boots under it, else TCG.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::accel::Accel;
use crate::cache::{content_key, say};
use crate::config::{Boot, GuestConfig};
use crate::error::{Error, Result};
use crate::guest::Guest;
use crate::rig::Rig;
use crate::snapshot;

impl Rig {
    /// Starts a guest from nothing and waits until it takes commands (unless it boots something else than the
    /// rig's Linux).
    ///
    /// # Errors
    /// When it does not come up, with the end of its console.
    pub fn start(&self, config: GuestConfig) -> Result<Guest> {
        let guest = Guest::launch(self, self.decided(config)?)?;
        guest.wait_ready()?;
        Ok(guest)
    }

    /// Starts a guest from the saved machine, in under a second: same kernel and user space as
    /// [`Rig::start`], already booted. NICs and files of the configuration are brought in afterwards, by hot-plug.
    /// The machine is booted and saved the first time for its memory, processors and extra arguments; arguments
    /// that differ from run to run would save one each time.
    ///
    /// # Errors
    /// When the machine cannot be saved, restored or plugged into.
    pub fn resume(&self, config: GuestConfig) -> Result<Guest> {
        snapshot::resume(self, self.decided(config)?)
    }

    /// Starts several guests at once.
    ///
    /// # Errors
    /// The first guest's error; the others are then ended.
    pub fn start_all(&self, configs: Vec<GuestConfig>) -> Result<Vec<Guest>> {
        thread::scope(|scope| {
            let starting: Vec<_> = configs
                .into_iter()
                .map(|config| scope.spawn(|| self.start(config)))
                .collect();
            let ended = starting.into_iter().map(|t| match t.join() {
                Ok(guest) => guest,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// The accelerator guests use by default: KVM if a stock kernel boots under it, else TCG. Decided by a trial
    /// boot the first time on a machine.
    ///
    /// # Errors
    /// When the verdict cannot be kept.
    pub fn accel(&self) -> Result<Accel> {
        if let Some(accel) = self.decided_accel().get() {
            return Ok(*accel);
        }
        let accel = choose(self)?;
        Ok(*self.decided_accel().get_or_init(|| accel))
    }

    /// The configuration with an accelerator, where what it boots needs one.
    fn decided(&self, mut config: GuestConfig) -> Result<GuestConfig> {
        if config.qemu.is_some() {
            config.accel.get_or_insert(Accel::Tcg);
        }
        if config.accel.is_none() && config.boot != Boot::Qtest {
            config.accel = Some(self.accel()?);
        }
        Ok(config)
    }
}

/// Whether stock kernels boot under KVM here, found by booting one; the verdict is kept per kernel, QEMU,
/// machine and permission. `HYPERNIC_ACCEL=kvm|tcg` overrides it.
fn choose(rig: &Rig) -> Result<Accel> {
    match std::env::var("HYPERNIC_ACCEL").as_deref() {
        Ok("kvm") => return Ok(Accel::Kvm),
        Ok("tcg") => return Ok(Accel::Tcg),
        _ => {}
    }
    let node = Path::new("/dev/kvm");
    let mut options = std::fs::OpenOptions::new();
    if options.read(true).write(true).open(node).is_err() {
        return Ok(Accel::Tcg);
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let cpu: Vec<&str> = cpu
        .lines()
        .filter(|l| l.starts_with("model name") || l.starts_with("flags"))
        .take(2)
        .collect();
    let kernel = rig.root().kernel()?.image;
    let key = content_key([
        kernel.file_name().unwrap_or_default().as_encoded_bytes(),
        rig.qemu().version().as_bytes(),
        read("/proc/version").as_bytes(),
        cpu.join("\n").as_bytes(),
    ]);
    let path = rig.cache().once(&format!("accel-{key}"), |scratch| {
        say("trying whether KVM boots a stock kernel here");
        let verdict = match kvm_boots(rig) {
            Ok(()) => "kvm",
            Err(_) => "tcg",
        };
        say(&format!("guests use {verdict}"));
        std::fs::write(scratch, verdict).map_err(Error::io("write the accelerator's verdict"))
    })?;
    let verdict =
        std::fs::read_to_string(&path).map_err(Error::io("read the accelerator's verdict"))?;
    Ok(if verdict == "kvm" {
        Accel::Kvm
    } else {
        Accel::Tcg
    })
}

fn kvm_boots(rig: &Rig) -> Result<()> {
    let mut config = GuestConfig::new("kvm-trial");
    config.accel = Some(Accel::Kvm);
    config.boot = Boot::Linux {
        append: "loglevel=7 ignore_loglevel".into(),
    };
    let guest = Guest::launch(rig, config)?;
    guest.expect_console("Linux version", Duration::from_secs(5))?;
    guest.expect_console("RIG-UP", Duration::from_secs(20))?;
    Ok(())
}
