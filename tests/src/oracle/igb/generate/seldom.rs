//! What few drivers use: SCTP, Ethernet type filters, time stamps, legacy receive descriptors, pools.
//!
//! It is drawn from dice of its own, so that scripts without it are what they were before there was
//! any of it.

use wire::Crc32c;

use super::super::context::reg;
use super::frames::{BROADCAST, GROUPS, OTHERS, VLANS};
use super::{Generator, QUEUES};
use crate::oracle::dice::Dice;
use crate::oracle::layout::MAC;

/// The Ethernet type of PTP.
const PTP: u16 = 0x88f7;
/// ETQF: it filters; its frames are stamped; they have a queue.
const FILTER: u32 = 1 << 26;
const STAMPED: u32 = 1 << 30;
const QUEUED: u32 = 1 << 31;
/// TSYNCRXCTL and TSYNCTXCTL: on.
const ENABLED: u32 = 1 << 4;
/// Where the checksum is in SCTP's header.
const SUM: usize = 8;

/// What of it a script has.
#[derive(Debug)]
pub(super) struct Seldom {
    dice: Dice,
    sctp: bool,
    types: bool,
    stamps: bool,
    legacy: bool,
    pools: bool,
}

impl Seldom {
    /// Nothing of it.
    pub(super) fn none() -> Self {
        Self {
            dice: Dice(0),
            sctp: false,
            types: false,
            stamps: false,
            legacy: false,
            pools: false,
        }
    }

    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9fb2_1c65_1e98_df25) ^ 0x5eed);
        let any = dice.chance(30);
        let pools = any && dice.chance(35);
        let mut drawn = || any && dice.chance(30);
        Self {
            sctp: drawn(),
            types: drawn(),
            stamps: drawn(),
            legacy: drawn(),
            pools,
            dice,
        }
    }
}

impl Generator {
    /// Registers, behind all that a driver writes first.
    pub(super) fn set_up_seldom(&mut self) {
        if self.seldom.types {
            for at in 0..1 + self.seldom.dice.below(3) as u32 {
                let kind = self
                    .seldom
                    .dice
                    .pick(&[0x88b5, 0x88b5, 0x0800, 0x86dd, PTP]);
                let dice = &mut self.seldom.dice;
                let more = dice.bits(FILTER, 90) | dice.bits(QUEUED, 10);
                self.write(reg::ETQF + 4 * at, u32::from(kind) | more);
            }
        }
        if self.seldom.stamps {
            // Nanoseconds from the nineteenth bit on, as drivers have it.
            self.write(reg::TIMINCA, 1 << 24 | 16 << 19);
            let dice = &mut self.seldom.dice;
            let kinds = dice.pick(&[0, 0, 2, 2, 5]) << 1;
            let (on, message) = (dice.bits(ENABLED, 90), dice.below(4) as u32);
            self.write(reg::TSYNCRXCTL, on | kinds);
            self.write(reg::TSYNCRXCFG, message << 8);
            self.write(reg::ETQF + 12, u32::from(PTP) | FILTER | STAMPED);
            self.write(reg::TSYNCTXCTL, ENABLED);
        }
        if self.seldom.legacy {
            let queue = self.queue(self.rx) as u32;
            let size = self.seldom.dice.pick(&[1, 2]);
            self.write(reg::SRRCTL + reg::QUEUE * queue, size);
        }
        if self.seldom.pools {
            self.set_up_pools();
        }
    }

