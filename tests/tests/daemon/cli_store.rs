//! Listening sockets that a service manager keeps, for when the keeper itself ends.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hypernic_tests::{Daemon, LONG, Launch, binary, scratch};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;
use vfio_user::Client;

/// A service manager with a store.
struct Manager {
    path: PathBuf,
    socket: UnixDatagram,
    kept: BTreeMap<String, OwnedFd>,
}

impl Manager {
    fn new(dir: &Path) -> Self {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self {
            path,
            socket,
            kept: BTreeMap::new(),
        }
    }

    /// Does what it is asked until it is told this.
    fn until(&mut self, told: &str) {
        loop {
            let mut text = [0; 512];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [IoSliceMut::new(&mut text)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let n = recvmsg(&self.socket, &mut pieces, &mut control, flags)
                .unwrap()
                .bytes;
            let mut came = control.drain().flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
                _ => Vec::new(),
            });
            let text = String::from_utf8(text[..n].to_vec()).unwrap();
            let name = text
                .lines()
                .find_map(|line| line.strip_prefix("FDNAME="))
                .map(str::to_owned);
            if text.starts_with("FDSTORE=1\n") {
                assert!(text.contains("FDPOLL=0\n"), "{text}");
                let fd = came.next().expect("a descriptor");
                let before = self.kept.insert(name.unwrap(), fd);
                assert!(before.is_none(), "{text}: it was kept already");
            } else if text.starts_with("FDSTOREREMOVE=1\n") {
                let name = name.unwrap();
                assert!(self.kept.remove(&name).is_some(), "{name} was not kept");
            }
            if text.starts_with(told) {
                return;
            }
        }
    }

    /// Starts a daemon with what is kept.
    fn start(&self, dir: &Path, more: &[&str]) -> Daemon {
        let mut names = Vec::new();
        let mut places = String::new();
        for (at, (name, fd)) in self.kept.iter().enumerate() {
            // The shell inherits it.
            fcntl_setfd(fd, FdFlags::empty()).unwrap();
            names.push(name.as_str());
            places += &format!(" {}<&{}", at + 3, fd.as_raw_fd());
        }
        let script = format!(
            "LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={} exec \"$0\" \"$@\"{places}",
            names.len(),
            names.join(":")
        );
        let launch = Launch::under(&["bash", "-c", &script]).unwrap();
        let launch = launch.arg("serve").arg(dir.join("host.toml")).args(more);
        let launch = launch.env("NOTIFY_SOCKET", &self.path.display().to_string());
        launch.env("FDSTORE", "64").start().unwrap()
    }
}

fn write(dir: &Path, nics: &[&str]) {
    let mut text = format!("control = {:?}\n", dir.join("control.sock"));
    for nic in nics {
        let socket = dir.join(format!("{nic}.sock"));
        text += &format!("[[nic]]\nname = {nic:?}\nport = \"null\"\nsocket-path = {socket:?}\n");
    }
    std::fs::write(dir.join("host.toml"), text).unwrap();
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn listening_sockets_outlive_the_keeper_in_a_service_managers_store() {
    for more in [
        &["--no-keeper"][..],
        &["--keeper"],
        &["--keeper", "--sandbox", "strict"],
    ] {
        let dir = scratch().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut manager = Manager::new(dir.path());
        write(dir.path(), &["a", "b"]);
        let mut first = manager.start(dir.path(), more);
        manager.until("READY=1");
        assert_eq!(manager.kept.len(), 2);
        if more.contains(&"--keeper") {
            // The next worker has them of the keeper.
            first.end_worker(Signal::KILL).unwrap();
            manager.until("READY=1");
        }
        let worker = first.worker();
        first.kill();
        // A worker ends by itself, as by SIGTERM.
        until("the end of the worker", || {
            worker.is_none_or(|pid| rustix::process::test_kill_process(pid).is_err())
        });
        assert_eq!(manager.kept.len(), 2);
        // A VMM that comes now is served by the next daemon.
        let path = at("a.sock");
        let waits = std::thread::spawn(move || Client::connect(path).map(drop));
        write(dir.path(), &["a"]);
        let mut next = manager.start(dir.path(), more);
        manager.until("READY=1");
        waits.join().unwrap().expect("it is served");
        // What is wanted no more leads nowhere.
        assert_eq!(manager.kept.len(), 1);
        assert!(!at("b.sock").exists());
        // NICs come and go.
        let control = at("control.sock");
        let hypernic = |words: &str| {
            let mut command = Command::new(binary().unwrap());
            let asked = command
                .args(words.split(' '))
                .arg("--control")
                .arg(&control);
            assert!(asked.output().unwrap().status.success(), "{words}");
        };
        hypernic(&format!(
            "nic add c --port null --socket-path {}",
            at("c.sock").display()
        ));
        manager.until("FDSTORE=1");
        hypernic("nic remove c");
        manager.until("FDSTOREREMOVE=1");
        assert!(!at("c.sock").exists());
        // In the end the manager decides.
        next.stop().unwrap();
        manager.until("STOPPING=1");
        assert_eq!(manager.kept.len(), 1);
        assert!(
            UnixStream::connect(at("a.sock")).is_ok(),
            "it listens still"
        );
        // On a stop it closes what it has, and a later daemon makes a new one.
        manager.kept.clear();
        let file = dir.path().join("host.toml");
        let mut last = Launch::new().unwrap().arg("serve").arg(&file).args(more);
        last = last.env("NOTIFY_SOCKET", &manager.path.display().to_string());
        let mut last = last.start().unwrap();
        drop(Client::connect(at("a.sock")).expect("served"));
        last.stop().unwrap();
        assert!(!at("a.sock").exists(), "without a store it goes");
    }
}
