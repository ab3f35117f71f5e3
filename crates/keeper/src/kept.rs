//! Descriptors that workers leave to the next one, by name.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::handover::across::Kept;
use crate::nics::key;
use crate::sys;

/// Descriptors that can be left to the next worker.
const PLACES: usize = 8192;

/// A descriptor that outlives its worker.
struct KeptRecord {
    /// The hash of what it is; 0: the place is free.
    key: AtomicU64,
    fd: AtomicU32,
    /// Device and inode of the file, by which a number that has become another's is noticed.
    file: [AtomicU64; 2],
    notes: [AtomicU64; 2],
}

/// All of them, in memory that keeper and workers share.
pub(crate) struct Table([KeptRecord; PLACES]);

impl Table {
    /// Leaves a descriptor to the next worker, should this one die: it finds it by `name`, with `notes`.
    ///
    /// False if there is no place left; it is closed then as any other.
    pub fn keep(&self, name: &[u8], fd: BorrowedFd<'_>, notes: [u64; 2]) -> bool {
        self.keep_number(name, fd.as_raw_fd(), notes)
    }

    /// The same of a descriptor by its number, for a caller who has another thread do it. It stays open meanwhile.
    pub fn keep_number(&self, name: &[u8], fd: RawFd, notes: [u64; 2]) -> bool {
        // Two threads take no place at once.
        static WRITERS: Mutex<()> = Mutex::new(());
        let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(name);
        let (Ok(number), Some(file)) = (u32::try_from(fd), sys::identity(fd)) else {
            self.forget_key(key);
            return false;
        };
        let mut free = None;
        let mut before = Vec::new();
        for record in &self.0 {
            match record.key.load(Ordering::Acquire) {
                0 => free = free.or(Some(record)),
                is if is != key => {}
                _ if record.has(number, file, notes) => return true,
                _ => before.push(record),
            }
        }
        // In a full table what there was makes place.
        let Some(record) = free.or_else(|| before.first().copied()) else {
            return false;
        };
        if free.is_none() {
            record.key.store(0, Ordering::Release);
        }
        record.put(number, file, notes);
        // A worker that dies before has left what there was.
        record.key.store(key, Ordering::Release);
        let others = before.iter().filter(|other| !std::ptr::eq(**other, record));
        others.for_each(|other| other.key.store(0, Ordering::Release));
        true
    }

    /// Leaves a file to the next worker in the place of the one of that name. If there is no place left it is closed.
    pub fn leave(&self, name: &[u8], file: OwnedFd, notes: [u64; 2]) {
        let before = self.find(name).and_then(KeptRecord::number);
        if self.keep(name, file.as_fd(), notes) {
            // The page has it from now on.
            let _ = file.into_raw_fd();
        }
        drop(before.and_then(sys::take_over));
    }

    /// What is kept with such a first note: keys and numbers.
    pub fn noted(&self, note: u64) -> impl Iterator<Item = (u64, RawFd)> {
        let is = move |record: &&KeptRecord| record.notes[0].load(Ordering::Relaxed) == note;
        self.0.iter().filter(is).filter_map(|record| {
            let key = record.key.load(Ordering::Acquire);
            Some((key, record.number().filter(|_| key != 0)?))
        })
    }

    /// Closes what is kept with such a first note, but for what is kept by one of these names: nobody goes on with it.
    pub fn close_others(&self, note: u64, names: &[Vec<u8>]) {
        let keys: HashSet<u64> = names.iter().map(|name| key(name)).collect();
        // One file may have several names.
        let mut numbers = HashSet::new();
        for record in &self.0 {
            let is = record.key.load(Ordering::Acquire);
            let noted = record.notes[0].load(Ordering::Relaxed) == note;
            if is != 0 && noted && !keys.contains(&is) {
                numbers.extend(record.number());
                record.key.store(0, Ordering::Release);
            }
        }
        numbers.into_iter().for_each(|number| {
            drop(sys::take_over(number));
        });
    }

    fn records(&self, key: u64) -> impl Iterator<Item = &KeptRecord> {
        let is = move |record: &&KeptRecord| record.key.load(Ordering::Acquire) == key;
        self.0.iter().filter(is)
    }

    fn find(&self, name: &[u8]) -> Option<&KeptRecord> {
        // A worker that died while it replaced one has left two, of which the older may be closed.
        let mut all = self.records(key(name));
        all.find(|record| record.number().is_some())
    }

