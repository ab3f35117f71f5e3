//! Rings that are full or empty, and who is woken when.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use frame::{Batch, MAX_BATCH, Sink, Wake};
use port::{Bell, InletStatus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::Offload;

use super::rig::{
    PATIENCE, Pair, Running, Sent, Woken, connect, listen, pattern, place, send_all, small, until,
};

fn full(pair: &Pair) -> usize {
    let frames: Vec<Sent> = (0..1000)
        .map(|n| (pattern(n, 1000), Offload::NONE))
        .collect();
    let done = send_all(&*pair.a.sink, &frames);
    assert!((200..1000).contains(&done), "{done}");
    done
}

#[test]
fn what_finds_no_room_stays_with_the_sender_who_is_woken_when_there_is_some() {
    let mut pair = Pair::new(small);
    let done = full(&pair);
    assert_eq!(pair.a.count("ring_no_room"), 1);
    assert_eq!(pair.a.count("frames_out"), done as u64);
    let woken = Arc::new(Woken::default());
    let waker: Arc<dyn Wake> = woken.clone();
    pair.a.sink.want_room(&waker);
    pair.a.settle();
    assert_eq!(woken.times(), 0, "nothing has moved");
    let rung = pair.b.count("ring_wakes");
    pair.b.to.set_room(10);
    assert_eq!(pair.b.settle(), InletStatus::Blocked);
    assert_eq!(pair.b.count("ring_wakes"), rung + 1);
    assert_eq!(woken.times(), 0, "only its own inlet wakes it");
    pair.a.settle();
    assert_eq!(woken.times(), 1);
    // Nobody waits any more, so nobody rings.
    pair.b.to.set_room(10);
    pair.b.settle();
    assert_eq!(pair.b.count("ring_wakes"), rung + 1);
    let more = vec![(pattern(9, 1000), Offload::NONE); 20];
    assert_eq!(send_all(&*pair.a.sink, &more), 20);
    pair.b.to.set_room(usize::MAX);
    assert_eq!(pair.b.settle(), InletStatus::Idle);
    assert_eq!(pair.b.frames.try_iter().count(), done + 20);
}

#[test]
fn who_asks_when_room_has_come_is_woken_at_once() {
    let mut pair = Pair::new(small);
    full(&pair);
    pair.b.settle();
    let woken = Arc::new(Woken::default());
    let waker: Arc<dyn Wake> = woken.clone();
    pair.a.sink.want_room(&waker);
    assert_eq!(woken.times(), 1);
}

#[test]
fn a_sleeping_receiver_is_rung_once_and_a_busy_one_not_at_all() {
    let mut pair = Pair::new(small);
    pair.b.settle();
    let rung = pair.a.count("ring_wakes");
    let one = [(pattern(0, 60), Offload::NONE)];
    for _ in 0..5 {
        assert_eq!(send_all(&*pair.a.sink, &one), 1);
    }
    assert_eq!(pair.a.count("ring_wakes"), rung + 1);
    // It is awake, and has more to do than it may do in one turn.
    assert_eq!(pair.b.inlet.run(&*pair.b.to, 2), InletStatus::More);
    assert_eq!(send_all(&*pair.a.sink, &one), 1);
    assert_eq!(pair.a.count("ring_wakes"), rung + 1);
    assert_eq!(pair.b.settle(), InletStatus::Idle);
    assert_eq!(send_all(&*pair.a.sink, &one), 1);
    assert_eq!(pair.a.count("ring_wakes"), rung + 2);
}

/// Sends as a switch does: what finds no room waits for a wake.
fn push(sink: &dyn Sink, frames: usize, size: impl Fn(usize) -> usize) {
    let bell = Arc::new(Bell::new().expect("a bell"));
    let waker: Arc<dyn Wake> = bell.clone();
    let mut sent = 0;
    while sent < frames {
        let now = (frames - sent).min(1 + sent % MAX_BATCH);
        let mut batch = Batch::new();
        for n in sent..sent + now {
            let mut bytes = vec![n as u8; size(n)];
            bytes[..8].copy_from_slice(&(n as u64).to_le_bytes());
            batch.push_bytes(&bytes);
            batch.end(Offload::NONE);
        }
        let mut room = Vec::new();
        let picks = batch.all_picks(&mut room);
        let mut done = 0;
        while done < now {
            done += sink.deliver(&batch, &picks[done..]);
            if done < now {
                sink.want_room(&waker);
                done += sink.deliver(&batch, &picks[done..]);
            }
            if done < now {
                let patience = Timespec::try_from(PATIENCE).expect("a time");
                let mut fds = [PollFd::new(&*bell, PollFlags::IN)];
                let woken = poll(&mut fds, Some(&patience)).expect("poll");
                assert_eq!(woken, 1, "a wake was lost after {} frames", sent + done);
                bell.clear();
            }
        }
        sent += now;
        if sent % 64 == 0 {
            // The receiver falls asleep now and then.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

fn expect(frames: &Receiver<Sent>, count: usize) {
    for n in 0..count {
        let (bytes, _) = frames
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("frame {n} does not come"));
        assert_eq!(bytes[..8], (n as u64).to_le_bytes());
        assert!(bytes[8..].iter().all(|byte| *byte == n as u8), "frame {n}");
    }
}

#[test]
fn no_wake_is_lost_between_two_processes_that_both_send() {
    const FRAMES: usize = 100_000;
    let (_dir, path) = place();
    let mut a = Running::new(small(listen(&path)));
    let mut b = Running::new(small(connect(&path)));
    a.wait_for("ring_connects", 1);
    b.wait_for("ring_connects", 1);
    let (from_b, from_a) = (a.take_frames(), b.take_frames());
    std::thread::scope(|scope| {
        scope.spawn(|| push(&*a.sink, FRAMES, |n| 60 + n % 200));
        scope.spawn(|| push(&*b.sink, FRAMES, |n| 60 + (n * 13) % 1454));
        scope.spawn(move || expect(&from_a, FRAMES));
        expect(&from_b, FRAMES);
    });
    for port in [&a, &b] {
        // Counted behind their delivery.
        port.wait_for("frames_in", FRAMES as u64);
        assert_eq!(port.count("frames_in"), FRAMES as u64);
        assert_eq!(port.count("frames_out"), FRAMES as u64);
        assert_eq!(port.count("ring_bad_peer"), 0);
        assert!(port.count("ring_wakes") > 0);
    }
}

#[test]
fn senders_get_room_although_what_comes_the_other_way_has_none() {
    let (_dir, path) = place();
    let a = Running::new(small(listen(&path)));
    let b = Running::new(small(connect(&path)));
    a.wait_for("ring_connects", 1);
    b.wait_for("ring_connects", 1);
    // Frames for the sink behind `a` wait for ever.
    a.to.set_room(0);
    assert_eq!(send_all(&*b.sink, &[(pattern(0, 60), Offload::NONE)]), 1);
    std::thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| push(&*a.sink, 3000, |_| 1500));
        expect(&b.frames, 3000);
    });
    assert!(a.count("ring_no_room") > 0, "the ring was never full");
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(a.count("frames_in"), 0);
    a.to.set_room(1);
    until("the frame", || a.count("frames_in") == 1);
}

