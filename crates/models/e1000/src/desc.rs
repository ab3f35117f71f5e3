//! Descriptors and the rings they lie in (manual §3.2, §3.3).

use guest_mem::{Fault, View};
use regs::{File, Id};

/// Bytes of a descriptor.
pub(crate) const SIZE: u64 = 16;
/// Descriptors fetched with one read.
const WINDOW: usize = 64;

/// Descriptor done, the status bit both directions share.
pub(crate) const DD: u8 = 1;

/// Command bits of transmit descriptors.
pub(crate) mod cmd {
    pub const EOP: u8 = 1;
    pub const IFCS: u8 = 1 << 1;
    /// Legacy descriptors: insert a checksum.
    pub const IC: u8 = 1 << 2;
    /// Data and context descriptors: segment.
    pub const TSE: u8 = 1 << 2;
    pub const RS: u8 = 1 << 3;
    pub const RPS: u8 = 1 << 4;
    pub const DEXT: u8 = 1 << 5;
    pub const VLE: u8 = 1 << 6;
    pub const IDE: u8 = 1 << 7;
}

/// Registers that place a ring.
#[derive(Clone, Copy)]
pub(crate) struct RingIds {
    pub base_low: Id,
    pub base_high: Id,
    pub len: Id,
    pub head: Id,
    pub tail: Id,
}

/// A ring as its registers describe it, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub base: u64,
    /// Descriptors; more than 0.
    pub len: u32,
    pub head: u32,
    pub tail: u32,
}

impl Ring {
    /// No ring at all.
    pub(crate) const NONE: Ring = Ring {
        base: 0,
        len: 0,
        head: 0,
        tail: 0,
    };

    /// `None` when the registers describe no ring: no length, or an index outside of it.
    pub(crate) fn read(file: &File, ids: &RingIds) -> Option<Ring> {
        let ring = Ring {
            base: u64::from(file.get(ids.base_high)) << 32 | u64::from(file.get(ids.base_low)),
            len: file.get(ids.len) / SIZE as u32,
            head: file.get(ids.head),
            tail: file.get(ids.tail),
        };
        (ring.head < ring.len && ring.tail < ring.len).then_some(ring)
    }

    /// Descriptors the guest has handed over: from head to before tail.
    pub(crate) fn available(&self) -> u32 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.len - self.head + self.tail
        }
    }

    /// The descriptor `n` behind the head; less than a ring of them.
    pub(crate) fn behind(&self, n: u32) -> u32 {
        let index = self.head + n;
        if index >= self.len {
            index.saturating_sub(self.len)
        } else {
            index
        }
    }

    pub(crate) fn next(&self, index: u32) -> u32 {
        if index + 1 >= self.len { 0 } else { index + 1 }
    }

    /// The descriptor `n` before `index`; less than a ring of them.
    pub(crate) fn before(&self, index: u32, n: u32) -> u32 {
        if index >= n {
            index - n
        } else {
            (index + self.len).saturating_sub(n)
        }
    }

    pub(crate) fn address(&self, index: u32) -> u64 {
        self.base.wrapping_add(u64::from(index) * SIZE)
    }
}

