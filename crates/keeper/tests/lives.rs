//! Keepers and workers that really die.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hypernic_keeper as keeper;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// A scene from outside.
struct Scene {
    keeper: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl Scene {
    fn of(name: &str) -> Self {
        Self::on(name, Stdio::null())
    }

    fn on(name: &str, input: Stdio) -> Self {
        let mut keeper = Command::new(env!("CARGO_BIN_EXE_keeper-scenes"))
            .arg(name)
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(keeper.stdout.take().expect("piped"));
        let pid = keeper.id() as i32;
        // No test waits for ever for what does not come.
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(60));
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self { keeper, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// The pid of the worker of life `n`.
    fn worker(&mut self, n: u64) -> i32 {
        let line = self.line();
        let pid = line
            .strip_prefix(&format!("life {n} pid "))
            .unwrap_or_else(|| panic!("{line}"));
        pid.parse().expect("a pid")
    }

    /// The pid of the next worker, if there is one.
    fn next_worker(&mut self) -> Option<i32> {
        let line = self.line();
        let (_, pid) = line.rsplit_once(' ')?;
        pid.parse().ok()
    }

    fn send(&self, pid: i32, signal: Signal) {
        let pid = Pid::from_raw(pid).expect("a pid");
        kill_process(pid, signal).expect("sent");
    }

    fn end(mut self) -> i32 {
        let code = self.keeper.wait().expect("ended").code();
        code.expect("an exit code")
    }
}

#[test]
fn exit_codes_are_the_workers() {
    let mut scene = Scene::of("leave");
    scene.worker(1);
    assert_eq!(scene.end(), 7);
}

#[test]
fn a_killed_worker_comes_again() {
    let mut scene = Scene::of("stay");
    for life in 1..4 {
        let worker = scene.worker(life);
        if life > 1 {
            assert_eq!(scene.line(), format!("before {} 9 false", life - 1));
        }
        std::thread::sleep(Duration::from_millis(1300));
        scene.send(worker, Signal::KILL);
    }
    let worker = scene.worker(4);
    scene.line();
    // A worker without a keeper ends, and frees what it holds.
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::KILL);
    let until = Instant::now() + Duration::from_secs(10);
    while alive(worker) {
        assert!(Instant::now() < until, "it stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn alive(pid: i32) -> bool {
    let mut stat = String::new();
    let file = File::open(format!("/proc/{pid}/stat"));
    let read = file.and_then(|mut file| file.read_to_string(&mut stat));
    read.is_ok() && !stat.contains(") Z ")
}

#[test]
fn descriptors_stay_open_and_the_rest_is_closed() {
    let mut scene = Scene::of("keep");
    let first = scene.worker(1);
    assert_eq!(scene.line(), "ready");
    scene.send(first, Signal::KILL);
    let second = scene.worker(2);
    assert_eq!(scene.line(), "before after, 4 noted, 0 at the end, 2 more");
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::TERM);
    assert_eq!(scene.end(), 1, "the worker died of it");
    assert!(!alive(second));
}

#[test]
fn what_kills_twice_is_quarantined() {
    let mut scene = Scene::of("poison");
    for life in 1..=3 {
        scene.worker(life);
    }
    assert_eq!(scene.line(), "quarantined");
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::TERM);
    scene.end();
}

#[test]
fn several_that_kill_are_found_and_the_others_are_served() {
    let mut scene = Scene::of("poisons");
    // More short lives than would be the end if they led nowhere.
    for life in 1..=9 {
        scene.worker(life);
    }
    assert_eq!(scene.line(), "all quarantined");
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::TERM);
    scene.end();
}

#[test]
fn a_turn_that_does_not_end_is_ended() {
    let mut scene = Scene::of("hang");
    let worker = scene.worker(1);
    assert_eq!(scene.line(), "fine so far");
    // While it does not run, nothing hangs.
    scene.send(worker, Signal::STOP);
    std::thread::sleep(Duration::from_secs(4));
    assert!(alive(worker), "killed while it was stopped");
    let start = Instant::now();
    scene.send(worker, Signal::CONT);
    scene.worker(2);
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(scene.line(), "hung true hangs 1");
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::TERM);
    scene.end();
}

#[test]
fn short_lives_are_the_end() {
    let mut scene = Scene::of("die");
    for life in 1..=5 {
        scene.worker(life);
    }
    assert_eq!(scene.line(), "", "no sixth");
    assert_eq!(scene.end(), keeper::GAVE_UP);
}

#[test]
fn signals_are_passed_on() {
    let mut scene = Scene::of("stay");
    let worker = scene.worker(1);
    std::thread::sleep(Duration::from_millis(200));
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::TERM);
    assert_eq!(scene.end(), 1);
    assert!(!alive(worker));
}

