//! The register side: accesses of any width, side effects, reset.

mod commands;
mod load;
mod recover;
mod save;
mod writes;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frame::Counted;
use model::{Control, Env, Kept, Moderation, Nanos, PciState, ResetKind, StateError, Work};
use regs::Id;

use crate::core::chip::Chip;
use crate::core::config::Config;
use crate::core::eeprom::Eeprom;
use crate::core::irq::Way;
use crate::core::kept;
use crate::core::ocp::{self, Ocp};
use crate::core::phy::{Effect, Phy};
use crate::core::stats::Stat;
use crate::core::wake::{Power, event};
use crate::filter::wake;
use crate::regs as r;
use crate::regs::bits::{cause, eecr, phy_status, ready};
use crate::regs::variant::BAR_IO;

/// Registers of the PCIe PHY.
pub(crate) const EPHY: usize = 32;

/// The control part.
pub(crate) struct Registers {
    pub chip: Arc<Chip>,
    pub eeprom: Eeprom,
    pub phy: Phy,
    /// The 8168H's.
    pub ocp: Option<Ocp>,
    pub ephy: [u16; EPHY],
    /// How long auto-negotiation takes.
    pub negotiation: Nanos,
    pub work: Work,
    /// Accesses have changed what the words that outlive the process do not tell.
    pub changed: bool,
}

impl Registers {
    pub fn new(config: &Config, chip: Arc<Chip>) -> Self {
        let mut new = Self {
            chip,
            eeprom: Eeprom::new(config.mac),
            phy: Phy::new(config.link, config.variant.phy()),
            ocp: None,
            ephy: [0; EPHY],
            negotiation: nanos(config.negotiation),
            work: Work::default(),
            changed: false,
        };
        new.power_up();
        new.phy.negotiated = new.phy.can_negotiate();
        new.chip.link_up.store(new.phy.link(), Ordering::Release);
        new
    }

    /// What is behind the registers, as after power-up.
    fn power_up(&mut self) {
        let ocp = self.chip.variant.has_ocp();
        self.ocp = ocp.then(|| Ocp::new(self.eeprom.mac()));
        self.load_eeprom();
    }

    /// What the EEPROM loads after power-up.
    fn load_eeprom(&mut self) {
        let [a, b, c, d, e, f] = self.eeprom.mac();
        let file = &self.chip.file;
        file.set(r::IDR0_3, u32::from_le_bytes([a, b, c, d]));
        file.set(r::IDR4_5, u32::from_le_bytes([e, f, 0, 0]));
    }

    /// The word at a multiple of 4. No read changes anything.
    fn read_word(&self, env: &Env, offset: u32) -> u32 {
        let file = &self.chip.file;
        let Some(found) = file.table().find(offset) else {
            return 0;
        };
        let stored = file.get_at(found.id, found.element);
        match found.id {
            r::IMR_ISR => {
                let mut irq = self.chip.irq.lock();
                u32::from(irq.imr) | u32::from(irq.read()) << 16
            }
            r::TCTR => self.chip.irq.lock().timer(env.clock.now()),
            r::EECR_CONFIG => {
                let programs = stored & eecr::MODE == eecr::EEPROM;
                stored
                    | if programs && self.eeprom.data_out {
                        eecr::DO
                    } else {
                        0
                    }
            }
            r::PHY_STATUS => stored | self.phy_status(),
            r::TCR => stored & self.tcr_mask() | self.tcr_fixed(),
            r::MCU if self.ocp.is_some() => stored | ready::MCU,
            r::CSBAL => self.chip.csb.base().low,
            r::CSBAH => self.chip.csb.base().high,
            r::RX_MISSED => (self.chip.stats.get()[Stat::Missed as usize] & 0xff_ffff) as u32,
            _ => stored,
        }
    }

    /// Whether the registers are behind this BAR.
    fn is_window(&self, bar: u8) -> bool {
        bar == BAR_IO || bar == self.chip.variant.mmio_bar()
    }

    /// What the driver has set of TCR.
    fn tcr_mask(&self) -> u32 {
        self.chip.file.table().register(r::TCR).mask
    }

    /// What shows the chip.
    fn tcr_fixed(&self) -> u32 {
        let variant = self.chip.variant;
        let empty = if variant.has_ocp() { ready::TCR } else { 0 };
        u32::from(variant.xid()) << 20 | empty
    }

