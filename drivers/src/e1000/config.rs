//! How the device shall be run, and why that may fail.

use std::time::Duration;

use super::desc;
use super::regs::{cause, rctl};
use crate::bus::BusError;

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

/// The RCTL value for a configuration, without EN.
pub(super) fn receive_control(config: &Config) -> Result<u32, DriverError> {
    let size = match config.rx_buffer {
        2048 => 0,
        1024 => 1 << rctl::BSIZE_SHIFT,
        512 => 2 << rctl::BSIZE_SHIFT,
        256 => 3 << rctl::BSIZE_SHIFT,
        16384 => rctl::BSEX | 1 << rctl::BSIZE_SHIFT,
        8192 => rctl::BSEX | 2 << rctl::BSIZE_SHIFT,
        4096 => rctl::BSEX | 3 << rctl::BSIZE_SHIFT,
        _ => return Err(DriverError::Config("no such receive buffer size")),
    };
    let mut value = size | rctl::BAM;
    for (wanted, bit) in [
        (config.long_packets, rctl::LPE),
        (config.strip_crc, rctl::SECRC),
        (config.promiscuous, rctl::UPE),
        (config.all_multicast, rctl::MPE),
        (config.vlan_filter.is_some(), rctl::VFE),
    ] {
        if wanted {
            value |= bit;
        }
    }
    Ok(value)
}
