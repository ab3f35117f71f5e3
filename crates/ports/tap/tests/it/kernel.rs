//! The TAP port against the real kernel, each test in a network namespace of its own.
//!
//! A test starts itself again under `unshare`: plainly as root, with a user namespace otherwise.
//! Where neither works it says so and passes.

mod answers;
mod datagrams;
mod large;
mod queues;
mod tcp;

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use frame::{Batch, Caps, Sink, Wake};
use guest_mem::ReadSlice;
use hypernic_port_tap::{self as port_tap, Source, TapError};
use port::{Inlet, InletEvent, InletStatus, InletThread, Port, counter};
use wire::{Csum, Offload};

const INSIDE: &str = "HYPERNIC_TEST_IN_NETNS";
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the rest of test `name` in a namespace of its own. `true` in the process that is inside.
fn inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let how = if rustix::process::geteuid().is_root() {
        "-n"
    } else {
        "-Urn"
    };
    let can = Command::new("unshare")
        .args([how, "sh", "-c", "exec 3<>/dev/net/tun && ip link show lo"])
        .stdin(Stdio::null())
        .output();
    match can {
        Ok(out) if out.status.success() => {}
        Ok(out) => {
            let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            println!("skipped: no TAP in a namespace of our own here: {why}");
            return false;
        }
        Err(e) => {
            println!("skipped: cannot run unshare: {e}");
            return false;
        }
    }
    let me = std::env::current_exe().expect("our own path");
    let out = Command::new("unshare")
        .arg(how)
        .arg(me)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    false
}

fn ip(args: &str) {
    let out = Command::new("ip")
        .args(args.split(' '))
        .output()
        .expect("ip (package iproute2)");
    assert!(
        out.status.success(),
        "ip {args}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn open(name: &str) -> Port {
    port_tap::open(Source::Name(name.into())).expect("TAP")
}

/// TAP `name`, up, with this address and no frames of its own accord (no IPv6, no ARP).
fn quiet(name: &str, address: &str) -> Port {
    quiet_as(open(name), name, address)
}

fn quiet_as(port: Port, name: &str, address: &str) -> Port {
    let conf = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    // Without IPv6 in the kernel there is nothing to switch off.
    let _ = std::fs::write(conf, "1");
    ip(&format!("addr add {address} dev {name}"));
    ip(&format!("link set {name} up"));
    port
}

fn count(port: &Port, name: &str) -> u64 {
    counter(&*port.counters, name).expect("counter")
}

/// Keeps what it gets, as long as there is room.
struct Keep {
    room: AtomicUsize,
    caps: Caps,
    frames: Mutex<Vec<(Vec<u8>, Offload)>>,
}

impl Keep {
    fn new(room: usize, caps: Caps) -> Self {
        Self {
            room: AtomicUsize::new(room),
            caps,
            frames: Mutex::default(),
        }
    }
}

impl Sink for Keep {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = picks.len().min(self.room.load(Ordering::SeqCst));
        self.room.fetch_sub(n, Ordering::SeqCst);
        let mut frames = self.frames.lock().expect("lock");
        for &p in &picks[..n] {
            let f = batch.get(p.into()).expect("picked");
            frames.push((f.to_vec(), *f.notes()));
        }
        n
    }
    fn caps(&self) -> Caps {
        self.caps
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// Runs the inlet until `enough` frames were kept or the kernel has been silent for long.
fn collect(inlet: &mut dyn Inlet, keep: &Keep, enough: usize) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    while keep.frames.lock().expect("lock").len() < enough {
        match inlet.run(keep, 256) {
            InletStatus::Idle if keep.frames.lock().expect("lock").len() < enough => {
                let mut fds = Vec::new();
                inlet.interests(&mut |i| {
                    fds.push(PollFd::from_borrowed_fd(i.fd, PollFlags::IN));
                });
                let limit = Timespec {
                    tv_sec: 10,
                    tv_nsec: 0,
                };
                assert_eq!(poll(&mut fds, Some(&limit)).expect("poll"), 1, "silence");
            }
            InletStatus::Closed(why) => panic!("{why}"),
            _ => {}
        }
    }
}

const ETH_IP: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

fn sum(bytes: &[u8], mut acc: u32) -> u16 {
    for pair in bytes.chunks(2) {
        acc += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while acc > 0xffff {
        acc = (acc & 0xffff) + (acc >> 16);
    }
    acc as u16
}

/// UDP from 10.9.0.2:7000 to 10.9.0.1:`port`, the checksum still a pseudo-header sum.
fn udp(mac: [u8; 6], port: u16, payload: &[u8]) -> (Vec<u8>, Offload) {
    let len = 8 + payload.len() as u16;
    let mut ip = vec![
        0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1,
    ];
    ip[2..4].copy_from_slice(&(20 + len).to_be_bytes());
    let header = !sum(&ip, 0);
    ip[10..12].copy_from_slice(&header.to_be_bytes());
    let pseudo = sum(&ip[12..20], 17 + u32::from(len));
    let mut frame = ETH_IP.to_vec();
    frame[..6].copy_from_slice(&mac);
    frame.extend(ip);
    for word in [7000, port, len, pseudo] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 6,
        }),
        ..Offload::NONE
    };
    (frame, notes)
}

