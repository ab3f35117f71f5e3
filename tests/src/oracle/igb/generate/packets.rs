//! How a driver hands packets over.

use super::super::context::reg;
use super::{Generator, RING};
use crate::oracle::layout::{TX_BUFFERS, TX_RING};
use crate::oracle::packet::Packet;
use crate::oracle::script::Op;

/// Command bits of transmit descriptors.
const EOP: u8 = 1;
const IFCS: u8 = 2;
const RS: u8 = 8;
const DEXT: u8 = 0x20;
const VLE: u8 = 0x40;
const TSE: u8 = 0x80;

/// What all data descriptors of a packet have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    command: u8,
    slot: u32,
    options: u32,
    payload: u32,
}

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

    /// Data descriptors for a packet, cut into a few pieces.
    pub(super) fn pieces(&mut self, bytes: &[u8], asked: Asked) {
        let count = if self.dice.chance(60) {
            1
        } else {
            1 + self.dice.below(4) as usize
        };
        let report = self.dice.chance(80);
        let stamp = self.stamp();
        let last = asked.slot << 4 | asked.options << 8 | asked.payload << 14;
        let mut rest = bytes;
        for i in 0..count {
            let n = if i + 1 == count || rest.len() < 2 {
                rest.len()
            } else {
                1 + self.dice.below(rest.len() as u64 - 1) as usize
            };
            let n = if i == 0 {
                n.max(self.least).min(rest.len())
            } else {
                n
            };
            let (part, behind) = rest.split_at(n);
            rest = behind;
            let at = self.place(part);
            let mut desc = [0; 16];
            desc[..8].copy_from_slice(&at.to_le_bytes());
            desc[8..10].copy_from_slice(&(n as u16).to_le_bytes());
            desc[10] = 0x30 | stamp;
            desc[11] = asked.command | DEXT | IFCS;
            if rest.is_empty() {
                desc[11] |= EOP;
            }
            if if rest.is_empty() {
                report
            } else {
                self.dice.chance(10)
            } {
                desc[11] |= RS;
            }
            desc[12..].copy_from_slice(&last.to_le_bytes());
            self.descs.push(desc);
            if rest.is_empty() {
                break;
            }
        }
    }

    /// Writes the descriptors into a ring and tells the NIC, if they fit.
    pub(super) fn post(&mut self, queue: usize) {
        let descs = std::mem::take(&mut self.descs);
        let ring = self.tx[queue];
        if descs.len() >= ring.len as usize {
            return;
        }
        let mut tail = ring.tail;
        for desc in descs {
            let at = TX_RING + u64::from(queue as u32 * RING + tail) * 16;
            self.ops.push(Op::Mem {
                at,
                bytes: desc.to_vec(),
            });
            tail = (tail + 1) % ring.len;
        }
        self.tx[queue].tail = tail;
        self.write(reg::TDT + reg::QUEUE * queue as u32, tail);
    }

    pub(super) fn send_plain(&mut self) {
        let queue = self.queue(self.tx);
        for _ in 0..1 + self.dice.below(2) {
            let dst = self.any_address();
            let mut frame = self.frame(dst);
            if frame.len() > 4096 || self.volume > 0x1_0000 {
                frame.truncate(200);
            }
            self.volume += frame.len();
            self.pieces(&frame, Asked::default());
        }
        self.post(queue);
    }

    /// A packet and the context it means, with a checksum of its transport and none of IP's.
    pub(super) fn send_by(&mut self, context: [u8; 16], bytes: &[u8], slot: u32) {
        self.volume += bytes.len();
        self.descs.push(context);
        let asked = Asked {
            slot,
            options: 2,
            payload: bytes.len() as u32,
            ..Asked::default()
        };
        self.pieces(bytes, asked);
        let queue = self.queue(self.tx);
        self.post(queue);
    }

    /// A packet with a context: tag, checksums, or segmentation.
    pub(super) fn send_with_context(&mut self) {
        if self.volume <= 0x1_0000 && self.send_sctp() {
            return;
        }
        if self.with_context(None) {
            let queue = self.queue(self.tx);
            self.post(queue);
        } else {
            self.send_plain();
        }
    }

    /// Descriptors of a packet and of the context it means. `false`: there were enough.
    pub(super) fn with_context(&mut self, dst: Option<[u8; 6]>) -> bool {
        let segment = self.dice.chance(40);
        let dst = dst.unwrap_or_else(|| self.any_address());
        let len = match (segment, self.dice.below(10)) {
            (true, 0..7) => 1 + self.dice.below(3000) as usize,
            (true, 7..9) => self.dice.pick(&[536, 1072, 1460, 2920, 100, 300]),
            (true, _) => 1 + self.dice.below(20_000) as usize,
            (false, _) => self.dice.below(1400) as usize,
        };
        if self.volume > 0x1_0000 {
            return false;
        }
        self.volume += len;
        let kinds = if segment { [60, 2] } else { [60, 40] };
        let mut packet = Packet::build(&mut self.dice, dst, len, kinds);
        packet.seed(segment);
        let mss = self.dice.pick(&[100, 536, 1000, 1460, 1448]);
        let mss = if segment { mss.max(len / 20) } else { 0 };
        let slot = self.dice.below(2) as u32;
        let tag = self.tci();
        let l4_len = if packet.tcp { 20 } else { 8 };
        let first = (packet.l4 - packet.ip) as u32 | (packet.ip as u32) << 9 | u32::from(tag) << 16;
        let mut desc = [0; 16];
        desc[..4].copy_from_slice(&first.to_le_bytes());
        let kind = u32::from(packet.tcp) << 11 | u32::from(!packet.v6) << 10;
        let command = 0x2020_0000 | kind;
        desc[8..12].copy_from_slice(&command.to_le_bytes());
        let last = (mss as u32) << 16 | l4_len << 8 | slot << 4;
        desc[12..].copy_from_slice(&last.to_le_bytes());
        self.descs.push(desc);
        let tagged = self.ctrl & 0x4000_0000 != 0 && self.dice.chance(40);
        let ip_sum = u32::from(!packet.v6 && (segment || self.dice.chance(70)));
        let l4_sum = u32::from(segment || self.dice.chance(80)) << 1;
        let asked = Asked {
            command: if segment { TSE } else { 0 } | if tagged { VLE } else { 0 },
            slot,
            options: ip_sum | l4_sum,
            payload: if segment {
                (packet.bytes.len() - packet.payload) as u32
            } else {
                packet.bytes.len() as u32
            },
        };
        self.pieces(&packet.bytes.clone(), asked);
        true
    }
}
