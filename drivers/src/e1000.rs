//! A driver for the 82540EM, in the manner of the stock ones.

pub mod desc;
mod headers;
mod nvm;
pub mod poll;
pub mod regs;
mod rx;
mod setup;
mod tx;

use std::time::Duration;

use guest_mem::Memory;

use crate::bus::{Bus, BusError};
use regs::{STATISTICS, Statistic, cause};

pub use headers::Layout;
pub use nvm::{Microwire, read_phy, write_phy};
pub use rx::{RxFrame, RxSums};
pub use tx::{Report, TxOffload, TxOpts};

/// Why the driver gave up.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The bus failed.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Another device.
    #[error("device {vendor:04x}:{device:04x} is not one this driver knows")]
    NotOurs {
        /// PCI vendor id.
        vendor: u16,
        /// PCI device id.
        device: u16,
    },
    /// Reset through I/O space was asked for, and there is none.
    #[error("the device has no I/O BAR")]
    NoIoBar,
    /// A register did not become what it must.
    #[error("{what} did not happen in time (register reads {value:#010x})")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// Last value read.
        value: u32,
    },
    /// The EEPROM's words do not add up to 0xBABA.
    #[error("EEPROM checksum is {sum:#06x}, must be 0xbaba")]
    EepromChecksum {
        /// The sum.
        sum: u16,
    },
    /// The address is multicast or zero.
    #[error("EEPROM holds no usable address: {0:02x?}")]
    BadAddress([u8; 6]),
    /// The PHY is another one.
    #[error("PHY identifier is {id:#010x}")]
    PhyId {
        /// ID1 and ID2.
        id: u32,
    },
    /// The PHY refused an access.
    #[error("PHY register {register} cannot be accessed (MDIC {mdic:#010x})")]
    Phy {
        /// PHY register.
        register: u8,
        /// What MDIC said.
        mdic: u32,
    },
    /// A configuration that no hardware takes.
    #[error("{0}")]
    Config(&'static str),
    /// A frame that cannot be sent this way.
    #[error("cannot send the frame: {0}")]
    Frame(&'static str),
    /// The device wrote back nonsense.
    #[error("the device wrote back a bad descriptor {index}: {descriptor:02x?}")]
    Descriptor {
        /// Its index in the ring.
        index: u32,
        /// Its bytes.
        descriptor: desc::Raw,
    },
}

/// How the device is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// CTRL.RST through IOADDR and IODATA, as Linux does.
    Io,
    /// CTRL.RST in memory space, as DPDK and iPXE do.
    Mmio,
    /// Not at all: as after kexec, or to keep what is there.
    Skip,
}

/// How the EEPROM is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eeprom {
    /// Bit by bit through EECD, as Linux does.
    Microwire,
    /// Through EERD, as iPXE does.
    Eerd,
    /// Not at all: the address stands in RAL0 after reset.
    Ral,
}

/// What the driver sets up.
#[derive(Clone, Debug)]
pub struct Config {
    /// How to reset.
    pub reset: Reset,
    /// How to read the address.
    pub eeprom: Eeprom,
    /// Identify the PHY, configure it and negotiate the link anew.
    pub phy: bool,
    /// Station address instead of the EEPROM's.
    pub mac: Option<[u8; 6]>,
    /// Transmit descriptors: a multiple of 8, up to 4096.
    pub tx_ring: u32,
    /// Bytes of each transmit buffer; longer frames take several descriptors.
    pub tx_buffer: u32,
    /// Bytes from one transmit buffer to the next; at least `tx_buffer`.
    pub tx_stride: u32,
    /// Receive descriptors: a multiple of 8, up to 4096.
    pub rx_ring: u32,
    /// Receive buffer: 256, 512, 1024, 2048, 4096, 8192 or 16384 bytes.
    pub rx_buffer: u32,
    /// Bytes from one receive buffer to the next; at least `rx_buffer`.
    pub rx_stride: u32,
    /// Accept frames beyond 1522 bytes.
    pub long_packets: bool,
    /// Have the CRC stripped by the device; otherwise the driver takes it off.
    pub strip_crc: bool,
    /// Accept every unicast address.
    pub promiscuous: bool,
    /// Accept every multicast address.
    pub all_multicast: bool,
    /// Multicast addresses to accept, by the hash table.
    pub multicast: Vec<[u8; 6]>,
    /// Strip and insert VLAN tags.
    pub vlan: bool,
    /// Accept only these VLANs.
    pub vlan_filter: Option<Vec<u16>>,
    /// Check received checksums.
    pub rx_sums: bool,
    /// Interrupt causes to unmask; 0 for poll mode.
    pub causes: u32,
    /// ITR, in 256 ns.
    pub itr: u32,
    /// RDTR, in 1.024 us.
    pub rdtr: u32,
    /// RADV, in 1.024 us.
    pub radv: u32,
    /// TIDV, in 1.024 us.
    pub tidv: u32,
    /// TADV, in 1.024 us.
    pub tadv: u32,
    /// Ask for status every so many transmit descriptors ([`Report::Every`]).
    pub report_every: u32,
    /// Give receive buffers back in lots of so many.
    pub refill: u32,
    /// How long to wait for the link; zero: not at all.
    pub link_timeout: Duration,
}

