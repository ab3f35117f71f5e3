//! A frame on its way into the driver's buffers: header, frame, checksum (virtio 1.4 §5.1.6.4).

use datapath::{Finish, Layout, with_places};
use frame::{Frame, work};
use guest_mem::{View, WriteSlice};
use wire::{Csum, Gso, VLAN_TAG};

use crate::core::device::Device;
use crate::core::queues::RxScratch;
use crate::core::ring::{Broken, Ring};
use crate::core::stats::RxStats;
use crate::core::steering::Hashed;
use crate::regs::{feature, header};

/// Bytes in front of a tag.
const TAG_AT: usize = 12;
/// Descriptors whose reading costs about as much as the copy of a frame.
pub(super) const DESCS_PER_COPY: u64 = 8;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is in so many buffers.
    In(u16),
    /// There are too few buffers, and none was taken.
    NoRoom,
    /// A buffer is too small for it, and none was taken.
    TooLong,
}

/// What placing a frame needs.
pub struct Placing<'a, 'm> {
    /// The device.
    pub device: &'a Device,
    /// The guest's memory.
    pub view: &'a View<'m>,
    /// The receive ring.
    pub ring: &'a mut Ring,
    /// Storage.
    pub scratch: &'a mut RxScratch,
    /// Receive offloads that are on.
    pub offloads: u64,
    /// What the queue has done.
    pub stats: &'a mut RxStats,
    /// The hash of the flow, if it is reported.
    pub hashed: Option<Hashed>,
}

/// The header in front of a frame.
pub struct Front {
    bytes: [u8; header::LONG],
    len: usize,
}

impl Front {
    /// Of a frame in one buffer, of which nothing is to be said but its hash, if it is reported.
    #[inline]
    pub fn plain(hashed: Option<Hashed>) -> Self {
        let mut bytes = [0; header::LONG];
        bytes[10] = 1;
        let Some(Hashed { value, report }) = hashed else {
            let len = header::LEN;
            return Front { bytes, len };
        };
        bytes[12..16].copy_from_slice(&value.to_le_bytes());
        bytes[16..18].copy_from_slice(&report.to_le_bytes());
        let len = header::LONG;
        Front { bytes, len }
    }

    /// The same of a segment, whose checksum is still to be written if it is noted.
    #[inline]
    pub fn of_segment(hashed: Option<Hashed>, csum: Option<Csum>) -> Self {
        let mut front = Front::plain(hashed);
        if let Some(csum) = csum {
            front.needs_csum(csum, 0);
        }
        front
    }

    /// As it lies in the buffer.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn needs_csum(&mut self, csum: Csum, grown: u16) {
        let bytes = &mut self.bytes;
        bytes[0] = header::NEEDS_CSUM;
        let start = csum.start.saturating_add(grown);
        bytes[6..8].copy_from_slice(&start.to_le_bytes());
        bytes[8..10].copy_from_slice(&csum.offset.to_le_bytes());
    }

    /// Says what is left to do of a frame that has grown by a tag of so many bytes.
    fn tell(&mut self, frame: &Frame<'_>, grown: u16) {
        let notes = frame.notes();
        if let Some(csum) = notes.csum {
            self.needs_csum(csum, grown);
        } else if notes.csum_valid {
            self.bytes[0] = header::DATA_VALID;
        }
        let gso = match notes.gso {
            Gso::None => return,
            Gso::Tcp4 => header::GSO_TCPV4,
            Gso::Tcp6 => header::GSO_TCPV6,
            Gso::Udp4 | Gso::Udp6 => header::GSO_UDP_L4,
        };
        let bytes = &mut self.bytes;
        bytes[1] = gso | if notes.ecn { header::GSO_ECN } else { 0 };
        let hdr_len = notes.hdr_len.saturating_add(grown);
        bytes[2..4].copy_from_slice(&hdr_len.to_le_bytes());
        bytes[4..6].copy_from_slice(&notes.gso_size.to_le_bytes());
    }
}

