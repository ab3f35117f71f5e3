//! Captures: what is in the file, and what happens when there can be no file.

mod disk;
mod reader;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frame::{Batch, Caps, Sink, Wake};
use guest_mem::ReadSlice;
use hypernic_port::capture::{Capture, CaptureOptions, Clock, Probe};
use hypernic_port::{Inlet, InletStatus, Interest, Port, Tally, counter};
use reader::{Block, packets, parse, tshark_agrees};
use wire::{Csum, Gso, Layers, Offload};

/// Counts up by 1 µs from a second that is easy to know again.
struct Ticks(AtomicU64);

const START: u64 = 1_700_000_000_123_456_789;

impl Clock for Ticks {
    fn unix_nanos(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::SeqCst)
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(Ticks(AtomicU64::new(START)))
}

/// Takes `room` frames per call.
struct Take {
    room: usize,
    caps: Caps,
    got: Mutex<Vec<Vec<u8>>>,
}

impl Take {
    fn new(room: usize, caps: Caps) -> Arc<Self> {
        let got = Mutex::default();
        Arc::new(Self { room, caps, got })
    }

    fn count(&self) -> usize {
        self.got.lock().expect("lock").len()
    }
}

impl Sink for Take {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = picks.len().min(self.room);
        let frames = picks[..n].iter().filter_map(|&p| batch.get(p.into()));
        let mut got = self.got.lock().expect("lock");
        got.extend(frames.map(|f| f.to_vec()));
        n
    }
    fn caps(&self) -> Caps {
        self.caps
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// Passes one batch per run.
struct Give(Vec<(Vec<u8>, Offload)>);

impl Inlet for Give {
    fn interests<'a>(&'a self, _: &mut dyn FnMut(Interest<'a>)) {}
    fn run(&mut self, to: &dyn Sink, _: usize) -> InletStatus {
        let batch = batch(&self.0);
        let caps = to.caps();
        assert!(self.0.iter().all(|(_, n)| caps.accepts(n)));
        let picks: Vec<u16> = (0..batch.len() as u16).collect();
        if to.deliver(&batch, &picks) < picks.len() {
            InletStatus::Blocked
        } else {
            InletStatus::Idle
        }
    }
}

fn batch(frames: &[(Vec<u8>, Offload)]) -> Batch<'_> {
    let mut batch = Batch::new();
    for (bytes, notes) in frames {
        batch.push_slice(ReadSlice::from_bytes(bytes));
        batch.end(*notes);
    }
    batch
}

fn plain(frames: &[&[u8]]) -> Vec<(Vec<u8>, Offload)> {
    let plain = frames.iter().map(|f| (f.to_vec(), Offload::NONE));
    plain.collect()
}

fn port(name: &str, sink: &Arc<Take>, inlet: Option<Give>) -> Port {
    Port {
        name: name.into(),
        sink: Arc::clone(sink) as Arc<dyn Sink>,
        inlet: inlet.map(|i| Box::new(i) as Box<dyn Inlet>),
        counters: Arc::new(Tally::new(["inner"])),
    }
}

fn options() -> CaptureOptions {
    CaptureOptions {
        flush_every: Duration::from_millis(20),
        ..CaptureOptions::default()
    }
}

/// An Ethernet II frame of local experimental type.
fn ethernet(len: usize, fill: u8) -> Vec<u8> {
    let mut f = vec![fill; len];
    f[12..14].copy_from_slice(&[0x88, 0xb5]);
    f
}

fn never(why: String) {
    panic!("capture failed: {why}");
}

#[test]
fn both_directions_of_two_ports_are_in_one_file() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("c.pcapng");
    let capture = Capture::create(&path, options(), clock(), never).expect("file");
    let sink = Take::new(2, Caps::ALL);
    let inbound = plain(&[&ethernet(61, 1), &ethernet(1514, 2)]);
    let (left, probe) = Probe::wrap(port("tap:left", &sink, Some(Give(inbound))));
    let (right, other) = Probe::wrap(port("right", &sink, None));
    probe.attach(&capture);
    other.attach_as(&capture, "rechts ü");

    let outbound = plain(&[&ethernet(60, 3), &ethernet(62, 4), &ethernet(63, 5)]);
    let three = batch(&outbound);
    assert_eq!(left.sink.deliver(&three, &[0, 1, 2]), 2, "as the port says");
    let guest = Take::new(100, Caps::NONE);
    let mut inlet = left.inlet.expect("inlet");
    assert_eq!(inlet.run(&*guest, 256), InletStatus::Idle);
    right.sink.deliver(&three, &[2]);
    assert!(capture.flush());
    assert_eq!(
        packets(&parse(&std::fs::read(&path).expect("file"))).len(),
        5
    );

    // Detached, it records nothing; attached again, it goes on under the same name.
    probe.detach();
    left.sink.deliver(&three, &[0]);
    probe.attach(&capture);
    let tagged = Offload {
        vlan: Some(0x2005),
        ..Offload::NONE
    };
    let vlan = [(ethernet(64, 6), tagged)];
    left.sink.deliver(&batch(&vlan), &[0]);
    assert_eq!(counter(&*capture, "capture_frames"), Some(6));
    probe.detach();
    other.detach();
    drop(capture);

    let blocks = parse(&std::fs::read(&path).expect("file"));
    assert_eq!(
        blocks[0],
        Block::Section(concat!("hypernic ", env!("CARGO_PKG_VERSION")).into())
    );
    for (block, expected) in blocks[1..3].iter().zip(["tap:left", "rechts ü"]) {
        let expected = Block::Interface {
            name: expected.into(),
            snaplen: 0,
            resolution: 9,
        };
        assert_eq!(*block, expected);
    }
    let (into, out_of) = (1, 2);
    let expected = [
        (0, 60, out_of),
        (0, 62, out_of),
        (0, 61, into),
        (0, 1514, into),
        (1, 63, out_of),
        (0, 68, out_of),
    ];
    assert_eq!(packets(&blocks), expected);
    let Block::Packet { nanos, data, .. } = &blocks[3] else {
        panic!("{:?}", blocks[3]);
    };
    assert!((START..START + 100_000).contains(nanos));
    assert_eq!(*data, ethernet(60, 3));
    let Block::Packet { data, .. } = &blocks[8] else {
        panic!("{:?}", blocks[8]);
    };
    assert_eq!(data[10..18], [6, 6, 0x81, 0, 0x20, 5, 0x88, 0xb5]);
    let statistics = |id, seen| Block::Statistics {
        id,
        seen,
        missed: 0,
    };
    assert_eq!(blocks[9..], [statistics(0, 5), statistics(1, 1)]);
    tshark_agrees(&path, &["60", "62", "61", "1514", "63", "68"]);
}

