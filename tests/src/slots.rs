//! At most two guests at once on this machine, across all test processes: a translated guest keeps
//! a processor busy, and with more of them than processors every wait becomes a guess.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// Places for guests.
const PLACES: usize = 2;

/// The right to run some guests, until dropped or the process ends.
#[derive(Debug)]
pub struct Slots {
    _held: Vec<File>,
}

impl Slots {
    /// Waits for places for `guests` guests (1 or 2). A test takes all it needs at once, so that no two tests
    /// wait for each other.
    ///
    /// # Errors
    /// When the lock files in `cache` cannot be made.
    ///
    /// # Panics
    /// When more places are asked for than there are.
    pub fn take(cache: &Path, guests: usize) -> Result<Self> {
        assert!((1..=PLACES).contains(&guests), "there are {PLACES} places");
        let open = |name: String| {
            let path = cache.join(name);
            File::create(&path).map_err(Error::io(format!("lock {}", path.display())))
        };
        // One at a time collects places, or two that want two could each get one.
        let gate = open("guests.lock".into())?;
        gate.lock().map_err(Error::io("lock the guests' gate"))?;
        let mut held = Vec::new();
        let mut place = 0;
        while held.len() < guests {
            let file = open(format!("guest-{place}.lock"))?;
            match file.try_lock() {
                Ok(()) => held.push(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(Error::io("lock a guest's place")(e)),
            }
            place = (place + 1) % PLACES;
            if place == 0 && held.len() < guests {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(Self { _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn never_more_than_two_and_never_stuck() {
        let dir = tempfile::tempdir().unwrap();
        let running = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for wanted in [1, 2, 1, 2, 2, 1] {
                let (running, most, dir) = (&running, &most, dir.path());
                scope.spawn(move || {
                    let slots = Slots::take(dir, wanted).unwrap();
                    let now = running.fetch_add(wanted, Ordering::SeqCst) + wanted;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(30));
                    running.fetch_sub(wanted, Ordering::SeqCst);
                    drop(slots);
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }
}
