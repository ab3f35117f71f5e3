//! The receive writer on rings of both formats.

use frame::Batch;
use guest_mem::Memory;
use wire::Offload;

use super::*;
use crate::ring::Ring;

const MEMORY: u64 = 1 << 16;
const RING: u64 = 0x1000;
const BUFFERS: u64 = 0x4000;
const BUFFER: usize = 256;
const DESCRIPTORS: u32 = 8;
/// Two bytes that say how a frame ended, in the second word of the formats here.
const WHOLE: u64 = 0x0100_0000;
const LOST: u64 = 0x0200_0000;

/// A format that keeps or writes the first word.
struct Described {
    pairs: bool,
}

impl Format for Described {
    fn done(&self, done: Done) -> (Option<u64>, u64) {
        let end = match done.end {
            End::No => 0,
            End::Whole => WHOLE,
            End::Lost => LOST,
        };
        let first = self.pairs.then_some(u64::from(done.first));
        (first, done.len as u64 | end)
    }
}

fn address(index: u32) -> u64 {
    BUFFERS + u64::from(index) * 0x400
}

struct Lab {
    memory: Memory,
    room: Room,
    put: Put,
    pairs: bool,
}

impl Lab {
    /// A ring from descriptor 6 on, whose guest has given all but one.
    fn new(pairs: bool) -> Lab {
        let memory = Memory::new();
        memory.map_anon(0, MEMORY).expect("map");
        let head = 6;
        let ring = Ring {
            base: RING,
            len: DESCRIPTORS,
            head,
            tail: head - 1,
        };
        let lab = Lab {
            memory,
            room: Room {
                ring,
                first: head,
                free: ring.available(),
            },
            put: Put {
                buffer: BUFFER,
                fcs: Fcs::Stripped,
                sum_from: 0,
                expected: 1,
            },
            pairs,
        };
        for index in 0..DESCRIPTORS {
            lab.give(index, address(index));
        }
        lab
    }

    /// Has descriptor `index` point to a buffer; its second word is all ones.
    fn give(&self, index: u32, addr: u64) {
        let at = self.room.ring.address(index);
        let view = self.memory.view();
        view.write(at, &addr.to_le_bytes()).expect("in reach");
        view.write(at + 8, &[0xff; 8]).expect("in reach");
    }

    fn put(&mut self, bytes: &[u8]) -> Placed {
        let mut batch = Batch::new();
        batch.push_bytes(bytes);
        batch.end(Offload::NONE);
        let frame = batch.get(0).expect("one");
        let settings = FrameSettings {
            vet: 0x8100,
            strip_vlan: true,
            max_len: 1 << 14,
            max_tagged: 1 << 14,
        };
        let accepted = Accepted::of(&frame, &settings, |_| None);
        let view = self.memory.view();
        let mut writer = Writer::new(&view);
        let described = Described { pairs: self.pairs };
        let placed = writer.put(&mut self.room, &self.put, (&frame, &accepted), |_| {
            (described, 0)
        });
        assert_eq!(writer.flush(&mut self.room, &()), 0);
        writer.end();
        placed
    }

    fn words(&self, index: u32) -> (u64, u64) {
        let word = |at: u64| {
            let mut bytes = [0; 8];
            let at = self.room.ring.address(index) + at;
            self.memory.view().read(at, &mut bytes).expect("in reach");
            u64::from_le_bytes(bytes)
        };
        (word(0), word(8))
    }

