//! UDP segmentation (Linux 6.2): datagrams to be cut pass whole, both ways.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

use frame::{Batch, Caps};
use wire::{Gso, Offload};

use super::{ETH_IP, Keep, PATIENCE, collect, count, inside, ip, mac_of, quiet, sum, udp};

const SEGMENT: usize = 1000;
/// Two whole datagrams and a part of one.
const LEN: usize = 2 * SEGMENT + 300;
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = ETH_IP.len() + 20 + 8;

fn payload() -> Vec<u8> {
    (0..LEN).map(|i| (i / 7) as u8).collect()
}

/// Has the kernel cut what this socket sends.
fn segmented(socket: &UdpSocket) {
    let size = SEGMENT as libc::c_int;
    // SAFETY: a valid descriptor and an int that lives through the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn datagrams_pass_whole_both_ways() {
    if !inside("kernel::datagrams::datagrams_pass_whole_both_ways") {
        return;
    }
    let mut port = quiet("t0", "10.9.0.1/24");
    if !port.sink.caps().uso4 {
        println!("not tried: this kernel is older than Linux 6.2");
        return;
    }
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev t0");
    let socket = UdpSocket::bind("10.9.0.1:0").expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let me = socket.local_addr().expect("bound").port();

    // Out of the kernel: whole for a sink that takes them so, cut for another.
    segmented(&socket);
    for (caps, frames) in [(Caps::ALL, 1), (Caps::NONE, 3)] {
        socket.send_to(&payload(), "10.9.0.2:7").expect("send");
        let keep = Keep::new(9, caps);
        collect(&mut **port.inlet.as_mut().expect("inlet"), &keep, frames);
        let got = keep.frames.lock().expect("lock");
        assert_eq!(got.len(), frames);
        let bytes: Vec<u8> = got
            .iter()
            .flat_map(|(f, _)| f[HEADERS..].to_vec())
            .collect();
        assert_eq!(bytes, payload());
        for (frame, notes) in got.iter() {
            if frames == 1 {
                assert_eq!((notes.gso, notes.gso_size), (Gso::Udp4, SEGMENT as u16));
                assert_eq!(usize::from(notes.hdr_len), HEADERS);
                continue;
            }
            assert_eq!(notes.gso, Gso::None);
            let udp = &frame[34..];
            let pseudo = 17 + udp.len() as u32;
            assert_eq!(u32::from(u16::from_be_bytes([udp[4], udp[5]])) + 17, pseudo);
            let addresses = [&frame[26..34], udp].concat();
            assert_eq!(sum(&addresses, pseudo), 0xffff, "its checksum is right");
        }
    }
    assert_eq!(count(&port, "frames_in"), 2, "both were whole");

    // Into the kernel, which cuts it for the socket.
    let (frame, notes) = udp(mac_of("t0"), me, &payload());
    let mut batch = Batch::new();
    batch.push_bytes(&frame);
    batch.end(Offload {
        gso: Gso::Udp4,
        gso_size: SEGMENT as u16,
        hdr_len: HEADERS as u16,
        ..notes
    });
    assert_eq!(port.sink.deliver(&batch, &[0]), 1);
    let mut heard = Vec::new();
    for len in [SEGMENT, SEGMENT, LEN - 2 * SEGMENT] {
        let mut got = [0; 2 * SEGMENT];
        let (n, from) = socket.recv_from(&mut got).expect("the kernel took it");
        assert_eq!(n, len);
        assert_eq!(from.ip(), Ipv4Addr::new(10, 9, 0, 2));
        heard.extend_from_slice(&got[..n]);
    }
    assert_eq!(heard, payload());
    assert_eq!(count(&port, "frames_out"), 1);
}
