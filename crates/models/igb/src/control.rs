//! The register side of the physical function: accesses of any width, side effects, reset.

mod clock;
pub(crate) mod config;
pub(crate) mod doorbell;
mod due;
mod irq_regs;
mod load;
pub(crate) mod nic;
pub(crate) mod nvm;
mod peek;
pub(crate) mod pf;
mod pf_alias;
mod queues;
mod recover;
mod save;
pub(crate) mod stat_regs;
pub(crate) mod vf;
mod vf_control;
mod vf_registers;
mod vf_state;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::counters::count_alone;
use frame::Counted;
use intel::flow::RFCE;
use intel::io;
use intel::link::{Link, Port};
use intel::wake::{Wakes, wuc};
use intel::window::{Bars, Window};
use model::{Control, Env, Kept, Moderation, Nanos, PciState, Peeked, ResetKind, StateError, Work};
use regs::{Access, Found, Id};

use crate::control::due::Due;
use crate::control::nvm::Nvm;
use crate::control::stat_regs::StatRegs;
use crate::core::function::Function;
use crate::core::irq::{Causes, Way};
use crate::filter::address::FILTERS;
use crate::regs::bits::{ctrl, ctrl_ext, icr, rctl, rttdqsel, status, swsm, tctl, xdctl};
use crate::regs::{BAR_IO, BAR_MMIO};
use crate::sriov::hub::Hub;
use crate::{regs as r, state};

/// What CTRL.RST leaves as it is (§4.3, and what drivers rely on).
const KEPT: [Id; 4] = [r::RXPBS, r::TXPBS, r::SWPBS, r::DCA_CTRL];

/// The control part.
pub(crate) struct Registers {
    pub function: Arc<Function>,
    pub nvm: Nvm,
    pub port: Port,
    pub io: io::Window,
    pub reading: StatRegs,
    pub work: Work,
    /// STATUS.PHYRA.
    pub phy_was_reset: bool,
    /// PCI allows it to master the bus.
    pub may_master: bool,
    /// Its VFs, if it controls some.
    pub hub: Option<Arc<Hub>>,
    /// What of their settings is not in force yet.
    pub due: Due,
    /// Its driver may say where the rings of its VFs are.
    pub places_vf_rings: bool,
    /// Accesses have changed what the words that outlive the process do not tell.
    pub changed: bool,
}

impl Registers {
    /// What stands at `offset`. Of the registers behind one address it is the chosen one.
    fn found(&self, offset: u32) -> Option<Found> {
        let file = &self.function.file;
        let mut found = file.table().find(offset)?;
        if found.id == r::RTTBCNRC {
            found.element = file.get(r::RTTDQSEL) & rttdqsel::QUEUE;
        }
        Some(found)
    }

    fn merge(&mut self, work: Work) {
        self.work.tx |= work.tx;
        self.work.rx |= work.rx;
    }

    fn write_ctrl(&mut self, env: &Env, value: u32) {
        let function = Arc::clone(&self.function);
        let old = function.file.get(r::CTRL);
        if value & ctrl::RST != 0 {
            self.reset_mac(env);
        } else {
            let new = function.file.write(r::CTRL, 0, value);
            // Without RFCE no pause is obeyed, not even one that lasts.
            self.work.tx |= (old ^ new) & RFCE != 0;
        }
        self.update_master();
        if value & !old & ctrl::PHY_RST != 0 {
            self.port.phy.reset();
            self.phy_was_reset = true;
            self.negotiate(env);
        }
        self.update_link(env);
        if value & ctrl::RST != 0 {
            // A reset leaves no cause behind, not even that of the link it took down.
            function.irq.lock().write_icr(env, icr::ALL);
        }
    }

    /// CTRL.RST: everything but PCI configuration, NVM and PHY (§4.3).
    fn reset_mac(&mut self, env: &Env) {
        let function = Arc::clone(&self.function);
        let file = &function.file;
        let kept = KEPT.map(|id| (id, file.get(id)));
        let throttles: [u32; r::VECTORS] =
            std::array::from_fn(|at| file.get_at(r::EITR, at as u32));
        self.change(|| function.reset_file(env));
        function.setup.changed();
        for (id, value) in kept {
            file.set(id, value);
        }
        for (at, value) in throttles.into_iter().enumerate() {
            file.set_at(r::EITR, at as u32, value);
        }
        function.reset_queues();
        function.irq.lock().reset(env);
        function.flow.reset();
        function.ptp.lock().reset(env.clock.now());
        self.reading.clear(&self.function);
        self.nvm.wires(0);
        self.power_up();
        self.reset_vf_control();
        function.note_all();
        // A sender that waited for room finds the receiver off.
        self.work.rx = true;
    }

