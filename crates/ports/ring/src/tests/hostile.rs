//! Peers that do what they must not, written by hand. Each costs its own connection at most, and an honest one is served
//! behind it.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frame::{MAX_BATCH, Wake};
use peer::stream::Framed;
use peer::{DeferredCloser, EventFd, PeerFd, SharedMem};
use port::InletStatus;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
};

use super::rig::{Hand, Pass, Running, Woken, connect, listen, pattern, place, send, small, until};
use crate::crossing::{CONTROL, Crossing, HEAD, SLEEPS, TAIL, WANTS_ROOM};
use crate::hello::{self, Hello};
use crate::receive::In;
use crate::shared::Shared;
use crate::{MAX_FRAME, MIN_BYTES};

const BYTES: u32 = MIN_BYTES as u32;

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn file(len: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("villain", flags).expect("a file");
    rustix::fs::ftruncate(&file, len).expect("a size");
    rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
    file
}

fn greet(socket: &UnixStream, bytes: &[u8], fds: &[&dyn AsFd]) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    assert_eq!(
        port::socket::send_with(socket, bytes, &mut control),
        Ok(bytes.len())
    );
}

/// A peer that has greeted as it should.
struct Villain {
    socket: UnixStream,
    mine: SharedMem,
    theirs: SharedMem,
    event: EventFd,
    their_event: OwnedFd,
}

impl Villain {
    fn new(path: &Path) -> Self {
        let socket = UnixStream::connect(path).expect("it listens");
        let mine = SharedMem::new("villain", (CONTROL + BYTES) as usize).expect("memory");
        let event = EventFd::new().expect("an eventfd");
        greet(&socket, &Hello::new(BYTES).bytes(), &[&mine, &event]);
        let mut bytes = [0; hello::LEN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC);
        assert_eq!(got.expect("an answer").bytes, hello::LEN);
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                fds.extend(more);
            }
        }
        let [memory, their_event] = <[OwnedFd; 2]>::try_from(fds).expect("two descriptors");
        let len = (CONTROL + BYTES) as usize;
        Self {
            socket,
            mine,
            theirs: SharedMem::from_fd(memory, 0, len).expect("their memory"),
            event,
            their_event,
        }
    }

    fn ring(&self) {
        peer::event::signal(self.their_event.as_fd()).expect("an eventfd");
    }

    fn set(&self, word: u32, value: u32) {
        self.mine.store_u32(word as usize, value, Ordering::SeqCst);
    }

    fn header(&self, at: u32, len: u32, kind: u32) {
        let at = (CONTROL + at) as usize;
        self.mine.write(at, &len.to_le_bytes());
        self.mine.write(at + 4, &kind.to_le_bytes());
    }

    fn publish(&self, head: u32) {
        self.set(HEAD, head);
        self.ring();
    }

    /// What it has published itself.
    fn head(&self) -> u32 {
        self.mine.load_u32(HEAD as usize, Ordering::SeqCst)
    }

    /// What the port has taken.
    fn tail(&self) -> u32 {
        self.theirs.load_u32(TAIL as usize, Ordering::SeqCst)
    }
}

struct Scene {
    _dir: tempfile::TempDir,
    path: PathBuf,
    port: Running,
}

impl Scene {
    fn new() -> Self {
        let (dir, path) = place();
        let port = Running::new(small(listen(&path)));
        Self {
            _dir: dir,
            path,
            port,
        }
    }

    fn call(&self) -> UnixStream {
        UnixStream::connect(&self.path).expect("it listens")
    }

    /// The port has counted this, and an honest peer is served.
    fn goes_on(self, counter: &str) {
        self.port.wait_for(counter, 1);
        assert_eq!(self.port.count(counter), 1);
        let honest = Running::new(connect(&self.path));
        until("a frame of an honest peer", || {
            send(&*honest.sink, &pattern(3, 70));
            let got = self.port.frames.try_iter();
            got.into_iter().any(|(frame, _)| frame == pattern(3, 70))
        });
        until("a frame back", || {
            send(&*self.port.sink, &pattern(4, 80));
            honest.frames.try_recv().is_ok()
        });
    }
}

