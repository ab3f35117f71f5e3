//! Downloads Debian packages into a private folder with the machine's own `apt-get`, but with a state of its
//! own: nothing of the host's package database is read or changed, and no root rights are needed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cache::say;
use crate::error::{CannotRun, Error, Result};
use crate::process;
use crate::sources::{self, Mirror};

/// A choice of Debian's suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    /// The suites by their code names; the archive has them all or the source cannot be used.
    pub(crate) suites: &'static [&'static str],
    /// The architecture, as Debian calls it.
    pub(crate) arch: &'static str,
    /// What to prefer where several suites have a package (apt_preferences(5)), each tried until one can be satisfied.
    pub(crate) pins: &'static [&'static str],
}

/// What guests are made of: a stable Debian, and a QEMU that is new enough from its backports. Where only that much
/// does not fit together, everything comes from backports.
pub(crate) const GUEST: Source = Source {
    suites: &["trixie", "trixie-backports"],
    arch: "amd64",
    pins: &[
        "Package: *\nPin: release n=trixie-backports\nPin-Priority: 100\n\n\
         Package: qemu-system-* seabios ipxe-qemu\nPin: release n=trixie-backports\nPin-Priority: 900\n\n\
         Package: linux-*\nPin: release n=trixie\nPin-Priority: 990\n",
        "Package: *\nPin: release n=trixie-backports\nPin-Priority: 900\n\n\
         Package: linux-*\nPin: release n=trixie\nPin-Priority: 990\n",
    ],
};

/// The oldest kernel guests run: that of the release before.
pub(crate) const OLD: Source = Source {
    suites: &["bookworm"],
    arch: "amd64",
    pins: &[""],
};

/// The newest kernel that Debian has released, and where an archive does not carry it, the next newest.
pub(crate) const NEW: [Source; 2] = [
    Source {
        suites: &["sid"],
        arch: "amd64",
        pins: &[""],
    },
    Source {
        suites: &["trixie-backports"],
        arch: "amd64",
        pins: &[""],
    },
];

/// Packages that maintainer scripts need and unpacked files do not: declared as already installed so that apt
/// leaves them, and what only they need, undownloaded.
const PRETENDED: [&str; 22] = [
    "adduser",
    "base-passwd",
    "debconf",
    "debianutils",
    "init-system-helpers",
    "initramfs-tools",
    "kmod",
    "libasound2-data",
    "libcap2-bin",
    "libsasl2-modules-db",
    "libsemanage-common",
    "linux-base",
    "login.defs",
    "openssl-provider-legacy",
    "passwd",
    "pci.ids",
    "libdpdk-dev",
    "libtirpc-common",
    "libpam0g",
    "python3",
    "sse4.2-support",
    "udev",
];

/// A private apt: its folder holds the package lists, the configuration and the downloaded archives.
pub(crate) struct Apt {
    dir: PathBuf,
    mirror: Mirror,
    source: Source,
    installed: Vec<Installed>,
}

/// A package and its version that count as installed.
pub(crate) type Installed = (String, String);

impl Apt {
    /// Finds a usable mirror and fetches its package lists into `dir`. Packages that are `installed` are neither
    /// downloaded nor what only they need.
    pub(crate) fn open(dir: &Path, source: Source, installed: &[Installed]) -> Result<Self> {
        for program in ["apt-get", "dpkg-deb", "tar"] {
            if !process::on_path(program) {
                return Err(CannotRun::new(format!(
                    "no `{program}`: the rig makes its guests from Debian packages, so it needs a Debian host"
                ))
                .into());
            }
        }
        let mirrors = sources::mirrors(Path::new("/etc/apt"));
        let mut last = CannotRun::new(
            "apt's configuration under /etc/apt names no Debian archive with `main`: add one to sources.list",
        )
        .into();
        for mirror in mirrors {
            let apt = Self {
                dir: dir.to_path_buf(),
                mirror,
                source,
                installed: installed.to_vec(),
            };
            apt.write_config()?;
            match process::output(apt.command("apt-get").args(["-qq", "update"])) {
                Ok(_) => return Ok(apt),
                Err(e) => {
                    last = CannotRun::new(format!(
                        "the package lists of {} cannot be had from {}: {e}",
                        source.suites.join(" and "),
                        apt.mirror.uri
                    ))
                    .into();
                }
            }
        }
        Err(last)
    }

