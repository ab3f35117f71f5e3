//! The server: one device, one client at a time, as a non-blocking state machine.

mod clients;
mod counters;
mod handover;
mod held;
mod irqs;
mod journey;
mod kept_maps;
mod lifeline;
mod line;
mod map_answers;
mod migration;
mod pending_map;
mod regions;
mod session;
mod state;
#[cfg(test)]
mod tests;
mod twin;
mod watched;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest_mem::Memory;
use guest_mem::quota::Tenant;
use pci::ConfigSpace;
use rustix::io::Errno;

pub use handover::{Handover, HandoverError, check_state};
pub use held::HoldError;
pub use line::{Kept, Lifeline};
pub use state::Server;

use self::counters::Counters;
use self::kept_maps::KeptMaps;
use self::pending_map::PendingMap;
use self::session::{MAX_DATA, Session, SignalChange, Todo};
use self::state::{MAX_SIGNALS, SIGNAL, Twin};
use self::watched::Source;
use crate::description::{DescriptionError, DeviceDescription};
use crate::device::{Device, GoneReason, Work};
use crate::dma::{Dma, Engine};
use crate::doorbell::MappedDoorbells;
use crate::interrupts::Interrupts;
use crate::msix::Table;
use crate::stream::{Filled, Receiver, Sender, message};
use peer::deferred_closer::{DeferredCloser, MOST, PeerFd};
use peer::event::{self, EventFd};
use peer::{EventSet, Listener};

/// Replies that may wait for a client that does not read them; then it is not listened to.
const MAX_BACKLOG: usize = 256 << 10;

/// How long a client is not listened to because what it gave has not ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two looks at doorbells in memory, of [`Server::run`]: after something came, and
/// when nothing has come for a while.
const FIRST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// How often, in calls, the rest is looked at while the client keeps us busy.
const SCAN_EVERY: u32 = 8;

/// Why a server cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The description is impossible.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The process or the system has no descriptor or memory left.
    #[error("cannot set up the server's descriptors: {0}")]
    System(#[from] io::Error),
}

/// Where [`Server::process_after`] looks for something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Wherever there may be something.
    All,
    /// At the client's messages, and seldom at the rest: the owner watches [`Server::as_fd`].
    Messages,
    /// Nowhere: the device has more to do, and it is not long since it was looked at.
    Nowhere,
}

/// What a call to [`Server::process`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// There is more to do now: call again, after others had their turn.
    pub more: bool,
    /// Messages answered; the entries of a `REGION_WRITE_MULTI` count each.
    pub messages: usize,
    /// Doorbells in memory that had been rung.
    pub doorbells: u64,
    /// A client is connected and has negotiated.
    pub connected: bool,
    /// The one connection this server was made for is over.
    pub finished: bool,
}

impl Server {
    /// Makes a server for a device. Its memory is empty until a client maps some.
    ///
    /// # Errors
    /// The description is impossible, or descriptors ran out.
    pub fn new(description: DeviceDescription, listener: Listener) -> Result<Self, ServerError> {
        Self::make(description, listener, None)
    }

