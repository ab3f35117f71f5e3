//! `hypernic trace`: what would become of a frame.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use control::{NicTrace, Traced};
use program::LogFormat;

use super::place::{Place, Printed, with};
use crate::error::Error;
use crate::hex;

/// `hypernic trace`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["frame", "pcap"]))]
pub struct TraceCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// The NIC whose guest sends the frame.
    nic: String,
    /// The frame in hexadecimal digits, from its destination on and without FCS; spaces, colons and dots do not count.
    #[arg(long, value_name = "HEX")]
    frame: Option<String>,
    /// Frames of a file of Ethernet frames: pcap, or pcapng.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Most frames of the file.
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: usize,
    /// Follow the frame as it comes to the NIC instead.
    #[arg(long)]
    received: bool,
}

impl TraceCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses; a file that cannot be read.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let frames = match (&self.frame, &self.pcap) {
            (Some(frame), _) => {
                let ignored = |c: &char| !(c.is_whitespace() || matches!(c, ':' | '.'));
                vec![frame.chars().filter(ignored).collect()]
            }
            (None, Some(file)) => {
                let all = read(file)?.into_iter().take(self.count);
                all.map(|frame| hex::of(&frame)).collect()
            }
            (None, None) => Vec::new(),
        };
        let mut client = self.place.connect()?;
        let mut text = String::new();
        for frame in frames {
            let reply = with(client.call(&NicTrace {
                name: self.nic.clone(),
                frame,
                received: Some(self.received),
            }))?;
            text += &self.printed.show(format, &reply, told);
        }
        Ok(text)
    }
}

fn told(traced: &Traced) -> String {
    let mut text = String::new();
    for step in &traced.steps {
        // Writing to a String cannot fail.
        let _ = match &step.counter {
            Some(counter) => writeln!(text, "{}: {}  [{counter}]", step.at, step.what),
            None => writeln!(text, "{}: {}", step.at, step.what),
        };
    }
    let _ = match traced.reached.is_empty() {
        true => writeln!(text, "no port gets it"),
        false => writeln!(text, "gets it: {}", traced.reached.join(", ")),
    };
    text
}

fn read(file: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let refused = |why: &str| Error::Host(format!("cannot read {}: {why}", file.display()));
    let bytes = std::fs::read(file).map_err(|error| refused(&error.to_string()))?;
    frames(&bytes).ok_or_else(|| refused("it is no pcap or pcapng of Ethernet frames"))
}

/// The frames of a capture file; what is cut off at its end is left out.
fn frames(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let magic: [u8; 4] = file.get(..4)?.try_into().ok()?;
    match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
        (0xa1b2_c3d4 | 0xa1b2_3c4d, _) => pcap(file, u32::from_le_bytes),
        (_, 0xa1b2_c3d4 | 0xa1b2_3c4d) => pcap(file, u32::from_be_bytes),
        (0x0a0d_0d0a, _) => match file.get(8..12)? {
            [0x4d, 0x3c, 0x2b, 0x1a] => pcapng(file, u32::from_le_bytes),
            _ => pcapng(file, u32::from_be_bytes),
        },
        _ => None,
    }
}

/// How a number of four bytes is read.
type Read = fn([u8; 4]) -> u32;

fn number(bytes: &[u8], at: usize, read: Read) -> Option<usize> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(read(four) as usize)
}

const ETHERNET: usize = 1;

fn pcap(file: &[u8], read: Read) -> Option<Vec<Vec<u8>>> {
    if number(file, 20, read)? & 0xffff != ETHERNET {
        return None;
    }
    let mut all = Vec::new();
    let mut rest = file.get(24..)?;
    while let Some(len) = number(rest, 8, read) {
        let Some(frame) = rest.get(16..).and_then(|rest| rest.get(..len)) else {
            break;
        };
        all.push(frame.to_vec());
        rest = &rest[16 + len..];
    }
    Some(all)
}

fn pcapng(file: &[u8], read: Read) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut rest = file;
    while let (Some(kind), Some(len)) = (number(rest, 0, read), number(rest, 4, read)) {
        let Some(block) = rest.get(..len).filter(|_| len >= 12) else {
            break;
        };
        // The link type has two bytes, the first two whichever way they are written.
        let link = || {
            block
                .get(8..10)?
                .try_into()
                .ok()
                .map(|two: [u8; 2]| read([two[0], two[1], 0, 0]))
        };
        if kind == 1 && !matches!(link()?, 1 | 0x1_0000) {
            return None;
        }
        if kind == 6 {
            let len = number(block, 20, read)?;
            let frame = block.get(28..).and_then(|rest| rest.get(..len));
            all.push(frame?.to_vec());
        }
        rest = &rest[len..];
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word(big: bool) -> fn(u32) -> [u8; 4] {
        if big {
            u32::to_be_bytes
        } else {
            u32::to_le_bytes
        }
    }

    fn classic(big: bool) -> Vec<u8> {
        let word = word(big);
        let words = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 0xffff, 1, 7, 7, 3, 3];
        [words.map(word).concat(), vec![1, 2, 3]].concat()
    }

    fn next_generation(big: bool) -> Vec<u8> {
        let word = word(big);
        let words = |words: &[u32]| words.iter().flat_map(|n| word(*n)).collect::<Vec<_>>();
        let block = |kind: u32, body: &[u8]| {
            let len = word(body.len() as u32 + 12);
            [&word(kind), &len[..], body, &len].concat()
        };
        let link = if big { [0, 1] } else { [1, 0] };
        let frame = [words(&[0, 0, 0, 3, 3]), vec![1, 2, 3, 0]].concat();
        [
            block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX])),
            block(1, &[&link[..], &[0; 6]].concat()),
            block(6, &frame),
        ]
        .concat()
    }

    #[test]
    fn frames_of_both_forms_and_orders_are_found() {
        let wanted = Some(vec![vec![1, 2, 3]]);
        for big in [false, true] {
            for file in [classic(big), next_generation(big)] {
                assert_eq!(frames(&file), wanted);
                // Cut off, it has none.
                assert_eq!(frames(&file[..file.len() - 1]), Some(Vec::new()));
            }
        }
        let mut radio = classic(false);
        radio[20] = 105;
        assert_eq!(frames(&radio), None);
        assert_eq!(frames(b"#!/bin/sh"), None);
    }

    proptest! {
        #[test]
        fn no_file_is_too_odd(tail in prop::collection::vec(any::<u8>(), 0..80), big in any::<bool>(), next in any::<bool>(), at in 4..60usize) {
            let mut file = if next { next_generation(big) } else { classic(big) };
            file.truncate(at);
            file.extend(tail);
            let _ = frames(&file);
        }
    }
}
