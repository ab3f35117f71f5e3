//! The system calls of `linux/if_tun.h`, and a `writev` that reads guest memory.

use std::ffi::{c_int, c_uint, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use guest_mem::ReadSlice;
use libc::Ioctl;

pub const TUN_F_CSUM: c_uint = 0x01;
pub const TUN_F_TSO4: c_uint = 0x02;
pub const TUN_F_TSO6: c_uint = 0x04;
pub const TUN_F_TSO_ECN: c_uint = 0x08;
/// UDP to be segmented, over either IP: both bits or none (Linux 6.2).
pub const TUN_F_USO: c_uint = 0x20 | 0x40;

// From <linux/if_tun.h>; `libc` has them on some targets only.
// Of another type in each C library.
const TUNSETIFF: Ioctl = 0x4004_54ca_u32 as Ioctl;
const TUNSETOFFLOAD: Ioctl = 0x4004_54d0_u32 as Ioctl;
const TUNGETIFF: Ioctl = 0x8004_54d2_u32 as Ioctl;
const TUNGETVNETHDRSZ: Ioctl = 0x8004_54d7_u32 as Ioctl;
const TUNSETVNETHDRSZ: Ioctl = 0x4004_54d8_u32 as Ioctl;
const TUNSETVNETLE: Ioctl = 0x4004_54dc_u32 as Ioctl;

fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

pub fn open_tun() -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a constant, NUL-terminated path.
    let fd = unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) };
    check(fd)?;
    // SAFETY: just opened, and no other owner has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}

fn ifreq() -> libc::ifreq {
    // SAFETY: plain data for which all zeros is valid.
    unsafe { std::mem::zeroed() }
}

/// Attaches `fd` to interface `name` (shorter than `IFNAMSIZ`, checked by the caller).
pub fn set_if(fd: &OwnedFd, name: &str, flags: c_int) -> io::Result<()> {
    let mut req = ifreq();
    for (to, from) in req.ifr_name[..libc::IFNAMSIZ - 1]
        .iter_mut()
        .zip(name.bytes())
    {
        *to = from as libc::c_char;
    }
    req.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `req` is.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &mut req) })
}

/// Name and flags of the interface behind `fd`.
pub fn get_if(fd: &OwnedFd) -> io::Result<(String, c_int)> {
    let mut req = ifreq();
    // SAFETY: TUNGETIFF writes one ifreq, which `req` is.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNGETIFF, &mut req) })?;
    let name: Vec<u8> = req
        .ifr_name
        .iter()
        .map(|&c| c as u8)
        .take_while(|&c| c != 0)
        .collect();
    // SAFETY: the kernel has filled this member of the union.
    let flags = unsafe { req.ifr_ifru.ifru_flags };
    Ok((
        String::from_utf8_lossy(&name).into_owned(),
        c_int::from(flags as u16),
    ))
}

pub fn set_vnet_le(fd: &OwnedFd) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: reads one int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETLE, &on) })
}

pub fn set_vnet_hdr_size(fd: &OwnedFd, len: usize) -> io::Result<()> {
    let len = len as c_int;
    // SAFETY: reads one int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ, &len) })
}

pub fn get_vnet_hdr_size(fd: &OwnedFd) -> io::Result<usize> {
    let mut len: c_int = 0;
    // SAFETY: writes one int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNGETVNETHDRSZ, &mut len) })?;
    usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData.into())
}

pub fn set_offload(fd: &OwnedFd, offload: c_uint) -> io::Result<()> {
    // SAFETY: takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, c_ulong::from(offload)) })
}

/// Pieces that go into one [`writev`] without a copy.
pub const MAX_PIECES: usize = 64;

/// Writes `head` and then the runs, as one frame. The caller keeps the runs alive by their
/// lifetime; more than [`MAX_PIECES`] is the caller's error and is cut off.
pub fn writev<'a>(
    fd: &OwnedFd,
    head: &'a [u8],
    runs: impl Iterator<Item = ReadSlice<'a>>,
) -> io::Result<usize> {
    let empty = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut iov = [empty; MAX_PIECES + 1];
    let mut n = 0;
    for run in std::iter::once(ReadSlice::from_bytes(head)).chain(runs) {
        let (ptr, len) = run.as_raw();
        if len > 0 && n < iov.len() {
            iov[n] = libc::iovec {
                iov_base: ptr.cast_mut().cast(),
                iov_len: len,
            };
            n += 1;
        }
    }
    // SAFETY: every entry is a readable run that outlives this call (`ReadSlice<'a>`); the kernel
    // only reads them, and answers EFAULT should pages vanish meanwhile.
    let wrote = unsafe { libc::writev(fd.as_raw_fd(), iov.as_ptr(), n as c_int) };
    usize::try_from(wrote).map_err(|_| io::Error::last_os_error())
}
