//! Users of the control socket and what each may do. Only root can be several users: others try what they can.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::lab::{Lab, copy_program};

const MONITOR: u32 = 61_001;
const OPERATOR: u32 = 61_002;
const OWNER: u32 = 61_003;
const GROUP: u32 = 61_100;
const STRANGER: u32 = 61_999;

/// `hypernic …` as another user.
fn run_as(lab: &Lab, uid: u32, gid: u32, words: &str) -> Output {
    Command::new(lab.dir.path().join("hypernic"))
        .args(words.split(' '))
        .arg("--control")
        .arg(lab.control())
        .uid(uid)
        .gid(gid)
        .output()
        .expect("hypernic")
}

fn lab() -> Lab {
    let lab = Lab::with(|dir| {
        format!(
            "control-monitor = [\"{MONITOR}\", \"@{GROUP}\"]\ncontrol-operate = [\"{OPERATOR}\"]\n\
             control-owner = [\"{OWNER}\"]\n[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\n\
             vf-socket-path = {:?}\nport = \"null\"\n",
            dir.join("vf{}.sock")
        )
    });
    // Where all may go, and the program that all may run.
    let at = lab.dir.path();
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).expect("mode");
    copy_program(&at.join("hypernic"));
    lab
}

#[test]
fn each_role_may_what_it_may_and_no_more() {
    let mut lab = lab();
    let mode = std::fs::metadata(lab.control())
        .expect("socket")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o666, "the peer's identity decides");
    if !rustix::process::geteuid().is_root() {
        // The daemon's own user owns it, whatever the file says of others.
        lab.ran("nic list");
        return;
    }
    let socket = lab.dir.path().join("new.sock");
    let add = format!("nic add new --port null --socket-path {}", socket.display());
    let calls = ["nic list", "vf revive p0vf0", &add, "nic remove new"];
    for (uid, gid, may) in [
        (MONITOR, MONITOR, 1),
        (STRANGER, GROUP, 1),
        (OPERATOR, OPERATOR, 2),
        (OWNER, OWNER, 4),
        (STRANGER, STRANGER, 0),
    ] {
        for (at, call) in calls.iter().enumerate() {
            let output = run_as(&lab, uid, gid, call);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), at < may, "{uid} {call}: {said}");
            if at >= may {
                assert_eq!(said.lines().count(), 1, "{said}");
                let why = if may == 0 {
                    "this user may not"
                } else {
                    "is for the role"
                };
                assert!(said.contains(why), "{uid} {call}: {said}");
            }
        }
        assert!(!socket.exists());
    }
    let log = lab.log();
    assert!(log.contains(&format!("uid={OPERATOR}")), "{log}");
    assert!(log.contains(&format!("uid={STRANGER}")), "{log}");
    // Monitors: 3 each; the operator: 2.
    assert_eq!(lab.counted("control_not_allowed"), 8);
    assert_eq!(lab.counted("control_stranger"), 4);
}

#[test]
fn no_method_is_open_to_a_lower_role() {
    let lab = lab();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let file = lab.dir.path().join("host.toml");
    let socket = lab.dir.path().join("new.sock");
    let before = lab.ran("config dump");
    let operate = [
        "vf set p0vf0 vlan 7",
        "vf revive p0vf0",
        "vf leave p0vf0",
        "vf reset p0",
        "nic link p0vf0 down",
    ];
    let owner = [
        format!("nic add new --port null --socket-path {}", socket.display()),
        "nic remove p0vf0".into(),
        "nic set p0vf0 --mac-lock true".into(),
        "chip add p1 --port null --vfs 1 --vf-socket-path /run/p1-{}".into(),
        "chip set p0 --vfs 2".into(),
        "chip remove p0".into(),
        "switch add lan".into(),
        "switch set lan --ageing-seconds 20".into(),
        "switch remove lan".into(),
        "port add lan null".into(),
        "port remove lan null".into(),
        format!("config diff {}", file.display()),
        format!("config apply {}", file.display()),
        format!("migrate prepare m1 p0vf0 --to {}", lab.control().display()),
        format!("migrate commit m1 --to {}", lab.control().display()),
        format!("migrate abort m1 --to {}", lab.control().display()),
        "config confirm".into(),
        "config rollback".into(),
    ];
    let refused = |uid: u32, call: &str, role: &str| {
        let output = run_as(&lab, uid, uid, call);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{uid} {call}");
        assert!(
            said.contains(&format!("is for the role {role}")),
            "{uid} {call}: {said}"
        );
    };
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("mode");
    for call in operate {
        refused(MONITOR, call, "operate");
    }
    for call in &owner {
        refused(MONITOR, call, "owner");
        refused(OPERATOR, call, "owner");
    }
    // The daemon would run it as itself: an owner who is another user may not name it.
    let output = run_as(&lab, OWNER, OWNER, "upgrade /bin/true");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("only root and the daemon's own user"),
        "{said}"
    );
    assert_eq!(lab.ran("config dump"), before);
}

/// As a container's daemon is asked from its host: the number of such a caller's process is 0 to the daemon.
#[test]
fn a_caller_outside_of_the_daemons_namespace_of_processes_is_who_he_is() {
    let apart = ["unshare", "--pid", "--fork", "--kill-child"];
    let tried = Command::new(apart[0])
        .args(&apart[1..])
        .arg("true")
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this user may not make a namespace of processes");
        return;
    }
    let lab = Lab::with_by(&apart, |_| String::new());
    lab.ran("switch add lan");
    assert!(lab.ran("switch list").contains("lan"));
    let log = std::fs::read_to_string(lab.dir.path().join("log")).expect("log");
    assert!(log.contains("pid=0 role=\"owner\""), "{log}");
}
