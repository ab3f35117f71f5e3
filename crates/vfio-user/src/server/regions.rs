//! Answers region accesses: BARs, option ROM, configuration space.

use pci::{ConfigEvent, PowerState};
use rustix::io::Errno;

use super::session::{Refusal, Session};
use crate::codec::{Header, RegionAccess, WriteEntry, irq, region};
use crate::device::{Device, ResetCause};
use crate::stream::Sender;

/// Writes that one REGION_WRITE_MULTI may carry. They are made in one piece, whatever the budget has left; QEMU sends up
/// to 200.
pub(super) const MAX_WRITES: usize = 256;

impl Session {
    pub(super) fn region_read(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let access = self.parse(RegionAccess::parse(payload))?;
        let count = access.count as usize;
        if count > self.max_data || payload.len() != RegionAccess::LEN {
            return self.malformed();
        }
        if access.region >= region::COUNT {
            self.counters.bad_range += 1;
            return Err(Errno::INVAL);
        }
        self.counters.read_bytes += count as u64;
        let fixed = access.to_bytes();
        let data = tx.push_data(&header.reply(fixed.len() + count), &fixed, count);
        self.read_region(device, access.region, access.offset, data);
        Ok(())
    }

    /// Counts an access that goes beyond the end of its region.
    fn note_beyond(&mut self, index: u32, offset: u64, len: usize) {
        let room = self.shape.regions[index as usize]
            .size
            .saturating_sub(offset);
        self.counters.beyond_region += u64::from(room < len as u64);
    }

    /// Fills `data` from a region. Where there is nothing, there are ones.
    fn read_region(&mut self, device: &mut dyn Device, index: u32, offset: u64, data: &mut [u8]) {
        if index == region::CONFIG {
            self.note_beyond(index, offset, data.len());
            self.config.set_interrupt_status(self.irq.line());
            self.config.set_msi_pending(self.irq.0.msi_pending());
            self.show_pme();
            self.window_read(device, offset, data.len());
            self.config.read(offset, data);
            return;
        }
        data.fill(0xff);
        let size = self.shape.regions[index as usize].size;
        let len = size.saturating_sub(offset).min(data.len() as u64) as usize;
        self.note_beyond(index, offset, data.len());
        let data = &mut data[..len];
        if index == region::ROM {
            let rom = self.shape.rom.get(offset as usize..).unwrap_or_default();
            let n = rom.len().min(data.len());
            data[..n].copy_from_slice(&rom[..n]);
            return;
        }
        if self.is_halted() {
            self.counters.halted_accesses += 1;
            return;
        }
        let bar = index as u8;
        let mut at = 0;
        while at < len {
            let offset = offset + at as u64;
            let n = piece(offset, len - at);
            let data = &mut data[at..at + n];
            let table = self.table.as_ref();
            if !table.is_some_and(|t| t.read(&self.irq.0, bar, offset, data)) {
                device.bar_read(bar, offset, data);
            }
            at += n;
        }
    }

    pub(super) fn region_write(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let access = self.parse(RegionAccess::parse(payload))?;
        let data = &payload[RegionAccess::LEN..];
        if data.len() != access.count as usize {
            return self.malformed();
        }
        if access.region >= region::COUNT {
            self.counters.bad_range += 1;
            return Err(Errno::INVAL);
        }
        self.counters.posted_writes += u64::from(header.no_reply());
        self.write_region(device, access.region, access.offset, data);
        if !header.no_reply() {
            tx.push(&header.reply(RegionAccess::LEN), &access.to_bytes());
        }
        Ok(())
    }

    pub(super) fn write_multi(
        &mut self,
        device: &mut dyn Device,
        payload: &[u8],
    ) -> Result<usize, Refusal> {
        if !self.write_multiple {
            self.counters.unsupported += 1;
            return Err(Errno::NOTSUP);
        }
        let Some((count, entries)) = payload.split_first_chunk::<8>() else {
            return self.malformed();
        };
        let (entries, rest) = entries.as_chunks::<{ WriteEntry::LEN }>();
        if u64::from_ne_bytes(*count) != entries.len() as u64
            || !rest.is_empty()
            || entries.len() > MAX_WRITES
        {
            return self.malformed();
        }
        let parsed = |bytes: &[u8]| WriteEntry::parse(bytes).unwrap_or_default();
        // All or nothing: a message that is wrong in one entry changes no register.
        if entries
            .iter()
            .any(|e| parsed(e).count > 8 || parsed(e).region >= region::COUNT)
        {
            return self.malformed();
        }
        for entry in entries.iter().map(|e| parsed(e)) {
            let data = entry.data.to_ne_bytes();
            let data = &data[..entry.count as usize];
            self.write_region(device, entry.region, entry.offset, data);
        }
        self.counters.multi_writes += entries.len() as u64;
        Ok(entries.len())
    }

