//! The page that keeper and worker share: what a worker leaves behind when it dies.
//!
//! A worker may die between any two stores, and it may have gone mad before. So the keeper believes nothing in here further
//! than it must: numbers are checked before they are used as indices, and no pointer is in it.

use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::handover::across::Left;
use crate::handover::{self, Handover, Head};
use crate::kept::Table;
use crate::nics::Nics;
use crate::sys::{self, Shareable};
use crate::turns::{self, NicId};

/// Threads that are watched; more are not.
pub(crate) const THREADS: usize = 192;

/// A thread of the worker without a word.
const NOBODYS: u32 = u32::MAX;

/// Places of threads that are no workers' and give frames to NICs, such as those of ports: so many from there on.
const OTHERS: std::ops::Range<usize> = 128..THREADS;

/// What keeper and worker share.
pub struct Shared {
    /// Workers so far, this one included.
    life: AtomicU64,
    /// This worker has begun to serve.
    serving: AtomicU32,
    hangs: AtomicU64,
    /// How the worker before ended: a signal, or 0.
    last_signal: AtomicU32,
    last_hung: AtomicU32,
    /// The thread that the worker died of, [`NOBODYS`], or 0.
    faulted: AtomicU32,
    /// The system had no memory for this worker.
    starved: AtomicU32,
    /// Their words, as [`turns`] has them.
    threads: [AtomicU64; THREADS],
    /// The kernel's numbers of them.
    tids: [AtomicU32; THREADS],
    nics: Nics,
    kept: Table,
    /// The descriptor of the file that a worker has left which ended by itself, plus 1; 0: there is none.
    handover: AtomicU32,
    /// How often workers have named other cells.
    cells: AtomicU32,
}

// SAFETY: its fields, and those of what it is made of, are atomic integers.
#[allow(unsafe_code)]
unsafe impl Shareable for Shared {}

static CURRENT: OnceLock<&'static Shared> = OnceLock::new();

/// The calling thread has done what ends the worker. For a handler of signals: it stores, and calls nothing.
pub fn note_fault() {
    let Some(page) = current() else { return };
    let is_it = |word: &AtomicU64| MINE.get().is_some_and(|mine| std::ptr::eq(mine.0, word));
    let at = page.threads.iter().position(is_it);
    page.note_fault(at);
}

/// The system has no memory for this worker. Stores, and calls nothing.
fn note_starved() {
    if let Some(page) = current() {
        page.note_starved();
    }
}

/// What this worker shares with its keeper; `None` without one.
pub fn current() -> Option<&'static Shared> {
    CURRENT.get().copied()
}

/// A thread's word.
#[derive(Clone, Copy)]
pub struct Thread(&'static AtomicU64);

impl Thread {
    /// A turn of this NIC begins.
    #[inline]
    pub fn begin(&self, nic: Option<NicId>) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(turns::begun(word, nic), Ordering::Relaxed);
    }

    /// It is over.
    #[inline]
    pub fn end(&self) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(turns::ended(word), Ordering::Relaxed);
    }
}

thread_local! {
    /// The calling thread's word.
    static MINE: Cell<Option<Thread>> = const { Cell::new(None) };
    /// Its place, if it is one of [`OTHERS`].
    static PLACE: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Which of [`OTHERS`] are taken, a bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// One of [`OTHERS`], until its thread ends.
struct Place(u32);

impl Place {
    fn take() -> Option<Self> {
        let free = |taken: u64| (taken != !0).then(|| taken | (taken + 1));
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free);
        Some(Self(taken.ok()?.trailing_ones()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << self.0), Ordering::Relaxed);
    }
}

/// A word for a thread that is no worker's.
#[cold]
fn join() -> Option<Thread> {
    let page = current()?;
    let place = Place::take()?;
    let thread = Thread(page.threads.get(OTHERS.start + place.0 as usize)?);
    MINE.set(Some(thread));
    PLACE.set(Some(place));
    Some(thread)
}

