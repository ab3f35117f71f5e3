//! The sandbox: which layers are on for whom, what they refuse, and that no rule is there for nothing.

mod life;

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hypernic_tests::{Counters, Daemon, Launch, scratch};
use jail::calls;
use life::{ask, host, launch, live};

/// A thread of a process: its name, and a line of its status.
fn threads(daemon: &Daemon, word: &str) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.server())).expect("tasks");
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let value = |word: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(word));
            found.map(|value| value.trim().to_owned())
        };
        Some((value("Name:")?, value(word)?))
    };
    tasks.filter_map(read).collect()
}

#[test]
fn all_layers_are_on_and_workers_have_most_of_them() {
    let dir = scratch().expect("a folder");
    let mut daemon = launch(dir.path(), "").start().expect("it serves");
    let said = daemon.wait_log("sandbox default: ").expect("a line");
    for (word, wanted) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
        for (name, value) in threads(&daemon, word) {
            assert_eq!(value, wanted, "{word} of {name}");
        }
    }
    let others = |name: &str| name.starts_with("worker-") || name.starts_with("port l");
    // Two workers, and the threads of the user network, two streams and the loopback, once they have said what they are.
    let until = Instant::now() + Duration::from_secs(10);
    let filters = loop {
        let filters = threads(&daemon, "Seccomp_filters:");
        let confined = filters
            .iter()
            .filter(|(name, count)| others(name) && count == "3");
        if confined.count() == 6 || Instant::now() > until {
            break filters;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let least = filters.iter().map(|(_, count)| count.as_str()).min();
    assert_eq!(least, Some("1"), "{filters:?}");
    let confined: Vec<_> = filters.iter().filter(|(name, _)| others(name)).collect();
    assert_eq!(confined.len(), 6, "{filters:?}");
    assert!(
        confined.iter().all(|(_, count)| count == "3"),
        "{filters:?}"
    );
    for (name, rights) in threads(&daemon, "CapPrm:") {
        let rights = u64::from_str_radix(&rights, 16).expect("a number");
        // CAP_NET_ADMIN, of a daemon that may be asked for TAPs.
        let may = if others(&name) { 0 } else { 1 << 12 };
        assert_eq!(rights & !may, 0, "{name}");
    }
    let metrics = ask(dir.path(), &["metrics"]).expect("metrics");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("hypernic_sandbox_info"));
    let line = line.expect("it is told");
    assert!(
        line.contains("mode=\"default\"") && line.contains("seccomp=\"1\""),
        "{line}"
    );
    let version = line
        .split("landlock=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let landlock = version.filter(|version| *version != "0");
    assert_eq!(
        landlock.is_some(),
        said.contains("landlock v"),
        "{line}\n{said:?}"
    );
    assert!(daemon.stop().expect("it ends").success());
}

#[test]
fn it_can_be_off_and_all_of_it_can_be_asked_for() {
    let dir = scratch().expect("a folder");
    let mut daemon = launch(dir.path(), "sandbox = \"strict\"")
        .args(["--sandbox", "off"])
        .start()
        .expect("it serves");
    daemon
        .wait_log("sandbox off: landlock off, seccomp off, no new privileges off")
        .expect("a line");
    assert!(
        threads(&daemon, "Seccomp:")
            .iter()
            .all(|(_, value)| value == "0")
    );
    assert!(daemon.stop().expect("it ends").success());
    // Where the kernel has all layers (as here in `all_layers_are_on…`), a strict one serves; else it says what is missing.
    let mut daemon = launch(dir.path(), "sandbox = \"strict\"")
        .spawn()
        .expect("it runs");
    match daemon.wait_log("serving") {
        Ok(_) => assert!(daemon.stop().expect("it ends").success()),
        Err(_) => assert!(
            daemon
                .log()
                .contains("use --sandbox default to go on without"),
            "{}",
            daemon.log()
        ),
    }
}

#[test]
fn what_it_refuses_is_refused_with_its_cure() {
    let (dir, other) = (scratch().expect("a folder"), scratch().expect("a folder"));
    let socket = other.path().join("c");
    let add: &[&str] = &["nic", "add", "c", "--port", "switch:lan", "--socket-path"];
    let add = [add, &[socket.to_str().expect("text")]].concat();
    let mut daemon = launch(dir.path(), "sandbox-network = false")
        .spawn()
        .expect("runs");
    // The file itself asks for a user network.
    assert_eq!(daemon.wait_exit().expect("it ends").code(), Some(4));
    assert!(
        daemon.log().contains("sandbox-network = false forbids it"),
        "{}",
        daemon.log()
    );
    let text = host(dir.path(), "sandbox-network = false");
    let without = text.split("\"user:").next().expect("before").to_owned();
    let text = without + text.split_once("80\", ").expect("behind").1;
    std::fs::write(dir.path().join("host.toml"), text).expect("a file");
    let file = dir.path().join("host.toml");
    let mut daemon = Launch::new()
        .expect("built")
        .arg("serve")
        .arg(&file)
        .start()
        .expect("it serves");
    let landlock = daemon.log().contains("landlock v");
    let refused = ask(dir.path(), &add).err();
    if landlock {
        let refused = refused.expect("it is outside");
        assert!(
            refused.contains("sandbox-paths") && refused.contains(&*socket.to_string_lossy()),
            "{refused}"
        );
        let checked = [&add[..], &["--check"]].concat();
        assert!(ask(dir.path(), &checked).is_err());
    }
    let refused = ask(dir.path(), &["port", "add", "lan", "user"]).expect_err("no network");
    assert!(refused.contains("sandbox-network = true"), "{refused}");
    // A folder beside is as good as none.
    let inside = dir.path().join("d");
    let inside = [
        "nic",
        "add",
        "d",
        "--port",
        "switch:lan",
        "--socket-path",
        inside.to_str().expect("text"),
    ];
    ask(dir.path(), &inside).expect("inside");
    assert!(daemon.stop().expect("it ends").success());

    let paths = format!("sandbox-paths = [{:?}]", other.path());
    let mut daemon = launch(dir.path(), &paths).start().expect("it serves");
    ask(dir.path(), &add).expect("the folder was named");
    ask(dir.path(), &["switch", "add", "wan", "--port", "user"])
        .expect("a network was not forbidden");
    assert!(daemon.stop().expect("it ends").success());
}

/// Lives without one call, and says whether that was noticed: the daemon ended, and said which call it was.
fn is_needed(kind: &str, call: &str) -> bool {
    let dir = scratch().expect("a folder");
    let rule = format!("{kind}:{call}");
    // A strict one ends where others let the call fail.
    let launch = launch(dir.path(), "sandbox = \"strict\"");
    let launch = launch.env("HYPERNIC_SANDBOX_WITHOUT", &rule);
    let mut daemon = launch.spawn().expect("it runs");
    let lived = match daemon.wait_log("serving") {
        Ok(_) => live(dir.path(), &mut daemon, &rule),
        Err(error) => Err(error.to_string()),
    };
    let log = daemon.log();
    match lived {
        // A process of a network may end where others are not in need of it.
        Ok(()) => log.contains(&format!("made the system call {call} (")),
        Err(error) => {
            let line = format!("made the system call {call} (");
            let named = log.contains(&line) || error.contains(&line);
            // The last line needs `writev` itself; around the others all signals are blocked.
            let mute = [
                "writev",
                "clone",
                "clone3",
                "rseq",
                "set_robust_list",
                "madvise",
            ];
            assert!(named || mute.contains(&call), "{rule}: {error}\n{log}");
            true
        }
    }
}

/// Those of `calls` that nothing here needs.
fn not_needed(kind: &str, all: &[&[calls::Call]]) -> BTreeSet<&'static str> {
    let all: Vec<_> = all
        .iter()
        .flat_map(|list| list.iter())
        .map(|call| call.name)
        .collect();
    let (next, idle) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(call) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !is_needed(kind, call) {
                        idle.lock().expect("no panic").insert(*call);
                    }
                }
            });
        }
    });
    idle.into_inner().expect("no panic")
}

