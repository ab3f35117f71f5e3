//! How a driver hands packets over.

use super::super::context::reg;
use super::Generator;
use crate::oracle::layout::{TX_BUFFERS, TX_RING};
use crate::oracle::packet::Packet;
use crate::oracle::script::Op;

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
