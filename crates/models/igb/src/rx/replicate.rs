//! Pools of a PF (§7.10.3): which of them get a frame that came in or that another one has sent, and how.
//!
//! Where there are VFs, the switch between the functions has found out that the PF gets it. With one pool
//! beside them that is all there is to know.

#[cfg(test)]
mod tests;

use datapath::MIN_FRAME;
use frame::{Batch, Frame, Sink};
use model::Env;
use regs::File;

use crate::core::function::{Function, count};
use crate::core::stats::Stat;
use crate::filter::address as filter;
use crate::filter::rss::{self, Class, Headers};
use crate::regs as r;
use crate::regs::pools::{self, POOLS, vmolr, vt_ctl};
use crate::regs::settings::{Rules, bits::rctl};
use crate::rx::l2_filter::{has_address, has_header};
use crate::rx::{Outcome, Rx, deliver_inside};

/// For everybody.
const BROADCAST: [u8; 6] = [0xff; 6];
/// Queues of a frame, one a pool at most, with what it is to each.
type Places = [Option<(u32, Class)>; POOLS as usize];

/// All pools.
const ALL: u32 = (1 << POOLS) - 1;

impl Rules {
    /// Those of one pool, for a frame that may be for several.
    fn of_pool(&self, file: &File, pool: u32, for_many: bool) -> Rules {
        let has = file.get_at(r::VMOLR, pool);
        let (max_len, max_tagged) = pools::lengths(file, pool);
        let rules = Rules {
            max_len,
            max_tagged,
            strip_crc: has & vmolr::STRCRC != 0,
            strip_vlan: has & vmolr::STRVLAN != 0,
            replicas: pools::replicas(file),
            ..*self
        };
        match for_many {
            true => rules.of_many(),
            false => rules,
        }
    }
}

/// Who gets a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    /// Pools, bit by bit.
    pools: u32,
    /// Those whose station it is for, whatever its VLAN is.
    exact: u32,
}

/// Pools that get a frame by address and VLAN.
fn by_filters(file: &File, dst: [u8; 6], tag: Option<u16>) -> Found {
    let (rctl, vt_ctl) = (file.get(r::RCTL), file.get(r::VT_CTL));
    if tag.is_some_and(|tci| !filter::vlan(file, rctl, tci)) {
        return Found::default();
    }
    let with = |bits: u32| {
        let wants = |pool: &u32| file.get_at(r::VMOLR, *pool) & bits != 0;
        (0..POOLS)
            .filter(wants)
            .fold(0, |all, pool| all | 1 << pool)
    };
    let default = pools::default(file).map_or(0, |pool| 1 << pool);
    let exact = pools::addresses(file).filter(|(mac, _)| *mac == dst);
    let exact = exact.fold(0, |all, (_, pools)| all | pools);
    let for_many = dst[0] & 1 == 1;
    let mut found = 0;
    if dst == BROADCAST {
        found |= with(vmolr::BAM);
    } else if for_many {
        found |= with(vmolr::MPME);
    }
    let (table, by_table) = match for_many {
        true => (r::MTA, vmolr::ROMPE),
        false => (r::UTA, vmolr::ROPE),
    };
    if filter::hashed(file, table, rctl, dst) {
        found |= with(by_table);
    }
    if vt_ctl & vt_ctl::IGNORE_MAC != 0 {
        found = ALL;
    }
    found = match vt_ctl & vt_ctl::REPLICATE != 0 {
        true => exact | found,
        // Without replication a frame for many is for the default pool, one for several for the first.
        false if exact != 0 => exact & exact.wrapping_neg(),
        false => found & default,
    };
    if rctl & rctl::VFE != 0 {
        found &= match tag {
            Some(tci) => pools::of_vlan(file, tci & 0xfff),
            None => with(vmolr::AUPE),
        };
    }
    Found {
        pools: found,
        exact,
    }
}

