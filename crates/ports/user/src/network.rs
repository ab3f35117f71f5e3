//! Everything of a port, put together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use port::{Bell, Port, Tally, Waiters};

use crate::config::{UserConfig, UserError};
use crate::launcher::Launcher;
use crate::link::Link;
use crate::{count, inlet, sink};

/// Makes a user-mode network, in a process that `launcher` starts. `patient`: one of another process may still have the
/// ports of the host that it wants, for a moment.
///
/// # Errors
/// A [`UserError`] that names the cause and the cure.
pub fn open(config: &UserConfig, launcher: &Launcher, patient: bool) -> Result<Port, UserError> {
    config.addresses()?;
    let link = Arc::new(Link {
        out: Mutex::default(),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        stalled: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        tally: Tally::new(count::NAMES),
    });
    let (launcher, config) = (launcher.clone(), config.clone());
    let inlet = inlet::UserInlet::new(launcher, config, patient, Arc::clone(&link))?;
    Ok(Port {
        name: "user".into(),
        sink: Arc::new(sink::UserSink::new(Arc::clone(&link))),
        inlet: Some(Box::new(inlet)),
        counters: link,
    })
}
