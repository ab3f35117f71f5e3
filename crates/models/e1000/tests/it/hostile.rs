//! Guests that mean harm: nothing panics, nothing runs without bound, every refusal is counted,
//! and a good driver is served afterwards.

use crate::common::*;
use frame::{Caps, MAX_BATCH};
use model::ResetKind;
use proptest::prelude::*;
use wire::{Csum, Gso, Offload};

/// Resets the NIC and sends and receives one good frame each.
#[track_caller]
fn assert_serves(m: &mut Machine) {
    m.nic.control.reset(&m.env, ResetKind::Bus);
    let on = model::PciState {
        bus_master: true,
        ..model::PciState::default()
    };
    m.nic.control.pci(&m.env, on);
    m.sleep(10_000_000);
    m.wire.take();
    m.tx_on(8);
    m.rx_on(8, 0x8000);
    let out = plain(PEER, 100);
    m.poke(TX_BUFFERS, &out);
    m.tx_desc(0, TX_BUFFERS, legacy(100, EOP | IFCS | RS));
    m.w(reg::TDT, 1);
    assert_eq!(m.wire.take(), [out]);
    let input = plain(MAC, 100);
    assert_eq!(m.offer(&[&input]), 1);
    assert_eq!(m.peek(RX_BUFFERS, 100), input);
}

#[test]
fn transmit_rings_that_are_none() {
    for (base_high, base, len, head, tail) in [
        (0, TX_RING as u32, 0, 0, 1),
        (0, TX_RING as u32, 128, 0, 8),
        (0, TX_RING as u32, 128, 0, 0xffff),
        (0, TX_RING as u32, 128, 9, 0),
        (0, TX_RING as u32, 128, 0xffff, 0xffff - 1),
        (0, 0, 128, 0, 4),
        (0xffff_ffff, 0xffff_fff0, 128, 0, 4),
        (0, (RAM + RAM_LEN - 16) as u32, 128, 0, 4),
        (0, 0, 0xf_ff80, 0, 0xfff7),
    ] {
        let mut m = Machine::default();
        m.tx_on(8);
        m.w(reg::TDBAH, base_high);
        m.w(reg::TDBAL, base);
        m.w(reg::TDLEN, len);
        m.w(reg::TDH, head);
        m.w(reg::TDT, tail);
        let refused = m.counter("tx_bad_ring") + m.counter("tx_dma_fault");
        assert!(refused > 0, "{base:#x} {len} {head} {tail}");
        assert!(m.wire.take().is_empty());
        assert_serves(&mut m);
    }
}

#[test]
fn the_io_window_ends_where_it_ends() {
    let mut m = Machine::default();
    for offset in [8, 64, u64::MAX - 7, u64::MAX - 2, u64::MAX] {
        for bar in [0, 1, 5] {
            let mut data = [7; 16];
            m.nic.control.write(&m.env, bar, offset, &data);
            m.nic.control.read(&m.env, bar, offset, &mut data);
            assert!(bar == 0 || data == [0; 16], "BAR {bar} at {offset:#x}");
        }
    }
    assert_serves(&mut m);
}

#[test]
fn receive_rings_that_are_none() {
    let frame = plain(MAC, 60);
    for (base, len, head, tail) in [
        (RX_RING as u32, 0, 0, 1),
        (RX_RING as u32, 128, 0, 8),
        (RX_RING as u32, 128, 0xffff, 0),
        (0, 128, 0, 4),
        ((RAM + RAM_LEN) as u32, 128, 0, 4),
    ] {
        let mut m = Machine::default();
        m.rx_on(8, 0x8000);
        m.w(reg::RDBAL, base);
        m.w(reg::RDLEN, len);
        m.w(reg::RDH, head);
        m.w(reg::RDT, tail);
        assert_eq!(m.offer(&[&frame]), 1, "dropped: it would block for ever");
        let refused = m.counter("rx_bad_ring") + m.counter("rx_dma_fault");
        assert_eq!(refused, 1);
        assert_serves(&mut m);
    }
}

