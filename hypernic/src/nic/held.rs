//! A NIC that stands still while an operator moves it: no worker has it.

use std::any::Any;
use std::sync::atomic::Ordering;

use vfio_user::HoldError;

use super::refusal::HoldRefusal;
use super::{NicBody, RunningNic};
use crate::worker::Served;

impl RunningNic {
    /// No worker has it: it waits for what becomes of a move.
    pub(crate) fn is_held(&self) -> bool {
        self.body.lock().is_some()
    }

    /// Takes it from its worker, and says what it is. See [`vfio_user::Server::hold`].
    ///
    /// # Errors
    /// Why not; it works as before.
    pub(crate) fn hold(&self, paused: bool) -> Result<Vec<u8>, HoldRefusal> {
        if self.is_attached() && !paused {
            return Err(HoldError::InUse.into());
        }
        let body = self.task.stop().ok_or(HoldRefusal::Failed)?;
        let body: Box<dyn Any> = body;
        let mut body = body
            .downcast::<NicBody>()
            .map_err(|_| HoldRefusal::Failed)?;
        let held = body.door.hold(paused);
        match held {
            Ok(_) => *self.body.lock() = Some(body),
            Err(_) => self.task.start(body),
        }
        held
    }

    /// It becomes what another NIC has said of itself when it was held. No worker has it yet.
    ///
    /// # Errors
    /// Why not; it is as after power-on.
    pub(crate) fn become_held(&self, state: &[u8]) -> Result<(), String> {
        let mut body = self.body.lock();
        let body = body.as_mut().ok_or("it works already")?;
        body.door.become_held(state)?;
        body.follow_link();
        Ok(())
    }

    /// Tells its wire where it is now, while no worker has it. Whether somebody took it.
    pub(crate) fn announce(&self) -> bool {
        let mut body = self.body.lock();
        body.as_mut().is_some_and(|body| body.door.announce())
    }

    /// It goes on from where it was held.
    pub(crate) fn release(&mut self) {
        if let Some(body) = self.body.get_mut() {
            body.door.release();
            self.sink.used.store(false, Ordering::Relaxed);
        }
        self.begin();
    }

    /// What a worker that died has left of its client is closed: the NIC goes on without it.
    pub(crate) fn forsake(&self) {
        if let Some(body) = &mut *self.body.lock() {
            body.door.forsake();
        }
    }

    /// A VMM has given it memory since it went on.
    pub(crate) fn was_used(&self) -> bool {
        self.sink.used.load(Ordering::Relaxed)
    }

    /// Answers what was asked while no worker has it. `false`: one has.
    pub(super) fn answer_held(&self) -> bool {
        let mut body = self.body.lock();
        if let Some(body) = &mut *body {
            body.answer();
        }
        body.is_some()
    }
}
