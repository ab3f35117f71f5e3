//! What a delivery will touch, fetched before it begins.

use frame::Hot;

use crate::forward::Scratch;
use crate::port::slot;
use crate::state::SwitchState;
use crate::table::PortId;

impl Scratch {
    /// Has the processor fetch what a delivery to the port touches that got the latest frames.
    pub(crate) fn prefetch(&mut self, state: &SwitchState) {
        let last = self.patience.last();
        if self.ahead.0 != last {
            self.ahead = (last, self.hot(state, last));
        }
        self.ahead.1.prefetch();
    }

    /// How many lines that is.
    #[cfg(test)]
    pub(crate) fn ahead_count(&self) -> usize {
        self.ahead.1.count()
    }

    /// Where what the short ways look at ends, behind `from`.
    #[cfg(test)]
    pub(crate) fn short_ways_end<T>(&self, from: &T) -> usize {
        let known = std::ptr::from_ref(&self.known).addr() + size_of_val(&self.known);
        known.max(self.patience.hot_end()) - std::ptr::from_ref(from).addr()
    }

    #[cold]
    fn hot(&self, state: &SwitchState, to: Option<PortId>) -> Hot {
        let mut hot = Hot::default();
        let ports = state.ports();
        let to = to.and_then(|id| ports.get(slot(&ports, id)?));
        if let Some(to) = to {
            hot.add(self.known.lines(to));
            to.hot(&mut hot);
        }
        hot
    }
}
