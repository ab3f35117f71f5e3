//! The descriptors and buffers of receive rings: taking them, and writing them back.

use std::cell::Cell;

use guest_mem::{View, WriteSlice, WriteWindow};

use crate::ring::{Fetcher, Ring, SIZE};
use crate::rx::publish::Publish;
use crate::rx::words::{Firsts, Says};

/// Descriptors read at once at least: a cache line of them.
const LEAST_FETCH: u32 = 4;

/// Storage kept from call to call.
#[derive(Debug, Default)]
pub struct Storage {
    /// First words of descriptors filled and not written back yet. None where they stay as they are.
    pub first: Vec<u64>,
    /// Their second words.
    pub second: Vec<u64>,
    /// Room for the copy of a frame that something is computed of before it goes to the guest.
    pub copy: Vec<u8>,
    fetcher: Fetcher,
}

impl Storage {
    /// One more descriptor is filled.
    #[inline]
    pub fn push(&mut self, (first, second): (Option<u64>, u64)) {
        self.first.extend(first);
        self.second.push(second);
    }
}

/// The descriptors that a receiver may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its head is the next one to be filled.
    pub ring: Ring,
    /// The first that is filled and not written back.
    pub first: u32,
    /// Descriptors left.
    pub free: u32,
}

impl Room {
    /// None.
    pub const NONE: Room = Room {
        ring: Ring::NONE,
        first: 0,
        free: 0,
    };

    /// Descriptors that may be read ahead, where so many are expected to be needed.
    #[inline]
    pub fn ready(&self, expected: usize) -> u32 {
        u32::try_from(expected)
            .unwrap_or(u32::MAX)
            .max(LEAST_FETCH)
            .min(self.free)
    }
}

thread_local! {
    static STORAGE: Cell<Option<Box<Storage>>> = const { Cell::new(None) };
}

/// Writes frames and descriptors into guest memory.
pub struct Writer<'v> {
    /// The guest's memory.
    pub view: &'v View<'v>,
    /// What is kept for the next call.
    pub storage: Box<Storage>,
    /// Descriptors read from guest memory.
    pub fetched: u64,
    /// Where the last buffer was, and the last descriptor.
    window: Option<WriteWindow<'v>>,
    ring_window: Option<WriteWindow<'v>>,
}

impl<'v> Writer<'v> {
    /// One with the storage of the last that ended in this thread.
    #[inline]
    pub fn new(view: &'v View<'v>) -> Self {
        Writer {
            view,
            storage: STORAGE.take().unwrap_or_default(),
            fetched: 0,
            window: None,
            ring_window: None,
        }
    }

    /// Gives the storage back. What is not written back is forgotten.
    #[inline]
    pub fn end(mut self) {
        self.storage.first.clear();
        self.storage.second.clear();
        STORAGE.set(Some(self.storage));
    }

    /// Has the next descriptor read anew: another ring, or the lock was free.
    #[inline]
    pub fn forget(&mut self) {
        self.storage.fetcher.forget();
    }

    /// Addresses of the packet buffer and the header buffer at `index`, of which at least `ready` from
    /// there on are ours. `None` when the descriptor cannot be read.
    #[inline]
    pub fn buffers(&mut self, ring: &Ring, index: u32, ready: u32) -> Option<(u64, u64)> {
        let fetcher = &mut self.storage.fetcher;
        let got = fetcher.get(self.view, ring, index, ready, &mut self.fetched);
        let raw = u128::from_le_bytes(*got.ok()?.first()?);
        Some((raw as u64, (raw >> 64) as u64))
    }

