//! What a queue has done, for its driver to ask (virtio 1.4 §5.1.6.5.8).

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::core::fate::Fate;
use crate::regs::stats as s;

/// What no count of a saved state reaches.
const MOST: u64 = 1 << 62;

/// Counted where the driver is not far: notified, called.
#[derive(Debug, Default)]
pub struct Tally {
    /// Notifications.
    pub notified: AtomicU64,
    /// Interrupts.
    pub called: AtomicU64,
}

impl Tally {
    /// Both.
    pub fn get(&self) -> [u64; 2] {
        [&self.notified, &self.called].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Sets both.
    pub fn set(&self, [notified, called]: [u64; 2]) {
        self.notified.store(notified, Ordering::Relaxed);
        self.called.store(called, Ordering::Relaxed);
    }
}

/// Counts of a receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxStats {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets for it that were dropped.
    pub drops: u64,
    /// Those of them that found no buffer.
    pub overruns: u64,
    /// Packets whose checksum is right, as the header says.
    pub valid: u64,
    /// Packets whose checksum is still to be written.
    pub needs_csum: u64,
    /// Packets that came unsegmented.
    pub gso_packets: u64,
    /// Their bytes.
    pub gso_bytes: u64,
}

/// Counts of a transmit queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxStats {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that were dropped.
    pub drops: u64,
    /// Those of them whose header or length cannot be.
    pub malformed: u64,
    /// Packets whose checksum was left to be written.
    pub needs_csum: u64,
    /// Packets that were to be segmented.
    pub gso_packets: u64,
    /// Their bytes.
    pub gso_bytes: u64,
    /// Segments that were cut here.
    pub segments: u64,
    /// Bytes of their packets.
    pub cut_bytes: u64,
    /// Packets that were left whole.
    pub whole: u64,
    /// Their bytes.
    pub whole_bytes: u64,
}

/// Adds the counts of a type to a reply.
fn put(out: &mut Vec<u8>, kind: u8, queue: u16, counts: &[u64]) {
    out.extend([kind, 0]);
    out.extend(queue.to_le_bytes());
    out.extend([0, 0]);
    let size = s::HEADER + 8 * counts.len();
    out.extend((size as u16).to_le_bytes());
    for count in counts {
        out.extend(count.to_le_bytes());
    }
}

impl RxStats {
    /// Whether it can be of a queue that goes on: no count is near its end.
    pub fn is_possible(&self) -> bool {
        let sums = [self.packets, self.bytes, self.gso_bytes, self.gso_packets];
        let others = [self.drops, self.overruns, self.valid, self.needs_csum];
        sums.iter().chain(&others).all(|count| *count < MOST)
    }

    /// Adds these types of a queue's counts to a reply.
    pub fn reply(&self, out: &mut Vec<u8>, queue: u16, types: u64, [notified, called]: [u64; 2]) {
        if types & s::RX_BASIC != 0 {
            let (packets, bytes) = (self.packets, self.bytes);
            let counts = [notified, packets, bytes, called, self.drops, self.overruns];
            put(out, s::reply::RX_BASIC, queue, &counts);
        }
        if types & s::RX_CSUM != 0 {
            let none = self.packets.saturating_sub(self.valid + self.needs_csum);
            // What is wrong is passed on as what was not looked at.
            let counts = [self.valid, self.needs_csum, none, 0];
            put(out, s::reply::RX_CSUM, queue, &counts);
        }
        if types & s::RX_GSO != 0 {
            // None was made of several that came by themselves.
            let counts = [self.gso_packets, self.gso_bytes, 0, 0];
            put(out, s::reply::RX_GSO, queue, &counts);
        }
    }
}

impl TxStats {
    /// As [`RxStats::is_possible`].
    pub fn is_possible(&self) -> bool {
        let sums = [self.packets, self.bytes, self.gso_packets, self.gso_bytes];
        let others = [self.drops, self.malformed, self.needs_csum, self.segments];
        let cut = [self.cut_bytes, self.whole, self.whole_bytes];
        let all = sums.iter().chain(&others).chain(&cut);
        all.into_iter().all(|count| *count < MOST)
    }

    /// Counts a packet of `len` bytes that was sent.
    pub fn sent(&mut self, fate: Fate, len: u64) {
        self.packets += 1;
        self.bytes += len;
        match fate {
            Fate::Frame { csum, .. } => self.needs_csum += u64::from(csum),
            Fate::Segments {
                segments, narrow, ..
            } => {
                self.needs_csum += 1;
                self.gso_packets += 1;
                self.gso_bytes += len;
                if narrow {
                    self.segments += u64::from(segments);
                    self.cut_bytes += len;
                } else {
                    self.whole += 1;
                    self.whole_bytes += len;
                }
            }
            Fate::Dropped(_) => {}
        }
    }

    /// As [`RxStats::reply`].
    pub fn reply(&self, out: &mut Vec<u8>, queue: u16, types: u64, [notified, called]: [u64; 2]) {
        if types & s::TX_BASIC != 0 {
            let (packets, bytes) = (self.packets, self.bytes);
            let counts = [notified, packets, bytes, called, self.drops, self.malformed];
            put(out, s::reply::TX_BASIC, queue, &counts);
        }
        if types & s::TX_CSUM != 0 {
            let none = self.packets.saturating_sub(self.needs_csum);
            put(out, s::reply::TX_CSUM, queue, &[none, self.needs_csum]);
        }
        if types & s::TX_GSO != 0 {
            let counts = [
                self.gso_packets,
                self.gso_bytes,
                self.segments,
                self.cut_bytes,
                self.whole,
                self.whole_bytes,
            ];
            put(out, s::reply::TX_GSO, queue, &counts);
        }
    }
}

/// Adds the counts of the control queue to a reply: commands, and those that were done.
pub fn reply_ctrl(out: &mut Vec<u8>, queue: u16, commands: u64, done: u64) {
    put(out, s::reply::CTRL, queue, &[commands, done]);
}
