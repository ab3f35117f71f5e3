//! What the short look takes for whole TCP or UDP over IPv4 is that to the long one too.

use proptest::prelude::*;

use crate::{Fragment, L3Kind, Layers, SIMPLE, SimpleV4};

proptest! {
    #[test]
    fn the_short_look_agrees_with_the_long_one(
        mut bytes in proptest::collection::vec(any::<u8>(), SIMPLE..120),
        noise in proptest::collection::vec((12usize..50, any::<u8>()), 0..3),
        udp: bool,
        words in 4u8..9,
    ) {
        bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
        bytes[20..22].copy_from_slice(&[0x40, 0]);
        bytes[23] = if udp { 17 } else { 6 };
        bytes[46] = words << 4;
        for (at, byte) in noise {
            bytes[at] = byte;
        }
        let head = bytes.first_chunk().expect("long enough");
        if let Some(packet) = SimpleV4::of(head, bytes.len()) {
            let layers = Layers::parse(&bytes).expect("headers");
            let (l3, l4) = (layers.l3.expect("IP"), layers.l4.expect("a transport"));
            prop_assert_eq!((l3.kind, l3.fragment, l3.len), (L3Kind::V4, Fragment::Whole, 20));
            prop_assert_eq!((l4.kind, l4.offset), (packet.kind, SimpleV4::L4));
            prop_assert_eq!(l4.len, packet.l4_len);
            prop_assert_eq!(packet.ip(), &bytes[l3.offset..l4.offset]);
            prop_assert_eq!(packet.addresses_and_ports(), &bytes[26..38]);
            prop_assert_eq!(packet.addresses(), &bytes[26..34]);
            prop_assert_eq!(packet.l4_span(), l3.total.checked_sub(20));
        }
    }
}