fn mac_of(name: &str) -> [u8; 6] {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address"));
    // sysfs shows the namespace it was mounted in, so ask `ip` where it does not know.
    let text = text.unwrap_or_else(|_| {
        let out = Command::new("ip")
            .args(["-o", "link", "show", name])
            .output()
            .expect("ip");
        let line = String::from_utf8_lossy(&out.stdout).into_owned();
        let at = line.find("link/ether ").expect("a MAC") + 11;
        line[at..at + 17].to_owned()
    });
    let mut mac = [0; 6];
    for (to, hex) in mac.iter_mut().zip(text.trim().split(':')) {
        *to = u8::from_str_radix(hex, 16).expect("hex");
    }
    mac
}

#[test]
fn frames_pass_both_ways_with_their_checksums_undone() {
    if !inside("kernel::frames_pass_both_ways_with_their_checksums_undone") {
        return;
    }
    let mut port = quiet("t0", "10.9.0.1/24");
    assert_eq!(port.name, "tap:t0");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev t0");
    let socket = UdpSocket::bind("10.9.0.1:0").expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let me = socket.local_addr().expect("bound").port();

    // Out of the kernel, through the inlet; a sink with little room loses nothing.
    for i in 0..10u8 {
        socket.send_to(&[i; 40], "10.9.0.2:7").expect("send");
    }
    let inlet = port.inlet.as_mut().expect("inlet");
    let keep = Keep::new(3, Caps::ALL);
    collect(&mut **inlet, &keep, 3);
    assert_eq!(inlet.run(&keep, 256), InletStatus::Blocked);
    keep.room.store(100, Ordering::SeqCst);
    collect(&mut **inlet, &keep, 10);
    for (i, (frame, notes)) in keep.frames.lock().expect("lock").iter().enumerate() {
        assert_eq!(frame[42..], [i as u8; 40], "in order");
        assert_eq!(
            notes.csum,
            Some(Csum {
                start: 34,
                offset: 6
            })
        );
    }
    assert_eq!(count(&port, "frames_in"), 10);
    assert_eq!(count(&port, "bytes_in"), 820);

    // Into the kernel: whole, in pieces, and in more pieces than one call takes.
    let (frame, notes) = udp(mac_of("t0"), me, b"hello kernel");
    for piece in [200, 20, 1] {
        let long = [&frame[..], &[b'.'; 140]].concat();
        let frame = if piece == 1 { long } else { frame.clone() };
        let mut batch = Batch::new();
        for run in frame.chunks(piece) {
            batch.push_slice(ReadSlice::from_bytes(run));
        }
        batch.end(notes);
        assert_eq!(port.sink.deliver(&batch, &[0]), 1);
        let mut got = [0; 100];
        let (n, from) = socket.recv_from(&mut got).expect("the kernel took it");
        assert_eq!(&got[..n], b"hello kernel");
        assert_eq!(from.ip(), Ipv4Addr::new(10, 9, 0, 2));
    }
    assert_eq!(count(&port, "frames_out"), 3);
    assert_eq!(count(&port, "tap_copied"), 1);

    // A VLAN note is more than a TAP can take; a runt is more than the kernel does.
    let mut batch = Batch::new();
    batch.push_bytes(&frame);
    batch.end(Offload {
        vlan: Some(5),
        ..notes
    });
    batch.push_bytes(&[1, 2, 3]);
    batch.end(Offload::NONE);
    assert_eq!(port.sink.deliver(&batch, &[0, 1, 9]), 3);
    assert_eq!(count(&port, "tap_cannot_take"), 1);
    assert_eq!(count(&port, "tap_refused"), 1);
}

#[test]
fn a_deleted_interface_closes_the_port_and_counts() {
    if !inside("kernel::a_deleted_interface_closes_the_port_and_counts") {
        return;
    }
    let port = quiet("t0", "10.9.0.1/24");
    let (tell, heard) = mpsc::channel();
    let keep = Arc::new(Keep::new(1000, Caps::ALL));
    let thread = InletThread::spawn("tap", port.inlet.expect("inlet"), keep, move |e| {
        let _ = tell.send(e);
    })
    .expect("thread");
    ip("link del t0");
    let event = heard.recv_timeout(PATIENCE).expect("told");
    assert!(
        matches!(&event, InletEvent::Closed(why) if why.contains("gone")),
        "{event:?}"
    );
    let mut batch = Batch::new();
    for _ in 0..3 {
        batch.push_bytes(&[0; 60]);
        batch.end(Offload::NONE);
    }
    assert_eq!(port.sink.deliver(&batch, &[0, 1, 2]), 3);
    assert_eq!(counter(&*port.counters, "tap_gone"), Some(3));
    drop(thread);
}

