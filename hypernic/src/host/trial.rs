//! A configuration that may not stay.

use std::path::PathBuf;
use std::time::Instant;

use crate::config::HostConfig;

/// A configuration that is taken back unless it is confirmed in time.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was before.
    pub(super) before: Box<HostConfig>,
    /// Until when it may be confirmed.
    pub until: Instant,
    /// What the file is to be then, if that is wanted.
    pub persist: Option<(PathBuf, String)>,
}
