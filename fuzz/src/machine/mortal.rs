//! A NIC whose process dies between two things that happen, and what another makes of what is left.

use frame::MAX_BATCH;
use model::Progress;

#[cfg(test)]
use super::BLOCK;
use super::{Machine, new, reg};
#[cfg(test)]
use crate::mortal::{Outcome, blocks};

/// Registers that a process does not change by itself, and those of the rings.
#[cfg(test)]
const REGISTERS: [u64; 14] = [
    reg::CTRL,
    reg::RCTL,
    reg::TCTL,
    reg::TDBAL,
    reg::TDLEN,
    reg::TDH,
    reg::TDT,
    reg::RDBAL,
    reg::RDLEN,
    reg::RDH,
    reg::RDT,
    reg::IMS,
    reg::RXCSUM,
    reg::VET,
];

impl Machine {
    /// What it does is kept from now on.
    pub fn outlive(&mut self) {
        self.mortal.begin(&mut self.nic, &self.env);
        self.wire.keep();
    }

    /// Its process dies, and another goes on.
    pub fn die(&mut self) {
        self.forgot |= self.quiet(reg::RDFPC) != 0;
        self.nic = new();
        self.mortal.go_on(&mut self.nic, &self.env);
        // Counters are the process', not the NIC's.
        self.counters.clear();
        self.set_pci(self.pci);
        self.set_link(self.mortal.link());
    }

    /// Whether something waits in its ring, as a process that begins looks.
    pub fn look(&mut self) {
        while self.transmit(MAX_BATCH) == Progress::More {}
        self.work(MAX_BATCH);
    }

    /// What there is in the end.
    #[cfg(test)]
    pub fn outcome(&mut self) -> Outcome {
        let has_csb = self.quiet(reg::CSBAL) != 0 || self.quiet(reg::CSBAH) != 0;
        self.dirt.take(&self.env.memory);
        let memory = &self.env.memory;
        let memory = (!has_csb).then(|| blocks::<{ BLOCK as usize }>(memory, self.dirt.blocks()));
        Outcome {
            frames: self.wire.kept(),
            memory,
            registers: REGISTERS.map(|at| (at, self.quiet(at))).to_vec(),
            unsure: self.mortal.unsure(),
            forgot: self.forgot,
            meddled: false,
        }
    }
}
