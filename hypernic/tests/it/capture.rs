//! `hypernic capture` and `hypernic extcap`: what passes a NIC, live.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control::{CaptureList, CaptureStart, Captures, Client, NicRemove, ask};
use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lab::{HYPERNIC, Lab, copy_program};

/// Wireshark takes no programs from other folders when root runs it.
const OPERATOR: u32 = 61_004;

fn lab() -> Lab {
    Lab::with(|dir| {
        let nic = |name: &str| {
            let socket = dir.join(format!("{name}.sock"));
            format!("[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n")
        };
        format!(
            "control-operate = [\"{OPERATOR}\"]\n[[switch]]\nname = \"lan\"\nports = [\"null\"]\n"
        ) + &nic("a")
            + &nic("b")
    })
}

fn driver(lab: &Lab, name: &str) -> Driver<SocketBus> {
    let bus = SocketBus::connect(lab.dir.path().join(format!("{name}.sock"))).expect("connect");
    Driver::new(bus, Config::poll()).expect("driver")
}

fn frame(from: &Driver<SocketBus>, n: u8, len: usize) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 9][..], &from.mac(), &[0x88, 0xb5, n]].concat();
    frame.resize(len, 0);
    frame
}

fn captures(lab: &Lab) -> Vec<control::CaptureInfo> {
    let told: Captures = serde_json::from_str(&lab.ran("capture --list --json")).expect("JSON");
    told.captures
}

/// What does not come from there fails its test, and not the whole run.
struct Patient<R>(R);

impl<R: Read + AsFd> Read for Patient<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let minute = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&minute));
        assert_ne!(ready, Ok(0), "nothing comes");
        self.0.read(into)
    }
}

/// A block of pcapng: its type and body.
fn block(from: &mut impl Read) -> Option<(u32, Vec<u8>)> {
    let mut head = [0; 8];
    from.read_exact(&mut head).ok()?;
    let word = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("a word"));
    let mut body = vec![0; word(4) as usize - 8];
    from.read_exact(&mut body).expect("a whole block");
    let end = body.split_off(body.len() - 4);
    assert_eq!(end, head[4..], "the length stands at both ends");
    Some((word(0), body))
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Frames of packet blocks, and how often each other block came.
fn read_all(from: &mut impl Read) -> (Vec<Vec<u8>>, BTreeMap<u32, usize>) {
    let (mut frames, mut others) = (Vec::new(), BTreeMap::new());
    while let Some((kind, body)) = block(from) {
        match kind {
            PACKET => frames.push(packet(&body)),
            kind => *others.entry(kind).or_default() += 1,
        }
    }
    (frames, others)
}

fn packet(body: &[u8]) -> Vec<u8> {
    let kept = u32::from_ne_bytes(body[12..16].try_into().expect("a word")) as usize;
    body[20..20 + kept].to_vec()
}

#[test]
fn frames_come_while_they_pass_and_the_reader_may_go() {
    let lab = lab();
    let mut a = driver(&lab, "a");
    let mut child = Command::new(HYPERNIC)
        .args(["capture", "a", "-w", "-", "--control"])
        .arg(lab.control())
        .stdout(Stdio::piped())
        .spawn()
        .expect("capture");
    let mut out = Patient(child.stdout.take().expect("its output"));
    // What a capture begins with says that it has begun.
    assert_eq!(block(&mut out).map(|(kind, _)| kind), Some(SECTION));
    assert_eq!(block(&mut out).map(|(kind, _)| kind), Some(INTERFACE));
    for n in 0..3 {
        let sent = frame(&a, n, 60);
        a.send(&[&sent], &TxOpts::default()).expect("send");
        let (kind, body) = block(&mut out).expect("a block");
        assert_eq!((kind, packet(&body)), (PACKET, sent));
    }
    let there = captures(&lab);
    assert_eq!(
        (there.len(), there[0].nic.as_str(), there[0].frames),
        (1, "a", 3)
    );
    assert_eq!(there[0].pid, child.id());
    // Nothing comes, and the reader goes: so does the command, and with it the capture.
    drop(out);
    assert!(child.wait().expect("end").success());
    lab.until("its end", || captures(&lab).is_empty().then_some(()));
    assert!(lab.log().contains("control: captures no more"));
    let output = lab.run("capture nobody -w /nowhere/at/all");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is: a, b"), "{said}");
}

