//! What becomes of a message.

use std::os::fd::OwnedFd;

/// Why a message is not obeyed.
pub(crate) enum Refusal {
    /// The front end may ask something else.
    Soft(&'static str),
    /// It lies, or it breaks the protocol: the connection ends.
    Hard(String),
}

impl From<&'static str> for Refusal {
    fn from(why: &'static str) -> Self {
        Self::Hard(why.to_owned())
    }
}

/// What a message is answered with.
pub(crate) enum Reply {
    /// Nothing, unless the front end asks for an acknowledgement.
    Done,
    Word(u64),
    Bytes(Vec<u8>),
    WithFd(Vec<u8>, OwnedFd),
    /// It comes later.
    Later,
}