    fn read(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.view().read(addr, &mut bytes).expect("in reach");
        bytes
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}

#[test]
fn a_frame_of_three_buffers_goes_around_the_ring_in_either_format() {
    for pairs in [false, true] {
        let mut lab = Lab::new(pairs);
        let frame = bytes(600);
        assert_eq!(lab.put(&frame).outcome, Outcome::Done);
        let first = |index, first| if pairs { first } else { address(index) };
        assert_eq!(lab.words(6), (first(6, 1), 256));
        assert_eq!(lab.words(7), (first(7, 0), 256));
        assert_eq!(lab.words(0), (first(0, 0), 88 | WHOLE));
        assert_eq!(lab.words(1), (address(1), u64::MAX));
        assert_eq!(
            (lab.room.ring.head, lab.room.first, lab.room.free),
            (1, 1, 4)
        );
        let parts = [(6, 256), (7, 256), (0, 88)];
        let whole = parts.map(|(index, len)| lab.read(address(index), len));
        assert_eq!(whole.concat(), frame);
    }
}

#[test]
fn what_finds_no_room_takes_nothing() {
    let mut lab = Lab::new(true);
    lab.room.free = 2;
    assert_eq!(lab.put(&bytes(600)).outcome, Outcome::NoRoom);
    assert_eq!((lab.room.ring.head, lab.room.free), (6, 2));
    assert_eq!(lab.words(6), (address(6), u64::MAX));
    // No ring has room for this one: it does not block those behind it.
    let placed = lab.put(&bytes(DESCRIPTORS as usize * BUFFER));
    assert_eq!((placed.outcome, placed.too_large), (Outcome::Lost, true));
    assert_eq!((lab.room.ring.head, lab.room.free), (0, 0));
    assert_eq!(lab.words(7).1, 256 | LOST);
}

#[test]
fn null_buffers_are_used_up() {
    let mut lab = Lab::new(false);
    lab.give(6, 0);
    lab.room.free = 1;
    assert_eq!(lab.put(&bytes(60)).outcome, Outcome::Lost);
    assert_eq!(lab.room.ring.head, 7);
    lab.room.free = 4;
    assert_eq!(lab.put(&bytes(60)).outcome, Outcome::Done);
}

#[test]
fn a_buffer_out_of_reach_loses_the_frame_and_a_ring_out_of_reach_everything() {
    let mut lab = Lab::new(true);
    lab.give(7, MEMORY);
    let placed = lab.put(&bytes(300));
    assert_eq!((placed.outcome, placed.faults), (Outcome::Lost, 1));
    assert_eq!((lab.words(6).1, lab.words(7).1), (256, 44 | LOST));
    lab.room.ring.base = MEMORY;
    let placed = lab.put(&bytes(60));
    assert_eq!((placed.outcome, placed.faults), (Outcome::Lost, 1));
    assert_eq!(lab.room.ring.head, 0);
}

#[test]
fn descriptors_are_taken_until_a_buffer_is_null_or_a_frame_is_not_for_it() {
    let mut lab = Lab::new(false);
    lab.give(1, 0);
    let view = lab.memory.view();
    let mut writer = Writer::new(&view);
    let mut taken = Vec::new();
    let n = writer.take(
        &mut lab.room,
        (5, 5),
        |i| Some((60 + i, i)),
        |i, to, with| taken.push((i, to.len(), with)),
    );
    assert_eq!(n, 3);
    assert_eq!(taken, [(0, 60, 0), (1, 61, 1), (2, 62, 2)]);
    assert_eq!((lab.room.ring.head, lab.room.free), (1, 4));
    let none = |_| None::<(usize, ())>;
    assert_eq!(writer.take(&mut lab.room, (5, 5), none, |_, _, ()| {}), 0);
    assert_eq!((lab.room.ring.head, lab.room.free), (1, 4));
}

#[test]
fn tags_are_taken_out_and_short_frames_padded() {
    let mut frame = bytes(40);
    frame[12..16].copy_from_slice(&[0x81, 0, 0x20, 5]);
    let mut batch = Batch::new();
    batch.push_bytes(&frame);
    batch.end(Offload::NONE);
    let frame = batch.get(0).expect("one");
    let mut settings = FrameSettings {
        vet: 0x8100,
        strip_vlan: true,
        max_len: 1518,
        max_tagged: 60,
    };
    let accepted = Accepted::of(&frame, &settings, |_| None);
    assert_eq!((accepted.tag, accepted.strip), (Some(0x2005), true));
    assert_eq!((accepted.head().len(), accepted.from), (12, 16));
    assert_eq!((accepted.pad, accepted.on_wire), (20, 64));
    assert!(
        accepted.bad && !accepted.runt,
        "longer than tagged ones may be"
    );
    assert_eq!(
        (accepted.in_buffers(true), accepted.in_buffers(false)),
        (56, 60)
    );
    settings.vet = 0x88a8;
    let accepted = Accepted::of(&frame, &settings, |_| None);
    assert_eq!((accepted.tag, accepted.bad), (None, false));
}
