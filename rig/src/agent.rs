//! Runs commands in a guest over a virtio port: a shell in the guest reads it, and each command's output comes
//! back between two marks, so that output and exit code arrive as from a local process.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What a command in the guest did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; 128 + n after signal n.
    pub code: i32,
    /// Standard output and standard error, as they came.
    pub text: String,
}

impl Output {
    /// Whether the exit code was 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.code == 0
    }
}

/// How long beyond its own limit a command's answer may take: the guest kills the command at the limit, so a
/// longer silence means that the guest itself is stuck.
const GRACE: Duration = Duration::from_secs(15);

/// The host's end of the command port.
#[derive(Debug)]
pub(crate) struct Agent {
    stream: UnixStream,
    received: Vec<u8>,
    number: u64,
}

impl Agent {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            number: 0,
        }
    }

    /// Runs a command. `alive` is asked about twice a second while waiting; its error ends the wait.
    ///
    /// Answers of earlier commands that were given up on are skipped.
    pub(crate) fn run(
        &mut self,
        command: &str,
        limit: Duration,
        alive: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Output, String> {
        self.number += 1;
        let request = frame(self.number, command, limit);
        let deadline = Instant::now() + limit + GRACE;
        // A guest that does not read must not block us: its port takes what fits.
        let io = |e: io::Error| format!("the command port failed: {e}");
        self.stream.set_write_timeout(Some(GRACE)).map_err(io)?;
        self.stream.write_all(request.as_bytes()).map_err(io)?;
        loop {
            if let Some(output) = unframe(&mut self.received, self.number) {
                if output.code == TIMED_OUT {
                    return Err(format!(
                        "`{command}` was killed after {} s; its output so far:\n{}",
                        limit.as_secs(),
                        output.text
                    ));
                }
                return Ok(output);
            }
            alive()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "no answer to `{command}` for {} s; received so far:\n{}",
                    (limit + GRACE).as_secs(),
                    String::from_utf8_lossy(&self.received)
                ));
            }
            let wait = left.min(Duration::from_millis(500));
            self.stream.set_read_timeout(Some(wait)).map_err(io)?;
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(format!("QEMU ended during `{command}`")),
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(io(e)),
            }
        }
    }
}

/// The code with which the guest says that it killed the command at its limit. Outside 0..=255, so no command
/// can return it.
const TIMED_OUT: i32 = 999;

/// Where the guest keeps the session of the command that runs.
const SESSION: &str = "/run/rig.session";

/// What is sent for one command. The command runs in a shell and a session of its own, so that neither a syntax
/// error nor `exit` nor reading standard input can hurt the shell that serves the port, and so that at the time
/// limit all of it can be killed. The shell is named by its path, or busybox would take its own, which prefers its
/// own `ip` and `ping` too. The clock tells such a kill from one by someone else.
fn frame(number: u64, command: &str, limit: Duration) -> String {
    let quoted = command.replace('\'', r"'\''");
    let seconds = limit.as_secs().max(1);
    format!(
        "s=$(date +%s); echo '@@begin {number}@@'; \
         busybox timeout -s KILL {seconds} busybox setsid /bin/sh -c 'echo $$ >{SESSION}; eval \"$0\"' \
         '{quoted}' </dev/null 2>&1; r=$?; \
         [ $r = 137 ] && [ $(($(date +%s)-s)) -ge {seconds} ] && \
         r={TIMED_OUT} && kill -KILL -$(cat {SESSION}) 2>/dev/null; echo \"@@end {number} $r@@\"\n"
    )
}

