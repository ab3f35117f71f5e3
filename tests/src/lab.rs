//! A place for one test: the rig, room for its guests, a folder for its sockets and files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rig::{Guest, GuestConfig, Nic, Rig};
use tempfile::TempDir;

use crate::daemon::{Daemon, Launch, scratch};
use crate::error::{Error, Result};
use crate::slots::Slots;

/// What a test with guests starts from.
#[derive(Debug)]
pub struct Lab {
    /// Starts guests.
    pub rig: Rig,
    dir: TempDir,
    _slots: Slots,
}

/// The MAC address that [`Lab`]'s daemons give the NIC of this name: its letters, after two bytes that make the address
/// a locally administered one.
#[must_use]
pub fn mac(name: &str) -> String {
    let mut bytes = [0u8; 4];
    for (byte, letter) in bytes.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    let [a, b, c, d] = bytes;
    format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

impl Lab {
    /// Waits until `guests` more guests may run (1 or 2), and makes everything ready.
    ///
    /// # Errors
    /// When no guest can run here, with the reason.
    pub fn open(guests: usize) -> Result<Self> {
        let rig = Rig::prepare()?;
        let slots = Slots::take(rig.cache().dir(), guests)?;
        Ok(Self {
            rig,
            dir: scratch()?,
            _slots: slots,
        })
    }

    /// A path in the test's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The socket of a NIC.
    #[must_use]
    pub fn socket(&self, nic: &str) -> PathBuf {
        self.path(&format!("{nic}.sock"))
    }

    /// Arguments of `hypernic run` for one NIC on one port.
    #[must_use]
    pub fn run_args(&self, nic: &str, port: &str) -> Vec<String> {
        self.run_args_of("e1000", nic, port)
    }

    /// The same for a NIC of this model.
    #[must_use]
    pub fn run_args_of(&self, model: &str, nic: &str, port: &str) -> Vec<String> {
        let socket = self.socket(nic).display().to_string();
        let words = [
            "run",
            "--model",
            model,
            "--socket-path",
            &socket,
            "--mac",
            &mac(nic),
            "--port",
            port,
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Starts a daemon for one NIC on one port. It calls the NIC `n0`.
    ///
    /// # Errors
    /// When it does not serve.
    pub fn run(&self, nic: &str, port: &str) -> Result<Daemon> {
        self.run_of("e1000", nic, port)
    }

    /// The same for a NIC of this model.
    ///
    /// # Errors
    /// When it does not serve.
    pub fn run_of(&self, model: &str, nic: &str, port: &str) -> Result<Daemon> {
        let args = self.run_args_of(model, nic, port);
        Launch::new()?.args(args).start()
    }

    /// The same without a keeper: what happens to this process happens to the NIC.
    ///
    /// # Errors
    /// When it does not serve.
    pub fn run_alone(&self, model: &str, nic: &str, port: &str) -> Result<Daemon> {
        let args = self.run_args_of(model, nic, port);
        Launch::new()?.args(args).arg("--no-keeper").start()
    }

    /// A configuration file with these NICs, each on its port, and one switch `lan` with these ports.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn config(&self, nics: &[(&str, &str)], switch_ports: &[&str]) -> Result<PathBuf> {
        let mut toml = format!("[[switch]]\nname = \"lan\"\nports = {switch_ports:?}\n");
        for (name, port) in nics {
            let (socket, mac) = (self.socket(name), mac(name));
            let _ = write!(
                toml,
                "[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\nport = \"{port}\"\n"
            );
        }
        let file = self.path("host.toml");
        std::fs::write(&file, toml).map_err(Error::io(format!("write {}", file.display())))?;
        Ok(file)
    }

    /// Starts a daemon with NICs on a switch that has the user network.
    ///
    /// # Errors
    /// When it does not serve.
    pub fn serve(&self, nics: &[&str]) -> Result<Daemon> {
        let nics: Vec<_> = nics.iter().map(|name| (*name, "switch:lan")).collect();
        let file = self.config(&nics, &["user"])?;
        Launch::new()?.arg("serve").arg(file).start()
    }

    /// The guest's end of a NIC, for QEMU.
    #[must_use]
    pub fn nic(&self, name: &str) -> Nic {
        Nic::vfio_user(name, self.socket(name))
    }

    /// Resumes a guest and plugs the NIC of the same name into it.
    ///
    /// # Errors
    /// When either fails.
    pub fn guest(&self, name: &str) -> Result<Guest> {
        Ok(self
            .rig
            .resume(GuestConfig::new(name).nic(self.nic(name)))?)
    }

    /// The test's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_macs_that_a_nic_may_have() {
        assert_eq!(mac("a"), "52:54:61:00:00:00");
        assert_ne!(mac("n0"), mac("n1"));
    }
}