/// Rules that other tests need: they fail without, for the whole suite runs in the sandbox.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "data",
        "brk",
        "daemon: too_few_descriptors_for_the_nics_asked_for",
    ),
    ("data", "mmap", "villain: every_hostile_vmm_…"),
    ("data", "mprotect", "villain: every_hostile_vmm_…"),
    ("data", "rt_sigreturn", "villain: every_hostile_vmm_…"),
    (
        "data",
        "clock_gettime",
        "none: needed where the machine's clock cannot be read without a call",
    ),
    (
        "process",
        "sendmsg",
        "daemon: listening_sockets_outlive_the_keeper_in_a_service_managers_store",
    ),
    (
        "user-network",
        "fstat",
        "guest: long_libvirt_starts_guests_by_the_recipes, by the C library of Debian 13",
    ),
    (
        "user-network",
        "clock_gettime",
        "none: needed where the machine's clock cannot be read without a call",
    ),
    (
        "user-network",
        "rt_sigreturn",
        "daemon: a_call_that_a_user_network_may_not_make_…",
    ),
    (
        "user-network",
        "writev",
        "daemon: a_call_that_a_user_network_may_not_make_…",
    ),
    (
        "user-network",
        "futex",
        "daemon: in_log_mode_a_life_leaves_no_line, at times: the C library's own",
    ),
    (
        "launcher",
        "rt_sigprocmask",
        "guest: long_libvirt_starts_guests_by_the_recipes, by the C library of Debian 13",
    ),
    (
        "launcher",
        "clock_nanosleep",
        "none: needed where a worker before still has a network's ports of the host",
    ),
    ("data", "recvmsg", "daemon: without_a_keeper_…"),
    ("data", "writev", "daemon: without_a_keeper_…"),
    (
        "port",
        "clock_gettime",
        "none: needed where the machine's clock cannot be read without a call",
    ),
    ("port", "io_submit", "guest: the_demo_passes_…"),
    ("port", "writev", "guest: the_demo_passes_…"),
    ("port", "brk", "none: needed where it has the first arena"),
    ("port", "mmap", "none: needed where its arena grows"),
    ("port", "mprotect", "none: needed where its arena grows"),
    (
        "port",
        "rt_sigreturn",
        "none: needed where a file is cut off to which it delivers",
    ),
    ("user-network", "getpeername", "guest: the_demo_passes_…"),
    (
        "user-network",
        "lseek",
        "guest: the_stock_ipxe_rom_gets_an_address_and_a_script_by_tftp",
    ),
    (
        "user-network",
        "mremap",
        "none: needed when a large buffer of the library's grows",
    ),
    (
        "process",
        "clone",
        "guest: long_the_service_in_a_debian_guest, whose unit takes clone3 away",
    ),
    ("process", "getcwd", "daemon: the_socket_path"),
    ("process", "getpid", "daemon: an_inherited_connection_…"),
    ("process", "kill", "daemon: an_inherited_connection_…"),
    (
        "process",
        "pidfd_getfd",
        "daemon: an_inherited_connection_…",
    ),
    ("process", "pidfd_open", "daemon: an_inherited_connection_…"),
    (
        "process",
        "setsockopt",
        "daemon: a_stream_on_a_descriptor_…",
    ),
];

