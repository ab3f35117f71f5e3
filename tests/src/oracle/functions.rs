//! Our NIC with the virtual functions it may have: in one machine, on one clock, joined as the daemon
//! joins them, by the on-chip switch and by what the registers of the physical function say.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drivers::{Bus, BusError, ModelBus, Recorded, Recorder};
use eswitch::Owner;
use frame::{Batch, Caps, Sink};
use hypernic::chip::{GuestPf, WIRE};
use model::Clock;
use registry::{Function, MODELS, Settings};
use vale::{PortConfig, Switch, SwitchPort};

use crate::oracle::chip::Chip;
use crate::oracle::layout::MAC;
use crate::oracle::layout::{VECTORS, VF_VECTORS};

/// COMMAND: memory is decoded, and the bus mastered.
const COMMAND: [u8; 2] = [7, 0];
/// Rounds in which functions hear of each other before a step has ended: a message and what follows
/// from it.
const ROUNDS: usize = 3;

/// All functions of a chip.
pub(super) struct Functions {
    chip: &'static Chip,
    /// The physical one first.
    all: Vec<ModelBus>,
    inside: Option<Inside>,
}

/// What lies between functions.
struct Inside {
    switch: Switch,
    wire: Arc<SwitchPort>,
    _registers: Arc<GuestPf>,
}

impl Functions {
    /// New ones, and what they send out on the wire.
    pub(super) fn new(chip: &'static Chip) -> Result<(Self, Arc<Recorder>), BusError> {
        let out = Recorder::new(Caps::NONE);
        let (all, inside) = if chip.vfs == 0 {
            (vec![ModelBus::new((chip.nic)(), out.clone())], None)
        } else {
            let (all, inside) = joined(chip.vfs, out.clone());
            (all, Some(inside))
        };
        let mut functions = Self { chip, all, inside };
        for bus in &mut functions.all {
            bus.config_write(4, &COMMAND)?;
        }
        functions.all[0].set_vfs(chip.vfs as u16);
        functions.hear()?;
        Ok((functions, out))
    }

    /// The physical function.
    pub(super) fn pf(&mut self) -> &mut ModelBus {
        &mut self.all[0]
    }

    /// Whose a register is, and where he has it.
    fn of(&mut self, at: u32) -> (&mut ModelBus, u64) {
        match self.chip.vf(at) {
            Some((vf, offset)) => (&mut self.all[1 + vf as usize], offset.into()),
            None => (&mut self.all[0], at.into()),
        }
    }

    pub(super) fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), BusError> {
        let (bus, offset) = self.of(at);
        bus.bar_write(igb::BAR_MMIO, offset, bytes)?;
        self.hear()
    }

    pub(super) fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), BusError> {
        let (bus, offset) = self.of(at);
        bus.bar_read(igb::BAR_MMIO, offset, bytes)?;
        self.hear()
    }

    /// Has them look at what others have done.
    pub(super) fn hear(&mut self) -> Result<(), BusError> {
        if self.inside.is_some() {
            for _ in 0..ROUNDS {
                self.all.iter_mut().try_for_each(ModelBus::attend)?;
            }
        }
        Ok(())
    }

    /// Time passes.
    pub(super) fn delay(&mut self, time: Duration) -> Result<(), BusError> {
        let (pf, vfs) = self.all.split_at_mut(1);
        pf[0].delay(time)?;
        for vf in vfs {
            // It is as late for them.
            vf.delay(Duration::ZERO)?;
        }
        if let Some(inside) = &self.inside {
            inside.switch.tick();
        }
        self.hear()
    }

    /// Has all send messages.
    pub(super) fn set_msix(&mut self) -> Result<(), BusError> {
        for bus in &mut self.all {
            bus.set_msix(true);
            bus.pump()?;
        }
        Ok(())
    }

    /// Vectors that have sent a message since the last call: those of the physical function, and
    /// behind them those of the others.
    pub(super) fn messages(&mut self) -> u32 {
        let first = (0..).map(|n| match n {
            0 => 0,
            n => u32::from(VECTORS) + u32::from(VF_VECTORS) * (n - 1),
        });
        let all = self.all.iter().zip(first);
        all.fold(0, |all, (bus, first)| {
            all | bus.irq().take_vectors() << first
        })
    }

    /// Frames come from the wire; how many were dealt with.
    pub(super) fn deliver(&mut self, frames: &[Recorded]) -> Result<usize, BusError> {
        let Some(inside) = &self.inside else {
            return Ok(self.all[0].deliver(frames));
        };
        let mut done = 0;
        for frame in frames {
            let mut batch = Batch::new();
            batch.push_bytes(&frame.bytes);
            batch.end(frame.notes);
            if inside.wire.deliver(&batch, &[0]) == 0 {
                break;
            }
            done += 1;
        }
        self.hear()?;
        Ok(done)
    }

    /// Does what is due.
    pub(super) fn pump(&mut self) -> Result<(), BusError> {
        self.all.iter_mut().try_for_each(ModelBus::pump)?;
        self.hear()
    }
}

/// An 82576 with virtual functions.
fn joined(vfs: u32, out: Arc<Recorder>) -> (Vec<ModelBus>, Inside) {
    let time: Arc<OnceLock<Arc<dyn Clock>>> = Arc::default();
    let clock = Arc::clone(&time);
    let now = move || clock.get().map_or(0, |clock| clock.now());
    let switch = Switch::on_chip(Default::default(), Arc::new(now));
    let registers = GuestPf::new(vfs, switch.clone());
    let uplink = PortConfig {
        waits: false,
        uplink: true,
        ..PortConfig::default()
    };
    let wire = switch.attach(WIRE, out, uplink).expect("the first port");
    let nowhere = || Recorder::new(Caps::NONE);
    // As on the chip, and in QEMU, a PF says where its VFs' rings are.
    let settings = Settings {
        pf_places_vf_rings: true,
        ..Settings::new(MAC)
    };
    let nic = |function| {
        let nic = MODELS.nic("82576", &settings, &function);
        nic.expect("an entry that takes it")
    };
    let hub = registers.hub();
    let pf = ModelBus::new(nic(Function::PfWithVfs(Arc::clone(hub))), nowhere());
    let _ = time.set(pf.clock());
    let channels = (0..vfs).filter_map(|vf| hub.channel(vf));
    let others: Vec<_> = channels
        .map(|channel| pf.beside(nic(Function::Vf(Arc::clone(channel))), nowhere()))
        .collect();
    let mut all = vec![pf];
    all.extend(others);
    let owners = std::iter::once(Owner::Pf).chain((0..).map(Owner::Vf));
    for (bus, owner) in all.iter_mut().zip(owners) {
        let port = switch.attach(&format!("{owner:?}"), bus.far_end(), PortConfig::default());
        bus.connect(registers.joined(owner, port.expect("room for all")));
    }
    let inside = Inside {
        switch,
        wire,
        _registers: registers,
    };
    (all, inside)
}
