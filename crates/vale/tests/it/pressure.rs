//! Destinations without room: who waits, for how long, and what is dropped.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use frame::{Batch, Caps, Sink, Wake};
use guest_mem::ReadSlice;
use hypernic_vale::{Keeper, PortConfig, Switch, SwitchConfig, SwitchPort};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Csum, Gso, Offload};

const MANY: usize = usize::MAX;

/// A switch with a timer.
fn kept() -> (Switch, Hand, Arc<CountedWake>) {
    let (switch, hand) = switch(SwitchConfig::default());
    let alarm = Arc::new(CountedWake::default());
    switch.set_timer(alarm.clone());
    (switch, hand, alarm)
}

/// Makes stations 1 to 3 known on ports a to c, of which b has as much room as said.
fn three(switch: &Switch, room: usize) -> [(Arc<SwitchPort>, Arc<Recorder>); 3] {
    let ports = ["a", "b", "c"].map(|name| attach(switch, name, MANY));
    for (n, (port, _)) in ports.iter().enumerate() {
        send(port, 1000, &[(mac(n as u8 + 1), mac(n as u8 + 1))]);
    }
    *ports[1].1.room.lock() = room;
    ports
}

#[test]
fn the_batch_is_cut_where_the_only_destination_is_full() {
    let (switch, _, alarm) = kept();
    let [(a, _), (_, to_b), _] = three(&switch, 2);
    let frames = [(mac(2), mac(1)); 5];
    assert_eq!(send(&a, 0, &frames), 2);
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    a.want_room(&waker);
    assert_eq!((alarm.rung(), bell.rung()), (1, 0));
    to_b.make_room(2);
    assert_eq!(bell.rung(), 1);
    assert_eq!(send(&a, 2, &frames[2..]), 2);
    to_b.make_room(1);
    assert_eq!(send(&a, 4, &frames[4..]), 1);
    assert_eq!(to_b.numbers(), [0, 1, 2, 3, 4]);
    assert_eq!(count(&switch, "b", "drop_no_room"), 0);
    assert_eq!(count(&switch, "b", "held_up"), 2);
    assert_eq!(count(&switch, "a", "rx_frames"), 6);
}

#[test]
fn frames_behind_the_cut_that_went_elsewhere_are_not_sent_again() {
    let (switch, ..) = kept();
    let [(a, _), (_, to_b), (_, to_c)] = three(&switch, 1);
    let (b, c) = ((mac(2), mac(1)), (mac(3), mac(1)));
    // Frame 2 has to give way, for 3 is gone already; 4 and 5 may wait.
    assert_eq!(send(&a, 0, &[c, b, b, c, b, b]), 4);
    assert_eq!((to_b.numbers(), to_c.numbers()), (vec![1], vec![0, 3]));
    assert_eq!(count(&switch, "b", "drop_no_room"), 1);
    assert_eq!(count(&switch, "a", "rx_frames"), 5);
    // A flooded frame goes everywhere there is room.
    assert_eq!(send(&a, 4, &[b, (BROADCAST, mac(1)), b]), 2);
    assert_eq!((to_b.numbers(), to_c.numbers()), (vec![1], vec![0, 3, 5]));
    assert_eq!(count(&switch, "b", "drop_no_room"), 2);
    assert_eq!(count(&switch, "b", "drop_flood_no_room"), 1);
}

#[test]
fn nobody_is_held_up_where_nobody_looks_after_the_bound() {
    let off = SwitchConfig {
        backpressure: false,
        ..SwitchConfig::default()
    };
    for (config, alarm) in [(SwitchConfig::default(), false), (off, true)] {
        let (switch, _) = switch(config);
        if alarm {
            switch.set_timer(Arc::new(CountedWake::default()));
        }
        let [(a, _), (_, to_b), _] = three(&switch, 2);
        assert_eq!(send(&a, 0, &[(mac(2), mac(1)); 5]), 5);
        assert_eq!(to_b.numbers(), [0, 1]);
        assert_eq!(count(&switch, "b", "drop_no_room"), 3);
    }
}

