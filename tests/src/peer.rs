//! The far end of a NIC's cable, held by the test: it looks at every frame the NIC sends, sends any frame there can
//! be, answers as a host with a TCP/IP stack that is neither the guest's nor the daemon's, and pulls the cable.

mod cable;
mod inspect;
mod packet;
mod station;
mod target;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cable::Cable;
use inspect::SHORTEST;
pub use inspect::{Traffic, inspect, tag, untagged};
pub use packet::{UDP, echo_request, fragments, tagged, udp};
pub use station::ECHO;
use station::Station;
pub use target::{IP, IP6, MAC, Target, address};

use crate::error::{Error, Result};
use crate::patience::LONG;

/// How many pings are on their way at once: fewer than the smallest ring has buffers, at any MTU.
const FLIGHT: usize = 8;

/// What the peer's thread receives.
enum Message {
    /// A frame came.
    Frame(Vec<u8>),
    /// A frame is to be sent.
    Send(Vec<u8>),
    /// A cable is to be held, or let go of.
    Cable(usize, Option<Cable>),
    /// There is one more network.
    Station(Option<u16>),
    End,
}

/// What is known of the frames so far.
#[derive(Default)]
struct Seen {
    sent: Traffic,
    received: Traffic,
    faults: Vec<String>,
    /// The NICs send short frames as they are, as a virtio-net does.
    unpadded: bool,
    /// Where frames are copied to, while a test records them.
    recorder: Option<Sender<Vec<u8>>>,
    /// The cable behind which each station was last heard.
    places: HashMap<[u8; 6], usize>,
}

/// The far end of one or several cables. Frames for a station go to the cable it was last heard on, like those of
/// a switch.
#[derive(Debug)]
pub struct Peer {
    sockets: Vec<PathBuf>,
    to_thread: Sender<Message>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
    number: AtomicU16,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen")
            .field("sent", &self.sent)
            .field("received", &self.received)
            .field("faults", &self.faults)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl Peer {
    /// Plugs the cables of ports `stream:listen=SOCKET`.
    ///
    /// # Errors
    /// When no port listens.
    pub fn plug<P: AsRef<Path>>(sockets: &[P]) -> Result<Self> {
        let (to_thread, inbox) = channel();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let switch = Switch {
            start: Instant::now(),
            inbox,
            seen: Arc::clone(&seen),
            cables: Vec::new(),
            stations: Vec::new(),
        };
        let thread = std::thread::spawn(move || switch.run());
        let peer = Self {
            sockets: sockets.iter().map(|p| p.as_ref().to_owned()).collect(),
            to_thread,
            seen,
            thread: Some(thread),
            number: AtomicU16::new(0),
        };
        peer.tell(Message::Station(None));
        for cable in 0..sockets.len() {
            peer.insert(cable)?;
        }
        Ok(peer)
    }

    /// Frames that are shorter than a wire carries are no fault from here on.
    pub fn take_short_frames(&self) {
        lock(&self.seen).unpadded = true;
    }

    /// Adds the peer's host on a VLAN.
    pub fn join_vlan(&self, tag: u16) {
        self.tell(Message::Station(Some(tag)));
    }

    /// Pulls a cable, by its number.
    pub fn pull(&self, cable: usize) {
        self.tell(Message::Cable(cable, None));
    }

    /// Plugs a cable again.
    ///
    /// # Errors
    /// When no port listens at the other end.
    pub fn insert(&self, number: usize) -> Result<()> {
        let to_thread = self.to_thread.clone();
        let seen = Arc::clone(&self.seen);
        let cable = Cable::plug(&self.sockets[number], move |frame| {
            // Here, and not on the peer's thread, which waits while the other end takes nothing.
            note(&seen, number, &frame);
            to_thread.send(Message::Frame(frame)).is_ok()
        })?;
        self.tell(Message::Cable(number, Some(cable)));
        Ok(())
    }

    /// Sends a frame as it is.
    pub fn send(&self, frame: Vec<u8>) {
        self.tell(Message::Send(frame));
    }

    /// All frames sent to the NICs so far.
    #[must_use]
    pub fn sent(&self) -> Traffic {
        lock(&self.seen).sent
    }

    /// All frames that came from the NICs so far.
    #[must_use]
    pub fn received(&self) -> Traffic {
        lock(&self.seen).received
    }

    /// The cable on which a station was last heard.
    #[must_use]
    pub fn place(&self, mac: [u8; 6]) -> Option<usize> {
        lock(&self.seen).places.get(&mac).copied()
    }

    /// What was wrong with frames that came. A frame that is wrong is passed on all the same.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        lock(&self.seen).faults.clone()
    }

    /// Copies of all frames that come from now on, until the next call.
    #[must_use]
    pub fn record(&self) -> Receiver<Vec<u8>> {
        let (recorder, frames) = channel();
        lock(&self.seen).recorder = Some(recorder);
        frames
    }

