//! One call of the receiver: what it has looked up, planned and counted so far.

use std::cell::Cell;

use frame::Caps;
use guest_mem::{View, WriteSlice, WriteWindow};
use intel::flow::RFCE;
use intel::{Fetcher, Ring};
use model::Env;

use crate::core::chip::Chip;
use crate::core::rx_queue::{Account, RxGuard};
use crate::core::stats::Group;
use crate::regs as r;
use crate::regs::bits::ctrl;
use crate::rx::csb::RxPage;

/// What may stay unfinished of a frame: a sum is computed while the frame is copied, and a tag goes
/// beside it or is put in then.
pub(crate) const TAKES: Caps = Caps {
    csum: true,
    vlan: true,
    ..Caps::NONE
};

/// Storage kept from call to call. Borrowed slices are bound to a thread, so the storage is too.
#[derive(Default)]
pub(crate) struct Scratch<'v> {
    /// Buffers planned and not filled yet.
    pub pieces: Vec<Piece<'v>>,
    /// The second words of descriptors filled and not written back yet.
    pub words: Vec<u64>,
    /// Room for the copy of a frame that something is computed of before it goes to the guest.
    pub copy: Vec<u8>,
    pub fetcher: Option<Box<Fetcher>>,
}

impl Scratch<'_> {
    /// Empties it for use with another lifetime, keeping its storage.
    fn recycle<'n>(mut self) -> Scratch<'n> {
        self.pieces.clear();
        self.words.clear();
        Scratch {
            // Collecting an emptied Vec in place keeps its allocation.
            pieces: self
                .pieces
                .into_iter()
                .map(|_| unreachable!("emptied above"))
                .collect(),
            words: self.words,
            copy: self.copy,
            fetcher: self.fetcher,
        }
    }
}

thread_local! {
    static SCRATCH: Cell<Scratch<'static>> = Cell::default();
}

/// A buffer, and what goes into it.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'v> {
    pub to: WriteSlice<'v>,
    /// The frame's place in its batch.
    pub pick: u16,
    /// Status bits beside those of the verdict.
    pub status: u8,
    /// The frame goes on in the next one.
    pub more: bool,
}

/// What the filters say of one destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// `None`: of none yet.
    pub dst: Option<[u8; 6]>,
    pub passes: bool,
    pub status: u8,
    pub group: Group,
}

/// What became of a frame.
pub(crate) enum Outcome {
    Done,
    /// Dropped and counted.
    Lost,
    NoRoom,
}

/// Descriptors of `ring` that are not given out.
pub(crate) fn unused(state: &mut RxGuard<'_>, ring: &Ring) -> u32 {
    if state.is_out() && state.is_full() {
        0
    } else {
        ring.available().saturating_sub(state.leased)
    }
}

/// One call's worth of receiving.
pub(crate) struct Rx<'a, 'v> {
    pub chip: &'a Chip,
    pub view: &'v View<'v>,
    /// The guest's CSB.
    pub page: Option<RxPage<'v>>,
    pub scratch: Scratch<'v>,
    /// Where the last buffer was, and the last descriptor.
    pub window: Option<WriteWindow<'v>>,
    pub ring_window: Option<WriteWindow<'v>>,
    /// Its head is the next descriptor to be filled.
    pub ring: Ring,
    /// The first descriptor of those taken since the lock was taken.
    pub begun: u32,
    /// The first of those not written back.
    pub first: u32,
    /// Written back, while RDH does not say so yet.
    pub flushed: u32,
    /// Descriptors left.
    pub free: u32,
    /// Frames still to come in this call.
    pub expected: usize,
    pub rctl: u32,
    pub vme: bool,
    pub vet: u16,
    pub rxcsum: u32,
    pub rsrpd: usize,
    /// CTRL.RFCE: pause frames are told from others.
    pub obeys: bool,
    pub account: Account,
    pub waited: u64,
    /// Descriptors that are kept back, to leave the guest time.
    pub rationed: u32,
    /// The FIFO's registers are no longer true.
    pub moved: bool,
    /// What the last pause frame asked for.
    pub pause: Option<u16>,
    /// What the filters say of the destination seen last.
    pub run: Run,
}

impl<'a, 'v> Rx<'a, 'v> {
    pub(crate) fn new(chip: &'a Chip, view: &'v View<'v>) -> Self {
        Rx {
            chip,
            view,
            page: None,
            scratch: SCRATCH.take().recycle(),
            window: None,
            ring_window: None,
            ring: Ring::NONE,
            begun: 0,
            first: 0,
            flushed: 0,
            free: 0,
            expected: 1,
            rctl: 0,
            vme: false,
            vet: 0,
            rxcsum: 0,
            rsrpd: 0,
            obeys: false,
            account: Account::default(),
            waited: 0,
            rationed: 0,
            moved: false,
            pause: None,
            run: Run::default(),
        }
    }

    /// The ring's tail is where the guest's CSB has it, if there is one.
    #[inline]
    pub(crate) fn take_tail(&self) {
        if let Some(page) = &self.page {
            page.take_tail(self.chip);
        }
    }

    /// Whether something is `short` of buffers, told to the guest by its CSB. `true`: some have come, and
    /// all is ready for another round.
    pub(crate) fn settle(&mut self, env: &Env, state: &mut RxGuard<'_>, short: bool) -> bool {
        let Some(page) = &self.page else {
            return false;
        };
        let again = page.settle(self.chip, env, &mut state.csb, short);
        if again {
            self.account = Account::default();
        }
        again
    }

    /// Looks at the registers, with the lock just taken.
    pub(crate) fn begin(&mut self, state: &mut RxGuard<'_>, ring: Ring) {
        let file = &self.chip.file;
        let unused = unused(state, &ring);
        self.free = unused.min(self.chip.allowance());
        self.rationed = unused - self.free;
        self.ring = Ring {
            head: ring.behind(state.leased),
            ..ring
        };
        self.begun = self.ring.head;
        self.first = self.ring.head;
        if let Some(fetcher) = &mut self.scratch.fetcher {
            fetcher.forget();
        }
        let ctrl = file.get(r::CTRL);
        self.rctl = file.get(r::RCTL);
        self.vme = ctrl & ctrl::VME != 0;
        self.obeys = ctrl & RFCE != 0;
        self.vet = file.get(r::VET) as u16;
        self.rxcsum = file.get(r::RXCSUM);
        self.rsrpd = file.get(r::RSRPD) as usize;
        self.run = Run::default();
    }

    /// Gives the storage back.
    pub(crate) fn end(self) {
        SCRATCH.set(self.scratch.recycle());
    }
}
