//! Replies.

use control::{Failure, reply_written};
use serde::Serialize;

/// A reply, as it goes over the socket.
pub(super) fn told(reply: impl Serialize) -> Result<Vec<u8>, Failure> {
    let text = serde_json::to_string(&reply);
    let text = text.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(reply_written(|reply| reply.push_str(&text)))
}
