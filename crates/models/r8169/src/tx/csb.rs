//! The transmitter and the Communication Status Block: when it polls and when it sleeps.
//!
//! What the block says of tails only calls: which descriptors are the chip's, OWN says.

use ::csb::at;
use datapath::counters::count_alone;
use datapath::csb::{CsbPage, End, TxCsb};
use guest_mem::View;
use model::{Env, Watch};

use crate::core::chip::Chip;
use crate::core::queues::TxState;
use crate::irq::Sent;

/// Before anything is sent: the guest need not call any more.
#[inline]
pub(super) fn begin<'v>(
    chip: &Chip,
    env: &Env,
    view: &'v View<'_>,
    state: &mut TxState,
) -> Option<CsbPage<'v>> {
    let page = chip.csb_page(env, view)?;
    begin_with((chip, env), page, state)
}

#[inline(never)]
fn begin_with<'v>(
    (chip, env): (&Chip, &Env),
    page: CsbPage<'v>,
    state: &mut TxState,
) -> Option<CsbPage<'v>> {
    let on = chip.csb_wants(env, &page);
    let most = chip.csb.most_poll;
    (state.csb).begin(&page, (on, most), || env.clock.now());
    if !on {
        return None;
    }
    count_alone(&chip.counters.csb_tx_rounds, 1);
    chip.csb_ask(env, &page);
    // Read before the ring is: what is published later is news.
    if let Some(tail) = page.tail(&chip.counters.csb_bad_tail, at::GUEST_TDT, state.ring()) {
        state.csb.tail = tail;
    }
    Some(page)
}

/// All that could be done is done. Whether the transmitter goes on looking, and how: because of news, or to poll for some.
#[inline(never)]
pub(super) fn end(
    chip: &Chip,
    env: &Env,
    page: &CsbPage<'_>,
    state: &mut TxState,
) -> (bool, Watch) {
    let (known, ring) = (state.csb.tail, state.ring());
    count_alone(&chip.counters.csb_tx_polls, u64::from(state.given == 0));
    let news = || {
        let tail = page.tail(&chip.counters.csb_bad_tail, at::GUEST_TDT, ring);
        chip.tx_on() && tail.is_some_and(|tail| tail != known)
    };
    let now = || env.clock.now();
    match (state.csb).end(page, (state.given, chip.tx_on()), now, news) {
        End::Polls { found: true } => (true, Watch::Found),
        End::Polls { found: false } => (true, Watch::Vain),
        End::News => (true, Watch::Off),
        End::Sleeps { again } => {
            count_alone(&chip.counters.csb_tx_sleeps, 1);
            if again {
                let at = env.clock.now() + TxCsb::SECOND_LOOK;
                chip.irq.lock().set_second_look(env, at);
            }
            (false, Watch::Off)
        }
    }
}

/// Packets were sent up to the descriptor before the next one: one interrupt decision.
pub(super) fn told(
    (chip, env): (&Chip, &Env),
    page: Option<CsbPage<'_>>,
    state: &TxState,
    mut sent: Sent,
) {
    sent.ring = state.ring();
    sent.wanted = page.map(|page| page.sent(state.next));
    let causes = chip.irq.lock().sent(env, sent);
    if let Some(page) = page {
        page.store(at::HOST_ISR, causes.into());
    }
}
