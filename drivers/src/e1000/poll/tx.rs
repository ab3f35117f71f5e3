//! The transmit ring, filled in place.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vfio_user::Area;

use super::config::{LONGEST_PIECE, PollConfig};
use crate::e1000::config::DriverError;
use crate::e1000::desc::{self, Data, Raw, cmd};
use crate::e1000::headers::{self, MAX_HEADERS, TxOffload};

const DESC: usize = desc::SIZE as usize;

/// Where a frame is made.
#[derive(Debug)]
pub struct Buffer<'q> {
    area: &'q Area,
    offset: usize,
    number: u32,
    room: u32,
}

impl Buffer<'_> {
    /// Which of the queue's buffers it is: those who remember what is in it need not write it again.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes it has.
    #[inline]
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Writes `N` bytes at `at`.
    ///
    /// # Panics
    /// Beyond the end of all buffers, as a slice does.
    #[inline(always)]
    pub fn put<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        self.area.put(self.offset + at, bytes);
    }

    /// Writes bytes at `at`.
    ///
    /// # Panics
    /// Beyond the end of the buffer, as a slice does.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.room as usize, "beyond the buffer");
        self.area.write(self.offset + at, bytes);
    }
}

/// An offload worked out for a kind of frame, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The context descriptor.
    context: [u64; 2],
    popts: u8,
    segmented: bool,
}

impl Offload {
    /// Works `offload` out for frames of `total` bytes that begin with `headers`, and patches these
    /// as the device wants them (seeds in the checksum fields).
    ///
    /// # Errors
    /// They are not headers of TCP or UDP over IP, or the offload is none of a context.
    pub fn of(headers: &mut [u8], total: u32, offload: TxOffload) -> Result<Self, DriverError> {
        if !matches!(offload, TxOffload::Sums { .. } | TxOffload::Tso { .. }) {
            return Err(DriverError::Frame("no context is needed for that"));
        }
        let mut patched = [0; MAX_HEADERS];
        let prepared = headers::prepare(headers, total as usize, offload, &mut patched)?;
        headers[..prepared.len].copy_from_slice(&patched[..prepared.len]);
        Ok(Self {
            context: words(&prepared.context.raw()),
            popts: prepared.popts,
            segmented: matches!(offload, TxOffload::Tso { .. }),
        })
    }
}

/// What was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxFrame {
    /// Bytes from the start of the buffer.
    pub len: u32,
    /// 802.1Q tag to insert.
    pub vlan: Option<u16>,
    /// What the device shall do.
    pub offload: Option<Offload>,
}

impl TxFrame {
    /// A frame that is sent as it is.
    #[inline]
    pub fn plain(len: u32) -> Self {
        Self {
            len,
            ..Self::default()
        }
    }
}

fn words(raw: &Raw) -> [u64; 2] {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    [word(0), word(8)]
}

/// A descriptor that will be reported, and what comes back with it.
struct Promise {
    index: u32,
    frames: u32,
}

pub(super) struct Queue {
    ring: Area,
    buffers: Area,
    base: u64,
    count: u32,
    tail: u32,
    clean: u32,
    kicked: u32,
    /// Buffers, and from one to the next.
    pool: u32,
    stride: u32,
    longest: u32,
    /// Most descriptors a frame may take, its context included.
    worst: u32,
    next_buffer: u32,
    in_flight: u32,
    every: u32,
    /// Since the last promise.
    unreported: u32,
    frames: u32,
    promises: VecDeque<Promise>,
    by_head: bool,
    /// The device remembers one context for checksums; so do we.
    context: Option<[u64; 2]>,
}

impl Queue {
    pub fn new(
        ring: Area,
        buffers: Area,
        base: u64,
        config: &PollConfig,
    ) -> Result<Self, DriverError> {
        let device = &config.device;
        let count = device.tx_ring;
        let stride = if config.longest <= device.tx_buffer {
            device.tx_stride.max(device.tx_buffer)
        } else {
            config.longest.next_multiple_of(64)
        };
        let pool = (buffers.len() / stride as usize).min(count as usize) as u32;
        let worst = 1 + config.longest.div_ceil(LONGEST_PIECE);
        if pool < 2 || worst > count / 2 {
            return Err(DriverError::Config(
                "the ring is too small for frames of that length",
            ));
        }
        Ok(Self {
            ring,
            buffers,
            base,
            count,
            tail: 0,
            clean: 0,
            kicked: 0,
            pool,
            stride,
            longest: config.longest,
            worst,
            next_buffer: 0,
            in_flight: 0,
            every: device.report_every,
            unreported: 0,
            frames: 0,
            promises: VecDeque::with_capacity(count as usize),
            by_head: config.reclaim_by_head,
            context: None,
        })
    }

    pub fn by_head(&self) -> bool {
        self.by_head
    }

    pub fn tail(&self) -> u32 {
        self.tail
    }

    #[inline]
    fn free(&self) -> u32 {
        let used = if self.tail >= self.clean {
            self.tail - self.clean
        } else {
            self.tail + self.count - self.clean
        };
        self.count - 1 - used
    }

    /// Frames of the worst kind that fit now.
    #[inline]
    pub fn room(&self) -> u32 {
        (self.free() / self.worst).min(self.pool - self.in_flight)
    }

