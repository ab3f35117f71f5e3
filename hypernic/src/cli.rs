//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use jail::Mode;
pub use program::LogFormat;
use registry::{MODELS, Model};

use crate::client::bug::ReportCommand;
use crate::client::capture::CaptureCommand;
use crate::client::cell::CellCommand;
use crate::client::chip::ChipCommand;
use crate::client::config::ConfigCommand;
use crate::client::inside::{FdbCommand, IrqCommand, MemCommand};
use crate::client::inspect::{DumpCommand, InspectCommand};
use crate::client::metrics::MetricsCommand;
use crate::client::migrate::MigrateCommand;
use crate::client::monitor::MonitorCommand;
use crate::client::nic::{ListCommand, NicCommand};
use crate::client::port::PortCommand;
use crate::client::switch::SwitchCommand;
use crate::client::trace::TraceCommand;
use crate::client::upgrade::UpgradeCommand;
use crate::config::{
    CAPTURE_MIB, Cable, DEFAULT_AGEING, DEFAULT_BUSY_POLL, DEFAULT_CAPTURE_MIB, HostConfig,
    LinkLocal, MAX_BUSY_POLL, MAX_WORKERS, NicConfig, Said, SocketSpec, SwitchConfig, Virtio,
    retired,
};
use crate::error::Error;
use crate::explain::ExplainCommand;
use crate::exporter::ExporterCommand;
use crate::extcap::ExtcapCommand;
use crate::guard::{Guard, GuardArgs};
use crate::help::HelpCommand;
use crate::spec::{Doorbell, Moderation, NicMac, PortSpec, Transport};
use crate::top::TopCommand;
use crate::top::perf::PerfCommand;
use crate::transport::{Options, fits, hint};
use crate::vf::VfCommand;
use crate::web::WebCommand;

/// Real NICs for virtual machines, served over vfio-user or vhost-user.
#[derive(Debug, Parser)]
#[command(name = "hypernic", version, about, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// How to write log lines and counters.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human)]
    pub log_format: LogFormat,
    /// Log more (-v: debug, -vv: trace).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Programs of their own, found as hypernic-NAME beside hypernic or on PATH:\n  \
