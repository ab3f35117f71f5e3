//! Settings that several tables have.

use super::super::lan::{Lan, Load, Setup};
use super::terms::{Setting, set, with};

/// The thesis' rate of interrupts, and what moderation delays of 250 and 100 units of 250 ns amount to.
pub const MAIR: Option<u32> = Some(4000);
pub const ITR250: Option<u32> = Some(16_000);
pub const ITR100: Option<u32> = Some(40_000);

pub const fn base(lan: Lan) -> Setting {
    set("itr=0", lan, Load::Plain, Some(0))
}

pub const TAP: Setting = base(Lan::Tap);
pub const M4000: Setting = set("mair=4000", Lan::Tap, Load::Plain, MAIR);
pub const M4000_SC: Setting = set("mair=4000 SC", Lan::Tap, Load::Combining, MAIR);
pub const SC: Setting = set("itr=0 SC", Lan::Tap, Load::Combining, Some(0));
pub const M4000_CSB: Setting = set("mair=4000 CSB", Lan::Tap, Load::Csb, MAIR);
pub const RING: Setting = with(
    Setup::Ring,
    set("itr=0 ring 4096", Lan::Tap, Load::Plain, Some(0)),
);
pub const ADAPTIVE: Setting = set("adaptive", Lan::Adaptive, Load::Stock, None);
pub const FIXED: Setting = set("fixed:4000", Lan::Fixed, Load::Stock, None);
pub const QEMU: Setting = set("QEMU itr=0", Lan::Qemu, Load::Plain, Some(0));
pub const QEMU_M4000: Setting = set("QEMU mair=4000", Lan::Qemu, Load::Plain, MAIR);
pub const QEMU_SC: Setting = set("QEMU mair=4000 SC", Lan::Qemu, Load::Combining, MAIR);
pub const VIRTIO: Setting = set("virtio", Lan::Virtio, Load::Plain, Some(0));
pub const NO_EVENT_IDX: Setting = set("virtio no event idx", Lan::NoEventIdx, Load::Plain, Some(0));

/// virtio-nets. Their drivers are those of the guest's kernel as they are; the 82540EMs' is loaded as for the papers' rows beside them.
pub const VHOST: Setting = set("QEMU virtio vhost", Lan::Vhost, Load::Plain, Some(0));
pub const PV: Setting = set("our virtio", Lan::PvTap, Load::Plain, Some(0));
pub const PV_COALESCED: Setting = with(
    Setup::Coalesced,
    set("our virtio, ethtool -C", Lan::PvTap, Load::Plain, Some(0)),
);
pub const PV_ADAPTIVE: Setting = set(
    "our virtio, adaptive",
    Lan::PvAdaptive,
    Load::Plain,
    Some(0),
);
pub const PV_USER: Setting = set("our virtio, vhost-user", Lan::PvUser, Load::Plain, Some(0));
pub const PV_NO_EVENT_IDX: Setting = set(
    "our virtio, vhost-user, no event idx",
    Lan::PvNoEventIdx,
    Load::Plain,
    Some(0),
);
pub const PV_VALE: Setting = set("our virtio", Lan::PvVale, Load::Plain, Some(0));
