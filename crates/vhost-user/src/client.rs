//! What a front end does: for tests, generators, and ports that plug into another switch.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use peer::stream::{Filled, Received, Sender};
use peer::{DeferredCloser, EventFd, event};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::codec::{
    Config, DeviceState, Direction, HEADER_LEN, Header, Inflight, Log, LogBase, MAX_CONFIG,
    MAX_PAYLOAD, MemRegion, MemTable, Message, Request, VringAddr, VringFd, VringState, protocol,
};
use crate::stream::{MAX_MESSAGE, Receiver};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The back end has closed the connection.
    #[error("the back end has closed the connection")]
    Closed,
    /// It has not answered in time.
    #[error("the back end has not answered in time")]
    TimedOut,
    /// It does not obey.
    #[error("the back end refuses {0}")]
    Refused(Request),
    /// Its reply is none to this request.
    #[error("the back end's reply is none to {0}")]
    Malformed(Request),
    /// More regions than a message can have.
    #[error("a memory table has at most 8 regions")]
    TooManyRegions,
    /// The socket failed.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

impl From<Errno> for ClientError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            errno => Self::System(errno.into()),
        }
    }
}

/// A reply: its payload and its descriptors.
#[derive(Debug)]
struct Answer {
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// A connection to a back end. Calls wait for their answers.
pub struct Client {
    socket: OwnedFd,
    rx: Receiver,
    tx: Sender,
    fds: Vec<OwnedFd>,
    protocol: u64,
    timeout: Duration,
}

impl Client {
    /// Connects to a back end that listens.
    ///
    /// # Errors
    /// No back end is there.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        Ok(Self::from_connected(UnixStream::connect(path)?.into()))
    }

    /// Takes a connection that is there already.
    pub fn from_connected(socket: OwnedFd) -> Self {
        Self {
            socket,
            rx: Receiver::new(MAX_MESSAGE, DeferredCloser::default()),
            tx: Sender::new(),
            fds: Vec::new(),
            protocol: 0,
            timeout: Duration::from_secs(5),
        }
    }

    /// How long to wait for an answer: 5 seconds, unless told.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends bytes as they are, with descriptors.
    ///
    /// # Errors
    /// The back end is gone, or takes nothing.
    pub fn send_raw(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let mut owned = Vec::new();
        for fd in fds {
            owned.push(rustix::io::fcntl_dupfd_cloexec(fd, 0)?);
        }
        let start = self.tx.mark();
        self.tx.push_raw(bytes);
        self.tx.note_fds(start, owned);
        while !self.tx.flush(self.socket.as_fd())? {
            if !event::wait_for(self.socket.as_fd(), PollFlags::OUT, self.timeout) {
                return Err(ClientError::TimedOut);
            }
        }
        Ok(())
    }

    /// Sends a message, and waits for nothing.
    ///
    /// # Errors
    /// As [`send_raw`](Self::send_raw).
    pub fn send(
        &mut self,
        message: &Message<'_>,
        wants_reply: bool,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let mut buffer = [0; HEADER_LEN + MAX_PAYLOAD];
        let bytes = message.encode(wants_reply, &mut buffer);
        self.send_raw(bytes, fds)
    }

    /// The back end's next message: header, payload, descriptors.
    ///
    /// # Errors
    /// There is none in time, or the connection is over.
    pub fn receive(&mut self) -> Result<(Header, Vec<u8>, Vec<OwnedFd>), ClientError> {
        loop {
            match self.rx.next(&mut self.fds) {
                Ok(Some(Received {
                    header, payload, ..
                })) => {
                    let payload = payload.to_vec();
                    return Ok((header, payload, std::mem::take(&mut self.fds)));
                }
                Ok(None) => {}
                Err(_) => return Err(ClientError::Closed),
            }
            if !event::wait_readable(self.socket.as_fd(), self.timeout) {
                return Err(ClientError::TimedOut);
            }
            if self.rx.fill(self.socket.as_fd())? == Filled::Closed {
                return Err(ClientError::Closed);
            }
        }
    }