pkt-gen  Generate and check packets through NICs, as a guest would\n\n\
Exit codes: 0 ended by SIGINT or SIGTERM, everything closed; 1 an unexpected failure; \
2 a mistake on the command line; 3 a mistake in the configuration file; 4 the host refused something \
(socket in use, TAP, permission, file, no daemon to ask).\n\
Signals: SIGUSR1 prints all counters (hypernic explain NAME says what one means); SIGHUP has serve read \
its file again; SIGINT and SIGTERM end cleanly and print them too.";

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve one NIC, or a few alike, described on the command line.
    Run(Box<Run>),
    /// Serve the NICs and switches of a TOML file.
    Serve {
        /// The file.
        file: PathBuf,
        /// Check the file and print what it makes; start nothing.
        #[arg(long)]
        check: bool,
        /// Whether there is a keeper.
        #[command(flatten)]
        keeper: KeeperArgs,
        /// What the daemon gives up once it runs: as the file's word `sandbox`, which it replaces.
        #[arg(long, value_name = "MODE", value_parser = str::parse::<Mode>)]
        sandbox: Option<Mode>,
        /// Serve what the file gives to this cell. The keeper of the main one says so.
        #[arg(long, hide = true, conflicts_with = "check")]
        cell: Option<String>,
    },
    /// Add NICs to a running daemon, remove and list them.
    Nic(NicCommand),
    /// Add chips with virtual functions to a running daemon, change, remove and list them.
    Chip(Box<ChipCommand>),
    /// Add switches to a running daemon, remove and list them.
    Switch(SwitchCommand),
    /// List the processes that serve NICs.
    Cell(CellCommand),
    /// Open ports on the switches of a running daemon, close and list them.
    Port(PortCommand),
    /// Print what runs as a configuration file, and have a running daemon be what a file says.
    Config(ConfigCommand),
    /// Move a NIC from one running daemon to another: prepare, then commit or abort.
    Migrate(Box<MigrateCommand>),
    /// Have a running daemon become another program, or the same anew, while guests use its NICs.
    Upgrade(UpgradeCommand),
    /// Print the counters of a running daemon, as Prometheus reads them.
    Metrics(MetricsCommand),
    /// Serve the counters of a running daemon over HTTP, for Prometheus.
    Exporter(ExporterCommand),
    /// Serve a page that shows the NICs, switches and ports of a running daemon to a browser on this host.
    Web(Box<WebCommand>),
    /// Show what NICs, workers and switches of a running daemon do now.
    Top(TopCommand),
    /// Capture what passes a NIC of a running daemon, as pcapng.
    Capture(CaptureCommand),
    /// Answer Wireshark, which runs this as hypernic-extcap from its extcap folder.
    Extcap(ExtcapCommand),
    /// Show where switches have seen which address.
    Fdb(FdbCommand),
    /// Show what became of NICs' interrupts.
    Irq(IrqCommand),
    /// Show the guests' memory that NICs reach.
    Mem(MemCommand),
    /// Show where the time of workers goes.
    Perf(PerfCommand),
    /// Tell what would become of a frame, without effect.
    Trace(TraceCommand),
    /// Write what a report of a bug needs to a file.
    Report(ReportCommand),
    /// List the NICs of a running daemon.
    List(ListCommand),
    /// Tell what changes in a running daemon, until it is interrupted.
    Monitor(MonitorCommand),
    /// Look at the registers of a NIC of a running daemon, without effect.
    Inspect(InspectCommand),
    /// Write the registers of a NIC to a file, as the kernel's driver gives them to ethtool -d.
    Dump(DumpCommand),
    /// Show and change the virtual functions of a running daemon.
    Vf(VfCommand),
    /// Explain a counter: what it means, why it rises, what to do.
    Explain(ExplainCommand),
    /// Print a page of the manual, or what a command or a word of the configuration file does.
    Help(HelpCommand),
    /// A program of its own: `hypernic NAME` runs `hypernic-NAME`.
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

/// What is to be done.
pub enum Job {
    /// To serve a host, or only to check it.
    Serve(Box<HostConfig>, bool),
    /// Anything else.
    Other(Command),
}

/// Whether there is a keeper, for `serve` and `run`.
#[derive(Clone, Copy, Debug, Args)]
pub struct KeeperArgs {
    /// Serve in a child process, which is started again when it dies: so it is unless the file says otherwise.
    #[arg(long, overrides_with = "no_keeper")]
    keeper: bool,
    /// Serve in the process itself, such as for a debugger: guests lose their NICs when it dies.
    #[arg(long, overrides_with = "keeper")]
    no_keeper: bool,
}

impl KeeperArgs {
    /// What the command line says of it, if anything.
    fn said(self) -> Option<bool> {
        match (self.keeper, self.no_keeper) {
            (false, false) => None,
            (keeper, _) => Some(keeper),
        }
    }
}

impl Command {
    /// Reads what is to be served. It is read once: a worker that is started again serves the same.
    ///
    /// # Errors
    /// A mistake on the command line or in the file.
    pub fn into_job(self) -> Result<Job, Error> {
        match self {
            Command::Run(run) if !run.print_capabilities => {
                Ok(Job::Serve(Box::new(run.into_config()?), false))
            }
            Command::Serve {
                file,
                check,
                keeper,
                sandbox,
                cell,
            } => {
                let host = match HostConfig::load(&file) {
                    Ok(host) => host,
                    // What ran goes on, whatever the file says by now.
                    Err(error) if keeper::goes_on() => HostConfig::that_ran(&file, &error),
                    Err(error) => return Err(error),
                };
                let mut host = host.with_said(Said {
                    keeper: keeper.said(),
                    sandbox,
                    cell,
                });
                if !host.keeper && !host.cell_names().is_empty() {
                    let why =
                        "the file has cells, and the keeper starts cells: leave out --no-keeper";
                    return Err(Error::Usage(why.into()));
                }
                if host.own_cell().is_some() {
                    // It was given a copy of what the file says.
                    (host.file, host.keeper) = (None, true);
                }
                Ok(Job::Serve(Box::new(host), check))
            }
            other => Ok(Job::Other(other)),
        }
    }
}

