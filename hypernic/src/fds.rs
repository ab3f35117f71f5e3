//! Descriptors inherited from whoever started us.

use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// A duplicate of inherited descriptor `number`.
///
/// Taking a bare number as an owned descriptor cannot be safe; asking the kernel for a duplicate
/// of one of our own is. The original stays open until the process ends.
///
/// # Errors
/// One line with the cause and the cure.
pub fn inherited(number: i32) -> Result<OwnedFd, String> {
    let open = || {
        let own = pidfd_open(getpid(), PidfdFlags::empty())?;
        pidfd_getfd(own, number, PidfdGetfdFlags::empty())
    };
    open().map_err(|errno| {
        format!(
            "file descriptor {number} was not handed down ({errno}); the parent must leave it open \
             across exec (no close-on-exec)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn an_inherited_descriptor_is_the_same_file() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("pair");
        let copy = inherited(theirs.as_raw_fd()).expect("open");
        let mut copy = std::os::unix::net::UnixStream::from(copy);
        ours.write_all(b"x").expect("write");
        copy.read_exact(&mut [0]).expect("read");
        let error = inherited(9999).expect_err("not open");
        assert!(
            error.contains("9999") && error.contains("close-on-exec"),
            "{error}"
        );
    }
}
