//! The C library libslirp (4.2 or later), made safe: the one place of this crate with `unsafe`.
//!
//! libslirp is single-threaded: a [`Stack`] is owned by one thread at a time and calls back only
//! from within our own calls. Its DNS cache and clock are globals shared by all stacks of a
//! process, so every call into it holds one lock.

use std::ffi::{CString, c_char, c_int, c_void};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Instant;

use parking_lot::Mutex;
use port::Backlog;
use wire::Offload;

use crate::config::{Forward, MTU, Protocol, UserConfig, UserError};

static LIBRARY: Mutex<()> = Mutex::new(());

/// What libslirp waits for on a descriptor, `SLIRP_POLL_*`.
pub mod events {
    use std::ffi::c_int;

    pub const IN: c_int = 1;
    pub const OUT: c_int = 2;
    pub const PRI: c_int = 4;
    pub const ERR: c_int = 8;
    pub const HUP: c_int = 16;
}

#[repr(C)]
struct Slirp {
    _opaque: [u8; 0],
}

type TimerCb = unsafe extern "C" fn(*mut c_void);

/// `SlirpCb`, in full; the last two are read only from configurations of version 4 on.
#[repr(C)]
struct Callbacks {
    send_packet: unsafe extern "C" fn(*const c_void, usize, *mut c_void) -> isize,
    guest_error: unsafe extern "C" fn(*const c_char, *mut c_void),
    clock_get_ns: unsafe extern "C" fn(*mut c_void) -> i64,
    timer_new: unsafe extern "C" fn(Option<TimerCb>, *mut c_void, *mut c_void) -> *mut c_void,
    timer_free: unsafe extern "C" fn(*mut c_void, *mut c_void),
    timer_mod: unsafe extern "C" fn(*mut c_void, i64, *mut c_void),
    register_poll_fd: unsafe extern "C" fn(c_int, *mut c_void),
    unregister_poll_fd: unsafe extern "C" fn(c_int, *mut c_void),
    notify: unsafe extern "C" fn(*mut c_void),
    init_completed: *const c_void,
    timer_new_opaque: *const c_void,
}

/// `SlirpConfig` as of version 1; later versions only append.
#[repr(C)]
struct Config {
    version: u32,
    restricted: c_int,
    in_enabled: bool,
    vnetwork: InAddr,
    vnetmask: InAddr,
    vhost: InAddr,
    in6_enabled: bool,
    vprefix_addr6: In6Addr,
    vprefix_len: u8,
    vhost6: In6Addr,
    vhostname: *const c_char,
    tftp_server_name: *const c_char,
    tftp_path: *const c_char,
    bootfile: *const c_char,
    vdhcp_start: InAddr,
    vnameserver: InAddr,
    vnameserver6: In6Addr,
    vdnssearch: *const *const c_char,
    vdomainname: *const c_char,
    if_mtu: usize,
    if_mru: usize,
    disable_host_loopback: bool,
    enable_emu: bool,
}

/// `struct in_addr`: network byte order, aligned as a 32-bit number.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
struct InAddr([u8; 4]);

/// `struct in6_addr`, aligned as the C library has it.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
struct In6Addr([u8; 16]);

impl From<Ipv4Addr> for InAddr {
    fn from(a: Ipv4Addr) -> Self {
        Self(a.octets())
    }
}

impl From<Ipv6Addr> for In6Addr {
    fn from(a: Ipv6Addr) -> Self {
        Self(a.octets())
    }
}

type AddPoll = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;
type GetEvents = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

#[link(name = "slirp")]
unsafe extern "C" {
    fn slirp_new(cfg: *const Config, cb: *const Callbacks, opaque: *mut c_void) -> *mut Slirp;
    fn slirp_cleanup(slirp: *mut Slirp);
    fn slirp_pollfds_fill(slirp: *mut Slirp, ms: *mut u32, add: AddPoll, opaque: *mut c_void);
    fn slirp_pollfds_poll(slirp: *mut Slirp, error: c_int, get: GetEvents, opaque: *mut c_void);
    fn slirp_input(slirp: *mut Slirp, frame: *const u8, len: c_int);
    fn slirp_add_hostfwd(
        slirp: *mut Slirp,
        is_udp: c_int,
        host: InAddr,
        host_port: c_int,
        guest: InAddr,
        guest_port: c_int,
    ) -> c_int;
}

