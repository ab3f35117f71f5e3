//! The control socket: descriptors that are handed over, and calls that are none.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use hypernic_tests::{LONG, binary};
use serde_json::Value;
use vfio_user::{Client, ClientOptions};

use crate::cli_config::{LAN, Lab, nic};
use crate::cli_crash::kill;
use crate::cli_upgrade::upgrade;

/// `hypernic …` with a descriptor as its number 0: whether it went well, and what it said.
fn run_with(lab: &Lab, words: &str, fd: impl Into<OwnedFd>) -> (bool, String) {
    let output = Command::new(binary().unwrap())
        .args(words.split(' '))
        .arg("--control")
        .arg(lab.at("control.sock"))
        .stdin(Stdio::from(fd.into()))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// How many sockets the daemon has open.
fn descriptors(lab: &Lab) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", lab.daemon.server())).unwrap();
    // One may be closed between two looks.
    let names = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    let names = names.filter(|name| name.to_string_lossy().starts_with("socket:"));
    names.count()
}

#[test]
fn streams_and_sockets_are_handed_over_and_closed_with_what_is_made_of_them() {
    let lab = Lab::new(LAN);
    // What asks opens and closes too: the daemon is looked at between calls.
    lab.ran("nic list");
    let before = descriptors(&lab);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(LONG)).unwrap();
    let (well, said) = run_with(&lab, "port add lan stream:fd=0", theirs);
    assert!(well, "{said}");
    let listener = UnixListener::bind(lab.at("handed")).unwrap();
    let (well, said) = run_with(&lab, "nic add n --port switch:lan --fd 0", listener);
    assert!(well, "{said}");
    let mut client = Client::connect(lab.at("handed")).unwrap();
    client.info().expect("the daemon serves it");
    // The stream is a port: a frame for all comes out at another one.
    let (mut out, theirs) = UnixStream::pair().unwrap();
    out.set_read_timeout(Some(LONG)).unwrap();
    let (well, said) = run_with(&lab, "switch add other --port stream:fd=0", theirs);
    assert!(well, "{said}");
    let ports = lab.ran("port list");
    assert_eq!(ports.matches("stream:fd=").count(), 2, "{ports}");
    let (mut second, theirs) = UnixStream::pair().unwrap();
    second.set_read_timeout(Some(LONG)).unwrap();
    let (well, said) = run_with(&lab, "port add lan stream:fd=0", theirs);
    assert!(well, "{said}");
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[7; 46]].concat();
    let message = [&60u32.to_be_bytes()[..], &frame].concat();
    let mut got = [0; 64];
    second
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    // The port's thread may not have begun.
    lab.until("the frame", || {
        ours.write_all(&message).unwrap();
        second.read_exact(&mut got).is_ok()
    });
    assert_eq!(got[4..], frame);
    // They are not for the file, and one that did not come is named.
    let (_, theirs) = UnixStream::pair().unwrap();
    let (well, said) = run_with(&lab, "port add lan stream:fd=0 --persist", theirs);
    assert!(!well && said.contains("leave out persist"), "{said}");
    let reply = call(
        &lab,
        r#"{"method":"io.hypernic.Port.Add","parameters":{"switch":"lan","port":"tap:fd=0"}}"#,
    );
    assert!(
        reply.contains("no descriptor 0 came with the call"),
        "{reply}"
    );
    // With what is made of them they go.
    drop(client);
    for line in lab.ran("port list lan").lines() {
        let port = line.split_whitespace().last().unwrap();
        lab.ran(&format!("port remove lan {port}"));
    }
    lab.ran("nic remove n");
    lab.ran("switch remove other");
    lab.ran("port add lan null");
    lab.until("no descriptor is left over", || descriptors(&lab) <= before);
    assert_eq!(out.read(&mut got).unwrap(), 0);
}

#[test]
fn nics_on_sockets_that_were_handed_over_go_on_over_crashes_and_upgrades() {
    let mut lab = Lab::new(&format!("keeper = true\n{LAN}"));
    let listener = UnixListener::bind(lab.at("handed")).unwrap();
    let (well, said) = run_with(&lab, "nic add n --port switch:lan --fd 0", listener);
    assert!(well, "{said}");
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (well, said) = run_with(&lab, "nic add m --port switch:lan --fd 0", theirs);
    assert!(well, "{said}");
    let listening = Client::connect(lab.at("handed")).unwrap();
    let mut connected = Client::open(OwnedFd::from(ours), ClientOptions::default()).unwrap();
    connected.negotiate().unwrap();
    let mut clients = [listening, connected];
    // VET, which only a reset changes.
    clients
        .iter_mut()
        .for_each(|client| client.write_u32(0, 0x38, 0x88b5).unwrap());
    for end in [true, false, true, false] {
        match end {
            true => _ = kill(&mut lab.daemon),
            false => upgrade(&mut lab.daemon),
        }
        for client in &mut clients {
            assert_eq!(client.read_u32(0, 0x38).unwrap(), 0x88b5);
        }
    }
    // The listening one takes another VMM; and both go with their NICs.
    let [listening, mut connected] = clients;
    drop(listening);
    lab.until("another VMM", || Client::connect(lab.at("handed")).is_ok());
    lab.ran("nic remove m");
    assert!(connected.info().is_err());
    lab.ran("nic remove n");
    kill(&mut lab.daemon);
    let nics = lab.ran("nic list");
    assert!(
        !nics
            .lines()
            .any(|line| line.starts_with("n ") || line.starts_with("m ")),
        "{nics}"
    );
}

