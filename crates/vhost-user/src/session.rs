//! Answers messages: the state of one device's front end, without its socket.

mod files;
mod migration;
mod negotiation;
mod rings;
mod tables;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use guest_mem::Memory;
use guest_mem::quota::Tenant;
use peer::stream::{Received, Sender};
use peer::{DeferredCloser, EventFd, EventSet, PeerFd};

use crate::answer::{Refusal, Reply};
use crate::backend::{Backend, ClientEvent};
use crate::calls::Calls;
use crate::codec::{Descriptors, Header, Message, Request, VringAddr, feature, protocol};
use crate::counters::Counters;
use crate::dirty_log::DirtyLog;
use crate::inflight::InflightFile;
use crate::memory::GuestMemory;
use crate::opening::Opening;
use crate::transfer::Transfer;

/// What a change of the memory counts against the budget, in messages: it may be calls to `mmap`,
/// and it waits for the batches in flight.
const MAP_COST: usize = 16;

/// Guest physical addresses of a ring's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    descriptors: u64,
    driver: u64,
    device: u64,
}

/// A ring, as the front end has described it so far.
#[derive(Default)]
pub(crate) struct Vring {
    size: u16,
    base: u32,
    addr: Option<VringAddr>,
    kick: Option<PeerFd>,
    /// The device looks at the ring without being told.
    polled: bool,
    enabled: bool,
    started: bool,
    /// Where it was when it started.
    placed: Places,
}

impl Vring {
    /// The eventfd to be watched.
    pub fn kick(&self) -> Option<&PeerFd> {
        self.kick.as_ref()
    }
}

/// What one front end has said, and what that has made of the device.
pub(crate) struct Session {
    pub rings: Vec<Vring>,
    pub memory: GuestMemory,
    pub calls: Calls,
    pub closer: DeferredCloser,
    pub tenant: Option<Arc<Tenant>>,
    pub counters: Counters,
    /// Where kicks are watched.
    pub set: Option<EventSet>,
    /// Signalled by the thread that carries the device's state.
    pub wake: Arc<EventFd>,
    /// The front end has sent a good message.
    pub ready: bool,
    /// The connection is to end after its replies, for this reason.
    pub close: Option<String>,
    /// Features that the driver has accepted, the protocol's among them.
    features: u64,
    /// Protocol features in use.
    protocol: u64,
    status: u8,
    log: Option<DirtyLog>,
    inflight: Option<InflightFile>,
    transfer: Option<Transfer>,
    /// A `CHECK_DEVICE_STATE` that waits for the transfer's end.
    unanswered: Option<Header>,
    /// A message that waits for its files.
    opening: Option<Opening>,
    /// Where the files of the message that is obeyed are known, if it is not the guest's memory.
    opened: Option<Memory>,
    /// Maps them: nothing of the front end's that is closed holds that up.
    pub mapper: DeferredCloser,
}

/// Protocol features that every device has.
const ALWAYS: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::REPLY_ACK
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::STATUS;

/// Those that a device may add.
const OPTIONAL: u64 = protocol::RARP | protocol::MTU | protocol::CONFIG | protocol::DEVICE_STATE;

fn offered_protocol(backend: &dyn Backend) -> u64 {
    ALWAYS | backend.protocol_features() & OPTIONAL
}

fn offered_features(backend: &dyn Backend) -> u64 {
    // Without IOTLB messages there is no IOMMU.
    backend.features() & !feature::ACCESS_PLATFORM | feature::LOG_ALL | feature::PROTOCOL
}

/// The protocol feature without which a message must not come.
fn needs(request: Request) -> u64 {
    match request {
        Request::SetLogBase => protocol::LOG_SHMFD,
        Request::SendRarp => protocol::RARP,
        Request::NetSetMtu => protocol::MTU,
        Request::GetConfig | Request::SetConfig => protocol::CONFIG,
        Request::GetInflightFd | Request::SetInflightFd => protocol::INFLIGHT_SHMFD,
        Request::ResetDevice => protocol::RESET_DEVICE,
        Request::GetMaxMemSlots | Request::AddMemReg | Request::RemMemReg => {
            protocol::CONFIGURE_MEM_SLOTS
        }
        Request::SetStatus | Request::GetStatus => protocol::STATUS,
        Request::SetDeviceStateFd | Request::CheckDeviceState => protocol::DEVICE_STATE,
        Request::SetBackendReqFd => protocol::BACKEND_REQ,
        Request::IotlbMsg => protocol::BACKEND_REQ,
        Request::SetVringEndian => protocol::CROSS_ENDIAN,
        Request::PostcopyAdvise | Request::PostcopyListen | Request::PostcopyEnd => {
            protocol::PAGEFAULT
        }
        Request::VringKick => protocol::INBAND_NOTIFICATIONS,
        Request::GetSharedObject => protocol::SHARED_OBJECT,
        _ => 0,
    }
}

