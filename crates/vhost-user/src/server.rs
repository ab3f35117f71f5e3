//! The server: one device, one front end at a time, as a non-blocking state machine.

mod clients;
mod state;
mod watched;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest_mem::Memory;
use guest_mem::quota::Tenant;
use peer::deferred_closer::MOST;
use peer::stream::Filled;
use peer::{EventFd, EventSet, Listener, PeerFd, event};
use rustix::io::Errno;

use crate::backend::{Backend, GoneReason, Work};
use crate::calls::Calls;
use crate::session::Session;
use state::MAX_QUEUES;
use watched::Source;

pub use state::Server;

/// Replies that may wait for a front end that does not read them; then it is not listened to.
const MAX_BACKLOG: usize = 64 << 10;

/// How long a front end is not listened to because what it gave has not ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two looks at rings whose driver does not kick, of [`Server::run`]: after something
/// came, and when nothing has come for a while.
const FIRST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// How often, in calls, kicks are looked at while the front end keeps us busy with messages.
const SCAN_EVERY: u32 = 8;

/// Why a server cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A device has 1 to 256 rings.
    #[error("a vhost-user device has 1 to {MAX_QUEUES} rings, and this one has {0}")]
    Queues(u16),
    /// The process or the system has no descriptor or memory left.
    #[error("cannot set up the server's descriptors: {0}")]
    System(#[from] io::Error),
}

/// Where [`Server::process_after`] looks for something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Wherever there may be something.
    All,
    /// Nowhere: the device has more to do, and it is not long since it was looked at.
    Nowhere,
}

/// What a call to [`Server::process`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// There is more to do now: call again, after others had their turn.
    pub more: bool,
    /// Messages answered.
    pub messages: usize,
    /// Rings that were kicked.
    pub kicks: u64,
    /// A front end is connected and has sent a good message.
    pub connected: bool,
    /// The one connection this server was made for is over.
    pub finished: bool,
}

impl Server {
    /// Makes a server for a device with so many rings. Its memory is empty until a front end hands
    /// some over.
    ///
    /// # Errors
    /// The number of rings is impossible, or descriptors ran out.
    pub fn new(queues: u16, listener: Listener) -> Result<Self, ServerError> {
        Self::make(queues, listener, None)
    }

