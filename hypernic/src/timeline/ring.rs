//! The stamps, and the file that they are written to.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use model::{Clock, Nanos};
use parking_lot::Mutex;

use crate::time::MonotonicClock;

/// The environment's word for the file.
pub const FILE: &str = "HYPERNIC_TIMELINE";

/// Stamps that are kept until they are written; later ones are lost, and counted.
const ROOM: usize = 1 << 16;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A worker slept, and something woke it.
    Woken,
    /// A worker's turn began in which its client had said something.
    Turn,
    /// A register is read: where.
    Read,
    /// A register is written: where.
    Write,
    /// A message that is no access to a register was answered.
    Other,
    /// The answers of a turn have left.
    Answered,
    /// The thread of a port runs, or another that looks for an answer there.
    Port,
    /// Frames are given to the guest: how many.
    Arrives,
    /// They have been given to it.
    Arrived,
    /// An interrupt is raised: its vector.
    Interrupt,
    /// The VMM has been told of it.
    Signalled,
    /// Frames of the guest are given to its port: how many.
    Leaves,
    /// They have been given to it.
    Left,
}

impl Step {
    const ALL: [Self; 13] = [
        Self::Woken,
        Self::Turn,
        Self::Read,
        Self::Write,
        Self::Other,
        Self::Answered,
        Self::Port,
        Self::Arrives,
        Self::Arrived,
        Self::Interrupt,
        Self::Signalled,
        Self::Leaves,
        Self::Left,
    ];

    /// Its word in the file.
    fn word(self) -> &'static str {
        match self {
            Self::Woken => "woken",
            Self::Turn => "turn",
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
            Self::Answered => "answered",
            Self::Port => "port",
            Self::Arrives => "arrives",
            Self::Arrived => "arrived",
            Self::Interrupt => "interrupt",
            Self::Signalled => "signalled",
            Self::Leaves => "leaves",
            Self::Left => "left",
        }
    }
}

/// Bits of the number that goes with a step.
const NUMBER: u32 = 40;

/// One stamp, in two words: when, and the step, the thread and the number.
#[derive(Default)]
struct Slot([AtomicU64; 2]);

/// The stamps since they were written last.
struct Ring {
    slots: Box<[Slot]>,
    /// How many were made, also beyond the room there is.
    made: AtomicUsize,
    names: Mutex<Vec<String>>,
    file: Mutex<File>,
}

static RING: OnceLock<Ring> = OnceLock::new();

thread_local! {
    /// The place of this thread's name.
    static NAME: Cell<Option<u8>> = const { Cell::new(None) };
}

/// Begins, if the environment says so. To be called before the process confines itself.
///
/// # Errors
/// The file cannot be made.
pub fn begin() -> std::io::Result<()> {
    match std::env::var_os(FILE).filter(|file| !file.is_empty()) {
        Some(file) => begin_in(&file),
        None => Ok(()),
    }
}

fn begin_in(file: &OsStr) -> std::io::Result<()> {
    let ring = Ring {
        slots: (0..ROOM).map(|_| Slot::default()).collect(),
        made: AtomicUsize::new(0),
        names: Mutex::default(),
        file: Mutex::new(File::create(file)?),
    };
    // Once in a process.
    let _ = RING.set(ring);
    Ok(())
}

/// Whether stamps are made.
pub(crate) fn is_on() -> bool {
    RING.get().is_some()
}

/// Stamps a step, now.
#[inline]
pub(crate) fn mark(step: Step, number: u64) {
    if let Some(ring) = RING.get() {
        ring.put(MonotonicClock.now(), step, number);
    }
}

/// Stamps a step of which the time is known.
#[inline]
pub(crate) fn mark_at(at: Nanos, step: Step) {
    if let Some(ring) = RING.get() {
        ring.put(at, step, 0);
    }
}

/// What a NIC's client said in this turn of its worker.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    count: usize,
    /// Of these accesses nobody was told yet.
    open: bool,
}

impl Accesses {
    /// A register is accessed.
    #[inline]
    pub(crate) fn access(&mut self, step: Step, bar: u8, offset: u64) {
        if is_on() {
            self.stamp(step, bar, offset);
        }
    }

    #[cold]
    fn stamp(&mut self, step: Step, bar: u8, offset: u64) {
        if self.count == 0 {
            mark_turn();
        }
        self.count += 1;
        self.open = true;
        mark(step, place(bar, offset));
    }

