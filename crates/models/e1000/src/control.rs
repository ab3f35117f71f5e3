//! The register side (manual §13.4): accesses of any width, side effects, reset.

mod doorbell;
pub(crate) mod eeprom;
mod eerd;
mod load;
mod recover;
mod save;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::Counted;
use intel::flow::RFCE;
use intel::io;
use intel::link::{Link, Port};
use intel::wake::{Wakes, wuc};
use intel::window::{Bars, Window};
use model::{Control, Env, Kept, Moderation, Nanos, PciState, Peeked, ResetKind, StateError, Work};
use regs::{Access, Found, Id};

use crate::control::eeprom::Eeprom;
use crate::core::chip::Chip;
use crate::core::flow::owed;
use crate::core::kept;
use crate::filter::address::FILTERS;
use crate::irq;
use crate::regs as r;
use crate::regs::bits::{cause, ctrl, ctrl_ext, pba, rctl, rdtr, status, swsm, tctl};
use crate::regs::variant::{BAR_MMIO, Variant};
use crate::state;
use datapath::counters::count_alone;

/// The control part. What a doorbell touches is first.
#[repr(C, align(64))]
pub(crate) struct Registers {
    pub chip: Arc<Chip>,
    pub work: Work,
    /// Accesses have changed what the words that outlive the process do not tell.
    pub changed: bool,
    pub variant: Variant,
    pub io: io::Window,
    pub eeprom: Eeprom,
    pub port: Port,
}

impl Registers {
    /// The guest has moved a tail.
    fn ring_doorbell(&mut self, id: regs::Id, value: u32) {
        let chip = &self.chip;
        chip.file.set(id, value & r::TAIL);
        let at = if id == r::TDT { kept::TDT } else { kept::RDT };
        chip.note_word(at, value & r::TAIL);
        if chip.csb.is_on() {
            count_alone(&chip.counters.csb_kicks, 1);
        }
        if id == r::TDT {
            count_alone(&chip.counters.tx_doorbells, 1);
            self.work.tx = true;
        } else {
            count_alone(&chip.counters.rx_doorbells, 1);
            self.work.rx = true;
        }
    }

    fn write_ctrl(&mut self, env: &Env, value: u32) {
        let chip = Arc::clone(&self.chip);
        if value & ctrl::RST != 0 {
            self.reset_mac(env);
        } else {
            let old = chip.file.get(r::CTRL);
            let new = chip.file.write(r::CTRL, 0, value);
            // Without RFCE no pause is obeyed, not even one that lasts.
            self.work.tx |= (old ^ new) & RFCE != 0;
        }
        if value & ctrl::PHY_RST != 0 {
            self.port.phy.reset();
            self.negotiate(env);
        }
        self.update_link(env);
        if value & ctrl::RST != 0 {
            // A reset leaves no cause behind, not even that of the link it took down.
            chip.irq.lock().clear(env, cause::ALL);
        }
    }

    /// CTRL.RST: everything but PCI configuration, EEPROM and PHY (manual §13.4.1).
    fn reset_mac(&mut self, env: &Env) {
        self.chip.reset(env);
        self.eeprom.wires(0);
        self.load_eeprom();
        // A sender that waited for room finds the receiver off.
        self.work.rx = true;
    }

    /// What power-up does before the first access.
    pub(crate) fn power_up(&mut self) {
        self.load_eeprom();
    }

    /// What the EEPROM loads by itself after a reset (manual §5.6): nothing, if it is not signed.
    fn load_eeprom(&self) {
        if !self.eeprom.signed() {
            return;
        }
        FILTERS.set_station(&self.chip.file, self.eeprom.mac());
        let (word, bit) = self.variant.apm();
        if self.eeprom.word(word) & bit != 0 {
            self.chip.enable_apm();
        }
    }

    fn status(&self, env: &Env) -> u32 {
        let chip = &self.chip;
        let up = chip.link_up.load(Ordering::Acquire);
        let paused = if chip.flow.paused(&chip.file, env) {
            status::TXOFF
        } else {
            0
        };
        self.port.status(chip.file.get(r::CTRL), false, up)
            | paused
            | status::MTXCKOK
            | self.variant.bus_status()
    }

