//! Messages of Varlink: JSON objects, each ended by a NUL.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// Longest call, in bytes.
pub const MAX_REQUEST: usize = 64 << 10;

/// Longest call of an owner, which may bring a configuration file of a thousand NICs.
pub const MAX_OWNERS_REQUEST: usize = 1 << 20;

/// Descriptors that may come with a call.
pub const MAX_FDS: usize = 16;

/// Longest reply, in bytes: counters of a thousand NICs, or a thousand functions with all that they were refused.
pub const MAX_REPLY: usize = 64 << 20;

/// A call as it comes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Interface and method, with dots.
    pub method: String,
    /// What the method is told.
    #[serde(default, deserialize_with = "or_nothing")]
    pub parameters: Map<String, Value>,
    /// Several replies are welcome.
    #[serde(default, deserialize_with = "or_nothing")]
    pub more: bool,
    /// No reply is wanted.
    #[serde(default, deserialize_with = "or_nothing")]
    pub oneway: bool,
    /// Another protocol is wanted afterwards.
    #[serde(default, deserialize_with = "or_nothing")]
    pub upgrade: bool,
}

/// Some clients write null for what they leave out.
fn or_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Request {
    /// What a message says.
    ///
    /// # Errors
    /// It is no call.
    pub fn parse(message: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(message).map_err(|error| Failure::InvalidParameter {
            parameter: error.to_string(),
        })
    }

    /// As it goes over the socket.
    pub fn to_message(&self) -> Vec<u8> {
        let mut call = json!({ "method": self.method, "parameters": self.parameters });
        let words = [
            ("more", self.more),
            ("oneway", self.oneway),
            ("upgrade", self.upgrade),
        ];
        for (name, on) in words {
            if on {
                call[name] = Value::Bool(true);
            }
        }
        ended(call)
    }
}

/// What was asked for, as it goes over the socket. It may be long, and is written in one pass.
pub fn reply(parameters: &impl Serialize, continues: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Reply<'a, T> {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        continues: bool,
        parameters: &'a T,
    }
    let reply = Reply {
        continues,
        parameters,
    };
    let mut bytes = serde_json::to_vec(&reply).unwrap_or_default();
    bytes.push(0);
    bytes
}

/// The same, of parameters that are written as JSON: what a hundred thousand counters need not be built for.
pub fn reply_written(write: impl FnOnce(&mut String)) -> Vec<u8> {
    let mut text = String::from("{\"parameters\":");
    write(&mut text);
    text.push_str("}\0");
    text.into_bytes()
}

/// Why it was not done, as it goes over the socket.
pub fn refusal(failure: Failure) -> Vec<u8> {
    ended(serde_json::to_value(failure).unwrap_or_default())
}

/// Bytes that stand for a value, without what is absent, and the NUL behind it.
fn ended(value: Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(&without_nulls(value)).unwrap_or_default();
    bytes.push(0);
    bytes
}

/// The same without members that are null: they are as good as absent, and people read this too.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, v)| (name, without_nulls(v))).collect())
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

/// Bytes of a connection, cut into messages.
#[derive(Debug)]
pub struct Messages {
    bytes: Vec<u8>,
    /// No end is in the bytes before here.
    looked: usize,
    most: usize,
}

impl Messages {
    /// None yet; each may have so many bytes.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            looked: 0,
            most,
        }
    }

    /// What has come beyond the last message that was taken.
    pub fn into_rest(self) -> Vec<u8> {
        self.bytes
    }

    /// More bytes came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, without its end.
    ///
    /// # Errors
    /// A message is longer than it may be; there is no way to go on after that.
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes[self.looked..].iter().position(|b| *b == 0);
        let Some(end) = end.map(|end| self.looked + end) else {
            self.looked = self.bytes.len();
            return match self.looked > self.most {
                true => Err(TooLong(self.most)),
                false => Ok(None),
            };
        };
        if end > self.most {
            return Err(TooLong(self.most));
        }
        let rest = self.bytes.split_off(end + 1);
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.truncate(end);
        self.looked = 0;
        Ok(Some(message))
    }

    /// Whether a message has begun and not ended, or waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A message is longer than so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of more than {0} bytes")]
pub struct TooLong(pub usize);
