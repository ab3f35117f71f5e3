//! Saved state: what is in front of and behind it, and how it is refused.
//!
//! A state is a plain-data type of its own, apart from the live one, with a number. It travels as
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `"hypernic"` |
//! | 8 | kind: what was saved, ASCII, padded with zeros |
//! | 2 | version of the kind's type |
//! | 2 | revision of the model that it is a NIC of, less one |
//! | 4 | length of the payload |
//! | … | payload: the type in the postcard format 1 (varints, fields in order) |
//! | 4 | CRC-32 (IEEE) of everything before |
//!
//! Numbers are little-endian. The checksum finds accidents, not attackers: the loader of a state
//! checks every field of it.
//!
//! *Policy.* A change of a type makes a new version; the old type stays, with a conversion to the
//! new one, so that any newer program loads what an older one saved. A version from the future is
//! refused with both numbers, never guessed at.
//!
//! *Revisions.* A version says how a state is written, a revision what a guest sees of the NIC. A model that
//! shows guests something else has a new revision, and can still be those before it; [`stamp`] says of a
//! state which one the NIC is, and [`stamped`] refuses that of another.
//!
//! ```
//! use hypernic_snapshot::{Kind, State, StateError, open, seal};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct V1 { speed: u32 }
//!
//! impl State for V1 {
//!     const KIND: Kind = Kind::new("lamp");
//!     const VERSION: u32 = 1;
//! }
//!
//! let blob = seal(&V1 { speed: 1000 });
//! let saved = open(V1::KIND, &blob).unwrap();
//! assert_eq!(saved.version, 1);
//! assert_eq!(saved.decode::<V1>().unwrap().speed, 1000);
//! assert!(matches!(open(Kind::new("fan"), &blob), Err(StateError::Kind { .. })));
//! ```
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a saved state begins with.
const MAGIC: [u8; 8] = *b"hypernic";
/// Bytes before the payload.
const HEAD: usize = 24;
/// Where the version is in them.
const VERSION: usize = 16;
/// Where the revision of a NIC's model is.
const REVISION: usize = 18;
/// Bytes behind it.
const TAIL: usize = 4;

/// Longest payload that is looked at. A state is some KiB; nothing hostile becomes more.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// What was saved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind([u8; 8]);

impl Kind {
    /// A kind of 1 to 8 ASCII letters, digits or dashes.
    ///
    /// # Panics
    /// When `name` is none.
    pub const fn new(name: &str) -> Self {
        let name = name.as_bytes();
        assert!(!name.is_empty() && name.len() <= 8);
        let mut kind = [0; 8];
        let mut i = 0;
        while i < name.len() {
            assert!(name[i].is_ascii_alphanumeric() || name[i] == b'-');
            kind[i] = name[i];
            i += 1;
        }
        Self(kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().position(|b| *b == 0).unwrap_or(8);
        write!(f, "{}", self.0[..len].escape_ascii())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A plain-data type that stands for one version of one kind of state.
pub trait State: Serialize + DeserializeOwned {
    /// What it is the state of.
    const KIND: Kind;
    /// Its number; from 1 on, never reused.
    const VERSION: u32;
}

/// Why a state was refused. What should have taken it is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// It does not begin as a state does.
    #[error("this is not a saved state")]
    NoState,
    /// It ends before its end, or goes on behind it.
    #[error("it has {found} bytes instead of {expected}")]
    Length {
        /// Bytes given.
        found: u64,
        /// Bytes that its header announces, or that a header needs.
        expected: u64,
    },
    /// It announces more than any state has.
    #[error("a payload of {0} bytes is too long for a state")]
    TooLong(u64),
    /// It is not as it was written.
    #[error("the checksum is wrong: the state was damaged")]
    Checksum,
    /// It is the state of something else.
    #[error("this is the state of a {found}, not of a {expected}")]
    Kind {
        /// What it is of.
        found: Kind,
        /// What was asked for.
        expected: Kind,
    },
    /// Another program wrote it, most likely a newer one.
    #[error(
        "this program does not know version {found} of the state of a {kind} (it knows 1 to {newest})"
    )]
    Version {
        /// What it is of.
        kind: Kind,
        /// Its version.
        found: u32,
        /// The newest that can be loaded.
        newest: u32,
    },
    /// It is of a NIC that shows its guest something else.
    #[error(
        "this is the state of a NIC of model revision {found}, not of {expected}: its guest would see another NIC"
    )]
    Revision {
        /// The revision of the NIC that was saved.
        found: u16,
        /// The one of the NIC that should take it.
        expected: u16,
    },
    /// The payload is not what its version says.
    #[error("the payload does not decode: {0}")]
    Malformed(String),
    /// It is of the same kind, but of another device than the one that should take it.
    #[error("it was saved by a {found}, this is a {expected}")]
    Device {
        /// Who saved it.
        found: String,
        /// Who should take it.
        expected: String,
    },
    /// A field has a value that no device can have.
    #[error("{field}: {value:#x} is not possible: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A state whose container has been checked and whose payload has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved<'a> {
    /// Version of the type in it.
    pub version: u32,
    /// The type, encoded.
    pub payload: &'a [u8],
}