    /// What a read of a register finds, without what it does.
    fn look(&self, env: &Env, id: Id, stored: u32) -> u32 {
        match id {
            r::STATUS => self.status(env),
            r::EECD => self.eeprom.wires.eecd(stored),
            r::PBA => {
                let receive = stored & pba::RXA;
                pba::BOTH.saturating_sub(receive) << pba::TXA_SHIFT | receive
            }
            r::ICR | r::ICS => self.chip.irq.lock().causes(),
            r::IMS => self.chip.irq.lock().mask(),
            r::CSBAL => self.chip.csb.base().low,
            r::CSBAH => self.chip.csb.base().high,
            _ => stored,
        }
    }

    /// The speed of the wire, forced or negotiated, as STATUS encodes it.
    pub(crate) fn speed(&self) -> u32 {
        self.port.speed(self.chip.file.get(r::CTRL), false)
    }

    fn note_mask(&self) {
        let mask = self.chip.irq.lock().mask();
        self.chip.note_word(kept::IMS, mask);
    }

    fn place_receive_ring(&mut self, id: Id, element: u32, value: u32) {
        let chip = &self.chip;
        // Those who fill buffers of the ring it was finish first.
        let mut rx = chip.rx.settle();
        chip.hold_receiver();
        chip.file.write(id, element, value);
        chip.setup.changed();
        if let Some(kept) = chip.kept.get() {
            kept::rx_stands(kept, chip.file.get(r::RDH));
        }
        self.work.rx |= rx.relieved();
    }

    fn write_rctl(&mut self, value: u32) {
        let chip = &self.chip;
        let old = chip.file.get(r::RCTL);
        if !old & value & rctl::EN != 0 {
            chip.hold_receiver();
        }
        let new = chip.file.write(r::RCTL, 0, value);
        chip.setup.changed();
        // Drivers free the buffers next.
        if old & !new & rctl::EN != 0 {
            chip.stop_receiving();
        }
        self.work.rx = true;
        self.work.tx |= (old ^ new) & rctl::LBM != 0;
    }

    fn write_mdic(&mut self, env: &Env, value: u32) {
        let reads = |ours: &Self, value| ours.chip.file.set(r::MDIC, value);
        if self.command_phy(env, value, reads) {
            self.chip.irq.lock().raise(env, cause::MDAC);
        }
    }
}

impl Window for Registers {
    const SPAN: u32 = r::WINDOW;

    fn read_word(&mut self, env: &Env, offset: u32) -> u32 {
        let Some(Found { id, element }) = self.chip.file.table().find(offset) else {
            return 0;
        };
        if r::STATISTICS.contains(&offset)
            && let Some(value) = self.chip.stats.read(id)
        {
            self.changed = true;
            return value;
        }
        let stored = self.chip.file.get_at(id, element);
        match id {
            r::PBM => self.chip.packet_buffer.word(element),
            r::SWSM => {
                // A driver that reads it 0 has the semaphore; all others read 1.
                self.chip.file.set(id, stored | swsm::SMBI);
                self.changed = true;
                stored
            }
            r::ICR => {
                let causes = self.chip.irq.lock().read_icr(env);
                // Those that a NIC raises that goes on are not worth a word.
                self.changed |= causes & !(irq::SENT | irq::RECEIVED) != 0;
                causes
            }
            _ => self.look(env, id, stored),
        }
    }

