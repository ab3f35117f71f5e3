//! Statistics as plain data: what their registers show, whatever has been counted in all.

use regs::{File, Id};

use super::{ORDER, PAIRS, SINGLE, StatRegs, of_queue};
use crate::PF_QUEUES;
use crate::core::function::Function;
use crate::core::stats::Tally;
use crate::state::{Count, Queue, QueueCounts, StateError, check, field};

/// Statistics that were checked.
pub(crate) struct Checked {
    single: [u64; SINGLE.len()],
    pairs: [u64; PAIRS.len()],
    latched: [Option<u64>; PAIRS.len()],
}

fn offset(file: &File, id: Id) -> u32 {
    file.table().register(id).offset
}

impl StatRegs {
    /// Counters, and values latched between the two reads of a pair.
    pub(crate) fn save(&self, function: &Function) -> (Vec<Count>, Vec<Count>) {
        let StatRegs {
            single,
            pairs,
            latched,
            dropped: _, // by queue
            queues: _,
        } = self;
        let file = &function.file;
        let shown = |id, stat, past: &u64| Count {
            offset: offset(file, id),
            value: function.total(stat) - past,
        };
        let one = SINGLE.iter().zip(single);
        let one = one.map(|((id, stat), past)| shown(*id, *stat, past));
        let two = PAIRS.iter().zip(pairs);
        let two = two.map(|((id, _, stat), past)| shown(*id, *stat, past));
        let mut all: Vec<_> = one.chain(two).filter(|count| count.value != 0).collect();
        all.sort_by_key(|count| count.offset);
        let held = PAIRS.iter().zip(latched).filter_map(|((id, _, _), v)| {
            Some(Count {
                offset: offset(file, *id),
                value: (*v)?,
            })
        });
        (all, held.collect())
    }

    /// What is shown of a queue.
    pub(crate) fn save_queue(&self, function: &Function, at: usize) -> QueueCounts {
        let Some(queue) = function.queues.get(at) else {
            return QueueCounts::default();
        };
        let now = of_queue(function, at);
        QueueCounts {
            dropped: queue.counts.rx_dropped.load(ORDER) - self.dropped[at],
            moved: std::array::from_fn(|i| now[i] - self.queues[at][i]),
        }
    }

    pub(crate) fn check(
        file: &File,
        statistics: &[Count],
        latched: &[Count],
    ) -> Result<Checked, StateError> {
        let mut checked = Checked {
            single: [0; SINGLE.len()],
            pairs: [0; PAIRS.len()],
            latched: [None; PAIRS.len()],
        };
        let pair = |at: u32| PAIRS.iter().position(|(id, _, _)| offset(file, *id) == at);
        let mut last = None;
        for Count { offset: at, value } in statistics {
            check(
                last.is_none_or(|last| last < *at),
                "statistics.offset",
                *at,
                "not in order",
            )?;
            last = Some(*at);
            check(
                *value <= u64::MAX / 4,
                "statistics.value",
                *value,
                "more than is ever counted",
            )?;
            let single = SINGLE.iter().position(|(id, _)| offset(file, *id) == *at);
            match (single, pair(*at)) {
                (Some(i), _) => checked.single[i] = *value,
                (None, Some(i)) => checked.pairs[i] = *value,
                (None, None) => {
                    return Err(field("statistics.offset", *at, "nothing is counted there"));
                }
            }
        }
        for Count { offset: at, value } in latched {
            let i = pair(*at)
                .ok_or_else(|| field("latched.offset", *at, "no pair of registers is there"))?;
            check(
                *value <= checked.pairs[i] && checked.latched[i].is_none(),
                "latched.value",
                *value,
                "more than was counted",
            )?;
            checked.latched[i] = Some(*value);
        }
        Ok(checked)
    }
}

impl Checked {
    /// What shows these values. Counters only grow, so as much is counted as is to be shown.
    pub(crate) fn put(self, function: &Function, queues: &[Queue]) -> StatRegs {
        let one = SINGLE.iter().zip(&self.single).map(|((_, s), v)| (*s, *v));
        let two = PAIRS.iter().zip(&self.pairs).map(|((_, _, s), v)| (*s, *v));
        let mut most = [0; crate::core::stats::COUNT];
        let mut tally = Tally::default();
        for (stat, value) in one.chain(two) {
            let so_far = &mut most[stat as usize];
            tally.add(stat, value.saturating_sub(*so_far));
            *so_far = value.max(*so_far);
        }
        function.stats.add(&tally);
        let total = |stat| function.total(stat);
        let mut reading = StatRegs {
            single: std::array::from_fn(|i| total(SINGLE[i].1) - self.single[i]),
            pairs: std::array::from_fn(|i| total(PAIRS[i].2) - self.pairs[i]),
            latched: self.latched,
            dropped: [0; PF_QUEUES],
            queues: [[0; 5]; PF_QUEUES],
        };
        for (at, (queue, state)) in function.queues.iter().zip(queues).enumerate() {
            let QueueCounts { dropped, moved } = state.counts;
            // They wrap.
            let counts = &queue.counts;
            let before = counts.rx_dropped.load(ORDER);
            reading.dropped[at] = before;
            counts
                .rx_dropped
                .fetch_add(dropped.min(u64::MAX / 4), ORDER);
            reading.queues[at] = of_queue(function, at);
            let all = [
                &counts.rx_packets,
                &counts.rx_octets,
                &counts.rx_multicast,
                &counts.tx_packets,
                &counts.tx_octets,
            ];
            for (counter, value) in all.into_iter().zip(moved) {
                counter.fetch_add(value.min(u64::MAX / 4), ORDER);
            }
        }
        reading
    }
}
