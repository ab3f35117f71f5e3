//! The port before a back end that does what it likes.

mod packed;
mod pairs;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Sink, Wake};
use guest_mem::Memory;
use parking_lot::Mutex;
use port::{Inlet, InletStatus, Port, counter};
use vhost_user::{Backend, Listener, Refused, Ring, Server};
use wire::{Csum, Gso, Offload};

use crate::{Endpoint, VhostUserConfig, open};

const VERSION_1: u64 = 1 << 32;
const MRG_RXBUF: u64 = 1 << 15;
const CSUM: u64 = 1;
const HOST_TSO4: u64 = 1 << 11;
const HOST_ECN: u64 = 1 << 13;

/// A sink that takes as many frames as it is told.
#[derive(Default)]
struct Wire {
    got: Mutex<Vec<Vec<u8>>>,
    refuses: Mutex<bool>,
}

impl Sink for Wire {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if *self.refuses.lock() {
            return 0;
        }
        let frames = picks.iter().filter_map(|pick| batch.get((*pick).into()));
        self.got.lock().extend(frames.map(|frame| frame.to_vec()));
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the back end knows of its rings.
struct Device {
    features: u64,
    rings: Vec<Option<Ring>>,
}

impl Backend for Device {
    fn queues(&self) -> u16 {
        self.rings.len() as u16
    }
    fn features(&self) -> u64 {
        self.features
    }
    fn set_features(&mut self, _: u64) -> Result<(), Refused> {
        Ok(())
    }
    fn start(&mut self, queue: u16, ring: &Ring) -> Result<(), Refused> {
        self.rings[usize::from(queue)] = Some(ring.clone());
        Ok(())
    }
    fn stop(&mut self, queue: u16) -> u32 {
        self.rings[usize::from(queue)] = None;
        0
    }
    fn enable(&mut self, _: u16, _: bool) {}
    fn kicked(&mut self, _: u16) {}
    fn reset(&mut self) {}
}

/// A port and the back end that it drives.
struct Setup {
    _dir: tempfile::TempDir,
    server: Server,
    device: Device,
    memory: Memory,
    port: Port,
    inlet: Box<dyn Inlet>,
    wire: Wire,
    path: PathBuf,
}

const PATIENCE: Duration = Duration::from_millis(60);

fn setup(features: u64) -> Setup {
    setup_with(features, 2, 1)
}

/// The same with so many rings of the back end's, and pairs that are wanted.
fn setup_with(features: u64, rings: u16, pairs: usize) -> Setup {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    let server = Server::new(rings, Listener::bind(&path).expect("bound")).expect("a server");
    let mut config = VhostUserConfig::new(Endpoint::Connect(path.clone()));
    config.pairs = pairs;
    config.patience = PATIENCE;
    config.retry_max = Duration::from_millis(20);
    let mut port = open(config).expect("a port");
    let inlet = port.inlet.take().expect("an inlet");
    Setup {
        _dir: dir,
        memory: server.memory(),
        server,
        device: Device {
            features,
            rings: vec![None; rings.into()],
        },
        port,
        inlet,
        wire: Wire::default(),
        path,
    }
}

impl Setup {
    /// A session that has begun.
    fn begun(features: u64) -> Self {
        let mut setup = setup(features | VERSION_1);
        setup.until("connected", |setup| setup.count("vhost_connects") == 1);
        setup
    }

    fn step(&mut self) -> InletStatus {
        self.server
            .process(&mut self.device, 64)
            .expect("no fault of ours");
        self.inlet.run(&self.wire, 64)
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < end, "never: {what}");
            self.step();
        }
    }

    fn count(&self, name: &str) -> u64 {
        counter(&*self.port.counters, name).expect("a counter")
    }

    fn ring(&self, queue: usize) -> &Ring {
        self.device.rings[queue].as_ref().expect("started")
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.view().write(at, bytes).expect("mapped");
    }

    fn word(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        self.memory.view().read(at, &mut bytes).expect("mapped");
        u16::from_le_bytes(bytes)
    }

    fn available(&self, queue: usize) -> u16 {
        self.word(self.ring(queue).driver + 2)
    }

    /// The buffer of a descriptor.
    fn buffer(&self, queue: usize, descriptor: u16) -> u64 {
        let mut bytes = [0; 8];
        let at = self.ring(queue).descriptors + 16 * u64::from(descriptor);
        self.memory.view().read(at, &mut bytes).expect("mapped");
        u64::from_le_bytes(bytes)
    }

    /// Uses buffers, and shows that.
    fn uses(&self, queue: usize, from: u16, elements: &[(u32, u32)]) {
        let ring = self.ring(queue);
        for (n, (id, len)) in (from..).zip(elements) {
            let at = ring.device + 4 + 8 * u64::from(n % ring.size);
            self.put(at, &[id.to_le_bytes(), len.to_le_bytes()].concat());
        }
        let index = from.wrapping_add(elements.len() as u16);
        self.put(ring.device + 2, &index.to_le_bytes());
    }

    /// Offers so many frames to the port.
    fn send(&self, frames: usize, len: usize, notes: Offload) -> usize {
        let mut batch = Batch::new();
        for n in 0..frames {
            batch.push_bytes(&vec![n as u8; len]);
            batch.end(notes);
        }
        let mut room = Vec::new();
        self.port.sink.deliver(&batch, batch.all_picks(&mut room))
    }
}

