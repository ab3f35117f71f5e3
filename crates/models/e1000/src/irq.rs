//! Interrupt causes, their moderation and the line (manual §3.4, §13.4.17–21).
//!
//! One rule, applied wherever an input changes: the line is up when `ICR & IMS` is not 0. Between
//! cause and line stand the delay timers (RDTR, RADV, TIDV, TADV) and the minimum gap (ITR). With
//! MSI enabled the pin is silent, and what would raise it sends a message (manual §4.3.3).

mod csb;

use datapath::{Moderation, RxThrottle};
use model::{Env, Nanos, Through};

use crate::core::irq::{Delay, Irq};
use crate::regs::bits::cause;

/// Unit of RDTR, RADV, TIDV and TADV (manual §13.4.30).
const DELAY_UNIT: Nanos = 1024;
/// Unit of ITR (manual §13.4.18).
const ITR_UNIT: Nanos = 256;

/// Causes that only say that frames were sent.
pub(crate) const SENT: u32 = cause::TXDW | cause::TXQE | cause::TXD_LOW;
/// Causes that only say that frames were received.
pub(crate) const RECEIVED: u32 = cause::RXT0 | cause::RXDMT0 | cause::SRPD;

impl Delay {
    fn start(&mut self, now: Nanos, packet: u32, absolute: u32) {
        self.packet = Some(now + Nanos::from(packet) * DELAY_UNIT);
        if absolute != 0 && self.absolute.is_none() {
            self.absolute = Some(now + Nanos::from(absolute) * DELAY_UNIT);
        }
    }

    fn stop(&mut self) {
        *self = Delay::default();
    }

    fn take_due(&mut self, now: Nanos) -> bool {
        let due = |t: Option<Nanos>| t.is_some_and(|t| t <= now);
        let fired = due(self.packet) || due(self.absolute);
        if fired {
            self.stop();
        }
        fired
    }
}

/// What came due beside interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Auto-negotiation has ended.
    pub link: bool,
    /// The transmitter is to look again.
    pub look: bool,
    /// Both sides are to look into the guest's CSB.
    pub csb: bool,
    /// The guest has had its rest: frames that wait may go to it.
    pub rested: bool,
}

/// What a batch of sent or received frames asks of the interrupt logic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    /// Causes to set now.
    pub now: u32,
    /// Start (or restart) the delay timer of this side.
    pub delayed: bool,
    /// RDTR or TIDV.
    pub packet: u32,
    /// RADV or TADV.
    pub absolute: u32,
    /// Descriptors sent, and how many the ring has.
    pub sent: u32,
    pub ring: u32,
    /// With a CSB: whether the guest wants to hear of it.
    pub wanted: Option<bool>,
    /// Receive buffers filled, and how many the device has left.
    pub filled: u32,
    pub left: u32,
}

impl Irq {
    /// ICR without clearing it.
    pub(crate) fn causes(&self) -> u32 {
        self.icr
    }

    pub(crate) fn mask(&self) -> u32 {
        self.ims
    }

    /// Reads ICR, which acknowledges everything.
    pub(crate) fn read_icr(&mut self, env: &Env) -> u32 {
        let value = std::mem::take(&mut self.icr);
        if self.adaptive.mode == Moderation::Adaptive {
            self.adaptive.acknowledged(env.clock.now());
        }
        if self.line && self.rx_throttle.on {
            self.rx_throttle.acknowledged(env.clock.now());
        }
        if value != 0 {
            self.apply(env);
        }
        value
    }

    pub(crate) fn clear(&mut self, env: &Env, bits: u32) {
        self.icr &= !bits;
        self.apply(env);
        if self.line && self.msi {
            // Acknowledged in part. A level would still stand; a message has to be sent again.
            env.irq.msi(0);
        }
    }

    /// The guest has enabled or disabled MSI. What it has not answered yet it hears of again, the
    /// new way.
    pub(crate) fn set_msi(&mut self, env: &Env, on: bool) {
        if self.msi == on {
            return;
        }
        self.msi = on;
        if self.line {
            env.irq.set_line(!on);
            if on {
                env.irq.msi(0);
            }
        }
    }

    pub(crate) fn raise(&mut self, env: &Env, bits: u32) {
        self.icr |= bits & cause::ALL;
        self.apply(env);
    }

    pub(crate) fn unmask(&mut self, env: &Env, bits: u32) {
        let off = self.ims & RECEIVED == 0;
        self.ims |= bits & cause::ALL;
        self.adaptive.looked();
        if off && self.ims & RECEIVED != 0 && self.rx_throttle.on {
            self.rx_throttle.ended(env.clock.now());
        }
        self.apply(env);
    }

    pub(crate) fn mask_off(&mut self, env: &Env, bits: u32) {
        self.ims &= !bits;
        if bits & RECEIVED != 0 && self.ims & RECEIVED == 0 {
            self.rx_throttle.masked();
        }
        self.apply(env);
    }

