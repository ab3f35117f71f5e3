//! A parent that keeps descriptors open while its worker dies and comes again.
//!
//! [`start`] splits the process in two, before it has any other thread. The *keeper* is the parent: one thread that waits for
//! its child and reads nothing that a peer sends. The *worker* is the child and does all the work. Both have the same table of
//! descriptors (`clone` with `CLONE_FILES`): what the worker opens, or gets from a peer, is open in the keeper too, under the
//! same number, without anything being handed over. When the worker dies, all of it stays open, and the next worker takes
//! over what is named in the page that both share ([`Shared`]) and closes the rest.
//!
//! ```no_run
//! use hypernic_keeper as keeper;
//!
//! match keeper::start(keeper::Options::default())? {
//!     keeper::Role::Over(code) => std::process::exit(code),
//!     keeper::Role::Worker => {}
//! }
//! // Threads may begin from here on.
//! let page = keeper::current().expect("we are a worker");
//! page.serving();
//! # std::io::Result::Ok(())
//! ```
//!
//! Two things end the sharing, so a worker does neither: `execve`, and `close_range` with `CLOSE_RANGE_UNSHARE`. A child made
//! by `fork` (or by `std::process::Command`, before it executes) has a copy of the table and shares nothing.
//!
//! `unsafe` lives in the module `sys`, beside one promise about a type in `shared`; each says what keeps it sound.
#![deny(unsafe_code)]

mod cells;
mod deaths;
pub mod exact;
mod handover;
mod kept;
mod lines;
#[cfg(test)]
mod model_tests;
mod nics;
mod process;
mod shared;
mod sys;
mod turns;

use std::collections::HashSet;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, SocketType, sockopt};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getppid, kill_process, waitid, waitpid,
};

pub use cells::{Start, cell, close_others, end_cell, end_other_cells};
pub use handover::{Handover, file_of};
pub use lines::{Home, end as end_lines, is_held, line, look};
pub use nics::Nics;
pub use shared::{Before, Gives, Shared, Thread, current, gives_to, note_fault};
pub use sys::Allocator;
pub use turns::NicId;

use crate::cells::Cells;
use crate::deaths::{Deaths, End, FORGIVEN, Hangs, Next, STRIKES};
use crate::exact::Link;
use crate::handover::across::{self, Left, VARIABLE};
use crate::process::{end_of, open_descriptors};
use crate::sys::Signals;

/// How often the keeper looks whether turns end.
const LOOK: Duration = Duration::from_millis(250);
/// A turn that lasts for so many looks has hung. Turns are bounded and take some milliseconds; a VMM waits for an answer for
/// five seconds, which is to be enough for this and for the restart.
const LOOKS: u32 = 8;
/// Between two attempts to start a worker.
const AGAIN: Duration = Duration::from_millis(20);
/// Before the next one after a worker that could not begin, and twice as long after each more in a row.
const UNREADY: Duration = Duration::from_millis(50);
/// How long a worker that was asked to end may take; its guests have three seconds of it.
const ENDING: Duration = Duration::from_secs(20);

/// Who this process is after [`start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A worker: does the work.
    Worker,
    /// The keeper, and its last worker has ended: what is to be the exit code.
    Over(i32),
}

/// The exit code when starting again does not help.
pub const GAVE_UP: i32 = 1;

/// What is passed on to the worker.
const PASSED_ON: [Signal; 5] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

/// What a keeper is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections that are to outlive their worker.
    pub links: usize,
    /// A life that was shorter did not help.
    pub life: Duration,
    /// How cells are started, if there may be some.
    pub cells: Option<Start>,
    /// Asked before another program goes on in the place of this one: a worker has named it, and a guest may have taken that over.
    pub may_become: fn(&Path) -> Result<(), String>,
    /// Tells such a program more.
    pub successor: fn(&mut Command),
    /// This process is a cell, and has inherited a mask of signals that was its parent's.
    pub is_cell: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            links: 0,
            life: deaths::LIFE,
            cells: None,
            may_become: |_| Ok(()),
            successor: |_| (),
            is_cell: false,
        }
    }
}

