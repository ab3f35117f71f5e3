//! A VMM and a driver made of other people's crates, with split rings.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use ::vhost_user::{Backend, Refused, Ring};
use vfio_user::SharedMem;
use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Guest memory begins here.
pub const BASE: u64 = 0x4000_0000;
pub const RAM: usize = 8 << 20;
/// Descriptors of a ring.
pub const SIZE: u16 = 64;
/// Bytes of a buffer.
pub const BUFFER: u64 = 2048;
/// Bytes in front of a frame.
pub const HEADER: usize = 12;
pub const WAIT: Duration = Duration::from_secs(20);

/// Bits of features.
pub const VERSION_1: u64 = 1 << 32;
pub const MRG_RXBUF: u64 = 1 << 15;
pub const MQ: u64 = 1 << 22;
pub const LOG_ALL: u64 = 1 << 26;
pub const PROTOCOL: u64 = 1 << 30;

/// A guest: its memory and its driver's indices outlive any back end.
pub struct Guest {
    pub memory: GuestMemoryMmap,
    pub file: File,
    rings: Vec<Driver>,
}

/// The driver's side of a ring.
#[derive(Default)]
struct Driver {
    available: u16,
    seen: u16,
}

/// A connection of its VMM's.
pub struct Vmm {
    pub front: Frontend,
    /// By queue: kick, call, error.
    events: Vec<Option<[EventFd; 3]>>,
}

/// Until it is so.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Guest {
    pub fn new(queues: usize) -> Self {
        let ram = SharedMem::new("ram", RAM).expect("a memfd");
        let file = File::from(ram.as_fd().try_clone_to_owned().expect("a descriptor"));
        let part = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let memory =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(BASE), RAM, Some(part))])
                .expect("mapped");
        Self {
            memory,
            file,
            rings: (0..queues).map(|_| Driver::default()).collect(),
        }
    }

    /// An address as its VMM has it.
    pub fn user(&self, guest: u64) -> u64 {
        let at = self.memory.get_host_address(GuestAddress(guest));
        at.expect("mapped").addr() as u64
    }

    pub fn put<const N: usize>(&self, at: u64, bytes: [u8; N]) {
        self.memory
            .write_slice(&bytes, GuestAddress(at))
            .expect("written");
    }

    fn word(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        self.memory
            .read_slice(&mut bytes, GuestAddress(at))
            .expect("read");
        u16::from_le_bytes(bytes)
    }

    /// Descriptors of a ring; what is available is 1000h, what is used 2000h behind them.
    pub fn ring(queue: usize) -> u64 {
        BASE + 0x4000 * queue as u64
    }

    /// A buffer of a ring.
    pub fn buffer(queue: usize, slot: u16) -> u64 {
        BASE + 0x10_0000 + 0x4_0000 * queue as u64 + BUFFER * u64::from(slot)
    }

    /// Makes the next buffer available.
    fn offer(&mut self, queue: usize, len: u32, flags: u16) {
        let ring = Self::ring(queue);
        let driver = &mut self.rings[queue];
        let slot = driver.available % SIZE;
        driver.available = driver.available.wrapping_add(1);
        let available = driver.available;
        let desc = ring + 16 * u64::from(slot);
        self.put(desc, Self::buffer(queue, slot).to_le_bytes());
        self.put(desc + 8, len.to_le_bytes());
        self.put(desc + 12, flags.to_le_bytes());
        self.put(ring + 0x1004 + 2 * u64::from(slot), slot.to_le_bytes());
        self.put(ring + 0x1002, available.to_le_bytes());
    }

    /// Gives `count` buffers to be received into.
    pub fn give(&mut self, queue: usize, count: u16) {
        for _ in 0..count {
            self.offer(queue, BUFFER as u32, 2);
        }
    }

    /// Puts a frame into a transmit ring.
    pub fn send(&mut self, queue: usize, frame: &[u8]) {
        self.send_with(queue, &[0; HEADER], frame);
    }

    /// Puts a frame behind a header into a transmit ring.
    pub fn send_with(&mut self, queue: usize, header: &[u8; HEADER], frame: &[u8]) {
        let slot = self.rings[queue].available % SIZE;
        let bytes = [&header[..], frame].concat();
        self.memory
            .write_slice(&bytes, GuestAddress(Self::buffer(queue, slot)))
            .expect("written");
        self.offer(queue, bytes.len() as u32, 0);
    }

    /// The device's used index.
    pub fn used(&self, queue: usize) -> u16 {
        self.word(Self::ring(queue) + 0x2002)
    }

    pub fn available(&self, queue: usize) -> u16 {
        self.rings[queue].available
    }

    /// Frames that have come since the last call.
    pub fn received(&mut self, queue: usize) -> Vec<Vec<u8>> {
        let came = self.received_with(queue);
        came.into_iter().map(|(_, frame)| frame).collect()
    }

    /// The same with their headers.
    pub fn received_with(&mut self, queue: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut frames = Vec::new();
        while self.rings[queue].seen != self.used(queue) {
            let slot = self.rings[queue].seen % SIZE;
            self.rings[queue].seen = self.rings[queue].seen.wrapping_add(1);
            let element = Self::ring(queue) + 0x2004 + 8 * u64::from(slot);
            let (id, len) = (self.word(element), self.word(element + 4));
            let mut bytes = vec![0; len.into()];
            self.memory
                .read_slice(&mut bytes, GuestAddress(Self::buffer(queue, id)))
                .expect("read");
            let frame = bytes.split_off(HEADER);
            frames.push((bytes, frame));
        }
        frames
    }

    /// Waits for a frame.
    pub fn receive(&mut self, queue: usize) -> Vec<u8> {
        let mut frames = Vec::new();
        until("a frame comes", || {
            frames = self.received(queue);
            !frames.is_empty()
        });
        assert_eq!(frames.len(), 1, "one at a time");
        frames.remove(0)
    }
}

