//! What two processes agree upon: memory, features, rings.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use frame::Caps;
use guest_mem::{MapError, Memory, Prot};
use peer::signal::{Line, SLOW, Signaller};
use peer::{DeferredCloser, EventFd, PeerFd, SharedMem};
use thiserror::Error;
use vhost_user::codec::{MemRegion, VringAddr, feature, protocol};
use vhost_user::{Client, ClientError};

use crate::ring::{Format, LEN, Ring, SIZE};

/// Where the shared memory is for the back end; not 0, which some take for none.
const BASE: u64 = 1 << 20;

/// What one answer may take. A session is set up by a thread that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bits of virtio-net's features (virtio 1.4 §5.1.3) and of rings (§6).
mod bits {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const GUEST_ECN: u64 = 1 << 9;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const MQ: u64 = 1 << 22;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const VERSION_1: u64 = 1 << 32;
    pub const PACKED: u64 = 1 << 34;
    pub const IN_ORDER: u64 = 1 << 35;
    pub const GUEST_TSO: u64 = GUEST_TSO4 | GUEST_TSO6;
    pub const HOST_TSO: u64 = HOST_TSO4 | HOST_TSO6;
}

/// What a driver must have.
const NEEDED: u64 = bits::VERSION_1 | feature::PROTOCOL;

/// What it takes if it is offered.
const WANTED: u64 = bits::CSUM
    | bits::GUEST_CSUM
    | bits::GUEST_TSO
    | bits::GUEST_ECN
    | bits::HOST_TSO
    | bits::HOST_ECN
    | bits::MRG_RXBUF
    | bits::MQ
    | bits::EVENT_IDX
    | bits::PACKED
    | bits::IN_ORDER;

