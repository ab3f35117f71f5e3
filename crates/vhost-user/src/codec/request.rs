//! What a message asks for.

/// A request of the front end's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Request {
    /// Asks for the features that the back end offers.
    GetFeatures = 1,
    /// Sets the features that the driver has accepted.
    SetFeatures = 2,
    /// Begins a session.
    SetOwner = 3,
    /// Of old; ignored.
    ResetOwner = 4,
    /// Hands over all of guest memory, up to 8 regions.
    SetMemTable = 5,
    /// Hands over the dirty log.
    SetLogBase = 6,
    /// An eventfd to be signalled when the log has changed.
    SetLogFd = 7,
    /// Sets the size of a ring.
    SetVringNum = 8,
    /// Says where the parts of a ring are.
    SetVringAddr = 9,
    /// Says where a ring goes on.
    SetVringBase = 10,
    /// Stops a ring and asks where it would go on.
    GetVringBase = 11,
    /// The eventfd by which the driver calls the device.
    SetVringKick = 12,
    /// The eventfd by which the device calls the driver.
    SetVringCall = 13,
    /// The eventfd that says that a ring is broken.
    SetVringErr = 14,
    /// Asks for the protocol features that the back end offers.
    GetProtocolFeatures = 15,
    /// Sets those that both know.
    SetProtocolFeatures = 16,
    /// Asks how many rings there are.
    GetQueueNum = 17,
    /// Enables or disables a ring.
    SetVringEnable = 18,
    /// Has the guest announced after a migration.
    SendRarp = 19,
    /// Sets the MTU.
    NetSetMtu = 20,
    /// Hands over a socket for the back end's own requests.
    SetBackendReqFd = 21,
    /// Adds or removes a translation of the IOMMU.
    IotlbMsg = 22,
    /// Sets the byte order of a legacy ring.
    SetVringEndian = 23,
    /// Reads configuration space.
    GetConfig = 24,
    /// Writes configuration space.
    SetConfig = 25,
    /// Postcopy migration is coming.
    PostcopyAdvise = 28,
    /// Postcopy migration begins.
    PostcopyListen = 29,
    /// Postcopy migration is over.
    PostcopyEnd = 30,
    /// Asks for a file that notes what is in flight.
    GetInflightFd = 31,
    /// Gives it back after a reconnection.
    SetInflightFd = 32,
    /// Of GPUs.
    GpuSetSocket = 33,
    /// Resets the device.
    ResetDevice = 34,
    /// A kick as a message.
    VringKick = 35,
    /// Asks how many regions guest memory may have.
    GetMaxMemSlots = 36,
    /// Hands over one region of guest memory.
    AddMemReg = 37,
    /// Takes one back.
    RemMemReg = 38,
    /// Sets the virtio device status.
    SetStatus = 39,
    /// Asks for it.
    GetStatus = 40,
    /// Asks for a shared virtio object.
    GetSharedObject = 41,
    /// Starts a transfer of the device's state.
    SetDeviceStateFd = 42,
    /// Asks whether the transfer has succeeded.
    CheckDeviceState = 43,
}

impl Request {
    /// All of them, by number.
    pub const ALL: &[Self] = &[
        Self::GetFeatures,
        Self::SetFeatures,
        Self::SetOwner,
        Self::ResetOwner,
        Self::SetMemTable,
        Self::SetLogBase,
        Self::SetLogFd,
        Self::SetVringNum,
        Self::SetVringAddr,
        Self::SetVringBase,
        Self::GetVringBase,
        Self::SetVringKick,
        Self::SetVringCall,
        Self::SetVringErr,
        Self::GetProtocolFeatures,
        Self::SetProtocolFeatures,
        Self::GetQueueNum,
        Self::SetVringEnable,
        Self::SendRarp,
        Self::NetSetMtu,
        Self::SetBackendReqFd,
        Self::IotlbMsg,
        Self::SetVringEndian,
        Self::GetConfig,
        Self::SetConfig,
        Self::PostcopyAdvise,
        Self::PostcopyListen,
        Self::PostcopyEnd,
        Self::GetInflightFd,
        Self::SetInflightFd,
        Self::GpuSetSocket,
        Self::ResetDevice,
        Self::VringKick,
        Self::GetMaxMemSlots,
        Self::AddMemReg,
        Self::RemMemReg,
        Self::SetStatus,
        Self::GetStatus,
        Self::GetSharedObject,
        Self::SetDeviceStateFd,
        Self::CheckDeviceState,
    ];

    /// The request with this number.
    pub fn from_u32(value: u32) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|request| *request as u32 == value)
    }

    /// As the specification writes it, without its prefix.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetFeatures => "GET_FEATURES",
            Self::SetFeatures => "SET_FEATURES",
            Self::SetOwner => "SET_OWNER",
            Self::ResetOwner => "RESET_OWNER",
            Self::SetMemTable => "SET_MEM_TABLE",
            Self::SetLogBase => "SET_LOG_BASE",
            Self::SetLogFd => "SET_LOG_FD",
            Self::SetVringNum => "SET_VRING_NUM",
            Self::SetVringAddr => "SET_VRING_ADDR",
            Self::SetVringBase => "SET_VRING_BASE",
            Self::GetVringBase => "GET_VRING_BASE",
            Self::SetVringKick => "SET_VRING_KICK",
            Self::SetVringCall => "SET_VRING_CALL",
            Self::SetVringErr => "SET_VRING_ERR",
            Self::GetProtocolFeatures => "GET_PROTOCOL_FEATURES",
            Self::SetProtocolFeatures => "SET_PROTOCOL_FEATURES",
            Self::GetQueueNum => "GET_QUEUE_NUM",
            Self::SetVringEnable => "SET_VRING_ENABLE",
            Self::SendRarp => "SEND_RARP",
            Self::NetSetMtu => "NET_SET_MTU",
            Self::SetBackendReqFd => "SET_BACKEND_REQ_FD",
            Self::IotlbMsg => "IOTLB_MSG",
            Self::SetVringEndian => "SET_VRING_ENDIAN",
            Self::GetConfig => "GET_CONFIG",
            Self::SetConfig => "SET_CONFIG",
            Self::PostcopyAdvise => "POSTCOPY_ADVISE",
            Self::PostcopyListen => "POSTCOPY_LISTEN",
            Self::PostcopyEnd => "POSTCOPY_END",
            Self::GetInflightFd => "GET_INFLIGHT_FD",
            Self::SetInflightFd => "SET_INFLIGHT_FD",
            Self::GpuSetSocket => "GPU_SET_SOCKET",
            Self::ResetDevice => "RESET_DEVICE",
            Self::VringKick => "VRING_KICK",
            Self::GetMaxMemSlots => "GET_MAX_MEM_SLOTS",
            Self::AddMemReg => "ADD_MEM_REG",
            Self::RemMemReg => "REM_MEM_REG",
            Self::SetStatus => "SET_STATUS",
            Self::GetStatus => "GET_STATUS",
            Self::GetSharedObject => "GET_SHARED_OBJECT",
            Self::SetDeviceStateFd => "SET_DEVICE_STATE_FD",
            Self::CheckDeviceState => "CHECK_DEVICE_STATE",
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
