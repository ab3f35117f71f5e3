//! A PF's window onto the queues and vectors of its VFs (§7.10.2): they are the chip's, and so the PF
//! finds them behind its own addresses too. VF n has queues n and n + 8, and three of the 25 vectors,
//! counted from the last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::Env;
use regs::Id;

use crate::control::Registers;
use crate::core::function::{Function, count};
use crate::core::irq::Irq;
use crate::core::kept;
use crate::regs as r;
use crate::regs::bits::{ivar, xdctl};
use crate::regs::pools::POOLS;
use crate::regs::queues::QueueIds;
use crate::regs::{VF_MESSAGES, vf as v};
use crate::sriov::channel::VfChannel;

/// Vectors of the chip.
const VECTORS: u32 = 25;
/// Vectors of a VF, and their bits.
const EACH: u32 = VF_MESSAGES as u32;
const BITS: u32 = (1 << EACH) - 1;
/// What a VF counts, as the PF finds it.
const STATISTICS: [Id; 5] = [r::PVFGPRC, r::PVFGPTC, r::PVFGORC, r::PVFGOTC, r::PVFMPRC];

/// Registers of queues, in an order that both kinds of function have.
fn of_queues(ids: &QueueIds) -> [Id; 18] {
    [
        ids.rdbal,
        ids.rdbah,
        ids.rdlen,
        ids.srrctl,
        ids.rdh,
        ids.rdt,
        ids.rxdctl,
        ids.rxctl,
        ids.tdbal,
        ids.tdbah,
        ids.tdlen,
        ids.tdh,
        ids.tdt,
        ids.txdctl,
        ids.tdwbal,
        ids.tdwbah,
        ids.txctl,
        ids.psrtype,
    ]
}

/// The first vector of a VF.
fn first_vector(vf: u32) -> u32 {
    VECTORS - EACH * (vf + 1)
}

/// A VF that runs, and what it runs with.
struct AliasedVf {
    vf: u32,
    channel: Arc<VfChannel>,
    function: Arc<Function>,
    env: Env,
}

impl AliasedVf {
    fn irq<T>(&self, does: impl FnOnce(&mut Irq, &Env) -> T) -> T {
        does(&mut self.function.irq.lock(), &self.env)
    }
}

/// What a PF may write into a register of a VF's queue: it may stop the queue, but neither start it nor say
/// where its rings are. Both would have the chip read and write memory of another guest at the PF's will. `None`:
/// nothing.
fn left_to_pf(function: &Function, id: Id, index: u32, value: u32) -> Option<u32> {
    let ids = function.ids;
    if ids.says_where(id) {
        return None;
    }
    if id == ids.rxdctl || id == ids.txdctl {
        return Some(value & (function.file.get_at(id, index) | !xdctl::ENABLE));
    }
    Some(value)
}

impl Registers {
    /// The VF that has a pool.
    fn aliased(&self, vf: u32) -> Option<AliasedVf> {
        let hub = self.hub.as_ref()?;
        let channel = hub.shown(&self.function.file, vf)?;
        let (function, env) = channel.attached()?;
        Some(AliasedVf {
            vf,
            channel: Arc::clone(channel),
            function,
            env,
        })
    }

    /// Whose a register of a queue is, and where he has it.
    fn aliased_by_queue(&self, id: Id, element: u32) -> Option<(AliasedVf, Id, u32)> {
        let ids = self.function.ids;
        let at = of_queues(ids).iter().position(|own| *own == id)?;
        let aliased = self.aliased(element % POOLS)?;
        let index = match id == ids.psrtype {
            true => 0,
            false => element / POOLS,
        };
        let theirs = of_queues(aliased.function.ids)[at];
        Some((aliased, theirs, index))
    }

    fn aliased_by_vector(&self, vector: u32) -> Option<(AliasedVf, u32)> {
        let behind = (VECTORS - 1).checked_sub(vector)?;
        let aliased = self.aliased(behind / EACH)?;
        let index = vector - first_vector(aliased.vf);
        Some((aliased, index))
    }

    /// What VFs have in a register with a bit for each vector, and which bits these are.
    pub(crate) fn of_vfs(&self, id: Id) -> (u32, u32) {
        self.bits_of_vfs(id, Irq::read_eicr)
    }

    /// The same without side effects.
    pub(crate) fn peek_of_vfs(&self, id: Id) -> (u32, u32) {
        self.bits_of_vfs(id, |irq, _| irq.extended_causes())
    }

    fn bits_of_vfs(&self, id: Id, causes: fn(&mut Irq, &Env) -> u32) -> (u32, u32) {
        let vfs = (0..POOLS).filter_map(|vf| self.aliased(vf));
        vfs.fold((0, 0), |(all, whose), aliased| {
            let file = &aliased.function.file;
            let bits = match id {
                r::EICR => aliased.irq(causes),
                r::EIMS | r::EIMC => aliased.irq(|irq, _| irq.extended_mask()),
                r::EIAC => file.get(v::VTEIAC),
                r::EIAM => file.get(v::VTEIAM),
                _ => 0,
            };
            let at = first_vector(aliased.vf);
            (all | (bits & BITS) << at, whose | BITS << at)
        })
    }