#[test]
fn an_uplink_is_not_held_up_by_one_of_many_guests() {
    let (switch, ..) = kept();
    let [_a, (_b, to_b), _c] = three(&switch, 2);
    let uplink = PortConfig {
        waits: false,
        ..PortConfig::default()
    };
    let uplink = switch
        .attach("uplink", Recorder::new(0), uplink)
        .expect("free");
    assert_eq!(send(&uplink, 0, &[(mac(2), mac(9)); 5]), 5);
    assert_eq!(to_b.numbers(), [0, 1]);
    assert_eq!(count(&switch, "b", "drop_no_room"), 3);
}

/// A sink that can store frames is asked to where they would be lost, or hold up others.
#[test]
fn a_sink_leaves_frames_with_a_sender_that_may_wait_for_it_alone() {
    let (switch, hand, _) = kept();
    let [(a, _), (_b, to_b), _c] = three(&switch, 1);
    let by_keepers = || to_b.by_keepers.swap(0, std::sync::atomic::Ordering::SeqCst);
    let (to_2, to_3) = ((mac(2), mac(1)), (mac(3), mac(1)));
    assert_eq!(send(&a, 0, &[to_2; 3]), 1);
    assert_eq!(by_keepers(), 1, "of one receiver");
    to_b.make_room(9);
    assert_eq!(send(&a, 1, &[to_2, to_3, to_2]), 3);
    assert_eq!(send(&a, 4, &[(BROADCAST, mac(1))]), 1);
    assert_eq!(by_keepers(), 0, "of several");
    let uplink = PortConfig {
        waits: false,
        ..PortConfig::default()
    };
    let uplink = switch.attach("uplink", Recorder::new(0), uplink);
    let uplink = uplink.expect("free");
    assert_eq!(send(&uplink, 5, &[(mac(2), mac(9)); 2]), 2);
    assert_eq!(by_keepers(), 0, "an uplink keeps nothing");
    // One that has waited as long as it may.
    *to_b.room.lock() = 0;
    assert_eq!(send(&a, 7, &[to_2]), 0);
    assert_eq!(by_keepers(), 1);
    hand.advance(20 * MS);
    switch.tick();
    assert_eq!(send(&a, 7, &[to_2]), 1);
    assert_eq!(by_keepers(), 0, "it is stalled");
}

#[test]
fn a_stalled_port_holds_up_nobody_until_it_takes_frames_again() {
    let (switch, hand, alarm) = kept();
    let [(a, _), (_, to_b), _] = three(&switch, 0);
    let frames = [(mac(2), mac(1)); 3];
    assert_eq!(switch.tick(), None);
    assert_eq!(send(&a, 0, &frames), 0);
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    a.want_room(&waker);
    assert_eq!(alarm.rung(), 1);
    assert_eq!(switch.tick(), Some(20 * MS));
    hand.advance(20 * MS - 1);
    assert_eq!(switch.tick(), Some(20 * MS));
    assert_eq!(bell.rung(), 0);
    assert_eq!(send(&a, 0, &frames), 0);
    hand.advance(1);
    assert_eq!(switch.tick(), None);
    assert_eq!(bell.rung(), 1);
    assert_eq!(send(&a, 0, &frames), 3);
    assert_eq!(count(&switch, "b", "drop_no_room"), 3);
    hand.advance(1000 * MS);
    assert_eq!(send(&a, 3, &frames), 3);
    // It comes back, and may hold up senders anew.
    to_b.make_room(1);
    assert_eq!(send(&a, 6, &frames), 1);
    assert_eq!(to_b.numbers(), [6]);
    assert_eq!(send(&a, 7, &frames[1..]), 0);
    // The alarm sounds anew too, for the sender that waits now.
    a.want_room(&waker);
    assert_eq!(alarm.rung(), 2);
}

