//! The stages of a batch on its way through the switch.

mod ahead;
mod lookup;
mod police;
pub(crate) mod trace;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use eswitch::{tag_of, vlan_of};
use frame::{Batch, ExpandError, Finisher, Hot, work};
use wire::{ETHERNET_HEADER, MacAddr, SegmentError};

use crate::config::Nanos;
use crate::counters::{Counters, add};
use crate::direct;
use crate::guard::Bound;
use crate::guard::rate::Cost;
use crate::guard::storm::Flood;
use crate::patience::Patience;
use crate::pools::Pools;
use crate::port::{Blocked, Port};
use crate::state::SwitchState;
use crate::table::{Key, Learn, ONE_DOMAIN, PortId};

/// Where pause frames go (IEEE 802.3 annex 31B).
const PAUSE: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]);

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Runt,
    BadNotes,
    SourceIsGroup,
    Spoofed,
    Reserved,
    Hairpin,
    PortGone,
    Vlan,
    Private,
    Mesh,
    Storm,
    NoPool,
    PoolOff,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Nowhere(Refusal),
    /// To the port at this place in the list.
    Port(u32),
    Everywhere(Flood),
    /// From a private port, and not for one it may reach: to those that lead out.
    Uplinks,
    /// For one station that several pools want.
    Several,
}

/// A frame of the batch as it was classified. Its index here is its position.
#[derive(Clone, Copy, Debug)]
struct Classified {
    dst: Key,
    src: Key,
    /// Whether the source can be learned.
    station: bool,
    len: u32,
    /// Frames on the wire that it becomes.
    segments: u32,
    learn: Learn,
    route: Route,
    /// Its VLAN, where a port of the switch asks for it.
    vlan: u16,
    /// The private port it has come back from, which it must not be shown again.
    origin: Option<u32>,
}

/// Copies of flooded frames that one call makes; a sender with more comes again, when others had their turn.
const MOST_COPIES: usize = 1024;

/// Counts of one batch, to touch state counters once.
#[derive(Debug, Default)]
struct Tally {
    frames: u64,
    bytes: u64,
    unicast: u64,
    unknown: u64,
    multicast: u64,
    broadcast: u64,
    table_full: u64,
    to_uplink: u64,
    refused: [u64; 13],
}

/// What one delivery needs, kept from batch to batch so that nothing is allocated. What the short ways need is first.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Scratch {
    known: direct::Known,
    patience: Patience,
    /// What a delivery to a port touches, which was the last one when that was asked for.
    ahead: (Option<PortId>, Hot),
    finisher: Finisher,
    frames: Vec<Classified>,
    /// For each port in the list, one more than its place in `touched`; 0 when it gets nothing.
    place: Vec<u32>,
    touched: Vec<u32>,
    /// Positions for each touched port alone.
    lists: Vec<Vec<u16>>,
    /// Positions for all ports.
    flood: Vec<u16>,
    /// Those of them for the port at hand, while guards keep some from some.
    spread: Vec<u16>,
    /// Positions for the port at hand, and the picks they stand for.
    merged: Vec<u16>,
    picks: Vec<u16>,
    /// Frames for one port that found no room there: the port's place in the list, position.
    short: Vec<(u32, u16)>,
    /// The pools of an on-chip switch, as they are for the batch at hand.
    pools: Option<Arc<Pools>>,
}

impl Scratch {
    /// Forgets where the last frames went.
    pub(crate) fn forget(&mut self) {
        self.known = direct::Known::default();
    }

