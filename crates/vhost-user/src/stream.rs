//! vhost-user's messages on a stream.

use peer::stream::Framed;

use crate::codec::{HEADER_LEN, Header, MAX_PAYLOAD};

/// The receiving half of a connection.
pub(crate) type Receiver = peer::stream::Receiver<Header>;

/// Bytes of the longest message.
pub(crate) const MAX_MESSAGE: usize = HEADER_LEN + MAX_PAYLOAD;

impl Framed for Header {
    const LEN: usize = HEADER_LEN;
    type Bytes = [u8; HEADER_LEN];

    fn read(bytes: &[u8]) -> Option<Self> {
        Self::parse(bytes)
    }

    fn message_len(&self) -> usize {
        HEADER_LEN.saturating_add(self.size as usize)
    }

    fn bytes(&self) -> Self::Bytes {
        self.to_bytes()
    }
}
