//! Bringing the device up: reset, EEPROM, PHY, link, filters.

use std::time::Duration;

use super::config::{Config, DriverError, Eeprom, Reset};
use super::driver::Driver;
use super::nvm::{Microwire, read_eerd, read_phy, write_phy};
use super::regs::{self, ctrl, phy, status, tctl};
use crate::bus::Bus;

/// Linux driver's list has 29 ids; this driver knows the one the model has.
const VENDOR: u16 = 0x8086;
const DEVICE: u16 = 0x100e;

/// Words that the EEPROM checksum covers, and what they add up to (5.6.35).
const EEPROM_WORDS: u8 = 64;
const EEPROM_SUM: u16 = 0xbaba;

impl<B: Bus> Driver<B> {
    /// Brings the device up in the order of the Linux driver's probe and open.
    ///
    /// # Errors
    /// Says what the device did not do as the manual promises.
    pub fn new(mut bus: B, config: Config) -> Result<Self, DriverError> {
        identify(&mut bus)?;
        reset(&mut bus, config.reset)?;
        let mac = station_address(&mut bus, &config)?;
        clear_filters(&mut bus)?;
        bring_up_link(&mut bus, &config)?;
        let memory = bus.memory();
        let tx = super::tx::ring::Ring::new(&mut bus, &config)?;
        let rx = super::rx::ring::Ring::new(&mut bus, &config)?;
        let totals = [0; regs::STATISTICS.len()];
        let mut driver = Self {
            bus,
            memory,
            config,
            mac,
            tx,
            rx,
            totals,
        };
        driver.wait_link()?;
        driver.filters()?;
        driver.start_tx()?;
        driver.start_rx()?;
        // What counted before our time is not ours.
        driver.update_statistics()?;
        driver.totals = [0; regs::STATISTICS.len()];
        driver.bus.read32(regs::ICR)?;
        driver.bus.write32(regs::IMS, driver.config.causes)?;
        Ok(driver)
    }

    fn wait_link(&mut self) -> Result<(), DriverError> {
        const STEP: Duration = Duration::from_millis(10);
        let steps = self.config.link_timeout.as_millis() / STEP.as_millis();
        let mut value = status::LU;
        for _ in 0..steps {
            value = self.bus.read32(regs::STATUS)?;
            if value & status::LU != 0 {
                return Ok(());
            }
            self.bus.delay(STEP)?;
        }
        if value & status::LU != 0 {
            return Ok(());
        }
        Err(DriverError::Timeout {
            what: "link up",
            value,
        })
    }

    /// Programs station address, multicast and VLAN filters.
    fn filters(&mut self) -> Result<(), DriverError> {
        let mac = self.mac;
        let low = u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]);
        let high = u32::from(u16::from_le_bytes([mac[4], mac[5]]));
        self.bus.write32(regs::RAL, low)?;
        self.bus.write32(regs::RAH, high | regs::RAH_AV)?;
        let mut table = [0u32; 128];
        for group in &self.config.multicast {
            // MO = 0: bits 47:36 of the address as it is on the wire (13.5.1).
            let hash = usize::from(group[4] >> 4) | usize::from(group[5]) << 4;
            table[hash >> 5] |= 1 << (hash & 31);
        }
        for (at, word) in (regs::MTA..).step_by(4).zip(table) {
            self.bus.write32(at, word)?;
        }
        if let Some(vlans) = &self.config.vlan_filter {
            let mut table = [0u32; 128];
            for vid in vlans {
                let vid = usize::from(vid & 0xfff);
                table[vid >> 5] |= 1 << (vid & 31);
            }
            for (at, word) in (regs::VFTA..).step_by(4).zip(table) {
                self.bus.write32(at, word)?;
            }
        }
        if self.config.vlan {
            let value = self.bus.read32(regs::CTRL)?;
            self.bus.write32(regs::CTRL, value | ctrl::VME)?;
        }
        Ok(())
    }
}

