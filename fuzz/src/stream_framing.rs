//! The stream port: what a peer writes is cut anywhere, and what is sent may find no room.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use frame::Batch;
use port::{Inlet, InletStatus, Port, counter};
use port_stream::{Endpoint, MAX_FRAME, StreamConfig};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};
use wire::Offload;

use crate::input::Input;
use crate::machine::some_notes;
use crate::taker::Taker;

const ETH_HLEN: usize = 14;
/// Bytes of one run.
const MOST: usize = 600 << 10;

/// A peer of a stream port: the bytes that it writes, in pieces, and the frames that it is sent.
///
/// However the bytes are cut, the frames in them arrive whole, once and in order, until a length that
/// is none; those too short for Ethernet are counted. What is sent arrives as the frames that were
/// accepted, and every other one is counted.
pub fn stream_framing(data: &[u8]) {
    let mut input = Input::new(data);
    // Out of descriptors is not what is tested here.
    let Ok((ours, peer)) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    ) else {
        return;
    };
    let mut config = StreamConfig::new(Endpoint::Fd(ours));
    // No clock: a peer that does not read is given up at once.
    (config.patience, config.retry_min, config.retry_max) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let Ok(mut port) = port_stream::open(config) else {
        return;
    };
    let inlet = port.inlet.take().expect("a way in");
    let mut stream = Stream {
        port,
        inlet,
        peer,
        to: Taker::default(),
        written: Vec::new(),
        queued: VecDeque::new(),
        sent: Vec::new(),
        read: Vec::new(),
        offered: 0,
    };
    stream.to.unlimit();
    stream.run(1);
    for _ in 0..96 {
        let Some(op) = input.op() else { break };
        stream.step(op, &mut input);
    }
    stream.finish();
}

struct Stream {
    port: Port,
    inlet: Box<dyn Inlet>,
    peer: OwnedFd,
    to: Taker,
    /// All that the peer has written or is going to.
    written: Vec<u8>,
    /// What of that has not gone out yet.
    queued: VecDeque<u8>,
    /// Frames that the port was offered and took, plain ones that it may send.
    sent: Vec<Vec<u8>>,
    /// What the peer has read.
    read: Vec<u8>,
    offered: u64,
}

