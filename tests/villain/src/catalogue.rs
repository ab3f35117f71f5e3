//! All misdeeds, and who does them.

use std::sync::LazyLock;

use crate::front::FRONT;
use crate::functions::{BOTH, PORT, VIRTUAL};
use crate::net::NET;
use crate::rtl::RTL;
use crate::table;
use crate::villain::{FrontDeed, GuestDeed, Program, VfDeed, Villain, VmmDeed};

/// All villains, in the order of the page.
pub fn all() -> &'static [Villain] {
    static ALL: LazyLock<Vec<Villain>> =
        LazyLock::new(|| [table::ALL, BOTH, PORT, VIRTUAL, NET, RTL, FRONT].concat());
    &ALL
}

/// Those that are guests.
pub fn guests() -> impl Iterator<Item = (&'static Villain, GuestDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Guest(run) => Some((v, run)),
        _ => None,
    })
}

/// Those that have a physical function of the 82576.
pub fn pfs() -> impl Iterator<Item = (&'static Villain, GuestDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Pf(run) => Some((v, run)),
        _ => None,
    })
}

/// Those that have a virtual function of the 82576.
pub fn vfs() -> impl Iterator<Item = (&'static Villain, VfDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Vf(deed) => Some((v, deed)),
        _ => None,
    })
}

/// Those that have a virtio-net.
pub fn nets() -> impl Iterator<Item = (&'static Villain, GuestDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Net(run) => Some((v, run)),
        _ => None,
    })
}

/// Those that have an RTL8168C.
pub fn rtls() -> impl Iterator<Item = (&'static Villain, GuestDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Rtl(run) => Some((v, run)),
        _ => None,
    })
}

/// Those that are VMMs at a vhost-user socket.
pub fn fronts() -> impl Iterator<Item = (&'static Villain, FrontDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Front(run) => Some((v, run)),
        _ => None,
    })
}

/// Those that are VMMs.
pub fn vmms() -> impl Iterator<Item = (&'static Villain, VmmDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Vmm(run) => Some((v, run)),
        _ => None,
    })
}
