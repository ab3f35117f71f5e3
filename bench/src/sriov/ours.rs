//! A VM on a virtio-net of ours, over either door: vfio-user, where a notification is a register write, or vhost-user, where
//! it is an eventfd. Rings are split and of one pair, as QEMU's are here.

use std::os::fd::AsFd;
use std::path::Path;

use drivers::{Bus, BusError, Costs, Dma, SocketBus};
use vfio_user::codec::irq;
use vfio_user::{EventFd, SharedMem};
use vhost_user::codec::{MemRegion, VringAddr, feature as door, protocol};
use vhost_user::{Client, ClientError};
use virtio_net::regs::{NO_VECTOR, common, feature, page, status};

use super::split::{Fills, PAGE, Ring, Rings};
use crate::error::{Error, Result};

/// Queues, by their numbers.
const RX: u16 = 0;
const TX: u16 = 1;
/// What the driver takes, as QEMU's does here.
const FEATURES: u64 = feature::VERSION_1 | feature::MRG_RXBUF;
/// The vector of received frames, in the table of BAR 2: its mask is the last of its four words.
const VECTOR: u32 = 0;
const TABLE: u8 = 2;
const MASK: u64 = 12;
/// Where guest memory is for a back end.
const BASE: u64 = 1 << 20;

/// How the device is told.
enum Line {
    Vfio(Box<SocketBus>),
    Vhost(Box<Front>),
}

struct Front {
    client: Client,
    kicks: [EventFd; 2],
    /// What the rings lie in.
    _memory: SharedMem,
}

/// A virtio-net that is up.
pub struct Ours {
    rings: Rings,
    line: Line,
    armed: bool,
    /// Notifications.
    told: u64,
}

fn by_bus(error: BusError) -> Error {
    Error::Tool {
        tool: "the driver of virtio-net",
        what: error.to_string(),
    }
}

fn by_front(error: ClientError) -> Error {
    Error::Tool {
        tool: "the front end of virtio-net",
        what: error.to_string(),
    }
}

fn fills(queue: u16) -> Fills {
    if queue == RX {
        Fills::Device
    } else {
        Fills::Driver
    }
}

/// Bytes from one ring's memory to the next.
fn step(size: u16) -> usize {
    Ring::bytes(size).next_multiple_of(PAGE)
}

/// The standard's registers behind the bus.
struct Registers<'b>(&'b mut SocketBus);

impl Registers<'_> {
    fn set(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let written = self.0.bar_write(0, page::COMMON + at, bytes);
        written.map_err(by_bus)
    }

    /// Halves of an address.
    fn place(&mut self, at: u64, address: u64) -> Result<()> {
        self.set(at, &(address as u32).to_le_bytes())?;
        self.set(at + 4, &((address >> 32) as u32).to_le_bytes())
    }

    fn status(&mut self, more: u8) -> Result<u8> {
        self.set(common::STATUS, &[more])?;
        let mut now = [0];
        let read = self.0.bar_read(0, page::COMMON + common::STATUS, &mut now);
        read.map_err(by_bus)?;
        Ok(now[0])
    }

    fn mac(&mut self) -> Result<[u8; 6]> {
        let mut mac = [0; 6];
        for (at, byte) in (page::DEVICE..).zip(mac.chunks_mut(1)) {
            self.0.bar_read(0, at, byte).map_err(by_bus)?;
        }
        Ok(mac)
    }
}

/// MSI-X on, in its capability's control word.
fn msix_on(bus: &mut SocketBus) -> Result<()> {
    let mut at = [0];
    bus.config_read(0x34, &mut at).map_err(by_bus)?;
    for _ in 0..48 {
        let mut head = [0; 2];
        bus.config_read(at[0].into(), &mut head).map_err(by_bus)?;
        if head[0] == 0x11 {
            break;
        }
        at = [head[1]];
    }
    let control = u16::from(at[0]) + 2;
    let mut word = [0; 2];
    bus.config_read(control, &mut word).map_err(by_bus)?;
    bus.config_write(control, &[word[0], word[1] | 0x80])
        .map_err(by_bus)
}