struct Timer {
    call: Option<TimerCb>,
    arg: *mut c_void,
    /// In milliseconds of our clock.
    due: Option<i64>,
}

/// What the callbacks write to; reached by raw pointer only, never while we hold a reference.
struct State {
    started: Instant,
    out: Backlog,
    /// Frames that found `out` full.
    dropped: u64,
    guest_errors: u64,
    timers: Vec<Timer>,
    /// Descriptors that were opened or are about to be closed since last asked, in order.
    changes: Vec<Change>,
}

/// What has become of a descriptor of libslirp's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there.
    Opened(RawFd),
    /// It is about to be closed.
    Closed(RawFd),
}

impl Change {
    /// Its number, which meant something else before.
    pub fn fd(self) -> RawFd {
        let (Change::Opened(fd) | Change::Closed(fd)) = self;
        fd
    }
}

impl State {
    fn now_ns(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
}

/// One user-mode network.
pub struct Stack {
    slirp: NonNull<Slirp>,
    /// Ours; libslirp has the same pointer as its `opaque`.
    state: NonNull<State>,
    /// libslirp keeps a pointer to it.
    _callbacks: Box<Callbacks>,
}

// SAFETY: libslirp has no thread affinity, only no locking of its own: `&mut self` and `LIBRARY`
// give it one caller at a time.
unsafe impl Send for Stack {}

impl Stack {
    /// A network as configured, with `out` for what it sends to the guests.
    pub fn new(config: &UserConfig, out: Backlog) -> Result<Self, UserError> {
        let text = |what: &'static str, s: Option<&[u8]>| {
            s.map(|s| CString::new(s).map_err(|_| UserError::Text { what }))
                .transpose()
        };
        let hostname = text("hostname", config.hostname.as_deref().map(str::as_bytes))?;
        let tftp = config
            .tftp
            .as_deref()
            .map(|p| p.as_os_str().as_encoded_bytes());
        let tftp = text("TFTP directory", tftp)?;
        let bootfile = text("boot file", config.bootfile.as_deref().map(str::as_bytes))?;
        let raw = |s: &Option<CString>| s.as_ref().map_or(ptr::null(), |s| s.as_ptr());
        let addresses = config.addresses()?;
        let cfg = Config {
            version: 1,
            restricted: config.restrict.into(),
            in_enabled: true,
            vnetwork: addresses.network.into(),
            vnetmask: addresses.mask.into(),
            vhost: addresses.host.into(),
            in6_enabled: config.ipv6,
            vprefix_addr6: Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0).into(),
            vprefix_len: 64,
            vhost6: Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 2).into(),
            vhostname: raw(&hostname),
            tftp_server_name: ptr::null(),
            tftp_path: raw(&tftp),
            bootfile: raw(&bootfile),
            vdhcp_start: addresses.dhcp_start.into(),
            vnameserver: addresses.dns.into(),
            vnameserver6: Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 3).into(),
            vdnssearch: ptr::null(),
            vdomainname: ptr::null(),
            if_mtu: MTU,
            if_mru: MTU,
            disable_host_loopback: !config.host_loopback,
            enable_emu: false,
        };
        let callbacks = Box::new(Callbacks {
            send_packet,
            guest_error,
            clock_get_ns,
            timer_new,
            timer_free,
            timer_mod,
            register_poll_fd: opened_fd,
            unregister_poll_fd: closed_fd,
            notify,
            init_completed: ptr::null(),
            timer_new_opaque: ptr::null(),
        });
        let state = NonNull::from(Box::leak(Box::new(State {
            started: Instant::now(),
            out,
            dropped: 0,
            guest_errors: 0,
            timers: Vec::new(),
            changes: Vec::new(),
        })));
        let made = {
            let _one = LIBRARY.lock();
            // SAFETY: `cfg` and its strings outlive the call (libslirp copies them); `callbacks`
            // and `state` live until `drop` has called slirp_cleanup.
            unsafe { slirp_new(&cfg, &*callbacks, state.as_ptr().cast()) }
        };
        let Some(slirp) = NonNull::new(made) else {
            // SAFETY: leaked just above, and no other pointer to it exists.
            drop(unsafe { Box::from_raw(state.as_ptr()) });
            return Err(UserError::Library);
        };
        Ok(Self {
            slirp,
            state,
            _callbacks: callbacks,
        })
    }

    /// Lets the host's `host` reach the guest's `guest`.
    pub fn forward(&mut self, f: &Forward, guest: Ipv4Addr) -> std::io::Result<()> {
        let _one = LIBRARY.lock();
        // SAFETY: `slirp` is live; all arguments are by value.
        let result = unsafe {
            slirp_add_hostfwd(
                self.slirp.as_ptr(),
                (f.protocol == Protocol::Udp).into(),
                (*f.host.ip()).into(),
                f.host.port().into(),
                guest.into(),
                f.guest_port.into(),
            )
        };
        if result < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    }

    /// A frame from a guest.
    pub fn input(&mut self, frame: &[u8]) {
        let Ok(len) = c_int::try_from(frame.len()) else {
            return;
        };
        let _one = LIBRARY.lock();
        // SAFETY: `slirp` is live, `frame` readable for `len`; libslirp copies it.
        unsafe { slirp_input(self.slirp.as_ptr(), frame.as_ptr(), len) }
    }

    /// Writes into `want` the descriptors to wait for, each with its [`events`]. Returns the
    /// longest time to wait, in milliseconds.
    pub fn fill(&mut self, want: &mut Vec<(RawFd, c_int)>) -> u32 {
        want.clear();
        let mut ms = u32::MAX;
        let opaque: *mut Vec<(RawFd, c_int)> = want;
        let _one = LIBRARY.lock();
        // SAFETY: `slirp` is live; `add_poll` gets `opaque` back during this call only.
        unsafe { slirp_pollfds_fill(self.slirp.as_ptr(), &mut ms, add_poll, opaque.cast()) };
        ms
    }

    /// Works on what `ready` (sorted by descriptor) says is ready, and on libslirp's timeouts.
    pub fn poll(&mut self, ready: &Vec<(RawFd, c_int)>) {
        let opaque: *const Vec<(RawFd, c_int)> = ready;
        let _one = LIBRARY.lock();
        let opaque = opaque.cast_mut().cast();
        // SAFETY: `slirp` is live; `get_events` only reads through `opaque`, during this call.
        unsafe { slirp_pollfds_poll(self.slirp.as_ptr(), 0, get_events, opaque) };
    }

    /// Milliseconds until the next timer of [`Stack::run_timers`].
    pub fn next_timer(&self) -> Option<u64> {
        // SAFETY: no call into libslirp is in flight, so no other reference to the state exists.
        let state = unsafe { self.state.as_ref() };
        let now = state.now_ns() / 1_000_000;
        let due = state.timers.iter().filter_map(|t| t.due).min()?;
        Some(due.saturating_sub(now).max(0) as u64)
    }

    /// Runs the timers that are due.
    pub fn run_timers(&mut self) {
        let _one = LIBRARY.lock();
        // SAFETY: as above; the borrow ends before the callback may touch the state.
        let state = unsafe { self.state.as_mut() };
        let now = state.now_ns() / 1_000_000;
        let mut calls = [(None, ptr::null_mut()); 4];
        let due = state
            .timers
            .iter_mut()
            .filter(|t| t.due.is_some_and(|d| d <= now));
        for (slot, timer) in calls.iter_mut().zip(due) {
            timer.due = None;
            *slot = (timer.call, timer.arg);
        }
        for (call, arg) in calls {
            if let Some(call) = call {
                // SAFETY: libslirp gave both and has not freed the timer (it would have no `call`).
                unsafe { call(arg) }
            }
        }
    }

    /// What was sent to the guests and waits.
    pub fn out(&mut self) -> &mut Backlog {
        // SAFETY: as in `next_timer`, and exclusive by `&mut self`.
        unsafe { &mut self.state.as_mut().out }
    }

    /// Frames dropped for want of room in [`Stack::out`], and mistakes of guests that libslirp
    /// reported, both since last asked.
    pub fn take_counts(&mut self) -> (u64, u64) {
        // SAFETY: as in `out`.
        let state = unsafe { self.state.as_mut() };
        (
            std::mem::take(&mut state.dropped),
            std::mem::take(&mut state.guest_errors),
        )
    }

    /// Passes on the descriptors opened or about to be closed since last asked.
    pub fn take_changes(&mut self, each: &mut dyn FnMut(Change)) {
        // SAFETY: as in `out`.
        let state = unsafe { self.state.as_mut() };
        state.changes.drain(..).for_each(each);
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let _one = LIBRARY.lock();
        // SAFETY: `slirp` is live and not used again; its callbacks during clean-up still find the
        // state, which is freed only afterwards and was leaked from a box by `new`.
        unsafe {
            slirp_cleanup(self.slirp.as_ptr());
            drop(Box::from_raw(self.state.as_ptr()));
        }
    }
}