#[test]
fn a_port_that_takes_a_frame_just_before_the_bound_is_not_waited_for_each_time() {
    let (switch, hand, _) = kept();
    let [(a, _), (_, to_b), (_, to_c)] = three(&switch, 0);
    // What a sends to b is always followed by something for c.
    let (mut sent, mut waited) = (0, 0u64);
    while sent < 400 {
        let frame = [(if sent % 2 == 0 { mac(2) } else { mac(3) }, mac(1))];
        if send(&a, sent, &frame) == 1 {
            sent += 1;
            continue;
        }
        // Held up. Now and then, just before the bound, b takes one.
        hand.advance(MS);
        waited += 1;
        if waited.is_multiple_of(19) {
            to_b.make_room(1);
        }
    }
    // The bound once, and then a tenth of it for each of the frames that b took.
    let got = to_b.numbers().len() as u64;
    assert!(got < 50, "{got}: most have been dropped");
    assert_eq!(count(&switch, "b", "drop_no_room"), 200 - got);
    assert!(waited <= 20 + 2 * got, "{waited} ms for {got} frames");
    assert_eq!(to_c.numbers().len(), 200, "c gets all of its own");
}

/// A receiver that buys back patience as fast as it spends it still does not set the pace of all that its sender sends.
#[test]
fn a_port_that_is_slow_by_design_takes_a_tenth_of_its_senders_time_and_no_more() {
    let (switch, hand, _) = kept();
    let [(a, _), (_, to_b), (_, to_c)] = three(&switch, 0);
    let (mut sent, mut waited) = (0, 0);
    for _ in 0..4000 {
        let to = if sent % 2 == 0 { mac(2) } else { mac(3) };
        if send(&a, sent, &[(to, mac(1))]) == 1 {
            sent += 1;
        } else {
            waited += 1;
            to_b.make_room(1);
        }
        hand.advance(MS);
    }
    assert!((300..=4 * 101).contains(&waited), "{waited} of 4000 ms");
    assert!(to_c.numbers().len() >= 1790, "{}", to_c.numbers().len());
    assert!(count(&switch, "a", "patience_spent") > 0);
    let got = to_b.numbers().len() as u64;
    assert_eq!(count(&switch, "b", "drop_no_room") + got, sent.div_ceil(2));
}

#[test]
fn a_port_that_is_slow_but_steady_is_waited_for_for_ever() {
    let (switch, hand, _) = kept();
    let [(a, _), (_, to_b), _] = three(&switch, 0);
    let mut sent = 0;
    while sent < 1000 {
        match send(&a, sent, &[(mac(2), mac(1)); 8]) {
            0 => {
                hand.advance(10 * MS);
                to_b.make_room(6);
            }
            n => sent += n as u64,
        }
    }
    assert_eq!(count(&switch, "b", "drop_no_room"), 0);
}

#[test]
fn a_flood_to_the_only_other_port_makes_a_sender_no_less_patient() {
    let (switch, hand, _) = kept();
    let [(a, _), (b, to_b)] = ["a", "b"].map(|name| attach(&switch, name, 0));
    // Nobody has these addresses yet.
    to_b.make_room(2);
    assert_eq!(send(&a, 0, &[(mac(9), mac(1)), (mac(2), mac(1))]), 2);
    send(&b, 0, &[(mac(1), mac(2))]);
    // A frame each 10 ms is what b takes.
    let steadily = |numbers: Range<u64>| {
        let (mut sent, mut waited) = (numbers.start, 0);
        while sent < numbers.end {
            match send(&a, sent, &[(mac(2), mac(1))]) {
                0 => {
                    hand.advance(10 * MS);
                    waited += 10;
                    to_b.make_room(1);
                }
                n => sent += n as u64,
            }
        }
        waited
    };
    let waited = steadily(2..100);
    assert!(waited > 900, "{waited} ms in the second of the flood");
    assert_eq!(to_b.numbers(), (0..100).collect::<Vec<_>>());
    assert_eq!(count(&switch, "b", "drop_no_room"), 0);
    // With a third port a flood is frames for another.
    let (_c, _) = attach(&switch, "c", 0);
    send(&a, 100, &[(mac(9), mac(1))]);
    let waited = steadily(101..200);
    assert!((90..=110).contains(&waited), "{waited} ms");
    assert!(count(&switch, "b", "drop_no_room") > 80);
}

