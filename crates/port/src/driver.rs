//! Driving an inlet on a thread of its own.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use frame::{Counted, Sink, Wake};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::answer::{Prompt, Run};
use crate::bell::Bell;
use crate::inlet::{Inlet, InletStatus};
use crate::tally::Tally;

/// Frames per turn: one full batch, then others may run.
const BUDGET: usize = frame::MAX_BATCH;
/// Frames that a thread which has written passes on at most.
const ANSWER: usize = 64;
/// Wake-ups in a row by a descriptor in an error state before the thread slows down.
const ERROR_TURNS: u32 = 8;
/// How long it then waits between two looks.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

const TURNS: usize = 0;
const SLEEPS: usize = 1;
const BLOCKED: usize = 2;
const STRAINED: usize = 3;
const ANSWERS: usize = 4;

/// What an inlet's owner hears of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InletEvent {
    /// Something happened outside that is worth a line in the log; the link is told apart.
    Note(String),
    /// The outside is there (again).
    LinkUp,
    /// The outside is not there now; it may come back.
    LinkDown,
    /// The outside is gone for good, for this reason. Nothing comes after this.
    Closed(String),
}

/// A thread that runs one inlet until it closes or this is dropped; of an inlet with several
/// queues, a thread for each ([`Inlet::split`]).
///
/// It waits with `poll`, not `epoll`: an inlet has a handful of descriptors, may change them after
/// every run, and may open a new one under an old number, which an epoll set cannot see.
pub struct InletThread {
    quit: Arc<AtomicBool>,
    counters: Arc<Tally<5>>,
    /// The first is the one that tells of events.
    threads: Vec<(Arc<Bell>, JoinHandle<()>)>,
}

impl InletThread {
    /// Starts a thread called `name` that passes what arrives to `to`.
    ///
    /// `on_event` is called on that thread.
    ///
    /// # Errors
    /// When the system refuses a descriptor or a thread.
    pub fn spawn(
        name: &str,
        mut inlet: Box<dyn Inlet>,
        to: Arc<dyn Sink>,
        on_event: impl FnMut(InletEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let quit = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Tally::new([
            "inlet_turns",
            "inlet_sleeps",
            "inlet_blocked",
            "inlet_error_pauses",
            "inlet_answers",
        ]));
        let others = inlet.split();
        // Dropped on an error, it ends the threads that run by then.
        let mut running = Self {
            quit,
            counters,
            threads: Vec::with_capacity(1 + others.len()),
        };
        running.start(name.to_owned(), inlet, &to, on_event)?;
        for (i, other) in (1..).zip(others) {
            running.start(format!("{name}/{i}"), other, &to, |_| {})?;
        }
        Ok(running)
    }

    fn start(
        &mut self,
        name: String,
        inlet: Box<dyn Inlet>,
        to: &Arc<dyn Sink>,
        on_event: impl FnMut(InletEvent) + Send + 'static,
    ) -> io::Result<()> {
        let bell = Arc::new(Bell::new()?);
        let (prompt, kind) = (inlet.prompt(), inlet.kind());
        let way = Arc::new(Way {
            inlet: Mutex::new(inlet),
            to: Arc::clone(to),
            bell: Arc::clone(&bell),
            counters: Arc::clone(&self.counters),
            failed: AtomicBool::new(false),
        });
        if let Some(prompt) = &prompt {
            let weak = Arc::downgrade(&way);
            prompt.answers().come_from(weak);
        }
        let driver = Driver {
            way,
            prompt,
            quit: Arc::clone(&self.quit),
            on_event,
        };
        let thread = threads::spawn(name, move || {
            threads::enter(kind);
            driver.run();
        })?;
        self.threads.push((bell, thread));
        Ok(())
    }

    /// Whether the inlet has closed.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(|(_, thread)| thread.is_finished())
    }

    /// What the threads did: turns, sleeps, waits for the sink, pauses for descriptors in an error
    /// state.
    pub fn counters(&self) -> Arc<dyn Counted> {
        Arc::clone(&self.counters) as Arc<dyn Counted>
    }
}

impl Drop for InletThread {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Release);
        self.threads.iter().for_each(|(bell, _)| bell.ring());
        for (_, thread) in self.threads.drain(..) {
            // An owner that lets go of it while it is told of an event is on that thread itself.
            if thread.thread().id() != std::thread::current().id() {
                // A panic over there has been reported by the panic hook already.
                let _ = thread.join();
            }
        }
    }
}

/// What running an inlet takes, whichever thread does.
struct Way {
    inlet: Mutex<Box<dyn Inlet>>,
    to: Arc<dyn Sink>,
    bell: Arc<Bell>,
    counters: Arc<Tally<5>>,
    /// It panicked on another thread than its own.
    failed: AtomicBool,
}