impl Ours {
    /// Brings one up over vfio-user, with rings of `size`; gives its address too.
    ///
    /// # Errors
    /// When the device is gone, or does not agree.
    pub fn over_vfio(mut bus: SocketBus, size: u16) -> Result<(Self, [u8; 6])> {
        // Memory and bus mastering.
        bus.config_write(4, &[6, 0]).map_err(by_bus)?;
        msix_on(&mut bus)?;
        let dma = bus.alloc(2 * step(size) as u64).map_err(by_bus)?;
        let mut registers = Registers(&mut bus);
        registers.status(0)?;
        registers.status(status::ACKNOWLEDGE | status::DRIVER)?;
        for half in 0..2_u32 {
            let word = (FEATURES >> (32 * half)) as u32;
            registers.set(common::DRIVER_FEATURE_SELECT, &half.to_le_bytes())?;
            registers.set(common::DRIVER_FEATURE, &word.to_le_bytes())?;
        }
        let agreed = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
        if registers.status(agreed)? & status::FEATURES_OK == 0 {
            return Err(Error::Usage("virtio-net declines our features".to_owned()));
        }
        let mac = registers.mac()?;
        let mut ring = |queue: u16| -> Result<Ring> {
            let part = Dma {
                iova: dma.iova + u64::from(queue) * step(size) as u64,
                len: Ring::bytes(size) as u64,
            };
            let ram = bus.area(part).map_err(by_bus)?;
            let ring = Ring::new(ram, part.iova, size, fills(queue));
            let vector = if queue == RX {
                VECTOR as u16
            } else {
                NO_VECTOR
            };
            let mut registers = Registers(&mut bus);
            registers.set(common::QUEUE_SELECT, &queue.to_le_bytes())?;
            registers.set(common::QUEUE_SIZE, &size.to_le_bytes())?;
            registers.set(common::QUEUE_VECTOR, &vector.to_le_bytes())?;
            let at = [
                common::QUEUE_DESC,
                common::QUEUE_DRIVER,
                common::QUEUE_DEVICE,
            ];
            for (at, address) in at.into_iter().zip(ring.places()) {
                registers.place(at, address)?;
            }
            registers.set(common::QUEUE_ENABLE, &1_u16.to_le_bytes())?;
            Ok(ring)
        };
        let (rx, tx) = (ring(RX)?, ring(TX)?);
        let up = Registers(&mut bus).status(agreed | status::DRIVER_OK)?;
        if up & status::NEEDS_RESET != 0 {
            return Err(Error::Usage(
                "virtio-net does not like our rings".to_owned(),
            ));
        }
        let ours = Self::begin(rx, tx, Line::Vfio(Box::new(bus)))?;
        Ok((ours, mac))
    }

    /// Brings one up over vhost-user, with rings of `size`.
    ///
    /// # Errors
    /// When the back end is gone, or does not agree.
    pub fn over_vhost(path: &Path, size: u16) -> Result<Self> {
        let memory = SharedMem::new("guest", 2 * step(size));
        let memory = memory.map_err(Error::io("make a guest's memory"))?;
        let kick = || EventFd::new().map_err(Error::io("make an eventfd"));
        let kicks = [kick()?, kick()?];
        let ring = |queue: u16| {
            let at = usize::from(queue) * step(size);
            let ram = memory.area(at, Ring::bytes(size));
            Ring::new(ram, BASE + at as u64, size, fills(queue))
        };
        let rings = [ring(RX), ring(TX)];
        let client = connect(path, &memory, &rings, &kicks).map_err(by_front)?;
        let [rx, tx] = rings;
        let front = Front {
            client,
            kicks,
            _memory: memory,
        };
        Self::begin(rx, tx, Line::Vhost(Box::new(front)))
    }

    fn begin(rx: Ring, tx: Ring, line: Line) -> Result<Self> {
        let mut ours = Self {
            rings: Rings::new(rx, tx),
            line,
            armed: false,
            told: 0,
        };
        let ring = ours.rings.begin();
        ours.notify(RX, ring)?;
        Ok(ours)
    }

