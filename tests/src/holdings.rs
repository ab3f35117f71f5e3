//! What a process holds.

use std::time::{Duration, Instant};

use crate::patience::LONG;

/// A worker's epoll set, its timer, its bell, and what the kernel says of its thread in two files.
const FDS_OF_WORKER: usize = 5;

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Anonymous memory that is resident, in KiB.
    pub heap: u64,
    /// Memory files mapped: how many, how many KiB.
    pub mapped: (u64, u64),
    /// Open descriptors, but for those of workers.
    pub fds: usize,
    /// Threads, but for workers: some are started for NICs whose turns wait, and stay.
    pub threads: usize,
}

impl Holdings {
    /// Of the process with this id.
    ///
    /// # Panics
    /// When there is no such process, or its `/proc` cannot be read.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
        };
        let count = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            std::fs::read_dir(&path).map_or(0, Iterator::count)
        };
        let status = read("status");
        let heap = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
            .expect("RssAnon in kB");
        let mut mapped = (0, 0);
        for line in read("maps").lines().filter(|line| line.contains("/memfd:")) {
            let bounds = line
                .split_whitespace()
                .next()
                .and_then(|b| b.split_once('-'));
            let hex = |text| u64::from_str_radix(text, 16).expect("an address");
            let (start, end) = bounds.expect("a range");
            mapped.0 += 1;
            mapped.1 += (hex(end) - hex(start)) / 1024;
        }
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let threads = tasks.into_iter().flatten().flatten();
        let worker = |thread: &std::fs::DirEntry| {
            let name = std::fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| name.starts_with("worker-"))
        };
        let workers = threads.filter(worker).count();
        // What switches have learned is noted for the next worker in two files, the second of which is made when there is news.
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let is_note = |fd: &std::fs::DirEntry| {
            let file = std::fs::read_link(fd.path());
            file.is_ok_and(|file| file.as_os_str() == "/memfd:learned (deleted)")
        };
        let notes = fds.into_iter().flatten().flatten().filter(is_note).count();
        Self {
            heap,
            mapped,
            fds: count("fd") - FDS_OF_WORKER * workers - notes,
            threads: count("task") - workers,
        }
    }

    /// The same once nothing comes or goes: the connection by which counters were asked may end a moment later.
    ///
    /// # Panics
    /// As [`Self::of`].
    #[must_use]
    pub fn at_rest(pid: u32) -> Self {
        let until = Instant::now() + LONG;
        let mut last = Self::of(pid);
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let now = Self::of(pid);
            let rest = |of: &Self| (of.mapped, of.fds, of.threads);
            if rest(&now) == rest(&last) || Instant::now() > until {
                return now;
            }
            last = now;
        }
    }

    /// Waits until the process holds what this says, heap aside.
    ///
    /// # Errors
    /// What it holds instead.
    ///
    /// # Panics
    /// As [`Self::of`].
    pub fn wait_back(&self, pid: u32) -> Result<Self, Self> {
        let until = Instant::now() + LONG;
        loop {
            let now = Self::of(pid);
            // Threads that closed or printed something for what was before may have ended since.
            let threads = now.threads.min(self.threads);
            let rest = |of: &Self| (of.mapped, of.fds);
            if rest(&now) == rest(self) && now.threads == threads {
                return Ok(now);
            }
            if Instant::now() > until {
                return Err(now);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
