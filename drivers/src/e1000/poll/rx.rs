//! The receive ring, looked at in place.

use std::sync::atomic::Ordering;

use vfio_user::Area;

use crate::e1000::config::{Config, DriverError};
use crate::e1000::desc::{self, Raw, Receive, rx_status};
use crate::e1000::rx::ring::RxSums;

const DESC: usize = desc::SIZE as usize;

/// A received frame, where it lies.
#[derive(Debug)]
pub struct RxFrame<'q> {
    area: &'q Area,
    /// Where each part of it is; none for a frame of one part.
    parts: &'q [(usize, u32)],
    first: usize,
    len: u32,
    /// Bytes of the first part.
    whole: u32,
    word: u64,
}

impl RxFrame<'_> {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that lie together from the start on.
    #[inline]
    pub fn contiguous(&self) -> usize {
        self.whole as usize
    }

    /// Reads `N` bytes from `at` on, which lie in the first part ([`RxFrame::contiguous`]).
    ///
    /// # Panics
    /// Beyond the end of all buffers, as a slice does.
    #[inline(always)]
    pub fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.area.get(self.first + at)
    }

    /// Copies from byte `start` on into `out`; returns how many bytes there were.
    pub fn copy_to(&self, start: usize, out: &mut [u8]) -> usize {
        if self.parts.is_empty() {
            let n = out.len().min(self.len().saturating_sub(start));
            if n > 0 {
                self.area.read(self.first + start, &mut out[..n]);
            }
            return n;
        }
        let (mut skip, mut done) = (start, 0);
        for &(at, len) in self.parts {
            let len = len as usize;
            if skip >= len {
                skip -= len;
                continue;
            }
            let n = (len - skip).min(out.len() - done);
            self.area.read(at + skip, &mut out[done..done + n]);
            done += n;
            skip = 0;
        }
        done
    }

    /// The last descriptor, as written back.
    pub fn descriptor(&self) -> Receive {
        Receive::parse(&raw(0, self.word))
    }

    /// The VLAN tag the device took out.
    #[inline]
    pub fn vlan(&self) -> Option<u16> {
        (status(self.word) & rx_status::VP != 0).then_some((self.word >> 48) as u16)
    }

    /// The checksum verdict.
    pub fn sums(&self) -> RxSums {
        RxSums::of(&self.descriptor())
    }
}

fn raw(addr: u64, word: u64) -> Raw {
    let mut raw = [0; DESC];
    raw[..8].copy_from_slice(&addr.to_le_bytes());
    raw[8..].copy_from_slice(&word.to_le_bytes());
    raw
}

#[inline]
fn status(word: u64) -> u8 {
    (word >> 32) as u8
}

pub(super) struct Queue {
    ring: Area,
    buffers: Area,
    base: u64,
    size: u32,
    stride: u32,
    count: u32,
    /// First descriptor of the frame that comes next.
    next: u32,
    /// Descriptors done with and not given back.
    held: u32,
    lot: u32,
    parts: Vec<(usize, u32)>,
}

impl Queue {
    pub fn new(ring: Area, buffers: Area, base: u64, config: &Config) -> Self {
        Self {
            ring,
            buffers,
            base,
            size: config.rx_buffer,
            stride: config.rx_stride.max(config.rx_buffer),
            count: config.rx_ring,
            next: 0,
            held: 0,
            lot: config.refill,
            parts: Vec::with_capacity(config.rx_ring as usize),
        }
    }

    #[inline]
    fn after(&self, index: u32) -> u32 {
        if index + 1 == self.count {
            0
        } else {
            index + 1
        }
    }

    #[inline]
    fn offset(&self, index: u32) -> usize {
        index as usize * self.stride as usize
    }

    #[inline]
    pub fn look(
        &mut self,
        most: u32,
        mut each: impl FnMut(&RxFrame<'_>),
    ) -> Result<u32, DriverError> {
        let mut frames = 0;
        while frames < most {
            let at = self.next as usize * DESC;
            if self.ring.load_u8(at + 12, Ordering::Acquire) & desc::DD == 0 {
                break;
            }
            let word = u64::from_le(self.ring.load_u64(at + 8, Ordering::Relaxed));
            if word as u16 as u32 > self.size {
                return Err(self.nonsense(self.next, word));
            }
            if status(word) & rx_status::EOP == 0 {
                if !self.chain(&mut each)? {
                    break;
                }
            } else {
                let len = word as u16 as u32;
                each(&RxFrame {
                    area: &self.buffers,
                    parts: &[],
                    first: self.offset(self.next),
                    len,
                    whole: len,
                    word,
                });
                self.recycle();
            }
            frames += 1;
        }
        Ok(frames)
    }

    /// Whether something has come that was not looked at.
    pub fn has_news(&self) -> bool {
        let status = self.next as usize * DESC + 12;
        self.ring.load_u8(status, Ordering::Acquire) & desc::DD != 0
    }

    /// A frame of several buffers. False while its end has not come.
    #[cold]
    fn chain(&mut self, each: &mut impl FnMut(&RxFrame<'_>)) -> Result<bool, DriverError> {
        self.parts.clear();
        let mut index = self.next;
        let mut len = 0;
        let word = loop {
            let at = index as usize * DESC;
            if self.ring.load_u8(at + 12, Ordering::Acquire) & desc::DD == 0 {
                return Ok(false);
            }
            let word = u64::from_le(self.ring.load_u64(at + 8, Ordering::Relaxed));
            let part = word as u16 as u32;
            if part > self.size || self.parts.len() + 1 >= self.count as usize {
                return Err(self.nonsense(index, word));
            }
            self.parts.push((self.offset(index), part));
            len += part;
            index = self.after(index);
            if status(word) & rx_status::EOP != 0 {
                break word;
            }
        };
        let (first, whole) = self.parts[0];
        each(&RxFrame {
            area: &self.buffers,
            parts: &self.parts,
            first,
            len,
            whole,
            word,
        });
        for _ in 0..self.parts.len() {
            self.recycle();
        }
        Ok(true)
    }

    /// Makes the descriptor ready for its next use and passes it.
    #[inline]
    fn recycle(&mut self) {
        let at = self.next as usize * DESC;
        let addr = self.base + self.offset(self.next) as u64;
        self.ring.store_u64(at, addr.to_le(), Ordering::Relaxed);
        self.ring.store_u64(at + 8, 0, Ordering::Relaxed);
        self.next = self.after(self.next);
        self.held += 1;
    }

    /// The tail to be written, when a lot has come together.
    #[inline]
    pub fn news(&mut self) -> Option<u32> {
        (self.held >= self.lot).then(|| self.give())
    }

    pub fn all_news(&mut self) -> Option<u32> {
        (self.held > 0).then(|| self.give())
    }

    fn give(&mut self) -> u32 {
        self.held = 0;
        if self.next == 0 {
            self.count - 1
        } else {
            self.next - 1
        }
    }

    fn nonsense(&self, index: u32, word: u64) -> DriverError {
        let addr = u64::from_le(self.ring.load_u64(index as usize * DESC, Ordering::Relaxed));
        DriverError::Descriptor {
            index,
            descriptor: raw(addr, word),
        }
    }
}
