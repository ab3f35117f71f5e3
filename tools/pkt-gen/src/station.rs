//! One NIC at work: it sends, receives, asks or answers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drivers::e1000::poll::{Poll, TxFrame};
use drivers::e1000::{DriverError, RxSums};
use drivers::{Bus, BusError, Costs, Dma, SocketBus};

use crate::check::{Checker, Verdict};
use crate::flows::Maker;
use crate::pace::Pacer;
use crate::stamp;

/// Turns between two remaps, and regions that are mapped for nothing.
const REMAP_TURNS: u32 = 64;
const SPARE: usize = 8;

/// How long a question may stay without an answer.
const ANSWER: u64 = 1_000_000_000;

/// The monotonic clock in ns, the same for all processes of a host.
#[inline]
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What others may see of a station while it works.
#[derive(Debug, Default)]
pub struct Progress {
    /// Frames handed to the NIC.
    pub tx_frames: AtomicU64,
    /// Their bytes.
    pub tx_bytes: AtomicU64,
    /// Frames received.
    pub rx_frames: AtomicU64,
    /// Their bytes.
    pub rx_bytes: AtomicU64,
    /// Everything to be sent has been taken by the device.
    pub sent_all: AtomicBool,
}

/// The sending half of a station.
pub struct Sending {
    pub maker: Maker,
    pub pacer: Pacer,
    /// Frames that may still go.
    pub left: u64,
    /// When to stop, ns.
    pub until: u64,
    /// One at a time: the next goes when the answer to the last has come.
    pub asking: bool,
    /// When the question that is under way left.
    pub asked: Option<u64>,
    pub unanswered: u64,
    pub started: u64,
    pub ended: u64,
    frames: u64,
    bytes: u64,
    bursts: u64,
    full: u64,
}

impl Sending {
    pub fn new(maker: Maker, pacer: Pacer, left: u64, asking: bool) -> Self {
        Self {
            maker,
            pacer,
            left,
            until: u64::MAX,
            asking,
            asked: None,
            unanswered: 0,
            started: 0,
            ended: 0,
            frames: 0,
            bytes: 0,
            bursts: 0,
            full: 0,
        }
    }
}

/// The answering half: frames on their way back.
pub struct Echo {
    buffer: Vec<u8>,
    lens: Vec<u32>,
    slot: usize,
    at: usize,
}

/// A NIC and what it does.
pub struct Station {
    pub name: String,
    pub nic: Poll<SocketBus>,
    pub sending: Option<Sending>,
    pub checker: Option<Checker>,
    pub echo: Option<Echo>,
    pub progress: std::sync::Arc<Progress>,
    pub burst: u32,
    pub sums: bool,
    /// Memory that is mapped for no other reason than to be unmapped.
    spare: Option<VecDeque<Dma>>,
    turns: u32,
    pub costs: Costs,
    pub answered: u64,
    first: u64,
    last: u64,
}

impl Echo {
    /// Room for `burst` frames of up to `longest` bytes.
    pub fn new(burst: u32, longest: u32) -> Self {
        let slot = longest as usize;
        Self {
            buffer: vec![0; slot * burst as usize],
            lens: Vec::with_capacity(burst as usize),
            slot,
            at: 0,
        }
    }
}

/// What a station is to do, and how.
pub struct Role {
    pub sending: Option<Sending>,
    pub checker: Option<Checker>,
    pub echo: Option<Echo>,
    /// Frames per turn.
    pub burst: u32,
    /// Look at the NIC's checksum verdicts.
    pub sums: bool,
    /// Map and unmap memory meanwhile.
    pub remap: bool,
}

impl Station {
    pub fn new(
        name: String,
        nic: Poll<SocketBus>,
        role: Role,
        progress: std::sync::Arc<Progress>,
    ) -> Self {
        let costs = nic.costs();
        Self {
            name,
            nic,
            sending: role.sending,
            checker: role.checker,
            echo: role.echo,
            progress,
            burst: role.burst,
            sums: role.sums,
            spare: role.remap.then(VecDeque::new),
            turns: 0,
            costs,
            answered: 0,
            first: 0,
            last: 0,
        }
    }

