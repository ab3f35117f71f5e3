//! Writes: a word at a time, with the bytes of it that are meant.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::counters::count;
use model::{Env, Work};
use regs::{Found, Id};

use crate::control::Registers;
use crate::core::irq::Irq;
use crate::core::kept;
use crate::irq::{RECEIVED, SENT};
use crate::regs as r;
use crate::regs::bits::{cause, cpcr, cr, dtccr, eecr, mitigate, poll};

/// EECR in its word; the rest is CONFIG0 to CONFIG2.
const EECR: u32 = 0xff;

impl Registers {
    /// Writes those bytes of the word at `offset` that `lanes` covers.
    pub(super) fn write_word(&mut self, env: &Env, offset: u32, value: u32, lanes: u32) {
        let Some(Found { id, element }) = self.chip.file.table().find(offset) else {
            return;
        };
        // The others say themselves what of them is to be saved.
        self.changed |= id != r::TPPOLL && id != r::IMR_ISR;
        let stored = self.chip.file.get_at(id, element);
        let merged = stored & !lanes | value & lanes;
        match id {
            r::IDR0_3 | r::IDR4_5 => self.write_locked(id, merged),
            r::CONFIG3_5 => {
                self.write_locked(id, merged);
                self.ask_to_wake();
            }
            r::DTCCR_LOW => self.write_dtccr(merged),
            r::TNPDS_LOW | r::TNPDS_HIGH => self.chip.reset_sent(|| self.set(id, merged)),
            r::RDSAR_LOW | r::RDSAR_HIGH => {
                self.chip.reset_received(|| self.set(id, merged));
                self.chip.stop_waiting();
            }
            r::CR if lanes >> cr::SHIFT != 0 => self.write_cr(env, merged),
            r::CR => {}
            r::TPPOLL => self.write_poll(env, value & lanes),
            r::IMR_ISR => self.write_interrupts(env, value, lanes),
            r::TCTR => {
                let limit = self.chip.file.get(r::TIMER_INT);
                self.chip.irq.lock().zero_timer(env, limit);
            }
            r::TIMER_INT => {
                self.set(id, merged);
                self.chip.irq.lock().set_timer(env, merged);
            }
            r::RX_MISSED => self.chip.stats.clear_missed(),
            r::EECR_CONFIG => self.write_eecr(value, merged, lanes),
            r::CSBAL | r::CSBAH | r::RXKICK => self.write_csb(env, id, (value, lanes)),
            r::PHYAR => self.write_phyar(env, merged),
            r::CSIAR => self.write_csiar(merged),
            r::ERIAR => self.write_eriar(merged),
            r::OCPDR => self.write_ocpdr(merged),
            r::GPHY_OCP => self.write_gphy_ocp(env, merged),
            r::FUNC_EVENT => {
                self.chip.file.write(id, element, merged);
                // A receiver that was closed may be open, or the other way round.
                self.chip.settle();
                self.work.rx = true;
            }
            r::EPHYAR => self.write_ephyar(merged),
            r::EFUSEAR => self.write_efusear(merged),
            r::CPCR_MITIGATE => {
                self.set(id, merged);
                let (value, scale) = (merged >> mitigate::SHIFT, merged & cpcr::SCALE);
                let mut irq = self.chip.irq.lock();
                irq.set_mitigation(env, value as u16, scale as u8);
            }
            id => {
                self.chip.file.write(id, element, merged);
            }
        }
        // These change nothing that lasts.
        if !matches!(id, r::TPPOLL | r::IMR_ISR | r::RXKICK) {
            self.chip.setup.changed();
        }
    }

    /// A register that changes only while EECR says so.
    fn write_locked(&self, id: Id, value: u32) {
        if self.unlocked() {
            self.set(id, value);
        } else {
            count(&self.chip.counters.locked_writes, 1);
        }
    }

    /// A reset touches no memory and is done at once: DPDK's driver writes an address without a command right behind it.
    fn write_dtccr(&mut self, value: u32) {
        if value & dtccr::RESET != 0 {
            self.chip.stats.reset();
        }
        let value = value & !dtccr::RESET;
        self.set(r::DTCCR_LOW, value);
        if value & dtccr::COMMANDS != 0 {
            self.chip.command.store(true, Ordering::Release);
            self.work.tx = true;
        }
    }