    /// Takes frames of `from` to where they belong. Returns how many were dealt with and, when
    /// that is not all, the port that had no room for the first of the others; or none, if the sender has had its share.
    pub(crate) fn forward(
        &mut self,
        state: &SwitchState,
        from: &Arc<Port>,
        batch: &Batch<'_>,
        picks: &[u16],
    ) -> (usize, Option<Blocked>) {
        let now = state.now();
        self.patience.resume(now, state.stall_bound());
        let known = (&mut self.known, &mut self.patience);
        if state.is_direct()
            && let Some(done) = direct::deliver(state, from, known, batch, picks, now)
        {
            return done;
        }
        let ports = state.ports();
        let bound = from.bounds.get();
        let bound = bound.as_deref();
        let (allowed, charged) = match bound.and_then(|bound| bound.rate.as_ref()) {
            Some(rate) => rate.admit(now, costs(batch, picks)),
            None => (picks.len(), Cost::default()),
        };
        let (picks, over) = picks.split_at(allowed);
        self.pools = state.pools();
        self.classify(state, from, batch, picks);
        if from.uplink && state.has_private() {
            self.reflect(state, &ports, now);
        }
        match self.pools.clone() {
            Some(pools) => self.look_up_pools(&pools, from, &ports),
            None => self.look_up(state, from, &ports, now),
        }
        if bound.is_some_and(Bound::floods) || state.is_guarded() {
            self.police(bound, from, &ports, now);
        }
        let now_many = if from.waits {
            self.at_once(ports.len())
        } else {
            picks.len()
        };
        self.list(&ports, now_many);
        let held = self.deliver(state, from, &ports, batch, &picks[..now_many], now);
        let dealt = held.map_or(now_many, |(_, at)| at.into());
        self.count(&from.counters, dealt);
        self.show_refused(state, from, batch, &picks[..dealt]);
        if dealt < picks.len() {
            self.refund(bound, batch, &picks[..dealt], charged);
        }
        if let Some((at, _)) = held {
            return (dealt, Some(Blocked::Full(ports[at as usize].clone())));
        }
        if dealt < picks.len() {
            return (dealt, None);
        }
        if let Some(rate) = bound.and_then(|bound| bound.rate.as_ref())
            && !over.is_empty()
        {
            if from.waits && state.may_hold_up() {
                add(&from.counters.paced, 1);
                return (dealt, Some(Blocked::Paced(rate.worthwhile_at())));
            }
            let bytes = over.iter().filter_map(|p| batch.get((*p).into()));
            add(&from.counters.rx_bytes, bytes.map(|f| f.len() as u64).sum());
            add(&from.counters.rx_frames, over.len() as u64);
            add(&from.counters.drop_rate_in, over.len() as u64);
            let witnesses = &state.witnesses;
            witnesses.show(&from.name, batch, over, "drop_rate_in");
        }
        (dealt + over.len(), None)
    }

    /// How many frames are dealt with in one call, so that what floods makes no more than so many copies. One is, whatever
    /// it costs.
    fn at_once(&self, ports: usize) -> usize {
        let mut copies = 0;
        let fits = |classified: &&Classified| {
            let receivers = match classified.route {
                Route::Nowhere(_) | Route::Port(_) => 0,
                Route::Everywhere(_) | Route::Uplinks | Route::Several => ports,
            };
            copies += receivers * classified.segments as usize;
            copies <= MOST_COPIES
        };
        let fitting = self.frames.iter().take_while(fits).count();
        fitting.max(1).min(self.frames.len())
    }

    /// Gives back what was charged for the frames behind `dealt`, which come again.
    fn refund(&self, bound: Option<&Bound>, batch: &Batch<'_>, dealt: &[u16], charged: Cost) {
        let Some(bound) = bound else { return };
        if let Some(rate) = &bound.rate {
            rate.refund(charged, costs(batch, dealt).sum());
        }
        if let Some(storm) = &bound.storm {
            for classified in &self.frames[dealt.len()..] {
                if let Route::Everywhere(kind) = classified.route {
                    storm.refund(kind, classified.segments);
                }
            }
        }
        if let Some(windows) = &bound.windows {
            for classified in &self.frames[dealt.len()..] {
                if let Route::Everywhere(kind) = classified.route {
                    windows.refund(kind, classified.len);
                }
            }
        }
    }

