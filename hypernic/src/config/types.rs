//! What a host is to be, checked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use jail::Mode;
use pf::Policy;
use registry::Model;
use serde::Deserialize;

use super::access::Access;
use super::sockets::SocketAccess;
use crate::guard::Guard;
use crate::spec::{Doorbell, Moderation, NicMac, PortSpec, Transport};

/// For whom a host's defaults are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Guests of one owner: nothing is limited that the file does not limit.
    #[default]
    SingleTenant,
    /// Guests that need not trust each other: the guards are on.
    MultiTenant,
}

/// In which cells NICs are whose words do not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellsOf {
    /// In the main one.
    One,
    /// In one for each tenant.
    Tenant,
}

/// What the daemon gives up once it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// How much is given up.
    pub mode: Mode,
    /// Folders for what is added while the daemon runs, besides those that the configuration names.
    pub paths: Vec<PathBuf>,
    /// Whether user networks may be opened. If it is not said: when there is one in the
    /// configuration, or a control socket to add one by.
    pub network: Option<bool>,
}

/// What the command line says besides the file, and in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// `--keeper` or `--no-keeper`.
    pub keeper: Option<bool>,
    /// `--sandbox MODE`.
    pub sandbox: Option<Mode>,
    /// `--cell NAME`: this process is a cell of another one.
    pub cell: Option<String>,
}

/// A whole host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Threads that serve all NICs.
    pub workers: usize,
    /// They serve in a child process, which is started again when it dies.
    pub keeper: bool,
    /// Its switches.
    pub switches: Vec<SwitchConfig>,
    /// Its chips with virtual functions.
    pub chips: Vec<ChipConfig>,
    /// Its NICs.
    pub nics: Vec<NicConfig>,
    /// For whom its defaults are.
    pub profile: Profile,
    /// In which cells NICs are that do not say it, if not as the profile has it.
    pub cells: Option<CellsOf>,
    /// Where operators reach it while it runs; nowhere without.
    pub control: Option<PathBuf>,
    /// Who may do what there, besides root and the daemon's own user.
    pub access: Access,
    /// Whom its file is opened to, if not to those who have roles.
    pub control_socket: SocketAccess,
    /// Whom the sockets of NICs are opened to.
    pub sockets: SocketAccess,
    /// What the daemon gives up once it runs.
    pub sandbox: SandboxConfig,
    /// Calls to the control socket may write into the file.
    pub persist: bool,
    /// The file it comes from, as an absolute path.
    pub file: Option<PathBuf>,
    /// What the command line says besides.
    pub said: Said,
    /// What the operator should change, though it still works: a line each.
    pub hints: Vec<String>,
}

impl NicConfig {
    /// The chip that it is a function of; none, if it is a NIC of its own.
    pub fn of_chip(&self) -> Option<&String> {
        self.vf.as_ref().map(|vf| &vf.chip).or(self.rules.as_ref())
    }
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            workers: default_workers(),
            keeper: true,
            switches: Vec::new(),
            chips: Vec::new(),
            nics: Vec::new(),
            profile: Profile::default(),
            cells: None,
            control: None,
            access: Access::default(),
            control_socket: SocketAccess::default(),
            sockets: SocketAccess::default(),
            sandbox: SandboxConfig::default(),
            persist: false,
            file: None,
            said: Said::default(),
            hints: Vec::new(),
        }
    }
}

impl HostConfig {
    /// How many tenants its NICs have.
    pub fn tenants(&self) -> usize {
        let names: BTreeSet<_> = self.nics.iter().map(|nic| &nic.tenant).collect();
        names.len()
    }

    /// The same with what the command line says.
    #[must_use]
    pub fn with_said(mut self, said: Said) -> Self {
        self.keeper = said.keeper.unwrap_or(self.keeper);
        self.sandbox.mode = said.sandbox.unwrap_or(self.sandbox.mode);
        self.said = said;
        self
    }

    /// All but its switches, chips and NICs.
    #[must_use]
    pub fn head(&self) -> Self {
        Self {
            switches: Vec::new(),
            chips: Vec::new(),
            nics: Vec::new(),
            access: self.access.clone(),
            sandbox: self.sandbox.clone(),
            control: self.control.clone(),
            file: self.file.clone(),
            said: self.said.clone(),
            hints: Vec::new(),
            ..*self
        }
    }
}

/// As many workers as there are processors, at most four: one carries thousands of NICs, and
/// guests need processors too.
pub fn default_workers() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(4)
}

/// The most workers that may be asked for.
pub const MAX_WORKERS: usize = 64;

/// What becomes of frames for 01-80-C2-00-00-0X.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkLocal {
    /// They go no further, as in a bridge.
    #[default]
    Drop,
    /// They flood, but for pause frames.
    Pass,
}

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Its name.
    pub name: String,
    /// Ports besides NICs: a TAP, the user network …
    pub ports: Vec<PortSpec>,
    /// How long an address is remembered.
    pub ageing: Duration,
    /// What each of `ports` may do.
    pub uplink_guard: Guard,
    /// What becomes of frames for groups that no bridge forwards (LACP, LLDP).
    pub link_local: LinkLocal,
}

