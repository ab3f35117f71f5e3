//! What a device is to the server.

use crate::codec::protocol;
use crate::dirty_log::DirtyLog;
use crate::inflight::{InflightPacked, InflightRing};

/// A ring that the driver has set up. All addresses are guest physical, lie in mapped memory and are
/// aligned as virtio wants it; the memory can still be taken away at any time.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Descriptors: 1 to 32768; a power of two unless the ring is packed.
    pub size: u16,
    /// The ring is packed.
    pub packed: bool,
    /// Descriptor table (split) or ring (packed).
    pub descriptors: u64,
    /// Available ring (split), or the driver's event suppression structure (packed).
    pub driver: u64,
    /// Used ring (split), or the device's event suppression structure (packed).
    pub device: u64,
    /// Where the front end says that the ring goes on. Split: the available index. Packed: the
    /// available index with its wrap counter in bits 15:0, the used one in bits 31:16.
    ///
    /// After a crash of the last back end it may be wrong. A device that completes in order goes on
    /// where the used index in guest memory says, and reads that when it first looks at the ring.
    pub base: u32,
    /// Where writes to the used ring are logged, if they are.
    pub log: Option<u64>,
    /// Where the device notes what is in flight, if the front end keeps that. Of split rings only.
    pub inflight: Option<InflightRing>,
    /// Where the device notes what it is about to use of a packed ring, if the front end keeps that. `base` is right then,
    /// after a crash too.
    pub inflight_packed: Option<InflightPacked>,
}

/// Why the front end does not get what it asks for. The connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub &'static str);

/// How a front end left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// It closed its socket.
    Closed,
    /// It broke the protocol; the text names the message and says how.
    Protocol(String),
    /// Its socket failed.
    Socket(std::io::ErrorKind),
}

impl std::fmt::Display for GoneReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("it closed its socket"),
            Self::Protocol(what) => write!(f, "it broke the protocol: {what}"),
            Self::Socket(kind) => write!(f, "its socket failed: {kind}"),
        }
    }
}

/// What happens to the front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A front end has sent its first good message and owns the device now.
    Connected,
    /// It is gone. Its rings are stopped, its memory is unmapped.
    Gone(GoneReason),
    /// It did not get what it asked for, and its connection goes on; the text names the message and
    /// says why.
    Declined(String),
    /// It was sent away at once; the text says why.
    Refused(String),
}

/// Whether scheduled work is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing to do.
    Idle,
    /// The budget of this call ran out; call again.
    More,
}

/// A virtio device behind a [`Server`](crate::Server). All calls come from the thread that calls
/// [`Server::process`](crate::Server::process), and none may wait for anything.
///
/// Feature bits are virtio's; the server adds and takes those of the protocol (26 and 30).
pub trait Backend {
    /// Rings that the device has, 256 at most. The same for good.
    fn queues(&self) -> u16;

    /// Features that the device offers.
    fn features(&self) -> u64;

    /// Protocol features beyond those that every device has, of [`protocol`]: `CONFIG` for a device
    /// whose configuration space is here, `DEVICE_STATE` for one that can be saved.
    fn protocol_features(&self) -> u64 {
        protocol::RARP | protocol::MTU
    }

    /// The driver has accepted these: only offered ones, and no ring runs.
    ///
    /// # Errors
    /// They do not go together.
    fn set_features(&mut self, features: u64) -> Result<(), Refused>;

    /// A ring begins. The front end may have filled it before: look at it once, as after a kick.
    ///
    /// # Errors
    /// The ring cannot be used; the front end loses its connection.
    fn start(&mut self, queue: u16, ring: &Ring) -> Result<(), Refused>;

    /// A ring ends; its memory is not touched after this returns, by no thread. Gives where it would
    /// go on, as in [`Ring::base`].
    fn stop(&mut self, queue: u16) -> u32;

    /// A ring, started or not, is enabled or disabled. A started, disabled ring of a network device
    /// drops what is sent and gets nothing.
    fn enable(&mut self, queue: u16, enabled: bool);

    /// The driver has something in a started ring.
    fn kicked(&mut self, queue: u16);

    /// Writes to a started ring's used part are logged from `log` on, or no more.
    fn log_ring(&mut self, queue: u16, log: Option<u64>) {
        let _ = (queue, log);
    }

    /// From here on the device marks each page it has written to in `log`, if there is one.
    fn set_log(&mut self, log: Option<DirtyLog>) {
        let _ = log;
    }

    /// Back to power-on state. All rings are stopped and disabled.
    fn reset(&mut self);

    /// The virtio device status that the driver has written; never 0, which is a [`reset`](Self::reset).
    fn set_status(&mut self, status: u8) {
        let _ = status;
    }

    /// A ring was broken, so the driver has to reset the device.
    fn needs_reset(&self) -> bool {
        false
    }

    /// Reads configuration space; `false` if the range is none of it.
    fn config_read(&mut self, offset: usize, data: &mut [u8]) -> bool {
        let _ = (offset, data);
        false
    }

    /// Writes configuration space; `migration` may write what a driver may not.
    ///
    /// # Errors
    /// The range may not be written.
    fn config_write(&mut self, offset: usize, data: &[u8], migration: bool) -> Result<(), Refused> {
        let _ = (offset, data, migration);
        Err(Refused("configuration space may not be written"))
    }

    /// The MTU that the front end tells the driver.
    ///
    /// # Errors
    /// The device cannot have it.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        let _ = mtu;
        Ok(())
    }

    /// The guest has come here by migration: make the network learn where its address is.
    fn announce(&mut self, mac: [u8; 6]) {
        let _ = mac;
    }

    /// The state that goes to another back end; all rings are stopped. `None` if it cannot be saved.
    fn save(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Takes over such a state, which may hold anything.
    ///
    /// # Errors
    /// It is no state of such a device; nothing has changed.
    fn load(&mut self, state: &[u8]) -> Result<(), Refused> {
        let _ = state;
        Err(Refused("the device has no state to load"))
    }

    /// A front end came, went, or was turned away.
    fn client(&mut self, event: ClientEvent) {
        let _ = event;
    }

    /// Does what kicks have scheduled. Called after all replies of a batch were sent, so it may take
    /// its time, within bounds: other devices may share the thread.
    fn work(&mut self) -> Work {
        Work::Idle
    }
}
