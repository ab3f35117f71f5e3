//! The receiver's judgement: what is lost, doubled, out of order, or not what was sent.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::hist::Histogram;
use crate::stamp::{self, Stamp};

/// Gaps remembered per flow. What falls out of here and comes after all counts as stale.
const GAPS: usize = 64;

/// What was seen of a flow, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Frames that came, each kind of trouble included.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Numbers that did not come (of a byte stream: bytes), up to the last that did.
    pub lost: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub reordered: u64,
    /// Frames so late that it is no longer known whether they were missing.
    pub stale: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.stale += other.stale;
    }
}

/// One flow: numbers from 0 on, each once, in order, if all is well. For a TCP flow the numbers
/// are those of its bytes.
#[derive(Clone, Debug, Default)]
struct Stream {
    next: u64,
    seen: Seen,
    /// What is missing, oldest first: `[start, end)`.
    gaps: Vec<(u64, u64)>,
    /// Below this, missing and doubled cannot be told apart any more.
    forgotten: u64,
}

impl Stream {
    /// Takes `count` numbers from `low` on, of which only the lower 32 bits are known.
    #[inline]
    fn see(&mut self, low: u32, count: u64) {
        self.seen.frames += 1;
        let ahead = low.wrapping_sub(self.next as u32) as i32;
        if ahead == 0 {
            self.next += count;
            return;
        }
        self.out_of_line(i64::from(ahead), count);
    }

    #[cold]
    fn out_of_line(&mut self, ahead: i64, count: u64) {
        if ahead > 0 {
            let start = self.next + ahead as u64;
            if self.gaps.len() == GAPS {
                self.forgotten = self.gaps.remove(0).1;
            }
            self.gaps.push((self.next, start));
            self.seen.lost += start - self.next;
            self.next = start + count;
            return;
        }
        let Some(start) = self.next.checked_add_signed(ahead) else {
            // Before the first: a sender that began anew under an old name.
            self.seen.stale += 1;
            return;
        };
        let end = start + count;
        let gap = self.gaps.iter().position(|g| g.0 <= start && end <= g.1);
        match gap {
            Some(at) => {
                let (from, to) = self.gaps.remove(at);
                if end < to {
                    self.gaps.insert(at, (end, to));
                }
                if from < start {
                    self.gaps.insert(at, (from, start));
                }
                self.gaps.truncate(GAPS);
                self.seen.lost -= count;
                self.seen.reordered += 1;
            }
            None if start < self.forgotten => self.seen.stale += 1,
            None => self.seen.duplicates += 1,
        }
    }
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Depth {
    /// Frames are counted.
    None,
    /// Each frame's stamp: the flow's numbers in order, each once, and the stamp's checksum.
    #[default]
    Head,
    /// Also every byte of the payload, which differs from frame to frame.
    Full,
}

/// Judges frames of a run.
pub struct Checker {
    run: u16,
    depth: Depth,
    /// By sender, then by flow.
    senders: HashMap<u32, Vec<Stream>>,
    /// The sender looked at last.
    current: u32,
    flows: Vec<Stream>,
    /// Totals of everything that has no flow.
    corrupt: u64,
    foreign: u64,
    bad_sums: u64,
    frames: u64,
    bytes: u64,
    /// Times from leaving to arriving.
    pub latency: Histogram,
    scratch: Vec<u8>,
}

/// A received frame as the checker needs it; made of a ring's buffer or of bytes.
#[allow(clippy::len_without_is_empty)]
pub trait Received {
    /// Bytes.
    fn len(&self) -> usize;
    /// Reads `N` bytes at `at`, which is within the first 128 bytes and the frame.
    fn get<const N: usize>(&self, at: usize) -> [u8; N];
    /// Copies from `start` on; returns how many bytes there were.
    fn copy_to(&self, start: usize, out: &mut [u8]) -> usize;
}

impl Received for drivers::e1000::poll::RxFrame<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }
    #[inline]
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.get(at)
    }
    fn copy_to(&self, start: usize, out: &mut [u8]) -> usize {
        self.copy_to(start, out)
    }
}

impl Received for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self[at..at + N]);
        out
    }
    fn copy_to(&self, start: usize, out: &mut [u8]) -> usize {
        let from = <[u8]>::get(self, start..).unwrap_or_default();
        let n = from.len().min(out.len());
        out[..n].copy_from_slice(&from[..n]);
        n
    }
}

/// Offsets of the parts of one of our frames.
struct Place {
    l3: usize,
    v4: bool,
    l4: usize,
    tcp: bool,
}