/// What a virtio-net offers, or not, if it is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Virtio {
    /// It offers no packed rings.
    pub split_rings: bool,
    /// The MTU that its driver is told.
    pub mtu: Option<u16>,
    /// It stands in for another NIC with its address.
    pub standby: bool,
    /// It tells its driver the hash of each frame's flow.
    pub hash_report: bool,
}

/// One NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// Its name in logs and counters.
    pub name: String,
    /// Whose it is: NICs of one tenant share what a process has only so much of.
    pub tenant: String,
    /// The process that serves it, if that is not the main one. A function of a chip is where its chip is.
    pub cell: Option<String>,
    /// It is in the main one by its own word.
    pub stays: bool,
    /// Which chip.
    pub model: &'static Model,
    /// The model revision that a new guest sees; the newest that this program has if `None`. A guest that goes on keeps its own.
    pub revision: Option<u16>,
    /// By which protocol a VMM has it.
    pub transport: Transport,
    /// How the VMM reaches it.
    pub socket: SocketSpec,
    /// Its address.
    pub mac: NicMac,
    /// Where its frames go.
    pub port: PortSpec,
    /// A pcapng file of all its frames.
    pub capture: Option<PathBuf>,
    /// MiB of that file, at which it is moved aside and a new one begins.
    pub capture_mib: u64,
    /// How long its worker may stay awake for its next register access; zero never.
    pub busy_poll: Duration,
    /// When interrupts are raised.
    pub moderation: Moderation,
    /// A file that keeps the EEPROM over restarts; what it holds counts, its address included.
    /// Without one, nothing is written to disk.
    pub eeprom: Option<PathBuf>,
    /// The partner at the other end of the NIC's cable offers pause frames.
    pub pause: bool,
    /// Receive throttling: a guest that only receives gets 92 frames at a time, and its programs time in
    /// between.
    pub receive_throttling: bool,
    /// The NIC offers a Communication Status Block to drivers that know it.
    pub csb: bool,
    /// Pairs of queues.
    pub queue_pairs: u16,
    /// What else a virtio-net offers.
    pub virtio: Virtio,
    /// How the guest tells it that a ring has changed.
    pub doorbell: Doorbell,
    /// On a switch: frames come from `mac` and no other address, and from no other port.
    pub mac_lock: bool,
    /// On a switch: its frames wait where a receiver has no room, else they are dropped.
    pub back_pressure: bool,
    /// On a switch: what else the NIC may do there.
    pub guard: Guard,
    /// Its cable is pulled or in.
    pub cable: Cable,
    /// It is a virtual function.
    pub vf: Option<VfConfig>,
    /// It is the physical function of this chip, and rules its virtual functions.
    pub rules: Option<String>,
    /// As such it may say where the rings of its virtual functions are ([`registry::Settings`]).
    pub pf_places_vf_rings: bool,
}

/// Whether the cable of a NIC is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cable {
    /// It is in.
    #[default]
    Up,
    /// It is pulled.
    Down,
}

/// How a VMM reaches a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketSpec {
    /// A Unix socket made at this path.
    Path(PathBuf),
    /// An inherited descriptor: listening, or already connected.
    Fd(i32),
}

/// Long enough for the next register access of a driver that is at work, short enough to cost an
/// idle host nothing.
pub const DEFAULT_BUSY_POLL: Duration = Duration::from_micros(100);

/// MiB of a capture file unless said otherwise.
pub const DEFAULT_CAPTURE_MIB: u64 = 1024;

/// MiB of a capture file that may be asked for. Less would be moved aside all the time.
pub const CAPTURE_MIB: std::ops::RangeInclusive<u64> = 16..=1 << 20;

/// The longest that may be asked for: beyond it a thread would only burn a processor.
pub const MAX_BUSY_POLL: Duration = Duration::from_micros(1000);

/// IEEE 802.1D's default for the filtering database.
pub const DEFAULT_AGEING: Duration = Duration::from_secs(300);

/// Who rules the VFs of a chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PfOwner {
    /// The daemon, in place of a driver for the PF, by what is laid down here.
    #[default]
    Daemon,
    /// A guest, whose driver has the PF on a socket of its own, by registers.
    Guest,
}

/// A chip: its VFs, what joins them, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChipConfig {
    /// Its name. VF 3 of `p0` is `p0vf3`.
    pub name: String,
    /// The process that has it and all its functions, if that is not the main one.
    pub cell: Option<String>,
    /// It is in the main one by its own word.
    pub stays: bool,
    /// Where its wire leads.
    pub port: PortSpec,
    /// VFs there are.
    pub vfs: u32,
    /// Who rules them.
    pub pf: PfOwner,
    /// What the VFs share of the wire, in megabits a second, if the operator limits it.
    pub rate: Option<u32>,
    /// The sockets of VFs that have no word of their own, with `{}` for the number.
    pub vf_sockets: Option<String>,
}

/// What a NIC is as a virtual function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfConfig {
    /// The name of its chip.
    pub chip: String,
    /// Its number there.
    pub index: u32,
    /// What is laid down for it.
    pub policy: Policy,
}
