//! How a guest is configured.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::accel::Accel;
use crate::kernel::Kernel;
use crate::netns::Netns;
use crate::nic::Nic;
use crate::qemu::Qemu;

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
    /// Other firmware in place of the machine's. Its output is on the console, and what is typed there goes to it.
    Rom(PathBuf),
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
    /// Another QEMU than the rig's, for a machine that is no PC ([`crate::Rig::start`] only).
    pub qemu: Option<Qemu>,
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

impl GuestConfig {
    /// A guest with 256 MiB, one processor, two ports for hot-plug and no NIC, running the rig's Linux on q35.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            mem_mib: 256,
            smp: 1,
            qemu: None,
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
