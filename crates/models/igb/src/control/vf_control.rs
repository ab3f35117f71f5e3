//! The register side of a VF: its window, its reset, its mailbox.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::Counted;
use intel::bits::{ctrl, status};
use intel::window::Window;
use model::{Control, Env, Kept, Moderation, Nanos, PciState, Peeked, ResetKind, StateError, Work};
use regs::{Access, Found};

use crate::core::function::{Function, FunctionKind, count};
use crate::core::irq::{Causes, Way};
use crate::core::kept;
use crate::irq::VF_MAILBOX;
use crate::regs::settings::{Settings, VfSettings};
use crate::regs::{BAR_MMIO, VF_MESSAGES, pools, vf as r};
use crate::sriov::channel::{Event, Grant, VfChannel};
use crate::sriov::mailbox::v2p;
use crate::state::vf as state;

/// VTFRTIMER counts microseconds.
const NANOS_PER_COUNT: u64 = 1000;

/// Registers that count, as the channel has them.
const STATISTICS: [regs::Id; 5] = [r::VFGPRC, r::VFGPTC, r::VFGORC, r::VFGOTC, r::VFMPRC];

/// The control part.
pub(crate) struct VfControl {
    pub(super) function: Arc<Function>,
    pub(super) channel: Arc<VfChannel>,
    pub(super) work: Work,
    /// What is in force.
    pub(super) granted: Grant,
    pub(super) settings: VfSettings,
    /// How far VTFRTIMER is ahead of the clock.
    pub(super) ahead: Nanos,
    /// Accesses have changed what the words that outlive the process do not tell.
    pub(super) changed: bool,
}

impl VfControl {
    pub(crate) fn new(function: Arc<Function>, channel: Arc<VfChannel>) -> VfControl {
        // Others may have sat here before.
        channel.show([0; STATISTICS.len()]);
        VfControl {
            function,
            channel,
            work: Work::default(),
            granted: Grant::default(),
            settings: VfSettings::default(),
            ahead: 0,
            changed: true,
        }
    }

    /// The speed as VTSTATUS has it.
    fn speed(&self) -> u32 {
        let speed = match self.settings.mbps {
            10 => 0,
            100 => 1,
            _ => 2,
        };
        speed << status::SPEED_SHIFT
    }

    fn write_other(&mut self, env: &Env, id: regs::Id, element: u32, value: u32) {
        match id {
            r::VTCTRL if value & ctrl::RST != 0 => self.restart(env),
            r::VTCTRL | r::PBACL => {}
            r::VMBMEM => self
                .channel
                .mailbox(|mailbox| mailbox.set_word(element, value)),
            r::V2PMAILBOX => self.write_mailbox(env, value),
            _ => {
                self.function.file.write(id, element, value);
            }
        }
    }

    fn write_mailbox(&mut self, env: &Env, value: u32) {
        let now = env.clock.now();
        let rung = self.channel.mailbox(|mailbox| mailbox.vf_write(value));
        if rung.request {
            let words = self.channel.request();
            self.channel.tell(now, Event::Request(words));
        }
        if rung.acknowledged {
            self.channel.tell(now, Event::Acknowledged);
        } else if rung.freed && !rung.request {
            self.channel.tell(now, Event::Freed);
        }
        self.look(env);
    }

    /// VTCTRL.RST or the bus: queues, interrupts and mailbox as after power-up, and the PF is told,
    /// who decides what is granted now.
    fn restart(&mut self, env: &Env) {
        self.put_in_force(Grant {
            enabled: false,
            ..self.granted
        });
        let function = &self.function;
        function.file.reset();
        function.setup.changed();
        function.reset_queues();
        function.irq.lock().reset(env);
        function.note_all();
        self.space_interrupts(env);
        self.channel.mailbox(|mailbox| mailbox.vf_reset());
        self.channel.tell(env.clock.now(), Event::Reset);
        self.look(env);
    }

    /// Takes from the channel what has changed there.
    pub(super) fn look(&mut self, env: &Env) {
        let (grant, settings) = self.channel.granted();
        if (grant, settings) != (self.granted, self.settings) {
            self.changed = true;
            self.settings = settings;
            self.put_in_force(grant);
            self.space_interrupts(env);
        }
        if self.channel.take_poke() {
            self.work = Work { tx: true, rx: true };
        }
        if self.channel.mailbox(|mailbox| mailbox.take_interrupt()) {
            self.changed = true;
            let causes = Causes {
                other: VF_MAILBOX,
                ..Causes::default()
            };
            self.function.irq.lock().raise(env, causes);
        }
    }