    /// Does what there is to do; returns how many frames moved.
    #[inline]
    pub fn turn(&mut self, now: u64, stop: bool) -> Result<u32, DriverError> {
        let mut moved = 0;
        if self.sending.is_some() {
            moved += self.send(now, stop)?;
        }
        if self.echo.is_some() {
            moved += self.answer()?;
        } else if self.checker.is_some() {
            moved += self.receive()?;
        }
        if self.spare.is_some() {
            self.remap()?;
        }
        Ok(moved)
    }

    fn remap(&mut self) -> Result<(), DriverError> {
        self.turns = self.turns.wrapping_add(1);
        let Some(spare) = &mut self.spare else {
            return Ok(());
        };
        if !self.turns.is_multiple_of(REMAP_TURNS) {
            return Ok(());
        }
        let bus = self.nic.driver().bus_mut();
        if spare.len() == SPARE
            && let Some(old) = spare.pop_front()
        {
            bus.free(old)?;
        }
        // Of many sizes, so that they do not simply take each other's place.
        match bus.alloc(0x1000 << (self.turns / REMAP_TURNS % 8)) {
            Ok(dma) => spare.push_back(dma),
            // The server has not ended yet what was unmapped: another time.
            Err(BusError::Memory(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn send(&mut self, now: u64, stop: bool) -> Result<u32, DriverError> {
        let Some(sending) = &mut self.sending else {
            return Ok(0);
        };
        if sending.ended != 0 {
            return Ok(0);
        }
        if stop || sending.left == 0 || now >= sending.until {
            return self.finish(now);
        }
        if let Some(asked) = sending.asked {
            if now.saturating_sub(asked) < ANSWER {
                return Ok(0);
            }
            sending.asked = None;
            sending.unanswered += 1;
        }
        let due = sending.pacer.due(now);
        if due == 0 {
            return Ok(0);
        }
        let most = u64::from(due).min(sending.left) as u32;
        if sending.started == 0 {
            sending.started = now;
        }
        let time = stamp::time(now);
        let mut bytes = 0;
        let maker = &mut sending.maker;
        let sent = self.nic.send(most, |_, buffer| {
            let frame = maker.make(buffer, time);
            bytes += u64::from(frame.len);
            frame
        })?;
        if sent == 0 {
            sending.full += 1;
            return Ok(0);
        }
        sending.pacer.gone(sent);
        sending.left -= u64::from(sent);
        sending.frames += u64::from(sent);
        sending.bytes += bytes;
        sending.bursts += 1;
        if sending.asking {
            sending.asked = Some(now);
        }
        self.progress
            .tx_frames
            .store(sending.frames, Ordering::Relaxed);
        self.progress
            .tx_bytes
            .store(sending.bytes, Ordering::Relaxed);
        Ok(sent)
    }

    /// Waits for the device to take what is in the ring, then calls it a day.
    fn finish(&mut self, now: u64) -> Result<u32, DriverError> {
        let taken = self.nic.all_taken()?;
        if let Some(sending) = &mut self.sending {
            let answered = sending.asked.is_none_or(|asked| now - asked >= ANSWER);
            if taken && answered {
                sending.unanswered += u64::from(sending.asked.take().is_some());
                sending.ended = now;
                self.progress.sent_all.store(true, Ordering::Release);
            } else if !taken {
                // A question to the device a turn would only keep it from its work.
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(0)
    }

    fn receive(&mut self) -> Result<u32, DriverError> {
        let Some(checker) = &mut self.checker else {
            return Ok(0);
        };
        let sums = self.sums;
        let mut came = 0;
        let mut answers = 0;
        let n = self.nic.receive(self.burst, |frame| {
            if came == 0 {
                came = now();
            }
            if sums && frame.sums() == RxSums::Bad {
                checker.bad_sum();
            }
            answers += u32::from(checker.see(frame, came).is_some());
        })?;
        if n == 0 {
            return Ok(0);
        }
        if self.first == 0 {
            self.first = came;
        }
        self.last = came;
        let (frames, bytes) = checker.total();
        self.progress.rx_frames.store(frames, Ordering::Relaxed);
        self.progress.rx_bytes.store(bytes, Ordering::Relaxed);
        if answers > 0
            && let Some(sending) = &mut self.sending
        {
            sending.asked = None;
        }
        Ok(n)
    }

    /// Sends back what came, the addresses exchanged.
    fn answer(&mut self) -> Result<u32, DriverError> {
        let Some(echo) = &mut self.echo else {
            return Ok(0);
        };
        if echo.at == echo.lens.len() {
            echo.at = 0;
            echo.lens.clear();
            let n = self.nic.receive(self.burst, |frame| {
                let start = echo.lens.len() * echo.slot;
                let slot = &mut echo.buffer[start..start + echo.slot];
                let len = frame.copy_to(0, slot);
                if len == frame.len() && turn_round(&mut slot[..len]) {
                    echo.lens.push(len as u32);
                }
            })?;
            if n == 0 {
                return Ok(0);
            }
            let frames = self.progress.rx_frames.load(Ordering::Relaxed);
            self.progress
                .rx_frames
                .store(frames + u64::from(n), Ordering::Relaxed);
        }
        let left = (echo.lens.len() - echo.at) as u32;
        if left == 0 {
            return Ok(1);
        }
        let (from, lens, slot, at) = (&echo.buffer, &echo.lens, echo.slot, echo.at);
        let sent = self.nic.send(left, |i, buffer| {
            let number = at + i as usize;
            let len = lens[number] as usize;
            buffer.write(0, &from[number * slot..number * slot + len]);
            TxFrame::plain(len as u32)
        })?;
        echo.at += sent as usize;
        self.answered += u64::from(sent);
        self.progress
            .tx_frames
            .store(self.answered, Ordering::Relaxed);
        Ok(sent)
    }

    /// What it did.
    pub fn result(&self) -> Outcome {
        let mut costs = self.nic.costs() - self.costs;
        // Costs are divided by frames; a station that sends and receives counts both directions.
        let verdict = self.checker.as_ref().map(Checker::verdict);
        let mut outcome = Outcome {
            name: self.name.clone(),
            rx_frames: self.progress.rx_frames.load(Ordering::Relaxed),
            rx_bytes: self.progress.rx_bytes.load(Ordering::Relaxed),
            rx_nanoseconds: self.last.saturating_sub(self.first),
            tx_frames: self.answered,
            verdict,
            ..Outcome::default()
        };
        if let Some(sending) = &self.sending {
            outcome.tx_frames = sending.frames;
            outcome.tx_bytes = sending.bytes;
            outcome.tx_nanoseconds = sending.ended.saturating_sub(sending.started);
            outcome.bursts = sending.bursts;
            outcome.full = sending.full;
            outcome.unanswered = sending.unanswered;
        }
        std::mem::swap(&mut outcome.costs, &mut costs);
        outcome
    }
}

/// Makes a frame one to its sender. False for frames that must not be answered.
fn turn_round(frame: &mut [u8]) -> bool {
    // Not to groups: two that answer broadcasts would never end.
    if frame.len() < 60 || frame[0] & 1 != 0 {
        return false;
    }
    let (to, from) = frame.split_at_mut(6);
    to.swap_with_slice(&mut from[..6]);
    let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let (source, len) = match [frame[l3 - 2], frame[l3 - 1]] {
        [8, 0] => (l3 + 12, 4),
        [0x86, 0xdd] => (l3 + 8, 16),
        _ => return false,
    };
    let (low, high) = frame.split_at_mut(source + len);
    low[source..].swap_with_slice(&mut high[..len]);
    true
}

/// What a station did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its socket.
    pub name: String,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// From the first burst until the device had taken the last.
    pub tx_nanoseconds: u64,
    /// Bursts: writes of the tail register.
    pub bursts: u64,
    /// Turns in which the ring was full.
    pub full: u64,
    /// Questions without an answer.
    pub unanswered: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// From the first frame to the last.
    pub rx_nanoseconds: u64,
    /// What was found wrong; none where frames were not checked.
    pub verdict: Option<Verdict>,
    /// What the words with the device cost, since it was up.
    pub costs: Costs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_back_where_the_question_came_from() {
        let mut frame = [0u8; 60];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        assert!(turn_round(&mut frame));
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert_eq!(frame[26..34], [10, 0, 0, 2, 10, 0, 0, 1]);
        frame[0] = 0xff;
        assert!(!turn_round(&mut frame));
    }
}
