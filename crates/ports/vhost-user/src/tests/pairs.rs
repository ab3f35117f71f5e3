//! Several pairs of rings.

use super::*;

const MQ: u64 = 1 << 22;

/// A frame of the UDP flow with this number.
fn datagram(flow: u8, number: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 46, 1, 2, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 100, flow, 0, 80, 0, 26, 0, 0]);
    frame.extend([number; 18]);
    frame
}

impl Setup {
    fn with_pairs(features: u64, rings: u16, pairs: usize) -> Self {
        let mut setup = setup_with(features | VERSION_1, rings, pairs);
        setup.until("connected", |setup| setup.count("vhost_connects") == 1);
        setup
    }

    fn pairs(&self) -> usize {
        self.device.rings.iter().flatten().count() / 2
    }

    /// The flow and the number of each frame in a transmit ring.
    fn sent(&self, pair: usize) -> Vec<(u8, u8)> {
        let queue = 2 * pair + 1;
        let seen = |n: u16| {
            let id = self.word(self.ring(queue).driver + 4 + 2 * u64::from(n));
            let mut frame = [0; 72];
            let at = self.buffer(queue, id);
            self.memory.view().read(at, &mut frame).expect("mapped");
            (frame[12 + 35], frame[71])
        };
        (0..self.available(queue)).map(seen).collect()
    }
}

#[test]
fn flows_are_spread_over_pairs_and_keep_their_order() {
    let mut setup = Setup::with_pairs(MQ, 8, 4);
    assert_eq!(setup.pairs(), 4);
    assert_eq!(setup.count("vhost_fewer_pairs"), 0);
    for number in 0..8 {
        let mut batch = Batch::new();
        for flow in 0..64 {
            batch.push_bytes(&datagram(flow, number));
            batch.end(Offload::NONE);
        }
        let mut room = Vec::new();
        assert_eq!(
            setup.port.sink.deliver(&batch, batch.all_picks(&mut room)),
            64
        );
    }
    let mut flows = std::collections::BTreeMap::new();
    for pair in 0..4 {
        let sent = setup.sent(pair);
        assert!(sent.len() >= 8 * 8, "{pair}: {}", sent.len());
        for (flow, number) in sent {
            let (at, numbers) = flows.entry(flow).or_insert((pair, Vec::new()));
            assert_eq!(*at, pair, "flow {flow} in two pairs");
            numbers.push(number);
        }
    }
    assert_eq!(flows.len(), 64);
    assert!(
        flows
            .values()
            .all(|(_, numbers)| *numbers == [0, 1, 2, 3, 4, 5, 6, 7])
    );
    // What comes, comes from all.
    for pair in 0..4 {
        setup.put(setup.buffer(2 * pair, 0), &[0; 12]);
        setup.put(setup.buffer(2 * pair, 0) + 12, &datagram(pair as u8, 1));
        setup.uses(2 * pair, 0, &[(0, 72)]);
    }
    setup.until("they have come", |setup| setup.count("frames_in") == 4);
}

#[test]
fn a_pair_without_room_keeps_what_is_for_others_behind_it() {
    let mut setup = Setup::with_pairs(MQ, 4, 2);
    let flow_of = |pair: usize| {
        let there = |flow: &u8| port::flow::spread(&datagram(*flow, 0), 2) == pair;
        (0..255).find(there).expect("flows of both")
    };
    let (full, other) = (flow_of(0), flow_of(1));
    let send = |setup: &Setup, flows: &[u8]| {
        let mut batch = Batch::new();
        for flow in flows {
            batch.push_bytes(&datagram(*flow, 0));
            batch.end(Offload::NONE);
        }
        let mut room = Vec::new();
        setup.port.sink.deliver(&batch, batch.all_picks(&mut room))
    };
    for _ in 0..1024 {
        assert_eq!(send(&setup, &[full]), 1);
    }
    // Nothing is sent twice, and nothing passes what is before it in the batch.
    assert_eq!(send(&setup, &[other, full, other]), 1);
    assert_eq!(send(&setup, &[other]), 1);
    assert_eq!(setup.available(3), 2);
    // Each ring has a clock of its own.
    let woken = Arc::new(Woken::default());
    let waker: Arc<dyn Wake> = woken.clone();
    setup.port.sink.want_room(&waker);
    setup.until("the sender is told", |_| {
        woken.0.load(Ordering::Relaxed) == 1
    });
    assert_eq!(send(&setup, &[full, other]), 2);
    assert_eq!(setup.count("vhost_stalled"), 1);
    assert_eq!(setup.available(3), 3);
    // A ring of the second pair that breaks ends all.
    setup.uses(3, 0, &[(5000, 0)]);
    for _ in 0..2000 {
        send(&setup, &[other]);
    }
    setup.until("it is noticed", |setup| {
        setup.count("vhost_broken_ring") == 1
    });
    assert!(!setup.inlet.link_up());
}

