//! What is asked for, and what came of it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// How much is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every layer, or no start.
    Strict,
    /// Every layer that the kernel has.
    #[default]
    Default,
    /// System calls that would end the process are logged by the kernel; files are not restricted.
    Log,
    /// Nothing.
    Off,
}

impl Mode {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Strict => "strict",
            Mode::Default => "default",
            Mode::Log => "log",
            Mode::Off => "off",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Mode::Strict, Mode::Default, Mode::Log, Mode::Off];
        let found = all.into_iter().find(|mode| mode.name() == word);
        found
            .ok_or_else(|| format!("unknown sandbox \"{word}\"; write strict, default, log or off"))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the process does, from which follows what it may ask the kernel for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It serves NICs, or asks who does: on several threads.
    #[default]
    Daemon,
    /// It starts processes of user networks, on one thread.
    Launcher,
    /// It is a user network, on one thread: a library in C.
    Network,
}

impl Role {
    /// The word for its one thread.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Daemon => "process",
            Role::Launcher => "launcher",
            Role::Network => "user-network",
        }
    }
}

/// What the process will still need.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How much is asked for.
    pub mode: Mode,
    /// What it does.
    pub role: Role,
    /// Folders in which it makes, writes, renames and removes files and sockets.
    pub folders: Vec<PathBuf>,
    /// Files that it only reads.
    pub readable: Vec<PathBuf>,
    /// Devices that it opens.
    pub devices: Vec<PathBuf>,
    /// It may have user networks, in processes of their own.
    pub network: bool,
    /// It attaches to TAPs by their names.
    pub taps: bool,
    /// Tests: leaves one system call out, written `KIND:NAME`.
    pub without: Option<String>,
}

/// Which layers are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// How much was asked for.
    pub mode: Mode,
    /// The version of Landlock's interface that holds; 0: none.
    pub landlock: u8,
    /// System calls are filtered.
    pub seccomp: bool,
    /// A program that it would start could have no more rights than itself.
    pub no_new_privileges: bool,
    /// Capabilities that it has kept.
    pub capabilities: u32,
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |on: bool| if on { "on" } else { "off" };
        write!(f, "{}: landlock ", self.mode)?;
        match self.landlock {
            0 => f.write_str("off")?,
            version => write!(f, "v{version}")?,
        }
        write!(
            f,
            ", seccomp {}, no new privileges {}, {} capabilities",
            if self.seccomp && self.mode == Mode::Log {
                "logs"
            } else {
                on(self.seccomp)
            },
            on(self.no_new_privileges),
            self.capabilities
        )
    }
}