#[test]
fn buffers_out_of_reach() {
    for addr in [0x10, RAM - 1, RAM + RAM_LEN - 10, u64::MAX, u64::MAX - 5] {
        let mut m = Machine::default();
        m.tx_on(8);
        m.rx_on(8, 0x8000);
        m.tx_desc(0, addr, legacy(60, EOP | IFCS | RS));
        m.w(reg::TDT, 1);
        assert!(m.wire.take().is_empty());
        assert!(m.tx_done(0), "the ring goes on");
        assert_eq!(m.counter("tx_dma_fault"), 1);
        m.rx_desc(0, addr);
        let frame = plain(MAC, 60);
        assert_eq!(m.offer(&[&frame, &frame]), 2);
        assert_eq!(m.counter("rx_dma_fault"), 1);
        assert_eq!(m.rx_status(0).2, 0x80, "an error for the driver to see");
        assert_eq!(m.rx_status(1).2, 0);
        assert_eq!(m.counter("rx_frames"), 1);
        assert_serves(&mut m);
    }
}

#[test]
fn memory_gone_under_the_rings() {
    let mut m = Machine::default();
    m.tx_on(8);
    m.rx_on(8, 0x8000);
    m.env.memory.unmap(RAM, RAM_LEN).expect("unmap");
    m.w(reg::TDT, 4);
    assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
    assert!(m.counter("tx_dma_fault") > 0 && m.counter("rx_dma_fault") > 0);
    m.env.memory.map_anon(RAM, RAM_LEN).expect("map");
    assert_serves(&mut m);
}

#[test]
fn a_chain_without_end_is_given_up() {
    for len in [8u32, 64, 4096] {
        let mut m = Machine::default();
        m.tx_on(len);
        for i in 0..len {
            m.tx_desc(i, TX_BUFFERS, data(1, IFCS | RS, 0, 0));
        }
        // One doorbell per descriptor is the worst that can be done with it.
        for tail in 1..len.min(300) {
            m.w(reg::TDT, tail);
        }
        m.w(reg::TDT, len - 1);
        assert_eq!(m.counter("tx_too_many_descs"), 1);
        assert_eq!(m.r(reg::TDH), len - 1);
        // Its end is passed over, the next packet goes out.
        let packet = plain(PEER, 60);
        m.poke(TX_BUFFERS, &packet);
        m.tx_desc(len - 1, TX_BUFFERS, legacy(60, EOP | IFCS));
        m.tx_desc(0, TX_BUFFERS, legacy(60, EOP | IFCS));
        m.w(reg::TDT, 1);
        assert_eq!(m.wire.take(), [packet]);
        assert_serves(&mut m);
    }
}

#[test]
fn packets_too_long_for_the_chip() {
    let mut m = Machine::default();
    m.tx_on(64);
    for i in 0..8 {
        m.tx_desc(i, TX_BUFFERS, data(0xf_ffff, IFCS, 0, 0));
    }
    m.tx_desc(8, TX_BUFFERS, data(100, IFCS | EOP | RS, 0, 0));
    m.tx_desc(9, TX_BUFFERS, data(16289, IFCS | EOP | RS, 0, 0));
    m.tx_desc(10, TX_BUFFERS, data(16288, IFCS | EOP | RS, 0, 0));
    m.wire.look_at_unsent();
    m.w(reg::TDT, 11);
    assert_eq!(m.counter("tx_too_long"), 2);
    assert_eq!(m.wire.take().len(), 1);
    // Who looks is shown their descriptors, as the guest has given them.
    let unsent = m.wire.take_unsent();
    let [(long, nine), (longer, one)] = &unsent[..] else {
        panic!("{unsent:?}");
    };
    assert_eq!((*long, *longer), ("tx_too_long", "tx_too_long"));
    assert_eq!((nine.len(), one.len()), (9 * 16, 16));
    assert_eq!(one[..8], TX_BUFFERS.to_le_bytes());
    assert_eq!(one[8..10], 16289u16.to_le_bytes());
    assert_eq!(nine[8 * 16 + 8..][..2], 100u16.to_le_bytes());
    assert!(one[12] & 1 == 0, "not as they are written back");
    assert!(m.tx_done(8) && m.tx_done(9));
    assert_serves(&mut m);
}

