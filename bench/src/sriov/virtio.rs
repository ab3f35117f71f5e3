//! A VM on QEMU's virtio-net, played by a driver of our own: QEMU runs a machine without a processor
//! (`-accel qtest`), this program maps the machine's memory and drives the rings there (virtio 1.2,
//! §2.7 and §4.1.4.8, the legacy interface).

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use rig::{Guest, Qtest};
use vfio_user::{Area, SharedMem};

use crate::error::{Error, Result};

/// MiB of a machine.
pub const MEMORY: u32 = 16;
/// The NIC's slot on the machine's bus.
pub const SLOT: u8 = 5;
/// Where its registers are put.
const PORTS: u16 = 0xc000;
/// Registers of the legacy interface.
mod reg {
    pub const GUEST_FEATURES: u16 = 4;
    pub const QUEUE_ADDRESS: u16 = 8;
    pub const QUEUE_SIZE: u16 = 12;
    pub const QUEUE_SELECT: u16 = 14;
    pub const NOTIFY: u16 = 16;
    pub const STATUS: u16 = 18;
}
/// VIRTIO_NET_F_MRG_RXBUF, which Linux takes too: without it a legacy header has 10 bytes.
const FEATURES: u32 = 1 << 15;
/// Bytes before each frame.
const HEADER: usize = 12;
/// ACKNOWLEDGE, DRIVER, DRIVER_OK.
const UP: u32 = 7;
/// Bytes of a buffer.
const BUFFER: usize = 2048;
/// VIRTQ_DESC_F_WRITE.
const DEVICE_WRITES: u16 = 2;
/// VIRTQ_AVAIL_F_NO_INTERRUPT.
const NO_INTERRUPT: u16 = 1;
/// VIRTQ_USED_F_NO_NOTIFY.
const NO_NOTIFY: u32 = 1;
/// A page of the legacy interface.
const PAGE: usize = 4096;
/// Where the receive and the transmit queue's memory begin; above what a PC's first MiB holds.
const QUEUES: [usize; 2] = [4 << 20, 8 << 20];

/// One queue: its rings, and behind them a buffer for each descriptor.
struct Queue {
    number: u16,
    ram: Area,
    size: u16,
    /// Offsets of the available and the used ring, and of the buffers.
    available: usize,
    used: usize,
    buffers: usize,
    /// The next entry of either ring.
    next: u16,
    seen: u16,
}

impl Queue {
    fn new(number: u16, qtest: &mut Qtest, memory: &SharedMem) -> Result<Self> {
        let wrong = Error::io("set a queue up");
        let mut set_up = || -> std::io::Result<Self> {
            qtest.port_write(PORTS + reg::QUEUE_SELECT, 2, number.into())?;
            let size = qtest.port_read(PORTS + reg::QUEUE_SIZE, 2)? as u16;
            let at = QUEUES[usize::from(number)];
            let n = usize::from(size);
            if !(2..=1024).contains(&n) {
                return Err(std::io::Error::other(format!("it has {n} descriptors")));
            }
            let available = 16 * n;
            let used = (available + 6 + 2 * n).next_multiple_of(PAGE);
            let buffers = (used + 6 + 8 * n).next_multiple_of(PAGE);
            let ram = memory.area(at, buffers + n * BUFFER);
            for i in 0..n {
                let address = (at + buffers + i * BUFFER) as u64;
                ram.store_u64(16 * i, address, Ordering::Relaxed);
                let flags = if number == 0 { DEVICE_WRITES } else { 0 };
                ram.store_u32(16 * i + 8, BUFFER as u32, Ordering::Relaxed);
                ram.store_u32(16 * i + 12, u32::from(flags), Ordering::Relaxed);
            }
            ram.put(available, NO_INTERRUPT.to_le_bytes());
            qtest.port_write(PORTS + reg::QUEUE_ADDRESS, 4, (at / PAGE) as u32)?;
            Ok(Self {
                number,
                ram,
                size,
                available,
                used,
                buffers,
                next: 0,
                seen: 0,
            })
        };
        set_up().map_err(wrong)
    }

    /// What the device has used since it was last looked: how many entries.
    fn fresh(&self) -> u16 {
        let word = self.ram.load_u32(self.used, Ordering::Acquire);
        ((word >> 16) as u16).wrapping_sub(self.seen)
    }

    /// The next used entry: its descriptor and length.
    fn take(&mut self) -> (u16, u32) {
        let at = self.used + 4 + 8 * usize::from(self.seen % self.size);
        self.seen = self.seen.wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = self.ram.get::<8>(at);
        let id = u32::from_le_bytes([a, b, c, d]) as u16 % self.size;
        (id, u32::from_le_bytes([e, f, g, h]))
    }

    /// Puts a descriptor into the available ring, unseen until [`Self::publish`].
    fn give(&mut self, id: u16) {
        let at = self.available + 4 + 2 * usize::from(self.next % self.size);
        self.ram.put(at, id.to_le_bytes());
        self.next = self.next.wrapping_add(1);
    }