impl Vmm {
    /// Connects to a back end and says what the driver has accepted.
    pub fn connect(path: &Path, guest: &Guest, features: u64) -> Self {
        let queues = guest.rings.len();
        let mut front = Frontend::connect(path, queues as u64).expect("connected");
        front.set_owner().expect("owner");
        let offered = front.get_features().expect("answered");
        assert_eq!(offered & features, features, "{offered:#x}");
        front.set_features(features | PROTOCOL).expect("set");
        let protocol = front.get_protocol_features().expect("answered");
        front.set_protocol_features(protocol).expect("set");
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        front
            .set_mem_table(&[VhostUserMemoryRegionInfo {
                guest_phys_addr: BASE,
                memory_size: RAM as u64,
                userspace_addr: guest.user(BASE),
                mmap_offset: 0,
                mmap_handle: guest.file.as_raw_fd(),
            }])
            .expect("taken");
        Self {
            front,
            events: (0..queues).map(|_| None).collect(),
        }
    }

    fn place(&self, guest: &Guest, queue: usize, log: bool) {
        let ring = Guest::ring(queue);
        let at = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: log.into(),
            desc_table_addr: guest.user(ring),
            used_ring_addr: guest.user(ring + 0x2000),
            avail_ring_addr: guest.user(ring + 0x1000),
            log_addr: log.then_some(ring + 0x2000),
        };
        self.front.set_vring_addr(queue, &at).expect("address");
    }

    /// Starts a ring, as QEMU does: enabled first.
    pub fn start(&mut self, guest: &Guest, queue: usize, base: u16) {
        self.front.set_vring_enable(queue, true).expect("enabled");
        self.describe(guest, queue, base);
    }

    /// Starts a ring that may not be enabled.
    pub fn describe(&mut self, guest: &Guest, queue: usize, base: u16) {
        // `EFD_NONBLOCK`.
        let event = || EventFd::new(0o4000).expect("an eventfd");
        let events = [event(), event(), event()];
        self.front.set_vring_num(queue, SIZE).expect("size");
        self.front.set_vring_base(queue, base).expect("base");
        self.place(guest, queue, false);
        self.front.set_vring_kick(queue, &events[0]).expect("kick");
        self.front.set_vring_call(queue, &events[1]).expect("call");
        self.front.set_vring_err(queue, &events[2]).expect("err");
        self.events[queue] = Some(events);
    }

    pub fn kick(&self, queue: usize) {
        let [kick, ..] = self.events[queue].as_ref().expect("started");
        kick.write(1).expect("kicked");
    }

    /// How often the driver of a queue was called.
    pub fn calls(&self, queue: usize) -> u64 {
        let [_, call, _] = self.events[queue].as_ref().expect("started");
        call.read().unwrap_or(0)
    }

    /// A ring was said to be broken.
    pub fn is_broken(&self, queue: usize) -> bool {
        let [_, _, error] = self.events[queue].as_ref().expect("started");
        error.read().is_ok()
    }

    /// Logs what is written to the rings and to memory, as a migration does.
    pub fn log(&mut self, guest: &Guest, features: u64, file: &SharedMem) {
        let region = VhostUserDirtyLogRegion {
            mmap_size: file.len() as u64,
            mmap_offset: 0,
            mmap_handle: file.as_fd().as_raw_fd(),
        };
        self.front.set_log_base(0, Some(region)).expect("answered");
        self.front
            .set_features(features | PROTOCOL | LOG_ALL)
            .expect("set");
        for queue in 0..self.events.len() {
            if self.events[queue].is_some() {
                self.place(guest, queue, true);
            }
        }
    }
}

/// A device that counts what its front end does.
#[derive(Default)]
pub struct Counting {
    pub kicks: [u32; 2],
    rings: [Option<Ring>; 2],
}

impl Counting {
    /// Chains that the driver has made available.
    pub fn available(&self, memory: &guest_mem::Memory, queue: usize) -> u16 {
        let ring = self.rings[queue].as_ref().expect("started");
        let mut index = [0; 2];
        let view = memory.view();
        view.read(ring.driver + 2, &mut index).expect("mapped");
        u16::from_le_bytes(index)
    }
}

impl Backend for Counting {
    fn queues(&self) -> u16 {
        2
    }

    fn features(&self) -> u64 {
        VERSION_1
    }

    fn set_features(&mut self, _: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn start(&mut self, queue: u16, ring: &Ring) -> Result<(), Refused> {
        self.rings[usize::from(queue)] = Some(ring.clone());
        Ok(())
    }

    fn stop(&mut self, queue: u16) -> u32 {
        self.rings[usize::from(queue)] = None;
        0
    }

    fn enable(&mut self, _: u16, _: bool) {}

    fn kicked(&mut self, queue: u16) {
        self.kicks[usize::from(queue)] += 1;
    }

    fn reset(&mut self) {}
}
