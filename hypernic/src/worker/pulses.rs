//! Whether all workers still turn, for a service manager's watchdog.
//!
//! A worker that sleeps is well. So a worker is woken and asked, and answers when it passes the beginning of its loop; one
//! that has not answered by the next look is late.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::task::WorkerHandle;

/// The pulses of all workers, for the one thread that looks after them.
pub struct Pulses(pub(super) Arc<[WorkerHandle]>);

impl Pulses {
    /// The workers that have not passed the beginning of their loop since the look before. All are asked anew.
    ///
    /// One that waits in the kernel for a page of memory is excused: a VMM can bring that about, and it ends no other guest's NIC.
    pub fn late(&self) -> Vec<usize> {
        let mut late = Vec::new();
        for (at, handle) in self.0.iter().enumerate() {
            let pulse = &handle.pulse;
            let running = pulse
                .thread()
                .filter(|_| !handle.quit.load(Ordering::Acquire));
            let Some(tid) = running else { continue };
            if pulse.is_owed() && !waits_in_the_kernel(tid) {
                late.push(at);
            }
            pulse.ask();
            if handle.ready_list.call() {
                handle.ring();
            }
        }
        late
    }
}

/// Whether a thread of this process waits where no signal ends it.
fn waits_in_the_kernel(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
    let stat = stat.unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest.trim_start());
    state.starts_with('D')
}
