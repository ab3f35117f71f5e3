//! What the guest finds in its buffers and descriptors.

use crate::common::*;
use crate::packet::*;
use wire::{Csum, Gso, Offload};

const BAM: u32 = 0x8000;
const UPE: u32 = 8;
const LPE: u32 = 0x20;
const SECRC: u32 = 1 << 26;
const VFE: u32 = 1 << 18;
const VME: u32 = 1 << 30;

const EOP: u8 = 2;
const IXSM: u8 = 4;
const VP: u8 = 8;

fn machine(len: u32, rctl: u32) -> Machine {
    let mut m = Machine::default();
    m.rx_on(len, rctl);
    m.r(reg::ICR);
    m
}

fn vme(m: &mut Machine) {
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | VME);
}

fn tagged(tci: u16) -> Vec<u8> {
    let mut frame = plain(MAC, 100);
    let [a, b] = tci.to_be_bytes();
    frame.splice(12..12, [0x81, 0, a, b]);
    frame
}

#[test]
fn the_fcs_is_there_unless_stripped() {
    let frame = plain(MAC, 100);
    for (rctl, len) in [(BAM, 104), (BAM | SECRC, 100)] {
        let m = machine(8, rctl);
        m.poke(RX_BUFFERS, &[0xee; 120]);
        m.offer(&[&frame]);
        assert_eq!(m.rx_status(0), (len, 1 | EOP | IXSM, 0, 0));
        assert_eq!(m.peek(RX_BUFFERS, 100), frame);
        let tail = m.peek(RX_BUFFERS + 100, 5);
        if len == 104 {
            // The residue of Ethernet's CRC over a frame and its FCS.
            let mut whole = frame.clone();
            whole.extend(&tail[..4]);
            assert_eq!(crc32fast::hash(&whole), 0x2144_df1c);
            assert_eq!(tail[4], 0xee);
        } else {
            assert_eq!(tail, [0xee; 5]);
        }
    }
}

#[test]
fn short_frames_are_padded() {
    let m = machine(8, BAM);
    m.poke(RX_BUFFERS, &[0xee; 80]);
    let frame = plain(MAC, 42);
    m.offer(&[&frame]);
    assert_eq!(m.rx_status(0).0, 64);
    let got = m.peek(RX_BUFFERS, 65);
    assert_eq!(got[..42], frame);
    assert_eq!(got[42..60], [0; 18]);
    assert_eq!(crc32fast::hash(&got[..64]), 0x2144_df1c);
    assert_eq!(got[64], 0xee);
}

#[test]
fn frames_longer_than_a_buffer_are_chained() {
    for (bits, size) in [(3u32 << 16, 256usize), (2 << 16, 512), (1 << 16, 1024)] {
        for len in [size - 4, size - 3, size, 2 * size - 4, 1500] {
            let m = machine(64, BAM | LPE | bits);
            let frame = plain(MAC, len);
            m.offer(&[&frame]);
            let mut got = Vec::new();
            let count = (len + 4).div_ceil(size) as u32;
            for i in 0..count {
                let (n, status, errors, _) = m.rx_status(i);
                let last = i + 1 == count;
                assert_eq!(status & 3, if last { 3 } else { 1 }, "{size} {len} {i}");
                assert_eq!(errors, 0);
                got.extend(m.peek(RX_BUFFERS + u64::from(i) * 0x4000, n.into()));
            }
            assert_eq!(m.rx_status(count).1, 0);
            assert_eq!(got.len(), len + 4);
            assert_eq!(got[..len], frame);
            assert_eq!(crc32fast::hash(&got), 0x2144_df1c);
        }
    }
}

#[test]
fn null_buffers_are_written_back_and_passed_over() {
    let m = machine(8, BAM | SECRC | 3 << 16);
    m.rx_desc(0, 0);
    m.rx_desc(2, 0);
    let frame = plain(MAC, 400);
    m.offer(&[&frame]);
    let lens: Vec<_> = (0..4).map(|i| m.rx_status(i).0).collect();
    assert_eq!(lens, [0, 256, 0, 144]);
    let eop: Vec<_> = (0..4).map(|i| m.rx_status(i).1 & 3).collect();
    assert_eq!(eop, [1, 1, 1, 3]);
}

