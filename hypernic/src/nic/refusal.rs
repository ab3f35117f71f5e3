//! Why a NIC does not stand still.

use vfio_user::HoldError;

/// Why a NIC does not stand still for a move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HoldRefusal {
    /// Its server says so.
    #[error(transparent)]
    Server(#[from] HoldError),
    /// A VMM that has it over vhost-user takes its state along itself.
    #[error("its VMM takes its state along by itself")]
    VhostUser,
    /// Its model panicked.
    #[error("it has failed")]
    Failed,
}
