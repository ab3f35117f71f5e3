//! Storm control as the 82576 has it (datasheet §7.10.3, §8.14): what floods is counted in windows of
//! time, in blocks of 64 bytes, and dropped in a window that has had too much, or that follows one.

use eswitch::{StormWindow, StormWindows};
use parking_lot::Mutex;

use crate::config::Nanos;
use crate::guard::storm::Flood;

/// Bytes of a block.
const BLOCK: u32 = 64;

/// [`StormWindows`] at work.
#[derive(Debug)]
pub(crate) struct WindowMeter(Mutex<State>);

#[derive(Debug)]
struct State {
    interval: Nanos,
    began: Nanos,
    /// By kind.
    limits: [Option<StormWindow>; 2],
    blocks: [u64; 2],
    /// There was too much in the last one.
    before: [bool; 2],
}

fn slot(kind: Flood) -> Option<usize> {
    match kind {
        Flood::Broadcast => Some(0),
        Flood::Multicast => Some(1),
        Flood::Unknown => None,
    }
}

fn blocks(len: u32) -> u64 {
    len.div_ceil(BLOCK).into()
}

impl State {
    fn exceeded(&self, at: usize) -> bool {
        self.limits[at].is_some_and(|limit| self.blocks[at] > limit.blocks)
    }
}

impl WindowMeter {
    /// `None` where nothing is limited.
    pub(crate) fn new(windows: StormWindows, now: Nanos) -> Option<WindowMeter> {
        let acts = |window: &StormWindow| window.current || window.previous;
        let limits = [windows.broadcast, windows.multicast].map(|window| window.filter(acts));
        let on = windows.interval > 0 && limits != [None; 2];
        on.then(|| {
            WindowMeter(Mutex::new(State {
                interval: windows.interval,
                began: now,
                limits,
                blocks: [0; 2],
                before: [false; 2],
            }))
        })
    }

    /// Begins another window if it is time.
    pub(crate) fn roll(&self, now: Nanos) {
        let mut state = self.0.lock();
        let gone = now.saturating_sub(state.began) / state.interval;
        if gone > 0 {
            // One that nothing came in had not too much.
            state.before = [0, 1].map(|at| gone == 1 && state.exceeded(at));
            state.blocks = [0; 2];
            state.began += gone * state.interval;
        }
    }

    /// Whether a frame may pass; it counts in any case.
    pub(crate) fn admit(&self, kind: Flood, len: u32) -> bool {
        let mut state = self.0.lock();
        let Some((at, limit)) = slot(kind).and_then(|at| Some((at, state.limits[at]?))) else {
            return true;
        };
        state.blocks[at] = state.blocks[at].saturating_add(blocks(len));
        !(limit.current && state.exceeded(at) || limit.previous && state.before[at])
    }

    /// One that was admitted will come again.
    pub(crate) fn refund(&self, kind: Flood, len: u32) {
        if let Some(at) = slot(kind) {
            let mut state = self.0.lock();
            state.blocks[at] = state.blocks[at].saturating_sub(blocks(len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn meter(current: bool, previous: bool) -> WindowMeter {
        let window = StormWindow {
            blocks: 4,
            current,
            previous,
        };
        let windows = StormWindows {
            interval: MS,
            broadcast: Some(window),
            multicast: None,
        };
        WindowMeter::new(windows, 10 * MS).expect("limited")
    }

    fn passed(meter: &WindowMeter, now: Nanos, frames: usize) -> usize {
        meter.roll(now);
        let one = |_: &usize| meter.admit(Flood::Broadcast, 65);
        (0..frames).filter(one).count()
    }

    #[test]
    fn what_is_too_much_in_a_window_ends_with_it() {
        let meter = meter(true, false);
        // Two blocks each.
        assert_eq!(passed(&meter, 10 * MS, 5), 2);
        assert_eq!(passed(&meter, 11 * MS - 1, 1), 0);
        assert_eq!(passed(&meter, 11 * MS, 5), 2);
        assert_eq!(passed(&meter, 40 * MS, 5), 2);
        assert!(meter.admit(Flood::Multicast, 9000) && meter.admit(Flood::Unknown, 9000));
        meter.refund(Flood::Broadcast, 10 * 65);
        assert!(meter.admit(Flood::Broadcast, 64));
    }

    #[test]
    fn a_window_after_one_with_too_much_has_none() {
        let meter = meter(false, true);
        assert_eq!(passed(&meter, 10 * MS, 5), 5, "it is known at its end");
        assert_eq!(passed(&meter, 11 * MS, 2), 0);
        assert_eq!(passed(&meter, 12 * MS, 3), 3, "that one had not too much");
        assert_eq!(passed(&meter, 13 * MS, 1), 0);
        // A window without any lies between.
        assert_eq!(passed(&meter, 15 * MS, 3), 3);
        assert_eq!(passed(&meter, 17 * MS, 1), 1);
        // A clock that jumps back, or as far as it can.
        assert_eq!(passed(&meter, 0, 1), 1);
        assert_eq!(passed(&meter, Nanos::MAX, 1), 1);
    }

    #[test]
    fn nothing_is_limited_where_nothing_acts() {
        let idle = StormWindow {
            blocks: 0,
            current: false,
            previous: false,
        };
        let windows = |interval| StormWindows {
            interval,
            broadcast: Some(idle),
            multicast: Some(idle),
        };
        assert!(WindowMeter::new(windows(MS), 0).is_none());
        let strict = StormWindows {
            multicast: Some(StormWindow {
                current: true,
                ..idle
            }),
            ..windows(0)
        };
        assert!(WindowMeter::new(strict, 0).is_none(), "no time");
    }
}
