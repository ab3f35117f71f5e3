use super::*;

const TARGET: Target = Target {
    mac: [0x52, 0x54, 0, 0, 0, 9],
    tag: Some(5),
    host: 2,
};

#[test]
fn good_frames_pass_and_bad_ones_are_named() {
    let good = udp(TARGET, &[7; 40]);
    assert_eq!(tag(&good), Some(5));
    assert_eq!(inspect(&good), Ok(()));
    let last = good.len() - 1;
    for (at, why) in [
        (4 + 14 + 10, "IPv4 header checksum"),
        (4 + 14 + 20 + 6, "wrong checksum"),
        (last, "wrong checksum"),
    ] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let said = inspect(&bad).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    let long = [&good[..], &[0; 3]].concat();
    assert!(inspect(&long).unwrap_err().contains("3 bytes too long"));
    assert!(inspect(&good[..59]).unwrap_err().contains("too short"));
    let mut padded = udp(TARGET, b"x");
    padded.resize(60, 0);
    assert_eq!(inspect(&padded), Ok(()));
    padded[59] = 1;
    assert!(inspect(&padded).unwrap_err().contains("not zero"));
}

#[test]
fn fragments_make_the_packet_again() {
    let payload = crate::guests::noise(5000);
    let frames = echo_request(TARGET, 3, &payload, 1500);
    assert_eq!(frames.len(), 4);
    assert!(frames.iter().all(|f| f.len() <= 1518));
    // As the guest would answer: ends exchanged, type 0 (with the checksum that belongs to it).
    let answer = |frame: &Vec<u8>, first: bool| {
        let mut out = frame.clone();
        out[..6].copy_from_slice(&MAC);
        let ip = 18;
        out[ip + 12..ip + 16].copy_from_slice(&address(Some(5), 2));
        out[ip + 16..ip + 20].copy_from_slice(&address(Some(5), 1));
        if first {
            out[ip + 20] = 0;
            let sum = u16::from_be_bytes([out[ip + 22], out[ip + 23]]);
            let (sum, carry) = sum.overflowing_add(0x0800);
            out[ip + 22..ip + 24].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
        out
    };
    let mut parts = packet::Reassembly::default();
    for at in [2, 0, 3] {
        assert_eq!(parts.answer(&answer(&frames[at], at == 0), TARGET), None);
    }
    let whole = parts.answer(&answer(&frames[1], false), TARGET);
    assert_eq!(whole, Some((3, payload)));
}

#[test]
fn traffic_is_counted_as_a_nic_counts() {
    let mut traffic = Traffic::default();
    let mut frame = udp(TARGET, &[0; 10]);
    traffic.add(&frame);
    frame[..6].fill(0xff);
    traffic.add(&frame);
    let before = traffic;
    frame[0] = 1;
    frame.resize(1514, 0);
    traffic.add(&frame);
    assert_eq!(traffic.bytes, 64 + 64 + 1518);
    assert_eq!(traffic.by_size, [2, 0, 0, 0, 0, 1]);
    assert_eq!((traffic.broadcast, traffic.multicast), (1, 1));
    let late = traffic.since(&before);
    assert_eq!((late.frames, late.bytes, late.tagged), (1, 1518, 1));
    assert_eq!(late.by_size, [0, 0, 0, 0, 0, 1]);
}
