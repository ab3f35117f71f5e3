//! The physical function, put together.

use crate::control::Registers;
use crate::control::config::Config;
use crate::control::due::Due;
use crate::control::nic::nic;
use crate::control::nvm::Nvm;
use crate::control::stat_regs::StatRegs;
use crate::core::function::{Function, FunctionKind};
use crate::regs;
use crate::regs::{BAR_IO, BAR_MMIO, BAR_MSIX, PF_MESSAGES, PF_QUEUES, QUEUES};
use crate::sriov::hub::Hub;
use std::sync::Arc;

use intel::link::Port;
use intel::phy::PhyModel;
use model::{Aer, Ari, Bar, Extended, Identity, Msix, Nic, Places, Serial, Space, Sriov, Work};

/// PCI device id (§9.4.2).
const DEVICE: u16 = 0x10c9;
/// PCI subsystem id, below Intel's vendor id: a server adapter of one port.
const SUBSYSTEM: u16 = 0xa03c;

/// Pages that VFs can be laid out for, as real cards say: 4 KiB to 4 MiB by fours, but 16 KiB.
const PAGES: u32 = 0x553;

/// The extended capabilities (§9.6). Those of a PF that may have virtual functions are there only
/// where it does, as on a card whose NVM has switched IOV off.
fn extended(mac: [u8; 6], vfs: u32) -> Vec<(u16, Extended)> {
    let mut list = vec![(0x100, Aer.into()), (0x140, Serial::of_mac(mac).into())];
    if let total @ 1.. = vfs as u16 {
        let bar = Some(pci::Bar::memory64(crate::control::vf::BAR_SIZE));
        let sriov = Sriov {
            total,
            // Without ARI behind all functions of the bus, with it behind those of the chip's ports
            // (§9.6.4.6).
            first_offset: 0x180,
            ari_offset: 0x80,
            stride: 2,
            device: crate::control::vf::DEVICE,
            page_sizes: PAGES,
            dependency: 0,
            bars: [bar, None, None, bar, None, None],
        };
        // The chip has one port here, and so no next function.
        list.extend([(0x150, Ari { next: 0 }.into()), (0x160, sriov.into())]);
    }
    list
}

/// What the bus scan finds (§9.3 to §9.6). Not there: the flash BAR.
fn identity(mac: [u8; 6], vfs: u32) -> Identity {
    let memory = |index, size| Bar {
        index,
        space: Space::Memory32,
        size,
    };
    Identity {
        model: "82576",
        vendor: 0x8086,
        device: DEVICE,
        subsystem_vendor: 0x8086,
        subsystem: SUBSYSTEM,
        revision: 1,
        class: [0x02, 0x00, 0x00],
        bars: vec![
            memory(BAR_MMIO, regs::WINDOW.into()),
            Bar {
                index: BAR_IO,
                space: Space::Io,
                size: 32,
            },
            memory(BAR_MSIX, 16 << 10),
        ],
        intx: true,
        msi: 1,
        msi_masking: true,
        msix: Some(Msix {
            vectors: PF_MESSAGES,
            table_bar: BAR_MSIX,
            table_offset: 0,
            pba_bar: BAR_MSIX,
            pba_offset: 0x2000,
        }),
        pm: true,
        pme: 0b1_1001, // D0, D3 hot, D3 cold
        pcie: true,
        others: Vec::new(),
        places: Places {
            pm: 0x40,
            msi: 0x50,
            msix: 0x70,
            pcie: 0xa0,
        },
        extended: extended(mac, vfs),
    }
}

/// A physical function fresh from power-up: bus mastering off, link standing if the cable is in.
pub fn pf(config: &Config) -> Nic {
    make(config, None)
}

/// The same, whose registers control the VFs of a hub. There is one for each hub at a time.
pub fn pf_with_vfs(config: &Config, hub: Arc<Hub>) -> Nic {
    make(config, Some(hub))
}

fn make(config: &Config, hub: Option<Arc<Hub>>) -> Nic {
    let mut function = Function::new(
        FunctionKind::Pf,
        regs::table(),
        &QUEUES,
        PF_QUEUES,
        config.true_fcs,
    );
    function.moderate(config.moderation);
    function.vf_stats = hub.as_ref().map_or_else(Vec::new, |hub| hub.stats());
    let function = Arc::new(function);
    if let Some(hub) = &hub {
        hub.occupy(&function);
    }
    let nvm = match &config.nvm {
        Some(image) => Nvm::of_image(image),
        None => Nvm::new(config.mac, DEVICE, SUBSYSTEM, config.pause),
    };
    let identity = identity(nvm.mac(), hub.as_ref().map_or(0, |hub| hub.vfs()));
    let mut control = Registers {
        function: Arc::clone(&function),
        nvm,
        port: Port::new(
            PhyModel::Igp03,
            config.link,
            config.pause,
            config.negotiation,
        ),
        io: intel::io::Window::default(),
        reading: StatRegs::default(),
        work: Work::default(),
        phy_was_reset: true,
        may_master: false,
        hub,
        due: Due::default(),
        places_vf_rings: config.pf_places_vf_rings,
        changed: true,
    };
    control.power_up();
    control.reset_vf_control();
    nic(identity, Box::new(control), function)
}
