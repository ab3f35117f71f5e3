//! Every mixture of LPE, SBP, BSIZE, BSEX and SECRC with frames of every interesting length, against
//! what the manual says, worked out here once more and more slowly.

use crate::common::*;

const RING: u32 = 128;
const STRIDE: u64 = 0x4000;

struct Setting {
    lpe: bool,
    sbp: bool,
    bsize: u32,
    bsex: bool,
    secrc: bool,
}

impl Setting {
    fn rctl(&self) -> u32 {
        0x8000
            | 8
            | u32::from(self.sbp) << 2
            | u32::from(self.lpe) << 5
            | self.bsize << 16
            | u32::from(self.bsex) << 25
            | u32::from(self.secrc) << 26
    }

    /// §13.4.22; BSEX with 00 is reserved.
    fn buffer(&self) -> usize {
        let normal = [2048, 1024, 512, 256];
        let extended = [2048, 16384, 8192, 4096];
        (if self.bsex { extended } else { normal })[self.bsize as usize]
    }

    /// What is in the buffers afterwards, if anything.
    fn stored(&self, frame: &[u8]) -> Option<Vec<u8>> {
        if frame.len() < 6 {
            return None;
        }
        let mut bytes = frame.to_vec();
        if bytes.len() >= 14 && bytes.len() < 60 {
            bytes.resize(60, 0);
        }
        let wire = bytes.len() + 4;
        let legal = frame.len() >= 14 && wire <= if self.lpe { 16384 } else { 1522 };
        if !(legal || self.sbp && wire <= 16384) {
            return None;
        }
        if !self.secrc {
            let fcs = crc32fast::hash(&bytes);
            bytes.extend(fcs.to_le_bytes());
        }
        Some(bytes)
    }
}

fn lengths() -> Vec<usize> {
    let mut all: Vec<usize> = (0..20).chain(58..66).collect();
    for edge in [256, 512, 768, 1024, 1518, 1522, 2048, 4096, 8192, 16384] {
        all.extend(edge - 6..=edge + 2);
    }
    all.extend([1500, 3000, 9000, 9216, 12345, 20_000]);
    all
}

fn check(m: &mut Machine, setting: &Setting, frame: &[u8]) {
    let what = format!("RCTL {:#x}, {} bytes", setting.rctl(), frame.len());
    let size = setting.buffer();
    let want = setting.stored(frame);
    let chunks: Vec<&[u8]> = want.iter().flat_map(|w| w.chunks(size)).collect();
    m.w(reg::RCTL, 0);
    m.w(reg::RDH, 0);
    m.w(reg::RDT, RING - 1);
    for i in 0..=chunks.len() as u32 {
        let at = RX_BUFFERS + u64::from(i) * STRIDE;
        m.rx_desc(i, at);
        let end = chunks.get(i as usize).map_or(0, |c| c.len());
        if end + 8 <= STRIDE as usize {
            m.poke(at + end as u64, &[0xee; 8]);
        }
    }
    m.w(reg::RCTL, setting.rctl() | 2);
    assert_eq!(m.offer(&[frame]), 1, "{what}");
    assert_eq!(m.r(reg::RDH) as usize, chunks.len(), "{what}");
    for (i, chunk) in chunks.iter().enumerate() {
        let at = RX_BUFFERS + i as u64 * STRIDE;
        let (len, status, errors, special) = m.rx_status(i as u32);
        assert_eq!(usize::from(len), chunk.len(), "{what}, part {i}");
        let last = i + 1 == chunks.len();
        assert_eq!(status & 3, if last { 3 } else { 1 }, "{what}, part {i}");
        assert_eq!((errors, special), (0, 0), "{what}, part {i}");
        assert!(m.peek(at, chunk.len()) == **chunk, "{what}, part {i}");
        if chunk.len() + 8 <= STRIDE as usize {
            let behind = m.peek(at + chunk.len() as u64, 8);
            assert_eq!(behind, [0xee; 8], "{what}: written beyond part {i}");
        }
    }
    assert_eq!(m.rx_status(chunks.len() as u32).1, 0, "{what}");
    let wire = frame.len().max(if frame.len() < 14 { 0 } else { 60 }) + 4;
    let long = wire > if setting.lpe { 16384 } else { 1522 };
    let short = (6..14).contains(&frame.len());
    assert_eq!(m.r(0x40ac), u32::from(long), "{what}: ROC");
    assert_eq!(m.r(0x40a4), u32::from(short), "{what}: RUC");
    assert_eq!(m.r(0x4040), u32::from(long || short), "{what}: RLEC");
    let good = frame.len() >= 14 && !long;
    assert_eq!(m.r(0x4074), u32::from(good), "{what}: GPRC");
    let seen = u32::from(frame.len() >= 6);
    assert_eq!(m.r(0x40d0), seen, "{what}: TPR");
}

#[test]
fn every_length_in_every_setting_is_stored_as_the_manual_says() {
    let bools = [false, true];
    let mut m = Machine::default();
    m.rx_on(RING, 0x8000);
    let all = lengths();
    // Miri has no time for all of them.
    let step = if cfg!(miri) { 97 } else { 1 };
    let mut turn = 0;
    for lpe in bools {
        for sbp in bools {
            for bsex in bools {
                for secrc in bools {
                    for bsize in 0..4 {
                        let setting = Setting {
                            lpe,
                            sbp,
                            bsize,
                            bsex,
                            secrc,
                        };
                        for &len in &all {
                            turn += 1;
                            if turn % step != 0 {
                                continue;
                            }
                            let frame = plain(MAC, len.max(14));
                            check(&mut m, &setting, &frame[..len]);
                        }
                    }
                }
            }
        }
    }
}

/// The sum of the packet from byte PCSS on, tag and CRC left out as far as they are stripped.
#[test]
fn the_packet_checksum_starts_where_pcss_says() {
    let mut tagged = plain(MAC, 101);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    for (vme, secrc, start) in [
        (false, true, 14u32),
        (true, true, 14),
        (true, false, 14),
        (false, false, 255),
        (true, true, 13),
        (false, true, 1),
    ] {
        let mut m = Machine::default();
        m.rx_on(8, 0x8000 | u32::from(secrc) << 26);
        let ctrl = m.r(reg::CTRL);
        m.w(reg::CTRL, ctrl | u32::from(vme) << 30);
        m.w(reg::RXCSUM, start);
        m.offer(&[&tagged]);
        let len = usize::from(m.rx_status(0).0);
        let stored = m.peek(RX_BUFFERS, len);
        let mut sum = 0u32;
        for pair in stored.get(start as usize..).unwrap_or(&[]).chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let field = m.peek(RX_RING + 10, 2);
        let got = u16::from_le_bytes([field[0], field[1]]);
        assert_eq!(got, !(sum as u16), "VME {vme}, SECRC {secrc}, PCSS {start}");
    }
    // 0, the reset value, asks for none.
    let m = {
        let mut m = Machine::default();
        m.rx_on(8, 0x8000);
        m.offer(&[&tagged]);
        m
    };
    assert_eq!(m.peek(RX_RING + 10, 2), [0, 0]);
}