    /// The operator has chosen when the line goes up. What the old way held back goes by the new one.
    pub(crate) fn moderate(&mut self, env: &Env, how: Moderation) {
        self.adaptive.choose(how);
        self.apply(env);
    }

    pub(crate) fn set_itr(&mut self, env: &Env, value: u32) {
        self.itr = value;
        self.apply(env);
    }

    /// Frames were received. Returns the causes as they are now.
    pub(crate) fn received(&mut self, env: &Env, event: &Event) -> u32 {
        if event.delayed {
            self.delays(env, self.rx == Delay::default());
            self.rx.start(env.clock.now(), event.packet, event.absolute);
        }
        self.adaptive.received(event.filled, event.left);
        self.batch(env, event, cause::RXT0, true);
        // A driver with a CSB knows better itself.
        if self.rx_throttle.on && self.gate.is_none() && self.rx_throttle.received(event.filled) {
            self.rx_throttle.begin(env.clock.now());
            self.arm(env);
        }
        self.icr
    }

    /// Frames were sent. Returns the causes as they are now.
    pub(crate) fn sent(&mut self, env: &Env, event: &Event) -> u32 {
        if event.delayed {
            self.delays(env, self.tx == Delay::default());
            self.tx.start(env.clock.now(), event.packet, event.absolute);
        }
        self.passed(event);
        self.batch(env, event, cause::TXDW, false);
        self.icr
    }

    /// Something waits for its time, for which nothing has waited if it is `new`.
    fn delays(&self, env: &Env, new: bool) {
        if new {
            env.irq.delayed(match self.msi {
                true => Through::Msi(0),
                false => Through::Pin,
            });
        }
    }

    /// Frames were sent of which nothing is reported.
    #[inline]
    pub(crate) fn passed(&mut self, event: &Event) {
        self.adaptive.sent(event.sent, event.ring);
        if event.sent > 0 {
            self.rx_throttle.sent();
        }
    }

    #[inline]
    fn batch(&mut self, env: &Env, event: &Event, ends_delay: u32, rx: bool) {
        // Without a deadline that the timer is set to, or one that begins here, nothing waits for anything.
        if event.delayed || self.armed.is_some() {
            return self.batch_in_time(env, event, ends_delay, rx);
        }
        self.happens(event, rx);
        // Most often nothing is new: what would be signalled has been, or is masked.
        if (self.icr & self.ims != 0) != self.line {
            self.apply(env);
        }
    }

    /// The same while something may wait for its time.
    #[inline(never)]
    fn batch_in_time(&mut self, env: &Env, event: &Event, ends_delay: u32, rx: bool) {
        let delay = if rx { &mut self.rx } else { &mut self.tx };
        let delayed = *delay != Delay::default();
        if event.now & ends_delay != 0 {
            delay.stop();
        }
        self.happens(event, rx);
        let told = (self.icr & self.ims != 0) == self.line && self.throttled.is_none();
        if delayed || !told {
            self.apply(env);
        }
    }

    /// Enters what happens now, and what the guest wants to hear of.
    #[inline]
    fn happens(&mut self, event: &Event, rx: bool) {
        self.icr |= event.now & cause::ALL;
        if let (Some(gate), Some(wanted)) = (&mut self.gate, event.wanted) {
            let about = if rx { RECEIVED } else { SENT };
            *gate = if wanted {
                *gate | about
            } else {
                *gate & !about
            };
        }
    }

    /// RDTR.FPD: what the receive timers wait for happens now.
    pub(crate) fn flush_rx(&mut self, env: &Env) {
        if self.rx.packet.is_some() || self.rx.absolute.is_some() {
            self.rx.stop();
            self.raise(env, cause::RXT0);
        }
    }

    /// Sets or calls off the end of auto-negotiation.
    pub(crate) fn set_link_timer(&mut self, env: &Env, at: Option<Nanos>) {
        self.link = at;
        self.apply(env);
    }

    /// Has the transmitter look again at `at`. An earlier look that is due stands.
    pub(crate) fn set_look(&mut self, env: &Env, at: Nanos) {
        let now = env.clock.now();
        if self.look.is_none_or(|look| look > now) {
            self.look = Some(at);
        }
        self.apply(env);
    }

    /// Has both sides look into the guest's CSB again, at `at` or when they were to already. Whether it is `at`.
    pub(crate) fn set_second_look(&mut self, env: &Env, at: Nanos) -> bool {
        let new = self.second.is_none();
        if new {
            self.second = Some(at);
            self.apply(env);
        }
        new
    }

    /// The guest has a CSB: what it wants to hear of is asked from now on.
    pub(crate) fn gate(&mut self, env: &Env) {
        self.gate = Some(SENT | RECEIVED);
        self.apply(env);
    }

    /// The guest has none any more; what it was spared it hears now.
    pub(crate) fn ungate(&mut self, env: &Env) {
        self.gate = None;
        self.apply(env);
    }

