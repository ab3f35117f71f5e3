//! Loads that need no NIC of ours: frames through TAPs and vde sockets by bare system calls. Each is a process of its
//! own, in a namespace where it must be, and prints one line of JSON.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use serde_json::json;

use crate::error::{Error, Result};
use crate::machine;

/// Frames that may be under way: more would only be dropped by a queue on the way.
const WINDOW: u64 = 256;

/// What frames go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Route {
    /// Write into one TAP, read from another.
    Taps,
    /// Write into a TAP that is not read.
    Write,
    /// Read from a TAP into which the kernel is made to send by writes into another.
    Read,
    /// Through a vde switch.
    Vde,
}

/// `hypernic-bench load`.
#[derive(Debug, Parser)]
pub struct Load {
    /// What frames go through.
    #[arg(value_enum)]
    pub kind: Route,
    /// The TAP that is written, or the vde switch's folder.
    pub from: String,
    /// The TAP that is read.
    pub to: Option<String>,
    /// Bytes of a frame.
    #[arg(long)]
    pub size: usize,
    /// How long.
    #[arg(long)]
    pub seconds: f64,
    /// Frames are TCP to be cut into MTU-size ones for receivers that cannot take them.
    #[arg(long)]
    pub gso: bool,
    /// Each frame has been written by the other processor before it is written into the TAP, as a guest's has.
    #[arg(long)]
    pub cold: bool,
}

/// Addresses of the two ends.
pub const ENDS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0xbe, 1], [2, 0, 0, 0, 0xbe, 2]];

/// Payload of the segments that a large frame is to be cut into.
pub const SEGMENT: u16 = 1460;

