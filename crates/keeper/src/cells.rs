//! Cells: daemons with keepers of their own, which serve some of the NICs. This keeper starts them, watches them and ends them, as its
//! worker says: for each cell the page names a file with what that is to serve.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Seek};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::deaths::End;
use crate::handover::file_of;
use crate::nics::key;
use crate::process::{end_of, open_descriptors};
use crate::shared::{self, Shared};
use crate::sys;

/// What the page notes of such a file.
const IS: u64 = 0x6365_6c6c;
/// How the first line of the file begins; the cell's name follows. It is a comment of what follows it.
const TITLE: &str = "# cell ";
/// How long a cell may take to end; it lets go of its guests meanwhile.
const ENDING: Duration = Duration::from_secs(25);
/// The first pause before a cell that has ended is started again; each is twice as long as the last one.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);
/// A cell that has lived for so long begins with the first pause again.
const SOUND: Duration = Duration::from_secs(60);
/// A cell that is younger may not know yet what to do with a signal.
const YOUNG: Duration = Duration::from_secs(1);

/// Makes the command that starts a cell of this name, which reads the file with this number.
pub type Start = fn(&str, RawFd) -> Command;

fn name_of(cell: &str) -> Vec<u8> {
    format!("cell {cell}").into_bytes()
}

/// For a worker: its keeper starts a cell that serves this text, or keeps the text for the next time it has to start that cell. `false`: there is no keeper.
///
/// # Errors
/// There is no memory or descriptor for it.
pub fn cell(name: &str, text: &str) -> io::Result<bool> {
    let Some(page) = shared::current() else {
        return Ok(false);
    };
    let text = format!("{TITLE}{name}\n{text}");
    let file = file_of("cell", text.as_bytes())?;
    page.leave(&name_of(name), file, [IS, 0]);
    page.name_cells();
    Ok(page.has(&name_of(name)))
}

/// For a worker: its keeper ends a cell.
pub fn end_cell(name: &str) {
    if let Some(page) = shared::current() {
        drop(page.take(&name_of(name)));
        page.name_cells();
    }
}

/// For a worker: ends all cells but these.
pub fn end_other_cells(cells: &[&str]) {
    let Some(page) = shared::current() else {
        return;
    };
    let keys: Vec<_> = cells.iter().map(|name| key(&name_of(name))).collect();
    for (key, fd) in page.noted(IS).filter(|(key, _)| !keys.contains(key)) {
        page.forget_key(key);
        drop(sys::take_over(fd));
    }
    page.name_cells();
}

/// A cell that is a child of this process.
#[derive(Debug)]
struct Child {
    name: String,
    pid: Option<Pid>,
    started: Instant,
    pause: Duration,
    /// Since when it is to end.
    ending: Option<Instant>,
}

/// All of them, by the keys of the page.
#[derive(Debug)]
pub(crate) struct Cells {
    start: Option<Start>,
    children: BTreeMap<u64, Child>,
    /// Those that were named, and when we looked.
    wanted: BTreeMap<u64, RawFd>,
    seen: Option<u32>,
}

impl Cells {
    /// Those that the program before this one has started go on.
    pub(crate) fn new(
        start: Option<Start>,
        left: impl Iterator<Item = (u64, i32, String)>,
    ) -> Self {
        let child = |(key, pid, name)| {
            let child = Child {
                name,
                pid: Some(Pid::from_raw(pid)?),
                started: Instant::now(),
                pause: PAUSE,
                ending: None,
            };
            Some((key, child))
        };
        Self {
            start,
            children: left.filter_map(child).collect(),
            wanted: BTreeMap::new(),
            seen: None,
        }
    }

    /// For the program that this one becomes.
    pub(crate) fn left(&self) -> impl Iterator<Item = (u64, i32, &str)> {
        let running = self.children.iter();
        running.filter_map(|(key, child)| {
            Some((*key, child.pid?.as_raw_nonzero().get(), child.name.as_str()))
        })
    }

    /// Whether there is none.
    pub(crate) fn is_over(&self) -> bool {
        self.children.is_empty()
    }