    /// What the registers say of wake-up has changed.
    pub(crate) fn ask_to_wake(&self) {
        let mut asked = wake::asked(&self.chip.file);
        if let Some(ocp) = &self.ocp {
            // Its drivers say so there.
            if ocp.eri(ocp::ERI_FILTER) & ocp::ERI_MAGIC != 0 {
                asked |= event::MAGIC;
            }
        }
        self.chip.wake.ask(asked);
    }

    fn phy_status(&self) -> u32 {
        let Some(speed) = self.phy.speed().filter(|_| self.phy.link()) else {
            return 0;
        };
        let mbits = match speed.mbits {
            1000 => phy_status::M1000,
            100 => phy_status::M100,
            _ => phy_status::M10,
        };
        let full = if speed.full {
            phy_status::FULL_DUPLEX
        } else {
            0
        };
        mbits | full | phy_status::LINK
    }

    /// A write to the PHY has had this effect.
    fn phy_effect(&mut self, env: &Env, effect: Effect) {
        match effect {
            Effect::None => return,
            Effect::Negotiate if self.negotiation > 0 => {
                let end = env.clock.now() + self.negotiation;
                self.chip.irq.lock().set_link_timer(env, Some(end));
            }
            Effect::Negotiate => {
                // No time passes, but drivers still see the link go and come.
                self.update_link(env);
                self.phy.negotiated = true;
            }
            Effect::Changed => self.chip.irq.lock().set_link_timer(env, None),
        }
        self.update_link(env);
    }

    /// Brings what the chip knows of the link in line with the PHY, and tells the guest of a change.
    fn update_link(&mut self, env: &Env) {
        let up = self.phy.link();
        if self.chip.link_up.swap(up, Ordering::AcqRel) == up {
            return;
        }
        let mut irq = self.chip.irq.lock();
        if let Some(speed) = self.phy.speed().filter(|_| up) {
            irq.set_speed(env, speed.mbits);
        }
        irq.raise(env, cause::LINK);
        drop(irq);
        if up {
            self.chip.wake_by(env, event::LINK_UP);
        } else {
            self.chip.settle();
        }
        // Packets that waited for the link, and senders that wait for a receiver that is off now.
        self.work = Work { tx: true, rx: true };
    }

    /// RST: rings, enables and causes. Everything else stays.
    fn reset_mac(&mut self, env: &Env) {
        let chip = &self.chip;
        chip.file.set(r::CR, 0);
        chip.reset_rings();
        let mut irq = chip.irq.lock();
        irq.reset(env);
        chip.note(kept::IMR, irq.imr.into());
    }

    fn reset_all(&mut self, env: &Env) {
        self.changed = true;
        self.chip.file.reset();
        self.chip.setup.changed();
        self.reset_mac(env);
        self.chip.set_csb(env, 0, 0);
        self.chip.command.store(false, Ordering::Release);
        self.chip.stats.reset();
        let cable = self.phy.cable;
        self.phy = Phy::new(cable, self.chip.variant.phy());
        self.ephy = [0; EPHY];
        self.eeprom = Eeprom::new(self.eeprom.mac());
        self.power_up();
        self.ask_to_wake();
        self.work = Work::default();
        let mut irq = self.chip.irq.lock();
        irq.set_mitigation(env, 0, 0);
        irq.timer_base = env.clock.now();
        irq.set_timer(env, 0);
        drop(irq);
        let effect = self.phy.renegotiate();
        self.phy_effect(env, effect);
        // A reset leaves no cause behind, not even that of the link it took down.
        let mut irq = self.chip.irq.lock();
        irq.read();
        irq.acknowledge(env, cause::ALL);
    }

    /// Whether the configuration registers may be written.
    fn unlocked(&self) -> bool {
        self.chip.file.get(r::EECR_CONFIG) & eecr::MODE == eecr::UNLOCKED
    }

    fn set(&self, id: Id, value: u32) {
        self.chip.file.write(id, 0, value);
    }

    /// Buffers may have come back, if frames wait for them.
    fn look(&mut self) {
        self.work.rx |= self.chip.short.load(Ordering::Acquire);
    }
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    // A timer that far ahead never fires, and sums of times do not overflow.
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX / 4)
        .min(u64::MAX / 4)
}

impl Counted for Registers {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let irq = self.chip.irq.lock().signals;
        self.chip.counters.visit(&mut |name, value| {
            visit(name, if name == "interrupts" { irq } else { value });
        });
    }
}