impl Session {
    pub fn new(queues: u16, memory: Memory, tenant: Option<Arc<Tenant>>) -> std::io::Result<Self> {
        let closer = DeferredCloser::of_tenant(tenant.clone());
        let queues = usize::from(queues);
        Ok(Self {
            rings: std::iter::repeat_with(Vring::default)
                .take(queues)
                .collect(),
            memory: GuestMemory::new(memory),
            calls: Calls::new(queues),
            closer,
            tenant,
            counters: Counters::default(),
            set: None,
            wake: Arc::new(EventFd::new()?),
            ready: false,
            close: None,
            features: 0,
            protocol: 0,
            status: 0,
            log: None,
            inflight: None,
            transfer: None,
            unanswered: None,
            opening: None,
            opened: None,
            mapper: DeferredCloser::default(),
        })
    }

    /// A message waits for its answer, so no other is looked at.
    pub fn is_waiting(&self) -> bool {
        self.unanswered.is_some() || self.opening.is_some()
    }

    /// Answers one message. `fds` are the message's; what is left in it was not wanted. Returns how
    /// much it counts against the budget.
    pub fn handle(
        &mut self,
        backend: &mut dyn Backend,
        received: Received<'_, Header>,
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
    ) -> usize {
        let Received {
            header, payload, ..
        } = &received;
        let cost = match Message::parse(header, payload) {
            Ok(message) if received.truncated => {
                self.counters.truncated += 1;
                let request = message.request();
                self.close = Some(format!(
                    "{request}: its file descriptors found no room here"
                ));
                1
            }
            Ok(message) => {
                self.begin(backend, header, payload, &message, fds, tx);
                match message {
                    Message::SetMemTable(_) | Message::AddMemReg(_) | Message::RemMemReg(_) => {
                        MAP_COST
                    }
                    _ => 1,
                }
            }
            Err(malformed) => {
                self.counters.malformed += 1;
                self.close = Some(malformed.to_string());
                1
            }
        };
        self.counters.surplus_fds += fds.len() as u64;
        for fd in fds.drain(..) {
            self.closer.bury(fd);
        }
        cost
    }

    fn begin(
        &mut self,
        backend: &mut dyn Backend,
        header: &Header,
        payload: &[u8],
        message: &Message<'_>,
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
    ) {
        self.counters.message(message.request());
        if !std::mem::replace(&mut self.ready, true) {
            self.counters.clients += 1;
            backend.client(ClientEvent::Connected);
        }
        let result = match self.may_come(message, fds.len()) {
            Ok(_) => {
                self.opening = self.open_files(header, payload, message, fds);
                if self.opening.is_some() {
                    return;
                }
                self.obey(backend, header, message, fds)
            }
            refused => refused,
        };
        self.answer(
            backend,
            header,
            message.request(),
            message.is_answered(),
            result,
            tx,
        );
    }

    /// The files of a message may have been mapped: obeys it.
    fn go_on(&mut self, backend: &mut dyn Backend, tx: &mut Sender) {
        let Some(opening) = self.opening.take() else {
            return;
        };
        let Some((mut fds, files)) = opening.take() else {
            self.opening = Some(opening);
            return;
        };
        let header = opening.header;
        // It was one before.
        let Ok(message) = Message::parse(&header, &opening.payload) else {
            return;
        };
        for file in &files {
            opening.memory.keep_file(file);
        }
        self.opened = Some(opening.memory.clone());
        let result = self.obey(backend, &header, &message, &mut fds);
        self.opened = None;
        self.answer(
            backend,
            &header,
            message.request(),
            message.is_answered(),
            result,
            tx,
        );
        // To unmap what was not wanted may take its time.
        self.closer.bury(files);
        self.counters.surplus_fds += fds.len() as u64;
        for fd in fds {
            self.closer.bury(fd);
        }
    }

    fn answer(
        &mut self,
        backend: &mut dyn Backend,
        header: &Header,
        request: Request,
        is_answered: bool,
        result: Result<Reply, Refusal>,
        tx: &mut Sender,
    ) {
        // After the message: it may be the one that makes acknowledgements possible.
        let acknowledge =
            header.needs_reply() && self.protocol & protocol::REPLY_ACK != 0 && !is_answered;
        let word = |word: u64| word.to_ne_bytes();
        match result {
            Ok(Reply::Done) if acknowledge => tx.push(&header.reply(8), &word(0)),
            Ok(Reply::Done | Reply::Later) => {}
            Ok(Reply::Word(value)) => tx.push(&header.reply(8), &word(value)),
            Ok(Reply::Bytes(bytes)) => tx.push(&header.reply(bytes.len()), &bytes),
            Ok(Reply::WithFd(bytes, fd)) => {
                tx.push_with_fds(&header.reply(bytes.len()), &bytes, vec![fd]);
            }
            Err(refusal) => {
                self.counters.refused(&refusal);
                if acknowledge {
                    tx.push(&header.reply(8), &word(1));
                }
                match refusal {
                    Refusal::Hard(why) => self.close = Some(format!("{request}: {why}")),
                    Refusal::Soft(why) => {
                        backend.client(ClientEvent::Declined(format!("{request}: {why}")));
                    }
                }
            }
        }
    }

