//! Captures: what is in the file, and what happens when there can be no file.

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frame::{Batch, Caps, Sink, Wake};
use guest_mem::ReadSlice;
use hypernic_port::capture::{Capture, CaptureOptions, Clock, Probe};
use hypernic_port::{Inlet, InletStatus, Interest, Port, Tally, counter};
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

// A reader of our own, so that this test can fail where there is no tshark.

#[derive(Debug, PartialEq)]
enum Block {
    Section(String),
    Interface {
        name: String,
        snaplen: u32,
        resolution: u8,
    },
    Packet {
        id: u32,
        nanos: u64,
        len: u32,
        data: Vec<u8>,
        flags: u32,
        missed: u64,
    },
    Statistics {
        id: u32,
        seen: u64,
        missed: u64,
    },
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(b[at..at + 4].try_into().expect("four"))
}

fn u64_of(b: &[u8]) -> u64 {
    u64::from_ne_bytes(b.try_into().expect("eight"))
}

fn options_of(mut b: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let word = |at: usize| u16::from_ne_bytes([b[at], b[at + 1]]);
        let (code, len) = (word(0), usize::from(word(2)));
        if code == 0 {
            assert_eq!((len, b.len()), (0, 4), "the end is the end");
            return all;
        }
        all.push((code, b[4..4 + len].to_vec()));
        b = &b[4 + len.next_multiple_of(4)..];
    }
}

fn parse(mut file: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let (kind, len) = (u32_at(file, 0), u32_at(file, 4) as usize);
        assert_eq!(len % 4, 0);
        assert_eq!(u32_at(file, len - 4) as usize, len, "both lengths agree");
        let body = &file[8..len - 4];
        file = &file[len..];
        let find = |options: &[(u16, Vec<u8>)], code| {
            let found = options.iter().find(|o| o.0 == code);
            found.map(|o| o.1.clone()).unwrap_or_default()
        };
        let text = |b: Vec<u8>| String::from_utf8(b).expect("UTF-8");
        blocks.push(match kind {
            0x0a0d_0d0a => {
                assert_eq!(u32_at(body, 0), 0x1a2b_3c4d);
                assert_eq!(u32_at(body, 4), u32::from_ne_bytes([1, 0, 0, 0]));
                Block::Section(text(find(&options_of(&body[16..]), 4)))
            }
            1 => {
                assert_eq!(body[..2], 1u16.to_ne_bytes(), "Ethernet");
                let options = options_of(&body[8..]);
                Block::Interface {
                    name: text(find(&options, 2)),
                    snaplen: u32_at(body, 4),
                    resolution: find(&options, 9)[0],
                }
            }
            6 => {
                let kept = u32_at(body, 12) as usize;
                let options = options_of(&body[20 + kept.next_multiple_of(4)..]);
                let missed = find(&options, 4);
                Block::Packet {
                    id: u32_at(body, 0),
                    nanos: u64::from(u32_at(body, 4)) << 32 | u64::from(u32_at(body, 8)),
                    len: u32_at(body, 16),
                    data: body[20..20 + kept].to_vec(),
                    flags: u32_at(&find(&options, 2), 0),
                    missed: if missed.is_empty() {
                        0
                    } else {
                        u64_of(&missed)
                    },
                }
            }
            5 => {
                let options = options_of(&body[12..]);
                Block::Statistics {
                    id: u32_at(body, 0),
                    seen: u64_of(&find(&options, 4)),
                    missed: u64_of(&find(&options, 5)),
                }
            }
            other => panic!("block type {other:#x}"),
        });
    }
    blocks
}

