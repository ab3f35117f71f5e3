//! Negotiation, status, configuration space: what is said of the whole device.

use hypernic_vhost_user::codec::{Message, Request, feature, protocol};
use hypernic_vhost_user::{Client, ClientError, ClientEvent, GoneReason};

use crate::common::{Guest, OFFERED, QUEUES, REFUSED, Seen, WAIT, serve};

const OURS: u64 = feature::LOG_ALL | feature::PROTOCOL;

#[test]
fn features_are_the_devices_and_the_protocols() {
    let serving = serve();
    let mut client = serving.client();
    assert_eq!(client.features().expect("answered"), OFFERED | OURS);
    assert_eq!(client.queues().expect("answered"), u64::from(QUEUES));
    client
        .set_features(1 << 32 | feature::PROTOCOL)
        .expect("set");
    // QEMU sends them for each pair again.
    client
        .set_features(1 << 32 | feature::PROTOCOL)
        .expect("set");
    assert_eq!(
        serving.wait_for(|s| matches!(s, Seen::Features(_))),
        Seen::Features(1 << 32)
    );
    let told = |s: &&Seen| matches!(s, Seen::Features(_));
    assert_eq!(serving.seen.lock().iter().filter(told).count(), 1);
    // What the device refuses is said, and the connection goes on.
    let refused = client.set_features(1 << 32 | REFUSED).expect_err("refused");
    assert!(matches!(
        refused,
        ClientError::Refused(Request::SetFeatures)
    ));
    let line = serving.wait_for(|s| matches!(s, Seen::Client(ClientEvent::Declined(_))));
    let wanted = "SET_FEATURES: not this one".to_owned();
    assert_eq!(line, Seen::Client(ClientEvent::Declined(wanted)));
    client.set_features(1 << 32).expect("set");
    drop(client);
    serving.wait_for(|s| *s == Seen::Client(ClientEvent::Gone(GoneReason::Closed)));
    let counters = serving.end();
    assert_eq!(
        (counters("refused_requests"), counters("refused_violations")),
        (1, 0)
    );
}

#[test]
fn what_was_not_offered_costs_the_connection() {
    for message in [
        Message::SetFeatures(1 << 40),
        Message::SetFeatures(feature::ACCESS_PLATFORM),
        Message::SetProtocolFeatures(protocol::PAGEFAULT),
        Message::SetProtocolFeatures(1 << 63),
    ] {
        let serving = serve();
        let mut client = serving.client();
        client.send(&message, true, &[]).expect("sent");
        let (header, payload, _) = client.receive().expect("the refusal is answered first");
        assert!(header.is_reply() && payload == 1u64.to_ne_bytes());
        assert!(matches!(client.receive(), Err(ClientError::Closed)));
        let line = serving.fault();
        assert!(line.starts_with(message.request().name()), "{line}");
        assert!(line.contains("not offered"), "{line}");
    }
}

#[test]
fn an_acknowledgement_is_sent_where_it_is_asked_for_and_negotiated() {
    let serving = serve();
    let mut client = Client::connect(&serving.path).expect("connected");
    client.set_timeout(WAIT);
    // Not negotiated: no answer but that of the question after it.
    client.send(&Message::SetOwner, true, &[]).expect("sent");
    client.send(&Message::GetQueueNum, true, &[]).expect("sent");
    let (header, _, _) = client.receive().expect("answered");
    assert_eq!(header.request, Request::GetQueueNum as u32);
    let ack = protocol::REPLY_ACK;
    client
        .send(&Message::SetProtocolFeatures(ack), true, &[])
        .expect("sent");
    let (header, payload, _) = client.receive().expect("this one counts already");
    assert_eq!(header.request, Request::SetProtocolFeatures as u32);
    assert_eq!(payload, 0u64.to_ne_bytes());
    // What has its own reply has no other.
    client.send(&Message::GetFeatures, true, &[]).expect("sent");
    client.send(&Message::SetOwner, true, &[]).expect("sent");
    for wanted in [Request::GetFeatures, Request::SetOwner] {
        let (header, _, _) = client.receive().expect("answered");
        assert_eq!(header.request, wanted as u32);
    }
}