#[test]
fn frames_come_from_one_buffer_or_several_and_the_buffers_go_back() {
    let mut setup = Setup::begun(MRG_RXBUF);
    assert_eq!(setup.available(0), 1024);
    let header = |buffers: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, buffers, 0];
    let (first, second, third) = (setup.buffer(0, 0), setup.buffer(0, 1), setup.buffer(0, 2));
    setup.put(first, &[&header(1)[..], &[1; 60]].concat());
    setup.put(second, &[&header(2)[..], &[2; 2036]].concat());
    setup.put(third, &[3; 100]);
    setup.uses(0, 0, &[(0, 72), (1, 2048), (2, 100)]);
    setup.until("they have come", |setup| setup.count("frames_in") == 2);
    let long = [&[2; 2036][..], &[3; 100]].concat();
    assert_eq!(*setup.wire.got.lock(), [vec![1; 60], long]);
    assert_eq!(setup.available(0), 1027);
    assert_eq!(setup.count("bytes_in"), 60 + 2136);
}

#[test]
fn what_finds_no_room_waits_and_its_buffers_stay() {
    let mut setup = Setup::begun(0);
    *setup.wire.refuses.lock() = true;
    setup.put(setup.buffer(0, 0), &[7; 72]);
    setup.put(setup.buffer(0, 0), &[0; 12]);
    setup.uses(0, 0, &[(0, 72)]);
    assert_eq!(setup.step(), InletStatus::Blocked);
    assert_eq!(setup.available(0), 1024);
    *setup.wire.refuses.lock() = false;
    assert_eq!(setup.step(), InletStatus::Idle);
    assert_eq!(*setup.wire.got.lock(), [vec![7; 60]]);
    assert_eq!(setup.available(0), 1025);
    // And what waits when the back end leaves is counted.
    *setup.wire.refuses.lock() = true;
    setup.put(setup.buffer(0, 1), &[0; 72]);
    setup.uses(0, 1, &[(1, 72)]);
    assert_eq!(setup.step(), InletStatus::Blocked);
    drop(std::fs::remove_file(&setup.path));
    setup.server = Server::new(2, Listener::bind(&setup.path).expect("bound")).expect("another");
    setup.until("it is missed", |setup| {
        setup.count("vhost_disconnects") == 1
    });
    assert_eq!(setup.count("vhost_lost"), 1);
}

#[test]
fn runts_and_headers_that_lie_cost_their_frame_only() {
    let mut setup = Setup::begun(MRG_RXBUF | 2);
    // Too short; segments of TCP without a checksum; a checksum beyond the end; good.
    let headers: [[u8; 12]; 4] = [
        [0; 12],
        [0, 1, 0, 0, 100, 0, 0, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 0, 59, 0, 0, 0, 1, 0],
        [0; 12],
    ];
    for (n, header) in (0..).zip(headers) {
        setup.put(setup.buffer(0, n), &[&header[..], &[5; 60]].concat());
    }
    setup.uses(0, 0, &[(0, 20), (1, 72), (2, 72), (3, 72)]);
    setup.until("the good one has come", |setup| {
        setup.count("frames_in") == 1
    });
    assert_eq!(setup.count("vhost_runt"), 1);
    assert_eq!(setup.count("vhost_bad_header"), 2);
    assert_eq!(setup.available(0), 1028, "all buffers go back");
}

