//! Receiving: buffers, filters, tags, checksums, ring handling.

use drivers::e1000::desc::{self, rx_status};
use drivers::e1000::regs::{self, rctl};
use drivers::e1000::{Config, RxSums, TxOffload, TxOpts};
use drivers::{Bus, Recorded};
use wire::Offload;

use super::support::{Dice, Ip, Nic, frame, mac, pair, payload, recorded, spoil, tcp, udp};

const GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 0x12, 0x34, 0x56];

fn deliver(driver: &mut Nic, frames: &[Vec<u8>]) -> usize {
    let frames: Vec<_> = frames
        .iter()
        .map(|bytes| Recorded {
            bytes: bytes.clone(),
            notes: Offload::NONE,
        })
        .collect();
    driver.bus_mut().deliver(&frames)
}

/// Whether this frame gets in.
fn accepts(driver: &mut Nic, frame: &[u8]) -> bool {
    assert_eq!(deliver(driver, &[frame.to_vec()]), 1, "filtered or taken");
    let got = driver.receive().expect("receive");
    driver.refill_rx().expect("refill");
    assert!(got.is_empty() || got == [frame]);
    !got.is_empty()
}

#[test]
fn frames_of_every_size_fill_as_many_buffers_as_they_need() {
    for rx_buffer in [256, 512, 1024, 2048, 4096, 8192, 16384] {
        for strip_crc in [true, false] {
            let config = Config {
                rx_buffer,
                strip_crc,
                rx_ring: 128,
                long_packets: true,
                ..Config::poll()
            };
            let (mut driver, _) = recorded(config);
            let edge = rx_buffer as usize;
            for len in [
                60,
                61,
                1514,
                9014,
                16000,
                edge - 4,
                edge - 3,
                edge,
                edge + 1,
                2 * edge,
            ] {
                if len > 16000 {
                    continue;
                }
                let sent = frame(mac(1), mac(2), len, len as u8);
                assert_eq!(deliver(&mut driver, std::slice::from_ref(&sent)), 1);
                let on_wire = len + if strip_crc { 0 } else { 4 };
                let mut seen = 0;
                driver
                    .poll_rx(1, |got| {
                        seen += 1;
                        assert_eq!(got.len(), len);
                        assert!(got.to_vec() == sent, "bytes differ at {len}");
                        assert_eq!(got.descriptors(), on_wire.div_ceil(edge), "{len} by {edge}");
                        assert_eq!(got.descriptor().errors, 0);
                    })
                    .expect("poll");
                assert_eq!(seen, 1);
            }
        }
    }
}

#[test]
fn only_the_last_descriptor_says_end_of_packet() {
    let config = Config {
        rx_buffer: 256,
        rx_ring: 16,
        ..Config::poll()
    };
    let config = Config {
        refill: 8,
        ..config
    };
    let (mut driver, _) = recorded(config);
    assert_eq!(deliver(&mut driver, &[frame(mac(1), mac(2), 1000, 0)]), 1);
    let base = u64::from(driver.read(regs::RDBAL).expect("read"))
        | u64::from(driver.read(regs::RDBAH).expect("read")) << 32;
    let mut seen = Vec::new();
    for i in 0..5 {
        let mut raw = [0; 16];
        let at = base + i * desc::SIZE;
        driver.bus_mut().dma_read(at, &mut raw).expect("read");
        let one = desc::Receive::parse(&raw);
        seen.push((one.len, one.status & (desc::DD | rx_status::EOP)));
    }
    let part = (256, desc::DD);
    let end = (232, desc::DD | rx_status::EOP);
    assert_eq!(seen, [part, part, part, end, (0, 0)]);
}

#[test]
fn long_frames_need_long_packets() {
    for long_packets in [false, true] {
        let config = Config {
            long_packets,
            ..Config::poll()
        };
        let (mut driver, _) = recorded(config);
        assert!(accepts(&mut driver, &frame(mac(1), mac(2), 1514, 0)));
        // 1522 bytes with CRC is still a tagged frame of usual size.
        assert!(accepts(&mut driver, &frame(mac(1), mac(2), 1518, 0)));
        let long = frame(mac(1), mac(2), 1519, 0);
        assert_eq!(accepts(&mut driver, &long), long_packets);
        driver.update_statistics().expect("read");
        let expected = u64::from(!long_packets);
        assert_eq!(driver.statistic("roc"), Some(expected));
    }
}