/// A frame from one end to the other, with its `virtio_net_hdr` of `header` bytes before it.
pub fn frame(header: usize, size: usize, gso: bool, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut bytes = vec![0; header + size];
    let (note, frame) = bytes.split_at_mut(header);
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    // Local experiments (IEEE 802): no protocol handles it.
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    if gso && note.len() >= 10 {
        // VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4; header length, segment, checksum start and offset.
        note[0] = 1;
        note[1] = 1;
        for (at, value) in [(2, 54), (4, SEGMENT), (6, 34), (8, 16)] {
            note[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        tcp(frame);
    }
    bytes
}

/// `segments` full frames of TCP in one piece, to be cut on their way; a single one is a frame as it is.
pub fn run_of(header: usize, segments: usize, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let size = 54 + segments * usize::from(SEGMENT);
    frame(header, size, segments > 1, from, to)
}

/// Makes a frame a TCP segment of IPv4 from 10.9.9.1 to 10.9.9.2 whose checksum is begun only.
pub fn tcp(frame: &mut [u8]) {
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = frame.len() - 14;
    let total = u16::try_from(ip).unwrap_or(u16::MAX);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 9, 1, 10, 9, 9, 2,
    ]);
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    let sum = !fold(words(&frame[14..34]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..54].copy_from_slice(&[
        0x13, 0x88, 0x13, 0x88, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x40, 0, 0, 0, 0, 0,
    ]);
    let pseudo = fold(words(&frame[26..34]) + 6 + u32::from(total - 20));
    frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
}

fn words(bytes: &[u8]) -> u32 {
    bytes
        .chunks_exact(2)
        .map(|c| u32::from(u16::from_be_bytes([c[0], c[1]])))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// What happened.
#[derive(Debug, Default)]
struct Counted {
    sent: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
    /// Nanoseconds of the switch's thread, and of those in writes; and of the guests' thread.
    switch_ns: AtomicU64,
    switch_at_work_ns: AtomicU64,
    guests_ns: AtomicU64,
    guests_at_work_ns: AtomicU64,
    /// The guests' looks for frames, and those that found some.
    looks: AtomicU64,
    found: AtomicU64,
    over: AtomicBool,
}

impl Counted {
    fn under_way(&self) -> u64 {
        let sent = self.sent.load(Ordering::Relaxed);
        sent.saturating_sub(self.received.load(Ordering::Acquire))
    }
}

/// Runs a load and prints what came of it.
///
/// # Errors
/// When there is no TAP or switch to be had.
pub fn run(load: &Load) -> Result<()> {
    let counted = Counted::default();
    let start = Instant::now();
    match load.kind {
        Route::Taps | Route::Read => taps(load, &counted)?,
        Route::Write if load.cold => write_cold(load, &counted)?,
        Route::Write => write_only(load, &counted)?,
        Route::Vde => vde(load, &counted)?,
    }
    let line = json!({
        "sent": counted.sent.into_inner(), "received": counted.received.into_inner(),
        "refused": counted.refused.into_inner(), "seconds": start.elapsed().as_secs_f64(),
        "switch_cpu": seconds(counted.switch_ns), "switch_at_work": seconds(counted.switch_at_work_ns),
        "guests_cpu": seconds(counted.guests_ns), "guests_at_work": seconds(counted.guests_at_work_ns),
        "looks": counted.looks.into_inner(), "found": counted.found.into_inner(),
    });
    println!("{line}");
    Ok(())
}

fn seconds(nanoseconds: AtomicU64) -> f64 {
    nanoseconds.into_inner() as f64 / 1e9
}

fn attach(name: &str) -> Result<(OwnedFd, usize)> {
    port_tap::attach(name).map_err(|e| Error::Usage(e.to_string()))
}

fn retry(error: rustix::io::Errno) -> bool {
    error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::NOBUFS
}

/// Makes the bridge learn where the receiver is, by a frame that it sends.
fn announce(to: &OwnedFd, header: usize) -> Result<()> {
    let hello = frame(header, 60, false, ENDS[1], ENDS[0]);
    rustix::io::write(to, &hello)
        .map(drop)
        .map_err(|e| Error::io("write to the TAP")(e.into()))
}

fn taps(load: &Load, counted: &Counted) -> Result<()> {
    let to = load.to.as_deref().unwrap_or("t1");
    let ((from, header), (to, to_header)) = (attach(&load.from)?, attach(to)?);
    announce(&to, to_header)?;
    let bytes = frame(header, load.size, load.gso, ENDS[0], ENDS[1]);
    let (guests, switch) = machine::cores();
    let until = Instant::now() + Duration::from_secs_f64(load.seconds);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // What the kernel's bridge does, it does in the writer's time.
            machine::pin(switch);
            let cpu = machine::thread_time();
            let mut at_work = Duration::ZERO;
            let mut stuck = Instant::now();
            let mut lost = 0;
            loop {
                let now = Instant::now();
                if now >= until {
                    break;
                }
                if counted.under_way() > WINDOW + lost {
                    // What was dropped on the way never arrives.
                    if now - stuck > Duration::from_millis(2) {
                        lost = counted.under_way();
                    }
                    std::thread::yield_now();
                    continue;
                }
                stuck = now;
                for _ in 0..32 {
                    match rustix::io::write(&from, &bytes) {
                        Ok(_) => counted.sent.fetch_add(1, Ordering::Relaxed),
                        Err(_) => counted.refused.fetch_add(1, Ordering::Relaxed),
                    };
                }
                at_work += now.elapsed();
            }
            note(&counted.switch_ns, machine::thread_time() - cpu);
            note(&counted.switch_at_work_ns, at_work.as_nanos() as u64);
            counted.over.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            machine::pin(guests);
            let mut room = vec![0; 70_000];
            let mut idle = 0;
            let (mut looks, mut found) = (0, 0);
            let cpu = machine::thread_time();
            while !counted.over.load(Ordering::Acquire) {
                looks += 1;
                match rustix::io::read(&to, &mut room) {
                    Ok(n) if n >= to_header + 12 && room[to_header..to_header + 6] == ENDS[1] => {
                        counted.received.fetch_add(1, Ordering::Release);
                        found += 1;
                        idle = 0;
                    }
                    Ok(_) => {}
                    Err(_) => {
                        idle += 1;
                        if idle > 64 {
                            std::thread::yield_now();
                        }
                    }
                }
            }
            note(&counted.guests_ns, machine::thread_time() - cpu);
            note(&counted.looks, looks);
            note(&counted.found, found);
        });
    });
    Ok(())
}

fn note(counter: &AtomicU64, value: u64) {
    counter.store(value, Ordering::Relaxed);
}

fn write_only(load: &Load, counted: &Counted) -> Result<()> {
    let (from, header) = attach(&load.from)?;
    let bytes = frame(header, load.size, load.gso, ENDS[0], ENDS[1]);
    machine::pin(machine::cores().1);
    let until = Instant::now() + Duration::from_secs_f64(load.seconds);
    while Instant::now() < until {
        for _ in 0..32 {
            match rustix::io::write(&from, &bytes) {
                Ok(_) => counted.sent.fetch_add(1, Ordering::Relaxed),
                Err(e) if retry(e) => counted.refused.fetch_add(1, Ordering::Relaxed),
                Err(e) => return Err(Error::io("write to the TAP")(e.into())),
            };
        }
    }
    Ok(())
}