/// The name under which the program is a back end of the kind that QEMU's documents describe: `--socket-path`, `--fd`
/// and `--print-capabilities`, and no more is needed.
const BACK_END: &str = "hypernic-vhost-user-net";

/// The name under which Wireshark runs the program.
const EXTCAP: &str = "hypernic-extcap";

/// What a back end of that kind prints when it is asked what it can do.
pub const CAPABILITIES: &str = "{\"type\": \"net\"}\n";

/// The words of a command line, with those that the program's name stands for.
pub fn words(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.into_iter().collect();
    let name = words.first().map(PathBuf::from);
    let name = name.as_deref().and_then(std::path::Path::file_name);
    if name == Some(EXTCAP.as_ref()) {
        words.splice(1..1, ["extcap".into()]);
        return words;
    }
    if name != Some(BACK_END.as_ref()) {
        return words;
    }
    let has = |word: &str| {
        let long = format!("{word}=");
        let is = |w: &OsString| *w == *word || w.to_string_lossy().starts_with(&long);
        words.iter().any(is)
    };
    let stands_for: &[&str] = match (has("--print-capabilities"), has("--port")) {
        (true, _) => {
            return ["hypernic", "run", "--print-capabilities"]
                .map(Into::into)
                .into();
        }
        (false, true) => &["run", "--model=virtio-net", "--transport=vhost-user"],
        (false, false) => &[
            "run",
            "--model=virtio-net",
            "--transport=vhost-user",
            "--port=user",
        ],
    };
    words.splice(1..1, stands_for.iter().map(Into::into));
    words
}

