//! Surviving a peer that truncates the file we have mapped.
//!
//! The kernel answers an access beyond the end of a mapped file with `SIGBUS`. The handler here
//! looks the address up in a fixed table of the mappings we watch, puts zero pages of our own
//! under the rest of that mapping, counts, and returns: the access underway ends, later ones find
//! the mapping spoiled and fault, and no other peer notices. So a peer costs us the pages of one
//! access, not of its file. An address that is not ours gets the default action.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Once};

use crate::account::Account;

/// Memory files that one process can have mapped for all its peers.
pub const MAX_MAPPINGS: usize = 16 * 1024;

struct Watched {
    used: AtomicBool,
    /// Odd while the range changes.
    version: AtomicUsize,
    start: AtomicUsize,
    len: AtomicUsize,
    hits: AtomicU64,
    /// Whose mapping it is; the mapping keeps it alive.
    account: AtomicPtr<Account>,
}

impl Watched {
    const fn free() -> Self {
        Self {
            used: AtomicBool::new(false),
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            account: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Only the holder of `used` may call this.
    fn set(&self, start: usize, len: usize) {
        self.begin();
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.finish();
    }

    fn begin(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    fn finish(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Start and length, of one and the same mapping. `None` while they change: the mapping that
    /// a thread is just touching is there, and its range does not.
    fn range(&self) -> Option<(usize, usize)> {
        let before = self.version.load(Ordering::Acquire);
        let range = (
            self.start.load(Ordering::Relaxed),
            self.len.load(Ordering::Relaxed),
        );
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(range)
    }
}

static TABLE: [Watched; MAX_MAPPINGS] = [const { Watched::free() }; MAX_MAPPINGS];

/// A place in the table; released by its mapping before it unmaps.
pub(crate) struct Slot(usize);

impl Slot {
    pub(crate) fn hits(&self) -> u64 {
        TABLE[self.0].hits.load(Ordering::Relaxed)
    }

    pub(crate) fn release(&self) {
        let slot = &TABLE[self.0];
        slot.set(0, 0);
        slot.used.store(false, Ordering::Release);
    }
}

/// The mapping must keep `account` until it has released the slot.
pub(crate) fn watch(start: usize, len: usize, account: &Arc<Account>) -> Option<Slot> {
    for (i, slot) in TABLE.iter().enumerate() {
        if !slot.used.swap(true, Ordering::AcqRel) {
            slot.hits.store(0, Ordering::Relaxed);
            let account = Arc::as_ptr(account).cast_mut();
            slot.account.store(account, Ordering::Relaxed);
            slot.set(start, len);
            return Some(Slot(i));
        }
    }
    None
}

/// Installs the handler, once per process. Without it a peer that truncates its memory file
/// ends the process; with it only that peer's memory is gone.
pub fn install_sigbus_guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `sigaction` with a handler that only reads atomics and calls mmap/sigaction,
        // all async-signal-safe; the struct is zeroed and then filled as the call wants it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_sigbus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let addr = unsafe { (*info).si_addr() } as usize;
    for slot in &TABLE {
        let Some((start, len)) = slot.range() else {
            continue;
        };
        if len == 0 || addr < start || addr - start >= len {
            continue;
        }
        let page = addr & !0xfff;
        // From the page that is gone to the end; a huge-page mapping can only be replaced whole.
        let done = zero_pages(page, start + len - page) || zero_pages(start, len);
        if done {
            if slot.hits.fetch_add(1, Ordering::Relaxed) == 0 {
                // SAFETY: this thread is just touching the mapping, which therefore lives, and with
                // it the account (promise of `watch`). Only an atomic in it is used.
                unsafe { &*slot.account.load(Ordering::Relaxed) }.spoil();
            }
            return;
        }
    }
    // Not ours: the next instruction faults again and meets the default action.
    // SAFETY: as in `install_sigbus_guard`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        if libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) == 0 {
            return;
        }
    }
    // A thread that may not make this call would fault here for ever.
    end();
}

/// Ends the process without a system call.
fn end() -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an instruction that is none, whose signal nobody handles so that the process goes on.
    unsafe {
        std::arch::asm!("ud2", options(noreturn));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("udf #0", options(noreturn));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::process::abort()
}

fn zero_pages(start: usize, len: usize) -> bool {
    // SAFETY: start..start+len lies inside a mapping that this crate made and still owns (its
    // slot is released before munmap); replacing it keeps every pointer into it valid.
    let got = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    got != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_used_anew_never_shows_the_start_of_one_mapping_with_the_length_of_another() {
        let slot = Watched::free();
        slot.set(0x1000, 0x5000);
        assert_eq!(slot.range(), Some((0x1000, 0x5000)));
        // Wherever the next owner is interrupted on its way, a handler passes the slot over.
        slot.begin();
        assert_eq!(slot.range(), None);
        slot.start.store(0x9000, Ordering::Relaxed);
        assert_eq!(slot.range(), None);
        slot.len.store(0x2000, Ordering::Relaxed);
        assert_eq!(slot.range(), None);
        slot.finish();
        assert_eq!(slot.range(), Some((0x9000, 0x2000)));
    }

    #[test]
    fn whatever_is_seen_while_owners_change_is_whole() {
        let slot = Watched::free();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in (1..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    slot.set(n, n * 3);
                    slot.set(0, 0);
                }
            });
            for _ in 0..if cfg!(miri) { 100 } else { 300_000 } {
                if let Some((start, len)) = slot.range() {
                    assert_eq!(len, start * 3);
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
