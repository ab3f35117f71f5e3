//! Writing what passes a port to a pcapng file, which Wireshark opens.
//!
//! A [`Capture`] is one file. A [`Probe`] sits in front of a port for good and costs one load per
//! batch; captures are attached to it and detached while traffic flows. Frames are copied into a
//! bounded buffer, and a thread writes that out: a slow disk costs frames of the capture (counted,
//! and noted in the file), a full one costs the capture, and neither costs traffic.

mod buffer;
mod file;
mod pcapng;
mod probe;
mod writer;

pub use buffer::{CaptureOptions, Clock, SystemClock};
pub use file::Capture;
pub use pcapng::Direction;
pub use probe::Probe;
