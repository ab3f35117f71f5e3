//! Descriptors that were handed over while the host runs, open for as long as something of the host is made of them.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use super::Host;
use crate::config::{HostConfig, NicConfig, PfOwner, SocketSpec};
use crate::spec::{PortSpec, Transport};
use crate::upgrade;

/// The name of such a descriptor in the page that workers share.
fn name_of(number: RawFd) -> Vec<u8> {
    format!("handed {number}").into_bytes()
}

/// The ports of a host.
fn ports(host: &HostConfig) -> impl Iterator<Item = &PortSpec> {
    let switches = host.switches.iter().flat_map(|switch| &switch.ports);
    let nics = host.nics.iter().map(|nic| &nic.port);
    switches
        .chain(nics)
        .chain(host.chips.iter().map(|chip| &chip.port))
}

/// The descriptors that its NICs' sockets are.
fn sockets(host: &HostConfig) -> impl Iterator<Item = (RawFd, &NicConfig)> {
    host.nics.iter().filter_map(|nic| match nic.socket {
        SocketSpec::Fd(fd) => Some((fd, nic)),
        SocketSpec::Path(_) => None,
    })
}

/// Descriptors with which another process could go on: TAPs, streams, and sockets of NICs over vfio-user.
fn could_last(host: &HostConfig) -> BTreeSet<RawFd> {
    let ports = ports(host).filter_map(PortSpec::fd);
    let sockets = sockets(host).filter(|(_, nic)| nic.transport == Transport::VfioUser);
    ports.chain(sockets.map(|(fd, _)| fd)).collect()
}

impl Host {
    /// Descriptors of which something is about to be made. [`Self::sort_handed`] follows.
    pub(crate) fn take_handed(&mut self, fds: Vec<OwnedFd>) {
        self.handed.extend(fds);
    }

    /// Closes those of which nothing was made, and leaves the others to the next worker, should this one die.
    pub(crate) fn sort_handed(&mut self) {
        self.release();
        let Some(page) = keeper::current() else {
            return;
        };
        let last = could_last(&self.as_is());
        let mut more = false;
        for fd in self
            .handed
            .iter()
            .filter(|fd| last.contains(&fd.as_raw_fd()))
        {
            let name = name_of(fd.as_raw_fd());
            more |= !page.has(&name) && page.keep(&name, fd.as_fd(), [0, 0]);
        }
        if more {
            upgrade::note(self);
        }
    }

    /// Takes over those that the worker before was handed, and of which this host is made.
    pub(super) fn adopt_handed(&mut self, config: &HostConfig) {
        let Some(page) = keeper::current() else {
            return;
        };
        for number in could_last(config) {
            let name = name_of(number);
            if let Some((fd, _)) = page.go_on(&name) {
                self.handed.push(fd);
            }
        }
    }

    fn is_handed(&self, number: i32) -> bool {
        self.handed.iter().any(|fd| fd.as_raw_fd() == number)
    }

    /// Whether this one ends with the process.
    fn ends(&self, number: RawFd) -> bool {
        let stays = keeper::current().is_some_and(|page| page.has(&name_of(number)));
        self.is_handed(number) && !stays
    }

    /// What of this host another process can make again: all but what is made of these descriptors.
    pub fn lasting(&self) -> HostConfig {
        let mut is = self.configuration();
        let stays = |port: &PortSpec| !port.fd().is_some_and(|fd| self.ends(fd));
        for switch in &mut is.switches {
            switch.ports.retain(stays);
        }
        let socket = |nic: &NicConfig| !matches!(nic.socket, SocketSpec::Fd(fd) if self.ends(fd));
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

    /// The first NIC, chip or port that is made of a descriptor with which no other process could go on.
    pub fn bound(&self) -> Option<String> {
        let is = self.as_is();
        let port = |port: &PortSpec| port.fd().is_some_and(|fd| self.ends(fd));
        let socket = |nic: &NicConfig| match nic.socket {
            SocketSpec::Fd(fd) => self.ends(fd) || nic.transport != Transport::VfioUser,
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
        let sockets = sockets(&is).map(|(fd, _)| fd);
        let named: BTreeSet<_> = ports(&is).filter_map(PortSpec::fd).chain(sockets).collect();
        self.handed.retain(|fd| {
            let needed = named.contains(&fd.as_raw_fd());
            if let Some(page) = keeper::current().filter(|_| !needed) {
                page.forget(&name_of(fd.as_raw_fd()));
            }
            needed
        });
    }
}
