//! The table of callbacks, and the [`embed::Host`] it makes.

use std::ffi::c_void;

/// What a NIC needs from the program around it. Every function gets `opaque`; none may call back into
/// the same NIC (it would get HN_BUSY). Those marked "may be NULL" may.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct hn_host {
    /// Passed to every function.
    pub opaque: *mut c_void,
    /// Takes a finished frame of `len` bytes, without FCS. false: no room now.
    pub send:
        Option<unsafe extern "C" fn(opaque: *mut c_void, frame: *const u8, len: usize) -> bool>,
    /// Reads `len` bytes of guest memory at `address`. false: nothing there. May be NULL when all
    /// memory is mapped by hn_nic_map.
    pub dma_read: Option<
        unsafe extern "C" fn(opaque: *mut c_void, address: u64, data: *mut u8, len: usize) -> bool,
    >,
    /// Writes guest memory. false: nothing there. May be NULL.
    pub dma_write: Option<
        unsafe extern "C" fn(
            opaque: *mut c_void,
            address: u64,
            data: *const u8,
            len: usize,
        ) -> bool,
    >,
    /// INTA# has changed to `level`.
    pub interrupt: Option<unsafe extern "C" fn(opaque: *mut c_void, level: bool)>,
    /// A message signalled interrupt: write `data` to `address`. May be NULL.
    pub message: Option<unsafe extern "C" fn(opaque: *mut c_void, address: u64, data: u32)>,
    /// Call hn_nic_tick at `deadline` (nanoseconds of now) if `armed`; else call it off.
    pub set_timer: Option<unsafe extern "C" fn(opaque: *mut c_void, armed: bool, deadline: u64)>,
    /// Nanoseconds of a clock that never goes backwards.
    pub now: Option<unsafe extern "C" fn(opaque: *mut c_void) -> u64>,
    /// There may be room for frames that hn_nic_receive refused. May be NULL.
    pub room: Option<unsafe extern "C" fn(opaque: *mut c_void)>,
    /// PME# has changed to `asserted`: a frame has come that shall wake the machine. May be
    /// NULL.
    pub pme: Option<unsafe extern "C" fn(opaque: *mut c_void, asserted: bool)>,
}

// SAFETY: the functions may be called with `opaque` by whichever thread uses the NIC: a promise of
// hn_nic_new's caller, who also keeps threads from using a NIC at the same time.
unsafe impl Send for hn_host {}
// SAFETY: as above; the table itself never changes.
unsafe impl Sync for hn_host {}

impl hn_host {
    /// Whether every function that must be there is.
    pub(crate) fn complete(&self) -> bool {
        self.send.is_some()
            && self.interrupt.is_some()
            && self.set_timer.is_some()
            && self.now.is_some()
    }
}

// SAFETY of every call below: hn_nic_new's caller promised that the functions may be called with
// `opaque` while the NIC lives; pointers handed out are valid during the call.
impl embed::Host for hn_host {
    fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: see above.
        self.send
            .is_none_or(|send| unsafe { send(self.opaque, frame.as_ptr(), frame.len()) })
    }

    fn dma_read(&self, address: u64, out: &mut [u8]) -> bool {
        // SAFETY: see above.
        self.dma_read
            .is_some_and(|read| unsafe { read(self.opaque, address, out.as_mut_ptr(), out.len()) })
    }

    fn dma_write(&self, address: u64, bytes: &[u8]) -> bool {
        // SAFETY: see above.
        self.dma_write.is_some_and(|write| unsafe {
            write(self.opaque, address, bytes.as_ptr(), bytes.len())
        })
    }

    fn interrupt(&self, level: bool) {
        if let Some(interrupt) = self.interrupt {
            // SAFETY: see above.
            unsafe { interrupt(self.opaque, level) };
        }
    }

    fn message(&self, address: u64, data: u32) {
        if let Some(message) = self.message {
            // SAFETY: see above.
            unsafe { message(self.opaque, address, data) };
        }
    }

    fn set_timer(&self, deadline: Option<u64>) {
        if let Some(set_timer) = self.set_timer {
            // SAFETY: see above.
            unsafe { set_timer(self.opaque, deadline.is_some(), deadline.unwrap_or(0)) };
        }
    }

    fn now(&self) -> u64 {
        // SAFETY: see above.
        self.now.map_or(0, |now| unsafe { now(self.opaque) })
    }

    fn room(&self) {
        if let Some(room) = self.room {
            // SAFETY: see above.
            unsafe { room(self.opaque) };
        }
    }

    fn pme(&self, asserted: bool) {
        if let Some(pme) = self.pme {
            // SAFETY: see above.
            unsafe { pme(self.opaque, asserted) };
        }
    }
}
