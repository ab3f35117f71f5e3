//! The user network seen by guests that speak just enough Ethernet, ARP, DHCP, UDP and TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::guest::{Guest, Hub, PATIENCE, Tcp};
use frame::{Batch, Caps, Counted, Sink, Wake};
use hypernic_port_user::{Forward, Launcher, Protocol, UserConfig, UserError};
use port::{InletStatus, InletThread, Port, Waiters, counter};
use wire::{Csum, Offload};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

/// A network on a thread of this process: all but the process is as it is elsewhere.
fn open(config: &UserConfig) -> Result<Port, UserError> {
    hypernic_port_user::open(config, &Launcher::of_threads(), false)
}

/// A network with `N` guests on it that have got their addresses.
struct Net<const N: usize> {
    guests: [Guest; N],
    counters: Arc<dyn Counted>,
    thread: InletThread,
}

fn net<const N: usize>(config: &UserConfig) -> Net<N> {
    let Port {
        sink,
        inlet,
        counters,
        ..
    } = open(config).expect("user network");
    let (hub, inboxes) = Hub::new(N);
    let thread =
        InletThread::spawn("user", inlet.expect("inlet"), Arc::new(hub), |_| {}).expect("thread");
    let mut inboxes = inboxes.into_iter();
    let guests = std::array::from_fn(|i| {
        let mac = [2, 0, 0, 0, 0, 1 + i as u8];
        let mut guest = Guest::new(mac, Arc::clone(&sink), inboxes.next().expect("inbox"));
        guest.dhcp();
        guest
    });
    Net {
        guests,
        counters,
        thread,
    }
}

fn loopback() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)
}

#[test]
fn several_guests_get_an_address_each_and_ping() {
    let Net {
        guests,
        thread: _thread,
        ..
    } = net::<3>(&UserConfig::default());
    let mut seen: Vec<Ipv4Addr> = guests.iter().map(|g| g.ip).collect();
    seen.sort();
    assert_eq!(seen, [15, 16, 17].map(|n| Ipv4Addr::new(10, 0, 2, n)));
    for (i, guest) in guests.iter().enumerate() {
        assert_eq!(guest.router, HOST);
        assert_eq!(guest.dns, Ipv4Addr::new(10, 0, 2, 3));
        guest.ping(HOST, i as u16);
    }
}

#[test]
fn a_network_of_ones_own_choice() {
    let config = UserConfig {
        network: Ipv4Addr::new(192, 168, 64, 0),
        prefix: 26,
        ipv6: false,
        ..UserConfig::default()
    };
    let Net {
        guests: [g],
        thread: _thread,
        ..
    } = net(&config);
    assert_eq!(g.ip, Ipv4Addr::new(192, 168, 64, 15));
    g.ping(Ipv4Addr::new(192, 168, 64, 2), 1);
    for (network, prefix) in [([10, 0, 2, 1], 24), ([10, 0, 2, 0], 28), ([0, 0, 0, 0], 7)] {
        let bad = UserConfig {
            network: network.into(),
            prefix,
            ..UserConfig::default()
        };
        assert!(matches!(open(&bad).err(), Some(UserError::Network { .. })));
    }
}

