//! What a running hypernic can be asked, and how.
//!
//! Over a Unix stream socket: one connection, one line of JSON with a [`Request`], one line with a
//! [`Reply`]. [`ask`] is the client; [`read_line`] and [`write_line`] are what both ends stand on. Words of an
//! unknown name are refused, so that a mistyped limit is not taken for none.
//!
//! ```no_run
//! use hypernic_control::{Reply, Request, VfChange, ask};
//!
//! let change = VfChange { max_tx_rate: Some(100), ..VfChange::default() };
//! let request = Request::VfSet { nic: "p0vf3".into(), change };
//! assert_eq!(ask("/run/hypernic.sock".as_ref(), &request)?, Reply::Done {});
//! # Ok::<(), hypernic_control::AskError>(())
//! ```
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest line of a request, in bytes.
pub const MAX_REQUEST: usize = 64 << 10;

/// Longest line of a reply, in bytes: a thousand functions, each with all it was refused.
pub const MAX_REPLY: usize = 16 << 20;

/// How long the other end may take for a line.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Changes the policy of a virtual function: all of it, or nothing.
    VfSet {
        /// The function's NIC.
        nic: String,
        /// What is to be other than it is.
        change: VfChange,
    },
    /// Lets a virtual function that was shut down try again.
    VfRevive {
        /// The function's NIC.
        nic: String,
    },
    /// Tells a virtual function that it will be taken away.
    VfLeave {
        /// The function's NIC.
        nic: String,
    },
    /// Resets a chip: its virtual functions are told, and start anew.
    VfReset {
        /// The chip's name.
        chip: String,
    },
    /// What is laid down for virtual functions, and what they were refused.
    VfShow {
        /// One of them; all without a name.
        nic: Option<String>,
    },
}

/// A change of a policy, in the words of `ip link set … vf`. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct VfChange {
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its VLAN; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The priority of that VLAN, 0 to 7; without `vlan` it means nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// It may choose its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<bool>,
    /// What it sends is its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spoofchk: Option<bool>,
    /// What it is told of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Most it may send, in megabits a second; 0 for any amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tx_rate: Option<u32>,
    /// What the others leave it, in megabits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tx_rate: Option<u32>,
    /// Most flooded frames a second; both limits anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<Storm>,
    /// Most interrupts a second; 0 for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u32>,
}

/// What a virtual function is told of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As the port's is.
    Auto,
    /// Up.
    Enable,
    /// Down.
    Disable,
}

/// Limits of flooded frames, in frames a second; absent for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Storm {
    /// Broadcast frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<u64>,
    /// Multicast frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<u64>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// It is done.
    Done {},
    /// It is not, and nothing has changed.
    Refused {
        /// What is wrong, and what to do.
        message: String,
    },
    /// Virtual functions.
    Vfs(Vec<Vf>),
}

/// A virtual function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Vf {
    /// Its NIC.
    pub nic: String,
    /// The chip it is of.
    pub chip: String,
    /// Its number there.
    pub index: u32,
    /// All that is laid down for it.
    pub policy: VfChange,
    /// The address it has now.
    pub address: String,
    /// Its driver has completed a reset.
    pub ready: bool,
    /// Why it does not work, if it does not.
    pub down: Option<String>,
    /// What it was refused lately, oldest first.
    pub refused: Vec<Refusal>,
}

/// Something of one kind that a virtual function was refused, once or again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Refusal {
    /// What it did.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Seconds since the last time.
    pub seconds_ago: u64,
    /// It was shut down for it.
    pub shut_down: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No daemon listens.
    #[error(
        "no daemon answers at {path}: {source}; name its control socket with --control, and give the \
         daemon one with control = \"PATH\"",
        path = .path.display()
    )]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection failed on the way.
    #[error("the daemon at {path} does not answer: {source}", path = .path.display())]
    Lost {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An answer that cannot be read: another version, or another program.
    #[error(
        "the daemon at {path} sent a reply that this program cannot read ({source}); use the \
         daemon's version of hypernic",
        path = .path.display()
    )]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Asks the daemon that listens at `path`.
///
/// # Errors
/// There is no answer, or none that can be read.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, AskError> {
    let path = || path.to_owned();
    let lost = |source| AskError::Lost {
        path: path(),
        source,
    };
    let mut stream = UnixStream::connect(path()).map_err(|source| AskError::Nobody {
        path: path(),
        source,
    })?;
    write_line(&mut stream, request, PATIENCE).map_err(lost)?;
    let line = read_line(&mut stream, MAX_REPLY, PATIENCE).map_err(lost)?;
    serde_json::from_slice(&line).map_err(|source| AskError::Foreign {
        path: path(),
        source,
    })
}

/// How a request has fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Carried out.
    Done,
    /// It cannot be.
    Refused,
    /// The line is no request.
    Malformed,
}

/// The server's part of a connection, but for [`write_line`]: reads the one request and has it carried out.
/// What is no request is refused without.
///
/// # Errors
/// There is no whole line, see [`read_line`]: nothing is to be answered.
pub fn hear(
    stream: &mut UnixStream,
    patience: Duration,
    carry_out: impl FnOnce(&Request) -> Reply,
) -> io::Result<(Reply, Fate)> {
    let line = read_line(stream, MAX_REQUEST, patience)?;
    Ok(match parse(&line) {
        Ok(request) => match carry_out(&request) {
            reply @ Reply::Refused { .. } => (reply, Fate::Refused),
            reply => (reply, Fate::Done),
        },
        Err(message) => (Reply::Refused { message }, Fate::Malformed),
    })
}

