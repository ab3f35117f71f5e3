//! NICs, frames and an eye for what is wrong with them.

use std::sync::Arc;

use drivers::e1000::{Config, Driver};
use drivers::{ModelBus, Recorder};
use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};

pub type Nic = Driver<ModelBus>;

pub fn mac(last: u8) -> [u8; 6] {
    [0x52, 0x54, 0x00, 0x12, 0x34, last]
}

pub fn model(last: u8) -> model::Nic {
    e1000::new(e1000::Config::new(mac(last)))
}

/// A NIC with a recorder at the other end of its cable.
pub fn recorded(config: Config) -> (Nic, Arc<Recorder>) {
    let (bus, recorder) = ModelBus::recorded(model(1));
    (Driver::new(bus, config).expect("driver comes up"), recorder)
}

/// Two NICs back to back.
pub fn pair(config: Config) -> (Nic, Nic) {
    let (a, b) = ModelBus::pair(model(1), model(2));
    let up = |bus| Driver::new(bus, config.clone()).expect("driver comes up");
    (up(a), up(b))
}

/// A frame of `len` bytes that no protocol owns, with bytes that differ from frame to frame.
pub fn frame(to: [u8; 6], from: [u8; 6], len: usize, seed: u8) -> Vec<u8> {
    let mut frame = vec![0; len.max(14)];
    frame[0..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    for (i, byte) in frame[14..].iter_mut().enumerate() {
        *byte = (i as u8).wrapping_mul(31).wrapping_add(seed);
    }
    frame.truncate(len);
    frame
}

pub fn payload(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed)
        .collect()
}

/// IP version of a test frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    V4,
    V6,
}

fn with_ip(ip: Ip) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    let link = PacketBuilder::ethernet2(mac(1), mac(2));
    match ip {
        Ip::V4 => link.ipv4([192, 168, 7, 1], [10, 20, 30, 40], 64),
        Ip::V6 => link.ipv6(
            [0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xa, 0xb, 0xc, 0xd, 1, 2, 3, 4],
            64,
        ),
    }
}

/// A TCP frame with good checksums, 12 bytes of options, FIN and PSH set.
pub fn tcp(ip: Ip, payload: &[u8]) -> Vec<u8> {
    let builder = with_ip(ip)
        .tcp(1234, 80, 0xffff_ff00, 0x7210)
        .ack(0x0102_0304)
        .psh()
        .fin()
        .options_raw(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8])
        .expect("options");
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut frame, payload).expect("frame");
    frame
}

/// A UDP frame with good checksums.
pub fn udp(ip: Ip, payload: &[u8]) -> Vec<u8> {
    let builder = with_ip(ip).udp(5353, 53);
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut frame, payload).expect("frame");
    frame
}

/// What the parser saw.
pub struct Seen {
    pub ip_id: Option<u16>,
    pub tcp: Option<etherparse::TcpHeader>,
    pub payload: Vec<u8>,
}

/// Parses a TCP or UDP frame; every length and checksum in it must be right.
pub fn verified(frame: &[u8]) -> Seen {
    let parsed = PacketHeaders::from_ethernet_slice(frame).expect("parses");
    let payload = parsed.payload.slice();
    let l3 = 14
        + parsed
            .link_exts
            .iter()
            .map(|e| e.header_len())
            .sum::<usize>();
    let net = parsed.net.expect("IP");
    let transport = parsed.transport.expect("TCP or UDP");
    let l4 = transport.header_len() + payload.len();
    let ip_id = match &net {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "IP checksum");
            let total = usize::from(ip.total_len);
            assert_eq!(total, ip.header_len() + l4, "IP total length");
            let padded = (l3 + total).max(60);
            assert!(frame.len() == l3 + total || frame.len() == padded);
            Some(ip.identification)
        }
        NetHeaders::Ipv6(ip, _) => {
            assert_eq!(usize::from(ip.payload_length), l4, "IPv6 payload length");
            None
        }
        other => panic!("not IP: {other:?}"),
    };
    let tcp = match transport {
        TransportHeader::Tcp(tcp) => {
            let sum = match &net {
                NetHeaders::Ipv4(ip, _) => tcp.calc_checksum_ipv4(ip, payload),
                NetHeaders::Ipv6(ip, _) => tcp.calc_checksum_ipv6(ip, payload),
                _ => unreachable!(),
            };
            // All ones and all zeros stand for the same number; the chip's adder knows no TCP.
            let number = |sum: u16| if sum == 0 { 0xffff } else { sum };
            let sum = sum.expect("length");
            assert_eq!(number(tcp.checksum), number(sum), "TCP checksum");
            Some(tcp)
        }
        TransportHeader::Udp(udp) => {
            let sum = match &net {
                NetHeaders::Ipv4(ip, _) => udp.calc_checksum_ipv4(ip, payload),
                NetHeaders::Ipv6(ip, _) => udp.calc_checksum_ipv6(ip, payload),
                _ => unreachable!(),
            };
            assert_eq!(udp.checksum, sum.expect("length"), "UDP checksum");
            assert_ne!(udp.checksum, 0, "0 would mean none");
            None
        }
        other => panic!("neither TCP nor UDP: {other:?}"),
    };
    Seen {
        ip_id,
        tcp,
        payload: payload.to_vec(),
    }
}

/// Spoils the checksums, as a stack leaves them that expects the device to write them.
pub fn spoil(frame: &mut [u8]) {
    let layout = drivers::e1000::Layout::of(frame).expect("TCP or UDP");
    let at = layout.l4_checksum();
    frame[at..at + 2].copy_from_slice(&[0xde, 0xad]);
    if layout.ipv4 {
        frame[layout.l3 + 10..layout.l3 + 12].copy_from_slice(&[0xbe, 0xef]);
    }
}

/// The bytes of everything recorded since the last call.
pub fn bytes(recorder: &Recorder) -> Vec<Vec<u8>> {
    recorder.take().into_iter().map(|r| r.bytes).collect()
}

/// Numbers without luck: the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
