//! A client of the server's, and what it holds the server to.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use vfio_user::codec::{
    Capabilities, Command, DmaAccess, DmaMap, DmaUnmap, HEADER_LEN, Header, RegionAccess,
    TwinSocket, Version, WriteEntry, flags,
};
use vfio_user::{EventSet, Server};

use super::device::{BAR0, Registers};
use super::words::{address, ask, memfd, question, region_of, set_irqs};
use crate::input::Input;

/// A client that speaks the protocol well enough to reach every part of the server.
pub(super) struct Peer {
    pub(super) socket: OwnedFd,
    pub(super) server: Server,
    /// Where its descriptors are watched.
    pub(super) set: EventSet,
    pub(super) device: Registers,
    /// Messages not sent yet.
    pub(super) out: Vec<u8>,
    /// Room for what comes.
    pub(super) room: Vec<u8>,
    /// Ids of commands that must be answered, in order.
    pub(super) due: VecDeque<u16>,
    /// Bytes that came and are no whole message yet.
    pub(super) got: Vec<u8>,
    /// The stream can no longer be followed by counting messages.
    pub(super) lost: bool,
    /// Commands of the server's that wait for our answer.
    pub(super) asked: VecDeque<(Header, u64)>,
    /// Most that a reply may carry.
    pub(super) max_data: usize,
    pub(super) id: u16,
    pub(super) sent: u64,
}

impl Peer {
    pub(super) fn version(&mut self, setup: u8, input: &mut Input<'_>) {
        let max = match setup >> 2 & 3 {
            0 => Some(4096),
            1 => Some(u32::from(input.u8())),
            2 => Some(input.u32()),
            _ => None,
        };
        self.max_data = max.map_or(1 << 20, |n| (n as usize).clamp(1, 1 << 20));
        let version = Version {
            major: 0,
            minor: 1,
            capabilities: Capabilities {
                max_data_xfer_size: max,
                write_multiple: Some(true),
                twin_socket: (setup & 16 != 0).then_some(TwinSocket {
                    supported: true,
                    fd_index: None,
                }),
                ..Capabilities::default()
            },
        };
        let payload = version.to_bytes();
        self.command(Command::Version as u16, 0, &payload);
    }

    /// Adds a command to what goes out next.
    fn command(&mut self, command: u16, more_flags: u32, payload: &[u8]) {
        self.id = self.id.wrapping_add(1);
        let header = Header {
            id: self.id,
            command,
            size: (HEADER_LEN + payload.len()) as u32,
            flags: more_flags,
            error: 0,
        };
        if header.is_command() && !header.no_reply() {
            self.due.push_back(self.id);
        }
        // Something that is neither command nor reply may be answered or not.
        self.lost |= !header.is_command() && !header.is_reply();
        self.out.extend_from_slice(&header.to_bytes());
        self.out.extend_from_slice(payload);
    }

