//! New scripts with virtual functions: a PF and two VFs as their drivers set them up, with every setting
//! drawn, talk, frames between all of them and the wire, interrupts.

mod talk;

use super::super::context::reg;
use super::super::vf::{PF_POOL, QUEUES, RING, VFS, of, sweep, vreg};
use super::frames::{BROADCAST, GROUPS, OTHERS, VLANS};
use super::packets::Asked;
use super::seldom::Seldom;
use super::{Generator, ONE_BUFFER, Ring, SLOT};
use crate::oracle::dice::Dice;
use crate::oracle::layout::{MAC, RX_BUFFERS, RX_RING, TX_RING};
use crate::oracle::script::{Op, Script};

/// Addresses of the first VF, the second, and the PF.
const STATIONS: [[u8; 6]; 3] = [OTHERS[0], OTHERS[1], MAC];
/// Pools that scripts have: VFs', and the PF's first.
const POOLS: u32 = VFS + 1;
/// Whose queue each of [`QUEUES`] is, by its pool, and which of his.
const OWNERS: [(u32, u32); QUEUES.len()] = [(0, 0), (1, 0), (PF_POOL, 0), (0, 1), (1, 1)];
/// CTRL_EXT: the PF is ready.
const PFRSTD: u32 = 1 << 14;
/// SRRCTL: headers apart, where there are some or always.
const HEADER_APART: u32 = 2 << 25;
const HEADER_ALWAYS: u32 = 5 << 25;
const MBVFICR: u32 = 0xc80;
const MBVFIMR: u32 = 0xc84;
const VFLRE: u32 = 0xc88;
const P2VMAILBOX: u32 = 0xc00;
/// The PF's side of the first VF's words; the next one's are behind.
const VMBMEM: u32 = 0x800;

struct Vfs {
    g: Generator,
    tx: [Ring; QUEUES.len()],
    rx: [Ring; QUEUES.len()],
}

/// The script of a seed.
pub(in super::super) fn generate(seed: u64) -> Script {
    let dice = Dice(seed.wrapping_mul(0xd1b5_4a32_d192_ed03) ^ 0x0f0f);
    let mut vfs = Vfs {
        g: Generator::new(dice, Seldom::none()),
        tx: Default::default(),
        rx: Default::default(),
    };
    // Whole headers lie in the first piece.
    vfs.g.least = 64;
    match vfs.g.dice.below(10) {
        0 => vfs.registers_alone(),
        1 => vfs.talk_alone(),
        _ => vfs.at_work(),
    }
    Script { ops: vfs.g.ops }
}

impl Vfs {
    fn write(&mut self, at: u32, value: u32) {
        self.g.write(at, value);
    }

    fn read(&mut self, at: u32) {
        self.g.read(at);
    }

    fn dice(&mut self) -> &mut Dice {
        &mut self.g.dice
    }

    /// Any VF.
    fn vf(&mut self) -> u32 {
        self.dice().below(VFS.into()) as u32
    }

    /// Where a queue has the register that the chip's first has at `base`.
    fn at(slot: usize, base: u32) -> u32 {
        match OWNERS[slot] {
            (PF_POOL, _) => base + reg::QUEUE * PF_POOL,
            (vf, queue) => {
                let page = if base < reg::TDBAL {
                    vreg::RDBAL
                } else {
                    vreg::TDBAL
                };
                of(vf, page + base % 0x40 + vreg::QUEUE * queue)
            }
        }
    }

    /// Any registers of VFs, with nothing sent or received.
    fn registers_alone(&mut self) {
        let all: Vec<u32> = igb::vf_table()
            .registers()
            .iter()
            .flat_map(|r| (0..r.count).map(|i| r.offset + r.stride * i))
            .collect();
        if self.dice().chance(50) {
            self.messages();
        }
        for _ in 0..2 + self.dice().below(12) {
            let vf = self.vf();
            let offset = self.dice().pick(&all);
            let at = of(vf, offset);
            if self.dice().chance(50) {
                let mut value = self.dice().next() as u32;
                if offset == vreg::VTCTRL {
                    value &= !(1 << 26);
                }
                self.write(at, value);
            }
            self.read(at);
        }
    }

    /// Nothing but messages between PF and VFs, and interrupts.
    fn talk_alone(&mut self) {
        self.messages();
        self.ready();
        self.vectors();
        for _ in 0..4 + self.dice().below(16) {
            if self.dice().chance(70) {
                self.talk();
            } else {
                self.causes();
            }
        }
    }

    fn at_work(&mut self) {
        self.setup();
        for _ in 0..3 + self.dice().below(10) {
            self.action();
            if self.dice().chance(90) {
                self.g.ops.push(Op::Look);
            }
        }
    }