impl Saved<'_> {
    /// Decodes the payload: all of it, and only as [`seal`] would have encoded it.
    pub fn decode<T: State>(&self) -> Result<T, StateError> {
        let malformed = |why: &dyn fmt::Display| StateError::Malformed(why.to_string());
        let (value, rest) =
            postcard::take_from_bytes::<T>(self.payload).map_err(|e| malformed(&e))?;
        if !rest.is_empty() {
            return Err(malformed(&format_args!("{} bytes too many", rest.len())));
        }
        let same = postcard::serialize_with_flavor(&value, Same(self.payload));
        if !same.is_ok_and(|rest| rest.is_empty()) {
            return Err(malformed(&"a number is longer than it needs to be"));
        }
        Ok(value)
    }
}

/// Most states need no more; larger ones grow.
const USUAL: usize = 8 << 10;

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Plain data has a length and no map of unknown size: there is nothing to fail.
    postcard::to_extend(value, Vec::with_capacity(USUAL)).unwrap_or_default()
}

/// Encodes into nothing: fails unless the bytes are these. What is left of them is the result.
struct Same<'a>(&'a [u8]);

impl<'a> Flavor for Same<'a> {
    type Output = &'a [u8];

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        let rest = self.0.strip_prefix(bytes);
        self.0 = rest.ok_or(postcard::Error::SerializeBufferFull)?;
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Self::Output> {
        Ok(self.0)
    }
}

/// Encodes `state` and puts the container around it.
pub fn seal<T: State>(state: &T) -> Vec<u8> {
    wrap(T::KIND, T::VERSION, &encode(state))
}

