//! Every order in which senders that lease, and one that stops them, can take their steps.

use hypernic_lease::{Guard, HeldUp, Lessor, Taken};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// All orders with at most three preemptions, beside those where a thread waits.
fn explore(steps: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(steps);
}

/// A ring without wrap-around: the next place to be given out, and what was published, in order.
#[derive(Default)]
struct Ring {
    next: u32,
    published: Vec<Part>,
    void: u32,
}

/// A filled part: its first place, who filled it, and with which of his.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    at: u32,
    sender: u32,
    nth: u32,
}

type Ringed = Lessor<Ring, Part>;

fn publish(ring: &mut Guard<'_, Ring, Part>) {
    while let Some(taken) = ring.take() {
        match taken {
            Taken::Wanted(part) => ring.published.push(part),
            Taken::Void(_) => ring.void += 1,
        }
    }
}

/// What a sender does with one part. `false`: there was no room.
fn send(of: &Ringed, sender: u32, nth: u32, fill: impl FnOnce(&dyn Fn() -> bool)) -> bool {
    let mut ring = of.lock();
    if ring.is_out() && ring.is_full() {
        return false;
    }
    let part = Part {
        at: ring.next,
        sender,
        nth,
    };
    ring.next += 1;
    let Some(ticket) = ring.open() else {
        fill(&|| true);
        if ring.is_out() {
            ring.append(part).expect("it was not full");
        } else {
            ring.published.push(part);
        }
        return true;
    };
    drop(ring);
    fill(&|| of.wants(&ticket));
    let mut ring = of.lock();
    ring.close(ticket, part);
    publish(&mut ring);
    true
}

/// Each part that found room, once, at its place, and those of one sender in his order.
fn check(published: &[Part], sent: u32) {
    assert_eq!(published.len() as u32, sent);
    for (at, part) in published.iter().enumerate() {
        assert_eq!(part.at, at as u32, "published in the order of the ring");
    }
    for sender in 0..3 {
        let of = published.iter().filter(|part| part.sender == sender);
        let nth: Vec<_> = of.map(|part| part.nth).collect();
        assert!(nth.is_sorted_by(|a, b| a < b), "{nth:?}");
    }
}

#[test]
fn parts_are_published_once_and_in_order_whoever_is_slow() {
    explore(|| {
        let of = Arc::new(Ringed::new(Ring::default()));
        let others: Vec<_> = [1, 2]
            .map(|sender| {
                let of = Arc::clone(&of);
                thread::spawn(move || u32::from(send(&of, sender, 0, |_| {})))
            })
            .into();
        let mut sent = u32::from(send(&of, 0, 0, |_| {}));
        sent += u32::from(send(&of, 0, 1, |_| {}));
        for other in others {
            sent += other.join().unwrap();
        }
        let ring = of.settle();
        check(&ring.published, sent);
        assert_eq!(ring.next, sent);
        assert!(!ring.is_out());
    });
}

#[test]
fn what_was_revoked_is_told_apart_from_what_was_published() {
    explore(|| {
        let of = Arc::new(Ringed::new(Ring::default()));
        let others: Vec<_> = [1, 2]
            .map(|sender| {
                let of = Arc::clone(&of);
                thread::spawn(move || u32::from(send(&of, sender, 0, |_| {})))
            })
            .into();
        let mut ring = of.lock().revoke();
        assert!(!ring.is_out());
        assert_eq!(ring.next, ring.published.len() as u32 + ring.void);
        // As a reset does: places begin anew.
        let before = ring.next;
        ring.next = 0;
        ring.published.clear();
        ring.void = 0;
        drop(ring);
        let sent: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
        let ring = of.settle();
        assert_eq!(ring.void, 0);
        check(&ring.published, sent - before);
    });
}

#[test]
fn a_lease_ends_before_what_it_stands_on_is_changed() {
    explore(|| {
        let of = Arc::new(Ringed::new(Ring::default()));
        let memory = Arc::new(AtomicU32::new(0));
        let other = {
            let (of, memory) = (Arc::clone(&of), Arc::clone(&memory));
            thread::spawn(move || {
                let mut seen = 0;
                send(&of, 1, 0, |wanted| {
                    for _ in 0..2 {
                        if wanted() {
                            // Relaxed: only the lease orders it.
                            seen = memory.load(Ordering::Relaxed);
                        }
                    }
                });
                seen
            })
        };
        let mut ring = of.lock().revoke();
        memory.store(7, Ordering::Relaxed);
        let voided = ring.void;
        ring.void = 0;
        drop(ring);
        let seen = other.join().unwrap();
        if voided > 0 {
            assert_eq!(seen, 0, "written to after it was taken away");
            assert_eq!(of.lock().published, []);
        }
    });
}

