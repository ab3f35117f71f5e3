//! What a message that makes no sense is refused with.

/// The bytes are not the message they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed vfio-user message: {0}")]
pub struct Malformed(pub &'static str);
