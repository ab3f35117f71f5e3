//! Memory shared with the other side of a socket. The only module with `unsafe`.
//!
//! Both sides may change any byte at any time, so no Rust reference to the memory ever exists:
//! access goes through raw pointers, by copy or by atomic operations on aligned words.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

struct Inner {
    fd: OwnedFd,
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is to a mapping owned by this value alone; all access through it is by
// atomic operations or copies that tolerate concurrent change, so threads may share it.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `ptr` and `len` are what `mmap` gave, and nothing else unmaps them.
        let result = unsafe { rustix::mm::munmap(self.ptr.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok());
    }
}

/// Shared memory with its file descriptor: guest RAM in a test, a mappable BAR in a device, a
/// mapped area in a client. Clones are the same memory.
///
/// Offsets beyond the end panic, as slice indices do; they are the program's own, never a peer's.
#[derive(Clone)]
pub struct SharedMem(Arc<Inner>);

impl std::fmt::Debug for SharedMem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedMem")
            .field("len", &self.len())
            .finish()
    }
}

impl SharedMem {
    /// New zeroed memory of `len` bytes in a memfd. It is sealed against resizing, so the other
    /// side cannot pull it from under us.
    ///
    /// # Errors
    /// `memfd_create`, `ftruncate` or `mmap` failed, or `len` is 0.
    pub fn new(name: &str, len: usize) -> std::io::Result<Self> {
        let name = name.to_owned();
        let make = move || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create(name, flags)?;
            rustix::fs::ftruncate(&fd, len as u64)?;
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&fd, seals)?;
            Ok::<_, Errno>(fd)
        };
        // A worker makes no files.
        Ok(Self::map(threads::apart(make)?, 0, len)?)
    }

    /// Maps `len` bytes from `offset` (a multiple of the page size) of a file received from a peer.
    /// The file must be long enough and stay so: touching pages beyond its end raises `SIGBUS`.
    ///
    /// # Errors
    /// The file is shorter, or `mmap` failed.
    pub fn from_fd(fd: OwnedFd, offset: u64, len: usize) -> std::io::Result<Self> {
        let size = rustix::fs::fstat(&fd)?.st_size as u64;
        if offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(Errno::NXIO.into());
        }
        Ok(Self::map(fd, offset, len)?)
    }

    fn map(fd: OwnedFd, offset: u64, len: usize) -> Result<Self, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory of ours.
        let ptr = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED,
                &fd,
                offset,
            )
        }?;
        let ptr = NonNull::new(ptr.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self(Arc::new(Inner { fd, ptr, len })))
    }

    /// Keeps the first `len` bytes from being paged out, where the system grants that: the kernel writes into a page that is there
    /// even when the caller is about to be killed.
    pub fn pin(&self, len: usize) {
        let memory = self.clone();
        // A worker may not ask for it.
        threads::apart(move || {
            // SAFETY: the range is mapped for as long as `memory` lives, and locking changes nothing in it.
            let _ = unsafe { rustix::mm::mlock(memory.at(0, len).cast(), len) };
        });
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Start of `len` bytes at `offset`.
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.0.len),
            "{offset:#x}+{len:#x} is outside shared memory of {:#x} bytes",
            self.0.len
        );
        // SAFETY: the assertion keeps the result inside the mapping.
        unsafe { self.0.ptr.as_ptr().add(offset) }
    }

    /// Start of an aligned word.
    fn word<T>(&self, offset: usize) -> *mut T {
        assert!(
            offset.is_multiple_of(size_of::<T>()),
            "{offset:#x} is not aligned"
        );
        self.at(offset, size_of::<T>()).cast()
    }

    /// Copies out.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        let from = self.at(offset, data.len());
        // SAFETY: `at` checked the range; the regions cannot overlap, `data` being a Rust slice.
        unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len()) }
    }

    /// Copies in.
    pub fn write(&self, offset: usize, data: &[u8]) {
        let to = self.at(offset, data.len());
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
    }

    /// Fills `len` bytes.
    pub fn fill(&self, offset: usize, len: usize, value: u8) {
        let to = self.at(offset, len);
        // SAFETY: `at` checked the range.
        unsafe { std::ptr::write_bytes(to, value, len) }
    }

    /// Loads an 8-bit word.
    pub fn load_u8(&self, offset: usize, order: Ordering) -> u8 {
        // SAFETY: `word` checked range and alignment; the mapping lives as long as `self`.
        unsafe { AtomicU8::from_ptr(self.word(offset)) }.load(order)
    }

    /// Loads a naturally aligned 16-bit word in host order.
    pub fn load_u16(&self, offset: usize, order: Ordering) -> u16 {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU16::from_ptr(self.word(offset)) }.load(order)
    }

    /// Loads a naturally aligned 32-bit word in host order.
    pub fn load_u32(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU32::from_ptr(self.word(offset)) }.load(order)
    }

    /// Loads a naturally aligned 64-bit word in host order.
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }.load(order)
    }

    /// Stores an 8-bit word.
    pub fn store_u8(&self, offset: usize, value: u8, order: Ordering) {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU8::from_ptr(self.word(offset)) }.store(value, order);
    }

    /// Stores a naturally aligned 16-bit word in host order.
    pub fn store_u16(&self, offset: usize, value: u16, order: Ordering) {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU16::from_ptr(self.word(offset)) }.store(value, order);
    }

    /// Stores a naturally aligned 32-bit word in host order.
    pub fn store_u32(&self, offset: usize, value: u32, order: Ordering) {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU32::from_ptr(self.word(offset)) }.store(value, order);
    }

    /// Stores a naturally aligned 64-bit word in host order.
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }.store(value, order);
    }
}

