//! The vhost-user socket: the codec on any bytes, and a server in front of a hostile front end.

mod device;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost_user::codec::{
    Config, DeviceState, Direction, HEADER_LEN, Header, Inflight, Log, LogBase, MAX_PAYLOAD,
    MemRegion, MemTable, Message, VringAddr, VringFd, VringState, feature, protocol,
};
use vhost_user::{Client, ClientError, EventFd, EventSet, Listener, Server, SharedMem};

use self::device::Device;
use crate::input::Input;

/// Rings of the device.
const QUEUES: u16 = 4;
/// Bytes of a file of the front end's.
const FILE: usize = 0x1_0000;
/// How long an answer may take: another thread maps files.
const PATIENCE: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};

/// A front end that says anything: messages that mean something, in any order and with any descriptors, and bytes that
/// mean nothing.
///
/// Rings begin and end once each, lie in mapped memory when they begin, and none is left when the front end has gone.
/// Answers come in the order of what was asked. A connection that is still there answers, and the server comes to rest.
/// What can be read as a message can be written, and reads the same.
pub fn vhost_user(data: &[u8]) {
    let mut input = Input::new(data);
    let setup = input.u8();
    if setup & 3 == 0 {
        codec(input.rest());
    } else {
        // Out of descriptors is not what is tested here.
        let _ = session(setup, &mut input);
    }
}

fn codec(bytes: &[u8]) {
    let Some(header) = Header::parse(bytes) else {
        assert!(bytes.len() < HEADER_LEN);
        return;
    };
    assert_eq!(header.to_bytes(), bytes[..HEADER_LEN]);
    let payload = &bytes[HEADER_LEN..];
    let payload = &payload[..payload.len().min(MAX_PAYLOAD).min(header.size as usize)];
    let Ok(message) = Message::parse(&header, payload) else {
        return;
    };
    let mut room = [0; HEADER_LEN + MAX_PAYLOAD];
    let written = message.encode(header.needs_reply(), &mut room);
    let again = Header::parse(written).expect("a header");
    assert_eq!(again.request, header.request);
    let read = Message::parse(&again, &written[HEADER_LEN..]);
    assert_eq!(read, Ok(message));
}

fn session(setup: u8, input: &mut Input<'_>) -> Option<()> {
    let (ours, theirs) = UnixStream::pair().ok()?;
    let mut server = Server::new(QUEUES, Listener::from_connected(theirs.into())).ok()?;
    let set = EventSet::new().ok()?;
    server.watch(&set).ok()?;
    let mut front = Front {
        client: Client::from_connected(ours.into()),
        device: Device::new(server.memory(), QUEUES),
        server,
        set,
        files: [0, 1].map(|_| SharedMem::new("fuzz", FILE).ok()),
        events: [0, 1].map(|_| EventFd::new().ok()),
        asked: VecDeque::new(),
        wild: false,
        lost: false,
    };
    front.client.set_timeout(Duration::ZERO);
    if setup & 4 == 0 {
        // As a good one begins.
        let known = protocol::REPLY_ACK | u64::from(setup >> 3) << 9 | 0xf_f00f;
        front.tell(&Message::SetOwner, false, &[]);
        front.tell(&Message::SetProtocolFeatures(known & OFFERED), false, &[]);
        front.tell(
            &Message::SetFeatures(feature::PROTOCOL | u64::from(setup & 8 != 0) << 34),
            false,
            &[],
        );
    }
    for _ in 0..64 {
        let Some(op) = input.op() else { break };
        front.step(op, input);
    }
    front.finish();
    Some(())
}

/// What every server offers, with what this device adds.
const OFFERED: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::REPLY_ACK
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::STATUS
    | protocol::RARP
    | protocol::MTU
    | protocol::CONFIG
    | protocol::DEVICE_STATE;

struct Front {
    client: Client,
    server: Server,
    device: Device,
    set: EventSet,
    files: [Option<SharedMem>; 2],
    events: [Option<EventFd>; 2],
    /// Requests that may be answered, in order.
    asked: VecDeque<u32>,
    /// Bytes that are no message have gone out: nothing is known of what it asked.
    wild: bool,
    /// The connection is over.
    lost: bool,
}