#[test]
fn length_limits_follow_lpe() {
    for (rctl, len, lost) in [
        (0, 1518, false),
        (0, 1519, true),
        (LPE, 1519, false),
        (LPE, 16380, false),
        (LPE, 16381, true),
    ] {
        let mut m = machine(64, BAM | rctl);
        assert_eq!(m.offer(&[&plain(MAC, len)]), 1);
        assert_eq!(m.rx_status(0).1 & 1 == 0, lost, "{rctl:#x} {len}");
        assert_eq!(m.r(0x40ac), u32::from(lost), "ROC");
        assert_eq!(m.counter("rx_oversize"), u64::from(lost));
    }
}

#[test]
fn frames_for_others_are_filtered() {
    let m = machine(8, BAM);
    assert_eq!(m.offer(&[&plain(PEER, 60), &plain([0xff; 6], 60)]), 2);
    assert_eq!(m.counter("rx_filtered"), 1);
    assert_eq!(m.peek(RX_BUFFERS, 6), [0xff; 6]);
    let m = machine(8, UPE);
    m.offer(&[&plain(PEER, 60), &plain([0xff; 6], 60)]);
    assert_eq!(m.counter("rx_filtered"), 1);
    assert_eq!(m.peek(RX_BUFFERS, 6), PEER);
}

#[test]
fn tags_are_stripped_kept_or_put_in() {
    let inside = tagged(0x2064);
    let bare = plain(MAC, 100);
    let beside = Offload {
        vlan: Some(0x2064),
        ..Offload::NONE
    };
    for strip in [false, true] {
        for (bytes, notes) in [(&inside, Offload::NONE), (&bare, beside)] {
            let mut m = machine(8, BAM);
            if strip {
                vme(&mut m);
            }
            m.offer_notes(&[(bytes, notes)]);
            let (len, status, _, special) = m.rx_status(0);
            let want = if strip { &bare } else { &inside };
            assert_eq!(usize::from(len), want.len() + 4);
            assert_eq!(m.peek(RX_BUFFERS, want.len()), *want);
            assert_eq!(status & VP != 0, strip);
            assert_eq!(special, if strip { 0x2064 } else { 0 });
        }
    }
}

#[test]
fn stripping_looks_no_further_than_the_frame() {
    for len in 1..=18 {
        let mut frame = tagged(5);
        frame.truncate(len);
        let mut m = machine(8, BAM | UPE | 0x10);
        vme(&mut m);
        m.offer(&[&frame]);
        let (n, status, _, _) = m.rx_status(0);
        if len < 14 {
            assert_eq!(status, 0);
            assert_eq!(m.counter("rx_runt"), 1);
        } else {
            // A tag is one even if its second half is padding.
            assert_eq!((n, status & VP), (60, VP), "{len} bytes");
        }
    }
}

/// The tag was a part of the 64 bytes on the wire: what is left of a short frame is shorter.
#[test]
fn the_place_of_a_stripped_tag_is_not_padded_again() {
    let mut m = machine(8, BAM);
    vme(&mut m);
    let mut whole = tagged(0x2005);
    whole.truncate(60);
    // What is missing of the other is the padding its sender owes it: the tag says 0x2000 then.
    let short = &whole[..15];
    assert_eq!(m.offer(&[&whole, short]), 2);
    assert_eq!(m.rx_status(0), (60, 1 | EOP | IXSM | VP, 0, 0x2005));
    assert_eq!(m.rx_status(1), (60, 1 | EOP | IXSM | VP, 0, 0x2000));
    let bytes = m.peek(RX_BUFFERS, 56);
    assert_eq!(bytes[..12], whole[..12]);
    assert_eq!(bytes[12..], whole[16..]);
}

