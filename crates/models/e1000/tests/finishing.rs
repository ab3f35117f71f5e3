//! Checksums that are written during the copy are those that a pass of their own would have
//! written, wherever the frame lies and whatever else is done to it.

mod common;
#[path = "common/packet.rs"]
mod packet;

use common::*;
use frame::{Batch, Caps, ExpandError, expand};
use guest_mem::ReadSlice;
use packet::*;
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

/// Delivers `frame`, in pieces, as it is and finished beforehand; the guest must not be able to
/// tell.
fn compare(frame: &[u8], notes: Offload, cuts: &[usize], rctl: u32, vme: bool, rxcsum: u32) {
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
    let mut ours = machine(rctl, vme, rxcsum);
    deliver(&ours, &batch);
    match good {
        Ok(_) => {}
        // During the copy a field may be anywhere.
        Err(ExpandError::HeadersTooLong) => return,
        Err(_) => return assert_eq!(ours.counter("rx_bad_offload"), 1),
    }
    let mut theirs = machine(rctl, vme, rxcsum);
    deliver(&theirs, &finished);
    assert!(seen(&mut ours) == seen(&mut theirs), "{notes:?} {rctl:#x}");
}

fn tcp_frame(v6: bool, len: usize) -> (Vec<u8>, Offload) {
    let l4 = 20 + len as u16;
    let mut frame = ethernet(if v6 { 0x86dd } else { 0x0800 });
    frame[..6].copy_from_slice(&MAC);
    if v6 {
        frame.extend(ipv6(6, l4));
    } else {
        frame.extend(ipv4(6, 20 + l4));
        let sum = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let start = frame.len() as u16;
    let seed = if v6 { pseudo6(6, l4) } else { pseudo4(6, l4) };
    frame.extend(tcp(0x18, seed));
    frame.extend(payload(len));
    let notes = Offload {
        csum: Some(Csum { start, offset: 16 }),
        hdr_len: start + 20,
        ..Offload::NONE
    };
    (frame, notes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]
    #[test]
    fn a_guest_cannot_tell_when_its_frames_were_finished(
        v6: bool,
        len in 0usize..3000,
        mss in proptest::option::of(100u16..1500),
        tag in proptest::option::of(any::<u16>()),
        inline_tag: bool,
        cuts in vec(any::<usize>(), 0..5),
        fcs: bool, small: bool, vme: bool, pcss in prop_oneof![Just(0u32), 0u32..60],
    ) {
        let (mut frame, mut notes) = tcp_frame(v6, len);
        if let (Some(mss), true) = (mss, len > 0) {
            notes.gso = if v6 { Gso::Tcp6 } else { Gso::Tcp4 };
            notes.gso_size = mss;
        }
        if let Some(tci) = tag {
            if inline_tag {
                let [a, b] = tci.to_be_bytes();
                frame.splice(12..12, [0x81, 0, a, b]);
                let start = notes.csum.map_or(0, |c| c.start) + 4;
                notes.csum = Some(Csum { start, offset: 16 });
                notes.hdr_len += 4;
            } else {
                notes.vlan = Some(tci);
            }
        }
        let rctl = BAM | LPE | if fcs { 0 } else { SECRC } | if small { SMALL } else { 0 };
        compare(&frame, notes, &cuts, rctl, vme, pcss);
    }

    /// Nobody sends such notes in earnest; the field may be in the middle of a tag, or in two
    /// buffers.
    #[test]
    fn odd_notes_come_to_the_same(
        bytes in vec(any::<u8>(), 14..700),
        start in 0u16..400, offset in prop_oneof![0u16..300, 0u16..20],
        tag in proptest::option::of(any::<u16>()),
        cuts in vec(any::<usize>(), 0..4),
        fcs: bool, vme: bool,
    ) {
        let mut frame = bytes;
        frame[..6].copy_from_slice(&MAC);
        let notes = Offload { csum: Some(Csum { start, offset }), vlan: tag, ..Offload::NONE };
        let rctl = BAM | SMALL | if fcs { 0 } else { SECRC };
        compare(&frame, notes, &cuts, rctl, vme, 0);
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
        compare(&frame, notes, &[33], BAM | SMALL | SECRC, false, 0);
    }
}

/// What is read and written of 64 KiB of TCP from one guest to another that takes 1500 bytes.
#[test]
fn a_large_frame_is_written_once_and_neither_staged_nor_summed_apart() {
    const LEN: usize = 64_000;
    let (frame, mut notes) = tcp_frame(false, LEN);
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
        // Headers and payload, eight bytes of each descriptor, and the checksum that a guest
        // without checksum offload finds finished.
        let sums = if rxcsum == 0 { 2 * segments } else { 0 };
        let written = after.write_bytes - before.write_bytes;
        assert_eq!(written, LEN as u64 + segments * (54 + 8) + sums);
    }
}