/// Makes this process a keeper; returns in each worker, and in the keeper when the last worker has ended.
///
/// # Errors
/// There are other threads already, or the system has no memory or process left for it.
pub fn start(options: Options) -> io::Result<Role> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a keeper begins before any other thread"));
    }
    let left = what_is_left();
    let mut inherited = open_descriptors()?;
    let shared = Shared::new()?;
    if let Some(left) = &left {
        shared.begin_with(left);
        // They are ours, though the program before has opened them.
        let ours = shared.left_open();
        inherited.retain(|fd| !ours.contains(fd));
        ours.into_iter().for_each(|fd| sys::close_on_exec(fd, true));
    }
    let links: Vec<_> = (0..options.links)
        .map(|_| Link::memory())
        .collect::<io::Result<_>>()?;
    let waited = [PASSED_ON.as_slice(), &[Signal::CHILD]].concat();
    let (signals, mut before) = Signals::block(&waited)?;
    if left.is_some() || options.is_cell {
        // The keeper before, or above, has blocked them, for the time when nobody waited for them.
        before.remove(&waited);
    }
    let mut keeper = Keeper {
        shared,
        signals,
        began: Instant::now(),
        deaths: Deaths::new(options.life, left.is_some()),
        stopping: None,
        handed_over: false,
        dead: None,
        cells: Cells::new(options.cells, left.unwrap_or_default().cells.into_iter()),
    };
    let us = rustix::process::getpid();
    loop {
        shared.begin_life();
        let Some(worker) = keeper.fork(sys::fork_sharing_descriptors)? else {
            before.become_blocked();
            become_worker(us, shared, &inherited)?;
            let _ = LINKS.set(Mutex::new(links.into_iter().map(Some).collect()));
            return Ok(Role::Worker);
        };
        keeper.reap();
        if let Some(code) = keeper.attend(worker) {
            keeper.reap();
            keeper.end_cells();
            return Ok(Role::Over(code));
        }
        let head = shared.handover_head().filter(|_| keeper.handed_over);
        if let Some(program) = head.and_then(|head| head.program) {
            keeper.reap();
            let become_it = || become_program(shared, &keeper.cells, &program, options.successor);
            let why = match (options.may_become)(&program) {
                Ok(()) => become_it().to_string(),
                Err(why) => why,
            };
            eprintln!(
                "hypernic: cannot become {}: {why}; going on as before",
                program.display()
            );
        }
    }
}

static LINKS: OnceLock<Mutex<Vec<Option<&'static exact::Memory>>>> = OnceLock::new();

/// Connection `at` of those that outlive their worker, for its one holder. `None`: there is no such one, or it has been given
/// out already.
pub fn link(at: usize) -> Option<Link> {
    let mut links = LINKS.get()?.lock().unwrap_or_else(PoisonError::into_inner);
    links.get_mut(at)?.take().map(Link::resume)
}

/// The first thing a worker does.
fn become_worker(keeper: Pid, shared: &'static Shared, inherited: &[RawFd]) -> io::Result<()> {
    // Without a keeper nobody would start the next one; and who starts a new keeper finds our sockets in use.
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() != Some(keeper) {
        return Err(io::Error::other("the keeper has ended"));
    }
    if shared.life() > 1 {
        close_what_nobody_names(shared, inherited)?;
    }
    shared.enter();
    Ok(())
}

/// What the worker before has left open, and what no page names: it is of no use without that worker's memory. Its peers see
/// that it is closed.
fn close_what_nobody_names(shared: &Shared, inherited: &[RawFd]) -> io::Result<()> {
    let mut kept = shared.left_open();
    kept.extend(lines::find(shared));
    // A connection that was inherited goes on under another number.
    let files: HashSet<_> = kept.iter().filter_map(|fd| sys::identity(*fd)).collect();
    let goes_on = |fd| sys::identity(fd).is_some_and(|file| files.contains(&file));
    for fd in open_descriptors()? {
        if kept.contains(&fd) {
            continue;
        }
        if !inherited.contains(&fd) {
            drop(sys::take_over(fd));
        } else if fd > 2 && !goes_on(fd) {
            hang_up(fd);
        }
    }
    Ok(())
}