/// One message, and the first reply to it.
pub(super) fn call(lab: &Lab, message: &str) -> String {
    let mut stream = UnixStream::connect(lab.at("control.sock")).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(message.as_bytes()).unwrap();
    stream.write_all(&[0]).unwrap();
    let mut reply = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != 0 {
        reply.push(byte[0]);
    }
    String::from_utf8(reply).unwrap()
}

/// Parameters of methods that cannot be, and the error's name.
const BAD: &[(&str, &str, &str)] = &[
    ("Nic.Add", "{}", "InvalidParameter"),
    ("Nic.Add", r#"{"nic":{}}"#, "InvalidParameter"),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"null","speed":1}}"#,
        "InvalidParameter",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"null"}}"#,
        "Control.Invalid",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"","port":"null","socket_path":"/x"}}"#,
        "Control.Invalid",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x\u0000\n","port":"null","socket_path":"/x"}}"#,
        "Control.Invalid",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"null","socket_path":"/x\u0000y"}}"#,
        "Control.",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"switch:none","socket_path":"/x"}}"#,
        "Control.Invalid",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"null","socket_path":"/nowhere/x"}}"#,
        "Control.Failed",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"null","fd":0}}"#,
        "Control.Invalid",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"null","fd":4294967295}}"#,
        "Control.Invalid",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"x","port":"null","fd":-1}}"#,
        "InvalidParameter",
    ),
    (
        "Nic.Add",
        r#"{"nic":{"name":"n","port":"null","socket_path":"/x"}}"#,
        "Control.Exists",
    ),
    ("Nic.Remove", r#"{"name":"x"}"#, "Control.Unknown"),
    (
        "Nic.Remove",
        r#"{"name":"n","if_generation":99}"#,
        "Control.Stale",
    ),
    (
        "Nic.Remove",
        r#"{"name":"n","persist":true}"#,
        "Control.Invalid",
    ),
    ("Nic.Remove", r#"{"name":["n"]}"#, "InvalidParameter"),
    ("Nic.List", r#"{"name":"x"}"#, "Control.Unknown"),
    ("Nic.Inspect", r#"{"name":"x"}"#, "Control.Unknown"),
    (
        "Nic.Inspect",
        r#"{"name":"n","register":"0xffffffffff"}"#,
        "Control.Invalid",
    ),
    (
        "Switch.Add",
        r#"{"switch":{"name":"x","ports":["switch:lan"]}}"#,
        "Control.Invalid",
    ),
    (
        "Switch.Add",
        r#"{"switch":{"name":"x","ports":["tap:fd=3"]}}"#,
        "Control.Invalid",
    ),
    (
        "Switch.Add",
        r#"{"switch":{"name":"x","ageing_seconds":18446744073709551615}}"#,
        "Control.Invalid",
    ),
    (
        "Switch.Add",
        r#"{"switch":{"name":"lan"}}"#,
        "Control.Exists",
    ),
    ("Switch.Remove", r#"{"name":"lan"}"#, "Control.InUse"),
    ("Switch.Remove", r#"{"name":"x"}"#, "Control.Unknown"),
    ("Switch.List", r#"{"name":"x"}"#, "Control.Unknown"),
    (
        "Port.Add",
        r#"{"switch":"x","port":"null"}"#,
        "Control.Unknown",
    ),
    (
        "Port.Add",
        r#"{"switch":"lan","port":"tap:fd=-1"}"#,
        "Control.Invalid",
    ),
    (
        "Port.Add",
        r#"{"switch":"lan","port":""}"#,
        "Control.Invalid",
    ),
    (
        "Port.Add",
        r#"{"switch":"lan","port":"stream:/nowhere/x\u0000"}"#,
        "Control.Failed",
    ),
    (
        "Port.Remove",
        r#"{"switch":"lan","port":"loopback"}"#,
        "Control.Unknown",
    ),
    (
        "Port.Remove",
        r#"{"switch":"x","port":"null"}"#,
        "Control.Unknown",
    ),
    ("Port.List", r#"{"switch":"x"}"#, "Control.Unknown"),
    (
        "Vf.Set",
        r#"{"nic":"n","change":{"vlan":7}}"#,
        "Control.Unknown",
    ),
    ("Vf.Set", r#"{"nic":"v0","change":{}}"#, "Control."),
    (
        "Vf.Set",
        r#"{"nic":"v0","change":{"vlan":-7}}"#,
        "InvalidParameter",
    ),
    ("Vf.Revive", r#"{"nic":"x"}"#, "Control.Unknown"),
    ("Vf.Leave", r#"{"nic":"x"}"#, "Control.Unknown"),
    ("Vf.Reset", r#"{"chip":"n"}"#, "Control.Unknown"),
    ("Vf.Show", r#"{"nic":"n"}"#, "Control.Unknown"),
    ("Config.Plan", r#"{"text":"nic = 7"}"#, "Control.Invalid"),
    ("Config.Apply", r#"{"text":"= ="}"#, "Control.Invalid"),
    (
        "Config.Apply",
        r#"{"text":"workers = 0"}"#,
        "Control.Invalid",
    ),
    ("Config.Apply", r#"{"text":""}"#, "Control.Invalid"),
    (
        "Config.Apply",
        r#"{"text":"control = \"/elsewhere\""}"#,
        "Control.NotWhileRunning",
    ),
    ("Config.Apply", r#"{"rollback_after":0}"#, "Control.Invalid"),
    ("Config.Apply", r#"{"if_generation":7}"#, "Control.Stale"),
    (
        "Config.Apply",
        r#"{"rollback_after":-1}"#,
        "InvalidParameter",
    ),
    ("Config.Dump", r#"{"text":"x"}"#, "InvalidParameter"),
    ("Monitor.Subscribe", "{}", "ExpectedMore"),
    ("Drops.Explain", r#"{"name":"x"}"#, "Control.Unknown"),
    ("Nic.Burn", "{}", "MethodNotFound"),
    ("Nothing.Add", "{}", "InterfaceNotFound"),
];

#[test]
fn each_call_that_cannot_be_has_a_named_error_and_changes_nothing() {
    let mut lab = Lab::new(&format!("{LAN}{}", nic("n", "")));
    let before = (lab.generation(), lab.everything());
    for (method, parameters, error) in BAD {
        let message = format!(r#"{{"method":"io.hypernic.{method}","parameters":{parameters}}}"#);
        let reply = call(&lab, &message);
        let told = format!("\"error\":\"io.hypernic.{error}");
        let varlink = format!("\"error\":\"org.varlink.service.{error}");
        assert!(
            reply.contains(&told) || reply.contains(&varlink),
            "{message}: {reply}"
        );
        let reply: Value = serde_json::from_str(&reply).unwrap();
        let text = reply["parameters"]["message"].as_str().unwrap_or("");
        assert!(!text.contains(char::is_control), "one line: {text}");
        assert_eq!((lab.generation(), lab.everything()), before, "{message}");
    }
    for message in [
        "",
        "{",
        "[]",
        "7",
        "{}",
        "{\"method\":null}",
        "{\"method\":\"io.hypernic.Nic.List\",\"more\":7}",
        "\u{1}",
    ] {
        let reply = call(&lab, message);
        assert!(
            reply.contains("org.varlink.service.InvalidParameter"),
            "{message}: {reply}"
        );
    }
    // One that is too long, and ones that never end or never begin, are cut off.
    let mut long = UnixStream::connect(lab.at("control.sock")).unwrap();
    while long.write_all(&[b' '; 4096]).is_ok() {}
    for begun in ["", "{\"method\""] {
        let mut half = UnixStream::connect(lab.at("control.sock")).unwrap();
        half.write_all(begun.as_bytes()).unwrap();
        half.set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        assert_eq!(half.read(&mut [0]).unwrap(), 0, "{begun}");
    }
    assert_eq!((lab.generation(), lab.everything()), before);
    assert!(lab.daemon.is_alive());
}

#[test]
fn a_shell_is_told_the_names_that_the_daemon_has() {
    let lab = Lab::new(&format!("{LAN}{}{}", nic("web", ""), nic("db", "")));
    let control = lab.at("control.sock").display().to_string();
    let told = |words: &[&str]| {
        let output = Command::new(binary().unwrap())
            .env("COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
            .env("_CLAP_COMPLETE_COMP_TYPE", "9")
            .env("_CLAP_COMPLETE_SPACE", "true")
            .env("_CLAP_IFS", "\n")
            .args(["--", "hypernic"])
            .args(words)
            .args(["--control", &control])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |told: &[String], name: &str| told.iter().any(|one| one == name);
    let nics = told(&["nic", "remove", ""]);
    assert!(has(&nics, "web") && has(&nics, "db"), "{nics:?}");
    let begun = told(&["nic", "remove", "w"]);
    assert!(has(&begun, "web") && !has(&begun, "db"), "{begun:?}");
    assert!(has(&told(&["port", "add", ""]), "lan"));
    assert!(has(&told(&["con"]), "config"));
    lab.ran("nic remove web");
    assert!(!has(&told(&["nic", "remove", ""]), "web"));
    let script = Command::new(binary().unwrap())
        .env("COMPLETE", "bash")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&script.stdout).contains("complete"));
}
