//! A daemon with a keeper: its worker dies, and another comes.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hypernic_tests::{Daemon, Ends, LONG, Launch, scratch};
use rustix::process::{Signal, test_kill_process};
use vfio_user::Client;

/// A life that lasts so long helps.
const LIFE: Duration = Duration::from_millis(1300);

fn kept(socket: &Path) -> Daemon {
    let words = ["run", "--port", "null", "--model", "82576"];
    let launch = Launch::new().unwrap().args(words);
    launch.arg("--socket-path").arg(socket).start().unwrap()
}

/// The first part of a REGION_WRITE that is longer than what is kept of a message: its connection ends with the worker.
fn say_half(client: &mut Client) {
    let header = [1 | 10 << 16, 262_176, 0, 0_u32].map(u32::to_ne_bytes);
    let first = [header.as_flattened(), &[0; 100_000]].concat();
    client.send_raw(&first, &[]).unwrap();
}

/// A register.
fn status(client: &mut Client) -> Result<u32, vfio_user::ClientError> {
    let mut word = [0; 4];
    client.region_read(0, 8, &mut word)?;
    Ok(u32::from_le_bytes(word))
}

#[test]
fn a_killed_worker_is_started_again_and_no_vmm_is_turned_away() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = kept(&socket);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Whenever somebody comes, there is a socket that listens.
        let knocks = scope.spawn(|| {
            let mut knocks = 0;
            while !stop.load(Ordering::Acquire) {
                UnixStream::connect(&socket).expect("it listens");
                knocks += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            knocks
        });
        let mut slowest = Duration::ZERO;
        for _ in 0..4 {
            std::thread::sleep(LIFE);
            slowest = slowest.max(daemon.end_worker(Signal::KILL).unwrap());
        }
        stop.store(true, Ordering::Release);
        println!("slowest restart {slowest:?}");
        assert!(knocks.join().expect("never refused") > 100);
    });
    assert!(
        daemon
            .log()
            .contains("the worker died, and was started again")
    );
    let counters = daemon.counters().unwrap();
    assert_eq!(counters.total("process", "worker_restarts"), 4);
    assert!(daemon.stop().unwrap().success());
    assert!(!socket.exists(), "it cleans up");
}

#[test]
fn a_vmm_sees_the_end_of_its_connection_and_may_come_again() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = kept(&socket);
    for _ in 0..3 {
        let mut client = Client::connect(&socket).unwrap();
        let before = status(&mut client).unwrap();
        say_half(&mut client);
        std::thread::sleep(LIFE);
        daemon.end_worker(Signal::KILL).unwrap();
        // Not a socket that nobody serves, which would stop a VM for five seconds at each access.
        let start = Instant::now();
        assert!(status(&mut client).is_err());
        assert!(start.elapsed() < Duration::from_secs(2));
        let mut client = Client::connect(&socket).unwrap();
        assert_eq!(status(&mut client).unwrap(), before);
    }
}

#[test]
fn a_nic_in_whose_turns_the_worker_dies_twice_is_quarantined() {
    let dir = scratch().unwrap();
    let (bad, good) = (dir.path().join("bad.sock"), dir.path().join("good.sock"));
    let control = dir.path().join("control.sock");
    let toml = format!(
        "workers = 1\nkeeper = true\ncontrol = {control:?}\n\
         [[nic]]\nname = \"bad\"\nmodel = \"82576\"\ndoorbell = \"page\"\nsocket-path = {bad:?}\nport = \"null\"\n\
         [[nic]]\nname = \"good\"\nmodel = \"e1000\"\nsocket-path = {good:?}\nport = \"null\"\n"
    );
    let file = dir.path().join("host.toml");
    std::fs::write(&file, toml).unwrap();
    let launch = Launch::new().unwrap().arg("serve");
    let mut daemon = launch.arg(&file).start().unwrap();
    // Its worker is in its turn most of the time, and dies there as of a fault of its own.
    let until = Instant::now() + LONG;
    let mut deaths = 0;
    let ones = loop {
        let mut client = Client::connect(&bad).unwrap();
        if status(&mut client).unwrap() == !0 {
            break client;
        }
        assert!(Instant::now() < until, "not after {deaths} deaths");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    client.region_post(0, 0, &[0; 4]).expect("it goes on");
                }
            });
            std::thread::sleep(LIFE);
            daemon.end_worker(Signal::ABORT).unwrap();
            deaths += 1;
        });
    };
    assert!(deaths >= 2, "{deaths}");
    assert!(daemon.log().contains("in quarantine"));
    // The bus still finds it; the other NIC is served as ever.
    let mut ones = ones;
    let mut id = [0; 2];
    ones.region_read(7, 0, &mut id).unwrap();
    assert_eq!(u16::from_le_bytes(id), 0x8086);
    ones.region_write(0, 0, &[0; 4]).unwrap();
    assert_ne!(status(&mut Client::connect(&good).unwrap()).unwrap(), !0);
    let counters = daemon.counters().unwrap();
    assert_eq!(counters.total("process", "nics_quarantined"), 1);
    assert_eq!(counters.nic("bad", "quarantined"), 1);
    assert_eq!(counters.find("nic", "good", "quarantined"), None);
    drop(ones);
    // Taken off and put back, it has another chance.
    let ask = |words: &[&str]| {
        let launch = Launch::new()
            .unwrap()
            .args(words)
            .arg("--control")
            .arg(&control);
        let mut asked = launch.spawn().unwrap();
        assert!(asked.wait_exit().unwrap().success(), "{}", asked.log());
    };
    ask(&["nic", "remove", "bad"]);
    let path = bad.display().to_string();
    ask(&[
        "nic",
        "add",
        "bad",
        "--model",
        "e1000",
        "--socket-path",
        &path,
        "--port",
        "null",
    ]);
    assert_ne!(status(&mut Client::connect(&bad).unwrap()).unwrap(), !0);
}

