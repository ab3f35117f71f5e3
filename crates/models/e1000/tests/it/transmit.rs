//! What goes on the wire for what the guest wrote.

use crate::common::*;
use crate::packet::*;
use crate::send::*;
use frame::Caps;
use model::Progress;

#[test]
fn checksums_are_inserted_where_the_context_says() {
    for protocol in [6, 17] {
        for len in [6, 7, 100, 1401, 1460] {
            for cuts in [&[][..], &[1], &[14], &[54], &[60, 1, 3]] {
                let packet = partial4(protocol, &payload(len));
                if cuts.iter().sum::<usize>() >= packet.len() {
                    continue;
                }
                let mut want = packet.clone();
                finish4(&mut want);
                let mut m = machine(Caps::NONE);
                let popts = IXSM | TXSM;
                let desc = D {
                    popts,
                    ..D::default()
                };
                send(&mut m, Some(&ctx4(protocol)), &packet, cuts, desc);
                assert_eq!(m.wire.take(), [want], "{protocol} {len} {cuts:?}");
            }
        }
    }
}

#[test]
fn a_sink_that_takes_notes_gets_the_checksum_as_a_note() {
    let packet = partial4(6, &payload(1460));
    let mut m = machine(Caps::ALL);
    let desc = D {
        popts: IXSM | TXSM,
        ..D::default()
    };
    send(&mut m, Some(&ctx4(6)), &packet, &[], desc);
    let (bytes, notes) = m.wire.take_notes().remove(0);
    let csum = notes.csum.expect("a note");
    assert_eq!((csum.start, csum.offset), (34, 16));
    assert_eq!(sum(&bytes[14..34]), 0xffff, "the IP checksum is ours to do");
    assert_eq!(bytes[34..], packet[34..]);
}

/// Anything that is not what the headers say is done as the hardware does it.
#[test]
fn odd_offsets_are_computed_and_not_noted() {
    let packet = partial4(17, &payload(200));
    let odd = [
        (40, 44, 0),
        (34, 41, 0),
        (34, 40, 100),
        (20, 60, 0),
        (0, 255 - 20, 0),
    ];
    for tu in odd {
        let ctx = Ctx { tu, ..ctx4(17) };
        let (start, field) = (usize::from(tu.0), usize::from(tu.1));
        let end = match tu.2 {
            0 => packet.len(),
            last => usize::from(last) + 1,
        };
        let mut want = packet.clone();
        let value = !sum(&packet[start..end]);
        want[field..field + 2].copy_from_slice(&value.to_be_bytes());
        let mut m = machine(Caps::ALL);
        let desc = D {
            popts: TXSM,
            ..D::default()
        };
        send(&mut m, Some(&ctx), &packet, &[9, 30], desc);
        let (bytes, notes) = m.wire.take_notes().remove(0);
        assert!(notes.is_plain());
        assert_eq!(bytes, want, "{tu:?}");
    }
    // A wrong seed gives a wrong checksum, not a repaired one.
    let mut bad = packet.clone();
    bad[41] ^= 0x55;
    let mut m = machine(Caps::ALL);
    let desc = D {
        popts: TXSM,
        ..D::default()
    };
    send(&mut m, Some(&ctx4(17)), &bad, &[], desc);
    let (bytes, notes) = m.wire.take_notes().remove(0);
    assert!(notes.is_plain());
    let mut right = packet;
    finish4(&mut right);
    assert_ne!(bytes[40..42], right[40..42]);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let mut packet = partial4(17, &[0; 20]);
    // Choose the data so that the sum comes out as 0xFFFF.
    let rest = !sum(&packet[34..]);
    packet[60..62].copy_from_slice(&rest.to_be_bytes());
    let mut m = machine(Caps::NONE);
    let desc = D {
        popts: TXSM,
        ..D::default()
    };
    send(&mut m, Some(&ctx4(17)), &packet, &[], desc);
    assert_eq!(m.wire.take()[0][40..42], [0xff, 0xff]);
}

#[test]
fn legacy_descriptors_insert_one_checksum() {
    let packet = partial4(6, &payload(100));
    let mut want = packet.clone();
    finish4(&mut want);
    want[24..26].copy_from_slice(&packet[24..26]);
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &packet);
    let high = legacy(packet.len() as u16, EOP | IFCS | IC | RS);
    m.tx_desc(0, TX_BUFFERS, high | 50 << 16 | 34 << 40);
    m.w(reg::TDT, 1);
    assert_eq!(m.wire.take(), [want]);
}

