//! Ports that go on in the next process, which the one before leaves, or of which it dies.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Sink, Wake};
use port::{Inlet, InletStatus, Port, counter};

use super::death;
use super::stream::{framed, send};
use crate::{Endpoint, Keeps, Parts, StreamConfig, open};

/// A page that outlives processes, for one port.
#[derive(Debug, Default)]
struct Page {
    memory: Mutex<Option<OwnedFd>>,
    listener: Mutex<Option<OwnedFd>>,
    connection: Mutex<Option<OwnedFd>>,
    leaves: AtomicBool,
    had: AtomicBool,
    full: AtomicBool,
}

fn again(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("a descriptor")
}

impl Page {
    /// What is left of the port. It stays in the page, as if the next process had kept it again at once.
    fn parts(&self) -> Parts {
        let part = |part: &Mutex<Option<OwnedFd>>| part.lock().expect("lock").as_ref().map(again);
        Parts {
            memory: part(&self.memory),
            listener: part(&self.listener),
            connection: part(&self.connection),
            had: self.had.load(Ordering::Relaxed),
        }
    }

    fn put(part: &Mutex<Option<OwnedFd>>, fd: Option<BorrowedFd<'_>>) {
        *part.lock().expect("lock") = fd.map(again);
    }
}

impl Keeps for Page {
    fn opened(&self, memory: BorrowedFd<'_>, listener: Option<BorrowedFd<'_>>) -> bool {
        if self.full.load(Ordering::Relaxed) {
            return false;
        }
        self.had.store(true, Ordering::Relaxed);
        Self::put(&self.memory, Some(memory));
        Self::put(&self.listener, listener);
        true
    }

    fn begun(&self, connection: BorrowedFd<'_>) {
        Self::put(&self.connection, Some(connection));
    }

    fn over(&self) {
        Self::put(&self.connection, None);
    }

    fn gone(&self) {
        for part in [&self.memory, &self.listener, &self.connection] {
            Self::put(part, None);
        }
        self.had.store(false, Ordering::Relaxed);
    }

    fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }
}

/// Takes frames while it has room.
#[derive(Default)]
struct Pass {
    got: Mutex<Vec<Vec<u8>>>,
    room: AtomicUsize,
}

impl Pass {
    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.got.lock().expect("lock"))
    }
}

impl Sink for Pass {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let some = picks.len().min(self.room.load(Ordering::Relaxed));
        self.room.fetch_sub(some, Ordering::Relaxed);
        for &pick in &picks[..some] {
            death::step();
            let frame = batch.get(pick.into()).expect("picked").to_vec();
            self.got.lock().expect("lock").push(frame);
        }
        some
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// One process's port, run by hand.
struct Life {
    port: Port,
    inlet: Box<dyn Inlet>,
}

impl Life {
    fn try_new(endpoint: Endpoint, page: &Arc<Page>) -> Result<Self, crate::StreamError> {
        page.leaves.store(false, Ordering::Relaxed);
        let mut port = open(StreamConfig {
            keeps: Some(Arc::clone(page) as Arc<dyn Keeps>),
            goes_on: page.parts(),
            retry_min: Duration::from_millis(1),
            ..StreamConfig::new(endpoint)
        })?;
        let inlet = port.inlet.take().expect("an inlet");
        Ok(Self { port, inlet })
    }

    fn new(endpoint: Endpoint, page: &Arc<Page>) -> Self {
        Self::try_new(endpoint, page).expect("a port")
    }

    fn settle(&mut self, to: &Pass) -> InletStatus {
        loop {
            match self.inlet.run(to, 32) {
                InletStatus::More => {}
                status => return status,
            }
        }
    }

