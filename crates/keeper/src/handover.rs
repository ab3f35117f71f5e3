//! What a worker leaves to the next one when it ends by itself, so that its clients go on: a file in memory that begins with a
//! list of descriptors, and with the program that is to go on, if that is another one.
//!
//! The list is for the keeper, which knows nothing of what follows it.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

const MAGIC: [u8; 8] = *b"hnhando1";
/// Descriptors in one handover; the kernel lets a process have fewer, as a rule.
const MOST: usize = 1 << 20;
/// Bytes of a path (`PATH_MAX`).
const LONGEST: usize = 4096;

/// The list at the beginning of a handover.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// What must stay open.
    pub(crate) descriptors: Vec<RawFd>,
    /// Who goes on; nobody in particular.
    pub(crate) program: Option<PathBuf>,
}

/// What the worker before has left.
#[derive(Debug)]
pub struct Handover {
    descriptors: HashSet<RawFd>,
    /// What it wrote behind the list.
    pub payload: Vec<u8>,
}

impl Handover {
    /// Takes one of the descriptors over. `None`: it is not among them, was taken already, or is closed.
    pub fn take(&mut self, number: RawFd) -> Option<OwnedFd> {
        let left = self.descriptors.remove(&number);
        left.then(|| crate::sys::take_over(number)).flatten()
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // Nobody wants the rest.
        for number in std::mem::take(&mut self.descriptors) {
            drop(crate::sys::take_over(number));
        }
    }
}