#[test]
fn over_any_number_of_kills_each_message_is_answered_once() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut scene = Scene::on("exact", Stdio::from(OwnedFd::from(theirs)));
    // The keeper and its workers have the other end, and nobody else.
    let mut reader = ours.try_clone().expect("a descriptor");
    let mut writer = ours;
    let heard = std::thread::spawn(move || {
        let (mut count, mut sum) = (0, 0u64);
        let mut answer = [0; 16];
        while reader.read_exact(&mut answer).is_ok() {
            sum = sum.wrapping_add(count);
            count += 1;
            let (said, of) = answer.split_at(8);
            let words = [said, of].map(|w| u64::from_ne_bytes(w.try_into().expect("8 bytes")));
            assert_eq!(
                words,
                [count, sum],
                "answered twice, or not, or out of order"
            );
        }
        count
    });
    let saying = std::thread::spawn(move || {
        let mut n = 0u64;
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            // A few at a time, cut anywhere.
            let many: Vec<u8> = (n..n + 9).flat_map(u64::to_ne_bytes).collect();
            n += 9;
            let (one, two) = many.split_at((n % 71) as usize);
            writer.write_all(one).expect("said");
            writer.write_all(two).expect("said");
        }
        writer.shutdown(std::net::Shutdown::Write).expect("the end");
        n
    });
    let mut kills = 0u64;
    let mut times = 1u64;
    // The last one sees the end of the connection and leaves.
    while let Some(worker) = scene.next_worker() {
        // Some microseconds to some milliseconds, as a linear congruence has it.
        times = times
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        std::thread::sleep(Duration::from_micros(times >> 51));
        if saying.is_finished() {
            continue;
        }
        // One that has seen the end meanwhile has left by itself.
        match kill_process(Pid::from_raw(worker).expect("a process"), Signal::KILL) {
            Err(Errno::SRCH) => {}
            sent => {
                sent.expect("sent");
                kills += 1;
            }
        }
    }
    let (said, heard) = (saying.join().expect("said"), heard.join().expect("heard"));
    println!("{said} messages over {kills} kills");
    assert_eq!(heard, said);
    assert!(kills > 50 && said > 1000, "{kills} {said}");
    assert_eq!(scene.end(), 0);
}

/// Descriptors go from life to life, and from program to program in the same process, and nothing is left behind.
#[test]
fn a_worker_that_ends_by_itself_leaves_what_it_says_to_the_next() {
    for (name, programs) in [("hand-over", 1), ("become", 6), ("become-nothing", 1)] {
        let mut scene = Scene::of(name);
        let keeper = scene.keeper.id();
        for life in 1..=6 {
            scene.worker(life);
        }
        assert_eq!(scene.line(), "0 more", "{name}");
        assert!(alive(keeper as i32));
        let environment = std::fs::read(format!("/proc/{keeper}/environ")).expect("it runs");
        let became = String::from_utf8_lossy(&environment).contains("HYPERNIC_KEEPER=");
        assert_eq!(became, programs > 1, "{name}");
    }
}

/// What a worker that has only begun would die of does not reach it.
#[test]
fn a_worker_gets_signals_when_it_serves() {
    let mut scene = Scene::of("slow");
    let worker = scene.worker(1);
    let keeper = scene.keeper.id() as i32;
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2] {
        scene.send(keeper, signal);
    }
    assert_eq!(scene.line(), "serves");
    assert!(alive(worker));
    scene.send(keeper, Signal::USR2);
    // It has not said what it does with it.
    scene.worker(2);
}

/// A program that goes on, and whose workers die before they take anything over, is no reason to go on for ever.
#[test]
fn a_next_program_whose_workers_die_at_once_is_given_up() {
    let mut scene = Scene::of("become-bad");
    let mut lives = 0;
    while scene.next_worker().is_some() {
        lives += 1;
    }
    assert_eq!((lives, scene.end()), (6, keeper::GAVE_UP));
}

#[test]
fn cells_are_started_again_and_go_with_what_names_them() {
    let mut scene = Scene::of("cells");
    let cell = |scene: &mut Scene| {
        let line = scene.line();
        let words = line
            .strip_prefix("cell ")
            .unwrap_or_else(|| panic!("{line}"));
        let (name, pid) = words.split_once(" pid ").expect("a pid");
        (name.to_owned(), pid.parse::<i32>().expect("a number"))
    };
    let ended = |pid: i32| {
        let until = Instant::now() + Duration::from_secs(20);
        while rustix::process::test_kill_process(Pid::from_raw(pid).expect("a pid")).is_ok() {
            assert!(Instant::now() < until, "{pid} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let worker = scene.worker(1);
    let mut both = [cell(&mut scene), cell(&mut scene)];
    both.sort();
    let [(a, first), (b, other)] = both;
    assert_eq!((&*a, &*b), ("a one", "b one"));
    // One that dies comes again.
    scene.send(first, Signal::KILL);
    let (again, second) = cell(&mut scene);
    assert_eq!(again, "a one");
    // They outlive the worker; what it names no more goes, and another text is for the next start.
    scene.send(worker, Signal::KILL);
    let worker = scene.worker(2);
    ended(other);
    assert!(rustix::process::test_kill_process(Pid::from_raw(second).expect("a pid")).is_ok());
    scene.send(second, Signal::KILL);
    let (again, third) = cell(&mut scene);
    assert_eq!(again, "a two");
    scene.send(worker, Signal::KILL);
    scene.worker(3);
    ended(third);
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::TERM);
    assert_ne!(scene.end(), 101);
}

#[test]
fn cells_end_with_the_keeper() {
    let mut scene = Scene::of("cells");
    scene.worker(1);
    let pid = |line: String| {
        line.rsplit_once(' ')
            .expect("a pid")
            .1
            .parse::<i32>()
            .expect("a number")
    };
    let cells = [pid(scene.line()), pid(scene.line())];
    let keeper = scene.keeper.id() as i32;
    scene.send(keeper, Signal::TERM);
    scene.end();
    for cell in cells {
        let gone = rustix::process::test_kill_process(Pid::from_raw(cell).expect("a pid"));
        assert!(gone.is_err(), "{cell} is left");
    }
}
