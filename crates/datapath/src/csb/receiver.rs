//! When a guest is to call for buffers that it gives back.

use ::csb::{Word, at};

use crate::csb::page::CsbPage;

/// What a receiver remembers of the block, behind its lock.
#[derive(Debug, Default)]
pub struct RxCsb {
    /// The page that the rest is about; none so far.
    epoch: Option<u32>,
    /// Where the guest was asked to call; [`::csb::NONE`] for nowhere, and none for what is not known.
    asked: Option<u32>,
}

/// What was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Buffers have come meanwhile.
    pub news: bool,
    /// The guest is asked to call at another place than before.
    pub asks: bool,
}

impl RxCsb {
    /// Something waits for buffers of a ring with this tail, so many of which are `available`, and of this length, or (`None`)
    /// nothing does: the guest is to call, or not. `news` looks once more. Under the receive lock.
    pub fn settle(
        &mut self,
        page: &CsbPage<'_>,
        short: Option<(u32, u32, u32)>,
        news: impl FnOnce() -> bool,
    ) -> Settled {
        if self.epoch != Some(page.epoch) {
            self.epoch = Some(page.epoch);
            self.asked = None;
        }
        let flag = page.word(at::HOST_RXKICK_AT);
        let Some((tail, available, len)) = short else {
            if self.asked != Some(::csb::NONE) {
                self.asked = Some(::csb::NONE);
                flag.store(::csb::NONE);
            }
            return Settled {
                news: false,
                asks: false,
            };
        };
        let place = ::csb::rx_kick_at(tail, available, len);
        let slept = ::csb::sleep(&flag, place, ::csb::NONE, news);
        let asked = Some(if slept { place } else { ::csb::NONE });
        let asks = slept && self.asked != asked;
        self.asked = asked;
        Settled { news: !slept, asks }
    }
}
