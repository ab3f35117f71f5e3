//! What a guest sends: how many frames at once, which in turn, and to whom.

use ceiling::Shape;

/// Lengths in the proportion 7 : 4 : 1 that is called "simple IMIX", without FCS, spread over a cycle.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

/// Bytes of a descriptor in a segmented send, as a driver with 4 KiB pages has them.
pub const PAGE: usize = 4096;
/// Bytes of Ethernet, IPv4 and TCP headers.
pub const HEADERS: usize = 54;

/// Frames of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// All alike, to one receiver.
    #[default]
    Alike,
    /// Of three lengths, to one receiver.
    Imix,
    /// To two receivers in turn.
    Alternating,
    /// Of 64 flows in no order, to eight receivers.
    Flows,
}

impl Mix {
    /// How many receivers there are.
    pub fn receivers(self) -> usize {
        match self {
            Mix::Alike | Mix::Imix => 1,
            Mix::Alternating => 2,
            Mix::Flows => 8,
        }
    }

    /// Which of them gets frame `number`.
    pub fn receiver(self, number: u32) -> usize {
        match self {
            Mix::Alike | Mix::Imix => 0,
            Mix::Alternating => number as usize % 2,
            Mix::Flows => flow(number) % 8,
        }
    }

    /// Bytes of frame `number`, where all others have `size`.
    pub fn size(self, number: u32, size: usize) -> usize {
        match self {
            Mix::Imix => IMIX[number as usize % IMIX.len()],
            _ => size,
        }
    }
}

/// The flow that a frame is of, as random as a hash is.
fn flow(number: u32) -> usize {
    let mixed = (number ^ 0x5bd1).wrapping_mul(0x9e37_79b9);
    ((mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b) >> 26) as usize
}

/// What is sent, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Bytes of a frame, or of a packet before segmentation.
    pub size: usize,
    /// Bytes of payload per segment, if the NIC is to segment.
    pub mss: Option<usize>,
    /// Descriptors of each ring.
    pub ring: u32,
    /// Frames (or packets) per doorbell.
    pub burst: u32,
    /// Between VFs of an 82576 and not between 82540EMs. Whole frames only.
    pub vf: bool,
    /// UDP over IPv4, whose checksums the receiver judges. Whole frames only.
    pub udp: bool,
    /// Lengths and receivers. Whole frames only.
    pub mix: Mix,
    /// NICs that would go on after their process died.
    pub kept: bool,
    /// NICs with a Communication Status Block.
    pub csb: bool,
}

impl Spec {
    /// Whole frames.
    pub fn frames(size: usize, ring: u32, burst: u32) -> Spec {
        Spec {
            size,
            mss: None,
            ring,
            burst,
            vf: false,
            udp: false,
            mix: Mix::Alike,
            kept: false,
            csb: false,
        }
    }

    /// The same between NICs that would go on after their process died.
    pub fn kept(self) -> Spec {
        Spec { kept: true, ..self }
    }

    /// The same between NICs that have a Communication Status Block.
    pub fn with_csb(self) -> Spec {
        Spec { csb: true, ..self }
    }

    /// The same between VFs.
    pub fn between_vfs(self) -> Spec {
        Spec { vf: true, ..self }
    }

    /// The same as UDP over IPv4.
    pub fn of_udp(self) -> Spec {
        Spec { udp: true, ..self }
    }

    /// The same with other lengths or receivers.
    pub fn mixed(self, mix: Mix) -> Spec {
        Spec { mix, ..self }
    }

    /// Bytes from one receive buffer to the next, and their size.
    pub fn stride(&self) -> usize {
        if self.mss.is_none() && self.size > 2048 {
            16384
        } else {
            2048
        }
    }

    /// Descriptors of a packet.
    pub fn descriptors(&self) -> u32 {
        match self.mss {
            Some(_) => 1 + self.size.div_ceil(PAGE) as u32,
            None => 1,
        }
    }

    /// Descriptors of the transmit ring: whole packets, and a multiple of eight (TDLEN has 128-byte
    /// steps).
    pub fn transmit_ring(&self) -> u32 {
        let step = 8 * self.descriptors();
        if self.mss.is_some() {
            self.ring / step * step
        } else {
            self.ring
        }
    }

    /// Packets per doorbell, as many as both rings hold.
    pub fn burst(&self) -> u32 {
        let out = (self.transmit_ring() - 1) / self.descriptors();
        let back = (self.ring - 1) / self.arriving();
        self.burst.min(out).min(back).max(1)
    }

    /// Frames the receiver gets of one packet.
    pub fn arriving(&self) -> u32 {
        match self.mss {
            Some(mss) => (self.size - HEADERS).div_ceil(mss) as u32,
            None => 1,
        }
    }

    /// The raw loop that moves what the receiver gets.
    pub fn shape(&self) -> Shape {
        Shape {
            size: self.mss.map_or(self.size, |mss| mss + HEADERS),
            ring: self.ring,
            stride: self.stride(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_come_in_no_order_and_reach_all() {
        let receivers: Vec<_> = (0..256).map(|n| Mix::Flows.receiver(n)).collect();
        for receiver in 0..8 {
            let n = receivers.iter().filter(|r| **r == receiver).count();
            assert!((16..48).contains(&n), "{receiver}: {n}");
        }
        let alike = receivers.windows(2).filter(|pair| pair[0] == pair[1]);
        assert!(alike.count() < 64);
        let sizes: usize = (0..12).map(|n| Mix::Imix.size(n, 0)).sum();
        assert_eq!(sizes, 7 * 60 + 4 * 590 + 1514);
    }
}
