//! Whole messages of the front end's.

use super::header::{HEADER_LEN, Header, MAX_PAYLOAD};
use super::malformed::Malformed;
use super::payload::{
    Config, DeviceState, Fields, Inflight, Iotlb, Log, LogBase, MemRegion, MemTable, Out,
    VringAddr, VringFd, VringState,
};
use super::request::Request;

/// How many descriptors come with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptors {
    /// So many.
    Exactly(usize),
    /// One or none. It is closed unused.
    Ignored,
}

/// A request with what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "see `Request`")]
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would be an allocation"
)]
pub enum Message<'a> {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(MemTable),
    SetLogBase(LogBase),
    SetLogFd,
    SetVringNum(VringState),
    SetVringAddr(VringAddr),
    SetVringBase(VringState),
    GetVringBase(VringState),
    SetVringKick(VringFd),
    SetVringCall(VringFd),
    SetVringErr(VringFd),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable(VringState),
    /// The guest's MAC address.
    SendRarp([u8; 6]),
    NetSetMtu(u64),
    SetBackendReqFd,
    IotlbMsg(Iotlb),
    SetVringEndian(VringState),
    GetConfig(Config<'a>),
    SetConfig(Config<'a>),
    PostcopyAdvise,
    PostcopyListen,
    PostcopyEnd,
    GetInflightFd(Inflight),
    SetInflightFd(Inflight),
    GpuSetSocket,
    ResetDevice,
    VringKick(VringState),
    GetMaxMemSlots,
    AddMemReg(MemRegion),
    RemMemReg(MemRegion),
    SetStatus(u64),
    GetStatus,
    GetSharedObject([u8; 16]),
    SetDeviceStateFd(DeviceState),
    CheckDeviceState,
}

impl<'a> Message<'a> {
    /// The message with this header and payload.
    ///
    /// # Errors
    /// The version or the request is not known, it is a reply, or the payload is not that of the
    /// request: every byte of it must have its meaning.
    pub fn parse(header: &Header, payload: &'a [u8]) -> Result<Self, Malformed> {
        let malformed = |what| Malformed {
            request: header.request,
            what,
        };
        if !header.version_is_known() {
            return Err(malformed("its version is not 1"));
        }
        if header.is_reply() {
            return Err(malformed("it is a reply, and nothing was asked"));
        }
        let request = Request::from_u32(header.request)
            .ok_or_else(|| malformed("its number is not known"))?;
        if header.size as usize != payload.len() {
            return Err(malformed("its size is not that of its payload"));
        }
        let mut fields = Fields(payload);
        let message = Self::of(request, &mut fields, payload.len());
        message
            .filter(|_| fields.0.is_empty())
            .ok_or_else(|| malformed("its payload has not the size or the values it must have"))
    }

    fn of(request: Request, fields: &mut Fields<'a>, len: usize) -> Option<Self> {
        Some(match request {
            Request::GetFeatures => Self::GetFeatures,
            Request::SetFeatures => Self::SetFeatures(fields.u64()?),
            Request::SetOwner => Self::SetOwner,
            Request::ResetOwner => Self::ResetOwner,
            Request::SetMemTable => Self::SetMemTable(MemTable::parse(fields)?),
            Request::SetLogBase if len == 8 => Self::SetLogBase(LogBase::Address(fields.u64()?)),
            Request::SetLogBase => Self::SetLogBase(LogBase::Shared(Log::parse(fields)?)),
            Request::SetLogFd => Self::SetLogFd,
            Request::SetVringNum => Self::SetVringNum(VringState::parse(fields)?),
            Request::SetVringAddr => Self::SetVringAddr(VringAddr::parse(fields)?),
            Request::SetVringBase => Self::SetVringBase(VringState::parse(fields)?),
            Request::GetVringBase => Self::GetVringBase(VringState::parse(fields)?),
            Request::SetVringKick => Self::SetVringKick(VringFd::parse(fields)?),
            Request::SetVringCall => Self::SetVringCall(VringFd::parse(fields)?),
            Request::SetVringErr => Self::SetVringErr(VringFd::parse(fields)?),
            Request::GetProtocolFeatures => Self::GetProtocolFeatures,
            Request::SetProtocolFeatures => Self::SetProtocolFeatures(fields.u64()?),
            Request::GetQueueNum => Self::GetQueueNum,
            Request::SetVringEnable => Self::SetVringEnable(VringState::parse(fields)?),
            Request::SendRarp => {
                let [mac @ .., _, _] = fields.u64()?.to_ne_bytes();
                Self::SendRarp(mac)
            }
            Request::NetSetMtu => Self::NetSetMtu(fields.u64()?),
            Request::SetBackendReqFd => Self::SetBackendReqFd,
            Request::IotlbMsg => Self::IotlbMsg(Iotlb::parse(fields)?),
            Request::SetVringEndian => Self::SetVringEndian(VringState::parse(fields)?),
            Request::GetConfig => Self::GetConfig(Config::parse(fields)?),
            Request::SetConfig => Self::SetConfig(Config::parse(fields)?),
            Request::PostcopyAdvise => Self::PostcopyAdvise,
            Request::PostcopyListen => Self::PostcopyListen,
            Request::PostcopyEnd => Self::PostcopyEnd,
            Request::GetInflightFd => Self::GetInflightFd(Inflight::parse(fields)?),
            Request::SetInflightFd => Self::SetInflightFd(Inflight::parse(fields)?),
            Request::GpuSetSocket => Self::GpuSetSocket,
            Request::ResetDevice => Self::ResetDevice,
            Request::VringKick => Self::VringKick(VringState::parse(fields)?),
            Request::GetMaxMemSlots => Self::GetMaxMemSlots,
            Request::AddMemReg | Request::RemMemReg => {
                fields.u64()?;
                let region = MemRegion::parse(fields)?;
                if request == Request::AddMemReg {
                    Self::AddMemReg(region)
                } else {
                    Self::RemMemReg(region)
                }
            }
            Request::SetStatus => Self::SetStatus(fields.u64()?),
            Request::GetStatus => Self::GetStatus,
            Request::GetSharedObject => {
                let (low, high) = (fields.u64()?, fields.u64()?);
                let mut uuid = [0; 16];
                uuid[..8].copy_from_slice(&low.to_ne_bytes());
                uuid[8..].copy_from_slice(&high.to_ne_bytes());
                Self::GetSharedObject(uuid)
            }
            Request::SetDeviceStateFd => Self::SetDeviceStateFd(DeviceState::parse(fields)?),
            Request::CheckDeviceState => Self::CheckDeviceState,
        })
    }

    /// The request's name.
    pub fn request(&self) -> Request {
        match self {
            Self::GetFeatures => Request::GetFeatures,
            Self::SetFeatures(_) => Request::SetFeatures,
            Self::SetOwner => Request::SetOwner,
            Self::ResetOwner => Request::ResetOwner,
            Self::SetMemTable(_) => Request::SetMemTable,
            Self::SetLogBase(_) => Request::SetLogBase,
            Self::SetLogFd => Request::SetLogFd,
            Self::SetVringNum(_) => Request::SetVringNum,
            Self::SetVringAddr(_) => Request::SetVringAddr,
            Self::SetVringBase(_) => Request::SetVringBase,
            Self::GetVringBase(_) => Request::GetVringBase,
            Self::SetVringKick(_) => Request::SetVringKick,
            Self::SetVringCall(_) => Request::SetVringCall,
            Self::SetVringErr(_) => Request::SetVringErr,
            Self::GetProtocolFeatures => Request::GetProtocolFeatures,
            Self::SetProtocolFeatures(_) => Request::SetProtocolFeatures,
            Self::GetQueueNum => Request::GetQueueNum,
            Self::SetVringEnable(_) => Request::SetVringEnable,
            Self::SendRarp(_) => Request::SendRarp,
            Self::NetSetMtu(_) => Request::NetSetMtu,
            Self::SetBackendReqFd => Request::SetBackendReqFd,
            Self::IotlbMsg(_) => Request::IotlbMsg,
            Self::SetVringEndian(_) => Request::SetVringEndian,
            Self::GetConfig(_) => Request::GetConfig,
            Self::SetConfig(_) => Request::SetConfig,
            Self::PostcopyAdvise => Request::PostcopyAdvise,
            Self::PostcopyListen => Request::PostcopyListen,
            Self::PostcopyEnd => Request::PostcopyEnd,
            Self::GetInflightFd(_) => Request::GetInflightFd,
            Self::SetInflightFd(_) => Request::SetInflightFd,
            Self::GpuSetSocket => Request::GpuSetSocket,
            Self::ResetDevice => Request::ResetDevice,
            Self::VringKick(_) => Request::VringKick,
            Self::GetMaxMemSlots => Request::GetMaxMemSlots,
            Self::AddMemReg(_) => Request::AddMemReg,
            Self::RemMemReg(_) => Request::RemMemReg,
            Self::SetStatus(_) => Request::SetStatus,
            Self::GetStatus => Request::GetStatus,
            Self::GetSharedObject(_) => Request::GetSharedObject,
            Self::SetDeviceStateFd(_) => Request::SetDeviceStateFd,
            Self::CheckDeviceState => Request::CheckDeviceState,
        }
    }

    /// The descriptors that belong to it.
    pub fn descriptors(&self) -> Descriptors {
        Descriptors::Exactly(match self {
            Self::SetMemTable(table) => table.regions().len(),
            Self::SetVringKick(ring) | Self::SetVringCall(ring) | Self::SetVringErr(ring) => {
                usize::from(!ring.without_fd)
            }
            Self::SetLogBase(LogBase::Shared(_))
            | Self::SetLogFd
            | Self::SetBackendReqFd
            | Self::SetInflightFd(_)
            | Self::GpuSetSocket
            | Self::AddMemReg(_)
            | Self::SetDeviceStateFd(_) => 1,
            // Old front ends send the region's descriptor once more.
            Self::RemMemReg(_) => return Descriptors::Ignored,
            _ => 0,
        })
    }

    /// It has a reply of its own, whether the sender asks for one or not.
    pub fn is_answered(&self) -> bool {
        matches!(
            self,
            Self::GetFeatures
                | Self::SetLogBase(LogBase::Shared(_))
                | Self::GetVringBase(_)
                | Self::GetProtocolFeatures
                | Self::GetQueueNum
                | Self::IotlbMsg(_)
                | Self::GetConfig(_)
                | Self::PostcopyEnd
                | Self::GetInflightFd(_)
                | Self::GetMaxMemSlots
                | Self::GetStatus
                | Self::GetSharedObject(_)
                | Self::SetDeviceStateFd(_)
                | Self::CheckDeviceState
        )
    }

    /// The whole message in `buffer`: header and payload. Gives the bytes used.
    ///
    /// # Panics
    /// [`Config`] has more data than a message can have.
    pub fn encode<'b>(&self, wants_reply: bool, buffer: &'b mut MessageBuffer) -> &'b [u8] {
        let (head, body) = buffer
            .split_first_chunk_mut::<HEADER_LEN>()
            .expect("a buffer is longer than a header");
        let mut out = Out::new(body);
        self.put(&mut out);
        let len = out.len();
        let mut header = Header::request(self.request(), len);
        if wants_reply {
            header = header.wanting_reply();
        }
        *head = header.to_bytes();
        &buffer[..HEADER_LEN + len]
    }

    fn put(&self, out: &mut Out<'_>) {
        match self {
            Self::SetFeatures(word)
            | Self::SetProtocolFeatures(word)
            | Self::NetSetMtu(word)
            | Self::SetStatus(word)
            | Self::SetLogBase(LogBase::Address(word)) => out.u64(*word),
            Self::SetMemTable(table) => table.put(out),
            Self::SetLogBase(LogBase::Shared(log)) => out.put(&log.to_bytes()),
            Self::SetVringNum(state)
            | Self::SetVringBase(state)
            | Self::GetVringBase(state)
            | Self::SetVringEnable(state)
            | Self::SetVringEndian(state)
            | Self::VringKick(state) => state.put(out),
            Self::SetVringAddr(addr) => addr.put(out),
            Self::SetVringKick(ring) | Self::SetVringCall(ring) | Self::SetVringErr(ring) => {
                out.u64(ring.to_word());
            }
            Self::SendRarp(mac) => {
                out.put(mac);
                out.put(&[0; 2]);
            }
            Self::IotlbMsg(iotlb) => iotlb.put(out),
            Self::GetConfig(config) | Self::SetConfig(config) => config.put(out),
            Self::GetInflightFd(inflight) | Self::SetInflightFd(inflight) => {
                out.put(&inflight.to_bytes());
            }
            Self::AddMemReg(region) | Self::RemMemReg(region) => {
                out.u64(0);
                region.put(out);
            }
            Self::GetSharedObject(uuid) => out.put(uuid),
            Self::SetDeviceStateFd(state) => state.put(out),
            Self::GetFeatures
            | Self::SetOwner
            | Self::ResetOwner
            | Self::SetLogFd
            | Self::GetProtocolFeatures
            | Self::GetQueueNum
            | Self::SetBackendReqFd
            | Self::PostcopyAdvise
            | Self::PostcopyListen
            | Self::PostcopyEnd
            | Self::GpuSetSocket
            | Self::ResetDevice
            | Self::GetMaxMemSlots
            | Self::GetStatus
            | Self::CheckDeviceState => {}
        }
    }
}

/// Room for any message.
pub type MessageBuffer = [u8; HEADER_LEN + MAX_PAYLOAD];
