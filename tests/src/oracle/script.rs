//! What is done to both machines, as data that can be printed, cut down, kept in a file and run again.

use std::fmt;
use std::str::FromStr;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes `size` bytes (1, 2, 4 or 8) at an offset of the register window.
    Write {
        /// Offset in BAR 0.
        at: u32,
        /// Bytes.
        size: u8,
        /// Little-endian value.
        value: u64,
    },
    /// Time passes until no timer is left; then `size` bytes of the register window are read, and what
    /// comes is compared.
    Read {
        /// Offset in BAR 0.
        at: u32,
        /// Bytes.
        size: u8,
    },
    /// The guest writes its memory.
    Mem {
        /// Physical address.
        at: u64,
        /// What it writes.
        bytes: Vec<u8>,
    },
    /// Time passes until no timer is left; then frames come from the wire.
    Frames(Vec<Vec<u8>>),
    /// PCI configuration turns MSI-X on; each vector is open, and its message a write to a place of its
    /// own.
    Msix,
    /// Time passes until no timer is left; then registers, rings, line and sent frames are compared.
    Look,
}

impl Op {
    /// A 32-bit write.
    pub(super) fn write(at: u32, value: u32) -> Op {
        let value = value.into();
        Op::Write { at, size: 4, value }
    }

    /// A 32-bit read.
    pub(super) fn read(at: u32) -> Op {
        Op::Read { at, size: 4 }
    }
}

/// A list of steps. Both machines start it fresh from a bus reset, with memory zeroed, BARs mapped,
/// bus mastering on and the link up; a look and a reading of all registers and memory end it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The steps.
    pub ops: Vec<Op>,
}

/// A text that is no script.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadScript {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Runs of equal bytes from this length on are written as `xx*count`.
const RUN: usize = 12;

fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let mut open = false;
    for chunk in bytes.chunk_by(|a, b| a == b) {
        if chunk.len() >= RUN {
            write!(f, " {:02x}*{}", chunk[0], chunk.len())?;
            open = false;
            continue;
        }
        if !open {
            f.write_str(" ")?;
            open = true;
        }
        for byte in chunk {
            write!(f, "{byte:02x}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Write { at, size, value } => {
                write!(f, "w{size} {at:#06x} {value:#x}")
            }
            Op::Read { at, size } => write!(f, "r{size} {at:#06x}"),
            Op::Msix => f.write_str("msix"),
            Op::Mem { at, bytes } => {
                write!(f, "mem {at:#x}")?;
                write_bytes(f, bytes)
            }
            Op::Frames(frames) => {
                f.write_str("frames")?;
                for (i, frame) in frames.iter().enumerate() {
                    if i > 0 {
                        f.write_str(" ,")?;
                    }
                    write_bytes(f, frame)?;
                }
                Ok(())
            }
            Op::Look => f.write_str("look"),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ops.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

fn number(word: Option<&str>) -> Result<u64, String> {
    let word = word.ok_or("a number is missing")?;
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| format!("`{word}` is no number"))
}

fn bytes<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in words {
        let (digits, times) = match word.split_once('*') {
            Some((digits, times)) => (digits, number(Some(times))?),
            None => (word, 1),
        };
        let times = usize::try_from(times).ok().filter(|n| *n <= 1 << 20);
        let times = times.ok_or_else(|| format!("`{word}` is too long"))?;
        if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
            return Err(format!("`{word}` are no bytes"));
        }
        let mut some = Vec::new();
        for at in (0..digits.len()).step_by(2) {
            let byte = u8::from_str_radix(&digits[at..at + 2], 16);
            some.push(byte.map_err(|_| format!("`{word}` are no bytes"))?);
        }
        bytes.extend(some.repeat(times));
    }
    Ok(bytes)
}

fn parse(line: &str) -> Result<Op, String> {
    let mut words = line.split_whitespace();
    let word = words.next().unwrap_or_default();
    let width = || match &word[1..] {
        "1" => Ok(1),
        "2" => Ok(2),
        "4" => Ok(4),
        "8" => Ok(8),
        other => Err(format!(
            "an access is 1, 2, 4 or 8 bytes wide, not `{other}`"
        )),
    };
    let offset = |word| u32::try_from(number(word)?).map_err(|_| "no such offset".to_owned());
    match word {
        "look" => Ok(Op::Look),
        "msix" => Ok(Op::Msix),
        "mem" => Ok(Op::Mem {
            at: number(words.next())?,
            bytes: bytes(words)?,
        }),
        "frames" => {
            let words: Vec<&str> = words.collect();
            let frames = words.split(|w| *w == ",");
            let frames: Result<_, _> = frames.map(|f| bytes(f.iter().copied())).collect();
            Ok(Op::Frames(frames?))
        }
        _ if word.starts_with('w') => Ok(Op::Write {
            size: width()?,
            at: offset(words.next())?,
            value: number(words.next())?,
        }),
        _ if word.starts_with('r') => Ok(Op::Read {
            size: width()?,
            at: offset(words.next())?,
        }),
        _ => Err(format!("`{word}` is no step")),
    }
}

impl FromStr for Script {
    type Err = BadScript;

    /// Reads what [`fmt::Display`] wrote; `#` begins a comment.
    fn from_str(text: &str) -> Result<Self, BadScript> {
        let mut ops = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            ops.push(parse(line).map_err(|what| BadScript {
                line: index + 1,
                what,
            })?);
        }
        Ok(Script { ops })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_survives_being_printed() {
        let mut frame = vec![0xff; 6];
        frame.extend_from_slice(&[1, 2, 3]);
        frame.resize(60, 0);
        let script = Script {
            ops: vec![
                Op::Write {
                    at: 0x100,
                    size: 4,
                    value: 0x8002,
                },
                Op::Read { at: 0xc0, size: 8 },
                Op::Mem {
                    at: 0x10_0000,
                    bytes: vec![9; 5],
                },
                Op::Frames(vec![frame, vec![], vec![7; 14]]),
                Op::Msix,
                Op::Look,
            ],
        };
        let text = script.to_string();
        assert!(text.contains("00*51"), "{text}");
        assert_eq!(text.parse(), Ok(script));
    }

    #[test]
    fn what_is_no_script_is_refused_with_its_line() {
        let line = |text: &str| text.parse::<Script>().unwrap_err().line;
        assert_eq!(line("look\nw3 0 0"), 2);
        assert_eq!(line("mem 0 0"), 1);
        assert_eq!(line("frames 00*99999999"), 1);
        assert_eq!(line("jump"), 1);
    }
}