#[test]
fn status_zero_and_reset_end_all_rings() {
    let serving = serve();
    let mut client = serving.client();
    let mut guest = Guest::new();
    client
        .set_features(1 << 32 | feature::PROTOCOL)
        .expect("set");
    client.set_status(0xb).expect("set");
    serving.wait_for(|s| *s == Seen::Status(0xb));
    assert_eq!(client.status().expect("answered"), 0xb);
    for round in 0..2 {
        guest.share(&mut client);
        for queue in [0, 1] {
            client
                .set_vring_enable(u32::from(queue), true)
                .expect("enabled");
            let base = u32::from(guest.used_index(queue));
            guest.start(&mut client, queue, base);
        }
        guest.round_trip(0, b"before the reset");
        serving.seen.lock().clear();
        if round == 0 {
            client.set_status(0).expect("set");
        } else {
            client.reset_device().expect("reset");
        }
        let seen = serving.seen.lock().clone();
        let at = |what| seen.iter().position(|s| *s == what).expect("seen");
        assert!(at(Seen::Stop(0)) < at(Seen::Reset) && at(Seen::Stop(1)) < at(Seen::Reset));
        assert!(at(Seen::Enable(0, false)) < at(Seen::Reset));
        assert_eq!(client.status().expect("answered"), 0);
        // The device hears the next features, though they are the same.
        client
            .set_features(1 << 32 | feature::PROTOCOL)
            .expect("set");
        serving.wait_for(|s| *s == Seen::Features(1 << 32));
    }
    assert_eq!(serving.end()("resets"), 2);
}

#[test]
fn configuration_space_is_read_and_written_within_its_bounds() {
    let serving = serve();
    let mut client = serving.client();
    assert_eq!(client.config(3, 6).expect("read"), b"figura");
    assert_eq!(client.config(0, 16).expect("read"), b"configuration 16");
    let refused = client.config(10, 7).expect_err("beyond its end");
    assert!(matches!(refused, ClientError::Refused(Request::GetConfig)));
    let refused = client
        .set_config(0, b"x", false)
        .expect_err("not the driver's");
    assert!(matches!(refused, ClientError::Refused(Request::SetConfig)));
    client.set_config(14, b"17", true).expect("migration may");
    assert_eq!(client.config(0, 16).expect("read"), b"configuration 17");
}

#[test]
fn mtu_and_announcement_reach_the_device() {
    let serving = serve();
    let mut client = serving.client();
    client.set_mtu(1500).expect("set");
    for mtu in [67, 9001] {
        let refused = client.set_mtu(mtu).expect_err("refused");
        assert!(matches!(refused, ClientError::Refused(Request::NetSetMtu)));
    }
    client.send_rarp([2, 0, 0, 0, 0, 9]).expect("sent");
    let seen = serving.seen.lock().clone();
    let told = |s: &&Seen| matches!(s, Seen::Mtu(_) | Seen::Announce(_));
    let told: Vec<_> = seen.iter().filter(told).collect();
    let wanted = [
        Seen::Mtu(1500),
        Seen::Mtu(9001),
        Seen::Announce([2, 0, 0, 0, 0, 9]),
    ];
    assert_eq!(told, wanted.iter().collect::<Vec<_>>());
}

#[test]
fn a_second_front_end_is_sent_away_and_the_next_is_served() {
    let serving = serve();
    let mut client = serving.client();
    let mut second = Client::connect(&serving.path).expect("connected");
    second.set_timeout(WAIT);
    assert!(matches!(second.features(), Err(ClientError::Closed)));
    serving.wait_for(
        |s| matches!(s, Seen::Client(ClientEvent::Refused(why)) if why.contains("in use")),
    );
    client.features().expect("the first does not notice");
    drop(client);
    serving.wait_for(|s| *s == Seen::Client(ClientEvent::Gone(GoneReason::Closed)));
    serving.client().features().expect("the next is served");
    let counters = serving.end();
    assert_eq!((counters("refused_busy"), counters("clients")), (1, 2));
}

#[test]
fn one_that_says_nothing_gives_way() {
    let serving = serve();
    let mute = Client::connect(&serving.path).expect("connected");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    serving.client().features().expect("served");
    serving.wait_for(
        |s| matches!(s, Seen::Client(ClientEvent::Refused(why)) if why.contains("said nothing")),
    );
    drop(mute);
}
