//! The C face of `hypernic-embed`: a handle, a table of callbacks, and functions that never unwind.
//!
//! `include/hypernic_nic.h` is generated from this file by `cargo run -p hypernic-embed-c --example
//! header`; a test fails when it is stale. `unsafe` lives here because C pointers are taken at their
//! word.

mod host;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use embed::{Nic, Progress};
use guest_mem::Prot;

pub use host::hn_host;

/// Done; nothing left to do.
pub const HN_OK: c_int = 0;
/// Done in part: call hn_nic_run again soon.
pub const HN_MORE: c_int = 1;
/// No room: after hn_nic_run, send had none, call it again when it has; after hn_nic_receive, the
/// guest has no buffers, offer the frame again after room was called, or drop it.
pub const HN_BLOCKED: c_int = 2;
/// An argument is NULL or out of range.
pub const HN_INVALID: c_int = -1;
/// Called from within a callback of the same NIC, or from two threads at once.
pub const HN_BUSY: c_int = -2;
/// There is no such model, memory overlaps what is mapped already, or a state cannot be loaded.
pub const HN_REFUSED: c_int = -3;
/// A bug in this library; do not use the NIC any more.
pub const HN_FAILED: c_int = -4;

/// A NIC. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct hn_nic {
    busy: AtomicBool,
    nic: std::cell::UnsafeCell<Nic>,
}

/// What a bus needs to know of a NIC.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hn_description {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Bytes of each BAR, 0 for none.
    pub bar_size: [u64; 6],
    /// Which BARs are I/O ports, bit by bit.
    pub io_bars: u8,
}

/// Runs `body` on the NIC, alone and without letting a panic out.
///
/// # Safety
/// `nic` is NULL or came from `hn_nic_new` and has not been freed.
unsafe fn on(nic: *mut hn_nic, body: impl FnOnce(&mut Nic) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { nic.as_ref() }) else {
        return HN_INVALID;
    };
    if handle.busy.swap(true, Ordering::Acquire) {
        return HN_BUSY;
    }
    // SAFETY: `busy` lets one in at a time.
    let inner = unsafe { &mut *handle.nic.get() };
    // After a panic the NIC stays busy for ever: half a change is never seen.
    let Ok(status) = catch_unwind(AssertUnwindSafe(|| body(inner))) else {
        return HN_FAILED;
    };
    handle.busy.store(false, Ordering::Release);
    status
}

/// `len` bytes at `data`; none when `len` is 0, whatever `data` is.
///
/// # Safety
/// Unless NULL, `data` points to `len` readable bytes for `'a`.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> Option<&'a [u8]> {
    match len {
        0 => Some(&[]),
        _ if data.is_null() || isize::try_from(len).is_err() => None,
        // SAFETY: the caller's promise.
        _ => Some(unsafe { std::slice::from_raw_parts(data, len) }),
    }
}

/// As [`bytes`], to be written.
///
/// # Safety
/// Unless NULL, `data` points to `len` writable bytes for `'a` that nothing else uses meanwhile.
unsafe fn bytes_mut<'a>(data: *mut u8, len: usize) -> Option<&'a mut [u8]> {
    match len {
        0 => Some(&mut []),
        _ if data.is_null() || isize::try_from(len).is_err() => None,
        // SAFETY: the caller's promise.
        _ => Some(unsafe { std::slice::from_raw_parts_mut(data, len) }),
    }
}

/// Makes a NIC: `model` is "e1000", `mac` six bytes, `host` what it needs from the program (copied).
/// On HN_OK, `*out` is the NIC, just powered up with its link up; free it with hn_nic_free.
///
/// # Safety
/// `model` is a C string, `mac` points to six bytes, `host` to a table whose functions may be called
/// with its `opaque` until the NIC is freed, `out` to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_new(
    model: *const c_char,
    mac: *const u8,
    host: *const hn_host,
    out: *mut *mut hn_nic,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { made(model, mac, host, out, embed::new) }
}

/// As hn_nic_new, of the model's revision that the NIC was whose state (`len` bytes) is to be loaded
/// with hn_nic_load: its guest has started with that. HN_REFUSED: this program does not know it.
///
/// # Safety
/// As hn_nic_new, and `state` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_new_for(
    state: *const u8,
    len: usize,
    model: *const c_char,
    mac: *const u8,
    host: *const hn_host,
    out: *mut *mut hn_nic,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(state) = (unsafe { bytes(state, len) }) else {
        return HN_INVALID;
    };
    let new = |model: &str, mac, host| embed::new_for(state, model, mac, host);
    // SAFETY: as the caller promises.
    unsafe { made(model, mac, host, out, new) }
}

