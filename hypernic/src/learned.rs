//! Addresses that switches have learned, noted again and again for the next worker, should this one die.

use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Read, Seek};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rustix::time::{ClockId, clock_gettime};

use crate::host::Host;
use crate::left::AllLeft;

/// The names of the files in the page that workers share: one of them is whole, whenever a worker dies.
const LEARNED: [&[u8]; 2] = [b"learned", b"learned too"];
/// How far looks are apart.
const LOOK: Duration = Duration::from_secs(1);
/// Looks take at most this part of a processor.
const SHARE: u32 = 100;
/// Ages are noted anew after so long, where nothing else has changed.
const AGED: Duration = Duration::from_secs(30);
/// Longest file that is read: far more than any table has.
const LONGEST: u64 = 64 << 20;

/// Notes until it is dropped.
pub struct Noting {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Begins, if there is a keeper.
///
/// # Errors
/// No thread can be had.
pub fn begin(host: &Arc<RwLock<Host>>) -> io::Result<Option<Noting>> {
    if keeper::current().is_none() {
        return Ok(None);
    }
    let (ends, ended) = channel::<()>();
    let host = Arc::downgrade(host);
    let thread = threads::spawn("learned", move || {
        let mut noter = Noter::default();
        loop {
            let start = Instant::now();
            noter.look(&host, start);
            let rest = LOOK.max(start.elapsed() * SHARE);
            if ended.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
    })?;
    Ok(Some(Noting {
        ends: Some(ends),
        thread: Some(thread),
    }))
}

impl Drop for Noting {
    fn drop(&mut self) {
        // It holds the host while it looks, and the end needs the host alone.
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Default)]
struct Noter {
    /// What was noted last, and when.
    last: Option<(u64, Instant)>,
    failed: bool,
}

impl Noter {
    fn look(&mut self, host: &Weak<RwLock<Host>>, now: Instant) {
        let Some(host) = host.upgrade() else { return };
        let all = host.read().learned();
        drop(host);
        let is = BuildHasherDefault::<DefaultHasher>::default().hash_one(all.places());
        let same = |(was, at): (u64, Instant)| was == is && now - at < AGED;
        if self.last.is_some_and(same) {
            return;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        match note(&all, number) {
            Ok(()) => self.last = Some((is, now)),
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::error!("learned addresses are not noted for the next worker: {error}");
            }
            Err(_) => {}
        }
    }
}

fn boottime() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn note(all: &AllLeft, number: u64) -> io::Result<()> {
    let Some(page) = keeper::current() else {
        return Ok(());
    };
    let (_, bytes) = all.seal();
    let file = keeper::file_of("learned", &bytes)?;
    page.leave(name(number), file, [boottime(), number]);
    Ok(())
}

/// The name of a note: that of the one before the last.
fn name(number: u64) -> &'static [u8] {
    LEARNED[(number & 1) as usize]
}

/// What the worker before has noted, once, as old as it is by now. `None`: nothing, or nothing that can be read.
pub(crate) fn noted() -> Option<AllLeft> {
    let page = keeper::current()?;
    let mut left = LEARNED.map(|name| page.take(name));
    left.sort_by_key(|note| {
        note.as_ref()
            .map(|(_, [_, number])| std::cmp::Reverse(*number))
    });
    left.into_iter().flatten().find_map(|(file, [at, number])| {
        let mut file = File::from(file);
        let mut bytes = Vec::new();
        file.rewind().ok()?;
        (&file).take(LONGEST).read_to_end(&mut bytes).ok()?;
        let mut all = AllLeft::open(&bytes).ok()?;
        all.age(boottime().saturating_sub(at));
        // For the one behind, should this one die before it has noted anything.
        page.leave(name(number), file.into(), [at, number]);
        NUMBER.fetch_max(number, Ordering::Relaxed);
        Some(all)
    })
}

/// Of the last note.
static NUMBER: AtomicU64 = AtomicU64::new(0);