    /// Pools of the PF alone, of which scripts use as many as queues.
    fn set_up_pools(&mut self) {
        self.rctl |= 0x0400_0000;
        let rctl = self.rctl;
        self.write(reg::RCTL, rctl);
        self.write(reg::MRQC, 3);
        let dice = &mut self.seldom.dice;
        let default = (dice.below(u64::from(QUEUES)) as u32) << 7;
        let vt_ctl = default | dice.bits(1 << 29, 30) | 1 << 30;
        self.write(reg::VT_CTL, vt_ctl);
        for id in [reg::VFRE, reg::VFTE] {
            if self.seldom.dice.chance(20) {
                let some = self.seldom.dice.bits(0xff, 75);
                self.write(id, some);
            }
        }
        for pool in 0..QUEUES {
            let dice = &mut self.seldom.dice;
            // Untagged, by the multicast table, broadcasts, tags taken out; the FCS is.
            let vmolr = 0x8000_0000
                | dice.pick(&[0x2600, 0x05ee, 0x2600 | 1 << 16, 0x07d0 | 1 << 16])
                | dice.bits(1 << 24, 80)
                | dice.bits(1 << 25, 50)
                | dice.bits(1 << 27, 75)
                | dice.bits(1 << 30, 40);
            self.write(reg::VMOLR + 4 * pool, vmolr);
            if self.seldom.dice.chance(15) {
                let dice = &mut self.seldom.dice;
                let vmvir = dice.pick(&[2 << 30, 1 << 30 | 5, 1 << 30 | 0x6064]);
                self.write(reg::VMVIR + 4 * pool, vmvir);
            }
        }
        let strip = 0x8000_0000 | self.seldom.dice.bits(1 << 30, 30);
        self.write(reg::RPLOLR, strip);
        let addresses = [MAC, OTHERS[0], OTHERS[1], GROUPS[0]];
        for (at, [a, b, c, d, e, f]) in (0..).zip(addresses) {
            let pools = self.seldom.dice.bits(0xf, 35) << 18;
            self.write(reg::RAL + 8 * at, u32::from_le_bytes([a, b, c, d]));
            let high = u32::from_le_bytes([e, f, 0, 0]) | 0x8000_0000 | pools;
            self.write(reg::RAL + 8 * at + 4, high);
        }
        for at in 0..self.seldom.dice.below(4) as u32 {
            let dice = &mut self.seldom.dice;
            let id = u32::from(dice.pick(&VLANS[1..]));
            let entry = dice.bits(1 << 31, 85) | dice.bits(0xf, 50) << 12 | id;
            self.write(reg::VLVF + 4 * at, entry);
            if self.seldom.dice.chance(85) {
                self.write(reg::VFTA + id / 32 * 4, 1 << (id % 32));
            }
        }
        // What a pool sends reaches others; also itself, or not.
        if self.seldom.dice.chance(60) {
            let inside = 1 << 31 | self.seldom.dice.pick(&[0, 0xff << 16, 0xff << 16]);
            self.write(reg::DTXSWC, inside);
        }
    }

    /// Another address where there are pools: all of them are met.
    pub(super) fn address_of_a_pool(&mut self) -> Option<[u8; 6]> {
        let asked = self.seldom.pools && self.seldom.dice.chance(60);
        let all = [
            MAC, OTHERS[0], OTHERS[1], OTHERS[2], GROUPS[0], GROUPS[1], BROADCAST,
        ];
        asked.then(|| self.seldom.dice.pick(&all))
    }

    /// What RCTL has in any case.
    pub(super) fn always_stripped(&self) -> u32 {
        if self.seldom.pools { 0x0400_0000 } else { 0 }
    }

    /// A frame of a kind that scripts seldom have.
    pub(super) fn seldom_frame(&mut self, dst: [u8; 6]) -> Option<Vec<u8>> {
        if self.seldom.sctp && self.seldom.dice.chance(50) {
            let (mut bytes, l4) = self.sctp(dst);
            fill_in(&mut bytes, l4);
            if self.seldom.dice.chance(20) {
                let at = l4 + self.seldom.dice.below((bytes.len() - l4) as u64) as usize;
                bytes[at] ^= 1 << self.seldom.dice.below(8);
            }
            return Some(bytes);
        }
        if self.seldom.stamps && self.seldom.dice.chance(50) {
            return Some(self.ptp(dst));
        }
        None
    }

