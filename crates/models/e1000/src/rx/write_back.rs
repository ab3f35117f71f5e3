//! What follows from frames that are in their buffers: write-back, head, statistics and one
//! interrupt decision (manual §3.2.6, §3.2.7).

use csb::at;
use datapath::counters::{count, count_alone};
use intel::Ring;
use lease::{Taken, Ticket};
use model::Env;

use crate::core::chip::Chip;
use crate::core::rx_queue::{Account, Done, RxGuard};
use crate::core::stats::Stat;
use crate::irq::Event;
use crate::regs as r;
use crate::regs::bits::{cause, rctl};
use crate::rx::call::{Call, Rx};
use crate::rx::csb::RxPage;
use crate::rx::writer::Writer;

/// Lists of write-backs kept for the next leases, and how long one may be to be kept.
const SPARE: usize = 8;
const SPARE_LEN: usize = 1024;

/// What is published at once, for one interrupt decision.
#[derive(Debug, Default)]
pub(crate) struct News {
    event: Event,
    published: bool,
    small: bool,
}

/// A lease being filled. A thread that panics while it copies must not leave it open: no reset of the NIC
/// would ever end. What was leased is void then, with all that others have out, for their buffers are
/// behind a hole.
pub(crate) struct Filling<'a> {
    chip: &'a Chip,
    ticket: Option<Ticket>,
    /// Frames that are lost with it.
    frames: u64,
}

impl<'a> Filling<'a> {
    pub(crate) fn new(rx: &Rx<'a, '_>, ticket: Ticket) -> Filling<'a> {
        Filling {
            chip: rx.call.chip,
            ticket: Some(ticket),
            frames: rx.counts.account.frames,
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        let wants = |ticket| self.chip.rx.wants(ticket);
        self.ticket.as_ref().is_some_and(wants)
    }

    /// It is filled.
    pub(crate) fn end(mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut state = self.chip.rx.lock();
        state.void();
        let lost = Done {
            ring: Ring::NONE,
            words: Vec::new(),
            rctl: 0,
            account: Account {
                frames: self.frames,
                ..Account::default()
            },
        };
        state.close(ticket, lost);
        while let Some(Taken::Wanted(done) | Taken::Void(done)) = state.take() {
            forget(self.chip, &mut state, &done);
        }
    }
}

/// Counts what is void.
fn forget(chip: &Chip, state: &mut RxGuard<'_>, done: &Done) {
    count(&chip.counters.rx_disabled, done.account.frames);
    if !state.is_out() {
        state.leased = 0;
    }
}

impl Rx<'_, '_> {
    /// Leases what was planned. `None` when it has to be filled under the lock.
    pub(crate) fn lease(&mut self, state: &mut RxGuard<'_>) -> Option<Ticket> {
        let ticket = state.open()?;
        let filled = self.plan.pieces.len();
        state.leased += self.writer.held() + filled as u32;
        count(&self.call.chip.counters.rx_leased, filled as u64);
        Some(ticket)
    }

    /// Closes a lease, and publishes what is complete.
    pub(crate) fn close(&mut self, env: &Env, state: &mut RxGuard<'_>, ticket: Ticket) {
        let done = self.take_done(state);
        state.close(ticket, done);
        let mut news = News::default();
        self.note(env, state, &mut news);
        self.complete_leases(state, &mut news);
        self.call.raise(env, news);
    }

    /// Writes back what has been filled under the lock, if nothing older is out.
    pub(crate) fn flush(&mut self, state: &RxGuard<'_>) {
        if state.is_out() {
            return;
        }
        let Writer {
            descs,
            room,
            flushed,
            ..
        } = &mut self.writer;
        *flushed += descs.storage.second.len() as u32;
        let faults = descs.flush(room, &self.call.chip.publisher());
        count(&self.call.chip.counters.rx_dma_fault, faults);
    }

    /// Publishes what this call has done under the lock. Once, at the end: what was counted is not
    /// forgotten by it.
    pub(crate) fn finish(&mut self, env: &Env, state: &mut RxGuard<'_>) {
        let mut news = News::default();
        self.note(env, state, &mut news);
        self.flush(state);
        if self.writer.held() > 0 {
            let done = self.take_done(state);
            let n = done.words.len() as u32;
            match state.append(done) {
                Ok(()) => state.leased += n,
                // `begin` gives out no descriptors then.
                Err(done) => self.void(state, done),
            }
        } else {
            let n = std::mem::take(&mut self.writer.flushed);
            let ring = self.writer.ring_from(self.writer.begun);
            self.counts.account.fetched += std::mem::take(&mut self.writer.descs.fetched);
            let call = &self.call;
            call.enter(&self.counts.account, ring, n, call.rctl, &mut news);
        }
        self.call.raise(env, news);
    }

    fn take_done(&mut self, state: &mut RxGuard<'_>) -> Done {
        let spare = state.spare.pop().unwrap_or_default();
        let writer = &mut self.writer;
        let mut account = std::mem::take(&mut self.counts.account);
        account.fetched += std::mem::take(&mut writer.descs.fetched);
        let done = Done {
            ring: writer.ring_from(writer.room.first),
            words: std::mem::replace(&mut writer.descs.storage.second, spare),
            rctl: self.call.rctl,
            account,
        };
        writer.room.first = writer.room.ring.head;
        done
    }

