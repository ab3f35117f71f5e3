//! A VMM at a vhost-user socket.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drivers::BusError;
use vhost_user::codec::{feature, protocol};
use vhost_user::{Client, ClientError};

use crate::stage::Done;
use crate::vmm::own;

/// How long a door may take to see that its last front end has gone.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a front end waits for an answer, which it may not get.
const ANSWER: Duration = Duration::from_secs(5);

/// VERSION_1 and MRG_RXBUF.
pub(crate) const PLAIN: u64 = 1 << 32 | 1 << 15;
pub(crate) const ALL: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::REPLY_ACK
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::STATUS
    | protocol::DEVICE_STATE;

/// The villain's end of the socket.
#[derive(Debug)]
pub struct FrontEnd {
    path: PathBuf,
}

/// Being refused, or sent away, is what a villain expects.
pub(crate) fn refused<T>(result: Result<T, ClientError>) -> Done {
    match result {
        Err(ClientError::System(error)) => Err(own(error)),
        Err(ClientError::TimedOut) => Err(own("no answer")),
        _ => Ok(()),
    }
}

impl FrontEnd {
    /// Will connect to the back end at `path`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Connects while another is served, and asks for something until it is sent away.
    pub(crate) fn knock(&self) -> Done {
        let mut client = Client::connect(&self.path).map_err(own)?;
        client.set_timeout(ANSWER);
        refused(client.features())
    }

    /// A front end that has negotiated; waits for its turn.
    pub(crate) fn client(&self) -> Result<Client, BusError> {
        self.timed().map(|(client, _)| client)
    }

    /// The same, with the time that the first answer took.
    pub(crate) fn timed(&self) -> Result<(Client, Duration), BusError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let asked = Instant::now();
            match self.negotiated() {
                Ok(client) => return Ok((client, asked.elapsed())),
                Err(error) if Instant::now() > until => return Err(own(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn negotiated(&self) -> Result<Client, ClientError> {
        let mut client = Client::connect(&self.path)?;
        client.set_timeout(ANSWER);
        client.set_owner()?;
        let offered = client.features()?;
        client.set_features(offered & (PLAIN | feature::PROTOCOL | feature::LOG_ALL))?;
        let offered = client.protocol_features()?;
        client.set_protocol_features(offered & ALL)?;
        Ok(client)
    }
}
