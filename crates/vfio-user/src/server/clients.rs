//! Clients come, go and are sent away.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;

use super::session::{MAX_DATA, Todo};
use super::state::{Connection, MAX_REFUSED, REFUSED, Refused, Server};
use super::watched::Source;
use crate::device::{ClientEvent, Device, DmaChange, GoneReason};
use crate::stream::{Filled, Received, Receiver, Sender, message};
use peer::deferred_closer::{MOST, PeerFd};

/// A client that has said nothing for so long gives way to the next.
const MUTE: Duration = Duration::from_secs(1);

impl Server {
    /// The client has closed its end already, though we have not come to read that yet.
    fn has_hung_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            let mut fds = [PollFd::new(&connection.socket, PollFlags::empty())];
            let now = rustix::event::Timespec::default();
            rustix::event::poll(&mut fds, Some(&now)).is_ok()
                && fds[0].revents().contains(PollFlags::HUP)
        })
    }

    pub(super) fn accept(&mut self, device: &mut dyn Device) -> io::Result<()> {
        if self.has_hung_up() {
            // What it sent last is still to be read, then its end. The next one waits so long.
            return Ok(());
        }
        if self.session.deferred_closer.left() > MOST
            && let Some(listener) = self.listener.as_fd()
        {
            // It costs its guest this device, and no other guest anything.
            self.end(listener);
            self.out_of_service = true;
            device.client(ClientEvent::Refused(
                "too many files of earlier clients cannot be closed; the device is out of service",
            ));
            return Ok(());
        }
        let used_up = self.session.deferred_closer.is_used_up();
        let accepted = self.listener.accept();
        let accepted = accepted.map(|s| s.map(|s| PeerFd::new(s, &self.session.deferred_closer)));
        match accepted {
            Ok(None) => Ok(()),
            Ok(Some(_)) if used_up => {
                self.session.counters.refused_quota += 1;
                device.client(ClientEvent::Refused(
                    "clients of its tenant keep too many files open",
                ));
                Ok(())
            }
            Ok(Some(socket)) if self.connection.is_none() => self.connect(socket),
            Ok(Some(socket)) if self.is_mute() => {
                self.disconnect(device, GoneReason::Protocol("it said nothing"));
                self.connect(socket)
            }
            Ok(Some(socket)) => {
                self.session.counters.refused_busy += 1;
                device.client(ClientEvent::Refused(
                    "the device is in use by another client",
                ));
                self.refuse(socket);
                Ok(())
            }
            Err(_) => {
                // Usually no descriptor is left. Left in the backlog, the client would wake the
                // owner without end; the spare descriptor is there to take it and hang up.
                self.session.counters.accept_errors += 1;
                let had = self.spare.take().is_some();
                if let Ok(Some(socket)) = self.listener.accept() {
                    // Here: what another thread closes later would leave nothing for the next spare one. Nothing was
                    // sent to it, so to close it is nothing.
                    drop(socket);
                }
                self.spare = self.listener.spare().ok();
                if self.spare.is_some() != had {
                    self.rewatch(Source::Listener)?;
                }
                device.client(ClientEvent::Refused(
                    "its connection could not be accepted; raise the limit of open files (ulimit -n)",
                ));
                Ok(())
            }
        }
    }

    /// The client holds the device without ever having asked for it.
    fn is_mute(&self) -> bool {
        let silent = |c: &Connection| !self.session.ready && c.since.elapsed() >= MUTE;
        self.connection.as_ref().is_some_and(silent)
    }

    pub(super) fn connect(&mut self, socket: PeerFd) -> io::Result<()> {
        self.begin(socket.as_fd())?;
        self.let_loose();
        self.served_one = true;
        self.session.ready = false;
        self.session.max_data = MAX_DATA;
        self.session.write_multiple = false;
        self.connection = Some(Connection {
            since: Instant::now(),
            pid: peer::asked(socket.as_fd(), |fd| socket_peercred(fd))
                .ok()
                .map(|peer| peer.pid),
            socket,
            rx: Receiver::new(message(MAX_DATA), self.session.deferred_closer.clone()),
            tx: Sender::new(),
            twin: None,
            watching_out: false,
            paused: false,
            map_bell: None,
        });
        Ok(())
    }

    /// Descriptors that no message asks for.
    pub(super) fn bury_fds(&mut self) {
        self.session.counters.surplus_fds += self.fds.len() as u64;
        for fd in self.fds.drain(..) {
            self.session.deferred_closer.bury(fd);
        }
    }

    /// Sends a client away: waits for its VERSION only to answer it with "busy", so that its user
    /// reads that instead of a time-out.
    fn refuse(&mut self, socket: PeerFd) {
        if self.refused.len() >= MAX_REFUSED {
            let oldest = self.refused.remove(0);
            self.end(oldest.socket.as_fd());
        }
        let token = (REFUSED..).find(|t| self.refused.iter().all(|r| r.token != *t));
        let Some(token) = token else { return };
        if self.begin(socket.as_fd()).is_ok() {
            self.refused.push(Refused {
                socket,
                rx: Receiver::new(message(0), self.session.deferred_closer.clone()),
                token,
            });
            self.serve_refused(token);
        }
    }

    pub(super) fn serve_refused(&mut self, token: u64) {
        let Some(at) = self.refused.iter().position(|r| r.token == token) else {
            return;
        };
        let refused = &mut self.refused[at];
        let socket = refused.socket.as_fd();
        let over = match refused.rx.fill(socket) {
            Ok(Filled::Empty) => false,
            Ok(Filled::Data) => match refused.rx.next(&mut self.fds) {
                Ok(None) => false,
                Ok(Some(Received { header, .. })) => {
                    let mut tx = Sender::new();
                    let errno = Errno::BUSY.raw_os_error() as u32;
                    tx.push(&header.error_reply(errno), &[]);
                    let _ = tx.flush(socket);
                    true
                }
                Err(_) => true,
            },
            Ok(Filled::Closed) | Err(_) => true,
        };
        self.bury_fds();
        if over {
            let refused = self.refused.remove(at);
            self.end(refused.socket.as_fd());
        }
    }

    /// The client is gone: its memory and its descriptors go, the device's state stays.
    pub(super) fn disconnect(&mut self, device: &mut dyn Device, reason: GoneReason) {
        // First of all: nobody goes on with files that are about to be closed.
        self.let_loose();
        self.drop_twin();
        for signal in std::mem::take(&mut self.signals) {
            self.end(signal.fd.as_fd());
        }
        let session = &mut self.session;
        session.todo = Todo::default();
        session.irq.0.disarm_all();
        if let Some(doorbells) = &mut session.shape.doorbells {
            doorbells.unshare();
        }
        session.engine.disconnect();
        if let Some(pending) = session.pending_map.take() {
            session.deferred_closer.bury(pending);
        }
        session.deferred_closer.bury(session.memory.unmap_all());
        let files = session.kept_maps.forget(0, u64::MAX);
        session.deferred_closer.bury_all(files);
        let pid = self.connection.as_ref().and_then(|c| c.pid);
        if let Some(connection) = self.connection.take() {
            if let Some(set) = &self.set {
                set.delete(connection.socket.as_fd());
                if let Some(bell) = &connection.map_bell {
                    set.delete(bell.as_fd());
                }
            }
            let c = &mut session.counters;
            c.recv_calls += connection.rx.calls;
            c.send_calls += connection.tx.calls;
            c.bytes_in += connection.rx.bytes;
            c.bytes_out += connection.tx.bytes;
            c.surplus_fds += connection.rx.surplus_fds;
            c.clients_gone += u64::from(session.ready);
        }
        session.deferred_closer.let_go();
        session.memory.stop_log();
        let was_ready = std::mem::take(&mut session.ready);
        self.deliver_dma(device);
        let reason = match pid.filter(|pid| was_ready && runs(*pid)) {
            Some(pid) if reason == GoneReason::Closed => GoneReason::LetGo {
                pid: pid.as_raw_nonzero().get(),
            },
            _ => reason,
        };
        match reason {
            reason if was_ready => {
                device.dma_map_changed(DmaChange::Cleared);
                device.client(ClientEvent::Gone(reason));
            }
            GoneReason::Protocol(what) => device.client(ClientEvent::Refused(what)),
            // A client only looked whether the socket is alive.
            GoneReason::Closed | GoneReason::LetGo { .. } | GoneReason::Socket(_) => {}
        }
        // Whoever it was that it stood still for is not there any more.
        self.session.run_again(device);
    }
}

/// Whether a process is neither gone nor about to be: all that ends its threads is marked before their files close.
fn runs(pid: Pid) -> bool {
    /// `PF_EXITING` of `linux/sched.h`.
    const EXITING: u64 = 0x4;
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    // A worker cannot open files.
    let Ok(stat) = threads::apart(|| std::fs::read_to_string(path)) else {
        return false;
    };
    // `proc_pid_stat(5)`: the name, in brackets, may hold anything; state and flags are words 3 and 9.
    let mut words = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace();
    let zombie = words.next().is_none_or(|state| matches!(state, "Z" | "X"));
    let flags = words.nth(5).and_then(|word| word.parse::<u64>().ok());
    !zombie && flags.is_some_and(|flags| flags & EXITING == 0)
}