/// A connection that this ends.
fn ends(act: impl FnOnce(&Villain)) {
    let scene = Scene::new();
    let mut villain = Villain::new(&scene.path);
    scene.port.wait_for("ring_connects", 1);
    act(&villain);
    scene.port.wait_for("ring_disconnects", 1);
    assert_eq!(villain.socket.read(&mut [0]).expect("hung up"), 0);
    scene.goes_on("ring_bad_peer");
}

#[test]
fn heads_that_cannot_be_end_the_connection() {
    for head in [BYTES + 32, u32::MAX - 31, 1 << 31, 16, 33] {
        ends(|villain| villain.publish(head));
    }
}

#[test]
fn a_head_that_goes_back_ends_the_connection() {
    ends(|villain| {
        villain.header(0, 60, 1);
        villain.publish(96);
        until("it is taken", || villain.tail() == 96);
        villain.publish(64);
    });
}

#[test]
fn records_that_cannot_be_end_the_connection() {
    let longest = MAX_FRAME as u32;
    for (len, kind, head) in [
        (0, 1, 64),
        (u32::MAX, 1, BYTES),
        (u32::MAX - 31, 1, BYTES),
        (longest + 1, 1, BYTES),
        (65, 1, 96),
        (60, 1, 32),
        (60, 0, 96),
        (60, 7, 96),
        (60, 0x101, 96),
        (0, 2, 64),
        (0, 2, BYTES - 32),
    ] {
        ends(|villain| {
            villain.header(0, len, kind);
            villain.publish(head);
        });
    }
    // Beyond the end of the ring, though there is room at its start.
    ends(|villain| {
        let last = BYTES - 64;
        let mut at = 0;
        while at < last {
            let len = (last - at - 32).min(60_000 - 32);
            villain.header(at, len, 1);
            at += (len + 32).next_multiple_of(32);
        }
        villain.publish(last);
        until("it is taken", || villain.tail() == last);
        villain.header(last, 100, 1);
        villain.publish(last + 160);
    });
}

#[test]
fn frames_before_what_cannot_be_come_and_those_behind_do_not() {
    let scene = Scene::new();
    let villain = Villain::new(&scene.path);
    scene.port.wait_for("ring_connects", 1);
    for at in [0, 96, 288] {
        villain.header(at, 60, 1);
    }
    villain.header(192, 60, 7);
    villain.publish(384);
    scene.port.wait_for("ring_disconnects", 1);
    assert_eq!(scene.port.count("frames_in"), 2);
    scene.goes_on("ring_bad_peer");
}

#[test]
fn tails_that_cannot_be_end_the_connection() {
    for tail in [32, 97, u32::MAX, 1 << 31] {
        let scene = Scene::new();
        let villain = Villain::new(&scene.path);
        scene.port.wait_for("ring_connects", 1);
        if tail == 97 {
            assert!(send(&*scene.port.sink, &[1; 60]));
        }
        villain.set(TAIL, tail);
        assert!(send(&*scene.port.sink, &[1; 60]), "it is dealt with");
        scene.port.wait_for("ring_disconnects", 1);
        assert_eq!(scene.port.count("ring_down"), 1);
        scene.goes_on("ring_bad_peer");
    }
    // One that goes back.
    let scene = Scene::new();
    let villain = Villain::new(&scene.path);
    scene.port.wait_for("ring_connects", 1);
    assert!(send(&*scene.port.sink, &[1; 60]));
    villain.set(TAIL, 96);
    assert!(send(&*scene.port.sink, &[1; 60]));
    villain.set(TAIL, 64);
    assert!(send(&*scene.port.sink, &[1; 60]));
    scene.port.wait_for("ring_disconnects", 1);
    scene.goes_on("ring_bad_peer");
}

