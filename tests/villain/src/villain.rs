//! What a misdeed is.

use drivers::{Bus, BusError};

use crate::front_end::FrontEnd;
use crate::vmm::Vmm;

/// One misdeed.
#[derive(Clone, Copy, Debug)]
pub struct Villain {
    /// Stable name for reports and filters.
    pub id: &'static str,
    /// Where it comes from: the peers' kill table, a CVE or commit, or our own mind.
    pub class: &'static str,
    /// What it does, in one line.
    pub name: &'static str,
    /// What must show afterwards.
    pub moves: Moves,
    /// Does it.
    pub program: Program,
}

/// A guest's misdeed.
pub type GuestDeed = fn(&mut dyn Bus) -> Result<(), BusError>;

/// A VMM's misdeed.
pub type VmmDeed = fn(&mut Vmm) -> Result<(), BusError>;

/// A misdeed at a vhost-user socket.
pub type FrontDeed = fn(&mut FrontEnd) -> Result<(), BusError>;

/// What the guest of a virtual function does.
#[derive(Clone, Copy, Debug)]
pub struct VfDeed {
    /// Does it.
    pub run: GuestDeed,
    /// What its operator has laid down for it, in the words of `[[nic.vf]]`, beside its address.
    pub policy: &'static str,
    /// It is shut down for it, and stays so until its operator revives it.
    pub shut_down: bool,
}

/// How a misdeed is done. An error is the bus's or the socket's: that the device does not like
/// what it sees is no error.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// By a guest: runs against the bare model and through a socket.
    Guest(GuestDeed),
    /// By the guest of an 82576's physical function.
    Pf(GuestDeed),
    /// By the guest of a virtual function, beside others on the same chip.
    Vf(VfDeed),
    /// By the guest of a virtio-net.
    Net(GuestDeed),
    /// By the guest of an RTL8168C.
    Rtl(GuestDeed),
    /// By a VMM at the vhost-user socket of a virtio-net.
    Front(FrontDeed),
    /// By a VMM, in ways no guest can: needs a socket to say it to.
    Vmm(VmmDeed),
}

/// The counters of the villain's own NIC or switch port that a misdeed moves.
#[derive(Clone, Copy, Debug)]
pub enum Moves {
    /// Each of these grows.
    Counters(&'static [&'static str]),
    /// Nothing is refused, and why that is right.
    Nothing(&'static str),
}
