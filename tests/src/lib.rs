//! What must hold across rooms. The tests are in `tests/`; this crate only gathers what they need.
#![forbid(unsafe_code)]
