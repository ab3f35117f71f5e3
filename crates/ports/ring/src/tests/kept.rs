//! Connections that go on in the next process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use frame::{Batch, Caps, Sink, Wake};
use port::InletStatus;
use wire::Offload;

use super::rig::{Hand, Pass, connect, listen, pattern, place, send, send_all, until};
use crate::{Keeps, PARTS, Parts, RingConfig};

/// A page that outlives processes, for one connection.
#[derive(Debug, Default)]
struct Page {
    parts: Mutex<Option<Parts>>,
    leaves: AtomicBool,
}

impl Keeps for Page {
    fn begun(&self, fds: [BorrowedFd<'_>; PARTS], bytes: [u32; 2]) {
        let again = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
        let fds: Vec<OwnedFd> = fds.into_iter().map(again).collect();
        let fds = fds.try_into().expect("all of them");
        *self.parts.lock().expect("lock") = Some(Parts { fds, bytes });
    }

    fn over(&self) {
        *self.parts.lock().expect("lock") = None;
    }

    fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }
}

fn kept(config: RingConfig, page: &Arc<Page>) -> Hand {
    let goes_on = page.parts.lock().expect("lock").take();
    page.leaves.store(false, Ordering::Relaxed);
    Hand::new(RingConfig {
        keeps: Some(Arc::clone(page) as Arc<dyn Keeps>),
        goes_on,
        ..config
    })
}

fn frames(numbers: std::ops::Range<usize>) -> Vec<(Vec<u8>, Offload)> {
    numbers
        .map(|n| (pattern(n, 60 + n), Offload::NONE))
        .collect()
}

fn meet(a: &mut Hand, b: &mut Hand) {
    until("a connection", || {
        a.run();
        b.run();
        a.inlet.link_up() && b.inlet.link_up()
    });
}

#[test]
fn a_ring_that_is_left_goes_on_with_every_frame() {
    for listens in [true, false] {
        let (_dir, path) = place();
        let page = Arc::<Page>::default();
        let (mut ours, other) = match listens {
            true => (listen(&path), connect(&path)),
            false => (connect(&path), listen(&path)),
        };
        let mut a = Hand::new(other);
        let mut b = kept(ours, &page);
        meet(&mut a, &mut b);
        for round in 0..3 {
            assert_eq!(send_all(&*a.sink, &frames(0..100)), 100);
            b.to.set_room(40);
            assert_eq!(b.settle(), InletStatus::Blocked);
            // Frames of its own that the other has not taken yet.
            assert_eq!(send_all(&*b.sink, &frames(200..230)), 30);
            let mut got: Vec<_> = b.frames.try_iter().collect();
            page.leaves.store(true, Ordering::Relaxed);
            drop(b.inlet);
            // What comes meanwhile waits.
            assert_eq!(send_all(&*a.sink, &frames(100..150)), 50);
            a.settle();
            assert!(a.inlet.link_up(), "the other notices nothing");
            ours = if listens {
                listen(&path)
            } else {
                connect(&path)
            };
            b = kept(ours, &page);
            b.settle();
            got.extend(b.frames.try_iter());
            assert_eq!(got, frames(0..150), "round {round}");
            let back: Vec<_> = a.frames.try_iter().collect();
            assert_eq!(back, frames(200..230));
            assert_eq!(b.count("ring_lost_bytes"), 0);
        }
        assert!(send(&*b.sink, &pattern(7, 60)));
        a.settle();
        assert_eq!(a.frames.try_iter().count(), 1);
        assert_eq!(
            (a.count("ring_connects"), a.count("ring_disconnects")),
            (1, 0)
        );
    }
}

#[test]
fn one_that_is_closed_for_good_is_not_kept() {
    let (_dir, path) = place();
    let page = Arc::<Page>::default();
    let mut a = Hand::new(listen(&path));
    let mut b = kept(connect(&path), &page);
    meet(&mut a, &mut b);
    assert!(page.parts.lock().expect("lock").is_some());
    drop(b);
    assert!(page.parts.lock().expect("lock").is_none());
    until("its end", || {
        a.run();
        a.count("ring_disconnects") == 1
    });
}