    /// Whether a message has its descriptors, and what it needs was negotiated.
    fn may_come(&self, message: &Message<'_>, fds: usize) -> Result<Reply, Refusal> {
        let needs = needs(message.request());
        if self.protocol & needs != needs {
            return Err("the protocol feature that it belongs to was not negotiated".into());
        }
        match message.descriptors() {
            Descriptors::Exactly(wanted) if fds < wanted => Err(Refusal::Hard(format!(
                "{wanted} file descriptors belong to it, and {fds} came"
            ))),
            _ => Ok(Reply::Done),
        }
    }

    fn obey(
        &mut self,
        backend: &mut dyn Backend,
        header: &Header,
        message: &Message<'_>,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        match message {
            Message::GetFeatures => Ok(Reply::Word(offered_features(backend))),
            Message::SetFeatures(features) => self.set_features(backend, *features),
            Message::GetProtocolFeatures => Ok(Reply::Word(offered_protocol(backend))),
            Message::SetProtocolFeatures(features) => self.set_protocol(backend, *features),
            Message::SetOwner | Message::ResetOwner => Ok(Reply::Done),
            Message::GetQueueNum => Ok(Reply::Word(self.rings.len() as u64)),
            Message::SetMemTable(table) => self.set_mem_table(backend, table, fds),
            Message::GetMaxMemSlots => Ok(Reply::Word(crate::memory::MAX_SLOTS as u64)),
            Message::AddMemReg(region) => self.add_mem_reg(region, fds),
            Message::RemMemReg(region) => self.rem_mem_reg(backend, region),
            Message::SetVringNum(state) => self.set_num(backend, state),
            Message::SetVringAddr(addr) => self.set_addr(backend, addr),
            Message::SetVringBase(state) => self.set_base(backend, state),
            Message::GetVringBase(state) => self.get_base(backend, state),
            Message::SetVringKick(ring) => self.set_kick(backend, ring, fds),
            Message::SetVringCall(ring) => self.set_call(ring, fds),
            Message::SetVringErr(ring) => self.set_err(ring, fds),
            Message::SetVringEnable(state) => self.set_enable(backend, state),
            Message::SetLogBase(base) => self.set_log_base(backend, base, fds),
            // Nothing here needs to say that the log has changed: the front end looks by itself.
            Message::SetLogFd => Ok(Reply::Done),
            Message::GetInflightFd(asked) => self.get_inflight(asked),
            Message::SetInflightFd(given) => self.set_inflight(given, fds),
            Message::SetDeviceStateFd(state) => self.begin_transfer(backend, state, fds),
            Message::CheckDeviceState => self.check_transfer(backend, header),
            Message::GetConfig(config) => Ok(Self::get_config(backend, config)),
            Message::SetConfig(config) => Self::set_config(backend, config),
            Message::SetStatus(status) => self.set_status(backend, *status),
            Message::GetStatus => Ok(Reply::Word(self.status(backend))),
            Message::ResetDevice => {
                self.reset(backend);
                Ok(Reply::Done)
            }
            Message::NetSetMtu(mtu) => Self::set_mtu(backend, *mtu),
            Message::SendRarp(mac) => {
                backend.announce(*mac);
                Ok(Reply::Done)
            }
            Message::SetBackendReqFd
            | Message::IotlbMsg(_)
            | Message::SetVringEndian(_)
            | Message::PostcopyAdvise
            | Message::PostcopyListen
            | Message::PostcopyEnd
            | Message::GpuSetSocket
            | Message::VringKick(_)
            | Message::GetSharedObject(_) => Err("this back end does not offer it".into()),
        }
    }

    /// The front end is gone: rings end, and what it gave is let go. The device's state stays.
    pub fn end(&mut self, backend: &mut dyn Backend) {
        for queue in 0..self.queues() {
            self.stop_ring(backend, queue);
            self.forget_ring(queue);
            if std::mem::take(&mut self.ring(queue).enabled) {
                backend.enable(queue, false);
            }
            *self.ring(queue) = Vring::default();
        }
        backend.set_log(None);
        if let Some(log) = self.log.take() {
            self.closer.bury(log.unmap());
        }
        if let Some(inflight) = self.inflight.take() {
            self.closer.bury(inflight.unmap());
        }
        self.closer.bury(self.memory.clear());
        self.transfer = None;
        self.unanswered = None;
        if let Some(opening) = self.opening.take() {
            self.closer.bury(opening);
        }
        self.features = 0;
        self.protocol = 0;
        self.status = 0;
        self.close = None;
        self.counters.clients_gone += u64::from(std::mem::take(&mut self.ready));
    }
}
