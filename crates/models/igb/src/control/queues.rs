//! Writes to the registers of queues, of either kind of function.

use crate::core::function::{Function, count};
use crate::core::kept;
use crate::core::queue::TxState;
use crate::regs::bits::xdctl;
use model::{Env, Work};
use regs::Id;

impl Function {
    /// Takes a write of a tail, which is written more often than all else. `None`: it is none, of a register of its own
    /// width.
    #[inline]
    pub(crate) fn write_tail(&self, env: &Env, offset: u64, data: &[u8]) -> Option<Work> {
        let &[a, b, c, d] = data else {
            return None;
        };
        let found = self.file.table().find(u32::try_from(offset).ok()?)?;
        if found.id != self.ids.tdt && found.id != self.ids.rdt {
            return None;
        }
        let value = u32::from_le_bytes([a, b, c, d]);
        self.write_queue(env, found.id, found.element, value)
    }

    /// Takes a write to a register of a queue. `None`: it is none. The caller has found `id` and
    /// `element` in the table; aliases are the register itself.
    pub(crate) fn write_queue(&self, env: &Env, id: Id, element: u32, value: u32) -> Option<Work> {
        let ids = self.ids;
        let queue = self.queues.get(element as usize)?;
        let mut work = Work::default();
        if id == ids.tdt {
            let tail = self.file.write(id, element, value);
            self.note_word(kept::tail(true, element), tail);
            count(&self.counters.tx_doorbells, 1);
            self.ring(element);
            work.tx = true;
        } else if id == ids.rdt {
            let tail = self.file.write(id, element, value);
            self.note_word(kept::tail(false, element), tail);
            count(&self.counters.rx_doorbells, 1);
            if self.adapts {
                self.irq.lock().refilled(env, element);
            }
            work.rx = true;
        } else if [ids.rdbal, ids.rdbah, ids.rdlen, ids.srrctl, ids.rdh].contains(&id) {
            // Those who fill buffers of the ring it was finish first.
            let _rx = queue.rx.lock();
            self.hold_receiver();
            self.file.write(id, element, value);
            self.setup.changed();
            self.note_rings(element, None);
            work.rx = true;
        } else if id == ids.rxdctl {
            let _rx = queue.rx.lock();
            self.hold_receiver();
            self.file.write(id, element, value & !xdctl::SWFLSH);
            self.setup.changed();
            work.rx = true;
        } else if [
            ids.tdbal, ids.tdbah, ids.tdlen, ids.tdh, ids.tdwbal, ids.tdwbah,
        ]
        .contains(&id)
        {
            self.file.write(id, element, value);
            self.setup.changed();
            if id == ids.tdh {
                self.note_rings(element, Some(&queue.tx.lock()));
            }
        } else if id == ids.txdctl {
            // What is under way ends before the driver reads that the queue is off.
            let mut tx = queue.tx.lock();
            let old = self.file.get_at(id, element);
            let new = self.file.write(id, element, value & !xdctl::SWFLSH);
            if !old & new & xdctl::ENABLE != 0 {
                *tx = TxState::default();
                self.note_rings(element, Some(&tx));
            }
            // Before those that come next have the lock.
            self.setup.changed();
            drop(tx);
            self.ring(element);
            work.tx = true;
        } else {
            return None;
        }
        Some(work)
    }
}
