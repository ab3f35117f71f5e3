//! Large frames: how many system calls they cost, and the header that carries their notes.

use super::{ETH_IP, Keep, count, inside, mac_of, quiet, sum, udp};
use frame::{Batch, Caps};
use guest_mem::ReadSlice;
use hypernic_port_tap::{self as port_tap, Source};
use port::{InletStatus, counter};
use wire::{Csum, Offload};

/// System calls that write, made by this thread, if the kernel counts them.
fn writes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("syscw: "))?;
    line.parse().ok()
}

/// A 64 KiB TCP frame to be segmented, in pieces as a driver hands it over.
fn large(mac: [u8; 6], tagged: bool) -> (Vec<u8>, Offload) {
    let len = 65_000u16;
    let mut frame = ETH_IP[..12].to_vec();
    frame[..6].copy_from_slice(&mac);
    if tagged {
        frame.extend([0x81, 0, 0, 9]);
    }
    frame.extend([8, 0]);
    let at = frame.len() as u16;
    let mut ip = vec![
        0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1,
    ];
    ip[2..4].copy_from_slice(&(40 + len).to_be_bytes());
    let header = !sum(&ip, 0);
    ip[10..12].copy_from_slice(&header.to_be_bytes());
    let pseudo = sum(&ip[12..20], 6 + u32::from(20 + len));
    frame.extend(ip);
    frame.extend([0, 80, 0, 90, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x10, 1, 0]);
    frame.extend(pseudo.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..len).map(|i| (i % 251) as u8));
    let notes = Offload {
        csum: Some(Csum {
            start: at + 20,
            offset: 16,
        }),
        gso: wire::Gso::Tcp4,
        gso_size: 1448,
        hdr_len: at + 40,
        csum_valid: true,
        ..Offload::NONE
    };
    (frame, notes)
}

fn in_pieces<'v>(batch: &mut Batch<'v>, frame: &'v [u8], notes: Offload) {
    for run in frame.chunks(4096) {
        batch.push_slice(ReadSlice::from_bytes(run));
    }
    batch.end(notes);
}

/// What `/proc/net/dev` says interface `name` has received: packets, bytes.
fn received(name: &str) -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("net/dev");
    let line = text
        .lines()
        .find_map(|l| l.trim().strip_prefix(name)?.strip_prefix(':'));
    let mut words = line.expect("the interface").split_whitespace();
    let mut next = || words.next().and_then(|w| w.parse().ok()).expect("number");
    let bytes = next();
    (next(), bytes)
}

#[test]
fn a_large_frame_is_one_write_tagged_or_not() {
    if !inside("kernel::large::a_large_frame_is_one_write_tagged_or_not") {
        return;
    }
    let port = quiet("t0", "10.9.0.1/24");
    let mac = mac_of("t0");
    for tagged in [false, true] {
        let (frame, notes) = large(mac, tagged);
        let mut batch = Batch::new();
        in_pieces(&mut batch, &frame, notes);
        let (packets, bytes) = received("t0");
        let (before, calls) = (writes(), count(&port, "syscalls"));
        assert_eq!(port.sink.deliver(&batch, &[0]), 1);
        let after = writes();
        assert_eq!(count(&port, "syscalls") - calls, 1);
        if let (Some(before), Some(after)) = (before, after) {
            assert_eq!(after - before, 1, "system calls that write");
        }
        let (packets_now, bytes_now) = received("t0");
        assert_eq!(packets_now - packets, 1, "it went in whole");
        assert_eq!(bytes_now - bytes, frame.len() as u64);
    }
    assert_eq!(count(&port, "frames_out"), 2);
    assert_eq!(count(&port, "tap_copied"), 0);
}

/// Where TAPs are not allowed a socket that keeps bounds takes the place of the kernel: one record
/// is one system call.
#[test]
fn notes_go_through_a_header_and_come_back_untouched() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let pair = || {
        let kind = SocketType::SEQPACKET;
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("pair")
    };
    let (near, far) = pair();
    let out = port_tap::open(Source::StandIn(near)).expect("stand-in");
    let mut back = port_tap::open(Source::StandIn(far)).expect("stand-in");
    let mut sent = vec![large([2; 6], false), large([2; 6], true)];
    sent.push(udp([2; 6], 9, b"unfinished"));
    sent.push((vec![7; 60], Offload::NONE));
    let valid = Offload {
        csum_valid: true,
        ..Offload::NONE
    };
    sent.push((vec![8; 60], valid));
    let inlet = back.inlet.as_mut().expect("inlet");
    let keep = Keep::new(usize::MAX, Caps::ALL);
    for (frame, notes) in &sent {
        let mut batch = Batch::new();
        in_pieces(&mut batch, frame, *notes);
        let before = writes();
        assert_eq!(out.sink.deliver(&batch, &[0]), 1);
        if let (Some(before), Some(after)) = (before, writes()) {
            assert_eq!(after - before, 1, "system calls that write");
        }
        assert_eq!(inlet.run(&keep, 8), InletStatus::Idle);
    }
    let got = keep.frames.lock().expect("lock");
    assert_eq!(got.len(), sent.len());
    for ((bytes, notes), (want, asked)) in got.iter().zip(&sent) {
        assert!(bytes == want, "the bytes are those sent");
        let asked = Offload {
            // Whatever leaves its checksum to others has it from memory that cannot be wrong.
            csum_valid: asked.csum_valid || asked.csum.is_some(),
            ..*asked
        };
        assert_eq!(*notes, asked);
    }
    // A read for each, and one that found nothing, each time.
    let reads = counter(&*back.counters, "syscalls").expect("counter");
    assert_eq!(reads, 2 * sent.len() as u64);
}