    fn write_word(&mut self, env: &Env, offset: u32, value: u32) {
        let Some(Found { id, element }) = self.chip.file.table().find(offset) else {
            return;
        };
        // The others may change the parts that are ours.
        if id == r::TDT || id == r::RDT {
            return self.ring_doorbell(id, value);
        }
        let chip = Arc::clone(&self.chip);
        if id != r::IMS && id != r::IMC && id != r::ITR {
            self.changed = true;
        }
        match id {
            r::ICR => chip.irq.lock().clear(env, value),
            r::ICS => chip.irq.lock().raise(env, value),
            r::IMS => {
                chip.irq.lock().unmask(env, value);
                self.note_mask();
                self.work.tx |= chip.csb_unmasked(env);
            }
            r::CSBAL | r::CSBAH if !chip.csb.offered => {}
            r::CSBAH => chip.write_csbah(env, value),
            r::CSBAL => {
                chip.write_csbal(env, value);
                self.work.tx = true;
                self.work.rx = true;
            }
            r::IMC => {
                chip.irq.lock().mask_off(env, value);
                self.note_mask();
            }
            r::CTRL => self.write_ctrl(env, value),
            r::EECD => {
                let wires = chip.file.write(id, 0, value);
                self.eeprom.wires(wires);
            }
            r::EERD => {
                let result = eerd::read(&self.eeprom, value);
                chip.file.set(id, result);
            }
            r::MDIC => self.write_mdic(env, value),
            r::CTRL_EXT => {
                chip.file.write(id, 0, value);
                if value & ctrl_ext::EE_RST != 0 {
                    self.load_eeprom();
                }
            }
            r::ITR => {
                let itr = chip.file.write(id, 0, value);
                chip.irq.lock().set_itr(env, itr);
                chip.note_word(kept::ITR, itr);
            }
            r::RDTR => {
                chip.file.write(id, 0, value);
                if value & rdtr::FPD != 0 {
                    chip.irq.lock().flush_rx(env);
                }
            }
            r::PBM => chip.packet_buffer.set_word(element, value),
            r::TCTL => {
                let new = chip.file.write(id, 0, value);
                // It clears itself before it can be read.
                if value & tctl::SWXOFF != 0 {
                    chip.flow.owe(owed::SOFTWARE);
                }
                self.work.tx |= new & tctl::EN != 0;
            }
            r::WUC | r::WUFC | r::WUS => chip.write_wake(env, id, value),
            r::RDBAL | r::RDBAH | r::RDLEN | r::RDH => {
                self.place_receive_ring(id, element, value);
            }
            r::RCTL => {
                self.write_rctl(value);
            }
            r::TDH => {
                chip.file.write(id, element, value);
                chip.note_all();
            }
            _ => {
                chip.file.write(id, element, value);
            }
        }
        chip.setup.changed();
    }

    fn partial_base(&self, offset: u32) -> u32 {
        let file = &self.chip.file;
        match file.table().find(offset) {
            // PME_Status is cleared by a 1 that is written, not by one that is kept.
            Some(found) if found.id == r::WUC => file.get(found.id) & !wuc::PME_STATUS,
            Some(found) if found.id == r::CSBAL => self.chip.csb.base().low,
            Some(found) if found.id == r::CSBAH => self.chip.csb.base().high,
            Some(found) => match file.table().register(found.id).access {
                Access::ReadWrite | Access::Command => file.get_at(found.id, found.element),
                Access::Memory => self.chip.packet_buffer.word(found.element),
                _ => 0,
            },
            None => 0,
        }
    }
}

impl Bars for Registers {
    const MMIO: u8 = BAR_MMIO;

    fn io_bar(&self) -> u8 {
        self.variant.io_bar()
    }

    fn io(&mut self) -> &mut io::Window {
        &mut self.io
    }

    fn counted(&self) -> &intel::Counters {
        &self.chip.counters
    }
}

impl Link for Registers {
    fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    fn set_link_timer(&self, env: &Env, at: Option<Nanos>) {
        self.chip.irq.lock().set_link_timer(env, at);
    }

    fn update_link(&mut self, env: &Env) {
        let chip = &self.chip;
        let up = self.port.phy.link() && chip.file.get(r::CTRL) & ctrl::SLU != 0;
        let loopback = self.port.phy.loopback();
        let was_loopback = chip.phy_loopback.swap(loopback, Ordering::AcqRel);
        let was_up = chip.link_up.swap(up, Ordering::AcqRel);
        chip.flow.set_speed(self.speed());
        if was_up != up || was_loopback != loopback {
            chip.setup.changed();
            self.work.rx = true;
            self.work.tx = true;
        }
        let mut causes = 0;
        if was_up != up {
            causes |= cause::LSC;
            chip.wake_by_link(env);
        }
        if self.port.phy.interrupt() {
            causes |= cause::PHYINT;
        }
        if causes != 0 {
            chip.irq.lock().raise(env, causes);
        }
    }
}

impl Counted for Registers {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.chip.counters.visit(visit);
        visit("irq_raised", self.chip.irq.lock().raised);
    }
}

impl Control for Registers {
    fn read(&mut self, env: &Env, bar: u8, offset: u64, data: &mut [u8]) {
        self.read_bar(env, bar, offset, data);
    }

