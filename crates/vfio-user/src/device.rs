//! What a device is to the server.

use guest_mem::Prot;
use pci::ConfigEvent;

use crate::dma::{DmaError, DmaToken};

/// Why a device is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    /// The client sent `RESET`: a machine reset, or a VMM taking the device over.
    Client,
    /// The driver initiated a function level reset (PCI Express device control bit 15).
    FunctionLevel,
    /// The function came from D3hot to D0 and does not keep its state (PCI PM 1.2 §3.2.4).
    PowerUp,
}

/// How a client left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// It closed its socket, and its process is ending or is not known.
    Closed,
    /// It closed its socket, and the process that had connected lives on: it gave up waiting for an answer, or its VM
    /// let the device go.
    LetGo {
        /// That process.
        pid: i32,
    },
    /// It broke the protocol; the text says how.
    Protocol(&'static str),
    /// Its socket failed.
    Socket(std::io::ErrorKind),
}

impl std::fmt::Display for GoneReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("it closed its socket"),
            Self::LetGo { pid } => write!(
                f,
                "it closed its socket but runs on (process {pid}): its device was unplugged, or it gave up waiting for an answer"
            ),
            Self::Protocol(what) => write!(f, "it broke the protocol: {what}"),
            Self::Socket(kind) => write!(f, "its socket failed: {kind}"),
        }
    }
}

/// What happens to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A client has negotiated and owns the device now.
    Connected,
    /// It is gone; its memory is unmapped and its interrupts are disarmed. Device state is kept
    /// for the next one.
    Gone(GoneReason),
    /// A client was sent away at once: the device is taken, or it began with something else than a
    /// good `VERSION`, or it could not be accepted. The text says which.
    Refused(&'static str),
}

/// A change of the DMA map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaChange {
    /// A region came.
    Mapped {
        /// I/O virtual address.
        iova: u64,
        /// Bytes.
        len: u64,
        /// What the device may do.
        prot: Prot,
        /// It came with a file descriptor. Without one only message DMA reaches it; RAM without
        /// one means that the VMM was started without shared memory.
        shared: bool,
    },
    /// A region went; nothing of it is reachable any more.
    Unmapped {
        /// I/O virtual address.
        iova: u64,
        /// Bytes.
        len: u64,
    },
    /// All regions went.
    Cleared,
}

/// Whether scheduled work is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing to do.
    Idle,
    /// The budget of this call ran out; call again.
    More,
}

/// A device behind a [`Server`](crate::Server). All calls come from the thread that calls
/// [`Server::process`](crate::Server::process).
///
/// Nothing here may block: a VM's whole machine can hang on the answer to one register read, and
/// a device that waits for message DMA inside [`bar_read`](Self::bar_read) waits for a client that
/// waits for it.
pub trait Device {
    /// Reads a register. `data` has 1, 2, 4 or 8 bytes, `offset` is a multiple of that and inside
    /// the BAR. Wider or misaligned accesses arrive in such pieces, lowest address first.
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]);

    /// Writes a register; sizes as in [`bar_read`](Self::bar_read).
    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]);

    /// The configuration space changed. The server itself follows what concerns interrupts and
    /// resets.
    fn config_event(&mut self, event: ConfigEvent) {
        let _ = event;
    }

    /// Back to power-on state. Configuration space and interrupts have been reset already.
    fn reset(&mut self, why: ResetCause);

    /// A client came, went, or was turned away.
    fn client(&mut self, event: ClientEvent) {
        let _ = event;
    }

    /// The DMA map changed.
    fn dma_map_changed(&mut self, change: DmaChange) {
        let _ = change;
    }

    /// A message DMA finished: the data of a read, nothing for a write.
    fn dma_done(&mut self, token: DmaToken, result: Result<Vec<u8>, DmaError>) {
        let _ = (token, result);
    }

    /// Whether register accesses or work since the last call have changed something of which another process must be told that
    /// is to go on with the device. It is then asked for its [`state`](Self::state).
    fn has_changed(&mut self) -> bool {
        true
    }

    /// What another process needs to go on with it. `None`: it cannot go on.
    fn state(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// All accesses so far are true for whoever goes on.
    fn settled(&mut self) {}

    /// Whether it can be [stopped](Self::halt) and its state be taken elsewhere.
    fn can_move(&self) -> bool {
        false
    }

    /// Stops. From the end of this on it changes nothing in guest memory or in itself, however often others call it, until it
    /// [goes on](Self::resume): no register is accessed and it is not let [work](Self::work). Configuration space may still change.
    fn halt(&mut self) {}

    /// Goes on, as it was or as what was [loaded](Self::load).
    fn resume(&mut self) {}

    /// What another device of its kind needs to go on in its place. Called while it is stopped, or to see how much it is.
    fn save(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Becomes what another has saved, while it is stopped.
    ///
    /// # Errors
    /// Why not. It is reset before it goes on then.
    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        let _ = state;
        Err("this device has no state".to_owned())
    }

    /// A state was refused, and why.
    fn load_refused(&mut self, why: &str) {
        let _ = why;
    }

    /// Does what register accesses have scheduled. Called after all replies of a batch were sent,
    /// so it may take its time, within bounds: other devices may share the thread.
    fn work(&mut self) -> Work {
        Work::Idle
    }
}