#[test]
fn headers_that_lie_cost_their_frame_only() {
    let scene = Scene::new();
    let villain = Villain::new(&scene.path);
    scene.port.wait_for("ring_connects", 1);
    let lies: [(usize, &[u8]); 6] = [
        // A checksum beyond the end, segments without a checksum, of no size, of no protocol, a tag that is none.
        (8, &[1, 0, 0, 0, 0, 0, 60, 0, 6, 0]),
        (8, &[0, 1, 0, 0, 100, 0]),
        (8, &[1, 1, 0, 0, 0, 0, 14, 0, 16, 0]),
        (8, &[1, 9, 0, 0, 100, 0, 14, 0, 16, 0]),
        (22, &[2, 0]),
        (22, &[1, 1]),
    ];
    let mut at = 0;
    for (place, bytes) in lies {
        villain.header(at, 60, 1);
        villain.mine.write((CONTROL + at) as usize + place, bytes);
        villain
            .mine
            .fill((CONTROL + at + 96 + 32) as usize, 60, at as u8);
        villain.header(at + 96, 60, 1);
        at += 192;
    }
    // Shorter than an Ethernet header.
    villain.header(at, 13, 1);
    villain.publish(at + 64);
    scene.port.wait_for("ring_bad_record", 7);
    for n in 0..6 {
        assert_eq!(scene.port.frame(), [(n * 192) as u8; 60]);
    }
    assert_eq!(scene.port.count("ring_bad_record"), 7);
    assert_eq!(scene.port.count("ring_bad_peer"), 0);
    until("it is taken", || villain.tail() == at + 64);
    drop(villain);
    scene.port.wait_for("ring_disconnects", 1);
    assert_eq!(scene.port.count("ring_disconnects"), 1);
    scene.goes_on("ring_disconnects");
}

#[test]
fn a_lie_is_counted_once_however_often_the_sink_has_no_room() {
    let (_dir, path) = place();
    let mut port = Hand::new(small(listen(&path)));
    let villain = std::thread::scope(|scope| {
        let villain = scope.spawn(|| Villain::new(&path));
        until("a connection", || {
            port.run();
            port.inlet.link_up()
        });
        villain.join().expect("no panic")
    });
    for (at, len) in [(0, 13), (64, 60), (160, 5), (224, 60)] {
        villain.header(at, len, 1);
    }
    port.to.set_room(0);
    villain.publish(320);
    for _ in 0..10 {
        assert_eq!(port.run(), InletStatus::Blocked);
        assert_eq!(port.count("ring_bad_record"), 1);
    }
    port.to.set_room(2);
    assert_eq!(port.settle(), InletStatus::Idle);
    assert_eq!(
        (port.count("ring_bad_record"), port.count("frames_in")),
        (2, 2)
    );
}

struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_peer_that_always_has_more_costs_a_turn_what_a_turn_may_cost() {
    let (_dir, path) = place();
    let mut port = Hand::new(small(listen(&path)));
    let villain = std::thread::scope(|scope| {
        let villain = scope.spawn(|| Villain::new(&path));
        until("a connection", || {
            port.run();
            port.inlet.link_up()
        });
        villain.join().expect("no panic")
    });
    for at in (0..BYTES).step_by(64) {
        villain.header(at, 20, 1);
    }
    while_it_moves_on(&villain, || {
        until("frames", || {
            port.run();
            port.count("frames_in") > 0
        });
        assert!(port.frames.try_iter().count() > 0);
        for _ in 0..1000 {
            let before = port.count("frames_in");
            let status = port.run();
            let more = port.count("frames_in") - before;
            assert!(more <= MAX_BATCH as u64, "{more} in one turn");
            // A look that found nothing is of the budget, too, though more was there by then.
            assert!(status == InletStatus::More || more < MAX_BATCH as u64);
            assert_eq!(port.frames.try_iter().count() as u64, more);
        }
    });
    // The same of nothing but skips, each of a whole ring. Frames lead to its begin, since anywhere else such a skip cannot be.
    for _ in 0..2 {
        until("all of it", || {
            port.run();
            villain.tail() == villain.head()
        });
        villain.publish(villain.head().next_multiple_of(BYTES));
    }
    assert!(villain.tail().is_multiple_of(BYTES));
    villain.header(0, 0, 2);
    let budget = 8;
    let mut skipped = 0;
    while_it_moves_on(&villain, || {
        until("skips", || {
            let before = villain.tail();
            port.inlet.run(&*port.to, budget);
            let more = villain.tail().wrapping_sub(before) / BYTES;
            assert!(more as usize <= budget, "{more} in one turn");
            skipped += more;
            skipped > 1000
        });
    });
    assert_eq!(port.count("ring_bad_peer"), 0);
}

