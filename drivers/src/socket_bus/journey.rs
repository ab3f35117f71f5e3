//! A guest on its way to another host: what a VMM does when it migrates.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use guest_mem::Prot;
use vfio_user::codec::feature::MigrationState;
use vfio_user::codec::irq;
use vfio_user::{Client, ClientOptions, SharedMem};

use super::{PAGE, SocketBus};
use crate::bus::BusError;

/// Bytes of a state that are carried at once.
const PART: usize = 4096;

/// The other host, and the guest's memory there as far as it has come.
pub struct Journey {
    far: Client,
    copies: BTreeMap<u64, SharedMem>,
}

/// Pages that were carried over, by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The device says that it has written them.
    pub by_device: BTreeSet<u64>,
    /// They were another here than there.
    pub different: BTreeSet<u64>,
}

fn memory(error: impl ToString) -> BusError {
    BusError::Memory(error.to_string())
}

impl SocketBus {
    /// Begins to move the guest to the device of `far`, which is as new: gives it memory of its own there, has this one log what it
    /// writes, and carries everything over once.
    ///
    /// # Errors
    /// One of the devices refuses, or memory runs out.
    pub fn depart(&mut self, mut far: Client) -> Result<Journey, BusError> {
        far.set_migration_state(MigrationState::Resuming)?;
        let mut copies = BTreeMap::new();
        for (iova, shared) in &self.shared {
            let copy = SharedMem::new("far", shared.len()).map_err(memory)?;
            far.dma_map(*iova, &copy, 0, copy.len() as u64, Prot::RW)?;
            copies.insert(*iova, copy);
        }
        let ranges: Vec<_> = self
            .shared
            .iter()
            .map(|(iova, m)| (*iova, m.len() as u64))
            .collect();
        self.client.start_log(PAGE, &ranges)?;
        let mut journey = Journey { far, copies };
        self.carry(&mut journey)?;
        Ok(journey)
    }

    /// Carries over what has changed since the last time. Pages that the device has not written, but others, are the guest's: a VMM
    /// knows them from its processor.
    ///
    /// # Errors
    /// The device refuses.
    pub fn carry(&mut self, journey: &mut Journey) -> Result<Carried, BusError> {
        let mut carried = Carried::default();
        for (iova, near) in &self.shared {
            let bitmap = self.client.take_log(*iova, near.len() as u64, PAGE)?;
            let far = &journey.copies[iova];
            for page in 0..near.len() / PAGE as usize {
                let at = page * PAGE as usize;
                if bitmap[page / 8] >> (page % 8) & 1 != 0 {
                    carried.by_device.insert(iova + at as u64);
                }
                let (mut here, mut there) = ([0; PAGE as usize], [0; PAGE as usize]);
                near.read(at, &mut here);
                far.read(at, &mut there);
                if here != there {
                    far.write(at, &here);
                    carried.different.insert(iova + at as u64);
                }
            }
        }
        Ok(carried)
    }

    /// Stops the device; the guest stands still as well. What it has written until then is carried over last, before
    /// [`SocketBus::arrive`].
    ///
    /// # Errors
    /// The device refuses.
    pub fn stop(&mut self) -> Result<(), BusError> {
        self.client.set_migration_state(MigrationState::Stop)?;
        Ok(())
    }

    /// Lets the device go on here: the guest stays.
    ///
    /// # Errors
    /// The device refuses.
    pub fn stay(&mut self) -> Result<(), BusError> {
        self.client.stop_log()?;
        self.client.set_migration_state(MigrationState::Running)?;
        Ok(())
    }

    /// The VMM ends and lets go of the device; the guest's memory is kept, as a snapshot of the VM has it.
    ///
    /// # Errors
    /// No socket is left.
    pub fn leave(&mut self) -> Result<(), BusError> {
        let (nobody, _) = UnixStream::pair().map_err(memory)?;
        self.client = Client::open(nobody.into(), ClientOptions::default())?;
        Ok(())
    }

    /// Another VMM goes on with the guest from its snapshot, with the device of `far`.
    ///
    /// # Errors
    /// The device refuses.
    pub fn come(&mut self, mut far: Client) -> Result<(), BusError> {
        for (iova, shared) in &self.shared {
            far.dma_map(*iova, shared, 0, shared.len() as u64, Prot::RW)?;
        }
        if far.irq_info(irq::INTX)?.count > 0 {
            far.arm(irq::INTX, 0, &[&self.interrupt])?;
        }
        self.client = far;
        Ok(())
    }

    /// The guest goes on at the other host, in its memory there. Returns the connection it leaves.
    ///
    /// # Errors
    /// One of the devices refuses.
    pub fn arrive(&mut self, journey: Journey) -> Result<Client, BusError> {
        let Journey { mut far, copies } = journey;
        self.client.set_migration_state(MigrationState::StopCopy)?;
        let state = self.client.read_state(PART as u32)?;
        far.write_state(&state, PART)?;
        if far.irq_info(irq::INTX)?.count > 0 {
            far.arm(irq::INTX, 0, &[&self.interrupt])?;
        }
        for (iova, copy) in &copies {
            let len = copy.len() as u64;
            self.memory.unmap(*iova, len).map_err(memory)?;
            self.memory
                .map_fd(*iova, len, copy.as_fd(), 0, Prot::RW)
                .map_err(memory)?;
        }
        self.shared = copies;
        far.set_migration_state(MigrationState::Running)?;
        Ok(std::mem::replace(&mut self.client, far))
    }
}
