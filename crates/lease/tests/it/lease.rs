//! The protocol in one thread: what each step answers.

use hypernic_lease::{BoundedLock, Lessor, MAX_LEASES, PATIENCE, Taken};

fn taken(of: &Lessor<(), u32>) -> Vec<Taken<u32>> {
    let mut guard = of.lock();
    std::iter::from_fn(|| guard.take()).collect()
}

#[test]
fn the_oldest_publishes_for_those_behind_it() {
    let of = Lessor::new(());
    let first = of.lock().open().expect("room");
    let second = of.lock().open().expect("room");
    of.lock().append(3).expect("room");
    of.lock().close(second, 2);
    assert_eq!(taken(&of), []);
    assert!(of.lock().is_out());
    of.lock().close(first, 1);
    assert_eq!(taken(&of), [1, 2, 3].map(Taken::Wanted));
    assert!(!of.lock().is_out());
}

#[test]
fn there_are_only_so_many_and_whoever_was_short_is_told_once() {
    let of = Lessor::new(());
    let mut tickets: Vec<_> = (0..MAX_LEASES)
        .map(|_| of.lock().open().expect("room"))
        .collect();
    assert!(of.lock().open().is_none() && of.lock().is_full());
    assert_eq!(of.lock().append(9), Err(9));
    assert!(!of.lock().relieved());
    let last = tickets.split_off(1);
    of.lock().close(tickets.remove(0), 0);
    assert_eq!(taken(&of), [Taken::Wanted(0)]);
    assert!(of.lock().relieved() && !of.lock().relieved());
    for (ticket, n) in last.into_iter().zip(1..) {
        of.lock().close(ticket, n);
    }
    let want: Vec<_> = (1..MAX_LEASES as u32).map(Taken::Wanted).collect();
    assert_eq!(taken(&of), want);
}

#[test]
fn what_is_revoked_is_void_and_what_comes_after_is_not() {
    let of = Lessor::new(());
    let ticket = of.lock().open().expect("room");
    assert!(of.wants(&ticket));
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| drop(of.lock().revoke()));
        while of.wants(&ticket) {
            std::thread::yield_now();
        }
        // Nothing is given out behind it.
        assert!(of.lock().is_full() && of.lock().open().is_none());
        assert!(!stop.is_finished());
        of.lock().close(ticket, 1);
        assert_eq!(taken(&of), [Taken::Void(1)]);
    });
    let ticket = of.lock().open().expect("room");
    of.lock().close(ticket, 2);
    assert_eq!(taken(&of), [Taken::Wanted(2)]);
}

#[test]
fn a_crowd_is_believed_in_for_a_while() {
    let of = Lessor::new(());
    assert!(!of.lock().crowded());
    std::thread::scope(|scope| {
        let held = of.lock();
        scope.spawn(|| drop(of.lock()));
        while !held.crowded() {
            std::thread::yield_now();
        }
        drop(held);
    });
    let mut alone = 0;
    while of.lock().crowded() {
        let ticket = of.lock().open().expect("room");
        assert!(of.lock().crowded());
        of.lock().close(ticket, 0);
        taken(&of);
        alone += 1;
        assert!(alone < 1000);
    }
    assert!(alone > 1);
}

/// Has a lock held for long while `others` run.
fn held<T: Send>(of: &BoundedLock<T>, others: impl FnOnce() + Send) -> bool {
    let own = of.lock();
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            others();
        });
        others.join().expect("they end although it is held");
    });
    drop(own);
    of.relieve()
}

#[test]
fn a_sender_does_not_wait_for_one_that_holds_the_lock_for_long() {
    let of = BoundedLock::new(());
    assert!(!held(&of, || {}));
    assert!(held(&of, || assert!(of.reach().is_none())));
    // It is said once, and the lock is to be had again.
    assert!(!of.relieve());
    assert!(of.reach().is_some());
    assert!(held(&of, || {
        assert!(of.reach().is_none());
        let before = std::time::Instant::now();
        // The next ones do not even wait so long, however many there are.
        (0..1000).for_each(|_| assert!(of.reach().is_none()));
        assert!(before.elapsed() < 100 * PATIENCE);
    }));
}

#[test]
fn a_ring_that_is_filled_for_long_is_not_waited_for() {
    let of: Lessor<(), u32> = Lessor::new(());
    let own = of.lock();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| of.reach().is_none());
        assert!(other.join().expect("it ends although the lock is held"));
    });
    drop(own);
    assert!(of.relieve() && !of.relieve());
    // Others are about, so that leases are used from now on.
    assert!(of.reach().is_some_and(|guard| guard.crowded()));
}
