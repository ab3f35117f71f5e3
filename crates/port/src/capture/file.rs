//! A capture file being written.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use frame::{Batch, Counted};
use parking_lot::{Condvar, Mutex};

use super::buffer::{Buffer, CaptureOptions, Clock, EAGER, Interface, Pending, count};
use super::pcapng::{self, Beside, Direction};
use super::writer::{CaptureFile, Output, Writer};
use crate::tally::Tally;

/// A capture file being written.
pub struct Capture {
    shared: Arc<Buffer>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Capture {
    /// Starts a capture into a new file, replacing an old one. Only its owner can read it, and a symbolic link is not
    /// followed: what is captured is a guest's. A file that is full becomes `path.1`, and a new one begins.
    ///
    /// `on_failure` is called once, from the writing thread, with a sentence for people if the
    /// file can no longer be written; the capture is over then.
    ///
    /// # Errors
    /// When the file or a thread cannot be made.
    pub fn create(
        path: &Path,
        options: CaptureOptions,
        clock: Arc<dyn Clock>,
        on_failure: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let name = path.display().to_string();
        let file = CaptureFile::create(path)?;
        Self::begin(Output::File(file), name, options, clock, on_failure)
    }

    /// Starts a capture into anything that can be written to, called `name` in messages.
    ///
    /// # Errors
    /// When a thread cannot be made.
    pub fn to_writer(
        writer: Box<dyn Write + Send>,
        name: &str,
        options: CaptureOptions,
        clock: Arc<dyn Clock>,
        on_failure: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let output = Output::Other(writer);
        Self::begin(output, name.to_owned(), options, clock, on_failure)
    }

    fn begin(
        output: Output,
        name: String,
        options: CaptureOptions,
        clock: Arc<dyn Clock>,
        on_failure: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let mut blocks = Vec::new();
        pcapng::section(&mut blocks, &options.application);
        let shared = Arc::new(Buffer {
            state: Mutex::new(Pending {
                blocks,
                interfaces: Vec::new(),
                defined: 0,
                writing: false,
                turns: 0,
                hurry: false,
                closing: false,
                failed: false,
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            tally: Tally::new(count::NAMES),
            options,
            clock,
        });
        let writer = Writer::new(Arc::clone(&shared), output, name, Box::new(on_failure));
        let thread = threads::spawn("capture", move || writer.run())?;
        Ok(Arc::new(Self {
            shared,
            thread: Some(thread),
        }))
    }

    /// Adds an interface to the file, or finds the one of that name.
    pub(super) fn interface(&self, name: &str) -> u32 {
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let known = state.interfaces.iter().position(|i| i.name == name);
        let id = known.unwrap_or_else(|| {
            pcapng::interface(&mut state.blocks, name, self.shared.options.snaplen);
            state.interfaces.push(Interface {
                name: name.to_owned(),
                started: self.shared.clock.unix_nanos(),
                seen: 0,
                missed: 0,
                missed_untold: 0,
            });
            self.shared.work.notify_one();
            state.interfaces.len() - 1
        });
        id as u32
    }

    /// Keeps `picks` of `batch`, as far as there is room.
    pub(super) fn record(&self, id: u32, direction: Direction, batch: &Batch<'_>, picks: &[u16]) {
        self.note(id, (direction, None), batch, picks);
    }

    /// Keeps frames that were lost, each with this comment, on the interface of a name.
    pub fn record_lost(&self, interface: &str, batch: &Batch<'_>, picks: &[u16], comment: &str) {
        let id = self.interface(interface);
        self.note(id, (Direction::Inbound, Some(comment)), batch, picks);
    }

    fn note(
        &self,
        id: u32,
        (direction, comment): (Direction, Option<&str>),
        batch: &Batch<'_>,
        picks: &[u16],
    ) {
        let shared = &*self.shared;
        let now = shared.clock.unix_nanos();
        let snaplen = match shared.options.snaplen {
            0 => usize::MAX,
            n => n as usize,
        };
        let (mut kept, mut missed) = (0, 0);
        let mut state = shared.state.lock();
        let state = &mut *state;
        let was = state.blocks.len();
        let Some(interface) = state.interfaces.get_mut(id as usize) else {
            return;
        };
        for frame in picks.iter().filter_map(|&p| batch.get(p.into())) {
            interface.seen += 1;
            // Four for a VLAN tag.
            let need = frame.len().saturating_add(4).min(snaplen) + pcapng::PACKET_OVERHEAD;
            if state.failed || state.blocks.len() + need > shared.options.buffer {
                interface.missed += 1;
                interface.missed_untold += 1;
                missed += 1;
                continue;
            }
            let beside = Beside {
                direction,
                missed: std::mem::take(&mut interface.missed_untold),
                comment,
            };
            let blocks = &mut state.blocks;
            pcapng::packet(blocks, id, now, beside, &frame, snaplen);
            kept += 1;
        }
        let is = state.blocks.len();
        if is > was && (was == 0 || (was < EAGER && is >= EAGER)) {
            shared.work.notify_one();
        }
        shared.tally.add(count::FRAMES, kept);
        shared.tally.add(count::MISSED, missed);
    }

    /// Waits until everything recorded before is in the file. `false` if the file has failed.
    pub fn flush(&self) -> bool {
        let mut state = self.shared.state.lock();
        // The buffer being written, if any, and the one being filled.
        let enough = state.turns + 1 + u64::from(state.writing);
        while !state.failed && state.turns < enough && (state.writing || !state.blocks.is_empty()) {
            state.hurry = true;
            self.shared.work.notify_one();
            self.shared.done.wait(&mut state);
        }
        !state.failed
    }

    /// Whether the file has failed and the capture is over.
    pub fn has_failed(&self) -> bool {
        self.shared.state.lock().failed
    }
}

impl Counted for Capture {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.shared.tally.counters(visit);
    }
}

impl Drop for Capture {
    /// Writes what there is, and the statistics of each interface.
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            let state = &mut *state;
            let now = self.shared.clock.unix_nanos();
            for (id, i) in state.interfaces.iter().enumerate() {
                let out = &mut state.blocks;
                pcapng::statistics(out, id as u32, i.started, now, i.seen, i.missed);
            }
            state.closing = true;
            self.shared.work.notify_one();
        }
        if let Some(thread) = self.thread.take() {
            // A panic over there has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}
