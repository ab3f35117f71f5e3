//! TAPs that are handed over. The test starts itself again in a network namespace of its own; where that does not work, it says so.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

use crate::lab::{HYPERNIC, Lab};

const INSIDE: &str = "HYPERNIC_TEST_IN_NETNS";
const NAME: &str = "handed::a_tap_is_handed_over_carries_frames_and_goes_with_its_port";

/// Whether this is the process inside; the one outside starts it.
fn inside() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let how = match rustix::process::geteuid().is_root() {
        true => "-n",
        false => "-Urn",
    };
    let can = Command::new("unshare")
        .args([how, "sh", "-c", "exec 3<>/dev/net/tun && ip link show lo"])
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: no TAP in a namespace of our own here");
        return false;
    }
    let me = std::env::current_exe().expect("our own path");
    let output = Command::new("unshare")
        .arg(how)
        .arg(me)
        .args([NAME, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{wrong}"
    );
    false
}

fn ip(words: &str) -> bool {
    let ran = Command::new("ip").args(words.split(' ')).output();
    ran.expect("ip").status.success()
}

/// `hypernic …` with a descriptor as its number 0.
fn ran_with(lab: &Lab, words: &str, fd: OwnedFd) -> String {
    let output = Command::new(HYPERNIC)
        .args(words.split(' '))
        .arg("--control")
        .arg(lab.control())
        .stdin(Stdio::from(fd))
        .output()
        .expect("hypernic");
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {wrong}");
    String::from_utf8(output.stdout).expect("text")
}

/// Frames that the kernel has received from an interface.
fn received(interface: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/net/dev").expect("interfaces");
    let line = all.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == interface).then_some(counters)
    });
    let counters = line.expect("the interface");
    let packets = counters.split_whitespace().nth(1);
    packets.and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn a_tap_is_handed_over_carries_frames_and_goes_with_its_port() {
    if !inside() {
        return;
    }
    let lab = Lab::with(|dir| {
        let socket = dir.join("a.sock");
        format!(
            "[[switch]]\nname = \"lan\"\n[[nic]]\nname = \"a\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n"
        )
    });
    let mut queues = port_tap::attach_queues("vm0", None).expect("a TAP");
    assert!(ip("link set vm0 up") && ip("addr add 10.9.9.1/24 dev vm0"));
    let said = ran_with(&lab, "port add lan tap:fd=0", queues.remove(0));
    assert!(said.ends_with(": done\n"), "{said}");
    let port = lab.ran("port list lan");
    assert!(port.contains("tap:fd="), "{port}");
    // From a guest to the kernel.
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut guest = Driver::new(bus, Config::poll()).expect("driver");
    let before = received("vm0");
    let mut frame = [&[0xff; 6][..], &guest.mac(), &[0x88, 0xb5]].concat();
    frame.resize(60, 0);
    guest.send(&[&frame], &TxOpts::default()).expect("send");
    lab.until("the guest's frame", || {
        (received("vm0") > before).then_some(())
    });
    // And back: it asks who has an address.
    let socket = UdpSocket::bind("10.9.9.1:0").expect("socket");
    let mut asked = false;
    lab.until("the kernel's frame", || {
        socket.send_to(b"x", "10.9.9.2:9").expect("send");
        guest
            .poll_rx(64, |frame| asked |= frame.to_vec()[12..14] == [0x08, 0x06])
            .expect("poll");
        guest.refill_rx().expect("refill");
        asked.then_some(())
    });
    // With its port the descriptor is closed, and the interface is gone.
    let port = port
        .split_whitespace()
        .find(|word| word.starts_with("tap:fd="));
    lab.ran(&format!("port remove lan {}", port.expect("a port")));
    lab.until("the end of the TAP", || {
        (!ip("link show vm0")).then_some(())
    });
    lab.ran("nic list");
}

/// A frame to all, as a stream has it.
fn framed() -> Vec<u8> {
    let head = [&60_u32.to_be_bytes()[..], &[0xff; 6], &[2; 6]].concat();
    [&head[..], &[7; 48]].concat()
}

/// So does one that came with a call. What is half sent or half received on it goes along.
#[test]
fn a_stream_that_was_handed_over_goes_on_in_the_next_process() {
    use std::io::{Read, Write};
    let lab = Lab::with(|_| "keeper = true\n[[switch]]\nname = \"lan\"\n".into());
    let pair = || std::os::unix::net::UnixStream::pair().expect("a pair");
    let [(mut one, first), (mut other, second)] = [pair(), pair()];
    ran_with(&lab, "port add lan stream:fd=0", first.into());
    ran_with(&lab, "port add lan stream:fd=0", second.into());
    other
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .expect("set");
    let [half, rest] = [0..30, 30..64].map(|part| framed()[part].to_vec());
    for killed in [false, true, false] {
        one.write_all(&half).expect("open");
        if killed {
            lab.kill_worker();
        } else {
            lab.ran("upgrade");
        }
        one.write_all(&rest).expect("open");
        let mut came = [0; 64];
        other.read_exact(&mut came).expect("a frame");
        assert_eq!(came[..], framed());
    }
    let ports = lab.ran("port list lan");
    let ports: Vec<_> = ports
        .split_whitespace()
        .filter(|word| word.starts_with("stream:fd="))
        .collect();
    assert_eq!(ports.len(), 2);
    for port in ports {
        lab.ran(&format!("port remove lan {port}"));
    }
    assert_eq!(other.read(&mut [0; 9]).expect("its end"), 0);
    lab.ran("upgrade");
}

/// Its peer is not left waiting for somebody who is not there.
#[test]
fn a_stream_that_no_next_worker_has_is_closed() {
    use std::io::Read;
    let lan = "keeper = true\n[[switch]]\nname = \"lan\"\n";
    let lab = Lab::with(|_| lan.into());
    let at = |name: &str| lab.dir.path().join(name);
    let text = format!(
        "control = {:?}\n{lan}ports = [\"stream:listen={}\"]\n",
        lab.control(),
        at("s").display()
    );
    std::fs::write(at("new.toml"), text).expect("file");
    let words = format!(
        "config apply {} --rollback-after 3600",
        at("new.toml").display()
    );
    lab.ran(&words);
    let mut peer = std::os::unix::net::UnixStream::connect(at("s")).expect("connect");
    lab.until("the connection", || {
        let shown = lab.ran("metrics");
        let mut lines = shown.lines();
        lines
            .any(|line| line.contains("port_stream_connects_total{") && line.ends_with(" 1"))
            .then_some(())
    });
    // What is on trial is not what the next worker is.
    lab.kill_worker();
    peer.set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .expect("set");
    assert_eq!(peer.read(&mut [0; 9]).expect("its end"), 0);
    assert!(std::os::unix::net::UnixStream::connect(at("s")).is_err());
}
