//! A device that echoes and remembers what it was told, and a server thread around it.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hypernic_vhost_user::codec::{MemRegion, VringAddr, feature, protocol};
use hypernic_vhost_user::guest_mem::Memory;
use hypernic_vhost_user::{
    Backend, Calls, Client, ClientEvent, DirtyLog, EventFd, GoneReason, Listener, Refused, Ring,
    Server, SharedMem, Work,
};
use parking_lot::Mutex;

pub const WAIT: Duration = Duration::from_secs(10);

/// Features that the device offers: VERSION_1, packed rings, and one that it refuses.
pub const OFFERED: u64 = 1 << 32 | feature::PACKED | REFUSED;
/// The driver may not have it after all.
pub const REFUSED: u64 = 1 << 5;

/// Rings of the device.
pub const QUEUES: u16 = 4;

/// What the device saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Features(u64),
    Start(u16, u32),
    Stop(u16),
    Enable(u16, bool),
    Kick(u16),
    Log(bool),
    RingLog(u16, Option<u64>),
    Reset,
    Status(u8),
    Mtu(u16),
    Announce([u8; 6]),
    Loaded(Vec<u8>),
    Client(ClientEvent),
}

/// A buffer: its address, its bytes, and whether it is the device's to write.
type Part = (u64, u32, bool);

/// A started split ring, from the device's side.
struct Running {
    ring: Ring,
    next: u16,
}

/// Sends what it is given in an odd ring to the ring before it.
pub struct Echo {
    pub seen: Arc<Mutex<Vec<Seen>>>,
    memory: Memory,
    calls: Calls,
    running: Vec<Option<Running>>,
    enabled: Vec<bool>,
    work: bool,
    log: Option<DirtyLog>,
    config: [u8; 16],
    state: Vec<u8>,
    broken: bool,
    /// Where pages are that only the device writes, while it is logged and has work; 0 if there are none.
    scribble: Arc<AtomicU64>,
    scribbled: u64,
}

/// Pages that the device scribbles on.
pub const SCRIBBLED: u64 = 64;

impl Echo {
    fn note(&self, seen: Seen) {
        self.seen.lock().push(seen);
    }

    fn mark(&self, at: u64, len: u64) {
        if let Some(log) = &self.log {
            log.mark(at, len);
        }
    }

    /// Panics when a running ring is out of reach.
    pub fn check_rings(&self, memory: &Memory) {
        let view = memory.view();
        for Running { ring, .. } in self.running.iter().flatten() {
            let n = u64::from(ring.size);
            let (driver, device) = if ring.packed {
                (4, 4)
            } else {
                (6 + 2 * n, 6 + 8 * n)
            };
            for (at, len) in [
                (ring.descriptors, 16 * n),
                (ring.driver, driver),
                (ring.device, device),
            ] {
                let mut bytes = vec![0; len as usize];
                view.read(at, &mut bytes).expect("in memory");
                view.write(at, &bytes).expect("in memory");
            }
        }
    }

    /// The next chain of a ring: its head and its parts.
    fn chain(&self, running: &Running) -> Option<(u16, Vec<Part>)> {
        let (view, ring) = (self.memory.view(), &running.ring);
        let word = |at: u64| {
            let mut bytes = [0; 2];
            view.read_acquire(at, &mut bytes).ok()?;
            Some(u16::from_le_bytes(bytes))
        };
        if word(ring.driver + 2)? == running.next {
            return None;
        }
        let slot = u64::from(running.next % ring.size);
        let head = word(ring.driver + 4 + 2 * slot)?;
        let (mut at, mut parts) = (head, Vec::new());
        for _ in 0..ring.size {
            let mut bytes = [0; 16];
            view.read(
                ring.descriptors + 16 * u64::from(at % ring.size),
                &mut bytes,
            )
            .ok()?;
            let addr = u64::from_le_bytes(bytes[..8].try_into().ok()?);
            let len = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
            let flags = u16::from_le_bytes(bytes[12..14].try_into().ok()?);
            parts.push((addr, len, flags & 2 != 0));
            if flags & 1 == 0 {
                break;
            }
            at = u16::from_le_bytes(bytes[14..].try_into().ok()?);
        }
        Some((head, parts))
    }

