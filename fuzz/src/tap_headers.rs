//! A TAP: the `virtio_net_hdr` before each frame, as read and as written.

use std::os::fd::OwnedFd;

use frame::{Batch, Caps};
use port::{Inlet, InletStatus, Port, counter};
use port_tap::Source;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use wire::{Gso, Offload};

use crate::input::Input;
use crate::machine::{some_frame, some_notes};
use crate::taker::Taker;

const HEADER: usize = 12;
const ETH_HLEN: usize = 14;

/// What the host's kernel may put before a frame, and what it is told of one.
///
/// Each frame read is passed on with notes that lie inside it, or counted as bad, or as beyond what
/// the receiver does; its bytes are those behind the header. Each frame to be written is, with a
/// header that says its notes, or is counted. What was written and is read again says the same.
pub fn tap_headers(data: &[u8]) {
    let mut input = Input::new(data);
    // Out of descriptors is not what is tested here.
    let Ok((ours, kernel)) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    ) else {
        return;
    };
    let Ok(mut port) = port_tap::open(Source::StandIn(ours)) else {
        return;
    };
    let inlet = port.inlet.take().expect("a way in");
    let bits = input.u8();
    let mut to = Taker::default();
    to.caps = Caps {
        csum: bits & 1 != 0,
        tso4: bits & 2 != 0,
        tso6: bits & 4 != 0,
        uso4: bits & 16 != 0,
        uso6: bits & 32 != 0,
        ecn: bits & 2 != 0,
        vlan: bits & 8 != 0,
    };
    to.unlimit();
    let mut tap = Tap {
        port,
        inlet,
        kernel,
        to,
        read: 0,
        written: 0,
        room: vec![0; 1 << 17],
    };
    let mut room = Vec::new();
    for _ in 0..64 {
        let Some(op) = input.op() else { break };
        tap.step(op, &mut input, &mut room);
    }
    tap.to.unlimit();
    tap.read_all();
    tap.check();
}

struct Tap {
    port: Port,
    inlet: Box<dyn Inlet>,
    /// The end of the kernel.
    kernel: OwnedFd,
    to: Taker,
    /// Frames that the kernel gave.
    read: u64,
    /// Frames that the port was to write.
    written: u64,
    room: Vec<u8>,
}

impl Tap {
    fn step(&mut self, op: u8, input: &mut Input<'_>, room: &mut Vec<u8>) {
        match op & 7 {
            0..=2 => {
                let header = header(op >> 3, input);
                let mut packet = header.to_vec();
                if op & 0x80 == 0 {
                    some_frame(input, room);
                } else {
                    tcp(input, room);
                }
                packet.extend_from_slice(room);
                self.give(&packet);
            }
            3 => {
                // Nothing but a piece of a header, or something longer than any packet.
                let len = match op >> 3 {
                    0 => 65536 + 40 + usize::from(input.u8()),
                    n => usize::from(n),
                };
                let mut packet = input.bytes(len).to_vec();
                packet.resize(len, 1);
                self.give(&packet);
            }
            4 => self.write(op, input, room),
            5 => {
                self.to.set_room(usize::from(op >> 3));
                self.inlet.run(&self.to, 8);
            }
            _ => {
                self.to.unlimit();
                self.read_all();
            }
        }
    }

    /// The kernel has a packet. One alone: what comes of it is compared with it.
    fn give(&mut self, packet: &[u8]) {
        self.to.unlimit();
        self.read_all();
        self.to.take();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if packet.is_empty() || send(&self.kernel, packet, flags).is_err() {
            return;
        }
        self.read += 1;
        let before = self.refused();
        self.read_all();
        let refused = self.refused() - before;
        let got = self.to.take();
        assert_eq!(refused == 1, got.is_empty(), "one fate for each");
        let Some(frame) = packet.get(HEADER..).filter(|f| f.len() >= ETH_HLEN) else {
            return assert_eq!(refused, 1, "a runt is passed on");
        };
        if let [(one, notes)] = &got[..]
            && notes.gso == Gso::None
            && packet[1] & 0x7f == 0
        {
            let finished = packet[0] & 1 != 0 && notes.csum.is_none();
            assert!(one.len() == frame.len(), "of another length");
            assert!(finished || one == frame, "other bytes");
        }
        for (one, notes) in &got {
            // Segments are padded.
            assert!(
                one.len() <= frame.len().max(60),
                "longer than what was read"
            );
            if notes.gso != Gso::None {
                assert!(one == frame, "other bytes");
                assert!(usize::from(notes.hdr_len) < frame.len() && notes.gso_size > 0);
            }
        }
    }

    fn count(&self, name: &str) -> u64 {
        counter(&*self.port.counters, name).expect(name)
    }

    /// Frames read and not passed on.
    fn refused(&self) -> u64 {
        self.count("tap_bad_header") + self.count("tap_sink_cannot_take")
    }