/// Puts a NIC that `new` makes at `*out`.
///
/// # Safety
/// As [`hn_nic_new`].
unsafe fn made(
    model: *const c_char,
    mac: *const u8,
    host: *const hn_host,
    out: *mut *mut hn_nic,
    new: impl FnOnce(&str, [u8; 6], Arc<dyn embed::Host>) -> Result<Nic, embed::Error>,
) -> c_int {
    if model.is_null() || mac.is_null() || host.is_null() || out.is_null() {
        return HN_INVALID;
    }
    // SAFETY: not NULL, and as the caller promises.
    let (model, mac, host) = unsafe { (CStr::from_ptr(model), *mac.cast::<[u8; 6]>(), *host) };
    let (Ok(model), true) = (model.to_str(), host.complete()) else {
        return HN_INVALID;
    };
    let made = catch_unwind(AssertUnwindSafe(|| new(model, mac, Arc::new(host))));
    let nic = match made {
        Ok(Ok(nic)) => nic,
        Ok(Err(_)) => return HN_REFUSED,
        Err(_) => return HN_FAILED,
    };
    let handle = Box::new(hn_nic {
        busy: AtomicBool::new(false),
        nic: nic.into(),
    });
    // SAFETY: not NULL, and as the caller promises.
    unsafe { out.write(Box::into_raw(handle)) };
    HN_OK
}

/// Frees a NIC; NULL is allowed. Do not call it from a callback.
///
/// # Safety
/// `nic` came from hn_nic_new or hn_nic_new_for, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_free(nic: *mut hn_nic) {
    if !nic.is_null() {
        // SAFETY: made by `Box::into_raw` in `hn_nic_new`.
        drop(unsafe { Box::from_raw(nic) });
    }
}

/// Fills `*out` with what the bus needs to know.
///
/// # Safety
/// `nic` is a living NIC, `out` points to a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_describe(nic: *mut hn_nic, out: *mut hn_description) -> c_int {
    if out.is_null() {
        return HN_INVALID;
    }
    let body = |nic: &mut Nic| {
        let is = nic.description();
        let description = hn_description {
            vendor: is.vendor,
            device: is.device,
            bar_size: is.bar_size,
            io_bars: is.io_bars,
        };
        // SAFETY: not NULL, and as the caller promises.
        unsafe { out.write(description) };
        HN_OK
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}

/// Reads `len` bytes of PCI configuration space at `offset`; ones beyond its 256 bytes.
///
/// # Safety
/// `nic` is a living NIC, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_config_read(
    nic: *mut hn_nic,
    offset: u64,
    data: *mut u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let Some(data) = (unsafe { bytes_mut(data, len) }) else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| {
        nic.config_read(offset, data);
        HN_OK
    };
    unsafe { on(nic, body) }
}

/// Writes `len` bytes of PCI configuration space at `offset`. Follow with hn_nic_run.
///
/// # Safety
/// `nic` is a living NIC, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_config_write(
    nic: *mut hn_nic,
    offset: u64,
    data: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let Some(data) = (unsafe { bytes(data, len) }) else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| {
        nic.config_write(offset, data);
        HN_OK
    };
    unsafe { on(nic, body) }
}

/// Reads `len` bytes at `offset` of BAR `bar`, any size and alignment.
///
/// # Safety
/// `nic` is a living NIC, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_read(
    nic: *mut hn_nic,
    bar: u8,
    offset: u64,
    data: *mut u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let Some(data) = (unsafe { bytes_mut(data, len) }) else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| {
        nic.read(bar, offset, data);
        HN_OK
    };
    unsafe { on(nic, body) }
}

/// Writes `len` bytes at `offset` of BAR `bar`. Follow with hn_nic_run.
///
/// # Safety
/// `nic` is a living NIC, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_write(
    nic: *mut hn_nic,
    bar: u8,
    offset: u64,
    data: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let Some(data) = (unsafe { bytes(data, len) }) else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| {
        nic.write(bar, offset, data);
        HN_OK
    };
    unsafe { on(nic, body) }
}

/// Does the work that accesses requested: sends at most about `budget` frames, and delivers those that
/// waited for buffers. HN_OK: nothing left. HN_MORE: call again soon. HN_BLOCKED: call again when send has room.
///
/// # Safety
/// `nic` is a living NIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_run(nic: *mut hn_nic, budget: usize) -> c_int {
    let body = |nic: &mut Nic| match nic.run(budget) {
        Progress::Idle => HN_OK,
        Progress::More => HN_MORE,
        Progress::Blocked => HN_BLOCKED,
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}

