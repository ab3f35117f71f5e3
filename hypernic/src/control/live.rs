//! Live captures: pcapng on the connection that asked for it.
//!
//! A thread of its own writes to the client. While it waits for a client that does not read, frames are missed and counted;
//! neither the control thread nor a worker waits with it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use control::{Call, CaptureInfo, CaptureStart, CaptureStarted, Failure, Method, Request, reply};
use frame::{Batch, Counted};
use parking_lot::{Mutex, RwLock};
use port::capture::{Capture, CaptureOptions, Probe, SystemClock};
use rustix::event::{PollFd, PollFlags};
use vale::{Switch, Witness, Witnesses};

use super::changes::no_nic;
use super::connection::{Caller, Connection, Over};
use super::dispatch;
use crate::host::Host;
use crate::report::Section;

/// Captures at once. Each may take the memory of a capture's buffer.
const MOST: usize = 16;
/// Bytes that may wait for a client.
const BUFFER: usize = 4 << 20;
/// How long a frame waits at most for others to go with it.
const SOON: Duration = Duration::from_millis(50);
/// How often a blocked writer looks whether the capture is over.
const LOOK: Duration = Duration::from_millis(500);

/// What a client captures. It ends with this.
struct Live {
    nic: String,
    source: Source,
    caller: Caller,
    since: Instant,
    stream: Arc<UnixStream>,
    over: Arc<AtomicBool>,
    capture: Option<Arc<Capture>>,
    /// Who shows what is lost, and the witness.
    losses: Option<(Losers, Arc<dyn Witness>)>,
}

/// What is captured, as it is known: another may have its name later.
enum Source {
    /// All that passes a NIC.
    Nic(Arc<Probe>),
    /// What a port of a switch loses.
    Port(Arc<Witnesses>),
}

impl Source {
    /// Whether it is what has this name now.
    fn is(&self, host: &Host, name: &str) -> bool {
        match self {
            Self::Nic(probe) => host.probe(name).is_some_and(|now| Arc::ptr_eq(now, probe)),
            Self::Port(witnesses) => {
                let now = host.witnesses_of_port(name);
                now.is_some_and(|(now, ..)| Arc::ptr_eq(now, witnesses))
            }
        }
    }
}

/// What loses frames: a NIC itself with a port of its own, or a port of a switch, and the switch that it is on.
struct Losers(Arc<Witnesses>, Option<Switch>);

impl Losers {
    fn show(&self, witness: &Arc<dyn Witness>) {
        self.0.add(Arc::clone(witness));
        if let Some(switch) = &self.1 {
            switch.add_witness(Arc::clone(witness));
        }
    }

    fn show_no_more(&self, witness: &Arc<dyn Witness>) {
        self.0.remove(witness);
        if let Some(switch) = &self.1 {
            switch.remove_witness(witness);
        }
    }
}

/// Records what a NIC or a port of a switch loses.
struct Losses {
    /// Its name on the switch.
    of: String,
    capture: Arc<Capture>,
}

