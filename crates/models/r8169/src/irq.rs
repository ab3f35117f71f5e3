//! Interrupt causes, their moderation and what signals them.
//!
//! One rule, applied wherever an input changes: the line is up when `ISR & IMR` is not 0. With MSI or MSI-X a message is
//! sent when that becomes true, and again after IMR is written or ISR is cleared in part while it stays true. Between
//! frames and their causes stands IntrMitigate; between causes and line what the operator has chosen, and with a CSB what
//! the guest wants to hear of.

mod csb;

use datapath::Moderation;
use model::{Env, Nanos, Through};

use crate::core::irq::{Held, Irq, Way};
use crate::regs::bits::{cause, mitigate};

/// Causes that only say that frames were sent.
pub(crate) const SENT: u16 = cause::TOK | cause::TER | cause::TDU;
/// Causes that only say that frames were received, or could not be.
pub(crate) const RECEIVED: u16 = cause::ROK | cause::RER | cause::RDU;

/// A tick of TCTR: 125 MHz, or those of a PCI bus in the 8169.
const TICK: Nanos = 8;
const PCI_TICK: Nanos = 30;

/// Units of IntrMitigate's times by the scale (8168).
const UNITS_1000: [Nanos; 4] = [5_000, 40_000, 80_000, 160_000];
/// The same of the 8169.
const UNITS_1000_FIRST: [Nanos; 4] = [320, 2_560, 5_120, 10_240];
const UNITS_100: [Nanos; 4] = [2_560, 20_480, 40_960, 81_920];
const UNITS_10: [Nanos; 4] = [40_960, 327_680, 655_360, 1_310_720];

/// What came due beside interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Auto-negotiation has ended.
    pub link: bool,
    /// The receive ring is to be looked at.
    pub look: bool,
    /// The guest's CSB is to be looked into.
    pub csb: bool,
}

/// What a batch of received frames asks of the interrupt logic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    pub frames: u32,
    /// Descriptors filled.
    pub buffers: u32,
    /// Causes that do not wait.
    pub now: u16,
    /// With a CSB: whether the guest wants to hear of it.
    pub wanted: Option<bool>,
}

/// What a batch of sent frames asks of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub frames: u32,
    /// Descriptors of the ring.
    pub ring: u32,
    /// A packet was dropped.
    pub bad: bool,
    /// None is left.
    pub drained: bool,
    /// As [`Received::wanted`].
    pub wanted: Option<bool>,
}

/// The four fields of IntrMitigate.
struct Fields {
    tx: (Nanos, u32),
    rx: (Nanos, u32),
}

impl Held {
    /// `n` frames more; whether they are reported now.
    fn add(&mut self, n: u32, (time, frames): (Nanos, u32), now: Nanos) -> bool {
        // The chip needs the time: frames alone delay nothing.
        if time == 0 {
            return true;
        }
        self.frames = self.frames.saturating_add(n);
        if frames > 0 && self.frames >= frames {
            return true;
        }
        self.until.get_or_insert(now + time);
        false
    }

    fn take_due(&mut self, now: Nanos) -> bool {
        let due = self.until.is_some_and(|until| until <= now);
        if due {
            *self = Held::default();
        }
        due
    }
}

impl Irq {
    fn unit(&self) -> Nanos {
        let scale = usize::from(self.scale & 3);
        match self.mbits {
            1000 if self.first => UNITS_1000_FIRST[scale],
            1000 => UNITS_1000[scale],
            100 => UNITS_100[scale],
            _ => UNITS_10[scale],
        }
    }

    fn fields(&self) -> Fields {
        let [rx_frames, rx_time, tx_frames, tx_time] =
            [0, 4, 8, 12].map(|shift| u32::from(self.mitigate >> shift & 0xf));
        let unit = self.unit();
        let of = |time: u32, frames| (Nanos::from(time) * unit, frames * mitigate::FRAMES);
        Fields {
            tx: of(tx_time, tx_frames),
            rx: of(rx_time, rx_frames),
        }
    }