fn identify(bus: &mut impl Bus) -> Result<(), DriverError> {
    let mut ids = [0; 4];
    bus.config_read(0, &mut ids)?;
    let vendor = u16::from_le_bytes([ids[0], ids[1]]);
    let device = u16::from_le_bytes([ids[2], ids[3]]);
    if (vendor, device) != (VENDOR, DEVICE) {
        return Err(DriverError::NotOurs { vendor, device });
    }
    // I/O, memory, bus master; INTx not disabled.
    let mut command = [0; 2];
    bus.config_read(4, &mut command)?;
    let command = (u16::from_le_bytes(command) | 7) & !(1 << 10);
    bus.config_write(4, &command.to_le_bytes())?;
    Ok(())
}

/// The first I/O BAR behind BAR 0; real devices have it at 2 or 4, QEMU's at 1.
fn io_bar(bus: &mut impl Bus) -> Result<u8, DriverError> {
    for bar in 1..6u8 {
        let mut low = [0];
        bus.config_read(0x10 + 4 * u16::from(bar), &mut low)?;
        if low[0] & 1 != 0 {
            return Ok(bar);
        }
    }
    Err(DriverError::NoIoBar)
}

/// Stops everything, then resets (14.3 and the errata behind the delays).
fn reset(bus: &mut impl Bus, how: Reset) -> Result<(), DriverError> {
    if how == Reset::Skip {
        return Ok(());
    }
    bus.write32(regs::IMC, u32::MAX)?;
    bus.write32(regs::RCTL, 0)?;
    bus.write32(regs::TCTL, tctl::PSP)?;
    bus.read32(regs::STATUS)?;
    bus.delay(Duration::from_millis(10))?;
    let value = bus.read32(regs::CTRL)? | ctrl::RST;
    match how {
        Reset::Io => {
            let bar = io_bar(bus)?;
            bus.bar_write(bar, regs::IOADDR, &regs::CTRL.to_le_bytes())?;
            bus.bar_write(bar, regs::IODATA, &value.to_le_bytes())?;
        }
        Reset::Mmio => bus.write32(regs::CTRL, value)?,
        Reset::Skip => {}
    }
    bus.delay(Duration::from_millis(5))?;
    let value = bus.read32(regs::CTRL)?;
    if value & ctrl::RST != 0 {
        return Err(DriverError::Timeout {
            what: "end of reset",
            value,
        });
    }
    let manc = bus.read32(regs::MANC)?;
    bus.write32(regs::MANC, manc & !regs::MANC_ARP_EN)?;
    bus.write32(regs::IMC, u32::MAX)?;
    bus.read32(regs::ICR)?;
    Ok(())
}

fn station_address(bus: &mut impl Bus, config: &Config) -> Result<[u8; 6], DriverError> {
    let mac = match config.eeprom {
        Eeprom::Microwire => {
            let mut words = [0u16; EEPROM_WORDS as usize];
            let mut pins = Microwire::acquire(bus)?;
            for (address, word) in (0..).zip(&mut words) {
                *word = pins.read(address)?;
            }
            pins.release()?;
            address_of(&words)?
        }
        Eeprom::Eerd => {
            let mut words = [0u16; EEPROM_WORDS as usize];
            for (address, word) in (0..).zip(&mut words) {
                *word = read_eerd(bus, address)?;
            }
            address_of(&words)?
        }
        Eeprom::Ral => {
            let low = bus.read32(regs::RAL)?.to_le_bytes();
            let high = bus.read32(regs::RAH)?.to_le_bytes();
            [low[0], low[1], low[2], low[3], high[0], high[1]]
        }
    };
    let mac = config.mac.unwrap_or(mac);
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(DriverError::BadAddress(mac));
    }
    Ok(mac)
}

fn address_of(words: &[u16; EEPROM_WORDS as usize]) -> Result<[u8; 6], DriverError> {
    let sum = words.iter().fold(0u16, |sum, word| sum.wrapping_add(*word));
    if sum != EEPROM_SUM {
        return Err(DriverError::EepromChecksum { sum });
    }
    let [a, b] = words[0].to_le_bytes();
    let [c, d] = words[1].to_le_bytes();
    let [e, f] = words[2].to_le_bytes();
    Ok([a, b, c, d, e, f])
}

