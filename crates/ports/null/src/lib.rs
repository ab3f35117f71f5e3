//! The null port: counts what it gets and drops it. Beside it, what stands for a port that cannot be had.
#![forbid(unsafe_code)]

use std::sync::Arc;

use frame::{Batch, Caps, Counted, Sink, Wake};
use port::{Port, Tally};

const FRAMES_OUT: usize = 0;
const BYTES_OUT: usize = 1;

/// Takes all, and counts frames, and their bytes where it has a place for them.
struct Null<const N: usize>(Tally<N>);

impl<const N: usize> Sink for Null<N> {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let frames = picks.iter().filter_map(|&p| batch.get(p.into()));
        let (n, bytes) = frames.fold((0, 0), |(n, bytes), f| (n + 1, bytes + f.len() as u64));
        self.0.add(FRAMES_OUT, n);
        if N > BYTES_OUT {
            self.0.add(BYTES_OUT, bytes);
        }
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

impl<const N: usize> Counted for Null<N> {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.0.counters(visit);
    }
}

fn port<const N: usize>(name: &str, counters: [&'static str; N]) -> Port {
    let null = Arc::new(Null(Tally::new(counters)));
    Port {
        name: name.into(),
        sink: Arc::clone(&null) as Arc<dyn Sink>,
        inlet: None,
        counters: null,
    }
}

/// A port that takes everything, unfinished frames too, and never has any.
pub fn open() -> Port {
    port("null", ["frames_out", "bytes_out"])
}

/// What a port counts that cannot be had.
pub const MISSING: &str = "port_missing";

/// What stands for a port that cannot be had: all that it takes is lost, and counted so.
pub fn missing() -> Port {
    port("missing", [MISSING])
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::counter;
    use wire::{Csum, Gso, Offload};

    #[test]
    fn everything_is_taken_and_counted() {
        let port = open();
        let mut batch = Batch::new();
        let large = Offload {
            csum: Some(Csum {
                start: 34,
                offset: 16,
            }),
            gso: Gso::Tcp4,
            gso_size: 1448,
            ..Offload::NONE
        };
        for (len, notes) in [(60, Offload::NONE), (60_000, large), (0, Offload::NONE)] {
            batch.push_bytes(&vec![0; len]);
            batch.end(notes);
        }
        assert!(port.sink.caps().accepts(&large));
        assert_eq!(port.sink.deliver(&batch, &[0, 1, 2, 9]), 4);
        assert_eq!(counter(&*port.counters, "frames_out"), Some(3));
        assert_eq!(counter(&*port.counters, "bytes_out"), Some(60_060));
        assert!(port.inlet.is_none());
    }

    #[test]
    fn what_goes_to_a_port_that_is_missing_is_lost_and_counted() {
        let port = missing();
        let mut batch = Batch::new();
        for len in [60, 60_000] {
            batch.push_bytes(&vec![0; len]);
            batch.end(Offload::NONE);
        }
        assert_eq!(port.sink.deliver(&batch, &[0, 1, 9]), 3);
        let mut counts = Vec::new();
        port.counters
            .counters(&mut |name, value| counts.push((name, value)));
        assert_eq!(counts, [(MISSING, 2)]);
        assert!(port.inlet.is_none());
    }
}
