//! The two slow side channels: EEPROM and PHY.

use std::time::Duration;

use super::config::DriverError;
use super::regs::{self, eecd, eerd, mdic};
use crate::bus::{Bus, BusError};

/// Polls before the driver gives up; more than any driver's.
const PATIENCE: u32 = 2000;

/// The EEPROM's pins (5.3): the EEPROM sees what it would see from hardware.
pub struct Microwire<'b, B: Bus + ?Sized> {
    bus: &'b mut B,
    pins: u32,
    address_bits: u32,
}

impl<'b, B: Bus + ?Sized> Microwire<'b, B> {
    /// Asks for the EEPROM and waits for the grant.
    ///
    /// # Errors
    /// When it is not granted.
    pub fn acquire(bus: &'b mut B) -> Result<Self, DriverError> {
        let mut pins = bus.read32(regs::EECD)? | eecd::REQ;
        bus.write32(regs::EECD, pins)?;
        for _ in 0..PATIENCE {
            pins = bus.read32(regs::EECD)?;
            if pins & eecd::GNT != 0 {
                let address_bits = if pins & eecd::SIZE == 0 { 6 } else { 8 };
                pins &= !(eecd::SK | eecd::CS | eecd::DI);
                let mut this = Self {
                    bus,
                    pins,
                    address_bits,
                };
                this.drive()?;
                return Ok(this);
            }
            bus.delay(Duration::from_micros(5))?;
        }
        Err(DriverError::Timeout {
            what: "EEPROM grant",
            value: pins,
        })
    }

    fn drive(&mut self) -> Result<(), BusError> {
        self.bus.write32(regs::EECD, self.pins)?;
        self.bus.read32(regs::STATUS)?;
        self.bus.delay(Duration::from_micros(1))
    }

    fn pin(&mut self, pin: u32, high: bool) -> Result<(), BusError> {
        if high {
            self.pins |= pin;
        } else {
            self.pins &= !pin;
        }
        self.drive()
    }

    /// Selects the chip: a new command starts.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn select(&mut self) -> Result<(), BusError> {
        self.pin(eecd::CS, false)?;
        self.pin(eecd::SK, true)?;
        self.pin(eecd::SK, false)?;
        self.pin(eecd::CS, true)
    }

    /// Clocks the low `count` bits of `bits` in, highest first.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn shift_out(&mut self, bits: u32, count: u32) -> Result<(), BusError> {
        for i in (0..count).rev() {
            self.pin(eecd::DI, bits >> i & 1 != 0)?;
            self.pin(eecd::SK, true)?;
            self.pin(eecd::SK, false)?;
        }
        self.pin(eecd::DI, false)
    }

    /// Clocks 16 bits out.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn shift_in(&mut self) -> Result<u16, BusError> {
        let mut word = 0;
        for _ in 0..16 {
            self.pin(eecd::SK, true)?;
            let high = self.bus.read32(regs::EECD)? & eecd::DO != 0;
            word = word << 1 | u16::from(high);
            self.pin(eecd::SK, false)?;
        }
        Ok(word)
    }

    /// Reads a word: opcode 110, address, then the data.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn read(&mut self, address: u8) -> Result<u16, BusError> {
        self.select()?;
        self.shift_out(0b110, 3)?;
        self.shift_out(address.into(), self.address_bits)?;
        self.shift_in()
    }

    /// Lets go of the EEPROM.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn release(mut self) -> Result<(), BusError> {
        self.pins &= !(eecd::CS | eecd::DI | eecd::SK);
        self.drive()?;
        self.pin(eecd::REQ, false)
    }
}

/// Reads a word through EERD.
pub(super) fn read_eerd<B: Bus + ?Sized>(bus: &mut B, address: u8) -> Result<u16, DriverError> {
    let command = eerd::START | u32::from(address) << eerd::ADDR_SHIFT;
    bus.write32(regs::EERD, command)?;
    let mut value = 0;
    for _ in 0..PATIENCE {
        value = bus.read32(regs::EERD)?;
        if value & eerd::DONE != 0 {
            return Ok((value >> eerd::DATA_SHIFT) as u16);
        }
        bus.delay(Duration::from_micros(5))?;
    }
    Err(DriverError::Timeout {
        what: "EEPROM read",
        value,
    })
}

fn mdic<B: Bus + ?Sized>(bus: &mut B, register: u8, command: u32) -> Result<u16, DriverError> {
    let address = u32::from(register) << mdic::REG_SHIFT | regs::phy::ADDRESS << mdic::PHY_SHIFT;
    bus.write32(regs::MDIC, command | address)?;
    for _ in 0..PATIENCE {
        bus.delay(Duration::from_micros(50))?;
        let value = bus.read32(regs::MDIC)?;
        if value & mdic::READY != 0 {
            return if value & mdic::ERROR == 0 {
                Ok(value as u16)
            } else {
                Err(DriverError::Phy {
                    register,
                    mdic: value,
                })
            };
        }
    }
    let value = bus.read32(regs::MDIC)?;
    Err(DriverError::Timeout {
        what: "PHY access",
        value,
    })
}

/// Reads a PHY register.
///
/// # Errors
/// When the PHY does not answer, or refuses.
pub fn read_phy<B: Bus + ?Sized>(bus: &mut B, register: u8) -> Result<u16, DriverError> {
    mdic(bus, register, mdic::OP_READ)
}

/// Writes a PHY register.
///
/// # Errors
/// When the PHY does not answer, or refuses.
pub fn write_phy<B: Bus + ?Sized>(
    bus: &mut B,
    register: u8,
    value: u16,
) -> Result<(), DriverError> {
    mdic(bus, register, mdic::OP_WRITE | u32::from(value)).map(drop)
}
