//! What a service manager is told (`sd_notify(3)`): that the daemon serves, reads its configuration again, ends, and, if
//! it wants to know (`WatchdogSec=`), that all workers turn.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{fds, store};

/// Within how many microseconds of each other it wants signs of life, and from which process.
const WATCHDOG: [&str; 2] = ["WATCHDOG_USEC", "WATCHDOG_PID"];

/// How often it gets one in that time. A worker answers one look later than it is asked, so that one which hangs is noticed
/// after at most the whole time and two looks.
const SIGNS: u32 = 4;

/// The manager, if there is one.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// It starts the daemon again if it has heard nothing for so long.
    patience: Option<Duration>,
}

impl Manager {
    /// The one that the environment names.
    pub fn of_environment() -> Self {
        match store::manager() {
            Ok(None) => Self::default(),
            Ok(Some(socket)) => Self {
                socket: Some(socket),
                patience: patience(&WATCHDOG.map(|name| std::env::var(name).ok()), fds::is_main),
            },
            Err(error) => {
                eprintln!("hypernic: cannot reach the service manager at NOTIFY_SOCKET: {error}");
                Self::default()
            }
        }
    }

    /// Gives signs of life while nobody is `late`, if the manager wants them, until the result is dropped.
    ///
    /// # Errors
    /// There is no descriptor or thread left.
    pub fn watch(
        &self,
        late: impl Fn() -> Vec<usize> + Send + 'static,
    ) -> io::Result<Option<Watchdog>> {
        let (Some(socket), Some(patience)) = (&self.socket, self.patience) else {
            return Ok(None);
        };
        let manager = Self {
            socket: Some(socket.try_clone()?),
            patience: None,
        };
        let (over, ends) = channel::<()>();
        threads::spawn("watchdog", move || {
            let mut known = Vec::new();
            while ends.recv_timeout(patience / SIGNS) == Err(RecvTimeoutError::Timeout) {
                let now = late();
                if now.is_empty() {
                    manager.tell("WATCHDOG=1\n");
                } else if now != known {
                    tracing::error!(workers = ?now, "these do not turn: the service manager gets no sign of life");
                }
                known = now;
            }
        })?;
        tracing::debug!(?patience, "the service manager gets signs of life");
        Ok(Some(Watchdog(over)))
    }

    /// The daemon serves, or has read its configuration again.
    pub fn ready(&self) {
        self.tell("READY=1\n");
    }

    /// It reads its configuration again; `ready` ends that.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(what.as_bytes())
        {
            tracing::warn!(
                "the service manager was not told {}: {error}",
                what.trim_end()
            );
        }
    }
}

/// Signs of life to the manager, until it is dropped.
#[derive(Debug)]
pub struct Watchdog(#[expect(dead_code, reason = "its end is what is waited for")] Sender<()>);

/// How long the manager waits for a sign of life from this process, by what its environment says.
fn patience(words: &[Option<String>; 2], is_main: impl Fn(u32) -> bool) -> Option<Duration> {
    let [micros, pid] = words;
    let ours = match pid {
        Some(pid) => pid.parse().is_ok_and(is_main),
        None => true,
    };
    let micros = micros.as_ref()?.parse().ok().filter(|n| *n > 0 && ours)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn signs_of_life_are_for_the_process_that_the_manager_means() {
        let words = |micros: &str, pid: &str| {
            let word = |word: &str| (!word.is_empty()).then(|| word.to_owned());
            patience(&[word(micros), word(pid)], |pid| pid == 7)
        };
        let time = Some(Duration::from_micros(250));
        assert_eq!(words("250", "7"), time);
        assert_eq!(words("250", ""), time);
        for (micros, pid) in [
            ("250", "8"),
            ("250", "x"),
            ("0", "7"),
            ("-1", "7"),
            ("", "7"),
        ] {
            assert_eq!(words(micros, pid), None, "{micros} {pid}");
        }
    }

    #[test]
    fn signs_of_life_end_while_a_worker_is_late() {
        let (socket, told) = UnixDatagram::pair().expect("pair");
        let manager = Manager {
            socket: Some(socket),
            patience: Some(Duration::from_millis(40)),
        };
        let hangs = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&hangs);
        let late = move || Vec::from_iter(seen.load(Ordering::SeqCst).then_some(1));
        let dog = manager.watch(late).expect("thread").expect("wanted");
        let sign = |wait: Duration| {
            told.set_read_timeout(Some(wait)).expect("set");
            let mut buffer = [0; 64];
            let n = told.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..n]).into_owned())
        };
        let soon = Duration::from_secs(20);
        for _ in 0..3 {
            assert_eq!(sign(soon).as_deref(), Some("WATCHDOG=1\n"));
        }
        hangs.store(true, Ordering::SeqCst);
        // One that was under way may still come.
        while sign(Duration::from_millis(500)).is_some() {}
        hangs.store(false, Ordering::SeqCst);
        assert!(sign(soon).is_some(), "it turns again");
        drop(dog);
        while sign(Duration::from_millis(500)).is_some() {}
    }
}