/// `hypernic run`.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// Which chip.
    #[arg(long, default_value = MODELS.default_model().name, value_parser = |word: &str| MODELS.parse(word),
          help = format!("Which chip: {}", MODELS.remarks()))]
    pub model: &'static Model,
    /// How a VMM has the NIC: as a PCI function (vfio-user), or the rings of a virtio-net, whose registers the VMM
    /// has (vhost-user).
    #[arg(long, value_name = "PROTOCOL", default_value_t, value_parser = str::parse::<Transport>)]
    pub transport: Transport,
    /// Print what the vhost-user back end can do, as JSON, and end.
    #[arg(long, exclusive = true)]
    pub print_capabilities: bool,
    /// Unix socket for the VMM. Repeat the option for several NICs on one switch.
    #[arg(long, value_name = "PATH", required_unless_present = "fd")]
    pub socket_path: Vec<PathBuf>,
    /// Inherited socket (listening or connected) instead of a path.
    #[arg(long, value_name = "N")]
    pub fd: Vec<i32>,
    /// MAC address, in the order of the sockets. By default it is made from the socket's path.
    #[arg(long, value_parser = str::parse::<NicMac>)]
    pub mac: Vec<NicMac>,
    /// Where frames go: user[:OPTIONS], tap:NAME[,queues=N], tap:fd=N, switch:NAME,
    /// stream:PATH, stream:listen=PATH, stream:fd=N, vhost-user:PATH[,pairs=N], vhost-user:listen=PATH[,pairs=N],
    /// null, loopback.
    /// A switch joins several ports or several NICs.
    #[arg(long, required = true, value_parser = str::parse::<PortSpec>)]
    pub port: Vec<PortSpec>,
    /// Record all frames of the first NIC in this pcapng file.
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// MiB of the capture file, at which it becomes FILE.1 and a new one begins.
    #[arg(long, value_name = "MIB", requires = "capture", default_value_t = DEFAULT_CAPTURE_MIB,
          value_parser = clap::value_parser!(u64).range(CAPTURE_MIB))]
    pub capture_mib: u64,
    /// Microseconds that a worker may stay awake for a NIC's next register access; 0: never.
    #[arg(long, value_name = "US", default_value_t = DEFAULT_BUSY_POLL.as_micros() as u64,
          value_parser = clap::value_parser!(u64).range(..=MAX_BUSY_POLL.as_micros() as u64))]
    pub busy_poll_us: u64,
    /// Threads that serve the NICs, 1 to 64. Default: one per processor, at most 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_WORKERS as u64))]
    pub workers: Option<u64>,
    /// When a NIC interrupts its guest: as the driver sets it (guest), at most N times a second (fixed:N),
    /// or no more often than pays off, and at once where that matters (adaptive). Default: adaptive;
    /// guest for an 82576, whose drivers adapt by themselves.
    #[arg(long, value_name = "MODE", value_parser = str::parse::<Moderation>)]
    pub moderation: Option<Moderation>,
    /// File that keeps the EEPROM across restarts, in the order of the sockets. Its contents win over
    /// other options, the MAC address included. A missing file is created.
    #[arg(long, value_name = "FILE")]
    pub eeprom: Vec<PathBuf>,
    /// The link partner offers pause frames.
    #[arg(long)]
    pub pause: bool,
    /// Receive throttling, for a guest with one processor that receives more than it can read: while it
    /// sends nothing, it gets 92 frames at a time, and time for its programs in between.
    #[arg(long)]
    pub receive_throttling: bool,
    /// The word of 0.1 for `receive-throttling`.
    #[arg(long, hide = true)]
    portions: bool,
    /// Offer a Communication Status Block (subsystem id 1101h) to drivers that know it: tails, heads and
    /// interrupt requests go through shared memory instead of register accesses.
    #[arg(long)]
    pub csb: bool,
    /// Pairs of queues of a virtio-net, for a guest with as many processors.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub queue_pairs: u16,
    /// A virtio-net offers no packed rings.
    #[arg(long)]
    pub split_rings: bool,
    /// MTU that a virtio-net tells its driver, 68 to 65535.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    pub mtu: Option<u16>,
    /// A virtio-net stands in for another NIC of the guest with the same address.
    #[arg(long)]
    pub standby: bool,
    /// A virtio-net tells its driver the hash of each frame's flow.
    #[arg(long)]
    pub hash_report: bool,
    /// How the guest tells a NIC that a ring has changed: by register accesses (trap), or in shared
    /// memory (page; 82576 and the 82540EM family, these for drivers without interrupts).
    #[arg(long, value_name = "HOW", default_value_t, value_parser = str::parse::<Doorbell>)]
    pub doorbell: Doorbell,
    /// Lock each NIC to its MAC address: it sends from no other, and no other port sends from it.
    #[arg(long)]
    pub mac_lock: bool,
    /// Whether there is a keeper.
    #[command(flatten)]
    pub keeper: KeeperArgs,
    /// What the daemon gives up once it runs (files, system calls, capabilities): all that the kernel can take
    /// (default), no less than all (strict), nothing but have the kernel log forbidden system calls (log), nothing
    /// (off).
    #[arg(long, value_name = "MODE", default_value_t, value_parser = str::parse::<Mode>)]
    pub sandbox: Mode,
    /// Limits on what each NIC may do on its switch.
    #[command(flatten)]
    pub guard: GuardArgs,
}