/// Has another program go on in the place of this one, with all that the worker has left. Returns if that cannot be started.
fn become_program(
    shared: &Shared,
    cells: &Cells,
    program: &Path,
    successor: fn(&mut Command),
) -> io::Error {
    let mut left = shared.left();
    let of = |(key, pid, name): (u64, i32, &str)| (key, pid, name.to_owned());
    left.cells = cells.left().map(of).collect();
    let file = match handover::file_of("keeper", left.lines().as_bytes()) {
        Ok(file) => file,
        Err(error) => return error,
    };
    let mut all = shared.left_open();
    all.insert(file.as_raw_fd());
    all.iter().for_each(|fd| sys::close_on_exec(*fd, false));
    let mut words = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words);
    successor(&mut command);
    command.env(VARIABLE, file.as_raw_fd().to_string());
    let why = command.exec();
    all.iter().for_each(|fd| sys::close_on_exec(*fd, true));
    why
}

/// Whether this program goes on in the place of another one, whose keeper became it. For the beginning, before [`start`].
pub fn goes_on() -> bool {
    let number = std::env::var_os(VARIABLE).and_then(|value| across::number(&value));
    number.is_some_and(|number| sys::identity(number).is_some())
}

/// What the keeper before has left that became this program.
fn what_is_left() -> Option<Left> {
    let number = across::number(&std::env::var_os(VARIABLE)?)?;
    // Of whoever has set the variable for us we take no more than a file of such lines.
    let mut file = std::fs::File::from(sys::duplicate(number)?);
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(LINES).read_to_string(&mut text).ok()?;
    let left = Left::parse(&text);
    drop(sys::take_over(number));
    (left.life > 0).then_some(left)
}

/// Bytes of such lines at most.
const LINES: u64 = 1 << 22;

/// A connection that was inherited cannot be closed, or its number would become another's. What was said on it is forgotten,
/// so nobody may go on with it.
fn hang_up(number: RawFd) {
    let Some(fd) = sys::take_over(number) else {
        return;
    };
    let stream = sockopt::socket_type(&fd) == Ok(SocketType::STREAM);
    if stream && sockopt::socket_acceptconn(&fd) == Ok(false) {
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
    }
    let _ = std::os::fd::IntoRawFd::into_raw_fd(fd);
}

/// The keeper's own side.
struct Keeper {
    shared: &'static Shared,
    signals: Signals,
    began: Instant,
    deaths: Deaths,
    /// Since when it is about to end.
    stopping: Option<Instant>,
    /// The last worker has ended by itself, and left everything to the next.
    handed_over: bool,
    /// The last worker, a zombie.
    dead: Option<Pid>,
    cells: Cells,
}

impl Keeper {
    /// Makes the next worker. After the first the system may have no memory or process for it just now: guests wait, and have more of
    /// that than of sockets that close.
    fn fork(
        &mut self,
        mut fork: impl FnMut() -> io::Result<Option<Pid>>,
    ) -> io::Result<Option<Pid>> {
        let mut told = false;
        loop {
            match fork() {
                Err(error) if self.shared.life() > 1 && self.stopping.is_none() => {
                    if !told {
                        eprintln!(
                            "hypernic: cannot start the next worker yet: {error}; trying again"
                        );
                        told = true;
                    }
                }
                made => return made,
            }
            self.idle(AGAIN);
        }
    }

    /// Waits while there is no worker that could be told.
    fn idle(&mut self, time: Duration) {
        if let Some(came) = self.signals.wait(time)
            && [Signal::TERM, Signal::INT]
                .iter()
                .any(|ends| ends.as_raw() == came.number)
        {
            self.stopping.get_or_insert_with(Instant::now);
        }
    }

