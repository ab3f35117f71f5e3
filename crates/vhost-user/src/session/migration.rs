//! What lets a guest move, or go on after a crash: the dirty log, what is in flight, the state.

use std::os::fd::{AsFd, OwnedFd};

use peer::stream::Sender;

use super::Session;
use crate::answer::{Refusal, Reply};
use crate::backend::Backend;
use crate::codec::{DeviceState, Direction, Header, Inflight, LogBase, feature};
use crate::dirty_log::DirtyLog;
use crate::inflight::{self, InflightFile};
use crate::transfer::{Outcome, Transfer};

/// A reply to `SET_DEVICE_STATE_FD` without a descriptor of ours.
const WITHOUT_FD: u64 = 1 << 8;

impl Session {
    pub(super) fn set_log_base(
        &mut self,
        backend: &mut dyn Backend,
        base: &LogBase,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let LogBase::Shared(part) = base else {
            return Err("the log must be a shared file".into());
        };
        let fd = fds.remove(0);
        let memory = self.opened.take().unwrap_or_else(|| self.new_memory());
        let log = DirtyLog::map(part, fd.as_fd(), memory);
        self.closer.bury(fd);
        let log = log.map_err(|error| Refusal::Hard(format!("the dirty log: {error}")))?;
        let old = self.log.replace(log);
        self.tell_log(backend);
        if let Some(old) = old {
            self.closer.bury(old.unmap());
        }
        Ok(Reply::Bytes(part.to_bytes().to_vec()))
    }

    /// Logging begins or ends.
    pub(super) fn tell_log(&mut self, backend: &mut dyn Backend) {
        let on = self.features & feature::LOG_ALL != 0;
        backend.set_log(self.log.clone().filter(|_| on));
    }

    /// What was logged by this front end's log.
    pub fn log_counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let (marked, outside) = self.log.as_ref().map_or((0, 0), DirtyLog::counts);
        visit("log_pages_marked", marked);
        visit("log_marks_outside", outside);
    }

    fn is_packed(&self) -> bool {
        self.features & feature::PACKED != 0
    }

    fn inflight_bytes(&self, asked: &Inflight) -> Result<u64, Refusal> {
        if asked.queues == 0 || usize::from(asked.queues) > self.rings.len() {
            return Err("it has more rings than the device, or none".into());
        }
        if asked.queue_size == 0 || asked.queue_size > super::rings::MAX_SIZE {
            return Err("a ring has 1 to 32768 descriptors".into());
        }
        Ok(inflight::bytes(
            asked.queues,
            asked.queue_size,
            self.is_packed(),
        ))
    }

    pub(super) fn get_inflight(&mut self, asked: &Inflight) -> Result<Reply, Refusal> {
        let size = self.inflight_bytes(asked)?;
        let file = inflight::create(asked.queues, asked.queue_size, self.is_packed())
            .and_then(|file| file.as_fd().try_clone_to_owned());
        let fd = file.map_err(|error| Refusal::Hard(format!("no memory for it: {error}")))?;
        let reply = Inflight {
            size,
            offset: 0,
            ..*asked
        };
        Ok(Reply::WithFd(reply.to_bytes().to_vec(), fd))
    }

    pub(super) fn set_inflight(
        &mut self,
        given: &Inflight,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let fd = fds.remove(0);
        let memory = self.opened.take().unwrap_or_else(|| self.new_memory());
        let mapped = self.inflight_bytes(given).and_then(|bytes| {
            if given.size < bytes {
                return Err("it is too small for its rings".into());
            }
            InflightFile::map(given, fd.as_fd(), memory)
                .map_err(|error| Refusal::Hard(format!("what is in flight: {error}")))
        });
        self.closer.bury(fd);
        let old = self.inflight.replace(mapped?);
        if let Some(old) = old {
            self.closer.bury(old.unmap());
        }
        Ok(Reply::Done)
    }

    pub(super) fn begin_transfer(
        &mut self,
        backend: &mut dyn Backend,
        asked: &DeviceState,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        if asked.phase != 0 {
            return Err("its phase is not known".into());
        }
        if self.ring_runs() {
            return Err("a ring runs".into());
        }
        let running = |t: &Transfer| t.is_running();
        if self.transfer.as_ref().is_some_and(running) {
            return Err("another transfer goes on".into());
        }
        let state = match asked.direction {
            // Bits 7:0 of the reply say that it failed.
            Direction::Save => match backend.save() {
                None => return Ok(Reply::Word(WITHOUT_FD | 1)),
                state => state,
            },
            Direction::Load => None,
        };
        let fd = fds.remove(0);
        let transfer = Transfer::begin(fd, state, &self.wake, &self.closer);
        self.transfer = Some(transfer);
        Ok(Reply::Word(WITHOUT_FD))
    }

    pub(super) fn ring_runs(&self) -> bool {
        self.rings.iter().any(|ring| ring.started)
    }

    pub(super) fn check_transfer(
        &mut self,
        backend: &mut dyn Backend,
        header: &Header,
    ) -> Result<Reply, Refusal> {
        let Some(failed) = self.end_transfer(backend) else {
            self.unanswered = Some(*header);
            return Ok(Reply::Later);
        };
        Ok(Reply::Word(u64::from(failed)))
    }

    /// Whether the transfer has failed; `None` while it goes on.
    fn end_transfer(&mut self, backend: &mut dyn Backend) -> Option<bool> {
        let Some(transfer) = &self.transfer else {
            return Some(true);
        };
        let failed = match transfer.take() {
            Outcome::Running => return None,
            Outcome::Saved => false,
            // A ring may have started while the state was on its way: it would run from the old one.
            Outcome::Loaded(state) => self.ring_runs() || backend.load(&state).is_err(),
            Outcome::Failed => true,
        };
        self.counters.transfers_failed += u64::from(failed);
        self.transfer = None;
        Some(failed)
    }

    /// A transfer may have ended, or files may have been mapped: answers the message that waits for it.
    pub fn wake(&mut self, backend: &mut dyn Backend, tx: &mut Sender) {
        self.go_on(backend, tx);
        let Some(header) = self.unanswered else {
            return;
        };
        if let Some(failed) = self.end_transfer(backend) {
            self.unanswered = None;
            tx.push(&header.reply(8), &u64::from(failed).to_ne_bytes());
        }
    }
}
