//! Receiving.

use guest_mem::View;

use super::desc::{self, Raw, Receive, rx_error, rx_status};
use super::regs::{self, rctl, rxcsum};
use super::setup::receive_control;
use super::{Config, Driver, DriverError};
use crate::bus::{Bus, BusError, Dma};

/// Descriptors looked at in one go.
const LOOK: usize = 64;

/// Bytes of the CRC when the device leaves it on.
const CRC: usize = 4;

/// What the device says of a frame's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxSums {
    /// Nothing (IXSM, or neither was calculated).
    Unknown,
    /// Those calculated are good.
    Good {
        /// The IPv4 header's was.
        ip: bool,
        /// TCP's or UDP's was.
        l4: bool,
    },
    /// One is wrong.
    Bad,
}

impl RxSums {
    /// What a descriptor says.
    pub fn of(descriptor: &Receive) -> Self {
        let Receive { status, errors, .. } = *descriptor;
        let (ip, l4) = (
            status & rx_status::IPCS != 0,
            status & rx_status::TCPCS != 0,
        );
        if status & rx_status::IXSM != 0 || !(ip || l4) {
            RxSums::Unknown
        } else if errors & (rx_error::IPE | rx_error::TCPE) != 0 {
            RxSums::Bad
        } else {
            RxSums::Good { ip, l4 }
        }
    }
}

/// A received frame, still in the ring's buffers.
#[derive(Clone, Copy)]
pub struct RxFrame<'r> {
    view: &'r View<'r>,
    parts: &'r [(u64, u32)],
    len: usize,
    last: Receive,
}

impl RxFrame<'_> {
    /// Bytes, without CRC.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Descriptors it took.
    pub fn descriptors(&self) -> usize {
        self.parts.len()
    }

    /// The last descriptor, as written back.
    pub fn descriptor(&self) -> Receive {
        self.last
    }

    /// The VLAN tag the device took out.
    pub fn vlan(&self) -> Option<u16> {
        (self.last.status & rx_status::VP != 0).then_some(self.last.special)
    }

    /// The checksum verdict.
    pub fn sums(&self) -> RxSums {
        RxSums::of(&self.last)
    }

    /// Copies from byte `start` on into `out`; returns how many bytes there were.
    ///
    /// # Errors
    /// When the driver's memory is gone.
    pub fn copy_to(&self, start: usize, out: &mut [u8]) -> Result<usize, BusError> {
        let wanted = out.len().min(self.len.saturating_sub(start));
        let (mut skip, mut done) = (start, 0);
        for &(addr, len) in self.parts {
            let len = len as usize;
            if skip >= len {
                skip -= len;
                continue;
            }
            let n = (len - skip).min(wanted - done);
            if n == 0 {
                break;
            }
            self.view
                .read(addr + skip as u64, &mut out[done..done + n])?;
            done += n;
            skip = 0;
        }
        Ok(done)
    }

    /// The frame as a vector of its own; for tests and slow paths.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        let n = self.copy_to(0, &mut out).unwrap_or(0);
        out.truncate(n);
        out
    }
}

/// The receive ring.
pub(super) struct Ring {
    ring: Dma,
    buffers: Dma,
    slot: u32,
    /// From one buffer to the next.
    stride: u32,
    count: u32,
    /// First descriptor of the frame that comes next.
    next: u32,
    /// First descriptor not given back to the device.
    refill: u32,
    parts: Vec<(u64, u32)>,
}

impl Ring {
    pub(super) fn new<B: Bus>(bus: &mut B, config: &Config) -> Result<Self, DriverError> {
        let count = config.rx_ring;
        if count == 0 || !count.is_multiple_of(8) || count > 4096 {
            return Err(DriverError::Config(
                "a ring has 8 to 4096 descriptors, by eights",
            ));
        }
        if config.refill == 0 || config.refill >= count {
            return Err(DriverError::Config(
                "refill lies between 1 and the ring's size",
            ));
        }
        receive_control(config)?;
        let ring = bus.alloc(u64::from(count) * desc::SIZE)?;
        let stride = config.rx_stride.max(config.rx_buffer);
        let buffers = bus.alloc(u64::from(count) * u64::from(stride))?;
        let this = Self {
            ring,
            buffers,
            slot: config.rx_buffer,
            stride,
            count,
            next: 0,
            refill: 0,
            parts: Vec::with_capacity(count as usize),
        };
        let memory = bus.memory();
        let view = memory.view();
        for index in 0..count {
            view.write(this.at(index), &Receive::empty(this.buffer(index)))
                .map_err(BusError::from)?;
        }
        Ok(this)
    }

    pub(super) fn memory(&self) -> [Dma; 2] {
        [self.ring, self.buffers]
    }

    fn at(&self, index: u32) -> u64 {
        self.ring.iova + u64::from(index) * desc::SIZE
    }

    fn buffer(&self, index: u32) -> u64 {
        self.buffers.iova + u64::from(index) * u64::from(self.stride)
    }

    /// Descriptors the driver holds, done with and not given back.
    fn held(&self) -> u32 {
        (self.next + self.count - self.refill) % self.count
    }

    /// Looks at descriptors from `first` on, up to the end of the ring. Returns how many in a
    /// row are done; those are whole in `out`.
    fn look(&self, view: &View<'_>, first: u32, out: &mut [Raw; LOOK]) -> Result<usize, BusError> {
        let n = LOOK.min((self.count - first) as usize);
        let mut bytes = [0u8; LOOK * desc::SIZE as usize];
        let bytes = &mut bytes[..n * desc::SIZE as usize];
        // Once for the done bits, and what is done once more: a descriptor may have been written
        // while we copied it the first time.
        view.read_acquire(self.at(first), bytes)?;
        let done = bytes
            .chunks_exact(16)
            .take_while(|raw| raw[12] & desc::DD != 0)
            .count();
        let bytes = &mut bytes[..done * desc::SIZE as usize];
        view.read(self.at(first), bytes)?;
        for (raw, chunk) in out.iter_mut().zip(bytes.chunks_exact(16)) {
            raw.copy_from_slice(chunk);
        }
        Ok(done)
    }

