//! The package, and Debian systems that it is installed in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::daemon::binary;
use crate::error::{Error, Result};

/// A file or folder of the repository.
#[must_use]
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The package that `make deb` has made.
///
/// # Errors
/// It has not.
pub fn package() -> Result<PathBuf> {
    let target = binary()?;
    let folder = target.ancestors().nth(2).unwrap_or(Path::new("."));
    let folder = folder.join("deb");
    let files = std::fs::read_dir(&folder);
    let files = files.map_err(Error::io(format!("{}: run make deb", folder.display())))?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    let found = paths.find(|path| path.extension().is_some_and(|kind| kind == "deb"));
    found.ok_or_else(|| Error::check(format!("no package in {}: run make deb", folder.display())))
}

/// A shell with mounts and processes of its own, which go with it. `$0` and what follows are the arguments that are added.
#[must_use]
pub fn apart(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child"]);
    command.args(["sh", "-ec", script]);
    command
}

/// Runs a command, and returns what it says if it ends well.
///
/// # Errors
/// It does not, or cannot be started.
pub fn run(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.output().map_err(Error::io(line.clone()))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(Error::check(format!("{line}: {}\n{said}", output.status))),
    }
}

/// A Debian of this machine's suite in a folder, from the archive that this machine's apt uses. It goes with this value.
#[derive(Debug)]
pub struct DebianRoot {
    dir: TempDir,
}

impl DebianRoot {
    /// With these packages besides the smallest set.
    ///
    /// # Errors
    /// This process is not root's, or the packages are not to be had.
    pub fn new(packages: &[&str]) -> Result<Self> {
        Self::of(None, packages)
    }

    /// The same of another suite than this machine's.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of(suite: Option<&str>, packages: &[&str]) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::check(
                "a Debian in a folder needs root: run this test as root",
            ));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix("hypernic-debian-");
        let dir = builder.tempdir().map_err(Error::io("make a folder"))?;
        let mut command = Command::new(repository("scripts/debian-root"));
        command.envs(suite.map(|suite| ("SUITE", suite)));
        run(command.arg(dir.path().join("root")).args(packages))?;
        Ok(Self { dir })
    }

    /// Its root folder.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A shell script in it, with its own processes, /proc, /sys, /dev and /run.
    #[must_use]
    pub fn command(&self, script: &str) -> Command {
        let outer = "mount -t proc p \"$0/proc\" && mount -t sysfs s \"$0/sys\" && mount --rbind /dev \"$0/dev\" && \
                     mount -t tmpfs r \"$0/run\" && exec chroot \"$0\" bash -ec \"$1\"";
        let mut command = apart(outer);
        command.arg(self.path()).arg(script);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a shell script in it, and returns what that says.
    ///
    /// # Errors
    /// It does not end well.
    pub fn sh(&self, script: &str) -> Result<String> {
        run(&mut self.command(script))
    }

    /// Runs a shell script in it that finds a folder of this machine where it is here, for so long at most.
    ///
    /// # Errors
    /// It does not end well.
    pub fn with(&self, folder: &Path, script: &str, limit: Duration) -> Result<String> {
        let within = self.path().join(folder.strip_prefix("/").unwrap_or(folder));
        std::fs::create_dir_all(&within).map_err(Error::io("make a folder"))?;
        let inner = self.command(script);
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-ec",
            "mount --bind \"$1\" \"$2\" && shift 2 && exec timeout \"$@\"",
            "sh",
        ]);
        command
            .arg(folder)
            .arg(within)
            .arg(limit.as_secs().to_string());
        command.arg(inner.get_program()).args(inner.get_args());
        command.env_clear().envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        run(&mut command)
    }

    /// Copies a file into it.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.path().join(to.trim_start_matches('/'));
        let copied = std::fs::copy(from, &to);
        copied.map(drop).map_err(Error::io(format!(
            "copy {} to {}",
            from.display(),
            to.display()
        )))
    }

    /// Packs it as an archive that a kernel boots.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn archive(&self, to: &Path) -> Result<()> {
        let pack = "cd \"$0\" && find . -xdev | cpio --quiet -o -H newc >\"$1\"";
        let mut command = Command::new("sh");
        run(command.args(["-ec", pack]).arg(self.path()).arg(to)).map(drop)
    }

    /// Installs the package.
    ///
    /// # Errors
    /// It needs packages that this root does not have, or its scripts fail.
    pub fn install(&self, package: &Path) -> Result<String> {
        self.copy(package, "/hypernic.deb")?;
        self.sh("dpkg -i /hypernic.deb; rm /hypernic.deb")
    }
}