    /// What the chip does before the first access after a reset.
    pub(crate) fn power_up(&mut self) {
        let file = &self.function.file;
        for id in [r::RXDCTL, r::TXDCTL] {
            file.set_at(id, 0, file.get_at(id, 0) | xdctl::ENABLE);
        }
        self.load_nvm();
    }

    /// What the NVM loads by itself after a reset: nothing, if it is not signed.
    fn load_nvm(&self) {
        if !self.nvm.signed() {
            return;
        }
        FILTERS.set_station(&self.function.file, self.nvm.mac());
        if self.nvm.apm() {
            self.function.enable_apm();
        }
    }

    fn status(&self) -> u32 {
        let value = self.function.file.get(r::CTRL);
        let bypassed = self.function.file.get(r::CTRL_EXT) & ctrl_ext::SPD_BYPS != 0;
        let up = self.function.link_up.load(Ordering::Acquire);
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        self.port.status(value, bypassed, up)
            | self.iov()
            | flag(self.phy_was_reset, status::PHYRA)
            | flag(
                value & ctrl::GIO_MASTER_DISABLE == 0,
                status::GIO_MASTER_ENABLE,
            )
    }

    /// What STATUS says of virtual functions.
    fn iov(&self) -> u32 {
        match self.hub.as_ref().map_or(0, |hub| hub.enabled()) {
            0 => 0,
            vfs => vfs << status::NUM_VFS_SHIFT | status::IOV_MODE,
        }
    }

    fn write_mdic(&mut self, env: &Env, value: u32) {
        let reads = |ours: &Self, value| ours.function.file.set(r::MDIC, value);
        if self.command_phy(env, value, reads) {
            self.raise(env, icr::MDAC);
        }
    }

    fn raise(&self, env: &Env, other: u32) {
        let causes = Causes {
            other,
            ..Causes::default()
        };
        self.function.irq.lock().raise(env, causes);
    }

    /// Writes a register that is no queue's.
    fn write_other(&mut self, env: &Env, (id, element): (Id, u32), value: u32) {
        if self.write_vf_control(id, element, value) || self.write_irq(env, id, element, value) {
            return;
        }
        let function = Arc::clone(&self.function);
        let store = || function.file.write(id, element, value);
        match id {
            r::CTRL => self.write_ctrl(env, value),
            r::STATUS => self.phy_was_reset &= value & status::PHYRA != 0,
            r::CTRL_EXT => {
                let done = function.file.get(id) & ctrl_ext::PFRSTD;
                function.file.set(id, store() | done);
                if value & ctrl_ext::EE_RST != 0 {
                    self.load_nvm();
                }
                self.pf_reset_done(value);
            }
            r::MDIC => self.write_mdic(env, value),
            r::EECD => {
                let wires = store();
                self.nvm.wires(wires);
            }
            r::EERD => function.file.set(id, self.nvm.eerd(value)),
            r::RCTL => {
                let old = function.file.get(id);
                if !old & value & rctl::EN != 0 {
                    function.hold_receiver();
                }
                let new = store();
                // Drivers free the buffers next.
                function.setup.changed();
                if old & !new & rctl::EN != 0 {
                    function.settle();
                }
                self.update_link(env);
                self.work.rx = true;
            }
            r::TCTL => {
                store();
                // It clears itself before it can be read.
                if value & tctl::SWXOFF != 0 {
                    function.flow.owed.store(true, Ordering::Release);
                }
                self.go_on();
            }
            id if r::CLOCK.contains(&id) => {
                let bits = store();
                self.write_clock(env, id, value, bits);
            }
            r::WUC | r::WUS | r::WUFC => function.write_wake(env, id, value),
            r::VFLRE | r::MBVFICR => {
                let kept = function.file.get(id) & !value;
                function.file.set(id, kept);
            }
            _ => {
                store();
            }
        }
    }

    /// Brings what rates are parts of in line with STATUS.SPEED. Whether it was another.
    pub(crate) fn note_speed(&self) -> bool {
        let code = self.status() >> status::SPEED_SHIFT & status::SPEED;
        let mbps = [10, 100, 1000, 1000][code as usize];
        self.function.mbps.swap(mbps, Ordering::AcqRel) != mbps
    }

    /// Whether DMA is allowed, by PCI and by CTRL. When this returns with a no, the last is over.
    pub(crate) fn update_master(&mut self) {
        let function = &self.function;
        let disabled = function.file.get(r::CTRL) & ctrl::GIO_MASTER_DISABLE != 0;
        let may = self.may_master && !disabled;
        let could = function.bus_master.swap(may, Ordering::AcqRel);
        if could && !may {
            function.settle();
        }
        if may && !could {
            self.go_on();
        }
    }