    /// Writes `data` to a region. What lies outside it goes nowhere.
    fn write_region(&mut self, device: &mut dyn Device, index: u32, offset: u64, data: &[u8]) {
        self.counters.write_bytes += data.len() as u64;
        // What a BAR's registers change, the device knows; but for those that are ours.
        self.changed |= index == region::CONFIG || self.table.is_some();
        match index {
            region::CONFIG => {
                self.note_beyond(index, offset, data.len());
                return self.config_write(device, offset, data);
            }
            0..=5 => {}
            _ => return,
        }
        if self.is_halted() {
            self.counters.halted_accesses += 1;
            return;
        }
        let bar = index as u8;
        let size = self.shape.regions[index as usize].size;
        let len = size.saturating_sub(offset).min(data.len() as u64) as usize;
        self.note_beyond(index, offset, data.len());
        let mut at = 0;
        let mut reached = false;
        while at < len {
            let offset = offset + at as u64;
            let n = piece(offset, len - at);
            let data = &data[at..at + n];
            let table = self.table.as_mut();
            if !table.is_some_and(|t| t.write(&self.irq.0, bar, offset, data)) {
                device.bar_write(bar, offset, data);
                reached = true;
            }
            at += n;
        }
        if let Some(doorbells) = self.shape.doorbells.as_mut().filter(|_| reached) {
            doorbells.written(device, bar, offset, len);
        }
    }

    /// PMCSR shows what the device has.
    fn show_pme(&mut self) {
        self.config.set_pme(self.irq.0.pme());
    }

    /// Before the data of a window is read it is read from the BAR.
    fn window_read(&mut self, device: &mut dyn Device, offset: u64, len: usize) {
        let Some(access) = self.config.window(offset, len) else {
            return;
        };
        let mut data = [0; 4];
        self.read_region(
            device,
            access.bar.into(),
            access.offset,
            &mut data[..access.len],
        );
        if let Some(shown) = self.config.window_data() {
            shown.copy_from_slice(&data);
        }
    }

    /// After the data of a window was written it is written to the BAR.
    fn window_write(&mut self, device: &mut dyn Device, offset: u64, len: usize) {
        let Some(access) = self.config.window(offset, len) else {
            return;
        };
        let mut data = [0; 4];
        if let Some(shown) = self.config.window_data() {
            data.copy_from_slice(shown);
        }
        self.write_region(
            device,
            access.bar.into(),
            access.offset,
            &data[..access.len],
        );
    }

    fn config_write(&mut self, device: &mut dyn Device, offset: u64, data: &[u8]) {
        let before = self.config.power_state();
        self.show_pme();
        let events = self.config.write(offset, data);
        self.window_write(device, offset, data.len());
        let mut reset = None;
        for event in events.iter() {
            let state = &*self.irq.0;
            match *event {
                ConfigEvent::MsiEnable(false) => state.forget_pending(irq::MSI),
                ConfigEvent::MsixEnable(false) => state.forget_pending(irq::MSIX),
                ConfigEvent::PowerState(PowerState::D0)
                    if before == PowerState::D3Hot && !self.config.no_soft_reset() =>
                {
                    reset = Some(ResetCause::PowerUp);
                }
                ConfigEvent::Pme(write) => state.pme_written(write),
                ConfigEvent::FunctionReset => reset = Some(ResetCause::FunctionLevel),
                _ => {}
            }
            device.config_event(*event);
        }
        if !events.is_empty() {
            self.follow_config();
        }
        if let Some(why) = reset {
            self.reset(device, why);
        }
    }

    /// Makes the interrupts follow the bits of the configuration space that silence them.
    pub(super) fn follow_config(&mut self) {
        let state = &*self.irq.0;
        state.set_intx_disabled(self.config.command() & pci::command::INTX_DISABLE != 0);
        state.set_msix_function_masked(self.config.msix_masked());
        let mask = self.config.msi_mask();
        for vector in 0..state.count(irq::MSI) {
            state.guest_mask(irq::MSI, vector, mask >> vector & 1 != 0);
        }
    }

    pub(super) fn reset(&mut self, device: &mut dyn Device, why: ResetCause) {
        self.config.reset();
        self.irq.0.reset();
        if let Some(table) = &mut self.table {
            table.reset();
        }
        device.reset(why);
        self.run_again(device);
        if let Some(doorbells) = &mut self.shape.doorbells {
            doorbells.refresh(device);
        }
    }
}

/// Length of the next naturally aligned piece of an access.
fn piece(offset: u64, left: usize) -> usize {
    let aligned = 1 << (offset | 8).trailing_zeros();
    let fits = 1 << (usize::BITS - 1 - left.leading_zeros());
    aligned.min(fits)
}

#[cfg(test)]
mod proofs;