#[test]
fn one_who_does_not_read_misses_frames_and_holds_up_nobody() {
    let lab = lab();
    let mut a = driver(&lab, "a");
    let client = Client::connect(&lab.control()).expect("connect");
    let start = CaptureStart {
        nic: "a".into(),
        snaplen: None,
        drops: None,
    };
    let (begin, mut stream) = client.upgrade(&start).expect("a capture");
    // Some more than may wait.
    let sent = frame(&a, 7, 1514);
    let batch = vec![sent.as_slice(); 40];
    let mut many = 0;
    while many < 8000 {
        let taken = a.send(&batch, &TxOpts::default()).expect("send");
        a.reclaim().expect("reclaim");
        many += taken as u64;
    }
    let told = lab.until("all frames", || {
        let there = captures(&lab);
        (there[0].frames + there[0].missed == many).then_some(there)
    });
    assert!(told[0].missed > 0 && told[0].frames > 1000, "{told:?}");
    // Its NIC goes, while it does not read: others wait for nothing, and it gets what there is.
    let remove = NicRemove {
        name: "a".into(),
        ..NicRemove::default()
    };
    assert!(ask(&lab.control(), &remove).expect("removed").changed);
    let (frames, others) = read_all(&mut begin.as_slice().chain(Patient(&mut stream)));
    assert!(frames.len() as u64 <= told[0].frames && frames.len() > 100);
    assert!(frames.iter().all(|frame| *frame == sent));
    assert_eq!((others[&SECTION], others[&INTERFACE]), (1, 1));
    assert!(captures(&lab).is_empty());
}

#[test]
fn a_capture_ends_with_statistics_when_its_nic_goes_and_may_be_cut_short() {
    let lab = lab();
    let mut b = driver(&lab, "b");
    let start = CaptureStart {
        nic: "b".into(),
        snaplen: Some(20),
        drops: None,
    };
    let begin = |start| {
        Client::connect(&lab.control())
            .expect("connect")
            .upgrade(start)
    };
    let (first, mut stream) = begin(&start).expect("a capture");
    let sent = frame(&b, 1, 60);
    b.send(&[&sent], &TxOpts::default()).expect("send");
    lab.until("the frame", || {
        (captures(&lab)[0].frames == 1).then_some(())
    });
    let remove = NicRemove {
        name: "b".into(),
        ..NicRemove::default()
    };
    ask(&lab.control(), &remove).expect("removed");
    let (frames, others) = read_all(&mut first.as_slice().chain(Patient(&mut stream)));
    assert_eq!(frames, [sent[..20].to_vec()]);
    assert_eq!(
        others,
        BTreeMap::from([(SECTION, 1), (INTERFACE, 1), (STATISTICS, 1)])
    );
    // Called as any other method, it is refused.
    let error = ask(&lab.control(), &start).expect_err("no upgrade");
    assert!(error.to_string().contains("upgrade"), "{error}");
    // There is a most.
    let start = CaptureStart {
        nic: "a".into(),
        snaplen: None,
        drops: None,
    };
    let many: Vec<_> = (0..16).map(|_| begin(&start).expect("a capture")).collect();
    let error = begin(&start).expect_err("one too many");
    assert!(error.to_string().contains("capture --list"), "{error}");
    assert_eq!(
        ask(&lab.control(), &CaptureList {})
            .expect("list")
            .captures
            .len(),
        16
    );
    drop(many);
    lab.until("their end", || captures(&lab).is_empty().then_some(()));
}

#[test]
fn what_the_switch_loses_comes_with_its_reason() {
    let lab = lab();
    let mut a = driver(&lab, "a");
    let start = CaptureStart {
        nic: "a".into(),
        snaplen: None,
        drops: Some(true),
    };
    let client = Client::connect(&lab.control()).expect("connect");
    let (begin, stream) = client.upgrade(&start).expect("a capture");
    let fine = frame(&a, 1, 60);
    let mut lost = frame(&a, 2, 60);
    // For a group that no bridge forwards.
    lost[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 3]);
    a.send(&[&fine, &lost], &TxOpts::default()).expect("send");
    let mut from = begin.as_slice().chain(Patient(stream));
    let (kind, body) = loop {
        let next = block(&mut from).expect("a block");
        if next.0 == PACKET {
            break next;
        }
    };
    assert_eq!((kind, packet(&body)), (PACKET, lost));
    let comment = b"drop_reserved";
    assert!(body.windows(comment.len()).any(|words| words == comment));
    assert_eq!(captures(&lab)[0].frames, 1);
    drop(from);
    lab.until("its end", || captures(&lab).is_empty().then_some(()));
    // Frames take their short ways again, and others' go on.
    a.send(&[&fine], &TxOpts::default()).expect("send");
    let sent = "\nhypernic_nic_transmit_packets_total{nic=\"a\"} 3\n";
    lab.until("the frame", || {
        lab.ran("metrics").contains(sent).then_some(())
    });
}

