//! Rate and storm limits, and the policy of a function.

use crate::pool::Pool;
use crate::time::Nanos;

/// How long a silence is made up for at once, where nothing else is said: long enough for a batch
/// at any rate worth limiting, short enough for shallow queues behind.
pub const DEFAULT_BURST_MS: u64 = 10;

/// A rate limit. Bits are those of the frames, without preamble, gap and FCS; a frame that is to
/// be segmented counts as its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Most bits a second; `None` for any number.
    pub bits: Option<u64>,
    /// Most frames a second; `None` for any number.
    pub packets: Option<u64>,
    /// How long a silence is made up for, in milliseconds.
    pub burst_ms: u64,
}

impl Rate {
    /// So many bits a second, with the usual burst.
    pub fn of_bits(bits: u64) -> Rate {
        Rate {
            bits: Some(bits),
            packets: None,
            burst_ms: DEFAULT_BURST_MS,
        }
    }
}

/// Most flooded frames a second that may come from a port, each kind for itself. More are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storm {
    /// Broadcasts.
    pub broadcast: Option<u64>,
    /// Frames for a group.
    pub multicast: Option<u64>,
    /// Frames for a station that a learning switch has not seen. A chip's switch learns nothing, so
    /// there this limits nothing.
    pub unknown: Option<u64>,
}

/// How much of one kind may come in a window of time (82576 datasheet §8.14: BSCTRH, MSCTRH, SCCRL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormWindow {
    /// Blocks of 64 bytes in a window; a block that is begun counts whole.
    pub blocks: u64,
    /// What is more is dropped until the window ends.
    pub current: bool,
    /// A window that follows one with more has none at all.
    pub previous: bool,
}

/// How much may flood in a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormWindows {
    /// How long a window is; 0 switches all of it off.
    pub interval: Nanos,
    /// For broadcasts.
    pub broadcast: Option<StormWindow>,
    /// For frames to groups.
    pub multicast: Option<StormWindow>,
}

/// All that a switch holds a function to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionPolicy {
    /// What it receives and may send.
    pub pool: Pool,
    /// Most that it may send (RTTBCNRC); `None` for any amount.
    pub rate: Option<Rate>,
    /// Most flooded frames that it may send.
    pub storm: Storm,
}
