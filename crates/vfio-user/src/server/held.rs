//! A device that an operator moves: its client does not ask for it, and may be gone.

use rustix::io::Errno;

use super::journey::Migration;
use super::state::Server;
use crate::codec::feature::MigrationState;
use crate::device::{Device, ResetCause};

/// Why a device is not stopped. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// Its state cannot be taken elsewhere.
    #[error("its state cannot be taken elsewhere")]
    Immovable,
    /// Its client works with it.
    #[error("a VMM has it, which works")]
    InUse,
    /// Something is under way that only the client can end, or the client moves it itself.
    #[error("{0} is under way")]
    Busy(&'static str),
}

impl Server {
    /// Stops the device and says what it is, for another one that is to go on in its place. The client is gone, has stopped the
    /// device itself, or is `paused`: it stays connected and asks for nothing. The owner calls [`process`](Server::process) no
    /// more until the device [goes on](Server::release).
    ///
    /// # Errors
    /// Why it does not stop; it goes on then.
    pub fn hold(&mut self, device: &mut dyn Device, paused: bool) -> Result<Vec<u8>, HoldError> {
        if !device.can_move() {
            return Err(HoldError::Immovable);
        }
        match self.session.migration.state {
            MigrationState::Running if self.connected() && !paused => {
                return Err(HoldError::InUse);
            }
            MigrationState::Running | MigrationState::Stop | MigrationState::StopCopy => {}
            _ => return Err(HoldError::Busy("a migration by its VMM")),
        }
        if self.session.pending_map.is_some() {
            return Err(HoldError::Busy("the mapping of a file"));
        }
        if !self.session.engine.is_idle() {
            return Err(HoldError::Busy("DMA by message"));
        }
        self.stop(device);
        Ok(self.session.saved(device))
    }

    /// The device goes on, if it was stopped here.
    pub fn release(&mut self, device: &mut dyn Device) {
        if self.session.migration.held {
            self.session.run_again(device);
            self.session.changed = true;
        }
    }

    /// Becomes what another device has said of itself in [`hold`](Server::hold), and stands still until it is
    /// [released](Server::release). The next client finds it so.
    ///
    /// # Errors
    /// Why not. It is reset then, and runs.
    pub fn become_held(&mut self, device: &mut dyn Device, state: &[u8]) -> Result<(), String> {
        if self.connection.is_some() {
            return Err(Errno::BUSY.to_string());
        }
        self.stop(device);
        self.session.load(device, state).inspect_err(|_| {
            self.session.reset(device, ResetCause::PowerUp);
        })
    }

    fn stop(&mut self, device: &mut dyn Device) {
        if self.session.is_halted() {
            return;
        }
        // What the guest has stored in its doorbells until now is heard by who goes on: it is in the registers.
        self.session.look_at_doorbells(device);
        device.halt();
        self.session.migration = Migration {
            state: MigrationState::Stop,
            held: true,
            ..Migration::default()
        };
    }
}