/// The shortest frame a NIC delivers: it is padded on the wire, and a tag may be taken out after.
const SHORTEST: usize = 60 - 4;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// Finds the stamp; `None` for what none of ours looks like.
#[inline]
fn place(frame: &impl Received) -> Option<Place> {
    let len = frame.len();
    if len < SHORTEST {
        return None;
    }
    let mut l3 = 14;
    let mut kind = u16::from_be_bytes(frame.get(12));
    if kind == 0x8100 {
        kind = u16::from_be_bytes(frame.get(16));
        l3 = 18;
    }
    let (v4, l4, protocol) = match kind {
        0x0800 => (true, l3 + 20, frame.get::<1>(l3 + 9)[0]),
        0x86dd => (false, l3 + 40, frame.get::<1>(l3 + 6)[0]),
        _ => return None,
    };
    let (tcp, header) = match protocol {
        UDP => (false, 8 + stamp::LEN),
        TCP => (true, 20),
        _ => return None,
    };
    (len >= l4 + header).then_some(Place { l3, v4, l4, tcp })
}

impl Checker {
    /// For frames of `run`.
    pub fn new(run: u16, depth: Depth) -> Self {
        Self {
            run,
            depth,
            senders: HashMap::new(),
            current: u32::MAX,
            flows: Vec::new(),
            corrupt: 0,
            foreign: 0,
            bad_sums: 0,
            frames: 0,
            bytes: 0,
            latency: Histogram::default(),
            scratch: vec![0; 4096],
        }
    }

    /// Frames and bytes so far.
    #[inline]
    pub fn total(&self) -> (u64, u64) {
        (self.frames, self.bytes)
    }

    /// Judges a frame that came at `now` (ns of the monotonic clock). Returns its stamp when it has
    /// a good one.
    #[inline]
    pub fn see(&mut self, frame: &impl Received, now: u64) -> Option<Stamp> {
        self.frames += 1;
        self.bytes += frame.len() as u64;
        if self.depth == Depth::None {
            return None;
        }
        let Some(at) = place(frame) else {
            self.foreign += 1;
            return None;
        };
        if at.tcp {
            self.segment(frame, &at);
            return None;
        }
        let raw = frame.get::<{ stamp::LEN }>(at.l4 + 8);
        let Some(stamp) = Stamp::parse(&raw, frame.len() as u32) else {
            // Whose frame this was cannot be told from a broken stamp; its port can.
            self.broken(frame, at.l4, &raw);
            return None;
        };
        if stamp.run != self.run {
            self.foreign += 1;
            return None;
        }
        if self.depth == Depth::Full && !self.payload_holds(frame, &stamp, at.l4 + 8 + stamp::LEN) {
            self.corrupt += 1;
            return None;
        }
        self.latency.add(stamp::since(stamp.time, now), 1);
        let stream = self.stream(stamp.flow);
        stream.seen.bytes += frame.len() as u64;
        stream.see(stamp.number, 1);
        Some(stamp)
    }

    /// The driver said that a checksum is wrong.
    pub fn bad_sum(&mut self) {
        self.bad_sums += 1;
    }

    #[cold]
    fn broken(&mut self, frame: &impl Received, l4: usize, raw: &[u8; stamp::LEN]) {
        let ours = u16::from_le_bytes([raw[0], raw[1]]) == self.run;
        let discard = u16::from_be_bytes(frame.get(l4 + 2)) == stamp::PORT;
        if ours || discard {
            self.corrupt += 1;
        } else {
            self.foreign += 1;
        }
    }

    /// A TCP segment: its flow is in the acknowledgement number (which has no flag and so no
    /// meaning), the run in the urgent pointer, and its bytes are those of a stream.
    fn segment(&mut self, frame: &impl Received, place: &Place) {
        let Place { l3, v4, l4, .. } = *place;
        let position = u32::from_be_bytes(frame.get(l4 + 4));
        let flow = u32::from_be_bytes(frame.get(l4 + 8));
        let run = u16::from_be_bytes(frame.get(l4 + 18));
        let start = l4 + 4 * usize::from(frame.get::<1>(l4 + 12)[0] >> 4);
        // Ethernet pads; the IP header knows the length.
        let half = |at| usize::from(u16::from_be_bytes(frame.get(at)));
        let total = if v4 {
            l3 + half(l3 + 2)
        } else {
            l4 + half(l3 + 4)
        };
        if run != self.run {
            self.foreign += 1;
            return;
        }
        if total > frame.len() || start >= total {
            self.corrupt += 1;
            return;
        }
        let count = (total - start) as u64;
        let known = self.stream(flow);
        let ahead = position.wrapping_sub(known.next as u32) as i32;
        let at = known.next.wrapping_add_signed(ahead.into());
        if self.depth == Depth::Full {
            let key = stamp::mix(flow.into());
            if !self.bytes_hold(frame, start, total, key, at) {
                self.corrupt += 1;
                return;
            }
        }
        let stream = self.stream(flow);
        stream.seen.bytes += frame.len() as u64;
        stream.see(position, count);
    }