#[test]
fn a_ring_that_cannot_be_ends_the_connection_and_the_next_one_is_good() {
    let lies: [fn(&Setup); 5] = [
        // A buffer that it has not, one twice, more than there are, more bytes than fit, a part that is missing.
        |setup| setup.uses(0, 0, &[(1024, 72)]),
        |setup| setup.uses(0, 0, &[(3, 72), (3, 72)]),
        |setup| setup.uses(0, 1030, &[(0, 72)]),
        |setup| setup.uses(0, 0, &[(0, 2049)]),
        |setup| {
            setup.put(setup.buffer(0, 0) + 10, &[2, 0]);
            setup.uses(0, 0, &[(0, 2048)]);
        },
    ];
    let mut setup = Setup::begun(MRG_RXBUF);
    for (n, lie) in (1..).zip(lies) {
        lie(&setup);
        setup.until("it is noticed", |setup| {
            setup.count("vhost_broken_ring") == n
        });
        assert_eq!(setup.count("vhost_disconnects"), n);
        assert!(!setup.inlet.link_up());
        setup.until("they meet again", |setup| {
            setup.count("vhost_connects") == n + 1
        });
    }
    // The same of the transmit ring, found by a sender.
    setup.uses(1, 0, &[(5000, 0)]);
    for _ in 0..2000 {
        setup.send(1, 60, Offload::NONE);
    }
    setup.until("it is noticed", |setup| {
        setup.count("vhost_broken_ring") == 6
    });
    assert!(setup.count("vhost_down") > 0);
}

#[test]
fn a_back_end_that_takes_nothing_holds_up_its_senders_for_a_while_only() {
    let mut setup = Setup::begun(0);
    let woken = Arc::new(Woken::default());
    let waker: Arc<dyn Wake> = woken.clone();
    for _ in 0..16 {
        assert_eq!(setup.send(64, 60, Offload::NONE), 64);
    }
    assert_eq!(setup.send(64, 60, Offload::NONE), 0, "1024 are there");
    setup.port.sink.want_room(&waker);
    setup.until("the sender is told", |_| {
        woken.0.load(Ordering::Relaxed) == 1
    });
    assert_eq!(setup.send(64, 60, Offload::NONE), 64);
    assert_eq!(setup.count("vhost_stalled"), 64);
    assert_eq!(setup.count("frames_out"), 1024);
    // It takes some: there is room again.
    setup.uses(1, 0, &[(0, 0), (1, 0)]);
    assert_eq!(setup.send(64, 60, Offload::NONE), 2);
    setup.port.sink.want_room(&waker);
    setup.uses(1, 2, &[(2, 0)]);
    setup.until("the sender is woken", |_| {
        woken.0.load(Ordering::Relaxed) == 2
    });
    assert_eq!(setup.send(1, 60, Offload::NONE), 1);
    // What it had when it left, and had not used, may not have been taken.
    setup.uses(1, 3, &[(3, 0), (4, 0)]);
    let held = u64::from(setup.available(1).wrapping_sub(5));
    setup.server = Server::new(
        1,
        Listener::bind(setup.path.with_extension("x")).expect("bound"),
    )
    .expect("another");
    setup.until("it is missed", |setup| {
        setup.count("vhost_disconnects") == 1
    });
    assert_eq!(setup.count("vhost_unsent"), held);
}

#[test]
fn a_long_frame_lies_in_several_buffers_and_only_what_the_back_end_can_do_is_left_to_it() {
    let mut setup = Setup::begun(CSUM);
    assert_eq!(
        setup.port.sink.caps(),
        Caps {
            csum: true,
            ..Caps::NONE
        }
    );
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        ..Offload::NONE
    };
    assert_eq!(setup.send(1, 9000, notes), 1);
    // 9012 bytes: four whole buffers, and a part of a fifth.
    let head = setup.word(setup.ring(1).driver + 4);
    let mut at = head;
    let mut bytes = Vec::new();
    for _ in 0..9 {
        let desc = setup.ring(1).descriptors + 16 * u64::from(at);
        let (len, flags) = (setup.word(desc + 8), setup.word(desc + 12));
        let mut part = vec![0; len.into()];
        let view = setup.memory.view();
        view.read(setup.buffer(1, at), &mut part).expect("mapped");
        bytes.extend(part);
        at = setup.word(desc + 14);
        if flags & 1 == 0 {
            break;
        }
    }
    assert_eq!(bytes.len(), 9012);
    assert_eq!(bytes[..12], [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0]);
    assert!(bytes[12..].iter().all(|byte| *byte == 0));
    // A tag beside the frame is more than it can.
    let tagged = Offload {
        vlan: Some(7),
        ..Offload::NONE
    };
    assert_eq!(setup.send(1, 60, tagged), 1);
    assert_eq!(setup.count("vhost_cannot_take"), 1);
    setup.step();
}