#[test]
fn ipv6_has_a_router_and_a_prefix() {
    let Net {
        guests: [g],
        thread: _thread,
        ..
    } = net(&UserConfig::default());
    assert_eq!(g.solicit_router(), [0xfe, 0xc0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn udp_and_tcp_reach_services_on_the_hosts_loopback() {
    let Net {
        guests: [mut g],
        counters,
        thread: _thread,
    } = net(&UserConfig::default());
    let socket = UdpSocket::bind(loopback()).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    g.udp(
        5000,
        HOST,
        socket.local_addr().expect("bound").port(),
        b"over",
    );
    let mut buf = [0; 100];
    let (n, from) = socket.recv_from(&mut buf).expect("arrives");
    assert_eq!(&buf[..n], b"over");
    socket.send_to(b"and back", from).expect("answer");
    assert_eq!(g.udp_reply(5000), b"and back");

    let listener = TcpListener::bind(loopback()).expect("listen");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut ask = [0; 5];
        stream.read_exact(&mut ask).expect("read");
        assert_eq!(&ask, b"hello");
        let answer: Vec<u8> = (0..300_000u32).map(|i| (i / 3) as u8).collect();
        stream.write_all(&answer).expect("write");
        answer
    });
    let mut tcp = Tcp::connect(&mut g, 40000, HOST, port);
    tcp.send(b"hello");
    let got = tcp.read_to_end();
    assert!(
        got == server.join().expect("server"),
        "bytes are the bytes sent"
    );
    for name in ["user_out_full", "user_in_full", "user_too_long"] {
        assert_eq!(counter(&*counters, name), Some(0), "{name}");
    }
    assert!(counter(&*counters, "bytes_in") > Some(300_000));
}

#[test]
fn a_server_that_dies_ends_its_connection_and_nothing_else() {
    let Net {
        guests: [mut g],
        thread,
        ..
    } = net(&UserConfig::default());
    let listener = TcpListener::bind(loopback()).expect("listen");
    let port = listener.local_addr().expect("bound").port();
    let mut tcp = Tcp::connect(&mut g, 40000, HOST, port);
    let (stream, _) = listener.accept().expect("accept");
    tcp.send(b"unread");
    // Closing with unread bytes sends a reset; a connection attempt afterwards is reset too.
    let mut one = [0; 1];
    stream.peek(&mut one).expect("came");
    drop((stream, listener));
    tcp.wait_for_the_end();
    assert!(
        Tcp::try_connect(&mut g, 40001, HOST, port).is_none(),
        "nobody listens"
    );
    g.udp(5000, HOST, port, b"nobody there either");
    g.ping(HOST, 9);
    assert!(!thread.is_finished());
}

#[test]
fn a_silent_resolver_costs_answers_only() {
    let Net {
        guests: [g],
        thread,
        ..
    } = net(&UserConfig::default());
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07invalid\0\0\x01\0\x01";
    for _ in 0..20 {
        g.udp(5353, g.dns, 53, query);
    }
    g.ping(HOST, 1);
    assert!(!thread.is_finished());
}

#[test]
fn the_host_reaches_a_guest_through_a_forwarded_port() {
    let free = |udp: bool| {
        if udp {
            UdpSocket::bind(loopback()).and_then(|s| s.local_addr())
        } else {
            TcpListener::bind(loopback()).and_then(|s| s.local_addr())
        }
        .expect("a free port")
        .port()
    };
    let forward = |protocol, port, guest_port| Forward {
        protocol,
        host: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
        guest: None,
        guest_port,
    };
    let (tcp, udp) = (free(false), free(true));
    let config = UserConfig {
        forwards: vec![
            forward(Protocol::Tcp, tcp, 22),
            forward(Protocol::Udp, udp, 69),
        ],
        ..UserConfig::default()
    };
    let Net {
        guests: [mut g],
        thread: _thread,
        ..
    } = net(&config);
    let taken = open(&config).err().expect("the ports are in use");
    assert!(
        taken
            .to_string()
            .contains(&format!("TCP port 127.0.0.1:{tcp}")),
        "{taken}"
    );
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", tcp)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut greeting = [0; 3];
        stream.read_exact(&mut greeting).expect("greeting");
        greeting
    });
    let mut tcp = Tcp::accept(&mut g, 22);
    tcp.send(b"SSH");
    assert_eq!(&client.join().expect("client"), b"SSH");
    let socket = UdpSocket::bind(loopback()).expect("bind");
    socket.send_to(b"knock", ("127.0.0.1", udp)).expect("send");
    assert_eq!(g.udp_reply(69), b"knock");
}

#[test]
fn a_restricted_network_keeps_guests_from_the_host() {
    let config = UserConfig {
        restrict: true,
        ..UserConfig::default()
    };
    let Net {
        guests: [mut g],
        thread: _thread,
        ..
    } = net(&config);
    let listener = TcpListener::bind(loopback()).expect("listen");
    let port = listener.local_addr().expect("bound").port();
    assert!(Tcp::try_connect(&mut g, 40000, HOST, port).is_none());
    g.ping(HOST, 1);
}

