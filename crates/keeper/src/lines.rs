//! Connections that outlive their worker, by names: each in a file in memory that the page names.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::MemfdFlags;

use crate::exact::{Link, Memory, WORDS};
use crate::shared::{self, Shared};
use crate::sys;

/// What the page notes of such a file: that it is one, and of which form. Another build has another form, perhaps.
const IS: [u64; 2] = [0x6c69_6e65, FORM];
/// FNV-1a over what tells builds apart.
const FORM: u64 = {
    let text = concat!(env!("CARGO_PKG_VERSION"), " 2").as_bytes();
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < text.len() {
        hash = (hash ^ text[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash ^ size_of::<Memory>() as u64
};

/// A connection's memory while nobody has its link.
struct Spare {
    memory: &'static Memory,
    file: OwnedFd,
}

#[derive(Default)]
struct Spares {
    /// Of the worker before, by the keys of their names.
    left: HashMap<u64, Spare>,
    /// Of connections whose owners are gone.
    free: Vec<Spare>,
}

static SPARES: OnceLock<Mutex<Spares>> = OnceLock::new();

fn spares() -> MutexGuard<'static, Spares> {
    let spares = SPARES.get_or_init(Mutex::default);
    spares.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of a connection, until its last user is gone; then another connection may have it.
pub struct Home {
    memory: &'static Memory,
    name: Vec<u8>,
    file: Option<OwnedFd>,
}

impl Home {
    /// The words that are true as soon as they are stored.
    pub fn words(&self) -> &'static [AtomicU64; WORDS] {
        Link::words_of(self.memory)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(page) = shared::current() {
            page.forget(&self.name);
        }
        if let Some(file) = self.file.take() {
            spares().free.push(Spare {
                memory: self.memory,
                file,
            });
        }
    }
}

fn key(name: &str) -> Vec<u8> {
    format!("line {name}").into_bytes()
}

/// The connection of this name, as the worker before has left it, or new. It may be had once at a time. `None` where there is no
/// keeper.
///
/// # Errors
/// No memory or descriptor is left, or the page has no place for it.
pub fn line(name: &str) -> io::Result<Option<(Link, Arc<Home>)>> {
    let Some(page) = shared::current() else {
        return Ok(None);
    };
    let name = key(name);
    let left = spares().left.remove(&crate::nics::key(&name));
    let goes_on = left.is_some();
    let used = left.or_else(|| spares().free.pop());
    let is_new = used.is_none();
    let spare = used.map_or_else(new, Ok)?;
    // Where little memory may be locked, the pages are as good as always there.
    let _ = Link::pin(spare.memory);
    let mut link = Link::resume(spare.memory);
    if !goes_on {
        link.reset();
        // New memory is zeros, and none where nobody looks.
        let words = link.words().iter().filter(|_| !is_new);
        words.for_each(|word| word.store(0, Ordering::Relaxed));
        if !page.keep(&name, spare.file.as_fd(), IS) {
            spares().free.push(spare);
            return Err(io::Error::other("too many descriptors are kept"));
        }
    }
    let home = Home {
        memory: spare.memory,
        name,
        file: Some(spare.file),
    };
    Ok(Some((link, Arc::new(home))))
}

fn new() -> io::Result<Spare> {
    let file = rustix::fs::memfd_create("connection", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, size_of::<Memory>() as u64)?;
    let memory = sys::share_file(file.as_fd())?;
    Ok(Spare { memory, file })
}

/// Finds what the worker before has left. Returns the numbers of all descriptors that its connections need.
pub(crate) fn find(page: &Shared) -> Vec<RawFd> {
    let mut numbers = Vec::new();
    let mut spares = spares();
    for kept in page.left().kept {
        if kept.notes[0] != IS[0] {
            continue;
        }
        // The table may be full: nothing is opened here.
        let file = sys::take_over(kept.fd).filter(|_| kept.notes == IS);
        let memory = file.as_ref().map(|file| sys::share_file(file.as_fd()));
        let (Some(Ok(memory)), Some(file)) = (memory, file) else {
            page.forget_key(kept.key);
            continue;
        };
        numbers.push(file.as_raw_fd());
        numbers.extend(Link::resume(memory).all_numbers());
        spares.left.insert(kept.key, Spare { memory, file });
    }
    numbers
}

/// Whether the worker before has left a connection to go on with that nobody has asked for yet, and this is its socket.
pub fn is_held(socket: BorrowedFd<'_>) -> bool {
    let file = sys::identity(socket.as_raw_fd());
    let is = |number: RawFd| file.is_some() && sys::identity(number) == file;
    let holds = |spare: &Spare| Link::resume(spare.memory).all_numbers().into_iter().any(is);
    spares().left.values().any(holds)
}

/// Looks at the connection of this name that the worker before has left, which stays there. `None`: there is none.
pub fn look<T>(name: &str, at: impl FnOnce(&Link) -> T) -> Option<T> {
    let spares = spares();
    let left = spares.left.get(&crate::nics::key(&key(name)))?;
    Some(at(&Link::resume(left.memory)))
}

/// Closes what the worker before has left and nobody has asked for: its peers see that.
pub fn end() {
    let left = std::mem::take(&mut spares().left);
    for (key, Spare { memory, file }) in left {
        let mut link = Link::resume(memory);
        let numbers = link.all_numbers();
        link.reset();
        for number in numbers {
            drop(sys::take_over(number));
        }
        if let Some(page) = shared::current() {
            page.forget_key(key);
        }
        spares().free.push(Spare { memory, file });
    }
}