impl Config {
    /// As the Linux driver sets the device up: interrupts, microwire, reset through I/O space.
    pub fn linux() -> Self {
        Self {
            reset: Reset::Io,
            eeprom: Eeprom::Microwire,
            phy: true,
            mac: None,
            tx_ring: 256,
            tx_buffer: 2048,
            tx_stride: 0,
            rx_ring: 256,
            rx_buffer: 2048,
            rx_stride: 0,
            long_packets: false,
            strip_crc: false,
            promiscuous: false,
            all_multicast: false,
            multicast: Vec::new(),
            vlan: false,
            vlan_filter: None,
            rx_sums: false,
            causes: cause::USUAL,
            itr: 0,
            rdtr: 0,
            radv: 8,
            tidv: 8,
            tadv: 32,
            report_every: 1,
            refill: 16,
            link_timeout: Duration::from_secs(5),
        }
    }

    /// As a poll-mode driver does: no interrupts, few reports, large rings.
    pub fn poll() -> Self {
        Self {
            reset: Reset::Mmio,
            eeprom: Eeprom::Eerd,
            phy: false,
            tx_ring: 1024,
            rx_ring: 1024,
            strip_crc: true,
            causes: 0,
            radv: 0,
            tidv: 0,
            tadv: 0,
            report_every: 32,
            refill: 32,
            ..Self::linux()
        }
    }
}

/// The driver of one device.
pub struct Driver<B: Bus> {
    bus: B,
    memory: Memory,
    config: Config,
    mac: [u8; 6],
    tx: tx::Ring,
    rx: rx::Ring,
    totals: [u64; STATISTICS.len()],
}

impl<B: Bus> Driver<B> {
    /// The station address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The bus.
    pub fn bus(&self) -> &B {
        &self.bus
    }

    /// The bus, to do what a driver would not.
    pub fn bus_mut(&mut self) -> &mut B {
        &mut self.bus
    }

    /// Reads a register.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn read(&mut self, register: u32) -> Result<u32, DriverError> {
        Ok(self.bus.read32(register)?)
    }

    /// Writes a register.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn write(&mut self, register: u32, value: u32) -> Result<(), DriverError> {
        Ok(self.bus.write32(register, value)?)
    }

    /// Waits for an interrupt and handles it as NAPI does: read the causes, mask, receive until
    /// nothing is left, reclaim, unmask. Returns the causes (0 when the interrupt was somebody
    /// else's), or nothing when `timeout` passed.
    ///
    /// # Errors
    /// When the device is gone or writes back nonsense.
    pub fn service(
        &mut self,
        timeout: Duration,
        each: impl FnMut(&RxFrame<'_>),
    ) -> Result<Option<u32>, DriverError> {
        if !self.bus.wait_irq(timeout)? {
            return Ok(None);
        }
        let causes = self.bus.read32(regs::ICR)?;
        if causes != 0 {
            self.bus.write32(regs::IMC, u32::MAX)?;
            self.bus.read32(regs::STATUS)?;
        }
        self.bus.unmask_irq()?;
        if causes != 0 {
            self.reclaim()?;
            self.poll_rx(usize::MAX, each)?;
            self.bus.write32(regs::IMS, self.config.causes)?;
        }
        Ok(Some(causes))
    }

    /// Reads all statistics counters and adds them to the totals.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn update_statistics(&mut self) -> Result<(), DriverError> {
        for (total, statistic) in self.totals.iter_mut().zip(STATISTICS) {
            *total += read_statistic(&mut self.bus, statistic)?;
        }
        Ok(())
    }

    /// Total of the counter with this name (the manual's, in lower case; 64-bit ones without
    /// their L and H) as of the last [`Driver::update_statistics`].
    pub fn statistic(&self, name: &str) -> Option<u64> {
        let at = STATISTICS.iter().position(|s| s.name == name)?;
        Some(self.totals[at])
    }

    /// Stops the device and gives all memory back. Returns the bus.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn shutdown(mut self) -> Result<B, DriverError> {
        self.bus.write32(regs::IMC, u32::MAX)?;
        let rctl = self.bus.read32(regs::RCTL)?;
        self.bus.write32(regs::RCTL, rctl & !regs::rctl::EN)?;
        let tctl = self.bus.read32(regs::TCTL)?;
        self.bus.write32(regs::TCTL, tctl & !regs::tctl::EN)?;
        self.bus.read32(regs::STATUS)?;
        for dma in self.tx.memory().into_iter().chain(self.rx.memory()) {
            self.bus.free(dma)?;
        }
        Ok(self.bus)
    }
}

/// Reads a counter: the low half first, because the high half clears both.
fn read_statistic(bus: &mut impl Bus, statistic: Statistic) -> Result<u64, BusError> {
    let low = bus.read32(statistic.offset)?;
    let high = if statistic.wide {
        bus.read32(statistic.offset + 4)?
    } else {
        0
    };
    Ok(u64::from(high) << 32 | u64::from(low))
}