#[test]
fn a_worker_that_dies_again_and_again_is_given_up_and_its_sockets_close() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = kept(&socket);
    let until = Instant::now() + LONG;
    let mut last = None;
    while daemon.is_alive() {
        assert!(Instant::now() < until, "it goes on and on");
        if let Some(worker) = daemon.worker().filter(|worker| last != Some(*worker)) {
            let _ = rustix::process::kill_process(worker, Signal::KILL);
            last = Some(worker);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(daemon.wait_exit().unwrap().code(), Some(1));
    assert!(daemon.log().contains("giving up"), "{}", daemon.log());
    assert!(UnixStream::connect(&socket).is_err(), "nobody listens");
}

#[test]
fn there_is_a_keeper_unless_somebody_says_no() {
    let dir = scratch().unwrap();
    let (file, socket) = (dir.path().join("host.toml"), dir.path().join("n0.sock"));
    let nic = format!("[[nic]]\nname = \"n0\"\nsocket-path = {socket:?}\nport = \"null\"\n");
    for (head, words, kept) in [
        ("", &[][..], true),
        ("", &["--no-keeper"], false),
        ("", &["--keeper", "--no-keeper"], false),
        ("keeper = false", &[], false),
        ("keeper = false", &["--keeper"], true),
        ("keeper = false", &["--no-keeper", "--keeper"], true),
        ("keeper = true", &["--no-keeper"], false),
    ] {
        std::fs::write(&file, format!("{head}\n{nic}")).unwrap();
        let launch = Launch::new().unwrap().arg("serve").arg(&file).args(words);
        let mut daemon = launch.start().unwrap();
        assert_eq!(daemon.worker().is_some(), kept, "{head:?} {words:?}");
        assert!(daemon.stop().unwrap().success());
    }
    // Cells are the keeper's.
    let cells = format!("control = {:?}\n{nic}cell = \"x\"\n", dir.path().join("c"));
    std::fs::write(&file, cells).unwrap();
    let launch = Launch::new().unwrap().args(["serve", "--no-keeper"]);
    let mut mistake = launch.arg(&file).spawn().unwrap();
    assert_eq!(mistake.wait_exit().unwrap().code(), Some(2));
    assert!(
        mistake.log().contains("leave out --no-keeper"),
        "{}",
        mistake.log()
    );
}

#[test]
fn with_a_keeper_mistakes_and_signals_end_as_they_do_without() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut mistake = Launch::new()
        .unwrap()
        .args(["run", "--socket-path", "/nowhere/n0.sock", "--port", "null"])
        .spawn()
        .unwrap();
    assert_eq!(mistake.wait_exit().unwrap().code(), Some(4));
    let mut daemon = kept(&socket);
    let worker = daemon.worker().expect("a worker");
    assert!(daemon.stop().unwrap().success());
    assert!(test_kill_process(worker).is_err(), "the worker runs on");
    // A keeper that is killed takes its worker along, and that cleans up.
    let mut daemon = kept(&socket);
    daemon.kill();
    let until = Instant::now() + LONG;
    while socket.exists() {
        assert!(Instant::now() < until, "the worker stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_nic_goes_on_without_the_files_that_cannot_be_made_again() {
    let dir = scratch().unwrap();
    let [socket, capture, eeprom] = ["n0.sock", "n0.pcapng", "n0.nvm"].map(|n| dir.path().join(n));
    let launch = Launch::new().unwrap();
    let launch = launch.env("HYPERNIC_TEST_LIFE_MS", "0");
    let launch = launch.args(["run", "--port", "null"]);
    let launch = launch.arg("--socket-path").arg(&socket);
    let launch = launch.arg("--capture").arg(&capture);
    let mut daemon = launch.arg("--eeprom").arg(&eeprom).start().unwrap();
    let mut client = Client::connect(&socket).unwrap();
    let before = status(&mut client).unwrap();
    // What stands in the way is as good as a full disk.
    for file in [&capture, &eeprom] {
        std::fs::remove_file(file).unwrap();
    }
    let beside = dir.path().join("n0.nvm.new");
    for folder in [&capture, &beside] {
        std::fs::create_dir(folder).unwrap();
    }
    daemon.end_worker(Signal::KILL).unwrap();
    assert_eq!(status(&mut client).unwrap(), before, "the same connection");
    daemon.wait_log("it goes on without its capture").unwrap();
    let failed = |c: &hypernic_tests::Counters| c.nic("n0", "nvm_failed") >= 1;
    daemon
        .wait_counters("it cannot be written", failed)
        .unwrap();
    std::fs::remove_dir(&beside).unwrap();
    let written = |c: &hypernic_tests::Counters| c.nic("n0", "nvm_written") == 1;
    daemon.wait_counters("there is room", written).unwrap();
    assert_eq!(std::fs::read(&eeprom).unwrap().len(), 128);
    drop(client);
    assert!(daemon.stop().unwrap().success());
}
