//! Receive-side scaling as the driver says it, and hashes in headers.

use hypernic_virtio_net::regs::{ctrl, feature, hash, page};
use hypernic_virtio_net::{Config, RX, TX};
use model_testkit::Wire;
use wire::Offload;

use crate::driver::{BUFFERS, Driver, MAC, OFFLOADS, OTHER, USUAL, frame, tcp4, udp};

const RSS: u64 = USUAL | feature::CTRL_VQ | feature::MQ | feature::RSS;
const REPORT: u64 = USUAL | feature::CTRL_VQ | feature::HASH_REPORT;

/// The key of Microsoft's verification suite.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

fn config() -> Config {
    Config {
        pairs: 2,
        hash_report: true,
        ..Config::new(MAC)
    }
}

fn driver(features: u64) -> Driver {
    let mut d = Driver::cold(config(), Wire::default());
    d.start(features, 64);
    d
}

fn rss(types: u32, unclassified: u16, table: &[u16], pairs: u16, key: &[u8]) -> Vec<u8> {
    let mut bytes = types.to_le_bytes().to_vec();
    bytes.extend((table.len() as u16).wrapping_sub(1).to_le_bytes());
    bytes.extend(unclassified.to_le_bytes());
    bytes.extend(table.iter().flat_map(|entry| entry.to_le_bytes()));
    bytes.extend(pairs.to_le_bytes());
    bytes.push(key.len() as u8);
    bytes.extend(key);
    bytes
}

fn set(d: &mut Driver, payload: &[u8]) -> u8 {
    d.command(ctrl::MQ, ctrl::RSS_CONFIG, payload)
}

/// The suite's first frame: its hash is 51CCC178h, and 323E8FC2h without ports.
fn suite() -> Vec<u8> {
    let mut frame = tcp4(100);
    frame[..6].copy_from_slice(&MAC);
    frame[26..34].copy_from_slice(&[66, 9, 149, 187, 161, 142, 100, 80]);
    frame[34..36].copy_from_slice(&2794u16.to_be_bytes());
    frame[36..38].copy_from_slice(&1766u16.to_be_bytes());
    frame
}

fn give(d: &mut Driver, queue: usize, buffers: u64) {
    for i in 0..buffers {
        let at = BUFFERS + 0x10_0000 * (queue as u64 / 2) + 0x1000 * i;
        d.give(queue, &[(at, 2048, true)]);
    }
}