#[test]
fn the_two_contexts_do_not_disturb_each_other() {
    let mut m = machine(Caps::NONE);
    let tso = Ctx {
        cmd: 1 | 2 | 4,
        hdrlen: 54,
        mss: 500,
        ..ctx4(6)
    };
    let udp_packet = partial4(17, &payload(64));
    let (low, high) = ctx4(17).words();
    m.tx_desc(0, low, high);
    let (low, high) = tso.words();
    m.tx_desc(1, low, high);
    let desc = D {
        popts: IXSM | TXSM,
        ..D::default()
    };
    let next = put(&m, 2, None, &udp_packet, &[], desc);
    m.w(reg::TDT, next);
    let mut want = udp_packet;
    finish4(&mut want);
    assert_eq!(m.wire.take(), [want]);
}

#[test]
fn tags_are_inserted_in_front_of_the_type() {
    let packet = partial4(6, &payload(100));
    let mut finished = packet.clone();
    finish4(&mut finished);
    let desc = D {
        cmd: VLE,
        popts: IXSM | TXSM,
        special: 0x2064,
    };
    for vme in [false, true] {
        let mut m = machine(Caps::NONE);
        let ctrl = m.r(reg::CTRL);
        m.w(reg::CTRL, ctrl | if vme { 1 << 30 } else { 0 });
        send(&mut m, Some(&ctx4(6)), &packet, &[5, 40], desc);
        let mut want = finished[..12].to_vec();
        if vme {
            want.extend([0x81, 0, 0x20, 0x64]);
        }
        want.extend(&finished[12..]);
        assert_eq!(m.wire.take(), [want]);
    }
    // Beside the frame for a sink that takes it so; inside if the type is not 802.1Q.
    for (vet, caps, beside, start) in [
        (0x8100, Caps::ALL, true, 34),
        (0x88a8, Caps::ALL, false, 38),
        (
            0x8100,
            Caps {
                vlan: false,
                ..Caps::ALL
            },
            false,
            38,
        ),
    ] {
        let mut m = machine(caps);
        let ctrl = m.r(reg::CTRL);
        m.w(reg::CTRL, ctrl | 1 << 30);
        m.w(reg::VET, vet);
        send(&mut m, Some(&ctx4(6)), &packet, &[], desc);
        let (bytes, notes) = m.wire.take_notes().remove(0);
        assert_eq!(notes.vlan, beside.then_some(0x2064));
        assert_eq!(notes.csum.expect("a note").start, start);
        assert_eq!(bytes.len(), packet.len() + if beside { 0 } else { 4 });
        assert_eq!(m.r(0x4090) as usize, packet.len() + 4 + 4, "GOTC");
        if !beside {
            assert_eq!(bytes[12..14], (vet as u16).to_be_bytes());
        }
    }
}

#[test]
fn short_packets_are_padded_only_when_asked() {
    let packet = plain(PEER, 20);
    for (tctl, len) in [(0x2, 20), (0xa, 60)] {
        let mut m = machine(Caps::NONE);
        m.w(reg::TCTL, tctl);
        send(&mut m, None, &packet, &[], D::default());
        let frames = m.wire.take();
        assert_eq!(frames[0].len(), len);
        assert_eq!(frames[0][..20], packet);
        assert!(frames[0][20..].iter().all(|b| *b == 0));
    }
}

#[test]
fn without_ifcs_the_guest_has_written_the_fcs_itself() {
    let mut m = machine(Caps::NONE);
    let packet = plain(PEER, 104);
    m.poke(TX_BUFFERS, &packet);
    m.tx_desc(0, TX_BUFFERS, legacy(104, EOP | RS));
    m.w(reg::TDT, 1);
    assert_eq!(m.wire.take(), [packet[..100].to_vec()]);
    // What the chip tags it also signs.
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | 1 << 30);
    m.tx_desc(1, TX_BUFFERS, legacy(104, EOP | RS | VLE));
    m.w(reg::TDT, 2);
    assert_eq!(m.wire.take()[0].len(), 108);
}