/// Takes some frames, and dies of the next.
struct Dies(Arc<Pass>, Mutex<usize>);

impl Sink for Dies {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut left = self.1.lock().expect("lock");
        let some = picks.len().min(*left);
        let done = self.0.deliver(batch, &picks[..some]);
        *left -= done;
        assert!(some == picks.len(), "the process dies");
        done
    }
    fn caps(&self) -> Caps {
        Caps::ALL
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

#[test]
fn after_a_death_no_frame_comes_twice_and_what_was_not_begun_comes() {
    for died_of in [0, 1, 17, 99] {
        let (_dir, path) = place();
        let page = Arc::<Page>::default();
        let mut a = Hand::new(listen(&path));
        let mut b = kept(connect(&path), &page);
        meet(&mut a, &mut b);
        assert_eq!(send_all(&*a.sink, &frames(0..100)), 100);
        let mut inlet = std::mem::replace(&mut b.inlet, Hand::new(connect(&place().1)).inlet);
        let dies = Dies(Arc::clone(&b.to), Mutex::new(died_of));
        let died = catch_unwind(AssertUnwindSafe(|| inlet.run(&dies, 256)));
        assert!(died.is_err());
        // Nothing of a process that was killed is dropped.
        Box::leak(inlet);
        let got: Vec<_> = b.frames.try_iter().collect();
        assert_eq!(got, frames(0..died_of));
        assert_eq!(send_all(&*a.sink, &frames(100..120)), 20);
        let mut b = kept(connect(&path), &page);
        b.settle();
        let after: Vec<_> = b.frames.try_iter().collect();
        assert_eq!(after, frames(100..120), "died of {died_of}");
        assert!(b.count("ring_lost_bytes") > 0);
        assert!(a.inlet.link_up());
    }
}

#[test]
fn a_ring_whose_other_end_has_gone_meanwhile_begins_anew() {
    let (_dir, path) = place();
    let page = Arc::<Page>::default();
    let mut a = Hand::new(listen(&path));
    let mut b = kept(connect(&path), &page);
    meet(&mut a, &mut b);
    assert_eq!(send_all(&*a.sink, &frames(0..5)), 5);
    page.leaves.store(true, Ordering::Relaxed);
    drop(b.inlet);
    drop(a);
    let mut b = kept(connect(&path), &page);
    b.settle();
    assert_eq!(b.frames.try_iter().count(), 5, "what it had sent is there");
    // Another thread closes what `a` had.
    until("its end", || {
        b.run();
        !b.inlet.link_up()
    });
    let mut a = Hand::new(listen(&path));
    meet(&mut a, &mut b);
    assert!(send(&*a.sink, &pattern(1, 60)));
    b.settle();
    assert_eq!(b.frames.try_iter().count(), 1);
}

#[test]
fn what_is_left_of_a_ring_is_checked() {
    let (_dir, path) = place();
    let page = Arc::<Page>::default();
    // Head, tail, and what was claimed, each as nobody leaves it.
    for (word, value) in [
        (0, 1_u32),
        (0, 1 << 24),
        (64, 1 << 24),
        (256, 48),
        (256, 1 << 24),
    ] {
        let mut a = Hand::new(listen(&path));
        let mut b = kept(connect(&path), &page);
        meet(&mut a, &mut b);
        page.leaves.store(true, Ordering::Relaxed);
        drop(b.inlet);
        let file = {
            let parts = page.parts.lock().expect("lock");
            let file = parts.as_ref().expect("left").fds[1].try_clone();
            std::fs::File::from(file.expect("a descriptor"))
        };
        std::os::unix::fs::FileExt::write_all_at(&file, &value.to_le_bytes(), word)
            .expect("written");
        let mut b = kept(connect(&path), &page);
        assert_eq!(b.count("ring_bad_peer"), 1, "{word} {value}");
        meet(&mut a, &mut b);
        assert!(send(&*a.sink, &pattern(1, 60)));
        b.settle();
        assert_eq!(b.frames.try_iter().count(), 1, "{word} {value}");
        drop(a);
    }
}
