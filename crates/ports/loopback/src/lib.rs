//! The loopback port: every frame comes back to its sender.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use frame::{Batch, Caps, Counted, Sink, Wake};
use parking_lot::Mutex;
use port::{Backlog, Bell, Inlet, InletStatus, Interest, Port, Tally, Waiters};

/// Frames on their way back at once.
const FRAMES: usize = 1024;
const BYTES: usize = 2 * 1024 * 1024;
/// Longest frame: 64 KiB of IP and its headers.
const MAX_FRAME: usize = 65536 + 64;

mod count {
    pub const NAMES: [&str; 6] = [
        "frames_out",
        "bytes_out",
        "frames_in",
        "bytes_in",
        "loopback_too_long",
        "loopback_cannot_finish",
    ];
    pub const FRAMES_OUT: usize = 0;
    pub const BYTES_OUT: usize = 1;
    pub const FRAMES_IN: usize = 2;
    pub const BYTES_IN: usize = 3;
    pub const TOO_LONG: usize = 4;
    pub const CANNOT_FINISH: usize = 5;
}

struct Loop {
    queue: Mutex<Backlog>,
    bell: Bell,
    waiters: Waiters,
    tally: Tally<6>,
}

impl Sink for Loop {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let (mut frames, mut bytes, mut done) = (0, 0, 0);
        let mut queue = self.queue.lock();
        for frame in picks.iter().map(|&p| batch.get(p.into())) {
            if let Some(frame) = frame {
                if frame.len() > MAX_FRAME {
                    self.tally.add(count::TOO_LONG, 1);
                } else if let Some(room) = queue.room() {
                    let n = frame.copy_to(0, &mut room[..frame.len()]);
                    queue.commit(0, n, *frame.notes());
                    frames += 1;
                    bytes += n as u64;
                } else {
                    break;
                }
            }
            done += 1;
        }
        drop(queue);
        self.tally.add(count::FRAMES_OUT, frames);
        self.tally.add(count::BYTES_OUT, bytes);
        if frames > 0 {
            self.bell.ring();
        }
        done
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.waiters.add(waker);
    }
}

impl Counted for Loop {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.tally.counters(visit);
        visit("syscalls", self.bell.syscalls());
    }
}

struct LoopbackInlet {
    shared: Arc<Loop>,
    /// The half of the queue that is being handed over, so that senders do not wait for it.
    leaving: Backlog,
}

impl Inlet for LoopbackInlet {
    fn interests<'a>(&'a self, add: &mut dyn FnMut(Interest<'a>)) {
        add(Interest {
            fd: self.shared.bell.as_fd(),
            read: true,
            write: false,
        });
    }

    fn run(&mut self, to: &dyn Sink, _: usize) -> InletStatus {
        self.shared.bell.clear();
        for _ in 0..2 {
            let done = self.leaving.flush(to);
            let tally = &self.shared.tally;
            tally.add(count::FRAMES_IN, done.frames);
            tally.add(count::BYTES_IN, done.bytes);
            tally.add(count::CANNOT_FINISH, done.unfinished);
            if !self.leaving.is_empty() {
                return InletStatus::Blocked;
            }
            std::mem::swap(&mut *self.shared.queue.lock(), &mut self.leaving);
            self.shared.waiters.wake_all();
            if self.leaving.is_empty() {
                return InletStatus::Idle;
            }
        }
        InletStatus::More
    }
}

/// A port that returns every frame to its sender, as it is.
///
/// # Errors
/// When the process is out of descriptors.
pub fn open() -> io::Result<Port> {
    let queue = || Backlog::new(BYTES, MAX_FRAME).with_frames(FRAMES);
    let shared = Arc::new(Loop {
        queue: Mutex::new(queue()),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        tally: Tally::new(count::NAMES),
    });
    let inlet = LoopbackInlet {
        shared: Arc::clone(&shared),
        leaving: queue(),
    };
    Ok(Port {
        name: "loopback".into(),
        sink: Arc::clone(&shared) as Arc<dyn Sink>,
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::counter;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use wire::Offload;

    struct Slow {
        room: AtomicUsize,
        got: Mutex<Vec<Vec<u8>>>,
    }

    impl Sink for Slow {
        fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
            let n = picks.len().min(self.room.load(Ordering::SeqCst));
            self.room.fetch_sub(n, Ordering::SeqCst);
            let frames = picks[..n].iter().filter_map(|&p| batch.get(p.into()));
            self.got.lock().extend(frames.map(|f| f.to_vec()));
            n
        }
        fn caps(&self) -> Caps {
            Caps::ALL
        }
        fn want_room(&self, _: &Arc<dyn Wake>) {}
    }

    #[test]
    fn frames_come_back_in_order_and_none_is_lost() {
        let port = open().expect("eventfd");
        let mut inlet = port.inlet.expect("inlet");
        let slow = Slow {
            room: AtomicUsize::new(700),
            got: Mutex::default(),
        };
        let mut sent = 0u32;
        let mut offer = |n: usize| {
            let mut batch = Batch::new();
            for i in 0..n as u32 {
                batch.push_bytes(&(sent + i).to_be_bytes());
                batch.end(Offload::NONE);
            }
            let picks: Vec<u16> = (0..n as u16).collect();
            let taken = port.sink.deliver(&batch, &picks);
            sent += taken as u32;
            taken
        };
        for _ in 0..5 {
            offer(200);
        }
        assert_eq!(offer(200), 24, "bounded");
        let bell = Arc::new(Bell::new().expect("eventfd"));
        let waker: Arc<dyn Wake> = Arc::clone(&bell) as Arc<dyn Wake>;
        port.sink.want_room(&waker);
        assert_eq!(inlet.run(&slow, 256), InletStatus::Blocked);
        assert!(bell.clear(), "the senders' half is free again");
        assert_eq!(offer(200), 200);
        slow.room.store(10_000, Ordering::SeqCst);
        while inlet.run(&slow, 256) != InletStatus::Idle {}
        let numbers = slow.got.lock();
        let expected: Vec<Vec<u8>> = (0..1224u32).map(|i| i.to_be_bytes().to_vec()).collect();
        assert!(*numbers == expected);
        assert_eq!(counter(&*port.counters, "frames_in"), Some(1224));

        let mut batch = Batch::new();
        batch.push_bytes(&vec![0; MAX_FRAME + 1]);
        batch.end(Offload::NONE);
        assert_eq!(port.sink.deliver(&batch, &[0]), 1);
        assert_eq!(counter(&*port.counters, "loopback_too_long"), Some(1));
    }
}