    pub(super) fn step(&mut self, op: u8, input: &mut Input<'_>) {
        let quiet = if op & 0x80 != 0 { flags::NO_REPLY } else { 0 };
        let more = op >> 4 & 7;
        let argsz = match more {
            0..=5 => 256,
            6 => input.u32(),
            _ => 0,
        };
        match op & 15 {
            0 => {
                let access = RegionAccess {
                    offset: self.offset(input),
                    region: region_of(input),
                    count: self.count(input),
                };
                self.command(Command::RegionRead as u16, quiet, &access.to_bytes());
            }
            1 | 2 => {
                let len = usize::from(input.u8() & 31);
                let access = RegionAccess {
                    offset: self.offset(input),
                    region: region_of(input),
                    count: if more == 7 { input.u32() } else { len as u32 },
                };
                let mut payload = access.to_bytes().to_vec();
                payload.extend_from_slice(input.bytes(len));
                payload.resize(RegionAccess::LEN + len, 1);
                self.command(Command::RegionWrite as u16, quiet, &payload);
            }
            3 => {
                let payload = self.writes(more, input);
                self.command(Command::RegionWriteMulti as u16, quiet, &payload);
            }
            4 => {
                let map = DmaMap {
                    argsz,
                    flags: u32::from(input.u8()),
                    offset: u64::from(input.u8()) << 12 | u64::from(op & 0x40),
                    iova: address(input),
                    size: address(input),
                };
                self.command(Command::DmaMap as u16, quiet, &map.to_bytes());
                self.with_fds(input);
            }
            5 => {
                let unmap = DmaUnmap {
                    argsz,
                    flags: u32::from(input.u8()),
                    iova: address(input),
                    size: address(input),
                };
                self.command(Command::DmaUnmap as u16, quiet, &unmap.to_bytes());
            }
            6 => {
                let set = set_irqs(more, argsz, input);
                let mut payload = set.to_bytes().to_vec();
                payload.extend_from_slice(input.bytes(usize::from(more)));
                self.command(Command::SetIrqs as u16, quiet, &payload);
                self.with_fds(input);
            }
            7 => {
                let (command, bytes) = question(more, argsz, input);
                self.command(command as u16, quiet, &bytes);
            }
            8 => self.command(Command::Reset as u16, quiet, &[]),
            9 => {
                let len = usize::from(input.u8());
                self.command(u16::from(input.u8()), input.value(), input.bytes(len));
            }
            10 => {
                // No message at all.
                let len = usize::from(input.u8());
                self.lost = true;
                self.out.extend_from_slice(input.bytes(len));
            }
            11 => {
                let payload = ask(more, input);
                self.command(Command::RegionWrite as u16, quiet, &payload);
            }
            12 => self.answer(input),
            13 => {
                // Part of what waits goes out now, so that messages come in pieces.
                let n = usize::from(input.u8()).min(self.out.len());
                let rest = self.out.split_off(n);
                self.push(&[]);
                self.out = rest;
                self.turn();
            }
            _ => self.exchange(&[]),
        }
    }

    /// Several writes in one message, whose number may be a lie.
    fn writes(&mut self, more: u8, input: &mut Input<'_>) -> Vec<u8> {
        let entries = u64::from(more) + 1;
        let told = if input.u8() == 0 {
            input.u64()
        } else {
            entries
        };
        let mut payload = told.to_ne_bytes().to_vec();
        for _ in 0..entries {
            let entry = WriteEntry {
                offset: self.offset(input),
                region: region_of(input),
                count: u32::from(input.u8() & 15),
                data: input.u64(),
            };
            payload.extend_from_slice(&entry.to_bytes());
        }
        payload
    }

    fn offset(&mut self, input: &mut Input<'_>) -> u64 {
        match input.u8() {
            n @ 0..128 => u64::from(n),
            128..192 => 0x1000 + u64::from(input.u16() & 0xfff),
            192..240 => u64::from(input.u16()),
            _ => input.u64(),
        }
    }

    fn count(&mut self, input: &mut Input<'_>) -> u32 {
        match input.u8() {
            n @ 0..240 => u32::from(n & 15),
            240..250 => u32::from(input.u16()),
            _ => input.u32(),
        }
    }

    /// Sends the last message with descriptors, which need a send of their own.
    fn with_fds(&mut self, input: &mut Input<'_>) {
        let shape = input.u8();
        let count = [0, 1, 1, 1, 1, 2, 3, 17][usize::from(shape & 7)];
        let mut fds = Vec::new();
        for i in 0..count {
            let fd = match shape >> 3 & 3 {
                0 | 1 => memfd(u64::from(shape >> 5) * 0x1000),
                2 => eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok(),
                _ => self.socket.try_clone().ok().filter(|_| i == 0),
            };
            fds.extend(fd);
        }
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.push(&borrowed);
    }

    /// Answers a command of the server's, rightly or not.
    fn answer(&mut self, input: &mut Input<'_>) {
        let shape = input.u8();
        let Some((header, count)) = self.asked.pop_front() else {
            return;
        };
        let mut reply = header.reply(0);
        if shape & 1 != 0 {
            reply.id ^= u16::from(input.u8());
        }
        if shape & 2 != 0 {
            reply.flags |= flags::ERROR;
            reply.error = input.u32();
        }
        let mut payload = DmaAccess {
            iova: input.u64(),
            count,
        }
        .to_bytes()
        .to_vec();
        if header.command == Command::DmaRead as u16 {
            payload.resize(DmaAccess::LEN + count.min(1 << 16) as usize, 9);
        }
        if shape & 4 != 0 {
            payload.truncate(usize::from(input.u8()));
        }
        reply.size = (HEADER_LEN + payload.len()) as u32;
        self.out.extend_from_slice(&reply.to_bytes());
        self.out.extend_from_slice(&payload);
    }

