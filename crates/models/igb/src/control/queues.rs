//! Writes to the registers of queues, of either kind of function.

use crate::core::function::{Function, count};
use crate::core::kept;
use crate::core::queue::{TAIL, TxState};
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
        let value = u32::from_le_bytes([a, b, c, d]);
        if found.id == self.ids.tdt {
            self.tx_tail(found.element, value)
        } else if found.id == self.ids.rdt {
            self.rx_tail(env, found.element, value)
        } else {
            None
        }
    }

    #[inline]
    fn tx_tail(&self, queue: u32, value: u32) -> Option<Work> {
        let own = self.queues.get(queue as usize)?;
        self.file.put(own.tx_tail, value & TAIL);
        self.note_word(kept::tail(true, queue), value & TAIL);
        count(&self.counters.tx_doorbells, 1);
        self.ring(queue);
        Some(Work {
            tx: true,
            ..Work::default()
        })
    }

    #[inline]
    fn rx_tail(&self, env: &Env, queue: u32, value: u32) -> Option<Work> {
        let own = self.queues.get(queue as usize)?;
        self.file.put(own.rx_tail, value & TAIL);
        self.note_word(kept::tail(false, queue), value & TAIL);
        count(&self.counters.rx_doorbells, 1);
        if self.adapts() {
            self.irq.lock().refilled(env, queue);
        }
        Some(Work {
            rx: true,
            ..Work::default()
        })
    }

    /// Takes a write to a register of a queue. `None`: it is none. The caller has found `id` and
    /// `element` in the table; aliases are the register itself.
    pub(crate) fn write_queue(&self, env: &Env, id: Id, element: u32, value: u32) -> Option<Work> {
        let ids = self.ids;
        let queue = self.queues.get(element as usize)?;
        let mut work = Work::default();
        if id == ids.tdt {
            return self.tx_tail(element, value);
        }
        if id == ids.rdt {
            return self.rx_tail(env, element, value);
        }
        if [ids.rdbal, ids.rdbah, ids.rdlen, ids.srrctl, ids.rdh].contains(&id) {
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
