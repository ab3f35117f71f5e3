//! TCP segmentation (manual 3.5).

use drivers::ModelBus;
use drivers::e1000::desc::{Context, Data, cmd, popts, tucmd};
use drivers::e1000::{Config, Driver, Layout, TxOffload, TxOpts};
use drivers::{Bus, Recorder};
use frame::Caps;
use wire::Gso;

use super::support::{Dice, Ip, bytes, model, payload, recorded, spoil, tcp, verified};

/// Checks that `got` is `whole` in segments of `mss`.
fn check(whole: &[u8], mss: usize, got: &[Vec<u8>]) {
    let layout = Layout::of(whole).expect("TCP");
    let first = verified(whole);
    let tcp = first.tcp.expect("TCP");
    assert_eq!(got.len(), first.payload.len().div_ceil(mss));
    let mut joined = Vec::new();
    for (i, one) in got.iter().enumerate() {
        let last = i == got.len() - 1;
        let seen = verified(one);
        let header = seen.tcp.expect("TCP");
        let sequence = tcp.sequence_number.wrapping_add((i * mss) as u32);
        assert_eq!(header.sequence_number, sequence);
        assert_eq!(header.acknowledgment_number, tcp.acknowledgment_number);
        assert_eq!(header.options, tcp.options);
        assert_eq!((header.fin, header.psh), (last, last), "segment {i}");
        assert!(header.ack);
        if let (Some(id), Some(base)) = (seen.ip_id, first.ip_id) {
            assert_eq!(id, base.wrapping_add(i as u16));
        }
        assert_eq!(one[..layout.l3], whole[..layout.l3]);
        if !last {
            assert_eq!(seen.payload.len(), mss);
        }
        joined.extend_from_slice(&seen.payload);
    }
    assert!(joined == first.payload, "payload differs");
}

fn segment(driver: &mut Driver<ModelBus>, whole: &[u8], mss: u16, split: u32) {
    let mut sent = whole.to_vec();
    spoil(&mut sent);
    let opts = TxOpts {
        offload: TxOffload::Tso { mss },
        split,
        ..TxOpts::default()
    };
    assert_eq!(driver.send(&[&sent], &opts).expect("send"), 1);
}

#[test]
fn segments_are_right_to_the_last() {
    // The last is the one other models get wrong.
    for ip in [Ip::V4, Ip::V6] {
        for (len, mss) in [
            (1500, 1000),
            (2920, 1460),
            (2921, 1460),
            (1461, 1460),
            (1460, 1460),
            (1, 1460),
            (64, 1),
            (65000, 1448),
            (40000, 8948),
        ] {
            let (mut driver, recorder) = recorded(Config::poll());
            let whole = tcp(ip, &payload(len, 7));
            segment(&mut driver, &whole, mss, 0);
            check(&whole, mss.into(), &bytes(&recorder));
        }
    }
}

#[test]
fn descriptors_may_cut_anywhere() {
    let mut dice = Dice(42);
    let (mut driver, recorder) = recorded(Config::poll());
    for _ in 0..200 {
        let ip = if dice.below(2) == 0 { Ip::V4 } else { Ip::V6 };
        let len = 1 + dice.below(9000) as usize;
        let mss = 1 + len / 40 + dice.below(2000) as usize;
        let split = 1 + len as u32 / 500 + dice.below(2000) as u32;
        let whole = tcp(ip, &payload(len, dice.below(256) as u8));
        segment(&mut driver, &whole, mss as u16, split);
        check(&whole, mss, &bytes(&recorder));
    }
}

#[test]
fn every_segment_gets_the_vlan_tag() {
    let config = Config {
        vlan: true,
        ..Config::poll()
    };
    let (mut driver, recorder) = recorded(config);
    let whole = tcp(Ip::V4, &payload(5000, 1));
    let opts = TxOpts {
        offload: TxOffload::Tso { mss: 1400 },
        vlan: Some(0x2007),
        ..TxOpts::default()
    };
    driver.send(&[&whole], &opts).expect("send");
    let mut untagged = bytes(&recorder);
    for one in &mut untagged {
        let tag: Vec<u8> = one.splice(12..16, []).collect();
        assert_eq!(tag, [0x81, 0x00, 0x20, 0x07]);
    }
    check(&whole, 1400, &untagged);
}