#[test]
fn tiny_packets() {
    for psp in [0, 8] {
        let mut m = Machine::default();
        m.tx_on(64);
        m.w(reg::TCTL, 2 | psp);
        for len in 0..18u32 {
            m.tx_desc(len, TX_BUFFERS, data(len, IFCS | EOP | RS, 3, 0));
        }
        m.w(reg::TDT, 18);
        let sent = m.wire.take();
        assert_eq!(sent.len(), if psp == 0 { 4 } else { 17 });
        assert!(sent.iter().all(|f| f.len() >= 14));
        assert_eq!(m.r(reg::TDH), 18);
        assert_serves(&mut m);
    }
}

/// Every mixture of nothing, one and the most in the fields of a context, over packets shorter and
/// longer than they claim.
#[test]
fn contexts_of_extremes() {
    let extremes8 = [0u8, 1, 255];
    let extremes16 = [0u16, 1, 0xffff];
    let mut m = Machine::default();
    m.tx_on(8);
    for hdrlen in [0u8, 1, 14, 54, 255] {
        for mss in [0u16, 1, 40, 0xffff] {
            for paylen in [0u32, 1, 0xf_ffff] {
                for css in extremes8 {
                    for cso in extremes8 {
                        for cse in extremes16 {
                            let ctx = Ctx {
                                ip: (css, cso, cse),
                                tu: (cso, css, cse),
                                paylen,
                                cmd: 1 | if css == 0 { 2 } else { 0 } | 4,
                                hdrlen,
                                mss,
                            };
                            let (low, high) = ctx.words();
                            m.w(reg::TDH, 0);
                            m.tx_desc(0, low, high);
                            m.tx_desc(1, TX_BUFFERS, data(300, IFCS | TSE | EOP | RS, 3, 0));
                            m.tx_desc(2, TX_BUFFERS, data(1, IFCS | TSE | EOP | RS, 3, 0));
                            m.w(reg::TDT, 3);
                            assert_eq!(m.r(reg::TDH), 3);
                            let sent = m.wire.take();
                            assert!(sent.len() <= 300);
                            assert!(sent.iter().all(|f| f.len() <= 300));
                        }
                    }
                }
            }
        }
    }
    assert!(m.counter("tx_bad_tso") > 0 && m.counter("tx_bad_checksum") > 0);
    assert_serves(&mut m);
}

/// The VirtualBox escape of 2018 began with a context that shrinks in the middle of a packet.
#[test]
fn a_context_inside_a_packet_is_for_the_next_one() {
    let mut m = Machine::default();
    m.tx_on(16);
    m.poke(TX_BUFFERS, &plain(PEER, 5000));
    let ctx = |hdrlen, mss| Ctx {
        ip: (14, 24, 33),
        tu: (34, 50, 0),
        paylen: 5000,
        cmd: 1 | 2 | 4,
        hdrlen,
        mss,
    };
    let (low, high) = ctx(54, 1000).words();
    m.tx_desc(0, low, high);
    m.tx_desc(1, TX_BUFFERS, data(500, IFCS | TSE, 0, 0));
    let (low, high) = ctx(1, 1).words();
    m.tx_desc(2, low, high);
    let rest = data(4500, IFCS | TSE | EOP | RS, 0, 0);
    m.tx_desc(3, TX_BUFFERS + 500, rest);
    m.w(reg::TDT, 4);
    let lens: Vec<_> = m.wire.take().iter().map(Vec::len).collect();
    assert_eq!(lens, [1054, 1054, 1054, 1054, 1000]);
    assert_serves(&mut m);
}

