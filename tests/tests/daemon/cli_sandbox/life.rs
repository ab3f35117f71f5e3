//! A host's life, in which nearly every system call is made that the daemon and its companions need.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drivers::e1000::{Config, Driver, TxOpts, regs};
use drivers::{Bus, SocketBus};
use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use hypernic_tests::{Daemon, Launch, binary};
use rustix::process::Signal;
use villain::Vmm;

/// The words of a file for a host with two NICs on a switch, and all that opens files.
pub(super) fn host(dir: &Path, more: &str) -> String {
    let at = |name: &str| format!("{:?}", dir.join(name));
    // One that is free now.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.expect("a port").port();
    std::fs::write(dir.join("port"), port.to_string()).expect("a file");
    // One listens, where another has; nobody listens to the other.
    drop(UnixListener::bind(dir.join("stream")));
    let stream = format!(
        "\"stream:listen={0}/stream\", \"stream:{0}/nobody\"",
        dir.display()
    );
    format!(
        "control = {control}\nworkers = 2\n{more}\n\
         [[switch]]\nname = \"lan\"\nports = [\"user:hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:80\", {stream}]\n\
         [[switch]]\nname = \"loop\"\nports = [\"loopback\"]\n\
         [[nic]]\nname = \"a\"\nsocket-path = {a}\nport = \"switch:lan\"\ncapture = {capture}\neeprom = {eeprom}\n\
         [[nic]]\nname = \"b\"\nsocket-path = {b}\nport = \"switch:loop\"\n",
        control = at("control"),
        port = port,
        stream = stream,
        a = at("a"),
        b = at("b"),
        capture = at("a.pcapng"),
        eeprom = at("a.nvm"),
    )
}

pub(super) fn launch(dir: &Path, more: &str) -> Launch {
    let file = dir.join("host.toml");
    // Sockets are given to a group, which takes a call of its own.
    let group = rustix::process::getgid().as_raw();
    let more = format!("socket-group = \"{group}\"\n{more}");
    std::fs::write(&file, host(dir, &more)).expect("a file");
    Launch::new().expect("built").arg("serve").arg(file)
}

/// `hypernic …`, asking the daemon of `dir`.
pub(super) fn ask(dir: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(binary().expect("built"));
    let command = command
        .args(words)
        .arg("--control")
        .arg(dir.join("control"));
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// What a guest does through the user network: it asks for a name, sends a datagram to the host, calls the host and is
/// called by it.
fn through_the_network(dir: &Path, nic: &mut Driver<SocketBus>) -> Result<(), String> {
    let (host, gateway, guest) = ([0x52, 0x55, 10, 0, 2, 2], [10, 0, 2, 2], [10, 0, 2, 15]);
    let own = nic.mac();
    let send = |nic: &mut Driver<SocketBus>, frame: Vec<u8>| {
        let sent = nic.send(&[&frame], &TxOpts::default());
        sent.map(drop).map_err(|error| error.to_string())
    };
    let arp = |kind: u8| {
        let head = [
            &[0xff; 6][..],
            &own,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, kind],
            &own,
            &guest,
        ]
        .concat();
        let mut frame = [&head[..], &host, &gateway].concat();
        frame.resize(60, 0);
        frame
    };
    let ip = |to| PacketBuilder::ethernet2(own, host).ipv4(guest, to, 64);
    let datagram = |to, port| {
        let mut frame = Vec::new();
        let packet = ip(to).udp(4000, port);
        packet
            .write(&mut frame, b"hello, this is the guest")
            .expect("it fits");
        frame
    };
    send(nic, arp(1))?;
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let calls = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("bound").port();
    send(nic, datagram([10, 0, 2, 3], 53))?;
    send(nic, datagram(gateway, port(datagrams.local_addr())))?;
    datagrams
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("set");
    let (_, from) = datagrams
        .recv_from(&mut [0; 64])
        .map_err(|error| error.to_string())?;
    datagrams.send_to(b"hello, guest", from).expect("sent");
    // A call by the host, which is never answered.
    let forwarded = std::fs::read_to_string(dir.join("port")).expect("a file");
    let called = TcpStream::connect(format!("127.0.0.1:{forwarded}"));
    // A call to the host.
    let to = port(calls.local_addr());
    let mut frame = Vec::new();
    ip(gateway)
        .tcp(4001, to, 1, 4096)
        .syn()
        .write(&mut frame, &[])
        .expect("it fits");
    send(nic, frame)?;
    let until = Instant::now() + Duration::from_secs(5);
    let answer = loop {
        let answered = |frame: &Vec<u8>| {
            let packet = SlicedPacket::from_ethernet(frame).ok()?;
            let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
                return None;
            };
            (tcp.syn() && tcp.ack()).then(|| tcp.sequence_number())
        };
        let frames = nic.receive().map_err(|error| error.to_string())?;
        if frames.iter().any(|frame| frame[12..14] == [8, 6]) {
            send(nic, arp(2))?;
        }
        if let Some(number) = frames.iter().find_map(answered) {
            break number;
        }
        if Instant::now() > until {
            return Err("the host did not take the call".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut frame = Vec::new();
    let said = ip(gateway)
        .tcp(4001, to, 2, 4096)
        .ack(answer.wrapping_add(1))
        .psh()
        .fin();
    said.write(&mut frame, b"hello").expect("it fits");
    send(nic, frame)?;
    let (mut call, _) = calls.accept().map_err(|error| error.to_string())?;
    call.set_read_timeout(Some(Duration::from_secs(5)))
        .expect("set");
    call.read_exact(&mut [0; 5])
        .map_err(|error| error.to_string())?;
    let _ = call.write_all(b"bye");
    drop((called, call));
    through_a_stream(dir, &arp)
}

/// A stream's peer, with one frame, and then with more than its port, and that of the network, pass on in one turn; the network answers
/// through both.
fn through_a_stream(dir: &Path, arp: &dyn Fn(u8) -> Vec<u8>) -> Result<(), String> {
    let stream = UnixStream::connect(dir.join("stream")).map_err(|error| error.to_string())?;
    let frame = arp(2);
    let whole = [&60u32.to_be_bytes()[..], &frame].concat();
    (&stream)
        .write_all(&whole)
        .map_err(|error| error.to_string())?;
    let mut ask = arp(1);
    let other = [2, 0, 0, 0, 0, 7];
    ask[6..12].copy_from_slice(&other);
    ask[22..28].copy_from_slice(&other);
    let whole = [&60u32.to_be_bytes()[..], &ask].concat().repeat(600);
    (&stream)
        .write_all(&whole)
        .map_err(|error| error.to_string())?;
    let wait = stream.set_read_timeout(Some(Duration::from_secs(5)));
    wait.expect("set");
    let answer = (&stream).read_exact(&mut [0; 64]);
    answer.map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_millis(50));
    Ok(())
}

/// An exporter beside the daemon that is asked once, without the call of this rule. An error is what it said when it ended.
fn beside(dir: &Path, rule: &str) -> Result<(), String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a port").to_string();
    let mut exporter = Command::new(binary().expect("built"))
        .args(["exporter", "--sandbox", "strict", "--listen", &address])
        .arg("--control")
        .arg(dir.join("control"))
        .env("HYPERNIC_SANDBOX_WITHOUT", rule)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let until = Instant::now() + Duration::from_secs(10);
    let mut answer = Vec::new();
    while exporter.try_wait().expect("waits").is_none() && Instant::now() < until {
        let Ok(mut client) = TcpStream::connect(&address) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set");
        let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let _ = client.read_to_end(&mut answer);
        break;
    }
    let _ = exporter.kill();
    let output = exporter.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match answer.starts_with(b"HTTP/1.1 200") && !said.contains("made the system call") {
        true => Ok(()),
        false => Err(said),
    }
}