/// A TCP segment of `payload` bytes, whole and to be cut.
fn large(payload: usize) -> (Vec<u8>, Offload) {
    let mut f = vec![0u8; 54 + payload];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(40 + payload as u16).to_be_bytes());
    f[22] = 64;
    f[23] = 6;
    f[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    f[46] = 5 << 4;
    f[47] = 0x10;
    let layers = Layers::parse(&f).expect("headers");
    let seed = layers.pseudo_sum(&f, 20 + payload).expect("IP").value();
    f[50..52].copy_from_slice(&seed.to_be_bytes());
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: 1460,
        hdr_len: 54,
        ..Offload::NONE
    };
    (f, notes)
}

#[test]
fn large_frames_are_kept_whole_though_the_guest_gets_them_cut() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("c.pcapng");
    let capture = Capture::create(&path, options(), clock(), never).expect("file");
    let sink = Take::new(9, Caps::ALL);
    let give = Give(vec![large(60_000), (ethernet(60, 1), Offload::NONE)]);
    let (port, probe) = Probe::wrap(port("p", &sink, Some(give)));
    probe.attach(&capture);
    let guest = Take::new(9999, Caps::NONE);
    let mut inlet = port.inlet.expect("inlet");
    assert_eq!(inlet.run(&*guest, 256), InletStatus::Idle);
    assert_eq!(guest.count(), 60_000usize.div_ceil(1460) + 1);
    probe.detach();
    drop(capture);
    let blocks = parse(&std::fs::read(&path).expect("file"));
    assert_eq!(packets(&blocks), [(0, 60_054, 1), (0, 60, 1)]);
    tshark_agrees(&path, &["60054", "60"]);
}

/// A reader of the file cannot know that a NIC was to write them.
#[test]
fn checksums_left_to_a_nic_are_right_in_the_file() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("c.pcapng");
    let capture = Capture::create(&path, options(), clock(), never).expect("file");
    let sink = Take::new(9, Caps::ALL);
    let (port, probe) = Probe::wrap(port("p", &sink, None));
    probe.attach(&capture);
    let (frame, cut) = large(60_000);
    let (short, notes) = large(101);
    let whole = Offload {
        csum: notes.csum,
        ..Offload::NONE
    };
    let beside = Offload {
        vlan: Some(0x2005),
        ..whole
    };
    let frames = [(frame, cut), (short.clone(), whole), (short, beside)];
    port.sink.deliver(&batch(&frames), &[0, 1, 2]);
    probe.detach();
    drop(capture);
    let blocks = parse(&std::fs::read(&path).expect("file"));
    assert_eq!(packets(&blocks), [(0, 60_054, 2), (0, 155, 2), (0, 159, 2)]);
    for block in &blocks {
        let Block::Packet { data, .. } = block else {
            continue;
        };
        let layers = Layers::parse(data).expect("headers");
        assert_eq!(layers.l4_intact(data), Some(true), "{} bytes", data.len());
    }
}

#[test]
fn a_snaplen_cuts_and_says_so() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("c.pcapng");
    let options = CaptureOptions {
        snaplen: 64,
        ..options()
    };
    let capture = Capture::create(&path, options, clock(), never).expect("file");
    let sink = Take::new(9, Caps::ALL);
    let (port, probe) = Probe::wrap(port("p", &sink, None));
    probe.attach(&capture);
    port.sink
        .deliver(&batch(&plain(&[&ethernet(1000, 7)])), &[0]);
    probe.detach();
    drop(capture);
    let blocks = parse(&std::fs::read(&path).expect("file"));
    let Block::Packet { len, data, .. } = &blocks[2] else {
        panic!("{blocks:?}");
    };
    assert_eq!((*len, data.len()), (1000, 64));
    tshark_agrees(&path, &["1000"]);
}
