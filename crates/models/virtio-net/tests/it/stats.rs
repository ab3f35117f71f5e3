//! DEVICE_STATS: counters that the driver asks for.

use hypernic_virtio_net::regs::{ctrl, feature, stats};
use hypernic_virtio_net::{CTRL, Config, RX, TX};
use model_testkit::Wire;

use crate::driver::{BUFFERS, Driver, MAC, OFFLOADS, OTHER, PLAIN, USUAL, frame, header, tcp4};

const STATS: u64 = USUAL | OFFLOADS | feature::CTRL_VQ | feature::DEVICE_STATS;

fn ask(queue: usize, types: u64) -> Vec<u8> {
    let mut bytes = (queue as u16).to_le_bytes().to_vec();
    bytes.extend([0; 6]);
    bytes.extend(types.to_le_bytes());
    bytes
}

/// The counters of a reply: type, queue, values.
fn taken(mut reply: &[u8]) -> Vec<(u8, u16, Vec<u64>)> {
    let mut all = Vec::new();
    while !reply.is_empty() {
        let size = usize::from(u16::from_le_bytes([reply[6], reply[7]]));
        let (one, rest) = reply.split_at(size);
        assert_eq!((one[1], &one[4..6]), (0, &[0, 0][..]));
        let words = one[8..].as_chunks().0;
        let values = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        all.push((one[0], u16::from_le_bytes([one[2], one[3]]), values));
        reply = rest;
    }
    all
}

fn get(d: &mut Driver, payload: &[u8]) -> Vec<(u8, u16, Vec<u64>)> {
    let (answer, reply) = d.ask(ctrl::STATS, ctrl::STATS_GET, payload, 1000);
    assert_eq!(answer, ctrl::OK);
    taken(&reply)
}

#[test]
fn counters_are_those_of_the_queue_that_is_asked_for() {
    let mut d = Driver::new(STATS);
    let (answer, reply) = d.ask(ctrl::STATS, ctrl::STATS_QUERY, &[], 8);
    let all = stats::RX | stats::TX | stats::CTRL;
    assert_eq!((answer, reply), (ctrl::OK, all.to_le_bytes().to_vec()));
    let none = [
        (0, 0, vec![0; 6]),
        (1, 0, vec![0; 4]),
        (2, 0, vec![0; 4]),
        (16, 1, vec![0; 6]),
        (17, 1, vec![0; 2]),
        (18, 1, vec![0; 6]),
        (32, 2, vec![1, 1]),
    ];
    let every = [
        ask(RX, stats::RX),
        ask(TX, stats::TX),
        ask(CTRL, stats::CTRL),
    ]
    .concat();
    assert_eq!(get(&mut d, &every), none);
    // Sent: a plain one, one to be summed, one whole and one to be cut here, a runt.
    let csum = hypernic_virtio_net::regs::header::NEEDS_CSUM;
    d.send(PLAIN, &frame(OTHER, 60));
    d.send(header(csum, 0, 0, 34, 16), &tcp4(100));
    d.send(header(csum, 1, 1000, 34, 16), &tcp4(3000));
    d.send(header(csum, 1, 100, 34, 16), &tcp4(250));
    d.send(PLAIN, &[0; 13]);
    // Received: a plain one, one that is summed, one whole; one finds no buffer and waits.
    for i in 0..3 {
        d.receive_at(BUFFERS + 0x4000 * i, 0x4000);
    }
    d.kick(RX);
    let summed = wire::Offload {
        csum: Some(wire::Csum {
            start: 34,
            offset: 16,
        }),
        ..wire::Offload::NONE
    };
    let whole = wire::Offload {
        gso: wire::Gso::Tcp4,
        gso_size: 1000,
        hdr_len: 54,
        ..summed
    };
    let (short, long) = (tcp4(100), tcp4(3000));
    let plain = frame(MAC, 60);
    let offered = [
        (&plain[..], wire::Offload::NONE),
        (&short, summed),
        (&long, whole),
    ];
    assert_eq!(d.m.offer_notes(&offered), 3);
    let counts = get(&mut d, &every);
    let (rx_bytes, tx_bytes) = (60 + 154 + 3054, 60 + 154 + 3054 + 304);
    assert_eq!(counts[0].2, [1, 3, rx_bytes, 1, 0, 0]);
    assert_eq!(counts[1].2, [0, 2, 1, 0]);
    assert_eq!(counts[2].2, [1, 3054, 0, 0]);
    assert_eq!(counts[3].2, [5, 4, tx_bytes, 5, 1, 1]);
    assert_eq!(counts[4].2, [1, 3]);
    assert_eq!(counts[5].2, [2, 3054 + 304, 3, 304, 1, 3054]);
    assert_eq!(counts[6].2, [2, 2]);
    // Some of them, in another device that became this one.
    let blob = d.m.save();
    let mut other = Driver::cold(Config::new(MAC), Wire::default());
    other.m.env.memory = d.m.env.memory.clone();
    other.queues = d.queues;
    other
        .m
        .nic
        .control
        .load(&other.m.env, &blob)
        .expect("the same device");
    let one = ask(TX, stats::TX_CSUM);
    assert_eq!(get(&mut other, &one), [(17, 1, vec![1, 3])]);
    // A reset forgets them.
    d.start(STATS, 64);
    assert_eq!(get(&mut d, &one), [(17, 1, vec![0, 0])]);
}

#[test]
fn what_cannot_be_told_is_refused() {
    let mut d = Driver::new(STATS);
    let refused = |d: &mut Driver, number, payload: &[u8], room| {
        assert_eq!(d.ask(ctrl::STATS, number, payload, room).0, ctrl::ERR);
    };
    refused(&mut d, ctrl::STATS_QUERY, &[0], 8);
    refused(&mut d, ctrl::STATS_QUERY, &[], 7);
    refused(&mut d, 2, &[], 8);
    refused(&mut d, ctrl::STATS_GET, &ask(TX, stats::TX_BASIC), 55);
    refused(&mut d, ctrl::STATS_GET, &ask(TX, stats::RX_BASIC), 1000);
    refused(&mut d, ctrl::STATS_GET, &ask(TX, 1 << 19), 1000);
    refused(&mut d, ctrl::STATS_GET, &ask(3, 0), 1000);
    refused(&mut d, ctrl::STATS_GET, &ask(TX, 0)[..15], 1000);
    let many = ask(TX, stats::TX_BASIC).repeat(4);
    refused(&mut d, ctrl::STATS_GET, &many, 1000);
    assert_eq!(get(&mut d, &ask(TX, 0)), []);
    let mut d = Driver::new(USUAL | feature::CTRL_VQ);
    refused(&mut d, ctrl::STATS_QUERY, &[], 8);
}
