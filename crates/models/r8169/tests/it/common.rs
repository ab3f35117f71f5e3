//! A guest for the model, all fake, and register names from the drivers' side: nothing here comes from the model's table.

use hypernic_r8169::{Config, new};
use model::{PciState, Space};

pub use model_testkit::packet::{MAC, PEER, plain};
pub use model_testkit::{Machine, Wire, memory};

pub const RAM: u64 = 0x10_0000;
pub const RAM_LEN: u64 = 0x80_0000;
pub const TX_RING: u64 = RAM;
pub const RX_RING: u64 = RAM + 0x1_0000;
pub const STATS: u64 = RAM + 0x1_f000;
pub const TX_BUFFERS: u64 = RAM + 0x2_0000;
pub const RX_BUFFERS: u64 = RAM + 0x40_0000;
/// From one receive buffer to the next.
pub const RX_STEP: u64 = 0x4000;

pub mod reg {
    pub const IDR0: u64 = 0x00;
    pub const IDR4: u64 = 0x04;
    pub const MAR0: u64 = 0x08;
    pub const MAR4: u64 = 0x0c;
    pub const COUNTER_LOW: u64 = 0x10;
    pub const COUNTER_HIGH: u64 = 0x14;
    pub const TX_LOW: u64 = 0x20;
    pub const TX_HIGH: u64 = 0x24;
    pub const CHIP_CMD: u64 = 0x37;
    pub const TX_POLL: u64 = 0x38;
    pub const IMR: u64 = 0x3c;
    pub const ISR: u64 = 0x3e;
    pub const TX_CONFIG: u64 = 0x40;
    pub const RX_CONFIG: u64 = 0x44;
    pub const TIMER: u64 = 0x48;
    pub const RX_MISSED: u64 = 0x4c;
    pub const CFG9346: u64 = 0x50;
    pub const CONFIG1: u64 = 0x52;
    pub const CONFIG3: u64 = 0x54;
    pub const TIMER_INT: u64 = 0x58;
    pub const PHYAR: u64 = 0x60;
    pub const CSIDR: u64 = 0x64;
    pub const CSIAR: u64 = 0x68;
    pub const PHY_STATUS: u64 = 0x6c;
    pub const ERIAR: u64 = 0x74;
    pub const EPHYAR: u64 = 0x80;
    pub const RX_MAX_SIZE: u64 = 0xda;
    pub const EFUSEAR: u64 = 0xdc;
    pub const CPLUS_CMD: u64 = 0xe0;
    pub const MITIGATE: u64 = 0xe2;
    pub const RX_LOW: u64 = 0xe4;
    pub const RX_HIGH: u64 = 0xe8;
    pub const MAX_TX: u64 = 0xec;
}

pub const ROK: u16 = 0x1;
pub const RER: u16 = 0x2;
pub const TOK: u16 = 0x4;
pub const TER: u16 = 0x8;
pub const RDU: u16 = 0x10;
pub const LINK_CHG: u16 = 0x20;
pub const TDU: u16 = 0x80;
pub const SW_INT: u16 = 0x100;
pub const TIMEOUT: u16 = 0x4000;
pub const SYS_ERR: u16 = 0x8000;

pub const OWN: u32 = 1 << 31;
pub const EOR: u32 = 1 << 30;
pub const FS: u32 = 1 << 29;
pub const LS: u32 = 1 << 28;
pub const BOTH: u32 = FS | LS;

pub trait MachineExt: Sized {
    fn new() -> Self;
    fn with(config: Config, wire: Wire) -> Self;
    fn r8(&mut self, at: u64) -> u8;
    fn r16(&mut self, at: u64) -> u16;
    fn r32(&mut self, at: u64) -> u32;
    fn w8(&mut self, at: u64, value: u8);
    fn w16(&mut self, at: u64, value: u16);
    fn w32(&mut self, at: u64, value: u32);
    fn phy_write(&mut self, at: u32, value: u16);
    fn phy_read(&mut self, at: u32) -> u16;
    fn pci(&mut self, msi: bool, msix: bool);
    /// Both rings of `len` descriptors; those of the receiver have buffers of `size` bytes.
    fn rings(&mut self, len: u32, size: u32);
    fn tx_desc(&self, index: u32, opts1: u32, opts2: u32, addr: u64);
    fn rx_desc(&self, index: u32, opts1: u32, addr: u64);
    /// Both words of a descriptor.
    fn tx_words(&self, index: u32) -> (u32, u32);
    fn rx_words(&self, index: u32) -> (u32, u32);
    /// Sends a frame from descriptor `index`, with these bits.
    fn send(&mut self, index: u32, frame: &[u8], opts1: u32, opts2: u32);
    fn buffer(&self, index: u32, len: usize) -> Vec<u8>;
    /// ISR, acknowledged.
    fn take_isr(&mut self) -> u16;
}

impl MachineExt for Machine {
    fn new() -> Self {
        Self::with(Config::new(MAC), Wire::default())
    }

    fn with(config: Config, wire: Wire) -> Self {
        let mut m = Machine::of(new(config), memory(RAM, RAM_LEN), wire, 2_000_000_000);
        m.pci(false, false);
        m
    }