    /// Writes to a page that nothing else writes, and marks it.
    fn scribble(&mut self) {
        let at = self.scribble.load(Ordering::Relaxed);
        if at != 0 && self.log.is_some() && self.running[1].is_some() {
            self.scribbled += 1;
            let page = at + self.scribbled % SCRIBBLED * 4096;
            let written = self
                .memory
                .view()
                .write(page, &self.scribbled.to_le_bytes());
            written.expect("guest memory");
            self.mark(page, 8);
        }
    }

    fn complete(&mut self, queue: usize, head: u16, len: u32) {
        let Some(running) = &mut self.running[queue] else {
            return;
        };
        let used = running.ring.device;
        let slot = used + 4 + 8 * u64::from(running.next % running.ring.size);
        running.next = running.next.wrapping_add(1);
        let (next, log) = (running.next, running.ring.log);
        let mut element = [0; 8];
        element[..2].copy_from_slice(&head.to_le_bytes());
        element[4..].copy_from_slice(&len.to_le_bytes());
        let view = self.memory.view();
        let _ = view.write(slot, &element);
        let _ = view.write_release(used + 2, &next.to_le_bytes());
        drop(view);
        if let Some(log) = log {
            self.mark(log + (slot - used), 8);
            self.mark(log + 2, 2);
        }
        self.calls.call(queue as u16);
    }

    /// One chain from `tx` to the ring before it; false when there is none, or no room for it.
    fn echo(&mut self, tx: usize) -> bool {
        let rx = tx - 1;
        let Some(sent) = self.running[tx].as_ref().and_then(|r| self.chain(r)) else {
            return false;
        };
        let mut frame = Vec::new();
        for (at, len, _) in sent.1.iter().filter(|part| !part.2) {
            let mut bytes = vec![0; *len as usize];
            if self.memory.view().read(*at, &mut bytes).is_err() {
                self.broken = true;
            }
            frame.extend(bytes);
        }
        if self.enabled[tx] && self.enabled[rx] {
            let Some((head, parts)) = self.running[rx].as_ref().and_then(|r| self.chain(r)) else {
                return false;
            };
            let mut rest = &frame[..];
            for (at, len, _) in parts.iter().filter(|part| part.2) {
                let (now, later) = rest.split_at(rest.len().min(*len as usize));
                let _ = self.memory.view().write(*at, now);
                self.mark(*at, now.len() as u64);
                rest = later;
            }
            self.complete(rx, head, (frame.len() - rest.len()) as u32);
        }
        self.complete(tx, sent.0, 0);
        true
    }
}

impl Backend for Echo {
    fn queues(&self) -> u16 {
        QUEUES
    }

    fn features(&self) -> u64 {
        OFFERED
    }

    fn protocol_features(&self) -> u64 {
        protocol::RARP | protocol::MTU | protocol::CONFIG | protocol::DEVICE_STATE
    }

    fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        self.note(Seen::Features(features));
        if features & REFUSED != 0 {
            return Err(Refused("not this one"));
        }
        Ok(())
    }

    fn start(&mut self, queue: u16, ring: &Ring) -> Result<(), Refused> {
        self.note(Seen::Start(queue, ring.base));
        if ring.size == 3 {
            return Err(Refused("three is too few"));
        }
        self.running[usize::from(queue)] = Some(Running {
            ring: ring.clone(),
            next: ring.base as u16,
        });
        Ok(())
    }

    fn stop(&mut self, queue: u16) -> u32 {
        self.note(Seen::Stop(queue));
        let running = self.running[usize::from(queue)].take();
        running.map_or(0, |running| u32::from(running.next))
    }

    fn enable(&mut self, queue: u16, enabled: bool) {
        self.note(Seen::Enable(queue, enabled));
        self.enabled[usize::from(queue)] = enabled;
        self.work = true;
    }

    fn kicked(&mut self, queue: u16) {
        self.note(Seen::Kick(queue));
        self.work = true;
    }

    fn log_ring(&mut self, queue: u16, log: Option<u64>) {
        self.note(Seen::RingLog(queue, log));
        if let Some(running) = &mut self.running[usize::from(queue)] {
            running.ring.log = log;
        }
    }

    fn set_log(&mut self, log: Option<DirtyLog>) {
        self.note(Seen::Log(log.is_some()));
        self.log = log;
    }

    fn reset(&mut self) {
        self.note(Seen::Reset);
        self.broken = false;
    }

    fn set_status(&mut self, status: u8) {
        self.note(Seen::Status(status));
    }

    fn needs_reset(&self) -> bool {
        self.broken
    }

    fn config_read(&mut self, offset: usize, data: &mut [u8]) -> bool {
        let part = self.config.get(offset..offset + data.len());
        part.map(|part| data.copy_from_slice(part)).is_some()
    }

    fn config_write(&mut self, offset: usize, data: &[u8], migration: bool) -> Result<(), Refused> {
        match self.config.get_mut(offset..offset + data.len()) {
            Some(part) if migration => part.copy_from_slice(data),
            _ => return Err(Refused("it is not the driver's")),
        }
        Ok(())
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        self.note(Seen::Mtu(mtu));
        if mtu > 9000 {
            return Err(Refused("more than 9000"));
        }
        Ok(())
    }

    fn announce(&mut self, mac: [u8; 6]) {
        self.note(Seen::Announce(mac));
    }

    fn save(&mut self) -> Option<Vec<u8>> {
        Some(self.state.clone())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), Refused> {
        if state.first() != Some(&7) {
            return Err(Refused("not of this device"));
        }
        self.note(Seen::Loaded(state.to_vec()));
        Ok(())
    }

    fn client(&mut self, event: ClientEvent) {
        self.note(Seen::Client(event));
    }

    fn work(&mut self) -> Work {
        self.scribble();
        // Drivers that poll do not kick, so it looks at each call.
        if std::mem::take(&mut self.work) || self.running.iter().flatten().count() > 0 {
            for tx in [1, 3] {
                for _ in 0..256 {
                    if !self.echo(tx) {
                        break;
                    }
                }
            }
        }
        Work::Idle
    }
}

/// A server thread.
pub struct Serving {
    pub path: PathBuf,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub memory: Memory,
    pub scribble: Arc<AtomicU64>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<Server>>,
    pub dir: Arc<tempfile::TempDir>,
}

/// The device and its server, with nothing around them.
pub fn device(listener: Listener) -> (Echo, Server) {
    let server = Server::new(QUEUES, listener).expect("a server");
    let echo = Echo {
        seen: Arc::default(),
        memory: server.memory(),
        calls: server.calls(),
        running: (0..QUEUES).map(|_| None).collect(),
        enabled: vec![false; usize::from(QUEUES)],
        work: false,
        log: None,
        config: *b"configuration 16",
        state: vec![7; 100_000],
        broken: false,
        scribble: Arc::default(),
        scribbled: 0,
    };
    (echo, server)
}

pub fn serve() -> Serving {
    serve_in(Arc::new(tempfile::tempdir().expect("a folder")))
}

/// A server, perhaps after another one in the same place.
pub fn serve_in(dir: Arc<tempfile::TempDir>) -> Serving {
    let path = dir.path().join("socket");
    let (mut echo, mut server) = device(Listener::bind(&path).expect("bound"));
    let stop = Arc::new(EventFd::new().expect("an eventfd"));
    let seen = Arc::clone(&echo.seen);
    let memory = server.memory();
    let scribble = Arc::clone(&echo.scribble);
    let until = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        server.run(&mut echo, &until).expect("served");
        server
    });
    Serving {
        path,
        seen,
        memory,
        scribble,
        stop,
        thread: Some(thread),
        dir,
    }
}