    /// Has each vector keep the gap that its PF wants, if its register does not ask for a longer one.
    fn space_interrupts(&self, env: &Env) {
        let mut irq = self.function.irq.lock();
        for vector in 0..u32::from(VF_MESSAGES) {
            irq.set_eitr(env, vector, self.function.file.get_at(r::VTEITR, vector));
        }
        irq.space(env, self.granted.interrupt_gap);
    }

    pub(super) fn put_in_force(&mut self, grant: Grant) {
        let function = &self.function;
        if let FunctionKind::Vf(settings) = &function.kind {
            *settings.lock() = Settings {
                rx_on: grant.enabled && self.settings.receives,
                tx_on: grant.enabled && self.settings.sends,
                max_len: usize::from(grant.max_frame),
                max_tagged: pools::with_tag(grant.max_frame),
                tag: grant.tag,
                strip_vlan: self.settings.strip_vlan,
                strip_crc: self.settings.strip_crc,
                replicas: self.settings.replicas,
                insert_vlan: self.settings.insert_vlan,
                drop: self.settings.drop,
                rxcsum: self.settings.rxcsum,
                rfctl: self.settings.rfctl,
                buffer: self.settings.buffer,
                pad: self.settings.pad,
                ..Settings::VF
            };
        }
        function.link_up.store(grant.link, Ordering::Release);
        function.setup.changed();
        // A receive call under the old settings finishes first: drivers free buffers next.
        function.settle();
        self.granted = grant;
        self.work = Work { tx: true, rx: true };
        function.waiters.wake();
    }
}

impl VfControl {
    /// What a read of a register finds, without what it does.
    fn peek_word(&self, env: &Env, Found { id, element }: Found) -> u32 {
        let function = &self.function;
        if let Some(at) = STATISTICS.iter().position(|of| *of == id) {
            return self.channel.statistics()[at];
        }
        match id {
            r::VTSTATUS if function.link_up.load(Ordering::Acquire) => {
                status::FD | status::LU | self.speed()
            }
            r::VTSTATUS => status::FD | self.speed(),
            r::VTFRTIMER => (env.clock.now().wrapping_add(self.ahead) / NANOS_PER_COUNT) as u32,
            r::V2PMAILBOX => self.channel.mailbox(|mailbox| mailbox.vf_peek()),
            r::VTEICR => function.irq.lock().extended_causes(),
            r::VMBMEM => self.channel.mailbox(|mailbox| mailbox.word(element)),
            r::VTEIMS | r::VTEIMC => function.irq.lock().extended_mask(),
            r::VTEICS | r::VTCTRL => 0,
            _ => function.file.get_at(id, element),
        }
    }
}

impl Window for VfControl {
    const SPAN: u32 = r::WINDOW;

    fn read_word(&mut self, env: &Env, offset: u32) -> u32 {
        let function = &self.function;
        let Some(Found { id, element }) = function.file.table().find(offset) else {
            return 0;
        };
        match id {
            r::V2PMAILBOX => {
                let (before, value) = self
                    .channel
                    .mailbox(|mailbox| (mailbox.vf_peek(), mailbox.vf_read()));
                // What it clears is not told again.
                self.changed |= before != self.channel.mailbox(|mailbox| mailbox.vf_peek());
                value
            }
            r::VTEICR => function.irq.lock().read_eicr(env),
            _ => {
                // A driver adds up how much these grow, and they are to grow.
                self.changed |= STATISTICS.contains(&id);
                self.peek_word(env, Found { id, element })
            }
        }
    }