/// Bytes of a guest's transmit buffers, and most of them.
const BUFFERS: (usize, usize) = (4 << 20, 256);

/// Buffers that one thread fills and another empties, in turn.
struct Conveyor {
    buffers: Vec<Mutex<Vec<u8>>>,
    filled: AtomicU64,
    emptied: AtomicU64,
}

impl Conveyor {
    /// As many as a guest has for frames like this one.
    fn new(bytes: &[u8]) -> Self {
        let count = (BUFFERS.0 / bytes.len().max(1)).clamp(2, BUFFERS.1);
        let buffers = (0..count).map(|_| Mutex::new(vec![0; bytes.len()]));
        Self {
            buffers: buffers.collect(),
            filled: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
        }
    }

    fn buffer(&self, number: u64) -> MutexGuard<'_, Vec<u8>> {
        let at = number as usize % self.buffers.len();
        self.buffers[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a frame into the next buffer that is empty; whether there was one.
    fn fill(&self, bytes: &[u8]) -> bool {
        let number = self.filled.load(Ordering::Relaxed);
        if number - self.emptied.load(Ordering::Acquire) >= self.buffers.len() as u64 {
            return false;
        }
        self.buffer(number).copy_from_slice(bytes);
        self.filled.store(number + 1, Ordering::Release);
        true
    }

    /// Shows the next frame that was written; whether there was one.
    fn empty(&self, take: impl FnOnce(&[u8])) -> bool {
        let number = self.emptied.load(Ordering::Relaxed);
        if number == self.filled.load(Ordering::Acquire) {
            return false;
        }
        take(&self.buffer(number));
        self.emptied.store(number + 1, Ordering::Release);
        true
    }
}

/// As [`write_only`], but each frame comes from the other processor: nothing of it is in this one's cache.
fn write_cold(load: &Load, counted: &Counted) -> Result<()> {
    let (from, header) = attach(&load.from)?;
    let bytes = frame(header, load.size, load.gso, ENDS[0], ENDS[1]);
    let conveyor = Conveyor::new(&bytes);
    let (guest, writer) = machine::cores();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            machine::pin(guest);
            while !counted.over.load(Ordering::Acquire) {
                if !conveyor.fill(&bytes) {
                    std::thread::yield_now();
                }
            }
        });
        machine::pin(writer);
        let until = Instant::now() + Duration::from_secs_f64(load.seconds);
        let mut failed = None;
        while Instant::now() < until && failed.is_none() {
            for _ in 0..32 {
                counted.looks.fetch_add(1, Ordering::Relaxed);
                let found = conveyor.empty(|bytes| {
                    match rustix::io::write(&from, bytes) {
                        Ok(_) => counted.sent.fetch_add(1, Ordering::Relaxed),
                        Err(e) if retry(e) => counted.refused.fetch_add(1, Ordering::Relaxed),
                        Err(e) => {
                            failed = Some(e);
                            0
                        }
                    };
                });
                counted.found.fetch_add(u64::from(found), Ordering::Relaxed);
            }
        }
        counted.over.store(true, Ordering::Release);
        match failed {
            Some(error) => Err(Error::io("write to the TAP")(error.into())),
            None => Ok(()),
        }
    })
}

/// One end at a vde switch, in the words of its protocol: a request on the control socket that names our datagram
/// socket, answered by the name of the switch's.
struct Plug {
    data: UnixDatagram,
    path: PathBuf,
    _control: UnixStream,
}

/// `struct sockaddr_un` on Linux.
const SOCKADDR: usize = 110;