/// Puts the container around a payload as it is. For those who try what is refused.
pub fn wrap(kind: Kind, version: u32, payload: &[u8]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(HEAD + payload.len() + TAIL);
    blob.extend(MAGIC);
    blob.extend(kind.0);
    blob.extend(version.to_le_bytes());
    blob.extend(
        u32::try_from(payload.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    blob.extend(payload);
    let sum = crc32fast::hash(&blob);
    blob.extend(sum.to_le_bytes());
    blob
}

/// Checks the container of a state of `kind`.
pub fn open(kind: Kind, blob: &[u8]) -> Result<Saved<'_>, StateError> {
    let (found, saved) = contents(blob)?;
    if found != kind {
        return Err(StateError::Kind {
            found,
            expected: kind,
        });
    }
    Ok(saved)
}

/// What is in a container that is whole.
fn contents(blob: &[u8]) -> Result<(Kind, Saved<'_>), StateError> {
    let length = |expected: usize| StateError::Length {
        found: blob.len() as u64,
        expected: expected as u64,
    };
    let start = &blob[..blob.len().min(MAGIC.len())];
    if start.is_empty() || *start != MAGIC[..start.len()] {
        return Err(StateError::NoState);
    }
    let Some((head, rest)) = blob.split_first_chunk::<HEAD>() else {
        return Err(length(HEAD + TAIL));
    };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (version, announced) = (word(VERSION), word(20) as usize);
    if announced > MAX_PAYLOAD {
        return Err(StateError::TooLong(announced as u64));
    }
    if rest.len() != announced + TAIL {
        return Err(length(HEAD + announced + TAIL));
    }
    let (payload, sum) = rest.split_at(announced);
    let all = &blob[..HEAD + announced];
    if crc32fast::hash(all).to_le_bytes() != *sum {
        return Err(StateError::Checksum);
    }
    let mut found = [0; 8];
    found.copy_from_slice(&head[8..VERSION]);
    Ok((Kind(found), Saved { version, payload }))
}

/// Says of a state of which revision of its model the NIC is. What is no state stays as it is.
#[must_use]
pub fn stamp(mut state: Vec<u8>, revision: u16) -> Vec<u8> {
    let usual = revision <= 1 || contents(&state).is_err();
    if !usual {
        put_revision(&mut state, revision);
    }
    state
}

/// The state of a NIC of this revision of its model, as the model reads it.
///
/// # Errors
/// It is of another revision, or it is damaged and says so.
pub fn stamped(state: &[u8], revision: u16) -> Result<Cow<'_, [u8]>, StateError> {
    let Some(found) = revision_of(state) else {
        return Ok(Cow::Borrowed(state));
    };
    if found == 1 && revision == 1 {
        return Ok(Cow::Borrowed(state));
    }
    // A sum that is written anew must not hide that it was wrong.
    contents(state)?;
    if found != revision {
        let expected = revision;
        return Err(StateError::Revision { found, expected });
    }
    let mut usual = state.to_vec();
    put_revision(&mut usual, 1);
    Ok(Cow::Owned(usual))
}

/// The revision of its model that a state says its NIC is of; `None` of what is no state.
pub fn revision_of(state: &[u8]) -> Option<u16> {
    let more = state.strip_prefix(&MAGIC).is_some();
    let word = state.get(REVISION..REVISION + 2).filter(|_| more)?;
    u16::from_le_bytes([word[0], word[1]]).checked_add(1)
}

