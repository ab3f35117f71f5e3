//! The guest side of an 82576's physical function that rules VFs by registers: what Linux's igb does
//! where it sees SR-IOV (`igb_main.c`: `igb_msg_task`, `igb_set_vf_mac`, `igb_vf_reset_msg`,
//! `igb_set_vmolr`), and one queue of its own, polled.

use std::time::Duration;

use crate::bus::{Bus, BusError, Dma};
use crate::igbvf::mailbox::{CTS, DONE, REFUSED};

pub use intel_offsets::igb::{self as regs, vmolr};
use intel_offsets::igb::{p2v, queue};

const RST: u32 = 1 << 26;
const SLU: u32 = 1 << 6;
const LU: u32 = 1 << 1;
const PFRSTD: u32 = 1 << 14;
const ENABLE: u32 = 1 << 25;
/// RCTL: on, broadcast, VLAN filter, no frame check sequence.
const RCTL: u32 = 1 << 1 | 1 << 15 | 1 << 18 | 1 << 26;
/// RAH: valid.
const VALID: u32 = 1 << 31;
const POOLS_SHIFT: u32 = 18;
const RING: u32 = 64;
const DESC: u64 = 16;
const BUFFER: u64 = 2048;
const LOOKS: u32 = 10_000;

/// What a VF asked and its answer, or that it was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was reset (VFLRE).
    Reset(u32),
    /// The first word of its message, and whether it was granted.
    Message(u32, u32, bool),
    /// It has read what it was sent.
    Read(u32),
}

/// A PF that rules `vfs` VFs.
pub struct Pf<B> {
    bus: B,
    vfs: u32,
    mac: [u8; 6],
    /// The VFs' addresses.
    macs: Vec<[u8; 6]>,
    /// VFs that have completed a reset.
    ready: u32,
    tx: Dma,
    rx: Dma,
    tx_buffers: Dma,
    rx_buffers: Dma,
    tx_tail: u32,
    rx_next: u32,
}

impl<B: Bus> Pf<B> {
    /// Resets the NIC and brings it up: pools for `macs.len()` VFs and for itself behind them, each VF
    /// with one of `macs`, anti-spoofing for all of them, and its own queue.
    ///
    /// # Errors
    /// When the machine fails, or the link does not come up.
    pub fn new(mut bus: B, mac: [u8; 6], macs: &[[u8; 6]]) -> Result<Self, BusError> {
        // Memory and bus mastering.
        bus.config_write(4, &6u16.to_le_bytes())?;
        let [tx, rx] = [
            bus.alloc(u64::from(RING) * DESC)?,
            bus.alloc(u64::from(RING) * DESC)?,
        ];
        let tx_buffers = bus.alloc(u64::from(RING) * BUFFER)?;
        let rx_buffers = bus.alloc(u64::from(RING) * BUFFER)?;
        let mut pf = Pf {
            bus,
            vfs: macs.len() as u32,
            mac,
            macs: macs.to_vec(),
            ready: 0,
            tx,
            rx,
            tx_buffers,
            rx_buffers,
            tx_tail: 0,
            rx_next: 0,
        };
        pf.reset()?;
        Ok(pf)
    }

    /// The machine it runs on.
    pub fn bus(&mut self) -> &mut B {
        &mut self.bus
    }

    fn w(&mut self, at: u32, value: u32) -> Result<(), BusError> {
        self.bus.write32(at, value)
    }

    fn change(&mut self, at: u32, clear: u32, set: u32) -> Result<(), BusError> {
        let value = self.bus.read32(at)?;
        self.w(at, value & !clear | set)
    }

    /// As after a new start: all VFs are notified, and have to reset.
    ///
    /// # Errors
    /// As [`Pf::new`].
    pub fn reset(&mut self) -> Result<(), BusError> {
        self.ready = 0;
        self.w(regs::CTRL, RST)?;
        self.w(regs::CTRL, SLU)?;
        let mut looks = 0;
        while self.bus.read32(regs::STATUS)? & LU == 0 {
            looks += 1;
            if looks > LOOKS {
                return Err(BusError::Gone("there is no link".into()));
            }
            self.bus.delay(Duration::from_millis(1))?;
        }
        let own = self.vfs;
        self.w(regs::VFRE, 1 << own)?;
        self.w(regs::VFTE, 1 << own)?;
        self.w(regs::MRQC, 3)?;
        // Replication; the PF's is the default pool.
        self.w(regs::VT_CTL, 1 << 30 | own << 7)?;
        let vfs = (1 << self.vfs) - 1;
        self.w(regs::DTXSWC, 1 << 31 | vfs | vfs << 8)?;
        self.w(regs::QDE, 0xffff)?;
        for pool in 0..=self.vfs {
            let usual = vmolr::AUPE | vmolr::BAM | vmolr::STRVLAN | vmolr::STRCRC;
            self.w(regs::VMOLR + 4 * pool, usual | vmolr::LPE | 1522)?;
        }
        self.set_address(0, self.mac, own)?;
        self.rings()?;
        self.w(regs::RCTL, RCTL)?;
        self.w(regs::TCTL, 1 << 1)?;
        self.change(regs::CTRL_EXT, 0, PFRSTD)
    }

