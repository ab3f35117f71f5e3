//! The null port: counts what it gets and drops it.
#![forbid(unsafe_code)]

use std::sync::Arc;

use frame::{Batch, Caps, Counted, Sink, Wake};
use port::{Port, Tally};

const FRAMES_OUT: usize = 0;
const BYTES_OUT: usize = 1;

struct Null {
    tally: Tally<2>,
}

impl Sink for Null {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let frames = picks.iter().filter_map(|&p| batch.get(p.into()));
        let (n, bytes) = frames.fold((0, 0), |(n, bytes), f| (n + 1, bytes + f.len() as u64));
        self.tally.add(FRAMES_OUT, n);
        self.tally.add(BYTES_OUT, bytes);
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

impl Counted for Null {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.tally.counters(visit);
    }
}

/// A port that takes everything, unfinished frames too, and never has any.
pub fn open() -> Port {
    let null = Arc::new(Null {
        tally: Tally::new(["frames_out", "bytes_out"]),
    });
    Port {
        name: "null".into(),
        sink: Arc::clone(&null) as Arc<dyn Sink>,
        inlet: None,
        counters: null,
    }
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
}