fn packets(blocks: &[Block]) -> Vec<(u32, usize, u32)> {
    let packet = |b: &Block| match b {
        Block::Packet {
            id, data, flags, ..
        } => Some((*id, data.len(), *flags)),
        _ => None,
    };
    blocks.iter().filter_map(packet).collect()
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

/// tshark reads the lengths we wrote, without a complaint.
fn tshark_agrees(path: &Path, lengths: &[&str]) {
    let out = Command::new("tshark")
        .args(["-n", "-T", "fields", "-e", "frame.len", "-r"])
        .arg(path)
        // Nobody's settings, and none it may not read.
        .env("HOME", path.parent().expect("directory"))
        .env_remove("XDG_CONFIG_HOME")
        .output();
    let out = match out {
        Ok(out) => out,
        Err(e) => return println!("not checked with tshark: {e}"),
    };
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(text.lines().collect::<Vec<_>>(), lengths);
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

/// Whoever reads the file cannot know that a NIC was to write them.
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

/// A file that fails after so many bytes, as a full disk does, and may be slow.
struct Small {
    room: usize,
    gate: Option<Receiver<()>>,
    file: std::fs::File,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        let n = bytes.len().min(self.room);
        if n == 0 {
            return Err(io::Error::from_raw_os_error(28));
        }
        self.room -= n;
        self.file.write(&bytes[..n])
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_capture_with_one_message_and_no_traffic() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("c.pcapng");
    let file = std::fs::File::create(&path).expect("file");
    let small = Small {
        room: 5000,
        gate: None,
        file,
    };
    let (tell, told) = channel();
    let failure = move |why| tell.send(why).expect("told once");
    let capture = Capture::to_writer(Box::new(small), "small disk", options(), clock(), failure)
        .expect("capture");
    let sink = Take::new(100, Caps::ALL);
    let (port, probe) = Probe::wrap(port("p", &sink, None));
    probe.attach(&capture);
    let frames = plain(&[&ethernet(1000, 7)]);
    for i in 1..=20 {
        assert_eq!(port.sink.deliver(&batch(&frames), &[0]), 1);
        assert_eq!(sink.count(), i, "traffic goes on");
        capture.flush();
    }
    let why = told.recv_timeout(Duration::from_secs(20)).expect("told");
    assert!(
        why.contains("small disk") && why.contains("No space left"),
        "{why}"
    );
    assert!(told.try_recv().is_err(), "once");
    assert!(capture.has_failed() && !capture.flush());
    let count = |name| counter(&*capture, name).expect("counter");
    assert_eq!(count("capture_failed"), 1);
    assert!(count("capture_missed") > 0);
    let whole = count("capture_bytes") as usize;
    let written = std::fs::read(&path).expect("file");
    assert_eq!(packets(&parse(&written[..whole])).len(), 4);
}

#[test]
fn a_full_file_is_moved_aside_and_the_next_can_be_read_by_itself() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("c.pcapng");
    let options = CaptureOptions {
        file_bytes: 8000,
        ..options()
    };
    let capture = Capture::create(&path, options, clock(), never).expect("file");
    let sink = Take::new(1000, Caps::ALL);
    let (port, probe) = Probe::wrap(port("p", &sink, None));
    probe.attach(&capture);
    let frames = plain(&[&ethernet(1000, 7)]);
    let mut rotated = 0;
    for sent in 1..=40 {
        assert_eq!(port.sink.deliver(&batch(&frames), &[0]), 1);
        assert!(capture.flush());
        let count = counter(&*capture, "capture_rotated").expect("counter");
        assert!(count == rotated || count == rotated + 1);
        rotated = count;
        for name in ["c.pcapng", "c.pcapng.1"] {
            let len = std::fs::metadata(dir.path().join(name)).map_or(0, |m| m.len());
            assert!(len <= 8000, "{name} after {sent}: {len}");
        }
    }
    assert!(rotated >= 4);
    probe.detach();
    drop(capture);
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 2);
    for name in ["c.pcapng", "c.pcapng.1"] {
        let path = dir.path().join(name);
        let blocks = parse(&std::fs::read(&path).expect("file"));
        assert!(matches!(blocks[0], Block::Section(_)), "{name}");
        assert!(matches!(&blocks[1], Block::Interface { name, .. } if name == "p"));
        tshark_agrees(&path, &vec!["1000"; packets(&blocks).len()]);
    }
}

/// What is captured is a guest's: no other user reads it, and no link sends it elsewhere.
#[test]
fn only_its_owner_reads_a_capture_and_no_link_is_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().expect("directory");
    let (path, link) = (dir.path().join("c.pcapng"), dir.path().join("link"));
    std::fs::write(&path, "old").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("set");
    drop(Capture::create(&path, options(), clock(), never).expect("file"));
    let mode = std::fs::metadata(&path)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&path, "precious").expect("written");
    symlink(&path, &link).expect("link");
    let refused = Capture::create(&link, options(), clock(), never).map(drop);
    assert!(refused.is_err());
    assert_eq!(std::fs::read(&path).expect("file"), b"precious");
}

