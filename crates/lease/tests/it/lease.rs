//! The protocol in one thread: what each step answers.

use hypernic_lease::{Lessor, MAX_LEASES, Taken};

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
