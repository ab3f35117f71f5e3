//! Rings between cells that go on while one worker goes and the next comes: the other cell notices nothing, and what it sends meanwhile
//! waits there.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use port_ring::{Keeps, PARTS, Parts};

use crate::leaves;

/// The form of what is kept: another build may have another one.
const FORM: &str = "ring 1";

/// Keeps one in the page that workers share.
#[derive(Debug)]
pub(crate) struct KeptRing(String);

fn name_of(ring: &str, part: usize) -> Vec<u8> {
    format!("{FORM} {ring} {part}").into_bytes()
}

impl KeptRing {
    /// Of the ring where two cells meet here. `None`: there is no keeper.
    pub fn of(path: &Path) -> Option<Arc<Self>> {
        keeper::current()?;
        Some(Arc::new(Self(path.to_string_lossy().into_owned())))
    }

    /// What the worker before has left of it, if that is whole.
    pub fn take(&self) -> Option<Parts> {
        let page = keeper::current()?;
        let mut bytes = [0; 2];
        let mut part = |part| {
            let (fd, notes) = page.go_on(&name_of(&self.0, part))?;
            bytes = notes.map(|note| u32::try_from(note).unwrap_or(0));
            Some(fd)
        };
        // All of them are taken, so that what is not whole is closed.
        let fds: Vec<Option<OwnedFd>> = (0..PARTS).map(&mut part).collect();
        let fds: Option<Vec<OwnedFd>> = fds.into_iter().collect();
        let parts = fds.and_then(|fds| {
            Some(Parts {
                fds: fds.try_into().ok()?,
                bytes,
            })
        });
        if parts.is_none() {
            self.over();
        }
        parts
    }
}

impl Keeps for KeptRing {
    fn begun(&self, fds: [BorrowedFd<'_>; PARTS], bytes: [u32; 2]) {
        let Some(page) = keeper::current() else {
            return;
        };
        let ring = self.0.clone();
        let numbers = fds.map(|fd| fd.as_raw_fd());
        // A port's thread may not ask the kernel about files.
        let kept = threads::apart(move || {
            let mut parts = numbers.into_iter().enumerate();
            parts
                .all(|(part, fd)| page.keep_number(&name_of(&ring, part), fd, bytes.map(u64::from)))
        });
        if !kept {
            self.over();
        }
    }

    fn over(&self) {
        if let Some(page) = keeper::current() {
            for part in 0..PARTS {
                page.forget(&name_of(&self.0, part));
            }
        }
    }

    fn leaves(&self) -> bool {
        leaves::are()
    }
}