    /// An SCTP packet without its sum, and where its header begins.
    fn sctp(&mut self, dst: [u8; 6]) -> (Vec<u8>, usize) {
        let dice = &mut self.seldom.dice;
        let v6 = dice.chance(40);
        // In chunks of four bytes, and now and then so short that it is padded.
        let len = 4 * match dice.below(10) {
            0 => dice.below(4) as usize,
            1 => 300,
            _ => 12 + dice.below(100) as usize,
        };
        let mut bytes = dst.to_vec();
        bytes.extend_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        let whole = (12 + len) as u16;
        if v6 {
            bytes.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend_from_slice(&whole.to_be_bytes());
            bytes.extend_from_slice(&[132, 64]);
            bytes.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            bytes.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        } else {
            bytes.extend_from_slice(&[8, 0, 0x45, 0]);
            bytes.extend_from_slice(&(20 + whole).to_be_bytes());
            bytes
                .extend_from_slice(&[0x12, 0x34, 0x40, 0, 64, 132, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let sum: u32 = (14..34)
                .step_by(2)
                .map(|at| u32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]])))
                .sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let l4 = bytes.len();
        bytes.extend_from_slice(&[0x12, 0x34, 0x0b, 0x59, 1, 2, 3, 4, 0, 0, 0, 0]);
        let fill = self.seldom.dice.next() as u8;
        bytes.extend((0..len).map(|i| i as u8 ^ fill));
        (bytes, l4)
    }

    /// A PTP message.
    fn ptp(&mut self, dst: [u8; 6]) -> Vec<u8> {
        let dice = &mut self.seldom.dice;
        let mut bytes = dst.to_vec();
        bytes.extend_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x99]);
        bytes.extend_from_slice(&PTP.to_be_bytes());
        let kind = dice.pick(&[0, 0, 1, 2, 3, 8, 9, 11]);
        let version = dice.pick(&[2, 2, 2, 2, 2, 1]);
        bytes.extend_from_slice(&[kind, version]);
        bytes.extend((2..46).map(|_| dice.next() as u8));
        bytes
    }

    /// Whether a packet asks for the time at which it leaves.
    pub(super) fn stamp(&mut self) -> u8 {
        let asked = self.seldom.stamps && self.seldom.dice.chance(50);
        u8::from(asked) << 3
    }

    /// The stamps are read, as drivers do: high halves last, which makes room for the next.
    pub(super) fn read_stamps(&mut self) -> bool {
        if !self.seldom.stamps || !self.seldom.dice.chance(50) {
            return false;
        }
        let [control, rest] = if self.seldom.dice.chance(50) {
            [reg::TSYNCRXCTL, reg::RXSTMPL]
        } else {
            [reg::TSYNCTXCTL, reg::TXSTMPL]
        };
        self.read(control);
        if control == reg::TSYNCRXCTL {
            self.read(reg::RXSATRL);
            self.read(reg::RXSATRL + 4);
        }
        self.read(rest);
        self.read(rest + 4);
        self.read(control);
        true
    }

    /// An SCTP packet whose checksum is left to the NIC, instead of another packet.
    pub(super) fn send_sctp(&mut self) -> bool {
        if !self.seldom.sctp || !self.seldom.dice.chance(60) {
            return false;
        }
        let dst = self.seldom.dice.pick(&[MAC, OTHERS[0], GROUPS[0]]);
        let (bytes, l4) = self.sctp(dst);
        let v6 = bytes[12] == 0x86;
        let slot = self.seldom.dice.below(2) as u32;
        let mut desc = [0; 16];
        let first = (l4 - 14) as u32 | 14 << 9;
        desc[..4].copy_from_slice(&first.to_le_bytes());
        let command = 0x2020_0000 | 2 << 11 | u32::from(!v6) << 10;
        desc[8..12].copy_from_slice(&command.to_le_bytes());
        desc[12..].copy_from_slice(&(slot << 4).to_le_bytes());
        self.send_by(desc, &bytes, slot);
        true
    }
}

/// Puts the sum of an SCTP packet into it.
fn fill_in(bytes: &mut [u8], l4: usize) {
    let mut crc = Crc32c::new();
    crc.add(&bytes[l4..]);
    let sum = crc.finish().to_le_bytes();
    bytes[l4 + SUM..l4 + SUM + 4].copy_from_slice(&sum);
}
