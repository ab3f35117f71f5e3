//! vfio-user's messages on a stream.

use peer::stream::Framed;
pub(crate) use peer::stream::{Filled, MAX_FDS, Received, Sender};

use crate::codec::{HEADER_LEN, Header, MESSAGE_OVERHEAD};

/// The receiving half of a connection.
pub(crate) type Receiver = peer::stream::Receiver<Header>;

/// Bytes of a message with so many bytes of data.
pub(crate) fn message(max_data: usize) -> usize {
    max_data + MESSAGE_OVERHEAD
}

impl Framed for Header {
    const LEN: usize = HEADER_LEN;
    type Bytes = [u8; HEADER_LEN];

    fn read(bytes: &[u8]) -> Option<Self> {
        Self::parse(bytes)
    }

    fn message_len(&self) -> usize {
        self.size as usize
    }

    fn bytes(&self) -> Self::Bytes {
        self.to_bytes()
    }
}