    /// Whether a burst of so many may not fit, so that taking back is worth a look.
    #[inline]
    pub fn short_of(&self, frames: u32) -> bool {
        self.free() < frames.saturating_mul(self.worst) || self.pool - self.in_flight < frames
    }

    pub fn prepare(&mut self, mut fill: impl FnMut(u32, &Buffer<'_>)) {
        for number in 0..self.pool {
            fill(number, &self.buffer(number));
        }
    }

    #[inline]
    fn buffer(&self, number: u32) -> Buffer<'_> {
        Buffer {
            area: &self.buffers,
            offset: number as usize * self.stride as usize,
            number,
            room: self.longest,
        }
    }

    #[inline]
    pub fn fill(
        &mut self,
        most: u32,
        mut make: impl FnMut(u32, &Buffer<'_>) -> TxFrame,
    ) -> Result<u32, DriverError> {
        let mut made = 0;
        while made < most && self.in_flight < self.pool && self.free() >= self.worst {
            let number = self.next_buffer;
            let frame = make(made, &self.buffer(number));
            if frame.len == 0 {
                break;
            }
            if frame.len > self.longest {
                return Err(DriverError::Frame("it is longer than its buffer"));
            }
            let addr = self.base + u64::from(number) * u64::from(self.stride);
            if frame.offload.is_none() && frame.len <= LONGEST_PIECE {
                let command = cmd::EOP | cmd::IFCS | self.promise(1);
                let (vle, tag) = match frame.vlan {
                    Some(tag) => (cmd::VLE, u64::from(tag) << 48),
                    None => (0, 0),
                };
                let word = u64::from(frame.len) | u64::from(command | vle) << 24 | tag;
                self.put([addr, word]);
            } else {
                self.pieces(addr, &frame);
            }
            self.next_buffer = if number + 1 == self.pool {
                0
            } else {
                number + 1
            };
            self.in_flight += 1;
            made += 1;
        }
        Ok(made)
    }

    /// A frame with a context, or of several pieces.
    fn pieces(&mut self, addr: u64, frame: &TxFrame) {
        let mut shape = Data {
            cmd: cmd::IFCS,
            special: frame.vlan.unwrap_or(0),
            ..Data::default()
        };
        if frame.vlan.is_some() {
            shape.cmd |= cmd::VLE;
        }
        let mut taken = 0;
        if let Some(offload) = frame.offload {
            shape.popts = offload.popts;
            if offload.segmented {
                shape.cmd |= cmd::TSE;
                self.put(offload.context);
                taken += 1;
            } else if self.context != Some(offload.context) {
                self.context = Some(offload.context);
                self.put(offload.context);
                taken += 1;
            }
        }
        let mut done = 0;
        while done < frame.len {
            let len = LONGEST_PIECE.min(frame.len - done);
            let mut piece = Data {
                addr: addr + u64::from(done),
                len,
                ..shape
            };
            done += len;
            taken += 1;
            if done == frame.len {
                piece.cmd |= cmd::EOP | self.promise(taken);
            }
            self.put(words(&piece.raw()));
        }
    }

    /// The report bit for a frame that ends with the descriptor to be put next, the last of so many.
    #[inline]
    fn promise(&mut self, descriptors: u32) -> u8 {
        self.unreported += descriptors;
        self.frames += 1;
        if self.by_head || self.unreported >= self.every || self.frames * 2 >= self.pool {
            self.promises.push_back(Promise {
                index: self.tail,
                frames: self.frames,
            });
            self.unreported = 0;
            self.frames = 0;
            return if self.by_head { 0 } else { cmd::RS };
        }
        0
    }

    #[inline]
    fn put(&mut self, words: [u64; 2]) {
        let at = self.tail as usize * DESC;
        self.ring.store_u64(at, words[0].to_le(), Ordering::Relaxed);
        self.ring
            .store_u64(at + 8, words[1].to_le(), Ordering::Release);
        self.tail = if self.tail + 1 == self.count {
            0
        } else {
            self.tail + 1
        };
    }

    /// The tail, when the device does not know it yet.
    #[inline]
    pub fn news(&mut self) -> Option<u32> {
        (self.kicked != self.tail).then(|| {
            self.kicked = self.tail;
            self.tail
        })
    }

    /// Takes back what is reported done.
    pub fn reclaim(&mut self) -> u32 {
        let mut frames = 0;
        while let Some(front) = self.promises.front() {
            let status = front.index as usize * DESC + 12;
            if self.ring.load_u8(status, Ordering::Acquire) & desc::DD == 0 {
                break;
            }
            frames += self.keep();
        }
        frames
    }

    /// Takes back what lies before the head.
    pub fn reclaim_to(&mut self, head: u32) -> Result<u32, DriverError> {
        if head >= self.count {
            return Err(DriverError::Timeout {
                what: "TDH within the ring",
                value: head,
            });
        }
        let ahead = |index: u32| (index + self.count - self.clean) % self.count;
        let passed = ahead(head);
        let mut ends = 0;
        while self
            .promises
            .get(ends)
            .is_some_and(|p| ahead(p.index) < passed)
        {
            ends += 1;
        }
        Ok((0..ends).map(|_| self.keep()).sum())
    }

    fn keep(&mut self) -> u32 {
        let Some(done) = self.promises.pop_front() else {
            return 0;
        };
        self.clean = if done.index + 1 == self.count {
            0
        } else {
            done.index + 1
        };
        self.in_flight -= done.frames;
        done.frames
    }
}