    fn ask(
        &mut self,
        message: &Message<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Answer, ClientError> {
        self.send(message, false, fds)?;
        let (header, payload, fds) = self.receive()?;
        if !header.is_reply() || header.request != message.request() as u32 {
            return Err(ClientError::Malformed(message.request()));
        }
        Ok(Answer { payload, fds })
    }

    fn ask_word(&mut self, message: &Message<'_>) -> Result<u64, ClientError> {
        let answer = self.ask(message, &[])?;
        word(&answer.payload).ok_or(ClientError::Malformed(message.request()))
    }

    /// Sends a message without a reply of its own, and waits for its acknowledgement if the back end
    /// knows that.
    fn tell(&mut self, message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let acknowledged = self.protocol & protocol::REPLY_ACK != 0;
        self.send(message, acknowledged, fds)?;
        if !acknowledged {
            return Ok(());
        }
        let (header, payload, _) = self.receive()?;
        match word(&payload) {
            _ if header.request != message.request() as u32 || !header.is_reply() => {
                Err(ClientError::Malformed(message.request()))
            }
            Some(0) => Ok(()),
            _ => Err(ClientError::Refused(message.request())),
        }
    }
}

impl AsFd for Client {
    /// Readable when the back end has sent something, or has left.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn word(payload: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(payload.try_into().ok()?))
}

/// One call for each request. Each fails if the back end refuses it, does not answer, or is gone.
#[allow(clippy::missing_errors_doc, reason = "said of all of them above")]
impl Client {
    /// Features that the back end offers.
    pub fn features(&mut self) -> Result<u64, ClientError> {
        self.ask_word(&Message::GetFeatures)
    }

    /// Features that the driver accepts.
    pub fn set_features(&mut self, features: u64) -> Result<(), ClientError> {
        self.tell(&Message::SetFeatures(features), &[])
    }

    /// Protocol features that the back end offers.
    pub fn protocol_features(&mut self) -> Result<u64, ClientError> {
        self.ask_word(&Message::GetProtocolFeatures)
    }

    /// Protocol features to be used from now on.
    pub fn set_protocol_features(&mut self, features: u64) -> Result<(), ClientError> {
        self.send(&Message::SetProtocolFeatures(features), false, &[])?;
        self.protocol = features;
        Ok(())
    }

    /// Begins the session.
    pub fn set_owner(&mut self) -> Result<(), ClientError> {
        self.tell(&Message::SetOwner, &[])
    }

    /// Rings that the device has.
    pub fn queues(&mut self) -> Result<u64, ClientError> {
        self.ask_word(&Message::GetQueueNum)
    }

    /// All of guest memory, with the files it is in.
    pub fn set_mem_table(
        &mut self,
        regions: &[MemRegion],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        let table = MemTable::new(regions).ok_or(ClientError::TooManyRegions)?;
        self.tell(&Message::SetMemTable(table), fds)
    }

    /// Regions that guest memory may have.
    pub fn max_mem_slots(&mut self) -> Result<u64, ClientError> {
        self.ask_word(&Message::GetMaxMemSlots)
    }

    /// One region of guest memory more.
    pub fn add_mem_reg(
        &mut self,
        region: &MemRegion,
        fd: BorrowedFd<'_>,
    ) -> Result<(), ClientError> {
        self.tell(&Message::AddMemReg(*region), &[fd])
    }

    /// One region less.
    pub fn rem_mem_reg(&mut self, region: &MemRegion) -> Result<(), ClientError> {
        self.tell(&Message::RemMemReg(*region), &[])
    }

    /// A ring's size.
    pub fn set_vring_num(&mut self, index: u32, num: u32) -> Result<(), ClientError> {
        self.tell(&Message::SetVringNum(VringState { index, num }), &[])
    }

    /// Where a ring is.
    pub fn set_vring_addr(&mut self, addr: &VringAddr) -> Result<(), ClientError> {
        self.tell(&Message::SetVringAddr(*addr), &[])
    }

    /// Where a ring goes on.
    pub fn set_vring_base(&mut self, index: u32, num: u32) -> Result<(), ClientError> {
        self.tell(&Message::SetVringBase(VringState { index, num }), &[])
    }

