//! Sending: plain frames, checksums, VLAN tags, ring handling.

use std::time::Duration;

use drivers::e1000::desc::{self, Data, Legacy, cmd};
use drivers::e1000::regs::{self, cause, tctl};
use drivers::e1000::{Config, Driver, Report, TxOffload, TxOpts};
use drivers::{Bus, ModelBus};

use super::support::{Ip, bytes, frame, mac, model, payload, recorded, spoil, tcp, udp, verified};

const SIZES: [usize; 12] = [14, 15, 42, 59, 60, 61, 64, 255, 256, 1513, 1514, 9014];

/// What the wire carries of a frame: short ones are padded with zeros (TCTL.PSP).
fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn frames_arrive_as_they_were_sent_however_they_are_cut() {
    for offload in [TxOffload::None, TxOffload::Extended] {
        for split in [0, 1, 13, 14, 15, 60, 1000] {
            let (mut driver, recorder) = recorded(Config::poll());
            for (seed, len) in SIZES.into_iter().enumerate() {
                let split = if split == 1 && len > 900 { 11 } else { split };
                let sent = frame(mac(2), mac(1), len, seed as u8);
                let opts = TxOpts {
                    offload,
                    split,
                    ..TxOpts::default()
                };
                assert_eq!(driver.send(&[&sent], &opts).expect("send"), 1);
                assert_eq!(
                    bytes(&recorder),
                    [padded(sent)],
                    "{offload:?} {split} {len}"
                );
            }
        }
    }
}

#[test]
fn without_padding_short_frames_stay_short() {
    let (mut driver, recorder) = recorded(Config::poll());
    let value = driver.read(regs::TCTL).expect("read");
    driver.write(regs::TCTL, value & !tctl::PSP).expect("write");
    let sent = frame(mac(2), mac(1), 42, 0);
    driver.send(&[&sent], &TxOpts::default()).expect("send");
    assert_eq!(bytes(&recorder), [sent]);
}

#[test]
fn a_batch_takes_one_register_write() {
    let (mut driver, recorder) = recorded(Config::poll());
    let sent: Vec<_> = (0..64).map(|i| frame(mac(2), mac(1), 60, i)).collect();
    let refs: Vec<_> = sent.iter().map(Vec::as_slice).collect();
    let before = driver.bus().accesses();
    assert_eq!(driver.send(&refs, &TxOpts::default()).expect("send"), 64);
    assert_eq!(driver.bus().accesses() - before, 1);
    assert_eq!(bytes(&recorder), sent);
    assert_eq!(driver.reclaim().expect("reclaim"), 64);
    assert_eq!(driver.tx_pending(), 0);
}

#[test]
fn the_ring_goes_round_with_every_length_and_report() {
    for count in [8, 24, 256] {
        for every in [1, 4] {
            let config = Config {
                tx_ring: count,
                report_every: every,
                ..Config::poll()
            };
            let (mut driver, recorder) = recorded(config);
            let mut sent = Vec::new();
            for i in 0..600u32 {
                let one = frame(mac(2), mac(1), 60 + i as usize, i as u8);
                let taken = driver.send(&[&one], &TxOpts::default()).expect("send");
                assert_eq!(taken, 1, "frame {i} of ring {count}");
                sent.push(one);
            }
            assert_eq!(bytes(&recorder), sent);
        }
    }
}

#[test]
fn buffers_filled_beforehand_are_sent_in_place() {
    let (mut driver, recorder) = recorded(Config::poll());
    let template = frame(mac(2), mac(1), 60, 9);
    driver.fill_buffers(&template).expect("fill");
    let mut queued = 0;
    for _ in 0..100 {
        queued += driver
            .queue_in_place(32, 60, |number, addr, view| {
                Ok(view.write(addr + 20, &[number as u8])?)
            })
            .expect("queue");
        driver.kick().expect("kick");
    }
    assert_eq!(queued, 3200);
    let got = bytes(&recorder);
    assert_eq!(got.len(), 3200);
    for (i, got) in got.iter().enumerate() {
        let mut expected = template.clone();
        expected[20] = (i % 32) as u8;
        assert_eq!(*got, expected);
    }
}