#[test]
fn segmentation_into_dust_is_refused() {
    let mut m = Machine::default();
    m.tx_on(16);
    let ctx = Ctx {
        ip: (14, 24, 33),
        tu: (34, 50, 0),
        paylen: 0xf_ffff,
        cmd: 1 | 2 | 4,
        hdrlen: 54,
        mss: 1,
    };
    let (low, high) = ctx.words();
    m.tx_desc(0, low, high);
    m.tx_desc(1, TX_BUFFERS, data(60_000, IFCS | TSE | EOP | RS, 0, 0));
    m.w(reg::TDT, 2);
    assert!(m.wire.take().is_empty());
    assert_eq!(m.counter("tx_bad_tso"), 1);
    assert!(m.tx_done(1));
    assert_serves(&mut m);
}

#[test]
fn descriptors_of_unknown_type_are_passed_over() {
    let mut m = Machine::default();
    m.tx_on(32);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    for kind in 2..16u64 {
        let high = 60 | kind << 20 | u64::from(0x20 | EOP | RS) << 24;
        m.tx_desc(kind as u32 - 2, TX_BUFFERS, high);
    }
    m.tx_desc(14, TX_BUFFERS, data(60, IFCS | EOP | RS, 0, 0));
    m.w(reg::TDT, 15);
    assert_eq!(m.counter("tx_bad_desc"), 14);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn a_data_descriptor_without_context() {
    for cmd in [0, TSE] {
        let mut m = Machine::default();
        m.tx_on(8);
        m.tx_desc(0, TX_BUFFERS, data(100, cmd | IFCS | EOP | RS, 3, 0));
        m.w(reg::TDT, 1);
        assert_eq!(m.wire.take().len(), usize::from(cmd == 0));
        assert_serves(&mut m);
    }
}

#[test]
fn a_ring_of_null_buffers_swallows_and_ends() {
    let mut m = Machine::default();
    m.rx_on(4096, 0x8000);
    for i in 0..4096 {
        m.rx_desc(i, 0);
    }
    let frame = plain(MAC, 1500);
    let many: Vec<&[u8]> = vec![&frame; MAX_BATCH];
    // Each frame takes 64 of them, the last one the rest; the others wait in the packet FIFO until that is full.
    assert_eq!(m.offer(&many), 64 + 48 * 1024 / (1504 + 16));
    assert_eq!(m.counter("rx_too_large"), 64);
    assert!(m.counter("rx_desc_fetched") <= 4096);
    assert_eq!(m.r(reg::RDH), 4095);
    assert_serves(&mut m);
}

/// A ring that is not quite full of null buffers is not walked anew for each frame: its sender would pay for it.
#[test]
fn no_frame_passes_over_more_than_a_few_null_buffers() {
    let mut m = Machine::default();
    m.rx_on(4096, 0x8000);
    for i in 0..4096 {
        m.rx_desc(i, 0);
    }
    m.w(reg::RDT, 4000);
    let frame = plain(MAC, 100);
    for sent in 1..=50 {
        let before = m.counter("rx_desc_fetched");
        assert_eq!(m.offer(&[&frame]), 1);
        assert!(m.counter("rx_desc_fetched") - before <= 64);
        assert_eq!(m.counter("rx_too_large"), sent);
        assert_eq!(u64::from(m.r(reg::RDH)), 64 * sent);
    }
    assert_serves(&mut m);
}

#[test]
fn null_buffers_before_a_hole_in_the_ring_are_walked_once() {
    const WALKABLE: u64 = 512;
    let mut m = Machine::default();
    m.rx_on(8, 0x8000);
    // The guest's memory is zero there, and ends in the middle of the ring.
    m.w(reg::RDBAL, (RAM + RAM_LEN - 16 * WALKABLE) as u32);
    m.w(reg::RDLEN, 0xf_ff80);
    m.w(reg::RDH, 0);
    m.w(reg::RDT, 0xfff7);
    let frame = plain(MAC, 100);
    let before = m.counter("rx_desc_fetched");
    assert_eq!(m.offer(&[&frame[..]; MAX_BATCH]), MAX_BATCH);
    let fetched = m.counter("rx_desc_fetched") - before;
    assert!(fetched < 2 * WALKABLE, "{fetched} of {WALKABLE}");
    assert_eq!(m.r(reg::RDH), WALKABLE as u32);
    assert!(m.counter("rx_dma_fault") >= 1);
    assert_serves(&mut m);
}

#[test]
fn a_frame_larger_than_the_whole_ring_does_not_block_it() {
    let mut m = Machine::default();
    // 8 buffers of 256 bytes, 16 KiB frames let in.
    m.rx_on(8, 0x8000 | 0x20 | 3 << 16);
    assert_eq!(m.offer(&[&plain(MAC, 9000)]), 1);
    assert_eq!(m.counter("rx_too_large"), 1);
    assert_serves(&mut m);
}

#[test]
fn notes_that_lie() {
    let frame = plain(MAC, 100);
    let csum = |start, offset| Some(Csum { start, offset });
    let lies = [
        (csum(99, 0), Gso::None, 0, 0),
        (csum(0xffff, 0xffff), Gso::None, 0, 0),
        (csum(34, 16), Gso::Tcp4, 0, 54),
        (csum(34, 16), Gso::Tcp4, 10, 200),
        (None, Gso::Tcp6, 10, 54),
        (csum(34, 16), Gso::Tcp6, 1, 0),
    ];
    let mut m = Machine::default();
    m.rx_on(64, 0x8000);
    for (csum, gso, gso_size, hdr_len) in lies {
        let notes = Offload {
            csum,
            gso,
            gso_size,
            hdr_len,
            ..Offload::NONE
        };
        assert_eq!(m.offer_notes(&[(&frame, notes)]), 1);
    }
    assert_eq!(m.counter("rx_bad_offload"), lies.len() as u64);
    assert_serves(&mut m);
}

/// Loopback with receive buffers over the transmit ring: what comes back rewrites the descriptors
/// that are being walked.
#[test]
fn loopback_into_the_own_rings_ends() {
    let mut m = Machine::default();
    m.rx_on(64, 0x8018 | 3 << 6);
    m.tx_on(64);
    for i in 0..64 {
        m.rx_desc(i, if i % 2 == 0 { TX_RING } else { RX_RING });
        m.tx_desc(i, TX_RING, legacy(1024, EOP | IFCS | RS));
    }
    for _ in 0..10 {
        let tail = (m.r(reg::TDH) + 63) % 64;
        m.w(reg::TDT, tail);
        let tail = (m.r(reg::RDH) + 63) % 64;
        m.w(reg::RDT, tail);
    }
    m.w(reg::RCTL, 0);
    assert_serves(&mut m);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, u32),
    Read(u32),
    Bytes(u8, u32, Vec<u8>),
    Descriptor(bool, u32, u64, u64),
    Receive(usize, Offload),
    Sleep(u64),
    Room(usize),
    Cable(bool),
    Master(bool),
}