/// Does `what` while the villain moves on with the tail, so that there is always a ring full; it rings and wants all the
/// time, too.
fn while_it_moves_on(villain: &Villain, what: impl FnOnce()) {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when an assertion fails.
        let _stopped = Stop(&stop);
        scope.spawn(|| {
            for n in 1.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                villain.set(WANTS_ROOM, n);
                villain.set(SLEEPS, n);
                villain.publish(villain.tail().wrapping_add(BYTES));
            }
        });
        what();
    });
}

#[test]
fn no_room_for_ever_is_no_loop() {
    let scene = Scene::new();
    let villain = Villain::new(&scene.path);
    scene.port.wait_for("ring_connects", 1);
    until("a full ring", || !send(&*scene.port.sink, &[1; 60_000]));
    let woken = Arc::new(Woken::default());
    let waker: Arc<dyn Wake> = woken.clone();
    scene.port.sink.want_room(&waker);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(woken.times(), 0);
    // A tail beyond the head, when it is asked for room.
    villain.set(TAIL, 1 << 30);
    villain.ring();
    scene.port.wait_for("ring_disconnects", 1);
    until("a wake", || woken.times() == 1);
    scene.goes_on("ring_bad_peer");
}

#[test]
fn greetings_that_cannot_be_end_the_connection() {
    let len = u64::from(CONTROL + BYTES);
    let good = Hello::new(BYTES).bytes();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        bytes
    };
    let (sealed, event) = (file(len, seals()), EventFd::new().expect("an eventfd"));
    let short = file(len - 1, seals());
    let loose = file(len, SealFlags::GROW);
    let read_only = std::fs::File::open(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&sealed)
    ));
    let read_only = read_only.expect("a file");
    let plain = tempfile::tempfile().expect("a file");
    plain.set_len(len).expect("a size");
    let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
    let cases: Vec<([u8; hello::LEN], Vec<&dyn AsFd>)> = vec![
        ([0xee; hello::LEN], vec![&sealed, &event]),
        (changed(0, b'x'), vec![&sealed, &event]),
        (changed(8, 2), vec![&sealed, &event]),
        (changed(31, 1), vec![&sealed, &event]),
        (Hello::new(0).bytes(), vec![&sealed, &event]),
        (Hello::new(BYTES - 32).bytes(), vec![&sealed, &event]),
        (Hello::new(1 << 31).bytes(), vec![&sealed, &event]),
        (Hello::new(2 * BYTES).bytes(), vec![&sealed, &event]),
        (good, vec![]),
        (good, vec![&sealed]),
        (good, vec![&event, &sealed]),
        (good, vec![&sealed, &sealed]),
        (good, vec![&sealed, &pipe]),
        (good, vec![&pipe, &event]),
        (good, vec![&sealed, &event, &event]),
        (good, vec![&short, &event]),
        (good, vec![&loose, &event]),
        (good, vec![&read_only, &event]),
        (good, vec![&plain, &event]),
    ];
    for (n, (bytes, fds)) in cases.into_iter().enumerate() {
        let scene = Scene::new();
        let mut socket = scene.call();
        greet(&socket, &bytes, &fds);
        let mut back = Vec::new();
        socket.read_to_end(&mut back).expect("hung up");
        until(&format!("case {n}"), || {
            scene.port.count("ring_bad_peer") == 1
        });
        assert_eq!(scene.port.count("ring_connects"), 0, "case {n}");
        scene.goes_on("ring_bad_peer");
    }
}