    /// Starts and ends cells, so that those run that the page names; none, if the keeper is `stopping`.
    pub(crate) fn look(&mut self, page: &Shared, stopping: bool) {
        let Some(start) = self.start else { return };
        // The page is long, and this is done four times a second.
        let named = page.cells_named();
        let mut died = false;
        for child in self.children.values_mut() {
            child.reap();
            died |= child.pid.is_none();
        }
        if stopping {
            self.wanted.clear();
        } else if died || self.seen != Some(named) {
            self.wanted = page.noted(IS).collect();
        }
        self.seen = Some(named);
        let wanted = &self.wanted;
        self.children.retain(|key, child| {
            let stays = wanted.contains_key(key);
            if !stays {
                child.end();
            }
            stays || child.pid.is_some()
        });
        for (&key, &fd) in wanted {
            match self.children.get_mut(&key) {
                // It is asked to end, and wanted again: once it has.
                Some(child) if child.pid.is_some() => {}
                Some(child) if child.started.elapsed() < child.pause => {}
                Some(child) => child.start(start, fd),
                None => {
                    let Some(name) = title(key, fd) else { continue };
                    let mut child = Child {
                        name,
                        pid: None,
                        started: Instant::now(),
                        pause: PAUSE,
                        ending: None,
                    };
                    child.start(start, fd);
                    self.children.insert(key, child);
                }
            }
        }
    }

    /// Passes a signal on.
    pub(crate) fn tell(&self, signal: Signal) {
        let grown = self
            .children
            .values()
            .filter(|child| child.started.elapsed() > YOUNG);
        for pid in grown.filter_map(|child| child.pid) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Child {
    fn start(&mut self, start: Start, fd: RawFd) {
        self.started = Instant::now();
        self.ending = None;
        let mut command = start(&self.name, fd);
        // What a terminal sends is passed on, and comes once.
        command.process_group(0);
        sys::close_on_exec(fd, false);
        let started = command.spawn();
        sys::close_on_exec(fd, true);
        match started {
            Ok(child) => self.pid = Some(Pid::from_child(&child)),
            Err(error) => {
                eprintln!("hypernic: cannot start the cell {}: {error}", self.name);
                self.wait_longer();
            }
        }
    }

    fn wait_longer(&mut self) {
        self.pause = (self.pause * 2).min(LONGEST);
    }

    /// Notices that it has ended.
    fn reap(&mut self) {
        let Some(pid) = self.pid else { return };
        let Some(end) = end_of(pid) else {
            return;
        };
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        self.pid = None;
        if self.ending.is_some() {
            return;
        }
        let how = match end {
            End::Exit(code) => format!("exit code {code}"),
            End::Signal(signal) => format!("signal {signal}"),
            End::Hang => "it hung".to_owned(),
        };
        if self.started.elapsed() > SOUND {
            self.pause = PAUSE;
        }
        eprintln!(
            "hypernic: the cell {} has ended ({how}): its NICs are gone until it is started again, in {:.1} s",
            self.name,
            self.pause.as_secs_f32()
        );
        self.started = Instant::now();
        self.wait_longer();
    }

    /// Asks it to end, and has it end if it takes too long.
    fn end(&mut self) {
        let Some(pid) = self.pid else { return };
        match self.ending {
            None => {
                self.ending = Some(Instant::now());
                let _ = kill_process(pid, Signal::TERM);
            }
            Some(since) if since.elapsed() > ENDING => {
                let _ = kill_process(pid, Signal::KILL);
            }
            Some(_) => {}
        }
    }
}

/// The name in the file of a cell, if the file is of the cell with this key: a worker may have closed it meanwhile, and its number may be
/// another's.
fn title(key_of_it: u64, fd: RawFd) -> Option<String> {
    let mut file = std::fs::File::from(sys::duplicate(fd)?);
    file.rewind().ok()?;
    let mut line = String::new();
    let mut first = BufReader::new(std::io::Read::take(file, 256));
    first.read_line(&mut line).ok()?;
    let name = line.trim_end().strip_prefix(TITLE)?;
    (key(&name_of(name)) == key_of_it).then(|| name.to_owned())
}

/// For a cell that has just been started: closes all descriptors that it has inherited, but standard ones and these.
///
/// # Errors
/// They cannot be listed.
pub fn close_others(but: &[RawFd]) -> io::Result<()> {
    for fd in open_descriptors()? {
        if fd > 2 && !but.contains(&fd) {
            drop(sys::take_over(fd));
        }
    }
    Ok(())
}
