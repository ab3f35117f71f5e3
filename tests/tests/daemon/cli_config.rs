//! The configuration of a daemon that runs: printed, compared, applied, taken back, read again, written.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hypernic_tests::{Daemon, LONG, Launch, binary, scratch};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use vfio_user::Client;

/// A daemon, its file, and the commands that ask it.
pub(super) struct Lab {
    pub(super) dir: TempDir,
    pub(super) daemon: Daemon,
}

impl Lab {
    /// With these words besides the control socket. `@` is the folder of its files.
    pub(super) fn new(words: &str) -> Self {
        Self::with(words, |launch| launch)
    }

    pub(super) fn with(words: &str, more: impl FnOnce(Launch) -> Launch) -> Self {
        let dir = scratch().unwrap();
        let file = dir.path().join("host.toml");
        std::fs::write(&file, text(dir.path(), words)).unwrap();
        let launch = Launch::new().unwrap().arg("serve").arg(&file);
        let daemon = more(launch).start().unwrap();
        Self { dir, daemon }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn write(&self, name: &str, words: &str) -> String {
        std::fs::write(self.at(name), text(self.dir.path(), words)).unwrap();
        self.at(name).display().to_string()
    }

    /// `hypernic …`: whether it went well, and what it said.
    pub(super) fn run(&self, words: &str) -> (bool, String) {
        let output = Command::new(binary().unwrap())
            .args(words.split(' '))
            .arg("--control")
            .arg(self.at("control.sock"))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        (output.status.success(), said)
    }

    #[track_caller]
    pub(super) fn ran(&self, words: &str) -> String {
        let (well, said) = self.run(words);
        assert!(well, "{words}: {said}");
        said
    }

    /// What it says when it refuses: one line.
    #[track_caller]
    pub(super) fn refused(&self, words: &str) -> String {
        let (well, said) = self.run(words);
        assert!(!well && said.lines().count() == 1, "{words}: {said}");
        said
    }

    pub(super) fn generation(&self) -> u64 {
        let dump: Value = serde_json::from_str(&self.ran("config dump --json")).unwrap();
        dump["generation"].as_u64().unwrap()
    }

    /// All that runs.
    pub(super) fn everything(&self) -> String {
        self.ran("config dump")
    }

    pub(super) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + LONG;
        while !holds() {
            assert!(Instant::now() < end, "{what}: {}", self.daemon.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGHUP, and waits until the file was read.
    fn reload(&mut self) -> String {
        let seen = self.daemon.log_position();
        self.daemon.signal(Signal::HUP).unwrap();
        self.daemon.wait_log_after(seen, "reload").unwrap();
        self.until("the end of it", || {
            let log = self.daemon.log();
            let new: Vec<_> = log.lines().skip(seen).collect();
            new.iter()
                .any(|line| line.contains("reloaded") || line.contains("nothing was changed"))
        });
        self.daemon
            .log()
            .lines()
            .skip(seen)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn text(dir: &Path, words: &str) -> String {
    let control = "control = \"@/control.sock\"\n";
    format!("{control}{words}").replace('@', &dir.display().to_string())
}

pub(super) fn nic(name: &str, more: &str) -> String {
    format!(
        "[[nic]]\nname = \"{name}\"\nsocket-path = \"@/{name}\"\nport = \"switch:lan\"\n{more}\n"
    )
}

pub(super) const LAN: &str = "[[switch]]\nname = \"lan\"\nports = [\"null\"]\n";

#[test]
fn a_dump_starts_the_same_host() {
    let chip = "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = \"@/p0-{}\"\nport = \"switch:lan\"\n";
    let mut lab = Lab::new(&format!(
        "workers = 2\n{LAN}{}{chip}",
        nic("a", "mac-lock = true")
    ));
    lab.ran(&format!(
        "nic add b --port null --model virtio-net --socket-path {}",
        lab.at("b").display()
    ));
    lab.ran("vf set p0vf1 vlan 7 qos 2 max_tx_rate 100 mac 02:00:00:00:00:09");
    lab.ran("port add lan loopback");
    lab.ran("switch add other --ageing-seconds 60");
    let dump = lab.everything();
    for word in [
        "name = \"b\"",
        "max-tx-rate = 100",
        "vlan = 7",
        "\"loopback\"",
        "ageing-seconds = 60",
    ] {
        assert!(dump.contains(word), "{word}: {dump}");
    }
    let file = lab.at("again.toml");
    std::fs::write(&file, &dump).unwrap();
    let file = file.display().to_string();
    assert_eq!(lab.ran(&format!("config diff {file}")), "nothing to do\n");
    let own = lab.ran("config diff");
    for line in [
        "- NIC b",
        "- port lan loopback",
        "- switch other",
        "~ chip p0",
    ] {
        assert!(own.contains(line), "{line}: {own}");
    }
    lab.daemon.stop().unwrap();
    lab.daemon = Launch::new()
        .unwrap()
        .args(["serve", &file])
        .start()
        .unwrap();
    assert_eq!(lab.everything(), dump);
}

#[test]
fn a_file_is_applied_whole_or_not_at_all_and_what_it_leaves_alone_is_not_touched() {
    let lab = Lab::new(&format!("{LAN}{}{}", nic("a", ""), nic("b", "")));
    let mut a = Client::connect(lab.at("a")).unwrap();
    a.info().unwrap();
    let file = lab.write(
        "new.toml",
        &format!(
            "{LAN}{}{}",
            nic("a", ""),
            nic("c", "model = \"virtio-net\"")
        ),
    );
    let apply = format!("config apply {file}");
    let before = lab.everything();
    let steps = "- NIC b\n+ NIC c\n";
    assert_eq!(lab.ran(&format!("{apply} --plan")), steps);
    assert_eq!(
        lab.ran(&format!("{apply} --check")),
        format!("{steps}it can be done\n")
    );
    assert_eq!(lab.everything(), before);
    assert_eq!(lab.ran(&apply), format!("{steps}done\n"));
    assert!(!lab.at("b").exists() && lab.at("c").exists());
    assert_eq!(lab.ran(&apply), "nothing to do\n");
    a.info().expect("it is connected as before");
    // What a VMM has is not touched, and then nothing else is.
    let before = lab.everything();
    let file = lab.write(
        "other.toml",
        &format!("{LAN}{}{}", nic("a", "pause = true"), nic("d", "")),
    );
    let apply = format!("config apply {file}");
    let said = lab.refused(&apply);
    assert!(
        said.contains(
            "NIC a: pause is to change, which a guest has started with, and a VMM has it"
        ),
        "{said}"
    );
    assert_eq!(lab.everything(), before);
    a.info().expect("still connected");
    let said = lab.ran(&format!("{apply} --partly"));
    assert!(said.contains("- NIC c\n+ NIC d\n! NIC a: pause"), "{said}");
    a.info().expect("still connected");
    assert_eq!(
        lab.ran(&format!("{apply} --disconnect")),
        "~ NIC a: pause (made anew)\ndone\n"
    );
    assert!(a.info().is_err(), "made anew");
    // A step that fails takes the others back.
    let before = lab.everything();
    let bad = "[[nic]]\nname = \"x\"\nsocket-path = \"@/x\"\nport = \"stream:fd=999\"\n";
    let file = lab.write("bad.toml", &format!("{LAN}{}{bad}", nic("e", "")));
    let said = lab.refused(&format!("config apply {file}"));
    assert!(said.contains("999"), "{said}");
    assert_eq!(lab.everything(), before);
    assert!(!lab.at("e").exists() && lab.at("a").exists());
    let file = lab.write("wrong.toml", "[[nic]]\nname = 7\n");
    let said = lab.refused(&format!("config apply {file}"));
    assert!(said.contains("wrong.toml:3:8"), "{said}");
}

#[test]
fn what_is_not_confirmed_is_taken_back() {
    let lab = Lab::new(&format!("{LAN}{}", nic("a", "")));
    let file = lab.write("new.toml", &format!("{LAN}{}", nic("b", "")));
    let before = lab.everything();
    let said = lab.ran(&format!("config apply {file} --rollback-after 1"));
    assert!(said.contains("done, for 1 seconds"), "{said}");
    assert!(lab.at("b").exists());
    lab.until("all as before", || lab.everything() == before);
    assert!(!lab.at("b").exists() && lab.at("a").exists());
    assert!(lab.daemon.log().contains("was not confirmed in time"));
    // What is on trial is not changed by others, and a word ends the trial.
    lab.ran(&format!("config apply {file} --rollback-after 3600"));
    for call in [
        "switch add x".to_owned(),
        format!("config apply {file}"),
        "nic remove b".into(),
    ] {
        let said = lab.refused(&call);
        assert!(said.contains("on trial for"), "{call}: {said}");
    }
    assert_eq!(lab.ran("config rollback"), "all is as it was before\n");
    assert_eq!(lab.everything(), before);
    assert_eq!(lab.ran("config rollback"), "nothing is on trial\n");
    lab.ran(&format!("config apply {file} --rollback-after 2"));
    assert_eq!(lab.ran("config confirm"), "it stays\n");
    std::thread::sleep(Duration::from_millis(2500));
    assert!(lab.at("b").exists() && !lab.at("a").exists());
    for seconds in [0, 3601] {
        let said = lab.refused(&format!("config apply {file} --rollback-after {seconds}"));
        assert!(said.contains("between 1 and 3600"), "{said}");
    }
}

#[test]
fn sighup_does_what_can_be_done_and_names_what_cannot() {
    let mut lab = Lab::new(&format!(
        "workers = 2\n{LAN}{}{}",
        nic("a", ""),
        nic("b", "")
    ));
    let mut a = Client::connect(lab.at("a")).unwrap();
    let before = lab.everything();
    assert!(lab.reload().contains("reloaded"));
    assert_eq!(lab.everything(), before, "the file says what runs");
    lab.write(
        "host.toml",
        &format!(
            "workers = 3\n{LAN}{}{}",
            nic("a", "csb = true"),
            nic("c", "")
        ),
    );
    let log = lab.reload();
    for line in [
        "NIC a is as it was: csb is to change, which a guest has started with, and a VMM has it",
        "head workers is as it was",
        "remove NIC b",
        "add NIC c",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    a.info().expect("not touched");
    assert!(lab.at("c").exists() && !lab.at("b").exists());
    // Once it can be, it is done.
    drop(a);
    lab.daemon.wait_log("VMM disconnected").unwrap();
    assert!(lab.reload().contains("change NIC a"));
    // A mistake changes nothing.
    let before = lab.everything();
    lab.write("host.toml", "[[nic]]\nname = \"x\"\n");
    let log = lab.reload();
    assert!(
        log.contains("nothing was changed") && log.contains("host.toml:"),
        "{log}"
    );
    assert_eq!(lab.everything(), before);
    std::fs::remove_file(lab.at("host.toml")).unwrap();
    assert!(lab.reload().contains("cannot read"));
    assert_eq!(lab.everything(), before);
}

#[test]
fn a_service_manager_is_told_of_start_reload_and_end() {
    let dir = scratch().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LONG)).unwrap();
    let told = || {
        let mut text = [0; 256];
        let n = manager.recv(&mut text).unwrap();
        String::from_utf8(text[..n].to_vec()).unwrap()
    };
    for more in [
        &["--no-keeper"][..],
        &["--keeper"],
        &["--sandbox", "strict"],
    ] {
        let socket = path.display().to_string();
        let mut lab = Lab::with(LAN, |launch| {
            launch.args(more).env("NOTIFY_SOCKET", &socket)
        });
        assert_eq!(told(), "READY=1\n");
        // An upgrade is a reload to it; without a keeper there is none.
        let upgrade = more.contains(&"--keeper").then_some(Signal::USR2);
        for signal in [Signal::HUP].into_iter().chain(upgrade) {
            lab.daemon.signal(signal).unwrap();
            let begins = told();
            let micros = begins
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .expect("it says so");
            assert!(micros.trim_end().parse::<u64>().unwrap() > 0, "{begins}");
            assert_eq!(told(), "READY=1\n");
        }
        lab.daemon.stop().unwrap();
        assert_eq!(told(), "STOPPING=1\n");
    }
}

#[test]
fn what_persists_is_in_the_file_and_its_comments_stay() {
    let words = format!(
        "control-persist = true # yes\n{LAN}# It serves pages.\n{}",
        nic("web", "")
    );
    let mut lab = Lab::new(&words);
    let file = || std::fs::read_to_string(lab.at("host.toml")).unwrap();
    let start = file();
    let add = format!(
        "nic add db --port switch:lan --tx-rate 1gbit --socket-path {}",
        lab.at("db").display()
    );
    lab.ran(&format!("{add} --persist --check"));
    assert_eq!(file(), start, "only checked");
    lab.ran(&format!("{add} --persist"));
    lab.ran(&format!("{add} --persist"));
    lab.ran("switch add wan --port null --persist");
    lab.ran("port add wan loopback --persist");
    lab.ran("port remove lan null --persist");
    lab.ran("nic remove web --persist");
    // This one is for now.
    lab.ran("switch add now");
    let text = file();
    assert!(
        text.contains("# yes") && text.contains("[\"null\", \"loopback\"]"),
        "{text}"
    );
    assert!(!text.contains("pages") && !text.contains("now"), "{text}");
    let names = std::fs::read_dir(lab.dir.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".new")),
        "{names:?}"
    );
    assert_eq!(lab.ran("config diff"), "- switch now\n");
    // The file has another mistake meanwhile: nothing is changed, there or here.
    let before = lab.everything();
    std::fs::write(lab.at("host.toml"), format!("{text}\n[[nic]]\n")).unwrap();
    let said = lab.refused("switch add x --persist");
    assert!(said.contains("the file would be wrong then"), "{said}");
    assert_eq!(lab.everything(), before);
    std::fs::write(lab.at("host.toml"), &text).unwrap();
    // A whole file, once it is confirmed.
    let new = lab.write(
        "new.toml",
        &format!("control-persist = true\n{LAN}# Kept.\n"),
    );
    lab.ran(&format!("config apply {new} --persist --rollback-after 60"));
    assert_eq!(file(), text);
    // What cannot be written is not confirmed, and may be again.
    std::fs::remove_file(lab.at("host.toml")).unwrap();
    let said = lab.refused("config confirm");
    assert!(said.contains("cannot write"), "{said}");
    std::fs::write(lab.at("host.toml"), &text).unwrap();
    assert_eq!(lab.ran("config confirm"), "it stays\n");
    assert_eq!(file(), std::fs::read_to_string(&new).unwrap());
    lab.daemon.stop().unwrap();
    // Where that is not allowed.
    let lab = Lab::new(LAN);
    let said = lab.refused("switch add x --persist");
    assert!(said.contains("control-persist = true"), "{said}");
    assert!(!lab.everything().contains("\"x\""));
}

#[test]
fn a_stale_generation_is_refused_by_name() {
    let lab = Lab::new(LAN);
    let now = lab.generation();
    lab.ran(&format!("switch add x --if-generation {now}"));
    assert_eq!(lab.generation(), now + 1);
    lab.ran(&format!("switch add x --if-generation {}", now + 1));
    assert_eq!(lab.generation(), now + 1, "nothing was to do");
    let before = lab.everything();
    let file = lab.write("new.toml", "[[switch]]\nname = \"y\"\n");
    for call in [
        "switch add z".to_owned(),
        "switch remove x".into(),
        "port add lan loopback".into(),
        "port remove lan null".into(),
        format!(
            "nic add n --port null --socket-path {}",
            lab.at("n").display()
        ),
        "nic remove n --missing-ok".into(),
        format!("config apply {file}"),
    ] {
        let said = lab.refused(&format!("{call} --if-generation {now}"));
        assert!(said.contains("look again"), "{call}: {said}");
        assert_eq!(lab.everything(), before, "{call}");
    }
}