/// While this lives, the calling thread gives frames to a NIC. See [`gives_to`].
pub struct Gives(Option<(Thread, u64)>);

/// The calling thread gives this NIC frames, in another one's turn or in nobody's. If the worker dies of it, either may be to
/// blame: whose fault it was shows when it dies again with others.
#[inline]
#[must_use]
pub fn gives_to(nic: Option<NicId>) -> Gives {
    let Some(nic) = nic else { return Gives(None) };
    let Some(thread) = MINE.get().or_else(join) else {
        return Gives(None);
    };
    let before = thread.0.load(Ordering::Relaxed);
    thread
        .0
        .store(turns::giving(before, nic), Ordering::Relaxed);
    Gives(Some((thread, before)))
}

impl Drop for Gives {
    #[inline]
    fn drop(&mut self) {
        if let Some((thread, before)) = self.0 {
            thread.0.store(before, Ordering::Relaxed);
        }
    }
}

/// How a worker ended, as the next one finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Workers before this one.
    pub lives: u64,
    /// The signal that killed the last.
    pub signal: u32,
    /// It was killed because a turn did not end.
    pub hung: bool,
}

impl Shared {
    pub(crate) fn new() -> std::io::Result<&'static Self> {
        sys::share()
    }

    pub(crate) fn enter(&'static self) {
        let _ = CURRENT.set(self);
        sys::on_no_memory(note_starved);
    }

    /// For the worker that is made next.
    pub(crate) fn begin_life(&self) {
        self.life.fetch_add(1, Ordering::Relaxed);
        self.serving.store(0, Ordering::Relaxed);
        self.faulted.store(0, Ordering::Relaxed);
        self.starved.store(0, Ordering::Relaxed);
        for thread in &self.threads {
            thread.store(0, Ordering::Relaxed);
        }
    }

    /// Says that all is open and served from now on.
    pub fn serving(&self) {
        self.serving.store(1, Ordering::Release);
    }

    pub(crate) fn has_served(&self) -> bool {
        self.serving.load(Ordering::Acquire) != 0
    }

    /// Which worker this is, from 1.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::Relaxed)
    }

    /// Workers that were killed because a turn did not end.
    pub fn hangs(&self) -> u64 {
        self.hangs.load(Ordering::Relaxed)
    }

    /// How the worker before ended, if there was one.
    pub fn before(&self) -> Option<Before> {
        let lives = self.life().checked_sub(1).filter(|lives| *lives > 0)?;
        Some(Before {
            lives,
            signal: self.last_signal.load(Ordering::Relaxed),
            hung: self.last_hung.load(Ordering::Relaxed) != 0,
        })
    }

    pub(crate) fn note_end(&self, signal: i32, hung: bool) {
        let signal = u32::try_from(signal).unwrap_or(0);
        self.last_signal.store(signal, Ordering::Relaxed);
        self.last_hung.store(hung.into(), Ordering::Relaxed);
        self.hangs.fetch_add(hung.into(), Ordering::Relaxed);
    }

    /// The word of the calling thread, which is number `at` of the worker. `None`: there are too many to watch.
    pub fn thread(&'static self, at: usize) -> Option<Thread> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let tid = u32::try_from(tid).unwrap_or(0);
        self.tids.get(at)?.store(tid, Ordering::Relaxed);
        let thread = self.threads.get(at).map(Thread);
        MINE.set(thread);
        thread
    }

    /// The kernel's number of thread `at`.
    pub(crate) fn tid(&self, at: usize) -> u32 {
        self.tids
            .get(at)
            .map_or(0, |tid| tid.load(Ordering::Relaxed))
    }

    /// The words of threads that a worker may have died of: of one, of none, or of any if nobody has said which. Then nothing is
    /// known of who got frames, either: many do all the time.
    pub(crate) fn suspects(&self) -> Vec<u64> {
        match self.faulted.load(Ordering::Relaxed) {
            0 => self.words().map(turns::turn).collect(),
            at => {
                let word = self.threads.get(at as usize - 1);
                let word = word.map(|word| word.load(Ordering::Relaxed));
                word.into_iter().collect()
            }
        }
    }

    /// The system has no memory for this worker: if it dies, that is no NIC's doing.
    pub(crate) fn note_starved(&self) {
        self.starved.store(1, Ordering::Relaxed);
    }

    /// Whether the system had no memory for this worker.
    pub(crate) fn was_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) != 0
    }

    /// The worker is to die of this thread. `None`: of one without a word.
    pub(crate) fn note_fault(&self, at: Option<usize>) {
        let at = at.map_or(NOBODYS, |at| at as u32 + 1);
        // The first one counts: others follow.
        let _ = self
            .faulted
            .compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.threads.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// The NICs that it knows.
    pub fn nics(&self) -> &Nics {
        &self.nics
    }

    /// Leaves a descriptor to the next worker, should this one die: it finds it by `name`, with `notes`.
    ///
    /// False if there is no place left; it is closed then as any other.
    pub fn keep(&self, name: &[u8], fd: BorrowedFd<'_>, notes: [u64; 2]) -> bool {
        self.kept.keep(name, fd, notes)
    }

    /// The same of a descriptor by its number, for a caller who has another thread do it. It stays open meanwhile.
    pub fn keep_number(&self, name: &[u8], fd: RawFd, notes: [u64; 2]) -> bool {
        self.kept.keep_number(name, fd, notes)
    }

    /// Leaves a file to the next worker in the place of the one of that name. If there is no place left it is closed.
    pub fn leave(&self, name: &[u8], file: OwnedFd, notes: [u64; 2]) {
        self.kept.leave(name, file, notes);
    }

    /// What is kept with such a first note: keys and numbers.
    pub(crate) fn noted(&self, note: u64) -> impl Iterator<Item = (u64, RawFd)> {
        self.kept.noted(note)
    }

    /// Closes what is kept with such a first note, but for what is kept by one of these names: nobody goes on with it.
    pub fn close_others(&self, note: u64, names: &[Vec<u8>]) {
        self.kept.close_others(note, names);
    }

    /// Whether a descriptor is left to the next worker by this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.kept.has(name)
    }

    /// A descriptor is about to be closed.
    pub fn forget(&self, name: &[u8]) {
        self.kept.forget(name);
    }

    pub(crate) fn forget_key(&self, key: u64) {
        self.kept.forget_key(key);
    }

    /// Takes over what a worker before this one has left, and leaves it to nobody.
    pub fn take(&self, name: &[u8]) -> Option<(OwnedFd, [u64; 2])> {
        self.kept.take(name)
    }

    /// Takes over what a worker before this one has left. Unless it is forgotten, it is left to the next one too, which may come at
    /// any instruction from here on.
    pub fn go_on(&self, name: &[u8]) -> Option<(OwnedFd, [u64; 2])> {
        self.kept.go_on(name)
    }

    /// Other cells are named than before.
    pub(crate) fn name_cells(&self) {
        self.cells.fetch_add(1, Ordering::Release);
    }

    /// How often that was.
    pub(crate) fn cells_named(&self) -> u32 {
        self.cells.load(Ordering::Acquire)
    }

    /// Leaves everything to the next worker, which is started when this one has ended, or to another program if one is named. From
    /// here on this worker does nothing more. The descriptors are left open, and are found by their numbers.
    ///
    /// # Errors
    /// There is no memory or descriptor for it; nothing is left.
    pub fn hand_over(
        &self,
        descriptors: &[RawFd],
        program: Option<&Path>,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let file = handover::write(descriptors, program, payload)?;
        let number = file.into_raw_fd();
        self.handover
            .store(number.cast_unsigned() + 1, Ordering::Release);
        Ok(())
    }

    /// What the worker before has left, for the one that goes on.
    pub fn take_handover(&self) -> Option<Handover> {
        let number = self.handover_file()?;
        self.handover.store(0, Ordering::Release);
        handover::read(sys::take_over(number)?).ok()
    }

    /// The descriptor of the file with what is left.
    pub(crate) fn handover_file(&self) -> Option<RawFd> {
        let number = self.handover.load(Ordering::Acquire).checked_sub(1)?;
        RawFd::try_from(number).ok()
    }

    /// The list at the beginning of what is left.
    pub(crate) fn handover_head(&self) -> Option<Head> {
        let file = sys::duplicate(self.handover_file()?)?;
        handover::head(&file.into()).ok()
    }

    /// All descriptors that the next worker finds open: those with names, and those of what a worker has left that ended by itself.
    pub(crate) fn left_open(&self) -> HashSet<RawFd> {
        let head = self.handover_head().unwrap_or_default();
        let named = self.kept.numbers();
        named
            .chain(head.descriptors)
            .chain(self.handover_file())
            .collect()
    }

    /// All that the next program needs to know.
    pub(crate) fn left(&self) -> Left {
        Left {
            life: self.life(),
            handover: self.handover_file(),
            kept: self.kept.all(),
            cells: Vec::new(),
        }
    }

    /// Goes on with what another program's keeper has left.
    pub(crate) fn begin_with(&self, left: &Left) {
        self.life.store(left.life, Ordering::Relaxed);
        self.kept.begin_with(&left.kept);
        if let Some(number) = left.handover {
            self.handover
                .store(number.cast_unsigned().wrapping_add(1), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::{in_turn, served, turn};
    #[test]
    fn of_a_death_whose_thread_is_known_only_that_thread_is_suspected() {
        let page = Shared::new().expect("a page");
        let threads = || [0, 1].map(|at| Thread(&page.threads[at]));
        let begin = || {
            page.begin_life();
            let [one, other] = threads();
            one.begin(Some(NicId(1)));
            other.begin(Some(NicId(2)));
            let word = other.0.load(Ordering::Relaxed);
            let word = turns::giving(word, NicId(3));
            other.0.store(word, Ordering::Relaxed);
        };
        let suspects = || -> Vec<_> {
            let words = page.suspects().into_iter();
            let pairs = words.map(|word| (in_turn(word), served(word)));
            pairs.filter(|pair| *pair != (None, None)).collect()
        };
        begin();
        // Nobody has said which: who had a turn, then.
        assert_eq!(suspects(), [(Some(1), None), (Some(2), None)]);
        page.note_fault(Some(1));
        assert_eq!(suspects(), [(Some(2), Some(3))]);
        page.note_fault(Some(0));
        assert_eq!(suspects(), [(Some(2), Some(3))], "the first one counts");
        begin();
        page.note_fault(None);
        assert!(suspects().is_empty(), "no NIC's thread");
    }

    #[test]
    fn a_turn_that_gives_frames_is_the_same_turn() {
        let thread = Thread(Box::leak(Box::new(AtomicU64::new(0))));
        MINE.set(Some(thread));
        let [sender, outer, inner] = [3, 7, 9].map(NicId);
        thread.begin(Some(sender));
        let read = || thread.0.load(Ordering::Relaxed);
        let began = read();
        {
            let _outer = gives_to(Some(outer));
            assert_eq!((in_turn(read()), served(read())), (Some(3), Some(7)));
            assert_eq!(turn(read()), began);
            {
                let _inner = gives_to(Some(inner));
                assert_eq!(served(read()), Some(9));
            }
            assert_eq!(served(read()), Some(7));
        }
        assert_eq!(read(), began);
        thread.end();
        thread.begin(Some(sender));
        assert_ne!(turn(read()), began, "the next turn");
        assert_eq!(served(read()), None);
    }
}
