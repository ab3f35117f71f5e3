//! Access to guest memory for the length of one batch.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use parking_lot::RwLockReadGuard;

use crate::fault::{Fault, FaultKind};
use crate::places::{ReadPlaces, WritePlaces};
use crate::region::{Near, Region};
use crate::remote::{Asked, Remote};
use crate::slice::{ReadSlice, WriteSlice};
use crate::table::Table;
use crate::window::WriteWindow;
use crate::words::Words;
use crate::work;

/// Most regions that one access may span. A buffer of 64 KiB behind an IOMMU has 17; thousands would cost a sender,
/// which is another guest, as many lookups for each frame.
pub const MAX_RUNS: usize = 512;
/// Regions of one access whose lookups cost about as much as the copy of a frame.
const RUNS_PER_COPY: usize = 4;

/// Copies of remote memory, and what is to be marked in the log of the map. Most views have neither.
#[derive(Default)]
struct Bounced(ManuallyDrop<Cell<Option<Box<Aside>>>>);

#[derive(Default)]
struct Aside {
    copies: Vec<Arc<[AtomicU64]>>,
    /// Start and length.
    written: Vec<(u64, u64)>,
}

impl Bounced {
    fn keep(&self, copy: Arc<[AtomicU64]>) {
        let mut aside = self.0.take().unwrap_or_default();
        aside.copies.push(copy);
        self.0.set(Some(aside));
    }

    fn wrote(&self, iova: u64, len: u64) {
        let mut aside = self.0.take().unwrap_or_default();
        match aside.written.last_mut() {
            Some((start, end)) if start.checked_add(*end) == Some(iova) => *end += len,
            _ => aside.written.push((iova, len)),
        }
        self.0.set(Some(aside));
    }
}

impl Drop for View<'_> {
    // The only place that ends what is aside, so that its own end is none.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(aside) = self.bounced.0.take() {
            self.end(aside);
        }
    }
}

/// A pinned map. Hold it for one batch, not longer: unmap waits for it.
pub struct View<'m> {
    table: RwLockReadGuard<'m, Table>,
    /// Regions that served the last accesses; rings and buffers cluster, most often in one of two
    /// (memory below and above 4 GiB).
    near: [Cell<Near>; 2],
    /// The one to be replaced next.
    older: Cell<bool>,
    /// Copies of remote memory, which slices of this view may point into.
    bounced: Bounced,
    faults: &'m AtomicU64,
    #[cfg(feature = "meter")]
    meter: &'m crate::meter::Meter,
}

impl<'m> View<'m> {
    #[inline(always)]
    pub(crate) fn new(
        table: RwLockReadGuard<'m, Table>,
        faults: &'m AtomicU64,
        #[cfg(feature = "meter")] meter: &'m crate::meter::Meter,
    ) -> Self {
        let [first, second] = match table.account.is_spoiled() {
            false => table.largest,
            // One of them may be what is spoiled; `find` knows.
            true => [Near::NOTHING; 2],
        };
        Self {
            table,
            near: [Cell::new(first), Cell::new(second)],
            older: Cell::new(false),
            bounced: Bounced::default(),
            faults,
            #[cfg(feature = "meter")]
            meter,
        }
    }

    /// All that was written through this view was written by now, and the map is still pinned.
    #[cold]
    fn end(&self, aside: Box<Aside>) {
        if let Some(log) = &self.table.log {
            for (iova, len) in &aside.written {
                log.mark(*iova, *len);
            }
        }
        drop(aside);
    }

    fn fault<T>(&self, iova: u64, len: u64, kind: FaultKind) -> Result<T, Fault> {
        self.faults.fetch_add(1, Ordering::Relaxed);
        Err(Fault { iova, len, kind })
    }

    /// Where `iova..iova+len` is, if it is a part of one of the regions used last and not empty.
    #[inline(always)]
    fn near(&self, iova: u64, len: u64, write: bool) -> Option<NonNull<u8>> {
        for near in &self.near {
            let near = near.get();
            if let Some(at) = near.holds(iova, len, write) {
                #[cfg(feature = "meter")]
                self.meter.note(iova, len, write);
                // SAFETY: `at` is inside of the region, which lies whole in a live mapping, pinned by
                // this view; mappings are not longer than an address is.
                return Some(unsafe { near.base.add(at as usize) });
            }
        }
        None
    }

    /// As [`View::near`] for reading, of any region, which is at hand then.
    #[cold]
    fn bring(&self, iova: u64, len: u64) -> Option<NonNull<u8>> {
        self.find(iova)?;
        self.near(iova, len, false)
    }

    /// The region at hand that holds `iova`, if it may be read.
    #[inline(always)]
    fn near_to_read(&self, iova: u64) -> Option<Near> {
        let mut near = self.near.iter().map(Cell::get);
        near.find(|near| iova.wrapping_sub(near.iova) < near.read)
    }

