//! The short way of the receive side: frames that are alike, a buffer each, the same words in each descriptor.

use std::sync::atomic::{Ordering, fence};

use frame::{Run, same_header};
use guest_mem::{Head, View, WritePlaces, WriteWindow, copy_run};

use crate::ring::{Ring, SIZE};

/// Descriptors read ahead of the copies, so that their buffers' first lines are under way.
const AHEAD: usize = 64;
/// The same for runs that are short.
const FEW: usize = 4;

/// What a done descriptor of a run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The address stays; this is the second word.
    Second(u64),
    /// Both words.
    Both([u64; 2]),
}

impl Words {
    /// Writes back `n` descriptors from the head of `ring` on.
    #[inline(always)]
    fn write(self, view: &View<'_>, ring: &Ring, n: usize) -> bool {
        let at = ring.address(ring.head);
        let write = |to: WriteWindow<'_>| match self {
            Words::Second(word) => to.store_same(at.wrapping_add(8), SIZE as usize, n, [word]),
            Words::Both(words) => to.store_same(at, SIZE as usize, n, words),
        };
        view.write_window(at).is_some_and(write)
    }
}

/// What a set-up says about the frames of a run, as long as it is the same; `W` is how they are received.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan<W> {
    generation: u32,
    head: Head,
    len: usize,
    way: Option<W>,
}

impl<W> Default for RunPlan<W> {
    fn default() -> Self {
        RunPlan {
            generation: 0,
            head: Head::default(),
            len: 0,
            way: None,
        }
    }
}

impl<W: Copy> RunPlan<W> {
    /// How the frames of this run are received by the set-up of this generation; `make` finds it out, unless it is
    /// known. `None`: they take the general way.
    #[inline]
    pub fn way(
        &mut self,
        generation: u32,
        run: &Run<'_>,
        make: impl FnOnce() -> Option<W>,
    ) -> Option<W> {
        let known = self.generation == generation
            && self.len == run.frame_len()
            && same_header(self.head, run.head());
        if !known {
            *self = RunPlan {
                generation,
                head: run.head(),
                len: run.frame_len(),
                way: make(),
            };
        }
        self.way
    }
}

/// Frames that are in their buffers, their descriptors done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// How many; each has taken a descriptor.
    pub frames: u32,
    /// Descriptors read.
    pub fetched: u64,
}

/// Copies frames of a run into the buffers of `ring` from its head on, of which `free` are ours, with zeros behind them
/// up to `len` bytes, and writes their descriptors back. It ends where a buffer is null, or not in the region of the one
/// before, or not in reach.
#[inline]
pub fn fill_run(
    view: &View<'_>,
    (ring, free): (&Ring, u32),
    run: &Run<'_>,
    len: usize,
    words: Words,
) -> Filled {
    if run.count().min(free as usize) <= FEW {
        return fill::<FEW>(view, (ring, free), run, len, words);
    }
    fill::<AHEAD>(view, (ring, free), run, len, words)
}

#[inline(always)]
fn fill<const N: usize>(
    view: &View<'_>,
    (ring, mut free): (&Ring, u32),
    run: &Run<'_>,
    len: usize,
    words: Words,
) -> Filled {
    let mut ring = *ring;
    let mut filled = Filled::default();
    let mut places = [0; N];
    let (from, mut at, mut heads) = run.frames();
    while !at.is_empty() && free > 0 {
        let straight = free.min(ring.len - ring.head) as usize;
        let most = N.min(at.len()).min(straight);
        let descs = view.read_run(ring.address(ring.head), most as u64 * SIZE);
        let Some(descs) = descs else {
            break;
        };
        fence(Ordering::Acquire);
        let mut buffers = descs.firsts();
        let Some(to) = descs.firsts().next().and_then(|addr| near(view, addr, len)) else {
            break;
        };
        let mut planned = 0;
        for (place, addr) in places.iter_mut().zip(&mut buffers) {
            // Address 0 is a null buffer.
            let Some(found) = to.find(addr).filter(|_| addr != 0) else {
                break;
            };
            to.prefetch(found);
            *place = found;
            planned += 1;
        }
        filled.fetched += most as u64;
        let copied = copy_run((from, at), heads, (&to, &places[..planned]));
        if copied == 0 || !words.write(view, &ring, copied) {
            break;
        }
        filled.frames += copied as u32;
        free -= copied as u32;
        ring.head = ring.behind(copied as u32);
        (at, heads) = (&at[copied..], &heads[copied..]);
        if copied < most {
            break;
        }
    }
    filled
}

/// Places in the region of a buffer.
#[inline(always)]
fn near<'v>(view: &'v View<'_>, addr: u64, len: usize) -> Option<WritePlaces<'v>> {
    view.write_places(addr, len).or_else(|| {
        // The view keeps at hand what was asked for.
        view.write_window(addr)?;
        view.write_places(addr, len)
    })
}