    /// What could not move may be able to.
    fn go_on(&mut self) {
        self.work.tx = true;
        self.work.rx = true;
    }
}

/// Whether a read of a register of the clock changes it for good.
fn is_read_once(id: Id) -> bool {
    id == r::TXSTMPH || id == r::RXSTMPH
}

impl Window for Registers {
    const SPAN: u32 = r::WINDOW;

    fn read_word(&mut self, env: &Env, offset: u32) -> u32 {
        let function = Arc::clone(&self.function);
        let Some(Found { id, element }) = self.found(offset) else {
            return 0;
        };
        if let Some(value) = self.read_of_vf(id, element) {
            return value;
        }
        self.changed |= id == r::SWSM || id == r::IAC || is_read_once(id);
        if let Some(value) = self.reading.read(&function, id, element) {
            // It is counted on from there.
            self.changed = true;
            return value;
        }
        if let Some(value) = self.read_vf_control(id, element) {
            self.changed |= id == r::WVBR;
            return value;
        }
        let stored = function.file.get_at(id, element);
        match id {
            r::SWSM => {
                // A driver that reads it 0 has the semaphore; all others read 1.
                function.file.set(id, stored | swsm::SMBI);
                stored
            }
            r::ICR => {
                let causes = function.irq.lock().read_icr(env);
                // Those that a NIC raises that goes on are not worth a word.
                self.changed |= causes & !(icr::RXDW | icr::TXDW | icr::RXDMT0 | icr::INTA) != 0;
                causes
            }
            r::EICR => {
                let own = function.irq.lock().read_eicr(env);
                let (of_vfs, whose) = self.of_vfs(id);
                own & !whose | of_vfs
            }
            r::IAC => u32::try_from(function.irq.lock().take_asserted()).unwrap_or(u32::MAX),
            id if r::CLOCK.contains(&id) => self.read_clock(env, id, stored),
            _ => self.look(env, (id, element), stored),
        }
    }

    fn write_word(&mut self, env: &Env, offset: u32, value: u32) {
        let function = Arc::clone(&self.function);
        let Some(Found { id, element }) = self.found(offset) else {
            return;
        };
        if self.write_of_vf(id, element, value) {
            return;
        }
        // What the words tell, and what is told again.
        let told = [
            r::IMS,
            r::IMC,
            r::EIMS,
            r::EIMC,
            r::EITR,
            r::EICR,
            r::EICS,
            r::RDT,
            r::TDT,
        ];
        self.changed |= !told.contains(&id);
        if let Some(work) = function.write_queue(env, id, element, value) {
            // The PF has another number of pools.
            self.due.changed |= id == r::RXDCTL;
            return self.merge(work);
        }
        self.write_other(env, (id, element), value);
        function.setup.changed();
    }

    fn partial_base(&self, offset: u32) -> u32 {
        let file = &self.function.file;
        let Some(found) = self.found(offset) else {
            return 0;
        };
        if let Some(value) = self.peek_vf_control(found.id, found.element)
            && found.id == r::VMBMEM
        {
            return value;
        }
        if let r::EIAC | r::EIAM = found.id {
            let (of_vfs, whose) = self.of_vfs(found.id);
            return file.get(found.id) & !whose | of_vfs;
        }
        if let Some(value) = self.peek_of_vf(found.id, found.element) {
            return value;
        }
        match file.table().register(found.id).access {
            // Other bytes do not clear it.
            _ if found.id == r::WUC => file.get(r::WUC) & !wuc::PME_STATUS,
            Access::ReadWrite | Access::Command => file.get_at(found.id, found.element),
            _ => 0,
        }
    }
}

impl Bars for Registers {
    const MMIO: u8 = BAR_MMIO;

    fn io_bar(&self) -> u8 {
        BAR_IO
    }

    fn io(&mut self) -> &mut io::Window {
        &mut self.io
    }

    fn counted(&self) -> &intel::Counters {
        &self.function.counters
    }
}

impl Link for Registers {
    fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    fn set_link_timer(&self, env: &Env, at: Option<Nanos>) {
        self.function.irq.lock().set_link_timer(env, at);
    }

    fn update_link(&mut self, env: &Env) {
        let function = &self.function;
        let up = self.port.phy.link() && function.file.get(r::CTRL) & ctrl::SLU != 0;
        let loopback = self.port.phy.loopback() || function.file.get(r::RCTL) & rctl::LBM != 0;
        let was_loopback = function.loopback.swap(loopback, Ordering::AcqRel);
        let was_up = function.link_up.swap(up, Ordering::AcqRel);
        if was_up != up || was_loopback != loopback {
            function.setup.changed();
            self.go_on();
        }
        if was_up != up {
            self.raise(env, icr::LSC);
            self.function.wake_by_link(env);
            self.due.changed = true;
        }
    }
}