#[test]
fn what_a_nic_loses_comes_with_its_reason() {
    let lab = lab();
    let mut a = driver(&lab, "a");
    let start = CaptureStart {
        nic: "b".into(),
        snaplen: None,
        drops: Some(true),
    };
    let client = Client::connect(&lab.control()).expect("connect");
    let (begin, stream) = client.upgrade(&start).expect("a capture");
    let mut from = begin.as_slice().chain(Patient(stream));
    let mut is_shown = |lost: &[u8], counter: &str| {
        let body = loop {
            let (kind, body) = block(&mut from).expect("a block");
            if kind == PACKET {
                break body;
            }
        };
        assert_eq!(packet(&body), lost);
        let told = body
            .windows(counter.len())
            .any(|words| words == counter.as_bytes());
        assert!(told, "{counter}");
    };
    // Nobody has it; then its filter does not let the frame in, as the model says.
    let sent = frame(&a, 1, 60);
    a.send(&[&sent], &TxOpts::default()).expect("send");
    is_shown(&sent, "rx_no_client");
    let mut b = driver(&lab, "b");
    let mut fine = frame(&a, 2, 60);
    fine[..6].copy_from_slice(&b.mac());
    let other = frame(&a, 3, 60);
    a.send(&[&fine, &other], &TxOpts::default()).expect("send");
    is_shown(&other, "rx_filtered");
    let mut got = Vec::new();
    lab.until("the frame that is not lost", || {
        b.poll_rx(64, |frame| got.push(frame.to_vec()))
            .expect("poll");
        (!got.is_empty()).then_some(())
    });
    assert_eq!(got, [fine]);
    assert_eq!(captures(&lab)[0].frames, 2);
    let metrics = lab.ran("metrics --all");
    for counter in ["rx_no_client", "rx_filtered"] {
        let line =
            format!("hypernic_drops_total{{kind=\"nic\",name=\"b\",reason=\"{counter}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[test]
fn what_a_nic_does_not_send_comes_with_its_reason() {
    let lab = lab();
    let mut a = driver(&lab, "a");
    let start = CaptureStart {
        nic: "a".into(),
        snaplen: None,
        drops: Some(true),
    };
    let client = Client::connect(&lab.control()).expect("connect");
    let (begin, stream) = client.upgrade(&start).expect("a capture");
    // One that is no frame (TCTL.PSP would pad it), between two that are sent as if nobody looked.
    let (tctl, enabled) = (0x400, 2);
    a.write(tctl, enabled).expect("TCTL");
    let fine = frame(&a, 1, 60);
    a.send(&[&fine, &fine[..5], &fine], &TxOpts::default())
        .expect("send");
    let mut from = begin.as_slice().chain(Patient(stream));
    let body = loop {
        let (kind, body) = block(&mut from).expect("a block");
        if kind == PACKET {
            break body;
        }
    };
    // Its descriptor, whose length is in it.
    let desc = packet(&body);
    assert_eq!((desc.len(), &desc[8..10]), (16, &5u16.to_le_bytes()[..]));
    let comment = b"tx_runt";
    assert!(body.windows(comment.len()).any(|words| words == comment));
    assert_eq!(captures(&lab)[0].frames, 1);
    let metrics = lab.ran("metrics --all");
    for line in [
        "hypernic_drops_total{kind=\"nic\",name=\"a\",reason=\"tx_runt\"} 1\n",
        "\nhypernic_nic_transmit_packets_total{nic=\"a\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[test]
fn what_a_port_of_a_switch_loses_comes_with_its_reason() {
    let lab = Lab::with(|dir| {
        let socket = dir.join("a.sock");
        format!(
            "[[switch]]\nname = \"lan\"\nports = [\"null\", \"stream:listen={}\"]\n\
             [[nic]]\nname = \"a\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n",
            dir.join("peer").display(),
        )
    });
    let mut a = driver(&lab, "a");
    let port = format!(
        "lan/stream:listen={}",
        lab.dir.path().join("peer").display()
    );
    let mut start = CaptureStart {
        nic: port.clone(),
        snaplen: None,
        drops: None,
    };
    let connect = || Client::connect(&lab.control()).expect("connect");
    let error = connect().upgrade(&start).expect_err("all of a port");
    assert!(error.to_string().contains("add --drops"), "{error}");
    start.drops = Some(true);
    let (begin, stream) = connect().upgrade(&start).expect("a capture");
    // Nobody is at the other end of the stream. The other port, which takes all, loses nothing.
    let lost = frame(&a, 1, 60);
    a.send(&[&lost], &TxOpts::default()).expect("send");
    let mut from = begin.as_slice().chain(Patient(stream));
    let body = loop {
        let (kind, body) = block(&mut from).expect("a block");
        if kind == PACKET {
            break body;
        }
    };
    assert_eq!(packet(&body), lost);
    let comment = b"stream_down";
    assert!(body.windows(comment.len()).any(|words| words == comment));
    let there = captures(&lab);
    assert_eq!(
        (there.len(), there[0].nic.as_str(), there[0].frames),
        (1, port.as_str(), 1)
    );
    // It ends with the port, though another takes its name.
    let spec = port.strip_prefix("lan/").expect("it is on lan");
    for words in ["port remove", "port add"] {
        lab.ran(&format!("{words} lan {spec}"));
    }
    let (frames, _) = read_all(&mut from);
    assert!(frames.is_empty() && captures(&lab).is_empty());
    start.nic = "lan/tap:none".into();
    let error = connect().upgrade(&start).expect_err("there is none");
    assert!(error.to_string().contains("there is: a"), "{error}");
}

#[test]
fn a_capture_of_losses_ends_with_its_nic_though_another_takes_its_name() {
    let lab = lab();
    let start = CaptureStart {
        nic: "a".into(),
        snaplen: None,
        drops: Some(true),
    };
    let client = Client::connect(&lab.control()).expect("connect");
    let (begin, stream) = client.upgrade(&start).expect("a capture");
    assert_eq!(captures(&lab).len(), 1);
    // One call removes the NIC and makes it again.
    let file = lab.dir.path().join("host.toml");
    let text = std::fs::read_to_string(&file).expect("file");
    let changed = text.replacen("name = \"a\"", "name = \"a\"\nmodel = \"82545em\"", 1);
    std::fs::write(&file, changed).expect("file");
    lab.ran(&format!("config apply {} --disconnect", file.display()));
    let (frames, _) = read_all(&mut begin.as_slice().chain(Patient(stream)));
    assert!(frames.is_empty());
    assert!(captures(&lab).is_empty());
}

#[test]
fn wireshark_lists_nics_and_captures_from_them() {
    let lab = lab();
    let folder = lab.dir.path().join("extcap");
    std::fs::create_dir(&folder).expect("folder");
    copy_program(&folder.join("hypernic-extcap"));
    // Where all may go.
    std::fs::set_permissions(lab.dir.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    let wireshark = |program: &str| {
        let mut command = Command::new(program);
        command
            .env("WIRESHARK_EXTCAP_DIR", &folder)
            .env("HYPERNIC_CONTROL", lab.control())
            .env("HOME", "/nowhere");
        if rustix::process::geteuid().is_root() {
            command.uid(OPERATOR).gid(OPERATOR);
        }
        command
    };
    // The protocol itself.
    let extcap = folder.join("hypernic-extcap");
    let ask = |words: &[&str]| {
        let output = wireshark(extcap.to_str().expect("text"))
            .args(words)
            .output();
        let output = output.expect("extcap");
        (
            output.status.success(),
            String::from_utf8(output.stdout).expect("text"),
        )
    };
    let (fine, text) = ask(&["--extcap-interfaces", "--extcap-version=4.0"]);
    assert!(
        fine && text
            .contains("interface {value=hypernic-a}{display=hypernic a: e1000 on switch:lan}"),
        "{text}"
    );
    let of_a = "--extcap-interface=hypernic-a";
    let (_, text) = ask(&[of_a, "--extcap-dlts"]);
    assert_eq!(text, "dlt {number=1}{name=EN10MB}{display=Ethernet}\n");
    let (_, text) = ask(&[of_a, "--extcap-config"]);
    assert!(
        text.contains("{call=--snaplen}") && text.contains("control.sock}"),
        "{text}"
    );
    let (_, text) = ask(&[of_a, "--extcap-capture-filter=tcp"]);
    assert!(text.contains("display filter"), "{text}");
    assert_eq!(ask(&[of_a, "--extcap-capture-filter="]).1, "");
    assert!(!ask(&["--extcap-interface=eth0", "--extcap-dlts"]).0);
    assert!(!ask(&[of_a, "--capture"]).0);
    // Wireshark's own programs.
    let listed = wireshark("tshark").arg("-D").output();
    let listed = listed.expect("tshark (scripts/setup test installs it)");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("hypernic-a (hypernic a: e1000 on switch:lan)"),
        "{listed}"
    );
    let mut a = driver(&lab, "a");
    let done = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let sent = frame(&a, 9, 77);
            while !done.load(Ordering::Relaxed) {
                a.send(&[&sent], &TxOpts::default()).expect("send");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let words = [
            "-i",
            "hypernic-a",
            "-c",
            "3",
            "-T",
            "fields",
            "-e",
            "frame.len",
        ];
        let output = wireshark("tshark").args(words).output();
        done.store(true, Ordering::Relaxed);
        sender.join().expect("sender");
        output.expect("tshark")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "77\n77\n77\n",
        "{said}"
    );
    lab.until("its end", || captures(&lab).is_empty().then_some(()));
}
