//! The sandbox: which layers are on for whom, what they refuse, and that no rule is there for nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use drivers::e1000::{Config, Driver, TxOpts, regs};
use drivers::{Bus, SocketBus};
use hypernic_tests::{Daemon, Launch, binary, scratch};
use jail::calls;
use rustix::process::Signal;
use villain::Vmm;

/// The words of a file for a host with two NICs on a switch, and all that opens files.
fn host(dir: &Path, more: &str) -> String {
    let at = |name: &str| format!("{:?}", dir.join(name));
    format!(
        "control = {control}\nworkers = 2\n{more}\n\
         [[switch]]\nname = \"lan\"\nports = [\"user\", \"loopback\"]\n\
         [[nic]]\nname = \"a\"\nsocket-path = {a}\nport = \"switch:lan\"\ncapture = {capture}\neeprom = {eeprom}\n\
         [[nic]]\nname = \"b\"\nsocket-path = {b}\nport = \"switch:lan\"\n",
        control = at("control"),
        a = at("a"),
        b = at("b"),
        capture = at("a.pcapng"),
        eeprom = at("a.nvm"),
    )
}

fn launch(dir: &Path, more: &str) -> Launch {
    let file = dir.join("host.toml");
    std::fs::write(&file, host(dir, more)).expect("a file");
    Launch::new().expect("built").arg("serve").arg(file)
}

/// `hypernic …`, asking the daemon of `dir`.
fn ask(dir: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(binary().expect("built"));
    let command = command.args(words).arg("--control").arg(dir.join("control"));
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// A thread of a process: its name, and a line of its status.
fn threads(daemon: &Daemon, word: &str) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.id())).expect("tasks");
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
    let filters = threads(&daemon, "Seccomp_filters:");
    let least = filters.iter().map(|(_, count)| count.as_str()).min();
    assert_eq!(least, Some("1"), "{filters:?}");
    let others = |name: &str| name.starts_with("worker-") || name.starts_with("port lan/");
    let confined: Vec<_> = filters.iter().filter(|(name, _)| others(name)).collect();
    // Two workers, the user network's thread and the loopback's.
    assert_eq!(confined.len(), 4, "{filters:?}");
    assert!(confined.iter().all(|(_, count)| count == "3"), "{filters:?}");
    for (name, rights) in threads(&daemon, "CapPrm:") {
        let rights = u64::from_str_radix(&rights, 16).expect("a number");
        // CAP_NET_BIND_SERVICE and CAP_NET_ADMIN, of a daemon that may be asked for ports.
        let may = if others(&name) { 0 } else { 1 << 10 | 1 << 12 };
        assert_eq!(rights & !may, 0, "{name}");
    }
    let metrics = ask(dir.path(), &["metrics"]).expect("metrics");
    let line = metrics.lines().find(|line| line.starts_with("hypernic_sandbox_info"));
    let line = line.expect("it is told");
    assert!(line.contains("mode=\"default\"") && line.contains("seccomp=\"1\""), "{line}");
    let version = line.split("landlock=\"").nth(1).and_then(|rest| rest.split('"').next());
    let landlock = version.filter(|version| *version != "0");
    assert_eq!(landlock.is_some(), said.contains("landlock v"), "{line}\n{said:?}");
    assert!(daemon.stop().expect("it ends").success());
}

#[test]
fn it_can_be_off_and_all_of_it_can_be_asked_for() {
    let dir = scratch().expect("a folder");
    let mut daemon = launch(dir.path(), "sandbox = \"strict\"").args(["--sandbox", "off"]).start().expect("it serves");
    daemon.wait_log("sandbox off: landlock off, seccomp off, no new privileges off").expect("a line");
    assert!(threads(&daemon, "Seccomp:").iter().all(|(_, value)| value == "0"));
    assert!(daemon.stop().expect("it ends").success());
    // Where the kernel has all layers (as here in `all_layers_are_on…`), a strict one serves; else it says what is missing.
    let mut daemon = launch(dir.path(), "sandbox = \"strict\"").spawn().expect("it runs");
    match daemon.wait_log("serving") {
        Ok(_) => assert!(daemon.stop().expect("it ends").success()),
        Err(_) => assert!(daemon.log().contains("use --sandbox default to go on without"), "{}", daemon.log()),
    }
}

#[test]
fn what_it_refuses_is_refused_with_its_cure() {
    let (dir, other) = (scratch().expect("a folder"), scratch().expect("a folder"));
    let socket = other.path().join("c");
    let add: &[&str] = &["nic", "add", "c", "--port", "switch:lan", "--socket-path"];
    let add = [add, &[socket.to_str().expect("text")]].concat();
    let mut daemon = launch(dir.path(), "sandbox-network = false").spawn().expect("runs");
    // The file itself asks for a user network.
    assert_eq!(daemon.wait_exit().expect("it ends").code(), Some(4));
    assert!(daemon.log().contains("sandbox-network = false forbids it"), "{}", daemon.log());
    let text = host(dir.path(), "sandbox-network = false").replace("\"user\", ", "");
    std::fs::write(dir.path().join("host.toml"), text).expect("a file");
    let file = dir.path().join("host.toml");
    let mut daemon = Launch::new().expect("built").arg("serve").arg(&file).start().expect("it serves");
    let landlock = daemon.log().contains("landlock v");
    let refused = ask(dir.path(), &add).err();
    if landlock {
        let refused = refused.expect("it is outside");
        assert!(refused.contains("sandbox-paths") && refused.contains(&*socket.to_string_lossy()), "{refused}");
        let checked = [&add[..], &["--check"]].concat();
        assert!(ask(dir.path(), &checked).is_err());
    }
    let refused = ask(dir.path(), &["port", "add", "lan", "user"]).expect_err("no network");
    assert!(refused.contains("sandbox-network = true"), "{refused}");
    // A folder beside is as good as none.
    let inside = dir.path().join("d");
    let inside = ["nic", "add", "d", "--port", "switch:lan", "--socket-path", inside.to_str().expect("text")];
    ask(dir.path(), &inside).expect("inside");
    assert!(daemon.stop().expect("it ends").success());

    let paths = format!("sandbox-paths = [{:?}]", other.path());
    let mut daemon = launch(dir.path(), &paths).start().expect("it serves");
    ask(dir.path(), &add).expect("the folder was named");
    ask(dir.path(), &["switch", "add", "wan", "--port", "user"]).expect("a network was not forbidden");
    assert!(daemon.stop().expect("it ends").success());
}