impl Front {
    fn tell(&mut self, message: &Message<'_>, wants_reply: bool, fds: &[Fd]) {
        if self.lost {
            return;
        }
        let Self {
            client,
            files,
            events,
            ..
        } = self;
        let fds: Vec<BorrowedFd<'_>> = fds
            .iter()
            .filter_map(|fd| match fd {
                Fd::File(n) => files[n % 2].as_ref().map(AsFd::as_fd),
                Fd::Event(n) => events[n % 2].as_ref().map(AsFd::as_fd),
            })
            .collect();
        if client.send(message, wants_reply, &fds).is_err() {
            self.lost = true;
            return;
        }
        self.asked.push_back(message.request() as u32);
        self.serve(64);
    }

    /// Lets the server work until nothing is left to be done now, and hears what it answers.
    fn serve(&mut self, budget: usize) {
        for _ in 0..64 {
            let progress = self.server.process(&mut self.device, budget);
            let progress = progress.expect("only our own descriptors can fail");
            self.hear();
            if !progress.more && progress.messages == 0 && progress.kicks == 0 {
                return;
            }
        }
        panic!("the server does not come to rest");
    }

    /// Reads what was answered.
    fn hear(&mut self) {
        while !self.lost {
            match self.client.receive() {
                Ok((header, ..)) if !self.wild => {
                    assert!(header.is_reply());
                    // What is not answered was passed over.
                    let asked = std::iter::from_fn(|| self.asked.pop_front());
                    let found = { asked }.any(|request| request == header.request);
                    assert!(found, "an answer to {}", header.request);
                }
                Ok(_) => {}
                Err(ClientError::TimedOut) => return,
                Err(_) => self.lost = true,
            }
        }
    }

    fn step(&mut self, op: u8, input: &mut Input<'_>) {
        let more = op >> 4;
        let ack = more & 8 != 0;
        let index = u32::from(more & 7).min(u32::from(QUEUES));
        match op & 15 {
            0 => self.features(input),
            1 => self.memory(more, input),
            2 => self.one_region(more, input),
            3 => {
                let num = [64, 128, 256, 0, 65_536, input.u32()][usize::from(input.u8() % 6)];
                self.tell(&Message::SetVringNum(VringState { index, num }), ack, &[]);
            }
            4 => self.address(index, ack, input),
            5 => {
                let state = VringState {
                    index,
                    num: input.value(),
                };
                let message = if input.u8() & 1 == 0 {
                    Message::SetVringBase(state)
                } else {
                    Message::GetVringBase(state)
                };
                self.tell(&message, ack, &[]);
            }
            6 => self.ring_fd(index as u8, ack, input),
            7 => {
                let num = u32::from(input.u8() % 3);
                self.tell(
                    &Message::SetVringEnable(VringState { index, num }),
                    ack,
                    &[],
                );
            }
            8 => self.buffers(ack, input),
            9 => self.state(ack, input),
            10 => self.network(ack, input),
            11 => {
                let status = u64::from(input.u8());
                let message = match more & 7 {
                    0..3 => Message::SetStatus(status << (status & 7)),
                    3..6 => Message::GetStatus,
                    _ => Message::ResetDevice,
                };
                self.tell(&message, ack, &[]);
            }
            12 => {
                let message = match more & 7 {
                    0 => Message::GetFeatures,
                    1 => Message::GetProtocolFeatures,
                    2 => Message::GetQueueNum,
                    3 => Message::GetMaxMemSlots,
                    4 => Message::SetProtocolFeatures(input.u64()),
                    5 => Message::SetProtocolFeatures(input.u64() & OFFERED),
                    6 => Message::SetLogFd,
                    _ => Message::ResetOwner,
                };
                let fds = [Fd::Event(0)];
                let fds = if message == Message::SetLogFd {
                    &fds[..]
                } else {
                    &[]
                };
                self.tell(&message, ack, fds);
            }
            13 => {
                if let Some(event) = &self.events[usize::from(more & 1)] {
                    event.signal();
                }
                self.serve(usize::from(input.u8()) + 1);
            }
            14 => self.noise(more, input),
            _ => self.serve(usize::from(more) + 1),
        }
    }

