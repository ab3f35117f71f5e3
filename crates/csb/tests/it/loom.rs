//! Every order in which a driver and a NIC can take the steps of going to sleep and of calling each
//! other, in both directions; and that neither barrier can be left out.

use hypernic_csb::{NONE, Word, passes, rx_kick_at, sleep, sleep_behind, wanted, wanted_behind};
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A word as guest memory gives it: nothing stronger than what the crate asks for.
struct GuestWord(AtomicU32);

impl GuestWord {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
}

impl Word for GuestWord {
    fn load(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }
}

/// A register write that wakes the NIC, or an interrupt that wakes the driver.
#[derive(Default)]
struct Call {
    came: Mutex<bool>,
    changed: Condvar,
}

impl Call {
    fn make(&self) {
        *self.came.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// The checker reports a deadlock when no thread is left to call: the lost call.
    fn wait(&self) {
        let mut came = self.came.lock().unwrap();
        while !*came {
            came = self.changed.wait(came).unwrap();
        }
        *came = false;
    }
}

type Barrier = fn();

fn full() {
    fence(Ordering::SeqCst);
}

fn nothing() {}

/// One direction: a producer, an index that says how far it is, and a consumer. In transmission the
/// driver is the producer, TDT the index and a register write the call. In reception these are the
/// NIC, its write-back and the interrupt.
struct Way {
    index: GuestWord,
    need: GuestWord,
    call: Call,
}

impl Way {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            index: GuestWord::new(0),
            // The initial values: neither side is at work yet.
            need: GuestWord::new(1),
            call: Call::default(),
        })
    }

    fn make(&self, count: u32, barrier: Barrier, clears: bool) {
        for n in 1..=count {
            self.index.store(n);
            if wanted_behind(barrier, &self.need) != 0 {
                if clears {
                    self.need.store(0);
                }
                self.call.make();
            }
        }
    }

    fn take(&self, count: u32, barrier: Barrier) {
        loop {
            self.call.wait();
            self.need.store(0);
            // Whatever is there is taken at once.
            let mut taken = self.index.load();
            while !sleep_behind(barrier, &self.need, 1, 0, || self.index.load() != taken) {
                taken = self.index.load();
            }
            if taken == count {
                return;
            }
        }
    }
}

/// `clears`: a driver may take the wish for a call back for the NIC, so that it calls once.
fn both(maker: Barrier, taker: Barrier, clears: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let way = Way::new();
        let other = Arc::clone(&way);
        let made = thread::spawn(move || other.make(2, maker, clears));
        way.take(2, taker);
        made.join().unwrap();
    });
}

#[test]
fn nothing_that_was_made_available_is_slept_over() {
    both(full, full, false);
}

#[test]
fn nor_if_whoever_calls_takes_the_wish_for_it_back() {
    both(full, full, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn it_would_be_without_the_barrier_of_whoever_calls() {
    both(nothing, full, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn it_would_be_without_the_barrier_of_whoever_sleeps() {
    both(full, nothing, false);
}

/// The same steps by the functions as they are used, in both directions at once: the NIC takes what
/// is to be sent and reports it; the driver waits for the reports.
#[test]
fn both_directions_at_once() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let sent = Way::new();
        let done = Way::new();
        let (nic_sent, nic_done) = (Arc::clone(&sent), Arc::clone(&done));
        let nic = thread::spawn(move || {
            nic_sent.call.wait();
            nic_sent.need.store(0);
            loop {
                let tdt = nic_sent.index.load();
                nic_done.index.store(tdt);
                if wanted(&nic_done.need) != 0 {
                    nic_done.call.make();
                }
                if sleep(&nic_sent.need, 1, 0, || nic_sent.index.load() != tdt) {
                    break;
                }
            }
        });
        sent.index.store(1);
        if wanted(&sent.need) != 0 {
            sent.call.make();
        }
        // The driver asked for the interrupt before it sent.
        done.call.wait();
        assert_eq!(done.index.load(), 1);
        nic.join().unwrap();
    });
}

/// Receive buffers: the NIC has none and names the place at which it wants to be called; the driver
/// gives them one by one. `driver` and `nic` are their barriers.
fn buffers(driver: Barrier, nic: Barrier) {
    const LEN: u32 = 4;
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let way = Arc::new((GuestWord::new(0), GuestWord::new(NONE), Call::default()));
        let other = Arc::clone(&way);
        let giver = thread::spawn(move || {
            let (rdt, place, call) = &*other;
            for new in 1..LEN {
                rdt.store(new);
                if passes(new - 1, new, wanted_behind(driver, place), LEN) {
                    place.store(NONE);
                    call.make();
                }
            }
        });
        let (rdt, place, call) = &*way;
        // What is there is used up at once.
        let mut known = rdt.load();
        while known < LEN - 1 {
            // The driver fills its ring once: what it has given it cannot give again.
            let at = rx_kick_at(known, known, LEN);
            if sleep_behind(nic, place, at, NONE, || rdt.load() != known) {
                call.wait();
            }
            known = rdt.load();
        }
        giver.join().unwrap();
    });
}

#[test]
fn buffers_that_were_given_are_not_slept_over() {
    buffers(full, full);
}

#[test]
#[should_panic(expected = "deadlock")]
fn they_would_be_without_the_drivers_barrier() {
    buffers(nothing, full);
}

#[test]
#[should_panic(expected = "deadlock")]
fn they_would_be_without_the_nics_barrier() {
    buffers(full, nothing);
}
