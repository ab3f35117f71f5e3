//! What hostile guests and hostile VMMs do: a catalogue of small programs with ids.
//!
//! Each [`Villain`] is a few lines. Whatever it does may cost its own NIC until the next reset,
//! and must cost nobody else anything: afterwards [`next_good_request`] must hold on the same
//! NIC, others must not have noticed, the daemon's memory must be back where it was, and what was
//! refused must be counted under its name. The runners are in `tests/tests/villain/`;
//! `docs/villains.md` is made from the table here ([`page`]).
#![forbid(unsafe_code)]

mod config;
mod connections;
mod csb;
pub mod functions;
mod history;
mod kill_table;
mod maps;
mod page;
mod races;
mod registers;
mod rings;
mod stage;
mod table;
mod talk;
mod vmm;
mod wire;

use std::sync::LazyLock;
use std::time::Duration;

use drivers::e1000::{Config, Driver, DriverError, TxOpts, regs};
use drivers::{Bus, BusError};

pub use page::page;
pub use vmm::Vmm;

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

/// All villains, in the order of the page.
pub fn all() -> &'static [Villain] {
    static ALL: LazyLock<Vec<Villain>> = LazyLock::new(|| {
        use functions::{BOTH, PORT, VIRTUAL};
        [table::ALL, BOTH, PORT, VIRTUAL].concat()
    });
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

/// Those that are VMMs.
pub fn vmms() -> impl Iterator<Item = (&'static Villain, VmmDeed)> {
    all().iter().filter_map(|v| match v.program {
        Program::Vmm(run) => Some((v, run)),
        _ => None,
    })
}

/// One round of the soak: memory, state and connection each end in the middle of work.
///
/// # Errors
/// When the villain's own means fail.
pub fn ends_in_the_middle(vmm: &mut Vmm, round: u32) -> Result<(), BusError> {
    connections::ends_in_the_middle(vmm, round)
}

/// The next good request: registers answer, and after a reset a driver comes up, its frame is
/// sent and reported. Returns the frame, for whoever watches the other end.
///
/// # Errors
/// Says what did not work.
pub fn next_good_request(bus: &mut dyn Bus) -> Result<Vec<u8>, DriverError> {
    let status = bus.read32(regs::STATUS)?;
    if status == u32::MAX {
        return Err(BusError::Gone("STATUS reads all ones".into()).into());
    }
    let config = Config {
        tx_ring: 8,
        rx_ring: 16,
        refill: 8,
        report_every: 1,
        ..Config::poll()
    };
    let mut driver = Driver::new(bus, config)?;
    let mut frame = vec![0xff; 60];
    frame[6..12].copy_from_slice(&driver.mac());
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].fill(0x5a);
    driver.send(&[&frame], &TxOpts::default())?;
    for _ in 0..1000 {
        driver.reclaim()?;
        if driver.tx_pending() == 0 {
            driver.shutdown()?;
            return Ok(frame);
        }
        driver.bus_mut().delay(Duration::from_millis(1))?;
    }
    let value = driver.read(regs::TDH)?;
    Err(DriverError::Timeout {
        what: "report of a frame sent",
        value,
    })
}
