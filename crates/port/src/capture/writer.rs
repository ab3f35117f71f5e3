//! The thread that owns the file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::buffer::{Buffer, EAGER, Pending, count};
use super::pcapng;

/// Read and written by its owner alone.
const MODE: u32 = 0o600;

/// A file of ours.
pub struct CaptureFile {
    file: File,
    path: PathBuf,
    /// It can be cut back, and followed by another; a device or a pipe cannot.
    regular: bool,
}

impl CaptureFile {
    /// A new one, or an old one emptied. Of a link, symbolic or hard, nothing.
    pub fn create(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(code) if code == Errno::NXIO.raw_os_error() => {
                    io::Error::other("nothing reads this pipe; start its reader first")
                }
                _ => error,
            })?;
        let found = file.metadata()?;
        if found.is_file() {
            if found.nlink() > 1 {
                return Err(io::Error::other("the file has another name (a hard link)"));
            }
            file.set_permissions(Permissions::from_mode(MODE))?;
            file.set_len(0)?;
        } else {
            // A reader of a pipe may be slow; the writer's thread waits for it.
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            regular: found.is_file(),
        })
    }

    /// Moves it out of the way, in the place of the one before, and begins anew.
    fn rotate(&mut self) -> io::Result<()> {
        let mut full = OsString::from(&self.path);
        full.push(".1");
        fs::rename(&self.path, full)?;
        self.file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&self.path)?;
        Ok(())
    }
}

/// Where the bytes go.
pub enum Output {
    /// A file of ours, which can be cut back to its last whole block.
    File(CaptureFile),
    /// Anything else.
    Other(Box<dyn Write + Send>),
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.file.write(bytes),
            Self::Other(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.file.flush(),
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
            let begin = self.is_full(taken.len()).then(|| self.begin(&state));
            state.defined = state.interfaces.len();
            state.hurry = false;
            state.writing = true;
            let result = parking_lot::MutexGuard::unlocked(&mut state, || {
                begin.map_or(Ok(()), |begin| self.rotate(&begin))?;
                self.write(&taken)
            });
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

    /// Whether so many bytes more do not fit into the file.
    fn is_full(&self, more: usize) -> bool {
        let regular = matches!(&self.output, Output::File(file) if file.regular);
        let all = self.written.saturating_add(more as u64);
        regular && self.written > 0 && all > self.shared.options.file_bytes
    }

    /// What a new file begins with: the interfaces that the old one has.
    fn begin(&self, state: &Pending) -> Vec<u8> {
        let options = &self.shared.options;
        let mut blocks = Vec::new();
        pcapng::section(&mut blocks, &options.application);
        for interface in &state.interfaces[..state.defined] {
            pcapng::interface(&mut blocks, &interface.name, options.snaplen);
        }
        blocks
    }

    fn rotate(&mut self, begin: &[u8]) -> io::Result<()> {
        if let Output::File(file) = &mut self.output {
            file.rotate()?;
            self.written = 0;
            self.shared.tally.add(count::ROTATED, 1);
        }
        self.write(begin)
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
            let _ = file.file.set_len(self.written);
        }
        result
    }
}
