//! What wakes a sleeping guest: a function in D3 asserts PME when one of the events comes that the guest has asked for.

use std::sync::atomic::{AtomicU8, Ordering};

use model::{Env, Pme, PmeWrite};
use parking_lot::Mutex;

/// Events, as bits.
pub(crate) mod event {
    /// A magic packet.
    pub const MAGIC: u8 = 1;
    /// The link has come up.
    pub const LINK_UP: u8 = 1 << 1;
    /// A frame to the own address.
    pub const STATION: u8 = 1 << 2;
    /// A frame to a group.
    pub const MULTICAST: u8 = 1 << 3;
    /// A frame to all.
    pub const BROADCAST: u8 = 1 << 4;
    /// Those that are frames.
    pub const FRAMES: u8 = MAGIC | STATION | MULTICAST | BROADCAST;
}

/// What PMCSR shows, and whether the function sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Power {
    /// The function is in D3.
    pub d3: bool,
    pub pme_enabled: bool,
    pub pme_status: bool,
}

#[derive(Debug, Default)]
struct State {
    power: Power,
    /// The events that the registers name.
    asked: u8,
}

/// Wake-up.
#[derive(Debug, Default)]
pub(crate) struct WakeUp {
    /// The events that wake now.
    armed: AtomicU8,
    /// A leaf but for the bus, which hears of PME.
    state: Mutex<State>,
}

impl WakeUp {
    /// Which events would wake the guest.
    #[inline]
    pub fn armed(&self) -> u8 {
        self.armed.load(Ordering::Relaxed)
    }

    /// The registers name these events now.
    pub fn ask(&self, events: u8) {
        let mut state = self.state.lock();
        state.asked = events;
        self.arm(&state);
    }

    /// The power state, and what software wrote to PMCSR.
    pub fn set_power(&self, env: &Env, d3: bool, written: Option<PmeWrite>) {
        let mut state = self.state.lock();
        state.power.d3 = d3;
        if let Some(PmeWrite { enable, clear }) = written {
            state.power.pme_enabled = enable;
            state.power.pme_status &= !clear;
        }
        self.settle(env, &state);
    }

    /// One of `events` has come. Whether that wakes the guest.
    pub fn come(&self, env: &Env, events: u8) -> bool {
        let mut state = self.state.lock();
        if self.armed() & events == 0 {
            return false;
        }
        state.power.pme_status = true;
        self.settle(env, &state);
        true
    }

    pub fn power(&self) -> Power {
        self.state.lock().power
    }

    /// Power-up, or another's state.
    pub fn set(&self, env: &Env, power: Power) {
        let mut state = self.state.lock();
        state.power = power;
        self.settle(env, &state);
    }

    fn settle(&self, env: &Env, state: &State) {
        self.arm(state);
        env.irq.set_pme(Pme {
            enabled: state.power.pme_enabled,
            status: state.power.pme_status,
        });
    }

    fn arm(&self, State { power, asked }: &State) {
        let waits = power.d3 && power.pme_enabled && !power.pme_status;
        let armed = if waits { *asked } else { 0 };
        self.armed.store(armed, Ordering::Release);
    }
}
