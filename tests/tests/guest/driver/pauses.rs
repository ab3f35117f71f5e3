//! Flow control: pause frames from the other end silence the driver's NIC, and a NIC that is full asks for silence.

use std::time::{Duration, Instant};

use hypernic_tests::peer::{MAC, udp};
use hypernic_tests::{LONG, Wired, guests, peer};
use rig::{GuestConfig, Kernel};

on_every_kernel! {
    pause_frames_silence_the_guest_until_they_end,
    a_full_nic_asks_for_silence_and_ends_it,
}

/// Where pause frames go (IEEE 802.3 annex 31B).
const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x01];

/// A pause frame for this many times 512 bits.
fn pause(quanta: u16) -> Vec<u8> {
    let mut frame = [&GROUP[..], &MAC, &[0x88, 0x08, 0x00, 0x01]].concat();
    frame.extend_from_slice(&quanta.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// The quanta of a pause frame.
fn quanta(frame: &[u8]) -> Option<u16> {
    let is_one = frame.starts_with(&GROUP) && frame[12..16] == [0x88, 0x08, 0x00, 0x01];
    is_one.then(|| u16::from_be_bytes([frame[16], frame[17]]))
}

fn with_flow_control(kernel: Kernel, name: &str) -> Wired {
    let config = GuestConfig::new(name).kernel(kernel);
    let wired = Wired::with(config, "pause = true").unwrap();
    let shown = wired.ethtool("-a", "").unwrap();
    for line in ["Autonegotiate:\ton", "RX:\t\ton", "TX:\t\ton"] {
        assert!(shown.contains(line), "{shown}");
    }
    wired
}

fn pause_frames_silence_the_guest_until_they_end(kernel: Kernel) {
    let wired = with_flow_control(kernel, "pauses");
    // At 10 Mbit/s one frame asks for up to 3.4 s of silence, which no busy host can miss.
    wired.ethtool("-s", "autoneg on advertise 0x02").unwrap();
    wired.settled().unwrap();
    let before = wired.statistics().unwrap();
    let job = wired
        .guest
        .spawn(&format!("ping -q -n -i 0.01 -W 1 {}", peer::IP))
        .unwrap();
    let talks = |since: u64| {
        let more = |r: &peer::Traffic| r.frames > since + 10;
        wired.peer.wait_received("the guest talks", more).unwrap();
    };
    talks(wired.peer.received().frames);
    for round in 1..=3 {
        wired.peer.send(pause(0xffff));
        // What was on its way is past before the second look.
        std::thread::sleep(Duration::from_millis(200));
        wired.peer.send(pause(0xffff));
        std::thread::sleep(Duration::from_millis(200));
        let silent = wired.peer.received().frames;
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(wired.peer.received().frames, silent, "round {round}");
        wired.peer.send(pause(0));
        talks(silent);
    }
    wired.guest.run("kill -INT $(pidof ping)").unwrap();
    wired.guest.finish(&job, LONG).unwrap();
    let after = wired.statistics().unwrap();
    assert_eq!(after.grown(&before, "rx_flow_control_xoff"), 6);
    assert_eq!(after.grown(&before, "rx_flow_control_xon"), 3);
    // A driver that does not want them is not silenced.
    wired.ethtool("-A", "autoneg off rx off tx off").unwrap();
    wired.settled().unwrap();
    wired.peer.send(pause(0xffff));
    wired.exchange(1500).unwrap();
    wired.assert_quiet();
}

fn a_full_nic_asks_for_silence_and_ends_it(kernel: Kernel) {
    let wired = with_flow_control(kernel, "full");
    let frames = wired.peer.record();
    let before = wired.statistics().unwrap();
    wired.guest.qmp("stop", serde_json::json!({})).unwrap();
    let frame = udp(wired.target(None), &guests::noise(1000));
    // A ring of 256 and a FIFO of 48 KiB are full then, and little waits before them.
    for _ in 0..320 {
        wired.peer.send(frame.clone());
    }
    let next = || {
        let deadline = Instant::now() + LONG;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let frame = frames.recv_timeout(left).expect("a pause frame");
            if let Some(quanta) = quanta(&frame) {
                return quanta;
            }
        }
    };
    assert_ne!(next(), 0, "{}", wired.diagnosis());
    let mut asked = 1;
    wired.guest.qmp("cont", serde_json::json!({})).unwrap();
    while next() != 0 {
        asked += 1;
    }
    wired.settled().unwrap();
    let after = wired.statistics().unwrap();
    let rest: Vec<_> = frames.try_iter().filter_map(|f| quanta(&f)).collect();
    let ended = 1 + rest.iter().filter(|q| **q == 0).count() as u64;
    asked += rest.iter().filter(|q| **q != 0).count() as u64;
    assert_eq!(after.grown(&before, "tx_flow_control_xoff"), asked);
    assert_eq!(after.grown(&before, "tx_flow_control_xon"), ended);
    assert_eq!(after.grown(&before, "rx_missed_errors"), 0);
    wired.exchange(1500).unwrap();
    wired.assert_quiet();
}