/// Why no session came about.
#[derive(Debug, Error)]
pub enum SessionError {
    /// It speaks another language, or is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It lacks what every modern one has.
    #[error("the back end offers no virtio 1 device with protocol features ({0:#x})")]
    Features(u64),
    /// No memory or descriptors.
    #[error("no memory: {0}")]
    System(#[from] io::Error),
    /// The same.
    #[error("no memory: {0}")]
    Map(#[from] MapError),
}

/// Why no session came about, and how many pairs were set up until then.
#[derive(Debug)]
pub struct Failed {
    pub why: SessionError,
    pub pairs: usize,
}

impl<E: Into<SessionError>> From<E> for Failed {
    fn from(why: E) -> Self {
        let why = why.into();
        Self { why, pairs: 0 }
    }
}

/// Rings of both directions. Senders have `tx`, the inlet has `rx`.
pub struct Pair {
    pub tx: Side,
    pub rx: Side,
}

/// A session.
pub struct Session {
    /// At least one.
    pub pairs: Vec<Pair>,
    pub caps: Caps,
    /// Frames may lie in several buffers.
    pub merges: bool,
    /// The connection: readable when the back end leaves.
    pub client: Client,
}

/// A ring, and the eventfds of both sides.
pub struct Side {
    pub ring: Ring,
    pub memory: Memory,
    kick: Arc<Line>,
    signaller: Arc<Signaller>,
    pub call: Arc<EventFd>,
}

impl Side {
    /// Wakes the back end, without ever waiting for it.
    pub fn kick(&self) {
        self.signaller.signal(&self.kick);
    }
}

/// What depends on nothing that was not accepted.
fn accepted(offered: u64, pairs: usize, packed: bool) -> u64 {
    let mut features = offered & (WANTED | NEEDED);
    if !packed {
        features &= !bits::PACKED;
    }
    let mut needs = |what: u64, one_of: u64| {
        if features & one_of == 0 {
            features &= !what;
        }
    };
    // Without it a long frame would need a buffer of its length.
    needs(bits::GUEST_TSO, bits::MRG_RXBUF);
    needs(bits::GUEST_TSO, bits::GUEST_CSUM);
    needs(bits::GUEST_ECN, bits::GUEST_TSO);
    needs(bits::HOST_TSO, bits::CSUM);
    needs(bits::HOST_ECN, bits::HOST_TSO);
    // Of split rings it saves nothing.
    needs(bits::IN_ORDER, bits::PACKED);
    if pairs == 1 {
        features &= !bits::MQ;
    }
    features
}

/// How many pairs there are to be. Some back ends answer with pairs and some with rings, so it may be too many.
fn agreed_pairs(
    client: &mut Client,
    offered: u64,
    known: u64,
    wanted: usize,
) -> Result<usize, ClientError> {
    if wanted == 1 || known & protocol::MQ == 0 || offered & bits::MQ == 0 {
        return Ok(1);
    }
    let said = usize::try_from(client.queues()?).unwrap_or(usize::MAX);
    Ok(wanted.min(said).max(1))
}

/// What all rings of a session have in common.
struct Setup {
    client: Client,
    memory: Memory,
    format: Format,
    closer: DeferredCloser,
    signaller: Arc<Signaller>,
}

impl Setup {
    /// All that a back end is told of a ring before it starts, and what kicks it.
    fn side(&mut self, queue: usize) -> Result<(Side, EventFd), SessionError> {
        let index = queue as u32;
        let ring = Ring::new(BASE + LEN * queue as u64, self.format);
        let (kick, call) = (EventFd::new()?, EventFd::new()?);
        let client = &mut self.client;
        client.set_vring_num(index, SIZE.into())?;
        client.set_vring_base(index, ring.base())?;
        client.set_vring_addr(&VringAddr {
            index,
            flags: 0,
            descriptor: ring.descriptors(),
            used: ring.device(),
            available: ring.driver(),
            log: 0,
        })?;
        client.set_vring_call(queue as u8, Some(&call))?;
        let line = kick.as_fd().try_clone_to_owned()?;
        let side = Side {
            ring,
            memory: self.memory.clone(),
            kick: Line::new(PeerFd::new(line, &self.closer)),
            signaller: Arc::clone(&self.signaller),
            call: Arc::new(call),
        };
        Ok((side, kick))
    }

    /// Starts a ring.
    fn start(&mut self, queue: usize, kick: &EventFd) -> Result<(), ClientError> {
        self.client.set_vring_kick(queue as u8, Some(kick))?;
        self.client.set_vring_enable(queue as u32, true)
    }

    /// Pairs of rings that run. Some back ends count rings when the first one starts (OVS), so they hear of all before.
    fn pairs(&mut self, count: usize) -> Result<Vec<Pair>, Failed> {
        let failed = |queue: usize| {
            move |why| Failed {
                why,
                pairs: queue / 2,
            }
        };
        let mut sides = Vec::new();
        for queue in 0..2 * count {
            sides.push(self.side(queue).map_err(failed(queue))?);
        }
        for (queue, (_, kick)) in sides.iter().enumerate() {
            let started = self.start(queue, kick).map_err(SessionError::from);
            started.map_err(failed(queue))?;
        }
        let mut sides = sides.into_iter().map(|(side, _)| side);
        let mut pairs = Vec::new();
        while let (Some(rx), Some(tx)) = (sides.next(), sides.next()) {
            pairs.push(Pair { tx, rx });
        }
        Ok(pairs)
    }
}

/// What is wanted of a session.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// At most.
    pub pairs: usize,
    /// If the back end has them.
    pub packed: bool,
}

/// Sets up a session on a connection. Waits for the back end, within bounds.
pub fn begin(socket: OwnedFd, wanted: Wanted) -> Result<Session, Failed> {
    let mut client = Client::from_connected(socket);
    client.set_timeout(PATIENCE);
    client.set_owner()?;
    let offered = client.features()?;
    if offered & NEEDED != NEEDED {
        return Err(SessionError::Features(offered).into());
    }
    let known = client.protocol_features()? & (protocol::REPLY_ACK | protocol::MQ);
    client.set_protocol_features(known)?;
    let count = agreed_pairs(&mut client, offered, known, wanted.pairs)?;
    let features = accepted(offered, count, wanted.packed);
    client.set_features(features)?;

    let len = 2 * count as u64 * LEN;
    let ram = SharedMem::new("vhost-user-port", len as usize)?;
    let memory = Memory::new();
    memory.map_fd(BASE, len, ram.as_fd(), 0, Prot::RW)?;
    let region = MemRegion {
        guest: BASE,
        size: len,
        user: BASE,
        mmap_offset: 0,
    };
    client.set_mem_table(&[region], &[ram.as_fd()])?;

    let has = |bit: u64| features & bit != 0;
    let mut setup = Setup {
        client,
        memory,
        format: Format {
            event_idx: has(bits::EVENT_IDX),
            packed: has(bits::PACKED),
            in_order: has(bits::IN_ORDER),
        },
        closer: DeferredCloser::default(),
        signaller: Arc::new(Signaller::new(SLOW)),
    };
    let pairs = setup.pairs(count)?;
    if count > 1 {
        // One that acknowledges nothing has taken the last pair when it answers.
        setup.client.features().map_err(|why| Failed {
            why: why.into(),
            pairs: count - 1,
        })?;
    }
    let caps = Caps {
        csum: has(bits::CSUM),
        tso4: has(bits::HOST_TSO4),
        tso6: has(bits::HOST_TSO6),
        ecn: has(bits::HOST_ECN),
        ..Caps::NONE
    };
    Ok(Session {
        pairs,
        caps,
        merges: has(bits::MRG_RXBUF),
        client: setup.client,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_accepted_that_needs_what_is_not_there() {
        let all = WANTED | NEEDED;
        let accepted = |offered| super::accepted(offered, 2, true);
        assert_eq!(accepted(u64::MAX), all);
        assert_eq!(
            accepted(!bits::CSUM),
            all & !(bits::CSUM | bits::HOST_TSO | bits::HOST_ECN)
        );
        let receive = bits::GUEST_TSO | bits::GUEST_ECN;
        assert_eq!(
            accepted(!bits::GUEST_CSUM),
            all & !(bits::GUEST_CSUM | receive)
        );
        assert_eq!(
            accepted(!bits::MRG_RXBUF),
            all & !(bits::MRG_RXBUF | receive)
        );
        assert_eq!(
            accepted(!bits::PACKED),
            all & !(bits::PACKED | bits::IN_ORDER)
        );
        assert_eq!(accepted(NEEDED), NEEDED);
        assert_eq!(super::accepted(u64::MAX, 1, true), all & !bits::MQ);
        assert_eq!(
            super::accepted(u64::MAX, 2, false),
            all & !(bits::PACKED | bits::IN_ORDER)
        );
    }
}