impl Control for Registers {
    fn read(&mut self, env: &Env, bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if !self.is_window(bar) {
            return;
        }
        let mut word = None;
        for (byte, at) in data.iter_mut().zip(offset..) {
            let Some(at) = u32::try_from(at).ok().filter(|at| *at < r::WINDOW) else {
                return;
            };
            let base = at & !3;
            let value = match word {
                Some((of, value)) if of == base => value,
                _ => self.read_word(env, base),
            };
            word = Some((base, value));
            *byte = value.to_le_bytes()[at as usize % 4];
            match base {
                0x3c => self.look(),
                // It is not to fall behind what a driver has seen.
                r::RX_MISSED_AT => self.changed = true,
                _ => {}
            }
        }
    }

    fn write(&mut self, env: &Env, bar: u8, offset: u64, data: &[u8]) {
        if !self.is_window(bar) || offset >= r::WINDOW.into() {
            return;
        }
        // The one that matters for speed.
        if let (r::TPPOLL_AT, &[value]) = (offset, data) {
            return self.write_poll(env, value.into());
        }
        let mut at = offset as u32;
        let mut rest = data;
        while !rest.is_empty() && at < r::WINDOW {
            let (base, shift) = (at & !3, at as usize % 4);
            let (mut value, mut lanes) = ([0; 4], [0; 4]);
            let n = rest.len().min(4 - shift);
            value[shift..shift + n].copy_from_slice(&rest[..n]);
            lanes[shift..shift + n].fill(0xff);
            let lanes = u32::from_le_bytes(lanes);
            self.write_word(env, base, u32::from_le_bytes(value), lanes);
            at = base + 4;
            rest = &rest[n..];
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    fn station(&self) -> Option<[u8; 6]> {
        Some(crate::filter::station(&self.chip.file))
    }

    fn reset(&mut self, env: &Env, kind: ResetKind) {
        if kind == ResetKind::Bus {
            self.chip.wake.set(env, Power::default());
        }
        self.reset_all(env);
    }

    fn pci(&mut self, env: &Env, state: PciState) {
        self.changed = true;
        let awake = state.bus_master && !state.d3;
        if self.chip.awake.swap(awake, Ordering::AcqRel) && !awake {
            self.chip.settle();
        }
        let way = match (state.msix, state.msi) {
            (true, _) => Way::Msix,
            (false, true) => Way::Msi,
            (false, false) => Way::Line,
        };
        self.chip.wake.set_power(env, state.d3, state.pme);
        self.chip.irq.lock().set_way(env, way);
        self.work = Work { tx: true, rx: true };
    }

    fn tick(&mut self, env: &Env) {
        let due = self.chip.irq.lock().tick(env);
        if due.link {
            self.changed = true;
            self.phy.negotiated = self.phy.can_negotiate();
            self.update_link(env);
        }
        if due.look || due.csb {
            self.look();
        }
        self.work.tx |= due.csb;
    }

    fn set_link(&mut self, env: &Env, up: bool) {
        if self.phy.cable != up {
            self.changed = true;
            self.phy.cable = up;
            let effect = self.phy.renegotiate();
            self.phy_effect(env, effect);
        }
    }

    fn moderate(&mut self, env: &Env, how: Moderation) {
        self.changed = true;
        self.chip.irq.lock().moderate(env, how);
    }

    fn save(&self, env: &Env) -> Vec<u8> {
        snapshot::seal(&self.state(env))
    }

    fn load(&mut self, env: &Env, blob: &[u8]) -> Result<(), StateError> {
        self.become_state(env, &crate::state::read(blob)?)?;
        self.changed = true;
        self.chip.note_all();
        Ok(())
    }

    fn keep(&mut self, words: Kept) -> bool {
        if self.chip.kept.set(words).is_err() {
            return false;
        }
        self.chip.note_all();
        true
    }

    fn take_changed(&mut self) -> bool {
        let dumped = self.chip.dumped.swap(false, Ordering::AcqRel);
        std::mem::take(&mut self.changed) | dumped
    }

    fn settled(&mut self) {
        if self.chip.rx_hold.swap(false, Ordering::AcqRel) {
            // Senders that found it off ask again.
            self.chip.stop_waiting();
            self.work.rx = true;
        }
    }

    fn recover(
        &mut self,
        env: &Env,
        (blob, age): (&[u8], Nanos),
        words: Kept,
    ) -> Result<u64, StateError> {
        self.go_on(env, (crate::state::read(blob)?, age), words)
    }
}