    fn r8(&mut self, at: u64) -> u8 {
        let mut data = [0];
        let bar = registers(self);
        self.nic.control.read(&self.env, bar, at, &mut data);
        self.work();
        data[0]
    }

    fn r16(&mut self, at: u64) -> u16 {
        let mut data = [0; 2];
        let bar = registers(self);
        self.nic.control.read(&self.env, bar, at, &mut data);
        self.work();
        u16::from_le_bytes(data)
    }

    fn r32(&mut self, at: u64) -> u32 {
        let mut data = [0; 4];
        let bar = registers(self);
        self.nic.control.read(&self.env, bar, at, &mut data);
        self.work();
        u32::from_le_bytes(data)
    }

    fn w8(&mut self, at: u64, value: u8) {
        let bar = registers(self);
        self.nic.control.write(&self.env, bar, at, &[value]);
        self.work();
    }

    fn w16(&mut self, at: u64, value: u16) {
        let data = value.to_le_bytes();
        let bar = registers(self);
        self.nic.control.write(&self.env, bar, at, &data);
        self.work();
    }

    fn w32(&mut self, at: u64, value: u32) {
        let data = value.to_le_bytes();
        let bar = registers(self);
        self.nic.control.write(&self.env, bar, at, &data);
        self.work();
    }

    fn phy_write(&mut self, at: u32, value: u16) {
        self.w32(reg::PHYAR, 1 << 31 | at << 16 | u32::from(value));
        assert_eq!(self.r32(reg::PHYAR) >> 31, 0, "the write is done");
    }

    fn phy_read(&mut self, at: u32) -> u16 {
        self.w32(reg::PHYAR, at << 16);
        let value = self.r32(reg::PHYAR);
        assert_eq!(value >> 31, 1, "the read is done");
        value as u16
    }

    fn pci(&mut self, msi: bool, msix: bool) {
        self.set_pci(PciState {
            bus_master: true,
            msi,
            msix,
            ..PciState::default()
        });
    }

    fn rings(&mut self, len: u32, size: u32) {
        for i in 0..len {
            let end = if i + 1 == len { EOR } else { 0 };
            self.tx_desc(i, end, 0, 0);
            self.rx_desc(i, OWN | end | size, RX_BUFFERS + u64::from(i) * RX_STEP);
        }
        self.w32(reg::TX_HIGH, (TX_RING >> 32) as u32);
        self.w32(reg::TX_LOW, TX_RING as u32);
        self.w32(reg::RX_HIGH, (RX_RING >> 32) as u32);
        self.w32(reg::RX_LOW, RX_RING as u32);
        self.w16(reg::RX_MAX_SIZE, 0x4000);
        self.w8(reg::CHIP_CMD, 0x0c);
        self.w32(reg::RX_CONFIG, 0x0000_e70f);
        self.w32(reg::MAR0, 0xffff_ffff);
        self.w32(reg::MAR4, 0xffff_ffff);
    }

    fn tx_desc(&self, index: u32, opts1: u32, opts2: u32, addr: u64) {
        let at = TX_RING + u64::from(index) * 16;
        self.poke(at + 4, &opts2.to_le_bytes());
        self.poke(at + 8, &addr.to_le_bytes());
        self.poke(at, &opts1.to_le_bytes());
    }

    fn rx_desc(&self, index: u32, opts1: u32, addr: u64) {
        let at = RX_RING + u64::from(index) * 16;
        self.poke(at + 4, &[0; 4]);
        self.poke(at + 8, &addr.to_le_bytes());
        self.poke(at, &opts1.to_le_bytes());
    }

    fn tx_words(&self, index: u32) -> (u32, u32) {
        words(self, TX_RING + u64::from(index) * 16)
    }

    fn rx_words(&self, index: u32) -> (u32, u32) {
        words(self, RX_RING + u64::from(index) * 16)
    }

    fn send(&mut self, index: u32, frame: &[u8], opts1: u32, opts2: u32) {
        let at = TX_BUFFERS + u64::from(index) * 0x1_0000;
        self.poke(at, frame);
        let end = self.tx_words(index).0 & EOR;
        let len = frame.len() as u32;
        self.tx_desc(index, OWN | end | opts1 | len, opts2, at);
        self.w8(reg::TX_POLL, 0x40);
    }

    fn buffer(&self, index: u32, len: usize) -> Vec<u8> {
        self.peek(RX_BUFFERS + u64::from(index) * RX_STEP, len)
    }

    fn take_isr(&mut self) -> u16 {
        let isr = self.r16(reg::ISR);
        self.w16(reg::ISR, isr);
        isr
    }
}

/// As Linux finds them: the first BAR in memory.
fn registers(m: &Machine) -> u8 {
    let bars = &m.nic.identity.bars;
    let found = bars.iter().find(|bar| bar.space != Space::Io);
    found.expect("one in memory").index
}

fn words(m: &Machine, at: u64) -> (u32, u32) {
    let d = m.peek(at, 8);
    let word = |i: usize| u32::from_le_bytes([d[i], d[i + 1], d[i + 2], d[i + 3]]);
    (word(0), word(4))
}
