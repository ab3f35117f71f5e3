//! A running daemon and its control clients: the library, the command, and hostile ones.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use control::{Reply, Request, VfChange, ask};
use drivers::SocketBus;
use drivers::igbvf::Vf;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const HYPERNIC: &str = env!("CARGO_BIN_EXE_hypernic");
const LONG: Duration = Duration::from_secs(60);

/// A daemon of its own process, with a chip of two VFs and a control socket.
struct Lab {
    dir: TempDir,
    daemon: Child,
}

impl Lab {
    fn new() -> Lab {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        let text = format!(
            "control = {:?}\n[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 2\n\
             vf-socket-path = {:?}\nport = \"null\"\nport-rate = 1000\n",
            at("control.sock"),
            at("vf{}.sock"),
        );
        std::fs::write(at("host.toml"), text).expect("file");
        let daemon = Command::new(HYPERNIC)
            .arg("serve")
            .arg(at("host.toml"))
            .stdout(File::create(at("told")).expect("file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("daemon");
        let lab = Lab { dir, daemon };
        // Bound is not listening yet, and a connection would be counted.
        let path = lab.control();
        lab.until("the control socket", || {
            let sockets = std::fs::read_to_string("/proc/net/unix").expect("sockets");
            let listens = |line: &str| {
                line.ends_with(path.to_str().expect("text")) && line.contains(" 00010000 ")
            };
            sockets.lines().any(listens).then_some(())
        });
        lab
    }

    /// Ends the daemon and takes what it says of one counter in the end.
    fn counted(&mut self, counter: &str) -> u64 {
        if self.daemon.try_wait().expect("state").is_none() {
            kill_process(Pid::from_child(&self.daemon), Signal::TERM).expect("signal");
        }
        assert!(self.daemon.wait().expect("end").success());
        let told = std::fs::read_to_string(self.dir.path().join("told")).expect("counters");
        told.lines()
            .filter_map(|line| line.trim().strip_prefix(counter))
            .filter_map(|rest| {
                rest.strip_prefix(' ')?
                    .split_whitespace()
                    .next()?
                    .parse::<u64>()
                    .ok()
            })
            .sum()
    }

    fn control(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    #[track_caller]
    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + LONG;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "{what} did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn vf(&self, n: u8) -> Vf<SocketBus> {
        let socket = self.dir.path().join(format!("vf{n}.sock"));
        Vf::new(SocketBus::connect(socket).expect("connect")).expect("a VF")
    }

    /// `hypernic vf …`.
    fn say(&self, words: &str) -> Output {
        Command::new(HYPERNIC)
            .args(["vf", "--control"])
            .arg(self.control())
            .args(words.split(' '))
            .output()
            .expect("hypernic vf")
    }

    /// What it prints when all is well.
    #[track_caller]
    fn said(&self, words: &str) -> String {
        let output = self.say(words);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {wrong}");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

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
    let json = Command::new(HYPERNIC)
        .args(["--log-format", "json", "vf", "show", "--control"])
        .arg(lab.control())
        .output()
        .expect("hypernic vf");
    let reply: Reply = serde_json::from_slice(&json.stdout).expect("a reply");
    assert!(matches!(reply, Reply::Vfs(vfs) if vfs.len() == 2));
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
        ("revive p0", 1, "not a virtual function"),
        ("reset p0vf1", 1, "no chip p0vf1"),
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
    for line in [
        &b"\n"[..],
        b"{}\n",
        b"\xff\xfe\n",
        b"{\"do\":\"vf-show\",\"nic\":7}\n",
    ] {
        let mut stream = UnixStream::connect(lab.control()).expect("connect");
        stream.write_all(line).expect("write");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("reply");
        assert!(reply.contains("cannot parse the request"), "{reply}");
    }
    // Some that say nothing, one that never ends and one that is gone: in the end we are answered.
    let mut silent: Vec<_> = (0..3)
        .map(|_| UnixStream::connect(lab.control()).expect("connect"))
        .collect();
    let mut endless = UnixStream::connect(lab.control()).expect("connect");
    drop(UnixStream::connect(lab.control()).expect("connect"));
    let writer = std::thread::spawn(move || while endless.write_all(&[b' '; 4096]).is_ok() {});
    let change = VfChange {
        trust: Some(true),
        ..VfChange::default()
    };
    let request = Request::VfSet {
        nic: "p0vf0".into(),
        change,
    };
    lab.until("an answer", || ask(&lab.control(), &request).ok());
    writer.join().expect("cut off");
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0; 8]).expect("closed"), 0);
    }
    for (counter, wanted) in [
        ("control_malformed", 4),
        // Three are silent, one never ends, one is gone.
        ("control_no_request", 5),
        ("control_done", 1),
    ] {
        assert_eq!(lab.counted(counter), wanted, "{counter}");
    }
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
