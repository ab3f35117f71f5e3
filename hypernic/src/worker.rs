//! Worker threads, and what they serve.
//!
//! A worker owns many NICs. Those with work are active and get bounded turns one after the other;
//! all others cost a descriptor in the worker's epoll set and nothing else. Who is called, and how
//! a worker falls asleep without losing a call, is `ready_list`'s.

mod doorbell_poller;
mod run;
mod spent;
mod task;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use model::Clock;

use crate::error::Error;
use crate::report::Section;
use run::Worker;
pub(crate) use task::{ASKED, LOOK, Served, TRIED, Task, Turn, WOKEN};
use task::{WorkerHandle, task};

/// A fixed number of worker threads.
pub(crate) struct Workers {
    handles: Arc<[WorkerHandle]>,
    threads: Vec<JoinHandle<()>>,
    next_id: AtomicU64,
}

impl Workers {
    /// Starts `count` workers, at least one.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start(count: usize, clock: &Arc<dyn Clock>) -> Result<Self, Error> {
        let os = Error::os("cannot start the workers");
        let handles: Result<Vec<_>, _> = (0..count.max(1)).map(|_| WorkerHandle::new()).collect();
        let mut workers = Self {
            handles: handles.map_err(os)?.into(),
            threads: Vec::new(),
            next_id: AtomicU64::new(run::FIRST_ID),
        };
        for at in 0..workers.handles.len() {
            let worker = Worker::new(Arc::clone(&workers.handles), at, Arc::clone(clock)).map_err(
                |source| Error::Os {
                    what: "cannot start a worker",
                    source,
                },
            )?;
            let thread = std::thread::Builder::new()
                .name(format!("worker-{at}"))
                .spawn(move || worker.run())
                .map_err(|source| Error::Os {
                    what: "cannot start a thread",
                    source,
                })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// A task at the worker that has the fewest. It can be called at once and is served from
    /// [`Task::start`] on.
    pub fn task(&self, name: &str) -> Arc<Task> {
        let tasks = |at: &usize| self.handles[*at].tasks.load(Ordering::Relaxed);
        let home = (0..self.handles.len()).min_by_key(tasks).unwrap_or(0);
        task(&self.handles, home, &self.next_id, name)
    }

    /// What the workers did.
    pub fn counters(&self) -> Vec<Section> {
        let section = |(at, handle): (usize, &WorkerHandle)| {
            let mut values = handle.counters.values();
            values.push(("tasks", handle.tasks.load(Ordering::Relaxed) as u64));
            Section {
                kind: "worker",
                name: at.to_string(),
                values,
            }
        };
        self.handles.iter().enumerate().map(section).collect()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for handle in &*self.handles {
            handle.quit.store(true, Ordering::Release);
            if handle.ready_list.call() {
                handle.ring();
            }
        }
        for thread in self.threads.drain(..) {
            // A panic over there has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod doorbell_tests;
#[cfg(test)]
mod nic_tests;
#[cfg(test)]
mod tests;