#[test]
fn addresses_are_filtered() {
    let config = Config {
        multicast: vec![GROUP],
        ..Config::poll()
    };
    let (mut driver, _) = recorded(config.clone());
    let mut other_group = GROUP;
    other_group[5] ^= 0x10;
    assert!(accepts(&mut driver, &frame(mac(1), mac(2), 60, 0)));
    assert!(!accepts(&mut driver, &frame(mac(3), mac(2), 60, 0)));
    assert!(accepts(&mut driver, &frame([0xff; 6], mac(2), 60, 0)));
    assert!(accepts(&mut driver, &frame(GROUP, mac(2), 60, 0)));
    assert!(!accepts(&mut driver, &frame(other_group, mac(2), 60, 0)));
    // A second exact address.
    let third = mac(3);
    let low = u32::from_le_bytes([third[0], third[1], third[2], third[3]]);
    let high = u32::from(u16::from_le_bytes([third[4], third[5]]));
    driver.write(regs::RAL + 8 * 7, low).expect("write");
    driver
        .write(regs::RAH + 8 * 7, high | regs::RAH_AV)
        .expect("write");
    assert!(accepts(&mut driver, &frame(third, mac(2), 60, 0)));
    driver.write(regs::RAH + 8 * 7, high).expect("write");
    assert!(!accepts(&mut driver, &frame(third, mac(2), 60, 0)));
    // Without BAM no broadcast.
    let control = driver.read(regs::RCTL).expect("read");
    driver
        .write(regs::RCTL, control & !rctl::BAM)
        .expect("write");
    assert!(!accepts(&mut driver, &frame([0xff; 6], mac(2), 60, 0)));
    // Promiscuous, by kind.
    driver
        .write(regs::RCTL, control | rctl::UPE)
        .expect("write");
    assert!(accepts(&mut driver, &frame(mac(9), mac(2), 60, 0)));
    assert!(!accepts(&mut driver, &frame(other_group, mac(2), 60, 0)));
    driver
        .write(regs::RCTL, control | rctl::MPE)
        .expect("write");
    assert!(!accepts(&mut driver, &frame(mac(9), mac(2), 60, 0)));
    assert!(accepts(&mut driver, &frame(other_group, mac(2), 60, 0)));
}

#[test]
fn the_multicast_offset_chooses_the_bits() {
    let (mut driver, _) = recorded(Config::poll());
    let control = driver.read(regs::RCTL).expect("read");
    // Bits 47:36, 46:35, 45:34 and 43:32 of the address, which is little-endian on the wire.
    let high = u32::from(u16::from_le_bytes([GROUP[4], GROUP[5]]));
    for (mo, shift) in [(0, 4), (1, 3), (2, 2), (3, 0)] {
        driver
            .write(regs::RCTL, control | mo << rctl::MO_SHIFT)
            .expect("write");
        let hash = high >> shift & 0xfff;
        let at = regs::MTA + 4 * (hash >> 5);
        assert!(
            !accepts(&mut driver, &frame(GROUP, mac(2), 60, 0)),
            "MO {mo}"
        );
        driver.write(at, 1 << (hash & 31)).expect("write");
        assert!(
            accepts(&mut driver, &frame(GROUP, mac(2), 60, 0)),
            "MO {mo}"
        );
        driver.write(at, 0).expect("write");
    }
}

#[test]
fn inexact_matches_are_marked() {
    let config = Config {
        multicast: vec![GROUP],
        promiscuous: true,
        ..Config::poll()
    };
    let (mut driver, _) = recorded(config);
    for (to, inexact) in [(mac(1), false), (GROUP, true)] {
        deliver(&mut driver, &[frame(to, mac(2), 60, 0)]);
        let mut status = 0;
        driver
            .poll_rx(1, |got| status = got.descriptor().status)
            .expect("poll");
        assert_eq!(status & rx_status::PIF != 0, inexact, "{to:02x?}");
    }
}

fn tagged(mut frame: Vec<u8>, tci: u16) -> Vec<u8> {
    let [a, b] = tci.to_be_bytes();
    frame.splice(12..12, [0x81, 0x00, a, b]);
    frame
}

#[test]
fn tags_are_stripped_in_vlan_mode() {
    for vlan in [true, false] {
        let config = Config {
            vlan,
            ..Config::poll()
        };
        let (mut driver, _) = recorded(config);
        for len in [60, 100, 1514] {
            let plain = frame(mac(1), mac(2), len, 1);
            let with_tag = tagged(plain.clone(), 0xa123);
            deliver(&mut driver, &[with_tag.clone(), plain.clone()]);
            let mut got = Vec::new();
            driver
                .poll_rx(2, |one| got.push((one.to_vec(), one.vlan())))
                .expect("poll");
            let first = if vlan { plain.clone() } else { with_tag };
            assert_eq!(got[0].0, first);
            if vlan {
                assert_eq!(got[0].1, Some(0xa123));
            }
            assert_eq!(got[1], (plain, None));
        }
    }
}

