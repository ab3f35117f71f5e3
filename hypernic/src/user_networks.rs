//! User networks, each in a process of its own: the C library that makes them shares no memory with guests.
//!
//! Before the daemon confines itself it runs this program once more, under another name. That one forks the *launcher*, and
//! another one should it die. The launcher forks a process for each network that a port asks for, now or later, and knows
//! nothing else. They end with the daemon, or with its worker if that has a keeper, and so do the networks.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;

use jail::{Mode, Role};
use port::Port;
use port_user::{Launcher, UserConfig};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::set_name;

use crate::config::HostConfig;
use crate::error::Error;
use crate::sandbox;

/// The name under which the program is the launcher.
const NAME: &str = "hypernic-user-networks";
/// This program, whatever is on disk by now.
const PROGRAM: &str = "/proc/self/exe";
/// Words of a service manager to the daemon.
const MANAGERS: [&str; 6] = [
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

struct Running {
    launcher: Launcher,
    /// It ends with us, so nobody waits for it.
    _process: Option<Child>,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

/// Whether this program is to be the launcher.
pub fn is_asked() -> bool {
    std::env::args_os().next().as_deref() == Some(NAME.as_ref())
}

/// Starts the launcher, if there are user networks or may be some later. To be called once, by the thread that lives as
/// long as the process, before the process confines itself.
///
/// # Errors
/// The system has no process or descriptor left for it, or does not run this program again.
pub fn start(config: &HostConfig) -> Result<(), Error> {
    let Some((mode, given)) = sandbox::networks(config).filter(|_| port_user::BUILT) else {
        return Ok(());
    };
    match run_again(mode, &given) {
        Ok(running) => {
            let _ = RUNNING.set(running);
            sandbox::give(given);
            Ok(())
        }
        // Who asks for one later is told.
        Err(_) if !sandbox::has_networks(config) => Ok(()),
        Err(source) => Err(Error::Os {
            what: "cannot start the process that starts user networks",
            source,
        }),
    }
}

fn run_again(mode: Mode, given: &[PathBuf]) -> io::Result<Running> {
    let (ours, theirs) = Launcher::socket()?;
    let mut command = Command::new(PROGRAM);
    command
        .arg0(NAME)
        .arg(getpid().to_string())
        .arg(mode.name())
        .args(given)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        // What a terminal sends to the daemon is not for them.
        .process_group(0);
    MANAGERS.iter().for_each(|word| {
        command.env_remove(word);
    });
    Ok(Running {
        launcher: Launcher::new(ours),
        _process: Some(command.spawn()?),
    })
}

/// Has user networks on threads of this process: for programs that are not the daemon, and cannot be run as its launcher.
pub fn stay_here() {
    let _ = RUNNING.set(Running {
        launcher: Launcher::of_threads(),
        _process: None,
    });
}

/// Opens a port to a network of its own.
///
/// # Errors
/// Cause and cure, in the port's own words.
pub(crate) fn open(config: &UserConfig) -> Result<Port, String> {
    let patient = keeper::current().is_some_and(|page| page.life() > 1);
    let launcher = match RUNNING.get() {
        Some(running) => running.launcher.clone(),
        None if port_user::BUILT => {
            return Err(
                "the process that starts user networks is not there; the daemon starts it where sandbox-network is true, \
                 or the file has a user network or control"
                    .into(),
            );
        }
        None => return Err(port_user::UserError::NotBuilt.to_string()),
    };
    port_user::open(config, &launcher, patient).map_err(|error| error.to_string())
}

/// Is the launcher's keeper, until the daemon has ended.
pub fn run() -> ExitCode {
    let Err(why) = launch();
    eprintln!("hypernic: user networks: {why}");
    ExitCode::FAILURE
}

/// Returns if it cannot be.
fn launch() -> Result<Infallible, String> {
    let mut words = std::env::args_os().skip(1);
    let mut word = || words.next().and_then(|word| word.into_string().ok());
    let started_by = "it is started by the daemon, and by nobody else";
    let daemon = word().and_then(|word| word.parse().ok());
    let daemon = daemon.and_then(Pid::from_raw).ok_or(started_by)?;
    let mode: Mode = word().ok_or(started_by)?.parse()?;
    let given: Vec<PathBuf> = words.map(PathBuf::from).collect();
    end_with(daemon)?;
    let said = |error: io::Error| error.to_string();
    // Whatever the daemon has inherited, and what a worker has left.
    jail::close_from(3).map_err(said)?;
    let requests = take_input().map_err(said)?;
    jail::leave_signals();
    let _ = set_name(c"networks-keeper");
    let keeper = getpid();
    let confine = || {
        let plan = sandbox::plan_of_networks(Role::Launcher, mode, given);
        jail::enter(plan).map(drop).map_err(io::Error::other)
    };
    let begin = || {
        end_with(keeper)?;
        let _ = set_name(c"user-networks");
        Ok(getpid())
    };
    let run = |socket, launcher| network(socket, launcher, mode);
    port_user::attend(requests, confine, &begin, &run).map_err(said)
}

/// Is a network. The exit code.
fn network(socket: OwnedFd, launcher: Pid, mode: Mode) -> i32 {
    if let Err(why) = end_with(launcher) {
        eprintln!("hypernic: user network: {why}");
        return 1;
    }
    let _ = set_name(c"user-network");
    let confine = |config: &UserConfig| {
        let served = config.tftp.iter().cloned().collect();
        jail::enter(sandbox::plan_of_networks(Role::Network, mode, served)).map(drop)
    };
    port_user::serve(socket, confine, jail::failed_calls);
    0
}

/// Has this process end when its parent does, which is that one.
fn end_with(parent: Pid) -> Result<(), String> {
    let set = set_parent_process_death_signal(Some(Signal::KILL));
    set.map_err(|errno| errno.to_string())?;
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err("the process that has started it has ended".into()),
    }
}

/// The socket that is standard input, which becomes nothing to read.
fn take_input() -> io::Result<OwnedFd> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open(Path::new("/dev/null"))?)?;
    Ok(socket)
}