    /// Writes back leases from the front on.
    fn complete_leases(&mut self, state: &mut RxGuard<'_>, news: &mut News) {
        while let Some(taken) = state.take() {
            let done = match taken {
                Taken::Wanted(done) => done,
                Taken::Void(done) => {
                    // All that are out are void with it, and the head stays where it is.
                    self.void(state, done);
                    continue;
                }
            };
            let descs = &mut self.writer.descs;
            let ring = &self.writer.room.ring;
            let by = self.call.chip.publisher();
            let faults = descs.write_back((ring, done.ring.head), &[], &done.words, &by);
            count(&self.call.chip.counters.rx_dma_fault, faults);
            let n = done.words.len() as u32;
            state.leased = state.leased.saturating_sub(n);
            self.call
                .enter(&done.account, done.ring, n, done.rctl, news);
            self.keep(state, done.words);
        }
    }

    /// Forgets what a reset, or a driver that stopped the receiver, made void.
    fn void(&mut self, state: &mut RxGuard<'_>, done: Done) {
        forget(self.call.chip, state, &done);
        self.keep(state, done.words);
    }

    fn keep(&self, state: &mut RxGuard<'_>, mut words: Vec<u64>) {
        if state.spare.len() < SPARE && words.capacity() <= SPARE_LEN {
            words.clear();
            state.spare.push(words);
        }
    }

    /// What this call did to the FIFO and to the sender of pause frames.
    fn note(&mut self, env: &Env, state: &mut RxGuard<'_>, news: &mut News) {
        let chip = self.call.chip;
        let moved = std::mem::take(&mut self.counts.moved);
        let missed = self.counts.account.missed > 0;
        let waited = std::mem::take(&mut self.counts.waited);
        if waited > 0 && self.writer.rationed > 0 {
            // There are buffers: the guest does not hear otherwise.
            count_alone(&chip.counters.rx_rationed, waited);
        } else if waited > 0 {
            count_alone(&chip.counters.rx_no_buffer, waited);
            self.counts.account.tally.add(Stat::Rnbc, waited);
        }
        if moved {
            state.fifo.show(&chip.file);
        }
        if (moved || missed) && chip.flow.watch(&chip.file, &state.fifo, missed) {
            chip.irq.lock().set_look(env, env.clock.now());
        }
        if let Some(quanta) = self.counts.pause.take().filter(|_| chip.obey_pause) {
            let at = chip.flow.obey(env, quanta);
            chip.irq.lock().set_look(env, at);
        }
        news.look(chip);
    }
}

impl News {
    /// With these delays, RDTR's and RADV's.
    #[inline]
    pub(crate) fn with_delays((packet, absolute): (u32, u32)) -> News {
        News {
            event: Event {
                packet,
                absolute,
                ..Event::default()
            },
            ..News::default()
        }
    }

    /// Looks at the delay timers.
    #[inline]
    pub(crate) fn look(&mut self, chip: &Chip) {
        self.event.packet = chip.file.get(r::RDTR);
        self.event.absolute = chip.file.get(r::RADV);
    }
}

impl Call<'_, '_> {
    /// Enters counts that have become true, and moves the head over `n` descriptors of `ring`.
    fn enter(&self, account: &Account, ring: Ring, n: u32, rctl: u32, news: &mut News) {
        let chip = self.chip;
        let counters = &chip.counters;
        chip.stats.add(&account.tally);
        count_alone(&counters.rx_desc_fetched, account.fetched);
        count_alone(&counters.rx_frames, account.frames);
        count_alone(&counters.rx_bytes, account.bytes);
        count_alone(&counters.rx_missed, account.missed);
        count_alone(&counters.rx_filtered, account.filtered);
        if account.missed > 0 {
            news.event.now |= cause::RXO;
        }
        if n > 0 {
            chip.file.set(r::RDH, ring.behind(n));
            news.publish((ring, n), rctl, account.small);
        }
    }

    /// One interrupt decision.
    fn raise(&self, env: &Env, news: News) {
        raise((self.chip, env), self.page.as_ref(), news);
    }
}

impl News {
    /// Frames have been given to the guest in `n` descriptors from the head of `ring` on; `small`: one is not longer than RSRPD.
    #[inline]
    pub(crate) fn publish(&mut self, (ring, n): (Ring, u32), rctl: u32, small: bool) {
        self.published = true;
        self.small |= small;
        let before = ring.available();
        let left = before.saturating_sub(n);
        self.event.filled += n;
        self.event.left = left;
        if is_low(&ring, rctl, (before, left)) {
            self.event.now |= cause::RXDMT0;
        }
    }
}

/// Whether no more descriptors of a ring are left than RCTL.RDMTS says, and there were more `before`.
#[inline]
pub(crate) fn is_low(ring: &Ring, rctl: u32, (before, left): (u32, u32)) -> bool {
    // 1/2, 1/4 or 1/8 of the ring (manual §13.4.22); 11b is reserved.
    let threshold = ring.len >> ((rctl >> rctl::RDMTS_SHIFT & rctl::RDMTS) + 1);
    left <= threshold && before > threshold
}

/// One interrupt decision.
#[inline]
pub(crate) fn raise((chip, env): (&Chip, &Env), page: Option<&RxPage<'_>>, news: News) {
    let mut event = news.event;
    let page = page.and_then(|page| page.wanted());
    if news.published {
        event.wanted = page.map(|page| page.received(chip.file.get(r::RDH)));
        if event.packet == 0 || event.wanted == Some(false) {
            event.now |= cause::RXT0;
        } else {
            event.delayed = true;
        }
        if news.small {
            event.now |= cause::SRPD | cause::RXT0;
        }
    }
    if event.now != 0 || event.delayed {
        let causes = {
            let mut irq = chip.irq.lock();
            let causes = irq.received(env, &event);
            chip.allow(&irq);
            causes
        };
        if let Some(page) = page {
            page.store(at::HOST_ISR, causes);
        }
    }
}
