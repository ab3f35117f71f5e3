//! What the data path counts for the guest's statistics registers.

pub(crate) use intel::stats::{Group, Many, Stat, Stats, Tally, for_group};