#[test]
fn words_after_the_greeting_end_the_connection() {
    // A byte, and a second greeting with what belongs to it.
    ends(|villain| (&villain.socket).write_all(&[0]).expect("sent"));
    ends(|villain| {
        let fds: [&dyn AsFd; 2] = [&villain.mine, &villain.event];
        greet(&villain.socket, &Hello::new(BYTES).bytes(), &fds);
    });
    // The same at once, before there is an answer.
    for more in [1, hello::LEN] {
        let scene = Scene::new();
        let mut socket = scene.call();
        let sealed = file((CONTROL + BYTES).into(), seals());
        let event = EventFd::new().expect("an eventfd");
        let bytes = [Hello::new(BYTES).bytes(); 2].concat();
        greet(&socket, &bytes[..hello::LEN + more], &[&sealed, &event]);
        socket.read_to_end(&mut Vec::new()).expect("hung up");
        scene.goes_on("ring_bad_peer");
    }
}

#[test]
fn a_greeting_in_pieces_is_good_and_half_of_one_is_none() {
    let scene = Scene::new();
    let mut socket = scene.call();
    let sealed = file((CONTROL + BYTES).into(), seals());
    let event = EventFd::new().expect("an eventfd");
    let bytes = Hello::new(BYTES).bytes();
    for at in 0..hello::LEN - 1 {
        socket.write_all(&bytes[at..=at]).expect("sent");
    }
    greet(&socket, &bytes[hello::LEN - 1..], &[&sealed, &event]);
    scene.port.wait_for("ring_connects", 1);
    drop(socket);
    scene.port.wait_for("ring_disconnects", 1);
    let mut half = scene.call();
    half.write_all(&bytes[..20]).expect("sent");
    drop(half);
    scene.goes_on("ring_failed_greetings");
}

#[test]
fn memory_that_is_pulled_away_ends_the_connection_and_nothing_else() {
    guest_mem::install_sigbus_guard();
    let len = u64::from(CONTROL + BYTES);
    for left in [0, u64::from(CONTROL)] {
        // Nothing that greets gets so far: its file cannot become shorter.
        let theirs = file(len, SealFlags::empty());
        let writer = rustix::io::dup(&theirs).expect("a descriptor");
        let writer = SharedMem::from_fd(writer, 0, len as usize).expect("memory");
        let ours = file(len, seals());
        let closer = DeferredCloser::default();
        let event = EventFd::new().expect("an eventfd");
        let event = rustix::io::dup(event.as_fd()).expect("a descriptor");
        let event = PeerFd::new(event, &closer);
        let crossing = Crossing::new((&ours, BYTES), (&theirs, BYTES), event, closer);
        let crossing = Arc::new(crossing.expect("mapped"));
        let shared = Shared::new().expect("a bell");
        let (sink, _frames) = Pass::new();
        let mut receive = In::new(Arc::clone(&crossing));
        writer.write(CONTROL as usize, &60_u32.to_le_bytes());
        writer.write(CONTROL as usize + 4, &1_u32.to_le_bytes());
        writer.store_u32(HEAD as usize, 96, Ordering::SeqCst);
        drop(writer);
        rustix::fs::ftruncate(&theirs, left).expect("cut off");
        let first = receive.run(&shared, &*sink, MAX_BATCH);
        let second = receive.run(&shared, &*sink, MAX_BATCH);
        assert!(first.is_err() || second.is_err(), "{first:?} {second:?}");
        assert_eq!(receive.left(), 0);
        let mut out = crate::out::Out::new(crossing);
        assert!(out.ask_for_room().is_err());
        assert_eq!(out.left(), 0);
    }
}

#[test]
fn an_empty_ring_begins_anew_and_leaves_most_of_its_pages_alone() {
    let scene = Scene::new();
    let villain = Villain::new(&scene.path);
    scene.port.wait_for("ring_connects", 1);
    // Far more than the ring has, but never much at once.
    for n in 0..2000 {
        assert!(send(&*scene.port.sink, &pattern(n, 1514)));
        let head = villain.theirs.load_u32(HEAD as usize, Ordering::SeqCst);
        villain.set(TAIL, head);
    }
    assert_eq!(scene.port.count("ring_no_room"), 0);
    let used = rustix::fs::fstat(&villain.theirs)
        .expect("a file")
        .st_blocks
        * 512;
    assert!(used < i64::from(BYTES / 2), "{used} bytes");
}
