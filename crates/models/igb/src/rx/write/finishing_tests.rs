//! A checksum that was left to the NIC is in the guest's memory as if the sender had written it,
//! whatever the guest has the receiver look at (RXCSUM) and whichever way the frame takes.

use frame::{Batch, Caps, expand};
use guest_mem::ReadSlice;
use model::Receive;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Csum, Gso, Layers, Offload, Sum};

use crate::regs as r;
use crate::regs::QUEUES;
use crate::regs::bits::{ctrl, rctl};
use crate::regs::settings::Settings;
use crate::testing::{Guest, RX_RINGS, packet, packet_buffer};

/// Each segment has two buffers at most.
const RING: u32 = 128;

#[derive(Clone, Copy, Debug)]
struct Setup {
    vf: bool,
    fast_path: bool,
    rxcsum: u32,
    srrctl: u32,
    strip_crc: bool,
    strip_vlan: bool,
}

fn setup() -> impl Strategy<Value = Setup> {
    // Packet checksum, and all that is classified or reported instead of a hash.
    let pcss = prop_oneof![3 => Just(0u32), 1 => 0..60u32];
    let rxcsum = (pcss, any::<u32>()).prop_map(|(pcss, bits)| pcss | bits & 0x3b00);
    // Whole in 2 KiB or 1 KiB, legacy, with headers apart where there are some or always.
    let srrctl = prop_oneof![
        4 => Just(1 << 25 | 2),
        1 => Just(1 << 25 | 1),
        1 => Just(1),
        1 => Just(2 << 25 | 2 << 8 | 2),
        1 => Just(5 << 25 | 1 << 8 | 1),
    ];
    let ways = any::<[bool; 4]>();
    (rxcsum, srrctl, ways).prop_map(|(rxcsum, srrctl, [vf, fast_path, strip_crc, strip_vlan])| {
        Setup {
            vf,
            fast_path,
            rxcsum,
            srrctl,
            strip_crc,
            strip_vlan,
        }
    })
}

impl Setup {
    fn guest(&self) -> Guest {
        let guest = if self.vf {
            let settings = Settings {
                rx_on: true,
                rxcsum: self.rxcsum,
                strip_crc: self.strip_crc,
                strip_vlan: self.strip_vlan,
                ..Settings::VF
            };
            Guest::vf_with(settings, self.fast_path)
        } else {
            let guest = Guest::pf_with(self.fast_path);
            let file = &guest.function.file;
            let vme = if self.strip_vlan { ctrl::VME } else { 0 };
            let secrc = if self.strip_crc { rctl::SECRC } else { 0 };
            file.set(r::CTRL, vme);
            file.set(r::RCTL, rctl::EN | rctl::UPE | secrc);
            file.set(r::RXCSUM, self.rxcsum);
            file.set_at(r::PSRTYPE, 0, u32::MAX);
            guest
        };
        guest.start_rx(0, RING, self.srrctl);
        guest
    }
}

/// All that a guest sees of what it got.
fn seen(guest: &Guest) -> (u32, Vec<u8>, Vec<u8>) {
    let ring = guest.read(RX_RINGS, RING as usize * 16);
    let buffers = guest.read(packet_buffer(0, 0), RING as usize * 0x1000);
    (guest.get(QUEUES.rdh, 0), ring, buffers)
}

/// TCP or UDP with `len` bytes behind it and the checksum left out.
fn left_out(v6: bool, udp: bool, len: usize) -> (Vec<u8>, Offload) {
    let mut bytes = packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], !udp, 7, 8, len);
    if v6 {
        let l4 = (bytes.len() - 34) as u16;
        let protocol = bytes[23];
        let mut ip = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        ip[4..6].copy_from_slice(&l4.to_be_bytes());
        ip.extend([0xfd; 16]);
        ip.extend([0xfe; 16]);
        bytes.splice(14..34, ip);
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    }
    let layers = Layers::parse(&bytes).expect("headers");
    let l4 = layers.l4.expect("TCP or UDP");
    let offset = l4.kind.checksum_offset().expect("it has one");
    let seed = layers.pseudo_sum(&bytes, bytes.len() - l4.offset);
    let seed = seed.map_or(0, Sum::value).to_be_bytes();
    bytes[l4.offset + offset..][..2].copy_from_slice(&seed);
    let notes = Offload {
        csum: Some(Csum {
            start: l4.offset as u16,
            offset: offset as u16,
        }),
        hdr_len: (l4.offset + l4.len) as u16,
        ..Offload::NONE
    };
    (bytes, notes)
}

proptest! {
    // Each has several guests with all their memory.
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
    #[test]
    fn a_guest_cannot_tell_who_wrote_its_checksums(
        v6: bool, udp: bool,
        len in 0usize..1440,
        more in proptest::option::of((1000usize..4000, 100u16..1400)),
        tag in proptest::option::of(any::<u16>()),
        inside: bool,
        cuts in vec(any::<usize>(), 0..4),
        setup in setup(),
    ) {
        let large = more.filter(|_| !udp);
        let (mut bytes, mut notes) = left_out(v6, udp, large.map_or(len, |(len, _)| len));
        if let Some((_, mss)) = large {
            notes.gso = if v6 { Gso::Tcp6 } else { Gso::Tcp4 };
            notes.gso_size = mss;
        }
        match tag {
            Some(tci) if inside => {
                let [a, b] = tci.to_be_bytes();
                bytes.splice(12..12, [0x81, 0, a, b]);
                notes.csum = notes.csum.map(|c| Csum { start: c.start + 4, ..c });
                notes.hdr_len += 4;
            }
            tag => notes.vlan = tag,
        }
        let mut left = Batch::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, tail) = rest.split_at(cut % (rest.len() + 1));
            left.push_slice(ReadSlice::from_bytes(piece));
            rest = tail;
        }
        left.push_slice(ReadSlice::from_bytes(rest));
        left.end(notes);
        let frame = left.get(0).expect("pushed");

        // What a sender has on its wire whose own stack does all that.
        let mut finished = Batch::new();
        let made = expand(&frame, Caps { vlan: true, ..Caps::NONE }, &mut finished);
        prop_assert!(made.is_ok(), "{:?}", made);
        let mut plain = Batch::new();
        for frame in finished.iter() {
            plain.push_bytes(&frame.to_vec());
            plain.end(Offload { vlan: frame.notes().vlan, ..Offload::NONE });
        }
        let written = setup.guest();
        prop_assert_eq!(written.receive_batch(&plain), plain.len());
        let want = seen(&written);
        prop_assert!(want.0 > 0, "it arrives");

        // Left to the receiver, as far as it takes it: all of it, or what the daemon's finisher leaves.
        let whole = setup.guest();
        prop_assert_eq!(whole.receive_batch(&left), 1);
        prop_assert!(seen(&whole) == want, "whole");
        let cut = setup.guest();
        let mut segments = Batch::new();
        let made = expand(&frame, cut.receiver.caps(), &mut segments);
        prop_assert!(made.is_ok(), "{:?}", made);
        prop_assert_eq!(cut.receive_batch(&segments), segments.len());
        prop_assert!(seen(&cut) == want, "cut");
    }
}