    fn write_cr(&mut self, env: &Env, value: u32) {
        let before = self.chip.file.get(r::CR) >> cr::SHIFT;
        let after = value >> cr::SHIFT;
        if after & cr::RST != 0 {
            count(&self.chip.counters.device_resets, 1);
            self.reset_mac(env);
            return;
        }
        self.set(r::CR, value);
        let off = before & !after & (cr::TE | cr::RE) != 0;
        if off || after & cr::STOP != 0 {
            // When the driver goes on, nothing touches its memory any more.
            self.chip.settle();
        }
        let on = after & !before;
        if on & cr::RE != 0 {
            self.chip.hold_receiver();
        }
        self.work.tx |= on & cr::TE != 0;
        self.work.rx |= on & cr::RE != 0;
    }

    pub(super) fn write_poll(&mut self, env: &Env, value: u32) {
        let chip = &self.chip;
        if value & poll::NORMAL != 0 {
            count(&chip.counters.tx_doorbells, 1);
            count(&chip.counters.csb_kicks, chip.csb.is_on().into());
            self.work.tx = true;
        }
        if value & poll::HIGH != 0 {
            count(&chip.counters.tx_high_priority, 1);
        }
        if value & poll::SOFTWARE_INTERRUPT != 0 {
            self.changed = true;
            chip.irq.lock().raise(env, cause::SOFTWARE);
        }
    }

    fn write_interrupts(&mut self, env: &Env, value: u32, lanes: u32) {
        let mut irq = self.chip.irq.lock();
        let acknowledged = (value & lanes) >> 16;
        if acknowledged != 0 {
            // Those that a NIC raises that goes on are not worth a word.
            self.changed |= acknowledged as u16 & irq.isr & !(SENT | RECEIVED) != 0;
            irq.acknowledge(env, acknowledged as u16);
        }
        let mask = lanes as u16;
        if mask != 0 {
            let merged = irq.imr & !mask | value as u16 & mask;
            Irq::set_mask(&mut irq, env, merged);
            self.chip.note(kept::IMR, irq.imr.into());
        }
        drop(irq);
        self.work.tx |= mask != 0 && self.chip.csb_unmasked(env);
        self.look();
    }

    /// The address of the CSB's page, or a call that buffers were given back.
    fn write_csb(&mut self, env: &Env, id: Id, (value, lanes): (u32, u32)) {
        let chip = Arc::clone(&self.chip);
        if !chip.csb.offered {
            return;
        }
        let merged = |stored: u32| stored & !lanes | value & lanes;
        match id {
            r::CSBAH => chip.write_csbah(env, merged(chip.csb.base().high)),
            r::CSBAL => {
                chip.write_csbal(env, merged(chip.csb.base().low));
                self.work = Work { tx: true, rx: true };
            }
            _ => {
                count(&chip.counters.csb_kicks, chip.csb.is_on().into());
                self.work.rx = true;
            }
        }
    }

    fn write_eecr(&mut self, value: u32, merged: u32, lanes: u32) {
        let before = self.chip.file.get(r::EECR_CONFIG);
        let mut after = before;
        // By what EECR was: a wide write does not unlock what it writes.
        if lanes & !EECR != 0 {
            if self.unlocked() {
                after = after & EECR | merged & !EECR;
            } else {
                count(&self.chip.counters.locked_writes, 1);
            }
        }
        if lanes & EECR != 0 {
            after = after & !EECR | value & (eecr::MODE | eecr::PINS);
            match after & eecr::MODE {
                eecr::AUTO_LOAD => {
                    self.load_eeprom();
                    // Done at once.
                    after &= !EECR;
                }
                eecr::EEPROM => {
                    let refused = self.eeprom.wires(after);
                    count(&self.chip.counters.eeprom_writes_refused, refused.into());
                }
                _ => {
                    self.eeprom.wires(0);
                }
            }
        }
        self.set(r::EECR_CONFIG, after);
    }
}
