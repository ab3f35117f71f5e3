//! The ways a tail reaches its NIC, and what is common to what is measured of them.

use std::collections::BTreeMap;

use drivers::SocketBus;
use drivers::e1000::poll::PollConfig;

use crate::error::{Error, Result};
use crate::fabric::{Fabric, Guest, driver};

/// The ways a tail reaches the NIC.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    E1000Trap,
    E1000Page,
    E1000Csb,
    IgbTrap,
    IgbPage,
}

impl Way {
    pub(super) const ALL: [Self; 5] = [
        Self::E1000Trap,
        Self::E1000Page,
        Self::E1000Csb,
        Self::IgbTrap,
        Self::IgbPage,
    ];
    /// Those whose idle functions are measured.
    pub(super) const IDLE: [Self; 2] = [Self::IgbTrap, Self::IgbPage];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::E1000Trap => "82540EM, trap",
            Self::E1000Page => "82540EM, page",
            Self::E1000Csb => "82540EM, CSB",
            Self::IgbTrap => "82576, trap",
            Self::IgbPage => "82576, page",
        }
    }

    pub(super) fn is_page(self) -> bool {
        matches!(self, Self::E1000Page | Self::IgbPage)
    }

    pub(super) fn is_csb(self) -> bool {
        self == Self::E1000Csb
    }

    pub(super) fn is_igb(self) -> bool {
        matches!(self, Self::IgbTrap | Self::IgbPage)
    }

    /// Words for the daemon.
    pub(super) fn options(self) -> Vec<String> {
        let model = if self.is_igb() { "82576" } else { "e1000" };
        let mut words = vec!["--model", model, "--workers", "1"];
        if self.is_page() {
            words.extend(["--doorbell", "page"]);
        }
        if self.is_csb() {
            words.push("--csb");
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

/// What a driver said, in this program's words.
pub(super) fn gone(error: drivers::BusError) -> Error {
    Error::Tool {
        tool: "the NIC's driver",
        what: error.to_string(),
    }
}

/// An 82540EM's driver that rings this way.
pub(super) fn e1000(fabric: &Fabric, number: usize, way: Way, setup: PollConfig) -> Result<Guest> {
    let mut bus = SocketBus::connect(fabric.socket(number)).map_err(gone)?;
    if way.is_page() {
        bus.share_pages().map_err(gone)?;
    }
    let csb = way.is_csb();
    Guest::new(bus, &PollConfig { csb, ..setup }).map_err(driver)
}

/// System calls, by the daemon's own counters.
pub(super) fn calls(daemon: &BTreeMap<String, u64>) -> u64 {
    let is_one = |name: &str| {
        let name = name.rsplit('.').next().unwrap_or(name);
        name.ends_with("_calls") || ["syscalls", "irq_triggers", "inlet_sleeps"].contains(&name)
    };
    let found = daemon.iter().filter(|(name, _)| is_one(name));
    found.map(|(_, n)| n).sum()
}
