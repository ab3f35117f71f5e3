//! A VM on QEMU's virtio-net, played by a driver of our own: QEMU runs a machine without a processor
//! (`-accel qtest`), this program maps the machine's memory and drives the rings there (virtio 1.2,
//! §2.7 and §4.1.4.8, the legacy interface).

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;

use rig::{Guest, Qtest};
use vfio_user::SharedMem;

use super::split::{Fills, PAGE, Ring, Rings};
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
/// ACKNOWLEDGE, DRIVER, DRIVER_OK.
const UP: u32 = 7;
/// Where the receive and the transmit queue's memory begin; above what a PC's first MiB holds.
const QUEUES: [usize; 2] = [4 << 20, 8 << 20];
/// Their numbers.
const RX: u16 = 0;
const TX: u16 = 1;

fn queue(number: u16, qtest: &mut Qtest, memory: &SharedMem) -> Result<Ring> {
    let mut set_up = || -> std::io::Result<Ring> {
        qtest.port_write(PORTS + reg::QUEUE_SELECT, 2, number.into())?;
        let size = qtest.port_read(PORTS + reg::QUEUE_SIZE, 2)? as u16;
        let at = QUEUES[usize::from(number)];
        if !(2..=1024).contains(&size) {
            return Err(std::io::Error::other(format!("it has {size} descriptors")));
        }
        let ram = memory.area(at, Ring::bytes(size));
        let fills = if number == RX {
            Fills::Device
        } else {
            Fills::Driver
        };
        let ring = Ring::new(ram, at as u64, size, fills);
        qtest.port_write(PORTS + reg::QUEUE_ADDRESS, 4, (at / PAGE) as u32)?;
        Ok(ring)
    };
    set_up().map_err(Error::io("set a queue up"))
}

/// A VM.
pub struct Vm {
    /// QEMU.
    pub guest: Guest,
    /// Its address.
    pub mac: [u8; 6],
    qtest: Qtest,
    rings: Rings,
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
        let rx = queue(RX, &mut qtest, &memory)?;
        let tx = queue(TX, &mut qtest, &memory)?;
        let up = qtest.port_write(PORTS + reg::STATUS, 1, UP);
        up.map_err(Error::io("start the NIC"))?;
        let mut vm = Self {
            guest,
            mac,
            qtest,
            rings: Rings::new(rx, tx),
        };
        let ring = vm.rings.begin();
        vm.notify(RX, ring)?;
        Ok(vm)
    }

    fn notify(&mut self, queue: u16, asked: bool) -> Result<()> {
        if !asked {
            return Ok(());
        }
        let rung = self.qtest.port_post(PORTS + reg::NOTIFY, 2, queue.into());
        rung.map_err(Error::io("ring a queue"))
    }

    /// Puts a frame into all its transmit buffers.
    pub fn prepare(&mut self, frame: &[u8]) {
        self.rings.prepare(frame);
    }

    /// Sends `most` of them, of `len` bytes, to `to`, with at most one ring. Returns how many there was
    /// room for.
    ///
    /// # Errors
    /// When QEMU has ended.
    pub fn send(&mut self, most: u32, len: u32, to: [u8; 6]) -> Result<u32> {
        let (sent, ring) = self.rings.send(most, len, |_| to);
        self.notify(TX, ring)?;
        Ok(sent)
    }

    /// Takes what has come and gives the buffers back; returns how many frames of `len` bytes.
    ///
    /// # Errors
    /// When QEMU has ended.
    pub fn receive(&mut self, len: u32) -> Result<u32> {
        let (came, ring) = self.rings.receive(u32::MAX, |long| long == len);
        self.notify(RX, ring)?;
        Ok(came)
    }
}