#[test]
fn who_waits_for_a_port_that_goes_is_woken() {
    let (switch, ..) = kept();
    let [(a, _), (_old_b, _), _] = three(&switch, 0);
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    let frame = [(mac(2), mac(1))];
    assert_eq!(send(&a, 0, &frame), 0);
    a.want_room(&waker);
    assert!(switch.detach("b"));
    assert_eq!(bell.rung(), 1);
    // Too late to register: woken at once.
    a.want_room(&waker);
    assert_eq!(bell.rung(), 2);
    assert_eq!(send(&a, 0, &frame), 1);

    let (b, _) = attach(&switch, "b", 0);
    send(&b, 5, &[(mac(2), mac(2))]);
    assert_eq!(send(&a, 0, &frame), 0);
    a.want_room(&waker);
    switch.clear_timer();
    assert_eq!(bell.rung(), 3);
    assert_eq!(send(&a, 0, &frame), 1);
}

/// A TCP frame of 5000 bytes payload to be cut to `gso_size`.
fn large(batch: &mut Batch<'static>, dst: [u8; 6], src: [u8; 6], gso_size: u16) {
    static PAYLOAD: [u8; 5000] = [7; 5000];
    batch.push_bytes(&dst);
    batch.push_bytes(&src);
    let ip = [
        8, 0, 0x45, 0, 0x13, 0xb0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    batch.push_bytes(&ip);
    let tcp = [
        0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 1, 0, 0, 0, 0,
    ];
    batch.push_bytes(&tcp);
    batch.push_slice(ReadSlice::from_bytes(&PAYLOAD));
    batch.end(Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size,
        hdr_len: 54,
        ..Offload::NONE
    });
}

#[test]
fn a_large_frame_trickles_into_a_small_ring_without_loss() {
    let (switch, hand, _) = kept();
    let [(a, _), (_, to_b), _] = three(&switch, 0);
    let mut batch = Batch::new();
    large(&mut batch, mac(2), mac(1), 100);
    let mut calls = 0;
    while a.deliver(&batch, &[0]) == 0 {
        *to_b.room.lock() = 8;
        hand.advance(15 * MS);
        calls += 1;
        assert!(calls < 20);
    }
    let got = to_b.got.lock();
    assert_eq!(got.len(), 50);
    let seq = |f: &Vec<u8>| u32::from_be_bytes(f[38..42].try_into().expect("four"));
    let want: Vec<u32> = (0..50).map(|i| i * 100).collect();
    assert_eq!(got.iter().map(seq).collect::<Vec<_>>(), want);
    assert_eq!(count(&switch, "b", "tx_frames"), 1);
    assert_eq!(count(&switch, "b", "drop_no_room"), 0);
}