fn value() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0u32..0x200,
        Just(0xffff_ffff),
        Just(TX_RING as u32),
        Just(RX_RING as u32)
    ]
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(TX_BUFFERS),
        2 => RAM..RAM + RAM_LEN + 0x1000,
        1 => Just(0),
        1 => any::<u64>(),
    ]
}

fn upper() -> impl Strategy<Value = u64> {
    let cmd = any::<u8>();
    prop_oneof![
        any::<u64>(),
        (0u32..0x5000, cmd, any::<u8>()).prop_map(|(len, cmd, popts)| data(len, cmd, popts, 7)),
        (0u16..0x800, cmd).prop_map(|(len, cmd)| legacy(len, cmd & !0x20)),
        (any::<u8>(), any::<u16>(), cmd).prop_map(|(hdr, mss, cmd)| {
            0x2000_0000 | u64::from(cmd) << 24 | u64::from(hdr) << 40 | u64::from(mss) << 48
        }),
    ]
}

fn notes() -> impl Strategy<Value = Offload> {
    let gso = prop_oneof![Just(Gso::None), Just(Gso::Tcp4), Just(Gso::Tcp6)];
    let csum = prop::option::of((any::<u16>(), 0u16..40));
    let vlan = prop::option::of(any::<u16>());
    (csum, gso, any::<u16>(), any::<u16>(), vlan).prop_map(|(csum, gso, size, hdr, vlan)| Offload {
        csum: csum.map(|(start, offset)| Csum { start, offset }),
        gso,
        gso_size: size,
        hdr_len: hdr,
        vlan,
        ..Offload::NONE
    })
}