#[test]
fn the_vlan_filter_sees_tags_inside_and_beside() {
    let beside = |tci| Offload {
        vlan: Some(tci),
        ..Offload::NONE
    };
    let mut m = machine(16, BAM | VFE);
    m.w(reg::VFTA + 3 * 4, 1 << 4);
    let bare = plain(MAC, 100);
    m.offer_notes(&[
        (&tagged(100), Offload::NONE),
        (&tagged(101), Offload::NONE),
        (&bare, beside(100)),
        (&bare, beside(101)),
        (&bare, Offload::NONE),
    ]);
    assert_eq!(m.r(reg::RDH), 3);
    assert_eq!(m.counter("rx_filtered"), 2);
}

#[test]
fn checksum_verdicts() {
    const IPCS: u8 = 0x40;
    const TCPCS: u8 = 0x20;
    const IPE: u8 = 0x40;
    const TCPE: u8 = 0x20;
    let good = tcp4(&payload(333));
    let mut bad_ip = good.clone();
    bad_ip[24] ^= 1;
    let mut bad_tcp = good.clone();
    bad_tcp[200] ^= 1;
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let ip = !sum(&fragment[14..34]);
    fragment[24..26].copy_from_slice(&ip.to_be_bytes());
    let both = 0x300;
    for (name, frame, rxcsum, status, errors) in [
        ("off", &bad_tcp, 0, IXSM, 0),
        ("good", &good, both, IPCS | TCPCS, 0),
        ("bad ip", &bad_ip, both, IPCS | TCPCS, IPE),
        ("bad tcp", &bad_tcp, both, IPCS | TCPCS, TCPE),
        ("ip only", &bad_tcp, 0x100, IPCS, 0),
        ("fragment", &fragment, both, IPCS, 0),
        ("not ip", &plain(MAC, 100), both, IXSM, 0),
    ] {
        let mut m = machine(8, BAM | UPE);
        m.w(reg::RXCSUM, rxcsum);
        let mut frame = frame.clone();
        frame[..6].copy_from_slice(&MAC);
        m.offer(&[&frame]);
        let got = m.rx_status(0);
        assert_eq!((got.1 & !3, got.2), (status, errors), "{name}");
    }
}

#[test]
fn a_checksum_left_to_the_nic_is_written_whether_or_not_the_guest_has_it_judged() {
    let mut want = tcp4(&payload(500));
    want[..6].copy_from_slice(&MAC);
    let mut partial = want.clone();
    partial[50..52].copy_from_slice(&pseudo4(6, 520).to_be_bytes());
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        ..Offload::NONE
    };
    let mut m = machine(8, BAM);
    m.offer_notes(&[(&partial, notes)]);
    assert_eq!(m.peek(RX_BUFFERS, want.len()), want);
    m.w(reg::RXCSUM, 0x300);
    assert!(m.nic.receive.caps().csum);
    m.offer_notes(&[(&partial, notes)]);
    let (_, status, errors, _) = m.rx_status(1);
    assert_eq!((status & 0x60, errors), (0x60, 0));
    // It may pass the frame on, with no more than a look at the verdict.
    assert_eq!(m.peek(RX_BUFFERS + 0x4000, want.len()), want);
}

fn large(len: usize) -> (Vec<u8>, Offload) {
    let mut frame = tcp4(&payload(len));
    frame[..6].copy_from_slice(&MAC);
    frame[50..52].copy_from_slice(&pseudo4(6, 20 + len as u16).to_be_bytes());
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: 1000,
        hdr_len: 54,
        ..Offload::NONE
    };
    (frame, notes)
}

