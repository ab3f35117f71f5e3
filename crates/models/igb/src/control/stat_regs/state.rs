//! Statistics as plain data: what their registers show, whatever has been counted in all.

use intel::stats::Checked;
use regs::File;

use crate::control::stat_regs::{ORDER, StatRegs, TABLES, of_queue};
use crate::core::function::Function;
use crate::regs::PF_QUEUES;
use crate::state::{Count, Queue, QueueCounts, StateError};

/// No counter shows more: they are added up.
const MOST: u64 = u64::MAX / 4;

impl StatRegs {
    /// Counters, and values latched between the two reads of a pair.
    pub(crate) fn save(&self, function: &Function) -> (Vec<Count>, Vec<Count>) {
        let StatRegs {
            common,
            dropped: _, // by queue
            queues: _,
        } = self;
        common.save(&function.file, |stat| function.total(stat))
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
        Checked::new(&TABLES, file, (statistics, latched), MOST)
    }

    /// What shows these values.
    pub(crate) fn put(checked: Checked, function: &Function, queues: &[Queue]) -> StatRegs {
        let mut reading = StatRegs {
            common: checked.put(|stat| function.total(stat)),
            dropped: [0; PF_QUEUES],
            queues: [[0; 5]; PF_QUEUES],
        };
        for (at, (queue, state)) in function.queues.iter().zip(queues).enumerate() {
            let QueueCounts { dropped, moved } = state.counts;
            // They wrap.
            let counts = &queue.counts;
            let before = counts.rx_dropped.load(ORDER);
            reading.dropped[at] = before;
            counts.rx_dropped.fetch_add(dropped.min(MOST), ORDER);
            reading.queues[at] = of_queue(function, at);
            let all = [
                &counts.rx_packets,
                &counts.rx_octets,
                &counts.rx_multicast,
                &counts.tx_packets,
                &counts.tx_octets,
            ];
            for (counter, value) in all.into_iter().zip(moved) {
                counter.fetch_add(value.min(MOST), ORDER);
            }
        }
        reading
    }
}