#[test]
fn segments_go_whole_to_a_back_end_that_knows_no_ecn() {
    let tso = Caps {
        csum: true,
        tso4: true,
        ..Caps::NONE
    };
    for (features, caps) in [
        (CSUM | HOST_TSO4, tso),
        (CSUM | HOST_TSO4 | HOST_ECN, Caps { ecn: true, ..tso }),
    ] {
        let mut setup = Setup::begun(features);
        assert_eq!(setup.port.sink.caps(), caps);
        let plain = Offload {
            csum: Some(Csum {
                start: 34,
                offset: 16,
            }),
            gso: Gso::Tcp4,
            gso_size: 100,
            hdr_len: 54,
            ..Offload::NONE
        };
        assert_eq!(setup.send(1, 1500, plain), 1);
        assert_eq!(setup.available(1), 1);
        let mut header = [0; 12];
        let view = setup.memory.view();
        view.read(setup.buffer(1, 0), &mut header).expect("mapped");
        drop(view);
        assert_eq!(header, [1, 1, 54, 0, 100, 0, 34, 0, 16, 0, 0, 0]);
        // Senders cut those with ECN before; one that did not is not believed.
        assert_eq!(setup.send(1, 1500, Offload { ecn: true, ..plain }), 1);
        let refused = u64::from(!caps.ecn);
        assert_eq!(setup.count("vhost_cannot_take"), refused);
        setup.step();
    }
}

#[test]
fn a_back_end_without_what_is_needed_or_without_words_is_refused() {
    // Of before virtio 1.
    let mut setup = setup(MRG_RXBUF);
    setup.until("it is refused", |setup| setup.count("vhost_refused") > 1);
    assert!(!setup.inlet.link_up());
    assert_eq!(setup.send(3, 60, Offload::NONE), 3);
    assert_eq!(setup.count("vhost_down"), 3);
    assert_eq!(setup.count("vhost_connects"), 0);
    // The inlet does not wait for one that says nothing.
    setup.server = Server::new(
        1,
        Listener::bind(setup.path.with_extension("x")).expect("bound"),
    )
    .expect("another");
    let mute = Listener::bind(&setup.path).expect("bound");
    let before = setup.count("vhost_refused");
    let mut caller = None;
    let end = Instant::now() + Duration::from_secs(20);
    while caller.is_none() && Instant::now() < end {
        assert_eq!(setup.inlet.run(&setup.wire, 64), InletStatus::Idle);
        caller = mute.accept().expect("it listens");
    }
    assert!(caller.is_some());
    while setup.count("vhost_refused") == before && Instant::now() < end {
        assert_eq!(setup.inlet.run(&setup.wire, 64), InletStatus::Idle);
    }
    assert_eq!(setup.count("vhost_refused"), before + 1);
}

#[test]
fn its_thread_may_make_connections() {
    for endpoint in [Endpoint::Connect, Endpoint::Listen] {
        let dir = tempfile::tempdir().expect("a folder");
        let port = open(VhostUserConfig::new(endpoint(dir.path().join("s")))).expect("a port");
        // In a sandbox, a thread of another kind gets no socket.
        let inlet = port.inlet.expect("an inlet");
        assert_eq!(inlet.kind(), port::Kind::Network);
    }
}

#[test]
fn paths_that_cannot_be_are_named() {
    let long = PathBuf::from("x".repeat(200));
    let error = open(VhostUserConfig::new(Endpoint::Connect(long.clone()))).err();
    let text = error.expect("too long").to_string();
    assert!(text.contains("at most 107 bytes"), "{text}");
    let error = open(VhostUserConfig::new(Endpoint::Listen(long))).err();
    let text = error.expect("too long").to_string();
    assert!(text.contains("at most 107 bytes"), "{text}");
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let error = open(VhostUserConfig::new(Endpoint::Listen(file))).err();
    let text = error.expect("no socket").to_string();
    assert!(text.contains("not a socket"), "{text}");
}