/// Offers a frame from the wire, without FCS. HN_OK: received, or dropped as the chip drops it.
/// HN_BLOCKED: the guest has no buffers.
///
/// # Safety
/// `nic` is a living NIC, `frame` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_receive(nic: *mut hn_nic, frame: *const u8, len: usize) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let Some(frame) = (unsafe { bytes(frame, len) }) else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| match nic.receive(&[frame]) {
        0 => HN_BLOCKED,
        _ => HN_OK,
    };
    unsafe { on(nic, body) }
}

/// The time given to set_timer has come. Follow with hn_nic_run.
///
/// # Safety
/// `nic` is a living NIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_tick(nic: *mut hn_nic) -> c_int {
    let body = |nic: &mut Nic| {
        nic.tick();
        HN_OK
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}

/// Takes the link up or down, as a cable does. Follow with hn_nic_run.
///
/// # Safety
/// `nic` is a living NIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_set_link(nic: *mut hn_nic, up: bool) -> c_int {
    let body = |nic: &mut Nic| {
        nic.set_link(up);
        HN_OK
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}

/// The machine was reset.
///
/// # Safety
/// `nic` is a living NIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_reset(nic: *mut hn_nic) -> c_int {
    let body = |nic: &mut Nic| {
        nic.reset();
        HN_OK
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}

/// Saves the whole NIC. `*len` is the room at `data` in bytes and becomes the length of the state;
/// HN_BLOCKED: the state needs `*len` bytes, and nothing was written. Call with `*len` 0 to ask.
///
/// # Safety
/// `nic` is a living NIC, `len` points to a size, `data` to that many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_save(nic: *mut hn_nic, data: *mut u8, len: *mut usize) -> c_int {
    if len.is_null() {
        return HN_INVALID;
    }
    // SAFETY: the caller's promise, here and below.
    let Some(data) = (unsafe { bytes_mut(data, *len) }) else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| {
        let state = nic.save();
        unsafe { len.write(state.len()) };
        match data.get_mut(..state.len()) {
            Some(to) => {
                to.copy_from_slice(&state);
                HN_OK
            }
            None => HN_BLOCKED,
        }
    };
    // SAFETY: as above.
    unsafe { on(nic, body) }
}

/// Loads what hn_nic_save saved, in this or another process. HN_REFUSED: the state is damaged,
/// impossible, of another NIC or from a newer library; the NIC stays unchanged. Follow with
/// hn_nic_run.
///
/// # Safety
/// `nic` is a living NIC, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_load(nic: *mut hn_nic, data: *const u8, len: usize) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let Some(data) = (unsafe { bytes(data, len) }) else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| match nic.load(data) {
        Ok(()) => HN_OK,
        Err(_) => HN_REFUSED,
    };
    unsafe { on(nic, body) }
}

/// Maps `len` bytes of guest memory at `memory`: the NIC uses them without dma_read and dma_write.
/// HN_REFUSED: the range is empty, wraps, or overlaps what is mapped.
///
/// # Safety
/// `nic` is a living NIC; `memory` stays valid until hn_nic_unmap or hn_nic_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_map(
    nic: *mut hn_nic,
    address: u64,
    memory: *mut c_void,
    len: u64,
    writable: bool,
) -> c_int {
    let Some(memory) = NonNull::new(memory.cast()) else {
        return HN_INVALID;
    };
    let prot = if writable { Prot::RW } else { Prot::RO };
    let body = |nic: &mut Nic| {
        // SAFETY: the caller's promise.
        match unsafe { nic.memory().map_raw(address, len, memory, prot) } {
            Ok(()) => HN_OK,
            Err(_) => HN_REFUSED,
        }
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}

/// Unmaps exactly what hn_nic_map mapped. Once it returns, the NIC no longer touches the memory.
///
/// # Safety
/// `nic` is a living NIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_unmap(nic: *mut hn_nic, address: u64, len: u64) -> c_int {
    let body = |nic: &mut Nic| match nic.memory().unmap(address, len) {
        Ok(_) => HN_OK,
        Err(_) => HN_REFUSED,
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}

/// Calls `visit` with the name and value of each of the NIC's counters.
///
/// # Safety
/// `nic` is a living NIC; `visit` may be called with `opaque`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hn_nic_counters(
    nic: *mut hn_nic,
    visit: Option<unsafe extern "C" fn(opaque: *mut c_void, name: *const c_char, value: u64)>,
    opaque: *mut c_void,
) -> c_int {
    let Some(visit) = visit else {
        return HN_INVALID;
    };
    let body = |nic: &mut Nic| {
        nic.counters(&mut |name, value| {
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: the caller's promise; `name` lives during the call.
            unsafe { visit(opaque, name.as_ptr(), value) };
        });
        HN_OK
    };
    // SAFETY: the caller's promise.
    unsafe { on(nic, body) }
}
