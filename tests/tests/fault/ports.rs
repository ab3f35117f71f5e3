//! What is behind a NIC goes away while frames are in flight: a TAP, the peer of a connection through the user
//! network, the peer of a stream, the disk under a capture. The rest goes on.

use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use hypernic_tests::guests::{self, Direction, GATEWAY};
use hypernic_tests::measure::Ping;
use hypernic_tests::{LONG, Lab, Launch, host, mac};
use rig::{Error, GuestConfig, Netns};

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn tap_deleted_under_us() {
    let lab = lab();
    let netns = match Netns::new(&lab.rig) {
        Ok(netns) => netns,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for tap in ["t0", "t1"] {
        match netns.tap(tap, None) {
            Ok(()) => {}
            Err(Error::CannotRun(why)) => return eprintln!("skipped: {why}"),
            Err(other) => panic!("{other}"),
        }
    }
    netns
        .ip(["addr", "add", "10.9.0.1/24", "dev", "t0"])
        .unwrap();
    // One NIC has a TAP to itself, the other is on a switch with a TAP and the user network.
    let config = lab
        .config(
            &[("own", "tap:t0"), ("lan", "switch:lan")],
            &["tap:t1", "user"],
        )
        .unwrap();
    let mut daemon = Launch::within(&netns)
        .unwrap()
        .arg("serve")
        .arg(config)
        .start()
        .unwrap();
    let nics = GuestConfig::new("taps")
        .nic(lab.nic("own"))
        .nic(lab.nic("lan"));
    let guest = lab.rig.resume(nics).unwrap();
    let own = guests::bring_up_static(&guest, &mac("own"), "10.9.0.2/24").unwrap();
    guests::ping_all(&guest, "10.9.0.1", 5).unwrap();
    let lan = guest.interface(&mac("lan"), LONG).unwrap();
    guests::dhcp(&guest, &lan).unwrap();
    let through_own = guest.spawn("ping -n -i 0.01 -c 300 -W 1 10.9.0.1").unwrap();
    let through_lan = guests::start_pings(&guest, GATEWAY);

    netns.ip(["link", "del", "t0"]).unwrap();
    netns.ip(["link", "del", "t1"]).unwrap();
    guests::wait_carrier(&guest, &own.interface, false).unwrap();
    let line = daemon.wait_log("own/tap:t0").unwrap();
    assert!(
        line.contains("ERROR") && line.contains("interface is gone"),
        "{line}"
    );
    daemon.wait_log("lan/tap:t1").unwrap();
    let lost = guest.finish(&through_own, LONG).unwrap();
    println!(
        "{}",
        lost.text
            .lines()
            .rev()
            .take(3)
            .collect::<Vec<_>>()
            .join(" / ")
    );

    assert!(daemon.is_alive());
    let seen = guest.run("ping -n -c 20 -i 0.02 -W 5 10.0.2.2").unwrap();
    assert!(seen.contains(" 20 received"), "{seen}");
    let mut server = netns.tool(&lab.rig, "iperf3").unwrap();
    server.args(["--server", "--forceflush"]);
    let mut server = rig::Daemon::start("iperf3", server, lab.path("iperf3.log")).unwrap();
    server.expect("listening", LONG).unwrap();
    for direction in [Direction::Out, Direction::In] {
        guests::tcp(&guest, GATEWAY, 5201, 20, direction).unwrap();
    }
    guest.run("kill -INT $(pidof ping)").unwrap();
    let seen = guest.finish(&through_lan.unwrap(), LONG).unwrap();
    let pings = Ping::parse(&seen.text).unwrap();
    // The last may have been under way when ping was stopped.
    assert!(pings.received + 1 >= pings.sent, "{}", seen.text);
    println!("{}", daemon.counters().unwrap());
    assert!(daemon.stop().unwrap().success());
}

#[test]
fn peer_behind_the_user_network_gone_mid_transfer() {
    let lab = lab();
    let daemon = lab.run("n0", "user").unwrap();
    let guest = lab.guest("n0").unwrap();
    guests::bring_up(&guest, &mac("n0")).unwrap();
    for reverse in ["", "-R"] {
        let (mut server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
        let transfer = guest
            .spawn(&format!("iperf3 -c {GATEWAY} -p {port} -t 600 {reverse}"))
            .unwrap();
        server.expect("connected to", LONG).unwrap();
        server.expect("MBytes", LONG).unwrap();
        server.kill();
        // The guest is notified: its program ends by itself.
        let ended = guest.finish(&transfer, LONG).unwrap();
        println!(
            "iperf3 {reverse}: {}",
            ended.text.lines().last().unwrap_or_default()
        );
        assert_ne!(ended.code, 0, "{}", ended.text);
        // No program listens any more: the network refuses at once instead of staying silent.
        let refused = guest
            .sh(&format!("iperf3 -c {GATEWAY} -p {port} -t 1"))
            .unwrap();
        assert!(refused.text.contains("refused"), "{}", refused.text);
        guests::round_trip(&guest, &guests::noise(500_000)).unwrap();
    }
    println!("{}", daemon.counters().unwrap());
}

/// Reads one frame as QEMU's stream framing has it.
fn frame(peer: &mut UnixStream) -> Vec<u8> {
    let mut length = [0; 4];
    peer.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    peer.read_exact(&mut frame).unwrap();
    frame
}

#[test]
fn peer_of_a_stream_gone_and_back() {
    let lab = lab();
    let path = lab.path("peer.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut daemon = lab
        .run("n0", &format!("stream:{}", path.display()))
        .unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let guest = lab.guest("n0").unwrap();
    let link = guests::bring_up_static(&guest, &mac("n0"), "10.9.0.2/24").unwrap();
    guest.sh("ping -c 1 -W 1 10.9.0.1").unwrap();
    let from = |frame: &[u8]| {
        frame[6..12]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect::<Vec<_>>()
            .join(":")
    };
    assert_eq!(from(&frame(&mut peer)), mac("n0"));

    drop((peer, listener));
    guests::wait_carrier(&guest, &link.interface, false).unwrap();
    daemon.wait_log("link down").unwrap();
    assert_eq!(guest.run("echo alive").unwrap(), "alive\n");

    std::fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    guests::wait_carrier(&guest, &link.interface, true).unwrap();
    daemon.wait_log("link up").unwrap();
    guest.sh("ping -c 1 -W 1 10.9.0.1").unwrap();
    assert_eq!(from(&frame(&mut peer)), mac("n0"));
    assert!(daemon.stop().unwrap().success());
}

#[test]
fn disk_full_while_capturing_stops_the_capture_and_not_the_traffic() {
    let lab = lab();
    let disk = lab.path("disk");
    std::fs::create_dir(&disk).unwrap();
    // A disk of 256 KiB that only the daemon sees.
    let mount = format!(
        "mount -t tmpfs -o size=256k tmpfs '{}' && exec \"$@\"",
        disk.display()
    );
    let ways: [&[&str]; 2] = [
        &["unshare", "--mount"],
        &["unshare", "--user", "--map-root-user", "--mount"],
    ];
    let works = |way: &&&[&str]| {
        let mut command = Command::new(way[0]);
        command
            .args(&way[1..])
            .args(["sh", "-c", &mount, "sh", "true"]);
        command.output().is_ok_and(|out| out.status.success())
    };
    let Some(way) = ways.iter().find(works) else {
        return eprintln!(
            "skipped: no small disk can be made: run as root, or allow user namespaces"
        );
    };
    let words: Vec<&str> = way
        .iter()
        .copied()
        .chain(["sh", "-c", &mount, "sh"])
        .collect();
    let file = disk.join("n0.pcapng");
    let launch = Launch::under(&words)
        .unwrap()
        .args(lab.run_args("n0", "user"));
    let mut daemon = launch.arg("--capture").arg(&file).start().unwrap();
    assert!(!file.exists(), "the capture must be on the small disk");
    let guest = lab.guest("n0").unwrap();
    guests::bring_up(&guest, &mac("n0")).unwrap();
    let pings = guests::start_pings(&guest, GATEWAY).unwrap();
    guests::round_trip(&guest, &guests::noise(2_000_000)).unwrap();

    let line = daemon.wait_log("traffic goes on").unwrap();
    println!("{line}");
    assert!(
        line.contains("ERROR") && line.contains("No space left"),
        "{line}"
    );
    guests::round_trip(&guest, &guests::noise(2_000_000)).unwrap();
    let seen = guests::finish_pings(&guest, &pings).unwrap();
    assert_eq!(seen.sent, seen.received, "{seen:?}");
    let said = daemon
        .log_lines()
        .iter()
        .filter(|l| l.message.contains("traffic goes on"))
        .count();
    assert_eq!(said, 1, "one message, not a flood");
    // What is on the disk is still a capture that Wireshark opens.
    let seen = format!("/proc/{}/root{}", daemon.id(), file.display());
    let out = Command::new("tshark")
        .args(["-r", &seen])
        .output()
        .expect("tshark (scripts/setup test installs it)");
    let frames = String::from_utf8_lossy(&out.stdout).lines().count();
    println!(
        "tshark: {frames} frames; {} {}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(frames > 50, "{}", String::from_utf8_lossy(&out.stderr));
    println!("{}", daemon.counters().unwrap());
    assert!(daemon.stop().unwrap().success());
}
