//! UDP segmentation, both ways.

use frame::Caps;
use hypernic_virtio_net::RX;
use hypernic_virtio_net::regs::{ctrl, feature, header};
use model_testkit::Wire;
use wire::{Csum, Gso, Offload};

use crate::driver::{BUFFERS, Driver, OFFLOADS, USUAL, header, tcp4, udp};

const CSUM: u8 = header::NEEDS_CSUM;

fn notes(v6: bool, size: u16) -> Offload {
    let start = if v6 { 54 } else { 34 };
    Offload {
        csum: Some(Csum { start, offset: 6 }),
        gso: if v6 { Gso::Udp6 } else { Gso::Udp4 },
        gso_size: size,
        hdr_len: start + 8,
        ..Offload::NONE
    }
}

fn asked(v6: bool, size: u16) -> [u8; 12] {
    let start = if v6 { 54 } else { 34 };
    header(CSUM, header::GSO_UDP_L4, size, start, 6)
}

/// Datagrams of at most `size` bytes, each right, whose payloads are that of `sent`.
fn cut(frames: &[Vec<u8>], sent: &[u8], size: usize) {
    let mut payload = Vec::new();
    for frame in frames {
        let layers = wire::Layers::parse(frame).expect("headers");
        assert_eq!(layers.l4_intact(frame), Some(true));
        let l4 = layers.l4.expect("UDP");
        let span = layers.l4_span(frame.len()).expect("whole");
        let said = [frame[l4.offset + 4], frame[l4.offset + 5]];
        assert_eq!(usize::from(u16::from_be_bytes(said)), span);
        let part = &frame[l4.offset + 8..l4.offset + span];
        assert!(part.len() <= size);
        payload.extend_from_slice(part);
    }
    let headers = wire::Layers::parse(sent).expect("headers").headers_len();
    assert_eq!(payload, sent[headers..]);
}

#[test]
fn datagrams_leave_whole_for_a_sink_that_takes_them_and_cut_for_any_other() {
    for v6 in [false, true] {
        let sent = udp(v6, 5000);
        let mut d = Driver::with(USUAL | OFFLOADS, 64, Wire::with(Caps::ALL));
        d.send(asked(v6, 1200), &sent);
        let wanted = [(sent.clone(), notes(v6, 1200))];
        assert_eq!(d.m.wire.take_notes(), wanted);
        // Many short ones are cut before the switch.
        d.send(asked(v6, 100), &sent);
        assert_eq!(d.m.wire.take_notes().len(), 50);
        for caps in [
            Caps::NONE,
            Caps {
                uso4: false,
                uso6: false,
                ..Caps::ALL
            },
        ] {
            let mut d = Driver::with(USUAL | OFFLOADS, 64, Wire::with(caps));
            d.send(asked(v6, 1200), &sent);
            let frames = d.m.wire.take_notes();
            assert_eq!(frames.len(), 5);
            assert!(
                frames
                    .iter()
                    .all(|(_, notes)| notes.csum.is_some() == caps.csum)
            );
            if !caps.csum {
                let frames: Vec<_> = frames.into_iter().map(|(frame, _)| frame).collect();
                cut(&frames, &sent, 1200);
            }
        }
    }
}

#[test]
fn what_is_not_udp_or_was_not_agreed_upon_is_dropped() {
    let mut d = Driver::with(USUAL | OFFLOADS, 64, Wire::with(Caps::ALL));
    d.send(asked(false, 1200), &tcp4(3000));
    d.send(asked(true, 1200), &udp(false, 3000));
    d.send(
        header(0, header::GSO_UDP_L4, 1200, 34, 6),
        &udp(false, 3000),
    );
    let ecn = header::GSO_UDP_L4 | header::GSO_ECN;
    d.send(header(CSUM, ecn, 1200, 34, 6), &udp(false, 3000));
    d.send(
        header(CSUM, header::GSO_TCPV4, 1200, 34, 6),
        &udp(false, 3000),
    );
    assert_eq!(d.counter("tx_bad_gso"), 5);
    let mut d = Driver::with(
        USUAL | OFFLOADS & !feature::HOST_USO,
        64,
        Wire::with(Caps::ALL),
    );
    d.send(asked(false, 1200), &udp(false, 3000));
    assert_eq!(d.counter("tx_not_agreed"), 1);
    assert!(d.m.wire.take().is_empty());
}

#[test]
fn a_driver_that_takes_them_gets_datagrams_whole_and_any_other_cut() {
    for v6 in [false, true] {
        let sent = udp(v6, 5000);
        let mut d = Driver::new(USUAL | OFFLOADS);
        d.receive_at(BUFFERS, 0x8000);
        assert_eq!(d.m.offer_notes(&[(&sent, notes(v6, 1200))]), 1);
        let got = d.m.peek(BUFFERS, 12 + sent.len());
        assert_eq!(got[..2], [CSUM, header::GSO_UDP_L4]);
        assert_eq!(got[4..6], 1200u16.to_le_bytes());
        assert_eq!(got[12..], sent);
        let one = if v6 {
            feature::GUEST_USO6
        } else {
            feature::GUEST_USO4
        };
        let mut d = Driver::new(USUAL | OFFLOADS & !one);
        let caps = d.m.nic.receive.caps();
        assert_eq!((caps.uso4, caps.uso6), (v6, !v6));
        for i in 0..5 {
            d.receive_at(BUFFERS + 0x1000 * i, 2048);
        }
        assert_eq!(d.m.offer_notes(&[(&sent, notes(v6, 1200))]), 1);
        assert_eq!(d.used(RX).len(), 5);
        let headers = if v6 { 62 } else { 42 };
        let payload: Vec<u8> = (0..5)
            .flat_map(|i| {
                let len = if i < 4 { 1200 } else { 200 };
                d.m.peek(BUFFERS + 0x1000 * i + 12 + headers, len)
            })
            .collect();
        assert_eq!(payload, sent[headers as usize..]);
    }
}

#[test]
fn it_is_switched_while_it_runs() {
    let mut d = Driver::new(USUAL | OFFLOADS | feature::CTRL_VQ | feature::CTRL_GUEST_OFFLOADS);
    let some = feature::GUEST_CSUM | feature::GUEST_USO4;
    assert_eq!(
        d.command(ctrl::GUEST_OFFLOADS, 0, &some.to_le_bytes()),
        ctrl::OK
    );
    let caps = d.m.nic.receive.caps();
    assert_eq!((caps.tso4, caps.uso4, caps.uso6), (false, true, false));
    let alone = feature::GUEST_USO4;
    assert_eq!(
        d.command(ctrl::GUEST_OFFLOADS, 0, &alone.to_le_bytes()),
        ctrl::ERR
    );
}