impl Witness for Losses {
    fn lost(&self, port: &str, batch: &Batch<'_>, picks: &[u16], counter: &'static str) {
        if port == self.of {
            self.capture.record_lost(port, batch, picks, counter);
        }
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Lives(Mutex<Vec<Live>>);

/// Writes to a client for as long as the capture goes on.
struct Writer {
    stream: UnixStream,
    over: Arc<AtomicBool>,
    /// What is to be said before all else.
    first: Vec<u8>,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.write_all(&first)?;
        }
        loop {
            match self.stream.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.over.load(Ordering::Acquire) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lives {
    /// Begins a capture, if that is what is asked for; then the connection is no longer one for calls. `None`: it is
    /// something else.
    pub fn begin(
        &self,
        host: &RwLock<Host>,
        client: &mut Connection,
        request: &Request,
        now: Instant,
    ) -> Option<Result<Over, Failure>> {
        if !request.upgrade || request.method != <CaptureStart as Method>::NAME {
            return None;
        }
        let call = Call::parse(&request.method, request.parameters.clone());
        let call =
            call.and_then(|call| dispatch::allowed(&call, client.caller.role).map(|()| call));
        match call {
            Ok(Call::CaptureStart(call)) => Some(self.start(host, client, call, now)),
            Ok(_) => None,
            Err(failure) => Some(Err(failure)),
        }
    }

    fn start(
        &self,
        host: &RwLock<Host>,
        client: &mut Connection,
        call: CaptureStart,
        now: Instant,
    ) -> Result<Over, Failure> {
        let caller = client.caller;
        let mut lives = self.0.lock();
        if lives.len() >= MOST {
            return Err(Failure::failed(format!(
                "there are {MOST} captures already; hypernic capture --list shows whose"
            )));
        }
        let host = host.read();
        let (source, losers) = find(&host, &call)?;
        let os = |error: io::Error| Failure::failed(format!("cannot capture: {error}"));
        let stream = client.hand_over().map_err(os)?;
        // The reply goes the way of the frames: who reads it knows that the next one is captured.
        let told = reply(&CaptureStarted {}, false);
        stream.set_nonblocking(false).map_err(os)?;
        stream.set_write_timeout(Some(LOOK)).map_err(os)?;
        let over = Arc::<AtomicBool>::default();
        let writer = Writer {
            stream: stream.try_clone().map_err(os)?,
            over: Arc::clone(&over),
            first: told,
        };
        let options = CaptureOptions {
            snaplen: call.snaplen.unwrap_or(0),
            buffer: BUFFER,
            flush_every: SOON,
            ..CaptureOptions::default()
        };
        let nic = call.nic.clone();
        let ended = move |why: String| tracing::debug!(%nic, "{why}");
        let clock = Arc::new(SystemClock);
        let capture = Capture::to_writer(Box::new(writer), "a client", options, clock, ended);
        let capture = capture.map_err(os)?;
        let losses = losers.map(|(losers, of)| {
            let capture = Arc::clone(&capture);
            let witness: Arc<dyn Witness> = Arc::new(Losses { of, capture });
            losers.show(&witness);
            (losers, witness)
        });
        if let (None, Source::Nic(probe)) = (&losses, &source) {
            probe.attach(&capture);
        }
        let Caller { uid, pid, role } = caller;
        tracing::info!(
            uid,
            pid,
            role = role.name(),
            nic = call.nic,
            "control: captures"
        );
        lives.push(Live {
            nic: call.nic,
            source,
            caller,
            since: now,
            stream: Arc::new(stream),
            over,
            capture: Some(capture),
            losses,
        });
        Ok(Over::Said)
    }

    /// The captures, the oldest first.
    pub fn list(&self, now: Instant) -> Vec<CaptureInfo> {
        let info = |live: &Live| {
            let section = live.section(0);
            CaptureInfo {
                nic: live.nic.clone(),
                uid: live.caller.uid,
                pid: live.caller.pid.unsigned_abs(),
                seconds: now.saturating_duration_since(live.since).as_secs(),
                frames: section.get("capture_frames"),
                missed: section.get("capture_missed"),
            }
        };
        self.0.lock().iter().map(info).collect()
    }

    /// What they count.
    pub fn sections(&self) -> Vec<Section> {
        let lives = self.0.lock();
        let all = lives.iter().enumerate();
        all.map(|(at, live)| live.section(at)).collect()
    }

    /// Sockets that tell when a client has gone.
    pub fn handles(&self) -> Vec<Arc<UnixStream>> {
        let lives = self.0.lock();
        lives.iter().map(|live| Arc::clone(&live.stream)).collect()
    }

    /// Ends those whose client or NIC has gone.
    pub fn prune(&self, host: &RwLock<Host>) {
        let mut lives = self.0.lock();
        if lives.is_empty() {
            return;
        }
        let host = host.read();
        lives.retain(|live| live.source.is(&host, &live.nic) && !hung_up(&live.stream));
    }
}

/// What is to be captured; of losses, what loses frames and under which name.
fn find(host: &Host, call: &CaptureStart) -> Result<(Source, Option<(Losers, String)>), Failure> {
    let (name, drops) = (&call.nic, call.drops == Some(true));
    if let Some(probe) = host.probe(name) {
        let itself = host.witnesses_of(name).filter(|_| drops);
        let losers = itself.map(|itself| {
            let switch = host.first_switch_of(name).cloned();
            (Losers(Arc::clone(itself), switch), name.clone())
        });
        return Ok((Source::Nic(Arc::clone(probe)), losers));
    }
    let Some((witnesses, switch, port)) = host.witnesses_of_port(name) else {
        return Err(super::cells::elsewhere(host, name).unwrap_or_else(|| no_nic(host, name)));
    };
    if !drops {
        return Err(Failure::invalid(format!(
            "{name} is a port of a switch, of which only what it loses can be captured: add --drops, or name a NIC"
        )));
    }
    let losers = Losers(Arc::clone(witnesses), Some(switch.clone()));
    Ok((
        Source::Port(Arc::clone(witnesses)),
        Some((losers, port.to_owned())),
    ))
}

/// Whether a client has closed its connection.
fn hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::empty())];
    let at_once = rustix::event::Timespec::default();
    rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0)
}

impl Live {
    fn section(&self, at: usize) -> Section {
        let name = format!("{}/live{at}", self.nic);
        match &self.capture {
            Some(capture) => Section::of("capture", name, &**capture as &dyn Counted),
            None => Section {
                kind: "capture",
                name,
                values: Vec::new(),
            },
        }
    }
}

impl Drop for Live {
    /// The client gets what there is, if it reads, and the statistics; no other thread waits for that.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let section = self.section(0);
        let (frames, missed) = (section.get("capture_frames"), section.get("capture_missed"));
        let Caller { uid, pid, .. } = self.caller;
        tracing::info!(
            uid,
            pid,
            nic = self.nic,
            frames,
            missed,
            "control: captures no more"
        );
        let capture = self.capture.take();
        if let (Some(capture), Source::Nic(probe)) = (&capture, &self.source) {
            probe.detach_from(capture);
        }
        if let Some((losers, witness)) = self.losses.take() {
            losers.show_no_more(&witness);
        }
        // Without a thread it ends here, in bounded time.
        let _ = threads::spawn("capture-end", move || drop(capture));
    }
}
