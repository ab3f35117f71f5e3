//! The host's own stack answers while a frame is written.

use std::sync::Arc;

use frame::{Batch, Caps, Sink};
use port::{InletThread, answer, counter};
use wire::Offload;

use super::{Keep, inside, mac_of, quiet};

/// "Who has 10.9.0.1?", asked by 10.9.0.2.
fn who_has() -> [u8; 42] {
    let mut frame = [0; 42];
    frame[..6].fill(0xff);
    let me = [2, 0, 0, 0, 0, 2];
    frame[6..12].copy_from_slice(&me);
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&me);
    frame[28..32].copy_from_slice(&[10, 9, 0, 2]);
    frame[38..].copy_from_slice(&[10, 9, 0, 1]);
    frame
}

#[test]
fn who_asked_passes_the_answer_on() {
    if !inside("kernel::answers::who_asked_passes_the_answer_on") {
        return;
    }
    let port = quiet("t0", "10.9.0.1/24");
    let keep = Arc::new(Keep::new(1000, Caps::ALL));
    let to = Arc::clone(&keep) as Arc<dyn Sink>;
    let thread = InletThread::spawn("tap", port.inlet.expect("inlet"), to, |_| {}).expect("thread");
    let mut batch = Batch::new();
    batch.push_bytes(&who_has());
    batch.end(Offload::NONE);
    let found = || counter(&*thread.counters(), "inlet_answers").expect("counter");
    // Now and then its own thread is quicker.
    for tries in 1.. {
        port.sink.deliver(&batch, &[0]);
        answer::take();
        if found() >= 10 {
            break;
        }
        assert!(tries < 5_000, "{} of {tries}", found());
    }
    let frames = keep.frames.lock().expect("lock");
    let from = mac_of("t0");
    assert!(
        frames
            .iter()
            .any(|(frame, _)| frame[6..12] == from && frame[20..22] == [0, 2])
    );
}
