//! A thread that looks after the bound on holding up senders.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use frame::Wake;
use parking_lot::{Condvar, Mutex};

use crate::Switch;

/// Calls [`Switch::tick`] when it is time, and sleeps while nobody waits. The switch's clock must
/// run with real time. Dropping it stops it; from then on nothing is left with senders.
#[derive(Debug)]
pub struct Keeper {
    switch: Switch,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Bell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ring: bool,
    stop: bool,
}

impl Wake for Bell {
    fn wake(&self) {
        self.state.lock().ring = true;
        self.rung.notify_one();
    }
}

impl Keeper {
    /// Starts looking after `switch`, as its alarm.
    pub fn start(switch: &Switch) -> io::Result<Keeper> {
        let bell = Arc::new(Bell::default());
        let thread = thread::Builder::new().name("switch-keeper".into()).spawn({
            let (switch, bell) = (switch.clone(), bell.clone());
            move || keep(&switch, &bell)
        })?;
        switch.set_alarm(bell.clone());
        Ok(Keeper {
            switch: switch.clone(),
            bell,
            thread: Some(thread),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.switch.clear_alarm();
        self.bell.state.lock().stop = true;
        self.bell.rung.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has already been told on stderr, and there is nobody to pass it to.
            let _ = thread.join();
        }
    }
}

fn keep(switch: &Switch, bell: &Bell) {
    loop {
        let next = switch.tick();
        let mut state = bell.state.lock();
        while !state.ring && !state.stop {
            match next {
                None => bell.rung.wait(&mut state),
                Some(deadline) => {
                    let left = Duration::from_nanos(deadline.saturating_sub(switch.now()));
                    if bell.rung.wait_for(&mut state, left).timed_out() {
                        break;
                    }
                }
            }
        }
        if state.stop {
            return;
        }
        state.ring = false;
    }
}
