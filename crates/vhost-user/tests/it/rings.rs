//! Rings start, run, move and stop.

use std::os::fd::AsFd;

use hypernic_vhost_user::codec::{MemRegion, Message, VringState, feature, vring_flags};
use hypernic_vhost_user::{Client, Listener};

use crate::common::{Guest, RAM, Seen, USER, WAIT, device, pair, region, serve};

#[test]
fn frames_cross_a_pair_of_rings() {
    let (serving, mut client, mut guest) = pair();
    for n in 0..40 {
        guest.round_trip(0, format!("frame {n}").as_bytes());
    }
    for queue in [0, 1] {
        assert_eq!(client.get_vring_base(queue).expect("stopped"), 40);
    }
    let counters = serving.end();
    assert_eq!(
        (counters("rings_started"), counters("rings_stopped")),
        (2, 2)
    );
    assert!(counters("kicks") >= 1 && counters("calls") >= 80);
}

#[test]
fn a_ring_goes_on_where_it_stopped() {
    let (serving, mut client, mut guest) = pair();
    guest.round_trip(0, b"one");
    for queue in [0, 1] {
        assert_eq!(client.get_vring_base(queue).expect("stopped"), 1);
    }
    // A stopped ring is not touched, whatever is in it.
    guest.put(1, 2, 4, false);
    guest.kicks[1].signal();
    client.features().expect("answered");
    assert_eq!(guest.used_index(1), 1);
    guest.put(0, 2, 4, true);
    for queue in [0, 1] {
        // It is enabled already, so it starts with its eventfd, and what is in it needs no kick.
        guest.start(&mut client, queue, 1);
    }
    assert_eq!((guest.used(1), guest.used(0)), ((2, 0), (2, 4)));
    let seen = serving.seen.lock();
    assert!(seen.contains(&Seen::Start(0, 1)) && seen.contains(&Seen::Start(1, 1)));
}

#[test]
fn each_start_is_followed_by_one_call() {
    let (_serving, mut client, guest) = pair();
    assert_eq!(guest.calls[0].wait(WAIT), Some(1));
    client.get_vring_base(0).expect("stopped");
    assert_eq!(guest.calls[0].take(), 0);
    guest.start(&mut client, 0, 0);
    assert_eq!(guest.calls[0].wait(WAIT), Some(1));
}

#[test]
fn a_ring_that_is_not_enabled_starts_with_its_first_kick_and_drops() {
    let serving = serve();
    let mut client = serving.client();
    let mut guest = Guest::new();
    client
        .set_features(1 << 32 | feature::PROTOCOL)
        .expect("set");
    guest.share(&mut client);
    for queue in [2, 3] {
        guest.start(&mut client, queue, 0);
    }
    client.features().expect("answered");
    assert!(!serving.seen.lock().contains(&Seen::Start(3, 0)));
    guest.put(3, 1, 9, false);
    guest.kicks[3].signal();
    assert_eq!(guest.used(3), (1, 0), "what is sent is dropped");
    assert_eq!(guest.used_index(2), 0);
    // The receiving ring, which has not been kicked, starts when it is enabled.
    assert!(!serving.seen.lock().contains(&Seen::Start(2, 0)));
    for queue in [2, 3] {
        client.set_vring_enable(queue, true).expect("enabled");
    }
    assert!(serving.seen.lock().contains(&Seen::Start(2, 0)));
    guest.round_trip(1, b"now");
}

#[test]
fn without_protocol_features_all_rings_are_enabled() {
    let serving = serve();
    let mut client = Client::connect(&serving.path).expect("connected");
    let mut guest = Guest::new();
    client.set_owner().expect("owner");
    client.set_features(1 << 32).expect("set");
    guest.share(&mut client);
    for queue in [0, 1] {
        guest.start(&mut client, queue, 0);
    }
    guest.round_trip(0, b"as it was of old");
    assert!(serving.seen.lock().contains(&Seen::Enable(3, true)));
}

#[test]
fn rings_whose_driver_does_not_kick_are_polled() {
    let serving = serve();
    let mut client = serving.client();
    let mut guest = Guest::new();
    guest.share(&mut client);
    for queue in [0u8, 1] {
        client
            .set_vring_enable(u32::from(queue), true)
            .expect("enabled");
        guest.start(&mut client, u16::from(queue), 0);
        client.set_vring_kick(queue, None).expect("polled");
        client.set_vring_call(queue, None).expect("polled");
    }
    guest.put(0, 1, 50, true);
    guest.fill(Guest::buffer(1, 1), b"quiet");
    guest.put(1, 1, 5, false);
    assert_eq!((guest.used(0), guest.used(1)), ((1, 5), (1, 0)));
}

