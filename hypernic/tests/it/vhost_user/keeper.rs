//! A daemon with a keeper, as a process, whose worker is killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::*;

/// A life that is shorter than a second does not help.
const LIFE: Duration = Duration::from_millis(1200);

struct Kept {
    dir: tempfile::TempDir,
    process: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Kept {
    fn new(nics: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut text = "workers = 1\n[[switch]]\nname = \"lan\"\n".to_owned();
        for n in 0..nics {
            let socket = dir.path().join(format!("n{n}.sock"));
            text += &format!(
                "[[nic]]\nname = \"n{n}\"\nmodel = \"virtio-net\"\ntransport = \"vhost-user\"\n\
                 socket-path = {socket:?}\nport = \"switch:lan\"\n"
            );
        }
        let file = dir.path().join("host.toml");
        std::fs::write(&file, text).expect("written");
        let mut process = Command::new(env!("CARGO_BIN_EXE_hypernic"))
            .args(["serve", "--keeper", "--log-format", "json"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let log = BufReader::new(process.stderr.take().expect("piped"));
        let mut kept = Self { dir, process, log };
        kept.wait();
        kept
    }

    /// Waits until it serves.
    fn wait(&mut self) {
        let mut line = String::new();
        while !line.contains("\"serving\"") {
            line.clear();
            let read = self.log.read_line(&mut line).expect("its log");
            assert!(read > 0, "it has ended");
        }
    }

    fn worker(&self) -> Pid {
        let id = self.process.id();
        let children = format!("/proc/{id}/task/{id}/children");
        let children = std::fs::read_to_string(children).expect("of a process");
        let worker = children.trim().parse().ok().and_then(Pid::from_raw);
        worker.expect("one worker")
    }

    /// Has the worker hand over to the next one, and returns when it has ended.
    fn upgrade(&self) {
        let worker = self.worker();
        let keeper = Pid::from_raw(self.process.id().cast_signed()).expect("a pid");
        kill_process(keeper, Signal::USR2).expect("sent");
        until("it has ended", || test_kill_process(worker).is_err());
    }

    /// Kills the worker, and returns when it is dead. The next one begins at once.
    fn kill(&self) {
        let worker = self.worker();
        kill_process(worker, Signal::KILL).expect("killed");
        until("it is dead", || test_kill_process(worker).is_err());
    }

    fn attach(&self, nic: usize, guest: &Guest) -> Vmm {
        let socket = self.dir.path().join(format!("n{nic}.sock"));
        let mut vmm = Vmm::connect(&socket, guest, PLAIN);
        vmm.start(guest, 0, guest.used(0));
        vmm.start(guest, 1, guest.used(1));
        vmm
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The worker follows.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn guests_go_on_while_a_keeper_starts_one_worker_after_the_other() {
    go_on(Kept::kill, false);
}

/// A worker that ends by itself ends between two turns: nothing comes twice, and nothing is lost.
#[test]
fn guests_go_on_over_upgrades_and_each_packet_comes_once() {
    go_on(Kept::upgrade, true);
}

/// `exactly`: each packet comes once.
fn go_on(end: fn(&Kept), exactly: bool) {
    const LIVES: u8 = 5;
    const FRAMES: u8 = 20;
    let mut daemon = Kept::new(2);
    let (mut a, mut b) = (Guest::new(2), Guest::new(2));
    let mut came = Vec::new();
    for life in 0..LIVES {
        // The receiver first: what waits in the other's ring leaves as soon as that runs.
        let room = u16::from(2 * FRAMES) - (b.available(0) - b.used(0));
        b.give(0, room);
        let b_vmm = daemon.attach(1, &b);
        let a_vmm = daemon.attach(0, &a);
        let first = life * 2 * FRAMES;
        // What waited while there was no worker comes first.
        let waited = first.saturating_sub(1);
        until("what waited has come", || {
            came.extend(b.received(0));
            life == 0 || came.last() == Some(&frame(2, 1, waited))
        });
        std::thread::sleep(LIFE);
        for number in first..first + FRAMES {
            a.send(1, &frame(2, 1, number));
            a_vmm.kick(1);
        }
        // Somewhere among them.
        std::thread::sleep(Duration::from_micros(40 * u64::from(life)));
        end(&daemon);
        for number in first + FRAMES..first + 2 * FRAMES {
            a.send(1, &frame(2, 1, number));
        }
        drop((a_vmm, b_vmm));
        daemon.wait();
    }
    let numbers: Vec<u8> = came.iter().map(|frame| frame[20]).collect();
    if exactly {
        // The last life's were never asked for.
        let all: Vec<u8> = (0..(2 * LIVES - 2) * FRAMES).collect();
        assert_eq!(numbers, all);
        return;
    }
    let mut first = numbers.clone();
    let mut seen = std::collections::BTreeSet::new();
    first.retain(|number| seen.insert(*number));
    assert!(
        first.is_sorted_by(|a, b| a < b),
        "out of order: {numbers:?}"
    );
    for number in &first {
        // Those that a worker was killed among may be in the receiver's ring when the sender's does not say so yet.
        let among = number % (2 * FRAMES) < FRAMES;
        let times = numbers.iter().filter(|other| *other == number).count();
        assert!(times == 1 || among && times == 2, "{number}: {numbers:?}");
    }
    let mut waited = (0..LIVES - 1).flat_map(|life| {
        let first = life * 2 * FRAMES + FRAMES;
        first..first + FRAMES
    });
    assert!(
        waited.all(|number| numbers.contains(&number)),
        "{numbers:?}"
    );
}