    fn action(&mut self) {
        match self.dice().below(100) {
            0..25 => self.receive(),
            25..60 => self.send(),
            60..68 => self.give_buffers(),
            68..78 => self.talk(),
            78..88 => self.causes(),
            88..94 => self.look_around(),
            94..97 => self.reconfigure(),
            _ => self.reset(),
        }
    }

    fn messages(&mut self) {
        self.g.messages = self.dice().chance(85);
        if self.g.messages {
            self.g.ops.push(Op::Msix);
            self.write(reg::GPIE, 0x10);
        }
    }

    /// The PF is there, and the VFs hear of it.
    fn ready(&mut self) {
        if self.dice().chance(95) {
            self.write(reg::CTRL_EXT, PFRSTD);
        }
        for vf in 0..VFS {
            if self.dice().chance(60) {
                self.read(of(vf, vreg::V2PMAILBOX));
            }
        }
    }

    /// Which queue has which vector.
    fn vectors(&mut self) {
        let entries = [0; 2].map(|_: u32| 0x80 | self.dice().below(10) as u32);
        self.write(reg::IVAR + 4 * PF_POOL, entries[0] | entries[1] << 8);
        let other = 0x80 | self.dice().below(10) as u32;
        self.write(reg::IVAR_MISC, other << 8);
        let open = self.dice().bits(0x3ff, 70);
        self.write(reg::EIMS, open);
        // Link, mailbox.
        let ims = self.dice().bits(0x104, 70);
        self.write(reg::IMS, ims);
        if self.dice().chance(10) {
            let some = self.dice().bits(0x7, 50);
            self.write(MBVFIMR, some);
        }
        for vf in 0..VFS {
            self.vf_vectors(vf);
        }
    }

    fn vf_vectors(&mut self, vf: u32) {
        let mut entry = || 0x80 | self.g.dice.below(3) as u32;
        let (rx, tx, misc) = (entry(), entry(), entry());
        let second = entry() << 16 | entry() << 24;
        let second = if self.dice().chance(10) { second } else { 0 };
        self.write(of(vf, vreg::VTIVAR), rx | tx << 8 | second);
        self.write(of(vf, vreg::VTIVAR_MISC), misc);
        if self.dice().chance(70) {
            self.write(of(vf, vreg::VTEIAC), 7);
        }
        if self.dice().chance(10) {
            self.write(of(vf, vreg::VTEIAM), 7);
        }
        let open = self.dice().bits(7, 85);
        self.write(of(vf, vreg::VTEIMS), open);
    }

    fn setup(&mut self) {
        self.g.ctrl = 0x41 | self.dice().bits(0x4000_0000, 50);
        let ctrl = self.g.ctrl;
        self.write(reg::CTRL, ctrl);
        self.messages();
        for vf in 0..VFS {
            if self.dice().chance(30) {
                self.write(of(vf, vreg::VTCTRL), 1 << 26);
            }
        }
        if self.dice().chance(50) {
            self.write(VFLRE, 0xff);
        }
        self.pools();
        if self.dice().chance(80) {
            self.vectors();
        }
        for (slot, owner) in OWNERS.iter().enumerate() {
            let second = owner.1 == 1;
            let on = self.dice().chance(if second { 10 } else { 90 });
            self.tx_setup(slot, on);
            self.rx_setup(slot, on && !second);
        }
        self.write(reg::TCTL, 0x0403_f0fa);
        self.write(reg::RCTL, self.g.rctl);
        for slot in 0..self.rx.len() {
            let ring = self.rx[slot];
            if ring.on {
                self.write(Self::at(slot, reg::RDT), ring.tail);
            }
        }
        self.g.ops.push(Op::Look);
    }