/// Each of these rules is needed here, but for those that are needed elsewhere.
fn needs_but(kind: &str, all: &[&[calls::Call]]) {
    let elsewhere = ELSEWHERE.iter().filter(|(of, ..)| *of == kind);
    let elsewhere: BTreeSet<_> = elsewhere.map(|(_, call, _)| *call).collect();
    let idle = not_needed(kind, all);
    let left: Vec<_> = idle.difference(&elsewhere).collect();
    assert!(left.is_empty(), "nothing needs {left:?} of {kind}");
    let known = |call: &&str| {
        all.iter()
            .any(|list| list.iter().any(|one| one.name == *call))
    };
    assert!(elsewhere.iter().all(known), "a rule of {kind} is gone");
}

#[test]
fn a_worker_may_make_few_calls_and_each_is_needed() {
    let dir = scratch().expect("a folder");
    let mut daemon = launch(dir.path(), "").start().expect("it serves");
    live(dir.path(), &mut daemon, "").unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
    needs_but("data", &[calls::DATA]);
}

#[test]
fn a_call_that_may_not_be_made_fails_and_takes_no_nic_down() {
    let dir = scratch().expect("a folder");
    let launch = launch(dir.path(), "").env("HYPERNIC_SANDBOX_WITHOUT", "data:sched_yield");
    let mut daemon = launch.start().expect("it serves");
    live(dir.path(), &mut daemon, "").unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
    let log = daemon.log();
    let line =
        "the sandbox let a system call fail: a data thread made the system call sched_yield (24)";
    if std::env::consts::ARCH == "x86_64" {
        assert!(log.contains(line), "{log}");
    }
    // Printed at the end, too.
    let printed = daemon.printed();
    let counters = printed.lines().rev().find_map(Counters::parse);
    let counters = counters.expect("printed");
    assert!(counters.total("sandbox", "refused_calls") > 0, "{counters}");
    // More is not said of what comes again and again.
    assert!(log.matches("let a system call fail").count() <= 16, "{log}");
}

