//! What this daemon will still need of its host, so that it can give up the rest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use jail::{Layers, Mode};
use jail::{Plan, Role};

use crate::config::{HostConfig, NicConfig, SocketSpec, Step, SwitchConfig};
use crate::error::Error;
use crate::limits;
use crate::report::Section;
use crate::spec::PortSpec;

/// The test's word for a system call to leave out; it can only take away.
const WITHOUT: &str = "HYPERNIC_SANDBOX_WITHOUT";

/// Confines this process, and has a fault of any of its threads end it. To be called once, before any other thread runs.
///
/// # Errors
/// What a strict sandbox needs is not to be had.
pub fn enter(config: &HostConfig) -> Result<Layers, Error> {
    let plan = plan(config);
    if !plan.network && plan.mode != Mode::Off && has_networks(config) {
        let message = "a user network is configured, and sandbox-network = false forbids it; remove one of the two";
        return Err(Error::Host(message.into()));
    }
    let layers = jail::enter(plan).map_err(|why| Error::Host(format!("sandbox: {why}")))?;
    jail::end_on_faults(keeper::note_fault);
    Ok(layers)
}

/// Confines a program beside the daemon, which listens already and will only ask the daemon. `unix`: a socket that it
/// removes in the end. To be called once, before any other thread runs.
///
/// # Errors
/// What a strict sandbox needs is not to be had.
pub(crate) fn enter_beside(mode: Mode, unix: Option<&Path>) -> Result<(), Error> {
    let plan = Plan {
        mode,
        folders: unix.map(folder).into_iter().collect(),
        without: std::env::var(WITHOUT).ok(),
        ..Plan::default()
    };
    let entered = jail::enter(plan);
    entered.map_err(|why| Error::Host(format!("sandbox: {why}")))?;
    Ok(())
}

/// All ports of a host.
fn ports(config: &HostConfig) -> impl Iterator<Item = &PortSpec> {
    let of_switches = config.switches.iter().flat_map(|switch| &switch.ports);
    let of_chips = config.chips.iter().map(|chip| &chip.port);
    let of_nics = config.nics.iter().map(|nic| &nic.port);
    of_switches.chain(of_chips).chain(of_nics)
}

fn plan(config: &HostConfig) -> Plan {
    limits::hold(asked_for(config))
}

/// To be called in a keeper, before there is a worker: what others are held to that this configuration asks for.
pub fn limit(config: &HostConfig) {
    let is_cell = config.own_cell().is_some();
    limits::begin(is_cell, &asked_for(config), &served_by(config));
}

/// What the configuration asks for.
fn asked_for(config: &HostConfig) -> Plan {
    let ports = || ports(config);
    let live = config.control.is_some();
    let mut folders: BTreeSet<PathBuf> = config.sandbox.paths.iter().cloned().collect();
    let files = config.nics.iter().flat_map(files_of_nic);
    let files = files.chain(ports().filter_map(file_of_port));
    folders.extend(files.chain(config.control.as_deref()).map(folder));
    // The file may be read again, and calls may write it.
    let own = config.file.iter().flat_map(|file| {
        let whole = file.canonicalize().ok();
        [Some(folder(file)), whole.map(|file| folder(&file))]
    });
    let own: Vec<PathBuf> = own.flatten().collect();
    if config.persist {
        folders.extend(own.iter().cloned());
    }
    // A worker asks whether a VMM lives, a closer what a descriptor is.
    let mut readable = vec![PathBuf::from("/proc")];
    readable.extend(own);
    if live {
        // The users and groups that a file names.
        readable.extend(["/etc/passwd", "/etc/group"].map(PathBuf::from));
    }
    let by_name = |port: &PortSpec| matches!(port, PortSpec::Tap(_) | PortSpec::TapQueues(..));
    let taps = live || ports().any(by_name);
    Plan {
        mode: config.sandbox.mode,
        folders: folders.into_iter().collect(),
        readable,
        devices: taps.then(|| "/dev/net/tun".into()).into_iter().collect(),
        network: may_have_networks(config),
        taps,
        without: std::env::var(WITHOUT).ok(),
        role: Role::Daemon,
    }
}

/// Whether there are user networks.
pub(crate) fn has_networks(config: &HostConfig) -> bool {
    ports(config).any(is_network)
}

/// Whether there are user networks, or may be some later.
fn may_have_networks(config: &HostConfig) -> bool {
    let live = config.control.is_some();
    (config.sandbox.network).unwrap_or_else(|| live || has_networks(config))
}

/// What processes of user networks are given, if there may be some: how much is asked for, and the folders of `tftp=`
/// that there are and that later ones may name.
pub(crate) fn networks(config: &HostConfig) -> Option<(Mode, Vec<PathBuf>)> {
    let plan = plan(config);
    let mode = plan.mode;
    let wanted = plan.network || mode == Mode::Off && has_networks(config);
    wanted.then(|| {
        let served = limits::served(served_by(config));
        (mode, served.into_iter().chain(plan.folders).collect())
    })
}

