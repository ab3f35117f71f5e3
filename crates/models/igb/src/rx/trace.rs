//! Whether a frame would get in, without letting it in.

use std::sync::atomic::Ordering;

use frame::Frame;
use intel::Ring;
use intel::rx::trace::{self, Tell};
use model::Env;

use crate::core::function::{Function, FunctionKind};
use crate::filter::address::FILTERS;
use crate::filter::headers::Headers;
use crate::regs as r;
use crate::regs::settings::Settings;
use crate::rx::call::Call;
use crate::rx::classify::Classifier;
use crate::rx::shape::Shape;

/// Takes a frame through what stands before its ring, as [`deliver`](super::deliver). `None`: it is for the pools of a
/// PF, each of which decides for itself.
pub(crate) fn trace(
    function: &Function,
    env: &Env,
    frame: &Frame<'_>,
    tell: Tell<'_>,
) -> Option<bool> {
    let settings = function.settings();
    if function.loopback.load(Ordering::Acquire) {
        tell(
            "lost: the receiver hears its own transmitter only (loopback)".into(),
            Some("rx_disabled"),
        );
        return Some(false);
    }
    if !settings.rx_on || !function.moves() {
        tell(
            "lost: the receiver is off (RCTL.RXEN or VFRE, the link, or PCI bus mastering)".into(),
            Some("rx_disabled"),
        );
        return Some(false);
    }
    if settings.several {
        return None;
    }
    let mut call = Call::new(function, env, settings);
    if settings.replicas.is_some() && frame.head().first().is_some_and(|dst| dst & 1 == 1) {
        call.settings = call.settings.of_replicas();
    }
    Some(admit(&call, frame, tell))
}

fn admit(call: &Call<'_>, frame: &Frame<'_>, tell: Tell<'_>) -> bool {
    let function = call.function;
    let accepted = call.look(frame);
    // What comes to a VF, or to a PF that has some, its chip's switch has let in.
    let of_port = matches!(function.kind, FunctionKind::Pf) && call.settings.pools.is_none();
    let file = &function.file;
    let rctl = if of_port { file.get(r::RCTL) } else { 0 };
    let begins = trace::begins(rctl, frame, &accepted, tell);
    if !begins || of_port && !trace::passes(&FILTERS, (file, rctl), &accepted, tell) {
        return false;
    }
    let stored = call.settings.store_bad && accepted.on_wire <= Settings::LONGEST;
    if !trace::length(&accepted, stored, tell) {
        return false;
    }
    let mut classifier = Classifier::new(call);
    let class = classifier.class(call, &Headers::of(frame), frame.len());
    classifier.end();
    queue(call, class.queue, tell)
}

/// The queue that it is for.
fn queue(call: &Call<'_>, queue: u32, tell: Tell<'_>) -> bool {
    let (function, ids) = (call.function, call.function.ids);
    tell(format!("is for receive queue {queue}"), None);
    let mut lost = |why: &str, counter| {
        tell(format!("lost: {why}"), Some(counter));
        false
    };
    if function.queues.get(queue as usize).is_none() || !function.rx_enabled(queue) {
        return lost("that queue is off (RXDCTL.ENABLE)", "rx_disabled");
    }
    let srrctl = function.file.get_at(ids.srrctl, queue);
    let Some(shape) = Shape::of(srrctl, call.settings.buffer) else {
        return lost(
            "its descriptors are of a kind that there is not (SRRCTL.DESCTYPE)",
            "rx_bad_type",
        );
    };
    let Some(ring) = Ring::read_at(&function.file, &ids.rx_ring(), queue) else {
        return lost("it has no valid ring (RDBAL, RDLEN)", "rx_bad_ring");
    };
    let drops = shape.drop || call.settings.drop >> queue & 1 != 0;
    if drops && ring.available() == 0 {
        return lost(
            "no descriptor is free, and the queue drops (SRRCTL.Drop_En)",
            "rx_dropped",
        );
    }
    trace::room(&ring, tell)
}
