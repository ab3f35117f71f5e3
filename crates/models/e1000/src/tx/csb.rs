//! The transmitter and the Communication Status Block: when it polls and when it sleeps.

use std::sync::atomic::Ordering;

use csb::at;
use datapath::counters::count_alone;
use datapath::csb::{self as rules, CsbPage, End};
use guest_mem::View;
use intel::SIZE;
use model::{Env, Watch};

use crate::core::chip::Chip;
use crate::core::csb::TxCsb;
use crate::core::kept;
use crate::regs as r;

impl TxCsb {
    /// Before anything is sent: the guest need not call any more.
    #[inline]
    pub(crate) fn begin<'v>(
        &mut self,
        chip: &Chip,
        env: &Env,
        view: &'v View<'_>,
    ) -> Option<CsbPage<'v>> {
        let page = chip.csb_page(env, view)?;
        if chip.passes_over.load(Ordering::Relaxed) {
            return None;
        }
        self.watch = Watch::Off;
        self.begin_with((chip, env), page)
    }

    #[inline(never)]
    fn begin_with<'v>(
        &mut self,
        (chip, env): (&Chip, &Env),
        page: CsbPage<'v>,
    ) -> Option<CsbPage<'v>> {
        let on = chip.csb_wants(env, &page);
        let most = chip.csb.most_poll;
        self.rules.begin(&page, (on, most), || env.clock.now());
        if !on {
            return None;
        }
        count_alone(&chip.counters.csb_tx_rounds, 1);
        chip.csb_ask(env, &page);
        self.head = chip.file.get(r::TDH);
        Some(page)
    }

    /// All that could be done is done. Whether the transmitter goes on looking: because of news, or to
    /// poll for some.
    #[inline(never)]
    pub(crate) fn end(&mut self, chip: &Chip, env: &Env, page: &CsbPage<'_>) -> bool {
        let len = chip.file.get(r::TDLEN) / SIZE as u32;
        let head = chip.file.get(r::TDH);
        let sent = match head.checked_sub(self.head) {
            Some(sent) => sent,
            None => head.wrapping_sub(self.head).wrapping_add(len),
        };
        count_alone(&chip.counters.csb_tx_polls, u64::from(sent == 0));
        let known = self.rules.tail;
        let news = || {
            let tail = page.tail(&chip.counters.csb_bad_tail, at::GUEST_TDT, len);
            chip.tx_enabled() && tail.is_some_and(|tail| tail != known)
        };
        let now = || env.clock.now();
        match (self.rules).end(page, (sent, chip.tx_enabled()), now, news) {
            End::Polls { found } => {
                self.watch = if found { Watch::Found } else { Watch::Vain };
                true
            }
            End::News => true,
            End::Sleeps { again } => {
                count_alone(&chip.counters.csb_tx_sleeps, 1);
                if again {
                    let at = env.clock.now() + rules::TxCsb::SECOND_LOOK;
                    chip.irq.lock().set_second_look(env, at);
                }
                false
            }
        }
    }

    /// Takes the guest's word for where the ring ends; the register follows.
    pub(crate) fn take_tail(&mut self, chip: &Chip, page: &CsbPage<'_>) {
        let len = chip.file.get(r::TDLEN) / SIZE as u32;
        if let Some(tail) = page.tail(&chip.counters.csb_bad_tail, at::GUEST_TDT, len) {
            self.rules.tail = tail;
            chip.file.set(r::TDT, tail);
            chip.note_word(kept::TDT, tail);
        }
    }
}