    fn until(&mut self, to: &Pass, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is(self) {
            assert!(Instant::now() < end, "{what} does not come");
            self.inlet.run(to, 32);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn count(&self, name: &str) -> u64 {
        counter(&*self.port.counters, name).expect("counter")
    }

    /// The process ends by itself, and leaves its port to the next.
    fn leave(self, page: &Page) {
        page.leaves.store(true, Ordering::Relaxed);
        drop(self.inlet);
        Box::leak(Box::new(self.port));
    }

    /// It is killed: nothing of it is dropped.
    fn leak(self) {
        Box::leak(Box::new(self));
    }
}

/// Frame `n`. Some are long, so that rings wrap around and sockets are full.
fn frame(n: usize) -> Vec<u8> {
    let len = match n % 16 {
        0 => 60_000 + n % 5000,
        1..6 => 1000 + n % 500,
        _ => 60 + n % 100,
    };
    let mut frame: Vec<u8> = (0..len).map(|i| (i * 7 + n) as u8).collect();
    frame[..8].copy_from_slice(&(n as u64).to_be_bytes());
    frame
}

/// The number of a frame that is whole.
fn number(got: &[u8]) -> usize {
    let number = got.first_chunk().map(|head| u64::from_be_bytes(*head));
    let number = number.expect("a frame") as usize;
    assert!(got == frame(number), "frame {number} is garbled");
    number
}

/// A peer that writes in pieces of any size, and reads what is there.
struct Peer {
    socket: UnixStream,
    unsent: Vec<u8>,
    unread: Vec<u8>,
    next: usize,
}

impl Peer {
    fn new(socket: UnixStream) -> Self {
        socket.set_nonblocking(true).expect("nonblocking");
        Self {
            socket,
            unsent: Vec::new(),
            unread: Vec::new(),
            next: 0,
        }
    }

    /// Writes up to `bytes` of frames; what they end in is half a frame.
    fn write(&mut self, bytes: usize) {
        while self.unsent.len() < bytes {
            self.unsent.extend(framed(&frame(self.next)));
            self.next += 1;
        }
        if let Ok(sent) = self.socket.write(&self.unsent[..bytes]) {
            self.unsent.drain(..sent);
        }
    }

    /// Reads up to `bytes`, and gives the numbers of the frames that are whole by now.
    fn read(&mut self, bytes: usize) -> Vec<usize> {
        let mut room = vec![0; bytes];
        match self.socket.read(&mut room) {
            Ok(0) => panic!("its connection is closed"),
            Ok(came) => self.unread.extend(&room[..came]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        let mut numbers = Vec::new();
        while let Some((head, rest)) = self.unread.split_first_chunk::<4>() {
            let len = u32::from_be_bytes(*head) as usize;
            let Some(frame) = rest.get(..len) else { break };
            numbers.push(number(frame));
            self.unread.drain(..4 + len);
        }
        numbers
    }
}

fn all(numbers: &[usize], count: usize) {
    assert!(numbers.iter().copied().eq(0..count), "{numbers:?}");
}

/// A port that is left with half a frame received, frames that wait for room, and half a frame sent.
#[test]
fn a_port_that_is_left_goes_on_with_every_byte() {
    let page = Arc::<Page>::default();
    let (socket, ours) = UnixStream::pair().expect("a pair");
    let mut peer = Peer::new(socket);
    let to = Pass::default();
    let (mut sent, mut back, mut got) = (0, Vec::new(), Vec::new());
    for life in 0..40 {
        let mut port = Life::new(Endpoint::Fd(again(&ours)), &page);
        to.room.store(life % 7 * 5, Ordering::Relaxed);
        peer.write(7000 + life * 1013);
        port.settle(&to);
        for _ in 0..20 {
            let taken = port.count("frames_out");
            send(&*port.port.sink, &[&frame(sent)]);
            sent += (port.count("frames_out") - taken) as usize;
        }
        back.extend(peer.read(5000 + life * 3001));
        port.settle(&to);
        assert!(port.inlet.link_up());
        assert_eq!(port.count("stream_connects"), u64::from(life == 0));
        assert_eq!(port.count("stream_unsure_bytes"), 0);
        got.extend(to.take());
        port.leave(&page);
    }
    let mut port = Life::new(Endpoint::Fd(again(&ours)), &page);
    to.room.store(usize::MAX, Ordering::Relaxed);
    while !peer.unsent.is_empty() || back.len() < sent {
        peer.write(peer.unsent.len());
        port.settle(&to);
        back.extend(peer.read(1 << 20));
    }
    port.settle(&to);
    got.extend(to.take());
    let got: Vec<usize> = got.iter().map(|frame| number(frame)).collect();
    all(&got, peer.next);
    all(&back, sent);
    assert!(sent > 200 && got.len() > 200, "{sent} {}", got.len());
    assert!(peer.unread.is_empty());
    // It is the one connection there was.
    drop(peer);
    port.until(&to, "its end", |port| !port.inlet.link_up());
    std::thread::sleep(Duration::from_millis(5));
    assert!(matches!(port.settle(&to), InletStatus::Closed(_)));
}

fn rises(numbers: &[usize]) {
    let rises = numbers.is_sorted_by(|a, b| a < b);
    assert!(rises, "twice, or in another order: {numbers:?}");
}

fn send_three(port: &Life, sent: &mut usize) {
    let frames = [0, 1, 2].map(|n| frame(*sent + n));
    *sent += 3;
    send(&*port.port.sink, &frames.each_ref().map(Vec::as_slice));
}

/// At each store in turn: frames come whole, once and in order, and the peer notices nothing.
#[test]
fn wherever_it_dies_no_frame_comes_twice_or_garbled_and_the_connection_stays() {
    std::panic::set_hook(Box::new(|info| {
        if !info.payload().is::<death::Death>() {
            eprintln!("{info}");
        }
    }));
    let mut lost = 0;
    for dies in 0..24 {
        let page = Arc::<Page>::default();
        let (socket, ours) = UnixStream::pair().expect("a pair");
        let mut peer = Peer::new(socket);
        let to = Pass::default();
        let (mut sent, mut back, mut unsure) = (0, Vec::new(), 0);
        for life in 0..30 {
            to.room.store(3 + life % 7 * 40, Ordering::Relaxed);
            peer.write(3000 + life * 1013);
            let opened = death::until(dies, || Life::new(Endpoint::Fd(again(&ours)), &page));
            let Some(mut port) = opened else {
                continue;
            };
            unsure += port.count("stream_unsure_bytes");
            death::until(dies, || {
                for _ in 0..3 {
                    port.inlet.run(&to, 16);
                    send_three(&port, &mut sent);
                }
            });
            back.extend(peer.read(40_000));
            port.leak();
        }
        let mut port = Life::new(Endpoint::Fd(again(&ours)), &page);
        unsure += port.count("stream_unsure_bytes");
        to.room.store(usize::MAX, Ordering::Relaxed);
        for round in 0..2000 {
            if round == 1000 {
                send_three(&port, &mut sent);
            }
            peer.write(peer.unsent.len());
            port.settle(&to);
            back.extend(peer.read(1 << 20));
        }
        assert!(port.inlet.link_up() && peer.unread.is_empty() && peer.unsent.is_empty());
        let got: Vec<usize> = to.take().iter().map(|frame| number(frame)).collect();
        rises(&got);
        rises(&back);
        assert!(
            unsure > 0 || got.len() == peer.next,
            "what is lost is counted"
        );
        lost += peer.next - got.len();
        assert_eq!(got.last(), Some(&(peer.next - 1)), "died of {dies}");
        assert_eq!(back.last(), Some(&(sent - 1)), "died of {dies}");
    }
    assert!(lost > 0, "it never dies in the middle");
}

fn listen(path: &Path) -> Endpoint {
    Endpoint::Listen(path.to_owned())
}

#[test]
fn who_calls_while_nobody_is_there_is_served_by_the_next_process() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s");
    let page = Arc::<Page>::default();
    let to = Pass::default();
    to.room.store(usize::MAX, Ordering::Relaxed);
    let mut port = Life::new(listen(&path), &page);
    port.settle(&to);
    let mut first = UnixStream::connect(&path).expect("connect");
    port.until(&to, "a connection", |port| port.inlet.link_up());
    for kills in [true, false] {
        if kills {
            port.leak();
        } else {
            port.leave(&page);
        }
        first.write_all(&framed(&frame(1))).expect("it is open");
        let waits = UnixStream::connect(&path).expect("it listens");
        port = Life::new(listen(&path), &page);
        assert!(port.inlet.link_up());
        port.settle(&to);
        assert_eq!(to.take().len(), 1);
        assert_eq!(port.count("stream_connects"), 0);
        drop(waits);
    }
    // And the next one after it has left.
    drop(first);
    let mut next = UnixStream::connect(&path).expect("connect");
    next.write_all(&framed(&frame(2))).expect("write");
    port.until(&to, "the next frame", |_| {
        !to.got.lock().expect("lock").is_empty()
    });
    drop(port);
    assert!(!path.exists(), "removed in the end");
    let parts = page.parts();
    assert!(parts.memory.is_none() && parts.listener.is_none() && parts.connection.is_none());
}

/// Nobody knows where a frame begins on it.
#[test]
fn a_single_connection_whose_place_is_lost_ends() {
    let to = Pass::default();
    for (memory, connection) in [(true, false), (false, true), (false, false)] {
        let page = Arc::<Page>::default();
        let (socket, ours) = UnixStream::pair().expect("a pair");
        let mut peer = Peer::new(socket);
        let mut port = Life::new(Endpoint::Fd(again(&ours)), &page);
        peer.write(1000);
        port.settle(&to);
        port.leak();
        if !memory {
            Page::put(&page.memory, None);
        }
        if !connection {
            Page::put(&page.connection, None);
        }
        let mut port = Life::new(Endpoint::Fd(again(&ours)), &page);
        assert!(matches!(port.settle(&to), InletStatus::Closed(_)));
        assert_eq!(peer.socket.read(&mut [0; 9]).expect("its end"), 0);
        drop(port);
    }
    // Before the first process has read anything, all of it is known.
    let page = Arc::<Page>::default();
    let (socket, ours) = UnixStream::pair().expect("a pair");
    let mut peer = Peer::new(socket);
    Life::new(Endpoint::Fd(again(&ours)), &page).leak();
    peer.write(70_000);
    let mut port = Life::new(Endpoint::Fd(again(&ours)), &page);
    to.room.store(usize::MAX, Ordering::Relaxed);
    port.settle(&to);
    assert_eq!(number(&to.take()[0]), 0);
}

#[test]
fn a_single_connection_that_cannot_be_kept_is_refused() {
    let page = Arc::<Page>::default();
    page.full.store(true, Ordering::Relaxed);
    let (_peer, ours) = UnixStream::pair().expect("a pair");
    let refused = Life::try_new(Endpoint::Fd(ours.into()), &page);
    let error = refused.map(|_| ()).expect_err("refused").to_string();
    assert!(error.contains("no more descriptors"), "{error}");
    // Others begin anew.
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s");
    Life::new(listen(&path), &page);
}

#[test]
fn what_is_left_of_a_port_is_checked() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s");
    let to = Pass::default();
    to.room.store(usize::MAX, Ordering::Relaxed);
    // Done, claim, head, and what the kernel noted of both calls, each as nobody leaves it.
    for left in [
        &[(8, 1_u64 << 40)][..],
        &[(16, 1 << 40)],
        &[(24, 1 << 40)],
        &[(128, 1 << 40)],
        &[(128, u64::MAX)],
        &[(256, 1 << 40)],
        &[(8, 1 << 61), (16, 1 << 61), (128, 1 << 62)],
        &[(24, 1 << 61), (256, 1 << 62)],
    ] {
        let page = Arc::<Page>::default();
        let mut port = Life::new(listen(&path), &page);
        port.settle(&to);
        let mut peer = UnixStream::connect(&path).expect("connect");
        port.until(&to, "a connection", |port| port.inlet.link_up());
        port.leak();
        let memory = page.parts().memory.map(std::fs::File::from).expect("left");
        for (word, value) in left {
            std::os::unix::fs::FileExt::write_all_at(&memory, &value.to_ne_bytes(), *word)
                .expect("written");
        }
        let mut port = Life::new(listen(&path), &page);
        assert!(!port.inlet.link_up(), "{left:?}");
        // The page that this test has has the old one open, and not the port.
        page.over();
        port.settle(&to);
        assert!(peer.write_all(&framed(&frame(1))).is_ok());
        let mut peer = UnixStream::connect(&path).expect("connect");
        peer.write_all(&framed(&frame(1))).expect("write");
        port.until(&to, "a frame", |_| !to.got.lock().expect("lock").is_empty());
        assert_eq!(number(&to.take()[0]), 1, "{left:?}");
        drop(port);
    }
}
