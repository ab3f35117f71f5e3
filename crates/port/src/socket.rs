//! The one call by which workers, and threads of ports, send to sockets.

use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

/// Sends what the socket takes now, and says how many bytes it took.
///
/// # Errors
/// `AGAIN`: nothing now. Any other: the socket is of no use any more.
pub fn send(socket: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    send_with(socket, bytes, &mut SendAncillaryBuffer::default())
}

/// The same, with descriptors.
///
/// # Errors
/// As those of [`send`].
pub fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &mut SendAncillaryBuffer<'_, '_, '_>,
) -> Result<usize, Errno> {
    let pieces = [IoSlice::new(bytes)];
    let mut one = [MMsgHdr::new(&pieces, descriptors)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmmsg(socket, &mut one, flags)?;
    Ok(one[0].bytes_sent())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn what_is_taken_is_told_and_nobody_waits() {
        let kind = SocketType::STREAM;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("sockets");
        let mut sent = 0;
        let full = loop {
            match send(&ours, &[7; 100_000]) {
                Ok(bytes) => sent += bytes,
                Err(errno) => break errno,
            }
        };
        assert_eq!(full, Errno::AGAIN);
        let mut came = vec![0; sent + 1];
        let mut at = 0;
        while at < sent {
            at += rustix::io::read(&theirs, &mut came[at..]).expect("it was sent");
        }
        assert!(at == sent && came[..sent].iter().all(|byte| *byte == 7));
        drop(theirs);
        assert_eq!(send(&ours, &[7]), Err(Errno::PIPE));
    }
}