    /// What the PF says of the pools.
    fn pools(&mut self) {
        let dice = &mut self.g.dice;
        // The FCS is taken out of everything.
        self.g.rctl = 2 | 0x0400_8000 | dice.bits(0x3000, 10) | dice.bits(0x4_0000, 35);
        let default = dice.pick(&[PF_POOL, PF_POOL, PF_POOL, 0]) << 7;
        let vt_ctl = default | dice.bits(1 << 29, 20) | 1 << 30;
        self.write(reg::MRQC, 3);
        let sums = self.dice().pick(&[0x2300, 0x2300, 0x300, 0x2b00, 0]);
        self.write(reg::RXCSUM, sums);
        self.write(reg::VT_CTL, vt_ctl);
        for pool in 0..POOLS {
            let dice = self.dice();
            // Up to the longest frame, or to a bound; untagged, by the table, broadcasts.
            let vmolr = 0x8000_0000
                | dice.pick(&[0x2600, 0x2600 | 1 << 16, 0x05ee, 0x07d0 | 1 << 16])
                | dice.bits(1 << 24, 85)
                | dice.bits(1 << 25, 20)
                | dice.bits(1 << 27, 70)
                | dice.bits(1 << 30, 40);
            self.write(reg::VMOLR + 4 * pool, vmolr);
            if self.dice().chance(15) {
                let vmvir = self.dice().pick(&[2 << 30, 1 << 30 | 5, 1 << 30 | 0x6064]);
                self.write(reg::VMVIR + 4 * pool, vmvir);
            }
        }
        let strip = 0x8000_0000 | self.dice().bits(1 << 30, 20);
        self.write(reg::RPLOLR, strip);
        // The PF's is the first.
        for (pool, mac) in (0..).zip(STATIONS) {
            self.station((pool + 1) % POOLS, mac, 1 << pool);
        }
        let listeners = self.dice().bits(7, 50);
        self.station(3, GROUPS[0], listeners);
        if self.dice().chance(20) {
            let word = self.dice().below(128) as u32;
            self.write(reg::MTA + 4 * word, !0);
        }
        for at in 0..self.dice().below(4) as u32 {
            let id = u32::from(self.dice().pick(&VLANS[1..]));
            let entry = 1 << 31 | self.dice().bits(7, 60) << 12 | id;
            self.write(reg::VLVF + 4 * at, entry);
            self.write(reg::VFTA + id / 32 * 4, 1 << (id % 32));
        }
        // Frames of a pool reach others; where they come from is looked at.
        // Also itself, or not.
        let inside = self.dice().bits(1 << 31, 85) | self.dice().pick(&[0, 0xff << 16]);
        let checked = if self.dice().chance(6) {
            self.dice().bits(0x307, 50)
        } else {
            0
        };
        self.write(reg::DTXSWC, inside | checked);
        let all = [VFRE_ALL, VFRE_ALL, VFRE_ALL, 0x85, 0x86];
        for id in [reg::VFRE, reg::VFTE] {
            let some = self.dice().pick(&all);
            self.write(id, some);
        }
        self.ready();
    }

    fn station(&mut self, at: u32, [a, b, c, d, e, f]: [u8; 6], pools: u32) {
        self.write(reg::RAL + 8 * at, u32::from_le_bytes([a, b, c, d]));
        let high = u32::from_le_bytes([e, f, 0, 0]) | 0x8000_0000 | pools << 18;
        self.write(reg::RAL + 8 * at + 4, high);
    }

    fn tx_setup(&mut self, slot: usize, on: bool) {
        self.tx[slot] = Ring {
            on,
            len: RING,
            tail: 0,
        };
        if on {
            let ring = TX_RING as u32 + slot as u32 * RING * 16;
            self.write(Self::at(slot, reg::TDBAL), ring);
            self.write(Self::at(slot, reg::TDLEN), RING * 16);
            self.write(Self::at(slot, reg::TXDCTL), 1 << 25);
        }
    }

    fn rx_setup(&mut self, slot: usize, on: bool) {
        self.rx[slot] = Ring {
            on,
            len: RING,
            tail: RING - 1,
        };
        if on {
            let ring = RX_RING as u32 + slot as u32 * RING * 16;
            self.rx_descriptors(slot, 0, RING);
            self.write(Self::at(slot, reg::RDBAL), ring);
            self.write(Self::at(slot, reg::RDLEN), RING * 16);
            let kinds = [ONE_BUFFER; 8]
                .iter()
                .chain(&[0, HEADER_APART, HEADER_ALWAYS]);
            let kinds: Vec<u32> = kinds.copied().collect();
            let kind = self.dice().pick(&kinds);
            let (apart, size) = match kind {
                HEADER_APART | HEADER_ALWAYS => (self.dice().pick(&[0x100, 0x200, 0x400]), 1),
                _ => (0, 2),
            };
            self.write(Self::at(slot, reg::SRRCTL), kind | apart | size);
            if apart != 0 {
                let types = self.dice().pick(&[0x7_ffff, 0x7_ffff, 0, 0x30c]);
                let at = match OWNERS[slot] {
                    (PF_POOL, _) => reg::PSRTYPE + 4 * PF_POOL,
                    (vf, _) => of(vf, vreg::PSRTYPE),
                };
                self.write(at, types);
            }
            self.write(Self::at(slot, reg::RXDCTL), 1 << 25);
        }
    }

