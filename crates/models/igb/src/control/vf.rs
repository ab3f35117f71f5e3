//! A virtual function (datasheet §7.10.2 and §8.26): two queues, three interrupt vectors, a mailbox;
//! everything else is granted to it.

use crate::control::config::Config;
use crate::control::nic::nic;
use crate::control::vf_control::VfControl;
use crate::core::function::{Function, FunctionKind};
use crate::core::irq::Irq;
use crate::regs::settings::Settings;
use crate::regs::{BAR_MMIO, BAR_MSIX, VF_MESSAGES, VF_QUEUES, vf as regs};
use crate::sriov::channel::VfChannel;
use std::sync::Arc;

use model::{Bar, Identity, Nic, Space};
use parking_lot::Mutex;

/// Bytes of either BAR.
pub(crate) const BAR_SIZE: u64 = 16 * 1024;
/// PCI device id (§9.7).
pub(crate) const DEVICE: u16 = 0x10ca;

/// What a guest's bus scan finds: a function of its own, not the virtual function of another, since no
/// VMM shows a device's SR-IOV capability to its guest.
fn identity() -> Identity {
    let bar = |index| Bar {
        index,
        space: Space::Memory64,
        size: BAR_SIZE,
    };
    Identity {
        model: "82576vf",
        vendor: 0x8086,
        device: DEVICE,
        subsystem_vendor: 0x8086,
        subsystem: 0xa03c,
        revision: 1,
        class: [2, 0, 0],
        bars: vec![bar(BAR_MMIO), bar(BAR_MSIX)],
        msix: Some(model::Msix {
            // Linux's igbvf takes exactly these or none.
            vectors: VF_MESSAGES,
            table_bar: BAR_MSIX,
            table_offset: 0,
            pba_bar: BAR_MSIX,
            pba_offset: 0x2000,
        }),
        pcie: true,
        ..Identity::default()
    }
}

/// A VF fresh from power-up, ruled through `channel`.
pub fn vf(config: &Config, channel: Arc<VfChannel>) -> Nic {
    let mut function = Function::new(
        FunctionKind::Vf(Mutex::new(Settings::VF)),
        regs::table(),
        &regs::QUEUES,
        VF_QUEUES,
        config.true_fcs,
    );
    function.stats = Arc::clone(channel.stats());
    *function.irq.lock() = Irq::vf();
    function.moderate(config.moderation);
    let function = Arc::new(function);
    let control = VfControl::new(Arc::clone(&function), channel);
    nic(identity(), Box::new(control), function)
}
