//! The page that keeper and worker share: what a worker leaves behind when it dies.
//!
//! A worker may die between any two stores, and it may have gone mad before. So the keeper believes nothing in here further
//! than it must: numbers are checked before they are used as indices, and no pointer is in it.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::handover::across::{Kept, Left};
use crate::handover::{self, Handover, Head};
use crate::sys::{self, Shareable};

/// Threads that are watched; more are not.
pub(crate) const THREADS: usize = 128;
/// NICs that can be told apart; of more, the keeper cannot say which one a worker died of.
const NICS: usize = 4096;
/// Descriptors that can be left to the next worker.
const KEPT: usize = 8192;

/// Bits of a thread's word that say whose turn it is; 0 for nobody's.
const WHO: u64 = 0xffff;

/// Whose turn a thread's word says it is.
pub(crate) fn in_turn(word: u64) -> Option<usize> {
    let who = (word & WHO) as usize;
    who.checked_sub(1)
}

/// A NIC, known by the hash of its name.
struct NicRecord {
    key: AtomicU64,
    strikes: AtomicU32,
    /// Seconds of the keeper's clock.
    last: AtomicU64,
    quarantined: AtomicU32,
}

/// A descriptor that outlives its worker.
struct KeptRecord {
    /// The hash of what it is; 0: the place is free.
    key: AtomicU64,
    fd: AtomicU32,
    /// Device and inode of the file, by which a number that has become another's is noticed.
    file: [AtomicU64; 2],
    notes: [AtomicU64; 2],
}

/// What keeper and worker share.
pub struct Shared {
    /// Workers so far, this one included.
    life: AtomicU64,
    /// This worker has begun to serve.
    serving: AtomicU32,
    hangs: AtomicU64,
    quarantines: AtomicU64,
    /// How the worker before ended: a signal, or 0.
    last_signal: AtomicU32,
    last_hung: AtomicU32,
    threads: [AtomicU64; THREADS],
    /// The kernel's numbers of them.
    tids: [AtomicU32; THREADS],
    nics: [NicRecord; NICS],
    kept: [KeptRecord; KEPT],
    /// The descriptor of the file that a worker has left which ended by itself, plus 1; 0: there is none.
    handover: AtomicU32,
}

// SAFETY: its fields, and those of what it is made of, are atomic integers.
#[allow(unsafe_code)]
unsafe impl Shareable for Shared {}

static CURRENT: OnceLock<&'static Shared> = OnceLock::new();

/// What this worker shares with its keeper; `None` without one.
pub fn current() -> Option<&'static Shared> {
    CURRENT.get().copied()
}

/// A NIC as the page knows it.
#[derive(Clone, Copy, Debug)]
pub struct NicId(u16);