#[test]
fn a_capable_sink_gets_the_whole() {
    for (ip, gso) in [(Ip::V4, Gso::Tcp4), (Ip::V6, Gso::Tcp6)] {
        let recorder = Recorder::new(Caps::ALL);
        let bus = ModelBus::new(model(1), recorder.clone());
        let mut driver = Driver::new(bus, Config::poll()).expect("driver comes up");
        let whole = tcp(ip, &payload(30000, 1));
        segment(&mut driver, &whole, 1448, 0);
        let got = recorder.take();
        assert_eq!(got.len(), 1);
        let notes = got[0].notes;
        let layout = Layout::of(&whole).expect("TCP");
        assert_eq!(notes.gso, gso);
        assert_eq!(notes.gso_size, 1448);
        assert_eq!(usize::from(notes.hdr_len), layout.end);
        let sum = notes.csum.expect("a checksum to write");
        assert_eq!(usize::from(sum.start), layout.l4);
        assert_eq!(sum.offset, 16);
        // The headers describe the whole: lengths, IPv4 checksum, seed over the whole length.
        let mut expected = whole.clone();
        let seed = layout.pseudo_sum(&whole, (whole.len() - layout.l4) as u32);
        let at = layout.l4_checksum();
        expected[at..at + 2].copy_from_slice(&seed.to_be_bytes());
        assert!(got[0].bytes == expected, "headers or payload differ");
    }
}

#[test]
fn both_contexts_are_remembered() {
    // One for segmentation, one for all else; loading one leaves the other (3.3.5).
    let (mut driver, recorder) = recorded(Config::poll());
    let whole = tcp(Ip::V4, &payload(2000, 1));
    let layout = Layout::of(&whole).expect("TCP");
    let plain = tcp(Ip::V4, &payload(201, 2));
    let memory = driver.bus_mut().alloc(0x2000).expect("memory");
    let base = Context {
        ipcss: 14,
        ipcso: 24,
        ipcse: 33,
        tucss: layout.l4 as u8,
        tucso: layout.l4_checksum() as u8,
        tucmd: tucmd::TCP | tucmd::IP,
        ..Context::default()
    };
    let segmented = Context {
        tucmd: base.tucmd | tucmd::TSE,
        mss: 700,
        hdrlen: layout.end as u8,
        paylen: 2000,
        ..base
    };
    let data = |addr, len: usize, command| {
        Data {
            addr,
            len: len as u32,
            cmd: cmd::EOP | cmd::IFCS | cmd::RS | command,
            popts: popts::IXSM | popts::TXSM,
            special: 0,
        }
        .raw()
    };
    let seeded = |whole: &[u8], tso: bool| {
        let layout = Layout::of(whole).expect("TCP");
        let mut sent = whole.to_vec();
        let len = if tso { 0 } else { whole.len() - layout.l4 };
        let seed = layout.pseudo_sum(whole, len as u32);
        let at = layout.l4_checksum();
        sent[at..at + 2].copy_from_slice(&seed.to_be_bytes());
        sent[24..26].fill(0);
        sent
    };
    let bus = driver.bus_mut();
    bus.dma_write(memory.iova, &seeded(&whole, true))
        .expect("write");
    bus.dma_write(memory.iova + 0x1000, &seeded(&plain, false))
        .expect("write");
    let tso = data(memory.iova, whole.len(), cmd::TSE);
    let sums = data(memory.iova + 0x1000, plain.len(), 0);
    for raw in [segmented.raw(), base.raw(), tso, sums, tso, tso, sums] {
        driver
            .queue_raw(&raw, raw[11] & cmd::RS != 0)
            .expect("queue");
    }
    driver.kick().expect("kick");
    let got = bytes(&recorder);
    assert_eq!(got.len(), 3 + 1 + 3 + 3 + 1);
    check(&whole, 700, &got[0..3]);
    assert_eq!(got[3], plain);
    check(&whole, 700, &got[4..7]);
    check(&whole, 700, &got[7..10]);
    assert_eq!(got[10], plain);
}

#[test]
fn segments_are_counted() {
    let (mut driver, recorder) = recorded(Config::poll());
    let whole = tcp(Ip::V4, &payload(3000, 1));
    segment(&mut driver, &whole, 1000, 0);
    assert_eq!(bytes(&recorder).len(), 3);
    driver.update_statistics().expect("read");
    assert_eq!(driver.statistic("gptc"), Some(3));
    assert_eq!(driver.statistic("tsctc"), Some(1));
    assert_eq!(driver.statistic("tsctfc"), Some(0));
}
