//! A connection in memory that outlives the process: whichever process serves it goes on where the last one died.
//!
//! One turn: receive; apply all messages; commit what follows from them, with the answers; send; then the device works. What a
//! process has applied and not committed, the next one applies again, on what was committed before; nothing of it has been heard
//! outside. While something is applied that cannot be committed yet, the device does not work.

use std::os::fd::{AsFd, RawFd};

use rustix::io::Errno;

use super::handover::{Files, Handover, HandoverError};
use super::line::{Kept, Lifeline, Stand};
use super::state::{Connection, Server};
use crate::device::Device;
use crate::stream::Filled;

impl Drop for Server {
    fn drop(&mut self) {
        if self.lifeline.is_some() {
            self.let_loose();
            self.session.deferred_closer.hold(false);
        }
    }
}

impl Connection {
    /// Takes what has arrived.
    fn accept(&mut self, lifeline: &mut dyn Lifeline) {
        let fds = lifeline.take_descriptors().into_iter();
        let truncated = lifeline.lacks_descriptors();
        self.rx.accept(lifeline.arrival(), fds, truncated);
    }
}

impl Server {
    /// Serves clients from now on so that another process can go on with them, should this one die.
    pub fn hold_on(&mut self, lifeline: Box<dyn Lifeline>) {
        if let Some(doorbells) = &mut self.session.shape.doorbells
            && !doorbells.keep(lifeline.heads())
        {
            return;
        }
        self.keep_files();
        self.session.deferred_closer.hold(true);
        self.lifeline = Some(lifeline);
        self.stand = Stand::Loose;
    }

    /// Whether messages were applied that are not committed: the device is not to work.
    pub(super) fn is_between(&self) -> bool {
        self.lifeline.is_some() && self.session.pending_map.is_some()
    }

    /// Whether something was applied since the last commit.
    fn has_uncommitted(&self) -> bool {
        let applied = |line: &dyn Lifeline| {
            let replies = self.connection.as_ref().is_some_and(|c| c.tx.backlog() > 0);
            !line.arrival().is_empty() || replies || self.session.changed
        };
        self.lifeline.as_deref().is_some_and(applied)
    }

    /// Reads once, by way of the lifeline if there is one.
    pub(super) fn fill(&mut self) -> Result<Filled, Errno> {
        let Some(connection) = &mut self.connection else {
            return Ok(Filled::Empty);
        };
        let Some(lifeline) = &mut self.lifeline else {
            return connection.rx.fill(connection.socket.as_fd());
        };
        let filled = lifeline.receive(connection.socket.as_fd())?;
        if filled == Filled::Data {
            connection.accept(&mut **lifeline);
        }
        Ok(filled)
    }

    /// Bytes that the client has not taken.
    pub(super) fn backlog(&self) -> usize {
        let lifeline = self.lifeline.as_ref().map_or(0, |line| line.backlog());
        lifeline + self.connection.as_ref().map_or(0, |c| c.tx.backlog())
    }

    /// Commits what was applied, and sends. True when nothing is left to be sent.
    pub(super) fn commit_and_flush(&mut self, device: &mut dyn Device) -> Result<bool, Errno> {
        if self.session.pending_map.is_none() && self.has_uncommitted() {
            self.commit(device);
        }
        let between = self.is_between();
        let Some(connection) = &mut self.connection else {
            return Ok(true);
        };
        let socket = connection.socket.as_fd();
        if let Some(lifeline) = &mut self.lifeline {
            if lifeline.backlog() > 0 && !lifeline.flush(socket)? {
                return Ok(false);
            }
            // Committed before they are sent, or not at all.
            if between {
                return Ok(connection.tx.backlog() == 0);
            }
        }
        if connection.tx.backlog() == 0 {
            return Ok(true);
        }
        let done = connection.tx.flush(socket)?;
        if done && self.lifeline.is_some() {
            // It had descriptors, or was too much at once. From here on all is as ever.
            self.commit(device);
        }
        Ok(done)
    }

