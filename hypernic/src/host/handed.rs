//! Descriptors that were handed over while the host runs, open for as long as something of the host is made of them.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};

use super::Host;
use crate::config::{HostConfig, NicConfig, PfOwner, SocketSpec};
use crate::spec::{PortSpec, Transport};

impl Host {
    /// Keeps descriptors that what is there is made of.
    pub(crate) fn keep(&mut self, fds: Vec<OwnedFd>) {
        self.handed.extend(fds);
        self.release();
    }

    fn is_handed(&self, number: i32) -> bool {
        self.handed.iter().any(|fd| fd.as_raw_fd() == number)
    }

    /// What of this host another process can make again: all but what is made of these descriptors.
    pub fn lasting(&self) -> HostConfig {
        let mut is = self.configuration();
        let stays = |port: &PortSpec| !port.fd().is_some_and(|fd| self.is_handed(fd));
        for switch in &mut is.switches {
            switch.ports.retain(stays);
        }
        let socket =
            |nic: &NicConfig| !matches!(nic.socket, SocketSpec::Fd(fd) if self.is_handed(fd));
        is.nics.retain(|nic| stays(&nic.port) && socket(nic));
        // A chip without its way out, or without the function that rules it, is none.
        let ruled = |name: &str| is.nics.iter().any(|nic| nic.rules.as_deref() == Some(name));
        let lost = is
            .chips
            .iter()
            .filter(|chip| !stays(&chip.port) || chip.pf == PfOwner::Guest && !ruled(&chip.name));
        let lost: Vec<String> = lost.map(|chip| chip.name.clone()).collect();
        lost.iter().fold(is, |is, chip| is.without_chip(chip))
    }

    /// The first NIC, chip or port that is made of a descriptor without which no other process could go on: a stream that was
    /// inherited, or any that was handed over while the host ran.
    pub fn bound(&self) -> Option<String> {
        let is = self.as_is();
        let port = |port: &PortSpec| match port {
            PortSpec::StreamFd(_) => true,
            PortSpec::TapFd(fd) => self.is_handed(*fd),
            _ => false,
        };
        let socket = |nic: &NicConfig| match nic.socket {
            SocketSpec::Fd(fd) => self.is_handed(fd) || nic.transport != Transport::VfioUser,
            SocketSpec::Path(_) => false,
        };
        let nic = |nic: &&NicConfig| socket(nic) || port(&nic.port);
        let nics = is.nics.iter().filter(nic).map(|nic| nic.name.clone());
        let chips = is.chips.iter().filter(|chip| port(&chip.port));
        let ports = is.switches.iter().flat_map(|switch| &switch.ports);
        let ports = ports.filter(|spec| port(spec)).map(ToString::to_string);
        nics.chain(chips.map(|chip| chip.name.clone()))
            .chain(ports)
            .next()
    }

    /// Closes those that nothing is made of any more.
    pub(super) fn release(&mut self) {
        // What is on trial may be taken back.
        if self.handed.is_empty() || self.trial.is_some() {
            return;
        }
        let is = self.as_is();
        let ports = is.switches.iter().flat_map(|switch| &switch.ports);
        let ports = ports.chain(is.nics.iter().map(|nic| &nic.port));
        let ports = ports.chain(is.chips.iter().map(|chip| &chip.port));
        let sockets = is.nics.iter().filter_map(|nic| match nic.socket {
            SocketSpec::Fd(fd) => Some(fd),
            SocketSpec::Path(_) => None,
        });
        let named: BTreeSet<_> = ports.filter_map(PortSpec::fd).chain(sockets).collect();
        self.handed.retain(|fd| named.contains(&fd.as_raw_fd()));
    }
}
