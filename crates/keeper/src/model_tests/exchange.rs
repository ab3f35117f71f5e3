//! One client, and a worker that may die between any two stores of [`crate::exact`], in the order in which it does them.

use stateright::{Checker, Model, Property};

/// What a client says, and what it is answered, is counted in halves of a message, so that a message may be cut.
type Half = u8;
/// Messages.
const SAID: Half = 2 * 3;
/// Halves received at once, at most.
const READ: usize = 3;

/// What a worker might do wrong, each of which must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The number of a call is stored when the call is over.
    NumberBehindTheCall,
    /// Each send uses the header of the one before.
    OneHeader,
    /// A header begins with the length of the call that it was for.
    LengthStays,
    /// A commit becomes true before all of it is stored.
    CommitTooEarly,
    /// There is one commit, which is changed store by store.
    OneCommit,
}

struct Exchange {
    deaths: u8,
    mistake: Mistake,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Call {
    number: u8,
    start: u8,
    /// The kernel's, of what it has moved.
    len: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Commit {
    applied: u8,
    end: u8,
    rest: Vec<Half>,
    /// The server's own word: messages answered.
    note: u8,
}

/// What the next worker finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Memory {
    receives: [Call; 2],
    sends: [Call; 2],
    arrived: [Vec<Half>; 2],
    /// All answers so far, and what a worker had in hand when it died.
    out: Vec<Half>,
    commits: [Commit; 2],
    current: usize,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Flush,
    SendEmpty,
    SendStart,
    SendNumber,
    Send,
    Look,
    ReceiveEmpty,
    ReceiveNumber,
    Receive,
    Apply,
    PutRest,
    PutApplied,
    PutEnd,
    PutNote,
    Flip,
    Wait,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Worker {
    next: Next,
    receives: u8,
    sends: u8,
    staged: u8,
    /// Of what it has applied and not committed.
    rest: Vec<Half>,
    note: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    said: Half,
    /// Of that, what the worker's side of the socket has given.
    taken: Half,
    heard: Half,
    /// A message was applied, or an answer came, that was not the next.
    wrong: bool,
    deaths: u8,
    memory: Memory,
    worker: Option<Worker>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Say,
    /// The worker takes its next step, in which the kernel sends so much at most.
    Step(u8),
    Die,
    Start,
}

impl Memory {
    fn commit(&self) -> &Commit {
        &self.commits[self.current]
    }
}

impl Worker {
    fn resume(memory: &Memory) -> Self {
        let latest = |calls: &[Call; 2]| calls[0].number.max(calls[1].number);
        Self {
            next: Next::Flush,
            receives: latest(&memory.receives),
            sends: latest(&memory.sends),
            staged: memory.commit().end,
            rest: Vec::new(),
            note: 0,
        }
    }
}

impl Exchange {
    /// Which of two headers a call uses.
    fn header(&self, number: u8) -> usize {
        match self.mistake {
            Mistake::OneHeader => 0,
            _ => usize::from(number & 1),
        }
    }

    /// The end of what was sent.
    fn sent(&self, memory: &Memory, sends: u8) -> u8 {
        let call = &memory.sends[self.header(sends)];
        call.start + call.len
    }

    /// What came and is not committed.
    fn arrival(&self, memory: &Memory, receives: u8) -> Vec<Half> {
        if receives <= memory.commit().applied {
            return Vec::new();
        }
        let at = usize::from(receives & 1);
        let len = usize::from(memory.receives[at].len);
        memory.arrived[at].iter().copied().take(len).collect()
    }

    fn step(&self, state: &mut State, most: u8) {
        let Some(mut worker) = state.worker.take() else {
            return;
        };
        worker.next = match worker.next {
            Next::Flush | Next::SendEmpty | Next::SendStart | Next::SendNumber | Next::Send => {
                self.send(state, &mut worker, most)
            }
            Next::Look | Next::ReceiveEmpty | Next::ReceiveNumber | Next::Receive => {
                self.receive(state, &mut worker)
            }
            Next::Wait => Next::Look,
            Next::Apply => self.apply(state, &mut worker),
            Next::PutRest | Next::PutApplied | Next::PutEnd | Next::PutNote | Next::Flip => {
                self.commit(&mut state.memory, &worker)
            }
        };
        state.worker = Some(worker);
    }

    fn send(&self, state: &mut State, worker: &mut Worker, most: u8) -> Next {
        let memory = &mut state.memory;
        let end = memory.commit().end;
        let sending = worker.sends + 1;
        let send = self.header(sending);
        match worker.next {
            Next::Flush if self.sent(memory, worker.sends) < end => Next::SendEmpty,
            Next::Flush => Next::Look,
            Next::SendEmpty if self.mistake == Mistake::OneHeader => {
                memory.sends[send].start = self.sent(memory, worker.sends);
                Next::SendStart
            }
            Next::SendEmpty => {
                memory.sends[send].len = 0;
                Next::SendStart
            }
            Next::SendStart if self.mistake == Mistake::OneHeader => {
                memory.sends[send].len = 0;
                Next::SendNumber
            }
            Next::SendStart => {
                memory.sends[send].start = self.sent(memory, worker.sends);
                Next::SendNumber
            }
            Next::SendNumber => {
                memory.sends[send].number = sending;
                worker.sends = sending;
                Next::Send
            }
            // One call: the bytes and their number are the kernel's.
            _ => {
                let call = &mut memory.sends[self.header(worker.sends)];
                call.len = (end - call.start).min(most);
                for at in call.start..call.start + call.len {
                    let said = memory.out[usize::from(at)];
                    state.wrong |= said != state.heard;
                    state.heard = said.wrapping_add(1);
                }
                Next::Flush
            }
        }
    }

    fn receive(&self, state: &mut State, worker: &mut Worker) -> Next {
        let memory = &mut state.memory;
        let receiving = worker.receives + 1;
        let receive = usize::from(receiving & 1);
        match worker.next {
            Next::Look if !self.arrival(memory, worker.receives).is_empty() => Next::Apply,
            Next::Look if state.taken == state.said => Next::Wait,
            Next::Look => Next::ReceiveEmpty,
            Next::ReceiveEmpty => {
                if self.mistake != Mistake::LengthStays {
                    memory.receives[receive].len = 0;
                }
                match self.mistake {
                    Mistake::NumberBehindTheCall => Next::Receive,
                    _ => Next::ReceiveNumber,
                }
            }
            Next::ReceiveNumber => {
                memory.receives[receive].number = receiving;
                worker.receives = receiving;
                match self.mistake {
                    Mistake::NumberBehindTheCall => Next::Apply,
                    _ => Next::Receive,
                }
            }
            _ => {
                let at = match self.mistake {
                    Mistake::NumberBehindTheCall => receive,
                    _ => usize::from(worker.receives & 1),
                };
                let came: Vec<_> = (state.taken..state.said).take(READ).collect();
                state.taken += came.len() as u8;
                memory.receives[at].len = came.len() as u8;
                memory.arrived[at] = came;
                match self.mistake {
                    Mistake::NumberBehindTheCall => Next::ReceiveNumber,
                    _ => Next::Apply,
                }
            }
        }
    }

    /// All messages are applied; answers are put where no commit says yet that they are to be sent.
    fn apply(&self, state: &mut State, worker: &mut Worker) -> Next {
        let memory = &mut state.memory;
        let commit = memory.commit().clone();
        worker.note = commit.note;
        let arrival = self.arrival(memory, worker.receives);
        let all = [commit.rest, arrival].concat();
        for message in all.chunks_exact(2) {
            let first = 2 * worker.note;
            state.wrong |= message != [first, first + 1];
            worker.note += 1;
            memory.out.truncate(usize::from(worker.staged));
            memory.out.extend([first, first + 1]);
            worker.staged += 2;
        }
        worker.rest = all.chunks_exact(2).remainder().to_vec();
        Next::PutRest
    }

    fn commit(&self, memory: &mut Memory, worker: &Worker) -> Next {
        let to = match self.mistake {
            Mistake::OneCommit => memory.current,
            _ => 1 - memory.current,
        };
        match worker.next {
            Next::PutRest => {
                memory.commits[to].rest.clone_from(&worker.rest);
                Next::PutApplied
            }
            Next::PutApplied => {
                memory.commits[to].applied = worker.receives;
                Next::PutEnd
            }
            Next::PutEnd => {
                memory.commits[to].end = worker.staged;
                match self.mistake {
                    Mistake::CommitTooEarly => Next::Flip,
                    _ => Next::PutNote,
                }
            }
            Next::PutNote => {
                let at = match self.mistake {
                    Mistake::CommitTooEarly => memory.current,
                    _ => to,
                };
                memory.commits[at].note = worker.note;
                match self.mistake {
                    Mistake::CommitTooEarly => Next::Flush,
                    _ => Next::Flip,
                }
            }
            _ => {
                memory.current = to;
                match self.mistake {
                    Mistake::CommitTooEarly => Next::PutNote,
                    _ => Next::Flush,
                }
            }
        }
    }
}

impl Model for Exchange {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let memory = Memory::default();
        vec![State {
            said: 0,
            taken: 0,
            heard: 0,
            wrong: false,
            deaths: 0,
            worker: Some(Worker::resume(&memory)),
            memory,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.said < SAID {
            actions.push(Action::Say);
        }
        let Some(worker) = &state.worker else {
            return actions.push(Action::Start);
        };
        match worker.next {
            Next::Wait if state.taken == state.said => {}
            // A socket that is nearly full takes a part.
            Next::Send => actions.extend([1, 2, u8::MAX].map(Action::Step)),
            _ => actions.push(Action::Step(0)),
        }
        if state.deaths < self.deaths {
            actions.push(Action::Die);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Say => state.said += 1,
            Action::Step(most) => self.step(&mut state, most),
            Action::Die => {
                state.worker = None;
                state.deaths += 1;
            }
            Action::Start => state.worker = Some(Worker::resume(&state.memory)),
        }
        // What has gone wrong is looked at no further.
        (!last.wrong).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RIGHT, |_: &Exchange, state: &State| !state.wrong),
            Property::always(ALL, |exchange: &Exchange, state: &State| {
                let mut actions = Vec::new();
                exchange.actions(state, &mut actions);
                actions.retain(|action| *action != Action::Die);
                !actions.is_empty() || state.heard == SAID
            }),
            Property::sometimes(
                "all is answered after the last death",
                |exchange: &Exchange, state: &State| {
                    state.deaths == exchange.deaths && state.heard == SAID
                },
            ),
        ]
    }
}

const RIGHT: &str = "each message is applied once and answered once, in order";
const ALL: &str = "nothing is forgotten";

#[test]
fn in_every_order_each_message_is_answered_once() {
    let exchange = Exchange {
        deaths: 3,
        mistake: Mistake::None,
    };
    let checker = exchange.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    assert!(states > 10_000, "{states}");
}

#[test]
fn each_mistake_would_be_found() {
    for mistake in [
        Mistake::NumberBehindTheCall,
        Mistake::OneHeader,
        Mistake::LengthStays,
        Mistake::CommitTooEarly,
        Mistake::OneCommit,
    ] {
        let exchange = Exchange { deaths: 1, mistake };
        let checker = exchange.checker().threads(2).spawn_bfs().join();
        let found = [RIGHT, ALL].map(|name| checker.discovery(name).is_some());
        assert!(found.contains(&true), "{mistake:?} goes unnoticed");
    }
}
