//! Every order in which those who ring and wait, and those who make room, can take their steps.

use std::sync::Arc as Plain;

use frame::Wake;
use hypernic_port::{Rung, Waiters};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// The eventfd that is slept on.
#[derive(Default)]
struct Eventfd {
    count: Mutex<u32>,
    changed: Condvar,
}

impl Eventfd {
    fn write(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_one();
    }

    fn read(&self) -> bool {
        std::mem::take(&mut *self.count.lock().unwrap()) > 0
    }

    /// The checker reports a deadlock when no thread is left to write: the lost wake.
    fn poll(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.changed.wait(count).unwrap();
        }
    }
}

fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

#[derive(Default)]
struct Doorway {
    rung: Rung,
    fd: Eventfd,
    /// What is to be done, published by the ring alone.
    work: AtomicU32,
}

impl Doorway {
    fn bring(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
        self.rung.ring(|| self.fd.write());
    }

    /// Serves until so much was seen, and sleeps in between.
    fn serve(&self, wanted: u32) {
        let mut seen = 0;
        while seen < wanted {
            self.fd.poll();
            self.rung.clear(|| self.fd.read());
            seen += self.work.swap(0, Ordering::Relaxed);
        }
        assert_eq!(seen, wanted);
    }
}

#[test]
fn no_ring_of_two_is_lost() {
    model(3, || {
        let door = Arc::new(Doorway::default());
        let ringers: Vec<_> = (0..2)
            .map(|_| {
                let door = door.clone();
                thread::spawn(move || door.bring())
            })
            .collect();
        door.serve(2);
        ringers.into_iter().for_each(|r| r.join().unwrap());
    });
}

#[test]
fn one_who_rings_again_and_again_is_heard_each_time() {
    model(4, || {
        let door = Arc::new(Doorway::default());
        let ringer = {
            let door = door.clone();
            thread::spawn(move || (0..3).for_each(|_| door.bring()))
        };
        door.serve(3);
        ringer.join().unwrap();
    });
}

struct Sender(Arc<Eventfd>);

impl Wake for Sender {
    fn wake(&self) {
        self.0.write();
    }
}

/// A receiver with room for some frames, and those who wait for it.
struct Receiver {
    room: Mutex<u32>,
    waiters: Waiters,
}

impl Receiver {
    fn take(&self) -> bool {
        let mut room = self.room.lock().unwrap();
        let had = *room > 0;
        *room -= u32::from(had);
        had
    }

    fn make(&self, room: u32) {
        *self.room.lock().unwrap() += room;
        self.waiters.wake_all();
    }

    /// Sends one: register, try once more, sleep.
    fn send(&self) {
        let fd = Arc::new(Eventfd::default());
        let waker: Plain<dyn Wake> = Plain::new(Sender(fd.clone()));
        while !self.take() {
            self.waiters.add(&waker);
            if self.take() {
                break;
            }
            fd.poll();
            fd.read();
        }
    }
}

#[test]
fn nobody_who_waits_for_room_is_left_waiting() {
    model(3, || {
        let receiver = Arc::new(Receiver {
            room: Mutex::new(0),
            waiters: Waiters::new(),
        });
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let receiver = receiver.clone();
                thread::spawn(move || receiver.send())
            })
            .collect();
        receiver.make(1);
        receiver.make(1);
        senders.into_iter().for_each(|s| s.join().unwrap());
    });
}