    fn features(&mut self, input: &mut Input<'_>) {
        let bits = input.u8();
        let features = [
            feature::PROTOCOL,
            feature::LOG_ALL,
            feature::PACKED,
            1 << 32,
        ];
        let said = (0..).zip(features).filter(|(n, _)| bits >> n & 1 != 0);
        let said = said.map(|(_, feature)| feature).sum::<u64>();
        let any = if bits & 0x40 != 0 { input.u64() } else { 0 };
        self.tell(&Message::SetFeatures(said | any), bits & 0x80 != 0, &[]);
    }

    /// A region that may be one.
    fn region(input: &mut Input<'_>) -> MemRegion {
        let (place, parts) = (input.u8(), input.u8());
        let page = |bits: u8| u64::from(bits) * 0x1000;
        let mut region = MemRegion {
            guest: page(place & 15) * 4,
            size: page(1 + (parts & 15)),
            user: 0x7000_0000 + page(place >> 4) * 4,
            mmap_offset: page(parts >> 4),
        };
        if parts == 0xff {
            region.size = input.u64();
            region.mmap_offset = u64::from(input.u16());
        }
        region
    }

    fn memory(&mut self, more: u8, input: &mut Input<'_>) {
        let count = usize::from(more & 3);
        let regions: Vec<_> = (0..count).map(|_| Self::region(input)).collect();
        let Some(table) = MemTable::new(&regions) else {
            return;
        };
        let kinds = input.u8();
        let fds: Vec<_> = (0..count)
            .map(|n| match kinds >> (2 * n) & 3 {
                3 => Fd::Event(0),
                file => Fd::File(file.into()),
            })
            .collect();
        let fds = if more & 4 == 0 {
            &fds[..]
        } else {
            &fds[..count / 2]
        };
        self.tell(&Message::SetMemTable(table), more & 8 != 0, fds);
    }

    fn one_region(&mut self, more: u8, input: &mut Input<'_>) {
        let region = Self::region(input);
        let message = if more & 1 == 0 {
            Message::AddMemReg(region)
        } else {
            Message::RemMemReg(region)
        };
        let fds = [Fd::File(usize::from(more >> 1 & 1))];
        let fds = if more & 4 == 0 { &fds[..] } else { &[] };
        self.tell(&message, more & 8 != 0, fds);
    }

    fn address(&mut self, index: u32, ack: bool, input: &mut Input<'_>) {
        let mut at = || {
            let place = input.u16();
            if place == u16::MAX {
                input.u64()
            } else {
                0x7000_0000 + u64::from(place) * 4
            }
        };
        let addr = VringAddr {
            index,
            descriptor: at(),
            used: at(),
            available: at(),
            log: at(),
            flags: u32::from(input.u8() % 3),
        };
        self.tell(&Message::SetVringAddr(addr), ack, &[]);
    }

    fn ring_fd(&mut self, index: u8, ack: bool, input: &mut Input<'_>) {
        let how = input.u8();
        let ring = VringFd {
            index,
            without_fd: how & 8 != 0,
        };
        let message = match how & 3 {
            0 | 1 => Message::SetVringKick(ring),
            2 => Message::SetVringCall(ring),
            _ => Message::SetVringErr(ring),
        };
        let fd = match how >> 4 {
            0..10 => [Fd::Event(usize::from(how >> 4))],
            _ => [Fd::File(0)],
        };
        let fds = if how & 4 == 0 { &fd[..] } else { &[] };
        self.tell(&message, ack, fds);
    }