impl<'a> Placing<'a, '_> {
    /// Places one frame, whose checksum can be written on the way if it is noted. The driver does not see it yet.
    pub fn one(&mut self, frame: &Frame<'_>) -> Result<Placed, Broken> {
        let mut head = [0; header::LONG + TAG_AT + VLAN_TAG];
        let mut front = Front::plain(self.hashed);
        let len = front.bytes().len();
        let (mut head_len, mut from) = (len, 0);
        if let Some(tci) = frame.notes().vlan
            && let Some(addresses) = frame.head().first_chunk::<TAG_AT>()
        {
            let [c0, c1] = tci.to_be_bytes();
            head[len..][..TAG_AT].copy_from_slice(addresses);
            head[len + TAG_AT..][..VLAN_TAG].copy_from_slice(&[0x81, 0, c0, c1]);
            (head_len, from) = (len + TAG_AT + VLAN_TAG, TAG_AT);
        }
        let grown = head_len - len - from;
        let finish = self.offloads & feature::GUEST_CSUM == 0;
        if !finish {
            front.tell(frame, grown as u16);
        }
        head[..len].copy_from_slice(front.bytes());
        let needed = len + grown + frame.len();
        let placed = with_places(|places| {
            let placed = self.collect(needed, places);
            if let Ok(Placed::In(buffers)) = placed {
                head[10..header::LEN].copy_from_slice(&buffers.to_le_bytes());
                let layout = Layout {
                    head: &head[..head_len],
                    frame,
                    from,
                    tail: &[],
                };
                fill(&layout, places, finish);
                self.scratch.writes.end();
            }
            placed
        });
        let placed = placed?;
        if let Placed::In(_) = placed {
            for &(id, len) in &self.scratch.buffers {
                self.ring.used(self.view, id, len)?;
            }
            self.ring.one_frame(self.scratch.buffers.len() as u16);
        }
        Ok(placed)
    }

    /// Takes buffers until `needed` bytes have a place: their ids and bytes go to `scratch.buffers`.
    fn collect(
        &mut self,
        needed: usize,
        places: &mut Vec<WriteSlice<'a>>,
    ) -> Result<Placed, Broken> {
        let view = self.view;
        let RxScratch {
            chain,
            buffers,
            writes,
            ..
        } = &mut *self.scratch;
        buffers.clear();
        writes.begin();
        let merge = self.device.has(feature::MRG_RXBUF);
        let mut left = needed;
        let (mut parts, most) = (0, 2 * u32::from(self.ring.size()));
        while left > 0 {
            if !self.ring.take(view, chain)? {
                self.ring.give_back(buffers.len() as u16);
                return Ok(Placed::NoRoom);
            }
            let read = self.ring.take_read();
            work::add(u64::from(read) / DESCS_PER_COPY);
            // Parts of no bytes are not a way to make a sender walk.
            parts += read;
            if parts > most {
                return Err(Broken::Parts);
            }
            if !chain.readable().is_empty() {
                return Err(Broken::Direction);
            }
            let before = left;
            for part in chain.writable() {
                let len = left.min(part.len as usize);
                if len > 0 {
                    view.write_slices(part.at, len as u64, &mut |run| places.push(run))?;
                    writes.part(part.at, len);
                    left -= len;
                }
            }
            buffers.push((chain.id, (before - left) as u32));
            if left > 0 && !merge {
                self.ring.give_back(buffers.len() as u16);
                return Ok(Placed::TooLong);
            }
        }
        Ok(Placed::In(buffers.len() as u16))
    }
}

/// Copies a frame with what is in front of it, and writes its checksum if it is to be finished.
fn fill(layout: &Layout<'_, '_>, places: &[WriteSlice<'_>], finish: bool) {
    let mut at = 0;
    let sum = if finish { Finish::new(layout) } else { None };
    let Some(mut sum) = sum else {
        for place in places {
            layout.copy(at, place);
            at += place.len();
        }
        return;
    };
    for place in places {
        sum.copy(layout, at, place);
        at += place.len();
    }
    // The field may lie across two places.
    let mut skip = sum.field();
    let mut value = &sum.value()[..];
    for place in places {
        if skip < place.len() {
            let n = place.copy_from(skip, value);
            value = &value[n..];
            skip = 0;
        } else {
            skip -= place.len();
        }
        if value.is_empty() {
            break;
        }
    }
}