    /// Fresh descriptors from one on.
    fn rx_descriptors(&mut self, slot: usize, from: u32, count: u32) {
        let first = slot as u64 * u64::from(RING);
        for index in (from..from + count).map(|i| u64::from(i % RING)) {
            let slot = RX_BUFFERS + (first + index) * SLOT;
            let mut bytes = slot.to_le_bytes().to_vec();
            // For what is apart.
            bytes.extend_from_slice(&(slot + SLOT / 2).to_le_bytes());
            let at = RX_RING + (first + index) * 16;
            self.g.ops.push(Op::Mem { at, bytes });
        }
    }

    /// A queue that is on.
    fn queue(&mut self, rings: [Ring; QUEUES.len()]) -> Option<usize> {
        let on: Vec<usize> = (0..rings.len()).filter(|slot| rings[*slot].on).collect();
        (!on.is_empty()).then(|| self.dice().pick(&on))
    }

    fn give_buffers(&mut self) {
        self.g.look_first();
        let Some(slot) = self.queue(self.rx) else {
            return;
        };
        let n = 1 + self.dice().below(4) as u32;
        let tail = self.rx[slot].tail;
        self.rx_descriptors(slot, tail, n);
        let tail = (tail + n) % RING;
        self.rx[slot].tail = tail;
        self.write(Self::at(slot, reg::RDT), tail);
    }

    /// Whom a frame is for: mostly one of ours.
    fn address(&mut self, many: u64) -> [u8; 6] {
        if self.dice().chance(many) {
            return self.dice().pick(&[BROADCAST, GROUPS[0], GROUPS[1]]);
        }
        match self.dice().below(8) {
            0 => OTHERS[2],
            _ => self.dice().pick(&STATIONS),
        }
    }

    fn receive(&mut self) {
        let mut frames = Vec::new();
        for _ in 0..1 + self.dice().below(2) {
            let dst = self.address(25);
            frames.push(self.g.frame(dst));
        }
        self.g.ops.push(Op::Frames(frames));
    }

    fn send(&mut self) {
        let Some(slot) = self.queue(self.tx) else {
            return;
        };
        let dst = self.address(15);
        if !self.dice().chance(40) || !self.g.with_context(Some(dst)) {
            let mut frame = self.g.frame(dst);
            frame.truncate(1522);
            if self.dice().chance(85) {
                let own = STATIONS[OWNERS[slot].0 as usize];
                frame[6..12].copy_from_slice(&own);
            }
            self.g.volume += frame.len();
            self.g.pieces(&frame, Asked::default());
        }
        self.post(slot);
    }

    /// Writes the descriptors into a ring and tells the NIC, if they fit.
    fn post(&mut self, slot: usize) {
        let descs = std::mem::take(&mut self.g.descs);
        if descs.len() >= RING as usize {
            return;
        }
        let mut tail = self.tx[slot].tail;
        for desc in descs {
            let index = slot as u64 * u64::from(RING) + u64::from(tail);
            self.g.ops.push(Op::Mem {
                at: TX_RING + index * 16,
                bytes: desc.to_vec(),
            });
            tail = (tail + 1) % RING;
        }
        self.tx[slot].tail = tail;
        self.write(Self::at(slot, reg::TDT), tail);
    }

    fn look_around(&mut self) {
        let all = sweep(&Script::default());
        for _ in 0..1 + self.dice().below(4) {
            let at = self.dice().pick(&all);
            self.read(at);
        }
    }

    fn reconfigure(&mut self) {
        match self.dice().below(3) {
            0 => {
                let pool = self.dice().below(POOLS.into()) as u32;
                let vmolr = 0x8000_2600 | self.dice().bits(0x0900_0000, 70);
                self.write(reg::VMOLR + 4 * pool, vmolr);
            }
            1 => {
                let inside = self.dice().bits(1 << 31, 60) | 0xff << 16;
                self.write(reg::DTXSWC, inside);
            }
            _ => {
                let some = self.dice().pick(&[0x84, VFRE_ALL]);
                self.write(reg::VFRE, some);
            }
        }
    }

    /// A VF is reset, and its PF and its driver begin anew with it.
    fn reset(&mut self) {
        self.g.look_first();
        let vf = self.vf();
        self.write(of(vf, vreg::VTCTRL), 1 << 26);
        self.g.ops.push(Op::Look);
        if self.dice().chance(80) {
            self.write(VFLRE, 1 << vf);
        }
        for id in [reg::VFRE, reg::VFTE] {
            self.write(id, VFRE_ALL);
        }
        for (slot, owner) in OWNERS.iter().enumerate() {
            if owner.0 == vf {
                self.tx[slot].on = false;
                self.rx[slot].on = false;
            }
        }
    }
}

/// All pools.
const VFRE_ALL: u32 = 0x87;