    /// As [`Irq::ungate`], and there is nothing to look into.
    pub(crate) fn forget_csb(&mut self, env: &Env) {
        self.second = None;
        self.ungate(env);
    }

    /// What the guest wants to hear of now, whatever it said before.
    /// `wanted` has bits of [`SENT`] and [`RECEIVED`].
    pub(crate) fn regate(&mut self, env: &Env, wanted: u32) {
        if self.gate.is_some() {
            self.gate = Some(wanted);
            self.apply(env);
        }
    }

    /// Whether something is not told because the guest did not want to hear of it.
    pub(crate) fn is_muffled(&self) -> bool {
        self.icr & self.ims != 0 && !self.line && self.open() == 0
    }

    /// What there is to tell.
    fn open(&self) -> u32 {
        let told = self.icr & self.ims;
        match self.gate {
            None => told,
            Some(gate) => told & (gate | !(SENT | RECEIVED)),
        }
    }

    /// The timer has fired. Returns what came due beside interrupts.
    pub(crate) fn tick(&mut self, env: &Env) -> Due {
        let now = env.clock.now();
        self.armed = None;
        if self.rx.take_due(now) {
            self.icr |= cause::RXT0;
        }
        if self.tx.take_due(now) {
            self.icr |= cause::TXDW;
        }
        if self.throttled.is_some_and(|t| t <= now) {
            self.throttled = None;
        }
        let link = self.link.is_some_and(|t| t <= now);
        if link {
            self.link = None;
        }
        let look = self.look.is_some_and(|t| t <= now);
        if look {
            self.look = None;
        }
        let csb = self.second.is_some_and(|t| t <= now);
        if csb {
            self.second = None;
        }
        let rested = self.rx_throttle.tick(now);
        self.apply(env);
        Due {
            link,
            look,
            csb,
            rested,
        }
    }

    /// Back to the state after CTRL.RST. The PHY's own timer goes on.
    pub(crate) fn reset(&mut self, env: &Env) {
        self.icr = 0;
        self.ims = 0;
        self.itr = 0;
        self.last = None;
        self.adaptive.reset();
        self.rx_throttle = RxThrottle::new(self.rx_throttle.on);
        self.rx.stop();
        self.tx.stop();
        self.look = None;
        self.second = None;
        self.apply(env);
    }

    /// Puts the line where the causes want it, and the timer where the next deadline is.
    fn apply(&mut self, env: &Env) {
        let want = self.icr & self.ims != 0;
        let waits = std::mem::take(&mut self.waits);
        if !want {
            self.throttled = None;
            if self.line {
                self.line = false;
                if !self.msi {
                    env.irq.set_line(false);
                }
            }
        } else if !self.line && self.open() == 0 {
            self.throttled = None;
        } else if !self.line {
            self.throttled = self.gap_left(env);
            if self.throttled.is_none() {
                if self.itr != 0 || self.adaptive.mode != Moderation::Guest {
                    let now = env.clock.now();
                    self.last = Some(now);
                    self.adaptive.raised(now);
                }
                self.line = true;
                self.raised += 1;
                if self.msi {
                    env.irq.msi(0);
                } else {
                    env.irq.set_line(true);
                }
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

    /// The next deadline.
    fn next(&self) -> Option<Nanos> {
        let all = [
            self.throttled,
            self.rx.packet,
            self.rx.absolute,
            self.tx.packet,
            self.tx.absolute,
            self.link,
            self.look,
            self.second,
            self.rx_throttle.rest,
        ];
        all.into_iter().flatten().min()
    }

    /// Puts this in the place of what `old` was: line and timer follow.
    pub(crate) fn replace(mut self, old: &mut Irq, env: &Env) {
        // What `apply` keeps true: only ITR, or consideration for the guest, is between.
        self.line = self.icr & self.ims != 0 && self.throttled.is_none();
        self.armed = self.next();
        self.raised = old.raised;
        env.irq.set_line(self.line && !self.msi);
        if self.line && self.msi {
            // Whether the guest heard of it before is not known here; twice does no harm.
            env.irq.msi(0);
        }
        env.timer.arm(self.armed);
        *old = self;
    }

    /// Until when ITR, or what stands in its place, keeps the line down.
    fn gap_left(&mut self, env: &Env) -> Option<Nanos> {
        let gap = match self.adaptive.mode.gap() {
            Some(gap) => gap,
            // A driver that wants no moderation at all (it polls, or is in a boot ROM) gets none.
            None if self.itr == 0 => return None,
            None => Nanos::from(self.itr) * ITR_UNIT,
        };
        let now = env.clock.now();
        let throttled = self.last.map(|last| last + gap).filter(|t| now < *t);
        if self.adaptive.mode != Moderation::Adaptive {
            return throttled;
        }
        if self.icr & SENT != 0 {
            self.adaptive.reported(now);
        }
        let only_sent = self.icr & self.ims & !SENT == 0;
        throttled.max(self.adaptive.until(now, self.last, only_sent))
    }
}