/// What guests, VMMs and operators do in a host's life. An error says where the daemon was not there any more.
fn live(dir: &Path, daemon: &mut Daemon) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    // A VMM that cuts off the file that it has given.
    let vmms = villain::vmms().find(|(villain, _)| villain.id == "truncated_under_the_device");
    let (_, cut) = vmms.expect("it is in the table");
    cut(&mut Vmm::new(&dir.join("b"))).map_err(|error| said(&error))?;
    let connect = |name: &str| {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match SocketBus::connect(dir.join(name)) {
                Ok(bus) => return Ok(bus),
                Err(error) if Instant::now() > until => return Err(said(&error)),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    };
    let driver = |name| Driver::new(connect(name)?, Config::linux()).map_err(|error| said(&error));
    let (mut a, mut b) = (driver("a")?, driver("b")?);
    let everybody = [&[0xff; 6], &a.mac()[..], &[0x88, 0xb5], &[0; 100]].concat();
    for _ in 0..200 {
        a.send(&[&everybody], &TxOpts::default()).map_err(|error| said(&error))?;
        for nic in [&mut a, &mut b] {
            let came = nic.bus_mut().wait_irq(Duration::from_millis(20)).map_err(|error| said(&error))?;
            nic.read(regs::ICR).map_err(|error| said(&error))?;
            if came {
                nic.bus_mut().unmask_irq().map_err(|error| said(&error))?;
            }
            nic.receive().map_err(|error| said(&error))?;
        }
    }
    let c = dir.join("c");
    let c = c.to_str().expect("text");
    ask(dir, &["nic", "add", "c", "--port", "switch:lan", "--socket-path", c])?;
    ask(dir, &["nic", "remove", "c"])?;
    ask(dir, &["port", "add", "lan", "null"])?;
    daemon.signal(Signal::USR1).map_err(|error| said(&error))?;
    daemon.wait_printed("\"counters\"").map_err(|error| said(&error))?;
    drop((a, b));
    let status = daemon.stop().map_err(|error| said(&error))?;
    match status.success() {
        true => Ok(()),
        false => Err(status.to_string()),
    }
}

/// Lives without one call, and says whether that was noticed: the daemon ended, and said which call it was.
fn is_needed(kind: &str, call: &str) -> bool {
    let dir = scratch().expect("a folder");
    let rule = format!("{kind}:{call}");
    let launch = launch(dir.path(), "").env("HYPERNIC_SANDBOX_WITHOUT", &rule);
    let mut daemon = launch.spawn().expect("it runs");
    let lived = match daemon.wait_log("serving") {
        Ok(_) => live(dir.path(), &mut daemon),
        Err(error) => Err(error.to_string()),
    };
    let log = daemon.log();
    match lived {
        Ok(()) => false,
        Err(error) => {
            // The last line needs `writev` itself.
            let named = log.contains(&format!("made the system call {call} ("));
            if !named && call != "writev" {
                println!("{rule}: {error}\n{log}");
            }
            named || call == "writev"
        }
    }
}

/// Those of `calls` that nothing here needs.
fn not_needed(kind: &str, all: &[&[calls::Call]]) -> BTreeSet<&'static str> {
    let all: Vec<_> = all.iter().flat_map(|list| list.iter()).map(|call| call.name).collect();
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

#[test]
fn a_worker_may_make_twenty_calls_and_each_is_needed() {
    assert!(calls::DATA.len() <= 20);
    let dir = scratch().expect("a folder");
    let mut daemon = launch(dir.path(), "").start().expect("it serves");
    live(dir.path(), &mut daemon).unwrap_or_else(|error| panic!("{error}\n{}", daemon.log()));
    let rare = [];
    assert_eq!(not_needed("data", &[calls::DATA]), BTreeSet::from(rare));
}

#[test]
fn each_rule_of_a_port_is_needed() {
    let rare = [];
    assert_eq!(not_needed("port", &[calls::PORT]), BTreeSet::from(rare));
}

#[test]
fn each_rule_of_a_network_is_needed() {
    let rare = [];
    assert_eq!(not_needed("network", &[calls::PORT, calls::NETWORK]), BTreeSet::from(rare));
}

#[test]
fn each_rule_of_the_process_is_needed() {
    let rare = [];
    let all = [calls::PROCESS, calls::FORMS, calls::NETWORK, calls::PORT];
    assert_eq!(not_needed("process", &all), BTreeSet::from(rare));
}