    /// Frames were sent. Returns the causes as they are now.
    pub fn sent(&mut self, env: &Env, what: Sent) -> u16 {
        let Sent {
            frames,
            ring,
            bad,
            drained,
            wanted,
        } = what;
        let limit = self.fields().tx;
        self.adaptive.sent(frames, ring);
        let held = self.tx;
        self.wants(SENT, wanted);
        if frames > 0 && self.tx.add(frames, limit, self.now_if(env, limit.0)) {
            self.tx = Held::default();
            self.latch(cause::TOK);
        }
        self.delays(env, held.until.is_none() && self.tx.until.is_some());
        if bad {
            self.latch(cause::TER);
        }
        if drained {
            self.latch(cause::TDU);
        }
        self.settle(env, held != self.tx);
        self.isr
    }

    /// Frames were received. Returns the causes as they are now.
    pub fn received(&mut self, env: &Env, what: Received) -> u16 {
        let held = self.rx;
        self.wants(RECEIVED, what.wanted);
        let limit = self.fields().rx;
        self.adaptive
            .received(what.buffers, crate::core::queues::MOST);
        let now = self.now_if(env, limit.0);
        if what.frames > 0 && self.rx.add(what.frames, limit, now) {
            self.rx = Held::default();
            self.latch(cause::ROK);
        }
        self.delays(env, held.until.is_none() && self.rx.until.is_some());
        self.latch(what.now);
        self.settle(env, held != self.rx);
        self.isr
    }

    /// Something waits for its time, for which nothing has waited if it is `new`.
    fn delays(&self, env: &Env, new: bool) {
        if new {
            env.irq.delayed(match self.way {
                Way::Line => Through::Pin,
                Way::Msi => Through::Msi(0),
                Way::Msix => Through::Msix(0),
            });
        }
    }

    /// Most often nothing is new: what would be signalled has been, or is masked.
    fn settle(&mut self, env: &Env, times: bool) {
        let told = (self.isr & self.imr != 0) == self.raised && self.throttled.is_none();
        if times || !told {
            self.apply(env);
        }
    }

    /// The time, if it is needed.
    fn now_if(&self, env: &Env, time: Nanos) -> Nanos {
        if time == 0 { 0 } else { env.clock.now() }
    }

    pub fn raise(&mut self, env: &Env, bits: u16) {
        self.latch(bits & cause::ALL);
        self.apply(env);
    }

    /// Causes are there, perhaps again.
    fn latch(&mut self, bits: u16) {
        self.isr |= bits;
        self.fresh |= bits;
    }

    /// ISR, as the driver reads it.
    pub fn read(&mut self) -> u16 {
        self.fresh = 0;
        self.isr
    }

    /// ISR was written: these causes are acknowledged, as far as they had been read. The write may have been under way while
    /// one was set again, and the driver has looked at its rings already.
    pub fn acknowledge(&mut self, env: &Env, bits: u16) {
        if bits & self.isr == 0 {
            return;
        }
        self.isr &= !(bits & !self.fresh);
        if self.adaptive.mode == Moderation::Adaptive {
            self.adaptive.acknowledged(env.clock.now());
        }
        self.again(env);
    }

    /// The operator has chosen when the line goes up. What the old way held back goes by the new one.
    pub fn moderate(&mut self, env: &Env, how: Moderation) {
        self.adaptive.choose(how);
        self.apply(env);
    }

    /// IMR was written.
    pub fn set_mask(&mut self, env: &Env, imr: u16) {
        self.imr = imr & cause::ALL;
        if self.imr & RECEIVED != 0 {
            self.adaptive.looked();
        }
        self.again(env);
    }

