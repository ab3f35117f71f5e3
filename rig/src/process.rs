//! Child processes that never outlive us.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use crate::error::{Error, Result};

type Job = (Command, Sender<io::Result<Child>>);

/// Starts a command in a process group of its own.
///
/// All children are forked from one thread that lives as long as the process: the parent-death signal that
/// [`dying_with_us`] sets is sent when the *thread* that forked ends (prctl(2), `PR_SET_PDEATHSIG`), so a guest
/// started from a short-lived helper thread would otherwise be killed with it.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Job>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in jobs {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    command.process_group(0);
    let (answer, child) = channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    starter.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// A command whose process the kernel kills when this process dies, even by SIGKILL. `setpriv` (util-linux)
/// sets the signal, since doing it between fork and exec would need `unsafe`.
pub(crate) fn dying_with_us(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Kills a child started by [`spawn`] together with its process group, and reaps it.
pub(crate) fn kill_group(child: &mut Child) {
    if let Ok(None) = child.try_wait()
        && let Some(pid) = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

/// The command line, for messages.
pub(crate) fn show(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// When it cannot start or exits with anything but 0.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = show(command);
    let out = command
        .output()
        .map_err(Error::io(format!("run `{line}`")))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Err(Error::Command {
        command: line,
        output: format!("{}\n{}", out.status, tail(&text, 12)),
    })
}

/// The last `lines` lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Whether a program of this name is on PATH.
pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