impl Run {
    /// The host these words describe.
    ///
    /// # Errors
    /// [`Error::Usage`] where they contradict each other.
    pub fn into_config(self) -> Result<HostConfig, Error> {
        let by_path = self.socket_path.into_iter().map(SocketSpec::Path);
        let sockets: Vec<_> = by_path
            .chain(self.fd.into_iter().map(SocketSpec::Fd))
            .collect();
        all_differ("socket", &sockets)?;
        at_most_one_each("--mac", self.mac.len(), sockets.len())?;
        at_most_one_each("--eeprom", self.eeprom.len(), sockets.len())?;
        all_differ("--eeprom", &self.eeprom)?;
        let options = Options {
            doorbell: self.doorbell,
            eeprom: !self.eeprom.is_empty(),
            csb: self.csb,
        };
        fits(self.transport, self.model, MODELS, &options).map_err(Error::Usage)?;
        let (switch_name, mut ports) = switch_and_ports(self.port)?;
        let mut host = HostConfig {
            keeper: self.keeper.said().unwrap_or(true),
            ..HostConfig::default()
        };
        if let Some(workers) = self.workers {
            host.workers = workers as usize;
        }
        host.sandbox.mode = self.sandbox;
        if self.portions {
            host.hints
                .push(retired("--portions", "--receive-throttling"));
        }
        let all = "all NICs";
        host.hints.extend(hint(all, self.model, self.doorbell));
        let guard = self.guard.into_guard();
        // Guards are the switch's: with any, even one NIC on one port has a switch between.
        let alone = sockets.len() == 1 && ports.len() == 1 && guard == Guard::default();
        let port = if switch_name.is_none() && alone {
            ports.remove(0)
        } else {
            let name = switch_name.unwrap_or_else(|| "switch0".into());
            let switch = SwitchConfig {
                name: name.clone(),
                ports,
                ageing: DEFAULT_AGEING,
                uplink_guard: Guard::default(),
                link_local: LinkLocal::Drop,
            };
            host.switches.push(switch);
            PortSpec::Switch(name)
        };
        let mut macs = self.mac.into_iter();
        let mut capture = self.capture;
        let mut eeproms = self.eeprom.into_iter();
        for (i, socket) in sockets.into_iter().enumerate() {
            let mac = macs.next().unwrap_or_else(|| match &socket {
                SocketSpec::Path(path) => NicMac::from_name(&path.to_string_lossy()),
                SocketSpec::Fd(fd) => NicMac::from_name(&format!("fd{fd}")),
            });
            if let Some(other) = host.nics.iter().find(|n| n.mac == mac) {
                return Err(Error::Usage(format!(
                    "{} has the MAC {mac} too; give each NIC its own --mac",
                    other.name
                )));
            }
            host.nics.push(NicConfig {
                name: format!("n{i}"),
                tenant: format!("n{i}"),
                cell: None,
                stays: false,
                model: self.model,
                revision: None,
                transport: self.transport,
                socket,
                mac,
                port: port.clone(),
                capture: capture.take(),
                capture_mib: self.capture_mib,
                busy_poll: Duration::from_micros(self.busy_poll_us),
                moderation: self.moderation.unwrap_or(self.model.moderation.into()),
                eeprom: eeproms.next(),
                pause: self.pause,
                receive_throttling: self.receive_throttling || self.portions,
                csb: self.csb,
                queue_pairs: self.queue_pairs,
                virtio: Virtio {
                    split_rings: self.split_rings,
                    mtu: self.mtu,
                    standby: self.standby,
                    hash_report: self.hash_report,
                },
                doorbell: self.doorbell,
                mac_lock: self.mac_lock,
                back_pressure: true,
                cable: Cable::Up,
                guard: guard.clone(),
                vf: None,
                rules: None,
                pf_places_vf_rings: false,
            });
        }
        Ok(host)
    }
}

/// Refuses a word that has one value twice.
fn all_differ<T: PartialEq>(word: &str, values: &[T]) -> Result<(), Error> {
    for (i, value) in values.iter().enumerate() {
        if values[..i].contains(value) {
            let message = format!("the same {word} appears twice; each NIC needs its own");
            return Err(Error::Usage(message));
        }
    }
    Ok(())
}

/// Refuses more values of an option than there are NICs.
fn at_most_one_each(option: &str, values: usize, nics: usize) -> Result<(), Error> {
    if values > nics {
        let message = format!("{values} {option} for {nics} NIC(s); give at most one per socket");
        return Err(Error::Usage(message));
    }
    Ok(())
}

