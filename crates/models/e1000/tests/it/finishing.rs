//! Checksums that are written during the copy are those that a pass of their own would have
//! written, wherever the frame lies and whatever else is done to it, and whether or not the guest
//! has the chip look at them (RXCSUM.TUOFL).

use crate::common::*;
use crate::packet::*;
use frame::{Batch, Caps, ExpandError, Frame, expand};
use guest_mem::ReadSlice;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Csum, Gso, Offload};

const BAM: u32 = 0x8000;
const LPE: u32 = 0x20;
const SECRC: u32 = 1 << 26;
const VME: u32 = 1 << 30;
/// Buffers of 256 bytes.
const SMALL: u32 = 3 << 16;
const BUFFERS: u64 = 63;

fn machine(rctl: u32, vme: bool, rxcsum: u32) -> Machine {
    let mut m = Machine::default();
    m.rx_on(BUFFERS as u32 + 1, rctl);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | if vme { VME } else { 0 });
    m.w(reg::RXCSUM, rxcsum);
    m
}

/// Everything a guest can see of what it got.
fn seen(m: &mut Machine) -> (u32, Vec<u8>, Vec<u8>) {
    let ring = m.peek(RX_RING, (BUFFERS as usize + 1) * 16);
    let buffers = m.peek(RX_BUFFERS, BUFFERS as usize * 0x4000);
    (m.r(reg::RDH), ring, buffers)
}

fn deliver(m: &Machine, batch: &Batch<'_>) {
    let mut room = Vec::new();
    let picks = batch.all_picks(&mut room);
    assert_eq!(m.nic.receive.deliver(&m.env, batch, picks), picks.len());
}

/// Registers of the receiver.
#[derive(Clone, Copy, Debug)]
struct Setup {
    rctl: u32,
    vme: bool,
    rxcsum: u32,
}

/// Delivers `frame`, in pieces, as it is, cut by its sender as far as the NIC asks for, and finished
/// beforehand; the guest must not be able to tell.
fn compare(frame: &[u8], notes: Offload, cuts: &[usize], setup: Setup) {
    let mut batch = Batch::new();
    let mut rest = frame;
    for cut in cuts {
        let (piece, tail) = rest.split_at(cut % (rest.len() + 1));
        batch.push_slice(ReadSlice::from_bytes(piece));
        rest = tail;
    }
    batch.push_slice(ReadSlice::from_bytes(rest));
    batch.end(notes);
    let mut finished = Batch::new();
    let vlan_only = Caps {
        vlan: true,
        ..Caps::NONE
    };
    let whole = batch.get(0).expect("pushed");
    let good = expand(&whole, vlan_only, &mut finished);
    let machine = || machine(setup.rctl, setup.vme, setup.rxcsum);
    let mut ours = machine();
    deliver(&ours, &batch);
    match good {
        Ok(_) => {}
        // During the copy a field may be anywhere.
        Err(ExpandError::HeadersTooLong) => return,
        Err(_) => return assert_eq!(ours.counter("rx_bad_offload"), 1),
    }
    let ours = seen(&mut ours);
    let mut cut = Batch::new();
    let mut theirs = machine();
    expand(&whole, theirs.nic.receive.caps(), &mut cut).expect("as above");
    deliver(&theirs, &cut);
    assert!(ours == seen(&mut theirs), "cut: {notes:?} {setup:?}");
    let mut theirs = machine();
    deliver(&theirs, &finished);
    assert!(ours == seen(&mut theirs), "finished: {notes:?} {setup:?}");
}

/// What a guest sends whose own stack has written all checksums.
fn by_hand<'b>(frame: &Frame<'b>) -> Batch<'b> {
    let mut finished = Batch::new();
    let vlan_only = Caps {
        vlan: true,
        ..Caps::NONE
    };
    expand(frame, vlan_only, &mut finished).expect("good notes");
    let mut out = Batch::new();
    for frame in finished.iter() {
        out.push_bytes(&frame.to_vec());
        let vlan = frame.notes().vlan;
        out.end(Offload {
            vlan,
            ..Offload::NONE
        });
    }
    out
}

