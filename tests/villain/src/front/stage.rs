//! A front end with a guest's memory and two split rings.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use drivers::BusError;
use vhost_user::codec::{MemRegion, Message, Request, VringAddr};
use vhost_user::{Client, ClientError, EventFd, SharedMem};

use crate::front_end::{FrontEnd, refused};
use crate::stage::Done;
use crate::vmm::{memfd, own};

/// Rings.
pub(crate) const RX: usize = 0;
pub(crate) const TX: usize = 1;
/// Descriptors of each.
pub(crate) const SIZE: u16 = 64;

/// The guest's memory, as the guest and as the front end have it.
pub(crate) const GUEST: u64 = 1 << 30;
pub(crate) const USER: u64 = 1 << 41;
pub(crate) const RAM: usize = 1 << 20;
/// Bytes of a ring, and where buffers are.
const RING: u64 = 0x4000;
pub(crate) const BUFFER: u64 = 0x1_0000;

/// Says something behind good words, and waits until it is answered or sent away.
pub(crate) fn lie(front: &FrontEnd, message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Done {
    let mut client = front.client()?;
    let ram = ram()?;
    refused(client.set_mem_table(&[region()], &[ram.as_fd()]))?;
    refused(client.set_vring_num(0, SIZE.into()))?;
    say(&mut client, message, fds)
}

/// Says something, and waits until it is answered or sent away. A question behind it shows that it was taken.
pub(crate) fn say(client: &mut Client, message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Done {
    let sent = client.send(message, false, fds);
    let sent = sent.and_then(|()| client.send(&Message::GetFeatures, false, &[]));
    refused(sent)?;
    loop {
        match client.receive() {
            Ok((header, ..)) if header.request == Request::GetFeatures as u32 => return Ok(()),
            Ok(_) => {}
            Err(ClientError::TimedOut) => return Err(own("no answer")),
            Err(_) => return Ok(()),
        }
    }
}

/// Memory that a back end may map.
pub(crate) fn ram() -> Result<SharedMem, BusError> {
    cut_off(RAM)
}

/// The same, of which the file can be cut off later.
pub(crate) fn cut_off(len: usize) -> Result<SharedMem, BusError> {
    SharedMem::from_fd(memfd(len as u64)?, 0, len).map_err(own)
}

/// All of a guest's memory.
pub(crate) fn region() -> MemRegion {
    MemRegion {
        guest: GUEST,
        size: RAM as u64,
        user: USER,
        mmap_offset: 0,
    }
}

/// Where a ring is.
pub(crate) fn addr(queue: usize) -> VringAddr {
    let at = USER + RING * queue as u64;
    VringAddr {
        index: queue as u32,
        flags: 0,
        descriptor: at,
        available: at + 0x1000,
        used: at + 0x2000,
        log: 0,
    }
}

/// A guest whose rings run.
pub(crate) struct Guest {
    pub client: Client,
    pub ram: SharedMem,
    pub kicks: [EventFd; 2],
    calls: [EventFd; 2],
    given: [u16; 2],
}

impl Guest {
    pub(crate) fn new(front: &FrontEnd) -> Result<Self, BusError> {
        Self::timed(front).map(|(guest, _)| guest)
    }

    /// The same, with the time that the first answer took.
    pub(crate) fn timed(front: &FrontEnd) -> Result<(Self, Duration), BusError> {
        let event = || EventFd::new().map_err(own);
        let (client, answered) = front.timed()?;
        let mut guest = Self {
            client,
            ram: ram()?,
            kicks: [event()?, event()?],
            calls: [event()?, event()?],
            given: [0; 2],
        };
        let fds = [guest.ram.as_fd()];
        guest.client.set_mem_table(&[region()], &fds).map_err(own)?;
        for queue in [RX, TX] {
            guest.begin(queue)?;
        }
        Ok((guest, answered))
    }

    /// Starts a ring anew.
    pub(crate) fn begin(&mut self, queue: usize) -> Done {
        self.given[queue] = 0;
        self.ram.fill(RING as usize * queue, RING as usize, 0);
        let (index, byte) = (queue as u32, queue as u8);
        let mut describe = || {
            self.client.set_vring_num(index, SIZE.into())?;
            self.client.set_vring_base(index, 0)?;
            self.client.set_vring_addr(&addr(queue))?;
            self.client.set_vring_kick(byte, Some(&self.kicks[queue]))?;
            self.client.set_vring_call(byte, Some(&self.calls[queue]))?;
            self.client.set_vring_enable(index, true)
        };
        describe().map_err(own)
    }

    /// Writes descriptor `slot` of a ring.
    pub(crate) fn put(&self, queue: usize, slot: u16, desc: (u64, u32, u16), next: u16) {
        let (at, len, flags) = desc;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        let place = RING as usize * queue + 16 * usize::from(slot % SIZE);
        self.ram.write(place, &bytes);
    }

    /// Makes a head available, and says so.
    pub(crate) fn offer(&mut self, queue: usize, head: u16) {
        let available = RING as usize * queue + 0x1000;
        let slot = usize::from(self.given[queue] % SIZE);
        self.ram
            .write(available + 4 + 2 * slot, &head.to_le_bytes());
        self.given[queue] = self.given[queue].wrapping_add(1);
        self.index(queue, self.given[queue]);
    }

    /// Says how many heads are available, and kicks.
    pub(crate) fn index(&mut self, queue: usize, index: u16) {
        let available = RING as usize * queue + 0x1000;
        self.ram.write(available + 2, &index.to_le_bytes());
        self.kicks[queue].signal();
    }

    pub(crate) fn used(&self, queue: usize) -> u16 {
        let mut index = [0; 2];
        self.ram.read(RING as usize * queue + 0x2002, &mut index);
        u16::from_le_bytes(index)
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Done {
        let bytes = [&[0; 12][..], frame].concat();
        self.ram.write(BUFFER as usize, &bytes);
        let slot = self.given[TX] % SIZE;
        self.put(TX, slot, (GUEST + BUFFER, bytes.len() as u32, 0), 0);
        self.offer(TX, slot);
        Ok(())
    }

    /// Waits until the back end has looked at what was kicked, if it is still there.
    pub(crate) fn settle(&mut self) -> Done {
        for _ in 0..3 {
            refused(self.client.features())?;
        }
        Ok(())
    }
}