    fn write_config(&self) -> Result<()> {
        let dir = &self.dir;
        for sub in ["lists/partial", "cache/archives/partial"] {
            let path = dir.join(sub);
            fs::create_dir_all(&path).map_err(Error::io(format!("create {}", path.display())))?;
        }
        let write = |name: &str, text: String| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))
        };
        let mut source = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nArchitectures: {}\n",
            self.mirror.uri,
            self.source.suites.join(" "),
            self.source.arch
        );
        if let Some(key) = &self.mirror.signed_by {
            let _ = writeln!(source, "Signed-By: {key}");
        }
        write("rig.sources", source)?;
        let arch = self.source.arch;
        let mut status = String::new();
        for package in PRETENDED {
            // An interpreter is depended on as `:any`, which only "allowed" satisfies.
            let multi = if package == "python3" {
                "allowed"
            } else {
                "foreign"
            };
            let _ = write!(
                status,
                "Package: {package}\nStatus: install ok installed\nArchitecture: {arch}\n\
                 Multi-Arch: {multi}\nMaintainer: none\nVersion: 99:99\nDescription: not needed here\n\n"
            );
        }
        for (package, version) in &self.installed {
            let _ = write!(
                status,
                "Package: {package}\nStatus: install ok installed\nArchitecture: {arch}\n\
                 Maintainer: none\nVersion: {version}\nDescription: elsewhere\n\n"
            );
        }
        write("status", status)?;
        let d = dir.display();
        // The host's apt.conf stays in force (proxies, CA certificates) except for its hooks.
        write(
            "apt.conf",
            format!(
                "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n\
                 #clear APT::Update::Post-Invoke-Success;\n#clear DPkg::Pre-Invoke;\n\
                 #clear DPkg::Post-Invoke;\n#clear DPkg::Pre-Install-Pkgs;\n#clear Acquire::IndexTargets::deb::DEP-11;\n\
                 #clear APT::Default-Release;\n#clear APT::Architectures;\n\
                 Dir::State \"{d}\";\nDir::State::lists \"{d}/lists\";\nDir::State::status \"{d}/status\";\n\
                 Dir::State::extended_states \"{d}/extended_states\";\n\
                 Dir::Cache \"{d}/cache\";\nDir::Cache::archives \"{d}/cache/archives\";\n\
                 Dir::Log \"{d}\";\nDir::Etc::sourcelist \"{d}/rig.sources\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::Etc::preferences \"{d}/preferences\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
                 APT::Architecture \"{arch}\";\nAPT::Architectures {{ \"{arch}\"; }};\n\
                 APT::Sandbox::User \"root\";\nAPT::Install-Recommends \"false\";\nAPT::Install-Suggests \"false\";\n\
                 Acquire::Languages \"none\";\nAPT::Update::Error-Mode \"any\";\nAcquire::Retries \"4\";\nAcquire::http::Timeout \"30\";\n\
                 APT::Get::Assume-Yes \"true\";\n"
            ),
        )
    }

    fn write_pins(&self, pins: &str) -> Result<()> {
        let path = self.dir.join("preferences");
        fs::write(&path, pins).map_err(Error::io(format!("write {}", path.display())))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(self.dir.join("apt.conf"));
        // Messages are shown to people and parsed here: one language.
        command
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Downloads the packages and all they need; returns the archives' paths.
    pub(crate) fn download(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let archives = self.dir.join("cache/archives");
        let mut plan = Vec::new();
        for (attempt, pins) in self.source.pins.iter().enumerate() {
            self.write_pins(pins)?;
            let mut command = self.command("apt-get");
            command
                .args(["-qq", "--print-uris", "install"])
                .args(packages);
            match process::output(&mut command) {
                Ok(out) => {
                    plan = parse_plan(&String::from_utf8_lossy(&out));
                    break;
                }
                Err(e) if attempt + 1 == self.source.pins.len() => {
                    return Err(CannotRun::new(format!(
                        "{} at {} cannot provide {}: {e}",
                        self.source.suites.join(" and "),
                        self.mirror.uri,
                        packages.join(" ")
                    ))
                    .into());
                }
                Err(_) => {}
            }
        }
        let bytes: u64 = plan.iter().map(|p| p.1).sum();
        say(&format!(
            "downloading {} packages, {} MB, from {}",
            plan.len(),
            bytes / 1_000_000,
            self.mirror.uri
        ));
        let start = Instant::now();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| progress(&archives, bytes, &done));
            let mut last = Ok(Vec::new());
            for _ in 0..3 {
                let mut command = self.command("apt-get");
                command
                    .args(["-qq", "--download-only", "install"])
                    .args(packages);
                last = process::output(&mut command);
                if last.is_ok() {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            last
        })
        .map_err(|e| {
            CannotRun::new(format!(
                "the download failed (it resumes on the next try): {e}"
            ))
        })?;
        say(&format!(
            "downloaded in {:.0} s",
            start.elapsed().as_secs_f64()
        ));
        Ok(plan
            .into_iter()
            .map(|(name, _)| archives.join(name))
            .collect())
    }
}

/// The lines of `apt-get --print-uris`: `'URI' FILE SIZE HASH`.
fn parse_plan(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter(|line| line.starts_with('\''))
        .filter_map(|line| {
            let mut words = line.rsplit(' ');
            let (_hash, size, file) = (words.next()?, words.next()?, words.next()?);
            Some((file.to_owned(), size.parse().ok()?))
        })
        .collect()
}

fn progress(archives: &Path, total: u64, done: &AtomicBool) {
    let mut shown = Instant::now();
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if shown.elapsed() < Duration::from_secs(5) {
            continue;
        }
        shown = Instant::now();
        let size = |dir: PathBuf| -> u64 {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries
                .filter_map(|e| e.metadata().ok())
                .map(|m| m.len())
                .sum()
        };
        let have = size(archives.to_path_buf()) + size(archives.join("partial"));
        say(&format!("{} of {} MB", have / 1_000_000, total / 1_000_000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_lines_are_read() {
        let text = "Reading lists...\n\
            'http://m.example/debian/pool/main/d/dash/dash_0.5.12-12_amd64.deb' dash_0.5.12-12_amd64.deb 98504 SHA256:ab\n\
            'http://m.example/x.deb' libx_1%3a2_all.deb 12 MD5Sum:cd\nNeed nothing\n";
        assert_eq!(
            parse_plan(text),
            [
                ("dash_0.5.12-12_amd64.deb".to_owned(), 98504),
                ("libx_1%3a2_all.deb".to_owned(), 12)
            ]
        );
    }
}