    /// Watches a worker until it has ended. `Some`: there is no next one, and this is the exit code.
    fn attend(&mut self, worker: Pid) -> Option<i32> {
        let (end, served) = self.watch(worker);
        let hung = end == End::Hang;
        let signal = match end {
            End::Signal(signal) => signal,
            End::Hang => Signal::KILL.as_raw(),
            End::Exit(_) => 0,
        };
        self.shared.note_end(signal, hung);
        let mut helps = false;
        if end.is_a_fault() && !self.shared.was_starved() && self.stopping.is_none() {
            // From 1 on: 0 is "never".
            let now = self.began.elapsed().as_secs() + 1;
            let words = self.shared.suspects().into_iter();
            let nics = self.shared.nics();
            helps = nics.blame(words, now, STRIKES, FORGIVEN.as_secs());
        }
        // Not one that died before it took over what another has left: it would for ever.
        self.handed_over =
            self.shared.handover_file().is_some() && served.is_some() && self.stopping.is_none();
        if self.handed_over {
            return None;
        }
        let stopping = self.stopping.is_some();
        match self.deaths.next(end, served, stopping, helps) {
            Next::Again => match end {
                // It lacked something, and has said what.
                End::Exit(code) if served.is_none() => {
                    self.idle(UNREADY * 2_u32.pow(self.deaths.short()));
                    self.stopping.map(|_| code)
                }
                _ => None,
            },
            Next::Leave(code) => Some(code),
            Next::GiveUp => {
                // Nobody else is there to say so: log lines are the worker's.
                eprintln!(
                    "hypernic: the worker dies as soon as it is started (last by signal {signal}); giving up, and closing \
                     all sockets"
                );
                Some(GAVE_UP)
            }
        }
    }

    /// Waits for the end of a worker. Returns how it ended, and how long it has lived, if it came to serve.
    fn watch(&mut self, worker: Pid) -> (End, Option<Duration>) {
        let mut hangs = Hangs::new(shared::THREADS, LOOKS);
        let born = Instant::now();
        let (mut stopped, mut hung) = (false, false);
        loop {
            let came = self.signals.wait(LOOK);
            if let Some(came) = came.as_ref().filter(|c| c.number != Signal::CHILD.as_raw()) {
                self.pass_on(worker, came);
            }
            self.cells.look(self.shared, self.stopping.is_some());
            if let Some(end) = end_of(worker) {
                self.dead = Some(worker);
                let served = self.shared.has_served().then(|| born.elapsed());
                return (if hung { End::Hang } else { end }, served);
            }
            let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
            while let Ok(Some(status)) = waitid(WaitId::Pid(worker), changes) {
                stopped = status.stopped();
            }
            if stopped {
                hangs.forget();
            }
            // Looks are counted, not time: a host that slept, or had no time for us, had none for the worker either.
            let late = if came.is_none() {
                hangs.look(self.shared.words())
            } else {
                None
            };
            let overdue = self.stopping.is_some_and(|since| since.elapsed() > ENDING);
            if !hung && (late.is_some() || overdue) {
                if is_traced(worker) {
                    hangs.forget();
                    continue;
                }
                if let Some(at) = late
                    && waits_in_the_kernel(worker, self.shared.tid(at))
                {
                    hangs.excuse(at);
                    continue;
                }
                hung = true;
                if late.is_some() {
                    self.shared.note_fault(late);
                }
                let _ = kill_process(worker, Signal::KILL);
            }
        }
    }

    /// Reaps the last worker. Only once the next one runs: the kernel waits there for all that look at that process in `/proc`
    /// just now, and a busy host was seen to keep them for a minute.
    fn reap(&mut self) {
        if let Some(dead) = self.dead.take() {
            let _ = waitpid(Some(dead), WaitOptions::NOHANG);
        }
    }

    /// There is no worker any more, and so there are no cells.
    fn end_cells(&mut self) {
        self.cells.look(self.shared, true);
        while !self.cells.is_over() {
            self.signals.wait(LOOK);
            self.cells.look(self.shared, true);
        }
    }

