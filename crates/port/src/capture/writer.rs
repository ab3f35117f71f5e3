//! The thread that owns the file.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use super::buffer::{Buffer, EAGER, Pending, count};
use super::pcapng;

/// Where the bytes go.
pub enum Output {
    /// A file of ours, which can be cut back to its last whole block.
    File(File),
    /// Anything else.
    Other(Box<dyn Write + Send>),
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Other(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Other(writer) => writer.flush(),
        }
    }
}

pub struct Writer {
    shared: Arc<Buffer>,
    output: Output,
    name: String,
    on_failure: Box<dyn FnOnce(String) + Send>,
    /// Bytes in the file, all of them whole blocks.
    written: u64,
}

impl Writer {
    pub fn new(
        shared: Arc<Buffer>,
        output: Output,
        name: String,
        on_failure: Box<dyn FnOnce(String) + Send>,
    ) -> Self {
        Self {
            shared,
            output,
            name,
            on_failure,
            written: 0,
        }
    }

    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut taken = Vec::new();
        let mut state = shared.state.lock();
        loop {
            self.wait(&mut state);
            let closing = state.closing;
            std::mem::swap(&mut state.blocks, &mut taken);
            state.hurry = false;
            state.writing = true;
            let result = parking_lot::MutexGuard::unlocked(&mut state, || self.write(&taken));
            taken.clear();
            state.writing = false;
            state.turns += 1;
            if let Err(error) = result {
                state.failed = true;
                state.blocks = Vec::new();
                shared.done.notify_all();
                drop(state);
                shared.tally.add(count::FAILED, 1);
                let kept = shared.tally.get(count::BYTES);
                (self.on_failure)(format!(
                    "capture to {} stopped after {kept} bytes: {error}; traffic goes on. Make \
                     room or choose another place, then start it again",
                    self.name
                ));
                return;
            }
            shared.done.notify_all();
            if closing && state.blocks.is_empty() {
                return;
            }
        }
    }

    /// Until there is something to write and no reason to wait for more.
    fn wait(&self, state: &mut parking_lot::MutexGuard<'_, Pending>) {
        while state.blocks.is_empty() && !state.closing {
            self.shared.work.wait(state);
        }
        let end = Instant::now() + self.shared.options.flush_every;
        while state.blocks.len() < EAGER && !state.hurry && !state.closing {
            if self.shared.work.wait_until(state, end).timed_out() {
                break;
            }
        }
    }

    fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
        let mut done = 0;
        let mut result = Ok(());
        while done < blocks.len() {
            match self.output.write(&blocks[done..]) {
                Ok(0) => {
                    result = Err(io::ErrorKind::WriteZero.into());
                    break;
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        if result.is_ok() {
            result = self.output.flush();
        }
        let whole = pcapng::whole_blocks(blocks, done);
        self.written += whole as u64;
        self.shared.tally.add(count::BYTES, whole as u64);
        if result.is_err()
            && let Output::File(file) = &mut self.output
        {
            // So that what is there can be read without complaints. If not, so be it.
            let _ = file.set_len(self.written);
        }
        result
    }
}