    /// Sends what waits.
    fn push(&mut self, fds: &[BorrowedFd<'_>]) {
        let socket = self.socket.as_fd();
        let quiet = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let result = if fds.is_empty() {
            if self.out.is_empty() {
                return;
            }
            send(socket, &self.out, quiet)
        } else {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(fds));
            sendmsg(socket, &[IoSlice::new(&self.out)], &mut control, quiet)
        };
        let sent = result.unwrap_or(0);
        self.sent += sent as u64;
        // A full socket or one that is closed: the rest is gone, and with it the framing.
        self.lost |= sent < self.out.len();
        self.out.clear();
    }

    /// One turn of the server, and what it sent.
    ///
    /// A turn's device accesses are bounded by what came: a read of a few bytes on the socket can
    /// ask for a region, of which the largest has [`BAR0`] bytes in pieces of 8, a write has one
    /// piece for each of its bytes at most.
    fn turn(&mut self) -> bool {
        let before = self.device.accesses;
        let Ok(progress) = self.server.process(&mut self.device, 64) else {
            panic!("a client is no error of the server");
        };
        let most = (progress.messages as u64 + 1) * (BAR0 / 8 + 8) + self.sent;
        assert!(
            self.device.accesses - before <= most,
            "accesses without end"
        );
        self.listen();
        // We hold its end of the socket too, so that this does not show there.
        self.lost |= progress.finished;
        progress.more
    }

    /// Sends what waits and lets the server work until it rests.
    pub(super) fn exchange(&mut self, fds: &[BorrowedFd<'_>]) {
        self.push(fds);
        for round in 0.. {
            assert!(round < 4096, "the server never rests");
            if !self.turn() && !self.is_called() {
                break;
            }
        }
    }

    /// Whether the server's descriptors say that there is something to do.
    fn is_called(&self) -> bool {
        let mut fds = [PollFd::new(&self.set, PollFlags::IN)];
        // Nothing keeps an answer waiting but another thread that maps a file.
        let maps = !self.due.is_empty();
        let wait = Timespec {
            tv_sec: i64::from(maps),
            tv_nsec: 0,
        };
        // A client that is gone leaves a server of one connection nothing to wait for.
        !self.lost && poll(&mut fds, Some(&wait)).is_ok_and(|n| n > 0)
    }

    /// Reads what the server says and holds it to the protocol.
    fn listen(&mut self) {
        loop {
            match recv(&self.socket, &mut self.room[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    // It has hung up, as it may: what was still to be answered is void.
                    self.lost = true;
                    break;
                }
                Ok((n, _)) => self.got.extend_from_slice(&self.room[..n]),
                Err(Errno::AGAIN | Errno::INTR) => break,
                // It has hung up on what it had not read.
                Err(_) => {
                    self.lost = true;
                    break;
                }
            }
        }
        let mut at = 0;
        while let Some(header) = Header::parse(&self.got[at..]) {
            let size = header.size as usize;
            assert!(size >= HEADER_LEN, "a message of {size} bytes");
            assert!(
                size <= self.max_data.max(4096) + 4096,
                "a message of {size} bytes"
            );
            let Some(payload) = self.got.get(at + HEADER_LEN..at + size) else {
                break;
            };
            at += size;
            if header.is_reply() {
                if let Some(due) = self.due.pop_front() {
                    assert!(self.lost || due == header.id, "out of order");
                } else {
                    assert!(self.lost, "an answer without a question");
                }
            } else {
                let command = Command::from_u16(header.command);
                assert!(matches!(
                    command,
                    Some(Command::DmaRead | Command::DmaWrite)
                ));
                let access = DmaAccess::parse(payload).expect("our own words");
                self.asked.push_back((header, access.count));
            }
        }
        self.got.drain(..at);
    }
}
