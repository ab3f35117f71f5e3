//! The statistics registers (§8.18): read to clear, sticking at their maximum.

mod state;

use intel::stats::{self, Tables};
use regs::Id;

use crate::core::function::Function;
use crate::core::queue::Queue;
use crate::regs as r;
use crate::regs::bits::rqdpc;

/// Without a management controller the host is the only one who sends and receives: the registers that
/// count for it alone show what the others do.
static TABLES: Tables = Tables {
    single: intel::single_stats!(
        r,
        (r::RPTHC, Stat::Gprc),
        (r::HGPTC, Stat::Gptc),
        (r::HTDPMC, Stat::Tsctfc),
        (r::LENERRS, Stat::Rlec)
    ),
    pairs: intel::paired_stats!(
        r,
        (r::HGORCL, r::HGORCH, Stat::Gorc),
        (r::HGOTCL, r::HGOTCH, Stat::Gotc)
    ),
};

/// What the register side knows of the counters, which only grow.
#[derive(Debug)]
pub(crate) struct StatRegs {
    common: stats::StatRegs,
    dropped: [u64; crate::regs::PF_QUEUES],
    /// Counters of queues when the last reset was: packets and octets received, multicast, packets
    /// and octets sent.
    queues: [[u64; 5]; crate::regs::PF_QUEUES],
}

impl Default for StatRegs {
    fn default() -> Self {
        Self {
            common: stats::StatRegs::new(&TABLES),
            dropped: Default::default(),
            queues: Default::default(),
        }
    }
}

impl StatRegs {
    /// CTRL.RST: everything shows 0.
    pub(crate) fn clear(&mut self, function: &Function) {
        self.common.clear(|stat| function.total(stat));
        for (at, queue) in function.queues.iter().enumerate() {
            self.dropped[at] = queue.counts.rx_dropped.load(ORDER);
            self.queues[at] = of_queue(function, at);
        }
    }

    /// Reads a statistics register, with the clearing that belongs to it. `None` for registers that
    /// nothing counts into.
    pub(crate) fn read(&mut self, function: &Function, id: Id, element: u32) -> Option<u32> {
        let common = self.common.read(|stat| function.total(stat), id);
        if common.is_some() {
            return common;
        }
        if id == r::RQDPC {
            let queue = function.queues.get(element as usize)?;
            return Some(self.read_dropped(queue, element));
        }
        self.read_pool(function, id, element as usize)
    }

    /// The same without the clearing.
    pub(crate) fn peek(&self, function: &Function, id: Id, element: u32) -> Option<u32> {
        let common = self.common.peek(|stat| function.total(stat), id);
        if common.is_some() {
            return common;
        }
        if id == r::RQDPC {
            let queue = function.queues.get(element as usize)?;
            return Some(self.peek_dropped(queue, element));
        }
        self.read_pool(function, id, element as usize)
    }

    /// What [`StatRegs::read_dropped`] would give.
    pub(crate) fn peek_dropped(&self, queue: &Queue, element: u32) -> u32 {
        let past = self.dropped.get(element as usize).copied();
        let now = queue.counts.rx_dropped.load(ORDER);
        past.map_or(0, |past| now.saturating_sub(past).min(rqdpc::COUNT) as u32)
    }

    /// RQDPC of the queue that the chip knows as `element`: what it has dropped since the last time.
    pub(crate) fn read_dropped(&mut self, queue: &Queue, element: u32) -> u32 {
        let now = queue.counts.rx_dropped.load(ORDER);
        let Some(past) = self.dropped.get_mut(element as usize) else {
            return 0;
        };
        // Another VF may have it now, which begins anew.
        let value = now.saturating_sub(std::mem::replace(past, now));
        value.min(rqdpc::COUNT) as u32
    }

    /// Counters of a pool, which wrap and are never cleared by reading: queues n and n + 8.
    fn read_pool(&self, function: &Function, id: Id, pool: usize) -> Option<u32> {
        let which = [r::PVFGPRC, r::PVFGORC, r::PVFMPRC, r::PVFGPTC, r::PVFGOTC];
        let which = which.iter().position(|reg| *reg == id)?;
        let count = |queue: usize| of_queue(function, queue)[which] - self.queues[queue][which];
        Some(count(pool).wrapping_add(count(pool + 8)) as u32)
    }
}

const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

