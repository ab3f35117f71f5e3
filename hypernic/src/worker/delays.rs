//! How long a worker was ready to run and had no processor.
//!
//! A turn in which the kernel took the processor away seems long. On a busy host that happens to some NICs and not to
//! others, and one such turn is as much as hundreds of short ones: charged to the NIC, it would cost it its part of the
//! worker for a while. The kernel counts these delays; those of long turns are taken off.

use std::fs::File;
use std::io::IoSliceMut;

use model::Nanos;
use rustix::io::{ReadWriteFlags, preadv2};

/// Turns are shorter as a rule. What was taken from one that is not longer than this is as little.
pub(super) const LONG: Nanos = 50_000;

/// Of the thread that made it.
#[derive(Debug)]
pub(super) struct Delays {
    /// `None`: the kernel does not say.
    stats: Option<File>,
    /// The delays so far, at the last look.
    seen: Nanos,
}

impl Delays {
    pub(super) fn of_this_thread() -> Self {
        let mut delays = Self {
            stats: File::open("/proc/thread-self/schedstat").ok(),
            seen: 0,
        };
        delays.since();
        delays
    }

    /// The delays since the last call, in nanoseconds.
    #[cold]
    pub(super) fn since(&mut self) -> Nanos {
        let Some(stats) = &self.stats else { return 0 };
        let mut line = [0; 80];
        let mut into = [IoSliceMut::new(&mut line)];
        // The call with which a worker reads other things too.
        let Ok(len) = preadv2(stats, &mut into, 0, ReadWriteFlags::empty()) else {
            return 0;
        };
        let Some(all) = ready(&line[..len]) else {
            return 0;
        };
        all.saturating_sub(std::mem::replace(&mut self.seen, all))
    }
}

/// The second number of `schedstat`: the time the thread was ready and another one ran.
fn ready(line: &[u8]) -> Option<Nanos> {
    let line = std::str::from_utf8(line).ok()?;
    line.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_second_number_is_taken() {
        assert_eq!(ready(b"123456789 4321 77\n"), Some(4321));
        for bad in [&b""[..], b"1", b"1 x 3", b"\xff 1 2"] {
            assert_eq!(ready(bad), None, "{bad:?}");
        }
    }

    /// More threads than processors: what this one is kept waiting comes out, once.
    #[test]
    fn delays_are_told_once_and_naps_are_none() {
        let stop = AtomicBool::new(false);
        let processors = std::thread::available_parallelism().unwrap().get();
        std::thread::scope(|scope| {
            for _ in 0..2 * processors {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let mut delays = Delays::of_this_thread();
            let until = Instant::now() + Duration::from_secs(20);
            let mut delayed = 0;
            while delayed == 0 && Instant::now() < until {
                delayed = delays.since();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(delayed > 0 && delayed < 20_000_000_000, "{delayed}");
        });
        let mut delays = Delays::of_this_thread();
        std::thread::sleep(Duration::from_millis(50));
        assert!(delays.since() < 50_000_000);
    }
}
