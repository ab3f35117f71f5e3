//! The end of what runs beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets it when dropped, also by a test that fails: else what runs beside would be waited for without end.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