    /// Waits until a condition on what came holds.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn wait_received(&self, what: &str, holds: impl Fn(&Traffic) -> bool) -> Result<Traffic> {
        let deadline = Instant::now() + LONG;
        loop {
            let received = self.received();
            if holds(&received) {
                return Ok(received);
            }
            if Instant::now() > deadline {
                return Err(Error::check(format!("never: {what}; {received:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Pings a guest with each of these payloads and compares what comes back, byte by byte. Packets longer than
    /// `mtu` are sent in fragments.
    ///
    /// # Errors
    /// When an answer is missing or differs.
    pub fn ping(&self, target: Target, mtu: usize, payloads: &[Vec<u8>]) -> Result<()> {
        let answers = self.record();
        for flight in payloads.chunks(FLIGHT) {
            let mut waiting: HashMap<u16, &[u8]> = HashMap::new();
            for payload in flight {
                let number = self.number.fetch_add(1, Ordering::Relaxed);
                for frame in echo_request(target, number, payload, mtu) {
                    self.send(frame);
                }
                waiting.insert(number, payload);
            }
            let mut parts = packet::Reassembly::default();
            let deadline = Instant::now() + LONG;
            while !waiting.is_empty() {
                let left = deadline.saturating_duration_since(Instant::now());
                let Ok(frame) = answers.recv_timeout(left) else {
                    let lengths: Vec<_> = waiting.values().map(|p| p.len()).collect();
                    return Err(Error::check(format!(
                        "no answers to pings with {lengths:?} bytes at MTU {mtu}"
                    )));
                };
                let Some((number, got)) = parts.answer(&frame, target) else {
                    continue;
                };
                let Some(payload) = waiting.remove(&number) else {
                    continue;
                };
                if got != payload {
                    let at = got.iter().zip(payload).position(|(a, b)| a != b);
                    return Err(Error::check(format!(
                        "a ping of {} bytes at MTU {mtu} came back with {}, first difference at {at:?}",
                        payload.len(),
                        got.len()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Sends frames for a guest at a steady pace until the result is dropped: UDP of all sizes up to `mtu`.
    #[must_use]
    pub fn flood(&self, target: Target, mtu: usize, pause: Duration) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let to_thread = self.to_thread.clone();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let noise = crate::guests::noise(mtu - 28);
            let mut length = 0;
            while !stopped.load(Ordering::Relaxed) {
                length = (length * 5 + 113) % (mtu - 28);
                let frame = udp(target, &noise[..length]);
                if to_thread.send(Message::Send(frame)).is_err() {
                    return;
                }
                std::thread::sleep(pause);
            }
        });
        Flood {
            stop,
            thread: Some(thread),
        }
    }

    fn tell(&self, message: Message) {
        // The thread ends only on request.
        let _ = self.to_thread.send(message);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.tell(Message::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Frames that keep coming until this is dropped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at a frame that came over a cable.
fn note(seen: &Mutex<Seen>, cable: usize, frame: &[u8]) {
    let mut seen = lock(seen);
    seen.received.add(frame);
    let mut whole = frame.to_vec();
    if seen.unpadded {
        whole.resize(whole.len().max(SHORTEST), 0);
    }
    if let Err(why) = inspect(&whole) {
        // The first few tell the story.
        if seen.faults.len() < 20 {
            let head = &frame[..frame.len().min(80)];
            seen.faults
                .push(format!("{why} ({} bytes: {head:02x?})", frame.len()));
        }
    }
    if let Some(source) = frame.get(6..12).and_then(|b| b.try_into().ok()) {
        seen.places.insert(source, cable);
    }
    if let Some(recorder) = &seen.recorder
        && recorder.send(frame.to_vec()).is_err()
    {
        seen.recorder = None;
    }
}

/// What runs on the peer's thread.
struct Switch {
    start: Instant,
    inbox: Receiver<Message>,
    seen: Arc<Mutex<Seen>>,
    cables: Vec<Option<Cable>>,
    stations: Vec<Station>,
}

impl Switch {
    fn run(mut self) {
        loop {
            let now = self.now();
            let delays = self.stations.iter_mut().filter_map(|s| s.delay(now));
            let wait = delays.min().map_or(LONG, Into::into);
            match self.inbox.recv_timeout(wait) {
                Ok(Message::Frame(frame)) => self.receive(&frame),
                Ok(Message::Send(frame)) => self.send(&frame),
                Ok(Message::Cable(number, cable)) => {
                    if self.cables.len() <= number {
                        self.cables.resize_with(number + 1, || None);
                    }
                    self.cables[number] = cable;
                }
                Ok(Message::Station(tag)) => self.join(tag),
                Err(RecvTimeoutError::Timeout) => {
                    for at in 0..self.stations.len() {
                        self.turn(at, None);
                    }
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn now(&self) -> smoltcp::time::Instant {
        let micros = self.start.elapsed().as_micros();
        smoltcp::time::Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    fn join(&mut self, tag: Option<u16>) {
        use smoltcp::wire::{IpCidr, Ipv4Address, Ipv6Address};
        let v4 = Ipv4Address::from(address(tag, 1));
        let mut addresses = vec![IpCidr::new(v4.into(), 24)];
        if tag.is_none() {
            let v6 = Ipv6Address::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
            addresses.push(IpCidr::new(v6.into(), 64));
        }
        let station = Station::new(tag, MAC, &addresses, self.now());
        self.stations.push(station);
    }

    fn receive(&mut self, frame: &[u8]) {
        let vlan = tag(frame).map(|t| t & 0xfff);
        if let Some(at) = self.stations.iter().position(|s| s.tag == vlan) {
            self.turn(at, Some(untagged(frame)));
        }
    }

    fn turn(&mut self, at: usize, frame: Option<Vec<u8>>) {
        let now = self.now();
        let station = &mut self.stations[at];
        let out = station.turn(frame, now);
        let tag = station.tag;
        for frame in out {
            match tag {
                Some(tag) => self.send(&tagged(&frame, tag)),
                None => self.send(&frame),
            }
        }
    }

    fn send(&mut self, frame: &[u8]) {
        let mut seen = lock(&self.seen);
        let to = frame.get(..6).and_then(|b| <[u8; 6]>::try_from(b).ok());
        let place = to.and_then(|to| seen.places.get(&to).copied());
        seen.sent.add(frame);
        drop(seen);
        for (number, cable) in self.cables.iter_mut().enumerate() {
            if let Some(cable) = cable
                && place.is_none_or(|place| place == number)
            {
                cable.send(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests;
