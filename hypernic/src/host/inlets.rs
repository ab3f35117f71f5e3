//! The threads that bring frames in, and what their ports report.

use std::sync::Arc;
use std::time::Instant;

use frame::Sink;
use port::{Inlet, InletEvent, InletThread};
use program::log::Limit;

use crate::error::Error;
use crate::gate::Gate;

/// Starts a thread that passes what arrives at a port to `to`, and `linked` whether its link is up. In the
/// log the port is `shown`. It waits at the gate, if there is one.
pub(super) fn inlet(
    thread: &str,
    source: Box<dyn Inlet>,
    to: Arc<dyn Sink>,
    shown: String,
    linked: impl Fn(bool) + Send + 'static,
    gate: Option<&Arc<Gate>>,
) -> Result<InletThread, Error> {
    let source = match gate {
        Some(gate) => gate.hold(source),
        None => source,
    };
    let limit = Limit::default();
    let events = move |event: InletEvent| {
        if !matches!(event, InletEvent::Note(_)) {
            linked(matches!(event, InletEvent::LinkUp));
        }
        log_port_event(&limit, &shown, event);
    };
    InletThread::spawn(thread, source, to, events).map_err(|source| Error::Os {
        what: "cannot start a thread",
        source,
    })
}

fn log_port_event(limit: &Limit, port: &str, event: InletEvent) {
    // It comes once; a link goes up and down as often as a peer likes.
    if let InletEvent::Closed(why) = event {
        tracing::error!(port, "closed: {why}");
        return;
    }
    let Some(held_back) = limit.pass(Instant::now()) else {
        return;
    };
    match event {
        InletEvent::Note(note) => tracing::error!(port, held_back, "{note}"),
        InletEvent::LinkUp => tracing::info!(port, held_back, "link up"),
        _ => tracing::warn!(port, held_back, "link down; waiting for the other side"),
    }
}
