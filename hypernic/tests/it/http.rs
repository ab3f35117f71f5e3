//! A program of ours that serves HTTP, and questions to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::lab::Lab;

pub const LONG: Duration = Duration::from_secs(60);

/// A server, where it listens, and its end.
pub struct Serving {
    pub child: Child,
    /// As it has printed it.
    pub line: String,
    /// Address and port.
    pub at: String,
}

impl Serving {
    /// It asks the daemon of a lab.
    pub fn run(command: Command, lab: &Lab) -> Serving {
        Serving::start(command, &lab.control())
    }

    pub fn start(mut command: Command, control: &Path) -> Serving {
        let child = command
            .arg("--control")
            .arg(control)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("a server");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        out.read_line(&mut line).expect("where it listens");
        let line = line.trim().to_owned();
        let at = line.trim_start_matches("http://");
        let at = at.split('/').next().unwrap_or(at).to_owned();
        Serving { child, line, at }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).expect("connect");
        stream.set_read_timeout(Some(LONG)).expect("time-out");
        stream
    }

    /// What the kernel says of the process.
    pub fn status(&self, word: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("status");
        let mut lines = status.lines().filter_map(|line| line.split_once(":\t"));
        lines
            .find(|(name, _)| *name == word)
            .expect(word)
            .1
            .to_owned()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Head and text of the answer.
pub fn ask(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answer");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), text.to_owned())
}
