//! The thread behind the control socket.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::{Call, Failure, Method, Request, Role, Subscribe, refusal};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use parking_lot::RwLock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vfio_user::{EventFd, Listener};

use super::connection::{Caller, Connection, Over, Subscription};
use super::counters::{Counters, count};
use super::dispatch::Subject;
use super::handed::Handed;
use super::live::Lives;
use super::migrate;
use super::monitor::Watch;
use super::reach::{SOCKET, open_to};
use super::rises::Rises;
use crate::config::Peer;
use crate::error::Error;
use crate::fds;
use crate::host::Host;
use crate::report::{self, Section};
use crate::sandbox;

/// How long no client is accepted after the host had no descriptor left for one.
const BREATH: Duration = Duration::from_millis(100);
/// Clients at once; the one that has been quiet for longest makes room for one more.
const MOST: usize = 64;
/// Of those, clients that are told of changes are not counted; of them there may be so many.
const MOST_SUBSCRIBERS: usize = 1024;
/// Clients that are let in at once.
const IN_A_ROW: u32 = 32;

/// The thread behind the socket. It ends when this is dropped.
pub struct Server {
    stop: Arc<EventFd>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`, or at what a service manager has handed over in its place, for the user of this process, for root
    /// and for whom the host names.
    ///
    /// # Errors
    /// The path is not to be had.
    pub fn start(path: &Path, host: Arc<RwLock<Host>>) -> Result<Self, Error> {
        let failed = |message: String| Error::Control {
            path: path.to_owned(),
            message,
        };
        let os = |error: io::Error| failed(error.to_string());
        let listener = match fds::handed_over(SOCKET).map_err(failed)? {
            Some(socket) => Listener::from_fd(socket),
            None => Listener::bind(path),
        };
        let listener = listener.map_err(|error| failed(error.to_string()))?;
        open_to(path, host.read().head()).map_err(os)?;
        let stop = Arc::new(EventFd::new().map_err(os)?);
        let counters = Arc::<Counters>::default();
        let mut room = Room {
            listener,
            host,
            counters: Arc::clone(&counters),
            clients: Vec::new(),
            deaf_until: None,
            watch: Watch::default(),
            look_at: None,
            lives: Lives::default(),
            rises: Rises::new(Instant::now()),
        };
        let stopped = Arc::clone(&stop);
        let thread = threads::spawn("control", move || room.serve(&stopped)).map_err(os)?;
        Ok(Self {
            stop,
            counters,
            thread: Some(thread),
        })
    }

    /// How calls have fared.
    pub fn counters(&self) -> Section {
        self.counters.section()
    }

    /// Answers clients that still wait, and ends.
    pub fn stop(self) -> Section {
        let counters = Arc::clone(&self.counters);
        drop(self);
        counters.section()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Room {
    listener: Listener,
    host: Arc<RwLock<Host>>,
    counters: Arc<Counters>,
    clients: Vec<Connection>,
    deaf_until: Option<Instant>,
    /// What subscribers know, if there are any.
    watch: Watch,
    /// When to look for changes.
    look_at: Option<Instant>,
    /// Clients that capture.
    lives: Lives,
    /// When losses rose last.
    rises: Rises,
}

impl Room {
    fn serve(&mut self, stop: &EventFd) {
        loop {
            match self.wait(stop) {
                Ok(true) => {}
                Ok(false) => return,
                Err(errno) => {
                    tracing::error!("control: cannot wait for clients: {errno}");
                    return;
                }
            }
        }
    }

    /// Waits until there is something to do, and does it. `false`: it is to stop.
    fn wait(&mut self, stop: &EventFd) -> rustix::io::Result<bool> {
        let Some(socket) = self.listener.as_fd() else {
            return Ok(false);
        };
        let now = Instant::now();
        self.deaf_until = self.deaf_until.filter(|until| *until > now);
        let hears = match self.deaf_until {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut fds = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(&socket, hears),
        ];
        let of = |client: &Connection| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.wants_to_read());
            flags.set(PollFlags::OUT, client.wants_to_write());
            flags
        };
        let handles: Vec<_> = self.clients.iter().map(|c| (c.fd(), of(c))).collect();
        fds.extend(handles.iter().map(|(fd, flags)| PollFd::new(fd, *flags)));
        let lookers = self.lives.handles();
        // That they hang up is told always.
        let hangs_up = lookers
            .iter()
            .map(|stream| PollFd::new(&**stream, PollFlags::empty()));
        fds.extend(hangs_up);
        let deadlines = self.clients.iter().filter_map(Connection::deadline);
        let trial = self.host.read().trial().map(|trial| trial.until);
        let others = self.deaf_until.into_iter().chain(self.look_at).chain(trial);
        let next = deadlines.chain(others).min();
        let left = next.map(|next| next.saturating_duration_since(now));
        // A little later, so that it is over then.
        let left = left.map(|left| left + Duration::from_millis(1));
        let left: Option<Timespec> = left.and_then(|left| left.try_into().ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let stopped = !fds[0].revents().is_empty();
        let waiting = !fds[1].revents().is_empty();
        let ready = fds[2..].iter().take(handles.len());
        let ready: Vec<_> = ready.map(PollFd::revents).collect();
        drop(fds);
        drop(handles);
        super::config::overdue(&self.host);
        self.attend(&ready);
        self.lives.prune(&self.host);
        self.tell_changes();
        if waiting && !stopped {
            (0..IN_A_ROW).take_while(|_| self.accept()).count();
        }
        Ok(!stopped)
    }

    /// Serves each client that is ready, and lets go of those that are over.
    fn attend(&mut self, ready: &[PollFlags]) {
        let clients = std::mem::take(&mut self.clients);
        for (mut client, ready) in clients.into_iter().zip(ready) {
            match self.serve_one(&mut client, *ready) {
                Ok(()) => self.clients.push(client),
                Err(over) => self.ends(&client, over),
            }
        }
    }

    fn serve_one(&self, client: &mut Connection, ready: PollFlags) -> Result<(), Over> {
        let now = Instant::now();
        if ready.contains(PollFlags::OUT) || (client.wants_to_write() && !ready.is_empty()) {
            client.write(now)?;
        } else if client.wants_to_read() && !ready.is_empty() {
            client.read(now)?;
        } else if !ready.is_empty() && !client.wants_to_write() {
            // It hung up while nothing is wanted of it.
            return Err(Over::Closed);
        }
        while let Some(message) = client.next(now)? {
            self.hear(client, &message, now)?;
        }
        if client.deadline().is_some_and(|at| at <= Instant::now()) {
            return Err(client.late());
        }
        Ok(())
    }

    /// One message of a client's.
    fn hear(&self, client: &mut Connection, message: &[u8], now: Instant) -> Result<(), Over> {
        let request = match Request::parse(message) {
            Ok(request) => request,
            Err(failure) => {
                let failure = failure.printable();
                self.refused(client.caller, "?", &failure);
                // What follows would be understood no better.
                client.close();
                return client.tell(refusal(failure), now);
            }
        };
        let caller = client.caller;
        // No later call gets what came with this one.
        let fds = client.take_fds();
        let result = match self.subscribe(client, &request) {
            Some(Ok(())) => {
                count(&self.counters.done);
                return Ok(());
            }
            Some(Err(failure)) => Err(failure),
            None => match self.lives.begin(&self.host, client, &request, now) {
                Some(Ok(over)) => {
                    count(&self.counters.done);
                    return Err(over);
                }
                Some(Err(failure)) => Err(failure),
                None => self.carry_out(&request, caller, fds),
            },
        };
        let result = result.map_err(Failure::printable);
        if let Err(failure) = &result {
            self.refused(caller, &request.method, failure);
        } else {
            count(&self.counters.done);
        }
        if request.oneway {
            return Ok(());
        }
        let told = match result {
            Ok(told) => told,
            Err(failure) => refusal(failure),
        };
        client.tell(told, Instant::now())
    }

    fn carry_out(
        &self,
        request: &Request,
        caller: Caller,
        fds: Vec<OwnedFd>,
    ) -> Result<Vec<u8>, Failure> {
        let mut call = Call::parse(&request.method, request.parameters.clone())?;
        let mut handed = Handed::of(fds);
        handed.name(&mut call)?;
        let given = handed.give(&self.host);
        let besides = || {
            let mut sections = self.lives.sections();
            sections.extend([
                self.counters.section(),
                report::process(),
                sandbox::counters(),
            ]);
            sections
        };
        let captures = || self.lives.list(Instant::now());
        let subject = Subject {
            host: &self.host,
            besides: &besides,
            trusted: [0, rustix::process::geteuid().as_raw()].contains(&caller.uid),
            captures: &captures,
            rises: &self.rises,
        };
        let result = subject.carry_out(&call, caller.role);
        if given {
            self.host.write().sort_handed();
        }
        let result = result?;
        let Caller { uid, pid, role } = caller;
        let (method, role) = (call.method(), role.name());
        // What a cell is told by the main process was said there.
        let is_cell = || self.host.read().head().own_cell().is_some();
        if call.role() == Role::Monitor || is_cell() {
            tracing::debug!(uid, pid, role, "control: {method}");
        } else {
            let told = migrate::without_state(&request.parameters);
            tracing::info!(uid, pid, role, "control: {method} {told}");
        }
        Ok(result)
    }

    /// Takes a client in that wants to be told of changes. `None`: it wants something else.
    fn subscribe(&self, client: &mut Connection, request: &Request) -> Option<Result<(), Failure>> {
        if !request.more || request.method != <Subscribe as Method>::NAME {
            return None;
        }
        let call = match Call::parse(&request.method, request.parameters.clone()) {
            Ok(Call::Subscribe(call)) => call,
            Ok(_) => return None,
            Err(failure) => return Some(Err(failure)),
        };
        client.subscription = Some(Subscription {
            losses: call.losses == Some(true),
            ..Subscription::default()
        });
        Some(Ok(()))
    }

    /// Looks for changes, if somebody is to be told of them and it is time, and tells.
    fn tell_changes(&mut self) {
        let subscriptions = || self.clients.iter().filter_map(|client| client.subscription);
        if subscriptions().next().is_none() {
            self.look_at = None;
            self.watch = Watch::default();
            return;
        }
        let new = subscriptions().any(|subscription| !subscription.begun);
        let now = Instant::now();
        self.look_at = self.watch.due(new);
        if self.look_at.is_some_and(|at| at > now) {
            return;
        }
        let losses = subscriptions().any(|subscription| subscription.losses);
        let events = self.watch.look(&self.host.read(), losses, now);
        self.look_at = self.watch.due(false);
        let clients = std::mem::take(&mut self.clients);
        for mut client in clients {
            match self.watch.tell(&mut client, &events, now) {
                Ok(()) => self.clients.push(client),
                Err(over) => self.ends(&client, over),
            }
        }
    }

    fn refused(&self, caller: Caller, method: &str, failure: &Failure) {
        count(match failure {
            Failure::NotAllowed { .. } => &self.counters.not_allowed,
            failure if failure.is_malformed() => &self.counters.malformed,
            _ => &self.counters.refused,
        });
        let Caller { uid, pid, role } = caller;
        let (method, role) = (method.escape_debug(), role.name());
        tracing::warn!(uid, pid, role, "control: {method} refused: {failure}");
    }

    fn ends(&self, client: &Connection, over: Over) {
        let Caller { uid, pid, .. } = client.caller;
        match over {
            Over::Closed | Over::Said => {}
            Over::NoCall(why) => {
                count(&self.counters.no_request);
                tracing::warn!(uid, pid, "control: the client sent no whole call: {why}");
            }
            Over::NotTaken(why) => {
                count(&self.counters.reply_not_taken);
                tracing::warn!(
                    uid,
                    pid,
                    "control: the client did not take its reply: {why}"
                );
            }
        }
    }

    /// Lets a client in. `false`: there is none.
    fn accept(&mut self) -> bool {
        match self.listener.accept() {
            Ok(Some(socket)) => {
                self.welcome(socket);
                return true;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("control: cannot accept a connection: {error}");
                self.deaf_until = Some(Instant::now() + BREATH);
            }
        }
        false
    }

    fn welcome(&mut self, socket: OwnedFd) {
        count(&self.counters.connections);
        // A caller outside of our namespace of processes has number 0 here, which rustix takes for an error.
        let Ok(peer) = getsockopt(&socket, PeerCredentials) else {
            return count(&self.counters.stranger);
        };
        let (uid, gid, pid) = (peer.uid(), peer.gid(), peer.pid());
        let own = rustix::process::geteuid().as_raw();
        let role = self.host.read().head().access.role(Peer { uid, gid }, own);
        let now = Instant::now();
        let caller = Caller {
            uid,
            pid,
            role: role.unwrap_or(Role::Monitor),
        };
        let Ok(mut client) = Connection::new(socket, caller, now) else {
            return;
        };
        if role.is_none() {
            count(&self.counters.stranger);
            tracing::warn!(uid, pid, "control: refused: this user has no role");
            let failure = Failure::NotAllowed {
                needs: Role::Monitor.name().into(),
                role: "none".into(),
                message:
                    "this user may not use the control socket; see control-monitor in docs/roles.md"
                        .into(),
            };
            // It is not waited for: what does not fit into an empty socket is lost.
            let _ = client.tell(refusal(failure), now);
            return;
        }
        let subscribed = |client: &Connection| client.subscription.is_some();
        let subscribers = self.clients.iter().filter(|one| subscribed(one)).count();
        if self.clients.len() - subscribers >= MOST || subscribers >= MOST_SUBSCRIBERS {
            let quiet = self.clients.iter().enumerate();
            // Subscribers too, once there are more of them than there may be.
            let quiet =
                quiet.filter(|(_, one)| subscribers >= MOST_SUBSCRIBERS || !subscribed(one));
            let longest = quiet.min_by_key(|(_, client)| client.quiet_since());
            if let Some(at) = longest.map(|(at, _)| at) {
                count(&self.counters.crowded_out);
                self.clients.remove(at);
            }
        }
        self.clients.push(client);
    }
}
