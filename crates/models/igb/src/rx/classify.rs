//! Classifies frames of a PF for the fast path: whether a frame gets in, and into which queue.
//!
//! The results are those of the general way ([`crate::rx::l2_filter`], [`crate::filter::rss`]). What depends on the
//! destination only is cached from frame to frame.

use std::cell::Cell;

use frame::Frame;
use wire::ETHERNET_HEADER;

use crate::core::function::FunctionKind;
use crate::filter::address::FILTERS;
use crate::filter::headers::Headers;
use crate::filter::rss;
use crate::filter::rss::{Class, Hashed};
use crate::filter::tuple::Filters;
use crate::regs as r;
use crate::regs::pools;
use crate::rx::call::Call;

/// The class of a frame that gets in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classified {
    pub class: Class,
    /// Only the multicast table let it in.
    pub inexact: bool,
}

/// What depends on the destination only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    address: [u8; 6],
    passes: bool,
    inexact: bool,
    /// If the PF has pools, the one it is for.
    pool: Option<u32>,
}

/// Classifies the frames of one call.
pub(crate) struct Classifier {
    pub hashed: Hashed,
    pub filters: Filters,
    /// The destination classified last.
    known: Option<Destination>,
    /// The classes of the frames that the fast path has buffers for.
    pub classified: Vec<Classified>,
}

thread_local! {
    /// Storage kept from call to call.
    static CLASSIFIED: Cell<Vec<Classified>> = const { Cell::new(Vec::new()) };
}

impl Classifier {
    pub(crate) fn new(call: &Call<'_>) -> Self {
        let (filters, classified) = match call.function.kind {
            FunctionKind::Pf => {
                let filters = Filters::of(&call.function.file, call.settings.rfctl);
                (filters, CLASSIFIED.take())
            }
            FunctionKind::Vf(_) => (Filters::default(), Vec::new()),
        };
        Classifier {
            hashed: Hashed::default(),
            known: None,
            filters,
            classified,
        }
    }

    /// Gives the storage back.
    pub(crate) fn end(self) {
        if self.classified.capacity() > 0 {
            CLASSIFIED.set(self.classified);
        }
    }

    pub(crate) fn class(&mut self, call: &Call<'_>, headers: &Headers, len: usize) -> Class {
        let rfctl = call.settings.rfctl;
        match &call.function.kind {
            FunctionKind::Pf => {
                let (file, pools) = (&call.function.file, call.settings.pools);
                let settings = (rfctl, &self.filters);
                let pool = pools.map(|first| {
                    let dst = headers.bytes().first_chunk().copied().unwrap_or_default();
                    (first, pools::own_pool(file, first, dst))
                });
                rss::classify(file, settings, (headers, len), pool, &mut self.hashed)
            }
            FunctionKind::Vf(_) => rss::plain(headers, rfctl),
        }
    }

    /// Classifies a frame without a tag. `None`: it is not for the fast path.
    #[inline]
    pub(crate) fn classify(&mut self, call: &Call<'_>, frame: &Frame<'_>) -> Option<Classified> {
        let file = &call.function.file;
        let head: &[u8; ETHERNET_HEADER] = frame.head().first_chunk()?;
        let kind = u16::from_be_bytes([head[12], head[13]]);
        if call.obeys && u32::from(kind) == file.get(r::FCT) {
            return None;
        }
        let to = self.destination(call, *head.first_chunk()?);
        if !to.passes {
            return None;
        }
        let quick = match self.filters.is_empty() {
            true => rss::at_a_glance(file, frame, to.pool, &mut self.hashed),
            false => None,
        };
        let class = quick.unwrap_or_else(|| self.class(call, &Headers::of(frame), frame.len()));
        Some(Classified {
            class,
            inexact: to.inexact,
        })
    }

    /// Whether all IP packets to the last destination are for one queue.
    pub(crate) fn is_the_same_for_ip(&self, call: &Call<'_>) -> bool {
        let file = &call.function.file;
        let pool = self.known.and_then(|known| known.pool);
        self.filters.is_empty() && !rss::spreads(file, file.get(r::MRQC), pool)
    }

    fn destination(&mut self, call: &Call<'_>, address: [u8; 6]) -> Destination {
        if let Some(known) = self.known.filter(|known| known.address == address) {
            return known;
        }
        let file = &call.function.file;
        let rctl = file.get(r::RCTL);
        let found = match call.settings.pools {
            // The switch has let it in.
            Some(first) => Destination {
                address,
                passes: true,
                inexact: false,
                pool: Some(pools::own_pool(file, first, address)),
            },
            None => Destination {
                address,
                passes: FILTERS.address(file, rctl, address),
                inexact: FILTERS.inexact(file, rctl, address),
                pool: None,
            },
        };
        self.known = Some(found);
        found
    }
}