impl Way {
    fn run(&self, inlet: &mut dyn Inlet, budget: usize) -> InletStatus {
        if self.failed.load(Ordering::Acquire) {
            return failed();
        }
        // Its owner hears of it, rather than of nothing any more.
        catch_unwind(AssertUnwindSafe(|| inlet.run(&*self.to, budget))).unwrap_or_else(|_| {
            self.failed.store(true, Ordering::Release);
            failed()
        })
    }
}

fn failed() -> InletStatus {
    InletStatus::Closed("it failed, which is a bug".into())
}

impl Run for Way {
    fn answer(&self) -> bool {
        // If its thread is at it, it needs no help.
        let Some(mut inlet) = self.inlet.try_lock() else {
            return true;
        };
        let passed = inlet.passed();
        let status = self.run(&mut **inlet, ANSWER);
        let some = inlet.passed() != passed;
        drop(inlet);
        self.counters.add(ANSWERS, some.into());
        if status != InletStatus::Idle {
            // What cannot be ended here is for its thread.
            self.bell.ring();
        }
        some
    }
}

struct Driver<F> {
    way: Arc<Way>,
    prompt: Option<Arc<dyn Prompt>>,
    quit: Arc<AtomicBool>,
    on_event: F,
}

impl<F: FnMut(InletEvent)> Driver<F> {
    fn run(mut self) {
        let way = Arc::clone(&self.way);
        let waker: Arc<dyn Wake> = Arc::clone(&way.bell) as Arc<dyn Wake>;
        let mut link = true;
        // Whether the sink owes us a wake.
        let mut asked = false;
        let mut errors = 0;
        while !self.quit.load(Ordering::Acquire) {
            way.counters.add(TURNS, 1);
            let (status, up, note) = {
                let mut inlet = way.inlet.lock();
                let status = way.run(&mut **inlet, BUDGET);
                (status, inlet.link_up(), inlet.note())
            };
            if let Some(note) = note {
                (self.on_event)(InletEvent::Note(note));
            }
            if let InletStatus::Closed(reason) = status {
                (self.on_event)(InletEvent::Closed(reason));
                return;
            }
            if up != link {
                link = !link;
                (self.on_event)(if link {
                    InletEvent::LinkUp
                } else {
                    InletEvent::LinkDown
                });
            }
            match status {
                InletStatus::More => std::thread::yield_now(),
                InletStatus::Blocked if !asked => {
                    way.to.want_room(&waker);
                    asked = true;
                    // And once more at once: room may have come before we asked.
                }
                InletStatus::Blocked | InletStatus::Idle | InletStatus::Closed(_) => {
                    let blocked = status == InletStatus::Blocked;
                    way.counters.add(BLOCKED, blocked.into());
                    if errors >= ERROR_TURNS {
                        way.counters.add(STRAINED, 1);
                        self.sleep(None, Some(ERROR_PAUSE));
                    }
                    let error = match &self.prompt {
                        Some(prompt) => self.sleep_for(&**prompt, blocked),
                        None => {
                            let timeout = way.inlet.lock().timeout();
                            self.sleep(Some(blocked), timeout)
                        }
                    };
                    errors = if error { errors + 1 } else { 0 };
                    asked &= !way.bell.clear();
                }
            }
        }
    }

    /// As [`Driver::sleep`], for the descriptor of a port whose inlet other threads may run meanwhile.
    fn sleep_for(&self, prompt: &dyn Prompt, blocked: bool) -> bool {
        self.way.counters.add(SLEEPS, 1);
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.way.bell.as_fd(),
            PollFlags::IN,
        )];
        if !blocked {
            fds.push(PollFd::from_borrowed_fd(prompt.as_fd(), PollFlags::IN));
        }
        wait(&mut fds, None)
    }

    /// Waits for the bell and the inlet's descriptors: with `Some(true)` only for those it wants
    /// to write to and for its peer to leave, with `None` for none. Says whether one of them is in an error state, which
    /// would wake us again and again.
    fn sleep(&self, descriptors: Option<bool>, timeout: Option<Duration>) -> bool {
        self.way.counters.add(SLEEPS, 1);
        // Nobody else runs it: it is not prompt.
        let inlet = self.way.inlet.lock();
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.way.bell.as_fd(),
            PollFlags::IN,
        )];
        if let Some(blocked) = descriptors {
            inlet.interests(&mut |want| {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, want.read && !blocked);
                flags.set(PollFlags::OUT, want.write);
                if !flags.is_empty() {
                    fds.push(PollFd::from_borrowed_fd(want.fd, flags));
                }
            });
            if let Some(fd) = inlet.peer().filter(|_| blocked) {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::RDHUP));
            }
        }
        wait(&mut fds, timeout)
    }
}

/// Waits; says whether a descriptor but the first is in an error state.
fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> bool {
    let limit = timeout.map(|t| Timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    // EINTR is a wake-up like any other.
    let _ = poll(fds, limit.as_ref());
    let bad = PollFlags::ERR | PollFlags::HUP | PollFlags::RDHUP | PollFlags::NVAL;
    fds[1..].iter().any(|fd| fd.revents().intersects(bad))
}