#[test]
fn large_frames_arrive_in_segments_all_or_none() {
    let (frame, notes) = large(5500);
    let mut m = machine(16, BAM);
    assert_eq!(m.offer_notes(&[(&frame, notes)]), 1);
    assert_eq!(m.r(reg::RDH), 6);
    let mut data: Vec<u8> = Vec::new();
    for i in 0..6 {
        let len = usize::from(m.rx_status(i).0) - 4;
        let segment = m.peek(RX_BUFFERS + u64::from(i) * 0x4000, len);
        assert_right(&segment);
        data.extend(&segment[54..]);
    }
    assert_eq!(data, payload(5500));
    // Nine descriptors are left: one large frame fits, the next goes into the packet FIFO whole,
    // and when that is full it stays with its sender.
    assert_eq!(m.offer_notes(&[(&frame, notes), (&frame, notes)]), 2);
    assert_eq!(m.r(reg::RDH), 15);
    assert_eq!(m.counter("rx_no_buffer"), 3);
    let mut more = 0;
    while m.offer_notes(&[(&frame, notes)]) == 1 {
        more += 1;
    }
    let segment = |n: usize| 16 + (n + 58usize).div_ceil(8) * 8;
    let large = 5 * segment(1000) + segment(500);
    assert_eq!(more, (48 * 1024 - 3 * segment(1000)) / large);
    m.w(reg::RDT, 11);
    assert_eq!(m.r(reg::RDH), 11);
    assert_eq!(m.offer_notes(&[(&frame, notes)]), 1);
    assert_eq!(m.counter("rx_back_pressure"), 1);
}

#[test]
fn the_minimum_threshold_is_reported_when_it_is_crossed() {
    for (rdmts, at) in [(0u32, 32u32), (1, 16), (2, 8)] {
        let mut m = machine(64, BAM | rdmts << 8);
        let frame = plain(MAC, 60);
        for free in (0..63u32).rev() {
            m.offer(&[&frame]);
            let crossed = m.r(reg::ICR) & 0x10 != 0;
            assert_eq!(crossed, free == at, "RDMTS {rdmts}, {free} left");
        }
    }
}

#[test]
fn small_packets_are_reported() {
    let mut m = machine(8, BAM);
    m.w(0x2c00, 100);
    m.offer(&[&plain(MAC, 97)]);
    assert_eq!(m.r(reg::ICR) & 0x1_0000, 0);
    m.offer(&[&plain(MAC, 96)]);
    assert_eq!(m.r(reg::ICR) & 0x1_0000, 0x1_0000);
}

#[test]
fn a_receiver_off_or_without_link_drops_and_counts() {
    let frame = plain(MAC, 60);
    let mut m = machine(8, BAM);
    m.nic.control.set_link(&m.env, false);
    assert_eq!(m.offer(&[&frame]), 1);
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    assert_eq!(m.offer(&[&frame]), 1);
    m.nic.control.pci(&m.env, model::PciState::default());
    assert_eq!(m.offer(&[&frame]), 1);
    assert_eq!(m.counter("rx_disabled"), 2);
    assert_eq!(m.counter("rx_frames"), 1);
}

