//! Guards: what a port may do on a wire it shares with others.
//!
//! All are off by default, and then cost a branch for each batch. None is ever a reason to hold up
//! another port: a port that sends too much waits itself (or, where it cannot wait, loses what is too
//! much); one that receives too much is to its senders like any other full receiver.

pub(crate) mod rate;
pub(crate) mod storm;
pub(crate) mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eswitch::{Rate, Storm, StormWindows};
use parking_lot::RwLock;

use crate::config::Nanos;
use crate::guard::rate::Meter;
use crate::guard::storm::StormMeter;
use crate::guard::windows::WindowMeter;

/// What bounds what comes into a port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) rate: Option<Arc<Meter>>,
    pub(crate) storm: Option<Arc<StormMeter>>,
    pub(crate) windows: Option<Arc<WindowMeter>>,
}

impl Bound {
    /// Whether floods are bounded.
    pub(crate) fn floods(&self) -> bool {
        self.storm.is_some() || self.windows.is_some()
    }
}

/// A [`Bound`] that can be changed while frames come. A delivery keeps the one it has found.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Bounds {
    /// There is one, and it has a rate: what a port without either looks at.
    on: AtomicBool,
    rated: AtomicBool,
    bound: RwLock<Option<Arc<Bound>>>,
}

impl Bounds {
    pub(crate) fn new(rate: Option<Rate>, storm: Storm, now: Nanos) -> Bounds {
        let bounds = Bounds {
            on: AtomicBool::new(false),
            rated: AtomicBool::new(false),
            bound: RwLock::new(None),
        };
        bounds.set(rate, storm, now);
        bounds
    }

    /// Puts others in the place of rate and storm, full.
    pub(crate) fn set(&self, rate: Option<Rate>, storm: Storm, now: Nanos) {
        let rate = Meter::new(rate, now).map(Arc::new);
        let storm = StormMeter::new(storm, now).map(Arc::new);
        self.change(|bound| Bound {
            rate,
            storm,
            ..bound
        });
    }

    /// Puts others in the place of the windows, which begin now.
    pub(crate) fn set_windows(&self, windows: StormWindows, now: Nanos) {
        let windows = WindowMeter::new(windows, now).map(Arc::new);
        self.change(|bound| Bound { windows, ..bound });
    }

    fn change(&self, change: impl FnOnce(Bound) -> Bound) {
        let mut place = self.bound.write();
        let bound = change(place.as_deref().cloned().unwrap_or_default());
        let on = bound.rate.is_some() || bound.floods();
        self.rated.store(bound.rate.is_some(), Ordering::Release);
        self.on.store(on, Ordering::Release);
        *place = on.then(|| Arc::new(bound));
    }

    pub(crate) fn get(&self) -> Option<Arc<Bound>> {
        if !self.on.load(Ordering::Acquire) {
            return None;
        }
        self.bound.read().clone()
    }

    /// Whether there is a rate.
    pub(crate) fn is_rated(&self) -> bool {
        self.rated.load(Ordering::Acquire)
    }
}
