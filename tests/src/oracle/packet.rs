//! TCP and UDP packets.

use super::dice::Dice;

/// A TCP or UDP packet over IP, with sums left to the NIC that sends it.
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