    /// As [`Server::new`], for clients of a tenant, which share what is theirs of the process with those of the tenant's
    /// other devices.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub fn of_tenant(
        description: DeviceDescription,
        listener: Listener,
        tenant: &Arc<Tenant>,
    ) -> Result<Self, ServerError> {
        Self::make(description, listener, Some(Arc::clone(tenant)))
    }

    fn make(
        description: DeviceDescription,
        listener: Listener,
        tenant: Option<Arc<Tenant>>,
    ) -> Result<Self, ServerError> {
        let (shape, config) = description.build()?;
        let memory = tenant.as_ref().map_or_else(Memory::new, Memory::of_tenant);
        let dma = Dma::new(memory.clone());
        event::can_tell()?;
        let spare = listener.as_fd().map(|_| listener.spare()).transpose()?;
        let vectors = shape.msix.map_or(0, |m| usize::from(m.vectors));
        let session = Session {
            irq: Interrupts::new(shape.intx, shape.msi, vectors),
            table: shape.msix.map(Table::new),
            engine: Engine::new(dma.clone()),
            deferred_closer: DeferredCloser::of_tenant(tenant),
            mapper: DeferredCloser::default(),
            pending_map: None,
            kept_maps: KeptMaps::default(),
            shape,
            config,
            memory,
            counters: Counters::default(),
            todo: Todo::default(),
            ready: false,
            max_data: MAX_DATA,
            write_multiple: false,
            next_token: SIGNAL,
            changed: true,
            migration: journey::Migration::default(),
        };
        let mut server = Self {
            session,
            listener,
            connection: None,
            refused: Vec::new(),
            signals: Vec::new(),
            set: None,
            dma,
            fds: Vec::new(),
            calls: 0,
            served_one: false,
            spare,
            out_of_service: false,
            choked: None,
            lifeline: None,
            stand: line::Stand::Loose,
        };
        if let Some(fd) = server.listener.take_connected() {
            let fd = PeerFd::new(fd, &server.session.deferred_closer);
            server.connect(fd)?;
        }
        Ok(server)
    }

    /// The device's interrupts.
    pub fn interrupts(&self) -> Interrupts {
        self.session.irq.clone()
    }

    /// The device's way to guest memory.
    ///
    /// # Errors
    /// Descriptors ran out: other threads that ask have to wake the server.
    pub fn dma(&self) -> io::Result<Dma> {
        self.dma.make_wake(|fd| self.begin(fd))?;
        Ok(self.dma.clone())
    }

    /// Some registers may be memory.
    pub fn has_doorbells(&self) -> bool {
        self.session.shape.doorbells.is_some()
    }

    /// The doorbells in memory, while a client has them: another one for each client. A caller that
    /// calls [`process`](Self::process) only when there is work polls these too, now and then.
    pub fn bell(&self) -> Option<&MappedDoorbells> {
        self.session.shape.doorbells.as_ref()?.bell()
    }

    /// The mapped part of guest memory.
    pub fn memory(&self) -> Memory {
        self.session.memory.clone()
    }

    /// The configuration space.
    pub fn config(&self) -> &ConfigSpace {
        &self.session.config
    }

    /// Takes over the writable bits of a saved configuration space.
    pub fn restore_config(&mut self, saved: &[u8]) {
        self.session.config.restore(saved);
        self.session.follow_config();
    }

    /// A client is connected and has negotiated.
    pub fn connected(&self) -> bool {
        self.connection.is_some() && self.session.ready
    }

    /// Does what there is to do: reads once from the client, answers up to `budget` messages, sends
    /// all replies at once, then lets the device work. Never blocks.
    ///
    /// # Errors
    /// Only the server's own descriptors can fail here; a client never makes it an error.
    pub fn process(&mut self, device: &mut dyn Device, budget: usize) -> io::Result<Progress> {
        self.process_after(Look::All, device, budget)
    }

    /// The same for an owner that calls often and knows where a look is worth its system call.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn process_after(
        &mut self,
        look: Look,
        device: &mut dyn Device,
        budget: usize,
    ) -> io::Result<Progress> {
        let _inside = self.dma.enter();
        self.calls = self.calls.wrapping_add(1);
        let rung_before = self.session.counters.doorbells;
        let messages = self.serve(device, budget.max(1), look != Look::Nowhere);
        let vain = messages == 0 && look == Look::All;
        if vain || look != Look::Nowhere && self.calls.is_multiple_of(SCAN_EVERY) {
            self.scan(device)?;
        }
        self.pump_dma(device);
        if self.session.look_at_doorbells(device).others > 0 {
            // The device does not work as nobody would know after this process.
            self.commit_changes(device);
        }
        let halted = self.session.is_halted();
        let work = match self.is_between() || halted {
            true => Work::Idle,
            false => device.work(),
        };
        let mut rung = false;
        if let Some(doorbells) = self.session.shape.doorbells.as_mut().filter(|_| !halted) {
            doorbells.publish(device);
            // Rung while the device worked: nothing else would notice soon.
            rung = doorbells.bell().is_some_and(MappedDoorbells::rung);
        }
        self.commit_changes(device);
        // The device may have asked for DMA from its work, and what that brings may be new work.
        let delivered = self.session.engine.has_new() && self.pump_dma(device);
        let waiting = self
            .connection
            .as_ref()
            .is_some_and(|c| !c.watching_out && c.rx.has_message());
        let pending = self.session.pending_map.as_ref();
        let waiting = pending.map_or(waiting, PendingMap::is_done);
        Ok(Progress {
            more: work == Work::More
                || rung
                || waiting
                || delivered
                || self.connection.is_some() && self.session.engine.has_new(),
            messages,
            doorbells: self.session.counters.doorbells - rung_before,
            connected: self.connected(),
            finished: self.served_one
                && self.connection.is_none()
                && self.listener.as_fd().is_none(),
        })
    }

    /// Serves clients until `stop` is signalled, or until the one inherited connection is over.
    ///
    /// # Errors
    /// The server's own descriptors failed.
    pub fn run(&mut self, device: &mut dyn Device, stop: &EventFd) -> io::Result<()> {
        let set = EventSet::new()?;
        set.add(stop.as_fd())?;
        self.watch(&set)?;
        let result = self.run_until(device, stop, &set);
        self.unwatch();
        result
    }

    fn run_until(
        &mut self,
        device: &mut dyn Device,
        stop: &EventFd,
        set: &EventSet,
    ) -> io::Result<()> {
        let mut round = 0u32;
        let mut nap = FIRST_NAP;
        loop {
            let progress = self.process(device, 1024)?;
            if progress.messages > 0 || progress.doorbells > 0 {
                nap = FIRST_NAP;
            }
            // A look at `stop` is a system call, so a busy client pays for it now and then only.
            round = round.wrapping_add(1);
            let look = progress.messages == 0 || round.is_multiple_of(64);
            if progress.finished || look && stop.take() > 0 {
                break;
            }
            if progress.more {
                continue;
            }
            let timeout = if self.bell().is_some_and(MappedDoorbells::is_live) {
                nap
            } else {
                Duration::MAX
            };
            if !event::wait_readable(set.as_fd(), timeout) {
                nap = (2 * nap).min(LONGEST_NAP);
            }
        }
        Ok(())
    }

    /// Counters by name.
    pub fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.session.counters;
        c.visit(visit);
        let (mut recv, mut send) = (c.recv_calls, c.send_calls);
        let (mut bytes_in, mut bytes_out) = (c.bytes_in, c.bytes_out);
        let mut surplus = c.surplus_fds;
        if let Some(connection) = &self.connection {
            let twin = connection.twin.as_ref().map(|t| (&t.rx, &t.tx));
            for (rx, tx) in [(&connection.rx, &connection.tx)].into_iter().chain(twin) {
                recv += rx.calls;
                send += tx.calls;
                bytes_in += rx.bytes;
                bytes_out += tx.bytes;
                surplus += rx.surplus_fds;
            }
        }
        visit("recv_calls", recv);
        visit("send_calls", send);
        visit("bytes_in", bytes_in);
        visit("bytes_out", bytes_out);
        visit("surplus_fds", surplus);
        visit("dma_messages", self.session.engine.messages);
        visit("dma_message_bytes", self.session.engine.bytes);
        self.session.irq.counters(visit);
        self.session.memory.counters(visit);
    }

    /// Reads once, if it may, and answers what is complete.
    fn serve(&mut self, device: &mut dyn Device, budget: usize, may_read: bool) -> usize {
        let mut gone = None;
        let mut used = 0;
        let mut read = !may_read;
        loop {
            let full = self.backlog() >= MAX_BACKLOG;
            let Some(connection) = &mut self.connection else {
                return 0;
            };
            if !self.session.resume_map(device, &mut connection.tx) {
                break;
            }
            // A client that does not read its replies is not listened to until it does.
            if full || connection.watching_out {
                match self.commit_and_flush(device) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(errno) => {
                        gone = Some(socket_gone(errno));
                        break;
                    }
                }
            }
            let Some(connection) = &mut self.connection else {
                return 0;
            };
            // Nor one whose descriptors come faster than they are closed; those that do not close at
            // all are the end of it.
            let closer = &self.session.deferred_closer;
            if closer.left() > MOST || closer.left() > 0 && closer.is_used_up() {
                let since = *self.choked.get_or_insert_with(Instant::now);
                if since.elapsed() < PATIENCE {
                    break;
                }
                self.session.todo.close = Some("too many of its files cannot be closed");
            } else {
                self.choked = None;
            }
            if used >= budget || self.session.todo.close.is_some() {
                break;
            }
            match connection.rx.next(&mut self.fds) {
                Ok(Some(received)) => {
                    used +=
                        self.session
                            .handle(device, received, &mut self.fds, &mut connection.tx);
                    let most = message(self.session.max_data);
                    connection.rx.set_max_message(most);
                    continue;
                }
                Ok(None) => {}
                Err(_) => {
                    self.session.counters.malformed_size += 1;
                    gone = Some(GoneReason::Protocol("a message has an impossible size"));
                    break;
                }
            }
            if read {
                break;
            }
            read = true;
            // What came before is to be committed before more comes.
            if self.lifeline.is_some()
                && let Err(errno) = self.commit_and_flush(device)
            {
                gone = Some(socket_gone(errno));
                break;
            }
            match self.fill() {
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
        if gone.is_none()
            && (used > 0 || self.backlog() > 0)
            && let Err(errno) = self.commit_and_flush(device)
        {
            gone = Some(socket_gone(errno));
        }
        if let Some(what) = self.session.todo.close.take() {
            gone.get_or_insert(GoneReason::Protocol(what));
        }
        match gone {
            Some(reason) => self.disconnect(device, reason),
            None => {
                self.begin_map();
                self.settle(device);
            }
        }
        used
    }

    /// Has a thread do what a DMA_MAP waits for.
    fn begin_map(&mut self) {
        if self.session.pending_map.is_none() {
            return;
        }
        let had = self.connection.as_mut().and_then(|c| c.map_bell.take());
        let made = had.map_or_else(|| self.make_map_bell().ok(), Some);
        let session = &mut self.session;
        if let Some(pending) = &mut session.pending_map {
            match &made {
                Some(bell) => pending.begin(&session.mapper, &session.memory, bell),
                None => pending.do_now(&session.memory),
            }
        }
        if let Some(connection) = &mut self.connection {
            connection.map_bell = made;
        }
    }

    fn make_map_bell(&self) -> io::Result<Arc<EventFd>> {
        let bell = EventFd::new()?;
        self.begin(bell.as_fd())?;
        Ok(Arc::new(bell))
    }

    /// Does what the messages asked of the sockets.
    fn settle(&mut self, device: &mut dyn Device) {
        for change in std::mem::take(&mut self.session.todo.signals) {
            match change {
                SignalChange::Add(signal) => {
                    if self.signals.len() < MAX_SIGNALS && self.begin(signal.fd.as_fd()).is_ok() {
                        self.signals.push(signal);
                    } else {
                        self.session.counters.bad_eventfd += 1;
                    }
                }
                SignalChange::Remove(which) => {
                    let set = &self.set;
                    self.signals.retain(|signal| {
                        let goes = which.covers(signal);
                        if let Some(set) = set.as_ref().filter(|_| goes) {
                            set.delete(signal.fd.as_fd());
                        }
                        !goes
                    });
                }
            }
        }
        if self.connection.is_none() {
            return;
        }
        if let Some(socket) = self.session.todo.twin.take()
            && self.begin(socket.as_fd()).is_ok()
            && let Some(connection) = &mut self.connection
        {
            connection.twin = Some(Twin {
                socket,
                rx: Receiver::new(
                    message(self.session.max_data),
                    self.session.deferred_closer.clone(),
                ),
                tx: Sender::new(),
                watching_out: false,
            });
        }
        let out = self.backlog() > 0 && !self.is_between();
        if let Some(connection) = &mut self.connection {
            let paused = self.session.pending_map.is_some();
            if let Some(bell) = connection.map_bell.take_if(|_| !paused)
                && let Some(set) = &self.set
            {
                set.delete(bell.as_fd());
            }
            let before = (connection.watching_out, connection.paused);
            (connection.watching_out, connection.paused) = (out, paused);
            if before != (out, paused)
                && let Err(errno) = self.rewatch(Source::Main)
            {
                self.disconnect(device, socket_gone(errno));
            }
        }
    }

    /// Looks at everything but the client's own messages.
    fn scan(&mut self, device: &mut dyn Device) -> io::Result<()> {
        for source in self.readable()? {
            match source {
                Source::Listener => self.accept(device)?,
                Source::Wake => {
                    if let Some(fd) = self.dma.wake_fd() {
                        event::take(fd);
                    }
                }
                Source::Map => {
                    let connection = self.connection.as_ref();
                    if let Some(bell) = connection.and_then(|c| c.map_bell.as_ref()) {
                        bell.take();
                    }
                }
                Source::Twin => self.serve_twin(),
                Source::Main => {}
                Source::Signal(token) => self.serve_signal(token),
                Source::Refused(token) => self.serve_refused(token),
            }
        }
        Ok(())
    }
}

fn socket_gone(errno: Errno) -> GoneReason {
    match errno {
        Errno::PIPE | Errno::CONNRESET => GoneReason::Closed,
        errno => GoneReason::Socket(io::Error::from(errno).kind()),
    }
}
