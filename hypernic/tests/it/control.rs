//! A running daemon and its control clients: the library, the command, and hostile ones.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use control::{Client, MetricsGet, StatusGet, VfChange, VfSet, Vfs, ask};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{HYPERNIC, Lab};

#[test]
fn words_reach_a_running_function() {
    let lab = Lab::new();
    let vf = lab.vf(1);
    let before = vf.mac();
    drop(vf);
    let shown = lab.said("show p0vf1");
    assert!(shown.starts_with("p0vf1 (p0 VF 1): address "), "{shown}");
    assert!(
        shown.contains("spoofchk on") && !shown.contains("vlan"),
        "{shown}"
    );
    lab.said("set p0vf1 mac 02:00:00:00:00:77 vlan 7 qos 3 max_tx_rate 100 trust on");
    let shown = lab.said("show p0vf1");
    for word in [
        "02:00:00:00:00:77",
        "vlan 7 qos 3",
        "max_tx_rate 100",
        "trust on",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // Its driver finds it so.
    let vf = lab.vf(1);
    assert_ne!(vf.mac(), before);
    assert_eq!(vf.mac(), [2, 0, 0, 0, 0, 0x77]);
    // Until its driver has reset it too, it neither sends nor receives.
    assert!(lab.said("show p0vf1").contains(", ready"));
    lab.said("reset p0");
    assert!(!lab.said("show p0vf1").contains(", ready"));
    lab.said("leave p0vf0");
    assert!(lab.said("show").contains("it is being removed"));
    lab.said("revive p0vf0");
    assert!(!lab.said("show p0vf0").contains("being removed"));
    for words in ["--log-format json vf show", "vf show --json"] {
        let reply: Vfs = serde_json::from_str(&lab.ran(words)).expect("a reply");
        assert_eq!(reply.vfs.len(), 2, "{words}");
    }
}

#[test]
fn what_is_refused_says_why_and_changes_nothing() {
    let lab = Lab::new();
    let before = lab.said("show");
    for (words, code, named) in [
        ("set p0vf9 vlan 7", 1, "p0vf9"),
        ("set p0vf1 trust on vlan 4095", 1, "VLANs are 1 to 4094"),
        (
            "set p0vf1 trust on mac 01:00:00:00:00:01",
            1,
            "not a unicast address",
        ),
        ("set p0vf1 trust on mac here", 1, "not a MAC address"),
        ("set p0vf1 trust on qos 3", 1, "add vlan"),
        ("set p0vf1 trust on min_tx_rate 2000", 1, "port has 1000"),
        ("set p0vf1 trust perhaps", 2, "write on or off"),
        ("show p0", 1, "no virtual function"),
        ("revive p0", 1, "no virtual function \"p0\""),
        ("reset p0vf1", 1, "no chip \"p0vf1\""),
    ] {
        let output = lab.say(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(named), "{words}: {said}");
    }
    assert_eq!(lab.said("show"), before);
    let elsewhere = Command::new(HYPERNIC)
        .args(["vf", "show", "--control", "/nowhere/control.sock"])
        .output()
        .expect("hypernic vf");
    assert_eq!(elsewhere.status.code(), Some(4));
}

#[test]
fn nonsense_and_silence_hold_up_nobody_for_long() {
    let mut lab = Lab::new();
    let mode = std::fs::metadata(lab.control())
        .expect("socket")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "its owner's alone");
    // What is no call is told so, and its connection is closed.
    for message in [
        &b"\0"[..],
        b"{}\0",
        b"\xff\xfe\0",
        b"{\"method\":7}\0",
        b"[]\0",
    ] {
        let mut stream = UnixStream::connect(lab.control()).expect("connect");
        stream.write_all(message).expect("write");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("reply");
        assert!(
            reply.contains("org.varlink.service.InvalidParameter"),
            "{reply}"
        );
    }
    // What is no method, or has other parameters, is told so, and the next call is heard.
    let mut stream = UnixStream::connect(lab.control()).expect("connect");
    for (call, error) in [
        ("{\"method\":\"io.hypernic.Vf.Sit\"}", "MethodNotFound"),
        ("{\"method\":\"io.hypernic.Vg.Set\"}", "InterfaceNotFound"),
        ("{\"method\":\"Show\"}", "InterfaceNotFound"),
        (
            "{\"method\":\"io.hypernic.Vf.Show\",\"parameters\":{\"nick\":\"a\"}}",
            "nick",
        ),
        (
            "{\"method\":\"io.hypernic.Vf.Show\",\"parameters\":{\"nic\":7}}",
            "InvalidParameter",
        ),
        (
            "{\"method\":\"io.hypernic.Vf.Show\",\"parameters\":{\"nic\":\"p9\"}}",
            "Control.Unknown",
        ),
    ] {
        stream.write_all(call.as_bytes()).expect("write");
        stream.write_all(b"\0").expect("write");
        let reply = until_nul(&mut stream);
        assert!(reply.contains(error), "{call}: {reply}");
    }
    drop(stream);
    // Some that say nothing, one that never ends and one that is gone: nobody waits for them.
    let mut silent: Vec<_> = (0..3)
        .map(|_| UnixStream::connect(lab.control()).expect("connect"))
        .collect();
    let mut half = UnixStream::connect(lab.control()).expect("connect");
    half.write_all(b"{\"method\"").expect("write");
    let mut endless = UnixStream::connect(lab.control()).expect("connect");
    drop(UnixStream::connect(lab.control()).expect("connect"));
    let writer = std::thread::spawn(move || while endless.write_all(&[b' '; 4096]).is_ok() {});
    let change = VfChange {
        trust: Some(true),
        ..VfChange::default()
    };
    let nic = "p0vf0".to_owned();
    ask(
        &lab.control(),
        &VfSet {
            nic,
            change,
            ..VfSet::default()
        },
    )
    .expect("an answer");
    writer.join().expect("cut off");
    for stream in silent.iter_mut().chain([&mut half]) {
        assert_eq!(stream.read(&mut [0; 8]).expect("closed"), 0);
    }
    // Three are silent, one is half, one never ends, one is gone.
    lab.until("all are gone", || {
        let reply = ask(
            &lab.control(),
            &MetricsGet {
                kind: Some("control".into()),
                ..MetricsGet::default()
            },
        );
        let sections = reply.expect("an answer").sections;
        (sections[0].values["control_no_request"] == 6).then_some(())
    });
    for (counter, wanted) in [("control_malformed", 10), ("control_refused", 1)] {
        assert_eq!(lab.counted(counter), wanted, "{counter}");
    }
}

