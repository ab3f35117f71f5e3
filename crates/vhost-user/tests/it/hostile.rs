//! Front ends that lie: it costs them the connection, with a line that names the message, and the
//! next one is served.

use std::os::fd::{AsFd, BorrowedFd};

use hypernic_vhost_user::codec::{
    HEADER_LEN, Header, Log, LogBase, MemRegion, MemTable, Message, Request, VringAddr, VringFd,
    VringState, feature,
};
use hypernic_vhost_user::{Client, ClientError, EventFd, Listener, SharedMem};
use proptest::prelude::*;

use crate::common::{GUEST, Guest, RAM, Seen, USER, WAIT, device, region, serve};

/// Sends a message after good ones; gives the line it costs.
fn line_of(message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> String {
    let serving = serve();
    let (mut client, _guest) = serving.shared();
    client.set_vring_num(0, 16).expect("size");
    client.send(message, false, fds).expect("sent");
    loop {
        match client.receive() {
            Err(ClientError::Closed) => break,
            Err(other) => panic!("{message:?}: {other}"),
            Ok(_) => {}
        }
    }
    let line = serving.fault();
    let name = message.request().name();
    assert!(line.starts_with(&format!("{name}: ")), "{line}");
    serving.client().features().expect("the next is served");
    line
}

#[test]
fn a_ring_that_the_device_has_not() {
    let state = VringState { index: 4, num: 1 };
    for message in [
        Message::SetVringNum(state),
        Message::SetVringBase(state),
        Message::GetVringBase(state),
        Message::SetVringEnable(VringState {
            index: u32::MAX,
            num: 1,
        }),
        Message::SetVringAddr(VringAddr {
            index: 0x1_0000,
            ..Guest::addr(0)
        }),
    ] {
        let line = line_of(&message, &[]);
        assert!(line.contains("the device has 4 rings"), "{line}");
    }
    let event = EventFd::new().expect("an eventfd");
    let ring = VringFd {
        index: 255,
        without_fd: false,
    };
    for message in [
        Message::SetVringKick(ring),
        Message::SetVringCall(ring),
        Message::SetVringErr(ring),
    ] {
        let line = line_of(&message, &[event.as_fd()]);
        assert!(line.contains("none is 255"), "{line}");
    }
}

#[test]
fn sizes_and_values_that_cannot_be() {
    for num in [0, 32769, 65536 + 16, u32::MAX] {
        let line = line_of(&Message::SetVringNum(VringState { index: 0, num }), &[]);
        assert!(line.contains("1 to 32768 descriptors"), "{line}");
    }
    line_of(
        &Message::SetVringEnable(VringState { index: 0, num: 2 }),
        &[],
    );
    line_of(&Message::SetStatus(256), &[]);
    let flags = VringAddr {
        flags: 2,
        ..Guest::addr(0)
    };
    line_of(&Message::SetVringAddr(flags), &[]);
}

#[test]
fn rings_outside_of_memory_or_unaligned() {
    let good = Guest::addr(0);
    let end = USER + RAM as u64;
    for (what, addr) in [
        (
            "descriptors",
            VringAddr {
                descriptor: end - 255,
                ..good
            },
        ),
        (
            "descriptors",
            VringAddr {
                descriptor: GUEST,
                ..good
            },
        ),
        (
            "available part",
            VringAddr {
                available: end - 37,
                ..good
            },
        ),
        (
            "available part",
            VringAddr {
                available: 0,
                ..good
            },
        ),
        (
            "used part",
            VringAddr {
                used: end - 133,
                ..good
            },
        ),
        (
            "used part",
            VringAddr {
                used: u64::MAX - 3,
                ..good
            },
        ),
    ] {
        let line = line_of(&Message::SetVringAddr(addr), &[]);
        assert!(
            line.contains(what) && line.contains("outside of the memory table"),
            "{line}"
        );
    }
    for (what, addr) in [
        (
            "to 16 bytes",
            VringAddr {
                descriptor: good.descriptor + 8,
                ..good
            },
        ),
        (
            "to 2 bytes",
            VringAddr {
                available: good.available + 1,
                ..good
            },
        ),
        (
            "to 4 bytes",
            VringAddr {
                used: good.used + 2,
                ..good
            },
        ),
    ] {
        let line = line_of(&Message::SetVringAddr(addr), &[]);
        assert!(
            line.contains("is not aligned") && line.contains(what),
            "{line}"
        );
    }
}

#[test]
fn a_split_ring_of_no_power_of_two_and_one_that_the_device_refuses() {
    for (num, why) in [(12, "no power of two"), (3, "no power of two")] {
        let serving = serve();
        let mut client = serving.client();
        let guest = Guest::new();
        guest.share(&mut client);
        client.set_vring_enable(0, true).expect("enabled");
        client.set_vring_num(0, num).expect("size");
        client.set_vring_addr(&Guest::addr(0)).expect("address");
        client
            .set_vring_kick(0, Some(&guest.kicks[0]))
            .expect_err("refused");
        let line = serving.fault();
        assert!(
            line.starts_with("SET_VRING_KICK: ring 0") && line.contains(why),
            "{line}"
        );
    }
    // The same of a packed ring is the device's question; and its line names the kick.
    let serving = serve();
    let mut client = serving.client();
    let guest = Guest::new();
    client
        .set_features(feature::PACKED | feature::PROTOCOL)
        .expect("set");
    guest.share(&mut client);
    client.set_vring_num(0, 3).expect("size");
    client.set_vring_addr(&Guest::addr(0)).expect("address");
    client
        .set_vring_kick(0, Some(&guest.kicks[0]))
        .expect("not enabled yet");
    guest.kicks[0].signal();
    assert_eq!(serving.fault(), "the kick of ring 0: three is too few");
}

#[test]
fn memory_that_is_none_and_regions_that_lie() {
    let ram = SharedMem::new("ram", RAM).expect("a memfd");
    let disk = std::fs::File::open("/proc/self/maps").expect("open");
    let (read, _write) = std::io::pipe().expect("a pipe");
    let table =
        |regions: &[MemRegion]| Message::SetMemTable(MemTable::new(regions).expect("they fit"));
    let other = MemRegion {
        guest: 1 << 40,
        user: 1 << 41,
        ..region()
    };
    for fd in [disk.as_fd(), read.as_fd()] {
        for message in [table(&[other]), Message::AddMemReg(other)] {
            let line = line_of(&message, &[fd]);
            assert!(line.contains("memfd, tmpfs or hugetlbfs file"), "{line}");
            assert!(line.contains("share=on"), "{line}");
        }
    }
    for (why, wrong) in [
        ("beyond 2^64", MemRegion { size: 0, ..other }),
        (
            "beyond 2^64",
            MemRegion {
                guest: u64::MAX - 5,
                ..other
            },
        ),
        (
            "beyond 2^64",
            MemRegion {
                user: u64::MAX - 5,
                ..other
            },
        ),
        (
            "beyond 2^64",
            MemRegion {
                mmap_offset: u64::MAX - 5,
                ..other
            },
        ),
        (
            "the file has",
            MemRegion {
                mmap_offset: 1,
                ..other
            },
        ),
        (
            "the file has",
            MemRegion {
                size: 1 << 39,
                ..other
            },
        ),
    ] {
        for message in [table(&[wrong]), Message::AddMemReg(wrong)] {
            let line = line_of(&message, &[ram.as_fd()]);
            assert!(line.contains(why), "{line}");
        }
    }
    let overlapping = Message::AddMemReg(MemRegion {
        user: 1 << 41,
        ..region()
    });
    assert!(line_of(&overlapping, &[ram.as_fd()]).contains("share addresses"));
    let twice = table(&[other, other]);
    assert!(line_of(&twice, &[ram.as_fd(), ram.as_fd()]).contains("share addresses"));
    let unknown = line_of(&Message::RemMemReg(other), &[ram.as_fd()]);
    assert!(unknown.contains("no such region"), "{unknown}");
    assert!(line_of(&table(&[other, region()]), &[ram.as_fd()]).contains("2 file descriptors"));
}

#[test]
fn what_is_no_eventfd_is_not_used_as_one() {
    let (read, write) = std::io::pipe().expect("a pipe");
    let disk = std::fs::File::open("/proc/self/maps").expect("open");
    let epoll = hypernic_vhost_user::EventSet::new().expect("a set");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let ring = VringFd::default();
    for message in [
        Message::SetVringKick(ring),
        Message::SetVringCall(ring),
        Message::SetVringErr(ring),
    ] {
        for fd in [
            read.as_fd(),
            write.as_fd(),
            disk.as_fd(),
            epoll.as_fd(),
            socket.as_fd(),
        ] {
            let line = line_of(&message, &[fd]);
            assert!(
                line.contains("ring 0: its descriptor is no eventfd"),
                "{line}"
            );
        }
        assert!(line_of(&message, &[]).contains("1 file descriptors belong to it, and 0 came"));
    }
}

#[test]
fn logs_that_are_none() {
    let log = SharedMem::new("log", 4096).expect("a memfd");
    let disk = std::fs::File::open("/proc/self/maps").expect("open");
    let base = |size, offset| Message::SetLogBase(LogBase::Shared(Log { size, offset }));
    line_of(&base(4096, 0), &[disk.as_fd()]);
    line_of(&base(4097, 0), &[log.as_fd()]);
    line_of(&base(4096, 4), &[log.as_fd()]);
    line_of(&base(0, 0), &[log.as_fd()]);
    line_of(&base(4096, u64::MAX - 3), &[log.as_fd()]);
    line_of(&base(4096, 0), &[]);
    line_of(&Message::SetLogBase(LogBase::Address(0)), &[]);
}

#[test]
fn what_was_not_negotiated_is_refused_by_name() {
    let serving = serve();
    for request in Request::ALL {
        let message = match request {
            Request::SetBackendReqFd => Message::SetBackendReqFd,
            Request::IotlbMsg => Message::IotlbMsg(Default::default()),
            Request::SetVringEndian => Message::SetVringEndian(VringState::default()),
            Request::PostcopyAdvise => Message::PostcopyAdvise,
            Request::PostcopyListen => Message::PostcopyListen,
            Request::PostcopyEnd => Message::PostcopyEnd,
            Request::GpuSetSocket => Message::GpuSetSocket,
            Request::VringKick => Message::VringKick(VringState::default()),
            Request::GetSharedObject => Message::GetSharedObject([1; 16]),
            // These are known, but a front end must negotiate them first.
            Request::ResetDevice => Message::ResetDevice,
            Request::GetMaxMemSlots => Message::GetMaxMemSlots,
            Request::GetStatus => Message::GetStatus,
            Request::SendRarp => Message::SendRarp([0; 6]),
            Request::NetSetMtu => Message::NetSetMtu(1500),
            Request::CheckDeviceState => Message::CheckDeviceState,
            _ => continue,
        };
        let mut client = Client::connect(&serving.path).expect("connected");
        client.set_timeout(WAIT);
        let event = EventFd::new().expect("an eventfd");
        client
            .send(&message, false, &[event.as_fd()])
            .expect("sent");
        assert!(
            matches!(client.receive(), Err(ClientError::Closed)),
            "{request}"
        );
        let line = serving.fault();
        assert!(line.starts_with(&format!("{request}: ")), "{line}");
    }
}

#[test]
fn bytes_that_are_no_message() {
    let serving = serve();
    let header = |request: u32, flags: u32, size: u32| {
        let header = Header {
            request,
            flags,
            size,
        };
        header.to_bytes().to_vec()
    };
    let with = |mut bytes: Vec<u8>, more: usize| {
        bytes.resize(HEADER_LEN + more, 0xee);
        bytes
    };
    for (why, bytes) in [
        ("GET_FEATURES: its version is not 1", header(1, 0, 0)),
        ("GET_FEATURES: its version is not 1", header(1, 2, 0)),
        ("GET_FEATURES: it is a reply", header(1, 5, 0)),
        ("unknown request: its number is not known", header(0, 1, 0)),
        ("unknown request: its number is not known", header(26, 1, 0)),
        (
            "unknown request: its number is not known",
            header(u32::MAX, 1, 0),
        ),
        ("GET_FEATURES: its payload", with(header(1, 1, 8), 8)),
        ("SET_FEATURES: its payload", header(2, 1, 0)),
        ("SET_MEM_TABLE: its payload", with(header(5, 1, 264), 264)),
        ("SET_VRING_ADDR: its payload", with(header(9, 1, 39), 39)),
        ("GET_CONFIG: its payload", with(header(24, 1, 12), 12)),
        (
            "SET_DEVICE_STATE_FD: its payload",
            with(header(42, 1, 8), 8),
        ),
        ("an impossible size", header(1, 1, 4097)),
        ("an impossible size", header(1, 1, u32::MAX)),
    ] {
        let mut client = Client::connect(&serving.path).expect("connected");
        client.set_timeout(WAIT);
        client.send_raw(&bytes, &[]).expect("sent");
        assert!(
            matches!(client.receive(), Err(ClientError::Closed)),
            "{why}"
        );
        let line = serving.fault();
        assert!(line.contains(why), "{line}");
    }
    let counters = serving.end();
    assert_eq!((counters("malformed"), counters("malformed_size")), (12, 2));
}

#[test]
fn descriptors_that_no_message_wants_are_closed_and_counted() {
    let serving = serve();
    let mut client = serving.client();
    let mut read = Vec::new();
    for n in 0..3 {
        let (r, w) = std::io::pipe().expect("a pipe");
        let fds = vec![w.as_fd(); 2 + n];
        client
            .send(&Message::GetFeatures, false, &fds)
            .expect("sent");
        client.receive().expect("answered");
        drop(w);
        read.push(r);
    }
    for mut read in read {
        // The end of the last writer.
        assert_eq!(std::io::Read::read(&mut read, &mut [0]).expect("read"), 0);
    }
    drop(client);
    assert_eq!(serving.end()("surplus_fds"), 2 + 3 + 4);
}

#[test]
fn a_message_in_pieces_is_one_message_with_its_descriptors() {
    let serving = serve();
    let mut client = serving.client();
    let guest = Guest::new();
    let mut buffer = [0; HEADER_LEN + 4096];
    let table = Message::SetMemTable(MemTable::new(&[region()]).expect("fits"));
    let bytes = table.encode(true, &mut buffer);
    for (n, byte) in bytes.iter().enumerate() {
        let fds = if n == 0 {
            vec![guest.ram.as_fd()]
        } else {
            vec![]
        };
        client.send_raw(&[*byte], &fds).expect("sent");
    }
    let (_, payload, _) = client.receive().expect("answered");
    assert_eq!(payload, 0u64.to_ne_bytes());
    assert_eq!(serving.memory.regions().len(), 1);
    // And two in one: each has its own.
    let slot = |n: u64| MemRegion {
        guest: n << 40,
        user: n << 41,
        ..region()
    };
    client
        .send(&Message::AddMemReg(slot(1)), false, &[guest.ram.as_fd()])
        .expect("sent");
    client
        .send(&Message::AddMemReg(slot(2)), true, &[guest.ram.as_fd()])
        .expect("sent");
    let (_, payload, _) = client.receive().expect("answered");
    assert_eq!(
        (payload, serving.memory.regions().len()),
        (0u64.to_ne_bytes().to_vec(), 3)
    );
}

#[test]
fn a_file_that_shrinks_costs_its_own_guest_only() {
    hypernic_vhost_user::guest_mem::install_sigbus_guard();
    let serving = serve();
    let mut client = serving.client();
    let mut guest = Guest::new();
    // A file without seals.
    let path = std::path::Path::new("/dev/shm")
        .join(format!("hypernic-vhost-user-{}", std::process::id()));
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let Ok(file) = file else { return };
    std::fs::remove_file(&path).expect("removed");
    file.set_len(RAM as u64).expect("sized");
    guest.ram =
        SharedMem::from_fd(file.try_clone().expect("a descriptor").into(), 0, RAM).expect("mapped");
    guest.share(&mut client);
    for queue in [0, 1] {
        guest.start(&mut client, queue, 0);
        client
            .set_vring_enable(u32::from(queue), true)
            .expect("enabled");
    }
    guest.round_trip(0, b"before");
    file.set_len(0).expect("shrunk");
    guest.kicks[1].signal();
    client.features().expect("it is still served");
    drop(client);
    serving.client().features().expect("and so is the next");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes with any descriptors: never a panic, and the next front end is served.
    #[test]
    fn random_messages_never_stop_the_next_front_end(
        messages in prop::collection::vec(
            (0..45u32, prop_oneof![Just(1u32), Just(9)], prop::collection::vec(any::<u8>(), 0..64), 0..3usize), 1..20,
        ),
    ) {
        let serving = serve();
        let ram = SharedMem::new("ram", RAM).expect("a memfd");
        let event = EventFd::new().expect("an eventfd");
        let mut client = serving.client();
        for (request, flags, payload, fds) in messages {
            let header = Header { request, flags, size: payload.len() as u32 };
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend(payload);
            let fds = [ram.as_fd(), event.as_fd()].repeat(fds);
            if client.send_raw(&bytes, &fds).is_err() {
                break;
            }
        }
        drop(client);
        // It may have been sent away for a descriptor more than it should have.
        let mut next = serving.client();
        prop_assert!(next.features().is_ok());
    }

    /// Well-formed messages in any order, with values near those that work: the state machine by
    /// itself, and the rings it starts always lie in mapped memory.
    #[test]
    fn rings_that_start_lie_in_memory_whatever_was_said(
        ops in prop::collection::vec((0..14u8, 0..5u32, 0..6u64), 1..60),
    ) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let (mut echo, mut server) = device(Listener::from_connected(ours.into()));
        let seen = echo.seen.clone();
        let mut client = Client::from_connected(theirs.into());
        let guest = Guest::new();
        let event = guest.kicks[0].as_fd();
        let near = MemRegion { guest: GUEST + RAM as u64, size: 0x1000, user: 0x1000, mmap_offset: 0 };
        let all = hypernic_vhost_user::codec::protocol::CONFIGURE_MEM_SLOTS;
        client.send(&Message::SetProtocolFeatures(all), false, &[]).expect("sent");
        for (op, index, value) in ops {
            let fd = VringFd { index: index as u8, without_fd: false };
            let (message, fds): (_, &[BorrowedFd<'_>]) = match op {
                0 => (Message::SetFeatures([1 << 32, feature::PROTOCOL, feature::PACKED][value as usize % 3]), &[]),
                1 => (Message::SetMemTable(MemTable::new(&[region()]).expect("fits")), &[guest.ram.as_fd()]),
                2 => (Message::SetMemTable(MemTable::new(&[near]).expect("fits")), &[guest.ram.as_fd()]),
                3 => (Message::AddMemReg(near), &[guest.ram.as_fd()]),
                4 => (Message::RemMemReg([near, region()][value as usize % 2]), &[]),
                5 => (Message::SetVringNum(VringState { index: index % 4, num: 1 << (2 * value) }), &[]),
                6 | 7 => {
                    let mut addr = Guest::addr(index as u16 % 4);
                    addr.used += value * 0x3_0000;
                    (Message::SetVringAddr(addr), &[])
                }
                8 => (Message::SetVringKick(fd), &[event]),
                9 => (Message::SetVringKick(VringFd { without_fd: true, ..fd }), &[]),
                10 => (Message::SetVringEnable(VringState { index: index % 4, num: value as u32 % 2 }), &[]),
                11 => (Message::GetVringBase(VringState { index: index % 4, num: 0 }), &[]),
                12 => (Message::SetVringBase(VringState { index: index % 4, num: value as u32 }), &[]),
                _ => {
                    guest.kicks[0].signal();
                    (Message::GetFeatures, &[])
                }
            };
            if client.send(&message, false, fds).is_err() {
                break;
            }
            server.process(&mut echo, 1).expect("served");
            server.process(&mut echo, 1).expect("served");
            let starts = |s: &Seen| matches!(s, Seen::Start(..));
            if seen.lock().drain(..).any(|s| starts(&s)) {
                prop_assert!(!server.memory().regions().is_empty());
            }
            echo.check_rings(&server.memory());
        }
    }
}
