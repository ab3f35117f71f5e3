//! How long a worker was ready to run and had no processor.
//!
//! A turn in which the kernel took the processor away seems long. On a busy host that happens to some NICs and not to
//! others, and one such turn is as much as hundreds of short ones: charged to the NIC, it would cost it its part of the
//! worker for a while. The kernel counts these delays; those of long turns are taken off.

use model::Nanos;

use super::had;

/// Turns are shorter as a rule. What was taken from one that is not longer than this is as little.
pub(super) const LONG: Nanos = 50_000;

/// Of the thread that made it.
#[derive(Debug)]
pub(super) struct Delays {
    /// The delays so far, at the last look.
    seen: Nanos,
}

impl Delays {
    pub(super) fn of_this_thread() -> Self {
        let seen = had::ready().unwrap_or(0);
        Self { seen }
    }

    /// The delays since the last call, in nanoseconds.
    #[cold]
    pub(super) fn since(&mut self) -> Nanos {
        let all = had::ready().unwrap_or(self.seen);
        all.saturating_sub(std::mem::replace(&mut self.seen, all))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

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
