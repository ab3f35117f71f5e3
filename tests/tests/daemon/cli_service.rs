//! Under a service manager: signs of life for its watchdog, sockets that it hands over, modes and groups of sockets.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hypernic_tests::{Daemon, LONG, Launch, binary, scratch};
use rustix::process::{Signal, getgid, kill_process};

use super::cli_config::Lab;

const LAN: &str = "[[switch]]\nname = \"lan\"\n[[nic]]\nname = \"a\"\nsocket-path = \"@/a\"\nport = \"switch:lan\"\n";

struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn new(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        Self { socket }
    }

    /// The next message; `None`: there was none for so long.
    fn told(&self, wait: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(wait)).unwrap();
        let mut text = [0; 256];
        let n = self.socket.recv(&mut text).ok()?;
        Some(String::from_utf8(text[..n].to_vec()).unwrap())
    }
}

#[test]
fn a_watchdog_gets_signs_of_life_from_the_process_that_serves_and_from_no_other() {
    for keeper in [false, true] {
        let dir = scratch().unwrap();
        let path = dir.path().join("notify");
        let manager = Manager::new(&path);
        let more: &[&str] = if keeper { &[] } else { &["--no-keeper"] };
        let mut lab = Lab::with(LAN, |launch| {
            let launch = launch.args(more).env("WATCHDOG_USEC", "400000");
            launch.env("NOTIFY_SOCKET", &path.display().to_string())
        });
        assert_eq!(manager.told(LONG).as_deref(), Some("READY=1\n"));
        let signs = || {
            for _ in 0..3 {
                assert_eq!(manager.told(LONG).as_deref(), Some("WATCHDOG=1\n"));
            }
        };
        signs();
        let stop = |lab: &Lab, signal| match lab.daemon.worker() {
            // The keeper goes on, and gives none in its place.
            Some(worker) => kill_process(worker, signal).unwrap(),
            None => lab.daemon.signal(signal).unwrap(),
        };
        stop(&lab, Signal::STOP);
        let silence = Duration::from_secs(1);
        while manager.told(silence).is_some() {}
        stop(&lab, Signal::CONT);
        signs();
        if keeper {
            lab.daemon.end_worker(Signal::KILL).unwrap();
            let mut told = manager.told(LONG);
            while told.as_deref() == Some("WATCHDOG=1\n") {
                told = manager.told(LONG);
            }
            assert_eq!(told.as_deref(), Some("READY=1\n"));
            signs();
        }
        lab.daemon.stop().unwrap();
        while let Some(told) = manager.told(silence) {
            assert!(
                ["WATCHDOG=1\n", "STOPPING=1\n"].contains(&told.as_str()),
                "{told}"
            );
        }
    }
}

/// A daemon whose first descriptor is handed over as systemd does it.
fn activated(dir: &Path, socket: &UnixListener, name: &str, more: &[&str]) -> Daemon {
    let file = dir.join("host.toml");
    // Another path than that of the socket, so that it matters which one is served.
    let text = format!("control = \"{}\"\n", dir.join("other.sock").display());
    std::fs::write(&file, text).unwrap();
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES={name} exec \"$0\" \"$@\" 3<&0 0</dev/null"
    );
    let handed = OwnedFd::from(socket.try_clone().unwrap());
    let launch = Launch::under(&["sh", "-c", &script]).unwrap();
    let launch = launch.arg("serve").arg(&file).args(more).stdin(handed);
    launch.start().unwrap()
}

#[test]
fn the_control_socket_is_one_that_a_service_manager_hands_over() {
    for more in [
        &["--no-keeper"][..],
        &["--keeper"],
        &["--sandbox", "strict"],
    ] {
        let dir = scratch().unwrap();
        let path = dir.path().join("control.sock");
        let socket = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let mut daemon = activated(dir.path(), &socket, "control", more);
        let list = || {
            let mut command = Command::new(binary().unwrap());
            let asked = command
                .args(["nic", "list", "--json", "--control"])
                .arg(&path);
            let output = asked.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        list();
        assert!(!dir.path().join("other.sock").exists());
        // The unit says its mode, and it is the manager's to remove.
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        if more.contains(&"--keeper") {
            daemon.end_worker(Signal::KILL).unwrap();
            list();
            let lines = daemon.log_position();
            daemon.signal(Signal::USR2).unwrap();
            daemon.wait_log_after(lines, "serving").unwrap();
            list();
        }
        daemon.stop().unwrap();
        assert!(path.exists());
    }
    let dir = scratch().unwrap();
    let socket = UnixListener::bind(dir.path().join("control.sock")).unwrap();
    let mut daemon = activated(dir.path(), &socket, "another", &[]);
    assert!(dir.path().join("other.sock").exists());
    daemon.stop().unwrap();
}

#[test]
fn sockets_have_the_group_and_the_mode_of_the_file() {
    let group = getgid().as_raw();
    let head = |mode: &str| {
        format!(
            "control-mode = \"0640\"\nsocket-mode = \"{mode}\"\nsocket-group = \"{group}\"\n{LAN}"
        )
    };
    let words = head("0660");
    for more in [&[][..], &["--sandbox", "strict"]] {
        let mut lab = Lab::with(&words, |launch| launch.args(more));
        let mode = |name: &str| std::fs::metadata(lab.at(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("control.sock"), mode("a")), (0o640, 0o660));
        lab.ran(&format!(
            "nic add b --port switch:lan --socket-path {}",
            lab.at("b").display()
        ));
        assert_eq!(mode("b"), 0o660);
        assert_eq!(std::fs::metadata(lab.at("b")).unwrap().gid(), group);
        let dump = lab.everything();
        for word in words.lines().take(3) {
            assert!(dump.contains(word), "{dump}");
        }
        let file = lab.write("other.toml", &head("0600"));
        let refused = lab.refused(&format!("config apply {file}"));
        assert!(refused.contains("socket-mode"), "{refused}");
        lab.daemon.stop().unwrap();
    }
}
