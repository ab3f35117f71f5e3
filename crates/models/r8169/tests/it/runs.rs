//! Runs are sent and received as batches are.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::*;
use frame::{Batch, Caps, Run, Sink, Wake};
use model::Progress;
use model_testkit::packet::v4_with;
use proptest::prelude::*;
use wire::Offload;

/// Takes no runs.
struct NoRuns<'w>(&'w Wire);

impl Sink for NoRuns<'_> {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.0.deliver(batch, picks)
    }

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// What can be seen of a NIC and its guest.
fn seen(m: &Machine) -> (Vec<u8>, Vec<(&'static str, u64)>, Vec<u8>) {
    let mut counters = Vec::new();
    m.nic
        .control
        .counters(&mut |name, value| counters.push((name, value)));
    // The rings, and as much of each buffer as is used.
    let mut bytes = m.peek(RAM, 0x2_0000);
    (0..40).for_each(|i| bytes.extend(m.buffer(i, 2100)));
    bytes.extend(m.peek(RAM + RAM_LEN - 100, 100));
    (m.save(), counters, bytes)
}

pub fn equal(a: &Machine, b: &Machine) -> Result<(), TestCaseError> {
    let (a, b) = (seen(a), seen(b));
    prop_assert_eq!(a.1, b.1);
    prop_assert_eq!(a.0, b.0);
    let differs = a.2.iter().zip(&b.2).position(|(a, b)| a != b);
    prop_assert_eq!(differs, None, "memory");
    Ok(())
}

pub fn machine(len: u32, size: u32, cplus: u16, rms: u16, rcr: u32) -> Machine {
    let mut m = Machine::new();
    m.rings(len, size);
    m.w16(reg::CPLUS_CMD, cplus);
    m.w16(reg::RX_MAX_SIZE, rms);
    m.w32(reg::RX_CONFIG, rcr);
    m.w16(reg::IMR, ROK | TOK | TER | RER);
    m
}

fn unsummed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[40..42].fill(0);
    frame
}

/// Frames that begin alike; every third one is longer by `more`.
fn frames(kind: u8, dst: [u8; 6], (len, more): (usize, usize), count: usize) -> Vec<Vec<u8>> {
    let one = |n: usize| {
        let len = if n % 3 == 1 { len + more } else { len };
        let mut frame = match kind {
            0 => plain(dst, len),
            1 | 3 => {
                let mut frame = v4_with([10, 0, 0, 1], [10, 0, 0, 2], kind == 3, 7, 9, len);
                if len % 3 == 0 {
                    frame.extend([0x55; 7]);
                }
                frame
            }
            _ => {
                let mut frame = plain(dst, len);
                frame[12..16].copy_from_slice(&[0x81, 0, 0, 5]);
                frame
            }
        };
        frame[..6].copy_from_slice(&dst);
        // Of IP: the second address, the time to live, UDP's checksum, or the bytes behind, each in some.
        let at = match n % 5 {
            0 if kind == 1 => return unsummed(frame),
            0 | 1 => return frame,
            2 => 30,
            3 => 22,
            _ => frame.len() - 1,
        };
        frame[at] ^= n as u8;
        frame
    };
    (0..count).map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]
    #[test]
    fn runs_are_received_as_batches_are(
        ring in 1u32..40, sizes in proptest::collection::vec(prop::sample::select(vec![2048u32, 2048, 2048, 64, 100, 0]), 40),
        gaps in proptest::collection::vec(0u8..12, 40),
        cplus in prop::sample::select(vec![0u16, 0x20, 0x40, 0x60]),
        rms in prop::sample::select(vec![0u16, 1518, 100]),
        rcr in prop::sample::select(vec![0xfu32, 0xe, 0xa, 2]),
        groups in proptest::collection::vec((0u8..4, 0usize..4, 32usize..1400, 1usize..80, prop::sample::select(vec![0usize, 0, 1, 100])), 1..5),
    ) {
        let [mut a, mut b] = [0, 0].map(|_| machine(ring, 2048, cplus, rms, rcr));
        for (kind, to, len, count, more) in groups {
            for m in [&a, &b] {
                for i in 0..ring {
                    let (size, gap) = (sizes[i as usize], gaps[i as usize]);
                    let end = if i + 1 == ring { EOR } else { 0 };
                    // One is not given, one lies outside, in part.
                    let own = if gap == 1 { 0 } else { OWN };
                    let at = if gap == 2 { RAM + RAM_LEN - 50 } else { RX_BUFFERS + u64::from(i) * RX_STEP };
                    m.rx_desc(i, own | end | size, at);
                }
            }
            let dst = [MAC, PEER, [0xff; 6], [1, 0, 0x5e, 0, 0, 1]][to];
            let frames = frames(kind, dst, (len, more), count);
            let len = frames[0].len();
            // They lie in the memory of another guest.
            let sender = memory(0, 0x8_0000);
            let view = sender.view();
            let (mut at, mut heads, mut lens) = (Vec::new(), Vec::new(), Vec::new());
            let from = view.read_places(0, len).expect("mapped");
            for (n, frame) in frames.iter().enumerate() {
                let place = n as u64 * 0x1000;
                view.write(place, frame).expect("mapped");
                at.push(place);
                lens.push(frame.len() as u16);
                heads.push(from.head_of(place, frame.len()).expect("mapped"));
            }
            let run = match lens.iter().all(|l| usize::from(*l) == len) {
                true => Run::new(from, &at, &heads),
                false => Run::of_lengths(from, (&at, &lens), &heads),
            };
            let taken = run.and_then(|run| a.nic.receive.deliver_run(&a.env, &run)).unwrap_or(0);
            let offer = |m: &Machine, from: usize| {
                let rest: Vec<_> = frames[from..].iter().map(|f| (&f[..], Offload::NONE)).collect();
                if rest.is_empty() { count } else { from + m.offer_notes(&rest) }
            };
            let (all_a, all_b) = (offer(&a, taken), offer(&b, 0));
            prop_assert_eq!(all_a, all_b);
            equal(&a, &b)?;
            for m in [&mut a, &mut b] {
                m.take_isr();
            }
        }
    }

    #[test]
    fn runs_are_sent_as_batches_are(
        ring in 2u32..64,
        packets in proptest::collection::vec((0u8..16, 60usize..300), 1..60),
        room in 1usize..100, budget in prop::sample::select(vec![3usize, 64, 256]),
    ) {
        let [mut a, mut b] = [0, 0].map(|_| machine(ring, 2048, 0, 0, 0xf));
        for m in [&a, &b] {
            let mut len = 60;
            for (n, (kind, other)) in packets.iter().enumerate().take(ring as usize) {
                let at = TX_BUFFERS + n as u64 * 0x1000;
                let end = if n as u32 + 1 == ring { EOR } else { 0 };
                let mut frame = plain(PEER, 300);
                frame[20] = n as u8;
                let (mut bits, mut opts2) = (OWN | BOTH, 0);
                match kind {
                    0 => len = *other,
                    1 => frame[0] ^= 4,
                    2 => opts2 = 1 << 17,
                    3 => bits &= !LS,
                    4 => bits = 0,
                    _ => {}
                }
                m.poke(at, &frame);
                m.tx_desc(n as u32, bits | end | len as u32, opts2, at);
            }
        }
        a.wire.set_room(room);
        b.wire.set_room(room);
        for _ in 0..200 {
            let x = a.nic.transmit.run(&a.env, &a.wire, budget);
            let y = b.nic.transmit.run(&b.env, &NoRuns(&b.wire), budget);
            if x != Progress::More && y != Progress::More {
                prop_assert_eq!(x, y);
                break;
            }
        }
        prop_assert_eq!(a.wire.take(), b.wire.take());
        equal(&a, &b)?;
    }
}