    /// All decisions are on the batch's own copy of the header.
    fn classify(&mut self, state: &SwitchState, from: &Port, batch: &Batch<'_>, picks: &[u16]) {
        let chip = self.pools.is_some();
        let vlans = state.has_vlans();
        self.frames.clear();
        for pick in picks {
            let mut classified = Classified {
                dst: Key::default(),
                src: Key::default(),
                station: false,
                len: 0,
                segments: 1,
                learn: Learn::Known,
                route: Route::Nowhere(Refusal::Runt),
                vlan: 0,
                origin: None,
            };
            if let Some(frame) = batch.get((*pick).into()) {
                classified.len = frame.len() as u32;
                classified.segments = frame.notes().segments(frame.len()) as u32;
                let header = frame.head();
                let whole = header.len() >= ETHERNET_HEADER;
                if chip {
                    classified.vlan = tag_of(header, frame.notes());
                } else if vlans {
                    classified.vlan = vlan_of(header, frame.notes());
                }
                let [dst, src] =
                    [0, 6].map(|at| MacAddr::from_prefix(header.get(at..).unwrap_or(&[])));
                if let (true, Some(dst), Some(src)) = (whole, dst, src) {
                    classified.dst = Key::new(dst, ONE_DOMAIN);
                    classified.src = Key::new(src, ONE_DOMAIN);
                    classified.route = if frame.notes().check(frame.len()).is_err() {
                        Route::Nowhere(Refusal::BadNotes)
                    } else if src.is_multicast() {
                        Route::Nowhere(Refusal::SourceIsGroup)
                    } else if !from.may_be(src) {
                        Route::Nowhere(Refusal::Spoofed)
                    } else if dst.is_bridge_reserved()
                        && !(state.passes_link_local() && dst != PAUSE)
                    {
                        Route::Nowhere(Refusal::Reserved)
                    } else if dst.is_broadcast() {
                        Route::Everywhere(Flood::Broadcast)
                    } else if dst.is_multicast() {
                        Route::Everywhere(Flood::Multicast)
                    } else {
                        Route::Everywhere(Flood::Unknown)
                    };
                    let refused = matches!(classified.route, Route::Nowhere(_));
                    classified.station = src.is_unicast() && !refused;
                }
            }
            self.frames.push(classified);
        }
    }

    /// Sorts positions by destination.
    fn list(&mut self, ports: &[Arc<Port>], now_many: usize) {
        for at in self.touched.drain(..) {
            if let Some(place) = self.place.get_mut(at as usize) {
                *place = 0;
            }
        }
        self.place.resize(ports.len(), 0);
        self.flood.clear();
        for (position, classified) in self.frames[..now_many].iter().enumerate() {
            let position = position as u16;
            match classified.route {
                Route::Nowhere(_) => {}
                Route::Everywhere(_) | Route::Uplinks | Route::Several => self.flood.push(position),
                Route::Port(at) => {
                    let place = &mut self.place[at as usize];
                    if *place == 0 {
                        self.touched.push(at);
                        *place = self.touched.len() as u32;
                        if self.lists.len() < self.touched.len() {
                            self.lists.push(Vec::new());
                        }
                        self.lists[self.touched.len() - 1].clear();
                    }
                    self.lists[*place as usize - 1].push(position);
                }
            }
        }
    }

    /// One of those who get this batch, and whether there is no other.
    fn receivers(&self, from: &Port, ports: &[Arc<Port>]) -> Option<(PortId, bool)> {
        if self.flood.is_empty() {
            let first = *self.touched.first()?;
            return Some((ports[first as usize].id, self.touched.len() == 1));
        }
        // All others get what is flooded.
        let returns = self.pools.as_ref().is_some_and(|p| p.may_return(from));
        let mut others = ports.iter().filter(|to| to.id != from.id || returns);
        Some((others.next()?.id, others.next().is_none()))
    }

    /// Calls each destination once. Returns the port and position at which the batch is cut, if
    /// frames stay with the sender.
    fn deliver(
        &mut self,
        state: &SwitchState,
        from: &Arc<Port>,
        ports: &[Arc<Port>],
        batch: &Batch<'_>,
        picks: &[u16],
        now: Nanos,
    ) -> Option<(u32, u16)> {
        self.short.clear();
        if let Some((to, alone)) = self.receivers(from, ports) {
            self.patience.serves(to, alone, now);
        }
        // One more than the last position that has gone anywhere.
        let mut gone = self.flood.last().map_or(0, |last| last + 1);
        for place in 0..self.touched.len() {
            let at = self.touched[place];
            gone =
                gone.max(self.deliver_to(at, Some(place), state, from, ports, batch, picks, now));
        }
        if !self.flood.is_empty() {
            let returns = self.pools.as_ref().is_some_and(|p| p.may_return(from));
            for (at, to) in ports.iter().enumerate() {
                if self.place[at] == 0 && (to.id != from.id || returns) {
                    self.deliver_to(at as u32, None, state, from, ports, batch, picks, now);
                }
            }
        }
        let held = if from.waits && state.may_hold_up() {
            let holds = |at: u32| {
                let port = &ports[at as usize];
                if !port.may_be_waited_for(now, state.stall_bound()) {
                    return false;
                }
                let waits = self.patience.has_left(port.id, now);
                add(&from.counters.patience_spent, u64::from(!waits));
                waits
            };
            let waiting = self.short.iter().copied();
            waiting
                .filter(|(at, position)| *position >= gone && holds(*at))
                .min_by_key(|(_, position)| *position)
        } else {
            None
        };
        let cut = held.map_or(picks.len(), |(_, position)| position.into());
        for short in self.short.chunk_by(|a, b| a.0 == b.0) {
            let to = &ports[short[0].0 as usize];
            let dropped = short.iter().filter(|(_, p)| usize::from(*p) < cut);
            self.picks.clear();
            self.picks
                .extend(dropped.map(|(_, p)| picks[usize::from(*p)]));
            let no_room = (&to.counters.drop_no_room, "drop_no_room");
            lose(state, to, batch, &self.picks, no_room);
        }
        if let Some((at, _)) = held {
            let to = &ports[at as usize];
            add(&to.counters.held_up, 1);
            to.note_held(now);
            self.patience.wait(to.id, now);
        }
        held
    }

