//! Finds QEMU.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{CannotRun, Result};
use crate::process;
use crate::root::Root;

/// The program's name.
const PROGRAM: &str = "qemu-system-x86_64";

/// The first QEMU with a vfio-user client.
const OLDEST: (u32, u32) = (10, 1);

/// A QEMU that can run the rig's guests.
#[derive(Debug, Clone)]
pub struct Qemu {
    words: Vec<OsString>,
    modules: Option<PathBuf>,
    version: String,
}

impl Qemu {
    /// The QEMU on PATH, if it is new enough and has `vfio-user-pci`.
    pub(crate) fn on_path() -> Option<Self> {
        process::on_path(PROGRAM).then_some(())?;
        let mut qemu = Self {
            words: vec![PROGRAM.into()],
            modules: None,
            version: String::new(),
        };
        qemu.check().ok()?;
        Some(qemu)
    }

    /// The QEMU of a private root.
    pub(crate) fn in_root(root: &Root) -> Result<Self> {
        Self::program_in(root, PROGRAM)
    }

    /// One for another architecture.
    pub(crate) fn program_in(root: &Root, program: &str) -> Result<Self> {
        let mut words: Vec<OsString> = root.program(program)?.into_iter().map(Into::into).collect();
        // The program looks for its data beside itself, which is the loader here.
        for data in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            words.push("-L".into());
            words.push(root.dir().join(data).into());
        }
        let mut qemu = Self {
            words,
            modules: Some(root.dir().join("usr/lib/x86_64-linux-gnu/qemu")),
            version: String::new(),
        };
        qemu.check()
            .map_err(|why| CannotRun::new(format!("the private QEMU does not work: {why}")))?;
        Ok(qemu)
    }

    fn check(&mut self) -> Result<(), String> {
        let run = |arg: &[&str]| {
            let mut command = self.command(false);
            process::output(command.args(arg))
                .map(|out| String::from_utf8_lossy(&out).into_owned())
                .map_err(|e| e.to_string())
        };
        let version = run(&["--version"])?;
        let devices = run(&["-device", "help"])?;
        let number = parse_version(&version).ok_or("it does not tell its version")?;
        if number < OLDEST {
            return Err(format!(
                "it is version {}.{}, older than 10.1",
                number.0, number.1
            ));
        }
        if !devices.contains("\"vfio-user-pci\"") {
            return Err("it was built without vfio-user-pci".into());
        }
        self.version = version.lines().next().unwrap_or_default().to_owned();
        Ok(())
    }

    /// A command that starts this QEMU; `attached` makes the kernel kill it when this process dies.
    pub(crate) fn command(&self, attached: bool) -> Command {
        let mut command = if attached {
            process::dying_with_us(&self.words[0])
        } else {
            Command::new(&self.words[0])
        };
        command.args(&self.words[1..]);
        if let Some(modules) = &self.modules {
            command.env("QEMU_MODULE_DIR", modules);
        }
        command
    }

    /// The version line of `--version`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The words that start it, as a person would type them.
    #[must_use]
    pub fn words(&self) -> &[OsString] {
        &self.words
    }
}

/// Major and minor number in "QEMU emulator version 11.1.3 (...)".
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let number = text.split("version ").nth(1)?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(
            parse_version("QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)"),
            Some((11, 1))
        );
        assert_eq!(parse_version("QEMU emulator version 9.2"), Some((9, 2)));
        assert_eq!(parse_version("something else"), None);
        assert!((10, 0) < OLDEST && (10, 1) >= OLDEST && (11, 0) > OLDEST);
    }
}
