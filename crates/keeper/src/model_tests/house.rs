//! A keeper, a worker with several NICs, and guests of which some know how to kill it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stateright::{Checker, Model, Property};

use crate::deaths::{Deaths, End, FORGIVEN, LIFE, Next, SHORT_LIVES, STRIKES};
use crate::nics::Nics;
use crate::turns::{NicId, begun, giving};

/// What a guest can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guest {
    Honest,
    /// The worker dies in its turn.
    KillsInItsTurn,
    /// The worker dies when it gets a frame.
    KillsByReceiving,
}

/// Who is there, and how often somebody from outside kills the worker.
struct House {
    guests: Vec<Guest>,
    kills: u8,
    /// Whether the worker says which thread it dies of; else each that has a turn is suspected.
    told: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Deaths, the time of the last, and whether it is in quarantine: of each NIC.
    nics: Vec<(u32, u64, bool)>,
    short: u32,
    killed: u8,
    deaths: u32,
    over: bool,
}

/// A worker dies, after a long life or a short one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Death {
    Killed {
        long: bool,
    },
    /// In the turn of one, which may give another one frames, while another thread has a turn too.
    Fault {
        turn: usize,
        to: Option<usize>,
        beside: Option<usize>,
        long: bool,
    },
}

impl House {
    fn serves(&self, state: &State, nic: usize) -> bool {
        !state.nics[nic].2
    }

    fn away(&self, state: &State, guest: Guest) -> usize {
        let nics = self.guests.iter().zip(&state.nics);
        nics.filter(|(who, nic)| **who == guest && nic.2).count()
    }

    fn number(&self, guest: Guest) -> usize {
        self.guests.iter().filter(|who| **who == guest).count()
    }
}

impl Model for House {
    type State = State;
    type Action = Death;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            nics: vec![(0, 0, false); self.guests.len()],
            short: 0,
            killed: 0,
            deaths: 0,
            over: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Death>) {
        if state.over {
            return;
        }
        for long in [false, true] {
            if state.killed < self.kills {
                actions.push(Death::Killed { long });
            }
            let served = || (0..self.guests.len()).filter(|nic| self.serves(state, *nic));
            for turn in served() {
                let gets = |to: &usize| self.guests[*to] == Guest::KillsByReceiving;
                let others = served().filter(|to| *to != turn);
                let mut tos: Vec<_> = others.filter(gets).map(Some).collect();
                if self.guests[turn] == Guest::KillsInItsTurn {
                    tos.push(None);
                    tos.extend(
                        served()
                            .find(|to| self.guests[*to] == Guest::Honest)
                            .map(Some),
                    );
                }
                for to in tos {
                    let mut besides = vec![None];
                    if !self.told {
                        besides.extend(served().filter(|nic| *nic != turn).map(Some));
                    }
                    let fault = |beside| Death::Fault {
                        turn,
                        to,
                        beside,
                        long,
                    };
                    actions.extend(besides.into_iter().map(fault));
                }
            }
        }
    }

    fn next_state(&self, last: &State, death: Death) -> Option<State> {
        let mut state = last.clone();
        state.deaths += 1;
        let nics = Nics::for_tests();
        for (nic, (strikes, last, away)) in nics.records().zip(&state.nics) {
            nic.strikes.store(*strikes, Ordering::Relaxed);
            nic.last.store(*last, Ordering::Relaxed);
            nic.quarantined.store((*away).into(), Ordering::Relaxed);
        }
        let (end, long, helps) = match death {
            Death::Killed { long } => {
                state.killed += 1;
                (End::Signal(libc::SIGKILL), long, false)
            }
            Death::Fault {
                turn,
                to,
                beside,
                long,
            } => {
                let turn_of = |nic: usize| begun(5 << 32, Some(NicId(nic as u16)));
                let mut words = vec![turn_of(turn)];
                words.extend(beside.map(turn_of));
                if let Some(to) = to.filter(|_| self.told) {
                    words[0] = giving(words[0], NicId(to as u16));
                }
                let (now, forgiven) = (state.deaths.into(), FORGIVEN.as_secs());
                let helps = nics.blame(words.into_iter(), now, STRIKES, forgiven);
                (End::Signal(libc::SIGSEGV), long, helps)
            }
        };
        let read = |nic: &crate::nics::Record| {
            (
                nic.strikes.load(Ordering::Relaxed),
                nic.last.load(Ordering::Relaxed),
                nic.quarantined.load(Ordering::Relaxed) != 0,
            )
        };
        state.nics = nics.records().take(self.guests.len()).map(read).collect();
        let mut deaths = Deaths::of(LIFE, state.short);
        let served = if long { LIFE } else { Duration::ZERO };
        state.over = deaths.next(end, Some(served), false, helps) == Next::GiveUp;
        state.short = deaths.short();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("it goes on, whoever kills", |_: &House, state: &State| {
                !state.over
            }),
            // Else the checker would not come to an end, either.
            Property::always(
                "each NIC kills twice at most",
                |house: &House, state: &State| {
                    let most = STRIKES as usize * house.guests.len() + usize::from(house.kills);
                    state.deaths as usize <= most
                },
            ),
            Property::sometimes(
                "who kills in its turn is found",
                |house: &House, state: &State| {
                    let kind = Guest::KillsInItsTurn;
                    house.away(state, kind) == house.number(kind)
                },
            ),
        ];
        if self.told {
            all.push(Property::always(
                "an honest guest is lost only for one that kills",
                |house: &House, state: &State| {
                    let honest = house.number(Guest::Honest);
                    house.away(state, Guest::Honest) <= house.guests.len() - honest
                },
            ));
        }
        all
    }
}

fn check(house: House) -> usize {
    let checker = house.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn whoever_kills_is_found_and_the_others_are_served() {
    use Guest::{Honest, KillsByReceiving, KillsInItsTurn};
    let kills = SHORT_LIVES as u8 - 1;
    let states = [
        (
            vec![KillsInItsTurn, KillsInItsTurn, KillsInItsTurn, Honest],
            1,
        ),
        (vec![KillsInItsTurn, KillsByReceiving, Honest, Honest], 1),
        (
            vec![KillsByReceiving, KillsByReceiving, Honest, Honest, Honest],
            1,
        ),
        (vec![KillsInItsTurn, Honest], kills),
    ]
    .map(|(guests, kills)| {
        check(House {
            guests,
            kills,
            told: true,
        })
    });
    assert!(states.iter().all(|states| *states > 10), "{states:?}");
}

#[test]
fn it_goes_on_too_where_no_thread_says_that_it_dies() {
    use Guest::{Honest, KillsByReceiving, KillsInItsTurn};
    let guests = vec![KillsInItsTurn, KillsByReceiving, Honest, Honest];
    let states = check(House {
        guests,
        kills: 2,
        told: false,
    });
    assert!(states > 100, "{states}");
}