    fn rings(&mut self) -> Result<(), BusError> {
        (self.tx_tail, self.rx_next) = (0, 0);
        let zeros = vec![0; (u64::from(RING) * DESC) as usize];
        self.bus.dma_write(self.tx.iova, &zeros)?;
        for n in 0..RING {
            self.give(n)?;
        }
        for (queue, ring) in [(regs::RDBAL, self.rx), (regs::TDBAL, self.tx)] {
            let queue = queue + 0x40 * self.vfs;
            for (register, value) in [
                (queue::BASE, ring.iova as u32),
                (queue::BASE_HIGH, (ring.iova >> 32) as u32),
                (queue::LEN, RING * DESC as u32),
                (queue::HEAD, 0),
                (queue::TAIL, 0),
                (queue::XDCTL, ENABLE),
            ] {
                self.w(queue + register, value)?;
            }
        }
        let rx = regs::RDBAL + 0x40 * self.vfs;
        // One buffer of 2 KiB, advanced descriptors.
        self.w(rx + queue::SRRCTL, 1 << 25 | 2)?;
        self.w(rx + queue::TAIL, RING - 1)
    }

    fn give(&mut self, n: u32) -> Result<(), BusError> {
        let mut descriptor = [0; 16];
        let buffer = self.rx_buffers.iova + u64::from(n) * BUFFER;
        descriptor[..8].copy_from_slice(&buffer.to_le_bytes());
        self.bus
            .dma_write(self.rx.iova + u64::from(n) * DESC, &descriptor)
    }