/// A thread's word.
#[derive(Clone, Copy)]
pub struct Thread(&'static AtomicU64);

impl Thread {
    /// A turn of this NIC begins.
    #[inline]
    pub fn begin(&self, nic: Option<NicId>) {
        let who = nic.map_or(WHO, |nic| u64::from(nic.0) + 1);
        let turns = self.0.load(Ordering::Relaxed) & !WHO;
        self.0
            .store(turns.wrapping_add(WHO + 1) | who, Ordering::Relaxed);
    }

    /// It is over.
    #[inline]
    pub fn end(&self) {
        let turns = self.0.load(Ordering::Relaxed) & !WHO;
        self.0.store(turns, Ordering::Relaxed);
    }
}

/// FNV-1a; 0 stands for "none", so it is not a value.
pub(crate) fn key(name: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step).max(1)
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
    }

    /// For the worker that is made next.
    pub(crate) fn begin_life(&self) {
        self.life.fetch_add(1, Ordering::Relaxed);
        self.serving.store(0, Ordering::Relaxed);
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
        self.threads.get(at).map(Thread)
    }

    /// The kernel's number of thread `at`.
    pub(crate) fn tid(&self, at: usize) -> u32 {
        self.tids
            .get(at)
            .map_or(0, |tid| tid.load(Ordering::Relaxed))
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.threads.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// A NIC's place, the same in every life. `None`: there are too many.
    pub fn nic(&self, name: &str) -> Option<NicId> {
        let key = key(name.as_bytes());
        for at in 0..NICS {
            let record = &self.nics[at];
            let won = record
                .key
                .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            if won.is_ok() || won == Err(key) {
                return u16::try_from(at).ok().map(NicId);
            }
        }
        None
    }

    /// Whether a NIC is not to be served.
    pub fn is_quarantined(&self, nic: NicId) -> bool {
        let record = self.nics.get(usize::from(nic.0));
        record.is_some_and(|record| record.quarantined.load(Ordering::Relaxed) != 0)
    }

    /// The NIC was taken off by its owner: another of its name begins anew.
    pub fn pardon(&self, nic: NicId) {
        if let Some(record) = self.nics.get(usize::from(nic.0)) {
            record.strikes.store(0, Ordering::Relaxed);
            record.quarantined.store(0, Ordering::Relaxed);
        }
    }

    /// NICs that were put into quarantine so far.
    pub fn quarantines(&self) -> u64 {
        self.quarantines.load(Ordering::Relaxed)
    }

    /// A worker died of a fault: the NICs whose turns it was in may be to blame. `now` is in seconds.
    pub(crate) fn blame(&self, now: u64, strikes: u32, forgiven: u64) {
        for nic in self.words().filter_map(in_turn) {
            let Some(record) = self.nics.get(nic) else {
                continue;
            };
            let last = record.last.swap(now, Ordering::Relaxed);
            let old = record.strikes.load(Ordering::Relaxed);
            let again = now.saturating_sub(last) < forgiven;
            let new = if again { old.saturating_add(1) } else { 1 };
            record.strikes.store(new, Ordering::Relaxed);
            if new >= strikes && record.quarantined.swap(1, Ordering::Relaxed) == 0 {
                self.quarantines.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Leaves a descriptor to the next worker, should this one die: it finds it by `name`, with `notes`.
    ///
    /// False if there is no place left; it is closed then as any other.
    pub fn keep(&self, name: &[u8], fd: BorrowedFd<'_>, notes: [u64; 2]) -> bool {
        let key = key(name);
        let Ok(number) = u32::try_from(fd.as_raw_fd()) else {
            return false;
        };
        self.forget(name);
        let free = self
            .kept
            .iter()
            .find(|record| record.key.load(Ordering::Relaxed) == 0);
        let Some(record) = free else { return false };
        let Some(file) = sys::identity(fd.as_raw_fd()) else {
            return false;
        };
        record.put(number, file, notes);
        // Last: a worker that dies before has left nothing.
        record.key.store(key, Ordering::Release);
        true
    }

    fn find(&self, name: &[u8]) -> Option<&KeptRecord> {
        let key = key(name);
        let is = |record: &&KeptRecord| record.key.load(Ordering::Acquire) == key;
        self.kept.iter().find(is)
    }

    /// A descriptor is about to be closed.
    pub fn forget(&self, name: &[u8]) {
        if let Some(record) = self.find(name) {
            record.key.store(0, Ordering::Release);
        }
    }

    pub(crate) fn forget_key(&self, key: u64) {
        let is = |record: &&KeptRecord| record.key.load(Ordering::Acquire) == key;
        if let Some(record) = self.kept.iter().find(is) {
            record.key.store(0, Ordering::Release);
        }
    }

    /// Takes over what a worker before this one has left. It is to be kept again.
    pub fn take(&self, name: &[u8]) -> Option<(OwnedFd, [u64; 2])> {
        let record = self.find(name)?;
        let number = record.number();
        let notes = std::array::from_fn(|at| record.notes[at].load(Ordering::Relaxed));
        record.key.store(0, Ordering::Release);
        sys::take_over(number?).map(|fd| (fd, notes))
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
        let named = self.kept();
        named
            .chain(head.descriptors)
            .chain(self.handover_file())
            .collect()
    }

    /// All that the next program needs to know.
    pub(crate) fn left(&self) -> Left {
        let used = self.kept.iter().filter_map(|record| {
            let key = record.key.load(Ordering::Acquire);
            let fd = record.number().filter(|_| key != 0)?;
            let notes = std::array::from_fn(|at| record.notes[at].load(Ordering::Relaxed));
            Some(Kept { key, fd, notes })
        });
        Left {
            life: self.life(),
            handover: self.handover_file(),
            kept: used.collect(),
        }
    }

    /// Goes on with what another program's keeper has left.
    pub(crate) fn begin_with(&self, left: &Left) {
        self.life.store(left.life, Ordering::Relaxed);
        for (record, kept) in self.kept.iter().zip(&left.kept) {
            let Some(file) = sys::identity(kept.fd) else {
                continue;
            };
            record.put(kept.fd.cast_unsigned(), file, kept.notes);
            record.key.store(kept.key, Ordering::Release);
        }
        if let Some(number) = left.handover {
            self.handover
                .store(number.cast_unsigned().wrapping_add(1), Ordering::Release);
        }
    }

    /// The numbers of all that is left to the next worker.
    pub(crate) fn kept(&self) -> impl Iterator<Item = RawFd> {
        let used = |record: &&KeptRecord| record.key.load(Ordering::Acquire) != 0;
        self.kept.iter().filter(used).filter_map(KeptRecord::number)
    }
}

impl KeptRecord {
    fn put(&self, number: u32, file: [u64; 2], notes: [u64; 2]) {
        for (place, word) in self.file.iter().zip(file) {
            place.store(word, Ordering::Relaxed);
        }
        for (place, note) in self.notes.iter().zip(notes) {
            place.store(note, Ordering::Relaxed);
        }
        self.fd.store(number, Ordering::Relaxed);
    }

    /// Its number, if that is still the file that was left.
    fn number(&self) -> Option<RawFd> {
        let number = RawFd::try_from(self.fd.load(Ordering::Relaxed)).ok()?;
        let [dev, ino] = &self.file;
        let file = [dev, ino].map(|word| word.load(Ordering::Relaxed));
        (sys::identity(number) == Some(file)).then_some(number)
    }
}
