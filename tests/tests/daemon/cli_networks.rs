//! User networks: each is a process of its own, which shares nothing with guests, dies alone and comes again.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use etherparse::PacketBuilder;
use hypernic_tests::{Daemon, LONG, Launch, scratch};
use rustix::process::{Pid, Signal, kill_process};

type Nic = Driver<SocketBus>;

/// A driver of the NIC at `socket`.
fn nic(socket: &Path) -> Nic {
    let until = Instant::now() + LONG;
    loop {
        let bus = SocketBus::connect(socket).map_err(|error| error.to_string());
        let made = bus
            .and_then(|bus| Driver::new(bus, Config::linux()).map_err(|error| error.to_string()));
        match made {
            Ok(nic) => return nic,
            Err(why) => assert!(Instant::now() < until, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a datagram of the guest's comes to the host, through the user network, in this time.
fn reaches_the_host(nic: &mut Nic, within: Duration) -> bool {
    let host = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = host.local_addr().expect("bound").port();
    let pause = Duration::from_millis(20);
    host.set_read_timeout(Some(pause)).expect("set");
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(nic.mac(), [0x52, 0x55, 10, 0, 2, 2])
        .ipv4([10, 0, 2, 15], [10, 0, 2, 2], 64)
        .udp(4000, port)
        .write(&mut frame, b"hello, this is the guest")
        .expect("it fits");
    let until = Instant::now() + within;
    while Instant::now() < until {
        // While its process is not there, the NIC's cable is out.
        let _ = nic.send(&[&frame], &TxOpts::default());
        if host.recv(&mut [0; 64]).is_ok() {
            return true;
        }
    }
    false
}

/// The processes that this one has started.
fn children(of: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .filter(|pid| status(*pid, "State:").is_some_and(|state| !state.starts_with('Z')))
        .collect()
}

/// A line of a process's status.
fn status(pid: u32, word: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let found = status.lines().find_map(|line| line.strip_prefix(word));
    found.map(|value| value.trim().to_owned())
}

/// A child of this name.
fn child(of: u32, name: &str) -> Option<u32> {
    let named = |pid: &u32| status(*pid, "Name:").as_deref() == Some(name);
    children(of).into_iter().find(named)
}

/// What keeps the one that starts networks for this process.
fn keeper(worker: u32) -> u32 {
    let until = Instant::now() + LONG;
    loop {
        if let Some(keeper) = child(worker, "networks-keeper") {
            return keeper;
        }
        assert!(Instant::now() < until, "no keeper of a launcher");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What starts networks for this process, and the networks.
fn processes(worker: u32) -> (u32, Vec<u32>) {
    let until = Instant::now() + LONG;
    loop {
        if let Some(launcher) = child(keeper(worker), "user-networks") {
            return (launcher, children(launcher));
        }
        assert!(Instant::now() < until, "no launcher");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), Signal::KILL).expect("it is there");
}

fn wait_for_the_end_of(pids: &[u32]) {
    let until = Instant::now() + LONG;
    let there = |pid: &u32| status(*pid, "State:").is_some_and(|state| !state.starts_with('Z'));
    while pids.iter().any(there) {
        assert!(Instant::now() < until, "one of {pids:?} goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the descriptors of a process lead to.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let link = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(target.to_string_lossy().into_owned())
    };
    entries.filter_map(link).collect()
}

/// The sockets among them that a table of the kernel has, by their lines there.
fn sockets(pid: u32, tables: &[&str]) -> Vec<String> {
    let inodes: BTreeSet<String> = descriptors(pid)
        .iter()
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let read = |table: &&str| std::fs::read_to_string(format!("/proc/{pid}/net/{table}"));
    let texts = tables.iter().filter_map(|table| read(table).ok());
    let lines: Vec<String> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let ours = |line: &String| line.split_whitespace().any(|word| inodes.contains(word));
    lines.into_iter().filter(ours).collect()
}

/// Two NICs, one on a user network of its own and one before a wall that gives its frames back.
fn two(dir: &Path, words: &str, network: &str) -> Launch {
    let file = dir.join("host.toml");
    let text = format!(
        "control = \"{0}/control\"\nworkers = 1\n{words}\n\
         [[nic]]\nname = \"a\"\nsocket-path = \"{0}/a\"\nport = \"{network}\"\n\
         [[nic]]\nname = \"b\"\nsocket-path = \"{0}/b\"\nport = \"loopback\"\n",
        dir.display()
    );
    std::fs::write(&file, text).expect("a file");
    Launch::new().expect("built").arg("serve").arg(file)
}

/// A port of the host that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address.expect("a port").port()
}

#[test]
fn a_user_network_is_a_process_that_shares_nothing_with_guests() {
    let dir = scratch().expect("a folder");
    // In the strict sandbox every layer is on, or nothing starts.
    let launch = two(dir.path(), "sandbox = \"strict\"", "user");
    let mut daemon = launch.start().expect("it serves");
    let (mut a, b) = (nic(&dir.path().join("a")), nic(&dir.path().join("b")));
    assert!(reaches_the_host(&mut a, LONG));
    let maps = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let worker = daemon.server();
    // The guests' memory is where it is looked for.
    assert!(maps(worker).contains("memfd:"), "{}", maps(worker));
    assert!(
        sockets(worker, &["unix"])
            .iter()
            .any(|line| line.ends_with("/a"))
    );
    let (launcher, networks) = processes(worker);
    assert_eq!(networks.len(), 1, "one network");
    let keeper = keeper(worker);
    for pid in [keeper, launcher, networks[0]] {
        assert!(!maps(pid).contains("memfd:"), "{}", maps(pid));
        let known = [
            "/dev/null",
            "socket:",
            "anon_inode:[eventpoll]",
            "anon_inode:[pidfd]",
        ];
        let stderr = std::fs::read_link(format!("/proc/{worker}/fd/2")).expect("it has one");
        for link in descriptors(pid) {
            let known = known.iter().any(|known| link.starts_with(known));
            assert!(known || Path::new(&link) == stderr, "{link}");
        }
        // Neither a socket that listens for VMMs, nor a VMM's, nor control's: those have paths.
        let unix = sockets(pid, &["unix"]);
        assert!(unix.iter().all(|line| !line.contains('/')), "{unix:?}");
        let wanted = [("Threads:", "1"), ("NoNewPrivs:", "1"), ("Seccomp:", "2")];
        for (word, value) in wanted {
            assert_eq!(status(pid, word).as_deref(), Some(value), "{word}");
        }
    }
    let inner = ["tcp", "tcp6", "udp", "udp6", "icmp", "icmp6"];
    assert_eq!(sockets(worker, &inner), Vec::<String>::new());
    assert_eq!(sockets(launcher, &inner), Vec::<String>::new());
    assert_eq!(sockets(keeper, &inner), Vec::<String>::new());
    // Its port's alone, besides those to the world.
    assert_eq!(sockets(networks[0], &["unix"]).len(), 1);
    assert!(!sockets(networks[0], &inner).is_empty());
    assert_eq!(
        status(networks[0], "CapPrm:").as_deref(),
        Some("0000000000000000")
    );
    assert_eq!(
        status(networks[0], "Seccomp_filters:").as_deref(),
        Some("2")
    );
    // They end with the process that serves, however that ends.
    let lines = daemon.log_position();
    kill(worker);
    wait_for_the_end_of(&[keeper, launcher, networks[0]]);
    daemon
        .wait_log_after(lines, "serving")
        .expect("the next worker");
    drop((a, b));
    assert!(daemon.stop().expect("it ends").success());
}

/// Whatever happens, the others stop.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends frames to the wall until `stop`, one after the other. How many there were; each came back.
fn to_and_fro(mut nic: Nic, stop: &AtomicBool) -> u64 {
    let mut count = 0u64;
    while !stop.load(Ordering::Acquire) {
        let number = count.to_be_bytes();
        let head = [&[0xff; 6], &nic.mac()[..], &[0x88, 0xb5], &number].concat();
        let frame = [&head[..], &[0; 80]].concat();
        nic.send(&[&frame], &TxOpts::default()).expect("it sends");
        let until = Instant::now() + LONG;
        while !nic
            .receive()
            .expect("it receives")
            .iter()
            .any(|came| came.starts_with(&head))
        {
            assert!(Instant::now() < until, "frame {count} is lost");
        }
        count += 1;
    }
    count
}

#[test]
fn a_user_network_that_dies_comes_again_and_others_notice_nothing() {
    let dir = scratch().expect("a folder");
    let mut daemon = two(dir.path(), "", "user").start().expect("it serves");
    let (mut a, b) = (nic(&dir.path().join("a")), nic(&dir.path().join("b")));
    assert!(reaches_the_host(&mut a, LONG));
    let (launcher, first) = processes(daemon.server());
    let stop = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let others = scope.spawn(|| to_and_fro(b, &stop));
        let mut before = first.clone();
        for life in 1..=5 {
            let lines = daemon.log_position();
            kill(before[0]);
            let line = daemon
                .wait_log_after(lines, "was killed by signal 9; another one is started")
                .expect("it is told");
            assert!(line.contains("a/user"), "{line}");
            assert!(reaches_the_host(&mut a, LONG), "life {life}");
            let (same, now) = processes(daemon.server());
            assert!(
                same == launcher && now.len() == 1 && now != before,
                "{now:?}"
            );
            before = now;
        }
        // Six short lives are enough.
        kill(before[0]);
        daemon
            .wait_log("closed: its process was killed by signal 9")
            .expect("it is told");
        assert!(!reaches_the_host(&mut a, Duration::from_millis(200)));
        drop(stops);
        others.join().expect("nothing is lost")
    });
    assert!(count > 100, "{count} frames of another NIC");
    let counters = daemon.counters().expect("printed");
    assert_eq!(counters.total("port", "user_deaths"), 6, "{counters}");
    assert!(daemon.stop().expect("it ends").success());
}

#[test]
fn what_starts_user_networks_is_started_again_when_it_dies() {
    let dir = scratch().expect("a folder");
    // In the strict sandbox every layer is on, or nothing starts.
    let launch = two(dir.path(), "sandbox = \"strict\"", "user");
    let mut daemon = launch.start().expect("it serves");
    let (mut a, b) = (nic(&dir.path().join("a")), nic(&dir.path().join("b")));
    assert!(reaches_the_host(&mut a, LONG));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let others = scope.spawn(|| to_and_fro(b, &stop));
        let keeper = keeper(daemon.server());
        for life in 1..=3 {
            let (launcher, networks) = processes(daemon.server());
            kill(launcher);
            wait_for_the_end_of(&[&[launcher][..], &networks].concat());
            assert!(reaches_the_host(&mut a, LONG), "life {life}");
            let (next, now) = processes(daemon.server());
            assert!(next != launcher && now.len() == 1 && now != networks);
            assert_eq!(keeper, self::keeper(daemon.server()));
        }
        drop(stops);
        assert!(others.join().expect("nothing is lost") > 0);
    });
    let log = daemon.log();
    let told = "what starts them was killed by signal 9; another one is started";
    assert_eq!(log.matches(told).count(), 3, "{log}");
    assert!(daemon.stop().expect("it ends").success());
}

#[test]
fn without_what_starts_networks_one_that_dies_says_so_and_the_daemon_goes_on() {
    let dir = scratch().expect("a folder");
    let mut daemon = two(dir.path(), "", "user").start().expect("it serves");
    let b = nic(&dir.path().join("b"));
    let (launcher, networks) = processes(daemon.server());
    kill(keeper(daemon.server()));
    // They had nobody left who would end them.
    wait_for_the_end_of(&[&[launcher][..], &networks].concat());
    daemon
        .wait_log("closed: no process can be started for it")
        .expect("it is told");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let others = scope.spawn(|| to_and_fro(b, &stop));
        std::thread::sleep(Duration::from_millis(100));
        drop(stops);
        assert!(others.join().expect("nothing is lost") > 0);
    });
    assert!(daemon.stop().expect("it ends").success());
}