    /// Clears the descriptors of a frame for their next use and passes them.
    fn recycle(&mut self, view: &View<'_>) -> Result<(), BusError> {
        for _ in 0..self.parts.len() {
            view.write(self.at(self.next), &Receive::empty(self.buffer(self.next)))?;
            self.next = (self.next + 1) % self.count;
        }
        self.parts.clear();
        Ok(())
    }
}

impl<B: Bus> Driver<B> {
    /// Programs the receive side with the current ring, and enables it.
    pub(super) fn start_rx(&mut self) -> Result<(), DriverError> {
        let ring = self.rx.ring;
        let length = self.rx.count * desc::SIZE as u32;
        let sums = if self.config.rx_sums {
            rxcsum::IPOFL | rxcsum::TUOFL
        } else {
            0
        };
        for (register, value) in [
            (regs::RDTR, self.config.rdtr),
            (regs::RADV, self.config.radv),
            (regs::ITR, self.config.itr),
            (regs::RDBAL, ring.iova as u32),
            (regs::RDBAH, (ring.iova >> 32) as u32),
            (regs::RDLEN, length),
            (regs::RDH, 0),
            (regs::RDT, 0),
            (regs::RXCSUM, sums),
        ] {
            self.bus.write32(register, value)?;
        }
        let control = receive_control(&self.config)?;
        self.bus.write32(regs::RCTL, control | rctl::EN)?;
        self.rx.refill = 0;
        self.rx.next = 0;
        self.rx.parts.clear();
        Ok(self.bus.write32(regs::RDT, self.rx.count - 1)?)
    }

    /// Stops receiving (RCTL.EN).
    ///
    /// # Errors
    /// When the device is gone.
    pub fn stop_rx(&mut self) -> Result<(), DriverError> {
        let value = self.bus.read32(regs::RCTL)?;
        self.bus.write32(regs::RCTL, value & !rctl::EN)?;
        self.bus.read32(regs::STATUS)?;
        Ok(())
    }

    /// Stops receiving and starts again with a new ring elsewhere in memory, without a reset.
    /// Frames still in the old ring are lost.
    ///
    /// # Errors
    /// When there is no memory or the device is gone.
    pub fn restart_rx(&mut self, count: u32, buffer: u32) -> Result<(), DriverError> {
        self.stop_rx()?;
        self.config.rx_ring = count;
        self.config.rx_buffer = buffer;
        let old = self.rx.memory();
        self.rx = Ring::new(&mut self.bus, &self.config)?;
        self.start_rx()?;
        for dma in old {
            self.bus.free(dma)?;
        }
        Ok(())
    }

    /// Receives up to `budget` frames, showing each to `each` while it lies in the buffers.
    /// Returns how many. Gives buffers back in lots of [`Config::refill`].
    ///
    /// # Errors
    /// When the device wrote back nonsense or is gone.
    pub fn poll_rx(
        &mut self,
        budget: usize,
        mut each: impl FnMut(&RxFrame<'_>),
    ) -> Result<usize, DriverError> {
        let mut frames = 0;
        let mut raws = [[0; 16]; LOOK];
        let mut tail = None;
        let view = self.memory.view();
        'rounds: while frames < budget {
            let rx = &mut self.rx;
            let first = (rx.next + rx.parts.len() as u32) % rx.count;
            let done = rx.look(&view, first, &mut raws)?;
            if done == 0 {
                break;
            }
            for (index, raw) in (first..).zip(&raws[..done]) {
                let descriptor = Receive::parse(raw);
                let sane = u32::from(descriptor.len) <= rx.slot
                    && descriptor.addr == rx.buffer(index)
                    && rx.parts.len() < rx.count as usize;
                if !sane {
                    return Err(DriverError::Descriptor {
                        index,
                        descriptor: *raw,
                    });
                }
                rx.parts.push((descriptor.addr, descriptor.len.into()));
                if descriptor.status & rx_status::EOP == 0 {
                    continue;
                }
                let sum: usize = rx.parts.iter().map(|&(_, len)| len as usize).sum();
                let crc = if self.config.strip_crc { 0 } else { CRC };
                each(&RxFrame {
                    view: &view,
                    parts: &rx.parts,
                    len: sum.saturating_sub(crc),
                    last: descriptor,
                });
                rx.recycle(&view)?;
                frames += 1;
                if rx.held() >= self.config.refill {
                    rx.refill = rx.next;
                    tail = Some((rx.next + rx.count - 1) % rx.count);
                }
                if frames == budget {
                    break 'rounds;
                }
            }
        }
        drop(view);
        if let Some(tail) = tail {
            self.bus.write32(regs::RDT, tail)?;
        }
        Ok(frames)
    }

    /// Receives everything there is; for tests and slow paths.
    ///
    /// # Errors
    /// As [`Driver::poll_rx`].
    pub fn receive(&mut self) -> Result<Vec<Vec<u8>>, DriverError> {
        let mut frames = Vec::new();
        self.poll_rx(usize::MAX, |frame| frames.push(frame.to_vec()))?;
        Ok(frames)
    }

    /// Gives all held buffers back at once.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn refill_rx(&mut self) -> Result<(), DriverError> {
        if self.rx.held() > 0 {
            self.rx.refill = self.rx.next;
            let tail = (self.rx.next + self.rx.count - 1) % self.rx.count;
            self.bus.write32(regs::RDT, tail)?;
        }
        Ok(())
    }
}