#[test]
fn reports_come_as_asked_for() {
    let (mut driver, _) = recorded(Config::linux());
    let one = frame(mac(2), mac(1), 60, 0);
    driver.read(regs::ICR).expect("read");
    let send = |driver: &mut Driver<ModelBus>, report| {
        let opts = TxOpts {
            report,
            ..TxOpts::default()
        };
        driver.send(&[&one], &opts).expect("send");
        driver
            .bus_mut()
            .delay(Duration::from_millis(1))
            .expect("delay");
        let causes = driver.read(regs::ICR).expect("read");
        let done = driver.reclaim().expect("reclaim");
        (causes & (cause::TXDW | cause::TXQE), done)
    };
    assert_eq!(
        send(&mut driver, Report::Every),
        (cause::TXDW | cause::TXQE, 1)
    );
    assert_eq!(
        send(&mut driver, Report::Sent),
        (cause::TXDW | cause::TXQE, 1)
    );
    assert_eq!(send(&mut driver, Report::Never), (cause::TXQE, 0));
    assert_eq!(driver.reclaim_by_head().expect("reclaim"), 1);
    assert_eq!(driver.tx_pending(), 0);
}

#[test]
fn the_write_back_touches_the_status_only() {
    let (mut driver, _) = recorded(Config::poll());
    let memory = driver.bus_mut().alloc(4096).expect("memory");
    let raws = [
        Legacy {
            addr: memory.iova,
            len: 77,
            cmd: cmd::EOP | cmd::IFCS | cmd::RS,
            css: 5,
            cso: 9,
            special: 0x1234,
        }
        .raw(),
        Data {
            addr: memory.iova,
            len: 99,
            cmd: cmd::EOP | cmd::IFCS | cmd::RS,
            popts: 0,
            special: 0x4321,
        }
        .raw(),
    ];
    for raw in &raws {
        assert!(driver.queue_raw(raw, true).expect("queue"));
    }
    driver.kick().expect("kick");
    let base = u64::from(driver.read(regs::TDBAL).expect("read"))
        | u64::from(driver.read(regs::TDBAH).expect("read")) << 32;
    for (i, mut raw) in raws.into_iter().enumerate() {
        let mut back = [0; 16];
        let at = base + i as u64 * desc::SIZE;
        driver.bus_mut().dma_read(at, &mut back).expect("read");
        raw[12] |= desc::DD;
        assert_eq!(back, raw);
    }
}

#[test]
fn a_legacy_descriptor_inserts_a_checksum() {
    // ICMP echo: the sum runs over the whole message.
    let mut sent = frame(mac(2), mac(1), 98, 3);
    sent[36..38].fill(0);
    for split in [0, 20, 37] {
        let (mut driver, recorder) = recorded(Config::poll());
        let opts = TxOpts {
            offload: TxOffload::LegacySum {
                start: 34,
                store: 36,
            },
            split,
            ..TxOpts::default()
        };
        driver.send(&[&sent], &opts).expect("send");
        let got = bytes(&recorder).remove(0);
        let sum = got[34..].chunks(2).fold(0u32, |sum, pair| {
            let low = pair.get(1).copied().unwrap_or(0);
            sum + u32::from(u16::from_be_bytes([pair[0], low]))
        });
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!((folded & 0xffff) + (folded >> 16), 0xffff, "split {split}");
        assert_eq!(got[..36], sent[..36]);
        assert_eq!(got[38..], sent[38..]);
    }
}

#[test]
fn checksums_are_written_by_context() {
    for ip in [Ip::V4, Ip::V6] {
        for len in [0, 1, 2, 5, 100, 1379, 1380] {
            for split in [0, 1, 33, 55] {
                let (mut driver, recorder) = recorded(Config::poll());
                for good in [tcp(ip, &payload(len, 1)), udp(ip, &payload(len, 2))] {
                    let mut sent = good.clone();
                    spoil(&mut sent);
                    let opts = TxOpts {
                        offload: TxOffload::Sums { ip: true, l4: true },
                        split: if split == 1 && len > 500 { 3 } else { split },
                        ..TxOpts::default()
                    };
                    driver.send(&[&sent], &opts).expect("send");
                    let got = bytes(&recorder).remove(0);
                    verified(&got);
                    assert_eq!(got, padded(good), "{ip:?} {len} {split}");
                }
            }
        }
    }
}

