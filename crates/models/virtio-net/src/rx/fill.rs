//! What all short ways of receiving have in common: buffers to fill, and how the driver is shown them.

use datapath::counters::count_alone;
use frame::work;
use guest_mem::{View, WritePlaces};
use model::Env;

use crate::core::chain::One;
use crate::core::device::Device;
use crate::core::queues::RxQueues;
use crate::core::ring::{Broken, Ring};
use crate::rx::place::DESCS_PER_COPY;

/// Frames in the buffers of a pair.
#[derive(Clone, Copy, Default)]
pub struct Filled {
    /// So many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those whose checksum the driver is to compute.
    pub needs_csum: u64,
}

/// What became of frames that were offered.
#[derive(Default)]
pub struct Taken {
    /// So many were taken.
    pub frames: usize,
    /// The pairs whose drivers are to be called, a bit for each.
    pub calls: u32,
    /// Why a ring is broken.
    pub broken: Option<Broken>,
}

impl Taken {
    /// A pair has taken frames, unless its ring is broken: shows them to its driver, and counts them.
    #[inline(always)]
    pub fn settle(
        &mut self,
        (device, env): (&Device, &Env),
        (view, queues): (&View<'_>, &mut RxQueues),
        (pair, filled): (usize, Filled),
        result: Result<(), Broken>,
    ) {
        let Some(ring) = &mut queues.rings[pair] else {
            return;
        };
        let calls = &mut queues.calls;
        let shown = result.and_then(|()| {
            if filled.frames == 0 {
                return Ok(false);
            }
            ring.no_kick(view)?;
            calls.publish(pair, ring, view, &*env.clock)
        });
        if filled.frames > 0 {
            queues.full_since[pair] = None;
            count_alone(&device.counters.rx_frames, filled.frames);
            count_alone(&device.counters.rx_bytes, filled.bytes);
            let stats = &mut queues.stats[pair];
            stats.packets += filled.frames;
            stats.bytes += filled.bytes;
            stats.needs_csum += filled.needs_csum;
        }
        self.frames += filled.frames as usize;
        match shown {
            Ok(call) => self.calls |= u32::from(call) << pair,
            Err(why) => {
                queues.rings[pair] = None;
                self.broken = Some(why);
            }
        }
    }
}

/// The next buffers of a ring.
pub struct Buffers<'v> {
    /// So many were taken.
    pub taken: usize,
    /// So many of them can be filled.
    pub found: usize,
    /// Their region, in places of a header and a frame.
    pub whole: WritePlaces<'v>,
}

/// Takes buffers of one part with room for `total` bytes, as many as there is storage for. It ends where one is of several parts,
/// too small, or not in the region of the one before. `None`: the next is none for this way, and was not taken.
#[inline(always)]
pub fn find_buffers<'v>(
    view: &'v View<'_>,
    ring: &mut Ring,
    total: usize,
    (ones, places): (&mut [One], &mut [u64]),
) -> Result<Option<Buffers<'v>>, Broken> {
    let (taken, _) = ring.take_ones(view, true, ones)?;
    work::add(u64::from(ring.take_read()) / DESCS_PER_COPY);
    let near = ones[..taken].first();
    let near = near.and_then(|one| view.write_places_anew(one.at, total));
    let Some(whole) = near else {
        ring.give_back(taken as u16);
        return Ok(None);
    };
    let mut found = 0;
    for (one, place) in ones[..taken].iter().zip(places) {
        let to = whole.find(one.at).filter(|_| one.len as usize >= total);
        let Some(to) = to else {
            break;
        };
        whole.prefetch(to);
        *place = to;
        found += 1;
    }
    Ok(Some(Buffers {
        taken,
        found,
        whole,
    }))
}

/// Gives back buffers that hold a header of `front` bytes and a frame of its own length each. Returns the bytes of these
/// frames.
#[inline(never)]
pub fn used_lengths(
    view: &View<'_>,
    ring: &mut Ring,
    (mut ones, lens): (&[One], &[u16]),
    front: usize,
) -> Result<u64, Broken> {
    let mut bytes = 0;
    for alike in lens.chunk_by(|a, b| a == b) {
        let len = usize::from(alike[0]);
        let (now, later) = ones.split_at(alike.len());
        ring.used_ones(view, now, (front + len) as u32)?;
        bytes += (alike.len() * len) as u64;
        ones = later;
    }
    Ok(bytes)
}