    fn read_all(&mut self) {
        for round in 0.. {
            assert!(round < 1024, "it is never empty");
            match self.inlet.run(&self.to, 64) {
                InletStatus::Idle => break,
                InletStatus::Closed(why) => panic!("closed: {why}"),
                _ => {}
            }
        }
    }

    /// Frames go out, and come back.
    fn write(&mut self, op: u8, input: &mut Input<'_>, room: &mut Vec<u8>) {
        let mut notes = if op & 0x80 == 0 {
            some_frame(input, room)
        } else {
            tcp(input, room);
            let mut notes = some_notes(input);
            if let Some(csum) = &mut notes.csum
                && op & 0x40 != 0
            {
                let udp = matches!(notes.gso, Gso::Udp4 | Gso::Udp6);
                (csum.start, csum.offset) = (34, if udp { 6 } else { 16 });
                notes.hdr_len = if udp { 42 } else { 54 };
            }
            notes
        };
        if notes.check(room.len()).is_err() {
            notes = Offload::NONE;
        }
        let mut batch = Batch::new();
        // In many pieces, too many for one system call, or few.
        let piece = if op & 8 == 0 {
            1024
        } else {
            room.len() / 80 + 1
        };
        for piece in room.chunks(piece) {
            batch.push_bytes(piece);
        }
        batch.end(notes);
        let before = self.count("frames_out");
        assert_eq!(self.port.sink.deliver(&batch, &[0]), 1, "a TAP never waits");
        self.written += 1;
        if self.count("frames_out") == before {
            return;
        }
        assert!(notes.vlan.is_none(), "there is no place for a tag");
        let (n, _) = recv(&self.kernel, &mut self.room[..], RecvFlags::DONTWAIT).expect("written");
        assert_eq!(&self.room[HEADER..n], &room[..], "other bytes");
        let packet = self.room[..n].to_vec();
        self.to.take();
        self.give_back(&packet, &notes);
    }

    /// What was written is read again: it says the same, or is refused as no frame of the kernel's.
    fn give_back(&mut self, packet: &[u8], notes: &Offload) {
        let caps = std::mem::replace(&mut self.to.caps, Caps::ALL);
        self.to.unlimit();
        self.read_all();
        self.to.take();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if send(&self.kernel, packet, flags).is_ok() {
            self.read += 1;
            self.read_all();
            for (frame, again) in self.to.take() {
                assert_eq!(&packet[HEADER..], &frame[..]);
                // Over which IP a datagram goes is read off the frame.
                let datagram = |gso| matches!(gso, Gso::Udp4 | Gso::Udp6);
                assert_eq!(again.csum, notes.csum);
                assert!(again.gso == notes.gso || datagram(again.gso) && datagram(notes.gso));
                if notes.gso != Gso::None {
                    assert_eq!((again.gso_size, again.ecn), (notes.gso_size, notes.ecn));
                }
            }
        }
        self.to.caps = caps;
    }

    /// Every frame has one fate.
    fn check(&self) {
        let read = self.count("frames_in") + self.refused();
        assert_eq!(read, self.read, "read frames without a fate");
        let fates = [
            "frames_out",
            "tap_gone",
            "tap_down",
            "tap_full",
            "tap_refused",
            "tap_bad_memory",
            "tap_cannot_take",
        ];
        let written: u64 = fates.iter().map(|name| self.count(name)).sum();
        assert_eq!(written, self.written, "written frames without a fate");
    }
}

/// A header: plain, for TCP segments, or anything.
fn header(kind: u8, input: &mut Input<'_>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    match kind & 3 {
        0 => {}
        1 => {
            let size = input.u16();
            header = [1, 1, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0];
            header[1] = [1, 4, 0x81, 0x84, 5, 5, 0x85, 3][usize::from(kind >> 2 & 7)];
            if header[1] == 5 {
                header[8] = 6;
            }
            header[4..6].copy_from_slice(&size.to_le_bytes());
        }
        2 => {
            header = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            (header[6], header[8]) = (input.u8(), input.u8());
        }
        _ => {
            let bytes = input.bytes(HEADER);
            header[..bytes.len()].copy_from_slice(bytes);
        }
    }
    header
}

/// A TCP packet of any length, of which a byte may be wrong.
fn tcp(input: &mut Input<'_>, room: &mut Vec<u8>) {
    room.clear();
    room.extend_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0]);
    room.resize(46, 6);
    room.extend_from_slice(&[0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    room.resize(54 + usize::from(input.u16()), 0x33);
    let total = (room.len() - ETH_HLEN).min(0xffff) as u16;
    room[16..18].copy_from_slice(&total.to_be_bytes());
    let at = usize::from(input.u8());
    if let Some(byte) = room.get_mut(at) {
        *byte = input.u8();
    }
}