fn of_queue(function: &Function, queue: usize) -> [u64; 5] {
    let Some(queue) = function.queues.get(queue) else {
        return [0; 5];
    };
    let c = &queue.counts;
    [
        &c.rx_packets,
        &c.rx_octets,
        &c.rx_multicast,
        &c.tx_packets,
        &c.tx_octets,
    ]
    .map(|counter| counter.load(ORDER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::function::FunctionKind;
    use crate::core::stats::{Stat, Tally};

    fn function() -> Function {
        Function::new(
            FunctionKind::Pf,
            r::table(),
            &r::QUEUES,
            crate::regs::PF_QUEUES,
            false,
        )
    }

    #[test]
    fn single_registers_clear_on_read_and_stick_at_their_maximum() {
        let (function, mut reading) = (function(), StatRegs::default());
        let mut tally = Tally::default();
        tally.add(Stat::Gprc, u64::from(u32::MAX) + 7);
        tally.add(Stat::Ruc, 3);
        function.stats.add(&tally);
        let mut read = |id| reading.read(&function, id, 0);
        assert_eq!(read(r::GPRC), Some(u32::MAX));
        assert_eq!(read(r::GPRC), Some(0));
        assert_eq!(read(r::RPTHC), Some(u32::MAX), "a register of its own");
        assert_eq!(read(r::RUC), Some(3));
        assert_eq!(read(r::CTRL), None);
        function.stats.add(&tally);
        reading.clear(&function);
        assert_eq!(reading.read(&function, r::GPRC, 0), Some(0));
    }

    #[test]
    fn pairs_clear_when_the_high_half_is_read_and_lose_nothing() {
        let (function, mut reading) = (function(), StatRegs::default());
        let mut tally = Tally::default();
        tally.add(Stat::Tor, (7 << 32) + 5);
        function.stats.add(&tally);
        assert_eq!(reading.read(&function, r::TORL, 0), Some(5));
        let mut late = Tally::default();
        late.add(Stat::Tor, 9);
        function.stats.add(&late);
        let mut read = |id| reading.read(&function, id, 0);
        assert_eq!(read(r::TORH), Some(7));
        assert_eq!(read(r::TORL), Some(9));
        assert_eq!(read(r::TORH), Some(0));
        assert_eq!(read(r::TORL), Some(0));
    }

    /// What VFs send and receive is the port's too, also of those that are gone.
    #[test]
    fn the_port_counts_what_its_vfs_do() {
        let channel = crate::VfChannel::new();
        let (mut function, mut reading) = (function(), StatRegs::default());
        function.vf_stats = vec![channel.stats().clone()];
        let mut tally = Tally::default();
        tally.sent(3, 64, [2; 6]);
        channel.stats().add(&tally);
        function.stats.add(&tally);
        assert_eq!(reading.read(&function, r::GPTC, 0), Some(6));
        assert_eq!(reading.read(&function, r::GOTCL, 0), Some(6 * 64));
        assert_eq!(channel.statistics(), [0, 3, 0, 3 * 64, 0]);
        channel.show([7; 5]);
        channel.stats().add(&tally);
        assert_eq!(channel.statistics(), [7, 10, 7, 7 + 3 * 64, 7]);
        assert_eq!(reading.read(&function, r::GPTC, 0), Some(3));
        reading.clear(&function);
        assert_eq!(reading.read(&function, r::PTC64, 0), Some(0));
    }

    #[test]
    fn queues_are_counted_by_pool_and_their_losses_by_queue() {
        let (function, mut reading) = (function(), StatRegs::default());
        for (queue, n) in [(3, 5), (11, 7)] {
            let counts = &function.queues[queue].counts;
            counts.rx_packets.store(n, ORDER);
            counts.tx_octets.store(100 * n, ORDER);
            counts.rx_dropped.store(n, ORDER);
        }
        for _ in 0..2 {
            assert_eq!(reading.read(&function, r::PVFGPRC, 3), Some(12));
            assert_eq!(reading.read(&function, r::PVFGOTC, 3), Some(1200));
            assert_eq!(reading.read(&function, r::PVFGPRC, 4), Some(0));
        }
        assert_eq!(reading.read(&function, r::RQDPC, 11), Some(7));
        assert_eq!(reading.read(&function, r::RQDPC, 11), Some(0));
        reading.clear(&function);
        assert_eq!(reading.read(&function, r::PVFGPRC, 3), Some(0));
    }
}
