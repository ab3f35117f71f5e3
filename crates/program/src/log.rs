//! Log lines, and a cap on those a guest can cause.

use std::backtrace::BacktraceStatus;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt;

/// Log formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Human,
    /// One JSON object per line.
    Json,
}

/// Lines that wait for a reader of standard error; more are lost, and counted.
const QUEUE: usize = 4096;

static LOST: OnceLock<ErrorCounter> = OnceLock::new();

/// Lines that were lost, because standard error is not read, or too slowly.
pub fn lost() -> u64 {
    LOST.get().map_or(0, |lost| lost.dropped_lines() as u64)
}

/// Logging. Dropped, it waits about a second at most for the last lines to be written.
#[must_use = "the last lines are lost without it"]
pub struct Log(#[expect(dead_code, reason = "held for its end")] WorkerGuard);

/// Starts logging to standard error, panics included.
///
/// A line never waits for standard error, which may be a pipe without a reader: the thread that writes it may serve a
/// hundred guests. Another thread writes.
pub fn start(format: LogFormat, verbose: u8) -> Log {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE)
        .lossy(true)
        .thread_name("log")
        .finish(std::io::stderr());
    let _ = LOST.set(writer.error_counter());
    let level = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let base = fmt()
        .with_writer(writer)
        .with_max_level(level)
        .with_target(false)
        // It would say on standard error that it cannot write to standard error, and panic.
        .log_internal_errors(false);
    // A second start (tests) keeps the first.
    let _ = match format {
        LogFormat::Human => {
            let ansi = rustix::termios::isatty(std::io::stderr());
            tracing::subscriber::set_global_default(base.with_ansi(ansi).finish())
        }
        LogFormat::Json => {
            tracing::subscriber::set_global_default(base.json().flatten_event(true).finish())
        }
    };
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed").to_owned();
        let trace = std::backtrace::Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => {
                // To find the names, files are read, which a worker cannot.
                let trace = threads::apart(move || trace.to_string());
                tracing::error!("thread {name} {panic}\n{trace}");
            }
            _ => tracing::error!("thread {name} {panic}"),
        }
    }));
    Log(guard)
}

/// Lines held back before one that passes; a field of that line, absent when there were none.
pub type Held = Option<u64>;

/// Lets ten lines pass in five seconds; what is held back is counted and told with the next line
/// that passes. For every line that a guest or a peer can cause at will.
#[derive(Debug, Default)]
pub struct Limit(Mutex<LimitState>);

#[derive(Debug, Default)]
struct LimitState {
    since: Option<Instant>,
    passed: u32,
    held: u64,
}

const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(5);

impl Limit {
    /// `Some(held back so far)` when the line may be written.
    pub fn pass(&self, now: Instant) -> Option<Held> {
        let mut state = self.0.lock();
        if state
            .since
            .is_none_or(|since| now.duration_since(since) >= WINDOW)
        {
            state.since = Some(now);
            state.passed = 0;
        }
        if state.passed < LINES {
            state.passed += 1;
            let held = std::mem::take(&mut state.held);
            return Some((held > 0).then_some(held));
        }
        state.held += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_lines_is_ten_in_five_seconds() {
        let limit = Limit::default();
        let start = Instant::now();
        let passed = (0..1000).filter(|_| limit.pass(start).is_some()).count();
        assert_eq!(passed, 10);
        assert_eq!(limit.pass(start + WINDOW), Some(Some(990)));
        assert_eq!(limit.pass(start + WINDOW), Some(None));
    }
}
