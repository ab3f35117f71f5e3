//! A stream between two guests that this program plays: one thread looks at both all the time, or a thread at each.

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
    /// Of them, those in rounds in which a frame was queued or came; of all threads together.
    pub at_work: f64,
    /// Processor seconds of the guests' threads meanwhile.
    pub cpu: f64,
    /// Threads of guests.
    pub threads: u32,
    /// Looks for received frames, and those of them that found some.
    pub looks: u64,
    /// Looks that found some.
    pub found: u64,
}

impl Streamed {
    /// The part of their time, 0 to 1, that the guests were at work.
    pub fn share_at_work(&self) -> f64 {
        self.at_work / self.seconds / f64::from(self.threads.max(1))
    }

    /// What two guests on threads of their own did together.
    fn with(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            seconds: self.seconds.max(other.seconds),
            at_work: self.at_work + other.at_work,
            cpu: self.cpu + other.cpu,
            threads: self.threads + other.threads,
            looks: self.looks + other.looks,
            found: self.found + other.found,
        }
    }
}

/// Sends as fast as it goes, from a thread on the first processor.
///
/// # Errors
/// When a device is gone.
pub fn run<W: Way + Send>(ends: &mut [W; 2], stream: Stream) -> Result<Streamed> {
    run_on(ends, stream, &[machine::cores().0])
}

/// The same from a thread on one processor, or from one for each guest on two.
///
/// # Errors
/// When a device is gone.
pub fn run_on<W: Way + Send>(
    ends: &mut [W; 2],
    stream: Stream,
    cores: &[usize],
) -> Result<Streamed> {
    let done = match cores {
        [first, second] => {
            let [a, b] = ends.each_mut();
            std::thread::scope(|scope| {
                let a = on_core(scope, *first, move || side(a, true, stream));
                let b = on_core(scope, *second, move || side(b, stream.both_ways, stream));
                Ok(ended(a)?.with(ended(b)?))
            })
        }
        _ => {
            let core = cores.first().copied().unwrap_or_default();
            let ends = &mut *ends;
            std::thread::scope(|scope| ended(on_core(scope, core, move || flow(ends, stream))))
        }
    }?;
    settle(ends)?;
    Ok(done)
}

/// A guest's thread.
type Running<'s> = std::thread::ScopedJoinHandle<'s, Result<Streamed>>;

fn on_core<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    core: usize,
    work: impl FnOnce() -> Result<Streamed> + Send + 's,
) -> Running<'s> {
    scope.spawn(move || {
        machine::pin(core);
        work()
    })
}

fn ended(running: Running<'_>) -> Result<Streamed> {
    running
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What has come in, as of now.
fn look<W: Way>(at: &mut W, done: &mut Streamed) -> Result<()> {
    let came = at.receive(TAKEN)?;
    done.received += u64::from(came);
    done.looks += 1;
    done.found += u64::from(came > 0);
    Ok(())
}

/// One round of a direction: a burst out, what has come in.
fn way<W: Way>(from: &mut W, to: &mut W, burst: u32, done: &mut Streamed) -> Result<()> {
    done.sent += u64::from(from.send(burst)?);
    look(to, done)
}

/// Both guests, in turn.
fn flow<W: Way>([a, b]: &mut [W; 2], stream: Stream) -> Result<Streamed> {
    rounds(stream.seconds, |done| {
        way(a, b, stream.burst, done)?;
        if stream.both_ways {
            way(b, a, stream.burst, done)?;
        }
        Ok(())
    })
}

/// One guest.
fn side<W: Way>(own: &mut W, sends: bool, stream: Stream) -> Result<Streamed> {
    rounds(stream.seconds, |done| {
        if sends {
            done.sent += u64::from(own.send(stream.burst)?);
        }
        look(own, done)
    })
}

fn rounds(seconds: f64, mut round: impl FnMut(&mut Streamed) -> Result<()>) -> Result<Streamed> {
    let mut done = Streamed {
        threads: 1,
        ..Streamed::default()
    };
    let mut at_work = Duration::ZERO;
    let mut idle = 0;
    let cpu = machine::thread_time();
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let mut now = start;
    while now < until {
        let before = done.sent + done.received;
        round(&mut done)?;
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
    fn guests_on_threads_of_their_own_lose_nothing_either() {
        for both_ways in [false, true] {
            let stream = Stream {
                burst: 4,
                both_ways,
                seconds: 0.05,
            };
            let mut ends = ends(false);
            let done = run_on(&mut ends, stream, &[0, 0]).unwrap();
            assert!(done.received > 0 && done.threads == 2, "{done:?}");
            // What was under way at the end has been taken by nobody's count.
            let rest = done.sent - done.received;
            assert!(rest <= u64::from(2 * ROOM), "{done:?}");
            assert_eq!(ends[0].back.load(Ordering::Relaxed), 0);
            assert!(done.share_at_work() <= 1.0 && done.looks >= done.found);
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