#[test]
fn two_senders_that_wait_are_both_woken() {
    let (_dir, path) = place();
    let a = Running::new(small(listen(&path)));
    let b = Running::new(small(connect(&path)));
    a.wait_for("ring_connects", 1);
    b.wait_for("ring_connects", 1);
    let (done, ends) = channel();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (sink, done) = (Arc::clone(&a.sink), done.clone());
            scope.spawn(move || {
                push(&*sink, 20_000, |n| 60 + n % 1400);
                done.send(()).expect("the test waits");
            });
        }
        for _ in 0..40_000 {
            b.frame();
        }
    });
    assert_eq!(ends.try_iter().count(), 2);
}

#[test]
fn a_frame_that_comes_as_the_receiver_falls_asleep_is_not_overlooked() {
    let (_dir, path) = place();
    let a = Running::new(small(listen(&path)));
    let b = Running::new(small(connect(&path)));
    a.wait_for("ring_connects", 1);
    b.wait_for("ring_connects", 1);
    // Each is sent when the one before it has come, which is when the other side looks for more, and then sleeps.
    for n in 0..30_000_usize {
        let frame = [(n as u64).to_le_bytes(); 8].concat();
        assert_eq!(send_all(&*a.sink, &[(frame.clone(), Offload::NONE)]), 1);
        assert_eq!(b.frame(), frame);
        // Not always at the same moment.
        (0..n % 200).for_each(|_| std::hint::spin_loop());
    }
}
