//! Connections: few at once, and none for long.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::asker::Asker;
use super::http::{self, MOST, Wanted};
use super::listen::{Listening, Stream};

/// Connections at once. The one that has been there for longest makes room for one more.
const CONNECTIONS: usize = 16;
/// How long a client may take for its request.
const ASKING: Duration = Duration::from_secs(2);
/// How long it may take to read the answer.
const READING: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted or served.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections under way: a number, and the way to cut them.
type Open = Mutex<Vec<(u64, Stream)>>;

/// Serves for ever.
pub(super) fn serve(listening: &Listening, asker: &Asker) {
    let open = Open::default();
    let local = listening.is_local();
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
                if !converse(stream, local, asker) {
                    asker.counters.cut.fetch_add(1, Ordering::Relaxed);
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
fn converse(mut stream: Stream, local: bool, asker: &Asker) -> bool {
    let plain = "text/plain; charset=utf-8";
    let Ok(wanted) = hear(&mut stream, local) else {
        return false;
    };
    let answer = match wanted {
        Wanted::More => return false,
        Wanted::Metrics { form, head } => {
            let text = asker.text(form);
            http::answer("200 OK", form.content_type(), &text, head)
        }
        Wanted::Root => http::answer("200 OK", plain, "hypernic exporter: see /metrics\n", false),
        Wanted::Wrong(status, why) => {
            asker.counters.refused.fetch_add(1, Ordering::Relaxed);
            http::answer(status, plain, &format!("{why}\n"), false)
        }
    };
    let said = say(&mut stream, &answer);
    stream.shutdown(Shutdown::Write);
    said.is_ok()
}

fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

fn hear(stream: &mut Stream, local: bool) -> io::Result<Wanted> {
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
        match http::parse(&bytes[..len], local) {
            Wanted::More => {}
            wanted => return Ok(wanted),
        }
    }
}

fn say(stream: &mut Stream, mut rest: &[u8]) -> io::Result<()> {
    let until = Instant::now() + READING;
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
