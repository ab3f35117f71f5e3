//! The time of a turn. A worker reads its clock between turns; what it serves in one happens, for a switch, at the time it began.
//! So a frame that is sent alone costs no reading of the clock.

use std::cell::Cell;

thread_local! {
    static BEGAN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A turn of this thread begins, at this time in nanoseconds.
#[inline]
pub fn begin(now: u64) {
    BEGAN.set(Some(now));
}

/// It is over.
#[inline]
pub fn end() {
    BEGAN.set(None);
}

/// When the turn of this thread began; `None` between turns, and in threads that have none.
#[inline]
pub fn began() -> Option<u64> {
    BEGAN.get()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_turn_is_of_one_thread_and_ends() {
        assert_eq!(super::began(), None);
        super::begin(0);
        assert_eq!(super::began(), Some(0));
        let other = std::thread::spawn(super::began).join().expect("it ends");
        assert_eq!(other, None);
        super::end();
        assert_eq!(super::began(), None);
    }
}