fn step() -> impl Strategy<Value = Step> {
    let known = hypernic_e1000::regs::REGISTERS.len();
    let at = (0..known).prop_map(|i| hypernic_e1000::regs::REGISTERS[i].offset);
    let hot = prop::sample::select(vec![
        0u32, 0x20, 0x100, 0x400, 0x2800, 0x2808, 0x2810, 0x2818, 0x3800, 0x3808, 0x3810, 0x3818,
    ]);
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    prop_oneof![
        4 => (prop_oneof![at.clone(), hot], value()).prop_map(|(a, v)| Step::Write(a, v)),
        1 => at.prop_map(Step::Read),
        1 => (0u8..3, any::<u32>(), bytes).prop_map(|(b, a, d)| Step::Bytes(b, a & 0x2_00ff, d)),
        4 => (any::<bool>(), 0u32..64, address(), upper())
            .prop_map(|(tx, i, low, high)| Step::Descriptor(tx, i, low, high)),
        2 => (0usize..20_000, notes()).prop_map(|(len, notes)| Step::Receive(len, notes)),
        1 => (0u64..1_000_000).prop_map(Step::Sleep),
        1 => (0usize..300).prop_map(Step::Room),
        1 => any::<bool>().prop_map(Step::Cable),
        1 => prop::bool::weighted(0.8).prop_map(Step::Master),
    ]
}

/// Descriptors one access may read: the ring, and what is walked again where a batch was full in
/// the middle of a packet.
const MOST_FETCHED: u64 = 16 * (65_536 + 1024);

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 600 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_a_guest_does_panics_or_runs_without_bound(
        steps in prop::collection::vec(step(), 1..80),
        notes_taken in any::<bool>(),
    ) {
        let caps = if notes_taken { Caps::ALL } else { Caps::NONE };
        let mut m = Machine::new(Wire::with(caps));
        m.tx_on(64);
        m.rx_on(64, 0x803a);
        let mut fetched = 0;
        for step in steps {
            match step {
                Step::Write(at, value) => m.w(at.into(), value),
                Step::Read(at) => {
                    m.r(at.into());
                }
                Step::Bytes(bar, at, bytes) => {
                    m.nic.control.write(&m.env, bar, at.into(), &bytes);
                    m.work();
                    m.nic.control.read(&m.env, bar, at.into(), &mut vec![0; bytes.len()]);
                }
                Step::Descriptor(true, index, low, high) => {
                    m.tx_desc(index, low, high);
                    m.w(reg::TDT, (index + 1) % 64);
                }
                Step::Descriptor(false, index, low, _) => {
                    m.rx_desc(index, low);
                    m.w(reg::RDT, (index + 1) % 64);
                }
                Step::Receive(len, notes) => {
                    let frame = plain(MAC, len.max(14));
                    m.offer_notes(&[(&frame[..len], notes)]);
                }
                Step::Sleep(ns) => m.sleep(ns),
                Step::Room(room) => {
                    m.wire.set_room(room);
                    m.run();
                }
                Step::Cable(up) => {
                    m.nic.control.set_link(&m.env, up);
                    m.work();
                }
                Step::Master(bus_master) => {
                    let state = model::PciState { bus_master, ..model::PciState::default() };
                    m.nic.control.pci(&m.env, state);
                    m.work();
                }
            }
            let now = m.counter("tx_desc_fetched") + m.counter("rx_desc_fetched");
            prop_assert!(now - fetched <= MOST_FETCHED);
            fetched = now;
            for frame in m.wire.take() {
                prop_assert!(frame.len() >= 14 && frame.len() <= 0x10_0200);
            }
        }
        m.wire.unlimit();
        m.nic.control.set_link(&m.env, true);
        assert_serves(&mut m);
    }
}