/// A part of shared memory, found once: what the inner loop of a driver works on. An access costs
/// one comparison and the access itself.
///
/// Offsets are within the area; beyond its end they panic, as slice indices do.
#[derive(Clone)]
pub struct Area {
    ptr: NonNull<u8>,
    len: usize,
    /// Keeps the mapping.
    _owner: Arc<Inner>,
}

// SAFETY: as for `Inner`: nothing but copies and atomic operations, which tolerate other threads.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl std::fmt::Debug for Area {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Area").field("len", &self.len).finish()
    }
}

impl SharedMem {
    /// `len` bytes from `offset` on.
    ///
    /// # Panics
    /// When they lie beyond the end.
    pub fn area(&self, offset: usize, len: usize) -> Area {
        let ptr = NonNull::new(self.at(offset, len)).expect("a mapping is not at address 0");
        let _owner = Arc::clone(&self.0);
        Area { ptr, len, _owner }
    }
}

impl Area {
    /// Bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        if offset > self.len || len > self.len - offset {
            outside(offset, len, self.len);
        }
        // SAFETY: the comparison keeps the result inside the area.
        unsafe { self.ptr.as_ptr().add(offset) }
    }

    #[inline(always)]
    fn word<T>(&self, offset: usize) -> *mut T {
        assert!(offset.is_multiple_of(size_of::<T>()), "not aligned");
        self.at(offset, size_of::<T>()).cast()
    }

    /// Copies out.
    #[inline]
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        let from = self.at(offset, data.len());
        // SAFETY: `at` checked the range; the regions cannot overlap, `data` being a Rust slice.
        unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len()) }
    }

    /// Copies in.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) {
        let to = self.at(offset, data.len());
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
    }

    /// Reads `N` bytes wherever they lie.
    #[inline(always)]
    pub fn get<const N: usize>(&self, offset: usize) -> [u8; N] {
        let from = self.at(offset, N);
        // SAFETY: `at` checked the range, and bytes have no alignment; volatile because the other
        // side may write them now, and what is read is whatever it is.
        unsafe { from.cast::<[u8; N]>().read_volatile() }
    }

    /// Writes `N` bytes wherever they lie.
    #[inline(always)]
    pub fn put<const N: usize>(&self, offset: usize, bytes: [u8; N]) {
        let to = self.at(offset, N);
        // SAFETY: as in `get`.
        unsafe { to.cast::<[u8; N]>().write_volatile(bytes) }
    }

    /// Loads a byte.
    #[inline(always)]
    pub fn load_u8(&self, offset: usize, order: Ordering) -> u8 {
        // SAFETY: `word` checked range and alignment; the owner keeps the mapping.
        unsafe { AtomicU8::from_ptr(self.word(offset)) }.load(order)
    }

    /// Loads a naturally aligned 32-bit word in host order.
    #[inline(always)]
    pub fn load_u32(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU32::from_ptr(self.word(offset)) }.load(order)
    }

    /// Stores a naturally aligned 32-bit word in host order.
    #[inline(always)]
    pub fn store_u32(&self, offset: usize, value: u32, order: Ordering) {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU32::from_ptr(self.word(offset)) }.store(value, order);
    }

    /// Stores `new` in a naturally aligned 32-bit word in host order if it still is `old`; `false`
    /// if it is not.
    #[inline(always)]
    pub fn replace_u32(&self, offset: usize, old: u32, new: u32) -> bool {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU32::from_ptr(self.word(offset)) }
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Loads a naturally aligned 64-bit word in host order.
    #[inline(always)]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }.load(order)
    }

    /// Stores a naturally aligned 64-bit word in host order.
    #[inline(always)]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        // SAFETY: as in `load_u8`.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }.store(value, order);
    }
}

#[cold]
#[inline(never)]
fn outside(offset: usize, len: usize, area: usize) -> ! {
    panic!("{offset:#x}+{len:#x} is outside an area of {area:#x} bytes")
}

impl AsFd for SharedMem {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}
