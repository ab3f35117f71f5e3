//! The vector table and pending bits of MSI-X (PCI Local Bus 3.0 §6.8.2), for a host program that
//! sends the messages itself.

use crate::caps::Msix;

/// Bytes of a table entry: address, data, control.
const ENTRY: usize = 16;
/// Where the control word of an entry is; its bit 0 masks the vector.
const CONTROL: usize = 12;

/// A message: a write of `data` to `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where.
    pub address: u64,
    /// What.
    pub data: u32,
}

/// What Message Control lets through (§6.8.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// MSI-X is off: nothing is sent or remembered.
    #[default]
    Off,
    /// It is on, and the function mask holds all messages back.
    Masked,
    /// Messages go, each as its own mask says.
    On,
}

/// Table and pending bits. A vector that may not be sent now is remembered, and sent when it may.
#[derive(Clone, Debug)]
pub struct MsixTable {
    layout: Msix,
    entries: Box<[u8]>,
    pending: Box<[u8]>,
    delivery: Delivery,
}

impl MsixTable {
    /// As after a reset: every vector masked, nothing pending.
    pub fn new(layout: Msix) -> Self {
        let mut table = Self {
            layout,
            entries: vec![0; layout.table_len() as usize].into_boxed_slice(),
            pending: vec![0; layout.pba_len() as usize].into_boxed_slice(),
            delivery: Delivery::Off,
        };
        table.reset();
        table
    }

    /// Every vector masked (§6.8.2.9), nothing pending, the capability off.
    pub fn reset(&mut self) {
        for entry in self.entries.chunks_exact_mut(ENTRY) {
            entry.fill(0);
            entry[CONTROL] = 1;
        }
        self.pending.fill(0);
        self.delivery = Delivery::Off;
    }

    /// Bytes of the structure that holds this address, and the offset in it.
    fn find(&self, bar: u8, offset: u64) -> Option<(bool, usize)> {
        let Msix {
            table_bar, pba_bar, ..
        } = self.layout;
        let inside = |of: u8, start: u32, len: usize| {
            let at = offset.checked_sub(start.into())?;
            (bar == of && at < len as u64).then_some(at as usize)
        };
        inside(table_bar, self.layout.table_offset, self.entries.len())
            .map(|at| (true, at))
            .or_else(|| {
                inside(pba_bar, self.layout.pba_offset, self.pending.len()).map(|at| (false, at))
            })
    }

    /// Answers a read that begins in the table or the pending bits; what goes beyond is ones.
    /// `false`: it begins elsewhere.
    pub fn read(&self, bar: u8, offset: u64, data: &mut [u8]) -> bool {
        let Some((table, at)) = self.find(bar, offset) else {
            return false;
        };
        let from = if table { &self.entries } else { &self.pending };
        let from = &from[at..];
        let n = from.len().min(data.len());
        data.fill(0xff);
        data[..n].copy_from_slice(&from[..n]);
        true
    }

    /// Takes a write that begins in the table or the pending bits, which ignore it. Messages that
    /// waited for this go to `send`. `false`: it begins elsewhere.
    pub fn write(
        &mut self,
        bar: u8,
        offset: u64,
        data: &[u8],
        send: &mut dyn FnMut(Message),
    ) -> bool {
        let Some((table, at)) = self.find(bar, offset) else {
            return false;
        };
        if !table || data.is_empty() {
            return true;
        }
        let n = data.len().min(self.entries.len() - at);
        self.entries[at..at + n].copy_from_slice(&data[..n]);
        for vector in at / ENTRY..=(at + n - 1) / ENTRY {
            let entry = &mut self.entries[vector * ENTRY..][..ENTRY];
            // Address bits 1:0 and all of the control word but the mask bit are reserved.
            entry[0] &= !3;
            entry[CONTROL] &= 1;
            entry[CONTROL + 1..].fill(0);
            self.release(vector, send);
        }
        true
    }

    /// The capability was enabled or disabled, or its function mask changed. What waited and may go
    /// now goes to `send`; disabling forgets what waits.
    pub fn route(&mut self, delivery: Delivery, send: &mut dyn FnMut(Message)) {
        self.delivery = delivery;
        if delivery == Delivery::Off {
            self.pending.fill(0);
        }
        for vector in 0..usize::from(self.layout.vectors) {
            self.release(vector, send);
        }
    }

    /// The device raises `vector`: the message to send now, if it may be sent. Nothing happens while
    /// the capability is off or for a vector that does not exist.
    pub fn raise(&mut self, vector: u16) -> Option<Message> {
        let vector = usize::from(vector);
        if self.delivery == Delivery::Off || vector >= usize::from(self.layout.vectors) {
            return None;
        }
        let message = self.open(vector);
        if message.is_none() {
            self.pending[vector / 8] |= 1 << (vector % 8);
        }
        message
    }

    /// The vector's message, unless something masks it.
    fn open(&self, vector: usize) -> Option<Message> {
        let entry = &self.entries[vector * ENTRY..][..ENTRY];
        let word = |at: usize| {
            entry[at..at + 4]
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        let open = self.delivery == Delivery::On && entry[CONTROL] & 1 == 0;
        open.then(|| Message {
            address: u64::from(word(4)) << 32 | u64::from(word(0)),
            data: word(8),
        })
    }

    fn release(&mut self, vector: usize, send: &mut dyn FnMut(Message)) {
        let bit = 1 << (vector % 8);
        if self.pending[vector / 8] & bit != 0
            && let Some(message) = self.open(vector)
        {
            self.pending[vector / 8] &= !bit;
            send(message);
        }
    }

    /// Table and pending bits as they are; who saves them saves the configuration space too.
    pub fn save(&self) -> (&[u8], &[u8]) {
        (&self.entries, &self.pending)
    }

    /// Becomes what was saved, with the capability as [`MsixTable::route`] says next. `false`, and
    /// nothing changed, when that is of another table or no software can have made it so.
    #[must_use]
    pub fn load(&mut self, entries: &[u8], pending: &[u8]) -> bool {
        let vectors = usize::from(self.layout.vectors);
        let bit = |at: usize| pending[at / 8] >> (at % 8) & 1 != 0;
        let good = entries.len() == self.entries.len()
            && pending.len() == self.pending.len()
            && entries.chunks_exact(ENTRY).all(|entry| {
                entry[0] & 3 == 0
                    && entry[CONTROL] <= 1
                    && entry[CONTROL + 1..].iter().all(|byte| *byte == 0)
            })
            && !(vectors..pending.len() * 8).any(bit);
        if good {
            self.entries.copy_from_slice(entries);
            self.pending.copy_from_slice(pending);
        }
        good
    }
}