/// What guests, VMMs and operators do in a host's life, without the call of this rule. An error says where the daemon was
/// not there any more.
pub(super) fn live(dir: &Path, daemon: &mut Daemon, rule: &str) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    // A VMM that cuts off the file that it has given.
    let vmms = villain::vmms().find(|(villain, _)| villain.id == "truncated_under_the_device");
    let (_, cut) = vmms.expect("it is in the table");
    for _ in 0..20 {
        cut(&mut Vmm::new(&dir.join("b"))).map_err(|error| said(&error))?;
    }
    let connect = |name: &str| {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match SocketBus::connect(dir.join(name)) {
                Ok(bus) => return Ok(bus),
                Err(error) if Instant::now() > until => return Err(said(&error)),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    };
    let driver = |name| Driver::new(connect(name)?, Config::linux()).map_err(|error| said(&error));
    let (mut a, mut b) = (driver("a")?, driver("b")?);
    let everybody = [&[0xff; 6], &a.mac()[..], &[0x88, 0xb5], &[0; 100]].concat();
    through_the_network(dir, &mut a)?;
    for _ in 0..200 {
        for nic in [&mut a, &mut b] {
            nic.send(&[&everybody], &TxOpts::default())
                .map_err(|error| said(&error))?;
            let came = nic
                .bus_mut()
                .wait_irq(Duration::from_millis(20))
                .map_err(|error| said(&error))?;
            nic.read(regs::ICR).map_err(|error| said(&error))?;
            if came {
                nic.bus_mut().unmask_irq().map_err(|error| said(&error))?;
            }
            nic.receive().map_err(|error| said(&error))?;
        }
    }
    let c = dir.join("c");
    let c = c.to_str().expect("text");
    ask(
        dir,
        &[
            "nic",
            "add",
            "c",
            "--port",
            "switch:lan",
            "--socket-path",
            c,
        ],
    )?;
    ask(dir, &["nic", "remove", "c"])?;
    ask(dir, &["port", "add", "lan", "null"])?;
    if rule.starts_with("process") {
        beside(dir, rule)?;
    }
    // A network that ends while the daemon goes on.
    let network = format!("user:tftp={}", dir.display());
    for change in ["add", "remove"] {
        ask(dir, &["port", change, "loop", &network])?;
    }
    daemon.signal(Signal::USR1).map_err(|error| said(&error))?;
    daemon
        .wait_printed("\"counters\"")
        .map_err(|error| said(&error))?;
    // Its guests are there to the end.
    let status = daemon.stop().map_err(|error| said(&error))?;
    drop((a, b));
    match status.success() {
        true => Ok(()),
        false => Err(status.to_string()),
    }
}