/// What a line says.
///
/// # Errors
/// It says nothing of the kind.
pub fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| format!("cannot parse the request: {error}"))
}

/// Reads a line of at most so many bytes, without its end, within this time: however the other end doles it out.
///
/// # Errors
/// The time is over, the line is too long, or the connection ends before it does.
pub fn read_line(stream: &mut UnixStream, most: usize, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut line = Vec::new();
    let mut part = [0; 4096];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let n = match stream.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(in_time(error)),
        };
        // One line is all there is on a connection: what follows is ignored.
        let end = part[..n].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(n)]);
        if line.len() > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a line of more than {most} bytes"),
            ));
        }
        if end.is_some() {
            return Ok(line);
        }
    }
}

/// Writes something as a line, within this time.
///
/// # Errors
/// The time is over, or the connection ends before the line does.
pub fn write_line<T: Serialize>(
    stream: &mut UnixStream,
    what: &T,
    patience: Duration,
) -> io::Result<()> {
    let until = Instant::now() + patience;
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut rest = &line[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(in_time(error)),
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// A socket's time-out has the name of another thing.
fn in_time(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(request: &Request) -> String {
        serde_json::to_string(request).expect("JSON")
    }

    #[test]
    fn the_words_are_these() {
        let set = Request::VfSet {
            nic: "p0vf1".into(),
            change: VfChange {
                mac: Some("52:54:00:00:00:01".into()),
                vlan: Some(7),
                max_tx_rate: Some(100),
                state: Some(State::Disable),
                storm: Some(Storm {
                    broadcast: Some(10),
                    multicast: None,
                }),
                ..VfChange::default()
            },
        };
        assert_eq!(
            said(&set),
            r#"{"do":"vf-set","nic":"p0vf1","change":{"mac":"52:54:00:00:00:01","vlan":7,"#
                .to_owned()
                + r#""state":"disable","max-tx-rate":100,"storm":{"broadcast":10}}}"#
        );
        assert_eq!(parse(said(&set).as_bytes()), Ok(set));
        let show = Request::VfShow { nic: None };
        assert_eq!(said(&show), r#"{"do":"vf-show","nic":null}"#);
        let done = serde_json::to_string(&Reply::Done {}).expect("JSON");
        assert_eq!(done, r#"{"done":{}}"#);
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        for (line, word) in [
            (r#"{"do":"vf-sit","nic":"a"}"#, "vf-sit"),
            (
                r#"{"do":"vf-set","nic":"a","change":{"maxtxrate":1}}"#,
                "maxtxrate",
            ),
            (r#"{"do":"vf-set","nic":"a","change":{"state":"up"}}"#, "up"),
            (r#"{"do":"vf-set","nic":"a"}"#, "change"),
            ("", "EOF"),
        ] {
            let refused = parse::<Request>(line.as_bytes()).expect_err(line);
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn neither_a_slow_nor_an_endless_line_is_waited_for() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("pair");
        theirs.write_all(b"half a li").expect("write");
        let error = read_line(&mut ours, 100, Duration::from_millis(20)).expect_err("no end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let endless = std::thread::spawn(move || while theirs.write_all(&[b'x'; 4096]).is_ok() {});
        let error = read_line(&mut ours, MAX_REQUEST, PATIENCE).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(ours);
        endless.join().expect("ended");
        let (mut ours, theirs) = UnixStream::pair().expect("pair");
        drop(theirs);
        let error = read_line(&mut ours, MAX_REQUEST, PATIENCE).expect_err("closed");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        // Who does not read is not waited for either.
        let (mut ours, _theirs) = UnixStream::pair().expect("pair");
        let long = "x".repeat(4 << 20);
        let error = write_line(&mut ours, &long, Duration::from_millis(20)).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_whole_line_is_carried_out_and_any_other_is_not() {
        let heard = |sent: &[u8]| {
            let (mut ours, mut theirs) = UnixStream::pair().expect("pair");
            theirs.write_all(sent).expect("write");
            drop(theirs);
            let mut done = 0;
            let heard = hear(&mut ours, PATIENCE, |_| {
                done += 1;
                Reply::Done {}
            });
            (heard.ok().map(|(_, fate)| fate), done)
        };
        let show = "{\"do\":\"vf-show\",\"nic\":null}";
        assert_eq!(heard(format!("{show}\n").as_bytes()), (Some(Fate::Done), 1));
        assert_eq!(
            heard(format!("{show}\n{show}\n").as_bytes()),
            (Some(Fate::Done), 1)
        );
        assert_eq!(heard(b"show\n"), (Some(Fate::Malformed), 0));
        assert_eq!(heard(show.as_bytes()), (None, 0));
    }

    #[test]
    fn who_is_not_there_is_named_with_the_cure() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("none.sock");
        let error = ask(&path, &Request::VfShow { nic: None }).expect_err("nobody");
        let text = error.to_string();
        assert!(
            text.contains("none.sock") && text.contains("--control"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn no_line_is_too_odd(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse::<Request>(&line);
            let _ = parse::<Reply>(&line);
        }
    }
}
