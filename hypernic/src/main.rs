//! The `hypernic` command.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use hypernic::cli::{self, CAPABILITIES, Cli, Command, Job, LogFormat};
use hypernic::config::HostConfig;
use hypernic::control::{Server, reload};
use hypernic::error::Error;
use hypernic::host::Host;
use hypernic::left::AllLeft;
use hypernic::notify::Manager;
use hypernic::report::Section;
use hypernic::sandbox::Layers;
use hypernic::{
    cells, complete, external, fds, hints, learned, report, sandbox, store, timeline, upgrade,
    user_networks,
};
use parking_lot::RwLock;
use program::log;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Says to the keeper when there is no memory.
#[global_allocator]
static ALLOCATOR: keeper::Allocator = keeper::Allocator;

fn main() -> ExitCode {
    if user_networks::is_asked() {
        return user_networks::run();
    }
    complete::answer(Cli::command);
    upgrade::remember_program();
    let cli = Cli::parse_from(cli::words(std::env::args_os()));
    let (format, verbose) = (cli.log_format, cli.verbose);
    let mut job = cli.command.into_job();
    // Before there is any other thread, that of the log included.
    if let Ok(Job::Serve(config, false)) = &job
        // What became this program from one with a keeper has one.
        && (config.keeper || keeper::goes_on())
    {
        if config.own_cell().is_some()
            && let Err(error) = cells::become_one()
        {
            eprintln!("hypernic: cannot be a cell: {error}");
            return ExitCode::FAILURE;
        }
        sandbox::limit(config);
        match keeper::start(keeper_options(config)) {
            Ok(keeper::Role::Worker) => {}
            Ok(keeper::Role::Over(code)) => return ExitCode::from(code as u8),
            Err(error) => {
                eprintln!("hypernic: cannot make a keeper: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let left = match &mut job {
        Ok(Job::Serve(config, false)) => upgrade::arrive(config),
        _ => AllLeft::default(),
    };
    fds::remember_keeper();
    // Its file is made before, too.
    if let Err(error) = timeline::begin() {
        eprintln!(
            "hypernic: cannot make the file of {}: {error}",
            timeline::FILE
        );
    }
    // A sandbox would let it reach some of these sockets and not others.
    let manager = match &job {
        // Of a cell it knows nothing.
        Ok(Job::Serve(config, false)) if config.own_cell().is_none() => {
            store::open();
            Manager::of_environment()
        }
        _ => Manager::default(),
    };
    // Before the thread that writes the log, too: what confines a thread binds those that it starts.
    let layers = match &mut job {
        // What it will ask others for has to be there before.
        Ok(Job::Serve(config, false)) => {
            user_networks::start(config).and_then(|()| sandbox::enter(config).map(Some))
        }
        Ok(Job::Other(Command::Exporter(exporter))) => exporter.settle().map(|()| None),
        Ok(Job::Other(Command::Web(web))) => web.settle().map(|()| None),
        _ => Ok(None),
    };
    let _log = log::start(format, verbose);
    match job.and_then(|job| execute(job, layers?.as_ref(), &manager, left, format, verbose)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

/// A test that kills workers in quick succession says that short lives are as good as long ones.
fn keeper_options(config: &HostConfig) -> keeper::Options {
    let is_cell = config.own_cell().is_some();
    let mut options = keeper::Options {
        cells: (!is_cell).then_some(cells::command as keeper::Start),
        may_become: upgrade::may_become,
        successor: if is_cell { |_| () } else { upgrade::introduce },
        is_cell,
        ..keeper::Options::default()
    };
    let life = std::env::var("HYPERNIC_TEST_LIFE_MS").ok();
    if let Some(life) = life.and_then(|life| life.parse().ok()) {
        options.life = std::time::Duration::from_millis(life);
    }
    options
}

/// Does it. What is served was confined by these layers; what is only checked, by none.
fn execute(
    job: Job,
    layers: Option<&Layers>,
    manager: &Manager,
    left: AllLeft,
    format: LogFormat,
    verbose: u8,
) -> Result<(), Error> {
    let command = match (job, layers) {
        (Job::Serve(config, _), Some(layers)) => {
            return serve(&config, layers, manager, left, format);
        }
        (Job::Serve(config, _), None) => {
            config
                .hints
                .iter()
                .for_each(|hint| tracing::warn!("{hint}"));
            print(hints::banner(&config));
            return Ok(());
        }
        (Job::Other(command), _) => command,
    };
    match command {
        // With --print-capabilities; all others are served.
        Command::Run(_) => print(CAPABILITIES.to_owned()),
        Command::Serve { .. } => {}
        Command::External(words) => return Err(external::run(&words, format, verbose)),
        Command::Nic(nic) => print(nic.execute(format)?),
        Command::Chip(chip) => print(chip.execute(format)?),
        Command::Switch(switch) => print(switch.execute(format)?),
        Command::Cell(cell) => print(cell.execute(format)?),
        Command::Port(port) => print(port.execute(format)?),
        Command::Config(config) => print(config.execute(format)?),
        Command::Migrate(migrate) => print(migrate.execute(format)?),
        Command::Upgrade(upgrade) => print(upgrade.execute(format)?),
        Command::Metrics(metrics) => print(metrics.execute()?),
        Command::Exporter(exporter) => exporter.execute(&mut print)?,
        Command::Web(web) => web.execute(&mut print)?,
        Command::Top(top) => top.execute(&mut print)?,
        Command::Capture(capture) => print(capture.execute(format)?),
        Command::Extcap(extcap) => print(extcap.execute()?),
        Command::Fdb(fdb) => print(fdb.execute(format)?),
        Command::Irq(irq) => print(irq.execute(format)?),
        Command::Mem(mem) => print(mem.execute(format)?),
        Command::Perf(perf) => print(perf.execute(format)?),
        Command::Trace(trace) => print(trace.execute(format)?),
        Command::Report(report) => print(report.execute()?),
        Command::List(list) => print(list.execute(format)?),
        Command::Monitor(monitor) => monitor.execute(format, &mut print)?,
        Command::Inspect(inspect) => inspect.execute(format, &mut print)?,
        Command::Dump(dump) => print(dump.execute()?),
        Command::Vf(vf) => print(vf.execute(format)?),
        Command::Explain(explain) => print(explain.execute(format)?),
        Command::Help(help) => print(help.execute(Cli::command())?),
    }
    Ok(())
}

fn serve(
    config: &HostConfig,
    layers: &Layers,
    manager: &Manager,
    left: AllLeft,
    format: LogFormat,
) -> Result<(), Error> {
    for hint in &config.hints {
        tracing::warn!("{hint}");
    }
    // Before any thread starts, so that every thread has them blocked or handled alike.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGUSR2]).map_err(|source| Error::Os {
            what: "cannot wait for signals",
            source,
        })?;
    guest_mem::install_sigbus_guard();
    fds::raise_limit();
    // A process whose every NIC was handed one connection has nothing left to serve after them.
    let handed_over = left.came();
    let host = Host::start_with(config, left, || {
        // The last NIC's worker says so, and may not.
        let _ = threads::apart(|| kill_process(getpid(), Signal::TERM));
    })?;
    let host = Arc::new(RwLock::new(host));
    let control = match &config.own_control() {
        Some(path) => Some(Server::start(path, Arc::clone(&host))?),
        None => None,
    };
    fds::end_unwanted();
    cells::wait_for_all(&host);
    begin_to_serve(&host, config, handed_over, format);
    let noting = learned::begin(&host).map_err(|source| Error::Os {
        what: "cannot note what switches learn",
        source,
    })?;
    let looking = cells::begin(&host).map_err(|source| Error::Os {
        what: "cannot look at cells",
        source,
    })?;
    tracing::info!("sandbox {layers}");
    tracing::info!(
        nics = config.nics.iter().filter(|nic| config.is_own(nic)).count(),
        switches = config.switches.len(),
        "serving"
    );
    manager.ready();
    let pulses = host.read().pulses();
    let watchdog = manager.watch(move || pulses.late());
    let _watchdog = watchdog.map_err(|source| Error::Os {
        what: "cannot give the service manager signs of life",
        source,
    })?;
    let mut upgrades = false;
    for signal in signals.forever() {
        match signal {
            SIGUSR1 => {
                timeline::write();
                print_counters(&host.read(), control.as_ref().map(Server::counters), format);
            }
            // A terminal that closes must not take every guest's NIC with it.
            SIGHUP if config.file.is_none() => {
                tracing::info!("SIGHUP: ignored; there is no configuration file to read again");
            }
            SIGHUP => {
                manager.reloading();
                reload(&host);
                manager.ready();
            }
            SIGUSR2 => match upgrade::possible(&host.read()) {
                Ok(()) => {
                    tracing::info!("SIGUSR2: the program is started anew, and guests go on");
                    upgrades = true;
                    break;
                }
                Err(why) => tracing::warn!("SIGUSR2: ignored: {why}"),
            },
            _ => {
                tracing::info!("signal {signal}: closing");
                break;
            }
        }
    }
    // It has the host now and then, and the end needs it alone.
    drop((noting, looking));
    if upgrades {
        manager.reloading();
        drop(control);
        return upgrade::hand_over(host);
    }
    manager.stopping();
    timeline::write();
    let_go(&host.read(), &mut signals);
    // A control client that waits for an answer gets it first.
    let asked = control.map(Server::stop);
    print_counters(&host.read(), asked, format);
    // What a service manager keeps is there for the next daemon.
    store::leave();
    if let Some(host) = Arc::into_inner(host) {
        host.into_inner().stop();
    }
    Ok(())
}

/// Says to all who want to know that everything is there.
fn begin_to_serve(host: &RwLock<Host>, config: &HostConfig, handed_over: bool, format: LogFormat) {
    // VMMs are told of cells by the main process.
    if config.own_cell().is_none() {
        print(match format {
            LogFormat::Human => hints::banner(config),
            LogFormat::Json => format!("{}\n", hints::banner_json(config)),
        });
    }
    let Some(page) = keeper::current() else {
        return;
    };
    page.serving();
    if handed_over {
        // A file may say something else by now.
        upgrade::note(&host.read());
    } else {
        say_what_happened(page);
    }
}

/// The keeper writes no log: what it has seen is told by the next worker.
fn say_what_happened(page: &keeper::Shared) {
    let Some(before) = page.before() else { return };
    let (life, signal) = (page.life(), before.signal);
    if before.hung {
        tracing::error!(
            life,
            "the worker was killed because a turn did not end, and started again"
        );
    } else {
        tracing::error!(life, signal, "the worker died, and was started again");
    }
}

/// Has guests stop using their NICs before the sockets close: a VMM whose NIC goes away under traffic may abort. A second
/// signal ends that.
fn let_go(host: &Host, signals: &mut Signals) {
    let nics = host.let_go();
    if nics == 0 {
        return;
    }
    tracing::info!(nics, "pulled the cables, and wait until guests are quiet");
    let end = Instant::now() + LET_GO;
    let mut last = None;
    let mut quiet = 0;
    let ends = |signal| signal == SIGINT || signal == SIGTERM;
    while Instant::now() < end && quiet < QUIET && !signals.pending().any(ends) {
        std::thread::sleep(LOOK);
        let activity = host.activity();
        if activity.is_none() {
            return;
        }
        // Looks are counted, and not time: on a host that stands still, guests do too.
        quiet = if activity == last { quiet + 1 } else { 0 };
        last = activity;
    }
}

fn print_counters(host: &Host, control: Option<Section>, format: LogFormat) {
    let mut sections = host.counters();
    sections.extend(control);
    sections.extend([report::process(), sandbox::counters()]);
    print(match format {
        LogFormat::Human => report::human(&sections),
        LogFormat::Json => format!("{}\n", report::json(&sections)),
    });
}

/// How long guests may take to become quiet.
const LET_GO: Duration = Duration::from_secs(3);

/// Looks whether guests are quiet are so far apart.
const LOOK: Duration = Duration::from_millis(25);

/// A guest that has asked for nothing in so many looks sends no more. (Linux sees the cable within two seconds, but nothing it
/// sends is answered.)
const QUIET: u32 = 12;

/// How long a reader of standard output may take.
const READER: Duration = Duration::from_secs(1);

/// Writes to standard output. A closed pipe there is no reason to end guests' NICs, nor to be deaf to SIGTERM.
fn print(text: String) {
    let (done, ended) = mpsc::channel();
    let writer = std::thread::Builder::new().spawn(move || {
        let _ = std::io::stdout().write_all(text.as_bytes());
        let _ = done.send(());
    });
    if writer.is_ok() {
        let _ = ended.recv_timeout(READER);
    }
}