#[test]
fn files_are_served_by_tftp_and_nothing_outside() {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("boot.ipxe"), "#!ipxe\nshell\n").expect("file");
    let config = UserConfig {
        tftp: Some(dir.path().into()),
        bootfile: Some("boot.ipxe".into()),
        ..UserConfig::default()
    };
    let Net {
        guests: [g],
        thread: _thread,
        ..
    } = net(&config);
    assert_eq!(g.bootfile, "boot.ipxe");
    let get = |name: &str| {
        let ask = [b"\0\x01", name.as_bytes(), b"\0octet\0"].concat();
        g.udp(2000, HOST, 69, &ask);
        g.udp_reply(2000)
    };
    assert_eq!(get("boot.ipxe"), b"\0\x03\0\x01#!ipxe\nshell\n");
    assert_eq!(get("../../etc/passwd")[..2], *b"\0\x05");
    let gone = UserConfig {
        tftp: Some(dir.path().join("missing")),
        ..UserConfig::default()
    };
    let error = open(&gone).err().expect("no such directory");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn frames_it_cannot_take_are_counted() {
    let port = open(&UserConfig::default()).expect("user network");
    let mut batch = Batch::new();
    let csum = Some(Csum {
        start: 34,
        offset: 16,
    });
    for (len, csum) in [(2000, None), (60, csum), (0, None), (3, None)] {
        batch.push_bytes(&vec![0; len]);
        batch.end(Offload {
            csum,
            ..Offload::NONE
        });
    }
    assert_eq!(port.sink.deliver(&batch, &[0, 1, 2, 3, 77]), 5);
    let mut inlet = port.inlet.expect("inlet");
    let (hub, _inboxes) = Hub::new(1);
    assert_eq!(inlet.run(&hub, 256), InletStatus::Idle);
    let count = |name| counter(&*port.counters, name);
    assert_eq!(count("user_too_long"), Some(1));
    assert_eq!(count("user_cannot_take"), Some(1));
    assert_eq!(count("frames_out"), Some(2));
    drop(inlet);
    assert_eq!(port.sink.deliver(&batch, &[2]), 1);
    assert_eq!(count("user_closed"), Some(1));
}

/// Takes frames only while there is room.
struct Slow {
    room: AtomicUsize,
    got: AtomicUsize,
    waiters: Waiters,
}

impl Sink for Slow {
    fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
        let n = picks.len().min(self.room.load(Ordering::SeqCst));
        self.room.fetch_sub(n, Ordering::SeqCst);
        self.got.fetch_add(n, Ordering::SeqCst);
        n
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.waiters.add(waker);
    }
}

