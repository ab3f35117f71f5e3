//! What holds after every step, and what a step may cost.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use frame::{Batch, MAX_BATCH};
use guest_mem::Totals;
use model::Progress;

use super::{Machine, new, reg};
use crate::outside::MAX_FRAME;

/// Where frames wait for descriptors.
const PACKET_BUFFER: u64 = 64 << 10;
/// Descriptors of one packet beyond which the chip gives it up.
const MAX_DESCS: u64 = 1024;
/// Words of a CSB that are read and written in one call, beyond those that go with a batch.
const CSB_READS: u64 = 24;
const CSB_WRITES: u64 = 16;
/// Descriptors fetched with one read.
const FETCH: u64 = 64;

/// Where the counters that bounds are about stand among all.
struct Places {
    fetched: usize,
    received: usize,
}

static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let mut names = Vec::new();
    let nic = new();
    nic.control.counters(&mut |name, _| names.push(name));
    let place = |name| names.iter().position(|n| *n == name).expect(name);
    Places {
        fetched: place("tx_desc_fetched"),
        received: place("rx_frames"),
    }
});

impl Machine {
    /// Transmit descriptors fetched and frames received so far.
    fn progress(&self) -> (u64, u64) {
        let places = &*PLACES;
        let (mut at, mut fetched, mut received) = (0, 0, 0);
        self.nic.control.counters(&mut |_, value| {
            if at == places.fetched {
                fetched = value;
            } else if at == places.received {
                received = value;
            }
            at += 1;
        });
        (fetched, received)
    }

    /// One turn of the transmitter, within its bounds.
    ///
    /// - Frames: the budget, and not more than what was left of a batch when it ran out.
    /// - Descriptors: a turn moves over at most one ring's worth. A descriptor is fetched again
    ///   only at the head of the next walk, which begins with what the one before left: a packet
    ///   without its end (up to [`MAX_DESCS`]) and what was fetched with the last one.
    /// - Bytes: no packet gathers more than [`MAX_PACKET`] and what crosses that line, once per
    ///   fetch of its last descriptor.
    pub fn transmit(&mut self, budget: usize) -> Progress {
        let ring = self.tx_ring();
        let before = self.totals();
        let (fetched, received) = self.progress();
        let sent = self.wire.frames.load(Ordering::Relaxed);
        let progress = self.nic.transmit.run(&self.env, &self.wire, budget);
        let sent = self.wire.frames.load(Ordering::Relaxed) - sent;
        // A packet is cut whole, as far as the batch reaches.
        let most = budget.next_multiple_of(MAX_BATCH) as u64;
        assert!(sent <= most, "{sent} frames for {budget}");
        let (fetched_now, received_now) = self.progress();
        let fetched = fetched_now - fetched;
        let walks = budget as u64 / MAX_BATCH as u64 + 3;
        let most = ring + walks * (ring.min(MAX_DESCS) + FETCH);
        assert!(fetched <= most, "{fetched} descriptors of a ring of {ring}");
        let after = self.totals();
        let reads = after.reads - before.reads;
        // One read per fetch of some descriptors and one per descriptor for its buffer.
        assert!(
            reads <= 2 * most + 2 + 4 * walks + CSB_READS,
            "{reads} reads for {fetched} descriptors"
        );
        let writes = after.writes - before.writes;
        if received_now == received {
            let bytes = after.write_bytes - before.write_bytes;
            // Only status bytes, or what the receiver was given by loopback (and had to refuse).
            let most = ring + self.rx_ring() * 8 + budget as u64 * (MAX_FRAME + 8) + PACKET_BUFFER;
            let most = most + 8 * walks + 4 * CSB_WRITES;
            assert!(bytes <= most, "{bytes} bytes in {writes} writes");
        }
        progress
    }

    /// The guest may have given buffers.
    pub fn poll(&mut self) {
        let before = self.totals();
        self.nic.receive.poll(&self.env);
        self.bounded_receive(before, 0, false);
    }

