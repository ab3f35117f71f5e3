//! The transmitter and the Communication Status Block: when it polls and when it sleeps.

use csb::at;
use datapath::counters::count_alone;
use guest_mem::View;
use intel::SIZE;
use model::{Env, Nanos, Watch};

use crate::core::chip::Chip;
use crate::core::csb::{CsbPage, TxCsb};
use crate::regs as r;

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
/// When a sleeping transmitter looks once more by itself. Drivers of that time have no barrier between their
/// tail and their look at the flag, so that a call can be lost, and the next one may be far away.
const SECOND_LOOK: Nanos = 2_000_000;

impl TxCsb {
    /// Before anything is sent: the guest need not call any more.
    pub(crate) fn begin<'v>(
        &mut self,
        chip: &Chip,
        env: &Env,
        view: &'v View<'_>,
    ) -> Option<CsbPage<'v>> {
        self.watch = Watch::Off;
        let page = chip.csb_page(env, view)?;
        if page.epoch != self.epoch {
            self.epoch = page.epoch;
            self.reset();
        }
        if !chip.csb_wants(env, &page) {
            // The guest that switches it on calls the first time.
            if self.awake || self.slept.is_none() {
                page.store(at::HOST_NEED_TXKICK, 1);
            }
            self.awake = false;
            self.slept.get_or_insert(env.clock.now());
            return None;
        }
        count_alone(&chip.counters.csb_tx_rounds, 1);
        if !self.awake {
            self.awake = true;
            self.idle = 0;
            page.store(at::HOST_NEED_TXKICK, 0);
            self.woken(chip, env);
        }
        chip.csb_ask(env, &page);
        self.head = chip.file.get(r::TDH);
        Some(page)
    }

    /// A short sleep was not worth it, a long one was.
    fn woken(&mut self, chip: &Chip, env: &Env) {
        let Some(slept) = self.slept.take() else {
            return;
        };
        let most = chip.csb.most_poll;
        let length = env.clock.now().saturating_sub(slept);
        self.window = if length <= most {
            (self.window * 2).max(LEAST_POLL).min(most)
        } else if self.window < 2 * LEAST_POLL {
            0
        } else {
            self.window / 2
        };
    }

    /// All that could be done is done. Whether the transmitter goes on looking: because of news, or to
    /// poll for some.
    pub(crate) fn end(&mut self, chip: &Chip, env: &Env, page: &CsbPage<'_>) -> bool {
        let len = chip.file.get(r::TDLEN) / SIZE as u32;
        let head = chip.file.get(r::TDH);
        let found = if head != self.head {
            let sent = head.wrapping_sub(self.head);
            let sent = if head > self.head {
                sent
            } else {
                sent.wrapping_add(len)
            };
            self.sent = self.sent.saturating_add(sent).min(MOST_EARNED * EARNING);
            self.idle = 0;
            self.since = env.clock.now();
            Watch::Found
        } else {
            count_alone(&chip.counters.csb_tx_polls, 1);
            self.idle += 1;
            Watch::Vain
        };
        let cycles = page.load(at::HOST_TXCYCLES_LIM).min(MOST_CYCLES);
        let cycles = cycles * (1 + self.sent / EARNING);
        let patient = || {
            let passed = env.clock.now().saturating_sub(self.since);
            passed.min(Nanos::from(self.idle) * ROUND) < self.window
        };
        if chip.tx_enabled() && (self.idle < cycles || self.idle < MOST_POLLS && patient()) {
            self.watch = found;
            return true;
        }
        self.idle = 0;
        let known = self.tail;
        let news = || {
            let tail = page.tail(&chip.counters, at::GUEST_TDT, len);
            chip.tx_enabled() && tail.is_some_and(|tail| tail != known)
        };
        let slept = csb::sleep(&page.word(at::HOST_NEED_TXKICK), 1, 0, news);
        if slept {
            count_alone(&chip.counters.csb_tx_sleeps, 1);
            self.awake = false;
            let now = env.clock.now();
            self.slept = Some(now);
            // Once: a NIC at rest is at rest.
            if std::mem::take(&mut self.sent) > 0 {
                chip.irq.lock().set_second_look(env, now + SECOND_LOOK);
            }
        }
        !slept
    }

    /// Takes the guest's word for where the ring ends; the register follows.
    pub(crate) fn take_tail(&mut self, chip: &Chip, page: &CsbPage<'_>) {
        let len = chip.file.get(r::TDLEN) / SIZE as u32;
        if let Some(tail) = page.tail(&chip.counters, at::GUEST_TDT, len) {
            self.tail = tail;
            chip.file.set(r::TDT, tail);
        }
    }
}