    /// As [`Server::new`], for front ends of a tenant, which share what is theirs of the process with
    /// those of the tenant's other devices.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub fn of_tenant(
        queues: u16,
        listener: Listener,
        tenant: &Arc<Tenant>,
    ) -> Result<Self, ServerError> {
        Self::make(queues, listener, Some(Arc::clone(tenant)))
    }

    fn make(
        queues: u16,
        listener: Listener,
        tenant: Option<Arc<Tenant>>,
    ) -> Result<Self, ServerError> {
        if !(1..=MAX_QUEUES).contains(&queues) {
            return Err(ServerError::Queues(queues));
        }
        event::can_tell()?;
        let memory = tenant.as_ref().map_or_else(Memory::new, Memory::of_tenant);
        let spare = listener.as_fd().map(|_| listener.spare()).transpose()?;
        let mut server = Self {
            session: Session::new(queues, memory, tenant)?,
            listener,
            connection: None,
            fds: Vec::new(),
            calls: 0,
            served_one: false,
            spare,
            out_of_service: false,
            choked: None,
        };
        if let Some(fd) = server.listener.take_connected() {
            let fd = PeerFd::new(fd, &server.session.closer);
            server.connect(fd)?;
        }
        Ok(server)
    }

    /// The device's way to its driver.
    pub fn calls(&self) -> Calls {
        self.session.calls.clone()
    }

    /// Guest memory, by guest physical address.
    pub fn memory(&self) -> Memory {
        self.session.memory.memory.clone()
    }

    /// A front end is connected and has sent a good message.
    pub fn connected(&self) -> bool {
        self.connection.is_some() && self.session.ready
    }

    /// A ring runs whose driver does not kick. A caller that calls [`process`](Self::process) only
    /// when there is work calls it now and then, too.
    pub fn polls(&self) -> bool {
        self.session.polls()
    }

    /// Does what there is to do: reads once from the front end, answers up to `budget` messages, sends
    /// all replies at once, takes kicks, then lets the device work. Never blocks.
    ///
    /// # Errors
    /// Only the server's own descriptors can fail here; a front end never makes it an error.
    pub fn process(&mut self, backend: &mut dyn Backend, budget: usize) -> io::Result<Progress> {
        self.process_after(Look::All, backend, budget)
    }

    /// The same for an owner that calls often and knows where a look is worth its system call.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn process_after(
        &mut self,
        look: Look,
        backend: &mut dyn Backend,
        budget: usize,
    ) -> io::Result<Progress> {
        self.calls = self.calls.wrapping_add(1);
        let kicks_before = self.session.counters.kicks;
        let look = look == Look::All;
        let messages = self.serve(backend, budget.max(1), look);
        if look && (messages == 0 || self.calls.is_multiple_of(SCAN_EVERY)) {
            self.scan(backend)?;
        }
        let work = backend.work();
        let waiting = self
            .connection
            .as_ref()
            .is_some_and(|c| !c.watching_out && c.rx.has_message())
            && !self.session.is_waiting();
        Ok(Progress {
            more: work == Work::More || waiting,
            messages,
            kicks: self.session.counters.kicks - kicks_before,
            connected: self.connected(),
            finished: self.served_one
                && self.connection.is_none()
                && self.listener.as_fd().is_none(),
        })
    }

    /// Serves front ends until `stop` is signalled, or until the one inherited connection is over.
    ///
    /// # Errors
    /// The server's own descriptors failed.
    pub fn run(&mut self, backend: &mut dyn Backend, stop: &EventFd) -> io::Result<()> {
        let set = EventSet::new()?;
        set.add(stop.as_fd())?;
        self.watch(&set)?;
        let result = self.run_until(backend, stop, &set);
        self.unwatch();
        result
    }

    fn run_until(
        &mut self,
        backend: &mut dyn Backend,
        stop: &EventFd,
        set: &EventSet,
    ) -> io::Result<()> {
        let mut nap = FIRST_NAP;
        loop {
            let progress = self.process(backend, 1024)?;
            if progress.finished || stop.take() > 0 {
                return Ok(());
            }
            if progress.more || progress.messages > 0 {
                nap = FIRST_NAP;
                continue;
            }
            let timeout = if self.polls() { nap } else { Duration::MAX };
            if event::wait_readable(set.as_fd(), timeout) {
                nap = FIRST_NAP;
            } else {
                nap = (2 * nap).min(LONGEST_NAP);
            }
        }
    }

    /// Counters by name.
    pub fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.session.counters;
        c.visit(visit);
        let (mut recv, mut send) = (c.recv_calls, c.send_calls);
        let (mut bytes_in, mut bytes_out) = (c.bytes_in, c.bytes_out);
        let mut surplus = c.surplus_fds;
        if let Some(connection) = &self.connection {
            recv += connection.rx.calls;
            send += connection.tx.calls;
            bytes_in += connection.rx.bytes;
            bytes_out += connection.tx.bytes;
            surplus += connection.rx.surplus_fds;
        }
        visit("recv_calls", recv);
        visit("send_calls", send);
        visit("bytes_in", bytes_in);
        visit("bytes_out", bytes_out);
        visit("surplus_fds", surplus);
        self.session.log_counters(visit);
        self.session.calls.counters(visit);
        self.session.memory.memory.counters(visit);
    }

    /// Reads once, if it may, and answers what is complete.
    fn serve(&mut self, backend: &mut dyn Backend, budget: usize, may_read: bool) -> usize {
        if self.session.is_waiting() && self.has_hung_up() {
            self.disconnect(backend, GoneReason::Closed);
        }
        let Some(connection) = &mut self.connection else {
            return 0;
        };
        let session = &mut self.session;
        let mut gone = None;
        let mut used = 0;
        let mut read = !may_read;
        loop {
            // A front end that does not read its replies is not listened to until it does.
            if connection.tx.backlog() >= MAX_BACKLOG || connection.watching_out {
                match connection.tx.flush(connection.socket.as_fd()) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(errno) => {
                        gone = Some(socket_gone(errno));
                        break;
                    }
                }
            }
            // Nor one whose descriptors come faster than they are closed; those that do not close at
            // all are the end of it.
            if session.closer.left() > MOST
                || session.closer.left() > 0 && session.closer.is_used_up()
            {
                let since = *self.choked.get_or_insert_with(Instant::now);
                if since.elapsed() < PATIENCE {
                    break;
                }
                session.close = Some("too many of its files cannot be closed".to_owned());
            } else {
                self.choked = None;
            }
            if used >= budget || session.close.is_some() || session.is_waiting() {
                break;
            }
            match connection.rx.next(&mut self.fds) {
                Ok(Some(received)) => {
                    let (fds, tx) = (&mut self.fds, &mut connection.tx);
                    used += session.handle(backend, received, fds, tx);
                    continue;
                }
                Ok(None) => {}
                Err(_) => {
                    session.counters.malformed_size += 1;
                    let what = "a message has an impossible size";
                    gone = Some(GoneReason::Protocol(what.to_owned()));
                    break;
                }
            }
            if read {
                break;
            }
            read = true;
            match connection.rx.fill(connection.socket.as_fd()) {
                Ok(Filled::Data) => {}
                Ok(Filled::Empty) => break,
                Ok(Filled::Closed) => {
                    gone = Some(GoneReason::Closed);
                    break;
                }
                Err(errno) => {
                    gone = Some(socket_gone(errno));
                    break;
                }
            }
        }
        self.settle(backend, gone);
        used
    }

    /// Sends what is to be sent, and ends the connection if it is over.
    fn settle(&mut self, backend: &mut dyn Backend, mut gone: Option<GoneReason>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if gone.is_none()
            && connection.tx.backlog() > 0
            && let Err(errno) = connection.tx.flush(connection.socket.as_fd())
        {
            gone = Some(socket_gone(errno));
        }
        if let Some(what) = self.session.close.take() {
            gone.get_or_insert(GoneReason::Protocol(what));
        }
        if gone.is_none() {
            let out = connection.tx.backlog() > 0;
            let end = self.session.is_waiting();
            let before = (connection.watching_out, connection.watching_end);
            connection.watching_out = out;
            connection.watching_end = end;
            if (out, end) != before
                && let Err(errno) = self.rewatch(Source::Main)
            {
                gone = Some(socket_gone(errno));
            }
        }
        if let Some(reason) = gone {
            self.disconnect(backend, reason);
        }
    }

    /// Looks at everything but the front end's messages.
    fn scan(&mut self, backend: &mut dyn Backend) -> io::Result<()> {
        for source in self.readable()? {
            match source {
                Source::Listener => self.accept(backend)?,
                Source::Wake => {
                    self.session.wake.take();
                    if let Some(connection) = &mut self.connection {
                        self.session.wake(backend, &mut connection.tx);
                    }
                }
                Source::Main => {}
                Source::Kick(queue) => self.session.kick(backend, queue),
            }
        }
        self.settle(backend, None);
        Ok(())
    }
}

fn socket_gone(errno: Errno) -> GoneReason {
    match errno {
        Errno::PIPE | Errno::CONNRESET => GoneReason::Closed,
        errno => GoneReason::Socket(io::Error::from(errno).kind()),
    }
}

#[cfg(test)]
mod tests;
