//! Connections: few at once, and none for long.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::answer::{Answer, Counters};
use super::listen::{Listening, Stream};
use super::request::{Asked, Heard, MOST, Method, Rules, head, parse};

/// Connections at once. The one that has been there for longest makes room for one more.
const CONNECTIONS: usize = 16;
/// How long a client may take for its request.
const ASKING: Duration = Duration::from_secs(2);
/// How long it may take to read the answer.
const READING: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted or served.
const PAUSE: Duration = Duration::from_millis(100);
/// How long, and how much, is read of what nobody asked for: a client that sends it would see no answer otherwise.
const LEAVING: (Duration, usize) = (Duration::from_millis(200), 64 << 10);

/// What is served.
pub(crate) trait Site: Sync {
    /// Which requests come to [`Site::answer`].
    fn rules(&self) -> &Rules;

    /// Fields of every answer, each with its end of line.
    fn fields(&self) -> &str {
        ""
    }

    fn counters(&self) -> &Counters;

    /// Answers in bounded time. A status from 400 on is counted as refused.
    fn answer(&self, asked: &Asked) -> Answer;
}

/// Connections under way: a number, and the way to cut them.
type Open = Mutex<Vec<(u64, Stream)>>;

/// Serves for ever.
pub(crate) fn serve(listening: &Listening, site: &impl Site) {
    let open = Open::default();
    std::thread::scope(|scope| {
        for number in 0.. {
            let stream = match listening.accept() {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            let Ok(handle) = stream.try_clone() else {
                continue;
            };
            make_room(&open);
            open.lock().push((number, handle));
            let open = &open;
            let served = std::thread::Builder::new().spawn_scoped(scope, move || {
                if !converse(stream, site) {
                    site.counters().cut.fetch_add(1, Ordering::Relaxed);
                }
                open.lock().retain(|(of, _)| *of != number);
            });
            if served.is_err() {
                open.lock().retain(|(of, _)| *of != number);
                std::thread::sleep(PAUSE);
            }
        }
    });
}

/// Cuts the longest connections off, and waits until they are gone.
fn make_room(open: &Open) {
    loop {
        let full = {
            let open = open.lock();
            let full = open.len() >= CONNECTIONS;
            if let Some((_, oldest)) = open.first().filter(|_| full) {
                oldest.shutdown(Shutdown::Both);
            }
            full
        };
        if !full {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One request and its answer. `false`: the client was too slow, or left.
fn converse(mut stream: Stream, site: &impl Site) -> bool {
    let rules = site.rules();
    let Ok(heard) = hear(&mut stream, rules) else {
        return false;
    };
    let (answer, only_head, whole) = match heard {
        Ok(asked) => (site.answer(&asked), asked.method == Method::Head, true),
        Err(wrong) => (wrong, false, false),
    };
    let refused = answer.status >= "4";
    if refused {
        site.counters().refused.fetch_add(1, Ordering::Relaxed);
    }
    let head = head(&answer, site.fields(), rules.posts);
    let until = Instant::now() + READING;
    let said = say(&mut stream, head.as_bytes(), until);
    let said = said.and_then(|()| match only_head {
        true => Ok(()),
        false => say(&mut stream, &answer.body, until),
    });
    stream.shutdown(Shutdown::Write);
    if !whole {
        leave(&mut stream);
    }
    said.is_ok()
}

fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

fn hear(stream: &mut Stream, rules: &Rules) -> io::Result<Result<Asked, Answer>> {
    let until = Instant::now() + ASKING;
    let mut bytes = [0; MOST];
    let mut len = 0;
    loop {
        stream.set_read_timeout(left(until)?)?;
        match stream.read(&mut bytes[len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        match parse(&bytes[..len], rules) {
            Heard::More => {}
            Heard::Asked(asked) => return Ok(Ok(asked)),
            Heard::Wrong(answer) => return Ok(Err(answer)),
        }
    }
}

fn say(stream: &mut Stream, mut rest: &[u8], until: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        stream.set_write_timeout(left(until)?)?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads on for a little while.
fn leave(stream: &mut Stream) {
    let (time, mut most) = LEAVING;
    let until = Instant::now() + time;
    let mut bytes = [0; 4096];
    while let (Ok(left), true) = (left(until), most > 0) {
        if stream.set_read_timeout(left).is_err() {
            return;
        }
        match stream.read(&mut bytes) {
            Ok(n) if n > 0 => most = most.saturating_sub(n),
            _ => return,
        }
    }
}
