//! What is sent comes back: by RCTL.LBM, by the PHY, and wherever the guest wants it.

use crate::common::*;
use intel_offsets::e1000::long::MPC;
use proptest::prelude::*;

const SECRC: u32 = 1 << 26;
const RXO: u32 = 0x40;

fn send(m: &mut Machine, index: u32, bytes: &[u8]) {
    m.poke(TX_BUFFERS, bytes);
    m.tx_desc(
        index,
        TX_BUFFERS,
        legacy(bytes.len() as u16, EOP | IFCS | RS),
    );
    m.w(reg::TDT, index + 1);
}

#[test]
fn every_mixture_of_lbm_and_phy_loops_or_does_not() {
    for lbm in 0..4u32 {
        for phy in [false, true] {
            for cable in [false, true] {
                let mut m = Machine::default();
                m.rx_on(64, 0x8008 | SECRC);
                m.tx_on(64);
                m.nic.control.set_link(&m.env, cable);
                m.sleep(20_000_000);
                if phy {
                    m.phy_write(0, 0x4140);
                }
                m.w(reg::RCTL, 0x800a | SECRC | lbm << 6);
                let frame = plain([0xff; 6], 200);
                send(&mut m, 0, &frame);
                let what = format!("LBM {lbm}, PHY {phy}, cable {cable}");
                let looped = lbm != 0 || phy;
                assert_eq!(m.r(reg::RDH), u32::from(looped), "{what}");
                if looped {
                    assert_eq!(m.peek(RX_BUFFERS, 200), frame, "{what}");
                    assert!(m.wire.take().is_empty(), "{what}: the wire is cut off");
                } else {
                    assert_eq!(m.wire.take().len(), usize::from(cable), "{what}");
                }
                let in_from_outside = cable && !looped;
                assert_eq!(m.offer(&[&frame]), 1);
                let seen = u32::from(looped) + u32::from(in_from_outside);
                assert_eq!(m.r(reg::RDH), seen, "{what}");
                // And back to the wire.
                if phy {
                    m.phy_write(0, 0x1140);
                }
                m.w(reg::RCTL, 0x800a | SECRC);
                m.nic.control.set_link(&m.env, true);
                m.sleep(20_000_000);
                m.wire.take();
                send(&mut m, 1, &frame);
                assert_eq!(m.wire.take().len(), 1, "{what}: afterwards");
            }
        }
    }
}

#[test]
fn what_the_own_receiver_cannot_hold_is_missed() {
    let mut m = Machine::default();
    m.rx_on(8, 0x8008 | SECRC | 3 << 6);
    m.tx_on(4096);
    m.w(0x1000, 8); // PBA: 8 KiB
    m.poke(TX_BUFFERS, &plain([0xff; 6], 60));
    for i in 0..200 {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP | IFCS | RS));
    }
    m.r(reg::ICR);
    m.w(reg::TDT, 200);
    assert_eq!(
        m.r(reg::TDH),
        200,
        "the ring never waits for its own receiver"
    );
    let waiting = 8 * 1024 / 80;
    assert_eq!(m.r(0x2430), waiting);
    assert_eq!(m.r(MPC), 200 - 7 - waiting);
    assert_eq!(m.r(reg::ICR) & RXO, RXO);
}

#[derive(Clone, Copy, Debug)]
enum Aim {
    TxRing(u64),
    TxBuffer(u64),
    RxRing(u64),
    Nowhere,
}

impl Aim {
    fn address(self) -> u64 {
        match self {
            Aim::TxRing(at) => TX_RING + at,
            Aim::TxBuffer(at) => TX_BUFFERS + at,
            Aim::RxRing(at) => RX_RING + at,
            // The NIC's own registers, as a guest may think them mapped: never memory.
            Aim::Nowhere => 0xfebc_0000 + reg::TDT,
        }
    }
}

fn aim() -> impl Strategy<Value = Aim> {
    prop_oneof![
        (0u64..1024).prop_map(Aim::TxRing),
        (0u64..2048).prop_map(Aim::TxBuffer),
        (0u64..1024).prop_map(Aim::RxRing),
        Just(Aim::Nowhere),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Frames that come back rewrite descriptors and packets while these are being walked. It ends,
    /// a doorbell costs no more than the ring, and afterwards the NIC serves.
    #[test]
    fn loopback_into_the_own_rings_and_buffers_ends(
        aims in prop::collection::vec(aim(), 64),
        bytes in prop::collection::vec(any::<u8>(), 64..512),
        by_phy in any::<bool>(),
        doorbells in 1usize..6,
    ) {
        let mut m = Machine::default();
        m.rx_on(64, 0x803a | if by_phy { 0 } else { 3 << 6 });
        m.tx_on(64);
        if by_phy {
            m.phy_write(0, 0x4140);
        }
        m.poke(TX_BUFFERS, &bytes);
        for (i, aim) in (0..64).zip(&aims) {
            m.rx_desc(i, aim.address());
            m.tx_desc(i, TX_BUFFERS, legacy(bytes.len() as u16, EOP | IFCS | RS));
        }
        for _ in 0..doorbells {
            let before = m.counter("tx_desc_fetched") + m.counter("rx_desc_fetched");
            let tail = (m.r(reg::TDH) + 63) % 64;
            m.w(reg::TDT, tail);
            let tail = (m.r(reg::RDH) + 63) % 64;
            m.w(reg::RDT, tail);
            let after = m.counter("tx_desc_fetched") + m.counter("rx_desc_fetched");
            // `Machine::w` runs the transmitter until it is idle; segmentation of what was written
            // over the descriptors walks the ring again per full batch.
            prop_assert!(after - before <= 64 * 64 * 4, "{} descriptors", after - before);
            prop_assert!(m.wire.take().is_empty());
        }
        m.w(reg::CTRL, 1 << 26);
        m.phy_write(0, 0x1140);
        m.sleep(20_000_000);
        m.tx_on(8);
        let frame = plain(PEER, 100);
        send(&mut m, 0, &frame);
        prop_assert_eq!(m.wire.take(), [frame]);
    }
}