    /// Whether a descriptor is left to the next worker by this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.records(key(name)).next().is_some()
    }

    /// A descriptor is about to be closed.
    pub fn forget(&self, name: &[u8]) {
        self.forget_key(key(name));
    }

    pub fn forget_key(&self, key: u64) {
        self.records(key)
            .for_each(|record| record.key.store(0, Ordering::Release));
    }

    /// Takes over what a worker before this one has left, and leaves it to nobody.
    pub fn take(&self, name: &[u8]) -> Option<(OwnedFd, [u64; 2])> {
        let taken = self.go_on(name);
        self.forget(name);
        taken
    }

    /// Takes over what a worker before this one has left. Unless it is forgotten, it is left to the next one too, which may come at
    /// any instruction from here on.
    pub fn go_on(&self, name: &[u8]) -> Option<(OwnedFd, [u64; 2])> {
        let record = self.find(name)?;
        let notes = std::array::from_fn(|at| record.notes[at].load(Ordering::Relaxed));
        sys::take_over(record.number()?).map(|fd| (fd, notes))
    }

    /// All of it, by key.
    pub fn all(&self) -> Vec<Kept> {
        let used = self.0.iter().filter_map(|record| {
            let key = record.key.load(Ordering::Acquire);
            let fd = record.number().filter(|_| key != 0)?;
            let notes = std::array::from_fn(|at| record.notes[at].load(Ordering::Relaxed));
            Some(Kept { key, fd, notes })
        });
        used.collect()
    }

    /// Begins with what another program's keeper has left.
    pub fn begin_with(&self, all: &[Kept]) {
        for (record, kept) in self.0.iter().zip(all) {
            let Some(file) = sys::identity(kept.fd) else {
                continue;
            };
            record.put(kept.fd.cast_unsigned(), file, kept.notes);
            record.key.store(kept.key, Ordering::Release);
        }
    }

    /// The numbers of all that is left to the next worker.
    pub fn numbers(&self) -> impl Iterator<Item = RawFd> {
        let used = |record: &&KeptRecord| record.key.load(Ordering::Acquire) != 0;
        self.0.iter().filter(used).filter_map(KeptRecord::number)
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

    fn has(&self, number: u32, file: [u64; 2], notes: [u64; 2]) -> bool {
        let are = |words: &[AtomicU64; 2], values: [u64; 2]| {
            words.each_ref().map(|word| word.load(Ordering::Relaxed)) == values
        };
        self.fd.load(Ordering::Relaxed) == number
            && are(&self.file, file)
            && are(&self.notes, notes)
    }

    /// Its number, if that is still the file that was left.
    fn number(&self) -> Option<RawFd> {
        let number = RawFd::try_from(self.fd.load(Ordering::Relaxed)).ok()?;
        let [dev, ino] = &self.file;
        let file = [dev, ino].map(|word| word.load(Ordering::Relaxed));
        (sys::identity(number) == Some(file)).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover;

    fn table() -> Box<Table> {
        let record = || KeptRecord {
            key: AtomicU64::new(0),
            fd: AtomicU32::new(0),
            file: Default::default(),
            notes: Default::default(),
        };
        Box::new(Table(std::array::from_fn(|_| record())))
    }

    #[test]
    fn what_is_gone_on_with_stays_left_until_it_is_forgotten_or_replaced() {
        let page = table();
        let file = |text: &str| handover::file_of("test", text.as_bytes()).expect("a file");
        let places = || page.records(key(b"a")).count();
        let [one, two] = ["1", "2"].map(file);
        let [first, second] = [&one, &two].map(AsRawFd::as_raw_fd);
        assert!(page.keep(b"a", one.as_fd(), [1, 2]));
        // The page has it.
        let _ = one.into_raw_fd();
        let (one, notes) = page.go_on(b"a").expect("left");
        assert_eq!((one.as_raw_fd(), notes), (first, [1, 2]));
        assert!(page.has(b"a"), "to the next one, too");
        for notes in [[1, 2], [3, 4]] {
            assert!(page.keep(b"a", one.as_fd(), notes));
            assert_eq!(places(), 1);
        }
        // A worker that dies while it replaces one has left two.
        let another = page.records(0).next().expect("a place");
        let identity = sys::identity(second).expect("open");
        another.put(second.cast_unsigned(), identity, [5, 6]);
        another.key.store(key(b"a"), Ordering::Release);
        drop(one);
        let _ = two.into_raw_fd();
        let (two, notes) = page.go_on(b"a").expect("the one that is open");
        assert_eq!((two.as_raw_fd(), notes), (second, [5, 6]));
        assert_eq!(places(), 2);
        assert!(page.keep(b"a", two.as_fd(), [7, 8]));
        assert_eq!(places(), 1);
        let _ = two.into_raw_fd();
        assert!(page.take(b"a").is_some());
        assert_eq!(places(), 0);
        assert!(page.go_on(b"a").is_none() && !page.has(b"a"));
    }

    #[test]
    fn a_full_table_keeps_what_takes_the_place_of_what_was_there() {
        let page = table();
        let file = handover::file_of("test", b"1").expect("a file");
        let name = |n: usize| format!("{n}").into_bytes();
        for n in 0..PLACES {
            assert!(page.keep(&name(n), file.as_fd(), [0, 0]), "{n}");
        }
        assert!(!page.keep(b"one more", file.as_fd(), [0, 0]));
        let other = handover::file_of("test", b"2").expect("a file");
        assert!(page.keep(&name(7), other.as_fd(), [0, 0]));
        let number = page.find(&name(7)).and_then(KeptRecord::number);
        assert_eq!(number, Some(other.as_raw_fd()));
    }

    #[test]
    fn what_nobody_goes_on_with_is_closed_and_the_rest_stays() {
        let page = table();
        let pipe = || rustix::pipe::pipe().expect("a pipe");
        let [(left, left_end), (stays, stays_end), (other, other_end)] = [pipe(), pipe(), pipe()];
        for (name, fd, note) in [
            (&b"left"[..], &left_end, 7),
            (b"left too", &left_end, 7),
            (b"stays", &stays_end, 7),
            (b"another's", &other_end, 8),
        ] {
            assert!(page.keep(name, fd.as_fd(), [note, 0]));
        }
        for end in [left_end, stays_end, other_end] {
            // The page has them.
            let _ = end.into_raw_fd();
        }
        page.close_others(7, &[b"stays".to_vec()]);
        let has = [&b"left"[..], b"left too", b"stays", b"another's"].map(|name| page.has(name));
        assert_eq!(has, [false, false, true, true]);
        for (reads, open) in [(left, false), (stays, true), (other, true)] {
            rustix::io::ioctl_fionbio(&reads, true).expect("set");
            let read = rustix::io::read(&reads, &mut [0; 1]);
            assert_eq!(read.is_err(), open, "{read:?}");
        }
        page.close_others(7, &[]);
        page.close_others(8, &[]);
        assert_eq!(page.numbers().count(), 0);
    }
}