#[test]
fn whoever_waits_for_quiet_gets_it_and_sees_all_that_was_given_out() {
    explore(|| {
        let of = Arc::new(Ringed::new(Ring::default()));
        let other = {
            let of = Arc::clone(&of);
            thread::spawn(move || {
                let mut sent = 0;
                for nth in 0..2 {
                    sent += u32::from(send(&of, 1, nth, |_| {}));
                }
                sent
            })
        };
        let third = {
            let of = Arc::clone(&of);
            thread::spawn(move || drop(of.settle()))
        };
        let ring = of.settle();
        assert_eq!(ring.published.len() as u32, ring.next);
        drop(ring);
        third.join().unwrap();
        let sent = other.join().unwrap();
        check(&of.settle().published, sent);
    });
}

/// The eventfd a sender sleeps on.
#[derive(Default)]
struct EventFd {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl EventFd {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// The checker reports a deadlock when no thread is left to ring: the lost wake.
    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

#[test]
fn whoever_was_short_of_leases_is_woken() {
    explore(|| {
        let of = Arc::new(Ringed::new(Ring::default()));
        let waiting = Arc::new(Mutex::new(false));
        let bell = Arc::new(EventFd::default());
        // Two leases are all there are.
        let mut tickets = Vec::new();
        for sender in [1, 2] {
            let mut ring = of.lock();
            let at = ring.next;
            ring.next += 1;
            let part = Part { at, sender, nth: 0 };
            tickets.push((ring.open().expect("room"), part));
        }
        let others: Vec<_> = tickets
            .into_iter()
            .map(|(ticket, part)| {
                let (of, waiting) = (Arc::clone(&of), Arc::clone(&waiting));
                let bell = Arc::clone(&bell);
                thread::spawn(move || {
                    let mut ring = of.lock();
                    ring.close(ticket, part);
                    publish(&mut ring);
                    let relieved = ring.relieved();
                    drop(ring);
                    if relieved && std::mem::take(&mut *waiting.lock().unwrap()) {
                        bell.ring();
                    }
                })
            })
            .collect();
        // Register, then try once more, then sleep: the rule of `Sink::want_room`.
        if !send(&of, 0, 0, |_| {}) {
            loop {
                *waiting.lock().unwrap() = true;
                if send(&of, 0, 0, |_| {}) {
                    break;
                }
                bell.sleep();
            }
        }
        for other in others {
            other.join().unwrap();
        }
        check(&of.settle().published, 3);
    });
}

/// Senders that find a lock taken get it, or are woken by one that had it. The lock is a flag: loom takes what is done
/// under a mutex of its own for one step.
#[test]
fn whoever_is_turned_away_is_woken() {
    struct Lock {
        taken: AtomicBool,
        held_up: HeldUp,
        woken: AtomicU32,
    }
    impl Lock {
        fn try_now(&self) -> Option<()> {
            let order = (Ordering::Acquire, Ordering::Relaxed);
            let taken = self.taken.compare_exchange(false, true, order.0, order.1);
            taken.ok().map(|_| ())
        }

        /// Whether it had the lock.
        fn send(&self) -> bool {
            let had = self.try_now().or_else(|| {
                let (try_for, try_now) = (|| self.try_now(), || self.try_now());
                self.held_up.wait(try_for, try_now)
            });
            if had.is_none() {
                return false;
            }
            self.taken.store(false, Ordering::Release);
            if self.held_up.relieve() {
                self.woken.fetch_add(1, Ordering::Relaxed);
            }
            true
        }
    }
    explore(|| {
        let of = Arc::new(Lock {
            taken: AtomicBool::new(false),
            held_up: HeldUp::new(),
            woken: AtomicU32::new(0),
        });
        let other = of.clone();
        let other = thread::spawn(move || other.send());
        let got = [of.send(), other.join().expect("no panic")];
        assert!(got[0] || got[1]);
        // One wake-up is for all who were turned away before it.
        assert!(got[0] && got[1] || of.woken.load(Ordering::Relaxed) > 0);
    });
}
