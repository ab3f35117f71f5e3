//! A guest, a wire and a clock for the model, all fake.

use std::time::Duration;

use hypernic_e1000::{Config, new};
use model::{Nic, PciState};

pub use model_testkit::packet::{MAC, PEER, plain};
pub use model_testkit::{Machine, Wire, a_look_is_a_read_without_effect, memory, peeked};

pub const RAM: u64 = 0x10_0000;
pub const RAM_LEN: u64 = 0x40_0000;
pub const TX_RING: u64 = RAM;
pub const RX_RING: u64 = RAM + 0x1_0000;
pub const TX_BUFFERS: u64 = RAM + 0x2_0000;
pub const RX_BUFFERS: u64 = RAM + 0x20_0000;

pub use intel_offsets::e1000::long as reg;

/// A guest of this chip. The machine is of every model.
pub trait MachineExt: Sized {
    fn new(wire: Wire) -> Self;
    fn default() -> Self;
    fn with(config: Config, wire: Wire) -> Self;
    /// A guest around this NIC.
    fn around(nic: Nic, wire: Wire) -> Self;
    fn phy_write(&mut self, reg: u32, value: u16);
    fn phy_read(&mut self, reg: u32) -> u16;
    fn set_msi(&mut self, on: bool);
    /// Link up, transmitter on with a ring of `len` descriptors.
    fn tx_on(&mut self, len: u32);
    fn tx_desc(&self, index: u32, low: u64, high: u64);
    fn tx_done(&self, index: u32) -> bool;
    /// Link up, receiver on with `len` descriptors, all but one of them given.
    fn rx_on(&mut self, len: u32, rctl: u32);
    fn rx_desc(&self, index: u32, addr: u64);
    /// Length, status, errors, special.
    fn rx_status(&self, index: u32) -> (u16, u8, u8, u16);
}

impl MachineExt for Machine {
    fn new(wire: Wire) -> Self {
        let mut config = Config::new(MAC);
        config.negotiation = Duration::from_millis(10);
        Self::with(config, wire)
    }

    fn default() -> Self {
        Self::new(Wire::default())
    }

    fn with(config: Config, wire: Wire) -> Self {
        Self::around(new(config), wire)
    }

    fn around(nic: Nic, wire: Wire) -> Self {
        let mut m = Self::of(nic, memory(RAM, RAM_LEN), wire, 0);
        m.set_msi(false);
        m
    }

    fn phy_write(&mut self, reg: u32, value: u16) {
        self.w(reg::MDIC, 1 << 26 | 1 << 21 | reg << 16 | u32::from(value));
    }

    fn phy_read(&mut self, reg: u32) -> u16 {
        self.w(reg::MDIC, 2 << 26 | 1 << 21 | reg << 16);
        let value = self.r(reg::MDIC);
        assert_eq!(value & 0x5000_0000, 0x1000_0000, "ready and no error");
        value as u16
    }

    fn set_msi(&mut self, on: bool) {
        let state = PciState {
            bus_master: true,
            msi: on,
            ..PciState::default()
        };
        self.set_pci(state);
    }

    fn tx_on(&mut self, len: u32) {
        let ctrl = self.r(reg::CTRL);
        self.w(reg::CTRL, ctrl | 1 << 6);
        self.w(reg::TDBAL, TX_RING as u32);
        self.w(reg::TDLEN, len * 16);
        self.w(reg::TDH, 0);
        self.w(reg::TDT, 0);
        self.w(reg::TCTL, 0x2);
    }

    fn tx_desc(&self, index: u32, low: u64, high: u64) {
        let at = TX_RING + u64::from(index) * 16;
        self.poke(at, &low.to_le_bytes());
        self.poke(at + 8, &high.to_le_bytes());
    }

    fn tx_done(&self, index: u32) -> bool {
        self.peek(TX_RING + u64::from(index) * 16 + 12, 1)[0] & 1 == 1
    }

    fn rx_on(&mut self, len: u32, rctl: u32) {
        let ctrl = self.r(reg::CTRL);
        self.w(reg::CTRL, ctrl | 1 << 6);
        for i in 0..len {
            self.rx_desc(i, RX_BUFFERS + u64::from(i) * 0x4000);
        }
        self.w(reg::RDBAL, RX_RING as u32);
        self.w(reg::RDLEN, len * 16);
        self.w(reg::RDH, 0);
        self.w(reg::RDT, len - 1);
        self.w(reg::RCTL, rctl | 0x2);
    }

    fn rx_desc(&self, index: u32, addr: u64) {
        let at = RX_RING + u64::from(index) * 16;
        self.poke(at, &addr.to_le_bytes());
        self.poke(at + 8, &[0; 8]);
    }

    fn rx_status(&self, index: u32) -> (u16, u8, u8, u16) {
        let d = self.peek(RX_RING + u64::from(index) * 16 + 8, 8);
        let half = |i: usize| u16::from_le_bytes([d[i], d[i + 1]]);
        (half(0), d[4], d[5], half(6))
    }
}

/// Upper half of a legacy descriptor.
pub fn legacy(len: u16, cmd: u8) -> u64 {
    u64::from(len) | u64::from(cmd) << 24
}

/// Upper half of a data descriptor.
pub fn data(len: u32, cmd: u8, popts: u8, special: u16) -> u64 {
    u64::from(len & 0xf_ffff)
        | 1 << 20
        | u64::from(cmd | 0x20) << 24
        | u64::from(popts) << 40
        | u64::from(special) << 48
}

pub struct Ctx {
    pub ip: (u8, u8, u16),
    pub tu: (u8, u8, u16),
    pub paylen: u32,
    /// TCP 1, IP 2, TSE 4, RS 8.
    pub cmd: u8,
    pub hdrlen: u8,
    pub mss: u16,
}

impl Ctx {
    pub fn words(&self) -> (u64, u64) {
        let low = u64::from(self.ip.0)
            | u64::from(self.ip.1) << 8
            | u64::from(self.ip.2) << 16
            | u64::from(self.tu.0) << 32
            | u64::from(self.tu.1) << 40
            | u64::from(self.tu.2) << 48;
        let high = u64::from(self.paylen & 0xf_ffff)
            | u64::from(self.cmd | 0x20) << 24
            | u64::from(self.hdrlen) << 40
            | u64::from(self.mss) << 48;
        (low, high)
    }
}

pub const EOP: u8 = 1;
pub const IFCS: u8 = 2;
pub const IC: u8 = 4;
pub const TSE: u8 = 4;
pub const RS: u8 = 8;
pub const RPS: u8 = 16;
pub const VLE: u8 = 0x40;
pub const IDE: u8 = 0x80;