#[test]
fn a_guest_without_room_stops_the_network_and_loses_nothing() {
    let Port {
        sink,
        inlet,
        counters,
        ..
    } = open(&UserConfig::default()).expect("user network");
    let mut inlet = inlet.expect("inlet");
    let slow = Slow {
        room: AtomicUsize::new(0),
        got: AtomicUsize::new(0),
        waiters: Waiters::new(),
    };
    let arp = crate::guest::arp_request([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 2, 15), HOST);
    let mut batch = Batch::new();
    for _ in 0..100 {
        batch.push_bytes(&arp);
        batch.end(Offload::NONE);
    }
    let picks: Vec<u16> = (0..100).collect();
    let count = |name| counter(&*counters, name).expect("counter");
    let mut until = |wanted: InletStatus, done: &dyn Fn() -> bool| {
        let end = Instant::now() + PATIENCE;
        while inlet.run(&slow, 256) != wanted || !done() {
            assert!(Instant::now() < end, "never {wanted:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(sink.deliver(&batch, &picks), 100);
    until(InletStatus::Blocked, &|| true);
    slow.room.store(30, Ordering::SeqCst);
    until(InletStatus::Blocked, &|| {
        slow.got.load(Ordering::SeqCst) == 30
    });

    // Meanwhile the other direction fills up, and then drops rather than block its sender.
    let end = Instant::now() + PATIENCE;
    while count("user_in_full") < 1000 {
        assert!(Instant::now() < end, "it never fills up");
        assert_eq!(sink.deliver(&batch, &picks), 100);
    }
    slow.room.store(usize::MAX, Ordering::SeqCst);
    let all = || slow.got.load(Ordering::SeqCst) as u64 == count("frames_out");
    until(InletStatus::Idle, &all);
    assert_eq!(count("frames_in"), count("frames_out"));
    assert_eq!(count("user_out_full"), 0);

    // With a receiver that moves, a full queue leaves frames with the sender, which waits.
    while sink.deliver(&batch, &picks) == 100 {
        assert!(Instant::now() < end, "it never fills up");
    }
    let bell = Arc::new(port::Bell::new().expect("bell"));
    let waker: Arc<dyn Wake> = Arc::clone(&bell) as Arc<dyn Wake>;
    sink.want_room(&waker);
    until(InletStatus::Idle, &all);
    assert!(bell.clear(), "woken when there was room");
    assert_eq!(sink.deliver(&batch, &picks), 100);
}

#[test]
fn an_idle_network_sleeps() {
    let Net { thread, .. } = net::<1>(&UserConfig {
        ipv6: false,
        ..UserConfig::default()
    });
    let turns = || counter(&*thread.counters(), "inlet_turns").expect("counter");
    let before = turns();
    std::thread::sleep(Duration::from_millis(500));
    let spent = turns() - before;
    assert!(spent < 20, "{spent} turns with nothing to do");
}

/// A guest that opens flows without end takes its own places, and not all descriptors of the host.
#[test]
fn flows_are_limited_and_those_that_are_open_go_on() {
    let service = UdpSocket::bind(loopback()).expect("socket");
    service.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let port = service.local_addr().expect("address").port();
    let config = UserConfig {
        flows: 8,
        ..UserConfig::default()
    };
    let Net {
        guests: [g],
        counters,
        thread: _thread,
    } = net(&config);
    let mut buffer = [0; 16];
    g.udp(3000, HOST, port, b"first");
    assert_eq!(service.recv(&mut buffer).expect("arrives"), 5);
    for from in 4000..4100 {
        g.udp(from, HOST, port, b"more");
    }
    for _ in 0..7 {
        assert_eq!(service.recv(&mut buffer).expect("arrives"), 4);
    }
    // The last refusals are counted after the last datagram arrived.
    let refused = || counter(&*counters, "user_flow_refused").expect("counter");
    let end = Instant::now() + PATIENCE;
    while refused() < 93 {
        assert!(Instant::now() < end, "{} of 93 refused", refused());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(refused(), 93);
    g.udp(3000, HOST, port, b"again!");
    assert_eq!(service.recv(&mut buffer).expect("arrives"), 6);
}

/// A NIC that opens flows without end leaves other NICs of the network theirs.
#[test]
fn a_nic_has_so_many_flows_and_another_has_its_own() {
    let service = UdpSocket::bind(loopback()).expect("socket");
    service.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let port = service.local_addr().expect("address").port();
    let config = UserConfig {
        flows: 8,
        nic_flows: 4,
        ..UserConfig::default()
    };
    let Net {
        guests: [greedy, mut honest],
        counters,
        thread: _thread,
    } = net(&config);
    let mut buffer = [0; 16];
    let mut arrive = |len, count| {
        for _ in 0..count {
            assert_eq!(service.recv(&mut buffer).expect("arrives"), len);
        }
    };
    for from in 4000..4100 {
        greedy.udp(from, HOST, port, b"greedy");
    }
    arrive(6, 4);
    for from in 3000..3003 {
        honest.udp(from, HOST, port, b"mine");
    }
    arrive(4, 3);
    // What is closed leaves its place.
    let listener = TcpListener::bind(loopback()).expect("listen");
    let tcp_port = listener.local_addr().expect("bound").port();
    for from in 5000..5020 {
        let mut tcp = Tcp::connect(&mut honest, from, HOST, tcp_port);
        let (stream, _) = listener.accept().expect("accept");
        tcp.send(b"unread");
        stream.peek(&mut [0]).expect("came");
        drop(stream);
        tcp.wait_for_the_end();
    }
    greedy.udp(4000, HOST, port, b"again!");
    arrive(6, 1);
    let count = |name| counter(&*counters, name);
    let end = Instant::now() + PATIENCE;
    while count("user_nic_flow_refused") < Some(96) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(count("user_nic_flow_refused"), Some(96));
    assert_eq!(count("user_flow_refused"), Some(0));
}

#[test]
fn the_hosts_loopback_is_out_of_reach_where_it_is_said() {
    let service = UdpSocket::bind(loopback()).expect("socket");
    let soon = Duration::from_millis(300);
    service.set_read_timeout(Some(soon)).expect("timeout");
    let port = service.local_addr().expect("address").port();
    for (host_loopback, arrives) in [(true, true), (false, false)] {
        let config = UserConfig {
            host_loopback,
            ..UserConfig::default()
        };
        let Net {
            guests: [g],
            thread: _thread,
            ..
        } = net(&config);
        g.udp(3000, HOST, port, b"hello");
        assert_eq!(service.recv(&mut [0; 16]).is_ok(), arrives);
    }
}
