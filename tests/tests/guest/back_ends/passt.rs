//! passt: a user network of another make. Datagrams to its gateway reach the host, which sends them back.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Instant;

use hypernic_tests::Lab;
use rig::Root;
use wire::Offload;

use super::{End, PATIENCE, Way, sum};

/// Ends with the test.
struct Passt(Child);

impl Drop for Passt {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Passt {
    /// One that listens at a path, or takes a connection.
    fn start(root: &Root, lab: &Lab, at: Result<&str, UnixStream>) -> Self {
        let words = root.program("passt").unwrap();
        let mut command = rig::Daemon::command(&words[0]);
        command.args(&words[1..]);
        command.args(["--foreground", "--vhost-user", "--ipv4-only"]);
        // As libslirp has it: the gateway is the host.
        command.args(["--address", "10.0.2.15", "--netmask", "24"]);
        command.args(["--gateway", "10.0.2.2", "--map-host-loopback", "10.0.2.2"]);
        let stdin = match at {
            Ok(name) => {
                command.arg("--socket-path").arg(lab.path(name));
                Stdio::null()
            }
            Err(connection) => {
                command.args(["--fd", "0"]);
                OwnedFd::from(connection).into()
            }
        };
        let log = std::fs::File::create(lab.path("passt.log")).unwrap();
        command
            .stdin(stdin)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Self(command.spawn().unwrap())
    }
}

/// A datagram to a port of the host, or what came back from there.
fn datagram(port: u16, number: u32, len: usize) -> (Vec<u8>, Vec<u8>) {
    let payload: Vec<u8> = (0..len as u32).map(|n| (n * 7 + number) as u8).collect();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0];
    ip.extend((28 + len as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 2, 15, 10, 0, 2, 2]);
    let check = !sum(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    frame.extend(ip);
    frame.extend(7777_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((8 + len as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(&payload);
    (frame, payload)
}

/// Datagrams come back unchanged, one after the other.
fn answers(end: &End, port: u16, how_many: u32) {
    end.take();
    for number in 0..how_many {
        let len = [20, 400, 1400][number as usize % 3];
        let (frame, payload) = datagram(port, number, len);
        assert_eq!(end.send(&[(frame, Offload::NONE)]), 1);
        let since = Instant::now();
        loop {
            let of_host = |(bytes, _): &(Vec<u8>, Offload)| {
                bytes.get(12..14) == Some(&[8, 0]) && bytes.get(42..) == Some(&payload[..])
            };
            if end.take().iter().any(of_host) {
                break;
            }
            let late = since.elapsed() > PATIENCE;
            assert!(!late, "{number} did not come back\n{}", end.shown());
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
}

#[test]
#[ignore = "long: more packages"]
fn long_datagrams_reach_the_host_through_passt_and_passt_may_die() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let root = lab.rig.packages("passt", &["passt"]).unwrap();
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut room = [0; 2048];
        while let Ok((len, from)) = host.recv_from(&mut room) {
            let _ = host.send_to(&room[..len], from);
        }
    });
    // It listens, or is given a connection to a port that listens.
    for listens in [false, true] {
        let path = lab.path(if listens { "ours" } else { "theirs" });
        let way = Way {
            listens,
            packed: true,
            pairs: 1,
        };
        println!("{way:?}");
        let start = || {
            let at = if listens {
                Err(UnixStream::connect(&path).unwrap())
            } else {
                let _ = std::fs::remove_file(&path);
                Ok("theirs")
            };
            Passt::start(&root, &lab, at)
        };
        let end = End::open(path.clone(), way);
        let passt = start();
        end.meets(1);
        answers(&end, port, 300);
        // Killed, and another one in its place.
        drop(passt);
        while end.count("vhost_disconnects") == 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _passt = start();
        end.meets(2);
        answers(&end, port, 300);
        println!("  {}", end.shown());
        end.is_content();
    }
}
