//! Front ends come, go and are sent away.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use peer::PeerFd;
use peer::deferred_closer::MOST;
use peer::stream::Sender;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::state::{Connection, Server};
use super::watched::Source;
use crate::backend::{Backend, ClientEvent, GoneReason};
use crate::stream::{MAX_MESSAGE, Receiver};

/// A front end that has said nothing for so long gives way to the next.
const MUTE: Duration = Duration::from_secs(1);

impl Server {
    /// The front end has closed its end already, though we have not come to read that yet.
    pub(super) fn has_hung_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            let mut fds = [PollFd::new(&connection.socket, PollFlags::empty())];
            rustix::event::poll(&mut fds, Some(&Timespec::default())).is_ok()
                && fds[0].revents().contains(PollFlags::HUP)
        })
    }

    pub(super) fn accept(&mut self, backend: &mut dyn Backend) -> io::Result<()> {
        if self.has_hung_up() {
            // What it sent last is still to be read, then its end. The next one waits so long.
            return Ok(());
        }
        let refused = |backend: &mut dyn Backend, why: &str| {
            backend.client(ClientEvent::Refused(why.to_owned()))
        };
        if self.session.closer.left() > MOST
            && let Some(listener) = self.listener.as_fd()
        {
            // It costs its guest this device, and no other guest anything.
            self.end(listener);
            self.out_of_service = true;
            let why = "too many files of earlier front ends cannot be closed; the device is out of service";
            refused(backend, why);
            return Ok(());
        }
        let used_up = self.session.closer.is_used_up();
        let accepted = self.listener.accept();
        let accepted = accepted.map(|s| s.map(|s| PeerFd::new(s, &self.session.closer)));
        match accepted {
            Ok(None) => {}
            Ok(Some(_)) if used_up => {
                self.session.counters.refused_quota += 1;
                refused(backend, "front ends of its tenant keep too many files open");
            }
            Ok(Some(socket)) if self.connection.is_none() => self.connect(socket)?,
            Ok(Some(socket)) if self.is_mute() => {
                self.disconnect(backend, GoneReason::Protocol("it said nothing".to_owned()));
                self.connect(socket)?;
            }
            // vhost-user has no way to say why: it finds its socket closed.
            Ok(Some(_)) => {
                self.session.counters.refused_busy += 1;
                refused(backend, "the device is in use by another front end");
            }
            Err(_) => {
                // Usually no descriptor is left. Left in the backlog, the front end would wake the
                // owner without end; the spare descriptor is there to take it and hang up.
                self.session.counters.accept_errors += 1;
                let had = self.spare.take().is_some();
                if let Ok(Some(socket)) = self.listener.accept() {
                    // Here, not by another thread: the next spare one takes its place at once.
                    drop(socket);
                }
                self.spare = self.listener.spare().ok();
                if self.spare.is_some() != had {
                    self.rewatch(Source::Listener)?;
                }
                let why = "its connection could not be accepted; raise the limit of open files (ulimit -n)";
                refused(backend, why);
            }
        }
        Ok(())
    }

    /// The front end holds the device without ever having asked for it.
    fn is_mute(&self) -> bool {
        let silent = |c: &Connection| !self.session.ready && c.since.elapsed() >= MUTE;
        self.connection.as_ref().is_some_and(silent)
    }

    pub(super) fn connect(&mut self, socket: PeerFd) -> io::Result<()> {
        self.begin(socket.as_fd())?;
        self.served_one = true;
        self.connection = Some(Connection {
            socket,
            rx: Receiver::new(MAX_MESSAGE, self.session.closer.clone()),
            tx: Sender::new(),
            watching_out: false,
            watching_end: false,
            since: Instant::now(),
        });
        Ok(())
    }

    /// The front end is gone: its rings end, its memory and its descriptors go.
    pub(super) fn disconnect(&mut self, backend: &mut dyn Backend, reason: GoneReason) {
        if let Some(connection) = self.connection.take() {
            self.end(connection.socket.as_fd());
            let c = &mut self.session.counters;
            c.recv_calls += connection.rx.calls;
            c.send_calls += connection.tx.calls;
            c.bytes_in += connection.rx.bytes;
            c.bytes_out += connection.tx.bytes;
            c.surplus_fds += connection.rx.surplus_fds;
        }
        let was_ready = self.session.ready;
        self.session.end(backend);
        match reason {
            reason if was_ready => backend.client(ClientEvent::Gone(reason)),
            GoneReason::Protocol(what) => backend.client(ClientEvent::Refused(what)),
            // A front end only looked whether the socket is alive.
            GoneReason::Closed | GoneReason::Socket(_) => {}
        }
    }
}
