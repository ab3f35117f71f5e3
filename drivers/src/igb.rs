//! The least a driver of an 82576 does: queue 0 in both directions, polled, its doorbells rung by
//! message or in memory that the NIC shares (Intel 82576 datasheet §4.5, §7.1.5, §7.2.2, §8).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use guest_mem::Prot;
use vfio_user::codec::region;
use vfio_user::{Client, SharedMem};

use intel_offsets::igb::legacy::long::{RDBAL as RX, TDBAL as TX};
use intel_offsets::igb::long::{CTRL, RCTL, STATUS, TCTL};
use intel_offsets::igb::queue::long::{BASE, BASE_HIGH, HEAD, LEN, SRRCTL, TAIL, XDCTL};

use crate::BusError;

/// Descriptors of each ring.
pub const RING: u32 = 256;

const IOVA: u64 = 0x100_0000;
const TX_RING: usize = 0;
const RX_RING: usize = 0x1000;
const TX_BUFFER: usize = 0x2000;
const RX_BUFFERS: usize = 0x1_0000;
const BUFFER: usize = 2048;
const TX_BUFFERS: usize = RX_BUFFERS + RING as usize * BUFFER;
const RAM: usize = TX_BUFFERS + RING as usize * BUFFER;
/// How long the link may take to come up.
const LINK: Duration = Duration::from_secs(10);
/// Buffers given back at once.
const REFILL: u32 = 16;

const SET_LINK_UP: u32 = 1 << 6;
const LINK_UP: u32 = 1 << 1;
const ENABLE: u32 = 1 << 25;
const DONE: u32 = 1;

/// An 82576 behind a socket, up and running.
pub struct Igb {
    client: Client,
    /// Pages of registers that are memory, by their offset.
    pages: Vec<(u64, SharedMem)>,
    ram: SharedMem,
    tx_tail: u32,
    /// The oldest that is not known to be sent.
    tx_clean: u32,
    rx_next: u32,
    /// Buffers emptied and not given back.
    rx_empty: u32,
}

impl Igb {
    /// Takes the NIC at `path` and brings it up. With `memory` its doorbells are rung in memory.
    ///
    /// # Errors
    /// No daemon listens there, the NIC shares no doorbells, or the link does not come up.
    pub fn connect(path: impl AsRef<Path>, memory: bool) -> Result<Self, BusError> {
        let mut client = Client::connect(path)?;
        let registers = client.region_info(0)?;
        let mut pages = Vec::new();
        if memory {
            for area in &registers.areas {
                pages.push((area.offset, registers.map(area)?));
            }
            if pages.is_empty() {
                return Err(BusError::Unsupported("ring doorbells in memory"));
            }
        }
        let ram = SharedMem::new("ram", RAM).map_err(|e| BusError::Memory(e.to_string()))?;
        client.dma_map(IOVA, &ram, 0, RAM as u64, Prot::RW)?;
        // COMMAND: memory and bus mastering.
        client.region_write(region::CONFIG, 4, &[6, 0])?;
        let mut igb = Self {
            client,
            pages,
            ram,
            tx_tail: 0,
            tx_clean: 0,
            rx_next: 0,
            rx_empty: 0,
        };
        igb.start()?;
        Ok(igb)
    }

