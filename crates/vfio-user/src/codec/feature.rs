//! What `DEVICE_FEATURE` is about: migration, version 2, and the log of what a device writes.

/// Which feature; bits 15:0 of the flags.
pub const INDEX: u32 = 0xffff;
/// Gives the feature's data.
pub const GET: u32 = 1 << 16;
/// Takes the feature's data.
pub const SET: u32 = 1 << 17;
/// Asks whether the other methods of the message are there.
pub const PROBE: u32 = 1 << 18;

/// Which migration states there are, beyond [`MigrationState::Running`] and [`MigrationState::Error`]: a u64 of bits.
pub const MIGRATION: u32 = 1;
/// The state the device is in: [`StateChange`](super::StateChange).
pub const STATE: u32 = 2;
/// Notes what the device writes, from now on: [`LogControl`](super::LogControl), and as many [`LogRange`](super::LogRange).
pub const LOG_START: u32 = 6;
/// Ends that.
pub const LOG_STOP: u32 = 7;
/// What was written: [`LogReport`](super::LogReport), and in the reply a bitmap.
pub const LOG_REPORT: u32 = 8;
/// Bytes of the state, about: a u64.
pub const DATA_SIZE: u32 = 9;

/// Bit of [`MIGRATION`]: the device has `STOP`, `STOP_COPY` and `RESUMING`.
pub const STOP_COPY: u64 = 1 << 0;
/// Bit of [`MIGRATION`]: it can stop reaching other devices alone.
pub const P2P: u64 = 1 << 1;
/// Bit of [`MIGRATION`]: its state can be read while it runs.
pub const PRE_COPY: u64 = 1 << 2;

/// What a device that is to move does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum MigrationState {
    /// It is in no state that another could be reached from, until it is reset.
    Error = 0,
    /// It changes nothing, in the guest or in itself.
    Stop = 1,
    /// It runs.
    #[default]
    Running = 2,
    /// As `Stop`, and its state can be read.
    StopCopy = 3,
    /// As `Stop`, and takes another state.
    Resuming = 4,
}

impl MigrationState {
    /// The state of this number. Those with other devices' DMA stopped (5, 7), which vfio-user does not use, and the one that saves
    /// a running device (6) are none of ours.
    pub fn from_u32(value: u32) -> Option<Self> {
        Some(match value {
            0 => Self::Error,
            1 => Self::Stop,
            2 => Self::Running,
            3 => Self::StopCopy,
            4 => Self::Resuming,
            _ => return None,
        })
    }

    /// The next state on the shortest way to another one; `None`: there is no way, or it is there. All ways lead by `Stop`, and no
    /// state is saved in between.
    pub fn towards(self, to: Self) -> Option<Self> {
        match (self, to) {
            (Self::Error, _) | (_, Self::Error) => None,
            _ if self == to => None,
            (Self::Stop, _) => Some(to),
            _ => Some(Self::Stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MigrationState as S;

    const ALL: [S; 5] = [S::Error, S::Stop, S::Running, S::StopCopy, S::Resuming];

    #[test]
    fn every_state_is_two_steps_from_every_other_at_most_but_an_error() {
        for from in ALL {
            for to in ALL {
                let first = from.towards(to);
                let way: Vec<S> = std::iter::successors(first, |at| at.towards(to)).collect();
                let direct = from == S::Stop || to == S::Stop;
                let wanted = match (from, to) {
                    (S::Error, _) | (_, S::Error) => vec![],
                    _ if from == to => vec![],
                    _ if direct => vec![to],
                    _ => vec![S::Stop, to],
                };
                assert_eq!(way, wanted, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn states_have_their_numbers() {
        for state in ALL {
            assert_eq!(S::from_u32(state as u32), Some(state));
        }
        assert!(
            [5, 6, 7, 8, 0xabcd, u32::MAX]
                .into_iter()
                .all(|n| S::from_u32(n).is_none())
        );
    }
}
