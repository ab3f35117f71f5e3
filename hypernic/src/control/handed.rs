//! Descriptors that come with a call: TAPs, connected streams, NICs' sockets.

use std::os::fd::{AsRawFd, OwnedFd};

use control::{Call, Failure};
use parking_lot::RwLock;

use crate::host::Host;
use crate::spec::PortSpec;

/// What came with a call, and which of it is wanted.
pub(super) struct Handed {
    fds: Vec<(OwnedFd, bool)>,
}

impl Handed {
    pub fn of(fds: Vec<OwnedFd>) -> Self {
        let fds = fds.into_iter().map(|fd| (fd, false));
        Self { fds: fds.collect() }
    }

    /// Puts the process's numbers of descriptors in place of their places in a call.
    ///
    /// # Errors
    /// The call names one that did not come.
    pub fn name(&mut self, call: &mut Call) -> Result<(), Failure> {
        let persist = match call {
            Call::NicAdd(call) => {
                if let Some(place) = call.nic.fd {
                    call.nic.fd = u32::try_from(self.number(place)?).ok();
                }
                self.port(&mut call.nic.port)?;
                call.persist
            }
            Call::ChipAdd(call) => {
                if let Some(place) = call.chip.fd {
                    call.chip.fd = u32::try_from(self.number(place)?).ok();
                }
                self.port(&mut call.chip.port)?;
                call.persist
            }
            Call::ChipSet(call) => {
                call.change
                    .port
                    .iter_mut()
                    .try_for_each(|port| self.port(port))?;
                call.persist
            }
            Call::PortAdd(call) => {
                self.port(&mut call.port)?;
                call.persist
            }
            Call::SwitchAdd(call) => {
                let ports = call.switch.ports.iter_mut().flatten();
                ports.into_iter().try_for_each(|port| self.port(port))?;
                call.persist
            }
            _ => None,
        };
        if persist == Some(true) && self.fds.iter().any(|(_, wanted)| *wanted) {
            return Err(Failure::invalid(
                "a descriptor that came with a call is not there after a restart: leave out persist",
            ));
        }
        Ok(())
    }

    fn port(&mut self, word: &mut String) -> Result<(), Failure> {
        // What is no port is refused by what reads it.
        if let Ok(port) = word.parse::<PortSpec>()
            && let Some(place) = port.fd()
        {
            let number = self.number(place.unsigned_abs())?;
            *word = port.with_fd(number).to_string();
        }
        Ok(())
    }

    fn number(&mut self, place: u32) -> Result<i32, Failure> {
        let there = self.fds.len();
        let found = self.fds.get_mut(place as usize);
        let (fd, wanted) = found.ok_or_else(|| {
            Failure::invalid(format!(
                "no descriptor {place} came with the call, which brought {there}: over the control socket, fd=0 is the \
                 first that it brings"
            ))
        })?;
        *wanted = true;
        Ok(fd.as_raw_fd())
    }

    /// The host has what is wanted, before anything is made of it; the rest is closed. Whether something is.
    pub fn give(self, host: &RwLock<Host>) -> bool {
        let wanted = self.fds.into_iter().filter(|(_, wanted)| *wanted);
        let wanted: Vec<_> = wanted.map(|(fd, _)| fd).collect();
        let some = !wanted.is_empty();
        if some {
            host.write().take_handed(wanted);
        }
        some
    }
}
