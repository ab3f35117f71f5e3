//! A small client of QEMU's machine protocol (docs/interop/qmp-spec.rst): one JSON object a line.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A connection that has been through capability negotiation.
#[derive(Debug)]
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    partial: Vec<u8>,
    events: Vec<Value>,
}

/// How a command can fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QmpError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
}

/// QEMU answers from its main loop, which a device realising over a slow socket can hold up for 5 s.
const ANSWER: Duration = Duration::from_secs(60);

impl Qmp {
    /// Connects and negotiates.
    pub(crate) fn connect(path: &Path) -> Result<Self, QmpError> {
        let stream = UnixStream::connect(path)?;
        let mut qmp = Self {
            reader: BufReader::new(stream),
            partial: Vec::new(),
            events: Vec::new(),
        };
        qmp.message(Instant::now() + ANSWER)?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its `return` member.
    pub(crate) fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let mut line = json!({"execute": command, "arguments": arguments}).to_string();
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes())?;
        let deadline = Instant::now() + ANSWER;
        loop {
            let mut message = self.message(deadline)?;
            if let Some(error) = message.get("error") {
                let text = error["desc"].as_str().unwrap_or("no description");
                return Err(QmpError::Refused(text.to_owned()));
            }
            if message.get("return").is_some() {
                return Ok(message["return"].take());
            }
            self.events.push(message);
        }
    }

    /// Waits for an event of this name for which `wanted` holds, among those already seen too.
    pub(crate) fn event(
        &mut self,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
        timeout: Duration,
    ) -> io::Result<Value> {
        let deadline = Instant::now() + timeout;
        loop {
            let hit = |e: &Value| e["event"] == name && wanted(&e["data"]);
            if let Some(at) = self.events.iter().position(hit) {
                return Ok(self.events.remove(at)["data"].take());
            }
            let message = self.message(deadline)?;
            self.events.push(message);
        }
    }

    fn message(&mut self, deadline: Instant) -> io::Result<Value> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no answer from QEMU",
                ));
            }
            self.reader.get_ref().set_read_timeout(Some(left))?;
            match self.reader.read_until(b'\n', &mut self.partial) {
                Ok(_) if self.partial.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.partial);
                    return serde_json::from_slice(&line).map_err(io::Error::other);
                }
                Ok(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "QEMU closed its QMP socket",
                    ));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn answers_errors_and_events_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut out = stream.try_clone().unwrap();
            let mut lines = BufReader::new(stream).lines();
            out.write_all(b"{\"QMP\": {}}\r\n").unwrap();
            let mut next =
                || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(next()["execute"], "qmp_capabilities");
            out.write_all(b"{\"return\": {}}\r\n").unwrap();
            assert_eq!(next(), json!({"execute": "x", "arguments": {"a": 1}}));
            out.write_all(b"{\"event\": \"E\", \"data\": {\"n\": 1}}\r\n{\"return\"")
                .unwrap();
            out.write_all(b": {\"v\": 7}}\r\n").unwrap();
            next();
            out.write_all(b"{\"error\": {\"class\": \"G\", \"desc\": \"no such device\"}}\r\n")
                .unwrap();
            out.write_all(b"{\"event\": \"E\", \"data\": {\"n\": 2}}\r\n")
                .unwrap();
        });
        let mut qmp = Qmp::connect(&path).unwrap();
        assert_eq!(qmp.execute("x", json!({"a": 1})).unwrap(), json!({"v": 7}));
        let refused = qmp.execute("y", json!({})).unwrap_err();
        assert_eq!(refused.to_string(), "no such device");
        let second = qmp
            .event("E", |d| d["n"] == 2, Duration::from_secs(5))
            .unwrap();
        assert_eq!(second, json!({"n": 2}));
        qmp.event("E", |d| d["n"] == 1, Duration::from_secs(5))
            .unwrap();
        server.join().unwrap();
        let gone = qmp
            .event("E", |_| true, Duration::from_secs(5))
            .unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }
}