/// Of a whole container.
fn put_revision(state: &mut [u8], revision: u16) {
    state[REVISION..REVISION + 2].copy_from_slice(&(revision - 1).to_le_bytes());
    if let Some((all, sum)) = state.split_last_chunk_mut::<TAIL>() {
        *sum = crc32fast::hash(all).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct V1 {
        number: u64,
        flag: bool,
        words: Vec<u16>,
        maybe: Option<i32>,
    }

    impl State for V1 {
        const KIND: Kind = Kind::new("test");
        const VERSION: u32 = 1;
    }

    fn one() -> V1 {
        V1 {
            number: 300,
            flag: true,
            words: vec![1, 2, 0xffff],
            maybe: Some(-1),
        }
    }

    fn load(blob: &[u8]) -> Result<V1, StateError> {
        open(V1::KIND, blob)?.decode()
    }

    #[test]
    fn what_was_sealed_opens() {
        assert_eq!(load(&seal(&one())), Ok(one()));
    }

    #[test]
    fn every_prefix_and_every_changed_byte_is_refused() {
        let blob = seal(&one());
        for len in 0..blob.len() {
            assert!(load(&blob[..len]).is_err(), "{len}");
        }
        for at in 0..blob.len() {
            for bit in 0..8 {
                let mut bad = blob.clone();
                bad[at] ^= 1 << bit;
                assert!(load(&bad).is_err(), "byte {at} bit {bit}");
            }
        }
        let mut longer = blob.clone();
        longer.push(0);
        assert!(matches!(load(&longer), Err(StateError::Length { .. })));
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let payload = encode(&one());
        assert_eq!(load(b""), Err(StateError::NoState));
        assert_eq!(load(b"something else"), Err(StateError::NoState));
        let other = wrap(Kind::new("other"), 1, &payload);
        let refused = load(&other).expect_err("another kind");
        assert_eq!(
            refused.to_string(),
            "this is the state of a other, not of a test"
        );
        assert!(format!("{refused:?}").contains("\"other\""));
        let mut trailing = payload.clone();
        trailing.push(0);
        let blob = wrap(V1::KIND, 1, &trailing);
        assert!(matches!(load(&blob), Err(StateError::Malformed(_))));
        // 300 with a group too many.
        let mut long = vec![0xac, 0x82, 0x00];
        long.extend(&payload[2..]);
        let blob = wrap(V1::KIND, 1, &long);
        let refused = load(&blob).expect_err("not as it is written");
        assert!(refused.to_string().contains("longer than"), "{refused}");
        let mut huge = seal(&one());
        huge[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(load(&huge), Err(StateError::TooLong(u32::MAX.into())));
    }

    #[test]
    fn a_length_inside_the_payload_allocates_nothing_by_itself() {
        // A list of 2^60 words in a payload of some bytes.
        let payload = [1, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
        let blob = wrap(V1::KIND, 1, &payload);
        assert!(matches!(load(&blob), Err(StateError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            version: u32,
        ) {
            let _ = load(&bytes);
            let blob = wrap(V1::KIND, version, &bytes);
            let saved = open(V1::KIND, &blob).expect("the container is right");
            prop_assert_eq!(saved.version, version);
            if let Ok(value) = saved.decode::<V1>() {
                prop_assert_eq!(encode(&value), bytes);
            }
        }
    }

    #[test]
    fn a_state_says_of_which_revision_its_nic_is() {
        let blob = seal(&one());
        assert_eq!(stamp(blob.clone(), 1), blob, "the first is written as ever");
        assert_eq!(revision_of(&blob), Some(1));
        let third = stamp(blob.clone(), 3);
        assert_eq!(revision_of(&third), Some(3));
        assert_eq!(stamped(&third, 3).as_deref(), Ok(blob.as_slice()));
        assert_eq!(stamped(&blob, 1).as_deref(), Ok(blob.as_slice()));
        for (state, revision, found) in [(&third, 1, 3), (&third, 2, 3), (&blob, 3, 1)] {
            let expected = revision;
            let refused = StateError::Revision { found, expected };
            assert_eq!(stamped(state, revision), Err(refused));
        }
        // A program that knows no revisions reads a version that it does not know.
        assert_eq!(
            open(V1::KIND, &third).map(|saved| saved.version),
            Ok(0x2_0001)
        );
    }

    #[test]
    fn a_damaged_state_is_not_mended_by_its_stamp() {
        let third = stamp(seal(&one()), 3);
        for at in 0..third.len() {
            for bit in 0..8 {
                let mut bad = third.clone();
                bad[at] ^= 1 << bit;
                let taken = stamped(&bad, 3);
                let refused = taken.map_or(true, |state| load(&state).is_err());
                assert!(refused, "byte {at} bit {bit}");
                assert_eq!(stamp(bad.clone(), 2), bad, "byte {at} bit {bit}");
            }
        }
        for len in 0..third.len() {
            let taken = stamped(&third[..len], 3);
            assert!(taken.map_or(true, |state| load(&state).is_err()), "{len}");
            assert_eq!(stamp(third[..len].to_vec(), 2), third[..len]);
        }
    }

    #[test]
    fn what_is_no_state_is_left_alone() {
        for none in [
            &b""[..],
            b"hypernic",
            b"something else that is longer than a head",
        ] {
            assert_eq!(stamp(none.to_vec(), 2), none);
            assert_eq!(stamped(none, 2).as_deref(), Ok(none));
            assert_eq!(revision_of(none), None);
        }
    }
}