#[test]
fn an_interface_that_is_down_costs_frames_but_not_the_port() {
    if !inside("kernel::an_interface_that_is_down_costs_frames_but_not_the_port") {
        return;
    }
    let port = quiet("t0", "10.9.0.1/24");
    let keep = Arc::new(Keep::new(1000, Caps::ALL));
    let to = Arc::clone(&keep) as Arc<dyn Sink>;
    let (tell, heard) = mpsc::channel();
    let thread = InletThread::spawn("tap", port.inlet.expect("inlet"), to, move |e| {
        let _ = tell.send(e);
    })
    .expect("thread");
    ip("link set t0 down");
    let socket = UdpSocket::bind("0.0.0.0:0").expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let me = socket.local_addr().expect("bound").port();
    let (frame, notes) = udp(mac_of("t0"), me, b"up again");
    let mut batch = Batch::new();
    batch.push_bytes(&frame);
    batch.end(notes);
    assert_eq!(port.sink.deliver(&batch, &[0]), 1);
    assert_eq!(counter(&*port.counters, "tap_down"), Some(1));
    std::thread::sleep(Duration::from_millis(300));
    let turns = counter(&*thread.counters(), "inlet_turns").expect("counter");
    assert!(turns < 30, "{turns} turns while nothing could happen");
    ip("link set t0 up");
    port.sink.deliver(&batch, &[0]);
    let mut got = [0; 100];
    let (n, _) = socket.recv_from(&mut got).expect("works again");
    assert_eq!(&got[..n], b"up again");
    assert!(heard.try_recv().is_err(), "nothing was worth an event");
}

/// A descriptor attached by hand, as a launcher would pass it.
fn by_hand(name: &str, flags: i32) -> OwnedFd {
    // SAFETY: plain calls with valid arguments; the descriptor is ours alone.
    unsafe {
        let fd = libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        assert!(fd >= 0, "open");
        let mut req: libc::ifreq = std::mem::zeroed();
        for (to, from) in req.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        req.ifr_ifru.ifru_flags = flags as i16;
        assert_eq!(libc::ioctl(fd, 0x4004_54ca, &mut req), 0, "TUNSETIFF");
        OwnedFd::from_raw_fd(fd)
    }
}

#[test]
fn an_inherited_descriptor_works_with_and_without_offload() {
    if !inside("kernel::an_inherited_descriptor_works_with_and_without_offload") {
        return;
    }
    let plain = libc::IFF_TAP | libc::IFF_NO_PI;
    for (name, flags, offload) in [
        ("t0", plain, false),
        ("t1", plain | libc::IFF_VNET_HDR, true),
    ] {
        let fd = by_hand(name, flags);
        let mut port = port_tap::open(Source::Fd(fd)).expect("inherited");
        assert_eq!(port.name, format!("tap:{name}"));
        assert_eq!(port.sink.caps().tso4, offload);
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        ip(&format!("addr add 10.9.0.1/24 dev {name}"));
        ip(&format!("link set {name} up"));
        ip(&format!(
            "neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev {name}"
        ));
        let socket = UdpSocket::bind("10.9.0.1:0").expect("bind");
        socket.send_to(b"out", "10.9.0.2:7").expect("send");
        let keep = Keep::new(9, Caps::ALL);
        collect(&mut **port.inlet.as_mut().expect("inlet"), &keep, 1);
        let frames = keep.frames.lock().expect("lock");
        assert_eq!(frames[0].0[42..45], *b"out");
        assert_eq!(frames[0].1.csum.is_some(), offload);
        ip(&format!("link del {name}"));
    }
}

#[test]
fn refusals_name_the_cause() {
    if !inside("kernel::refusals_name_the_cause") {
        return;
    }
    let refused = |source| port_tap::open(source).err().expect("must be refused");
    let named = |name: &str| refused(Source::Name(name.into()));
    for bad in ["", "sixteen-letters-", "a/b", "tap%d"] {
        assert!(matches!(named(bad), TapError::BadName { .. }), "{bad}");
    }
    let _held = open("t0");
    assert!(matches!(named("t0"), TapError::Busy { .. }));
    assert!(matches!(named("lo"), TapError::Unsuitable { .. }));
    let null = std::fs::File::open("/dev/null").expect("null");
    assert!(matches!(
        refused(Source::Fd(null.into())),
        TapError::NotATap
    ));
    let tun = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .expect("tun");
    assert!(tun.as_raw_fd() > 0);
    assert!(matches!(refused(Source::Fd(tun.into())), TapError::NotATap));
    let ip_packets = by_hand("t1", libc::IFF_TUN | libc::IFF_NO_PI);
    assert!(matches!(
        refused(Source::Fd(ip_packets)),
        TapError::NotEthernet { .. }
    ));
    let text = TapError::NoPermission { name: "vm0".into() }.to_string();
    assert!(text.contains("ip tuntap add dev vm0 mode tap user $USER"));
}