    fn payload_holds(&mut self, frame: &impl Received, stamp: &Stamp, start: usize) -> bool {
        self.bytes_hold(frame, start, frame.len(), stamp.key(), 0)
    }

    fn bytes_hold(
        &mut self,
        frame: &impl Received,
        start: usize,
        end: usize,
        key: u64,
        position: u64,
    ) -> bool {
        let mut at = start;
        while at < end {
            let n = self.scratch.len().min(end - at);
            if frame.copy_to(at, &mut self.scratch[..n]) != n {
                return false;
            }
            if !stamp::holds(key, position + (at - start) as u64, &self.scratch[..n]) {
                return false;
            }
            at += n;
        }
        true
    }

    #[inline]
    fn stream(&mut self, flow: u32) -> &mut Stream {
        let (sender, flow) = (
            flow >> stamp::FLOW_BITS,
            (flow & ((1 << stamp::FLOW_BITS) - 1)) as usize,
        );
        if sender != self.current {
            self.change_sender(sender);
        }
        if flow >= self.flows.len() {
            self.flows.resize(flow + 1, Stream::default());
        }
        &mut self.flows[flow]
    }

    #[cold]
    fn change_sender(&mut self, sender: u32) {
        let flows = std::mem::take(&mut self.flows);
        if self.current != u32::MAX {
            self.senders.insert(self.current, flows);
        }
        self.flows = self.senders.remove(&sender).unwrap_or_default();
        self.current = sender;
    }

    /// Numbers (or bytes) of each flow of `sender` that are known to be sent: what is missing at the
    /// end of each counts as lost too.
    pub fn close(&mut self, sender: u32, sent: &[u64]) {
        for (flow, &sent) in sent.iter().enumerate() {
            if sent == 0 {
                continue;
            }
            let stream = self.stream(sender << stamp::FLOW_BITS | flow as u32);
            stream.seen.lost += sent.saturating_sub(stream.next);
            stream.next = stream.next.max(sent);
        }
    }

    /// The verdict so far.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict {
            frames: self.frames,
            bytes: self.bytes,
            corrupt: self.corrupt,
            foreign: self.foreign,
            bad_sums: self.bad_sums,
            ..Verdict::default()
        };
        let flows = self.senders.values().flatten().chain(&self.flows);
        for stream in flows.filter(|s| s.next > 0 || s.seen.frames > 0) {
            verdict.flows += 1;
            verdict.seen += stream.seen;
        }
        verdict
    }
}

/// What a receiver found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// All frames that came.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows seen.
    pub flows: u64,
    /// Sum over all flows.
    pub seen: Seen,
    /// Frames of ours with wrong bytes.
    pub corrupt: u64,
    /// Frames of others.
    pub foreign: u64,
    /// Frames whose TCP, UDP or IP checksum the NIC found wrong.
    pub bad_sums: u64,
}

impl std::ops::AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.flows += other.flows;
        self.seen += other.seen;
        self.corrupt += other.corrupt;
        self.foreign += other.foreign;
        self.bad_sums += other.bad_sums;
    }
}

impl Verdict {
    /// Whether every frame came once, in order and unchanged.
    pub fn clean(&self) -> bool {
        let Seen {
            lost,
            duplicates,
            reordered,
            stale,
            ..
        } = self.seen;
        lost + duplicates + reordered + stale + self.corrupt + self.bad_sums == 0
    }

    /// Whether what came was in order, once and unchanged, whatever did not come.
    pub fn in_order(&self) -> bool {
        let mut rest = *self;
        rest.seen.lost = 0;
        rest.clean()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "frames": self.frames,
            "bytes": self.bytes,
            "flows": self.flows,
            "judged": self.seen.frames,
            "lost": self.seen.lost,
            "duplicates": self.seen.duplicates,
            "reordered": self.seen.reordered,
            "stale": self.seen.stale,
            "corrupt": self.corrupt,
            "bad_sums": self.bad_sums,
            "foreign": self.foreign,
        })
    }
}

#[cfg(test)]
mod tests;
