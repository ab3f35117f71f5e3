//! Where connections come from.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use peer::dial::Source;

use crate::config::{Endpoint, RingError};

/// For the port's name.
pub fn describe(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Connect(path) => format!("ring:{}", path.display()),
        Endpoint::Listen(path) => format!("ring-listen:{}", path.display()),
    }
}

pub fn open(endpoint: Endpoint) -> Result<Source, RingError> {
    match endpoint {
        Endpoint::Connect(path) => Source::connect(&path).map_err(|_| RingError::BadPath { path }),
        Endpoint::Listen(path) => {
            let source = Source::listen(&path)?;
            // A peer needs the owner's rights; whoever called before this has said nothing that is trusted.
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(source)
        }
    }
}
