//! The time of a turn. A worker reads its clock between turns; what it serves in one happens, for a switch, at the time it began.
//! So a frame that is sent alone costs no reading of the clock.

use std::cell::Cell;

thread_local! {
    static BEGAN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Ends the turn, also where its work panics.
struct Turn;

impl Drop for Turn {
    #[inline]
    fn drop(&mut self) {
        BEGAN.set(None);
    }
}

/// Does the work of a turn of this thread that begins at this time, in nanoseconds.
#[inline]
pub fn at<R>(now: u64, work: impl FnOnce() -> R) -> R {
    BEGAN.set(Some(now));
    let _turn = Turn;
    work()
}

/// When the turn of this thread began; `None` between turns, and in threads that have none.
#[inline]
pub fn began() -> Option<u64> {
    BEGAN.get()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_turn_is_of_one_thread_and_ends() {
        assert_eq!(began(), None);
        at(0, || {
            assert_eq!(began(), Some(0));
            let other = std::thread::spawn(began).join().expect("it ends");
            assert_eq!(other, None);
        });
        assert_eq!(began(), None);
        let died = catch_unwind(|| at::<()>(1, || panic!("in a turn")));
        assert!(died.is_err() && began().is_none());
    }
}