/// TCP, or UDP, with `len` bytes behind it and the checksum left out.
fn l4_frame(v6: bool, udp: bool, len: usize) -> (Vec<u8>, Offload) {
    let protocol = if udp { 17 } else { 6 };
    let header = if udp { 8 } else { 20 };
    let l4 = header + len as u16;
    let mut frame = ethernet(if v6 { 0x86dd } else { 0x0800 });
    frame[..6].copy_from_slice(&MAC);
    if v6 {
        frame.extend(ipv6(protocol, l4));
    } else {
        frame.extend(ipv4(protocol, 20 + l4));
        let sum = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let start = frame.len() as u16;
    let pseudo = if v6 { pseudo6 } else { pseudo4 };
    let seed = pseudo(protocol, l4);
    frame.extend(if udp {
        udp_header(l4, seed)
    } else {
        tcp(0x18, seed)
    });
    frame.extend(payload(len));
    let offset = if udp { 6 } else { 16 };
    let notes = Offload {
        csum: Some(Csum { start, offset }),
        hdr_len: start + header,
        ..Offload::NONE
    };
    (frame, notes)
}

fn udp_header(len: u16, seed: u16) -> Vec<u8> {
    [1000, 2000, len, seed].map(u16::to_be_bytes).concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]
    #[test]
    fn a_guest_cannot_tell_when_its_frames_were_finished(
        v6: bool, udp: bool,
        len in 0usize..3000,
        mss in proptest::option::of(100u16..1500),
        tag in proptest::option::of(any::<u16>()),
        inline_tag: bool,
        cuts in vec(any::<usize>(), 0..5),
        fcs: bool, small: bool, vme: bool, pcss in prop_oneof![Just(0u32), 0u32..60],
        sums in 0u32..4,
    ) {
        let (mut frame, mut notes) = l4_frame(v6, udp, len);
        if let (Some(mss), true) = (mss, len > 0 && !udp) {
            notes.gso = if v6 { Gso::Tcp6 } else { Gso::Tcp4 };
            notes.gso_size = mss;
        }
        if let Some(tci) = tag {
            if inline_tag {
                let [a, b] = tci.to_be_bytes();
                frame.splice(12..12, [0x81, 0, a, b]);
                notes.csum = notes.csum.map(|c| Csum { start: c.start + 4, ..c });
                notes.hdr_len += 4;
            } else {
                notes.vlan = Some(tci);
            }
        }
        let rctl = BAM | LPE | if fcs { 0 } else { SECRC } | if small { SMALL } else { 0 };
        let setup = Setup { rctl, vme, rxcsum: pcss | sums << 8 };
        compare(&frame, notes, &cuts, setup);

        // Nor whether its peer left them to the NIC or wrote them.
        let mut batch = Batch::new();
        batch.push_bytes(&frame);
        batch.end(notes);
        let whole = batch.get(0).expect("pushed");
        let mut left = machine(rctl, vme, setup.rxcsum);
        deliver(&left, &batch);
        let mut written = machine(rctl, vme, setup.rxcsum);
        deliver(&written, &by_hand(&whole));
        prop_assert!(seen(&mut left) == seen(&mut written), "{:?}", setup);
    }

    /// No real sender writes such notes; the field may be in the middle of a tag, or in two
    /// buffers.
    #[test]
    fn odd_notes_come_to_the_same(
        bytes in vec(any::<u8>(), 14..700),
        start in 0u16..400, offset in prop_oneof![0u16..300, 0u16..20],
        tag in proptest::option::of(any::<u16>()),
        cuts in vec(any::<usize>(), 0..4),
        fcs: bool, vme: bool, sums in 0u32..4,
    ) {
        let mut frame = bytes;
        frame[..6].copy_from_slice(&MAC);
        let notes = Offload { csum: Some(Csum { start, offset }), vlan: tag, ..Offload::NONE };
        let rctl = BAM | SMALL | if fcs { 0 } else { SECRC };
        compare(&frame, notes, &cuts, Setup { rctl, vme, rxcsum: sums << 8 });
    }
}

#[test]
fn a_checksum_field_in_two_buffers_is_written_whole() {
    let frame = plain(MAC, 400);
    for at in 253..258 {
        let notes = Offload {
            csum: Some(Csum {
                start: 34,
                offset: at - 34,
            }),
            ..Offload::NONE
        };
        let setup = Setup {
            rctl: BAM | SMALL | SECRC,
            vme: false,
            rxcsum: 0,
        };
        compare(&frame, notes, &[33], setup);
    }
}

/// What is read and written of 64 KiB of TCP from one guest to another that takes 1500 bytes.
#[test]
fn a_large_frame_is_written_once_and_neither_staged_nor_summed_apart() {
    const LEN: usize = 64_000;
    let (frame, mut notes) = l4_frame(false, false, LEN);
    notes.gso = Gso::Tcp4;
    notes.gso_size = 1460;
    let mut batch = Batch::new();
    batch.push_slice(ReadSlice::from_bytes(&frame));
    batch.end(notes);
    for rxcsum in [0, 0x300] {
        let m = machine(BAM | SECRC, false, rxcsum);
        let segments = LEN.div_ceil(1460) as u64;
        let before = m.env.memory.meter().totals();
        deliver(&m, &batch);
        let after = m.env.memory.meter().totals();
        assert_eq!(m.counter("rx_frames"), segments);
        // Headers and payload, eight bytes of each descriptor, and the checksum.
        let written = after.write_bytes - before.write_bytes;
        assert_eq!(written, LEN as u64 + segments * (54 + 8 + 2));
    }
}
