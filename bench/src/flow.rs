//! A stream between two guests that this program plays: one thread looks at both all the time.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::machine;

/// Most frames taken at once.
const TAKEN: u32 = 512;

/// A guest's side of a NIC, with frames ready to be sent.
pub trait Way {
    /// Sends up to `burst` frames and rings once. Returns how many there was room for.
    ///
    /// # Errors
    /// When the device is gone.
    fn send(&mut self, burst: u32) -> Result<u32>;

    /// Takes up to `most` frames that have come. Returns how many there were.
    ///
    /// # Errors
    /// When the device is gone.
    fn receive(&mut self, most: u32) -> Result<u32>;
}

/// How a stream runs.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// Frames queued before the tail is written.
    pub burst: u32,
    /// The other way at the same time.
    pub both_ways: bool,
    /// How long.
    pub seconds: f64,
}

/// What a stream did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Streamed {
    /// Frames queued.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Of them, those in rounds in which a frame was queued or came.
    pub at_work: f64,
    /// Processor seconds of the guests' thread meanwhile.
    pub cpu: f64,
    /// Looks for received frames, and those of them that found some.
    pub looks: u64,
    /// Looks that found some.
    pub found: u64,
}

/// Sends as fast as it goes, from a thread on the first processor.
///
/// # Errors
/// When a device is gone.
pub fn run<W: Way + Send>(ends: &mut [W; 2], stream: Stream) -> Result<Streamed> {
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            machine::pin(machine::cores().0);
            let done = flow(ends, stream)?;
            settle(ends)?;
            Ok(done)
        });
        work.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One round of a direction: a burst out, what has come in.
fn way<W: Way>(from: &mut W, to: &mut W, burst: u32, done: &mut Streamed) -> Result<()> {
    done.sent += u64::from(from.send(burst)?);
    let came = to.receive(TAKEN)?;
    done.received += u64::from(came);
    done.looks += 1;
    done.found += u64::from(came > 0);
    Ok(())
}

fn flow<W: Way>([a, b]: &mut [W; 2], stream: Stream) -> Result<Streamed> {
    let mut done = Streamed::default();
    let mut at_work = Duration::ZERO;
    let mut idle = 0;
    let cpu = machine::thread_time();
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(stream.seconds);
    let mut now = start;
    while now < until {
        let before = done.sent + done.received;
        way(a, b, stream.burst, &mut done)?;
        if stream.both_ways {
            way(b, a, stream.burst, &mut done)?;
        }
        let begun = std::mem::replace(&mut now, Instant::now());
        if done.sent + done.received > before {
            at_work += now - begun;
            idle = 0;
            continue;
        }
        idle += 1;
        if idle > 32 {
            // Another thread on this processor may hold what we wait for.
            std::thread::yield_now();
            now = Instant::now();
        }
    }
    done.seconds = start.elapsed().as_secs_f64();
    done.cpu = (machine::thread_time() - cpu) as f64 / 1e9;
    done.at_work = at_work.as_secs_f64();
    Ok(done)
}

/// What is still under way is neither this sample's nor the next one's.
fn settle<W: Way>([a, b]: &mut [W; 2]) -> Result<()> {
    let mut quiet = 0;
    while quiet < 20 {
        let came = a.receive(TAKEN)? + b.receive(TAKEN)?;
        quiet = if came == 0 { quiet + 1 } else { 0 };
        if came == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A cable of some frames each way; the near end's room is what the far end has taken.
    struct End {
        out: Arc<AtomicU32>,
        back: Arc<AtomicU32>,
        deaf: bool,
    }

    const ROOM: u32 = 8;

    impl Way for End {
        fn send(&mut self, burst: u32) -> Result<u32> {
            let sent = burst.min(ROOM - self.out.load(Ordering::Relaxed));
            self.out.fetch_add(sent, Ordering::Relaxed);
            Ok(sent)
        }

        fn receive(&mut self, most: u32) -> Result<u32> {
            let came = if self.deaf {
                0
            } else {
                most.min(self.back.load(Ordering::Relaxed))
            };
            self.back.fetch_sub(came, Ordering::Relaxed);
            Ok(came)
        }
    }

    fn ends(deaf: bool) -> [End; 2] {
        let [a, b] = [0, 0].map(|_| Arc::new(AtomicU32::new(0)));
        let end = |out: &Arc<AtomicU32>, back: &Arc<AtomicU32>| End {
            out: Arc::clone(out),
            back: Arc::clone(back),
            deaf,
        };
        [end(&a, &b), end(&b, &a)]
    }

    #[test]
    fn all_that_is_sent_comes_and_who_always_finds_frames_is_always_at_work() {
        for both_ways in [false, true] {
            let stream = Stream {
                burst: 4,
                both_ways,
                seconds: 0.02,
            };
            let done = run(&mut ends(false), stream).unwrap();
            assert!(done.sent > 0 && done.sent == done.received, "{done:?}");
            assert_eq!(done.looks, done.found, "{done:?}");
            assert!(
                done.at_work > 0.9 * done.seconds && done.at_work <= done.seconds,
                "{done:?}"
            );
        }
    }

    #[test]
    fn who_has_nothing_to_do_is_not_at_work() {
        let stream = Stream {
            burst: 4,
            both_ways: false,
            seconds: 0.02,
        };
        let done = run(&mut ends(true), stream).unwrap();
        assert_eq!((done.sent, done.received, done.found), (8, 0, 0));
        assert!(
            done.looks > 2 && done.at_work < 0.5 * done.seconds,
            "{done:?}"
        );
    }
}