    /// Stops a ring; gives where it would go on.
    pub fn get_vring_base(&mut self, index: u32) -> Result<u32, ClientError> {
        let state = VringState { index, num: 0 };
        let answer = self.ask(&Message::GetVringBase(state), &[])?;
        let malformed = ClientError::Malformed(Request::GetVringBase);
        let bytes: [u8; VringState::LEN] = answer.payload.try_into().map_err(|_| malformed)?;
        let [.., a, b, c, d] = bytes;
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    fn vring_fd(index: u8, event: Option<&EventFd>) -> VringFd {
        VringFd {
            index,
            without_fd: event.is_none(),
        }
    }

    /// The eventfd by which a ring is kicked; without one the back end polls.
    pub fn set_vring_kick(
        &mut self,
        index: u8,
        event: Option<&EventFd>,
    ) -> Result<(), ClientError> {
        let message = Message::SetVringKick(Self::vring_fd(index, event));
        self.tell(&message, event.map(AsFd::as_fd).as_slice())
    }

    /// The eventfd by which the driver is called; without one it polls.
    pub fn set_vring_call(
        &mut self,
        index: u8,
        event: Option<&EventFd>,
    ) -> Result<(), ClientError> {
        let message = Message::SetVringCall(Self::vring_fd(index, event));
        self.tell(&message, event.map(AsFd::as_fd).as_slice())
    }

    /// The eventfd that says that a ring is broken.
    pub fn set_vring_err(&mut self, index: u8, event: Option<&EventFd>) -> Result<(), ClientError> {
        let message = Message::SetVringErr(Self::vring_fd(index, event));
        self.tell(&message, event.map(AsFd::as_fd).as_slice())
    }

    /// Enables or disables a ring.
    pub fn set_vring_enable(&mut self, index: u32, enabled: bool) -> Result<(), ClientError> {
        let num = u32::from(enabled);
        self.tell(&Message::SetVringEnable(VringState { index, num }), &[])
    }

    /// The file in which the back end notes the pages that it writes.
    pub fn set_log_base(&mut self, log: &Log, fd: BorrowedFd<'_>) -> Result<(), ClientError> {
        let message = Message::SetLogBase(LogBase::Shared(*log));
        self.ask(&message, &[fd]).map(|_| ())
    }

    /// A file that notes what is in flight, for so many rings of a size.
    pub fn get_inflight_fd(
        &mut self,
        queues: u16,
        queue_size: u16,
    ) -> Result<(Inflight, OwnedFd), ClientError> {
        let asked = Inflight {
            queues,
            queue_size,
            ..Inflight::default()
        };
        let answer = self.ask(&Message::GetInflightFd(asked), &[])?;
        let malformed = || ClientError::Malformed(Request::GetInflightFd);
        // It has the layout of the request.
        let header = Header::request(Request::GetInflightFd, answer.payload.len());
        let Ok(Message::GetInflightFd(given)) = Message::parse(&header, &answer.payload) else {
            return Err(malformed());
        };
        let fd = answer.fds.into_iter().next().ok_or_else(malformed)?;
        Ok((given, fd))
    }

    /// Gives such a file back.
    pub fn set_inflight_fd(
        &mut self,
        given: &Inflight,
        fd: BorrowedFd<'_>,
    ) -> Result<(), ClientError> {
        self.tell(&Message::SetInflightFd(*given), &[fd])
    }

    /// Begins a transfer of the device's state through `fd`.
    pub fn set_device_state_fd(
        &mut self,
        direction: Direction,
        fd: BorrowedFd<'_>,
    ) -> Result<(), ClientError> {
        let state = DeviceState {
            direction,
            phase: 0,
        };
        let message = Message::SetDeviceStateFd(state);
        let answer = self.ask(&message, &[fd])?;
        match word(&answer.payload) {
            Some(word) if word & 0xff == 0 => Ok(()),
            Some(_) => Err(ClientError::Refused(message.request())),
            None => Err(ClientError::Malformed(message.request())),
        }
    }

    /// Waits for the transfer's end.
    pub fn check_device_state(&mut self) -> Result<(), ClientError> {
        match self.ask_word(&Message::CheckDeviceState)? {
            0 => Ok(()),
            _ => Err(ClientError::Refused(Request::CheckDeviceState)),
        }
    }

    /// Reads configuration space.
    ///
    /// # Panics
    /// More is asked for than a device can have.
    pub fn config(&mut self, offset: u32, len: usize) -> Result<Vec<u8>, ClientError> {
        let zeros = [0; MAX_CONFIG];
        let config = Config {
            offset,
            flags: 0,
            data: &zeros[..len],
        };
        let answer = self.ask(&Message::GetConfig(config), &[])?;
        match answer.payload.get(Config::LEN..) {
            Some(data) if data.len() == len => Ok(data.to_vec()),
            Some([]) => Err(ClientError::Refused(Request::GetConfig)),
            _ => Err(ClientError::Malformed(Request::GetConfig)),
        }
    }

    /// Writes configuration space, as a driver does or as migration does.
    pub fn set_config(
        &mut self,
        offset: u32,
        data: &[u8],
        migration: bool,
    ) -> Result<(), ClientError> {
        let flags = u32::from(migration);
        let config = Config {
            offset,
            flags,
            data,
        };
        self.tell(&Message::SetConfig(config), &[])
    }

    /// Sets the virtio device status; 0 resets the device.
    pub fn set_status(&mut self, status: u8) -> Result<(), ClientError> {
        self.tell(&Message::SetStatus(u64::from(status)), &[])
    }

    /// The virtio device status.
    pub fn status(&mut self) -> Result<u64, ClientError> {
        self.ask_word(&Message::GetStatus)
    }

    /// Resets the device.
    pub fn reset_device(&mut self) -> Result<(), ClientError> {
        self.tell(&Message::ResetDevice, &[])
    }

    /// The MTU that the driver is told.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), ClientError> {
        self.tell(&Message::NetSetMtu(u64::from(mtu)), &[])
    }

    /// Has the guest announced.
    pub fn send_rarp(&mut self, mac: [u8; 6]) -> Result<(), ClientError> {
        self.tell(&Message::SendRarp(mac), &[])
    }
}