    pub fn receive_batch(&mut self, batch: &Batch<'_>) -> usize {
        let mut picks = std::mem::take(&mut self.picks);
        batch.all_picks(&mut picks);
        let before = self.totals();
        let dealt = self.nic.receive.deliver(&self.env, batch, &picks);
        assert!(dealt <= picks.len(), "{dealt} of {}", picks.len());
        let bytes = batch.iter().map(|f| f.len() as u64 + 68).sum::<u64>();
        // Cut into segments of one byte, a frame can become that many and as many headers.
        let cut = batch.iter().any(|f| f.notes().gso != wire::Gso::None);
        let most = if cut {
            bytes + wire::MAX_SEGMENTS as u64 * batch.len() as u64 * 400
        } else {
            bytes
        };
        let sums = cut || batch.iter().any(|f| f.notes().csum.is_some());
        self.bounded_receive(before, most, sums);
        if dealt < picks.len() {
            self.nic.receive.want_room(&self.waker);
        }
        self.picks = picks;
        self.seen.update(&dealt.to_le_bytes());
        self.check();
        dealt
    }

    /// A receiver writes what came and what waited in the packet buffer, once, and one word per
    /// descriptor, each once; where a checksum was left to it (`sums`), that too, in one piece for
    /// each buffer it lies in. A buffer counts again when it was found for a plan that was given up
    /// (a null buffer further on) before anything was written. It reads nothing but descriptors,
    /// some more than once when a frame had to wait.
    fn bounded_receive(&mut self, before: Totals, bytes: u64, sums: bool) {
        // With a CSB the guest may give buffers in the last moment of a call, some times.
        let rounds = if self.quiet(reg::CSBAL) != 0 { 4 } else { 1 };
        let ring = self.rx_ring().max(1) * rounds;
        let after = self.totals();
        let written = after.write_bytes - before.write_bytes;
        let most = 2 * bytes + PACKET_BUFFER + ring * 8 + 4 * CSB_WRITES;
        assert!(written <= most, "{written} bytes written for {bytes}");
        let writes = after.writes - before.writes;
        let most = (3 + u64::from(sums)) * ring + CSB_WRITES;
        assert!(writes <= most, "{writes} writes, a ring of {ring}");
        let read = after.read_bytes - before.read_bytes;
        let most = (2 * ring + FETCH * rounds) * 16 + 4 * CSB_READS;
        assert!(read <= most, "{read} bytes read, {ring}");
    }

    /// What holds after every step.
    pub fn check(&mut self) {
        if !self.checks {
            return;
        }
        self.check_line();
        // In the long runs at the end only, see `Drop`.
        if !cfg!(feature = "sample") {
            self.check_counters();
        }
    }

    /// The line is up only for a cause that is not masked; such a cause with the line down waits
    /// for the timer, or the interrupt would be lost.
    fn check_line(&mut self) {
        if self.pci.msi {
            return;
        }
        let pending = self.quiet(reg::ICS) & self.quiet(reg::IMS) != 0;
        let level = self.pin.level.load(Ordering::Relaxed);
        assert!(pending || !level, "an interrupt without a cause");
        // What a guest with a CSB does not want to hear of it is not told.
        let waits = self.time.deadline().is_some() || self.quiet(reg::CSBAL) != 0;
        assert!(level || !pending || waits, "an interrupt that never comes");
    }

    /// What is counted never falls.
    pub(super) fn check_counters(&mut self) {
        let counters = &mut self.counters;
        let (mut at, mut fallen) = (0, false);
        self.nic.control.counters(&mut |_, now| {
            match counters.get_mut(at) {
                Some(old) => fallen |= now < std::mem::replace(old, now),
                None => counters.push(now),
            }
            at += 1;
        });
        assert!(!fallen, "a counter has fallen");
    }
}