#[test]
fn frames_are_finished_only_for_those_who_need_it() {
    let (switch, ..) = kept();
    let (a, _) = attach(&switch, "a", MANY);
    let able = Recorder::with_caps(MANY, Caps::ALL);
    switch
        .attach("able", able.clone(), PortConfig::default())
        .expect("free");
    let (_plain, plain) = attach(&switch, "plain", MANY);
    let mut batch = Batch::new();
    large(&mut batch, BROADCAST, mac(1), 100);
    large(&mut batch, BROADCAST, mac(1), 100);
    assert_eq!(a.deliver(&batch, &[0, 1]), 2);
    let lengths = |r: &Recorder| r.got.lock().iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(&able), [5054; 2]);
    assert_eq!(lengths(&plain), [154; 100]);

    let mut bad = Batch::new();
    bad.push_bytes(&BROADCAST);
    bad.push_bytes(&[2; 4000]);
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: 1,
        hdr_len: 54,
        ..Offload::NONE
    };
    bad.end(notes);
    large(&mut bad, BROADCAST, mac(1), 1);
    // A frame that claims so many segments has a call of its own.
    assert_eq!(a.deliver(&bad, &[0, 1]), 1);
    assert_eq!(a.deliver(&bad, &[1]), 1);
    assert_eq!(count(&switch, "a", "drop_too_many_segments"), 1);
    assert_eq!(count(&switch, "a", "drop_bad_notes"), 1);
    assert_eq!(count(&switch, "plain", "tx_frames"), 2);
    assert_eq!(count(&switch, "able", "tx_frames"), 4);
}

/// A sender has its share of a flood at once, and the rest when others have had their turn.
#[test]
fn a_flood_to_many_is_made_in_parts() {
    let config = SwitchConfig {
        max_ports: 200,
        ..SwitchConfig::default()
    };
    let (switch, _) = switch(config);
    switch.set_timer(Arc::new(CountedWake::default()));
    let names: Vec<_> = (0..128).map(|n| format!("p{n}")).collect();
    let ports: Vec<_> = names
        .iter()
        .map(|name| attach(&switch, name, MANY))
        .collect();
    let (a, _) = &ports[0];
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    let frames = [(BROADCAST, mac(1)); 20];
    for (done, at_once) in [(0, 8), (8, 8), (16, 4)] {
        assert_eq!(send(a, done as u64, &frames[done..]), at_once);
        a.want_room(&waker);
    }
    assert_eq!(bell.rung(), 3, "it may go on at once");
    let want: Vec<u64> = (0..20).collect();
    for (_, to) in &ports[1..] {
        assert_eq!(to.numbers(), want);
    }
    assert_eq!(count(&switch, "p0", "rx_broadcast"), 20);
}