    /// Calls the port at `at` with the frames for it alone (listed at `place`) and the flooded
    /// ones, in order. Returns one more than the last position it took.
    #[expect(clippy::too_many_arguments)]
    fn deliver_to(
        &mut self,
        at: u32,
        place: Option<usize>,
        state: &SwitchState,
        from: &Port,
        ports: &[Arc<Port>],
        batch: &Batch<'_>,
        picks: &[u16],
        now: Nanos,
    ) -> u16 {
        let to = &ports[at as usize];
        let alone = place.map_or(&[][..], |place| &self.lists[place]);
        if self.pools.is_some() || state.is_guarded() {
            let frames = &self.frames;
            let pools = self.pools.as_deref();
            let all = self.flood.iter().copied();
            self.spread.clear();
            self.spread.extend(all.filter(|p| {
                let classified = &frames[usize::from(*p)];
                classified.origin != Some(at) && classified.reaches(from, to, pools)
            }));
            merge(alone, &self.spread, &mut self.merged);
        } else {
            merge(alone, &self.flood, &mut self.merged);
        }
        if self.merged.is_empty() {
            return 0;
        }
        let witnesses = &state.witnesses;
        if !to.is_alive() {
            add(&from.counters.drop_port_gone, alone.len() as u64);
            for pick in alone.iter().map(|p| picks[usize::from(*p)]) {
                witnesses.show(&from.name, batch, &[pick], "drop_port_gone");
            }
            return self.merged.last().map_or(0, |last| last + 1);
        }
        self.picks.clear();
        let merged = self.merged.iter();
        self.picks.extend(merged.map(|p| picks[usize::from(*p)]));
        let (allowed, charged) = match &to.rate_out {
            Some(rate) => rate.admit(now, costs(batch, &self.picks)),
            None => (self.picks.len(), Cost::default()),
        };
        let picks_now = &self.picks[..allowed];
        let copies = self.merged[..allowed].iter();
        let copies = copies.map(|p| u64::from(self.frames[usize::from(*p)].segments));
        work::add(copies.sum());
        let mut bad = (0, 0, 0);
        let taken = self
            .finisher
            .deliver(&*to.sink, batch, picks_now, |pick, error| {
                let counter = match error {
                    ExpandError::Segment(SegmentError::TooMany) => {
                        bad.0 += 1;
                        "drop_too_many_segments"
                    }
                    _ => {
                        bad.1 += 1;
                        "drop_bad_notes"
                    }
                };
                witnesses.show(&from.name, batch, &[pick], counter);
                bad.2 += batch.get(pick.into()).map_or(0, |f| f.len() as u64);
            });
        if let Some(rate) = to.rate_out.as_ref().filter(|_| taken < allowed) {
            rate.refund(charged, costs(batch, &picks_now[..taken]).sum());
        }
        add(&from.counters.drop_too_many_segments, bad.0);
        add(&from.counters.drop_bad_notes, bad.1);
        let (sent, left) = self.merged.split_at(taken.min(self.merged.len()));
        let bound = state.stall_bound();
        to.note_progress(self.finisher.moved(), now, bound);
        let (mut bytes, mut flooded) = (0, 0);
        for position in sent {
            let classified = &self.frames[usize::from(*position)];
            bytes += u64::from(classified.len);
            flooded += u64::from(!matches!(classified.route, Route::Port(_)));
        }
        let refused = bad.0 + bad.1;
        add(&to.counters.tx_frames, sent.len() as u64 - refused);
        add(&to.counters.tx_bytes, bytes - bad.2);
        add(&to.counters.tx_flooded, flooded);
        self.picks.clear();
        for position in left {
            match self.frames[usize::from(*position)].route {
                Route::Port(_) => self.short.push((at, *position)),
                _ => self.picks.push(picks[usize::from(*position)]),
            }
        }
        let no_room = (&to.counters.drop_flood_no_room, "drop_flood_no_room");
        lose(state, to, batch, &self.picks, no_room);
        sent.last().map_or(0, |last| last + 1)
    }

