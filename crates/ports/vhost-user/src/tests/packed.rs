//! The port before a back end with packed rings.

use super::*;

const PACKED: u64 = 1 << 34;
const IN_ORDER: u64 = 1 << 35;

/// Flags of what is available, and of what is used, in the first lap.
const AVAILABLE: u16 = 0x80;
const USED: u16 = 0x8080;

impl Setup {
    /// Writes into a slot what is used.
    fn writes(&self, queue: usize, slot: u64, id: u16, len: u32, flags: u16) {
        let at = self.ring(queue).descriptors + 16 * slot + 8;
        let bytes = [
            &len.to_le_bytes()[..],
            &id.to_le_bytes(),
            &flags.to_le_bytes(),
        ];
        self.put(at, &bytes.concat());
    }

    /// Name and flags of a slot.
    fn slot(&self, queue: usize, slot: u64) -> (u16, u16) {
        let at = self.ring(queue).descriptors + 16 * slot;
        (self.word(at + 12), self.word(at + 14))
    }
}

#[test]
fn frames_come_from_a_packed_ring_and_the_buffers_go_back() {
    for more in [0, IN_ORDER] {
        let mut setup = Setup::begun(MRG_RXBUF | PACKED | more);
        assert_eq!(setup.slot(0, 1023), (1023, AVAILABLE | 2));
        let header = |buffers: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, buffers, 0];
        let (first, second, third) = (setup.buffer(0, 0), setup.buffer(0, 1), setup.buffer(0, 2));
        setup.put(first, &[&header(1)[..], &[1; 60]].concat());
        setup.put(second, &[&header(2)[..], &[2; 2036]].concat());
        setup.put(third, &[3; 100]);
        for (slot, len) in [(2, 100), (1, 2048), (0, 72)] {
            setup.writes(0, slot, slot as u16, len, USED);
        }
        setup.until("they have come", |setup| setup.count("frames_in") == 2);
        let long = [&[2; 2036][..], &[3; 100]].concat();
        assert_eq!(*setup.wire.got.lock(), [vec![1; 60], long]);
        // In the next lap, where the flags of what is available are the others.
        for slot in 0..3 {
            assert_eq!(setup.slot(0, slot), (slot as u16, 0x8000 | 2), "{slot}");
        }
        assert_eq!(setup.slot(0, 3).1, AVAILABLE | 2);
        // The way out, and back in one run where that is agreed upon.
        assert_eq!(setup.send(3, 60, Offload::NONE), 3);
        let names: Vec<_> = (0..3).map(|slot| setup.slot(1, slot).0).collect();
        assert_eq!(names, [0, 1, 2]);
        if more == 0 {
            for slot in 0..3 {
                setup.writes(1, slot, 2 - slot as u16, 0, USED);
            }
        } else {
            setup.writes(1, 0, 2, 0, USED);
        }
        for _ in 0..16 {
            assert_eq!(setup.send(64, 60, Offload::NONE), 64);
        }
        assert_eq!(setup.count("frames_out"), 3 + 1024, "all 1024 were free");
    }
}

#[test]
fn a_packed_ring_that_cannot_be_ends_the_connection_and_the_next_one_is_good() {
    let lies: [fn(&Setup); 6] = [
        // A buffer that it has not, one twice, both laps that are not this one, more bytes than fit, a missing part.
        |setup| setup.writes(0, 0, 1024, 72, USED),
        |setup| {
            setup.put(setup.buffer(0, 3), &[0; 72]);
            setup.writes(0, 1, 3, 72, USED);
            setup.writes(0, 0, 3, 72, USED);
        },
        |setup| setup.writes(0, 0, 0, 72, 0),
        |setup| setup.writes(0, 0, 0, 72, 0x8000),
        |setup| setup.writes(0, 0, 0, 2049, USED),
        |setup| {
            setup.put(setup.buffer(0, 0) + 10, &[2, 0]);
            setup.writes(0, 0, 0, 2048, USED);
        },
    ];
    let mut setup = Setup::begun(MRG_RXBUF | PACKED);
    for (n, lie) in (1..).zip(lies) {
        lie(&setup);
        setup.until("it is noticed", |setup| {
            setup.count("vhost_broken_ring") == n
        });
        assert_eq!(setup.count("vhost_disconnects"), n);
        assert!(!setup.inlet.link_up());
        if n == 1 {
            let note = setup.inlet.note().expect("a line for the log");
            assert!(note.contains("broken a ring"), "{note}");
        } else {
            assert_eq!(setup.inlet.note(), None, "one line, not a flood");
        }
        setup.until("they meet again", |setup| {
            setup.count("vhost_connects") == n + 1
        });
    }
    // The same of the transmit ring, found by a sender.
    setup.send(1, 60, Offload::NONE);
    setup.writes(1, 0, 5000, 0, USED);
    for _ in 0..2000 {
        setup.send(1, 60, Offload::NONE);
    }
    setup.until("it is noticed", |setup| {
        setup.count("vhost_broken_ring") == 7
    });
    assert!(setup.count("vhost_down") > 0);
}