    fn pass_on(&mut self, worker: Pid, came: &sys::Came) {
        let Some(signal) = PASSED_ON.into_iter().find(|s| s.as_raw() == came.number) else {
            return;
        };
        if signal == Signal::TERM || signal == Signal::INT {
            self.stopping.get_or_insert_with(Instant::now);
        } else if !self.shared.has_served() {
            // It could not say yet what it does with these, and they would end it; with what the one before has left.
            return;
        }
        if signal == Signal::USR1 {
            self.cells.tell(signal);
        }
        // A terminal has sent it to the worker too, for whom a second one means "at once".
        if !came.from_terminal {
            let _ = kill_process(worker, signal);
        }
    }
}

/// Whether a debugger has the worker.
fn is_traced(worker: Pid) -> bool {
    // The worker closes nothing that it does not know but at its start, long before a turn of it can last so long.
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// Whether a thread waits where no signal ends it: for a page, say, of a file that a peer changes just now. A peer can bring
/// that about, so it is not for us to end all NICs for it; and the worker could not be killed anyway.
fn waits_in_the_kernel(worker: Pid, thread: u32) -> bool {
    let path = format!("/proc/{}/task/{thread}/stat", worker.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest.trim_start());
    state.starts_with('D')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> Keeper {
        Keeper {
            shared: Shared::new().expect("memory"),
            signals: Signals::block(&[]).expect("signals").0,
            began: Instant::now(),
            deaths: Deaths::new(Duration::ZERO, false),
            stopping: None,
            handed_over: false,
            dead: None,
            cells: Cells::new(None, std::iter::empty()),
        }
    }

    #[test]
    fn the_next_worker_is_tried_for_until_the_system_has_one_and_the_first_is_not() {
        let mut keeper = keeper();
        let mut refusals = 0;
        let mut fork = || {
            refusals += 1;
            match refusals {
                1..4 => Err(io::ErrorKind::OutOfMemory.into()),
                _ => Ok(Pid::from_raw(refusals)),
            }
        };
        keeper.shared.begin_life();
        assert!(keeper.fork(&mut fork).is_err(), "nothing runs yet");
        keeper.shared.begin_life();
        assert_eq!(keeper.fork(&mut fork).ok(), Some(Pid::from_raw(4)));
        // It was asked to end meanwhile.
        keeper.stopping = Some(Instant::now());
        assert!(
            keeper
                .fork(|| Err(io::ErrorKind::OutOfMemory.into()))
                .is_err()
        );
    }

    #[test]
    fn a_worker_that_had_no_memory_is_no_nics_doing() {
        for starved in [false, true] {
            let mut keeper = keeper();
            keeper.shared.begin_life();
            let nic = keeper.shared.nics().place("n0");
            for _ in 0..STRIKES {
                keeper.shared.begin_life();
                keeper.shared.thread(0).expect("a thread").begin(nic);
                if starved {
                    keeper.shared.note_starved();
                }
                let mut worker = Command::new("sh");
                let worker = worker.args(["-c", "kill -ABRT $$"]).spawn();
                let worker = Pid::from_child(&worker.expect("a process"));
                assert_eq!(keeper.attend(worker), None);
                keeper.reap();
            }
            let quarantined = keeper.shared.nics().is_quarantined(nic.expect("a place"));
            assert_eq!(quarantined, !starved);
        }
    }

    #[test]
    fn a_dead_worker_is_reaped_only_when_the_next_one_runs() {
        let mut keeper = keeper();
        let mut worker = Command::new("false").spawn().expect("a process");
        let pid = Pid::from_child(&worker);
        assert_eq!(keeper.watch(pid), (End::Exit(1), None));
        assert!(end_of(pid).is_some() && keeper.dead == Some(pid));
        keeper.reap();
        assert!(end_of(pid).is_none() && worker.try_wait().is_err());
    }
}