/// Takes the answer to command `number` out of what was received, if it is all there.
fn unframe(received: &mut Vec<u8>, number: u64) -> Option<Output> {
    let begin = format!("@@begin {number}@@\n");
    let end = format!("@@end {number} ");
    let find = |hay: &[u8], needle: &str| {
        hay.windows(needle.len())
            .position(|w| w == needle.as_bytes())
    };
    let start = find(received, &begin)? + begin.len();
    let stop = start + find(&received[start..], &end)?;
    let code_at = stop + end.len();
    let code_end = code_at + find(&received[code_at..], "@@\n")?;
    let code = std::str::from_utf8(&received[code_at..code_end])
        .ok()?
        .parse()
        .ok()?;
    let text = String::from_utf8_lossy(&received[start..stop]).into_owned();
    received.drain(..code_end + 3);
    Some(Output { code, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::{Command, Stdio};

    #[test]
    fn answers_are_cut_out_between_their_marks() {
        let mut received =
            b"noise@@begin 1@@\nold\n@@end 1 0@@\n@@begin 2@@\nno newline@@end 2 3@".to_vec();
        assert_eq!(unframe(&mut received, 2), None);
        received.extend_from_slice(b"@\n@@begin 3@@\n");
        let output = unframe(&mut received, 2).unwrap();
        assert_eq!((output.code, output.text.as_str()), (3, "no newline"));
        assert_eq!(received, b"@@begin 3@@\n");
    }

    proptest! {
        #[test]
        fn any_output_survives_and_never_panics(text in prop::collection::vec(any::<u8>(), 0..200), code in 0..256, split in 0_usize..300) {
            let mut all = b"@@begin 9@@\n".to_vec();
            all.extend_from_slice(&text);
            all.extend_from_slice(format!("@@end 9 {code}@@\n").as_bytes());
            let split = split.min(all.len() - 1);
            let mut received = all[..split].to_vec();
            prop_assert_eq!(unframe(&mut received, 9), None);
            received.extend_from_slice(&all[split..]);
            let output = unframe(&mut received, 9).unwrap();
            prop_assert_eq!(output.code, code);
            prop_assert_eq!(output.text, String::from_utf8_lossy(&text).into_owned());
            prop_assert!(received.is_empty());
        }
    }

    /// The host's own shell plays the guest; its `busybox` is a function that runs what `timeout` would.
    fn serve(script: &str) -> Vec<u8> {
        let mut child = Command::new("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(b"busybox() { case $1 in timeout) shift 4;; *) shift;; esac; \"$@\"; }\n")
            .unwrap();
        let script = script.replace(SESSION, "/dev/null");
        stdin.write_all(script.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap().stdout
    }

    #[test]
    fn a_real_shell_understands_the_frame() {
        let limit = Duration::from_secs(5);
        let commands = [
            ("echo 'a  b' \"$HOME\" >/dev/null; echo it\\'s", 0, "it's\n"),
            ("exit 7", 7, ""),
            ("cat; echo end", 0, "end\n"),
            ("printf x; false", 1, "x"),
            ("echo one\necho two", 0, "one\ntwo\n"),
        ];
        let script: String = (1..)
            .zip(commands)
            .map(|(n, c)| frame(n, c.0, limit))
            .collect();
        let mut received = serve(&script);
        for (n, (command, code, text)) in (1..).zip(commands) {
            let output =
                unframe(&mut received, n).unwrap_or_else(|| panic!("no answer to {command}"));
            assert_eq!(
                (output.code, output.text.as_str()),
                (code, text),
                "{command}"
            );
        }
        let mut received = serve(&(frame(1, "if (", limit) + &frame(2, "echo still here", limit)));
        assert_ne!(unframe(&mut received, 1).unwrap().code, 0);
        assert_eq!(unframe(&mut received, 2).unwrap().text, "still here\n");
    }

    #[test]
    fn a_silent_guest_is_given_up_on_when_it_is_dead() {
        let (host, _guest) = UnixStream::pair().unwrap();
        let mut agent = Agent::new(host);
        let mut asked = 0;
        let mut alive = || {
            asked += 1;
            if asked < 2 {
                Ok(())
            } else {
                Err("it died".to_owned())
            }
        };
        let error = agent
            .run("true", Duration::from_secs(60), &mut alive)
            .unwrap_err();
        assert_eq!(error, "it died");
    }
}
