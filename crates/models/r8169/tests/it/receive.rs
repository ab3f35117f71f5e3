//! Frames in.

use std::sync::Arc;

use crate::common::*;
use hypernic_r8169::Config;
use model_testkit::CountedWake;
use model_testkit::packet::{large, sums, tagged, v4_with, v6_tcp};
use proptest::prelude::*;
use wire::Offload;

const MAR: u32 = 1 << 27;
const PAM: u32 = 1 << 26;
const BAR: u32 = 1 << 25;
const LEN: u32 = 0x3fff;

#[test]
fn a_frame_comes_with_room_for_its_fcs() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    m.w16(reg::IMR, ROK);
    let frame = plain(MAC, 100);
    assert_eq!(m.offer(&[&frame]), 1);
    assert_eq!(m.rx_words(0), (BOTH | PAM | 104, 0));
    assert_eq!(m.buffer(0, 104), [&frame[..], &[0; 4]].concat());
    assert!(m.line());
    assert_eq!(m.take_isr(), ROK);
    // Short ones are padded; the end of the ring is kept.
    for i in 1..4 {
        assert_eq!(m.offer(&[&plain(MAC, 20)]), 1);
        let end = if i == 3 { EOR } else { 0 };
        assert_eq!(m.rx_words(i), (end | BOTH | PAM | 64, 0));
    }
    assert_eq!(m.buffer(1, 64)[20..], [0; 44]);
}