    /// Counts the frames that were dealt with; the others will come again.
    fn count(&self, counters: &Counters, dealt: usize) {
        let mut tally = Tally::default();
        for classified in &self.frames[..dealt] {
            tally.frames += 1;
            tally.bytes += u64::from(classified.len);
            tally.table_full += u64::from(classified.learn == Learn::Full);
            match classified.route {
                Route::Nowhere(refusal) => tally.refused[refusal as usize] += 1,
                Route::Port(_) | Route::Several => tally.unicast += 1,
                Route::Uplinks => tally.to_uplink += 1,
                Route::Everywhere(Flood::Unknown) => tally.unknown += 1,
                Route::Everywhere(Flood::Multicast) => tally.multicast += 1,
                Route::Everywhere(Flood::Broadcast) => tally.broadcast += 1,
            }
        }
        add(&counters.rx_frames, tally.frames);
        add(&counters.rx_bytes, tally.bytes);
        add(&counters.rx_unicast, tally.unicast);
        add(&counters.rx_unknown_unicast, tally.unknown);
        add(&counters.rx_multicast, tally.multicast);
        add(&counters.rx_broadcast, tally.broadcast);
        add(&counters.rx_to_uplink, tally.to_uplink);
        add(&counters.table_full, tally.table_full);
        let refused = |refusal: Refusal| tally.refused[refusal as usize];
        add(&counters.drop_runt, refused(Refusal::Runt));
        add(&counters.drop_bad_notes, refused(Refusal::BadNotes));
        let group = refused(Refusal::SourceIsGroup);
        add(&counters.drop_source_is_group, group);
        add(&counters.drop_spoofed, refused(Refusal::Spoofed));
        add(&counters.drop_reserved, refused(Refusal::Reserved));
        add(&counters.drop_hairpin, refused(Refusal::Hairpin));
        add(&counters.drop_port_gone, refused(Refusal::PortGone));
        add(&counters.drop_vlan, refused(Refusal::Vlan));
        add(&counters.drop_private, refused(Refusal::Private));
        add(&counters.drop_mesh, refused(Refusal::Mesh));
        add(&counters.drop_storm, refused(Refusal::Storm));
        add(&counters.drop_no_pool, refused(Refusal::NoPool));
        add(&counters.drop_pool_off, refused(Refusal::PoolOff));
    }
}

/// Counts and shows frames that `to` did not take and that do not come again.
fn lose(
    state: &SwitchState,
    to: &Port,
    batch: &Batch<'_>,
    picks: &[u16],
    (no_room, name): (&AtomicU64, &'static str),
) {
    if picks.is_empty() {
        return;
    }
    let witnesses = &state.witnesses;
    if to.is_rate_spent() {
        // It is the switch that has no room for them, not the NIC behind.
        add(&to.counters.drop_rate_out, picks.len() as u64);
        witnesses.show(&to.name, batch, picks, "drop_rate_out");
    } else {
        add(no_room, picks.len() as u64);
        witnesses.show(&to.name, batch, picks, name);
        to.sink.give_up(batch, picks);
    }
}

/// What frames cost of a rate.
fn costs<'a>(
    batch: &'a Batch<'_>,
    picks: &'a [u16],
) -> impl Iterator<Item = Cost> + Clone + use<'a> {
    picks.iter().map(|pick| {
        let frame = batch.get((*pick).into());
        frame.map_or(Cost::default(), |f| Cost::of(f.len(), f.notes()))
    })
}

/// Merges two ascending lists into `out`.
fn merge(a: &[u16], b: &[u16], out: &mut Vec<u16>) {
    out.clear();
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        out.push(if x < y { **x } else { **y });
        if x < y {
            a.next();
        } else {
            b.next();
        }
    }
    out.extend(a);
    out.extend(b);
}
