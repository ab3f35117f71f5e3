//! A packed ring that keeps words.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use guest_mem::Memory;
use model::{KEPT, Kept};
use model_testkit::death;

use crate::core::chain::Chain;
use crate::core::kept::KeptRing;
use crate::core::packed::Packed;
use crate::core::place::{Format, Place, Position};

const SIZE: u16 = 256;
/// Where one region ends and the next begins: in the middle of the ring.
const EDGE: u64 = 0x10_1000;
const RING: u64 = EDGE - 8 * SIZE as u64;
const AREAS: u64 = EDGE + 0x2000;

fn memory(edge: bool) -> Memory {
    let memory = Memory::new();
    let (first, len) = (EDGE - 0x1000, 0x5000);
    let parts = match edge {
        true => vec![(first, 0x1000), (EDGE, len - 0x1000)],
        false => vec![(first, len)],
    };
    for (at, len) in parts {
        memory.map_anon(at, len).expect("mapped");
    }
    memory
}

/// A driver has the descriptors before one by the time that this one is written: none is written twice.
#[test]
fn each_used_descriptor_of_a_packed_ring_is_written_once_also_over_the_edge_of_a_region() {
    let place = Place {
        size: SIZE,
        desc: RING,
        driver: AREAS,
        device: AREAS + 8,
    };
    let format = Format {
        packed: true,
        ..Format::default()
    };
    for (edge, n) in [(false, 200_u16), (true, 200), (true, 100), (false, 1)] {
        let memory = memory(edge);
        let view = memory.view();
        let words: &'static [AtomicU64; KEPT] =
            Box::leak(Box::new([const { AtomicU64::new(0) }; KEPT]));
        let mut ring = Packed::new(place, format, Position::start(format)).expect("a place");
        ring.keep(KeptRing::new(&Kept::new(words, Arc::new(())), 0));
        ring.delivers();
        let mut chain = Chain::default();
        for index in 0..n {
            // Available in the first lap, and to be written.
            let word = 64 | u64::from(index) << 32 | (1 << 7 | 2) << 48;
            let at = RING + 16 * u64::from(index);
            view.write(at, &[0; 8]).expect("inside");
            view.write(at + 8, &word.to_le_bytes()).expect("inside");
            assert!(ring.take(&view, &mut chain).expect("sound"));
        }
        for index in 0..n {
            ring.used(index, 60);
        }
        let many = 1 << 30;
        death::living(many, || ring.show(&view).expect("it shows"));
        let steps = many - death::left();
        death::live_on();
        // Beside them two words, each with a step before it and one behind.
        assert_eq!(steps, u64::from(n) + 4, "{edge} {n}");
        for index in 0..n {
            let mut word = [0; 8];
            let at = RING + 16 * u64::from(index) + 8;
            view.read(at, &mut word).expect("inside");
            let told = 60 | u64::from(index) << 32 | (1 << 15 | 1 << 7 | 2) << 48;
            assert_eq!(u64::from_le_bytes(word), told, "{index}");
        }
    }
}