#[test]
fn a_tag_beside_the_frame_is_a_tag() {
    for vlan in [true, false] {
        let config = Config {
            vlan,
            ..Config::poll()
        };
        let (mut driver, _) = recorded(config);
        assert!(driver.bus().far_end().caps().vlan);
        for len in [60, 100, 1514] {
            let plain = frame(mac(1), mac(2), len, 1);
            let one = Recorded {
                bytes: plain.clone(),
                notes: Offload {
                    vlan: Some(0x0042),
                    ..Offload::NONE
                },
            };
            assert_eq!(driver.bus_mut().deliver(&[one]), 1);
            let mut got = Vec::new();
            driver
                .poll_rx(1, |one| got.push((one.to_vec(), one.vlan())))
                .expect("poll");
            if vlan {
                assert_eq!(got, [(plain, Some(0x0042))]);
            } else {
                assert_eq!(got[0].0, tagged(plain, 0x0042));
            }
        }
    }
}

#[test]
fn vlans_are_filtered() {
    let config = Config {
        vlan: true,
        vlan_filter: Some(vec![5, 0xfff, 32]),
        ..Config::poll()
    };
    let (mut driver, _) = recorded(config);
    for (tci, taken) in [
        (5, true),
        (0xe005, true),
        (0x0fff, true),
        (32, true),
        (6, false),
        (37, false),
        (0, false),
    ] {
        deliver(&mut driver, &[tagged(frame(mac(1), mac(2), 100, 0), tci)]);
        let got = driver.receive().expect("receive");
        assert_eq!(got.len(), usize::from(taken), "tag {tci:#06x}");
    }
    // No tag, no VLAN filter.
    assert!(accepts(&mut driver, &frame(mac(1), mac(2), 100, 0)));
}

#[test]
fn frames_wait_while_there_is_no_buffer_and_are_not_lost() {
    let config = Config {
        rx_ring: 8,
        refill: 1,
        ..Config::poll()
    };
    let (mut driver, _) = recorded(config);
    let sent: Vec<_> = (0..1000u32)
        .map(|i| frame(mac(1), mac(2), 60 + i as usize % 9, i as u8))
        .collect();
    let mut next = 0;
    let mut got = Vec::new();
    // The first calls fill the ring, of which seven of eight descriptors may be used, and the
    // 48 KiB of the packet FIFO.
    let taken = deliver(&mut driver, &sent);
    assert!((500..1000).contains(&taken), "{taken} taken");
    next += taken;
    for _ in 0..1000 {
        driver
            .poll_rx(3, |one| got.push(one.to_vec()))
            .expect("poll");
        if next < sent.len() {
            next += deliver(&mut driver, &sent[next..]);
        }
    }
    assert_eq!(got, sent);
}

#[test]
fn nothing_is_received_while_reception_is_disabled() {
    let (mut driver, _) = recorded(Config::poll());
    driver.stop_rx().expect("stop");
    deliver(&mut driver, &[frame(mac(1), mac(2), 60, 0)]);
    assert!(driver.receive().expect("receive").is_empty());
    let control = driver.read(regs::RCTL).expect("read");
    driver.write(regs::RCTL, control | rctl::EN).expect("write");
    assert!(accepts(&mut driver, &frame(mac(1), mac(2), 60, 1)));
}

#[test]
fn the_ring_can_be_moved_and_its_buffers_resized_without_a_reset() {
    let (mut driver, _) = recorded(Config::poll());
    for (count, buffer) in [(64, 2048), (512, 256), (128, 16384), (4096, 1024)] {
        driver.restart_rx(count, buffer).expect("restart");
        let sent: Vec<_> = (0..40).map(|i| frame(mac(1), mac(2), 1000, i)).collect();
        let mut next = 0;
        let mut got = Vec::new();
        for _ in 0..40 {
            next += deliver(&mut driver, &sent[next..]);
            got.extend(driver.receive().expect("receive"));
            driver.refill_rx().expect("refill");
        }
        assert_eq!(got, sent, "{count} x {buffer}");
    }
}

#[test]
fn null_buffers_are_written_back_and_skipped() {
    let config = Config {
        rx_ring: 16,
        refill: 1,
        ..Config::poll()
    };
    let (mut driver, _) = recorded(config);
    let base = u64::from(driver.read(regs::RDBAL).expect("read"))
        | u64::from(driver.read(regs::RDBAH).expect("read")) << 32;
    // Descriptors 0 and 1 have none.
    driver.bus_mut().dma_write(base, &[0; 32]).expect("write");
    deliver(&mut driver, &[frame(mac(1), mac(2), 60, 0)]);
    let mut raws = [[0; 16]; 3];
    for (at, raw) in (base..).step_by(16).zip(&mut raws) {
        driver.bus_mut().dma_read(at, raw).expect("read");
    }
    assert_eq!(raws[0][12] & desc::DD, desc::DD);
    assert_eq!(raws[1][12] & desc::DD, desc::DD);
    let third = desc::Receive::parse(&raws[2]);
    assert_eq!(third.len, 60);
    assert_eq!(third.status & rx_status::EOP, rx_status::EOP);
}