fn clear_filters(bus: &mut impl Bus) -> Result<(), DriverError> {
    for at in (regs::VFTA..).step_by(4).take(128) {
        bus.write32(at, 0)?;
    }
    for at in (regs::RAL..).step_by(8).take(16).skip(1) {
        bus.write32(at, 0)?;
        bus.write32(at + 4, 0)?;
    }
    for at in (regs::MTA..).step_by(4).take(128) {
        bus.write32(at, 0)?;
    }
    Ok(())
}

fn bring_up_link(bus: &mut impl Bus, config: &Config) -> Result<(), DriverError> {
    let value = bus.read32(regs::CTRL)?;
    let value = (value | ctrl::SLU | ctrl::ASDE | ctrl::FD) & !(ctrl::FRCSPD | ctrl::FRCDPX);
    bus.write32(regs::CTRL, value)?;
    if config.phy {
        negotiate(bus, !config.link_timeout.is_zero())?;
    }
    // PAUSE frames (IEEE 802.3 31B): their address, type and time.
    bus.write32(regs::FCAL, 0x00c2_8001)?;
    bus.write32(regs::FCAH, 0x0000_0100)?;
    bus.write32(regs::FCT, 0x8808)?;
    bus.write32(regs::FCTTV, 0xffff)?;
    Ok(())
}

/// Identifies the PHY, resets it and negotiates, as the Linux driver does for this PHY family.
fn negotiate(bus: &mut impl Bus, wait: bool) -> Result<(), DriverError> {
    let id = u32::from(read_phy(bus, phy::ID1)?) << 16 | u32::from(read_phy(bus, phy::ID2)?);
    if id & !0xf != phy::ID {
        return Err(DriverError::PhyId { id });
    }
    // Automatic crossover in all modes; assert CRS on transmit.
    let specific = read_phy(bus, phy::SPEC_CTRL)?;
    write_phy(bus, phy::SPEC_CTRL, specific | 0x0060 | 0x0800)?;
    let extended = read_phy(bus, phy::EXT_SPEC_CTRL)?;
    write_phy(bus, phy::EXT_SPEC_CTRL, extended | 0x0070)?;
    let control = read_phy(bus, phy::CONTROL)?;
    write_phy(bus, phy::CONTROL, control | phy::RESET)?;
    poll_phy(bus, phy::CONTROL, "PHY reset", |v| v & phy::RESET == 0)?;
    // 10 and 100 Mbit/s both duplexes and pause; then 1000 Mbit/s full duplex only.
    write_phy(bus, phy::AUTONEG_ADV, 0x0de1)?;
    write_phy(bus, phy::CTRL_1000T, 0x0200)?;
    let control = read_phy(bus, phy::CONTROL)?;
    let restart = phy::AUTONEG_EN | phy::RESTART_AUTONEG;
    write_phy(bus, phy::CONTROL, control | restart)?;
    if wait {
        let done = phy::AUTONEG_DONE | phy::LINK;
        poll_phy(bus, phy::STATUS, "auto-negotiation", |v| v & done == done)?;
    }
    Ok(())
}

/// Polls a PHY register for up to 4.5 s (what auto-negotiation may take), reading it twice each
/// time because link status latches low.
fn poll_phy(
    bus: &mut impl Bus,
    register: u8,
    what: &'static str,
    done: impl Fn(u16) -> bool,
) -> Result<(), DriverError> {
    let mut value = 0;
    for _ in 0..90 {
        read_phy(bus, register)?;
        value = read_phy(bus, register)?;
        if done(value) {
            return Ok(());
        }
        bus.delay(Duration::from_millis(50))?;
    }
    Err(DriverError::Timeout {
        what,
        value: value.into(),
    })
}