#[test]
fn dev_full_is_a_full_disk() {
    let (tell, told) = channel();
    let failure = move |why| tell.send(why).expect("told once");
    let full = Path::new("/dev/full");
    let capture = Capture::create(full, options(), clock(), failure).expect("opens");
    let sink = Take::new(100, Caps::ALL);
    let (port, probe) = Probe::wrap(port("p", &sink, None));
    probe.attach(&capture);
    assert_eq!(
        port.sink.deliver(&batch(&plain(&[&ethernet(60, 1)])), &[0]),
        1
    );
    let why = told.recv_timeout(Duration::from_secs(20)).expect("told");
    assert!(
        why.contains("/dev/full") && why.contains("No space left"),
        "{why}"
    );
    probe.detach();
    drop(capture);
    assert_eq!(sink.count(), 1);
}

#[test]
fn a_file_that_fills_up_is_cut_back_to_whole_frames() {
    // A real file with a real limit needs a process of its own: the limit and its signal are the
    // whole process's.
    const INSIDE: &str = "HYPERNIC_TEST_FILE_LIMIT";
    let name = "capture::a_file_that_fills_up_is_cut_back_to_whole_frames";
    let Some(path) = std::env::var_os(INSIDE) else {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("c.pcapng");
        let me = std::env::current_exe().expect("our own path");
        // dash counts file sizes in blocks of 512 bytes; an ignored signal stays ignored.
        let out = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
            .arg(me)
            .args([name, "--exact", "--test-threads=1"])
            .env(INSIDE, &path)
            .output()
            .expect("sh");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("1 passed"), "{text}");
        let blocks = parse(&std::fs::read(&path).expect("file"));
        assert!(!packets(&blocks).is_empty());
        tshark_agrees(&path, &vec!["1000"; packets(&blocks).len()]);
        return;
    };
    let (tell, told) = channel();
    let failure = move |why| tell.send(why).expect("told once");
    let path = Path::new(&path);
    let capture = Capture::create(path, options(), clock(), failure).expect("file");
    let sink = Take::new(100, Caps::ALL);
    let (port, probe) = Probe::wrap(port("p", &sink, None));
    probe.attach(&capture);
    let frames = plain(&[&ethernet(1000, 7)]);
    for _ in 0..20 {
        assert_eq!(port.sink.deliver(&batch(&frames), &[0]), 1);
    }
    let why = told.recv_timeout(Duration::from_secs(20)).expect("told");
    assert!(why.contains("File too large"), "{why}");
}

#[test]
fn a_slow_disk_costs_frames_of_the_capture_only_and_the_file_says_so() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("c.pcapng");
    let (open, gate) = channel();
    let slow = Small {
        room: usize::MAX,
        gate: Some(gate),
        file: std::fs::File::create(&path).expect("file"),
    };
    let options = CaptureOptions {
        buffer: 4000,
        ..options()
    };
    let capture =
        Capture::to_writer(Box::new(slow), "slow", options, clock(), never).expect("capture");
    let sink = Take::new(100, Caps::ALL);
    let (port, probe) = Probe::wrap(port("p", &sink, None));
    probe.attach(&capture);
    let frames = plain(&[&ethernet(1000, 7)]);
    for _ in 0..20 {
        assert_eq!(port.sink.deliver(&batch(&frames), &[0]), 1);
    }
    assert_eq!(sink.count(), 20);
    drop(open);
    assert!(capture.flush());
    port.sink.deliver(&batch(&frames), &[0]);
    let count = |name| counter(&*capture, name).expect("counter");
    let (kept, missed) = (count("capture_frames"), count("capture_missed"));
    assert_eq!(kept + missed, 21);
    assert!(missed > 10);
    probe.detach();
    drop(capture);
    let blocks = parse(&std::fs::read(&path).expect("file"));
    let told: u64 = blocks
        .iter()
        .map(|b| match b {
            Block::Packet { missed, .. } => *missed,
            _ => 0,
        })
        .sum();
    assert_eq!(told, missed, "noted at the frames that came after");
    let last = Block::Statistics {
        id: 0,
        seen: 21,
        missed,
    };
    assert_eq!(blocks.last(), Some(&last));
}