    /// The dirty log, and what is in flight.
    fn buffers(&mut self, ack: bool, input: &mut Input<'_>) {
        let how = input.u8();
        let (size, offset) = (u64::from(input.u16()), u64::from(input.u8()) * 4);
        let inflight = Inflight {
            size,
            offset,
            queues: u16::from(how >> 4),
            queue_size: input.u16() & 0x1ff,
        };
        let (message, fds) = match how & 3 {
            0 => (
                Message::SetLogBase(LogBase::Shared(Log { size, offset })),
                &[Fd::File(1)][..],
            ),
            1 => (Message::SetLogBase(LogBase::Address(size)), &[][..]),
            2 => (Message::GetInflightFd(inflight), &[][..]),
            _ => (Message::SetInflightFd(inflight), &[Fd::File(1)][..]),
        };
        let fds = if how & 12 == 12 { &[] } else { fds };
        self.tell(&message, ack, fds);
    }

    fn state(&mut self, ack: bool, input: &mut Input<'_>) {
        let how = input.u8();
        let state = DeviceState {
            direction: if how & 1 == 0 {
                Direction::Save
            } else {
                Direction::Load
            },
            phase: u32::from(how >> 6 == 3),
        };
        if how & 2 == 0 {
            // A memfd ends at once, and takes all.
            self.tell(&Message::SetDeviceStateFd(state), ack, &[Fd::File(1)]);
        } else {
            self.tell(&Message::CheckDeviceState, ack, &[]);
        }
    }

    fn network(&mut self, ack: bool, input: &mut Input<'_>) {
        let how = input.u8();
        let data = input.bytes(usize::from(how >> 4));
        let config = Config {
            offset: u32::from(input.u8()),
            flags: u32::from(how >> 2 & 3),
            data,
        };
        let message = match how & 3 {
            0 => Message::GetConfig(config),
            1 => Message::SetConfig(config),
            2 => Message::NetSetMtu(u64::from(input.u32())),
            _ => Message::SendRarp([how, 1, 2, 3, 4, 5]),
        };
        self.tell(&message, ack, &[]);
    }

    fn noise(&mut self, more: u8, input: &mut Input<'_>) {
        if self.lost {
            return;
        }
        self.wild = true;
        let mut bytes = input.bytes(usize::from(more) + 1).to_vec();
        if more & 1 != 0 {
            // A header that is one, of any request.
            let header = Header {
                request: u32::from(input.u8() % 48),
                flags: 1 | u32::from(input.u8() & 8),
                size: bytes.len() as u32,
            };
            bytes.splice(..0, header.to_bytes());
        }
        if self.client.send_raw(&bytes, &[]).is_err() {
            self.lost = true;
        }
        self.serve(64);
    }

    /// A front end that is still there is answered. When it has gone nothing is left of it.
    fn finish(mut self) {
        self.serve(64);
        if !self.lost && !self.wild {
            self.tell(&Message::GetFeatures, false, &[]);
            while !self.lost
                && self
                    .asked
                    .contains(&(Message::GetFeatures.request() as u32))
            {
                // Another thread closes what was refused.
                let (set, client) = (self.set.as_fd(), self.client.as_fd());
                let woken = either([set, client], &PATIENCE);
                assert!(woken, "a front end is not answered: {:?}", self.asked);
                self.serve(64);
            }
        }
        let Self {
            client,
            mut server,
            mut device,
            set,
            ..
        } = self;
        drop(client);
        while server.connected() {
            server.process(&mut device, 64).expect("it ends");
            if server.connected() {
                assert!(readable(set.as_fd(), &PATIENCE), "its end is not seen");
            }
        }
        server.process(&mut device, 64).expect("it has ended");
        device.is_left_alone();
        assert!(server.memory().regions().is_empty());
    }
}

/// One of the front end's descriptors.
#[derive(Clone, Copy)]
enum Fd {
    File(usize),
    Event(usize),
}

fn readable(fd: BorrowedFd<'_>, patience: &Timespec) -> bool {
    either([fd], patience)
}

fn either<const N: usize>(fds: [BorrowedFd<'_>; N], patience: &Timespec) -> bool {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    poll(&mut fds, Some(patience)).is_ok_and(|n| n > 0)
}