    /// All answers so far have left.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if std::mem::take(&mut self.open) {
            mark(Step::Answered, 0);
        }
    }

    /// The turn ends, in which so many messages were answered.
    #[inline]
    pub(crate) fn turn_ends(&mut self, messages: usize) {
        if !is_on() {
            return;
        }
        if messages > self.count {
            if self.count == 0 {
                mark_turn();
            }
            mark(Step::Other, (messages - self.count) as u64);
        }
        self.count = 0;
    }
}

fn mark_turn() {
    if let Some(began) = frame::turn::began() {
        mark_at(began, Step::Turn);
    }
}

/// Where a register is, as a number.
fn place(bar: u8, offset: u64) -> u64 {
    u64::from(bar) << 32 | offset & 0xffff_ffff
}

/// Writes what was stamped since the last time.
pub fn write() {
    if let Some(ring) = RING.get() {
        ring.write();
    }
}

impl Ring {
    #[cold]
    fn put(&self, at: u64, step: Step, number: u64) {
        let made = self.made.fetch_add(1, Ordering::AcqRel);
        let Some(Slot([when, what])) = self.slots.get(made) else {
            return;
        };
        let thread = NAME.get().unwrap_or_else(|| self.name());
        let number = number & ((1 << NUMBER) - 1);
        what.store(
            number | u64::from(thread) << NUMBER | (step as u64) << (NUMBER + 8),
            Ordering::Relaxed,
        );
        // It is complete once it has a time.
        when.store(at.max(1), Ordering::Release);
    }

    /// Notes this thread's name; all beyond 256 share one.
    fn name(&self) -> u8 {
        let mut names = self.names.lock();
        let own = std::thread::current();
        if names.len() < usize::from(u8::MAX) + 1 {
            names.push(own.name().unwrap_or("?").replace(' ', "_"));
        }
        let place = (names.len() - 1) as u8;
        NAME.set(Some(place));
        place
    }

    /// Stamps that are made meanwhile are in this part, in the next, or lost: it is not for traffic.
    fn write(&self) {
        let made = self.made.swap(0, Ordering::AcqRel);
        let names = self.names.lock().clone();
        let mut text = String::new();
        for Slot([when, what]) in &self.slots[..made.min(ROOM)] {
            let (when, what) = (
                when.swap(0, Ordering::Acquire),
                what.load(Ordering::Relaxed),
            );
            let step = Step::ALL.get((what >> (NUMBER + 8)) as usize);
            let (Some(step), true) = (step, when != 0) else {
                continue;
            };
            let thread = names.get((what >> NUMBER & 0xff) as usize);
            let thread = thread.map_or("?", String::as_str);
            let number = what & ((1 << NUMBER) - 1);
            let _ = writeln!(text, "{when} {thread} {} {number}", step.word());
        }
        let lost = made.saturating_sub(ROOM);
        let _ = writeln!(text, "0 - lost {lost}");
        if let Err(error) = self.file.lock().write_all(text.as_bytes()) {
            tracing::error!("cannot write the timeline: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_their_places_and_words_of_their_own() {
        for (at, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, at);
            let same = Step::ALL.into_iter().filter(|s| s.word() == step.word());
            assert_eq!(same.count(), 1);
        }
    }

    #[test]
    fn stamps_are_written_once_with_thread_step_and_number_and_what_is_lost_is_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ring = Ring {
            slots: (0..ROOM).map(|_| Slot::default()).collect(),
            made: AtomicUsize::new(0),
            names: Mutex::default(),
            file: Mutex::new(file.reopen().unwrap()),
        };
        let ring = &ring;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("a worker".into());
            let put = || {
                ring.put(7, Step::Read, place(3, 0xc0));
                ring.put(9, Step::Leaves, 2);
            };
            thread.spawn_scoped(scope, put).unwrap();
        });
        ring.write();
        for _ in 0..ROOM + 3 {
            ring.put(11, Step::Port, 0);
        }
        ring.write();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["7 a_worker read 12884902080", "9 a_worker leaves 2"]
        );
        assert_eq!(lines[2], "0 - lost 0");
        assert_eq!(lines.len(), 3 + ROOM + 1);
        assert_eq!(lines[3 + ROOM], "0 - lost 3");
    }
}