#[test]
fn a_legacy_checksum_is_that_of_the_last_descriptor() {
    let packet = partial4(6, &payload(100));
    let mut want = packet.clone();
    finish4(&mut want);
    want[24..26].copy_from_slice(&packet[24..26]);
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &packet);
    m.tx_desc(0, TX_BUFFERS, legacy(50, IC) | 9 << 16);
    let high = legacy(packet.len() as u16 - 50, EOP | IFCS | IC | RS);
    m.tx_desc(1, TX_BUFFERS + 50, high | 50 << 16 | 34 << 40);
    m.w(reg::TDT, 2);
    assert_eq!(m.wire.take(), [want]);
}

#[test]
fn status_is_written_back_where_asked_and_only_there() {
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    let cmds = [RS, 0, RPS, RS | IDE, 0];
    for (i, cmd) in (0..).zip(cmds) {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP | IFCS | cmd) | 0xabcd << 48);
    }
    m.w(reg::TDT, 5);
    let done: Vec<_> = (0..5).map(|i| m.tx_done(i)).collect();
    assert_eq!(done, [true, false, true, true, false]);
    let desc = m.peek(TX_RING, 16);
    assert_eq!(desc[14..], [0xcd, 0xab], "nothing else is touched");
    assert_eq!(m.wire.take().len(), 5);
}

/// Manual §3.3.3, "Buffer Address": no data for a null address, but the write-back.
#[test]
fn a_legacy_descriptor_with_a_null_address_transfers_no_data() {
    let packet = plain(PEER, 60);
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &packet);
    m.tx_desc(0, TX_BUFFERS, legacy(20, IFCS));
    m.tx_desc(1, 0, legacy(100, IFCS | RS));
    m.tx_desc(2, TX_BUFFERS + 20, legacy(40, EOP | IFCS | RS));
    m.w(reg::TDT, 3);
    assert_eq!(m.r(reg::TDH), 3);
    assert_eq!([0, 1, 2].map(|i| m.tx_done(i)), [false, true, true]);
    assert_eq!(m.wire.take(), [packet]);
}

#[test]
fn the_ring_wraps() {
    let mut m = machine(Caps::NONE);
    m.w(reg::TDLEN, 128);
    let mut sent = 0u32;
    for round in 0..20u32 {
        for i in 0..5 {
            let index = (sent + i) % 8;
            let at = TX_BUFFERS + u64::from(index) * 256;
            m.poke(at, &plain(PEER, 60 + ((round * 5 + i) % 100) as usize));
            m.tx_desc(
                index,
                at,
                legacy(60 + ((round * 5 + i) % 100) as u16, EOP | IFCS | RS),
            );
        }
        sent += 5;
        m.w(reg::TDT, sent % 8);
        assert_eq!(m.r(reg::TDH), sent % 8);
        let lens: Vec<_> = m.wire.take().iter().map(Vec::len).collect();
        let want: Vec<_> = (0..5)
            .map(|i| 60 + ((round * 5 + i) % 100) as usize)
            .collect();
        assert_eq!(lens, want);
    }
}

#[test]
fn what_the_sink_does_not_take_is_not_done() {
    let mut m = machine(Caps::NONE);
    m.r(reg::ICR);
    m.wire.set_room(2);
    for i in 0..5u32 {
        let at = TX_BUFFERS + u64::from(i) * 256;
        m.poke(at, &plain(PEER, 60 + i as usize));
        m.tx_desc(i, at, legacy(60 + i as u16, EOP | IFCS | RS));
    }
    m.w(reg::TDT, 5);
    assert_eq!(m.r(reg::TDH), 2);
    let done: Vec<_> = (0..5).map(|i| m.tx_done(i)).collect();
    assert_eq!(done, [true, true, false, false, false]);
    assert_eq!(m.run(), Progress::Blocked);
    assert_eq!(m.r(reg::ICR) & 3, 1, "TXDW but not TXQE");
    m.wire.unlimit();
    assert_eq!(m.run(), Progress::Idle);
    assert_eq!(m.r(reg::TDH), 5);
    assert_eq!(m.r(reg::ICR) & 3, 3);
    let lens: Vec<_> = m.wire.take().iter().map(Vec::len).collect();
    assert_eq!(lens, [60, 61, 62, 63, 64]);
    assert_eq!(m.counter("tx_frames"), 5);
}