impl Plug {
    fn new(dir: &Path, number: u32) -> io::Result<Self> {
        let path = dir.join(format!(".{:05}-{number:05}", std::process::id()));
        let data = UnixDatagram::bind(&path)?;
        data.set_nonblocking(true)?;
        let mut control = UnixStream::connect(dir.join("ctl"))?;
        control.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = Vec::new();
        // Magic, version, "new port".
        for word in [0xfeed_face_u32, 3, 0] {
            request.extend(word.to_ne_bytes());
        }
        let mut address = [0; SOCKADDR];
        address[..2].copy_from_slice(&1_u16.to_ne_bytes());
        let name = path.as_os_str().as_encoded_bytes();
        let room = address
            .get_mut(2..2 + name.len())
            .ok_or(io::ErrorKind::InvalidInput)?;
        room.copy_from_slice(name);
        request.extend(address);
        request.extend(b"bench");
        control.write_all(&request)?;
        let mut answer = [0; SOCKADDR];
        let got = io::Read::read(&mut control, &mut answer)?;
        let name = answer.get(2..got).unwrap_or_default();
        let name: Vec<u8> = name.iter().copied().take_while(|&b| b != 0).collect();
        let peer = String::from_utf8_lossy(&name).into_owned();
        data.connect(peer)?;
        Ok(Self {
            data,
            path,
            _control: control,
        })
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn vde(load: &Load, counted: &Counted) -> Result<()> {
    let plug = |n| {
        Plug::new(Path::new(&load.from), n)
            .map_err(Error::io(format!("plug into vde at {}", load.from)))
    };
    let (a, b) = (plug(1)?, plug(2)?);
    machine::pin(machine::cores().0);
    let hello = frame(0, 60, false, ENDS[1], ENDS[0]);
    b.data
        .send(&hello)
        .map_err(Error::io("send to the vde switch"))?;
    let bytes = frame(0, load.size, false, ENDS[0], ENDS[1]);
    let mut room = vec![0; 2048];
    let until = Instant::now() + Duration::from_secs_f64(load.seconds);
    let mut written_off = 0;
    let mut last = Instant::now();
    let cpu = machine::thread_time();
    let mut at_work = Duration::ZERO;
    loop {
        let now = Instant::now();
        if now >= until {
            note(&counted.guests_ns, machine::thread_time() - cpu);
            note(&counted.guests_at_work_ns, at_work.as_nanos() as u64);
            return Ok(());
        }
        let mut went = 0;
        let had = counted.received.load(Ordering::Relaxed);
        while counted.under_way() < WINDOW + written_off && went < 32 {
            if a.data.send(&bytes).is_err() {
                counted.refused.fetch_add(1, Ordering::Relaxed);
                break;
            }
            counted.sent.fetch_add(1, Ordering::Relaxed);
            went += 1;
        }
        while b.data.recv(&mut room).is_ok_and(|n| n == load.size) {
            counted.received.fetch_add(1, Ordering::Relaxed);
            last = now;
        }
        let came = counted.received.load(Ordering::Relaxed) > had;
        counted.looks.fetch_add(1, Ordering::Relaxed);
        counted.found.fetch_add(u64::from(came), Ordering::Relaxed);
        if went > 0 || came {
            at_work += now.elapsed();
        }
        if now - last > Duration::from_millis(2) {
            // The switch dropped some for want of room in a socket.
            written_off = counted.under_way();
            last = now;
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_frame_notes_how_it_is_cut() {
        let bytes = frame(12, 14 + 20 + 20 + 30_000, true, ENDS[0], ENDS[1]);
        assert_eq!(bytes[..10], [1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0]);
        let ip = &bytes[12 + 14..12 + 34];
        assert_eq!(fold(words(ip)), 0xffff, "the IPv4 checksum holds");
        assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 30_040);
    }

    #[test]
    fn a_run_is_cut_into_full_frames_and_a_single_one_is_not() {
        let single = run_of(12, 1, ENDS[0], ENDS[1]);
        assert!(single.len() == 12 + 1514 && single[..12].iter().all(|b| *b == 0));
        // What an IPv4 header can say the length of, without Ethernet's.
        let many = run_of(12, 44, ENDS[0], ENDS[1]);
        assert_eq!(many[..2], [1, 1]);
        assert_eq!((many.len() - 12 - 54) % usize::from(SEGMENT), 0);
        assert!(many.len() - 12 - 14 <= usize::from(u16::MAX));
    }

    #[test]
    fn what_is_filled_is_emptied_once_and_in_order() {
        let conveyor = Conveyor::new(&[0; 60]);
        assert_eq!(conveyor.buffers.len(), 256);
        assert_eq!(Conveyor::new(&vec![0; 64_294]).buffers.len(), 65);
        let (mut filled, mut seen) = (0_u64, Vec::new());
        for _ in 0..3 {
            while conveyor.fill(&[filled as u8; 60]) {
                filled += 1;
            }
            while conveyor.empty(|bytes| seen.push(bytes[59])) {}
        }
        assert_eq!(filled, 3 * 256);
        assert!(seen.iter().copied().eq((0..filled).map(|n| n as u8)));
    }

    #[test]
    fn a_plain_frame_asks_for_nothing() {
        let bytes = frame(12, 60, false, ENDS[0], ENDS[1]);
        assert!(bytes.len() == 72 && bytes[..12].iter().all(|b| *b == 0));
        assert_eq!(bytes[12..18], ENDS[1]);
    }
}
