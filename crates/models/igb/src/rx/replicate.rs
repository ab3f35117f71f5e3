//! Puts a frame into the queues of all pools of a PF that get it (§7.10.3), from the wire or from another pool.
//!
//! If there are VFs, the switch between the functions has already decided that the PF gets the frame. If the
//! PF then has one pool only, no pool is looked for.

#[cfg(test)]
mod tests;

use datapath::buffers_for;
use frame::{Batch, Frame};
use intel::rx::Accepted;

use crate::core::function::count;
use crate::filter::headers::Headers;
use crate::filter::pools::{ALL, of_frame};
use crate::filter::rss;
use crate::filter::rss::Class;
use crate::regs as r;
use crate::regs::pools;
use crate::regs::pools::POOLS;
use crate::regs::settings::Settings;
use crate::rx::enqueue::Rx;
use crate::rx::write::Packet;
use crate::rx::writer::Outcome;

/// Queues that get a frame, one per pool at most, with its class there.
type Places = [Option<(u32, Class)>; POOLS as usize];

impl Rx<'_, '_> {
    /// Queues that get a frame, with its class there.
    fn places(&mut self, frame: &Frame<'_>) -> Places {
        let file = &self.call.function.file;
        let accepted = self.call.look(frame);
        let first = self.call.settings.pools.unwrap_or(0);
        let mut found = match self.call.inside {
            Some(pools) => pools,
            None => of_frame(file, accepted.dst, accepted.tag) & (ALL >> first << first),
        };
        if found == 0 && first > 0 {
            // The switch has let it in although no pool asks for it: it is a mirrored copy.
            found = 1 << pools::own_pool(file, first, accepted.dst);
        }
        let special = accepted
            .control
            .is_some_and(|c| c.is_passed(file.get(r::RCTL)));
        if special && found == 0 {
            found = pools::default(file).map_or(0, |pool| 1 << pool) & file.get(r::VFRE);
        }
        let headers = Headers::of(frame);
        let mut places = [None; POOLS as usize];
        let mut chosen = false;
        for (pool, place) in (0..POOLS).zip(&mut places) {
            if found >> pool & 1 == 0 || chosen {
                continue;
            }
            let settings = (self.call.settings.rfctl, &self.classifier.filters);
            let of = Some((0, pool));
            let class = rss::classify(
                file,
                settings,
                (&headers, frame.len()),
                of,
                &mut self.classifier.hashed,
            );
            // If a filter names a queue, no other queue gets the frame.
            chosen = class.queue % POOLS != pool;
            *place = Some((pool, class));
        }
        if chosen {
            // Pools found before lose it.
            let last = places.iter().flatten().last().copied();
            places = [None; POOLS as usize];
            places[0] = last.map(|(_, class)| (class.queue % POOLS, class));
        }
        places
    }

    /// Whether a queue has room for a frame that needs so many buffers of a size, or does not wait for room.
    fn has_room(&mut self, queue: u32, need: impl Fn(usize) -> usize) -> bool {
        let Some(open) = self.open(queue) else {
            return !self.writer.held_up;
        };
        let need = need(open.shape.packet);
        need <= open.room.free as usize || need >= open.room.ring.len as usize || open.shape.drop
    }

    /// Whether all queues that get the segments of a packet have room for them.
    pub(crate) fn roomy(&mut self, segments: &Batch<'_>) -> bool {
        let Some(first) = segments.get(0) else {
            return true;
        };
        let mut places = self.places(&first).into_iter().flatten();
        places.all(|(_, class)| self.has_room(class.queue, |size| buffers_for(segments, size)))
    }

    /// Puts a frame into a queue of each pool that gets it: into all of them, or into none, so that
    /// the sender can offer it again.
    pub(crate) fn replicate(&mut self, frame: &Frame<'_>) -> Outcome {
        let counters = &self.call.function.counters;
        let looked = self.call.look(frame);
        count(&counters.rx_runt, looked.runt.into());
        if !Accepted::has_address(frame) {
            return Outcome::Lost;
        }
        let all = self.call.settings;
        let rctl = self.call.function.file.get(r::RCTL);
        if !looked.obey(rctl, &mut self.counts.tally, &mut self.counts.pause) {
            return Outcome::Lost;
        }
        let headers = Headers::of(frame);
        let for_many = headers.bytes()[0] & 1 == 1;
        let places = self.places(frame);
        let mut room = true;
        for (pool, class) in places.iter().flatten() {
            self.call.settings = all.of_pool(&self.call.function.file, *pool, for_many);
            let accepted = self.call.look(frame);
            let len = accepted.in_buffers(self.call.settings.strip_crc);
            room &= accepted.bad || self.has_room(class.queue, |size| len.div_ceil(size));
        }
        self.call.settings = all;
        if !room && looked.control.is_some() {
            // A control frame was counted and obeyed, and must not be offered again.
            self.counts.miss(looked.on_wire);
            return Outcome::Lost;
        }
        if !room {
            return Outcome::NoRoom;
        }
        if places == [None; POOLS as usize] {
            count(&self.call.function.counters.rx_filtered, 1);
            return Outcome::Lost;
        }
        let timed = Some(self.call.timed(&headers));
        let (mut kept, mut dropped, mut bad) = (None, None, None);
        for (pool, class) in places.into_iter().flatten() {
            self.call.settings = all.of_pool(&self.call.function.file, pool, for_many);
            let accepted = self.call.look(frame);
            let whole = accepted.on_wire <= Settings::LONGEST;
            if accepted.bad && !(self.call.settings.store_bad && whole) {
                bad = Some(accepted.on_wire);
                continue;
            }
            let packet = Packet {
                frame,
                accepted: &accepted,
                headers: &headers,
                class: &class,
                timed,
            };
            match self.keep(&packet) {
                Outcome::Done => kept = Some(accepted),
                Outcome::Dropped => dropped = Some(accepted.on_wire),
                Outcome::Lost => {}
                Outcome::NoRoom => {
                    // Null buffers that were passed over.
                    count(&self.call.function.counters.rx_too_large, 1);
                    self.counts.miss(accepted.on_wire);
                }
            }
        }
        self.call.settings = all;
        // It came once, so it is counted once.
        let wrong = match &kept {
            Some(accepted) => accepted.bad,
            None => dropped.is_none() && bad.is_some(),
        };
        if wrong {
            count(
                &self.call.function.counters.rx_oversize,
                (!looked.runt).into(),
            );
            looked.count_bad(&mut self.counts.tally);
        }
        if let Some(accepted) = kept {
            accepted.count_received(&mut self.counts.tally);
        } else if let Some(on_wire) = dropped.or(bad) {
            self.counts.tally.total(on_wire);
        }
        Outcome::Done
    }
}