    /// Writes such a register: to each VF its bits. Returns the PF's.
    pub(crate) fn to_vfs(&self, id: Id, value: u32) -> u32 {
        // Where ones act, a VF whose bits are all 0 is left alone.
        let kept = id == r::EIAC || id == r::EIAM;
        let touched = (0..POOLS).filter(|vf| kept || value >> first_vector(*vf) & BITS != 0);
        let vfs = touched.filter_map(|vf| self.aliased(vf));
        vfs.fold(value, |own, aliased| {
            let bits = value >> first_vector(aliased.vf) & BITS;
            let file = &aliased.function.file;
            aliased.function.touched.store(true, Ordering::Release);
            match id {
                r::EIMS => aliased.function.note_mask(kept::EIMS, bits, 0),
                r::EIMC => aliased.function.note_mask(kept::EIMS, 0, bits),
                _ => {}
            }
            aliased.irq(|irq, env| match id {
                r::EICR => irq.clear_eicr(env, bits),
                r::EICS => irq.set_eicr(env, bits),
                r::EIMS => irq.set_eims(env, bits),
                r::EIMC => irq.clear_eims(env, bits),
                r::EIAC => irq.set_eiac(file.write(v::VTEIAC, 0, bits)),
                r::EIAM => irq.set_eiam(file.write(v::VTEIAM, 0, bits)),
                _ => {}
            });
            own & !(BITS << first_vector(aliased.vf))
        })
    }

    /// Reads what is a VF's alone. `None`: it is none of these.
    pub(crate) fn read_of_vf(&mut self, id: Id, element: u32) -> Option<u32> {
        if id == r::RQDPC {
            let aliased = self.aliased(element % POOLS)?;
            let queue = aliased.function.queues.get((element / POOLS) as usize)?;
            return Some(self.reading.read_dropped(queue, element));
        }
        self.peek_of_vf(id, element)
    }

    /// RQDPC of a VF's queue, without the clearing.
    pub(crate) fn peek_dropped_of_vf(&self, id: Id, element: u32) -> Option<u32> {
        if id != r::RQDPC {
            return None;
        }
        let aliased = self.aliased(element % POOLS)?;
        let queue = aliased.function.queues.get((element / POOLS) as usize)?;
        Some(self.reading.peek_dropped(queue, element))
    }

    /// The same without side effects.
    pub(crate) fn peek_of_vf(&self, id: Id, element: u32) -> Option<u32> {
        self.hub.as_ref()?;
        if let Some(at) = STATISTICS.iter().position(|own| *own == id) {
            return Some(self.aliased(element)?.channel.statistics()[at]);
        }
        match id {
            r::EITR => {
                let (aliased, index) = self.aliased_by_vector(element)?;
                Some(aliased.function.file.get_at(v::VTEITR, index))
            }
            r::IVAR => {
                let aliased = self.aliased(element)?;
                let entries = aliased.function.file.get(v::VTIVAR).to_le_bytes();
                let first = first_vector(aliased.vf) as u8;
                let shown = entries.map(|entry| match entry & ivar::VALID {
                    0 => 0,
                    _ => ivar::VALID | (first + (entry & ivar::VF_VECTOR)),
                });
                Some(u32::from_le_bytes(shown))
            }
            _ => {
                let (aliased, id, index) = self.aliased_by_queue(id, element)?;
                Some(aliased.function.file.get_at(id, index))
            }
        }
    }

    /// Writes what is a VF's alone. `false`: it is none of these.
    pub(crate) fn write_of_vf(&mut self, id: Id, element: u32, value: u32) -> bool {
        self.try_write_of_vf(id, element, value).is_some()
    }

    fn try_write_of_vf(&self, id: Id, element: u32, value: u32) -> Option<()> {
        self.hub.as_ref()?;
        match id {
            r::EITR => {
                let (aliased, index) = self.aliased_by_vector(element)?;
                let bits = aliased.function.file.write(v::VTEITR, index, value);
                aliased.function.note_word(kept::eitr(index), bits);
                aliased.irq(|irq, env| irq.set_eitr(env, index, bits));
            }
            r::IVAR => {
                let aliased = self.aliased(element)?;
                let first = first_vector(aliased.vf) as u8;
                // It can have no other vector than its own.
                let entries = value.to_le_bytes().map(|entry| {
                    let own = (entry & ivar::VECTOR).checked_sub(first);
                    match own.filter(|own| entry & ivar::VALID != 0 && u32::from(*own) < EACH) {
                        Some(own) => ivar::VALID | own,
                        None => 0,
                    }
                });
                let file = &aliased.function.file;
                let bits = file.write(v::VTIVAR, 0, u32::from_le_bytes(entries));
                aliased.irq(|irq, _| irq.set_ivar(0, bits));
                aliased.function.touched.store(true, Ordering::Release);
            }
            _ => {
                let (aliased, id, index) = self.aliased_by_queue(id, element)?;
                let function = &aliased.function;
                let value = if self.places_vf_rings {
                    value
                } else {
                    let left = left_to_pf(function, id, index, value);
                    if left != Some(value) {
                        count(&self.function.counters.vf_ring_refused, 1);
                    }
                    let Some(left) = left else {
                        return Some(());
                    };
                    left
                };
                if function
                    .write_queue(&aliased.env, id, index, value)
                    .is_none()
                {
                    function.file.write(id, index, value);
                    function.setup.changed();
                }
                // What follows is for its own thread to do.
                aliased.channel.poke();
            }
        }
        Some(())
    }
}