#[test]
fn only_the_checksums_asked_for_are_written() {
    let (mut driver, recorder) = recorded(Config::poll());
    let good = tcp(Ip::V4, b"hello");
    for (ip, l4) in [(true, false), (false, true)] {
        let mut sent = good.clone();
        spoil(&mut sent);
        let opts = TxOpts {
            offload: TxOffload::Sums { ip, l4 },
            ..TxOpts::default()
        };
        driver.send(&[&sent], &opts).expect("send");
        let got = bytes(&recorder).remove(0);
        assert_eq!(got[24..26] == good[24..26], ip);
        assert_eq!(got[50..52] == good[50..52], l4);
        if !ip {
            assert_eq!(got[24..26], [0xbe, 0xef]);
        }
        if !l4 {
            assert_eq!(got[50..52], [0xde, 0xad]);
        }
    }
}

#[test]
fn a_udp_sum_of_zero_is_sent_as_all_ones() {
    // The first two payload bytes make the sum come out as zero.
    let plain = udp(Ip::V4, &[0, 0, 1, 2]);
    let sum = u16::from_be_bytes([plain[40], plain[41]]);
    let [a, b] = sum.to_be_bytes();
    let mut sent = udp(Ip::V4, &[a, b, 1, 2]);
    spoil(&mut sent);
    let (mut driver, recorder) = recorded(Config::poll());
    let opts = TxOpts {
        offload: TxOffload::Sums { ip: true, l4: true },
        ..TxOpts::default()
    };
    driver.send(&[&sent], &opts).expect("send");
    let got = bytes(&recorder).remove(0);
    assert_eq!(got[40..42], [0xff, 0xff]);
    verified(&got);
}

#[test]
fn a_vlan_tag_is_inserted_in_vlan_mode_only() {
    for vlan in [true, false] {
        let config = Config {
            vlan,
            ..Config::poll()
        };
        let (mut driver, recorder) = recorded(config);
        for offload in [TxOffload::None, TxOffload::Extended] {
            for split in [0, 6, 13] {
                let sent = frame(mac(2), mac(1), 100, 1);
                let opts = TxOpts {
                    offload,
                    vlan: Some(0x6123),
                    split,
                    ..TxOpts::default()
                };
                driver.send(&[&sent], &opts).expect("send");
                let mut expected = sent.clone();
                if vlan {
                    expected.splice(12..12, [0x81, 0x00, 0x61, 0x23]);
                }
                assert_eq!(bytes(&recorder), [expected], "{offload:?} {split}");
            }
        }
    }
}

#[test]
fn checksums_count_from_the_frame_without_the_inserted_tag() {
    let config = Config {
        vlan: true,
        ..Config::poll()
    };
    let (mut driver, recorder) = recorded(config);
    let good = tcp(Ip::V4, &payload(300, 4));
    let mut sent = good.clone();
    spoil(&mut sent);
    let opts = TxOpts {
        offload: TxOffload::Sums { ip: true, l4: true },
        vlan: Some(5),
        ..TxOpts::default()
    };
    driver.send(&[&sent], &opts).expect("send");
    let mut expected = good;
    expected.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    assert_eq!(bytes(&recorder), [expected]);
}

#[test]
fn nothing_is_sent_while_transmission_is_disabled() {
    let (mut driver, recorder) = recorded(Config::poll());
    let on = driver.read(regs::TCTL).expect("read");
    driver.write(regs::TCTL, on & !tctl::EN).expect("write");
    let sent = frame(mac(2), mac(1), 60, 0);
    driver.send(&[&sent], &TxOpts::default()).expect("send");
    assert!(bytes(&recorder).is_empty());
    driver.write(regs::TCTL, on).expect("write");
    assert_eq!(bytes(&recorder), [sent]);
}