    /// A buffer that lies in one region.
    #[inline]
    pub fn slice(&mut self, addr: u64, len: usize) -> Option<WriteSlice<'v>> {
        if let Some(to) = self.window.and_then(|window| window.at(addr, len)) {
            return Some(to);
        }
        self.window = self.view.write_window(addr);
        self.window?.at(addr, len)
    }

    /// Takes a descriptor for each of `n` frames, as long as there are some whose buffer is neither null nor
    /// out of reach. `frame` says of each, by its number, how many bytes go there, and what `taken` is to be
    /// given with the place, or that it is not for this. `expected` frames of one descriptor are still to
    /// come. Returns how many were taken.
    #[inline(always)]
    pub fn take<T>(
        &mut self,
        room: &mut Room,
        (n, expected): (usize, usize),
        frame: impl Fn(usize) -> Option<(usize, T)>,
        mut taken: impl FnMut(usize, WriteSlice<'v>, T),
    ) -> usize {
        let mut all = 0;
        while all < n && room.free > 0 {
            let ready = room.ready(expected - all);
            let fetcher = &mut self.storage.fetcher;
            let got = fetcher.get(
                self.view,
                &room.ring,
                room.ring.head,
                ready,
                &mut self.fetched,
            );
            let Ok(descs) = got else {
                break;
            };
            // Not more than is ours, should the guest's tail have moved back.
            let offered = descs.len().min(room.free as usize).min(n - all);
            let begun = all;
            for raw in &descs[..offered] {
                let addr = u128::from_le_bytes(*raw) as u64;
                let Some((len, with)) = frame(all).filter(|_| addr != 0) else {
                    break;
                };
                // A place is asked for when it will be written to, and not before.
                let mut to = self.window.and_then(|window| window.at(addr, len));
                if to.is_none() {
                    self.window = self.view.write_window(addr);
                    to = self.window.and_then(|window| window.at(addr, len));
                }
                let Some(to) = to else {
                    break;
                };
                to.prefetch();
                taken(all, to, with);
                all += 1;
            }
            let used = (all - begun) as u32;
            room.ring.head = room.ring.behind(used);
            room.free -= used;
            if (used as usize) < offered {
                break;
            }
        }
        all
    }

    /// Writes back all that was filled, as `by` wants it. Returns how many words were not in reach.
    #[inline]
    pub fn flush(&mut self, room: &mut Room, by: &impl Publish) -> u64 {
        if self.storage.second.is_empty() {
            return 0;
        }
        let Storage { first, second, .. } = &mut *self.storage;
        let to = (self.view, &mut self.ring_window);
        let faults = publish(by, to, (&room.ring, room.first), first, second);
        room.first = room.ring.head;
        first.clear();
        second.clear();
        faults
    }

    /// Writes back descriptors from `index` on, in the ring's order: each one's second word, with DD in it,
    /// after its first, where there are first words. Returns how many words were not in reach.
    #[inline]
    pub fn write_back(
        &mut self,
        (ring, index): (&Ring, u32),
        first: &[u64],
        second: &[u64],
        by: &impl Publish,
    ) -> u64 {
        let to = (self.view, &mut self.ring_window);
        publish(by, to, (ring, index), first, second)
    }
}

/// As [`write_back`], as `by` wants it.
#[inline]
fn publish<'v>(
    by: &impl Publish,
    (view, known): (&'v View<'v>, &mut Option<WriteWindow<'v>>),
    (ring, index): (&Ring, u32),
    first: &[u64],
    second: &[u64],
) -> u64 {
    let mut at = Ring {
        head: index,
        ..*ring
    };
    let (mut first, mut second) = (first, second);
    let mut faults = 0;
    loop {
        let n = by
            .cut(second)
            .clamp(1, second.len().max(1))
            .min(second.len());
        let (here, rest) = second.split_at(n);
        let (here_first, rest_first) = first.split_at(first.len().min(n));
        let says = || match here_first {
            [] => Says::Each(Firsts::Stay, here),
            each => Says::Each(Firsts::Each(each), here),
        };
        let index = at.head;
        faults += if by.begins(view, (index, ring.address(index)), n, says) {
            let behind = here_first.get(1..).unwrap_or(&[]);
            let head = here_first.get(..1).unwrap_or(&[]);
            write_back((view, known), ring, ring.next(index), behind, &here[1..])
                + write_back((view, known), ring, index, head, &here[..1])
        } else {
            write_back((view, known), ring, index, here_first, here)
        };
        at.head = at.behind(n as u32);
        by.ended(at.head);
        if rest.is_empty() {
            return faults;
        }
        (first, second) = (rest_first, rest);
    }
}

/// As [`Writer::write_back`], with the window of the last descriptor.
fn write_back<'v>(
    (view, known): (&'v View<'v>, &mut Option<WriteWindow<'v>>),
    ring: &Ring,
    index: u32,
    first: &[u64],
    second: &[u64],
) -> u64 {
    let (mut index, mut done, mut faults) = (index, 0, 0);
    while done < second.len() {
        // Up to the end of the ring at once.
        let left = ring.len.saturating_sub(index).max(1) as usize;
        let run = done..second.len().min(done + left);
        let first = first.get(run.clone()).unwrap_or(&[]);
        let second = &second[run.clone()];
        let at = ring.address(index);
        let all = |window: WriteWindow<'_>| match first {
            [] => window.store_words(at.wrapping_add(8), SIZE as usize, second),
            _ => window.store_pairs(at, SIZE as usize, first, second),
        };
        if !known.is_some_and(all) {
            *known = view.write_window(at);
            if !known.is_some_and(all) {
                faults += write_each(view, at, first, second);
            }
        }
        done = run.end;
        index = 0;
    }
    faults
}

/// The same for descriptors from `at` on, wherever they are: one aligned word each, so that the guest
/// sees all of it or nothing.
#[cold]
fn write_each(view: &View<'_>, at: u64, first: &[u64], second: &[u64]) -> u64 {
    let mut faults = 0;
    for (i, word) in second.iter().enumerate() {
        let at = at.wrapping_add(i as u64 * SIZE);
        for (inside, word) in [(0, first.get(i)), (8, Some(word))] {
            let Some(word) = word else { continue };
            let to = at.wrapping_add(inside);
            let written = view.write_release(to, &word.to_le_bytes());
            faults += u64::from(written.is_err());
        }
    }
    faults
}
