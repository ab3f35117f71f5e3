//! Frames from the wire.

use super::Generator;
use crate::oracle::layout::MAC;
use crate::oracle::packet::Packet;
use crate::oracle::script::Op;

/// Multicast and other addresses that scripts meet.
pub(super) const GROUPS: [[u8; 6]; 4] = [
    [0x01, 0x00, 0x5e, 0x00, 0x00, 0xfb],
    [0x01, 0x00, 0x5e, 0x40, 0x30, 0x20],
    [0x33, 0x33, 0x00, 0x00, 0x00, 0x01],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e],
];
pub(super) const OTHERS: [[u8; 6]; 3] = [
    [0x52, 0x54, 0x00, 0x12, 0x34, 0x57],
    [0x02, 0x00, 0x00, 0x00, 0x00, 0x01],
    [0x00, 0x1b, 0x21, 0xaa, 0xbb, 0xcc],
];
pub(super) const BROADCAST: [u8; 6] = [0xff; 6];
pub(super) const VLANS: [u16; 4] = [0, 5, 100, 4095];

impl Generator {
    pub(super) fn any_address(&mut self) -> [u8; 6] {
        if let Some(address) = self.address_of_a_pool() {
            return address;
        }
        match self.dice.below(10) {
            0..5 => MAC,
            5..7 => self.dice.pick(&GROUPS),
            7 => BROADCAST,
            _ => self.dice.pick(&OTHERS),
        }
    }

    pub(super) fn receive(&mut self) {
        let mut frames = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            let dst = self.any_address();
            frames.push(self.frame(dst));
        }
        self.ops.push(Op::Frames(frames));
    }

    /// A frame as it may come from the wire or go to it, without FCS.
    pub(super) fn frame(&mut self, dst: [u8; 6]) -> Vec<u8> {
        if let Some(frame) = self.seldom_frame(dst) {
            return frame;
        }
        if self.dice.chance(50) {
            return self.packet(dst);
        }
        let long = self.rctl & 0x20 != 0 && self.dice.chance(30);
        let len = match self.dice.below(10) {
            _ if long => self.dice.pick(&[1519, 1523, 2048, 4000, 9000, 9014]),
            0 => self.dice.pick(&[24, 30, 42, 59]),
            1..4 => 60,
            4 => self
                .dice
                .pick(&[61, 64, 124, 252, 256, 508, 512, 1020, 1024]),
            5 => self.dice.pick(&[1514, 1515, 1518, 1519, 1522]),
            _ => 60 + self.dice.below(500) as usize,
        };
        let mut frame = dst.to_vec();
        frame.extend_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x99]);
        if self.dice.chance(30) {
            let tag = self.dice.pick(&[self.vet, self.vet, 0x8100]);
            let tci = self.tci();
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(&tci.to_be_bytes());
        }
        frame.extend_from_slice(&[0x88, 0xb5]);
        let fill = self.dice.next() as u8;
        let counting = self.dice.chance(50);
        while frame.len() < len {
            frame.push(if counting {
                frame.len() as u8 ^ fill
            } else {
                fill
            });
        }
        frame.truncate(len.max(24));
        frame
    }

    pub(super) fn tci(&mut self) -> u16 {
        self.dice.pick(&VLANS) | self.dice.pick(&[0, 0, 0x1000, 0x6000])
    }

    /// TCP or UDP, now and then tagged, now and then with a wrong checksum.
    fn packet(&mut self, dst: [u8; 6]) -> Vec<u8> {
        let mut bytes = Packet::draw(&mut self.dice, dst).whole();
        if self.dice.chance(10) {
            let at = 14 + self.dice.below(bytes.len() as u64 - 14) as usize;
            // Not the lengths and the version: it stays a packet.
            if at >= 54 {
                bytes[at] ^= 1 << self.dice.below(8);
            }
        }
        if self.dice.chance(20) {
            let tci = self.tci().to_be_bytes();
            let tag = [0x81, 0, tci[0], tci[1]];
            bytes.splice(12..12, tag);
        }
        bytes
    }
}