    /// Puts the line where the causes want it. What was told before and still holds is told again, unless the guest does not
    /// want to hear of it any more.
    fn again(&mut self, env: &Env) {
        if self.raised && self.open() == 0 && self.isr & self.imr != 0 {
            self.raised = false;
            if self.way == Way::Line {
                env.irq.set_line(false);
            }
        }
        let told = self.raised;
        self.apply(env);
        if told && self.raised && self.way != Way::Line {
            self.signal(env);
        }
    }

    /// The guest has chosen another kind of interrupt. What it has not answered yet it hears of again, the new way.
    pub fn set_way(&mut self, env: &Env, way: Way) {
        if self.way == way {
            return;
        }
        if self.way == Way::Line && self.raised {
            env.irq.set_line(false);
        }
        self.way = way;
        if self.raised {
            self.signal(env);
        }
    }

    /// IntrMitigate, or its scale, was written.
    pub fn set_mitigation(&mut self, env: &Env, value: u16, scale: u8) {
        (self.mitigate, self.scale) = (value, scale);
        self.release(env);
    }

    /// The link has another speed.
    pub fn set_speed(&mut self, env: &Env, mbits: u16) {
        self.mbits = mbits;
        self.release(env);
    }

    /// What waits is reported: by the new settings it may have to wait for less.
    fn release(&mut self, env: &Env) {
        if self.rx != Held::default() {
            self.latch(cause::ROK);
        }
        if self.tx != Held::default() {
            self.latch(cause::TOK);
        }
        (self.rx, self.tx) = (Held::default(), Held::default());
        self.apply(env);
    }

    fn tick_len(&self) -> Nanos {
        if self.first { PCI_TICK } else { TICK }
    }

    /// TCTR has 32 bits.
    pub fn wrap(&self) -> Nanos {
        self.tick_len() << 32
    }

    /// TCTR.
    pub fn timer(&self, now: Nanos) -> u32 {
        (self.elapsed(now) / self.tick_len()) as u32
    }

    /// Nanoseconds since TCTR was 0.
    pub fn elapsed(&self, now: Nanos) -> Nanos {
        // A clock that goes on elsewhere may be younger than that.
        now.wrapping_sub(self.timer_base) % self.wrap()
    }

    /// TCTR was written, which makes it 0.
    pub fn zero_timer(&mut self, env: &Env, timer_int: u32) {
        self.timer_base = env.clock.now();
        self.set_timer(env, timer_int);
    }

    /// TimerInt was written.
    pub fn set_timer(&mut self, env: &Env, timer_int: u32) {
        self.timer = self.next_match(env.clock.now(), timer_int);
        self.arm(env);
    }

    /// When TCTR is `timer_int` next; 0 is never.
    pub fn next_match(&self, now: Nanos, timer_int: u32) -> Option<Nanos> {
        if timer_int == 0 {
            return None;
        }
        let (at, elapsed) = (Nanos::from(timer_int) * self.tick_len(), self.elapsed(now));
        let ahead = if elapsed < at {
            at - elapsed
        } else {
            at + self.wrap() - elapsed
        };
        Some(now + ahead)
    }

    /// So much time has passed since this was saved, in which the timer may have come to its time.
    pub fn age(&mut self, env: &Env, age: Nanos, timer_int: u32) {
        self.timer_base = self.timer_base.wrapping_sub(age);
        let now = env.clock.now();
        self.timer = self.next_match(now, timer_int);
        let since = |next: Nanos| self.wrap() - (next - now);
        if self.timer.is_some_and(|next| since(next) <= age) {
            self.latch(cause::TIMEOUT);
        }
    }

    pub fn set_link_timer(&mut self, env: &Env, at: Option<Nanos>) {
        self.link = at;
        self.arm(env);
    }

    /// Has the receive ring looked at by `at`.
    pub fn set_look(&mut self, env: &Env, at: Nanos) {
        self.look.get_or_insert(at);
        self.arm(env);
    }

