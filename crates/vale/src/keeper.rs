//! A thread that enforces the bound on holding up senders.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use frame::Wake;
use parking_lot::{Condvar, Mutex};

use crate::switch::Switch;

/// Calls [`Switch::tick`] when it is time, and sleeps while no sender waits. The switch's clock must
/// run with real time. Dropping it stops it; from then on nothing is left with senders.
#[derive(Debug)]
pub struct Keeper {
    switch: Switch,
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Signal {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Debug, Default)]
struct State {
    woken: bool,
    stop: bool,
}

impl Wake for Signal {
    fn wake(&self) {
        self.state.lock().woken = true;
        self.given.notify_one();
    }
}

impl Keeper {
    /// Starts the thread for `switch`, as the timer of the senders that wait.
    pub fn start(switch: &Switch) -> io::Result<Keeper> {
        let signal = Arc::new(Signal::default());
        let thread = threads::spawn("switch-keeper", {
            let (switch, signal) = (switch.clone(), signal.clone());
            move || keep(&switch, &signal)
        })?;
        switch.set_timer(signal.clone());
        Ok(Keeper {
            switch: switch.clone(),
            signal,
            thread: Some(thread),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.switch.clear_timer();
        self.signal.state.lock().stop = true;
        self.signal.given.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has already been printed on stderr, and `drop` cannot return it.
            let _ = thread.join();
        }
    }
}

fn keep(switch: &Switch, signal: &Signal) {
    loop {
        let next = switch.tick();
        let mut state = signal.state.lock();
        while !state.woken && !state.stop {
            match next {
                None => signal.given.wait(&mut state),
                Some(deadline) => {
                    let left = Duration::from_nanos(deadline.saturating_sub(switch.now()));
                    if signal.given.wait_for(&mut state, left).timed_out() {
                        break;
                    }
                }
            }
        }
        if state.stop {
            return;
        }
        state.woken = false;
    }
}