/// Most tests start a daemon in its sandbox, so each of them holds its rules.
#[test]
fn a_test_fails_whose_daemon_tries_what_its_sandbox_forbids() {
    let dir = scratch().expect("a folder");
    let file = dir.path().join("host.toml");
    std::fs::write(&file, host(dir.path(), "")).expect("a file");
    let launch = Launch::under(&["env", "HYPERNIC_SANDBOX_WITHOUT=data:sched_yield"]);
    let launch = launch.expect("built").arg("serve").arg(file);
    let mut daemon = launch.start().expect("it serves");
    live(dir.path(), &mut daemon, "").unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
    let ends = std::panic::AssertUnwindSafe(|| drop(daemon));
    let why = std::panic::catch_unwind(ends).expect_err("the daemon tried");
    let why = why.downcast_ref::<String>().expect("words");
    assert!(why.contains("made the system call sched_yield"), "{why}");
}

#[test]
fn a_call_that_a_user_network_may_not_make_fails_and_takes_nothing_down() {
    let dir = scratch().expect("a folder");
    let rule = "user-network:setsockopt";
    let launch = launch(dir.path(), "").env("HYPERNIC_SANDBOX_WITHOUT", rule);
    let mut daemon = launch.start().expect("it serves");
    live(dir.path(), &mut daemon, rule).unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
    let log = daemon.log();
    let line = "a user-network thread made the system call setsockopt";
    assert!(log.contains(line), "{log}");
    let printed = daemon.printed();
    let counters = printed.lines().rev().find_map(Counters::parse);
    let counters = counters.expect("printed");
    assert!(
        counters.total("port", "user_refused_calls") > 0,
        "{counters}"
    );
    assert_eq!(counters.total("sandbox", "refused_calls"), 0, "{counters}");
}

#[test]
fn each_rule_of_a_port_and_of_a_network_is_needed() {
    needs_but("port", &[calls::PORT]);
    needs_but("network", &[calls::NETWORK]);
}

#[test]
fn each_rule_of_a_user_networks_process_is_needed() {
    needs_but("user-network", &[calls::LIBRARY]);
}

#[test]
fn each_rule_of_what_starts_user_networks_is_needed() {
    needs_but("launcher", &[calls::LAUNCHER]);
}

#[test]
fn each_rule_of_the_process_is_needed() {
    needs_but("process", &[calls::PROCESS, calls::FORMS]);
}

/// The kernel's log says which calls were let pass in log mode. It can be read by root only.
#[test]
fn in_log_mode_a_life_leaves_no_line() {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open("/dev/kmsg");
    let Ok(mut kernel) = opened else {
        println!("the kernel's log cannot be read here; CI reads it");
        return;
    };
    let mut lines = |pid: u32| {
        let (mut found, mut record) = (Vec::new(), vec![0; 8192]);
        loop {
            match kernel.read(&mut record) {
                Ok(len) => found.push(String::from_utf8_lossy(&record[..len]).into_owned()),
                // What was overwritten meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        found.retain(|line| line.contains("type=1326") && line.contains(&format!("pid={pid} ")));
        found
    };
    let run = |without: &str| {
        let dir = scratch().expect("a folder");
        let launch =
            launch(dir.path(), "sandbox = \"log\"").env("HYPERNIC_SANDBOX_WITHOUT", without);
        let mut daemon = launch.start().expect("it serves");
        assert!(daemon.log().contains("seccomp logs"), "{}", daemon.log());
        live(dir.path(), &mut daemon, "")
            .unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
        daemon.server()
    };
    let lines_of_a_life = run("");
    assert_eq!(lines(lines_of_a_life), Vec::<String>::new());
    // And a line comes where there is something to tell, if this kernel tells such things.
    let told = run("process:socket");
    if lines(told).is_empty() {
        println!("this kernel has no audit log");
    }
}
