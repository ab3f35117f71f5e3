//! A process that dies at each store and call, and the one after it.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use rustix::io::Errno;

use super::Noted;
use crate::shared_mem::SharedMem;

thread_local! {
    /// Steps until this process dies.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// What a process dies of.
struct Death;

pub(super) fn step() {
    let left = LEFT.get();
    if left == 0 {
        panic_any(Death);
    }
    LEFT.set(left - 1);
}

/// Runs until it dies after so many steps. `None`: it has.
fn until<T>(steps: usize, run: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(steps);
    let result = catch_unwind(AssertUnwindSafe(run));
    LEFT.set(usize::MAX);
    match result {
        Ok(value) => Some(value),
        Err(death) if death.is::<Death>() => None,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

const ROOM: usize = 4096;
const BYTES: usize = 3 * ROOM;

fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

/// The part of the ring from `moved` on, at most `len` bytes.
fn parts(moved: u64, len: usize) -> [(usize, usize); 2] {
    let at = moved as usize % ROOM;
    let first = len.min(ROOM - at);
    [(ROOM + at, first), (ROOM, len - first)]
}

fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        if !info.payload().is::<Death>() {
            eprintln!("{info}");
        }
    }));
}

/// Each life moves a piece or dies of it, and the next knows exactly where the stream stands.
#[test]
fn wherever_it_dies_the_next_one_knows_what_was_sent_and_received() {
    quiet();
    let memory = SharedMem::new("noted", 2 * ROOM + BYTES).expect("memory");
    for dies in 0..12 {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (ours, theirs) = (ours.as_fd(), theirs.as_fd());
        Noted::resume(memory.clone(), 0).begin();
        Noted::resume(memory.clone(), 256).begin();
        let mut received = 0;
        for life in 0..60 {
            let steps = if life % 2 == 0 { dies } else { usize::MAX };
            let mut sender = Noted::resume(memory.clone(), 0);
            let sent = sender.moved();
            let len = 100 + life * 7;
            for (n, at) in (sent..).take(len).enumerate() {
                memory.write(2 * ROOM + n, &[byte(at)]);
            }
            let from = [(2 * ROOM, len / 3), (2 * ROOM + len / 3, len - len / 3)];
            if let Some(done) = until(steps, || sender.send(ours, from)) {
                assert_eq!(done, Ok(len));
            }
            let mut receiver = Noted::resume(memory.clone(), 256);
            assert_eq!(receiver.moved(), received);
            let done = until(steps, || receiver.receive(theirs, parts(received, ROOM)));
            assert!(done.is_none_or(|done| done.is_ok() || done == Err(Errno::AGAIN)));
            drop(receiver);
            let now = Noted::resume(memory.clone(), 256).moved();
            let mut came = vec![0; (now - received) as usize];
            let [(at, first), (begin, _)] = parts(received, came.len());
            memory.read(at, &mut came[..first]);
            memory.read(begin, &mut came[first..]);
            for (at, came) in (received..).zip(came) {
                assert_eq!(came, byte(at), "byte {at}, died after {dies} steps");
            }
            received = now;
            let sent = Noted::resume(memory.clone(), 0).moved();
            assert!(received <= sent);
            if life % 2 == 1 {
                assert_eq!(received, sent, "died after {dies} steps");
            }
        }
        assert!(received > 5000);
    }
}

#[test]
fn errors_are_told_and_move_nothing() {
    let memory = SharedMem::new("noted", 8192).expect("memory");
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut noted = Noted::resume(memory.clone(), 0);
    let part = [(4096, 4096), (0, 0)];
    assert_eq!(noted.receive(&ours, part), Err(Errno::AGAIN));
    let mut other = Noted::resume(memory, 128);
    let full = loop {
        if let Err(errno) = other.send(&theirs, part) {
            break errno;
        }
    };
    assert_eq!(full, Errno::AGAIN);
    let sent = other.moved();
    assert!(sent > 0 && noted.moved() == 0);
    drop(theirs);
    let mut received = 0;
    loop {
        match noted.receive(&ours, part) {
            Ok(0) => break,
            bytes => received += bytes.expect("it was sent") as u64,
        }
    }
    assert_eq!((received, noted.moved()), (sent, sent));
    assert_eq!(other.send(&ours, part), Err(Errno::PIPE));
    assert_eq!(other.moved(), sent);
}