#[test]
fn memory_comes_and_goes_under_running_rings() {
    let (serving, mut client, mut guest) = pair();
    let more = hypernic_vhost_user::SharedMem::new("more", 0x1000).expect("a memfd");
    let hotplugged = MemRegion {
        guest: 1 << 40,
        size: 0x1000,
        user: 1 << 44,
        mmap_offset: 0,
    };
    // All anew, with one more; and without it.
    client
        .set_mem_table(&[hotplugged, region()], &[more.as_fd(), guest.ram.as_fd()])
        .expect("taken");
    guest.round_trip(0, b"with more memory");
    guest.share(&mut client);
    client
        .add_mem_reg(&hotplugged, more.as_fd())
        .expect("added");
    guest.round_trip(0, b"slot by slot");
    client.rem_mem_reg(&hotplugged).expect("removed");
    guest.round_trip(0, b"and away");
    assert!(client.max_mem_slots().expect("answered") >= 32);
    assert!(
        !serving
            .seen
            .lock()
            .iter()
            .any(|s| matches!(s, Seen::Stop(_)))
    );
    // Without the memory they are in, rings end.
    client.rem_mem_reg(&region()).expect("removed");
    let seen = serving.seen.lock().clone();
    assert!(seen.contains(&Seen::Stop(0)) && seen.contains(&Seen::Stop(1)));
    assert!(serving.memory.regions().is_empty());
    assert_eq!(serving.end()("rings_lost"), 2);
}

#[test]
fn a_ring_that_moves_while_it_runs_ends_and_one_that_stays_goes_on() {
    let (serving, mut client, mut guest) = pair();
    guest.round_trip(0, b"here");
    client.set_vring_addr(&Guest::addr(0)).expect("the same");
    guest.round_trip(0, b"still here");
    assert!(!serving.seen.lock().contains(&Seen::Stop(0)));
    let mut elsewhere = Guest::addr(0);
    elsewhere.used += 0x100;
    client.set_vring_addr(&elsewhere).expect("taken");
    assert!(serving.seen.lock().contains(&Seen::Stop(0)));
    for message in [
        Message::SetVringNum(VringState { index: 1, num: 16 }),
        Message::SetVringBase(VringState { index: 1, num: 0 }),
    ] {
        client.send(&message, false, &[]).expect("sent");
    }
    client.features().expect("answered");
    assert!(serving.seen.lock().contains(&Seen::Stop(1)));
}

#[test]
fn logging_of_a_ring_begins_and_ends_while_it_runs() {
    let (serving, mut client, mut guest) = pair();
    let mut addr = Guest::addr(1);
    addr.flags = vring_flags::LOG;
    addr.log = 0x1234_5000;
    client.set_vring_addr(&addr).expect("taken");
    assert!(
        serving
            .seen
            .lock()
            .contains(&Seen::RingLog(1, Some(0x1234_5000)))
    );
    client.set_vring_addr(&Guest::addr(1)).expect("taken");
    assert!(serving.seen.lock().contains(&Seen::RingLog(1, None)));
    guest.round_trip(0, b"all the while");
    assert!(!serving.seen.lock().contains(&Seen::Stop(1)));
}

#[test]
fn packed_rings_have_other_parts() {
    let serving = serve();
    let mut client = serving.client();
    let guest = Guest::new();
    client
        .set_features(1 << 32 | feature::PACKED | feature::PROTOCOL)
        .expect("set");
    guest.share(&mut client);
    // No power of two, and event structures at the very end of memory.
    client.set_vring_num(0, 100).expect("size");
    let mut addr = Guest::addr(0);
    addr.available = USER + RAM as u64 - 8;
    addr.used = USER + RAM as u64 - 4;
    client.set_vring_base(0, 0x8001_8002).expect("base");
    client.set_vring_addr(&addr).expect("address");
    client.set_vring_enable(0, true).expect("enabled");
    client
        .set_vring_kick(0, Some(&guest.kicks[0]))
        .expect("kick");
    assert!(serving.seen.lock().contains(&Seen::Start(0, 0x8001_8002)));
}

#[test]
fn the_next_front_end_finds_everything_as_new() {
    let (serving, client, mut guest) = pair();
    guest.round_trip(0, b"one");
    drop(client);
    serving.wait_for(|s| *s == Seen::Enable(1, false));
    let seen = serving.seen.lock().clone();
    assert!(seen.contains(&Seen::Stop(0)) && seen.contains(&Seen::Stop(1)));
    assert!(seen.contains(&Seen::Enable(0, false)));
    serving.seen.lock().clear();
    let mut client = serving.client();
    assert!(serving.memory.regions().is_empty());
    assert_eq!(client.get_vring_base(0).expect("answered"), 0);
    guest.share(&mut client);
    for queue in [0, 1] {
        // As after a crash: at the used index that guest memory has.
        guest.start(&mut client, queue, 1);
        client
            .set_vring_enable(u32::from(queue), true)
            .expect("enabled");
    }
    guest.round_trip(0, b"two");
}

#[test]
fn a_turn_is_one_receive_and_one_send() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let (mut echo, mut server) = device(Listener::from_connected(ours.into()));
    let mut client = Client::from_connected(theirs.into());
    for _ in 0..50 {
        client
            .send(&Message::GetFeatures, false, &[])
            .expect("sent");
    }
    let progress = server.process(&mut echo, 1024).expect("served");
    assert_eq!(progress.messages, 50);
    let mut calls = (0, 0);
    server.counters(&mut |name, value| match name {
        "recv_calls" => calls.0 = value,
        "send_calls" => calls.1 = value,
        _ => {}
    });
    assert_eq!(calls, (1, 1));
    for _ in 0..50 {
        client.receive().expect("answered");
    }
    drop(client);
    let mut finished = false;
    for _ in 0..3 {
        finished |= server.process(&mut echo, 1024).expect("served").finished;
    }
    assert!(finished, "the one connection is over");
}