    /// Commits.
    pub(super) fn commit(&mut self, device: &mut dyn Device) {
        let changed = device.has_changed() | std::mem::take(&mut self.session.changed);
        let loose = self.stand == Stand::Loose;
        // Descriptors of messages that are not applied are in what the client is; that some are lacking is not.
        let waits = |c: &Connection| c.rx.unread().1.next().is_some() || c.rx.lacks_descriptors();
        let waits = self.connection.as_ref().is_some_and(waits);
        let new = (changed || loose || waits)
            .then(|| self.describe_kept(device))
            .flatten();
        let (Some(lifeline), Some(connection)) = (&mut self.lifeline, &mut self.connection) else {
            return;
        };
        let kept = match &new {
            Some((files, client, state)) => Some(Kept::New(files, [client, state])),
            None if changed || loose || waits => None,
            None => Some(Kept::Same),
        };
        let (rest, _) = connection.rx.unread();
        let done = match (kept, connection.tx.unsent()) {
            (Some(kept), Some(replies)) => lifeline.commit(rest, replies, kept),
            _ => false,
        };
        if done {
            connection.tx.clear();
            self.stand = Stand::Fast;
            // Once more, without them.
            self.session.changed |= waits;
        } else {
            lifeline.give_up();
            self.stand = Stand::Loose;
        }
        device.settled();
        self.session.deferred_closer.let_go();
    }

    /// Commits what has changed by itself, behind the device's work; nothing is to be sent.
    pub(super) fn commit_changes(&mut self, device: &mut dyn Device) {
        if self.lifeline.is_none() || self.is_between() {
            return;
        }
        if device.has_changed() || self.session.changed {
            if self.connection.is_some() && self.session.ready {
                self.session.changed = true;
                self.commit(device);
            } else {
                device.settled();
            }
        }
        self.session.deferred_closer.let_go();
    }

    /// What the client and the device are, if another process could go on with both.
    fn describe_kept(&self, device: &mut dyn Device) -> Option<(Vec<RawFd>, Vec<u8>, Vec<u8>)> {
        let connection = self.connection.as_ref().filter(|_| self.session.ready)?;
        let replies = connection.tx.unsent()?;
        // Of half of a very long message, nothing is described in vain as often as more of it comes.
        let (rest, _) = connection.rx.unread();
        let lifeline = self.lifeline.as_ref()?;
        if !lifeline.has_room(rest.len(), replies.len()) {
            return None;
        }
        let (client, files) = self.describe(Files::numbers()).ok()?;
        Some((files.into_numbers(), client, device.state()?))
    }

    /// The client is gone, or another comes: nobody is to go on with it.
    pub(super) fn let_loose(&mut self) {
        if let Some(lifeline) = &mut self.lifeline {
            lifeline.reset();
            self.stand = Stand::Loose;
            self.session.deferred_closer.let_go();
        }
    }

    /// Serves without a lifeline from now on: the client is to be handed over by who is alive.
    pub fn let_go_of_lifeline(&mut self) {
        let Some(mut lifeline) = self.lifeline.take() else {
            return;
        };
        if let Some(doorbells) = &mut self.session.shape.doorbells {
            doorbells.keep_nothing();
        }
        let first = lifeline.take_unsent();
        if let Some(connection) = &mut self.connection
            && let Some(then) = connection.tx.unsent()
        {
            let all = [&first[..], then].concat();
            connection.tx.clear();
            connection.tx.push_raw(&all);
        }
        self.session.deferred_closer.let_go();
        self.session.deferred_closer.hold(false);
    }

    /// Goes on with the client of a process that has died, of which this is the lifeline: `state` and `files` are what was committed
    /// last. `load` makes the device what it was. Messages that came and were not answered are applied again.
    ///
    /// # Errors
    /// As [`Server::take_over`].
    pub fn go_on_after_death<D: Device>(
        &mut self,
        device: &mut D,
        lifeline: Box<dyn Lifeline>,
        handover: Handover,
        load: impl FnOnce(&mut D) -> Result<(), String>,
    ) -> Result<(), HandoverError> {
        let rest = lifeline.rest().to_vec();
        self.hold_on(lifeline);
        self.take_over_with(device, handover, Some(&rest))?;
        if let Err(why) = load(device) {
            self.end_client(device, "its NIC cannot go on");
            return Err(HandoverError::Device(why));
        }
        // One interrupt too many harms nobody, one too few may be the last.
        self.session.irq.0.unmask_pin();
        self.session.changed = true;
        self.stand = Stand::Fast;
        if let (Some(lifeline), Some(connection)) = (&mut self.lifeline, &mut self.connection)
            && !lifeline.arrival().is_empty()
        {
            connection.accept(&mut **lifeline);
        }
        // And once from the socket: what buffers the guest has given meanwhile is best known before frames come.
        self.serve(device, usize::MAX, true);
        Ok(())
    }
}