    fn start(&mut self) -> Result<(), BusError> {
        self.write(CTRL, SET_LINK_UP)?;
        let until = Instant::now() + LINK;
        while self.client.read_u32(0, STATUS)? & LINK_UP == 0 {
            if Instant::now() > until {
                return Err(BusError::Gone("there is no link".into()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for (queue, ring) in [(RX, RX_RING), (TX, TX_RING)] {
            for (register, value) in [
                (BASE, IOVA as u32 + ring as u32),
                (BASE_HIGH, (IOVA >> 32) as u32),
                (LEN, RING * 16),
                (HEAD, 0),
                (TAIL, 0),
            ] {
                self.write(queue + register, value)?;
            }
        }
        // Advanced descriptors of one buffer of 2 KiB.
        self.write(RX + SRRCTL, 1 << 25 | 2)?;
        self.write(RX + XDCTL, ENABLE)?;
        self.write(TX + XDCTL, ENABLE)?;
        for at in 0..RING {
            self.give(at);
        }
        self.write(RX + TAIL, RING - 1)?;
        // Broadcast frames are for us, without their FCS.
        self.write(RCTL, 1 << 1 | 1 << 15 | 1 << 26)?;
        self.write(TCTL, 1 << 1)?;
        // Answered after all of that.
        self.client.read_u32(0, STATUS)?;
        Ok(())
    }

    fn write(&mut self, at: u64, value: u32) -> Result<(), BusError> {
        for (page, memory) in &self.pages {
            if let Some(offset) = at.checked_sub(*page)
                && offset < memory.len() as u64
            {
                memory.store_u32(offset as usize, value, Ordering::Release);
                return Ok(());
            }
        }
        Ok(self.client.post_u32(0, at, value)?)
    }

    /// Gives a receive buffer to the NIC, but for the tail.
    fn give(&self, at: u32) {
        let buffer = IOVA + RX_BUFFERS as u64 + u64::from(at) * BUFFER as u64;
        let descriptor = RX_RING + 16 * at as usize;
        self.ram.store_u64(descriptor, buffer, Ordering::Relaxed);
        self.ram.store_u64(descriptor + 8, 0, Ordering::Relaxed);
    }

    /// Sends `frame`, `count` times, and rings once. `false`, and nothing happened, when the ring has
    /// no room for so many.
    ///
    /// # Errors
    /// The NIC is gone.
    pub fn send(&mut self, frame: &[u8], count: u32) -> Result<bool, BusError> {
        self.clean();
        let used = self.tx_tail.wrapping_sub(self.tx_clean) % RING;
        if used + count >= RING {
            return Ok(false);
        }
        self.ram.write(TX_BUFFER, frame);
        for _ in 0..count {
            self.post(TX_BUFFER, frame.len() as u32);
        }
        self.write(TX + TAIL, self.tx_tail)?;
        Ok(true)
    }

    /// Sends these frames, as many as there is room for, and rings once. Returns how many.
    ///
    /// # Errors
    /// The NIC is gone.
    pub fn send_all(&mut self, frames: &[Vec<u8>]) -> Result<usize, BusError> {
        self.clean();
        let used = self.tx_tail.wrapping_sub(self.tx_clean) % RING;
        let room = (RING - 1 - used) as usize;
        for frame in frames.iter().take(room) {
            let buffer = TX_BUFFERS + self.tx_tail as usize * BUFFER;
            self.ram.write(buffer, frame);
            self.post(buffer, frame.len() as u32);
        }
        self.write(TX + TAIL, self.tx_tail)?;
        Ok(frames.len().min(room))
    }

    /// Has a frame sent that is in a buffer, but for the tail.
    fn post(&mut self, buffer: usize, len: u32) {
        let at = TX_RING + 16 * self.tx_tail as usize;
        // Advanced data: EOP, IFCS, RS, DEXT.
        let command = 1 << 24 | 1 << 25 | 1 << 27 | 1 << 29 | 3 << 20 | len;
        let buffer = IOVA + buffer as u64;
        self.ram.store_u64(at, buffer, Ordering::Relaxed);
        self.ram.store_u32(at + 8, command, Ordering::Relaxed);
        self.ram.store_u32(at + 12, len << 14, Ordering::Relaxed);
        self.tx_tail = (self.tx_tail + 1) % RING;
    }

    fn clean(&mut self) {
        while self.tx_clean != self.tx_tail {
            let at = TX_RING + 16 * self.tx_clean as usize;
            if self.ram.load_u32(at + 12, Ordering::Acquire) & DONE == 0 {
                break;
            }
            self.tx_clean = (self.tx_clean + 1) % RING;
        }
    }

    /// Whether all that was to be sent has been.
    pub fn all_sent(&mut self) -> bool {
        self.clean();
        self.tx_clean == self.tx_tail
    }

    /// Takes what has come, at most a ring of it, and gives the buffers back. Returns how many frames
    /// of `len` bytes there were.
    ///
    /// # Errors
    /// The NIC is gone.
    pub fn receive(&mut self, len: usize) -> Result<u32, BusError> {
        let mut frames = 0;
        self.receive_each(|_, _, length| frames += u32::from(length == len))?;
        Ok(frames)
    }

    /// The same, with the frames.
    ///
    /// # Errors
    /// The NIC is gone.
    pub fn receive_frames(&mut self) -> Result<Vec<Vec<u8>>, BusError> {
        let mut frames = Vec::new();
        self.receive_each(|ram, buffer, length| {
            let mut frame = vec![0; length.min(BUFFER)];
            ram.read(buffer, &mut frame);
            frames.push(frame);
        })?;
        Ok(frames)
    }

    /// Shows each frame that has come: where it is, and its length.
    fn receive_each(
        &mut self,
        mut each: impl FnMut(&SharedMem, usize, usize),
    ) -> Result<(), BusError> {
        for _ in 0..RING {
            let at = RX_RING + 16 * self.rx_next as usize;
            if self.ram.load_u32(at + 8, Ordering::Acquire) & DONE == 0 {
                break;
            }
            let length = self.ram.load_u32(at + 12, Ordering::Relaxed) & 0xffff;
            let buffer = RX_BUFFERS + self.rx_next as usize * BUFFER;
            each(&self.ram, buffer, length as usize);
            self.give(self.rx_next);
            self.rx_next = (self.rx_next + 1) % RING;
            self.rx_empty += 1;
            if self.rx_empty == REFILL {
                self.rx_empty = 0;
                // All but one are the NIC's.
                self.write(RX + TAIL, (self.rx_next + RING - 1) % RING)?;
            }
        }
        Ok(())
    }

    /// The client, for what else there is to say to the NIC.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl std::fmt::Debug for Igb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Igb")
            .field("pages", &self.pages.len())
            .finish_non_exhaustive()
    }
}