proptest! {
    /// However many receivers there are and however frames are cut, one call makes its share of copies and one frame more.
    #[test]
    fn no_call_makes_more_copies_than_its_share(
        ports in 2..150usize,
        frames in vec((0..4u8, prop_oneof![Just(0u16), 20..5000u16]), 1..64),
    ) {
        let (switch, ..) = kept();
        let names: Vec<_> = (0..ports).map(|n| format!("p{n}")).collect();
        let ports: Vec<_> = names.iter().map(|name| attach(&switch, name, MANY)).collect();
        let (a, _) = &ports[0];
        send(&ports[1].0, 0, &[(mac(2), mac(2))]);
        let mut batch = Batch::new();
        let (mut costs, mut unicast) = (Vec::new(), 0);
        for (to, gso_size) in &frames {
            // Everybody, a group, a stranger, and the station on the second port.
            let dst = [BROADCAST, [1, 0, 0x5e, 0, 0, 1], mac(99), mac(2)][usize::from(*to)];
            let segments = match gso_size {
                0 => 1,
                size => 5000usize.div_ceil((*size).into()),
            };
            match gso_size {
                0 => push(&mut batch, dst, mac(1), 0),
                size => large(&mut batch, dst, mac(1), *size),
            }
            if *to == 3 {
                unicast += segments;
            } else {
                costs.push(segments * ports.len());
            }
        }
        let dearest = costs.iter().copied().max().unwrap_or(0);
        let mut left: Vec<u16> = (0..frames.len() as u16).collect();
        while !left.is_empty() {
            frame::work::take();
            let taken = a.deliver(&batch, &left);
            let made = frame::work::take() as usize;
            prop_assert!(taken > 0);
            prop_assert!(made <= 1024.max(dearest) + unicast, "{made} copies");
            left.drain(..taken);
        }
        prop_assert_eq!(count(&switch, "p1", "drop_no_room"), 0);
    }

    /// Whatever the room, nothing arrives twice, late or unaccounted for.
    #[test]
    fn no_frame_is_lost_uncounted_or_doubled(
        frames in vec(0..5u8, 1..80),
        rooms in vec((0..6usize, 0..6usize, 0..30u64), 1..60),
    ) {
        let (switch, hand, _) = kept();
        let [(a, to_a), (_, to_b), (_, to_c)] = three(&switch, 0);
        *to_c.room.lock() = 0;
        let dst = |n| match n {
            0 => BROADCAST,
            4 => mac(99),
            n => mac(n),
        };
        let wire: Vec<_> = frames.iter().map(|n| (dst(*n), mac(1))).collect();
        let mut done = 0;
        let mut rooms = rooms.into_iter();
        while done < wire.len() {
            let (b, c, time) = rooms.next().unwrap_or((9, 9, 1));
            *to_b.room.lock() += b;
            *to_c.room.lock() += c;
            hand.advance(time * MS);
            done += send(&a, done as u64, &wire[done..]);
        }
        prop_assert_eq!(to_a.numbers(), Vec::<u64>::new());
        for (name, to, own) in [("b", &to_b, 2), ("c", &to_c, 3)] {
            let got = to.numbers();
            prop_assert!(got.is_sorted_by(|x, y| x < y), "{got:?}");
            for number in &got {
                let n = frames[*number as usize];
                prop_assert!(n == own || n == 0 || n == 4);
            }
            let sum = |wanted: &dyn Fn(u8) -> bool| {
                let got = got.iter().filter(|i| wanted(frames[**i as usize]));
                let sent = frames.iter().filter(|n| wanted(**n));
                (sent.count() - got.count()) as u64
            };
            let lost = sum(&|n| n == own);
            prop_assert_eq!(lost, count(&switch, name, "drop_no_room"));
            let lost = sum(&|n| n == 0 || n == 4);
            prop_assert_eq!(lost, count(&switch, name, "drop_flood_no_room"));
            prop_assert_eq!(got.len() as u64, count(&switch, name, "tx_frames"));
            // `give_up` reported what it did not get, so that a NIC can count it as missed.
            let mut all = got.clone();
            all.extend(to.given_up.lock().iter());
            all.sort_unstable();
            let meant = |(_, n): &(u64, &u8)| **n == own || **n == 0 || **n == 4;
            let meant = (0u64..).zip(&frames).filter(meant).map(|(i, _)| i);
            prop_assert_eq!(all, meant.collect::<Vec<_>>());
        }
        prop_assert_eq!(count(&switch, "a", "rx_frames") as usize, frames.len() + 1);
    }
}

/// Unparks the thread that waits.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

#[test]
fn the_keeper_frees_whoever_waits_for_a_port_that_hangs() {
    let start = Instant::now();
    let clock = Arc::new(move || start.elapsed().as_nanos() as u64);
    let switch = Switch::new(SwitchConfig::default(), clock);
    let keeper = Keeper::start(&switch).expect("a thread");
    let [(a, _), ..] = three(&switch, 0);
    let waker: Arc<dyn Wake> = Arc::new(Unpark(thread::current()));
    let frame = [(mac(2), mac(1))];
    let mut waits = 0;
    while send(&a, 0, &frame) == 0 {
        a.want_room(&waker);
        if send(&a, 0, &frame) == 1 {
            break;
        }
        waits += 1;
        // Far beyond the bound: to end the test, not to pass it.
        thread::park_timeout(Duration::from_secs(30));
        assert!(start.elapsed() < Duration::from_secs(25), "not woken");
    }
    assert!(waits > 0, "it was held up");
    assert_eq!(count(&switch, "b", "drop_no_room"), 1);
    drop(keeper);
    assert_eq!(send(&a, 1, &frame), 1);
}