#[test]
fn alike_frames_cross_as_a_run() {
    let mut m = machine(64, 2048, 0x60, 0, 0xf);
    for i in 0..32 {
        m.poke(TX_BUFFERS + i * 0x1000, &plain(PEER, 60));
        m.tx_desc(i as u32, OWN | BOTH | 60, 0, TX_BUFFERS + i * 0x1000);
    }
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.in_runs.load(Relaxed), 32);
    assert_eq!(m.wire.take().len(), 32);
    assert_eq!(m.take_isr(), TOK | TDU);
}

#[test]
fn a_full_sink_is_offered_runs_again_once_it_has_room() {
    let mut m = machine(64, 2048, 0x60, 0, 0xf);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    for round in 0..20 {
        for n in 0..16 {
            let at = (16 * round + n) % 64;
            let end = if at == 63 { EOR } else { 0 };
            m.tx_desc(at, OWN | BOTH | end | 60, 0, TX_BUFFERS);
        }
        for room in [0, 16] {
            m.wire.set_room(room);
            m.nic.transmit.run(&m.env, &m.wire, 256);
        }
    }
    assert_eq!(m.wire.in_runs.load(Relaxed), 20 * 16);
}

/// Of several lengths, and for several stations; and no more at once than a turn has bytes.
#[test]
fn mixed_frames_cross_as_a_mix() {
    let mut m = machine(64, 2048, 0x60, 0, 0xf);
    let mut want = Vec::new();
    for i in 0..32 {
        let to = if i % 2 == 0 { PEER } else { [2, 0, 0, 0, 0, 9] };
        want.push(plain(to, 60 + 10 * i as usize));
        m.poke(TX_BUFFERS + i * 0x1000, &want[i as usize]);
        let len = want[i as usize].len() as u32;
        m.tx_desc(i as u32, OWN | BOTH | len, 0, TX_BUFFERS + i * 0x1000);
    }
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.in_mixes.load(Relaxed), 32);
    assert_eq!(m.wire.take(), want);
    let mut m = machine(64, 2048, 0x60, 0, 0xf);
    m.poke(TX_BUFFERS, &plain(PEER, 16_000));
    for i in 0..63 {
        m.tx_desc(i, OWN | BOTH | 16_000, 0, TX_BUFFERS);
    }
    assert_eq!(m.nic.transmit.run(&m.env, &m.wire, 256), Progress::More);
    assert_eq!(m.wire.take().len(), model::TURN_BYTES.div_ceil(16_000));
    assert_eq!(m.run(), Progress::Idle);
}

