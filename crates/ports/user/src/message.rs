//! What a port and its network's process say to each other: messages over a socket that keeps their bounds, each with as
//! many frames as there is room for.
//!
//! The port's first message is a [`Start`], and all others are frames. Those of the process have a byte before them that
//! says what they are. Frames stand one behind the other, each behind its length in two bytes.

use serde::{Deserialize, Serialize};

use crate::config::UserConfig;
use crate::count::Told;

/// Bytes of a message at most.
pub const MAX: usize = 32 * 1024;

/// What a process is to be.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub config: UserConfig,
    /// Another process may still have its ports of the host.
    pub patient: bool,
}

/// What a process says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'m> {
    /// The network is there.
    Ready,
    /// It cannot be, for this reason.
    Refused(&'m str),
    /// What was counted so far, and frames for the guests.
    Frames(Told, Frames<'m>),
    /// The process has ended: how. (The launcher says so in its place.)
    Ended(&'m str),
}

const READY: u8 = 1;
const REFUSED: u8 = 2;
const FRAMES: u8 = 3;
const ENDED: u8 = 4;

/// Bytes before the first frame of a process's message.
#[cfg(test)]
pub const HEAD: usize = 1 + size_of::<Told>();

/// A message of a process. `None`: it is none.
pub fn parse(message: &[u8]) -> Option<Said<'_>> {
    let (kind, rest) = message.split_first()?;
    let text = || std::str::from_utf8(rest).ok();
    Some(match *kind {
        READY if rest.is_empty() => Said::Ready,
        REFUSED => Said::Refused(text()?),
        ENDED => Said::Ended(text()?),
        FRAMES => {
            let (mut told, mut rest) = (Told::default(), rest);
            for value in &mut told.0 {
                let (bytes, behind) = rest.split_first_chunk()?;
                (*value, rest) = (u64::from_le_bytes(*bytes), behind);
            }
            let frames = Frames(rest);
            let whole = frames.clone().last().is_none_or(|last| last.is_some());
            Said::Frames(told, whole.then_some(frames)?)
        }
        _ => return None,
    })
}

/// The network is there.
pub fn ready() -> Vec<u8> {
    vec![READY]
}

/// It cannot be, for this reason.
pub fn refused(why: &str) -> Vec<u8> {
    said(REFUSED, why)
}

/// The process has ended, so.
pub fn ended(how: &str) -> Vec<u8> {
    said(ENDED, how)
}

fn said(kind: u8, text: &str) -> Vec<u8> {
    let end = text.floor_char_boundary(MAX / 4);
    [&[kind], &text.as_bytes()[..end]].concat()
}

/// The beginning of a message with frames.
pub fn head(message: &mut Vec<u8>, told: &Told) {
    message.push(FRAMES);
    told.0
        .iter()
        .for_each(|value| message.extend(value.to_le_bytes()));
}

/// Puts a frame of so many bytes behind the others, which `fill` writes; it returns how many those are.
pub fn push(message: &mut Vec<u8>, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> usize {
    let start = message.len();
    message.resize(start + 2 + len, 0);
    let written = fill(&mut message[start + 2..]).min(len);
    message.truncate(start + 2 + written);
    // Callers have bounded it.
    let head = u16::try_from(written).unwrap_or(u16::MAX).to_le_bytes();
    message[start..start + 2].copy_from_slice(&head);
    written
}

/// Frames one behind the other; an inner `None` stands for what is no whole frame, and is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames<'m>(pub &'m [u8]);

impl<'m> Iterator for Frames<'m> {
    type Item = Option<&'m [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.0);
        let frame = rest.split_first_chunk().and_then(|(len, behind)| {
            let len: usize = u16::from_le_bytes(*len).into();
            behind.split_at_checked(len)
        });
        let (frame, behind) = match frame {
            Some(found) => found,
            None => return Some(None),
        };
        self.0 = behind;
        Some(Some(frame))
    }
}

/// How many bytes, and frames, of whole frames at the beginning of `frames` fit into a message.
pub fn fitting(frames: &[u8]) -> (usize, usize) {
    let (mut bytes, mut count) = (0, 0);
    for frame in Frames(frames).flatten() {
        let more = bytes + 2 + frame.len();
        if more > MAX {
            break;
        }
        (bytes, count) = (more, count + 1);
    }
    (bytes, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::TOLD;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_understood() {
        assert_eq!(parse(&ready()), Some(Said::Ready));
        assert_eq!(parse(&refused("no")), Some(Said::Refused("no")));
        assert_eq!(parse(&ended("signal 9")), Some(Said::Ended("signal 9")));
        let long = refused(&"ä".repeat(MAX));
        assert!(long.len() < MAX && matches!(parse(&long), Some(Said::Refused(_))));
        for none in [&[][..], &[0], &[1, 0], &[3; 8], &[9, 9], &[2, 0xff]] {
            assert_eq!(parse(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_are_whole_or_there_is_no_message(
            lens in prop::collection::vec(0usize..1600, 0..60),
            told in any::<[u64; TOLD.len()]>(),
            cut in 0usize..4,
        ) {
            let mut message = Vec::new();
            head(&mut message, &Told(told));
            for (at, len) in lens.iter().enumerate() {
                push(&mut message, *len, |bytes| { bytes.fill(at as u8); bytes.len() });
            }
            let (bytes, count) = fitting(&message[HEAD..]);
            prop_assert!(bytes <= MAX && (count == lens.len() || bytes + 2 + lens[count] > MAX));
            let Some(Said::Frames(back, frames)) = parse(&message) else { panic!("understood") };
            prop_assert_eq!(back, Told(told));
            let sent: Vec<Vec<u8>> = frames.map(|frame| frame.expect("whole").to_vec()).collect();
            prop_assert!(sent.iter().enumerate().all(|(at, frame)| *frame == vec![at as u8; lens[at]]));
            prop_assert_eq!(sent.len(), lens.len());
            // A byte less, and the last frame is not whole.
            let less = &message[..message.len() - cut.min(lens.last().map_or(0, |len| len + 2))];
            if let Some(Said::Frames(_, mut frames)) = parse(less) {
                prop_assert!(frames.all(|frame| frame.is_some()));
            }
        }

        #[test]
        fn no_message_is_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let frames = [&[FRAMES], &bytes[..]].concat();
            for message in [&bytes[..], &frames] {
                if let Some(Said::Frames(_, frames)) = parse(message) {
                    prop_assert!(frames.count() <= bytes.len() / 2);
                }
            }
        }
    }
}
