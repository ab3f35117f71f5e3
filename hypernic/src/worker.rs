//! Worker threads, and what they serve.
//!
//! A worker owns many NICs. Those with work are active and get bounded turns one after the other;
//! all others cost a descriptor in the worker's epoll set and nothing else. Who is called, and how
//! a worker falls asleep without losing a call, is `ready_list`'s.

mod account;
mod delays;
mod doorbell_poller;
mod had;
mod long_turns;
mod pulse;
mod pulses;
mod run;
mod spent;
mod task;
mod turns;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::Clock;

use crate::error::Error;
use crate::report::Section;
use long_turns::APART;
pub use pulses::Pulses;
use run::begin;
pub(crate) use task::{ASKED, LOOK, OTHERS, QUESTION, Served, TRIED, Task, Turn, WOKEN};
use task::{WorkerHandle, fewest, task};
pub(crate) use waits::histogram;

/// A fixed number of worker threads.
pub(crate) struct Workers {
    handles: Arc<[WorkerHandle]>,
    next_id: AtomicU64,
}

impl Workers {
    /// Starts `count` workers, at least one.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start(count: usize, clock: &Arc<dyn Clock>) -> Result<Self, Error> {
        let count = count.max(1);
        let handles = (0..count + APART).map(|at| WorkerHandle::new(at >= count));
        let workers = Self {
            handles: handles.collect(),
            next_id: AtomicU64::new(run::FIRST_ID),
        };
        for at in 0..count {
            begin(&workers.handles, at, clock).map_err(|source| Error::Os {
                what: "cannot start a worker",
                source,
            })?;
        }
        Ok(workers)
    }

    /// Workers for all, without those that serve slow NICs apart.
    pub fn count(&self) -> usize {
        self.handles.iter().filter(|handle| !handle.apart).count()
    }

    /// A task at the worker that has the fewest. It can be called at once and is served from
    /// [`Task::start`] on.
    pub fn task(&self, name: &str) -> Arc<Task> {
        let home = fewest(&self.handles, false).unwrap_or(0);
        task(&self.handles, home, &self.next_id, name)
    }

    /// Whether they still turn.
    pub fn pulses(&self) -> Pulses {
        Pulses(Arc::clone(&self.handles))
    }

    /// What the workers did.
    pub fn counters(&self) -> Vec<Section> {
        let section = |(at, handle): (usize, &WorkerHandle)| {
            let mut values = handle.counters.values();
            values.extend(handle.waits.values());
            values.push(("tasks", handle.tasks.load(Ordering::Relaxed) as u64));
            Section {
                kind: "worker",
                name: at.to_string(),
                values,
            }
        };
        let runs = |handle: &WorkerHandle| !handle.apart || handle.thread.lock().is_some();
        let all = self.handles.iter().enumerate();
        all.filter(|(_, handle)| runs(handle))
            .map(section)
            .collect()
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
        for handle in &*self.handles {
            if let Some(thread) = handle.thread.lock().take() {
                // A panic over there has been reported by the panic hook already.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod apart_tests;
#[cfg(test)]
mod doorbell_tests;
#[cfg(test)]
mod nic_tests;
#[cfg(test)]
mod pulse_tests;
#[cfg(test)]
mod tests;
