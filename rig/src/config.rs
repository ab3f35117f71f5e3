//! How a guest is configured, and what that means for QEMU's command line.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::initramfs;
use crate::kernel::Kernel;
use crate::netns::Netns;
use crate::nic::Nic;
use crate::rig::Rig;

/// How the guest's processor is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// Hardware virtualisation.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// What a guest runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// The rig's Linux; `append` is added to its command line.
    Linux {
        /// More kernel parameters.
        append: String,
    },
    /// The machine's firmware, which then boots what it finds (a NIC's option ROM). Its output is on the console.
    Firmware,
    /// U-Boot in place of the firmware, which takes commands on the console. It finds NICs outside root ports, and slot
    /// 1 is not theirs: give them an address.
    UBoot,
    /// Another kernel.
    Kernel {
        /// Anything QEMU's `-kernel` takes.
        kernel: PathBuf,
        /// Its initial RAM disk.
        initrd: Option<PathBuf>,
        /// Its command line.
        append: String,
    },
    /// Nothing: the machine is poked through [`crate::Guest::qtest`].
    Qtest,
}

/// How to start a guest. The fields may be set freely; the methods are for the common cases.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// Names the guest in messages and its log.
    pub name: String,
    /// RAM in MiB; shared memory with a descriptor, as vfio-user needs it.
    pub mem_mib: u32,
    /// Number of processors.
    pub smp: u32,
    /// QEMU's `-cpu`; by default `host` under KVM and `qemu64` under TCG (the quickest to boot).
    pub cpu: Option<String>,
    /// QEMU's machine type and options.
    pub machine: String,
    /// The accelerator, if not the rig's choice.
    pub accel: Option<Accel>,
    /// What it runs.
    pub boot: Boot,
    /// The kernel of [`Boot::Linux`].
    pub kernel: Kernel,
    /// Its NICs.
    pub nics: Vec<Nic>,
    /// More QEMU arguments.
    pub extra_args: Vec<OsString>,
    /// More files in the guest: path, permissions, content.
    pub files: Vec<(String, u32, Vec<u8>)>,
    /// PCIe root ports `rp0`, `rp1`, ... to plug NICs into (0 to 8; q35 machines only).
    pub hotplug_ports: u8,
    /// Whether a reboot restarts the guest ([`crate::Guest::reboot`]); otherwise QEMU ends.
    pub allow_reboot: bool,
    /// The namespace QEMU runs in.
    pub netns: Option<Netns>,
}

/// The kernel command line: silent, without self-tests and hardware the machine does not have. It halves the
/// time a translated guest takes to boot.
pub const CMDLINE: &str = "console=ttyS0 panic=-1 quiet mitigations=off lsm= audit=0 init_on_alloc=0 rodata=off \
    tsc=reliable no_timer_check rcupdate.rcu_expedited=1 cryptomgr.notests i8042.nopnp i8042.noaux i8042.nokbd \
    nowatchdog net.ifnames=0 initcall_blacklist=jent_mod_init,load_system_certificate_list,bpf_tcp_ca_kfunc_init,\
    bpf_dummy_struct_ops_init,init_encrypted,cmos_init,bert_init";

impl GuestConfig {
    /// A guest with 256 MiB, one processor, two ports for hot-plug and no NIC, running the rig's Linux on q35.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            mem_mib: 256,
            smp: 1,
            cpu: None,
            machine: "q35".to_owned(),
            accel: None,
            boot: Boot::Linux {
                append: String::new(),
            },
            kernel: Kernel::default(),
            nics: Vec::new(),
            extra_args: Vec::new(),
            files: Vec::new(),
            hotplug_ports: 2,
            allow_reboot: false,
            netns: None,
        }
    }

    /// Adds a NIC.
    #[must_use]
    pub fn nic(mut self, nic: Nic) -> Self {
        self.nics.push(nic);
        self
    }

    /// Adds QEMU arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, args: I) -> Self {
        self.extra_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), mode, content.into()));
        self
    }

    /// Sets what it runs.
    #[must_use]
    pub fn boot(mut self, boot: Boot) -> Self {
        self.boot = boot;
        self
    }

    /// Sets the kernel of the rig's Linux.
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = kernel;
        self
    }

    /// Runs QEMU in a namespace, where its TAPs are.
    #[must_use]
    pub fn netns(mut self, netns: &Netns) -> Self {
        self.netns = Some(netns.clone());
        self
    }
}

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
        let accel = match config.accel {
            Some(accel) => accel,
            None => rig.accel()?,
        };
        let default = if accel == Accel::Kvm {
            "host"
        } else {
            "qemu64"
        };
        let cpu = config.cpu.as_deref().unwrap_or(default);
        add(&["-accel", &accel.to_string(), "-cpu", cpu]);
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
        add(&["-device", "virtio-serial-pci,id=rig,addr=1d"]);
        for port in ["ctl", "data"] {
            let path = scratch.join(port);
            let number = if port == "ctl" { 1 } else { 2 };
            add(&[
                "-chardev",
                &format!(
                    "socket,id={port},path={},server=on,wait=off",
                    path.display()
                ),
            ]);
            add(&[
                "-device",
                &format!("virtserialport,bus=rig.0,nr={number},chardev={port},name=rig.{port}"),
            ]);
        }
        let image = rig.image(config.kernel)?;
        let initrd = if config.files.is_empty() {
            image.initramfs()
        } else {
            let path = scratch.join("initramfs.cpio");
            let mut archive =
                std::fs::read(image.initramfs()).map_err(Error::io("read the initramfs"))?;
            archive.extend_from_slice(&initramfs::overlay(&config.files));
            std::fs::write(&path, archive)
                .map_err(Error::io(format!("write {}", path.display())))?;
            path
        };
        let kernel = image.kernel();
        add(&[
            "-kernel",
            &kernel.to_string_lossy(),
            "-initrd",
            &initrd.to_string_lossy(),
        ]);
        add(&["-append", format!("{CMDLINE} {append}").trim()]);
    }
    if config.boot == Boot::UBoot {
        add(&["-bios", &rig.root().uboot().to_string_lossy()]);
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