/// Which of both queues takes a frame.
fn goes(d: &mut Driver, frame: &[u8]) -> usize {
    assert_eq!(d.m.offer(&[frame]), 1);
    match (d.used(RX).len(), d.used(2).len()) {
        (1, 0) => 0,
        (0, 1) => 1,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_configuration_says_what_can_be_hashed() {
    let mut d = driver(RSS);
    assert_eq!(d.r8(page::DEVICE + 17), 40);
    assert_eq!(d.r16(page::DEVICE + 18), 128);
    assert_eq!(d.r32(page::DEVICE + 20), 0x3f);
    let offered = |config: Config| config.features();
    assert_ne!(offered(config()) & feature::RSS, 0);
    assert_eq!(
        offered(Config::new(MAC)) & (feature::RSS | feature::HASH_REPORT),
        0
    );
    let mut d = Driver::cold(config(), Wire::default());
    for alone in [feature::RSS, feature::HASH_REPORT] {
        assert!(!d.negotiate(USUAL | alone), "without a control queue");
    }
}

#[test]
fn the_table_says_which_pair_is_for_which_flow() {
    let mut d = driver(RSS);
    give(&mut d, RX, 32);
    give(&mut d, 2, 32);
    let frame_ = suite();
    let arp = frame(MAC, 60);
    assert_eq!(goes(&mut d, &frame_), 0, "one pair, until it is said");
    // 78h is the entry of the flow, 42h that of its addresses.
    let mut table = [0; 128];
    table[0x78] = 1;
    assert_eq!(set(&mut d, &rss(hash::TYPES, 0, &table, 2, &KEY)), ctrl::OK);
    assert_eq!((goes(&mut d, &frame_), goes(&mut d, &arp)), (1, 0));
    assert_eq!(set(&mut d, &rss(hash::IP4, 1, &table, 2, &KEY)), ctrl::OK);
    assert_eq!((goes(&mut d, &frame_), goes(&mut d, &arp)), (0, 1));
    table[0x42] = 1;
    assert_eq!(set(&mut d, &rss(hash::IP4, 0, &table, 2, &KEY)), ctrl::OK);
    assert_eq!((goes(&mut d, &frame_), goes(&mut d, &arp)), (1, 0));
    // A shorter table: the lowest bits.
    assert_eq!(
        set(&mut d, &rss(hash::IP4, 0, &[0, 0, 1, 0], 2, &KEY)),
        ctrl::OK
    );
    assert_eq!(goes(&mut d, &frame_), 1);
    // No type, no key: what is not classified.
    assert_eq!(set(&mut d, &rss(0, 1, &[0], 2, &[])), ctrl::OK);
    assert_eq!(goes(&mut d, &frame_), 1);
    // Fewer transmit queues do not change where flows go.
    assert_eq!(set(&mut d, &rss(0, 1, &[0], 1, &[])), ctrl::OK);
    assert_eq!(goes(&mut d, &frame_), 1);
    // A state keeps it, and the other command ends it.
    let blob = d.m.save();
    let mut other = Driver::cold(config(), Wire::default());
    other.m.env.memory = d.m.env.memory.clone();
    (other.queues, other.ctrl) = (d.queues, d.ctrl);
    other
        .m
        .nic
        .control
        .load(&other.m.env, &blob)
        .expect("the same device");
    assert_eq!(goes(&mut other, &frame_), 1);
    let one = 1u16.to_le_bytes();
    assert_eq!(other.command(ctrl::MQ, ctrl::VQ_PAIRS_SET, &one), ctrl::OK);
    assert_eq!(goes(&mut other, &frame_), 0);
}

#[test]
fn what_cannot_be_spread_so_is_refused_and_changes_nothing() {
    let mut d = driver(RSS);
    give(&mut d, RX, 8);
    give(&mut d, 2, 8);
    assert_eq!(set(&mut d, &rss(0, 1, &[0], 2, &[])), ctrl::OK);
    let good = rss(hash::TYPES, 0, &[0, 0], 2, &KEY);
    let refused = [
        rss(hash::TYPES | 1 << 6, 0, &[0], 2, &KEY),
        rss(hash::TYPES, 2, &[0], 2, &KEY),
        rss(hash::TYPES, 0, &[0, 2], 2, &KEY),
        rss(hash::TYPES, 0, &[0; 3], 2, &KEY),
        rss(hash::TYPES, 0, &[0; 256], 2, &KEY),
        rss(hash::TYPES, 0, &[], 2, &KEY),
        rss(hash::TYPES, 0, &[0], 3, &KEY),
        rss(hash::TYPES, 0, &[0], 0, &KEY),
        rss(hash::TYPES, 0, &[0], 2, &[1; 41]),
    ];
    for payload in &refused {
        assert_eq!(set(&mut d, payload), ctrl::ERR, "{payload:?}");
    }
    for len in 0..good.len() {
        assert_eq!(set(&mut d, &good[..len]), ctrl::ERR, "{len}");
    }
    assert_eq!(goes(&mut d, &suite()), 1);
    // Linux leaves a byte behind the key.
    let mut long = good.clone();
    long.push(0);
    assert_eq!(set(&mut d, &long), ctrl::OK);
    assert_eq!(goes(&mut d, &suite()), 0);
    assert_eq!(set(&mut d, &rss(0, 1, &[0], 2, &[])), ctrl::OK);
    let hashes = [0; 13];
    assert_eq!(
        d.command(ctrl::MQ, ctrl::HASH_CONFIG, &hashes),
        ctrl::ERR,
        "not agreed upon"
    );
    assert_eq!(goes(&mut d, &suite()), 1);
    let mut d = driver(REPORT);
    assert_eq!(set(&mut d, &good), ctrl::ERR, "not agreed upon");
    assert_eq!(d.command(ctrl::MQ, ctrl::HASH_CONFIG, &hashes), ctrl::OK);
    for len in 0..13 {
        assert_eq!(
            d.command(ctrl::MQ, ctrl::HASH_CONFIG, &hashes[..len]),
            ctrl::ERR
        );
    }
}

fn hashes(types: u32) -> Vec<u8> {
    let mut bytes = types.to_le_bytes().to_vec();
    bytes.extend([0; 8]);
    bytes.push(40);
    bytes.extend(KEY);
    bytes
}

#[test]
fn headers_of_twenty_bytes_have_the_hash_of_the_flow() {
    let mut d = driver(REPORT | OFFLOADS);
    let frame_ = suite();
    let got = |d: &mut Driver, frame: &[u8], notes| {
        d.receive_at(BUFFERS, 0x4000);
        assert_eq!(d.m.offer_notes(&[(frame, notes)]), 1);
        let len = d.used(RX)[0].1 as usize;
        let got = d.m.peek(BUFFERS, len);
        let word = |at: usize| u16::from_le_bytes([got[at], got[at + 1]]);
        let hash = u32::from(word(12)) | u32::from(word(14)) << 16;
        assert_eq!((word(10), word(18)), (1, 0), "one buffer, and padding");
        (hash, word(16), got[20..].to_vec())
    };
    let plain = Offload::NONE;
    assert_eq!(
        got(&mut d, &frame_, plain),
        (0, 0, frame_.clone()),
        "none is on"
    );
    assert_eq!(
        d.command(ctrl::MQ, ctrl::HASH_CONFIG, &hashes(hash::TYPES)),
        ctrl::OK
    );
    assert_eq!(
        got(&mut d, &frame_, plain),
        (0x51cc_c178, 2, frame_.clone())
    );
    let arp = frame(MAC, 60);
    assert_eq!(got(&mut d, &arp, plain), (0, 0, arp.clone()));
    // Beside a tag that is put in, the place of the hash stays.
    let tagged = Offload {
        vlan: Some(7),
        ..Offload::NONE
    };
    let (hash, report, bytes) = got(&mut d, &frame_, tagged);
    assert_eq!((hash, report), (0x51cc_c178, 2));
    assert_eq!(bytes[12..16], [0x81, 0, 0, 7]);
    assert_eq!([&bytes[..12], &bytes[16..]].concat(), frame_);
    assert_eq!(
        d.command(ctrl::MQ, ctrl::HASH_CONFIG, &hashes(hash::IP4)),
        ctrl::OK
    );
    assert_eq!(got(&mut d, &frame_, plain).0, 0x323e_8fc2);
}

#[test]
fn headers_of_twenty_bytes_are_in_front_of_what_is_sent() {
    let mut d = driver(REPORT | OFFLOADS);
    let sent = udp(false, 500);
    let mut header = [0; 20];
    header[0] = 1;
    header[6] = 34;
    header[8] = 6;
    d.m.poke(BUFFERS, &[&header[..], &sent].concat());
    d.give(TX, &[(BUFFERS, 20 + sent.len() as u32, false)]);
    d.kick(TX);
    let got = d.m.wire.take();
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].len(), sent.len());
    let layers = wire::Layers::parse(&got[0]).expect("headers");
    assert_eq!(layers.l4_intact(&got[0]), Some(true));
    // A frame of twelve bytes less room is none.
    d.m.poke(BUFFERS, &frame(OTHER, 40));
    d.give(TX, &[(BUFFERS, 33, false)]);
    d.kick(TX);
    assert_eq!(d.counter("tx_runt"), 1);
}