    /// The timer has fired.
    pub fn tick(&mut self, env: &Env) -> Due {
        let now = env.clock.now();
        self.armed = None;
        if self.rx.take_due(now) {
            self.latch(cause::ROK);
        }
        if self.tx.take_due(now) {
            self.latch(cause::TOK);
        }
        if let Some(at) = self.timer.filter(|at| *at <= now) {
            self.latch(cause::TIMEOUT);
            let missed = (now - at) / self.wrap() + 1;
            self.timer = Some(at + missed * self.wrap());
        }
        if self.throttled.is_some_and(|until| until <= now) {
            self.throttled = None;
        }
        let take = |at: &mut Option<Nanos>| at.take_if(|at| *at <= now).is_some();
        let due = Due {
            link: take(&mut self.link),
            look: take(&mut self.look),
            csb: take(&mut self.second),
        };
        self.apply(env);
        due
    }

    /// Back to the state after RST: no cause, none enabled. Timer, IntrMitigate and the PHY's time go on.
    pub fn reset(&mut self, env: &Env) {
        (self.isr, self.imr, self.fresh) = (0, 0, 0);
        (self.rx, self.tx) = (Held::default(), Held::default());
        self.last = None;
        self.look = None;
        self.second = None;
        self.adaptive.reset();
        self.apply(env);
    }

    fn signal(&mut self, env: &Env) {
        self.signals += 1;
        match self.way {
            Way::Line => env.irq.set_line(true),
            Way::Msi => env.irq.msi(0),
            Way::Msix => env.irq.msix(0),
        }
    }

    fn apply(&mut self, env: &Env) {
        let want = self.isr & self.imr != 0;
        let waits = std::mem::take(&mut self.waits);
        if !want {
            self.throttled = None;
            if self.raised {
                self.raised = false;
                if self.way == Way::Line {
                    env.irq.set_line(false);
                }
            }
        } else if !self.raised && self.open() == 0 {
            self.throttled = None;
        } else if !self.raised {
            self.throttled = self.gap_left(env);
            if self.throttled.is_none() {
                if self.adaptive.mode != Moderation::Guest {
                    let now = env.clock.now();
                    self.last = Some(now);
                    self.adaptive.raised(now);
                }
                self.raised = true;
                self.signal(env);
            } else {
                self.delays(env, !waits);
                self.waits = true;
            }
        }
        self.arm(env);
    }

    /// Puts the timer where the next deadline is.
    fn arm(&mut self, env: &Env) {
        let next = self.next();
        if next != self.armed {
            self.armed = next;
            env.timer.arm(next);
        }
    }

    fn next(&self) -> Option<Nanos> {
        let all = [
            self.throttled,
            self.rx.until,
            self.tx.until,
            self.timer,
            self.link,
            self.look,
            self.second,
        ];
        all.into_iter().flatten().min()
    }

    /// Until when moderation keeps it back.
    fn gap_left(&mut self, env: &Env) -> Option<Nanos> {
        let mode = self.adaptive.mode;
        if mode == Moderation::Guest {
            return None;
        }
        let now = env.clock.now();
        let gap = mode.gap().unwrap_or(0);
        let throttled = self
            .last
            .map(|last| last + gap)
            .filter(|until| now < *until);
        if mode != Moderation::Adaptive {
            return throttled;
        }
        if self.isr & SENT != 0 {
            self.adaptive.reported(now);
        }
        let only_sent = self.isr & self.imr & !SENT == 0;
        self.adaptive.until(now, self.last, only_sent)
    }

    /// Puts this in the place of what `old` was: line and timer follow.
    pub fn replace(mut self, old: &mut Irq, env: &Env) {
        self.raised = self.isr & self.imr != 0 && self.throttled.is_none();
        self.signals = old.signals;
        self.armed = self.next();
        env.irq.set_line(self.raised && self.way == Way::Line);
        if self.raised && self.way != Way::Line {
            // Whether the guest heard of it before is not known here; twice does no harm.
            self.signal(env);
        }
        env.timer.arm(self.armed);
        *old = self;
    }
}