/// One message.
fn until_nul(stream: &mut UnixStream) -> String {
    let mut reply = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).expect("reply");
        match byte[0] {
            0 => return String::from_utf8(reply).expect("text"),
            byte => reply.push(byte),
        }
    }
}

#[test]
fn many_calls_go_over_one_connection_and_none_is_lost() {
    let mut lab = Lab::new();
    let mut stream = UnixStream::connect(lab.control()).expect("connect");
    let call = b"{\"method\":\"io.hypernic.Control.GetStatus\"}\0";
    // All at once, cut anywhere; the third wants no answer.
    let mut calls: Vec<u8> = call.repeat(2);
    calls.extend(b"{\"method\":\"io.hypernic.Control.GetStatus\",\"oneway\":true}\0");
    calls.extend(call.repeat(50));
    for part in calls.chunks(777) {
        stream.write_all(part).expect("write");
    }
    for _ in 0..52 {
        let reply = until_nul(&mut stream);
        assert!(reply.contains("\"role\":\"owner\""), "{reply}");
    }
    drop(stream);
    assert_eq!(lab.counted("control_done"), 53);
}

#[test]
fn who_reads_nothing_is_let_go_and_the_quietest_make_room_for_others() {
    let mut lab = Lab::new();
    // Its replies are more than the socket holds.
    let mut deaf = UnixStream::connect(lab.control()).expect("connect");
    let call =
        b"{\"method\":\"io.hypernic.Drops.Explain\",\"parameters\":{\"name\":\"rx_frames\"}}\0";
    deaf.set_write_timeout(Some(Duration::from_millis(200)))
        .expect("timeout");
    while deaf.write_all(&call.repeat(100)).is_ok() {}
    // More than there is room for, each of which has asked something.
    let mut crowd = Vec::new();
    for _ in 0..70 {
        let mut client = Client::connect(&lab.control()).expect("connect");
        client.call(&StatusGet {}).expect("an answer");
        crowd.push(client);
    }
    let mut here = 0;
    for client in &mut crowd {
        here += usize::from(client.call(&StatusGet {}).is_ok());
    }
    assert!(
        (60..=64).contains(&here),
        "{here} of 70 have their connection"
    );
    lab.until("the deaf one is gone", || {
        deaf.write_all(call)
            .err()
            .filter(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    });
    drop(crowd);
    assert!(lab.counted("control_crowded_out") >= 6);
}

#[test]
fn the_socket_goes_with_the_daemon_and_is_not_shared() {
    let mut lab = Lab::new();
    let text = format!(
        "control = {:?}\n[[nic]]\nname = \"n0\"\nsocket-path = {:?}\nport = \"null\"\n",
        lab.control(),
        lab.dir.path().join("n0.sock"),
    );
    let file = lab.dir.path().join("second.toml");
    std::fs::write(&file, text).expect("file");
    let output = Command::new(HYPERNIC)
        .arg("serve")
        .arg(&file)
        .output()
        .expect("second");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("control socket") && said.contains("in use"),
        "{said}"
    );
    let pid = Pid::from_child(&lab.daemon);
    kill_process(pid, Signal::TERM).expect("signal");
    assert!(lab.daemon.wait().expect("end").success());
    assert!(!lab.control().exists());
}

#[test]
fn what_comes_with_a_refused_call_is_not_for_the_next_one() {
    let lab = Lab::with(|_| "[[switch]]\nname = \"lan\"\n".into());
    let (_ours, theirs) = UnixStream::pair().expect("pair");
    let mut stream = UnixStream::connect(lab.control()).expect("connect");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("time");
    for first in [
        r#"{"method":"io.hypernic.Capture.Start","upgrade":true,"parameters":{"nic":"x"}}"#,
        r#"{"method":"io.hypernic.Monitor.Subscribe","more":true,"parameters":{"x":1}}"#,
    ] {
        let fds = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let second = r#"{"method":"io.hypernic.Port.Add","parameters":{"switch":"lan","port":"stream:fd=0"}}"#;
        let both = format!("{first}\0{second}\0");
        let bytes = [IoSlice::new(both.as_bytes())];
        let sent = sendmsg(&stream, &bytes, &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent.expect("sent"), both.len());
        let replies = replies(&mut stream, 2);
        assert!(replies[0].contains("error"), "{replies:?}");
        assert!(
            replies[1].contains("no descriptor 0 came"),
            "{first}: {replies:?}"
        );
    }
}

fn replies(stream: &mut UnixStream, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.iter().filter(|byte| **byte == 0).count() < count {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        all.push(byte[0]);
    }
    let text = String::from_utf8(all).expect("text");
    text.split_terminator('\0').map(Into::into).collect()
}
