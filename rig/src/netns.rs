//! The host side of a test's network in a namespace of its own, without root where the kernel allows it.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use crate::error::{CannotRun, Result};
use crate::process;
use crate::rig::Rig;

/// A network namespace (inside a user namespace when we are not root) that vanishes with its last handle, and
/// with this process however that ends.
#[derive(Debug, Clone)]
pub struct Netns {
    holder: Arc<Holder>,
    /// The words that start `ip`: the host's, or the private root's.
    ip: Vec<OsString>,
}

/// A process that does nothing but be in the namespace. It reads from us, so it ends when we do.
#[derive(Debug)]
struct Holder {
    child: Child,
    _stdin: Option<ChildStdin>,
    user: bool,
}

impl Drop for Holder {
    fn drop(&mut self) {
        process::kill_group(&mut self.child);
    }
}

impl Netns {
    /// Makes a namespace with its loopback up.
    ///
    /// # Errors
    /// [`CannotRun`] when neither root rights nor unprivileged user namespaces are to be had.
    pub fn new(rig: &Rig) -> Result<Self, CannotRun> {
        let root = rustix::process::geteuid().is_root();
        let mut refused = String::new();
        // In a container, root may lack CAP_SYS_ADMIN and still be allowed a user namespace.
        let ways: &[bool] = if root { &[false, true] } else { &[true] };
        for &user in ways {
            match Self::hold(user) {
                Ok(holder) => {
                    let ip = if process::on_path("ip") {
                        vec!["ip".into()]
                    } else {
                        let words = rig.root().program("ip");
                        let words = words.map_err(|e| CannotRun::new(e.to_string()))?;
                        words.into_iter().map(Into::into).collect()
                    };
                    let ns = Self {
                        holder: Arc::new(holder),
                        ip,
                    };
                    ns.ip(["link", "set", "lo", "up"]).map_err(|e| {
                        CannotRun::new(format!("a new network namespace does not work: {e}"))
                    })?;
                    return Ok(ns);
                }
                Err(why) => refused = why,
            }
        }
        Err(CannotRun::new(format!(
            "no network namespace can be made ({refused}): run as root, or allow unprivileged user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0)"
        )))
    }

    fn hold(user: bool) -> Result<Holder, String> {
        let mut command = Command::new("unshare");
        if user {
            command.args(["--user", "--map-root-user"]);
        }
        command
            .args(["--net", "--", "sh", "-c", "echo held; exec cat >/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn(command).map_err(|e| format!("unshare: {e}"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let stdin = child.stdin.take();
        if line == "held\n" {
            return Ok(Holder {
                child,
                _stdin: stdin,
                user,
            });
        }
        drop(stdin);
        let out = child.wait_with_output().map_err(|e| e.to_string())?;
        Err(String::from_utf8_lossy(&out.stderr).trim().to_owned())
    }

    /// The words that enter the namespace and go on with the program that follows, which the kernel kills when
    /// this process (or the thread that started it) dies.
    pub(crate) fn entry(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            "nsenter".into(),
            "--target".into(),
            self.holder.child.id().to_string().into(),
            "--net".into(),
        ];
        if self.holder.user {
            words.push("--user".into());
            words.push("--preserve-credentials".into());
        }
        // The signal must be asked for last: entering a user namespace changes credentials, which forgets it.
        for word in ["--", "setpriv", "--pdeathsig", "KILL", "--"] {
            words.push(word.into());
        }
        words
    }

    /// A command that runs a program inside. The program dies with the *thread* that starts it; what must outlive
    /// that goes through [`crate::Daemon::start`].
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let words = self.entry();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
        command
    }

    /// A command that runs a program of the rig's private root inside (`iperf3`, `tcpdump`, `ping`, ...).
    ///
    /// # Errors
    /// When the root has no such program.
    pub fn tool(&self, rig: &Rig, program: &str) -> Result<Command> {
        let words = rig.root().program(program)?;
        let mut command = self.command(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }

    /// Runs `ip` inside and returns what it prints.
    ///
    /// # Errors
    /// When `ip` fails, with its message.
    pub fn ip<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Result<String> {
        let mut command = self.command(&self.ip[0]);
        command.args(&self.ip[1..]).args(args);
        Ok(String::from_utf8_lossy(&process::output(&mut command)?).into_owned())
    }

    /// Makes a persistent TAP that is up, with an address (`10.0.0.1/24`) if one is given. IPv6 is off on it, so
    /// that it sends nothing of its own.
    ///
    /// # Errors
    /// [`CannotRun`] when `/dev/net/tun` cannot be opened; otherwise what `ip` says.
    pub fn tap(&self, name: &str, address: Option<&str>) -> Result<()> {
        let node = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        node.map_err(|e| {
            CannotRun::new(format!(
                "no TAP can be made, since /dev/net/tun cannot be opened ({e}): run as root, or `modprobe tun` \
                 and `chmod 666 /dev/net/tun` as root"
            ))
        })?;
        self.ip(["tuntap", "add", "dev", name, "mode", "tap", "vnet_hdr"])?;
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        let quiet = format!("[ ! -e {path} ] || echo 1 > {path}");
        // Where /proc/sys is read-only the TAP merely talks a little.
        let _ = process::output(self.command("sh").args(["-c", &quiet]));
        if let Some(address) = address {
            self.ip(["addr", "add", address, "dev", name])?;
        }
        self.ip(["link", "set", name, "up"]).map(drop)
    }

    /// The process that holds the namespace: `/proc/PID/ns/net` is its handle.
    #[must_use]
    pub fn holder(&self) -> u32 {
        self.holder.child.id()
    }

    /// Adds a bridge that is up and joins the named interfaces to it.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn bridge(&self, name: &str, members: &[&str]) -> Result<()> {
        self.ip(["link", "add", name, "type", "bridge"])?;
        for member in members {
            self.ip(["link", "set", member, "master", name])?;
        }
        self.ip(["link", "set", name, "up"]).map(drop)
    }
}
