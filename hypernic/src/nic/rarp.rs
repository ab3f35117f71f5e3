//! Where a station is, told to the network after it has moved.

use frame::{Batch, Sink};
use wire::Offload;

/// Announces a station on a wire, where its frames have this tag. Whether somebody took it.
pub(super) fn announce(out: &dyn Sink, mac: [u8; 6], tag: Option<u16>) -> bool {
    // A group, or none, is no station's address.
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return false;
    }
    let mut batch = Batch::new();
    let frame = rarp(mac);
    match tag {
        Some(tag) => {
            let (addresses, rest) = frame.split_at(12);
            batch.push_bytes(&[addresses, &[0x81, 0], &tag.to_be_bytes(), rest].concat());
        }
        None => batch.push_bytes(&frame),
    }
    batch.end(Offload::NONE);
    let taken = out.deliver(&batch, &[0]);
    if taken == 0 {
        out.give_up(&batch, &[0]);
    }
    taken > 0
}

/// A reverse ARP request, by which the network learns where a station is (RFC 903).
fn rarp(mac: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // EtherType 8035h, Ethernet, IPv4, 6 and 4 bytes of address, request reverse.
    frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}