impl Stream {
    fn step(&mut self, op: u8, input: &mut Input<'_>) {
        let more = usize::from(op >> 4);
        match op & 15 {
            0..=3 => {
                // A frame of some length, with its true length before it.
                let len = match more {
                    0..4 => usize::from(input.u8()),
                    4..8 => usize::from(input.u8()) + 1400,
                    8..10 => MAX_FRAME - usize::from(input.u8() & 3),
                    10 => MAX_FRAME + usize::from(input.u8()),
                    _ => ETH_HLEN - 2 + usize::from(input.u8() & 3),
                };
                let fill = input.u8();
                self.queue(&(len as u32).to_be_bytes());
                let body: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(fill)).collect();
                self.queue(&body);
            }
            4 => {
                let bytes = input.bytes(more);
                self.queue(bytes);
            }
            5 => {
                let len = input.value();
                self.queue(&len.to_be_bytes());
            }
            6..=8 => {
                let n = match more {
                    0..6 => usize::from(input.u8() & 7) + 1,
                    6..12 => usize::from(input.u8()),
                    _ => usize::from(input.u16()),
                };
                self.push(n);
                self.run(usize::from(input.u8()));
            }
            9 => self.to.set_room(usize::from(input.u8() & 15)),
            10 => self.to.unlimit(),
            11..=13 => self.send(more, input),
            14 => self.drain(),
            _ => {
                self.run(more);
            }
        }
    }

    fn queue(&mut self, bytes: &[u8]) {
        if self.written.len() + bytes.len() <= MOST {
            self.written.extend_from_slice(bytes);
            self.queued.extend(bytes);
        }
    }

    /// The peer writes up to `n` bytes, if the socket has room. `false` when nothing went.
    fn push(&mut self, n: usize) -> bool {
        let (front, _) = self.queued.as_slices();
        let n = n.min(front.len());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.peer, &front[..n], flags) {
            Ok(n) => {
                self.queued.drain(..n);
                n > 0
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            // It has hung up, as it may after a length that is none.
            Err(_) => {
                self.queued.clear();
                false
            }
        }
    }

    fn run(&mut self, budget: usize) -> InletStatus {
        self.inlet.run(&self.to, budget)
    }

    /// Offers frames to the port.
    fn send(&mut self, more: usize, input: &mut Input<'_>) {
        let notes = if more == 15 {
            some_notes(input)
        } else {
            Offload::NONE
        };
        let len = match more & 3 {
            0 => MAX_FRAME - 2 + usize::from(input.u8() & 3),
            1 => usize::from(input.u16()),
            _ => ETH_HLEN + usize::from(input.u8()),
        };
        let fill = input.u8();
        let count = if more & 4 == 0 { 1 } else { 5 };
        let frame: Vec<u8> = (0..len).map(|i| (i as u8) ^ fill).collect();
        let mut batch = Batch::new();
        for _ in 0..count {
            batch.push_bytes(&frame);
            batch.end(notes);
        }
        let mut picks = Vec::new();
        let before = self.count("frames_out");
        let dealt = self.port.sink.deliver(&batch, batch.all_picks(&mut picks));
        assert!(dealt <= count);
        self.offered += dealt as u64;
        let taken = self.count("frames_out") - before;
        assert!(taken == 0 || notes.is_plain() && len <= MAX_FRAME);
        self.sent.extend((0..taken).map(|_| frame.clone()));
    }

    /// The peer reads what is there.
    fn drain(&mut self) {
        let mut room = [0; 16 << 10];
        while let Ok((n @ 1.., _)) = recv(&self.peer, &mut room[..], RecvFlags::DONTWAIT) {
            self.read.extend_from_slice(&room[..n]);
        }
    }

    fn count(&self, name: &str) -> u64 {
        counter(&*self.port.counters, name).expect(name)
    }

    /// The peer writes the rest and leaves; everything must have come to its place.
    fn finish(mut self) {
        self.to.unlimit();
        for round in 0.. {
            assert!(round < 1 << 16, "it never takes all");
            let moved = self.push(usize::MAX);
            let status = self.run(256);
            self.drain();
            if !moved && self.queued.is_empty() && status != InletStatus::More {
                break;
            }
        }
        // What waited is sent before the peer leaves.
        for _ in 0..64 {
            self.run(256);
            self.drain();
        }
        let written = std::mem::take(&mut self.written);
        let expected = Expected::of(&written);
        let hung_up = expected.bad_length;
        if !hung_up {
            assert!(self.inlet.link_up(), "it has hung up on good lengths");
        }
        let _ = shutdown(&self.peer, Shutdown::Write);
        let mut closed = false;
        for _ in 0..4096 {
            if let InletStatus::Closed(_) = self.run(256) {
                closed = true;
                break;
            }
        }
        self.drain();
        assert!(closed, "it never notices that the peer has left");
        let got = self.to.take();
        let same = got.iter().map(|(frame, _)| &frame[..]);
        assert!(same.eq(expected.frames.iter().copied()), "other frames");
        let bytes: usize = expected.frames.iter().map(|frame| frame.len()).sum();
        for (name, value) in [
            ("frames_in", expected.frames.len() as u64),
            ("bytes_in", bytes as u64),
            ("stream_runt", expected.runts),
            ("stream_bad_length", u64::from(expected.bad_length)),
            ("stream_connects", 1),
            ("stream_disconnects", 1),
        ] {
            assert_eq!(self.count(name), value, "{name}");
        }
        self.check_sent(hung_up);
    }

    /// What the peer has read are the frames that were taken; all of them, if it was not hung up on.
    fn check_sent(&self, hung_up: bool) {
        let framed = self.sent.iter().flat_map(|frame| {
            let len = (frame.len() as u32).to_be_bytes();
            len.into_iter().chain(frame.iter().copied())
        });
        let mut framed = framed.peekable();
        for (at, byte) in self.read.iter().enumerate() {
            assert_eq!(framed.next().as_ref(), Some(byte), "byte {at}");
        }
        assert!(hung_up || framed.peek().is_none(), "frames are missing");
        let fates = [
            "frames_out",
            "stream_down",
            "stream_stalled",
            "stream_too_long",
            "stream_cannot_take",
        ];
        let told: u64 = fates.iter().map(|name| self.count(name)).sum();
        assert_eq!(told, self.offered, "frames without a fate");
    }
}

/// What a slow and simple reader makes of the bytes.
struct Expected<'b> {
    frames: Vec<&'b [u8]>,
    runts: u64,
    bad_length: bool,
}

impl<'b> Expected<'b> {
    fn of(mut bytes: &'b [u8]) -> Self {
        let mut all = Self {
            frames: Vec::new(),
            runts: 0,
            bad_length: false,
        };
        while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
            let len = u32::from_be_bytes(*head) as usize;
            if len > MAX_FRAME {
                all.bad_length = true;
                break;
            }
            let Some(frame) = rest.get(..len) else { break };
            bytes = &rest[len..];
            if len < ETH_HLEN {
                all.runts += 1;
            } else {
                all.frames.push(frame);
            }
        }
        all
    }
}