/// Pools that get a frame from the wire, bit by bit.
fn of_frame(file: &File, dst: [u8; 6], tag: Option<u16>) -> u32 {
    let known = tag.is_none_or(|tci| filter::vlan(file, file.get(r::RCTL), tci));
    let found = match by_filters(file, dst, tag).pools {
        // Whatever its VLANs are.
        0 if known && dst[0] & 1 == 0 => pools::default(file).map_or(0, |pool| 1 << pool),
        found => found,
    };
    found & file.get(r::VFRE)
}

/// What becomes of a frame that a pool has sent, whose others may get it: those of them that do, and
/// whether it goes out, too.
fn from_inside(
    file: &File,
    (first, from): (u32, u32),
    dst: [u8; 6],
    tag: Option<u16>,
) -> (u32, bool) {
    let own = ALL >> first << first;
    let found = by_filters(file, dst, tag);
    let mut to = found.pools & own & file.get(r::VFRE);
    if !pools::gets_own(file, from) {
        to &= !(1 << from);
    }
    // What is for a station inside stays there; with VFs it may be one of theirs, which the switch knows.
    let stays = dst[0] & 1 == 0 && found.exact & own != 0 && found.exact & !own == 0;
    (to, !stays)
}

/// Takes what a pool of a PF sends: to its others what is for them, and to `to` what goes out. Returns how
/// many frames were dealt with.
pub(crate) fn send(
    function: &Function,
    env: &Env,
    from: u32,
    to: &dyn Sink,
    (batch, picks): (&Batch<'_>, &[u16]),
) -> usize {
    let file = &function.file;
    let first = function.rules().pools.unwrap_or(0);
    let vet = file.get(r::VET) as u16;
    let routed = |pick: u16| {
        let frame = batch.get(pick.into())?;
        let dst = *frame.head().first_chunk()?;
        let inside = frame
            .head()
            .get(12..16)
            .map(|tag| [tag[0], tag[1], tag[2], tag[3]]);
        let inside = inside.filter(|[a, b, ..]| u16::from_be_bytes([*a, *b]) == vet);
        let tag = frame
            .notes()
            .vlan
            .or(inside.map(|[.., a, b]| u16::from_be_bytes([a, b])));
        let (pools, out) = from_inside(file, (first, from), dst, tag);
        Some((frame, pools, out))
    };
    // Those before `at` are dealt with but for the last ones, which go out together.
    let mut waiting = 0;
    for (at, pick) in picks.iter().enumerate() {
        // What has no address goes out.
        let Some((frame, pools, out)) = routed(*pick).filter(|(_, pools, out)| *pools != 0 || !out)
        else {
            continue;
        };
        let end = at + usize::from(out);
        let taken = offer(to, batch, &picks[waiting..end]);
        if taken < end - waiting {
            return waiting + taken;
        }
        if pools != 0 {
            deliver_inside(function, env, &frame, pools);
        }
        waiting = at + 1;
    }
    waiting + offer(to, batch, &picks[waiting..])
}

fn offer(to: &dyn Sink, batch: &Batch<'_>, picks: &[u16]) -> usize {
    match picks {
        [] => 0,
        _ => to.deliver(batch, picks).min(picks.len()),
    }
}

impl Rx<'_, '_> {
    /// Queues that get a frame, with what it is to each.
    fn places(&mut self, frame: &Frame<'_>) -> Places {
        let file = &self.function.file;
        let accepted = self.look(frame);
        let first = self.rules.pools.unwrap_or(0);
        let mut found = match self.inside {
            Some(pools) => pools,
            None => of_frame(file, accepted.dst, accepted.tag) & (ALL >> first << first),
        };
        if found == 0 && first > 0 {
            // The switch has let it in, for a reason that is none of a pool's: a copy.
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
            let rules = (self.rules.rfctl, &self.filters);
            let of = Some((0, pool));
            let class = rss::classify(file, rules, (&headers, frame.len()), of, &mut self.hashed);
            // A filter that names a queue names all that get it.
            chosen = class.queue % POOLS != pool;
            *place = Some((pool, class));
        }
        if chosen {
            // Whatever pools were found before.
            let last = places.iter().flatten().last().copied();
            places = [None; POOLS as usize];
            places[0] = last.map(|(_, class)| (class.queue % POOLS, class));
        }
        places
    }

    /// Whether a queue has room for what needs so many buffers of a size, or would not wait for it.
    fn has_room(&mut self, queue: u32, need: impl Fn(usize) -> usize) -> bool {
        self.open(queue).is_none_or(|open| {
            let need = need(open.shape.packet);
            need <= open.free as usize || need >= open.ring.len as usize || open.shape.drop
        })
    }

    /// Whether all queues that get the segments of a packet have room for them.
    pub(crate) fn roomy(&mut self, segments: &Batch<'_>) -> bool {
        let Some(first) = segments.get(0) else {
            return true;
        };
        // A tag and the FCS more, whether they will be there or not.
        let each = |frame: Frame<'_>, size| (frame.len().max(MIN_FRAME) + 8).div_ceil(size);
        self.places(&first).into_iter().flatten().all(|(_, class)| {
            let need = |size| segments.iter().map(|frame| each(frame, size)).sum();
            self.has_room(class.queue, need)
        })
    }

    /// Puts a frame into a queue of each pool that gets it: into all of them, or into none, so that
    /// the sender can offer it again.
    pub(crate) fn replicate(&mut self, frame: &Frame<'_>) -> Outcome {
        let counters = &self.function.counters;
        let runt = !has_header(frame);
        count(&counters.rx_runt, runt.into());
        if !has_address(frame) {
            return Outcome::Lost;
        }
        let all = self.rules;
        let looked = self.look(frame);
        if !self.heed(&looked, self.function.file.get(r::RCTL)) {
            return Outcome::Lost;
        }
        let headers = Headers::of(frame);
        let for_many = headers.bytes()[0] & 1 == 1;
        let places = self.places(frame);
        let mut room = true;
        for (pool, class) in places.iter().flatten() {
            self.rules = all.of_pool(&self.function.file, *pool, for_many);
            let accepted = self.look(frame);
            let len = self.in_buffers(&accepted);
            room &= accepted.bad || self.has_room(class.queue, |size| len.div_ceil(size));
        }
        self.rules = all;
        if !room && looked.control.is_some() {
            // It was counted and heard, and so does not come again.
            self.miss(looked.on_wire);
            return Outcome::Lost;
        }
        if !room {
            return Outcome::NoRoom;
        }
        if places == [None; POOLS as usize] {
            count(&self.function.counters.rx_filtered, 1);
            return Outcome::Lost;
        }
        self.timed = Some(self.timed(&headers));
        let (mut kept, mut dropped, mut bad) = (None, None, None);
        for (pool, class) in places.into_iter().flatten() {
            self.rules = all.of_pool(&self.function.file, pool, for_many);
            let accepted = self.look(frame);
            let whole = accepted.on_wire <= Rules::LONGEST;
            if accepted.bad && !(self.rules.store_bad && whole) {
                bad = Some(accepted.on_wire);
                continue;
            }
            match self.keep(frame, &accepted, &headers, &class) {
                Outcome::Done => kept = Some(accepted),
                Outcome::Dropped => dropped = Some(accepted.on_wire),
                Outcome::Lost => {}
                Outcome::NoRoom => {
                    // Null buffers that were passed over.
                    count(&self.function.counters.rx_too_large, 1);
                    self.miss(accepted.on_wire);
                }
            }
        }
        (self.rules, self.timed) = (all, None);
        // The wire brought it once.
        let wrong = match &kept {
            Some(accepted) => accepted.bad,
            None => dropped.is_none() && bad.is_some(),
        };
        if wrong {
            count(&self.function.counters.rx_oversize, (!runt).into());
            self.tally.add(if runt { Stat::Ruc } else { Stat::Roc }, 1);
            self.tally.add(Stat::Rlec, 1);
        }
        if let Some(accepted) = kept {
            self.took(&accepted);
        } else if let Some(on_wire) = dropped.or(bad) {
            self.tally.total(on_wire);
        }
        Outcome::Done
    }
}