    /// Has the device see what was given, and rings where it asks to be rung.
    fn publish(&self, qtest: &mut Qtest) -> Result<()> {
        let word = u32::from(NO_INTERRUPT) | u32::from(self.next) << 16;
        self.ram.store_u32(self.available, word, Ordering::Release);
        // The index is seen before the wish is read, as the device does it the other way round.
        fence(Ordering::SeqCst);
        if self.ram.load_u32(self.used, Ordering::Relaxed) & NO_NOTIFY != 0 {
            return Ok(());
        }
        let rung = qtest.port_post(PORTS + reg::NOTIFY, 2, self.number.into());
        rung.map_err(Error::io("ring a queue"))
    }

    fn buffer(&self, id: u16) -> usize {
        self.buffers + usize::from(id) * BUFFER
    }
}

/// A VM.
pub struct Vm {
    /// QEMU.
    pub guest: Guest,
    /// Its address.
    pub mac: [u8; 6],
    qtest: Qtest,
    rx: Queue,
    tx: Queue,
    /// Transmit descriptors that are the driver's.
    free: Vec<u16>,
}

/// The machine's memory, which QEMU keeps in a memfd.
fn memory(guest: &Guest) -> Result<SharedMem> {
    let none = || Error::Usage(format!("the memory of {} is not to be found", guest.name()));
    let dir = format!("/proc/{}/fd", guest.id());
    let entries = std::fs::read_dir(&dir).map_err(Error::io(format!("list {dir}")))?;
    let ram = entries.flatten().map(|e| e.path()).find(|path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target
            .to_string_lossy()
            .starts_with("/memfd:memory-backend")
    });
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(ram.ok_or_else(none)?);
    let file = file.map_err(Error::io("open a machine's memory"))?;
    SharedMem::from_fd(OwnedFd::from(file), 0, (MEMORY as usize) << 20)
        .map_err(Error::io("map a machine's memory"))
}

impl Vm {
    /// Brings the NIC of a machine up.
    ///
    /// # Errors
    /// When it is not there or QEMU has ended.
    pub fn up(guest: Guest, mac: [u8; 6]) -> Result<Self> {
        let mut qtest = guest.qtest()?;
        let memory = memory(&guest)?;
        let mut prepare = || -> std::io::Result<()> {
            let id = qtest.pci_read(0, SLOT, 0, 0)?;
            // Red Hat's transitional virtio-net.
            if id != 0x1000_1af4 {
                return Err(std::io::Error::other(format!("{id:#x} is no virtio-net")));
            }
            qtest.pci_write(0, SLOT, 0, 0x10, PORTS.into())?;
            qtest.pci_write(0, SLOT, 0, 0x04, 7)?;
            qtest.port_write(PORTS + reg::STATUS, 1, 0)?;
            qtest.port_write(PORTS + reg::STATUS, 1, UP & 3)?;
            qtest.port_write(PORTS + reg::GUEST_FEATURES, 4, FEATURES)
        };
        prepare().map_err(Error::io("find the NIC"))?;
        let mut rx = Queue::new(0, &mut qtest, &memory)?;
        let tx = Queue::new(1, &mut qtest, &memory)?;
        let up = qtest.port_write(PORTS + reg::STATUS, 1, UP);
        up.map_err(Error::io("start the NIC"))?;
        (0..rx.size).for_each(|id| rx.give(id));
        rx.publish(&mut qtest)?;
        let free = (0..tx.size).collect();
        Ok(Self {
            guest,
            mac,
            qtest,
            rx,
            tx,
            free,
        })
    }

    /// Puts a frame into all its transmit buffers, behind a header that asks for nothing.
    pub fn prepare(&mut self, frame: &[u8]) {
        for id in 0..self.tx.size {
            let at = self.tx.buffer(id);
            self.tx.ram.write(at, &[0; HEADER]);
            self.tx.ram.write(at + HEADER, frame);
        }
    }

    /// Sends `most` of them, of `len` bytes, to `to`, with at most one ring. Returns how many there was
    /// room for.
    ///
    /// # Errors
    /// When QEMU has ended.
    pub fn send(&mut self, most: u32, len: u32, to: [u8; 6]) -> Result<u32> {
        for _ in 0..self.tx.fresh() {
            let (id, _) = self.tx.take();
            self.free.push(id);
        }
        let mut sent = 0;
        while sent < most
            && let Some(id) = self.free.pop()
        {
            let at = self.tx.buffer(id);
            self.tx.ram.put(at + HEADER, to);
            let long = HEADER as u32 + len;
            let word = 16 * usize::from(id) + 8;
            self.tx.ram.store_u32(word, long, Ordering::Relaxed);
            self.tx.give(id);
            sent += 1;
        }
        if sent > 0 {
            self.tx.publish(&mut self.qtest)?;
        }
        Ok(sent)
    }

    /// Takes what has come and gives the buffers back; returns how many frames of `len` bytes.
    ///
    /// # Errors
    /// When QEMU has ended.
    pub fn receive(&mut self, len: u32) -> Result<u32> {
        let fresh = self.rx.fresh();
        let mut came = 0;
        for _ in 0..fresh {
            let (id, long) = self.rx.take();
            came += u32::from(long == HEADER as u32 + len);
            self.rx.give(id);
        }
        if fresh > 0 {
            self.rx.publish(&mut self.qtest)?;
        }
        Ok(came)
    }
}
