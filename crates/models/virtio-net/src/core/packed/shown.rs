//! How the driver is shown what is used.

use datapath::kept::Step;
use guest_mem::{View, WriteWindow};

use super::{AVAIL, Cursor, DESC, Packed, USED, Used, WRITE};
use crate::core::journal::Journal;
use crate::core::kept::Steps;
use crate::core::place::Broken;

/// Most used descriptors written together.
const AHEAD: usize = 64;

/// Stores words of descriptors, one behind the other.
#[inline(always)]
fn store(window: &WriteWindow<'_>, at: u64, words: &[u64]) -> bool {
    if !cfg!(test) {
        return window.store_words(at, DESC as usize, words);
    }
    // Each is a step at which a test lets the process die.
    let each = |(n, word): (usize, &u64)| {
        Steps::step();
        window.store_words(at + DESC * n as u64, DESC as usize, &[*word])
    };
    words.iter().enumerate().all(each)
}

impl Packed {
    /// What is used and not shown, as it is to be written: where, what, and for how many slots. Gives where it ends.
    #[inline(always)]
    pub(super) fn each_used<E>(
        &self,
        mut each: impl FnMut(Cursor, Used, u16) -> Result<(), E>,
    ) -> Result<Cursor, E> {
        let mut cursor = self.shown;
        let mut rest = &self.used[..];
        while let Some((&used, behind)) = rest.split_first() {
            rest = behind;
            let mut used = used;
            while self.format.in_order
                && let Some((next, behind)) = rest.split_first()
                && used.len | next.len == 0
            {
                // The last stands for all of a run in which nothing was written, where the first is (§2.8.9).
                rest = behind;
                used.id = next.id;
                used.slots += next.slots;
            }
            let mut flags = if cursor.wrap() { AVAIL | USED } else { 0 };
            if used.len > 0 {
                flags |= WRITE;
            }
            each(cursor, used, flags)?;
            cursor = cursor.on(used.slots, self.place.size);
        }
        Ok(cursor)
    }

    /// Tells of what is about to be shown.
    fn tell(&self, journal: &dyn Journal) {
        let each = |cursor: Cursor, used: Used, flags| {
            journal.note(cursor.index(), (used.id, used.len, flags), used.slots);
            Ok(())
        };
        let end: Result<_, std::convert::Infallible> = self.each_used(each);
        let Ok(end) = end;
        journal.commit(self.shown.0, end.0);
    }

    /// See [`Ring::show`](super::super::ring::Ring::show).
    pub fn show(&mut self, view: &View<'_>) -> Result<u32, Broken> {
        let first = self.shown;
        if let Some(journal) = self.journal.as_deref().filter(|_| !self.used.is_empty()) {
            self.tell(journal);
        }
        if let Some(kept) = self.kept.clone() {
            // For one it costs more.
            if self.used.len() > 1
                && let Some(cursor) = self.write_ones_in_order(view, &kept)
            {
                return Ok(self.shown_up_to(cursor));
            }
            let cursor = self.write_in_order(view, &kept)?;
            return Ok(self.shown_up_to(cursor));
        }
        if let Some(cursor) = self.write_ones(view, true) {
            if let Some(journal) = self.journal.as_deref().filter(|_| cursor != first) {
                journal.commit(cursor.0, cursor.0);
            }
            return Ok(self.shown_up_to(cursor));
        }
        let mut head = None;
        let cursor = self.each_used(|cursor, used, flags| {
            let bytes = Self::used_bytes(used, flags);
            // The driver looks at them in order: behind the first it sees none before that.
            if head.is_none() {
                head = Some(bytes);
                return Ok(());
            }
            view.write(self.at(cursor) + 8, &bytes)
        })?;
        if let Some(bytes) = head {
            view.write_release(self.at(first) + 8, &bytes)?;
            if let Some(journal) = &self.journal {
                journal.commit(cursor.0, cursor.0);
            }
        }
        Ok(self.shown_up_to(cursor))
    }

    /// Writes what is used in one pass, if there are several, each is a descriptor, and all lie in one region: in order, or (`first_last`) the first of
    /// them last, behind which the driver sees none before. Gives where it ends. `None`: nothing is to be seen yet.
    #[inline(always)]
    pub(super) fn write_ones(&self, view: &View<'_>, first_last: bool) -> Option<Cursor> {
        if self.used.len() < 2 {
            return None;
        }
        let first = self.at(self.shown) + 8;
        let window = view.write_window(first)?;
        let one = |used: &Used| used.slots == 1 && !(self.format.in_order && used.len == 0);
        if !self.used.iter().all(one) {
            return None;
        }
        // In order, none may be written twice: the driver has those before it by then.
        let ring = DESC as usize * usize::from(self.place.size);
        if !first_last && !window.covers(self.place.desc, ring) {
            return None;
        }
        let (mut cursor, mut rest, mut head) = (self.shown, &self.used[..], None);
        let mut words = [0; AHEAD];
        while !rest.is_empty() {
            let straight = usize::from(self.place.size - cursor.index());
            let (now, behind) = rest.split_at(rest.len().min(straight).min(AHEAD));
            let there = if cursor.wrap() { AVAIL | USED } else { 0 };
            for (word, used) in words.iter_mut().zip(now) {
                let flags = there | if used.len > 0 { WRITE } else { 0 };
                *word = Self::used_word(*used, flags);
            }
            let at = self.at(cursor) + 8;
            let (at, words) = match head {
                None if first_last => {
                    head = Some(words[0]);
                    (at + DESC, &words[1..now.len()])
                }
                _ => (at, &words[..now.len()]),
            };
            if !words.is_empty() && !store(&window, at, words) {
                return None;
            }
            cursor = cursor.on(now.len() as u16, self.place.size);
            rest = behind;
        }
        let shown = head.is_none_or(|head| store(&window, first, &[head]));
        shown.then_some(cursor)
    }

    /// A used descriptor behind its address.
    #[inline(always)]
    pub(super) fn used_bytes(used: Used, flags: u16) -> [u8; 8] {
        Self::used_word(used, flags).to_le_bytes()
    }

    #[inline(always)]
    fn used_word(used: Used, flags: u16) -> u64 {
        u64::from(used.len) | u64::from(used.id) << 32 | u64::from(flags) << 48
    }

    /// All that is used is written, up to this place. Returns how many buffers that are.
    #[inline(always)]
    fn shown_up_to(&mut self, cursor: Cursor) -> u32 {
        let size = self.place.size;
        let slots = cursor.since(self.shown, size);
        self.held -= slots;
        let shown = self.used.len();
        self.first = self.behind(self.first, shown as u16);
        self.used.clear();
        self.shown = cursor;
        // A ring and more: every event lies behind it.
        self.untold = self.untold.saturating_add(slots).min(size);
        shown as u32
    }
}