/// With a keeper, in the strict sandbox: a worker that dies, and one that hands over, have their networks again, with the
/// same port of the host.
#[test]
fn a_worker_that_comes_again_has_its_user_networks_again() {
    let dir = scratch().expect("a folder");
    let port = free_port();
    let network = format!("user:hostfwd=tcp:127.0.0.1:{port}-:22");
    let words = "sandbox = \"strict\"\nkeeper = true";
    let mut daemon = two(dir.path(), words, &network).start().expect("it serves");
    let served = |daemon: &Daemon| {
        TcpStream::connect(("127.0.0.1", port)).expect("the port of the host is there");
        let worker = daemon.worker().expect("a worker");
        let worker = u32::try_from(worker.as_raw_nonzero().get()).expect("a number");
        let (launcher, networks) = processes(worker);
        assert_eq!(networks.len(), 1);
        vec![launcher, networks[0]]
    };
    let mut before = served(&daemon);
    for way in 0..3 {
        if way == 1 {
            let lines = daemon.log_position();
            daemon.signal(Signal::USR2).expect("sent");
            daemon
                .wait_log_after(lines, "\"serving\"")
                .expect("it serves");
        } else {
            daemon.end_worker(Signal::KILL).expect("another");
        }
        let now = served(&daemon);
        wait_for_the_end_of(&before);
        assert!(now.iter().all(|pid| !before.contains(pid)), "{now:?}");
        before = now;
        assert!(reaches_the_host(&mut nic(&dir.path().join("a")), LONG));
    }
    assert!(daemon.stop().expect("it ends").success());
    wait_for_the_end_of(&before);
}
