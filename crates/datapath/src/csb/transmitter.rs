//! When a transmitter polls, and when it sleeps.

use ::csb::at;

use crate::Nanos;
use crate::csb::page::CsbPage;

/// Rounds without a frame that a guest may ask for before the transmitter sleeps.
const MOST_CYCLES: u32 = 64;
/// As many descriptors sent since the transmitter last slept earn the rounds asked for once more, and at most
/// so many times: who sends a stream and pauses (a tick of its clock, another program) goes on soon.
const EARNING: u32 = 64;
const MOST_EARNED: u32 = 3;
/// Rounds without a frame in a row whatever the clock says.
const MOST_POLLS: u32 = 4096;
/// What a round takes at least. A window that passed while others had the processor was not spent
/// looking.
const ROUND: Nanos = 4_000;
/// The shortest time worth polling for.
const LEAST_POLL: Nanos = 10_000;

/// What a transmitter remembers of the block.
#[derive(Debug, Default)]
pub struct TxCsb {
    /// The page that the rest is about.
    epoch: u32,
    /// The guest need not call.
    awake: bool,
    /// Where the guest said that the ring ends.
    pub tail: u32,
    /// Descriptors sent since it last slept, as far as they earn anything.
    sent: u32,
    /// Rounds without a frame in a row, and since when.
    idle: u32,
    since: Nanos,
    /// How long such rounds have paid of late.
    window: Nanos,
    /// When the transmitter fell asleep.
    slept: Option<Nanos>,
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It looks on: something was sent in this round, or nothing.
    Polls {
        /// Something was.
        found: bool,
    },
    /// Something has come in the last moment.
    News,
    /// It sleeps until the guest calls. If `again` it is to look once more by itself.
    Sleeps {
        /// Drivers of that time have no barrier between their tail and their look at the flag, so that a call can be lost, and
        /// the next one may be far away. Once: a NIC at rest is at rest.
        again: bool,
    },
}

impl TxCsb {
    /// When a sleeping transmitter looks once more by itself.
    pub const SECOND_LOOK: Nanos = 2_000_000;

    /// The rings begin anew, or the page is another.
    pub fn reset(&mut self) {
        self.awake = false;
        self.slept = None;
    }

    /// A round begins with a page whose guest wants it or not (`on`): before anything is sent, it need not call any more.
    pub fn begin(
        &mut self,
        page: &CsbPage<'_>,
        (on, most_poll): (bool, Nanos),
        now: impl FnOnce() -> Nanos,
    ) {
        if page.epoch != self.epoch {
            self.epoch = page.epoch;
            self.reset();
        }
        if !on {
            // The guest that switches it on calls the first time.
            if self.awake || self.slept.is_none() {
                page.store(at::HOST_NEED_TXKICK, 1);
            }
            self.awake = false;
            self.slept.get_or_insert_with(now);
        } else if !self.awake {
            self.awake = true;
            self.idle = 0;
            page.store(at::HOST_NEED_TXKICK, 0);
            self.woken(most_poll, now);
        }
    }

    /// A short sleep was not worth it, a long one was.
    fn woken(&mut self, most: Nanos, now: impl FnOnce() -> Nanos) {
        let Some(slept) = self.slept.take() else {
            return;
        };
        let length = now().saturating_sub(slept);
        self.window = if length <= most {
            (self.window * 2).max(LEAST_POLL).min(most)
        } else if self.window < 2 * LEAST_POLL {
            0
        } else {
            self.window / 2
        };
    }

    /// All that could be done is done: so many descriptors were `sent` in this round. Whether the transmitter goes on
    /// looking, if it may send at all (`on`): because of news, or to poll for some.
    pub fn end(
        &mut self,
        page: &CsbPage<'_>,
        (sent, on): (u32, bool),
        now: impl Fn() -> Nanos,
        news: impl FnOnce() -> bool,
    ) -> End {
        let found = sent > 0;
        if found {
            self.sent = self.sent.saturating_add(sent).min(MOST_EARNED * EARNING);
            self.idle = 0;
            self.since = now();
        } else {
            self.idle += 1;
        }
        let cycles = page.load(at::HOST_TXCYCLES_LIM).min(MOST_CYCLES);
        let cycles = cycles * (1 + self.sent / EARNING);
        let patient = || {
            let passed = now().saturating_sub(self.since);
            passed.min(Nanos::from(self.idle) * ROUND) < self.window
        };
        if on && (self.idle < cycles || self.idle < MOST_POLLS && patient()) {
            return End::Polls { found };
        }
        self.idle = 0;
        if !::csb::sleep(&page.word(at::HOST_NEED_TXKICK), 1, 0, news) {
            return End::News;
        }
        self.awake = false;
        self.slept = Some(now());
        End::Sleeps {
            again: std::mem::take(&mut self.sent) > 0,
        }
    }
}