#[test]
fn a_back_end_with_fewer_pairs_is_used_with_those() {
    // It knows nothing of several.
    let setup = Setup::with_pairs(0, 2, 4);
    assert_eq!(setup.pairs(), 1);
    assert_eq!(setup.count("vhost_fewer_pairs"), 1);
    assert_eq!(setup.count("vhost_refused"), 0);
    // It says four and means rings: the next time two pairs are set up.
    let setup = Setup::with_pairs(MQ, 4, 4);
    assert_eq!(setup.pairs(), 2);
    assert_eq!(setup.count("vhost_fewer_pairs"), 1);
    assert_eq!(setup.count("vhost_refused"), 1);
    // And one has none too many.
    assert_eq!(Setup::with_pairs(MQ, 8, 2).pairs(), 2);
    let error = open(VhostUserConfig {
        pairs: 17,
        ..VhostUserConfig::new(Endpoint::Connect("/s".into()))
    });
    let text = error.err().expect("too many").to_string();
    assert!(text.contains("1 to 16 pairs"), "{text}");
}

/// Some back ends count the rings when the first one starts: OVS does not look at any that it hears of later.
#[test]
fn a_back_end_hears_of_all_rings_before_one_starts() {
    use std::io::{Read, Write};
    // Numbers of requests.
    const GET_FEATURES: u32 = 1;
    const SET_VRING_KICK: u32 = 12;
    const SET_VRING_CALL: u32 = 13;
    const GET_PROTOCOL_FEATURES: u32 = 15;
    const GET_QUEUE_NUM: u32 = 17;
    const SET_VRING_ENABLE: u32 = 18;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let mut config = VhostUserConfig::new(Endpoint::Connect(path));
    config.pairs = 3;
    let mut port = open(config).expect("a port");
    let mut inlet = port.inlet.take().expect("an inlet");
    let back_end = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a front end");
        let mut heard = Vec::new();
        let starts = |heard: &[u32]| heard.iter().filter(|r| **r == SET_VRING_ENABLE).count();
        while starts(&heard) < 6 {
            let mut header = [0; 12];
            stream.read_exact(&mut header).expect("a message");
            let [request, _, len] = [0, 4, 8].map(|at| {
                let word = header[at..at + 4].try_into().expect("four bytes");
                u32::from_le_bytes(word)
            });
            let mut payload = vec![0; len as usize];
            stream.read_exact(&mut payload).expect("all of it");
            heard.push(request);
            let answer: u64 = match request {
                GET_FEATURES => VERSION_1 | MQ | 1 << 30,
                GET_PROTOCOL_FEATURES => 1,
                GET_QUEUE_NUM => 3,
                _ => continue,
            };
            // Version 1, an answer, of eight bytes.
            let header = [request, 5, 8].map(u32::to_le_bytes).concat();
            let answer = [&header[..], &answer.to_le_bytes()].concat();
            stream.write_all(&answer).expect("taken");
        }
        heard
    });
    let end = Instant::now() + Duration::from_secs(20);
    while !back_end.is_finished() {
        assert!(Instant::now() < end, "never: all rings start");
        inlet.run(&Wire::default(), 64);
        std::thread::sleep(Duration::from_millis(1));
    }
    let heard = back_end.join().expect("it hears all");
    let last = heard.iter().rposition(|r| *r == SET_VRING_CALL);
    let first = heard.iter().position(|r| *r == SET_VRING_KICK);
    assert!(last < first, "{heard:?}");
}