impl Counted for Registers {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.function.counters.visit(visit);
        visit("irq_raised", self.function.irq.lock().raised);
        if let Some(hub) = &self.hub {
            hub.visit(visit);
        }
    }
}

impl Control for Registers {
    fn read(&mut self, env: &Env, bar: u8, offset: u64, data: &mut [u8]) {
        self.read_bar(env, bar, offset, data);
    }

    fn write(&mut self, env: &Env, bar: u8, offset: u64, data: &[u8]) {
        // Where VFs are controlled, queues may be theirs.
        if bar == BAR_MMIO
            && self.hub.is_none()
            && let Some(work) = self.function.write_tail(env, offset, data)
        {
            count_alone(&self.function.counters.reg_writes, 1);
            return self.merge(work);
        }
        self.changed |= bar != BAR_MMIO;
        self.write_bar(env, bar, offset, data);
    }

    fn peek(&self, env: &Env, visit: &mut dyn FnMut(Peeked)) {
        let file = &self.function.file;
        intel::window::peek(file.table(), visit, |found, _| self.peek_word(env, found));
    }

    fn take_nvm(&mut self) -> Option<Vec<u8>> {
        self.nvm.take_changed()
    }

    fn take_work(&mut self) -> Work {
        self.end_turn();
        std::mem::take(&mut self.work)
    }

    fn doorbells(&self) -> Option<model::Doorbells> {
        let controls_vfs = self.hub.is_some();
        Some(doorbell::layout(&self.function, controls_vfs))
    }

    fn station(&self) -> Option<[u8; 6]> {
        Some(intel::filter::station(&self.function.file, r::RAL, r::RAH))
    }

    fn reset(&mut self, env: &Env, kind: ResetKind) {
        self.changed = true;
        if kind == ResetKind::Bus {
            self.function.forget_wake(env);
        }
        self.may_master = false;
        self.io = io::Window::default();
        self.function.bus_master.store(false, Ordering::Release);
        self.enable_vfs(0);
        for id in KEPT {
            let reset = self.function.file.table().register(id).reset;
            self.function.file.set(id, reset);
        }
        for vector in 0..r::VECTORS as u32 {
            self.function.file.set_at(r::EITR, vector, 0);
            self.function.irq.lock().set_eitr(env, vector, 0);
        }
        self.reset_mac(env);
        self.function.irq.lock().set_way(env, Way::Pin);
        self.port.phy.reset();
        self.phy_was_reset = true;
        self.negotiate(env);
        self.update_link(env);
        // The link change is older than the machine that boots now.
        self.function.irq.lock().write_icr(env, icr::ALL);
        self.function.setup.changed();
        self.function.note_all();
    }

    fn pci(&mut self, env: &Env, state: PciState) {
        self.changed = true;
        let way = match (state.msix, state.msi) {
            (true, _) => Way::Msix,
            (_, true) => Way::Msi,
            _ => Way::Pin,
        };
        self.function.irq.lock().set_way(env, way);
        // A function in D3 does no DMA.
        self.may_master = state.bus_master && !state.d3;
        self.function.set_power(env, state.d3, state.pme);
        self.update_master();
        self.enable_vfs(state.vfs);
        self.go_on();
    }

    fn tick(&mut self, env: &Env) {
        let due = self.function.irq.lock().tick(env);
        self.work.tx |= due.look;
        if due.link {
            self.changed = true;
            self.negotiated(env);
        }
        self.end_turn();
    }

    fn attend(&mut self, env: &Env) {
        // A VF that was reset has lost what was allowed to it.
        self.changed = true;
        self.hear(env);
    }

    fn set_link(&mut self, env: &Env, up: bool) {
        self.changed = true;
        if self.plug(env, up) {
            self.end_turn();
        }
    }

    fn moderate(&mut self, env: &Env, how: Moderation) {
        self.changed = true;
        self.function.moderate_live(env, how);
    }

    fn save(&self, env: &Env) -> Vec<u8> {
        state::write(&self.state(env))
    }

    fn load(&mut self, env: &Env, blob: &[u8]) -> Result<(), StateError> {
        self.become_state(env, &state::read(blob)?)?;
        self.changed = true;
        self.function.note_all();
        Ok(())
    }

    fn keep(&mut self, words: Kept) -> bool {
        self.function.keep(words)
    }

    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed) | self.function.take_touched()
    }

    fn settled(&mut self) {
        self.work.rx |= self.function.let_receiver_go();
    }

    fn recover(
        &mut self,
        env: &Env,
        (blob, age): (&[u8], Nanos),
        words: Kept,
    ) -> Result<u64, StateError> {
        self.revive(env, state::read(blob)?, age, words)
    }
}
