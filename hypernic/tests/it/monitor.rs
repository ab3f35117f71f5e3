//! `io.hypernic.Monitor`: what there is, then what changes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use control::{
    Client, Event, Guard, Happening, News, NicAdd, NicConfig, NicRemove, StatusGet, Subscribe, ask,
};
use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use serde_json::{Value, json};

use crate::lab::Lab;

const LONG: Duration = Duration::from_secs(60);

fn subscribe(lab: &Lab, losses: bool) -> (Client, News) {
    let mut client = Client::connect(&lab.control()).expect("connect");
    let losses = Some(losses);
    client.send(&Subscribe { losses }, true).expect("send");
    let (first, more) = client.next::<Subscribe>(LONG).expect("what there is");
    assert!(more && first.events.is_empty());
    (client, first)
}

/// The next events, until there are so many.
fn events(client: &mut Client, count: usize) -> Vec<Event> {
    let mut all = Vec::new();
    while all.len() < count {
        let (news, more) = client.next::<Subscribe>(LONG).expect("news");
        assert!(more && news.state.is_none() && news.lost.is_none());
        all.extend(news.events);
    }
    all
}

fn words(events: &[Event]) -> Vec<(Happening, &str)> {
    events.iter().map(|e| (e.what, e.name.as_str())).collect()
}

#[test]
fn first_what_there_is_then_each_change_in_order() {
    let lab = Lab::with(|_| "[[switch]]\nname = \"lan\"\n".into());
    let (mut client, first) = subscribe(&lab, true);
    let state = first.state.expect("everything");
    assert_eq!(
        (state.nics.len(), state.switches[0].config.name.as_str()),
        (0, "lan")
    );
    let socket = lab.dir.path().join("n0.sock");
    lab.ran(&format!(
        "nic add n0 --port switch:lan --socket-path {}",
        socket.display()
    ));
    let added = events(&mut client, 1);
    assert_eq!(words(&added), [(Happening::NicAdded, "n0")]);
    let bus = SocketBus::connect(&socket).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    assert_eq!(
        words(&events(&mut client, 1)),
        [(Happening::ClientConnected, "n0")]
    );
    // Counters are read once a second: what was lost before is no news.
    std::thread::sleep(Duration::from_millis(1500));
    let mut frame = [&[1, 0x80, 0xc2, 0, 0, 3][..], &driver.mac(), &[0x88, 0xb5]].concat();
    frame.resize(60, 0);
    driver.send(&[&frame], &TxOpts::default()).expect("send");
    let lost = events(&mut client, 1);
    assert_eq!(words(&lost), [(Happening::LossBegins, "lan/n0")]);
    assert_eq!(
        (lost[0].detail.as_deref(), lost[0].count),
        (Some("drop_reserved"), Some(1))
    );
    drop(driver);
    assert_eq!(
        words(&events(&mut client, 1)),
        [(Happening::ClientGone, "n0")]
    );
    lab.ran("port add lan null");
    lab.ran("nic remove n0");
    lab.ran("port remove lan null");
    lab.ran("switch remove lan");
    let mut rest = events(&mut client, 2);
    let ends = |events: &[Event]| events.iter().any(|e| e.what == Happening::SwitchRemoved);
    while !ends(&rest) {
        rest.extend(events(&mut client, 1));
    }
    let told = words(&rest);
    assert!(told.contains(&(Happening::NicRemoved, "n0")), "{told:?}");
    // One who comes now is told what there is now.
    let (_client, first) = subscribe(&lab, false);
    assert_eq!(first.state.expect("everything").switches, []);
}

/// More than a socket holds: 200 NICs with many words each.
const MANY: usize = 200;

#[test]
fn who_does_not_read_is_told_what_was_lost_and_holds_up_nobody() {
    let lab = Lab::with(|_| "[[switch]]\nname = \"lan\"\n".into());
    let mut client = Client::connect(&lab.control()).expect("connect");
    let nic = |name: &str| {
        let socket = lab.dir.path().join(format!("{name}.sock"));
        let macs = (0..64).map(|n| format!("02:00:00:00:01:{n:02x}")).collect();
        let guard = Guard {
            allow_macs: Some(macs),
            ..Guard::default()
        };
        let nic = NicConfig {
            name: name.into(),
            port: "switch:lan".into(),
            socket_path: Some(socket.display().to_string()),
            guard: Some(guard),
            ..NicConfig::default()
        };
        NicAdd {
            nic,
            ..NicAdd::default()
        }
    };
    for n in 0..MANY {
        client.call(&nic(&format!("n{n}"))).expect("add");
    }
    let mut deaf: Vec<_> = (0..10)
        .map(|_| {
            let mut deaf = Client::connect(&lab.control()).expect("connect");
            deaf.send(&Subscribe { losses: None }, true).expect("send");
            deaf
        })
        .collect();
    let mut others: Vec<_> = (0..10).map(|_| subscribe(&lab, false).0).collect();
    for what in [Happening::NicAdded, Happening::NicRemoved] {
        let started = Instant::now();
        if what == Happening::NicAdded {
            client.call(&nic("x")).expect("add");
        } else {
            let name = "x".to_owned();
            let gone = NicRemove {
                name,
                ..NicRemove::default()
            };
            client.call(&gone).expect("remove");
        }
        for other in &mut others {
            assert_eq!(words(&events(other, 1)), [(what, "x")]);
        }
        assert!(started.elapsed() < LONG / 2, "the deaf hold up nobody");
    }
    for deaf in &mut deaf {
        let (first, _) = deaf.next::<Subscribe>(LONG).expect("what there was");
        assert_eq!(first.state.expect("everything").nics.len(), MANY);
        let (second, more) = deaf.next::<Subscribe>(LONG).expect("what there is");
        assert_eq!((second.lost, more), (Some(2), true));
        assert_eq!(second.state.expect("everything").nics.len(), MANY);
        assert_eq!(second.sequence, first.sequence + 2);
    }
}

#[test]
fn a_subscription_that_is_none_has_a_named_error() {
    let mut lab = Lab::with(|_| String::new());
    let error = ask(&lab.control(), &Subscribe { losses: None }).expect_err("no more");
    assert!(error.to_string().contains("\"more\""), "{error}");
    let mut client = Client::connect(&lab.control()).expect("connect");
    // Who speaks while it listens is let go.
    let mut stream = UnixStream::connect(lab.control()).expect("connect");
    let call = json!({"method": "io.hypernic.Monitor.Subscribe", "parameters": {"loss": true}, "more": true});
    stream
        .write_all(format!("{call}\0").as_bytes())
        .expect("write");
    let mut reply = vec![0; 4096];
    let n = std::io::Read::read(&mut stream, &mut reply).expect("reply");
    let reply: Value = serde_json::from_slice(&reply[..n - 1]).expect("JSON");
    assert_eq!(reply["error"], "org.varlink.service.InvalidParameter");
    client
        .send(&Subscribe { losses: None }, true)
        .expect("send");
    client.next::<Subscribe>(LONG).expect("what there is");
    client.send(&StatusGet {}, false).expect("send");
    client.next::<Subscribe>(LONG).expect_err("let go");
    assert_eq!(lab.counted("control_no_request"), 1);
}
