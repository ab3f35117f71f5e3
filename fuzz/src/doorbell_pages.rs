//! Doorbells in memory: a guest stores anything there, between messages and while its NIC sends.

mod board;

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use intel_offsets::e1000::long::{RDFH, RDFPC};
use intel_offsets::igb::long::RTTBCNRC;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags,
    SocketType, recvmsg, send, socketpair,
};
use vfio_user::codec::{
    Capabilities, Command, HEADER_LEN, Header, RegionAccess, RegionInfo, Version, flags, region,
};
use vfio_user::pci::{Bar, Doorbells, Msix};
use vfio_user::{DeviceDescription, Listener, MappedDoorbells, Server, SharedMem};

use crate::input::Input;
use board::{Board, Kind};

const BAR0: u64 = 128 << 10;
const BAR3: u64 = 16 << 10;
const CTRL: u64 = 0;
/// Calls of the server after which it must have come to rest.
const ROUNDS: usize = 64;

/// A guest that has the pages of its doorbells, or a VMM that maps them for it. The first byte says
/// which NIC it is.
///
/// A look writes each register at most once and touches no guest memory. The server comes to rest, and
/// then each page shows what the device has, and no doorbell is left unheard. Messages and pages
/// agree; only of the rates of a PF's queues a page shows one, and of an 82540EM's packet FIFO what it was. What a client that has gone still stores has no effect.
pub fn doorbell_pages(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(mut rig) = Rig::new(input.u8()) else {
        return;
    };
    for _ in 0..96 {
        let Some(op) = input.op() else { break };
        rig.step(op, &mut input);
    }
    rig.rest();
    rig.leave();
}

struct Rig {
    server: Server,
    board: Board,
    socket: OwnedFd,
    /// The whole BAR; only pages with doorbells mean something.
    pages: SharedMem,
    layout: Doorbells,
    registers: Vec<u32>,
    id: u16,
}

impl Rig {
    fn new(setup: u8) -> Option<Rig> {
        let board = Board::new(setup);
        let layout = board.nic.control.doorbells()?;
        let description = DeviceDescription::new(0x8086, 0x10ca)
            .bar(0, Bar::memory32(BAR0))
            .bar(3, Bar::memory32(BAR3))
            .msix(Msix {
                vectors: 3,
                table_bar: 3,
                table_offset: 0,
                pba_bar: 3,
                pba_offset: 0x2000,
            })
            .doorbells(layout.clone());
        // Out of descriptors is not what is tested here.
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let (ours, theirs) = socketpair(unix, stream, SocketFlags::CLOEXEC, None).ok()?;
        let mut server = Server::new(description, Listener::from_connected(theirs)).ok()?;
        let mut board = board;
        let version = Version {
            major: 0,
            minor: 1,
            capabilities: Capabilities::default(),
        };
        let ask = RegionInfo {
            argsz: 4096,
            index: region::BAR0,
            ..RegionInfo::default()
        };
        let mut fds = Vec::new();
        let questions = [
            (Command::Version, version.to_bytes()),
            (Command::GetRegionInfo, ask.to_bytes().to_vec()),
        ];
        for (id, (command, payload)) in (1..).zip(questions) {
            send(
                &ours,
                &message(id, command, 0, &payload),
                SendFlags::NOSIGNAL,
            )
            .ok()?;
            server.process(&mut board, 64).ok()?;
            receive(&ours, &mut fds);
        }
        let pages = SharedMem::from_fd(fds.pop()?, 0, BAR0 as usize).ok()?;
        let registers = layout.registers().collect();
        Some(Rig {
            server,
            board,
            socket: ours,
            pages,
            layout,
            registers,
            id: 10,
        })
    }

    fn step(&mut self, op: u8, input: &mut Input<'_>) {
        let more = usize::from(op >> 4);
        match op & 15 {
            0..=2 => {
                // Any word of a page.
                let (page, len) = self.layout.pages[more % self.layout.pages.len()];
                let at = page + u32::from(input.u16()) * 4 % len;
                self.store(at, input.value());
            }
            3..=5 => {
                let at = self.registers[usize::from(input.u8()) % self.registers.len()];
                let value = if more & 1 == 0 {
                    input.value()
                } else {
                    self.load(at) ^ 1 << (input.u8() & 31)
                };
                self.store(at, value);
            }
            6 | 7 => {
                // As a driver sends: packets, and the tail behind them.
                let queue = more % self.board.queues();
                let next = self.board.packets(queue, input.u8());
                let at = self.board.tail(queue);
                self.store(at, next);
            }
            8 => {
                // As a driver sets a queue up, in memory or by messages.
                let queue = more % self.board.queues();
                let by_message = more & 8 != 0;
                for (at, value) in self.board.set_up(queue) {
                    if by_message {
                        self.write(at.into(), &value.to_le_bytes());
                    } else {
                        self.store(at, value);
                    }
                }
            }
            9 => {
                let at = match more {
                    0 => CTRL,
                    1..4 => u64::from(input.u16()),
                    _ => self.registers[usize::from(input.u8()) % self.registers.len()].into(),
                };
                let value = input.value().to_le_bytes();
                let len = [4, 4, 2, 1][more & 3];
                self.write(at, &value[..len]);
            }
            10 => {
                let at = self.registers[usize::from(input.u8()) % self.registers.len()];
                // What was stored before the message is applied before it.
                self.write(at.into(), &input.value().to_le_bytes());
                self.rest();
            }
            11 => self.board.set_room(more),
            12 => {
                self.command(Command::Reset, &[]);
            }
            13 => {
                self.turn();
            }
            _ => self.rest(),
        }
    }

