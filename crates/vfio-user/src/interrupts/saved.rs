//! Interrupts handed over to the next server of the same client.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use peer::deferred_closer::PeerFd;
use peer::signal::Line;
use serde::{Deserialize, Serialize};

use super::State;
use crate::codec::irq;

/// A vector without its eventfd. Of the pin, `guest_masked` is COMMAND bit 10 and `pending` the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vector {
    pub index: u32,
    pub vector: u32,
    pub masked: bool,
    pub guest_masked: bool,
    pub pending: bool,
}

impl State {
    /// Shows every vector that is not as it was at first, with its eventfd.
    pub fn each_vector(&self, visit: &mut dyn FnMut(Vector, Option<BorrowedFd<'_>>)) {
        {
            let pin = self.intx.lock();
            let vector = Vector {
                index: irq::INTX,
                vector: 0,
                masked: pin.masked,
                guest_masked: pin.disabled,
                pending: pin.asserted,
            };
            visit(vector, pin.fd.as_deref().map(Line::as_fd));
        }
        for index in [irq::MSI, irq::MSIX, irq::ERR, irq::REQ] {
            for vector in 0..self.count(index) {
                let Some(cell) = self.vector(index, vector) else {
                    continue;
                };
                let cell = cell.lock();
                if cell.fd.is_none() && !cell.masked && !cell.guest_masked && !cell.pending {
                    continue;
                }
                let saved = Vector {
                    index,
                    vector,
                    masked: cell.masked,
                    guest_masked: cell.guest_masked,
                    pending: cell.pending,
                };
                visit(saved, cell.fd.as_deref().map(Line::as_fd));
            }
        }
    }

    /// Nobody knows whether the pin's owner heard of the level: it is told again.
    pub fn unmask_pin(&self) {
        let mut pin = self.intx.lock();
        pin.masked = false;
        self.evaluate(&mut pin);
    }

    /// Whether there is such a vector.
    pub fn has(&self, vector: &Vector) -> bool {
        vector.vector < self.count(vector.index) || vector.index == irq::INTX && vector.vector == 0
    }

    /// Makes a vector as it was, without telling anybody.
    pub fn put_vector(&self, saved: &Vector, fd: Option<PeerFd>) {
        let fd = fd.map(Line::new);
        if saved.index == irq::INTX {
            let mut pin = self.intx.lock();
            pin.fd = fd;
            pin.masked = saved.masked;
            pin.disabled = saved.guest_masked;
            pin.asserted = saved.pending;
            self.line.store(saved.pending, Ordering::Release);
        } else if let Some(cell) = self.vector(saved.index, saved.vector) {
            let mut cell = cell.lock();
            cell.fd = fd;
            cell.masked = saved.masked;
            cell.guest_masked = saved.guest_masked;
            self.set_pending(&mut cell, saved.index, saved.vector, saved.pending);
        }
    }
}