    /// Gives an address to a pool, by entry `at` of the filter.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn set_address(&mut self, at: u32, mac: [u8; 6], pool: u32) -> Result<(), BusError> {
        let [a, b, c, d, e, f] = mac;
        let high = u32::from_le_bytes([e, f, 0, 0]);
        self.w(regs::RAL + 8 * at, u32::from_le_bytes([a, b, c, d]))?;
        self.w(
            regs::RAL + 8 * at + 4,
            high | VALID | 1 << (POOLS_SHIFT + pool),
        )
    }

    /// Puts VFs, bit by bit, and itself into a VLAN, by entry `at` of the filter.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn set_vlan(&mut self, at: u32, id: u16, vfs: u32) -> Result<(), BusError> {
        let pools = vfs | 1 << self.vfs;
        self.know_vlan(id)?;
        self.w(regs::VLVF + 4 * at, 1 << 31 | pools << 12 | u32::from(id))
    }

    /// Has what is tagged with a VLAN come inside.
    fn know_vlan(&mut self, id: u16) -> Result<(), BusError> {
        let word = regs::VFTA + 4 * u32::from(id / 32);
        self.change(word, 0, 1 << (id % 32))
    }

    /// Has all that a VF sends be of a VLAN, and nothing else reach it.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn set_port_vlan(&mut self, vf: u32, id: u16) -> Result<(), BusError> {
        self.set_vlan(vf, id, 1 << vf)?;
        self.change(regs::VMOLR + 4 * vf, vmolr::AUPE, 0)?;
        self.w(regs::VMVIR + 4 * vf, 1 << 30 | u32::from(id))
    }

    /// Looks what its VFs have done, and answers. What happened comes in the order of the VFs.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn serve(&mut self) -> Result<Vec<Heard>, BusError> {
        let mut heard = Vec::new();
        for vf in 0..self.vfs {
            if self.bus.read32(regs::VFLRE)? >> vf & 1 != 0 {
                self.w(regs::VFLRE, 1 << vf)?;
                self.ready &= !(1 << vf);
                heard.push(Heard::Reset(vf));
            }
            let causes = self.bus.read32(regs::MBVFICR)?;
            if causes >> vf & 1 != 0 {
                self.w(regs::MBVFICR, 1 << vf)?;
                heard.extend(self.answer(vf)?);
            }
            if causes >> (16 + vf) & 1 != 0 {
                self.w(regs::MBVFICR, 1 << (16 + vf))?;
                heard.push(Heard::Read(vf));
            }
        }
        Ok(heard)
    }

    /// Reads a message and answers it. `None`: its VF has the buffer again.
    fn answer(&mut self, vf: u32) -> Result<Option<Heard>, BusError> {
        let control = regs::P2VMAILBOX + 4 * vf;
        let memory = regs::VMBMEM + 64 * vf;
        self.w(control, p2v::PFU)?;
        if self.bus.read32(control)? & p2v::PFU == 0 {
            return Ok(None);
        }
        let mut words = [0; 16];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.bus.read32(memory + 4 * at as u32)?;
        }
        self.w(control, p2v::ACK)?;
        let reply = self.decide(vf, &words)?;
        self.w(control, p2v::PFU)?;
        if self.bus.read32(control)? & p2v::PFU == 0 {
            return Ok(None);
        }
        for (at, word) in reply.iter().enumerate() {
            self.w(memory + 4 * at as u32, *word)?;
        }
        self.w(control, p2v::STS)?;
        Ok(Some(Heard::Message(vf, words[0], reply[0] & DONE != 0)))
    }

    fn decide(&mut self, vf: u32, words: &[u32; 16]) -> Result<Vec<u32>, BusError> {
        let kind = words[0] & 0xffff;
        let count = words[0] >> 16 & 0xff;
        if kind != 1 && self.ready >> vf & 1 == 0 {
            return Ok(vec![words[0] | REFUSED]);
        }
        let done = match kind {
            1 => {
                let mac = self.macs[vf as usize];
                // From the end on, as igb does.
                self.set_address(15 - vf, mac, vf)?;
                self.change(regs::VFTE, 0, 1 << vf)?;
                self.change(regs::VFRE, 0, 1 << vf)?;
                self.ready |= 1 << vf;
                let [a, b, c, d, e, f] = mac;
                let (low, high) = ([a, b, c, d], [e, f, 0, 0]);
                return Ok(vec![
                    1 | DONE,
                    u32::from_le_bytes(low),
                    u32::from_le_bytes(high),
                ]);
            }
            // Its own address, and no other.
            2 => {
                let [a, b, c, d] = words[1].to_le_bytes();
                let [e, f, ..] = words[2].to_le_bytes();
                [a, b, c, d, e, f] == self.macs[vf as usize]
            }
            3 => {
                for at in 0..count.min(30) {
                    let hash = words[1 + at as usize / 2] >> (16 * (at % 2)) & 0xfff;
                    self.change(regs::MTA + 4 * (hash / 32), 0, 1 << (hash % 32))?;
                }
                let set = if count > 0 { vmolr::ROMPE } else { 0 };
                self.change(regs::VMOLR + 4 * vf, vmolr::ROMPE, set)?;
                true
            }
            4 => {
                let (id, pool) = (words[1] & 0xfff, 1 << (12 + vf));
                let (set, clear) = if count > 0 { (pool, 0) } else { (0, pool) };
                self.know_vlan(id as u16)?;
                self.change(
                    regs::VLVF + 4 * vf,
                    clear | 0xfff,
                    set | 1 << 31 | 1 << (12 + self.vfs) | id,
                )?;
                true
            }
            5 => {
                let len = words[1].min(9728);
                self.change(regs::VMOLR + 4 * vf, 0x3fff, vmolr::LPE | len)?;
                true
            }
            _ => false,
        };
        let answer = if done { DONE | CTS } else { REFUSED | CTS };
        Ok(vec![words[0] | answer])
    }

    /// Sends a frame of at most 2048 bytes.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), BusError> {
        let slot = u64::from(self.tx_tail % RING);
        let buffer = self.tx_buffers.iova + slot * BUFFER;
        self.bus.dma_write(buffer, frame)?;
        let len = frame.len() as u32;
        // Advanced data: EOP, IFCS, RS, DEXT.
        let command = len | 3 << 20 | 1 << 24 | 1 << 25 | 1 << 27 | 1 << 29;
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&buffer.to_le_bytes());
        descriptor[8..12].copy_from_slice(&command.to_le_bytes());
        descriptor[12..].copy_from_slice(&(len << 14).to_le_bytes());
        self.bus
            .dma_write(self.tx.iova + slot * DESC, &descriptor)?;
        self.tx_tail += 1;
        let tail = self.tx_tail % RING;
        self.w(regs::TDBAL + 0x40 * self.vfs + queue::TAIL, tail)
    }

    /// What has come for it.
    ///
    /// # Errors
    /// When the machine fails.
    pub fn receive(&mut self) -> Result<Vec<Vec<u8>>, BusError> {
        let mut frames = Vec::new();
        loop {
            let slot = self.rx_next % RING;
            let mut words = [0; 16];
            self.bus
                .dma_read(self.rx.iova + u64::from(slot) * DESC, &mut words)?;
            if words[8] & 1 == 0 {
                break;
            }
            let len = u64::from(u16::from_le_bytes([words[12], words[13]])).min(BUFFER);
            let mut frame = vec![0; len as usize];
            self.bus
                .dma_read(self.rx_buffers.iova + u64::from(slot) * BUFFER, &mut frame)?;
            frames.push(frame);
            self.give(slot)?;
            self.rx_next += 1;
        }
        if !frames.is_empty() {
            let tail = self.rx_next.wrapping_sub(1) % RING;
            self.w(regs::RDBAL + 0x40 * self.vfs + queue::TAIL, tail)?;
        }
        Ok(frames)
    }
}