#[test]
fn alike_frames_arrive_as_a_run() {
    let frames = frames(0, MAC, (60, 0), 32);
    let sender = memory(0, 0x8_0000);
    let view = sender.view();
    let from = view.read_places(0, 60).expect("mapped");
    let at: Vec<_> = (0..32u64).map(|n| n * 0x1000).collect();
    for (place, frame) in at.iter().zip(&frames) {
        view.write(*place, frame).expect("mapped");
    }
    let heads: Vec<_> = at
        .iter()
        .map(|at| from.head(*at).expect("mapped"))
        .collect();
    let run = Run::new(from, &at, &heads).expect("frames");
    let mut m = machine(24, 2048, 0x60, 0, 0xf);
    assert_eq!(m.nic.receive.deliver_run(&m.env, &run), Some(24));
    for (i, frame) in (0..24).zip(&frames) {
        assert_eq!(m.buffer(i, 60), *frame);
        assert_eq!(m.rx_words(i).0 & !EOR, BOTH | 1 << 26 | 64);
    }
    assert_eq!(m.take_isr(), ROK);
    assert_eq!(m.nic.receive.deliver_run(&m.env, &run), None);
    // What is judged, too, but not by headers further in.
    let mut m = machine(32, 2048, 0x20, 0, 0xf);
    let mut udp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 18);
    udp[..6].copy_from_slice(&MAC);
    view.write(0, &udp).expect("mapped");
    let heads = [from.head(0).expect("mapped")];
    let run = Run::new(from, &at[..1], &heads).expect("a frame");
    assert_eq!(m.nic.receive.deliver_run(&m.env, &run), Some(1));
    assert_eq!(m.rx_words(0), (BOTH | 1 << 26 | 1 << 18 | 64, 1 << 30));
    udp[12..14].copy_from_slice(&[0x86, 0xdd]);
    view.write(0, &udp).expect("mapped");
    let heads = [from.head(0).expect("mapped")];
    let run = Run::new(from, &at[..1], &heads).expect("a frame");
    assert_eq!(m.nic.receive.deliver_run(&m.env, &run), None);
    m.w16(reg::CPLUS_CMD, 0);
    assert_eq!(m.nic.receive.deliver_run(&m.env, &run), Some(1));
}

/// What registers say about a run is worked out once, and anew when they change.
#[test]
fn a_run_is_received_as_registers_say_now() {
    let sender = memory(0, 0x2000);
    let view = sender.view();
    view.write(0, &plain(MAC, 200)).expect("mapped");
    let from = view.read_places(0, 200).expect("mapped");
    let heads = [from.head(0).expect("mapped")];
    let run = Run::new(from, &[0], &heads).expect("a frame");
    let mut m = machine(8, 2048, 0x60, 0, 0xf);
    let take = |m: &Machine| m.nic.receive.deliver_run(&m.env, &run);
    assert_eq!(take(&m), Some(1));
    for (change, back) in [
        ((reg::RX_CONFIG, 4, 0), (reg::RX_CONFIG, 4, 0xf)),
        ((reg::RX_MAX_SIZE, 2, 203), (reg::RX_MAX_SIZE, 2, 204)),
        ((reg::CHIP_CMD, 1, 4), (reg::CHIP_CMD, 1, 0xc)),
    ] {
        for ((at, width, value), taken) in [(change, None), (back, Some(1))] {
            let bytes = u64::to_le_bytes(value);
            m.nic.control.write(&m.env, 2, at, &bytes[..width]);
            assert_eq!(take(&m), taken, "{at:x}");
        }
    }
    // Another address, and another ring.
    m.w32(reg::RX_CONFIG, 0xe);
    assert_eq!(take(&m), Some(1));
    m.w8(reg::CFG9346, 0xc0);
    m.w32(reg::IDR0, 0);
    assert_eq!(take(&m), None);
    m.w32(
        reg::IDR0,
        u32::from_le_bytes([MAC[0], MAC[1], MAC[2], MAC[3]]),
    );
    m.w32(reg::RX_LOW, STATS as u32 & !0xff);
    assert_eq!(take(&m), None, "a ring without descriptors");
    m.w32(reg::RX_LOW, RX_RING as u32);
    m.rx_desc(0, OWN | 2048, RX_BUFFERS);
    assert_eq!(take(&m), Some(1));
    assert_eq!(m.rx_words(0).0 & OWN, 0);
}
