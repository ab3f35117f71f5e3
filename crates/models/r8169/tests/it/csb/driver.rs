//! A driver that keeps to the protocol, and what it is owed.

use super::{LEN, RXKICK, at_work, get, put};
use crate::common::*;
use csb::{at, passes};
use model::Progress;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    Turn,
    Frames(usize),
    Refill(u32),
    Flip,
    Limit(u32),
    Tx(bool),
    Rx(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..LEN).prop_map(Step::Send),
        4 => Just(Step::Turn),
        4 => (1..40usize).prop_map(Step::Frames),
        4 => (1..LEN).prop_map(Step::Refill),
        1 => Just(Step::Flip),
        1 => (0..4u32).prop_map(Step::Limit),
        1 => any::<bool>().prop_map(Step::Tx),
        1 => any::<bool>().prop_map(Step::Rx),
    ]
}

fn end(index: u32) -> u32 {
    if index + 1 == LEN { EOR } else { 0 }
}

/// The driver's receive ring: the descriptor to look at next, which is where those that were given back end, and frames
/// taken so far.
#[derive(Default)]
struct Given {
    next: u32,
    received: u32,
}

impl Given {
    /// Takes up to `most` frames, each the one that was due, and gives their buffers back. Whether the
    /// NIC asks to be called for that.
    fn refill(&mut self, m: &Machine, on: bool, most: u32) -> Result<bool, TestCaseError> {
        let old = self.next;
        for _ in 0..most {
            if m.rx_words(self.next).0 & OWN != 0 {
                break;
            }
            let at = RX_BUFFERS + u64::from(self.next) * RX_STEP;
            prop_assert_eq!(m.peek(at + 14, 4), self.received.to_be_bytes());
            self.received += 1;
            m.rx_desc(self.next, OWN | end(self.next) | 1536, at);
            self.next = (self.next + 1) % LEN;
        }
        put(m, at::GUEST_RDT, self.next);
        Ok(on && passes(old, self.next, get(m, at::HOST_RXKICK_AT), LEN))
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A driver that keeps to the protocol, calls only when it is asked to and switches the block on and
    /// off: all it sends goes out once and in order, all that is sent to it comes, and nothing hangs,
    /// without any help from the clock.
    #[test]
    fn nothing_is_lost_doubled_or_left(steps in prop::collection::vec(step(), 1..80)) {
        let mut m = at_work();
        let (mut on, mut tail, mut clean, mut sent) = (true, 0u32, 0u32, 0u32);
        let mut given = Given::default();
        let (mut offered, mut number) = (0u32, 0u32);
        // The device's turn is taken by `Turn` alone: calls only note work.
        let write = |m: &mut Machine, register: u64, data: &[u8]| {
            m.nic.control.write(&m.env, 2, register, data);
        };
        let turn = |m: &mut Machine| {
            let work = m.nic.control.take_work();
            if work.rx {
                m.nic.receive.poll(&m.env);
            }
            work.tx
        };
        let mut awake = true;
        let last = [Step::Refill(LEN), Step::Turn, Step::Refill(LEN), Step::Turn, Step::Turn];
        for step in steps.into_iter().chain(last) {
            match step {
                Step::Send(n) => {
                    for _ in 0..n {
                        if (tail + 1) % LEN == clean {
                            break;
                        }
                        let buffer = TX_BUFFERS + u64::from(tail) * 64;
                        let mut frame = plain(PEER, 60);
                        frame[14..18].copy_from_slice(&number.to_be_bytes());
                        number += 1;
                        m.poke(buffer, &frame);
                        m.tx_desc(tail, OWN | end(tail) | BOTH | 60, 0, buffer);
                        tail = (tail + 1) % LEN;
                    }
                    put(&m, at::GUEST_TDT, tail);
                    if !on || get(&m, at::HOST_NEED_TXKICK) != 0 {
                        write(&mut m, reg::TX_POLL, &[0x40]);
                    }
                }
                Step::Turn => {
                    if turn(&mut m) || awake {
                        awake = m.nic.transmit.run(&m.env, &m.wire, 256) != Progress::Idle;
                    }
                    for frame in m.wire.take() {
                        prop_assert_eq!(&frame[14..18], &sent.to_be_bytes());
                        sent += 1;
                    }
                    while clean != tail && m.tx_words(clean).0 & OWN == 0 {
                        clean = (clean + 1) % LEN;
                    }
                }
                Step::Frames(n) => {
                    for _ in 0..n {
                        let mut frame = plain(MAC, 60);
                        frame[14..18].copy_from_slice(&offered.to_be_bytes());
                        offered += m.offer(&[&frame]) as u32;
                    }
                }
                Step::Refill(n) => {
                    if given.refill(&m, on, n)? {
                        write(&mut m, RXKICK, &[0; 4]);
                    }
                }
                Step::Flip => {
                    on = !on;
                    put(&m, at::GUEST_CSB_ON, on.into());
                    // Both ways the driver calls once.
                    write(&mut m, reg::TX_POLL, &[0x40]);
                    write(&mut m, RXKICK, &[0; 4]);
                }
                Step::Limit(n) => put(&m, at::HOST_TXCYCLES_LIM, n),
                Step::Tx(need) => put(&m, at::GUEST_NEED_TXKICK, need.into()),
                Step::Rx(need) => put(&m, at::GUEST_NEED_RXKICK, need.into()),
            }
        }
        for _ in 0..200 {
            if turn(&mut m) || awake {
                awake = m.nic.transmit.run(&m.env, &m.wire, 256) != Progress::Idle;
            }
            if given.refill(&m, on, LEN)? {
                write(&mut m, RXKICK, &[0; 4]);
            }
        }
        sent += m.wire.take().len() as u32;
        prop_assert_eq!(sent, number);
        prop_assert_eq!(given.received, offered);
        prop_assert_eq!(m.counter("csb_bad_tail"), 0);
        prop_assert!(!awake);
    }

    /// Whatever a page says, frames are what they are without it: which descriptors are the chip's, OWN says.
    #[test]
    fn no_page_changes_what_is_sent_and_received(
        words in prop::collection::vec((0u32..26, any::<u32>()), 1..40),
        frames in prop::collection::vec(0u32..4, 1..60),
    ) {
        let mut with = at_work();
        let mut without = Machine::new();
        without.rings(LEN, 1536);
        let mut words = words.into_iter().cycle();
        for (number, what) in frames.into_iter().enumerate() {
            let (word, value) = words.next().expect("endless");
            put(&with, 4 * word, value);
            for m in [&mut with, &mut without] {
                let index = number as u32 % LEN;
                if what > 1 {
                    let buffer = TX_BUFFERS + number as u64 * 64;
                    m.poke(buffer, &plain(PEER, 60));
                    m.tx_desc(index, OWN | end(index) | BOTH | 60, 0, buffer);
                }
                if what != 2 {
                    m.offer(&[&plain(MAC, 60 + number)]);
                }
                m.w8(reg::TX_POLL, 0x40);
                m.w32(RXKICK, value);
            }
            prop_assert_eq!(with.wire.take(), without.wire.take());
            prop_assert_eq!(with.peek(TX_RING, 16 * LEN as usize), without.peek(TX_RING, 16 * LEN as usize));
            prop_assert_eq!(with.peek(RX_RING, 16 * LEN as usize), without.peek(RX_RING, 16 * LEN as usize));
        }
    }
}
