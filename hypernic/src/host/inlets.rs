//! The threads that bring frames in, and what their ports report.

use std::sync::Arc;
use std::time::Instant;

use frame::Sink;
use port::{Inlet, InletEvent, InletThread};
use program::log::Limit;

use crate::error::Error;
use crate::gate::Gate;
use crate::timeline::Seen;

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
    let source = Seen::wrap(source);
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
    let up = match event {
        // It comes once, and a note seldom; a link goes up and down as often as a peer likes.
        InletEvent::Closed(why) => return tracing::error!(port, "closed: {why}"),
        InletEvent::Note(note) => return tracing::error!(port, "{note}"),
        InletEvent::LinkUp => true,
        InletEvent::LinkDown => false,
    };
    let Some(held_back) = limit.pass(Instant::now()) else {
        return;
    };
    if up {
        tracing::info!(port, held_back, "link up");
    } else {
        tracing::warn!(port, held_back, "link down; waiting for the other side");
    }
}