/// The switch that `--port` names, if it names one, and the ports.
fn switch_and_ports(words: Vec<PortSpec>) -> Result<(Option<String>, Vec<PortSpec>), Error> {
    let mut switch = None;
    let mut ports = Vec::new();
    for word in words {
        match word {
            PortSpec::Switch(name) if switch.is_none() => switch = Some(name),
            PortSpec::Switch(_) => {
                return Err(Error::Usage(
                    "--port switch:… appears twice; a NIC has one switch".into(),
                ));
            }
            port => ports.push(port),
        }
    }
    Ok((switch, ports))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(words: &str) -> Result<HostConfig, Error> {
        let cli = Cli::try_parse_from(format!("hypernic run {words}").split_whitespace())
            .unwrap_or_else(|e| panic!("{e}"));
        match cli.command {
            Command::Run(run) => run.into_config(),
            _ => unreachable!("run was given"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn under_a_name_of_its_own_it_is_a_back_end_as_qemu_describes_them() {
        let words = |given: &str| {
            let given = given.split(' ').map(OsString::from);
            let words = super::words(given);
            Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"))
        };
        let run = |given: &str| match words(given).command {
            Command::Run(run) => run,
            _ => unreachable!("run was meant"),
        };
        let name = "/usr/libexec/hypernic-vhost-user-net";
        assert!(run(&format!("{name} --print-capabilities")).print_capabilities);
        assert!(run("hypernic run --print-capabilities").print_capabilities);
        for (more, socket) in [
            ("--socket-path=/run/a", SocketSpec::Path("/run/a".into())),
            ("--fd=3 --port=null", SocketSpec::Fd(3)),
        ] {
            let run = run(&format!("{name} {more}"));
            assert!(!run.print_capabilities);
            let host = run.into_config().expect("good");
            let nic = &host.nics[0];
            assert_eq!(
                (nic.model.name, nic.transport),
                ("virtio-net", Transport::VhostUser)
            );
            assert_eq!(nic.socket, socket);
            let null = more.ends_with("null");
            assert_eq!(nic.port == PortSpec::Null, null);
        }
        let usual = super::words(["hypernic", "run"].map(OsString::from));
        assert_eq!(usual, ["hypernic", "run"]);
        let said: serde_json::Value = serde_json::from_str(CAPABILITIES).expect("JSON");
        assert_eq!(said["type"], "net");
    }

    #[test]
    fn one_nic_on_one_port_needs_no_switch() {
        let host = run("--model e1000 --socket-path n0.sock --port user").expect("good");
        assert!(host.switches.is_empty());
        assert_eq!(host.nics[0].port, PortSpec::User(Vec::new()));
        assert_eq!(host.nics[0].socket, SocketSpec::Path("n0.sock".into()));
    }

    #[test]
    fn more_of_anything_is_joined_by_a_switch() {
        let host = run("--socket-path a --socket-path b --port user --port tap:t0").expect("good");
        assert_eq!(host.switches.len(), 1);
        assert_eq!(host.switches[0].ports.len(), 2);
        assert_eq!(host.nics.len(), 2);
        assert_ne!(host.nics[0].mac, host.nics[1].mac);
        let host = run("--socket-path a --port switch:lan").expect("good");
        assert_eq!(host.switches[0].name, "lan");
        assert_eq!(host.nics[0].port, PortSpec::Switch("lan".into()));
    }

    #[test]
    fn guards_need_a_switch_and_so_make_one() {
        let host =
            run("--socket-path a --port tap:t0 --tx-rate 1gbit,burst=5ms --private").expect("good");
        assert_eq!(host.switches.len(), 1);
        let guard = &host.nics[0].guard;
        assert!(guard.private && guard.rx_rate.is_none());
        assert_eq!(guard.tx_rate, "1gbit,burst=5ms".parse().ok());
    }

    #[test]
    fn contradictions_are_named() {
        for (words, why) in [
            ("--socket-path a --socket-path a --port user", "same socket"),
            (
                "--socket-path a --port switch:x --port switch:y",
                "one switch",
            ),
            (
                "--socket-path a --mac 52:54:00:00:00:01 --mac 52:54:00:00:00:02 --port user",
                "at most one",
            ),
            (
                "--socket-path a --eeprom e --eeprom f --port user",
                "at most one",
            ),
            (
                "--socket-path a --socket-path b --eeprom e --eeprom e --port user",
                "same --eeprom",
            ),
            (
                "--socket-path a --socket-path b --mac 52:54:00:00:00:01 --mac 52:54:00:00:00:01 --port null",
                "its own --mac",
            ),
        ] {
            let error = run(words).expect_err(words).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
