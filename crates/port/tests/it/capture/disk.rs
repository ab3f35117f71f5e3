//! Where captures go: disks that are full or slow, files that are full, and whose they are.

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::reader::{Block, packets, parse, tshark_agrees};
use super::{Take, batch, clock, ethernet, never, options, plain, port};
use frame::Caps;
use hypernic_port::capture::{Capture, CaptureOptions, Probe};
use hypernic_port::counter;
use rustix::fs::{CWD, FileType, Mode, mknodat};

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
    let hard = dir.path().join("hard");
    std::fs::hard_link(&path, &hard).expect("link");
    for link in [&link, &hard] {
        let refused = Capture::create(link, options(), clock(), never).map(drop);
        assert!(refused.is_err(), "{}", link.display());
    }
    assert_eq!(std::fs::read(&path).expect("file"), b"precious");
}

/// The daemon must not wait for a reader that may never come.
#[test]
fn a_pipe_without_a_reader_is_refused_at_once() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("pipe");
    let refused = Capture::create(&path, options(), clock(), never).map(drop);
    let error = refused.expect_err("nothing reads it").to_string();
    assert!(error.contains("start its reader first"), "{error}");
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::read(path).expect("read")
    });
    let capture = loop {
        match Capture::create(&path, options(), clock(), never) {
            Ok(capture) => break capture,
            Err(_) => std::thread::yield_now(),
        }
    };
    drop(capture);
    assert_eq!(
        reader.join().expect("reader")[..4],
        [0x0a, 0x0d, 0x0d, 0x0a]
    );
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
    let name = "capture::disk::a_file_that_fills_up_is_cut_back_to_whole_frames";
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
