//! The captures of one NIC: both directions of its wire, in a pcapng file and live.

use std::path::Path;
use std::sync::Arc;

use frame::{Counted, Sink};
pub use port::capture::Capture;
use port::capture::{CaptureOptions, Direction, Probe, SystemClock};

/// A place where captures are attached, and the one that the configuration asks for. Dropping it writes what is left
/// and closes the file.
pub struct NicCapture {
    file: Option<Arc<Capture>>,
    probe: Arc<Probe>,
}

impl NicCapture {
    /// Of NIC `nic`; nothing is captured yet.
    pub fn new(nic: &str) -> Self {
        Self {
            file: None,
            probe: Probe::new(nic),
        }
    }

    /// Starts a capture into `file`, replacing an old one, and begins anew after so many MiB.
    ///
    /// # Errors
    /// Cause and cure, when the file cannot be made.
    pub fn create(&mut self, file: &Path, mib: u64, nic: &str) -> Result<(), String> {
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
        self.probe.attach(&capture);
        self.file = Some(capture);
        Ok(())
    }

    /// Where live captures are attached.
    pub fn probe(&self) -> &Arc<Probe> {
        &self.probe
    }

    /// The way to the guest, watched.
    pub fn toward_guest(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        self.probe.watch(sink, Direction::Inbound)
    }

    /// The way to the wire, watched.
    pub fn toward_wire(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        self.probe.watch(sink, Direction::Outbound)
    }

    /// What the file's capture counts.
    pub fn counters(&self) -> Option<Arc<dyn Counted>> {
        let file = self.file.as_ref()?;
        Some(Arc::clone(file) as Arc<dyn Counted>)
    }
}

impl NicCapture {
    /// Captures into another file from now on, or into none. Live captures go on.
    ///
    /// # Errors
    /// As [`NicCapture::create`]; it goes on into the file it had.
    pub fn set(&mut self, file: Option<(&Path, u64)>, nic: &str) -> Result<(), String> {
        let old = self.file.take();
        if let Some((file, mib)) = file
            && let Err(why) = self.create(file, mib, nic)
        {
            self.file = old;
            return Err(why);
        }
        if let Some(old) = old {
            self.probe.detach_from(&old);
        }
        Ok(())
    }

    /// Writes what is left and closes the file; nothing more is captured.
    pub fn close(&mut self) {
        self.probe.detach();
        self.file = None;
    }
}

impl Drop for NicCapture {
    fn drop(&mut self) {
        self.close();
    }
}