#[test]
fn a_sink_that_is_short_of_room_is_not_offered_a_whole_ring_again_and_again() {
    const LEN: usize = 60;
    const RING: u32 = if cfg!(miri) { 128 } else { 1024 };
    const TURNS: u32 = if cfg!(miri) { 5 } else { 50 };
    const FRAMES: u32 = 20 * TURNS;
    let mut m = machine(Caps::NONE);
    m.tx_on(RING);
    m.poke(TX_BUFFERS, &plain(PEER, LEN));
    for i in 0..RING {
        m.tx_desc(i, TX_BUFFERS, legacy(LEN as u16, EOP | IFCS | RS));
    }
    let fetched = m.counter("tx_desc_fetched");
    m.wire.set_room(20);
    m.w(reg::TDT, FRAMES);
    let mut sent = m.wire.take().len();
    for _ in 1..TURNS {
        m.wire.set_room(20);
        m.run();
        sent += m.wire.take().len();
    }
    assert_eq!(sent as u32, FRAMES);
    // Descriptors are read 64 at once. Of the sink nothing was known the first time.
    let fetched = m.counter("tx_desc_fetched") - fetched;
    assert!(
        fetched <= u64::from(TURNS) * 64 + 256,
        "{fetched} descriptors read"
    );
    // With room again, batches are soon whole ones.
    m.wire.unlimit();
    let before = m.counter("tx_desc_fetched");
    m.w(reg::TDT, FRAMES - 1);
    assert_eq!(m.wire.take().len() as u32, RING - 1);
    let fetched = m.counter("tx_desc_fetched") - before;
    assert!(
        fetched < u64::from(RING) - 1 + 256,
        "{fetched} descriptors read"
    );
}

#[test]
fn a_packet_waits_for_its_end() {
    let mut m = machine(Caps::NONE);
    let packet = plain(PEER, 300);
    m.poke(TX_BUFFERS, &packet);
    m.tx_desc(0, TX_BUFFERS, data(100, IFCS, 0, 0));
    m.tx_desc(1, TX_BUFFERS + 100, data(100, IFCS, 0, 0));
    m.tx_desc(2, TX_BUFFERS + 200, data(100, IFCS | EOP | RS, 0, 0));
    m.w(reg::TDT, 1);
    m.w(reg::TDT, 2);
    assert!(m.wire.take().is_empty());
    m.w(reg::TDT, 3);
    assert_eq!(m.wire.take(), [packet]);
    assert_eq!(m.r(reg::TDH), 3);
}

#[test]
fn the_transmitter_waits_for_enable_link_and_bus_mastering() {
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    for i in 0..4 {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP | IFCS | RS));
    }
    m.w(reg::TCTL, 0);
    m.w(reg::TDT, 1);
    assert!(m.wire.take().is_empty());
    m.w(reg::TCTL, 2);
    assert_eq!(m.wire.take().len(), 1);
    m.nic.control.set_link(&m.env, false);
    m.w(reg::TDT, 2);
    assert!(m.wire.take().is_empty());
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    assert_eq!(m.wire.take().len(), 1);
    let off = model::PciState::default();
    m.nic.control.pci(&m.env, off);
    m.w(reg::TDT, 3);
    assert!(m.wire.take().is_empty());
    let on = model::PciState {
        bus_master: true,
        ..off
    };
    m.nic.control.pci(&m.env, on);
    m.work();
    assert_eq!(m.wire.take().len(), 1);
}

/// PHY loopback with the frames and flags of the drivers' self-test; RCTL.LBM likewise.
#[test]
fn loopback_brings_frames_back_and_cuts_the_wire() {
    for by_phy in [true, false] {
        let mut m = Machine::default();
        m.rx_on(128, 0x8008);
        m.tx_on(128);
        if by_phy {
            m.phy_write(0, 0x4140);
        } else {
            m.w(reg::RCTL, 0x8008 | 2 | 3 << 6);
        }
        let frame = plain([0xff; 6], 1024);
        m.poke(TX_BUFFERS, &frame);
        for i in 0..64 {
            m.tx_desc(i, TX_BUFFERS, legacy(1024, EOP | IFCS | RPS));
        }
        m.w(reg::TDT, 64);
        assert!(m.wire.take().is_empty());
        assert_eq!(m.r(reg::RDH), 64);
        assert_eq!(m.peek(RX_BUFFERS + 63 * 0x4000, 1024), frame);
        assert!(m.tx_done(63));
        assert_eq!(m.offer(&[&frame]), 1);
        assert_eq!(m.r(reg::RDH), 64, "nothing comes in from outside");
    }
}
