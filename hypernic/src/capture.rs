//! The capture of one NIC: both directions of its wire in one pcapng file.

use std::path::Path;
use std::sync::Arc;

use frame::{Counted, Sink};
use port::capture::{Capture, CaptureOptions, Direction, Probe, SystemClock};

/// A capture, and the probe that feeds it. Dropping it writes what is left and closes the file.
pub struct NicCapture {
    capture: Arc<Capture>,
    probe: Arc<Probe>,
}

impl NicCapture {
    /// Starts a capture of NIC `nic` into `file`, replacing an old one, and begins anew after so many MiB.
    ///
    /// # Errors
    /// Cause and cure, when the file cannot be made.
    pub fn create(file: &Path, mib: u64, nic: &str) -> Result<Self, String> {
        let (name, shown) = (nic.to_owned(), file.display().to_string());
        let told = move |why: String| {
            tracing::error!(nic = %name, "{why}");
        };
        let clock = Arc::new(SystemClock);
        let options = CaptureOptions {
            file_bytes: mib << 20,
            ..CaptureOptions::default()
        };
        let capture = Capture::create(file, options, clock, told).map_err(|error| {
            format!("cannot write {shown}: {error}; choose a file that you can create, not a link")
        })?;
        let probe = Probe::new(nic);
        probe.attach(&capture);
        Ok(Self { capture, probe })
    }

    /// The way to the guest, watched.
    pub fn toward_guest(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        self.probe.watch(sink, Direction::Inbound)
    }

    /// The way to the wire, watched.
    pub fn toward_wire(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        self.probe.watch(sink, Direction::Outbound)
    }

    /// What it counts.
    pub fn counters(&self) -> Arc<dyn Counted> {
        Arc::clone(&self.capture) as Arc<dyn Counted>
    }
}

impl Drop for NicCapture {
    fn drop(&mut self) {
        self.probe.detach();
    }
}