#[test]
fn the_filter_decides_and_the_descriptor_says_to_whom() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    let all = [MAC, PEER, [0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
    let offer =
        |m: &mut Machine| m.offer(&all.map(|dst| plain(dst, 60)).each_ref().map(|f| &f[..]));
    assert_eq!(offer(&mut m), 4);
    assert_eq!(
        [0, 1, 2, 3].map(|i| m.rx_words(i).0),
        [BOTH | PAM | 64, BOTH | 64, BOTH | BAR | 64, BOTH | MAR | 64]
    );
    m.w32(reg::RX_CONFIG, 0x0000_e70a);
    assert_eq!(offer(&mut m), 4);
    assert_eq!(
        [4, 5].map(|i| m.rx_words(i).0),
        [BOTH | PAM | 64, BOTH | BAR | 64]
    );
    assert_eq!(m.rx_words(6).0 & OWN, OWN);
    assert_eq!(m.counter("rx_filtered"), 2);
}

#[test]
fn frames_longer_than_a_buffer_span_descriptors() {
    let mut m = Machine::new();
    m.rings(4, 256);
    let frame = plain(MAC, 600);
    assert_eq!(m.offer(&[&frame]), 1);
    assert_eq!(m.rx_words(0).0, FS | PAM | 256);
    assert_eq!(m.rx_words(1).0, PAM | 256);
    assert_eq!(m.rx_words(2).0, LS | PAM | 604);
    let got = [m.buffer(0, 256), m.buffer(1, 256), m.buffer(2, 88)].concat();
    assert_eq!(got, frame);
    // Not enough for another of them: none of it is there.
    assert_eq!(m.offer(&[&frame]), 0);
    assert_eq!(m.rx_words(3).0, OWN | EOR | 256);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    assert_eq!(m.rx_words(3).0, EOR | BOTH | PAM | 104);
}

#[test]
fn rms_cuts_first_and_counts_the_fcs_and_the_tag() {
    let mut m = Machine::new();
    m.rings(8, 2048);
    m.w16(reg::RX_MAX_SIZE, 1518);
    assert_eq!(m.offer(&[&plain(MAC, 1514), &plain(MAC, 1515)]), 2);
    assert_eq!(m.counter("rx_too_long"), 1);
    assert_eq!(m.take_isr(), ROK | RER);
    let beside = Offload {
        vlan: Some(5),
        ..Offload::NONE
    };
    assert_eq!(m.offer_notes(&[(&plain(MAC, 1511), beside)]), 1);
    assert_eq!(m.counter("rx_too_long"), 2);
    assert_eq!(m.offer_notes(&[(&plain(MAC, 1510), beside)]), 1);
    assert_eq!(m.rx_words(1).0 & LEN, 1518);
}

#[test]
fn jumbo_frames_come_whole() {
    let mut m = Machine::new();
    m.rings(4, 0x3fff);
    let frame = plain(MAC, 9000);
    assert_eq!(m.offer(&[&frame]), 1);
    assert_eq!(m.rx_words(0).0, BOTH | PAM | 9004);
    assert_eq!(m.buffer(0, 9000), frame);
}

#[test]
fn tags_are_taken_out_or_put_in() {
    let frame = plain(MAC, 100);
    let inside = tagged(frame.clone());
    let beside = Offload {
        vlan: Some(5),
        ..Offload::NONE
    };
    for strip in [false, true] {
        let mut m = Machine::new();
        m.rings(4, 1536);
        m.w16(reg::CPLUS_CMD, if strip { 0x40 } else { 0 });
        m.offer_notes(&[(&inside, Offload::NONE), (&frame, beside)]);
        for i in 0..2 {
            if strip {
                assert_eq!(m.rx_words(i), (BOTH | PAM | 104, 1 << 16 | 0x0500));
                assert_eq!(m.buffer(i, 100), frame);
            } else {
                assert_eq!(m.rx_words(i), (BOTH | PAM | 108, 0));
                assert_eq!(m.buffer(i, 104), inside);
            }
        }
    }
}

#[test]
fn headers_and_checksums_are_judged() {
    const TCP: u32 = 1 << 17;
    const UDP: u32 = 1 << 18;
    const V4: u32 = 1 << 30;
    const V6: u32 = 1 << 31;
    let to = |mut frame: Vec<u8>| {
        frame[..6].copy_from_slice(&MAC);
        frame
    };
    let tcp = to(v4_with([10, 0, 0, 1], [10, 0, 0, 2], true, 7, 9, 100));
    let udp = to(v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 100));
    let six = to(v6_tcp([0xfd; 16].into(), [0xfe; 16].into(), 7, 9));
    let spoil = |frame: &Vec<u8>, at: usize| {
        let mut frame = frame.clone();
        frame[at] ^= 0x10;
        frame
    };
    let mut icmp = tcp.clone();
    icmp[23] = 1;
    icmp[24..26].fill(0);
    let sum = wire::Sum::of(&icmp[14..34]).finish();
    icmp[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut fragment = tcp.clone();
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let sum = wire::Sum::of(&fragment[14..34]).finish();
    fragment[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut unsummed = udp.clone();
    unsummed[40..42].fill(0);
    let cases = [
        (tcp.clone(), TCP, V4),
        (udp.clone(), UDP, V4),
        (six.clone(), TCP, V6),
        (spoil(&tcp, 60), TCP | 1 << 14, V4),
        (spoil(&udp, 60), UDP | 1 << 15, V4),
        (spoil(&six, 80), TCP | 1 << 14, V6),
        // The time to live is not of the pseudo-header.
        (spoil(&tcp, 22), TCP | 1 << 16, V4),
        (icmp, TCP | UDP, V4),
        (fragment, TCP | UDP, V4),
        (unsummed, TCP | UDP, V4),
        (plain(MAC, 100), 0, 0),
    ];
    for judged in [false, true] {
        let mut m = Machine::new();
        m.rings(16, 1536);
        m.w16(reg::CPLUS_CMD, if judged { 0x20 } else { 0 });
        for (i, (frame, first, second)) in cases.iter().enumerate() {
            assert_eq!(m.offer(&[frame]), 1);
            let (opts1, opts2) = m.rx_words(i as u32);
            let want = if judged { (*first, *second) } else { (0, 0) };
            assert_eq!((opts1 & 0x7_c000, opts2), want, "case {i}");
        }
    }
}

#[test]
fn a_checksum_left_to_the_receiver_is_written_and_vouched_for() {
    for size in [60, 1536] {
        let mut m = Machine::new();
        m.rings(8, size);
        m.w16(reg::CPLUS_CMD, 0x20);
        let (mut frame, notes) = large(MAC, false, 0, 100, 1000);
        let one = Offload {
            gso: wire::Gso::None,
            ..notes
        };
        assert_eq!(m.offer_notes(&[(&frame, one)]), 1);
        sums(&mut frame);
        let buffers = (frame.len() as u32 + 4).div_ceil(size);
        let got: Vec<u8> = (0..buffers)
            .flat_map(|i| m.buffer(i, size.min(1536) as usize))
            .collect();
        assert_eq!(got[..frame.len()], frame);
        assert_eq!(m.rx_words(buffers - 1).0 & 0x7_c000, 1 << 17);
    }
}

/// A receiver takes no large packets: what a sink's caller did not cut is cut here, all of it or nothing.
#[test]
fn a_large_packet_is_cut_and_placed_whole_or_not_at_all() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    let (frame, notes) = large(MAC, false, 0, 3000, 1000);
    assert_eq!(m.offer_notes(&[(&frame, notes)]), 1);
    assert_eq!([0, 1, 2].map(|i| m.rx_words(i).0 & LEN), [1058; 3]);
    assert_eq!(m.offer_notes(&[(&frame, notes)]), 0);
    assert_eq!(m.rx_words(3).0, OWN | EOR | 1536);
}

#[test]
fn a_ring_without_descriptors_is_looked_at_while_frames_wait_and_only_then() {
    let mut m = Machine::new();
    m.rings(1, 1536);
    m.w16(reg::IMR, RDU);
    let frame = plain(MAC, 100);
    assert_eq!(m.offer(&[&frame]), 1);
    assert_eq!(m.armed(), None, "nothing waits");
    assert_eq!(m.offer(&[&frame]), 0);
    assert!(m.line());
    assert_eq!(m.take_isr() & RDU, RDU);
    let waker = Arc::new(CountedWake::default());
    let wake: Arc<dyn frame::Wake> = waker.clone();
    m.nic.receive.want_room(&wake);
    // No more than a millisecond, again and again.
    for _ in 0..3 {
        let at = m.armed().expect("a look");
        assert!(at <= m.env.clock.now() + 1_000_000);
        m.sleep(1_000_000);
        assert_eq!(waker.rung(), 0);
    }
    m.rx_desc(0, OWN | EOR | 1536, RX_BUFFERS);
    m.sleep(1_000_000);
    assert_eq!(waker.rung(), 1);
    assert_eq!(m.offer(&[&frame]), 1);
    m.sleep(10_000_000);
    assert_eq!(m.armed(), None);
    let looks = m.counter("rx_looks");
    m.sleep(1_000_000_000);
    m.take_isr();
    assert_eq!(m.counter("rx_looks"), looks, "nothing waits any more");
}

#[test]
fn buffers_are_found_with_the_next_access_and_the_next_frame() {
    let frame = plain(MAC, 100);
    let waiting = || {
        let mut m = Machine::new();
        m.rings(1, 1536);
        m.offer(&[&frame]);
        assert_eq!(m.offer(&[&frame]), 0);
        let waker = Arc::new(CountedWake::default());
        let wake: Arc<dyn frame::Wake> = waker.clone();
        m.nic.receive.want_room(&wake);
        m.rx_desc(0, OWN | EOR | 1536, RX_BUFFERS);
        (m, waker)
    };
    for access in 0..3 {
        let (mut m, waker) = waiting();
        match access {
            0 => drop(m.r16(reg::ISR)),
            1 => m.w16(reg::IMR, ROK),
            _ => m.w16(reg::ISR, ROK),
        }
        assert_eq!(waker.rung(), 1, "{access}");
    }
    // Another sender's.
    let (m, waker) = waiting();
    assert_eq!(m.offer(&[&frame]), 1);
    assert_eq!(waker.rung(), 1);
    // What has nothing to do with it.
    let (mut m, waker) = waiting();
    m.r32(reg::TX_CONFIG);
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(waker.rung(), 0);
    // A receiver that is switched off keeps nobody waiting.
    m.w8(reg::CHIP_CMD, 0x04);
    assert_eq!(waker.rung(), 1);
    assert_eq!(m.offer(&[&frame]), 1);
    assert_eq!(m.counter("rx_disabled"), 1);
}

#[test]
fn frames_that_are_given_up_are_missed() {
    let mut m = Machine::new();
    m.rings(1, 1536);
    let mut batch = frame::Batch::new();
    batch.push_bytes(&plain(MAC, 100));
    batch.end(Offload::NONE);
    m.nic.receive.give_up(&m.env, &batch, &[0]);
    assert_eq!(m.r32(reg::RX_MISSED), 1);
    m.w32(reg::RX_MISSED, 0);
    assert_eq!(m.r32(reg::RX_MISSED), 0);
    assert_eq!(m.counter("rx_missed"), 1);
}

#[test]
fn nothing_comes_while_the_receiver_is_off() {
    let mut config = Config::new(MAC);
    config.link = false;
    let mut m = Machine::with(config, Wire::default());
    m.rings(4, 1536);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    m.w8(reg::CHIP_CMD, 0x04);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    m.w8(reg::CHIP_CMD, 0x8c);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    assert_eq!(m.rx_words(0).0, OWN | 1536);
    assert_eq!(m.counter("rx_disabled"), 3);
    m.w8(reg::CHIP_CMD, 0x0c);
    assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
    assert_eq!(m.rx_words(0).0, BOTH | PAM | 104);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]
    /// Buffers of any size, given back at any time.
    #[test]
    fn every_frame_arrives_once_and_in_order(
        sizes in proptest::collection::vec(8u32..700, 1..12),
        lens in proptest::collection::vec(14usize..900, 1..30),
        give in proptest::collection::vec(any::<bool>(), 30),
    ) {
        let mut m = Machine::new();
        m.rings(1, 8);
        let n = sizes.len() as u32;
        let desc = |m: &Machine, i: u32| {
            let end = if i + 1 == n { EOR } else { 0 };
            m.rx_desc(i, OWN | end | sizes[i as usize], RX_BUFFERS + u64::from(i) * RX_STEP);
        };
        (0..n).for_each(|i| desc(&m, i));
        let most: u32 = sizes.iter().sum();
        let (mut at, mut got, mut want) = (0, Vec::new(), Vec::new());
        let mut partial: Vec<u8> = Vec::new();
        for (round, len) in lens.into_iter().enumerate() {
            let frame = plain(MAC, len);
            let fits = len.max(60) + 4 <= most as usize;
            for attempt in 0..2 {
                let dealt = m.offer(&[&frame]);
                if dealt == 1 {
                    if fits {
                        let mut padded = frame.clone();
                        padded.resize(len.max(60), 0);
                        want.push(padded);
                    }
                    break;
                }
                prop_assert_eq!(attempt, 0, "all buffers are free");
                // The driver takes all, and gives all back.
                take(&m, &sizes, &mut at, &mut partial, &mut got);
                (0..n).for_each(|i| desc(&m, i));
            }
            if give[round] {
                take(&m, &sizes, &mut at, &mut partial, &mut got);
                (0..n).for_each(|i| desc(&m, i));
            }
        }
        take(&m, &sizes, &mut at, &mut partial, &mut got);
        prop_assert_eq!(got, want);
    }
}

/// What a driver does that puts the pieces of frames together.
fn take(m: &Machine, sizes: &[u32], at: &mut u32, partial: &mut Vec<u8>, got: &mut Vec<Vec<u8>>) {
    for _ in 0..sizes.len() {
        let (word, _) = m.rx_words(*at);
        if word & OWN != 0 {
            return;
        }
        let size = sizes[*at as usize] as usize;
        if word & LS != 0 {
            let total = (word & LEN) as usize;
            partial.extend(m.buffer(*at, total - partial.len()));
            partial.truncate(total - 4);
            got.push(std::mem::take(partial));
        } else {
            assert_eq!((word & LEN) as usize, size);
            partial.extend(m.buffer(*at, size));
        }
        // Taken: another look at it finds nothing new.
        let end = if *at as usize + 1 == sizes.len() {
            EOR
        } else {
            0
        };
        m.rx_desc(
            *at,
            OWN | end | size as u32,
            RX_BUFFERS + u64::from(*at) * RX_STEP,
        );
        *at = (*at + 1) % sizes.len() as u32;
    }
}