#[test]
fn checksums_are_judged_when_asked_for() {
    for rx_sums in [true, false] {
        let config = Config {
            rx_sums,
            promiscuous: true,
            ..Config::poll()
        };
        let (mut driver, _) = recorded(config);
        let mut verdict = |bytes: Vec<u8>| {
            assert_eq!(deliver(&mut driver, &[bytes]), 1);
            let mut sums = None;
            driver
                .poll_rx(1, |got| sums = Some(got.sums()))
                .expect("poll");
            sums.expect("a frame")
        };
        let both = RxSums::Good { ip: true, l4: true };
        let expect = |sums| if rx_sums { sums } else { RxSums::Unknown };
        for len in [0, 1, 500, 1401] {
            assert_eq!(verdict(tcp(Ip::V4, &payload(len, 0))), expect(both));
            assert_eq!(verdict(udp(Ip::V4, &payload(len, 0))), expect(both));
        }
        let mut bad = tcp(Ip::V4, &payload(500, 0));
        bad[100] ^= 1;
        assert_eq!(verdict(bad), expect(RxSums::Bad));
        let mut bad = udp(Ip::V4, &payload(500, 0));
        bad[24] ^= 1;
        assert_eq!(verdict(bad), expect(RxSums::Bad));
        assert_eq!(verdict(frame(mac(1), mac(2), 100, 0)), RxSums::Unknown);
    }
}

#[test]
fn received_frames_are_counted() {
    let config = Config {
        multicast: vec![GROUP],
        ..Config::poll()
    };
    let (mut driver, _) = recorded(config);
    for (to, len) in [(mac(1), 60), ([0xff; 6], 252), (GROUP, 1514), (mac(9), 60)] {
        deliver(&mut driver, &[frame(to, mac(2), len, 0)]);
    }
    driver.receive().expect("receive");
    driver.update_statistics().expect("read");
    // With the CRC, and without what the address filter turned away.
    for (name, value) in [
        ("gprc", 3),
        ("bprc", 1),
        ("mprc", 1),
        ("gorc", 64 + 256 + 1518),
        ("prc64", 1),
        ("prc511", 1),
        ("prc1522", 1),
        ("mpc", 0),
    ] {
        assert_eq!(driver.statistic(name), Some(value), "{name}");
    }
}

#[test]
fn two_nics_back_to_back_talk_to_each_other() {
    let (mut a, mut b) = pair(Config::linux());
    let mut echoes = 0;
    for i in 0..1000u32 {
        let len = 60 + i as usize % 1400;
        let request = frame(mac(2), mac(1), len, i as u8);
        a.send(&[&request], &TxOpts::default()).expect("send");
        a.reclaim().expect("reclaim");
        for got in b.receive().expect("receive") {
            assert_eq!(got, request);
            let reply = frame(mac(1), mac(2), got.len(), !(i as u8));
            b.send(&[&reply], &TxOpts::default()).expect("send");
            b.reclaim().expect("reclaim");
        }
        for got in a.receive().expect("receive") {
            assert_eq!(got, frame(mac(1), mac(2), len, !(i as u8)));
            echoes += 1;
        }
    }
    assert_eq!(echoes, 1000);
}

#[test]
fn segments_arrive_at_the_other_nic_with_good_sums() {
    let config = Config {
        rx_sums: true,
        promiscuous: true,
        ..Config::poll()
    };
    let (mut a, mut b) = pair(config);
    let mut dice = Dice(7);
    for _ in 0..50 {
        let len = 1 + dice.below(60_000) as usize;
        let mss = 500 + dice.below(949) as u16;
        let content = payload(len, dice.below(256) as u8);
        let whole = tcp(Ip::V4, &content);
        let header = whole.len() - len;
        let mut sent = whole.clone();
        spoil(&mut sent);
        let opts = TxOpts {
            offload: TxOffload::Tso { mss },
            ..TxOpts::default()
        };
        assert_eq!(a.send(&[&sent], &opts).expect("send"), 1);
        let mut joined = Vec::new();
        b.poll_rx(usize::MAX, |got| {
            assert_eq!(got.sums(), RxSums::Good { ip: true, l4: true });
            joined.extend_from_slice(&got.to_vec()[header..]);
        })
        .expect("poll");
        b.refill_rx().expect("refill");
        eprintln!(
            "{len} {mss} {} {:?} {:?}",
            joined.len(),
            a.bus().counters(),
            b.bus().counters()
        );
        joined.truncate(len.max(6));
        assert!(joined[..len] == content, "payload differs");
    }
}