/// Writes one. The descriptors are the caller's, who never closes them.
pub(crate) fn write(
    descriptors: &[RawFd],
    program: Option<&Path>,
    payload: &[u8],
) -> io::Result<OwnedFd> {
    let program = program.map_or(&b""[..], |path| path.as_os_str().as_bytes());
    if descriptors.len() > MOST || program.len() > LONGEST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = MAGIC.to_vec();
    for len in [descriptors.len(), program.len()] {
        bytes.extend((len as u32).to_le_bytes());
    }
    for number in descriptors {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(program);
    bytes.extend(payload);
    file_of("handover", &bytes)
}

/// A file in memory with these bytes, such as [`Shared::keep`](crate::Shared::keep) can leave to the next worker. `name` is what
/// `/proc` calls it.
///
/// # Errors
/// There is no memory or descriptor for it.
pub fn file_of(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Reads the list only.
pub(crate) fn head(file: &File) -> io::Result<Head> {
    let mut file = file;
    file.rewind()?;
    let mut head = [0; 16];
    file.read_exact(&mut head)?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (count, len) = (number(8) as usize, number(12) as usize);
    if head[..8] != MAGIC || count > MOST || len > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut numbers = vec![0; 4 * count];
    file.read_exact(&mut numbers)?;
    let mut program = vec![0; len];
    file.read_exact(&mut program)?;
    let (numbers, _) = numbers.as_chunks::<4>();
    Ok(Head {
        descriptors: numbers.iter().map(|n| RawFd::from_le_bytes(*n)).collect(),
        program: (len > 0).then(|| OsString::from_vec(program).into()),
    })
}

/// Reads all of it.
pub(crate) fn read(fd: OwnedFd) -> io::Result<Handover> {
    let mut file = File::from(fd);
    let Head { descriptors, .. } = head(&file)?;
    let mut handover = Handover {
        descriptors: descriptors.into_iter().collect(),
        payload: Vec::new(),
    };
    file.read_to_end(&mut handover.payload)?;
    Ok(handover)
}

/// What a keeper leaves to the program that it becomes: the page's names, as words in lines.
pub(crate) mod across {
    use super::{OsStr, RawFd};

    /// The variable of the environment that has the number of the file with the lines.
    pub(crate) const VARIABLE: &str = "HYPERNIC_KEEPER";

    /// A descriptor with a name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Kept {
        pub(crate) key: u64,
        pub(crate) fd: RawFd,
        pub(crate) notes: [u64; 2],
    }

    /// All of it.
    #[derive(Debug, Default, PartialEq, Eq)]
    pub(crate) struct Left {
        /// Workers so far.
        pub(crate) life: u64,
        /// The handover of the last.
        pub(crate) handover: Option<RawFd>,
        pub(crate) kept: Vec<Kept>,
        /// Cells that run: their keys, processes and names.
        pub(crate) cells: Vec<(u64, i32, String)>,
    }

    impl Left {
        pub(crate) fn lines(&self) -> String {
            let mut text = format!("life {}\n", self.life);
            if let Some(fd) = self.handover {
                text += &format!("handover {fd}\n");
            }
            for Kept { key, fd, notes } in &self.kept {
                text += &format!("kept {key} {fd} {} {}\n", notes[0], notes[1]);
            }
            for (key, pid, name) in &self.cells {
                text += &format!("cell {key} {pid} {name}\n");
            }
            text
        }

        /// Lines that a later program has and this one does not know are left out.
        pub(crate) fn parse(text: &str) -> Self {
            let mut left = Self::default();
            for line in text.lines() {
                let mut words = line.split(' ');
                let first = words.next();
                let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
                let fd = |number: Option<u64>| number.and_then(|n| RawFd::try_from(n).ok());
                match first {
                    Some("life") => left.life = number().unwrap_or(0),
                    Some("handover") => left.handover = fd(number()),
                    Some("kept") => {
                        let (key, fd) = (number(), fd(number()));
                        let notes = [number(), number()].map(|note| note.unwrap_or(0));
                        if let (Some(key), Some(fd)) = (key.filter(|key| *key != 0), fd) {
                            left.kept.push(Kept { key, fd, notes });
                        }
                    }
                    Some("cell") => {
                        let (key, pid) = (number(), fd(number()));
                        if let (Some(key), Some(pid), Some(name)) = (key, pid, words.next()) {
                            left.cells.push((key, pid, name.to_owned()));
                        }
                    }
                    _ => {}
                }
            }
            left
        }
    }

    /// The number that is left in the environment.
    pub(crate) fn number(value: &OsStr) -> Option<RawFd> {
        value.to_str()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::across::{Kept, Left};
    use super::*;

    #[test]
    fn a_handover_is_read_as_it_was_written() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let number = std::os::fd::AsRawFd::as_raw_fd(&one);
        for program in [None, Some(Path::new("/usr/bin/hypernic"))] {
            let again = one.try_clone().expect("a descriptor");
            let number_of_it = std::os::fd::IntoRawFd::into_raw_fd(again);
            let fd = write(&[number_of_it], program, b"the rest").expect("written");
            let file = File::from(fd.try_clone().expect("a descriptor"));
            let found = head(&file).expect("a head");
            assert_eq!(found.descriptors, [number_of_it]);
            assert_eq!(found.program.as_deref(), program);
            let mut handover = read(fd).expect("all of it");
            assert_eq!(handover.payload, b"the rest");
            assert!(handover.take(number).is_none(), "not in it");
            assert!(handover.take(number_of_it).is_some());
            assert!(handover.take(number_of_it).is_none(), "taken already");
        }
    }

    #[test]
    fn what_is_no_handover_is_refused() {
        let sound = write(&[7, 8], Some(Path::new("/p")), b"x").expect("written");
        let mut sound_bytes = Vec::new();
        let mut file = File::from(sound);
        file.rewind().expect("rewound");
        file.read_to_end(&mut sound_bytes).expect("read");
        let refused = |bytes: &[u8]| {
            let file = file_of("bad", bytes).expect("written");
            head(&file.into()).is_err()
        };
        assert!(!refused(&sound_bytes));
        for len in 0..sound_bytes.len() - 1 {
            assert!(refused(&sound_bytes[..len]), "{len}");
        }
        let mut other = sound_bytes.clone();
        other[0] ^= 1;
        assert!(refused(&other));
        for at in [8, 12] {
            let mut endless = sound_bytes.clone();
            endless[at..at + 4].fill(0xff);
            assert!(refused(&endless));
        }
    }

    #[test]
    fn a_keeper_reads_what_the_one_before_has_left() {
        let left = Left {
            life: 9,
            handover: Some(12),
            kept: vec![
                Kept {
                    key: u64::MAX,
                    fd: 5,
                    notes: [1, 2],
                },
                Kept {
                    key: 3,
                    fd: 6,
                    notes: [0, u64::MAX],
                },
            ],
            cells: vec![(8, 1234, "tenant-a".into())],
        };
        assert_eq!(Left::parse(&left.lines()), left);
        let odd = "life x\nkept 0 1 2 3\nkept 5\nfrom the future 7\nkept 4 -1 0 0\nkept 4 8\ncell 5 x y\ncell 6 7\n";
        let kept = Kept {
            key: 4,
            fd: 8,
            notes: [0, 0],
        };
        let expected = Left {
            kept: vec![kept],
            ..Left::default()
        };
        assert_eq!(Left::parse(odd), expected);
    }
}