/// Lends a descriptor that libslirp owns.
///
/// For the numbers of the last [`Stack::fill`] only: those are open until the next call into the
/// stack, which ends the borrow of `_stack`.
pub fn lend(_stack: &Stack, fd: RawFd) -> BorrowedFd<'_> {
    // SAFETY: see above; a number that was closed against that rule makes epoll_ctl fail, and
    // nothing else is done with it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

// The callbacks. `opaque` is `State`, or the vector of `fill` and `poll`; no Rust reference to it
// is alive while libslirp runs.

unsafe extern "C" fn send_packet(buf: *const c_void, len: usize, opaque: *mut c_void) -> isize {
    if buf.is_null() {
        return -1;
    }
    // SAFETY: see above; libslirp passes `len` readable bytes.
    let (state, frame) = unsafe {
        (
            &mut *opaque.cast::<State>(),
            std::slice::from_raw_parts(buf.cast::<u8>(), len),
        )
    };
    // Its checksums are right: they were made here.
    let notes = Offload {
        csum_valid: true,
        ..Offload::NONE
    };
    state.dropped += u64::from(!state.out.push(frame, notes));
    isize::try_from(len).unwrap_or(isize::MAX)
}

unsafe extern "C" fn guest_error(_: *const c_char, opaque: *mut c_void) {
    // SAFETY: see above.
    unsafe { (*opaque.cast::<State>()).guest_errors += 1 }
}

