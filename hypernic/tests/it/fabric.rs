//! NICs on a switch, each with a driver that reaches the others.

use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::poll::{Poll, PollConfig, TxFrame};
use hypernic::config::HostConfig;
use hypernic::host::Host;

/// How long a frame may take.
const STARTING: Duration = Duration::from_secs(30);

#[test]
fn every_driver_of_a_switch_reaches_the_others() {
    let dir = tempfile::tempdir().expect("a folder for sockets");
    let sockets: Vec<_> = (0..3).map(|n| dir.path().join(format!("n{n}"))).collect();
    let mut text = String::from("[[switch]]\nname = \"lan\"\n");
    for (n, socket) in sockets.iter().enumerate() {
        text +=
            &format!("[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n");
    }
    let config = HostConfig::parse("fabric".as_ref(), &text).expect("good");
    let host = Host::start(&config).expect("a host");
    let driver = |socket| {
        let bus = SocketBus::connect(socket).expect("it is served");
        Poll::new(bus, &PollConfig::new()).expect("a driver")
    };
    let mut nics: Vec<_> = sockets.iter().map(driver).collect();
    let from = nics[0].mac();
    let sent = nics[0].send(1, |_, buffer| {
        let mut frame = [0x55; 60];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&from);
        buffer.write(0, &frame);
        TxFrame::plain(60)
    });
    assert_eq!(sent.expect("sent"), 1);
    let until = Instant::now() + STARTING;
    for nic in &mut nics[1..] {
        let mut got = 0;
        while got == 0 {
            assert!(Instant::now() < until, "the broadcast did not come");
            got = nic
                .receive(8, |frame| assert_eq!(frame.get::<2>(12), [0x55; 2]))
                .expect("received");
            std::thread::yield_now();
        }
        assert_eq!(got, 1);
    }
    assert!(
        host.counters()
            .iter()
            .any(|s| s.name == "n2" && s.get("rx_frames") == 1)
    );
}