    fn write_word(&mut self, env: &Env, offset: u32, value: u32) {
        let function = &self.function;
        let Some(Found { id, element }) = function.file.table().find(offset) else {
            return;
        };
        let told = [
            r::VTEIMS,
            r::VTEIMC,
            r::VTEITR,
            r::VTEICR,
            r::VTEICS,
            r::RDT,
            r::TDT,
        ];
        self.changed |= !told.contains(&id);
        if let Some(work) = function.write_queue(env, id, element, value) {
            self.work.tx |= work.tx;
            self.work.rx |= work.rx;
            return;
        }
        let mut irq = function.irq.lock();
        match id {
            r::VTEICR => irq.clear_eicr(env, value),
            r::VTEICS => irq.set_eicr(env, value),
            r::VTEIMS => {
                irq.set_eims(env, value);
                function.note_mask(kept::EIMS, value & irq.existing(), 0);
            }
            r::VTEIMC => {
                irq.clear_eims(env, value);
                function.note_mask(kept::EIMS, 0, value);
            }
            r::VTEIAC => irq.set_eiac(function.file.write(id, 0, value)),
            r::VTEIAM => irq.set_eiam(function.file.write(id, 0, value)),
            r::VTEITR => {
                let bits = function.file.write(id, element, value);
                function.note_word(kept::eitr(element), bits);
                irq.set_eitr(env, element, bits);
            }
            r::VTIVAR => irq.set_ivar(0, function.file.write(id, 0, value)),
            r::VTIVAR_MISC => irq.set_ivar_misc(function.file.write(id, 0, value)),
            _ => {
                drop(irq);
                self.write_other(env, id, element, value);
            }
        }
        self.function.setup.changed();
    }

    fn partial_base(&self, offset: u32) -> u32 {
        let file = &self.function.file;
        let Some(Found { id, element }) = file.table().find(offset) else {
            return 0;
        };
        match file.table().register(id).access {
            Access::ReadWrite => file.get_at(id, element),
            Access::Memory => self.channel.mailbox(|mailbox| mailbox.word(element)),
            Access::Command if id == r::V2PMAILBOX => {
                // The buffer stays whose it is; what acts on ones does not act again.
                self.channel.mailbox(|mailbox| mailbox.vf_peek()) & v2p::VFU
            }
            _ => 0,
        }
    }
}

impl Drop for VfControl {
    fn drop(&mut self) {
        self.channel.leave(&self.function);
    }
}

impl Counted for VfControl {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.function.counters.visit(visit);
        visit("irq_raised", self.function.irq.lock().raised);
    }
}

impl Control for VfControl {
    fn read(&mut self, env: &Env, bar: u8, offset: u64, data: &mut [u8]) {
        count(&self.function.counters.reg_reads, 1);
        data.fill(0);
        match bar {
            BAR_MMIO => self.read_bytes(env, offset, data),
            _ => count(&self.function.counters.reg_bad_bar, 1),
        }
    }

    fn write(&mut self, env: &Env, bar: u8, offset: u64, data: &[u8]) {
        count(&self.function.counters.reg_writes, 1);
        if bar == BAR_MMIO
            && let Some(work) = self.function.write_tail(env, offset, data)
        {
            self.work.tx |= work.tx;
            self.work.rx |= work.rx;
            return;
        }
        match bar {
            BAR_MMIO => self.write_bytes(env, offset, data),
            _ => count(&self.function.counters.reg_bad_bar, 1),
        }
    }

    fn peek(&self, env: &Env, visit: &mut dyn FnMut(Peeked)) {
        let table = self.function.file.table();
        intel::window::peek(table, visit, |found, _| self.peek_word(env, found));
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    fn doorbells(&self) -> Option<model::Doorbells> {
        Some(crate::control::doorbell::layout(&self.function, false))
    }

    fn reset(&mut self, env: &Env, _kind: ResetKind) {
        self.function.bus_master.store(false, Ordering::Release);
        self.changed = true;
        self.function.irq.lock().set_way(env, Way::Pin);
        self.restart(env);
    }

    fn pci(&mut self, env: &Env, state: PciState) {
        self.changed = true;
        // A function in D3 does no DMA.
        let may = state.bus_master && !state.d3;
        self.function.bus_master.store(may, Ordering::Release);
        if !may {
            self.function.settle();
        }
        self.channel.attach(&self.function, env);
        let way = if state.msix { Way::Msix } else { Way::Pin };
        self.function.irq.lock().set_way(env, way);
        self.work = Work { tx: true, rx: true };
    }

    fn tick(&mut self, env: &Env) {
        self.function.irq.lock().tick(env);
    }

    fn attend(&mut self, env: &Env) {
        // Its PF may have changed the mailbox.
        self.changed = true;
        self.look(env);
    }

    /// A VF's link is what its PF says.
    fn set_link(&mut self, _env: &Env, _up: bool) {}

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