/// Descriptors copied out of a ring, many at a time. What is decided is decided on the copy.
#[derive(Debug)]
pub(crate) struct Fetcher {
    copy: [u8; WINDOW * SIZE as usize],
    first: u32,
    count: u32,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetcher {
    pub(crate) fn new() -> Self {
        Self {
            copy: [0; WINDOW * SIZE as usize],
            first: 0,
            count: 0,
        }
    }

    /// Has the next descriptor read anew.
    pub(crate) fn forget(&mut self) {
        self.count = 0;
    }

    /// The descriptor at `index`, of which at least `ready` from there on belong to us, and those
    /// behind it that were copied at once: one at least. `fetched` counts descriptors read from memory.
    #[inline]
    pub(crate) fn get(
        &mut self,
        view: &View<'_>,
        ring: &Ring,
        index: u32,
        ready: u32,
        fetched: &mut u64,
    ) -> Result<&[[u8; SIZE as usize]], Fault> {
        let inside = index.wrapping_sub(self.first) < self.count;
        if !inside {
            let count = ready.min(WINDOW as u32).min(ring.len - index).max(1);
            let bytes = &mut self.copy[..count as usize * SIZE as usize];
            self.count = 0;
            view.read_acquire(ring.address(index), bytes)?;
            *fetched += u64::from(count);
            self.first = index;
            self.count = count;
        }
        let (all, _) = self.copy.as_chunks();
        Ok(&all[(index - self.first) as usize..self.count as usize])
    }
}

/// What a context descriptor sets up (manual §3.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub ipcss: u8,
    pub ipcso: u8,
    pub ipcse: u16,
    pub tucss: u8,
    pub tucso: u8,
    pub tucse: u16,
    pub hdrlen: u8,
    pub mss: u16,
    /// Bytes behind the headers, 20 bits; announced, not relied upon.
    pub paylen: u32,
    /// TUCMD.TCP: TCP rather than UDP.
    pub tcp: bool,
    /// TUCMD.IP: IPv4 rather than IPv6.
    pub ipv4: bool,
}

/// A transmit descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxDesc {
    pub cmd: u8,
    pub body: TxBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxBody {
    Legacy {
        addr: u64,
        len: u32,
        cso: u8,
        css: u8,
        special: u16,
    },
    Context(Context),
    Data {
        addr: u64,
        len: u32,
        popts: u8,
        special: u16,
    },
    /// An extended descriptor of a type the chip does not have.
    Unknown,
}

impl TxDesc {
    pub(crate) fn parse(raw: &[u8; SIZE as usize]) -> TxDesc {
        let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let addr = u64::from_le_bytes([
            raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7],
        ]);
        let cmd = raw[11];
        if cmd & cmd::DEXT == 0 {
            let body = TxBody::Legacy {
                addr,
                len: u32::from(half(8)),
                cso: raw[10],
                css: raw[13],
                special: half(14),
            };
            return TxDesc { cmd, body };
        }
        let body = match raw[10] >> 4 {
            0 => TxBody::Context(Context {
                ipcss: raw[0],
                ipcso: raw[1],
                ipcse: half(2),
                tucss: raw[4],
                tucso: raw[5],
                tucse: half(6),
                hdrlen: raw[13],
                mss: half(14),
                paylen: u32::from(half(8)) | u32::from(raw[10] & 0xf) << 16,
                tcp: cmd & 1 != 0,
                ipv4: cmd & 2 != 0,
            }),
            1 => TxBody::Data {
                addr,
                len: u32::from(half(8)) | u32::from(raw[10] & 0xf) << 16,
                popts: raw[13],
                special: half(14),
            },
            _ => TxBody::Unknown,
        };
        TxDesc { cmd, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_length_has_twenty_bits() {
        let mut raw = [0u8; 16];
        raw[8..12].copy_from_slice(&0x2510_2345u32.to_le_bytes());
        raw[10] = 0x1f;
        let TxBody::Data { len, .. } = TxDesc::parse(&raw).body else {
            panic!("a data descriptor");
        };
        assert_eq!(len, 0xf_2345);
    }

    #[test]
    fn a_ring_needs_a_length_and_indices_inside() {
        let ring = Ring {
            base: 0,
            len: 8,
            head: 6,
            tail: 2,
        };
        assert_eq!(ring.available(), 4);
        assert_eq!(ring.next(7), 0);
        assert_eq!(ring.before(5, 2), 3);
        assert_eq!(ring.before(0, 3), 5);
        let file = File::new(crate::regs::table());
        let ids = crate::tx::RING;
        assert_eq!(Ring::read(&file, &ids), None);
        file.set(ids.len, 128);
        assert_eq!(Ring::read(&file, &ids).map(|r| r.len), Some(8));
        file.set(ids.tail, 8);
        assert_eq!(Ring::read(&file, &ids), None);
    }
}