/// A front end with a started pair.
pub fn pair() -> (Serving, Client, Guest) {
    let serving = serve();
    let (mut client, guest) = serving.shared();
    for queue in [0, 1] {
        guest.start(&mut client, queue, 0);
        client
            .set_vring_enable(u32::from(queue), true)
            .expect("enabled");
    }
    (serving, client, guest)
}

impl Serving {
    /// A front end that has agreed on features and shared its memory.
    pub fn shared(&self) -> (Client, Guest) {
        let mut client = self.client();
        let guest = Guest::new();
        client
            .set_features(1 << 32 | feature::PROTOCOL)
            .expect("set");
        guest.share(&mut client);
        (client, guest)
    }

    /// Our own front end, which has negotiated everything that was offered.
    pub fn client(&self) -> Client {
        let mut client = Client::connect(&self.path).expect("connected");
        client.set_timeout(WAIT);
        client.set_owner().expect("owner");
        let offered = client.protocol_features().expect("answered");
        client.set_protocol_features(offered).expect("set");
        client
    }

    /// Waits until the device has seen something.
    pub fn wait_for(&self, what: impl Fn(&Seen) -> bool) -> Seen {
        let until = Instant::now() + WAIT;
        loop {
            if let Some(seen) = self.seen.lock().iter().find(|seen| what(seen)) {
                return seen.clone();
            }
            assert!(Instant::now() < until, "not seen in {:?}", self.seen.lock());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The line with which the front end, or what came instead of one, was sent away.
    pub fn fault(&self) -> String {
        let fault = |seen: &Seen| match seen {
            Seen::Client(
                ClientEvent::Gone(GoneReason::Protocol(why)) | ClientEvent::Refused(why),
            ) => Some(why.clone()),
            _ => None,
        };
        let found = self.wait_for(|seen| fault(seen).is_some());
        self.seen.lock().clear();
        fault(&found).expect("a fault")
    }

    /// Ends the server; gives its counters by name.
    pub fn end(mut self) -> impl Fn(&str) -> u64 {
        self.stop.signal();
        let thread = self.thread.take().expect("once");
        let server = thread.join().expect("no panic");
        let mut all = Vec::new();
        server.counters(&mut |name, value| all.push((name, value)));
        move |name| {
            let found = all.iter().find(|(n, _)| *n == name);
            found.unwrap_or_else(|| panic!("no counter {name}")).1
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where the front end has guest memory, and where the guest has it.
pub const USER: u64 = 0x7f12_3400_0000;
pub const GUEST: u64 = 0x8000_0000;
pub const RAM: usize = 1 << 20;

/// Guest RAM with split rings of 16 in it.
pub struct Guest {
    pub ram: SharedMem,
    pub kicks: Vec<EventFd>,
    pub calls: Vec<EventFd>,
    /// Available index of each ring, and used index up to which we have looked.
    avail: Vec<u16>,
    seen: Vec<u16>,
}

pub const SIZE: u16 = 16;
/// Each ring's page: descriptors at 0, available ring at 0x400, used ring at 0x800. Its buffers
/// follow, a page each.
const RING: usize = 0x2_0000;

pub fn region() -> MemRegion {
    MemRegion {
        guest: GUEST,
        size: RAM as u64,
        user: USER,
        mmap_offset: 0,
    }
}

impl Guest {
    pub fn new() -> Self {
        let event = || EventFd::new().expect("an eventfd");
        let all = usize::from(QUEUES);
        Self {
            ram: SharedMem::new("ram", RAM).expect("a memfd"),
            kicks: (0..all).map(|_| event()).collect(),
            calls: (0..all).map(|_| event()).collect(),
            avail: vec![0; all],
            seen: vec![0; all],
        }
    }

    pub fn addr(queue: u16) -> VringAddr {
        let at = USER + u64::from(queue) * RING as u64;
        VringAddr {
            index: u32::from(queue),
            flags: 0,
            descriptor: at,
            available: at + 0x400,
            used: at + 0x800,
            log: 0,
        }
    }

    /// Guest physical address of a buffer.
    pub fn buffer(queue: u16, n: u16) -> u64 {
        GUEST + (usize::from(queue) * RING + 0x1000 * (1 + usize::from(n))) as u64
    }

    pub fn share(&self, client: &mut Client) {
        client
            .set_mem_table(&[region()], &[self.ram.as_fd()])
            .expect("memory taken");
    }

    /// Describes a ring, and starts it if it is enabled.
    pub fn start(&self, client: &mut Client, queue: u16, base: u32) {
        let (index, at) = (u32::from(queue), usize::from(queue));
        client.set_vring_num(index, u32::from(SIZE)).expect("size");
        client.set_vring_base(index, base).expect("base");
        client.set_vring_addr(&Self::addr(queue)).expect("address");
        let byte = queue as u8;
        client
            .set_vring_kick(byte, Some(&self.kicks[at]))
            .expect("kick");
        client
            .set_vring_call(byte, Some(&self.calls[at]))
            .expect("call");
    }

    /// Puts a buffer into a ring: the device reads it, or writes it.
    pub fn put(&mut self, queue: u16, n: u16, len: u32, write: bool) {
        let (at, q) = (usize::from(queue) * RING, usize::from(queue));
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&Self::buffer(queue, n).to_le_bytes());
        descriptor[8..12].copy_from_slice(&len.to_le_bytes());
        descriptor[12] = if write { 2 } else { 0 };
        self.ram.write(at + 16 * usize::from(n), &descriptor);
        let slot = usize::from(self.avail[q] % SIZE);
        self.ram.write(at + 0x400 + 4 + 2 * slot, &n.to_le_bytes());
        self.avail[q] = self.avail[q].wrapping_add(1);
        let index = self.avail[q];
        self.ram
            .store_u16(at + 0x402, index, std::sync::atomic::Ordering::Release);
    }

    /// The next used element: head and length. Waits for it.
    pub fn used(&mut self, queue: u16) -> (u32, u32) {
        let (at, q) = (usize::from(queue) * RING, usize::from(queue));
        let until = Instant::now() + WAIT;
        while self.used_index(queue) == self.seen[q] {
            assert!(Instant::now() < until, "ring {queue}: nothing is used");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut element = [0; 8];
        let slot = usize::from(self.seen[q] % SIZE);
        self.ram.read(at + 0x800 + 4 + 8 * slot, &mut element);
        self.seen[q] = self.seen[q].wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = element;
        let word = u32::from_le_bytes;
        (word([a, b, c, d]), word([e, f, g, h]))
    }

    pub fn used_index(&self, queue: u16) -> u16 {
        let at = usize::from(queue) * RING + 0x802;
        self.ram.load_u16(at, std::sync::atomic::Ordering::Acquire)
    }

    pub fn fill(&self, guest: u64, bytes: &[u8]) {
        self.ram.write((guest - GUEST) as usize, bytes);
    }

    pub fn look(&self, guest: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read((guest - GUEST) as usize, &mut bytes);
        bytes
    }

    /// One frame there and back, with calls on both rings of a pair.
    pub fn round_trip(&mut self, pair: u16, text: &[u8]) {
        let (rx, tx) = (2 * pair, 2 * pair + 1);
        self.put(rx, 3, 100, true);
        self.fill(Self::buffer(tx, 5), text);
        self.put(tx, 5, text.len() as u32, false);
        self.kicks[usize::from(tx)].signal();
        assert_eq!(self.used(rx), (3, text.len() as u32));
        assert_eq!(self.used(tx), (5, 0));
        assert_eq!(self.look(Self::buffer(rx, 3), text.len()), text);
        for queue in [rx, tx] {
            let call = self.calls[usize::from(queue)].wait(WAIT);
            assert!(call.is_some(), "ring {queue} is called");
        }
    }
}