    fn store(&self, at: u32, value: u32) {
        self.pages.store_u32(at as usize, value, Ordering::Release);
    }

    fn load(&self, at: u32) -> u32 {
        self.pages.load_u32(at as usize, Ordering::Acquire)
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let access = RegionAccess {
            offset,
            region: region::BAR0,
            count: data.len() as u32,
        };
        self.command(
            Command::RegionWrite,
            &[&access.to_bytes()[..], data].concat(),
        );
    }

    /// A message that wants no answer. The server does not read it before its next turn.
    fn command(&mut self, command: Command, payload: &[u8]) {
        self.id = self.id.wrapping_add(1);
        let bytes = message(self.id, command, flags::NO_REPLY, payload);
        let how = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut sent = send(&self.socket, &bytes, how);
        if sent == Err(Errno::AGAIN) {
            // So many that the socket is full.
            self.rest();
            sent = send(&self.socket, &bytes, how);
        }
        assert_eq!(sent, Ok(bytes.len()), "the server has hung up");
    }

    /// One turn of the server, within its bounds. Whether it wants another.
    fn turn(&mut self) -> bool {
        let before = self.board.writes;
        let progress = self.server.process(&mut self.board, 64);
        let progress = progress.expect("a client is no error of the server");
        let looks = progress.messages as u64 + 1;
        let most = looks * (self.registers.len() as u64 + 8);
        let writes = self.board.writes - before;
        assert!(writes <= most, "{writes} writes in {looks} looks");
        assert!(progress.connected, "the server has hung up");
        let mut fds = Vec::new();
        // Errors of messages are answered even so.
        receive(&self.socket, &mut fds);
        progress.more || progress.messages > 0 || progress.doorbells > 0
    }

    /// Turns until there is nothing left to do; then memory and device agree.
    fn rest(&mut self) {
        for round in 0.. {
            assert!(round < ROUNDS, "the server never rests");
            if !self.turn() {
                break;
            }
        }
        // Of a PF's rates the one is there that was written last: which queue's is for RTTDQSEL to say.
        // The FIFO of an 82540EM fills and empties between two looks.
        let single = self.board.kind == Kind::Single;
        let plain = |at: &&u32| {
            let at = u64::from(**at);
            at != RTTBCNRC && !(single && (RDFH..=RDFPC).contains(&at))
        };
        for &at in self.registers.iter().filter(plain) {
            let (shown, has) = (self.load(at), self.board.register(at));
            assert_eq!(shown, has, "register {at:#x} and its memory");
        }
        let bell = self.server.bell().expect("a client has the pages");
        assert!(!bell.rung(), "a doorbell was not heard");
    }

    /// The client goes; its mapping stays.
    fn leave(self) {
        let Rig {
            mut server,
            mut board,
            socket,
            pages,
            registers,
            ..
        } = self;
        let bell: Option<MappedDoorbells> = server.bell().cloned();
        drop(socket);
        for _ in 0..4 {
            server.process(&mut board, 64).expect("no error of ours");
        }
        let before = board.writes;
        for &at in &registers {
            pages.store_u32(at as usize, u32::MAX, Ordering::Release);
        }
        for _ in 0..4 {
            server.process(&mut board, 64).expect("no error of ours");
        }
        assert_eq!(board.writes, before, "a client that has gone is heard");
        let bell = bell.expect("there was one");
        assert!(!bell.is_live() && !bell.rung() && server.bell().is_none());
    }
}

fn message(id: u16, command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        id,
        command: command as u16,
        size: (HEADER_LEN + payload.len()) as u32,
        flags,
        error: 0,
    };
    [&header.to_bytes()[..], payload].concat()
}

/// Reads what the server says, with its descriptors.
fn receive(socket: &OwnedFd, fds: &mut Vec<OwnedFd>) {
    let mut room = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut room)];
    let how = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    if recvmsg(socket, &mut slices, &mut control, how).is_err() {
        return;
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
}
