//! The control socket: what operators ask of a running daemon.
//!
//! One thread, one connection at a time, one line each way, each within its time: a client can make other
//! clients wait for that long and no longer, and never a NIC. Only the daemon's user and root may use
//! the socket: the server refuses any other peer, by the identity that the kernel reports.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use control::{Fate, Refusal, Reply, Request, Storm, Vf, VfChange, write_line};
use frame::Counted;
use pf::{Change, LinkState, PortVlan};
use rustix::event::{PollFd, PollFlags, poll};
use vfio_user::{EventFd, Listener};
use wire::MacAddr;

use crate::config::VfConfig;
use crate::error::Error;
use crate::host::Host;
use crate::report::Section;

/// How long a client may take for its line, and for ours.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long no client is accepted after the host had no descriptor left for one.
const BREATH: Duration = Duration::from_millis(100);

/// The thread behind the socket. It ends when this is dropped.
pub struct Server {
    stop: Arc<EventFd>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`, for the user of this process and for root.
    ///
    /// # Errors
    /// The path is not to be had.
    pub fn start(path: &Path, host: Arc<Host>) -> Result<Self, Error> {
        let failed = |message: String| Error::Control {
            path: path.to_owned(),
            message,
        };
        let os = |error: io::Error| failed(error.to_string());
        let listener = Listener::bind(path).map_err(|error| failed(error.to_string()))?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).map_err(os)?;
        let stop = Arc::new(EventFd::new().map_err(os)?);
        let counters = Arc::<Counters>::default();
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&counters));
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || serve(&listener, &stopped, &host, &counted))
            .map_err(os)?;
        Ok(Self {
            stop,
            counters,
            thread: Some(thread),
        })
    }

    /// How requests have fared.
    pub fn counters(&self) -> Section {
        self.counters.section()
    }

    /// Answers a client that still waits, and ends.
    pub fn stop(self) -> Section {
        let counters = Arc::clone(&self.counters);
        drop(self);
        counters.section()
    }
}

/// How many connections there were, and what became of each that was not served.
#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    done: AtomicU64,
    /// From another user than the daemon's and root.
    stranger: AtomicU64,
    /// No whole line came within its time.
    no_request: AtomicU64,
    /// The line is no request.
    malformed: AtomicU64,
    /// What is asked for cannot be.
    refused: AtomicU64,
    /// The client was gone or did not read.
    reply_not_taken: AtomicU64,
}

impl Counters {
    fn section(&self) -> Section {
        Section::of("control", "socket", self)
    }
}

impl Counted for Counters {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        for (name, counter) in [
            ("control_connections", &self.connections),
            ("control_done", &self.done),
            ("control_stranger", &self.stranger),
            ("control_no_request", &self.no_request),
            ("control_malformed", &self.malformed),
            ("control_refused", &self.refused),
            ("control_reply_not_taken", &self.reply_not_taken),
        ] {
            visit(name, counter.load(Ordering::Relaxed));
        }
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

fn serve(listener: &Listener, stop: &EventFd, host: &Host, counters: &Counters) {
    let Some(socket) = listener.as_fd() else {
        return;
    };
    loop {
        let mut fds = [
            PollFd::new(&socket, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                tracing::error!("control: cannot wait for connections: {errno}");
                return;
            }
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok(Some(connection)) => answer(connection, host, counters),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("control: cannot accept a connection: {error}");
                std::thread::sleep(BREATH);
            }
        }
    }
}

/// One request, one reply.
fn answer(connection: OwnedFd, host: &Host, counters: &Counters) {
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    count(&counters.connections);
    let peer = rustix::net::sockopt::socket_peercred(&connection).map(|cred| cred.uid);
    let mut stream = UnixStream::from(connection);
    let (reply, outcome) = match peer {
        Ok(uid) if uid.is_root() || uid == rustix::process::geteuid() => {
            match control::hear(&mut stream, PATIENCE, |request| carry_out(request, host)) {
                Ok((reply, Fate::Done)) => (reply, &counters.done),
                Ok((reply, Fate::Refused)) => (reply, &counters.refused),
                Ok((reply, Fate::Malformed)) => (reply, &counters.malformed),
                Err(error) => {
                    count(&counters.no_request);
                    tracing::warn!("control: the client sent no request: {error}");
                    return;
                }
            }
        }
        _ => {
            let message = "only root and the daemon's own user may use the control socket".into();
            (Reply::Refused { message }, &counters.stranger)
        }
    };
    count(outcome);
    if let Reply::Refused { message } = &reply {
        tracing::warn!("control: refused: {message}");
    }
    if let Err(error) = write_line(&mut stream, &reply, PATIENCE) {
        count(&counters.reply_not_taken);
        tracing::warn!("control: the client did not take the reply: {error}");
    }
}

fn carry_out(request: &Request, host: &Host) -> Reply {
    let done = match request {
        Request::VfShow { nic } => return show(host, nic.as_deref()),
        Request::VfSet { nic, change } => changes(change).and_then(|changes| {
            host.set_vf_all(nic, &changes)
                .map_err(|error| error.to_string())
        }),
        Request::VfRevive { nic } => host.revive_vf(nic).map_err(|error| error.to_string()),
        Request::VfLeave { nic } => host
            .announce_removal(nic)
            .map_err(|error| error.to_string()),
        Request::VfReset { chip } => host.reset_chip(chip).map_err(|error| error.to_string()),
    };
    match done {
        Ok(()) => {
            tracing::info!("control: {}", told(request));
            Reply::Done {}
        }
        Err(message) => Reply::Refused { message },
    }
}

fn told(request: &Request) -> String {
    serde_json::to_string(request).unwrap_or_default()
}

/// A change of a policy, one by one.
///
/// # Errors
/// Words that mean nothing, or no change at all.
pub fn changes(change: &VfChange) -> Result<Vec<Change>, String> {
    let mut all = Vec::new();
    if let Some(mac) = &change.mac {
        let mac: MacAddr = mac
            .parse()
            .map_err(|_| format!("\"{mac}\" is not a MAC address: write 02:00:00:00:00:01"))?;
        all.push(Change::Mac(mac));
    }
    match (change.vlan, change.qos) {
        (None, None) => {}
        (None, Some(_)) => return Err("qos is the priority of a VLAN: add vlan".into()),
        (Some(0), None | Some(0)) => all.push(Change::Vlan(None)),
        (Some(0), Some(_)) => {
            return Err("vlan 0 means no VLAN, so it has no qos: leave out qos".into());
        }
        (Some(id), qos) => all.push(Change::Vlan(Some(PortVlan {
            id,
            qos: qos.unwrap_or(0),
        }))),
    }
    all.extend(change.trust.map(Change::Trust));
    all.extend(change.spoofchk.map(Change::SpoofCheck));
    all.extend(change.state.map(|state| {
        Change::State(match state {
            control::State::Auto => LinkState::Auto,
            control::State::Enable => LinkState::Enable,
            control::State::Disable => LinkState::Disable,
        })
    }));
    all.extend(change.max_tx_rate.map(Change::MaxTxRate));
    all.extend(change.min_tx_rate.map(Change::MinTxRate));
    all.extend(change.storm.map(|storm| {
        Change::Storm(eswitch::Storm {
            broadcast: storm.broadcast,
            multicast: storm.multicast,
            unknown: None,
        })
    }));
    let interrupts = change.interrupts.map(|n| (n != 0).then_some(n));
    all.extend(interrupts.map(Change::Interrupts));
    if all.is_empty() {
        return Err("the request changes nothing: name a change, such as max-tx-rate".into());
    }
    Ok(all)
}

fn show(host: &Host, nic: Option<&str>) -> Reply {
    let now = host.now();
    let wanted = |name: &str| nic.is_none_or(|nic| nic == name);
    let vfs: Vec<Vf> = host
        .vfs()
        .filter(|(name, _)| wanted(name))
        .filter_map(|(name, vf)| Some(shown(name, vf, &host.vf_status(name)?, now)))
        .collect();
    match nic {
        Some(nic) if vfs.is_empty() => Reply::Refused {
            message: format!("there is no virtual function \"{nic}\""),
        },
        _ => Reply::Vfs(vfs),
    }
}

fn shown(name: &str, vf: &VfConfig, status: &pf::Status, now: model::Nanos) -> Vf {
    let policy = &status.policy;
    let refusal = |record: &pf::Record| Refusal {
        what: record.what.to_string(),
        count: record.count,
        seconds_ago: now.saturating_sub(record.last) / 1_000_000_000,
        shut_down: record.shut_down,
    };
    Vf {
        nic: name.to_owned(),
        chip: vf.chip.clone(),
        index: vf.index,
        address: status
            .settings
            .eswitch
            .pool
            .macs
            .first()
            .unwrap_or(&policy.mac)
            .to_string(),
        ready: status.ready,
        down: status.down.map(|down| match down {
            pf::Down::Misbehaved(what) => format!("shut down: it {what}"),
            pf::Down::Leaving => "it is being removed".into(),
        }),
        refused: status.records.iter().map(refusal).collect(),
        policy: VfChange {
            mac: Some(policy.mac.to_string()),
            vlan: Some(policy.vlan.map_or(0, |vlan| vlan.id)),
            qos: policy.vlan.map(|vlan| vlan.qos),
            trust: Some(policy.trust),
            spoofchk: Some(policy.spoof_check),
            state: Some(match policy.state {
                LinkState::Auto => control::State::Auto,
                LinkState::Enable => control::State::Enable,
                LinkState::Disable => control::State::Disable,
            }),
            max_tx_rate: Some(policy.max_tx_rate),
            min_tx_rate: Some(policy.min_tx_rate),
            storm: Some(Storm {
                broadcast: policy.storm.broadcast,
                multicast: policy.storm.multicast,
            }),
            interrupts: Some(policy.interrupts.unwrap_or(0)),
        },
    }
}
