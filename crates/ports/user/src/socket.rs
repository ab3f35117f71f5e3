//! Sockets that keep the bounds of messages.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SocketFlags, SocketType, recvmsg, socketpair,
};

/// Two ends.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(ends)
}

/// Sends a message if there is room for it now.
pub fn send(socket: impl AsFd, message: &[u8]) -> Result<(), Errno> {
    loop {
        match port::socket::send(&socket, message) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Takes a message, waiting for one if `waits`. Of a longer one than there is room for, the error. 0: the other end is
/// closed.
pub fn receive(socket: impl AsFd, room: &mut [u8], waits: bool) -> Result<usize, Errno> {
    let flags = if waits {
        RecvFlags::empty()
    } else {
        RecvFlags::DONTWAIT
    };
    let mut reset = false;
    loop {
        let mut no_descriptors = RecvAncillaryBuffer::default();
        let mut room = [IoSliceMut::new(room)];
        match recvmsg(&socket, &mut room, &mut no_descriptors, flags) {
            Ok(came) if came.flags.contains(rustix::net::ReturnFlags::TRUNC) => {
                return Err(Errno::MSGSIZE);
            }
            Ok(came) => return Ok(came.bytes),
            Err(Errno::INTR) => {}
            // The other end was closed before it had read all of ours. What it has said before is behind this.
            Err(Errno::CONNRESET) if !reset => reset = true,
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends a descriptor.
pub fn give(socket: impl AsFd, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut descriptors = SendAncillaryBuffer::new(&mut space);
    let these = [descriptor];
    // There is room for one.
    let _ = descriptors.push(SendAncillaryMessage::ScmRights(&these));
    port::socket::send_with(socket, &[0], &mut descriptors).map(drop)
}

/// What [`take`] has found.
pub enum Given {
    /// A descriptor.
    One(OwnedFd),
    /// A message without.
    Nothing,
    /// The other end is closed.
    Closed,
}

/// Takes a message with a descriptor, if there is one.
pub fn take(socket: impl AsFd) -> Result<Given, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut descriptors = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let came = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut descriptors,
        flags,
    )?;
    if came.bytes == 0 {
        return Ok(Given::Closed);
    }
    let given = descriptors.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    Ok(given.map_or(Given::Nothing, Given::One))
}
