//! What many NICs cost the process that serves them.

use std::time::Duration;

use hypernic_tests::{Counters, Daemon, Holdings, scratch};
use vfio_user::Client;

/// A number from `/proc/PID/status`.
fn status(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let word = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
    word.and_then(|word| word.parse().ok()).expect(field)
}

fn descriptors(pid: u32) -> u64 {
    let list = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("fd");
    list.count() as u64
}

/// Names of the threads that stay.
fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("task");
    // A thread may end meanwhile.
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.expect("task").path().join("comm")).ok()
    };
    let mut names: Vec<_> = tasks
        .filter_map(name)
        .map(|name| name.trim().to_owned())
        // It ends by itself, half a second after its last work.
        .filter(|name| name != "deferred_closer")
        .collect();
    names.sort();
    names
}

/// Anonymous memory in KiB, descriptors, threads.
fn holdings(pid: u32) -> (u64, u64, Vec<String>) {
    let mut names = threads(pid);
    // One that has just begun has the name of who began it.
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = threads(pid);
        if now == names {
            return (status(pid, "RssAnon"), descriptors(pid), names);
        }
        names = now;
    }
}

fn idle(nics: u64) {
    let dir = scratch().unwrap();
    let serve = |count: u64| {
        let mut toml = String::from("workers = 2\n[[switch]]\nname = \"lan\"\n");
        for n in 0..count {
            let socket = dir.path().join(format!("{n}.sock"));
            toml += &format!(
                "[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n\
                 busy-poll-us = 0\n"
            );
        }
        Daemon::serve(&dir.path().join("host.toml"), &toml).unwrap()
    };
    let mut one = serve(1);
    let alone = holdings(one.server());
    assert!(one.stop().unwrap().success());

    let mut daemon = serve(nics);
    let pid = daemon.server();
    let (memory, fds, threads) = holdings(pid);
    println!("{nics} NICs: {memory} KiB, {fds} descriptors, {threads:?}; one: {alone:?}");
    assert_eq!(threads, alone.2, "a NIC has no thread of its own");
    assert!(fds - alone.1 <= 3 * nics, "{fds} descriptors");
    let mut clients: Vec<_> = (0..nics)
        .map(|n| Client::connect(dir.path().join(format!("{n}.sock"))).expect("connect"))
        .collect();
    for client in &mut clients {
        assert_eq!(client.read_u32(0, 8).expect("STATUS") >> 31, 0);
    }
    let (memory, fds, threads) = holdings(pid);
    println!("connected: {memory} KiB, {fds} descriptors, {threads:?}");
    assert!(
        memory - alone.0 <= 128 * nics,
        "{memory} KiB for {nics} NICs"
    );
    assert!(fds - alone.1 <= 4 * nics, "{fds} descriptors");
    assert_eq!(threads, alone.2);
    // The workers look at nothing while nothing happens (and none is set to stay awake). Asking costs a turn of each
    // NIC, and no other.
    let turns = |c: &Counters| (c.total("worker", "turns"), c.total("worker", "poll_calls"));
    daemon.counters().unwrap();
    let (before, looked) = turns(&daemon.counters().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    let (after, looks) = turns(&daemon.counters().unwrap());
    let (turns, looks) = (after - before, looks - looked);
    assert!(
        turns <= 2 * nics && looks <= 4 * nics,
        "{turns} turns, {looks} looks"
    );
    drop(clients);
    assert!(daemon.stop().unwrap().success());
}

#[test]
fn a_hundred_idle_nics_have_no_thread_and_cost_little_memory() {
    idle(100);
}

#[test]
#[ignore = "long: a thousand NICs"]
fn long_a_thousand_idle_nics_do_so_too() {
    idle(1000);
}

/// The host starts workers as it needs them; tests that look for leaks take what workers hold off what they find.
#[test]
fn what_a_process_holds_says_nothing_of_how_many_workers_it_has() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n.sock");
    let with = |workers: usize| {
        let toml = format!(
            "workers = {workers}\n[[switch]]\nname = \"lan\"\n\
             [[nic]]\nname = \"n\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n"
        );
        let mut daemon = Daemon::serve(&dir.path().join("host.toml"), &toml).unwrap();
        let held = Holdings::at_rest(daemon.server());
        assert!(daemon.stop().unwrap().success());
        (held.fds, held.threads)
    };
    assert_eq!(with(1), with(4));
}
