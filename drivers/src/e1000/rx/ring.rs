//! The receive ring, and what is found in it.

use guest_mem::View;

use crate::bus::{Bus, BusError, Dma};
use crate::e1000::config::{Config, DriverError, receive_control};
use crate::e1000::desc::{self, Raw, Receive, rx_error, rx_status};

/// Descriptors looked at in one go.
pub(in crate::e1000) const LOOK: usize = 64;

/// Bytes of the CRC when the device leaves it on.
pub(in crate::e1000) const CRC: usize = 4;

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
    pub(in crate::e1000) view: &'r View<'r>,
    pub(in crate::e1000) parts: &'r [(u64, u32)],
    pub(in crate::e1000) len: usize,
    pub(in crate::e1000) last: Receive,
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
pub(in crate::e1000) struct Ring {
    pub(in crate::e1000) ring: Dma,
    pub(in crate::e1000) buffers: Dma,
    pub(in crate::e1000) slot: u32,
    /// From one buffer to the next.
    pub(in crate::e1000) stride: u32,
    pub(in crate::e1000) count: u32,
    /// First descriptor of the frame that comes next.
    pub(in crate::e1000) next: u32,
    /// First descriptor not given back to the device.
    pub(in crate::e1000) refill: u32,
    pub(in crate::e1000) parts: Vec<(u64, u32)>,
}

impl Ring {
    pub(in crate::e1000) fn new<B: Bus>(bus: &mut B, config: &Config) -> Result<Self, DriverError> {
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

    pub(in crate::e1000) fn memory(&self) -> [Dma; 2] {
        [self.ring, self.buffers]
    }

    pub(in crate::e1000) fn at(&self, index: u32) -> u64 {
        self.ring.iova + u64::from(index) * desc::SIZE
    }

    pub(in crate::e1000) fn buffer(&self, index: u32) -> u64 {
        self.buffers.iova + u64::from(index) * u64::from(self.stride)
    }

    /// Descriptors the driver holds, done with and not given back.
    pub(in crate::e1000) fn held(&self) -> u32 {
        (self.next + self.count - self.refill) % self.count
    }

    /// Looks at descriptors from `first` on, up to the end of the ring. Returns how many in a
    /// row are done; those are whole in `out`.
    pub(in crate::e1000) fn look(
        &self,
        view: &View<'_>,
        first: u32,
        out: &mut [Raw; LOOK],
    ) -> Result<usize, BusError> {
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
    pub(in crate::e1000) fn recycle(&mut self, view: &View<'_>) -> Result<(), BusError> {
        for _ in 0..self.parts.len() {
            view.write(self.at(self.next), &Receive::empty(self.buffer(self.next)))?;
            self.next = (self.next + 1) % self.count;
        }
        self.parts.clear();
        Ok(())
    }
}