/// The folders of `tftp=`.
fn served_by(config: &HostConfig) -> Vec<PathBuf> {
    let served = ports(config).flat_map(served_folders);
    served.map(PathBuf::from).collect()
}

/// Folders that user networks may serve.
static GIVEN: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Notes which folders user networks may serve, once.
pub(crate) fn give(folders: Vec<PathBuf>) {
    let _ = GIVEN.set(folders);
}

fn given() -> &'static [PathBuf] {
    GIVEN.get().map_or(&[], Vec::as_slice)
}

/// What a process needs that starts user networks, or is one: name servers, random numbers, and the folders that it
/// serves.
pub(crate) fn plan_of_networks(role: Role, mode: Mode, served: Vec<PathBuf>) -> Plan {
    // The file is often a link, and is exchanged for another one.
    let names = Path::new("/etc/resolv.conf");
    let mut readable = vec!["/etc".into()];
    readable.extend(names.canonicalize().ok().map(|file| folder(&file)));
    // The library draws its random numbers there, and worse ones if it cannot.
    readable.push("/dev/urandom".into());
    readable.extend(served);
    Plan {
        mode,
        role,
        readable,
        network: true,
        without: std::env::var(WITHOUT).ok(),
        ..Plan::default()
    }
}

/// The folder that a file is made in.
fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    }
}

/// The files that a NIC makes.
fn files_of_nic(nic: &NicConfig) -> impl Iterator<Item = &Path> {
    let socket = match &nic.socket {
        SocketSpec::Path(path) => Some(path.as_path()),
        SocketSpec::Fd(_) => None,
    };
    socket
        .into_iter()
        .chain(nic.capture.as_deref())
        .chain(nic.eeprom.as_deref())
}

fn file_of_port(port: &PortSpec) -> Option<&Path> {
    match port {
        PortSpec::Stream(path)
        | PortSpec::StreamListen(path)
        | PortSpec::VhostUser(path, _)
        | PortSpec::VhostUserListen(path, _) => Some(path),
        _ => None,
    }
}

/// Folders that a user network serves to its guests.
fn served_folders(port: &PortSpec) -> impl Iterator<Item = &str> {
    let options = match port {
        PortSpec::User(options) => options.as_slice(),
        _ => &[],
    };
    let served = |(key, value): &'_ &(String, String)| key == "tftp" && !value.is_empty();
    options
        .iter()
        .filter(served)
        .map(|(_, value)| value.as_str())
}

fn is_network(port: &PortSpec) -> bool {
    matches!(port, PortSpec::User(_))
}

/// Whether such a NIC can be added now.
///
/// # Errors
/// The sandbox does not let it, with the cure.
pub(crate) fn permits_nic(nic: &NicConfig) -> Result<(), String> {
    files_of_nic(nic).try_for_each(jail::permits)?;
    permits_port(&nic.port)
}

/// Whether such a switch can be added now.
///
/// # Errors
/// As [`permits_nic`].
pub(crate) fn permits_switch(switch: &SwitchConfig) -> Result<(), String> {
    switch.ports.iter().try_for_each(permits_port)
}

/// Whether such a port can be opened now.
///
/// # Errors
/// As [`permits_nic`].
pub(crate) fn permits_port(port: &PortSpec) -> Result<(), String> {
    if is_network(port) {
        jail::permits_network()?;
    }
    served_folders(port)
        .map(Path::new)
        .try_for_each(|folder| jail::permits_reading(folder, given()))?;
    file_of_port(port).map_or(Ok(()), jail::permits)
}

/// Whether all that a plan adds can be added now.
///
/// # Errors
/// As [`permits_nic`].
pub(crate) fn permits_plan(plan: &crate::config::Plan) -> Result<(), String> {
    plan.steps.iter().try_for_each(|step| match step {
        Step::AddNic(nic) | Step::SetNic(nic) => permits_nic(nic),
        Step::AddSwitch(switch) => permits_switch(switch),
        Step::AddPort(_, port) => permits_port(port),
        Step::AddChip(chip) => permits_port(&chip.port),
        _ => Ok(()),
    })
}

/// The layers as counters.
pub fn counters() -> Section {
    let layers = jail::layers();
    Section {
        kind: "sandbox",
        name: layers.mode.name().into(),
        values: vec![
            ("landlock", layers.landlock.into()),
            ("seccomp", layers.seccomp.into()),
            ("no_new_privileges", layers.no_new_privileges.into()),
            ("capabilities", layers.capabilities.into()),
            ("refused_calls", jail::failed_calls()),
        ],
    }
}