unsafe extern "C" fn clock_get_ns(opaque: *mut c_void) -> i64 {
    // SAFETY: see above.
    unsafe { (*opaque.cast::<State>()).now_ns() }
}

/// Timers are known by their place in the list, from 1.
unsafe extern "C" fn timer_new(
    call: Option<TimerCb>,
    arg: *mut c_void,
    opaque: *mut c_void,
) -> *mut c_void {
    // SAFETY: see above.
    let state = unsafe { &mut *opaque.cast::<State>() };
    state.timers.push(Timer {
        call,
        arg,
        due: None,
    });
    ptr::without_provenance_mut(state.timers.len())
}

unsafe extern "C" fn timer_free(timer: *mut c_void, opaque: *mut c_void) {
    // SAFETY: see above.
    let state = unsafe { &mut *opaque.cast::<State>() };
    if let Some(timer) = state.timers.get_mut(timer.addr().wrapping_sub(1)) {
        timer.call = None;
        timer.due = None;
    }
}

unsafe extern "C" fn timer_mod(timer: *mut c_void, due_ms: i64, opaque: *mut c_void) {
    // SAFETY: see above.
    let state = unsafe { &mut *opaque.cast::<State>() };
    if let Some(timer) = state.timers.get_mut(timer.addr().wrapping_sub(1)) {
        timer.due = Some(due_ms);
    }
}

unsafe extern "C" fn opened_fd(fd: c_int, opaque: *mut c_void) {
    // libslirp says so of sockets that it could not have, too.
    if fd >= 0 {
        // SAFETY: see above.
        unsafe { (*opaque.cast::<State>()).changes.push(Change::Opened(fd)) }
    }
}

unsafe extern "C" fn closed_fd(fd: c_int, opaque: *mut c_void) {
    // SAFETY: see above.
    unsafe { (*opaque.cast::<State>()).changes.push(Change::Closed(fd)) }
}

/// Would ask for another turn; every turn of ours ends with `fill`, which sees the same.
unsafe extern "C" fn notify(_: *mut c_void) {}

unsafe extern "C" fn add_poll(fd: c_int, events: c_int, opaque: *mut c_void) -> c_int {
    if fd >= 0 {
        // SAFETY: `fill` passed the vector.
        unsafe { (*opaque.cast::<Vec<(RawFd, c_int)>>()).push((fd, events)) }
    }
    // The index libslirp asks by is the descriptor itself.
    fd
}

unsafe extern "C" fn get_events(fd: c_int, opaque: *mut c_void) -> c_int {
    // SAFETY: `poll` passed the vector.
    let ready = unsafe { &*opaque.cast::<Vec<(RawFd, c_int)>>() };
    match ready.binary_search_by_key(&fd, |&(fd, _)| fd) {
        Ok(at) => ready[at].1,
        Err(_) => 0,
    }
}
