//! What of a packed ring outlives the process: see [`crate::core::kept`].

use datapath::kept::Step;
use guest_mem::View;

use super::{Cursor, DESC, Packed, USED};
use crate::core::kept::{KeptRing, Pieces, Stand, Steps};
use crate::core::place::{Broken, Place, Position};

impl Packed {
    /// See [`Ring::keep`](crate::core::ring::Ring::keep).
    pub fn keep(&mut self, kept: KeptRing) {
        self.kept = Some(kept);
    }

    /// See [`Ring::delivers`](crate::core::ring::Ring::delivers).
    #[inline]
    pub fn delivers(&self) {
        if let Some(kept) = &self.kept {
            kept.put(Stand {
                from: self.shown.0,
                end: self.next.0,
                slots: 0,
            });
        }
    }

    /// See [`Ring::one_frame`](crate::core::ring::Ring::one_frame).
    #[inline]
    pub fn one_frame(&mut self, buffers: u16) {
        if self.kept.is_some() && buffers > 1 {
            let n = usize::from(buffers);
            self.frames.push((self.used.len().saturating_sub(n), n));
        }
    }

    /// Where a ring at this place has come to: from where its word has it, up to where a descriptor is not used in this lap. No
    /// further than what was taken: behind that, what the driver left in the lap before looks as what it gives in the next. `None`: the
    /// word is none that a ring leaves.
    pub fn found(view: &View<'_>, place: Place, kept: &KeptRing) -> Option<Position> {
        let Stand { from, end, slots } = kept.stand();
        let size = place.size;
        let (mut cursor, end) = (Cursor(from), Cursor(end));
        if cursor.index() >= size || end.index() >= size || slots > size {
            return None;
        }
        let at = |cursor: Cursor| place.desc + DESC * u64::from(cursor.index());
        let is_used = |cursor: Cursor| {
            let tail = Self::tail(view, at(cursor));
            tail.is_ok_and(|(_, _, flags)| (flags & USED != 0) == cursor.wrap())
        };
        if slots > 0 && is_used(cursor) {
            // All of its slots, or none.
            cursor = cursor.on(slots, size);
        }
        for _ in 0..end.since(cursor, size) {
            if !is_used(cursor) {
                break;
            }
            cursor = cursor.on(1, size);
        }
        Some(Position {
            next: cursor.0,
            used: cursor.0,
            told: cursor.0,
            resumed: true,
        })
    }

    /// Slots from the next on up to the place `end`; 0: it is none that a ring has come to.
    pub fn until(&self, end: u16) -> u16 {
        let end = Cursor(end);
        match end.index() < self.place.size {
            true => end.since(self.next, self.place.size),
            false => 0,
        }
    }

    /// Whether the driver was given some buffers of a frame and not the next: the bytes in the last of them.
    pub fn left_of_frame(&self) -> Option<u32> {
        let Pieces { from, end, last } = self.kept.as_ref()?.pieces();
        let (size, inside) = (self.place.size, |at: u16| {
            Cursor(at).index() < self.place.size
        });
        if !inside(from) || !inside(end) {
            return None;
        }
        let all = Cursor(end).since(Cursor(from), size);
        let done = self.next.since(Cursor(from), size);
        (0 < done && done < all).then_some(last)
    }

    /// Says where what is used ends, if that has not been said: nothing of it was delivered, it was received or dropped.
    fn say_end(&self, kept: &KeptRing) {
        let size = self.place.size;
        let said = Cursor(kept.stand().end).since(self.shown, size);
        if said < self.next.since(self.shown, size) {
            self.delivers();
        }
    }

    /// As [`Self::write_in_order`], in one pass, where the words have nothing to say of any of the descriptors. `None`: they may have.
    #[inline(never)]
    pub(super) fn write_ones_in_order(&self, view: &View<'_>, kept: &KeptRing) -> Option<Cursor> {
        if !self.frames.is_empty() {
            return None;
        }
        self.say_end(kept);
        let cursor = self.write_ones(view, false)?;
        kept.put(Stand {
            from: cursor.0,
            end: kept.stand().end,
            slots: 0,
        });
        Some(cursor)
    }

    /// Writes what is used, each descriptor behind those before it, so that another process finds out how far it has come.
    #[inline(never)]
    pub(super) fn write_in_order(
        &mut self,
        view: &View<'_>,
        kept: &KeptRing,
    ) -> Result<Cursor, Broken> {
        let size = self.place.size;
        self.say_end(kept);
        let end = kept.stand().end;
        let stand = |at: Cursor, slots| {
            kept.put(Stand {
                from: at.0,
                end,
                slots,
            })
        };
        let frames = std::mem::take(&mut self.frames);
        let mut frames_left = &frames[..];
        // Buffers so far, and those left of a frame.
        let (mut at, mut left) = (0, 0);
        let cursor = self.each_used(|cursor, used, flags| {
            let begins = frames_left
                .split_first()
                .filter(|((first, _), _)| *first == at);
            if let Some(((_, n), behind)) = begins {
                let buffers = &self.used[at..at + n];
                let slots = buffers.iter().map(|used| used.slots).sum();
                kept.put_pieces(Pieces {
                    from: cursor.0,
                    end: cursor.on(slots, size).0,
                    last: buffers.last().map_or(0, |used| used.len),
                });
                (frames_left, left) = (behind, *n);
            }
            at += 1;
            if used.slots > 1 {
                stand(cursor, used.slots);
            }
            Steps::step();
            view.write_release(self.at(cursor) + 8, &Self::used_bytes(used, flags))?;
            if used.slots > 1 {
                stand(cursor.on(used.slots, size), 0);
            }
            if left > 0 {
                left -= 1;
                if left == 0 {
                    kept.put_pieces(Pieces::default());
                }
            }
            Ok::<_, Broken>(())
        })?;
        stand(cursor, 0);
        self.frames = frames;
        self.frames.clear();
        Ok(cursor)
    }
}