    /// The same of any region, which is at hand then.
    #[cold]
    fn bring_to_read(&self, iova: u64) -> Option<Near> {
        self.find(iova)?;
        self.near_to_read(iova)
    }

    /// Keeps a region at hand.
    fn keep_near(&self, region: &Region) {
        if let Some(near) = self.table.near_of(region) {
            let older = self.older.get();
            self.older.set(!older);
            self.near[usize::from(older)].set(near);
        }
    }

    /// The region that holds `iova`, and the bytes left in it from there.
    fn find(&self, iova: u64) -> Option<(&Region, u64)> {
        let r = self.table.at_or_before(iova)?;
        if iova > r.last() {
            return None;
        }
        let here = |near: &Cell<Near>| {
            let near = near.get();
            near.iova == r.iova && near.read | near.write != 0
        };
        if !self.near.iter().any(here) {
            self.keep_near(r);
        }
        Some((r, r.len - (iova - r.iova)))
    }

    /// Bytes from `iova`, which is not mapped, to the next region.
    fn gap(&self, iova: u64) -> u64 {
        let next = self.table.behind(iova);
        next.map_or(u64::MAX, |r| r.iova - iova)
    }

    /// Calls `each` for every contiguous run of `iova..iova+len`, in order. Nothing is called
    /// unless the whole range is there: an access is done whole or not at all.
    #[cold]
    fn runs(
        &self,
        iova: u64,
        len: u64,
        write: bool,
        each: &mut dyn FnMut(NonNull<u8>, usize),
    ) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        if iova.checked_add(len - 1).is_none() {
            return self.fault(iova, len, FaultKind::Wraps);
        }
        // One region holds nearly every access: one lookup, no second pass.
        let mut whole = false;
        let mut runs = 0;
        for pass in 0..2 {
            let (mut at, mut left) = (iova, len);
            while left > 0 {
                if pass == 0 {
                    runs += 1;
                    if runs > MAX_RUNS {
                        work::add((runs / RUNS_PER_COPY) as u64);
                        return self.fault(iova, len, FaultKind::Scattered);
                    }
                }
                let n = match self.find(at) {
                    Some((region, room)) => {
                        if (write && !region.prot.write) || (!write && !region.prot.read) {
                            return self.fault(iova, len, FaultKind::Protected);
                        }
                        let (mapping, offset) = match region.reach() {
                            Ok(reached) => reached,
                            Err(kind) => return self.fault(iova, len, kind),
                        };
                        let n = left.min(room);
                        whole |= n == len;
                        if whole || pass == 1 {
                            each(mapping.at(offset + (at - region.iova)), n as usize);
                        }
                        n
                    }
                    None => {
                        let Some(Asked(remote)) = &self.table.remote else {
                            return self.fault(iova, len, FaultKind::Unmapped);
                        };
                        let n = left.min(self.gap(at));
                        whole |= n == len;
                        let now = whole || pass == 1;
                        if now && !self.bounce(&**remote, at, n as usize, write, each) {
                            return self.fault(iova, len, FaultKind::Refused);
                        }
                        n
                    }
                };
                left -= n;
                at = at.wrapping_add(n);
            }
            if whole {
                break;
            }
        }
        work::add((runs / RUNS_PER_COPY) as u64);
        if write && self.table.log.is_some() {
            self.bounced.wrote(iova, len);
        }
        #[cfg(feature = "meter")]
        self.meter.note(iova, len, write);
        Ok(())
    }

    /// One run of remote memory: a copy that lives as long as the view, fetched before `each` sees
    /// it or sent after. A write must fill the run; what it leaves out becomes zeros.
    fn bounce(
        &self,
        remote: &dyn Remote,
        iova: u64,
        len: usize,
        write: bool,
        each: &mut dyn FnMut(NonNull<u8>, usize),
    ) -> bool {
        // Atomics may be written through a shared reference, so the pointer may be too; and moving an
        // `Arc`, unlike a `Box`, claims nothing about who else points to what is in it.
        let copy: Arc<[AtomicU64]> = (0..len.div_ceil(8).max(1))
            .map(|_| AtomicU64::new(0))
            .collect();
        let base = NonNull::from(&*copy).cast::<u8>();
        self.bounced.keep(copy);
        let mut bytes = vec![0; len];
        if !write {
            if !remote.read(iova, &mut bytes) {
                return false;
            }
            // SAFETY: the copy is at least `len` bytes long, ours, and kept by this view.
            unsafe { WriteSlice::new(base, len) }.copy_from(0, &bytes);
        }
        each(base, len);
        if write {
            // SAFETY: as above.
            unsafe { ReadSlice::new(base, len) }.copy_to(0, &mut bytes);
            return remote.write(iova, &bytes);
        }
        true
    }

    /// Places of `len` bytes in the region that holds `iova`, if that may be read. `None`
    /// says nothing: ask [`View::read_slices`].
    // A call would cost a single frame as much as the work does.
    #[inline(always)]
    pub fn read_places(&self, iova: u64, len: usize) -> Option<ReadPlaces<'_>> {
        let near = self.near_to_read(iova);
        let near = near.or_else(|| self.bring_to_read(iova))?;
        // SAFETY: the whole region may be read, and lies inside a live mapping, pinned by this view.
        unsafe {
            ReadPlaces::new(
                near.iova,
                (near.base, near.read),
                len,
                #[cfg(feature = "meter")]
                self.meter,
            )
        }
    }

    /// Places of `len` bytes in the region that holds `iova`, if that was used just before and may be written.
    /// `None` says nothing: ask [`View::write_window`].
    #[inline]
    pub fn write_places(&self, iova: u64, len: usize) -> Option<WritePlaces<'_>> {
        let mut near = self.near.iter().map(Cell::get);
        let near = near.find(|near| iova.wrapping_sub(near.iova) < near.write)?;
        // SAFETY: as above, and it may be written.
        unsafe {
            WritePlaces::new(
                near.iova,
                (near.base, near.write),
                len,
                #[cfg(feature = "meter")]
                self.meter,
            )
        }
    }

    /// The same, whether that was used before or not.
    #[inline(always)]
    pub fn write_places_anew(&self, iova: u64, len: usize) -> Option<WritePlaces<'_>> {
        match self.write_places(iova, len) {
            Some(places) => Some(places),
            None => self.find_places(iova, len),
        }
    }

    #[cold]
    fn find_places(&self, iova: u64, len: usize) -> Option<WritePlaces<'_>> {
        // The view keeps at hand what was asked for.
        self.write_window(iova)?;
        self.write_places(iova, len)
    }

    /// The region that holds `iova`, if it is mapped and may be written. `None` says nothing while the map keeps a log: ask
    /// [`View::write_slices`] or [`View::write_release`].
    #[inline(always)]
    pub fn write_window(&self, iova: u64) -> Option<WriteWindow<'_>> {
        for near in &self.near {
            let near = near.get();
            if iova.wrapping_sub(near.iova) < near.write
                && let Ok(len) = usize::try_from(near.write)
            {
                // SAFETY: the whole region may be written, and lies inside a live mapping, pinned by
                // this view.
                let window = unsafe {
                    WriteWindow::new(
                        near.iova,
                        near.base,
                        len,
                        #[cfg(feature = "meter")]
                        self.meter,
                    )
                };
                return Some(window);
            }
        }
        self.find_window(iova)
    }

    #[cold]
    fn find_window(&self, iova: u64) -> Option<WriteWindow<'_>> {
        if self.table.log.is_some() {
            // What is written through a window, nobody would note.
            return None;
        }
        let (region, _) = self.find(iova)?;
        let (mapping, offset) = region.reach().ok()?;
        let len = usize::try_from(region.len).ok()?;
        // SAFETY: the whole region lies inside a live mapping, pinned by this view.
        let window = || unsafe {
            WriteWindow::new(
                region.iova,
                mapping.at(offset),
                len,
                #[cfg(feature = "meter")]
                self.meter,
            )
        };
        region.prot.write.then(window)
    }

    /// The words of `iova..iova + bytes`, if it is an aligned part of one region that is mapped and may
    /// be read and written. Both are multiples of 4.
    pub fn words(&self, iova: u64, bytes: u32) -> Option<Words<'_>> {
        let (region, room) = self.find(iova)?;
        let (mapping, offset) = region.reach().ok()?;
        let base = mapping.at(offset + (iova - region.iova));
        let fits = u64::from(bytes) <= room && bytes.is_multiple_of(4);
        let aligned = (base.as_ptr() as usize).is_multiple_of(4);
        if !(fits && aligned && region.prot.read && region.prot.write) {
            return None;
        }
        if self.table.log.is_some() {
            self.bounced.wrote(iova, bytes.into());
        }
        // SAFETY: that much lies inside a live mapping, pinned by this view, and is aligned.
        let words = unsafe {
            Words::new(
                base,
                bytes,
                #[cfg(feature = "meter")]
                (iova, self.meter),
            )
        };
        Some(words)
    }

    /// Copies guest memory out.
    ///
    /// # Errors
    /// A [`Fault`] when any byte is out of reach; nothing is copied then.
    #[inline]
    pub fn read(&self, iova: u64, out: &mut [u8]) -> Result<(), Fault> {
        let len = out.len() as u64;
        if let Some(ptr) = self.near(iova, len, false) {
            // SAFETY: promise of `near`.
            unsafe { ReadSlice::new(ptr, out.len()) }.copy_to(0, out);
            return Ok(());
        }
        let mut done = 0;
        self.runs(iova, len, false, &mut |ptr, n| {
            // SAFETY: `runs` yields runs inside live mappings, pinned by this view.
            let run = unsafe { ReadSlice::new(ptr, n) };
            run.copy_to(0, &mut out[done..done + n]);
            done += n;
        })
    }

    /// Copies into guest memory.
    ///
    /// # Errors
    /// A [`Fault`] when any byte is out of reach; nothing is written then.
    #[inline]
    pub fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), Fault> {
        let len = bytes.len() as u64;
        if let Some(ptr) = self.near(iova, len, true) {
            // SAFETY: promise of `near`, which looked whether it may be written.
            unsafe { WriteSlice::new(ptr, bytes.len()) }.copy_from(0, bytes);
            return Ok(());
        }
        let mut done = 0;
        self.runs(iova, len, true, &mut |ptr, n| {
            // SAFETY: as in `read`; `runs` checked that the region is writable.
            let run = unsafe { WriteSlice::new(ptr, n) };
            run.copy_from(0, &bytes[done..done + n]);
            done += n;
        })
    }

    /// Writes after everything written before: how a device sets "descriptor done" once the data
    /// is there. An aligned word of 1, 2, 4 or 8 bytes is seen whole or not at all.
    ///
    /// # Errors
    /// As [`View::write`].
    #[inline]
    pub fn write_release(&self, iova: u64, bytes: &[u8]) -> Result<(), Fault> {
        fence(Ordering::Release);
        if let Some(ptr) = self.near(iova, bytes.len() as u64, true) {
            // SAFETY: as in `write`.
            unsafe { WriteSlice::new(ptr, bytes.len()) }.store(bytes);
            return Ok(());
        }
        let mut done = 0;
        self.runs(iova, bytes.len() as u64, true, &mut |ptr, n| {
            // SAFETY: as in `write`.
            let run = unsafe { WriteSlice::new(ptr, n) };
            run.store(&bytes[done..done + n]);
            done += n;
        })
    }

    /// Reads, and keeps later reads behind it: how a device looks at an index the guest advances.
    ///
    /// # Errors
    /// As [`View::read`].
    #[inline]
    pub fn read_acquire(&self, iova: u64, out: &mut [u8]) -> Result<(), Fault> {
        let result = self.read(iova, out);
        fence(Ordering::Acquire);
        result
    }

    /// Borrows a range for reading, if it is one run of a region. `None` says
    /// nothing: ask [`View::read_slices`].
    // As `read_places`.
    #[inline(always)]
    pub fn read_run(&self, iova: u64, len: u64) -> Option<ReadSlice<'_>> {
        let near = self.near(iova, len, false);
        let ptr = near.or_else(|| self.bring(iova, len))?;
        // SAFETY: promise of `near`, pinned by this view as long as it is borrowed.
        Some(unsafe { ReadSlice::new(ptr, len as usize) })
    }

    /// Borrows a range for reading, run by run (more than one run where it crosses regions).
    ///
    /// # Errors
    /// As [`View::read`]; nothing is visited then.
    #[inline]
    pub fn read_slices<'v>(
        &'v self,
        iova: u64,
        len: u64,
        visit: &mut dyn FnMut(ReadSlice<'v>),
    ) -> Result<(), Fault> {
        if let Some(ptr) = self.near(iova, len, false) {
            // SAFETY: promise of `near`, pinned by this view for `'v`.
            visit(unsafe { ReadSlice::new(ptr, len as usize) });
            return Ok(());
        }
        // SAFETY: `runs` yields runs inside live mappings, pinned by this view for `'v`.
        self.runs(iova, len, false, &mut |ptr, n| {
            visit(unsafe { ReadSlice::new(ptr, n) })
        })
    }

    /// Borrows a range for writing, run by run.
    ///
    /// # Errors
    /// As [`View::write`]; nothing is visited then.
    #[inline]
    pub fn write_slices<'v>(
        &'v self,
        iova: u64,
        len: u64,
        visit: &mut dyn FnMut(WriteSlice<'v>),
    ) -> Result<(), Fault> {
        if let Some(ptr) = self.near(iova, len, true) {
            // SAFETY: promise of `near`, pinned by this view for `'v`.
            visit(unsafe { WriteSlice::new(ptr, len as usize) });
            return Ok(());
        }
        // SAFETY: as above, and `runs` checked that the regions are writable.
        self.runs(iova, len, true, &mut |ptr, n| {
            visit(unsafe { WriteSlice::new(ptr, n) })
        })
    }
}