    #[inline]
    fn notify(&mut self, queue: u16, asked: bool) -> Result<()> {
        if !asked {
            return Ok(());
        }
        self.told += 1;
        match &mut self.line {
            Line::Vfio(bus) => {
                let at = page::NOTIFY + u64::from(page::NOTIFY_STEP) * u64::from(queue);
                bus.bar_write(0, at, &queue.to_le_bytes()).map_err(by_bus)
            }
            Line::Vhost(front) => {
                front.kicks[usize::from(queue)].signal();
                Ok(())
            }
        }
    }

    /// What its side has cost so far; notifications are writes.
    pub fn costs(&self) -> Costs {
        Costs {
            writes: self.told,
            ..Costs::default()
        }
    }

    /// Puts a frame into all its transmit buffers.
    pub fn prepare(&mut self, frame: &[u8]) {
        self.rings.prepare(frame);
    }

    /// Sends as [`super::machine::Machine::send`] does.
    ///
    /// # Errors
    /// When the device is gone.
    #[inline]
    pub fn send(&mut self, most: u32, len: u32, to: impl Fn(u32) -> [u8; 6]) -> Result<u32> {
        let (sent, ring) = self.rings.send(most, len, to);
        self.notify(TX, ring)?;
        Ok(sent)
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// When the device is gone.
    #[inline]
    pub fn receive(&mut self, most: u32) -> Result<u32> {
        let (came, ring) = self.rings.receive(most, |_| true);
        self.notify(RX, ring)?;
        Ok(came)
    }

    /// Has received frames call by `event`. What is there already calls at once.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn interrupt(&mut self, event: &EventFd) -> Result<()> {
        if !std::mem::replace(&mut self.armed, true) {
            match &mut self.line {
                Line::Vfio(bus) => {
                    let armed = bus.client().arm(irq::MSIX, VECTOR, &[event]);
                    armed.map_err(|e| by_bus(e.into()))?;
                    bus.bar_write(TABLE, MASK, &0_u32.to_le_bytes())
                        .map_err(by_bus)?;
                }
                Line::Vhost(front) => {
                    let called = front.client.set_vring_call(RX as u8, Some(event));
                    called.map_err(by_front)?;
                }
            }
        }
        event.take();
        if self.rings.call(true) {
            event.signal();
        }
        Ok(())
    }

    /// A call: none meanwhile, what has come, and calls again.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn handle(&mut self, most: u32) -> Result<u32> {
        self.rings.call(false);
        let mut came = self.receive(most)?;
        // What came before it asked again does not call.
        while self.rings.call(true) {
            came += self.receive(most)?;
        }
        Ok(came)
    }

    /// Has nothing call any more.
    pub fn quiet(&mut self) {
        self.rings.call(false);
    }
}

/// A session with a back end that has the rings.
fn connect(
    path: &Path,
    memory: &SharedMem,
    rings: &[Ring; 2],
    kicks: &[EventFd; 2],
) -> std::result::Result<Client, ClientError> {
    let mut client = Client::connect(path)?;
    client.set_owner()?;
    let offered = client.features()?;
    let known = client.protocol_features()? & protocol::REPLY_ACK;
    client.set_protocol_features(known)?;
    client.set_features(offered & (FEATURES | door::PROTOCOL))?;
    let region = MemRegion {
        guest: BASE,
        size: memory.len() as u64,
        user: BASE,
        mmap_offset: 0,
    };
    client.set_mem_table(&[region], &[memory.as_fd()])?;
    for ((index, ring), kick) in (0..).zip(rings).zip(kicks) {
        let [descriptor, available, used] = ring.places();
        client.set_vring_num(index, ring.size().into())?;
        client.set_vring_base(index, 0)?;
        client.set_vring_addr(&VringAddr {
            index,
            flags: 0,
            descriptor,
            used,
            available,
            log: 0,
        })?;
        client.set_vring_kick(index as u8, Some(kick))?;
        client.set_vring_enable(index, true)?;
    }
    Ok(client)
}