#[test]
fn the_ring_can_be_moved_without_a_reset() {
    let (mut driver, recorder) = recorded(Config::poll());
    for (i, count) in (0u8..).zip([64, 1024, 128, 4096]) {
        driver.restart_tx(count).expect("restart");
        let sent: Vec<_> = (0..50).map(|n| frame(mac(2), mac(1), 60, n ^ i)).collect();
        let refs: Vec<_> = sent.iter().map(Vec::as_slice).collect();
        assert_eq!(driver.send(&refs, &TxOpts::default()).expect("send"), 50);
        assert_eq!(bytes(&recorder), sent);
    }
}

#[test]
fn a_frame_may_cross_from_one_region_into_the_next_and_lie_above_4_gib() {
    const HIGH: u64 = 0x12_3456_0000;
    let (mut driver, recorder) = recorded(Config::poll());
    let bus = driver.bus_mut();
    bus.alloc_at(HIGH, 0x1000).expect("memory");
    bus.alloc_at(HIGH + 0x1000, 0x1000).expect("memory");
    let sent = frame(mac(2), mac(1), 1000, 5);
    let at = HIGH + 0x1000 - 17;
    bus.dma_write(at, &sent).expect("write");
    let raw = Legacy {
        addr: at,
        len: 1000,
        cmd: cmd::EOP | cmd::IFCS | cmd::RS,
        ..Legacy::default()
    }
    .raw();
    driver.queue_raw(&raw, true).expect("queue");
    driver.kick().expect("kick");
    assert_eq!(bytes(&recorder), [sent]);
}

#[test]
fn what_the_cable_cannot_take_waits_in_order() {
    let (mut driver, recorder) = recorded(Config::poll());
    let sent: Vec<_> = (0..100).map(|i| frame(mac(2), mac(1), 60, i)).collect();
    let refs: Vec<_> = sent.iter().map(Vec::as_slice).collect();
    recorder.set_room(10);
    driver.send(&refs, &TxOpts::default()).expect("send");
    let mut got = bytes(&recorder);
    assert_eq!(got.len(), 10);
    recorder.set_room(33);
    driver.bus_mut().pump().expect("pump");
    got.extend(bytes(&recorder));
    assert_eq!(got.len(), 43);
    recorder.set_room(usize::MAX);
    driver.bus_mut().pump().expect("pump");
    got.extend(bytes(&recorder));
    assert_eq!(got, sent);
}

#[test]
fn without_bus_mastering_nothing_moves() {
    let (mut driver, recorder) = recorded(Config::poll());
    driver
        .bus_mut()
        .config_write(4, &3u16.to_le_bytes())
        .expect("command");
    let sent = frame(mac(2), mac(1), 60, 0);
    driver.send(&[&sent], &TxOpts::default()).expect("send");
    assert!(bytes(&recorder).is_empty());
    assert_eq!(driver.reclaim().expect("reclaim"), 0);
}

#[test]
fn sent_frames_are_counted() {
    let (bus, recorder) = ModelBus::recorded(model(1));
    let mut driver = Driver::new(bus, Config::poll()).expect("driver comes up");
    let sent = [
        frame(mac(2), mac(1), 60, 0),
        frame([0xff; 6], mac(1), 124, 0),
        frame([1, 0, 0x5e, 0, 0, 1], mac(1), 1514, 0),
    ];
    let refs: Vec<_> = sent.iter().map(Vec::as_slice).collect();
    driver.send(&refs, &TxOpts::default()).expect("send");
    assert_eq!(bytes(&recorder).len(), 3);
    driver.update_statistics().expect("read");
    // With the CRC: 64, 128 and 1518 bytes.
    for (name, value) in [
        ("gptc", 3),
        ("tpt", 3),
        ("bptc", 1),
        ("mptc", 1),
        ("gotc", 64 + 128 + 1518),
        ("tot", 64 + 128 + 1518),
        ("ptc64", 1),
        ("ptc127", 0),
        ("ptc255", 1),
        ("ptc1522", 1),
    ] {
        assert_eq!(driver.statistic(name), Some(value), "{name}");
    }
    // Reading clears.
    driver.update_statistics().expect("read");
    assert_eq!(driver.statistic("gptc"), Some(3));
    assert_eq!(driver.statistic("gotc"), Some(64 + 128 + 1518));
}