/// What RXCSUM says of packets of every kind, the right and the wrong ones (manual table 3-5).
#[test]
fn verdicts_are_real_for_every_kind_of_packet() {
    const IPCS: u8 = 0x40;
    const L4CS: u8 = 0x20;
    const IPE: u8 = 0x40;
    const L4E: u8 = 0x20;
    let v4 = |protocol: u8, l4: Vec<u8>| {
        let mut f = ethernet(0x0800);
        f.extend(ipv4(protocol, 20 + l4.len() as u16));
        f.extend(l4);
        finish4(&mut f);
        f
    };
    let v6 = |next: u8, mut l4: Vec<u8>, field: usize| {
        let len = l4.len() as u16;
        let mut seed = pseudo6(next, len).to_be_bytes().to_vec();
        seed.extend(&l4);
        l4[field..field + 2].copy_from_slice(&(!sum(&seed)).to_be_bytes());
        let mut f = ethernet(0x86dd);
        f.extend(ipv6(next, len));
        f.extend(l4);
        f
    };
    let data = payload(301);
    let udp_of = |seed| [udp(8 + 301, seed), data.clone()].concat();
    let tcp_of = || [tcp(0x18, 0), data.clone()].concat();
    let tcp4 = v4(6, tcp_of());
    let udp4 = v4(17, udp_of(0));
    let tcp6 = v6(6, tcp_of(), 16);
    let udp6 = v6(17, udp_of(0), 6);
    let mut none4 = udp4.clone();
    none4[40..42].fill(0);
    let mut icmp = ethernet(0x0800);
    icmp.extend(ipv4(1, 20 + 301));
    icmp.extend(&data);
    let ip = !sum(&icmp[14..34]);
    icmp[24..26].copy_from_slice(&ip.to_be_bytes());
    let mut last_fragment = udp4.clone();
    last_fragment[20..22].copy_from_slice(&[0, 100]);
    last_fragment[24..26].fill(0);
    let ip = !sum(&last_fragment[14..34]);
    last_fragment[24..26].copy_from_slice(&ip.to_be_bytes());
    let mut padded = v4(17, [udp(8, 0), Vec::new()].concat());
    padded.resize(60, 0xaa);
    let spoilt = |frame: &[u8], at: usize| {
        let mut bad = frame.to_vec();
        bad[at] ^= 0x10;
        bad
    };
    let cases: &[(&str, Vec<u8>, u8, u8)] = &[
        ("TCP over IPv4", tcp4.clone(), IPCS | L4CS, 0),
        ("its payload wrong", spoilt(&tcp4, 200), IPCS | L4CS, L4E),
        ("its IP header wrong", spoilt(&tcp4, 22), IPCS | L4CS, IPE),
        (
            "its address wrong",
            spoilt(&tcp4, 28),
            IPCS | L4CS,
            IPE | L4E,
        ),
        ("UDP over IPv4", udp4.clone(), IPCS | L4CS, 0),
        ("its payload wrong", spoilt(&udp4, 300), IPCS | L4CS, L4E),
        ("UDP without checksum", none4, IPCS, 0),
        ("UDP with padding behind", padded, IPCS | L4CS, 0),
        ("a last fragment", last_fragment, IPCS, 0),
        ("ICMP", icmp, IPCS, 0),
        ("TCP over IPv6", tcp6.clone(), L4CS, 0),
        ("its payload wrong", spoilt(&tcp6, 200), L4CS, L4E),
        ("UDP over IPv6", udp6.clone(), L4CS, 0),
        ("its payload wrong", spoilt(&udp6, 200), L4CS, L4E),
        ("cut in the IP header", tcp4[..30].to_vec(), 0, 0),
        ("neither", plain(MAC, 100), 0, 0),
    ];
    for (name, frame, status, errors) in cases {
        for (rxcsum, status_mask, error_mask) in [
            (0x300u32, 0xff, 0xff),
            (0x100, !L4CS, !L4E),
            (0x200, !IPCS, !IPE),
            (0, 0, 0),
        ] {
            let mut m = machine(8, BAM | UPE);
            m.w(reg::RXCSUM, rxcsum);
            m.offer(&[frame]);
            let got = m.rx_status(0);
            let status = status & status_mask;
            let want = if status == 0 { IXSM } else { status };
            assert_eq!(got.1 & !3, want, "{name}, RXCSUM {rxcsum:#x}");
            let errors = errors & error_mask;
            assert_eq!(got.2, errors, "{name}, RXCSUM {rxcsum:#x}");
        }
    }
}

/// The descriptors read for a frame are those it needs, in cache lines; not a window of them.
#[test]
fn one_frame_does_not_read_the_ring_ahead() {
    let m = machine(64, BAM);
    m.offer(&[&plain(MAC, 60)]);
    assert_eq!(m.counter("rx_desc_fetched"), 4);
    let frame = plain(MAC, 60);
    let many: Vec<&[u8]> = vec![&frame; 40];
    m.offer(&many);
    assert_eq!(m.counter("rx_desc_fetched"), 44);
}
