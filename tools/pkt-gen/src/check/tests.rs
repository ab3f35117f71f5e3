use super::*;
use crate::stamp::{FLOW_BITS, LEN, RUN};

/// A frame as the generator makes it, without the generator.
fn frame(flow: u32, number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[23] = UDP;
    frame[36..38].copy_from_slice(&9u16.to_be_bytes());
    let stamp = Stamp {
        run: RUN,
        flow,
        number,
        time: 1,
    };
    frame[42..42 + LEN].copy_from_slice(&stamp.bytes(len as u32));
    stamp::fill(stamp.key(), 0, &mut frame[42 + LEN..]);
    frame
}

fn judged(frames: &[Vec<u8>]) -> Verdict {
    let mut checker = Checker::new(RUN, Depth::Full);
    for frame in frames {
        checker.see(&frame.as_slice(), 16);
    }
    checker.verdict()
}

fn run(numbers: &[u32]) -> Verdict {
    let frames: Vec<_> = numbers.iter().map(|n| frame(5, *n, 100)).collect();
    judged(&frames)
}

#[test]
fn what_comes_in_order_is_clean() {
    let verdict = run(&[0, 1, 2, 3]);
    assert!(verdict.clean());
    assert_eq!((verdict.seen.frames, verdict.flows), (4, 1));
    assert_eq!(verdict.bytes, 400);
}

#[test]
fn each_fault_is_counted_as_what_it_is() {
    let of = |numbers: &[u32]| {
        let seen = run(numbers).seen;
        (seen.lost, seen.duplicates, seen.reordered, seen.stale)
    };
    assert_eq!(of(&[0, 1, 4, 5]), (2, 0, 0, 0));
    assert_eq!(of(&[3]), (3, 0, 0, 0));
    assert_eq!(of(&[0, 1, 1, 2]), (0, 1, 0, 0));
    assert_eq!(of(&[0, 2, 1, 3]), (0, 0, 1, 0));
    assert_eq!(of(&[0, 3, 2, 1, 4]), (0, 0, 2, 0));
    assert_eq!(of(&[0, 2, 1, 1, 2]), (0, 2, 1, 0));
    assert_eq!(of(&[0, 5, 3, 3, 6]), (3, 1, 1, 0));
}

#[test]
fn numbers_go_round() {
    let mut checker = Checker::new(RUN, Depth::Head);
    let near_the_end = u32::MAX - 1;
    checker.stream(0).next = u64::from(near_the_end);
    for n in [near_the_end, u32::MAX, 0, 1] {
        checker.see(&frame(0, n, 60).as_slice(), 16);
    }
    assert!(checker.verdict().clean());
}

#[test]
fn flows_and_senders_do_not_disturb_each_other() {
    let mut frames = Vec::new();
    for number in 0..50 {
        for id in [0, 1, 1 << FLOW_BITS, 7 << FLOW_BITS | 9] {
            frames.push(frame(id, number, 64));
        }
    }
    let verdict = judged(&frames);
    assert!(verdict.clean());
    assert_eq!((verdict.flows, verdict.seen.frames), (4, 200));
}

#[test]
fn any_changed_bit_of_stamp_or_payload_is_corruption() {
    for bit in 42 * 8..100 * 8 {
        let mut changed = frame(5, 0, 100);
        changed[bit / 8] ^= 1 << (bit % 8);
        let verdict = judged(&[changed]);
        assert_eq!((verdict.corrupt, verdict.seen.frames), (1, 0), "bit {bit}");
    }
    let mut short = frame(5, 0, 100);
    short.pop();
    assert_eq!(judged(&[short]).corrupt, 1);
}

#[test]
fn a_payload_of_another_frame_is_corruption() {
    let mut mixed = frame(5, 1, 200);
    mixed[120..].copy_from_slice(&frame(5, 0, 200)[120..]);
    assert_eq!(judged(&[mixed]).corrupt, 1);
}

#[test]
fn frames_of_others_are_not_judged() {
    let mut other_run = frame(5, 0, 100);
    let stamp = Stamp {
        run: RUN + 1,
        flow: 5,
        number: 7,
        time: 0,
    };
    other_run[42..42 + LEN].copy_from_slice(&stamp.bytes(100));
    let arp = {
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        arp
    };
    let verdict = judged(&[other_run, arp, vec![0; 14]]);
    assert_eq!(verdict.foreign, 3);
    assert!(verdict.clean());
}

#[test]
fn what_never_came_is_lost_once_the_sender_has_said_so() {
    let mut checker = Checker::new(RUN, Depth::Head);
    for n in [0, 1, 3] {
        checker.see(&frame(3 << FLOW_BITS, n, 60).as_slice(), 16);
    }
    checker.close(3, &[10, 2]);
    let verdict = checker.verdict();
    assert_eq!(verdict.seen.lost, 1 + 6 + 2);
    assert_eq!(verdict.seen.frames, 3);
}

#[test]
fn what_is_forgotten_is_stale_and_never_called_doubled() {
    let mut checker = Checker::new(RUN, Depth::Head);
    // Every second one is missing: more gaps than are remembered.
    let many = 2 * GAPS as u32 + 20;
    for n in (1..many).step_by(2) {
        checker.see(&frame(0, n, 60).as_slice(), 16);
    }
    checker.see(&frame(0, 0, 60).as_slice(), 16);
    checker.see(&frame(0, many - 2, 60).as_slice(), 16);
    let seen = checker.verdict().seen;
    assert_eq!((seen.stale, seen.reordered, seen.duplicates), (1, 1, 0));
}

/// A TCP segment of the stream of flow 2.
fn segment(position: u64, len: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + len];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(40 + len as u16).to_be_bytes());
    frame[23] = TCP;
    frame[38..42].copy_from_slice(&(position as u32).to_be_bytes());
    frame[42..46].copy_from_slice(&2u32.to_be_bytes());
    frame[46] = 5 << 4;
    frame[52..54].copy_from_slice(&RUN.to_be_bytes());
    stamp::fill(stamp::mix(2), position, &mut frame[54..]);
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn a_stream_may_be_cut_anywhere() {
    let frames = [segment(0, 1448), segment(1448, 3), segment(1451, 7000)];
    let verdict = judged(&frames);
    assert!(verdict.clean(), "{verdict:?}");
    assert_eq!(verdict.seen.frames, 3);
    let verdict = judged(&[segment(0, 1000), segment(1500, 500), segment(1200, 300)]);
    assert_eq!((verdict.seen.lost, verdict.seen.reordered), (200, 1));
    let mut changed = segment(0, 1000);
    changed[500] ^= 1;
    assert_eq!(judged(&[changed]).corrupt, 1);
}