    fn write(&mut self, env: &Env, bar: u8, offset: u64, data: &[u8]) {
        // The two that matter for speed.
        let tail = match offset {
            r::TDT_AT => Some(r::TDT),
            r::RDT_AT => Some(r::RDT),
            _ => None,
        };
        if let (Some(id), BAR_MMIO, &[a, b, c, d]) = (tail, bar, data) {
            count_alone(&self.chip.counters.reg_writes, 1);
            return self.ring_doorbell(id, u32::from_le_bytes([a, b, c, d]));
        }
        self.changed |= bar != BAR_MMIO;
        self.write_bar(env, bar, offset, data);
    }

    fn peek(&self, env: &Env, visit: &mut dyn FnMut(Peeked)) {
        let file = &self.chip.file;
        intel::window::peek(file.table(), visit, |found, offset| {
            let counts = r::STATISTICS.contains(&offset);
            let counted = counts.then(|| self.chip.stats.peek(found.id)).flatten();
            let stored = file.get_at(found.id, found.element);
            counted.unwrap_or_else(|| self.look(env, found.id, stored))
        });
    }

    fn take_nvm(&mut self) -> Option<Vec<u8>> {
        self.eeprom.take_changed()
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    fn doorbells(&self) -> Option<model::Doorbells> {
        // With a CSB the tails are in the guest's own memory, and the registers follow them.
        (!self.chip.csb.offered).then(doorbell::layout)
    }

    fn station(&self) -> Option<[u8; 6]> {
        Some(intel::filter::station(&self.chip.file, r::RAL, r::RAH))
    }

    fn reset(&mut self, env: &Env, kind: ResetKind) {
        self.changed = true;
        if kind == ResetKind::Bus {
            self.chip.forget_wake(env);
        }
        self.chip.bus_master.store(false, Ordering::Release);
        self.chip.setup.changed();
        self.chip.set_csb(env, 0, 0);
        self.reset_mac(env);
        self.chip.irq.lock().set_msi(env, false);
        self.io = io::Window::default();
        self.port.phy.reset();
        self.negotiate(env);
        self.update_link(env);
        // The link change is older than the machine that boots now.
        self.chip.irq.lock().clear(env, cause::ALL);
        self.chip.setup.changed();
    }

    fn pci(&mut self, env: &Env, state: PciState) {
        self.changed = true;
        self.chip.irq.lock().set_msi(env, state.msi);
        // A function in D3 does no DMA.
        let may = state.bus_master && !state.d3;
        let could = self.chip.bus_master.swap(may, Ordering::AcqRel);
        self.chip.setup.changed();
        if could && !may {
            self.chip.stop_receiving();
        }
        self.chip.set_power(env, state.d3, state.pme);
        self.chip.setup.changed();
        self.work.tx = true;
        self.work.rx = true;
    }

    fn tick(&mut self, env: &Env) {
        let due = {
            let mut irq = self.chip.irq.lock();
            let due = irq.tick(env);
            // It may have looked for another reason than the end of a pause, or a pause was renewed
            // as it ended.
            let until = self.chip.flow.silence.until();
            if let Some(until) = until.filter(|until| due.look && env.clock.now() < *until) {
                irq.set_look(env, until);
            }
            self.chip.allow(&irq);
            due
        };
        self.work.tx |= due.look || due.csb;
        self.work.rx |= due.csb || due.rested;
        if due.link {
            self.changed = true;
            self.negotiated(env);
        }
    }

    fn set_link(&mut self, env: &Env, up: bool) {
        self.changed = true;
        self.plug(env, up);
    }

    fn moderate(&mut self, env: &Env, how: Moderation) {
        self.changed = true;
        self.chip.irq.lock().moderate(env, how);
    }

    fn save(&self, env: &Env) -> Vec<u8> {
        state::write(&self.state(env))
    }

    fn load(&mut self, env: &Env, blob: &[u8]) -> Result<(), StateError> {
        self.become_state(env, &state::read(blob)?)?;
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
        std::mem::take(&mut self.changed)
    }

    fn settled(&mut self) {
        if self.chip.rx_hold.swap(false, Ordering::AcqRel) {
            self.chip.setup.changed();
            self.work.rx = true;
        }
    }

    fn recover(
        &mut self,
        env: &Env,
        (blob, _): (&[u8], Nanos),
        words: Kept,
    ) -> Result<u64, StateError> {
        self.go_on(env, state::read(blob)?, words)
    }
}
