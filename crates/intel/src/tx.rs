//! The transmit side: from the descriptors of a ring to frames, and what follows from those that are sent, for
//! chips of all descriptor formats.

mod complete;
mod desc;
mod fan_out;
mod fast_path;
mod mark;
mod parser;
mod run;
mod scratch;
mod unsent;

pub use complete::{Completed, STATUS_AT, Sent, sent, write_back};
pub use datapath::Habit;
pub use desc::{Body, Desc, Format, Make, cmd};
pub use fan_out::FanOut;
pub use mark::{Borrowed, Memory, Position, Shelf, Store};
pub use parser::{End, Parser, Settings};
pub use run::{Gathered, Gathering, Reported, Single};
pub use scratch::Scratch;
pub use unsent::tell_unsent;
