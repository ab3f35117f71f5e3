//! What a transmitter remembers from call to call.

use intel::Planned;
use intel::tx::{Borrowed, FanOut, Habit};

use crate::tx::desc::Contexts;
use crate::tx::plan::TxPlan;

pub(crate) struct Turns {
    /// Whether the transmitter as a whole is on.
    pub on: Planned<bool>,
    /// What the registers say about each queue.
    pub plans: Box<[Planned<TxPlan>]>,
    pub store: Borrowed<Contexts>,
    /// Queues that may have something, bit by bit.
    pub waiting: u32,
    pub fan_out: FanOut,
    pub runs: Habit,
    /// The sink has not taken all of the last turn: what it leaves is gathered again.
    pub short: bool,
}

impl Turns {
    pub fn new(plans: Box<[Planned<TxPlan>]>) -> Self {
        Turns {
            on: Planned::default(),
            plans,
            store: Borrowed::default(),
            waiting: 0,
            fan_out: FanOut::default(),
            runs: Habit::default(),
            short: false,
        }
    }
}
