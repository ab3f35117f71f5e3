//! What a configuration means for QEMU's command line.

use std::ffi::OsString;
use std::path::Path;

use crate::accel::Accel;
use crate::config::{Boot, GuestConfig};
use crate::error::{CannotRun, Error, Result};
use crate::initramfs;
use crate::rig::Rig;

/// The kernel command line: silent, without self-tests and hardware the machine does not have. It halves the
/// time a translated guest takes to boot.
pub const CMDLINE: &str = "console=ttyS0 panic=-1 quiet mitigations=off lsm= audit=0 init_on_alloc=0 rodata=off \
    tsc=reliable no_timer_check rcupdate.rcu_expedited=1 cryptomgr.notests i8042.nopnp i8042.noaux i8042.nokbd \
    nowatchdog net.ifnames=0 initcall_blacklist=jent_mod_init,load_system_certificate_list,bpf_tcp_ca_kfunc_init,\
    bpf_dummy_struct_ops_init,init_encrypted,cmos_init,bert_init";

/// How many ports for hot-plug the machine has.
pub(crate) fn ports(config: &GuestConfig) -> u8 {
    if config.machine.starts_with("q35") {
        config.hotplug_ports.min(8)
    } else {
        0
    }
}

/// QEMU's arguments for a configuration.
pub(crate) fn arguments(rig: &Rig, config: &GuestConfig, scratch: &Path) -> Result<Vec<OsString>> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    let socket = |name: &str| format!("unix:{},server=on,wait=off", scratch.join(name).display());
    let mem = config.mem_mib;
    add(&["-name", &format!("{},debug-threads=on", config.name)]);
    add(&[
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-serial",
        "stdio",
    ]);
    add(&[
        "-object",
        &format!("memory-backend-memfd,id=ram,size={mem}M,share=on"),
    ]);
    let graphics = if config.boot == Boot::Firmware && !config.machine.contains("graphics=") {
        ",graphics=off"
    } else {
        ""
    };
    add(&[
        "-machine",
        &format!("{},memory-backend=ram{graphics}", config.machine),
    ]);
    add(&["-m", &format!("{mem}M"), "-smp", &config.smp.to_string()]);
    add(&["-qmp", &socket("qmp")]);
    add(&["-action", "reboot=shutdown"]);
    if config.boot == Boot::Qtest {
        add(&[
            "-accel",
            "qtest",
            "-qtest",
            &socket("qtest"),
            "-qtest-log",
            "/dev/null",
        ]);
    } else {
        let undecided = || CannotRun::new("no accelerator was chosen for this guest");
        let accel = config.accel.ok_or_else(undecided)?;
        let default = if accel == Accel::Kvm {
            "host"
        } else {
            "qemu64"
        };
        add(&["-accel", &accel.to_string()]);
        let default = config.qemu.is_none().then_some(default);
        if let Some(cpu) = config.cpu.as_deref().or(default) {
            add(&["-cpu", cpu]);
        }
    }
    // High slots, so that NICs get the low ones that QEMU hands out first.
    for port in 0..ports(config) {
        let place = format!(
            "chassis={},slot={},addr=1c.{port},multifunction=on",
            port + 1,
            port + 1
        );
        add(&["-device", &format!("pcie-root-port,id=rp{port},{place}")]);
    }
    if let Boot::Linux { append } = &config.boot {
        args.extend(linux(rig, config, append, scratch)?);
    }
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    if let Boot::Rom(rom) = &config.boot {
        add(&["-bios", &rom.to_string_lossy()]);
    }
    if let Boot::Kernel {
        kernel,
        initrd,
        append,
    } = &config.boot
    {
        add(&["-kernel", &kernel.to_string_lossy()]);
        if let Some(initrd) = initrd {
            add(&["-initrd", &initrd.to_string_lossy()]);
        }
        if !append.is_empty() {
            add(&["-append", append]);
        }
    }
    for nic in &config.nics {
        if let Some(netdev) = nic.netdev_json() {
            add(&["-netdev", &netdev.to_string()]);
        }
        add(&["-device", &nic.device_json().to_string()]);
    }
    args.extend(config.extra_args.iter().cloned());
    Ok(args)
}

/// What boots the rig's Linux and lets it be told what to do.
fn linux(rig: &Rig, config: &GuestConfig, append: &str, scratch: &Path) -> Result<Vec<OsString>> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    add(&["-device", "virtio-serial-pci,id=rig,addr=1d"]);
    for (number, port) in [(1, "ctl"), (2, "data")] {
        let path = scratch.join(port);
        let socket = format!(
            "socket,id={port},path={},server=on,wait=off",
            path.display()
        );
        let device = format!("virtserialport,bus=rig.0,nr={number},chardev={port},name=rig.{port}");
        add(&["-chardev", &socket, "-device", &device]);
    }
    let image = rig.image(config.kernel)?;
    let initrd = if config.files.is_empty() {
        image.initramfs()
    } else {
        let path = scratch.join("initramfs.cpio");
        let mut archive =
            std::fs::read(image.initramfs()).map_err(Error::io("read the initramfs"))?;
        archive.extend_from_slice(&initramfs::overlay(&config.files));
        std::fs::write(&path, archive).map_err(Error::io(format!("write {}", path.display())))?;
        path
    };
    add(&["-kernel", &image.kernel().to_string_lossy()]);
    add(&["-initrd", &initrd.to_string_lossy()]);
    add(&["-append", format!("{CMDLINE} {append}").trim()]);
    Ok(args)
}
