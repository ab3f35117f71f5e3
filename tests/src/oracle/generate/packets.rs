//! TCP and UDP packets, and how a driver hands packets over.

use super::super::context::reg;
use super::super::script::Op;
use super::super::{TX_BUFFERS, TX_RING};
use super::{Dice, Generator};

/// A TCP or UDP packet over IP, with sums left to whoever sends it.
pub(super) struct Packet {
    pub v6: bool,
    pub tcp: bool,
    /// Where IP, the header behind it and the payload begin.
    pub ip: usize,
    pub l4: usize,
    pub payload: usize,
    pub bytes: Vec<u8>,
}

fn sum(bytes: &[u8], seed: u32) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    words.fold(seed, |sum, word| sum + word)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

impl Packet {
    pub(super) fn draw(dice: &mut Dice, dst: [u8; 6]) -> Self {
        let len = match dice.below(4) {
            0 => dice.below(64) as usize,
            1 => dice.below(1400) as usize,
            _ => 100 + dice.below(200) as usize,
        };
        Self::build(dice, dst, len, [60, 40])
    }

    /// A packet with this much payload; chances in percent of IPv4 and UDP.
    pub(super) fn build(dice: &mut Dice, dst: [u8; 6], len: usize, [v4, udp]: [u64; 2]) -> Self {
        let (v6, tcp) = (!dice.chance(v4), !dice.chance(udp));
        let mut bytes = dst.to_vec();
        bytes.extend_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        let l4_len = if tcp { 20 } else { 8 };
        let ip = 14;
        let protocol = if tcp { 6 } else { 17 };
        if v6 {
            bytes.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend_from_slice(&((l4_len + len) as u16).to_be_bytes());
            bytes.extend_from_slice(&[protocol, 64]);
            bytes.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            bytes.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        } else {
            bytes.extend_from_slice(&[8, 0, 0x45, 0]);
            bytes.extend_from_slice(&((20 + l4_len + len) as u16).to_be_bytes());
            let id = dice.next() as u16;
            bytes.extend_from_slice(&id.to_be_bytes());
            bytes.extend_from_slice(&[0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let l4 = bytes.len();
        bytes.extend_from_slice(&[0x12, 0x34, 0x00, 0x50]);
        if tcp {
            let seq = dice.next() as u32;
            bytes.extend_from_slice(&seq.to_be_bytes());
            let flags = dice.pick(&[0x10, 0x18, 0x19, 0x11]);
            bytes.extend_from_slice(&[0, 0, 0, 9, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        } else {
            bytes.extend_from_slice(&((8 + len) as u16).to_be_bytes());
            bytes.extend_from_slice(&[0, 0]);
        }
        let payload = bytes.len();
        let fill = dice.next() as u8;
        bytes.extend((0..len).map(|i| (i / 64) as u8 ^ fill));
        Self {
            v6,
            tcp,
            ip,
            l4,
            payload,
            bytes,
        }
    }

    /// Where the checksum of TCP or UDP stands.
    pub(super) fn field(&self) -> usize {
        self.l4 + if self.tcp { 16 } else { 6 }
    }

    /// The sum of the pseudo header, with the length or without.
    fn pseudo(&self, len: usize) -> u16 {
        let addresses = if self.v6 {
            self.ip + 8..self.ip + 40
        } else {
            self.ip + 12..self.ip + 20
        };
        let protocol = if self.tcp { 6 } else { 17 };
        fold(sum(&self.bytes[addresses], protocol + len as u32))
    }

    fn put(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// With the seeds that a driver puts in; `segment` leaves the length out.
    pub(super) fn seed(&mut self, segment: bool) {
        let len = if segment {
            0
        } else {
            self.bytes.len() - self.l4
        };
        let seed = self.pseudo(len);
        self.put(self.field(), seed);
    }

    /// With all sums as they are on a wire.
    pub(super) fn whole(mut self) -> Vec<u8> {
        self.seed(false);
        let value = !fold(sum(&self.bytes[self.l4..], 0));
        self.put(self.field(), value);
        if !self.v6 {
            let value = !fold(sum(&self.bytes[self.ip..self.l4], 0));
            self.put(self.ip + 10, value);
        }
        self.bytes
    }
}

/// Command bits of transmit descriptors.
const EOP: u8 = 1;
const IFCS: u8 = 2;
const TSE: u8 = 4;
const RS: u8 = 8;
const DEXT: u8 = 0x20;
const VLE: u8 = 0x40;
const IDE: u8 = 0x80;

impl Generator {
    /// Puts bytes into the transmit buffers.
    fn place(&mut self, bytes: &[u8]) -> u64 {
        if self.tx_at + bytes.len() as u64 > TX_BUFFERS + 0x1_0000 {
            self.tx_at = TX_BUFFERS;
        }
        let at = self.tx_at;
        self.ops.push(Op::Mem {
            at,
            bytes: bytes.to_vec(),
        });
        self.tx_at += bytes.len() as u64;
        at
    }

    /// Command bits that vary from packet to packet.
    fn command(&mut self) -> u8 {
        let mut cmd = IFCS;
        for (bit, chance) in [(RS, 80), (VLE, 20), (IDE, 10)] {
            if self.dice.chance(chance) {
                cmd |= bit;
            }
        }
        cmd
    }

    fn tci(&mut self) -> u16 {
        self.dice.pick(&[0, 5, 0x2064, 0x7fff, 0xffff])
    }

    /// Data or legacy descriptors for a packet, cut into a few pieces.
    fn pieces(&mut self, bytes: &[u8], data: bool, extra: u8, popts: u8) {
        let count = if self.dice.chance(60) {
            1
        } else {
            1 + self.dice.below(4) as usize
        };
        let (mut cmd, tci) = (self.command() | extra, self.tci());
        let mut rest = bytes;
        for i in 0..count {
            let last = i + 1 == count || rest.is_empty();
            let n = if last {
                rest.len()
            } else {
                1 + self.dice.below(rest.len() as u64) as usize
            };
            let (part, behind) = rest.split_at(n);
            rest = behind;
            let at = self.place(part);
            if self.dice.chance(5) {
                cmd ^= RS;
            }
            let end = if rest.is_empty() { EOP } else { 0 };
            let mut desc = [0; 16];
            desc[..8].copy_from_slice(&at.to_le_bytes());
            desc[8..10].copy_from_slice(&(n as u16).to_le_bytes());
            desc[11] = cmd | end;
            if data {
                desc[10] = 0x10;
                desc[11] |= DEXT;
                desc[13] = popts;
            }
            desc[14..].copy_from_slice(&tci.to_le_bytes());
            self.descs.push(desc);
            if rest.is_empty() {
                break;
            }
        }
    }

    /// Writes the descriptors into the ring and tells the NIC.
    pub(super) fn post(&mut self) {
        for desc in std::mem::take(&mut self.descs) {
            let at = TX_RING + u64::from(self.tx_tail) * 16;
            self.ops.push(Op::Mem {
                at,
                bytes: desc.to_vec(),
            });
            self.tx_tail = (self.tx_tail + 1) % self.tx_len;
        }
        let tail = self.tx_tail;
        self.write(reg::TDT, tail);
    }

    pub(super) fn send_plain(&mut self) {
        let most = self.tx_len as usize - 1;
        for _ in 0..1 + self.dice.below(2) {
            let dst = self.any_address();
            let mut frame = self.frame(dst);
            if frame.len() > 4096 || self.volume > 0x1_0000 {
                frame.truncate(200);
            }
            let data = self.dice.chance(40);
            let before = self.descs.len();
            self.pieces(&frame, data, 0, 0);
            if self.descs.len() > most {
                self.descs.truncate(before);
                break;
            }
            self.volume += frame.len();
        }
        self.post();
    }

    /// A packet with a context: checksums, or segmentation.
    pub(super) fn send_with_context(&mut self) {
        let segment = self.dice.chance(50);
        let dst = self.any_address();
        let len = match (segment, self.dice.below(10)) {
            (true, 0..7) => 1 + self.dice.below(3000) as usize,
            (true, 7..9) => self.dice.pick(&[536, 1072, 1460, 2920, 100, 300]),
            (true, _) => 1 + self.dice.below(20_000) as usize,
            (false, _) => self.dice.below(1400) as usize,
        };
        if self.volume > 0x1_0000 {
            return self.send_plain();
        }
        self.volume += len;
        let kinds = if segment { [90, 5] } else { [60, 40] };
        let mut packet = Packet::build(&mut self.dice, dst, len, kinds);
        packet.seed(segment);
        let mss = self.dice.pick(&[100, 536, 1000, 1460, 1448]);
        let mss = if segment { mss.max(len / 20) } else { 0 };
        let mut desc = [0; 16];
        let ip_end = if packet.v6 { 0 } else { packet.l4 - 1 };
        desc[0] = packet.ip as u8;
        desc[1] = packet.ip as u8 + 10;
        desc[2..4].copy_from_slice(&(ip_end as u16).to_le_bytes());
        desc[4] = packet.l4 as u8;
        desc[5] = packet.field() as u8;
        let mut command = DEXT | u8::from(packet.tcp) | if packet.v6 { 0 } else { 2 };
        if segment {
            let paylen = packet.bytes.len() - packet.payload;
            desc[8..11].copy_from_slice(&(paylen as u32).to_le_bytes()[..3]);
            command |= TSE;
            desc[13] = packet.payload as u8;
            desc[14..].copy_from_slice(&(mss as u16).to_le_bytes());
        }
        if self.dice.chance(10) {
            command |= RS;
        }
        desc[11] = command;
        let most = self.tx_len as usize - 1;
        self.descs.push(desc);
        let ip_sum = u8::from(!packet.v6 && (segment || self.dice.chance(70)));
        let l4_sum = if segment || self.dice.chance(80) {
            2
        } else {
            0
        };
        let extra = if segment { TSE } else { 0 };
        self.pieces(&packet.bytes.clone(), true, extra, ip_sum | l4_sum);
        if self.descs.len() > most {
            self.descs.clear();
            return;
        }
        self.post();
    }
}
