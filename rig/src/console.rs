//! What a guest says on its serial console, and QEMU beside it: kept in memory and written to a log.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process;

/// How much of a console is kept in memory; the log has all of it.
const KEPT: usize = 4 << 20;

/// How long a reader may need for what is left in a pipe.
const SETTLE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct State {
    /// The console's last [`KEPT`] bytes.
    console: Vec<u8>,
    /// Where the next `expect` looks from, an index into `console`.
    cursor: usize,
    /// How many bytes came before those.
    dropped: usize,
    /// QEMU's own messages.
    messages: Vec<u8>,
    /// Threads that still read; the console has ended when there are none.
    readers: u32,
}

/// A console that reader threads fill.
#[derive(Debug)]
pub(crate) struct Console {
    state: Mutex<State>,
    changed: Condvar,
    log: Mutex<File>,
}

impl Console {
    pub(crate) fn new(log: &Path) -> Result<Arc<Self>> {
        let file = File::create(log).map_err(Error::io(format!("create {}", log.display())))?;
        Ok(Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            log: Mutex::new(file),
        }))
    }

    /// Starts a thread that reads the console (QEMU's standard output) until it ends.
    pub(crate) fn read_console(self: &Arc<Self>, source: impl Read + Send + 'static) {
        self.read(source, |state, bytes| {
            state.console.extend_from_slice(bytes);
            let excess = state.console.len().saturating_sub(KEPT);
            if excess > 0 {
                state.console.drain(..excess);
                state.cursor = state.cursor.saturating_sub(excess);
                state.dropped += excess;
            }
        });
    }

    /// Starts a thread that reads QEMU's messages (its standard error) until they end.
    pub(crate) fn read_messages(self: &Arc<Self>, source: impl Read + Send + 'static) {
        self.read(source, |state, bytes| {
            let room = KEPT.saturating_sub(state.messages.len());
            state
                .messages
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
        });
    }

    fn read(
        self: &Arc<Self>,
        mut source: impl Read + Send + 'static,
        keep: impl Fn(&mut State, &[u8]) + Send + 'static,
    ) {
        let console = Arc::clone(self);
        self.lock().readers += 1;
        std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(n @ 1..) = source.read(&mut chunk) {
                let bytes = &chunk[..n];
                let _ = console
                    .log
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .write_all(bytes);
                keep(&mut console.lock(), bytes);
                console.changed.notify_all();
            }
            console.lock().readers -= 1;
            console.changed.notify_all();
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the console shows `text` after where the last call found its own, and returns what came
    /// before it; `None` when it does not come in time or the console ends.
    pub(crate) fn expect(&self, text: &str, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            let fresh = &state.console[state.cursor..];
            let found = fresh.windows(text.len()).position(|w| w == text.as_bytes());
            if let Some(at) = found {
                let before = String::from_utf8_lossy(&fresh[..at]).into_owned();
                state.cursor += at + text.len();
                return Some(before);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.readers == 0 {
                return None;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Lets the next `expect` see only what comes from now on.
    pub(crate) fn skip(&self) {
        let mut state = self.lock();
        state.cursor = state.console.len();
    }

    /// What came after the first `position` bytes of the console, which is then moved to its end.
    pub(crate) fn follow(&self, position: &mut usize) -> Vec<u8> {
        let state = self.lock();
        let from = position
            .saturating_sub(state.dropped)
            .min(state.console.len());
        *position = state.dropped + state.console.len();
        state.console[from..].to_vec()
    }

    /// All that is kept of the console.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock().console).replace('\r', "")
    }

    /// What a person wants to see of it after a failure: from the kernel's panic on, else the last lines.
    pub(crate) fn last_words(&self) -> String {
        let text = self.text();
        match text.find("Kernel panic") {
            Some(at) => text[at..].lines().take(60).collect::<Vec<_>>().join("\n"),
            None => process::tail(&text, 20),
        }
    }

    /// Waits a moment for what QEMU said last, after it has ended.
    pub(crate) fn settle(&self) {
        let state = self.lock();
        let open = |state: &mut State| state.readers > 0;
        let _ = self.changed.wait_timeout_while(state, SETTLE, open);
    }

    /// QEMU's own messages so far.
    pub(crate) fn messages(&self) -> String {
        String::from_utf8_lossy(&self.lock().messages).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expect_moves_on_and_ends_with_the_console() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let console = Console::new(&log).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        console.read_console(reader);
        writer.write_all(b"SeaBIOS\r\nlog").unwrap();
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            writer.write_all(b"in: login: ").unwrap();
        });
        let long = Duration::from_secs(10);
        assert_eq!(
            console.expect("login: ", long).as_deref(),
            Some("SeaBIOS\r\n")
        );
        assert_eq!(console.expect("login: ", long).as_deref(), Some(""));
        later.join().unwrap();
        assert_eq!(
            console.expect("login: ", long),
            None,
            "the console has ended"
        );
        assert_eq!(console.text(), "SeaBIOS\nlogin: login: ");
        let mut position = 3;
        assert_eq!(console.follow(&mut position), b"BIOS\r\nlogin: login: ");
        assert_eq!(console.follow(&mut position), b"");
        assert_eq!(std::fs::read(&log).unwrap(), b"SeaBIOS\r\nlogin: login: ");
    }

    #[test]
    fn memory_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let console = Console::new(&dir.path().join("log")).unwrap();
        let mut text = vec![b'x'; KEPT + 100];
        text.extend_from_slice(b"the end");
        console.read_console(std::io::Cursor::new(text));
        assert!(console.expect("the end", Duration::from_secs(20)).is_some());
        assert_eq!(console.lock().console.len(), KEPT);
        let mut position = KEPT + 100;
        assert_eq!(console.follow(&mut position), b"the end");
    }
}
