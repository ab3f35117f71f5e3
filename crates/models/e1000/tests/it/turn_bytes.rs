//! What one turn of the transmitter may take is bounded in bytes, segments and copies too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{
    EOP, IFCS, Machine, MachineExt, PEER, RS, TSE, TX_BUFFERS, data, legacy, plain, reg,
};
use crate::segmentation::{tso_ctx4, tso4};
use frame::{Batch, Caps, Sink, Wake, work};
use model::{Progress, TURN_BYTES};
use proptest::prelude::*;

/// A switch that shows every frame to so many receivers.
struct Flood {
    receivers: u64,
    copies: AtomicU64,
}

impl Flood {
    fn new(receivers: u64) -> Flood {
        Flood {
            receivers,
            copies: AtomicU64::new(0),
        }
    }
}

impl Sink for Flood {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let frames = picks.iter().filter_map(|pick| batch.get((*pick).into()));
        let segments: usize = frames.map(|f| f.notes().segments(f.len())).sum();
        let copies = segments as u64 * self.receivers;
        work::add(copies);
        self.copies.fetch_add(copies, Relaxed);
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// The copies of each turn until the ring is empty.
fn turns(m: &mut Machine, tail: u32, to: &Flood) -> Vec<u64> {
    m.note(reg::TDT, tail);
    m.nic.control.take_work();
    let mut all = Vec::new();
    loop {
        let progress = m.nic.transmit.run(&m.env, to, 256);
        all.push(to.copies.swap(0, Relaxed));
        if progress == Progress::Idle {
            return all;
        }
        assert_eq!(progress, Progress::More);
    }
}

#[test]
fn a_flood_has_small_turns_as_soon_as_it_is_known_to_be_one() {
    const RECEIVERS: u64 = 60;
    let mut m = Machine::default();
    m.tx_on(2048);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    for i in 0..2047 {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP | IFCS | RS));
    }
    let all = turns(&mut m, 2047, &Flood::new(RECEIVERS));
    assert_eq!(all.iter().sum::<u64>(), 2047 * RECEIVERS);
    assert!(all[0] <= 256 * RECEIVERS);
    let later = &all[1..];
    assert!(
        later.iter().all(|copies| *copies <= 256 + 16 * RECEIVERS),
        "{later:?}"
    );
    // One receiver is no flood.
    let alone = turns(&mut m, 2046, &Flood::new(1));
    assert!(alone.iter().rev().nth(1) == Some(&256), "{alone:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever MSS a guest chooses: a turn is some hundred segments, for each receiver.
    #[test]
    fn segments_are_what_a_turn_costs(mss in prop_oneof![1..400u16, 400..9000u16], len in 1..65_000usize) {
        let mut m = Machine::default();
        m.tx_on(64);
        let packet = tso4(len, 0x18);
        m.poke(TX_BUFFERS, &packet);
        let (low, high) = crate::common::Ctx { paylen: len as u32, ..tso_ctx4(mss) }.words();
        m.tx_desc(0, low, high);
        let command = data(packet.len() as u32, TSE | EOP | IFCS | RS, 3, 0);
        for i in 1..63 {
            m.tx_desc(i, TX_BUFFERS, command);
        }
        let all = turns(&mut m, 63, &Flood::new(1));
        let most = (256 + TURN_BYTES / 1400) as u64;
        prop_assert!(all.iter().all(|segments| *segments <= most), "{all:?}");
        let sent = if len.div_ceil(mss.into()) <= wire::MAX_SEGMENTS { 62 } else { 0 };
        prop_assert_eq!(all.iter().sum::<u64>(), (sent * len.div_ceil(mss.into())) as u64);
    }
}

#[test]
fn long_frames_end_a_turn_before_many_of_them_do() {
    const LEN: usize = 9000;
    let mut m = Machine::default();
    m.tx_on(256);
    m.poke(TX_BUFFERS, &plain(PEER, LEN));
    for i in 0..255 {
        m.tx_desc(i, TX_BUFFERS, legacy(LEN as u16, EOP | IFCS | RS));
    }
    m.nic
        .control
        .write(&m.env, 0, reg::TDT, &255u32.to_le_bytes());
    m.nic.control.take_work();
    let (mut turns, mut sent) = (0, 0);
    loop {
        let progress = m.nic.transmit.run(&m.env, &m.wire, 256);
        let frames = m.wire.take().len();
        // The frame that crosses the bound is whole.
        assert!(frames * LEN <= TURN_BYTES + LEN, "{frames} in one turn");
        turns += 1;
        sent += frames;
        if progress == Progress::Idle {
            break;
        }
        assert_eq!((progress, frames), (Progress::More, TURN_BYTES / LEN + 1));
    }
    assert_eq!((turns, sent), (6, 255));
}
