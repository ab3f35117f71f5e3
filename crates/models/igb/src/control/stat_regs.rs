//! The statistics registers (§8.18): read to clear, sticking at their maximum.

mod state;

use regs::Id;

use crate::core::function::Function;
use crate::core::queue::Queue;
use crate::core::stats::Stat;
use crate::regs as r;

const SINGLE: [(Id, Stat); 35] = [
    (r::MPC, Stat::Mpc),
    (r::PRC64, Stat::Prc64),
    (r::PRC127, Stat::Prc127),
    (r::PRC255, Stat::Prc255),
    (r::PRC511, Stat::Prc511),
    (r::PRC1023, Stat::Prc1023),
    (r::PRC1522, Stat::Prc1522),
    (r::GPRC, Stat::Gprc),
    (r::BPRC, Stat::Bprc),
    (r::MPRC, Stat::Mprc),
    (r::GPTC, Stat::Gptc),
    (r::RNBC, Stat::Rnbc),
    (r::RUC, Stat::Ruc),
    (r::ROC, Stat::Roc),
    (r::RLEC, Stat::Rlec),
    (r::TPR, Stat::Tpr),
    (r::TPT, Stat::Tpt),
    (r::PTC64, Stat::Ptc64),
    (r::PTC127, Stat::Ptc127),
    (r::PTC255, Stat::Ptc255),
    (r::PTC511, Stat::Ptc511),
    (r::PTC1023, Stat::Ptc1023),
    (r::PTC1522, Stat::Ptc1522),
    (r::MPTC, Stat::Mptc),
    (r::BPTC, Stat::Bptc),
    (r::TSCTC, Stat::Tsctc),
    (r::XONRXC, Stat::Xonrxc),
    (r::XONTXC, Stat::Xontxc),
    (r::XOFFRXC, Stat::Xoffrxc),
    (r::XOFFTXC, Stat::Xofftxc),
    (r::FCRUC, Stat::Fcruc),
    // Without a management controller the host is the only one who sends and receives.
    (r::RPTHC, Stat::Gprc),
    (r::HGPTC, Stat::Gptc),
    (r::HTDPMC, Stat::Tsctfc),
    (r::LENERRS, Stat::Rlec),
];

/// Low register, high register.
const PAIRS: [(Id, Id, Stat); 6] = [
    (r::GORCL, r::GORCH, Stat::Gorc),
    (r::GOTCL, r::GOTCH, Stat::Gotc),
    (r::TORL, r::TORH, Stat::Tor),
    (r::TOTL, r::TOTH, Stat::Tot),
    (r::HGORCL, r::HGORCH, Stat::Gorc),
    (r::HGOTCL, r::HGOTCH, Stat::Gotc),
];

/// What the register side knows of the counters, which only grow.
#[derive(Debug)]
pub(crate) struct StatRegs {
    /// What has been read and cleared of each.
    single: [u64; SINGLE.len()],
    pairs: [u64; PAIRS.len()],
    /// Per pair: the value whose low half has been read and whose high half is still to be. The
    /// two reads then belong together and nothing counted between them is lost.
    latched: [Option<u64>; PAIRS.len()],
    dropped: [u64; crate::PF_QUEUES],
    /// Counters of queues when the last reset was: packets and octets received, multicast, packets
    /// and octets sent.
    queues: [[u64; 5]; crate::PF_QUEUES],
}

impl Default for StatRegs {
    fn default() -> Self {
        Self {
            single: [0; SINGLE.len()],
            pairs: [0; PAIRS.len()],
            latched: [None; PAIRS.len()],
            dropped: Default::default(),
            queues: Default::default(),
        }
    }
}

impl StatRegs {
    /// CTRL.RST: everything shows 0.
    pub(crate) fn clear(&mut self, function: &Function) {
        for (past, (_, stat)) in self.single.iter_mut().zip(SINGLE) {
            *past = function.total(stat);
        }
        for (past, (_, _, stat)) in self.pairs.iter_mut().zip(PAIRS) {
            *past = function.total(stat);
        }
        self.latched = Default::default();
        for (at, queue) in function.queues.iter().enumerate() {
            self.dropped[at] = queue.counts.rx_dropped.load(ORDER);
            self.queues[at] = of_queue(function, at);
        }
    }

    /// Reads a statistics register, with the clearing that belongs to it. `None` for registers that
    /// nothing counts into.
    pub(crate) fn read(&mut self, function: &Function, id: Id, element: u32) -> Option<u32> {
        let total = |stat| function.total(stat);
        if let Some(at) = SINGLE.iter().position(|(reg, _)| *reg == id) {
            let now = total(SINGLE[at].1);
            let value = now - std::mem::replace(&mut self.single[at], now);
            return Some(u32::try_from(value).unwrap_or(u32::MAX));
        }
        if let Some(at) = PAIRS.iter().position(|(l, h, _)| *l == id || *h == id) {
            let (low, _, stat) = PAIRS[at];
            let now = total(stat) - self.pairs[at];
            return Some(if id == low {
                self.latched[at] = Some(now);
                now as u32
            } else {
                let value = self.latched[at].take().unwrap_or(now);
                self.pairs[at] += value;
                (value >> 32) as u32
            });
        }
        if id == r::RQDPC {
            let queue = function.queues.get(element as usize)?;
            return Some(self.read_dropped(queue, element));
        }
        self.read_pool(function, id, element as usize)
    }

    /// RQDPC of the queue that the chip knows as `element`: what it has dropped since the last time.
    pub(crate) fn read_dropped(&mut self, queue: &Queue, element: u32) -> u32 {
        let now = queue.counts.rx_dropped.load(ORDER);
        let Some(past) = self.dropped.get_mut(element as usize) else {
            return 0;
        };
        // Another VF may have it now, which begins anew.
        let value = now.saturating_sub(std::mem::replace(past, now));
        value.min(0xfff) as u32
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
    use crate::core::function::Kind;
    use crate::core::stats::Tally;

    fn function() -> Function {
        Function::new(Kind::Pf, r::table(), &r::QUEUES, crate::PF_QUEUES, false)
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
        function.ruled = vec![channel.stats().clone()];
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
